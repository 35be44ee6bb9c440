#include "norma/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/memory.h"
#include "base/utf8_cut.h"

const char *nm_version(void)
{
    return NORMA_VERSION;
}

const char *nm_status_text(nm_status status)
{
    switch (status) {
#define S(name, code, text)                                                                                  \
    case NM_##name:                                                                                          \
        return text;
        NM_STATUS_LIST(S)
#undef S
    }
    return "unknown status";
}

/* Replaces control characters and incomplete UTF-8 characters: a message quotes file names, options and
 * contents of files, some of them cut by a printf precision, and must be one line of text without terminal
 * escape sequences. */
static void keep_one_line(char *text)
{
    while (*text) {
        size_t wanted = nm_utf8_length(*text), n = 1;
        while (n < wanted && nm_utf8_continues(text[n]))
            n++;
        if ((unsigned char)*text < ' ' || *text == 0x7f || n < wanted || nm_utf8_continues(*text))
            memset(text, '?', n);
        text += n;
    }
}

/* The middle of a message that is too long is omitted, because its end states the cause. */
static void format_message(nm_error *err, const char *format, va_list args)
{
    enum { TAIL = 200 };
    static const char mark[] = " ... ";
    va_list again;
    locale_t before = nm_c_locale_enter();
    va_copy(again, args);
    int length = vsnprintf(err->text, sizeof err->text, format, args);
    NM_AUTO_FREE char *whole = NULL;
    if (length >= (int)sizeof err->text && vasprintf(&whole, format, again) == length) {
        const char *tail = whole + length - TAIL;
        while (nm_utf8_continues(*tail))
            tail++;
        size_t head = nm_utf8_whole(whole, sizeof err->text - TAIL - sizeof mark);
        snprintf(err->text + head, sizeof err->text - head, "%s%s", mark, tail);
    }
    va_end(again);
    nm_c_locale_leave(before);
}

nm_status nm_fail(nm_error *err, nm_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        format_message(err, format, args);
        va_end(args);
        keep_one_line(err->text);
    }
    return status;
}

nm_status nm_error_prefix(nm_error *err, const char *format, ...)
{
    if (!err)
        return NM_USAGE;
    char context[512];
    char inner[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    nm_utf8_trim(context);
    va_end(args);
    memcpy(inner, err->text, sizeof inner);
    inner[sizeof inner - 1] = 0;
    /* A message that is too long is truncated at its end, because the context states the location. */
    int written = snprintf(err->text, sizeof err->text, "%s: ", context);
    size_t start = written < 0 ? 0 : (size_t)written;
    if (start < sizeof err->text)
        snprintf(err->text + start, sizeof err->text - start, "%s", inner);
    nm_utf8_trim(err->text);
    keep_one_line(err->text);
    return err->status;
}

void nm_panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "norma: internal error at %s:%d: %s\n", file, line, what);
    abort();
}
