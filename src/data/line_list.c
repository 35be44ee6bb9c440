#include "data/line_list.h"

#include <omp.h>
#include <stdlib.h>

enum { CHUNK_LINES = 256 };

void nm_line_list_clear(nm_line_list *list)
{
    nm_buffer_clear(&list->text);
    list->n = 0;
}

void nm_line_list_release(nm_line_list *list)
{
    nm_buffer_release(&list->text);
    free(list->ends);
    *list = (nm_line_list){0};
}

void nm_line_list_end_line(nm_line_list *list)
{
    nm_buffer_reserve(&list->text, 0);
    NM_GROW(list->ends, list->n, list->capacity);
    list->ends[list->n++] = list->text.bytes;
}

void nm_line_list_add(nm_line_list *list, const char *line, size_t bytes)
{
    nm_buffer_append(&list->text, line, bytes);
    nm_line_list_end_line(list);
}

static void map_chunk(const nm_line_list *in, size_t chunk, nm_line_work work, void *state, nm_line_list *out)
{
    size_t end = (chunk + 1) * CHUNK_LINES;
    for (size_t i = chunk * CHUNK_LINES; i < in->n && i < end; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(in, i, &bytes);
        work(state, line, bytes, &out->text);
        nm_line_list_end_line(out);
    }
}

static void append_list(nm_line_list *out, const nm_line_list *more)
{
    for (size_t i = 0; i < more->n; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(more, i, &bytes);
        nm_line_list_add(out, line, bytes);
    }
}

void nm_line_list_map(const nm_line_list *in, nm_line_work work, void *const *states, int32_t threads,
                      nm_line_list *out)
{
    size_t n_chunks = (in->n + CHUNK_LINES - 1) / CHUNK_LINES;
    nm_line_list *chunks = nm_allocate((n_chunks + 1) * sizeof *chunks);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (size_t c = 0; c < n_chunks; c++)
        map_chunk(in, c, work, states[omp_get_thread_num()], &chunks[c]);
    for (size_t c = 0; c < n_chunks; c++) {
        append_list(out, &chunks[c]);
        nm_line_list_release(&chunks[c]);
    }
    free(chunks);
}
