/* Spans of a line that the Moses tokenizer keeps as one token if asked to: the class of Moses'
 * basic-protected-patterns. They are addresses of pages (https://a.b/c?d=1), mail addresses and tags of
 * markup. Unlike those patterns, an address has a query and fragment, and no mark that ends the sentence.
 * */
#include "text/moses_rules.h"

#include <string.h>
#include <strings.h>

static bool is_word_byte(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (unsigned char)c >= 0x80;
}

/* Length of the run of non-blank bytes at the beginning that addresses may contain. */
static size_t address_run(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && (unsigned char)text[n] > ' ' && (unsigned char)text[n] < 0x7f &&
           !strchr("<>\"`{}|\\^", text[n]))
        n++;
    return n;
}

/* Marks at the end belong to the sentence, and so does a bracket that the address does not open. */
static size_t trim_address(const char *text, size_t n)
{
    for (; n; n--) {
        char last = text[n - 1];
        bool bracket = last == ')' || last == ']';
        int64_t open = 0;
        for (size_t i = 0; bracket && i < n; i++)
            open += text[i] == (last == ')' ? '(' : '[') ? 1 : text[i] == last ? -1 : 0;
        if (!strchr(".,;:!?'", last) && !(bracket && open < 0))
            break;
    }
    return n;
}

static size_t page_length(const char *text, size_t bytes)
{
    static const char *const starts[] = {"https://", "http://", "ftp://", "www."};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t head = strlen(starts[i]);
        if (bytes <= head || strncasecmp(text, starts[i], head) || !is_word_byte(text[head]))
            continue;
        return trim_address(text, address_run(text, bytes));
    }
    return 0;
}

static size_t name_run(const char *text, size_t bytes, const char *marks)
{
    size_t n = 0;
    while (n < bytes && (unsigned char)text[n] < 0x80 &&
           (is_word_byte(text[n]) || (text[n] && strchr(marks, text[n]))))
        n++;
    return n;
}

static size_t mail_length(const char *text, size_t bytes)
{
    size_t name = name_run(text, bytes, "._-+");
    if (!name || name + 1 >= bytes || text[name] != '@')
        return 0;
    size_t n = name + 1 + name_run(text + name + 1, bytes - name - 1, ".-");
    while (n > name + 1 && !is_word_byte(text[n - 1]))
        n--;
    size_t last = n;
    while (last > name + 1 && (text[last - 1] | 32) >= 'a' && (text[last - 1] | 32) <= 'z')
        last--;
    return n - last >= 2 && last > name + 2 && text[last - 1] == '.' ? n : 0;
}

/* <b>, </b>, <br/>, <a href="x">: with spaces, only if there is a value. */
static size_t tag_length(const char *text, size_t bytes)
{
    size_t n = bytes > 1 && text[1] == '/' ? 2 : 1;
    bool space = false, value = false;
    if (text[0] != '<' || n >= bytes || !is_word_byte(text[n]))
        return 0;
    for (; n < bytes && text[n] != '>' && text[n] != '<'; n++) {
        space |= text[n] == ' ';
        value |= text[n] == '=';
    }
    return n < bytes && text[n] == '>' && (!space || value) ? n + 1 : 0;
}

size_t nm_moses_find_protected(const char *line, size_t bytes, size_t at, size_t *length)
{
    for (; at < bytes; at++) {
        bool inside = at && is_word_byte(line[at - 1]);
        *length = tag_length(line + at, bytes - at);
        if (!*length && !inside)
            *length = page_length(line + at, bytes - at);
        if (!*length && !inside)
            *length = mail_length(line + at, bytes - at);
        if (*length)
            return at;
    }
    *length = 0;
    return bytes;
}
