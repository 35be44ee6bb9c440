#include "base/ini_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { MAX_INCLUDE_DEPTH = 8, NO_INCLUDES = MAX_INCLUDE_DEPTH + 1 };

typedef struct reader {
    const char *path; /* or the name of a text */
    int depth;        /* of included files */
    char *section;    /* heap; NULL: before the first one */
    nm_ini_visit *visit;
    void *user;
} reader;

static nm_status read_file(const reader *of, const char *path, int depth, nm_error *err);

static nm_status include_file(const reader *self, const char *value, nm_error *err)
{
    if (self->depth == NO_INCLUDES)
        return nm_fail(err, NM_FORMAT, "include = %.200s is not allowed here", value);
    const char *slash = strrchr(self->path, '/');
    NM_AUTO_FREE char *other = value[0] == '/' || !slash
                                   ? nm_duplicate(value)
                                   : nm_format("%.*s%s", (int)(slash - self->path + 1), self->path, value);
    return read_file(self, other, self->depth + 1, err);
}

/* A comment starts with # or ; at the start of a line, or with ; after whitespace. */
static void cut_comment(char *line)
{
    for (char *at = line; *at; at++)
        if (*at == ';' && (at == line || isspace((unsigned char)at[-1])))
            *at = 0;
    if (*line == '#')
        *line = 0;
}

/* The text after the last " ; ", heap; NULL: none. */
static char *last_comment(const char *line)
{
    const char *comment = NULL;
    for (const char *at = line; (at = strstr(at, " ; ")) != NULL; at += 3)
        comment = at + 3;
    return comment ? nm_duplicate(comment) : NULL;
}

/* line: trimmed, without comment. */
static nm_status read_setting(const reader *self, char *line, const char *comment, nm_error *err)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return nm_fail(err, NM_FORMAT, "expected [section] or name = value");
    *equals = 0;
    const nm_ini_setting setting = {self->section, nm_trim(line), nm_trim(equals + 1), comment};
    if (!self->section && !strcmp(setting.name, "include"))
        return include_file(self, setting.value, err);
    return self->visit(self->user, &setting, err);
}

static nm_status read_line(reader *self, char *line, nm_error *err)
{
    line = nm_trim(line);
    NM_AUTO_FREE char *comment = last_comment(line);
    cut_comment(line);
    line = nm_trim(line);
    size_t length = strlen(line);
    nm_status status = NM_OK;
    if (length && line[0] == '[' && line[length - 1] == ']') {
        line[length - 1] = 0;
        free(self->section);
        self->section = nm_duplicate(nm_trim(line + 1));
    } else if (length) {
        status = read_setting(self, line, comment, err);
    }
    return status;
}

static nm_status read_text(reader *self, const char *text, nm_error *err)
{
    char *copy = nm_duplicate(text), *rest = copy;
    nm_status status = NM_OK;
    int number = 0;
    for (char *line; status == NM_OK && (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        status = read_line(self, line, err);
        if (status != NM_OK)
            nm_error_prefix(err, "%s:%d", self->path, number);
    }
    NM_FREE(self->section, copy);
    return status;
}

static nm_status read_file(const reader *of, const char *path, int depth, nm_error *err)
{
    if (depth > MAX_INCLUDE_DEPTH)
        return nm_fail(err, NM_USAGE, "%s: included files are nested more than %d levels deep", path,
                       MAX_INCLUDE_DEPTH);
    NM_AUTO_FREE char *text = NULL;
    size_t bytes;
    NM_TRY(nm_file_read(path, &text, &bytes, err));
    /* byte order mark of Windows editors */
    const char *start = strncmp(text, "\xEF\xBB\xBF", 3) ? text : text + 3;
    reader self = {.path = path, .depth = depth, .visit = of->visit, .user = of->user};
    size_t first_zero = strlen(text), line = 1;
    for (size_t i = 0; i < first_zero; i++)
        line += text[i] == '\n';
    return first_zero == bytes ? read_text(&self, start, err)
                               : nm_fail(err, NM_FORMAT, "%s:%zu: contains a zero byte", path, line);
}

nm_status nm_ini_read_file(const char *path, nm_ini_visit *visit, void *user, nm_error *err)
{
    const reader of = {.visit = visit, .user = user};
    return read_file(&of, path, 0, err);
}

nm_status nm_ini_read_text(const char *name, const char *text, nm_ini_visit *visit, void *user, nm_error *err)
{
    reader self = {.path = name, .depth = NO_INCLUDES, .visit = visit, .user = user};
    return read_text(&self, text, err);
}
