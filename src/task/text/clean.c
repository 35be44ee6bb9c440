/* The substitutions of mosesdecoder's normalize-punctuation.perl (without -penn) in their order, and that of
 * remove-non-printing-char.perl. The first script works on bytes, so its character classes contain ASCII
 * only. */
#include "text/clean.h"

#include <stdio.h>
#include <utf8proc.h>

#include "text/utf8.h"

/* Character classes in patterns. In a replacement, the n-th class is the character that the n-th class of the
 * pattern matched. */
#define DIGIT  "\1"
#define LETTER "\2"
#define CLOSER "\3" /* . ! : ? ; , */
#define NBSP   "\302\240"

/* s/ +/ /g */
static void squeeze_spaces(const nm_buffer *text, nm_buffer *out)
{
    for (size_t i = 0; i < text->bytes; i++)
        if (!i || text->data[i] != ' ' || text->data[i - 1] != ' ')
            nm_buffer_append_byte(out, text->data[i]);
}

/* s/\"([,\.]+)/$1\"/g: "quotation," */
static void move_english_quotes(const nm_buffer *text, nm_buffer *out)
{
    for (size_t i = 0; i < text->bytes;) {
        size_t n = text->data[i] == '"' ? strspn(text->data + i + 1, ",.") : 0;
        nm_buffer_append(out, text->data + i + (n > 0), n ? n : 1);
        if (n)
            nm_buffer_append_byte(out, '"');
        i += n + 1;
    }
}

/* s/(\.+)\"(\s*[^<])/\"$1$2/g: "quotation". At the end of a line, [^<] matches the newline, which the script
 * keeps. */
static void move_other_quotes(const nm_buffer *text, nm_buffer *out)
{
    for (size_t i = 0; i < text->bytes;) {
        const char *at = text->data + i;
        size_t dots = strspn(at, ".");
        if (!dots || at[dots] != '"' || at[dots + 1] == '<') {
            nm_buffer_append(out, at, dots ? dots : 1);
            i += dots ? dots : 1;
            continue;
        }
        const char *rest = at + dots + 1;
        size_t n = strspn(rest, " \t\n\v\f\r");
        n += rest[n] && rest[n] != '<'; /* the character belongs to the match */
        nm_buffer_append_byte(out, '"');
        nm_buffer_append(out, at, dots);
        nm_buffer_append(out, rest, n);
        i += dots + 1 + n;
    }
}

typedef struct substitution {
    const char *from, *to;
    const char *languages; /* codes separated by spaces; after a minus: all others; NULL: all */
    void (*run)(const nm_buffer *text, nm_buffer *out); /* replaces `to` in rules with repetitions */
} substitution;

#define COMMA_LANGUAGES "de es cz cs fr"

static const substitution rules[] = {
    {"\r", "", NULL, NULL},
    {"(", " (", NULL, NULL},
    {")", ") ", NULL, NULL},
    {"  ", NULL, NULL, squeeze_spaces},
    {") " CLOSER, ")" CLOSER, NULL, NULL},
    {"( ", "(", NULL, NULL},
    {" )", ")", NULL, NULL},
    {DIGIT " %", DIGIT "%", NULL, NULL},
    {" :", ":", NULL, NULL},
    {" ;", ";", NULL, NULL},
    {"`", "'", NULL, NULL},
    {"''", " \" ", NULL, NULL},
    {"„", "\"", NULL, NULL},
    {"“", "\"", NULL, NULL},
    {"”", "\"", NULL, NULL},
    {"–", "-", NULL, NULL},
    {"—", " - ", NULL, NULL},
    {"  ", NULL, NULL, squeeze_spaces},
    {"´", "'", NULL, NULL},
    {LETTER "‘" LETTER, LETTER "'" LETTER, NULL, NULL},
    {LETTER "’" LETTER, LETTER "'" LETTER, NULL, NULL},
    {"‘", "'", NULL, NULL},
    {"‚", "'", NULL, NULL},
    {"’", "\"", NULL, NULL},
    {"''", "\"", NULL, NULL},
    {"…", "...", NULL, NULL},
    {NBSP "«" NBSP, " \"", NULL, NULL},
    {"«" NBSP, "\"", NULL, NULL},
    {"«", "\"", NULL, NULL},
    {NBSP "»" NBSP, "\" ", NULL, NULL},
    {NBSP "»", "\"", NULL, NULL},
    {"»", "\"", NULL, NULL},
    {NBSP "%", "%", NULL, NULL},
    {"nº" NBSP, "nº ", NULL, NULL},
    {NBSP ":", ":", NULL, NULL},
    {NBSP "ºC", " ºC", NULL, NULL},
    {NBSP "cm", " cm", NULL, NULL},
    {NBSP "?", "?", NULL, NULL},
    {NBSP "!", "!", NULL, NULL},
    {NBSP ";", ";", NULL, NULL},
    {"," NBSP, ", ", NULL, NULL},
    {"  ", NULL, NULL, squeeze_spaces},
    {"\"", NULL, "en", move_english_quotes},
    {",\"", "\",", "-en cs cz", NULL},
    {".\"", NULL, "-en cs cz", move_other_quotes},
    {DIGIT NBSP DIGIT, DIGIT "," DIGIT, COMMA_LANGUAGES, NULL},
    {DIGIT NBSP DIGIT, DIGIT "." DIGIT, "-" COMMA_LANGUAGES, NULL},
};

