#include "base/line_list.h"

#include <stdlib.h>

void nm_line_list_clear(nm_line_list *list)
{
    nm_buffer_clear(&list->text);
    list->n = 0;
}

void nm_line_list_truncate(nm_line_list *list, size_t n)
{
    NM_ASSERT(n <= list->n);
    list->n = n;
    list->text.bytes = n ? list->ends[n - 1] : 0;
}

void nm_line_list_release(nm_line_list *list)
{
    nm_buffer_release(&list->text);
    free(list->ends);
    *list = (nm_line_list){0};
}

void nm_line_list_add(nm_line_list *list, const char *line, size_t bytes)
{
    nm_buffer_append(&list->text, line, bytes);
    NM_APPEND(list->ends, list->n, list->capacity, list->text.bytes);
}

const char **nm_line_list_texts(const nm_line_list *list)
{
    const char **texts = nm_allocate(list->n * sizeof *texts);
    size_t bytes;
    for (size_t i = 0; i < list->n; i++)
        texts[i] = nm_line_list_get(list, i, &bytes);
    return texts;
}
