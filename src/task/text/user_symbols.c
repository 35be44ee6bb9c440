#include "text/user_symbols.h"

#include <string.h>

#include "text/bpe.h"
#include "text/utf8.h"
#include "text/vocab.h"

static bool is_special(const char *text, size_t bytes)
{
    static const char *const specials[NM_VOCAB_N_SPECIAL] = {"<s>", "<pad>", "</s>", "<unk>"};
    for (int i = 0; i < NM_VOCAB_N_SPECIAL; i++)
        if (strlen(specials[i]) == bytes && !memcmp(text, specials[i], bytes))
            return true;
    return false;
}

/* Why the string cannot be a symbol; NULL: it can. */
static const char *find_fault(const char *text, size_t bytes)
{
    const size_t mark = strlen(NM_BPE_SEPARATOR);
    if (!bytes)
        return "is empty";
    if (nm_utf8_find_invalid(text, bytes) < bytes)
        return "is not UTF-8";
    for (size_t at = 0; at < bytes;) {
        uint32_t point = nm_utf8_next(text, &at);
        if (nm_unicode_is_space(point) || point < ' ' || point == 0x7f)
            return "contains whitespace or control characters";
    }
    if (bytes >= mark && !memcmp(text + bytes - mark, NM_BPE_SEPARATOR, mark))
        return "ends with the mark of a BPE subword";
    return is_special(text, bytes) ? "is a special symbol of dictionaries" : NULL;
}

nm_status nm_user_symbols_parse(nm_counter *symbols, const char *list, nm_error *err)
{
    for (const char *at = list; *list; at++) {
        size_t bytes = strcspn(at, ",");
        const char *fault = find_fault(at, bytes);
        if (fault)
            return nm_fail(err, NM_USAGE, "user_symbols: \"%.*s\" %s", (int)(bytes < 100 ? bytes : 100), at,
                           fault);
        nm_counter_add(symbols, at, bytes, 0);
        at += bytes;
        if (!*at)
            break;
    }
    return NM_OK;
}

size_t nm_user_symbols_find(const nm_counter *symbols, const char *line, size_t line_bytes, size_t at,
                            size_t *bytes)
{
    bool begins[256] = {false}; /* by the first byte of a symbol */
    for (size_t i = 0; i < symbols->n; i++)
        begins[(unsigned char)symbols->items[i].text[0]] = true;
    *bytes = 0;
    for (; at < line_bytes; at++) {
        if (!begins[(unsigned char)line[at]])
            continue;
        for (size_t i = 0; i < symbols->n; i++) {
            const nm_count *symbol = &symbols->items[i];
            if (symbol->bytes > *bytes && symbol->bytes <= line_bytes - at &&
                !memcmp(line + at, symbol->text, symbol->bytes))
                *bytes = symbol->bytes;
        }
        if (*bytes)
            break;
    }
    return at;
}
