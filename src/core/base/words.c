/* Validation of lines and splitting into words. */
#include "base/words.h"

#include <string.h>

nm_status nm_line_check(const nm_lines *lines, nm_error *err)
{
    if (lines->bytes <= NM_TEXT_MAX_LINE && nm_utf8_find_invalid(lines->text, lines->bytes) == lines->bytes)
        return NM_OK;
    char where[600];
    snprintf(where, sizeof where, "%s:%lld", lines->path, (long long)lines->number);
    return nm_text_check(lines->text, lines->bytes, where, err);
}

nm_status nm_line_check_text(const nm_lines *lines, nm_error *err)
{
    NM_TRY(nm_line_check(lines, err));
    const char *nul = memchr(lines->text, 0, lines->bytes);
    if (!nul)
        return NM_OK;
    return nm_fail(err, NM_FORMAT, "%s:%lld: not text: byte 0x00 at position %zu", lines->path,
                   (long long)lines->number, (size_t)(nul - lines->text) + 1);
}

nm_status nm_lines_next_text(nm_lines *lines, bool *more, nm_error *err)
{
    NM_TRY(nm_lines_next(lines, more, err));
    return *more ? nm_line_check_text(lines, err) : NM_OK;
}

bool nm_word_next(const char *line, size_t line_bytes, size_t *at, const char **word, size_t *bytes)
{
    while (line_bytes && (line[line_bytes - 1] == '\n' || line[line_bytes - 1] == '\r'))
        line_bytes--;
    while (*at < line_bytes && line[*at] == ' ')
        ++*at;
    if (*at >= line_bytes)
        return false;
    const char *space = memchr(line + *at, ' ', line_bytes - *at);
    *word = line + *at;
    *bytes = space ? (size_t)(space - *word) : line_bytes - *at;
    *at += *bytes;
    return true;
}

size_t nm_text_length(const char *text)
{
    size_t bytes = strlen(text);
    if (!bytes || text[bytes - 1] != '\n')
        return bytes;
    return bytes - (bytes > 1 && text[bytes - 2] == '\r' ? 2 : 1);
}
