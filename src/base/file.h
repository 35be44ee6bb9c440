/* Files: whole-file mapping for reading, and writing that is complete or absent. Lines keep their number. */
#ifndef NM_FILE_H
#define NM_FILE_H

#include <stdio.h>
#include "norma/status.h"

/* A file mapped read-only. data is NULL when the file is empty. Close with nm_file_unmap. */
typedef struct nm_file_map {
    const char *data;
    size_t bytes;
} nm_file_map;

nm_status nm_file_map_open(nm_file_map *map, const char *path, nm_error *err);
void nm_file_unmap(nm_file_map *map);

/* Reads a whole file into heap memory with a NUL behind it; the caller frees *text. */
nm_status nm_file_read(const char *path, char **text, size_t *bytes, nm_error *err);

/* Writing aside: open "PATH.new", write, then commit (flush, sync, rename, sync the folder). A reader sees
 * the old file or the whole new one. On any failure nm_file_writer_abort removes what was written. */
typedef struct nm_file_writer {
    FILE *stream; /* NULL when closed */
    char *path, *aside;
} nm_file_writer;

nm_status nm_file_writer_open(nm_file_writer *writer, const char *path, nm_error *err);
/* fwrite that says what failed; nothing to write needs no open file */
nm_status nm_file_append(nm_file_writer *writer, const void *data, size_t bytes, nm_error *err);
nm_status nm_file_writer_commit(nm_file_writer *writer, nm_error *err); /* aborts itself when it fails */
void nm_file_writer_abort(nm_file_writer *writer);

/* Writes bytes to path by a writer as above. */
nm_status nm_file_write(const char *path, const void *data, size_t bytes, nm_error *err);

/* fopen with a clear message; "-" is stdin or stdout. */
nm_status nm_file_open(FILE **stream, const char *path, const char *mode, nm_error *err);
/* fflush that also reports what failed before, e.g. a full disk. */
nm_status nm_file_flush(FILE *stream, const char *path, nm_error *err);
/* fclose (not for stdin/stdout) that reports a write error, e.g. a full disk. */
nm_status nm_file_close(FILE *stream, const char *path, nm_error *err);

/* Line reader: one line at a time, without its end ("\n" or "\r\n"), of any length up to max_bytes. */
typedef struct nm_lines {
    FILE *stream;
    const char *path; /* for messages; not owned */
    char *text;       /* the current line, NUL-terminated; owned by the reader */
    size_t bytes, capacity;
    int64_t number; /* of the current line, from 1 */
} nm_lines;

void nm_lines_init(nm_lines *lines, FILE *stream, const char *path);
/* *more is false at the end of the file. A read error is NM_IO. */
nm_status nm_lines_next(nm_lines *lines, bool *more, nm_error *err);
void nm_lines_release(nm_lines *lines);

nm_status nm_folder_create(const char *path, nm_error *err); /* with parents; fine if it exists */
bool nm_file_exists(const char *path);
/* "a/b" into heap memory; the caller frees. */
char *nm_path_join(const char *folder, const char *name);

#endif
