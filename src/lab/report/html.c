#include "report/html.h"

#include "base/buffer.h"
#include "base/utf8_check.h"

char *nm_text_clean(const char *text)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    nm_buffer out = {0};
    size_t bytes = strlen(text);
    nm_buffer_reserve(&out, bytes);
    nm_buffer_clear(&out);
    for (size_t at = 0; at < bytes;) {
        size_t valid = nm_utf8_find_invalid(text + at, bytes - at);
        for (size_t end = at + valid; at < end; at++) {
            unsigned char byte = (unsigned char)text[at];
            bool control = (byte < ' ' && byte != '\n' && byte != '\t') || byte == 127;
            nm_buffer_append(&out, control ? replacement : text + at, control ? 3 : 1);
        }
        if (at < bytes) {
            nm_buffer_append(&out, replacement, 3);
            at++;
        }
    }
    return out.data;
}

void nm_html_bytes(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        switch (text[i]) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            putc(text[i], out);
        }
}

void nm_html_text(FILE *out, const char *text)
{
    NM_AUTO_FREE char *clean = nm_text_clean(text);
    nm_html_bytes(out, clean, strlen(clean));
}
