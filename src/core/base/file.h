/* Files: read-only mapping, atomic writing through a temporary file, line reader, folders and their locks.
 *
 * Errors name the path. NM_IO: a system call has failed; NM_MEMORY: out of memory. */
#pragma once

#include <stdio.h>
#include "base/file_error.h"

/* The contents of a file, read-only. data is NULL when the file is empty. Release with nm_file_unmap. */
typedef struct nm_file_map {
    const char *data;
    size_t bytes;
} nm_file_map;

/* Reads a regular file. Never blocks. In a process that has called nm_file_map_faults_are_handled the file is
 * mapped, otherwise this is nm_file_map_copy: reading a mapped file that was truncated, as by cp, raises
 * SIGBUS and ends the process.
 * NM_IO  the file cannot be read, or is a folder, a FIFO or a device
 * NM_MEMORY  out of memory */
nm_status nm_file_map_open(nm_file_map *map, const char *path, nm_error *err);
/* The same with a copy of the contents in memory, so that the file may change afterwards. */
nm_status nm_file_map_copy(nm_file_map *map, const char *path, nm_error *err);
void nm_file_unmap(nm_file_map *map);
/* The process handles SIGBUS. The program calls this at its start, the library never. */
void nm_file_map_faults_are_handled(void);

/* Reads a whole file into heap memory and appends a NUL; the caller frees *text. bytes may be NULL. "-" is
 * standard input. A FIFO without a writer is NM_IO instead of a blocked call. */
nm_status nm_file_read(const char *path, char **text, size_t *bytes, nm_error *err);
/* nm_file_read without a byte order mark at the start: for every file that people or other programs write as
 * text. */
nm_status nm_file_read_text(const char *path, char **text, size_t *bytes, nm_error *err);
/* nm_file_read, but *text is NULL without an error if there is no such file. */
nm_status nm_file_read_optional(const char *path, char **text, nm_error *err);

/* Atomic writing: readers see the old file or the complete new one. open creates a temporary file without a
 * name (O_TMPFILE) in the folder of PATH, so that a process that ends before commit leaves no file. commit
 * flushes and syncs it, gives it the name "PATH.XXXXXXXX.new" (8 random hexadecimal digits), renames that to
 * PATH and syncs the folder. On file systems without O_TMPFILE the temporary file has that name from the
 * beginning (O_EXCL). The permissions of an existing file are kept, and symbolic links are followed.
 * Standard output ("-"), devices and FIFOs are written directly. */
typedef struct nm_file_writer {
    FILE *stream; /* NULL when closed */
    char *path;   /* for messages */
    /* Path of the temporary file, "" while it has no name; NULL if the target is written directly. */
    char *temporary;
    char *target; /* path with symbolic links resolved: the new name of the temporary file */
} nm_file_writer;

nm_status nm_file_writer_open(nm_file_writer *writer, const char *path, nm_error *err);
/* fwrite with a message. With bytes = 0 it does nothing, and the writer may be closed. */
nm_status nm_file_append(nm_file_writer *writer, const void *data, size_t bytes, nm_error *err);
/* A path at which this process can read the data that has been written and flushed. The caller frees it. */
char *nm_file_writer_readable(const nm_file_writer *writer);
/* Completes the file. Closes the writer in every case; removes the temporary file on failure. */
nm_status nm_file_writer_commit(nm_file_writer *writer, nm_error *err);
/* Removes the temporary file. Does nothing to a closed writer. */
void nm_file_writer_abort(nm_file_writer *writer);
/* Writes bytes to path with a writer. */
nm_status nm_file_write(const char *path, const void *data, size_t bytes, nm_error *err);

/* Renames a file within a folder, and syncs the folder. NM_IO */
nm_status nm_file_rename(const char *path, const char *name, nm_error *err);
/* Makes `name` a hard link to the file at path. Replaces an existing file atomically. Copies the file if the
 * file system does not support hard links. */
nm_status nm_file_link(const char *path, const char *name, nm_error *err);

/* Whether the file name (without folder) is that of a temporary file of nm_file_writer. */
bool nm_file_is_temporary(const char *name);
/* Removes the temporary files that a killed process left in the folder. Only for folders that the caller has
 * locked. */
void nm_folder_remove_temporaries(const char *folder);

/* fopen with a message; "-" is standard input or output. */
nm_status nm_file_open(FILE **stream, const char *path, const char *mode, nm_error *err);
void nm_input_close(FILE *stream); /* fclose, except for NULL and standard input */
/* fflush that also reports earlier write errors, for example a full disk. */
nm_status nm_file_flush(FILE *stream, const char *path, nm_error *err);
/* nm_file_flush, then fclose (except standard input and output). */
nm_status nm_file_close(FILE *stream, const char *path, nm_error *err);

/* Line reader: one line per call, without its newline ("\n" or "\r\n"). Only the first NM_LINE_MAX + 1
 * bytes of a longer line are
 * kept, which nm_line_check refuses; a line of more than twice that is NM_FORMAT. A byte order mark
 * at the start of the file is skipped. */
#define NM_LINE_MAX ((size_t)256 << 20)

typedef struct nm_lines {
    FILE *stream;
    const char *path; /* for messages; not owned */
    char *text;       /* the current line, NUL-terminated; owned by the reader */
    size_t bytes, capacity;
    int64_t number; /* of the current line, from 1 */
    /* the current line ends with a newline; with a carriage return before that */
    bool has_newline, has_return;
    bool keep_bom; /* do not skip a byte order mark; set after nm_lines_init */
} nm_lines;

void nm_lines_init(nm_lines *lines, FILE *stream, const char *path);
/* *more is false at the end of the file. A read error is NM_IO. */
nm_status nm_lines_next(nm_lines *lines, bool *more, nm_error *err);
void nm_lines_release(nm_lines *lines);

/* Creates a folder and its parents; an existing folder is not an error. */
nm_status nm_folder_create(const char *path, nm_error *err);
/* Whether path exists. NM_IO if that cannot be determined, for example in a folder without permission. */
nm_status nm_file_find(const char *path, bool *found, nm_error *err);
/* The same for folder/name. */
nm_status nm_file_find_in(const char *folder, const char *name, bool *found, nm_error *err);
/* NM_USAGE if path is a pipe, a device or "-" (standard input), which cannot be read twice. A missing file is
 * not an error. */
nm_status nm_file_check_rereadable(const char *path, nm_error *err);
/* Whether both paths name the same existing file. */
bool nm_file_is_same(const char *a, const char *b);
/* False only if path certainly does not exist. For choosing between files: opening the file reports other
 * errors. */
bool nm_file_may_exist(const char *path);
/* The next name of a comma-separated list of paths, heap; NULL at its end. A name that exists may contain
 * commas: the longest one that `exists` (NULL: nm_file_may_exist) finds, otherwise up to the next comma.
 * *list is advanced. */
char *nm_path_list_next(const char **list, bool (*exists)(const void *context, const char *name),
                        const void *context);
/* "folder/name" as heap string; the caller frees. */
char *nm_path_join(const char *folder, const char *name);

/* Exclusive lock of a folder against other processes: flock on "FOLDER/.lock", which holds the process id of
 * the owner. */
typedef struct nm_folder_lock {
    char *path; /* NULL when not locked */
    int descriptor;
} nm_folder_lock;

/* NM_IO when another process holds the lock: the message contains its process id. Does not wait. On file
 * systems without flock the call succeeds without locking. */
nm_status nm_folder_lock_acquire(nm_folder_lock *lock, const char *folder, nm_error *err);
/* Removes the lock file. Does nothing to {0}. */
void nm_folder_lock_release(nm_folder_lock *lock);
