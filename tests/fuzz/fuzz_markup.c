/* Sentences in .sgm and .xml files, and in train.tags.*: the first byte selects kind and entities. A sentence
 * is a part of one line and not longer than the input. */
#include <string.h>

#include "fuzz.h"
#include "text/markup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const nm_markup_kind kinds[] = {NM_MARKUP_SEGMENTS, NM_MARKUP_TAGS, NM_MARKUP_NONE};
    uint32_t form = fuzz_choice(&data, &bytes, 6);
    nm_markup markup;
    nm_error err;
    nm_status status = NM_OK;
    if (!bytes)
        return 0;
    FILE *stream = fuzz_stream((const char *)data, bytes);
    nm_markup_init(&markup, kinds[form % 3], stream, "input");
    markup.decode_entities = form >= 3;
    size_t total = 0;
    int64_t line = 0;
    for (bool more = true; more;) {
        status = nm_markup_next(&markup, &more, &err);
        if (status != NM_OK || !more)
            break;
        NM_ASSERT(!memchr(markup.sentence, '\n', markup.bytes));
        NM_ASSERT(markup.line >= line && markup.line >= 1);
        line = markup.line;
        total += markup.bytes;
    }
    NM_ASSERT(total <= bytes); /* a character is shorter than its entity */
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    nm_markup_release(&markup);
    fclose(stream);
    return 0;
}