static const substitution apostrophe = {"’", "'", NULL, NULL};

void nm_cleaner_init(nm_cleaner *self, const nm_clean_options *options)
{
    *self = (nm_cleaner){.punctuation = options->punctuation, .non_printing = options->non_printing};
    snprintf(self->language, sizeof self->language, "%s", options->language ? options->language : "");
}

void nm_cleaner_release(nm_cleaner *self)
{
    nm_buffer_release(&self->text);
    nm_buffer_release(&self->next);
    *self = (nm_cleaner){0};
}

static bool applies(const substitution *rule, const char *language)
{
    if (!rule->languages)
        return true;
    bool excludes = *rule->languages == '-';
    for (const char *at = rule->languages + excludes; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (strlen(language) == n && !strncmp(at, language, n))
            return !excludes;
        at += n;
    }
    return excludes;
}

static bool is_class(char c)
{
    return c == *DIGIT || c == *LETTER || c == *CLOSER;
}

static bool in_class(char class, char c)
{
    if (class == *DIGIT)
        return c >= '0' && c <= '9';
    if (class == *LETTER)
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return c && strchr(".!:?;,", c);
}

/* Length of the pattern if it matches at `at`, otherwise 0. */
static size_t match(const char *pattern, const char *at, const char *end)
{
    size_t n = 0;
    for (; pattern[n]; n++)
        if (at + n == end || (is_class(pattern[n]) ? !in_class(pattern[n], at[n]) : pattern[n] != at[n]))
            return 0;
    return n;
}

static void append_replacement(const char *to, const char *from, const char *at, nm_buffer *out)
{
    for (; *to; to++) {
        if (!is_class(*to)) {
            nm_buffer_append_byte(out, *to);
            continue;
        }
        while (!is_class(*from))
            from++, at++;
        nm_buffer_append_byte(out, *at);
        from++, at++;
    }
}

/* The longest part of a pattern without classes. Lines that do not contain it are skipped. */
static const char *literal_part(const char *pattern, size_t *bytes)
{
    const char *best = pattern;
    *bytes = 0;
    for (const char *at = pattern; *at;) {
        size_t n = strcspn(at, DIGIT LETTER CLOSER);
        if (n > *bytes) {
            best = at;
            *bytes = n;
        }
        at += n + (at[n] != 0);
    }
    return best;
}

static void replace(const nm_buffer *text, const substitution *rule, nm_buffer *out)
{
    const char *at = text->data, *end = at + text->bytes;
    while (at < end) {
        size_t n = match(rule->from, at, end);
        if (n)
            append_replacement(rule->to, rule->from, at, out);
        else
            nm_buffer_append_byte(out, *at);
        at += n ? n : 1;
    }
}

static void swap(nm_cleaner *self)
{
    nm_buffer done = self->next;
    self->next = self->text;
    self->text = done;
}

static void apply(nm_cleaner *self, const substitution *rule)
{
    size_t bytes;
    const char *part = literal_part(rule->from, &bytes);
    if (!memmem(self->text.data, self->text.bytes, part, bytes))
        return;
    nm_buffer_clear(&self->next);
    if (rule->run)
        rule->run(&self->text, &self->next);
    else
        replace(&self->text, rule, &self->next);
    swap(self);
}

static bool is_non_printing(uint32_t point)
{
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
        return true;
    default:
        return false;
    }
}

static void remove_non_printing(nm_cleaner *self)
{
    nm_buffer_clear(&self->next);
    for (size_t at = 0; at < self->text.bytes;) {
        size_t start = at;
        if (is_non_printing(nm_utf8_next(self->text.data, &at)))
            nm_buffer_append_byte(&self->next, ' ');
        else
            nm_buffer_append(&self->next, self->text.data + start, at - start);
    }
    swap(self);
}

const nm_buffer *nm_clean(nm_cleaner *self, const char *line, size_t bytes)
{
    nm_buffer_clear(&self->text);
    nm_buffer_append(&self->text, line, bytes);
    if (self->punctuation == NM_PUNCTUATION_APOSTROPHE)
        apply(self, &apostrophe);
    bool moses = self->punctuation == NM_PUNCTUATION_MOSES;
    for (size_t i = 0; moses && i < sizeof rules / sizeof *rules; i++)
        if (applies(&rules[i], self->language))
            apply(self, &rules[i]);
    if (self->non_printing)
        remove_non_printing(self);
    return &self->text;
}
