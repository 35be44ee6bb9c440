/* Lists of lines in memory, and one function applied to all lines of a list by several threads.
 *
 * The list is cut into chunks of a fixed number of lines and the results are put together in the order of the
 * lines, so they don't depend on the number of threads. A "line" is any byte string: results may be ids. */
#ifndef NM_LINE_LIST_H
#define NM_LINE_LIST_H

#include "text/buffer.h"

/* {0} is a valid empty list. */
typedef struct nm_line_list {
    nm_buffer text; /* all lines, one after another */
    size_t *ends;   /* [n], offsets into text */
    size_t n, capacity;
} nm_line_list;

void nm_line_list_clear(nm_line_list *list);
void nm_line_list_release(nm_line_list *list);
void nm_line_list_add(nm_line_list *list, const char *line, size_t bytes);
/* Makes what was appended to text since the last line a line. */
void nm_line_list_end_line(nm_line_list *list);

static inline const char *nm_line_list_get(const nm_line_list *list, size_t i, size_t *bytes)
{
    size_t start = i ? list->ends[i - 1] : 0;
    *bytes = list->ends[i] - start;
    return list->text.data + start;
}

/* Appends the result for one line to out. */
typedef void (*nm_line_work)(void *state, const char *line, size_t bytes, nm_buffer *out);

/* Appends the results for all lines of in to out. states has a state for each thread. */
void nm_line_list_map(const nm_line_list *in, nm_line_work work, void *const *states, int32_t threads,
                      nm_line_list *out);

#endif
