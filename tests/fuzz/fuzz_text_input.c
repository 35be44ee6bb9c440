/* Compressed text and other encodings: the first byte selects the encoding. Reading ends at the end of the
 * data or with an error message. */
#include <errno.h>
#include <string.h>

#include "base/text_input.h"
#include "fuzz.h"
#include "text/utf8.h"

enum { MAX_TEXT = 1 << 22 }; /* a few bytes can contain gigabytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const encodings[] = {"",          "utf-8",  "latin1", "utf-16",
                                            "shift_jis", "cp1252", "no-such"};
    static char text[MAX_TEXT];
    uint32_t encoding = fuzz_choice(&data, &bytes, 7);
    FILE *stream;
    nm_error err;
    nm_status status = nm_text_open(&stream, fuzz_file(0, "txt", data, bytes), encodings[encoding], &err);
    if (status != NM_OK) {
        fuzz_check_error(status, &err);
        return 0;
    }
    errno = 0;
    size_t n = fread(text, 1, sizeof text, stream);
    if (ferror(stream))
        NM_ASSERT((errno == EBADMSG || errno == EILSEQ) && *nm_input_error_text(errno));
    else if (encoding >= 2 && n < sizeof text)
        NM_ASSERT(nm_utf8_find_invalid(text, n) == n);
    fclose(stream);
    return 0;
}
