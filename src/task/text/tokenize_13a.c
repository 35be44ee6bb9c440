/* The rules of mteval-v13a. Each rule is one pass over the text, from left to right without overlaps, like a
 * global substitution; the order of the passes matters ("1..2"). All rules concern ASCII characters only, so
 * they work on bytes. */
#include "text/tokenize_13a.h"

#include <string.h>

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_point(char byte)
{
    return byte == '.' || byte == ',';
}

/* The space, and ASCII punctuation other than ' , - . */
static bool is_mark(char byte)
{
    return (byte >= '{' && byte <= '~') || (byte >= '[' && byte <= '`') || (byte >= ' ' && byte <= '&') ||
           (byte >= '(' && byte <= '+') || (byte >= ':' && byte <= '@') || byte == '/';
}

/* Replaces every occurrence of `what` with `by`, which is not longer, in place. */
static void replace_all(nm_buffer *text, const char *what, const char *by)
{
    size_t what_bytes = strlen(what), by_bytes = strlen(by);
    const char *from = text->data, *next;
    char *to = text->data;
    while ((next = strstr(from, what))) {
        size_t before = (size_t)(next - from);
        memmove(to, from, before);
        memcpy(to + before, by, by_bytes); /* NOLINT(bugprone-not-null-terminated-result): more follows */
        to += before + by_bytes;
        from = next + what_bytes;
    }
    size_t rest = strlen(from);
    memmove(to, from, rest + 1);
    text->bytes = (size_t)(to - text->data) + rest;
}

static void resolve_entities(nm_buffer *text)
{
    replace_all(text, "-\n", "");
    replace_all(text, "\n", " ");
    if (!memchr(text->data, '&', text->bytes))
        return;
    replace_all(text, "&quot;", "\"");
    replace_all(text, "&amp;", "&");
    replace_all(text, "&lt;", "<");
    replace_all(text, "&gt;", ">");
}

static void split_marks(const nm_buffer *in, nm_buffer *out)
{
    for (const char *at = in->data; *at; at++) {
        if (is_mark(*at))
            nm_buffer_append(out, (char[]){' ', *at, ' '}, 3);
        else
            nm_buffer_append(out, at, 1);
    }
}

/* Splits off a period or comma after a character that is not a digit. */
static void split_points_after(const nm_buffer *in, nm_buffer *out)
{
    for (const char *at = in->data; *at;) {
        if (!is_digit(at[0]) && is_point(at[1])) {
            nm_buffer_append(out, (char[]){at[0], ' ', at[1], ' '}, 4);
            at += 2;
        } else {
            nm_buffer_append(out, at++, 1);
        }
    }
}

/* Splits off a period or comma before a character that is not a digit. */
static void split_points_before(const nm_buffer *in, nm_buffer *out)
{
    for (const char *at = in->data; *at;) {
        if (is_point(at[0]) && at[1] && !is_digit(at[1])) {
            nm_buffer_append(out, (char[]){' ', at[0], ' ', at[1]}, 4);
            at += 2;
        } else {
            nm_buffer_append(out, at++, 1);
        }
    }
}

static void split_hyphens(const nm_buffer *in, nm_buffer *out)
{
    for (const char *at = in->data; *at;) {
        if (is_digit(at[0]) && at[1] == '-') {
            nm_buffer_append(out, (char[]){at[0], ' ', at[1], ' '}, 4);
            at += 2;
        } else {
            nm_buffer_append(out, at++, 1);
        }
    }
}

/* Appends the words of `in`, separated by single spaces. */
static void append_words(const nm_buffer *in, nm_buffer *out)
{
    size_t start = out->bytes;
    nm_buffer_append(out, "", 0);
    for (const char *at = in->data; *at;) {
        size_t space = 0;
        const char *word = at;
        while (*at && !(space = nm_space_length(at)))
            at++;
        if (at > word && out->bytes > start)
            nm_buffer_append(out, " ", 1);
        nm_buffer_append(out, word, (size_t)(at - word));
        at += space;
    }
}

/* "'s " becomes " 's ". */
static void split_possessives(const nm_buffer *in, nm_buffer *out)
{
    for (const char *at = in->data; *at;) {
        if (!strncmp(at, "'s ", 3)) {
            nm_buffer_append(out, " 's ", 4);
            at += 3;
        } else {
            nm_buffer_append(out, at++, 1);
        }
    }
}

/* Appends the tokens of scratch, which is overwritten. */
static void split(nm_buffer *scratch, bool possessives, nm_buffer *out)
{
    NM_AUTO(nm_buffer_release) nm_buffer other = {0};
    nm_buffer_clear(&other);
    split_marks(scratch, &other);
    nm_buffer_clear(scratch);
    if (possessives) {
        split_possessives(&other, scratch);
        nm_buffer_clear(&other);
        nm_buffer_append(&other, scratch->data, scratch->bytes);
        nm_buffer_clear(scratch);
    }
    split_points_after(&other, scratch);
    nm_buffer_clear(&other);
    split_points_before(scratch, &other);
    nm_buffer_clear(scratch);
    split_hyphens(&other, scratch);
    append_words(scratch, out);
}

static void pad_and_split(const char *text, bool tercom, nm_buffer *scratch, nm_buffer *out)
{
    nm_buffer_clear(scratch);
    nm_buffer_append(scratch, " ", 1);
    nm_buffer_append(scratch, text, strlen(text));
    if (!tercom)
        replace_all(scratch, "<skipped>", "");
    resolve_entities(scratch);
    nm_buffer_append(scratch, " ", 1);
    split(scratch, tercom, out);
}

void nm_tokenize_13a(const char *text, nm_buffer *scratch, nm_buffer *out)
{
    pad_and_split(text, false, scratch, out);
}

void nm_tokenize_tercom(const char *text, nm_buffer *scratch, nm_buffer *out)
{
    pad_and_split(text, true, scratch, out);
}

void nm_split_punctuation(const char *text, nm_buffer *scratch, nm_buffer *out)
{
    nm_buffer_clear(scratch);
    nm_buffer_append(scratch, text, strlen(text));
    split(scratch, false, out);
}
