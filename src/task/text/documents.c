#include "text/documents.h"

#include "base/words.h"

void nm_documents_init(nm_documents *self, FILE *stream, const char *path, nm_document_rule rule)
{
    *self = (nm_documents){.rule = rule};
    nm_lines_init(&self->lines, stream, path);
}

void nm_documents_release(nm_documents *self)
{
    nm_lines_release(&self->lines);
    nm_buffer_release(&self->joined);
}

static nm_status next_line(nm_documents *self, bool *more, nm_error *err)
{
    return self->checked ? nm_lines_next_text(&self->lines, more, err)
                         : nm_lines_next(&self->lines, more, err);
}

/* Whether the current line separates documents. */
static bool separates(const nm_documents *self)
{
    size_t bytes = strlen(self->rule.separator);
    return self->rule.unit == NM_DOCUMENT_SEPARATED && self->lines.bytes == bytes &&
           !memcmp(self->lines.text, self->rule.separator, bytes);
}

static nm_status join_lines(nm_documents *self, bool *more, nm_error *err)
{
    bool any = false, has_line, ends_in_return = false;
    const bool whole_file = self->rule.unit == NM_DOCUMENT_FILE && !self->prompts;
    nm_buffer_clear(&self->joined);
    for (;;) {
        NM_TRY(next_line(self, &has_line, err));
        if (!has_line || (any && separates(self)))
            break;
        if (separates(self))
            continue;
        if (any && ends_in_return)
            nm_buffer_append_byte(&self->joined, '\r');
        if (any)
            nm_buffer_append_byte(&self->joined, '\n');
        else
            self->line = self->lines.number;
        ends_in_return = self->lines.has_return;
        nm_buffer_append(&self->joined, self->lines.text, self->lines.bytes);
        any = true;
        if (self->joined.bytes > NM_TEXT_MAX_LINE)
            return nm_fail(err, NM_FORMAT, "%s:%lld: document of more than %zu bytes, the limit",
                           self->lines.path, (long long)self->line, NM_TEXT_MAX_LINE);
    }
    if (any && whole_file && ends_in_return) /* the document is the file, byte by byte */
        nm_buffer_append_byte(&self->joined, '\r');
    if (any && whole_file && self->lines.has_newline)
        nm_buffer_append_byte(&self->joined, '\n');
    self->text = self->joined.data;
    self->bytes = self->joined.bytes;
    *more = any;
    return NM_OK;
}

nm_status nm_documents_next(nm_documents *self, bool *more, nm_error *err)
{
    if (self->rule.unit != NM_DOCUMENT_LINE)
        return join_lines(self, more, err);
    NM_TRY(next_line(self, more, err));
    self->text = self->lines.text;
    self->bytes = self->lines.bytes;
    self->line = self->lines.number;
    return NM_OK;
}
