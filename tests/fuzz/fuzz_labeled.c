/* Labeled texts in every format: the first two bytes select the options. */
#include <string.h>

#include "data/labeled.h"
#include "fuzz.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const columns[] = {"1", "2", "label", "text"},
                             *const texts_of[] = {"2", "1,3", "text", "text,title"},
                             *const encodings[] = {"utf-8", "latin1", "utf-16"};
    nm_labeled_config config = {.format = (nm_labeled_format)fuzz_choice(&data, &bytes, 7)};
    uint32_t choice = fuzz_choice(&data, &bytes, 256);
    config.with_label = choice & 1;
    config.lines_by_default = !config.with_label;
    config.label = columns[choice >> 1 & 3];
    config.text = texts_of[choice >> 3 & 3];
    config.quotes = (nm_labeled_choice)((choice >> 5) % 3);
    config.header = (nm_labeled_choice)((choice >> 6) % 3);
    config.encoding = choice == 255 ? encodings[fuzz_choice(&data, &bytes, 3)] : "utf-8";
    nm_labeled texts;
    nm_error err;
    bool more = true;
    nm_status status = nm_labeled_open(&texts, fuzz_file(0, "txt", data, bytes), &config, &err);
    for (int64_t row = 0; status == NM_OK; row++) {
        status = nm_labeled_next(&texts, &more, &err);
        if (status != NM_OK || !more)
            break;
        NM_ASSERT(texts.row == row && nm_labeled_line(&texts) > row);
        NM_ASSERT(nm_utf8_find_invalid(texts.text.data, texts.text.bytes) == texts.text.bytes);
        NM_ASSERT(!memchr(texts.text.data, '\n', texts.text.bytes));
        if (config.with_label)
            NM_ASSERT(*texts.label && strlen(texts.label) <= NM_LABEL_MAX_BYTES);
    }
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    nm_labeled_close(&texts);
    return 0;
}
