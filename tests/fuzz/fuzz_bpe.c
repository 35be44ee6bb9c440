/* BPE codes and a line that is segmented with them: "codes NUL line". Joining the subwords restores the
 * words. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text/bpe.h"
#include "text/utf8.h"

static void apply(const nm_bpe *bpe, const char *line, size_t bytes)
{
    if (nm_utf8_find_invalid(line, bytes) < bytes || memchr(line, 0, bytes) || memchr(line, '\n', bytes) ||
        memchr(line, '\r', bytes))
        return;
    nm_buffer units = {0}, words = {0};
    nm_buffer_clear(&units);
    nm_buffer_clear(&words);
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_bpe_apply_line(applier, line, bytes, &units);
    nm_bpe_applier_free(applier);
    nm_bpe_remove(units.data, units.bytes, &words);
    /* Everything except spaces is kept, unless the line contains separators. */
    bool plain =
        !memmem(line, bytes, "@@", 2) && !memmem(line, bytes, "@ ", 2) && (!bytes || line[bytes - 1] != '@');
    size_t at = 0;
    for (size_t i = 0; plain && i < bytes; i++) {
        if (line[i] == ' ')
            continue;
        while (at < words.bytes && words.data[at] == ' ')
            at++;
        NM_ASSERT(at < words.bytes && words.data[at] == line[i]);
        at++;
    }
    nm_buffer_release(&units);
    nm_buffer_release(&words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    const char *end = bytes ? memchr(text, 0, bytes) : NULL;
    size_t codes = end ? (size_t)(end - text) : bytes;
    nm_bpe *bpe;
    nm_error err;
    if (nm_bpe_parse(text, codes, "input", &bpe, &err) != NM_OK) {
        NM_ASSERT(!strchr(err.text, '\n'));
        return 0;
    }
    if (end)
        apply(bpe, end + 1, bytes - codes - 1);
    nm_bpe_free(bpe);
    return 0;
}
