/* INI files: [section] lines, name = value lines, comments, and `include = FILE` before the first section,
 * which reads the settings of another file first. inih is not used because it limits lines to 200 bytes;
 * paths can be longer. */
#pragma once

#include "norma/status.h"

typedef struct nm_ini_setting {
    const char *section; /* NULL: before the first section */
    const char *name, *value;
    const char *comment; /* the text after the last " ; " of the line; NULL: none */
} nm_ini_setting;

/* Receives the settings in their order; what it points to is valid during the call. Its error gets file and
 * line. */
typedef nm_status nm_ini_visit(void *user, const nm_ini_setting *setting, nm_error *err);

/* NM_IO: a file cannot be read; NM_FORMAT: a line is neither a section nor a setting, or the file contains a
 * zero byte; NM_USAGE: included files are nested too deep. */
nm_status nm_ini_read_file(const char *path, nm_ini_visit *visit, void *user, nm_error *err);
/* The same from memory; name is for messages. NM_FORMAT if the text includes a file. */
nm_status nm_ini_read_text(const char *name, const char *text, nm_ini_visit *visit, void *user,
                           nm_error *err);
