#include "text/markup.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

#include "base/text_input.h"
#include "text/utf8.h"

nm_markup_kind nm_markup_kind_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (nm_text_ends_in(name, ".sgm") || nm_text_ends_in(name, ".sgml") || nm_text_ends_in(name, ".xml"))
        return NM_MARKUP_SEGMENTS;
    return strncmp(name, "train.tags.", 11) ? NM_MARKUP_NONE : NM_MARKUP_TAGS;
}

void nm_markup_init(nm_markup *self, nm_markup_kind kind, FILE *stream, const char *path)
{
    *self = (nm_markup){.kind = kind};
    nm_lines_init(&self->lines, stream, path);
}

void nm_markup_release(nm_markup *self)
{
    nm_lines_release(&self->lines);
    nm_buffer_release(&self->text);
}

/* Removes all occurrences of the tag. */
static void remove_tag(nm_buffer *text, const char *tag)
{
    size_t n = strlen(tag);
    for (char *at = text->data; (at = strstr(at, tag));) {
        memmove(at, at + n, strlen(at + n) + 1);
        text->bytes -= n;
    }
}

static bool is_metadata(const char *line)
{
    static const char *const names[] = {"<url>",     "<talkid>",    "<keywords>",    "<speaker>",
                                        "<reviewer", "<translator", "<transcript",   "</transcript",
                                        "<doc",      "</doc",       "<description/>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(line, names[i], strlen(names[i])))
            return true;
    return false;
}

static nm_status next_line(nm_markup *self, bool *more, nm_error *err)
{
    do {
        NM_TRY(nm_lines_next(&self->lines, more, err));
    } while (*more && self->kind == NM_MARKUP_TAGS &&
             is_metadata(self->lines.text + strspn(self->lines.text, " \t")));
    if (!*more)
        return NM_OK;
    self->sentence = self->lines.text;
    self->bytes = self->lines.bytes;
    self->line = self->lines.number;
    if (self->kind == NM_MARKUP_NONE || !memchr(self->sentence, '<', self->bytes))
        return NM_OK;
    nm_buffer_clear(&self->text);
    nm_buffer_append(&self->text, self->sentence, self->bytes);
    static const char *const tags[] = {"<title>", "</title>", "<description>", "</description>"};
    for (int i = 0; i < 4; i++)
        remove_tag(&self->text, tags[i]);
    self->sentence = self->text.data;
    self->bytes = self->text.bytes;
    return NM_OK;
}

/* The code point of an entity such as "amp", "#39" or "#x27", 0 if it is unknown. */
static uint32_t entity_point(const char *name, size_t bytes)
{
    static const struct {
        const char *name;
        uint32_t point;
    } entities[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (strlen(entities[i].name) == bytes && !memcmp(name, entities[i].name, bytes))
            return entities[i].point;
    bool hexadecimal = bytes > 1 && (name[1] == 'x' || name[1] == 'X');
    size_t skip = hexadecimal ? 2 : 1;
    if (bytes <= skip || bytes > 8 || *name != '#' || !isxdigit((unsigned char)name[skip]))
        return 0;
    char *end;
    unsigned long point = strtoul(name + skip, &end, hexadecimal ? 16 : 10);
    bool valid =
        end == name + bytes && point >= ' ' && point < 0x110000 && (point < 0xD800 || point > 0xDFFF);
    return valid ? (uint32_t)point : 0;
}

static void append_text(nm_markup *self, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *sign = self->decode_entities ? memchr(text + at, '&', bytes - at) : NULL;
        size_t plain = sign ? (size_t)(sign - text) - at : bytes - at;
        nm_buffer_append(&self->text, text + at, plain);
        at += plain;
        if (at == bytes)
            return;
        const char *end = memchr(text + at, ';', bytes - at);
        uint32_t point = end ? entity_point(text + at + 1, (size_t)(end - text) - at - 1) : 0;
        nm_utf8_append(&self->text, point ? point : '&');
        at = point ? (size_t)(end - text) + 1 : at + 1;
    }
}

static void trim_sentence(nm_markup *self)
{
    const char *text = self->text.data;
    size_t end = self->text.bytes, start = 0;
    while (end && isspace((unsigned char)text[end - 1]))
        end--;
    while (start < end && isspace((unsigned char)text[start]))
        start++;
    self->sentence = text + start;
    self->bytes = end - start;
}

static nm_status next_segment(nm_markup *self, bool *more, nm_error *err)
{
    static const char end_tag[] = "</seg>";
    nm_lines *lines = &self->lines;
    bool inside = false;
    int64_t started = self->line;
    nm_buffer_clear(&self->text);
    for (;;) {
        if (!self->in_line) {
            NM_TRY(nm_lines_next(lines, more, err));
            if (!*more)
                break;
            if (memchr(lines->text, 0, lines->bytes))
                return nm_fail(err, NM_FORMAT, "%s:%lld: not text: a zero byte", lines->path,
                               (long long)lines->number);
            self->in_line = true;
            self->at = 0;
        }
        char *from = lines->text + self->at;
        if (!inside) {
            char *tag = strcasestr(from, "<seg"), *close = tag ? strchr(tag, '>') : NULL;
            self->in_line = close;
            if (!close)
                continue;
            inside = true;
            self->line = lines->number;
            from = close + 1;
        }
        char *end = strcasestr(from, end_tag);
        append_text(self, from, end ? (size_t)(end - from) : strlen(from));
        if (end) {
            self->at = (size_t)(end - lines->text) + sizeof end_tag - 1;
            trim_sentence(self);
            return NM_OK;
        }
        nm_buffer_append_byte(&self->text, ' ');
        self->in_line = false;
    }
    if (inside)
        return nm_fail(err, NM_FORMAT, "%s:%lld: <seg> without </seg>", lines->path, (long long)self->line);
    if (!started)
        return nm_fail(err, NM_FORMAT, "%s: has no <seg>, although it is an XML or SGML file by its name",
                       lines->path);
    return NM_OK;
}

nm_status nm_markup_next(nm_markup *self, bool *more, nm_error *err)
{
    *more = true;
    return self->kind == NM_MARKUP_SEGMENTS ? next_segment(self, more, err) : next_line(self, more, err);
}
