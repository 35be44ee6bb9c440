/* A list of lines in one buffer. A line is any byte string. */
#pragma once

#include "base/buffer.h"

/* {0} is an empty list. */
typedef struct nm_line_list {
    nm_buffer text; /* all lines, one after another */
    size_t *ends;   /* [n]: positions in text */
    size_t n, capacity;
} nm_line_list;

void nm_line_list_clear(nm_line_list *list);
void nm_line_list_release(nm_line_list *list);
/* Removes all lines from line n <= list->n on. */
void nm_line_list_truncate(nm_line_list *list, size_t n);
void nm_line_list_add(nm_line_list *list, const char *line, size_t bytes);
/* Pointers to the lines, [n], which must contain their NUL. The caller frees the array. Valid until the list
 * changes. */
const char **nm_line_list_texts(const nm_line_list *list);

/* Line i and its length; not NUL-terminated. Valid until the list changes. */
static inline const char *nm_line_list_get(const nm_line_list *list, size_t i, size_t *bytes)
{
    size_t start = i ? list->ends[i - 1] : 0;
    *bytes = list->ends[i] - start;
    return list->text.data + start;
}
