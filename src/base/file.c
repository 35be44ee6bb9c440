#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

nm_status nm_file_map_open(nm_file_map *map, const char *path, nm_error *err)
{
    *map = (nm_file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return nm_fail(err, NM_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    nm_status status = NM_OK;
    if (fstat(fd, &info)) {
        status = nm_fail(err, NM_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = nm_fail(err, NM_IO, "%s: not a regular file", path);
    } else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = nm_fail(err, NM_IO, "%s: cannot map: %s", path, strerror(errno));
        else
            *map = (nm_file_map){data, (size_t)info.st_size};
    }
    close(fd);
    return status;
}

void nm_file_unmap(nm_file_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (nm_file_map){0};
}

nm_status nm_file_read(const char *path, char **text, size_t *bytes, nm_error *err)
{
    FILE *stream;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    size_t length = 0, capacity = 1 << 16;
    char *buffer = nm_allocate(capacity);
    for (;;) {
        length += fread(buffer + length, 1, capacity - 1 - length, stream);
        if (length < capacity - 1)
            break;
        capacity *= 2;
        buffer = nm_reallocate(buffer, capacity);
    }
    bool failed = ferror(stream) != 0;
    int cause = errno;
    if (stream != stdin)
        fclose(stream);
    if (failed) {
        free(buffer);
        return nm_fail(err, NM_IO, "%s: reading failed: %s", path, strerror(cause));
    }
    buffer[length] = 0;
    *text = buffer;
    if (bytes)
        *bytes = length;
    return NM_OK;
}

nm_status nm_file_writer_open(nm_file_writer *writer, const char *path, nm_error *err)
{
    *writer = (nm_file_writer){0};
    writer->path = nm_format("%s", path);
    writer->aside = nm_format("%s.new", path);
    writer->stream = fopen(writer->aside, "wb");
    if (!writer->stream) {
        nm_fail(err, NM_IO, "%s: %s", writer->aside, strerror(errno));
        nm_file_writer_abort(writer);
        return NM_IO;
    }
    return NM_OK;
}

void nm_file_writer_abort(nm_file_writer *writer)
{
    if (writer->stream) {
        fclose(writer->stream);
        unlink(writer->aside);
    }
    free(writer->path);
    free(writer->aside);
    *writer = (nm_file_writer){0};
}

static void sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? nm_format("%.*s", (int)(slash - path + 1), path) : nm_format(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

/* A stream remembers that a write failed but not why; flushing tries again and tells. */
nm_status nm_file_flush(FILE *stream, const char *path, nm_error *err)
{
    bool earlier = ferror(stream) != 0;
    if (fflush(stream))
        return nm_fail(err, NM_IO, "%s: writing failed: %s", path, strerror(errno));
    return earlier ? nm_fail(err, NM_IO, "%s: writing failed, the disk may be full", path) : NM_OK;
}

nm_status nm_file_append(nm_file_writer *writer, const void *data, size_t bytes, nm_error *err)
{
    if (bytes && fwrite(data, 1, bytes, writer->stream) != bytes)
        return nm_fail(err, NM_IO, "%s: writing failed: %s", writer->aside, strerror(errno));
    return NM_OK;
}

nm_status nm_file_writer_commit(nm_file_writer *writer, nm_error *err)
{
    nm_status status = nm_file_flush(writer->stream, writer->path, err);
    if (status == NM_OK && fsync(fileno(writer->stream)))
        status = nm_fail(err, NM_IO, "%s: writing failed: %s", writer->path, strerror(errno));
    if (fclose(writer->stream) && status == NM_OK)
        status = nm_fail(err, NM_IO, "%s: writing failed: %s", writer->path, strerror(errno));
    writer->stream = NULL;
    if (status == NM_OK && rename(writer->aside, writer->path))
        status = nm_fail(err, NM_IO, "%s: %s", writer->path, strerror(errno));
    if (status == NM_OK)
        sync_folder_of(writer->path);
    else
        unlink(writer->aside);
    nm_file_writer_abort(writer);
    return status;
}

nm_status nm_file_write(const char *path, const void *data, size_t bytes, nm_error *err)
{
    nm_file_writer writer;
    NM_TRY(nm_file_writer_open(&writer, path, err));
    fwrite(data, 1, bytes, writer.stream);
    return nm_file_writer_commit(&writer, err);
}

nm_status nm_file_open(FILE **stream, const char *path, const char *mode, nm_error *err)
{
    if (!strcmp(path, "-")) {
        *stream = mode[0] == 'r' ? stdin : stdout;
        return NM_OK;
    }
    *stream = fopen(path, mode);
    if (!*stream)
        return nm_fail(err, NM_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    if (mode[0] == 'r' && !fstat(fileno(*stream), &info) && S_ISDIR(info.st_mode)) {
        fclose(*stream);
        *stream = NULL;
        return nm_fail(err, NM_IO, "%s: is a folder", path);
    }
    return NM_OK;
}

nm_status nm_file_close(FILE *stream, const char *path, nm_error *err)
{
    nm_status status = nm_file_flush(stream, path, err);
    if (stream != stdout && stream != stdin && fclose(stream) && status == NM_OK)
        status = nm_fail(err, NM_IO, "%s: writing failed: %s", path, strerror(errno));
    return status;
}

void nm_lines_init(nm_lines *lines, FILE *stream, const char *path)
{
    *lines = (nm_lines){.stream = stream, .path = path};
}

nm_status nm_lines_next(nm_lines *lines, bool *more, nm_error *err)
{
    errno = 0;
    ssize_t length = getline(&lines->text, &lines->capacity, lines->stream);
    if (length < 0) {
        *more = false;
        if (ferror(lines->stream))
            return nm_fail(err, NM_IO, "%s:%lld: reading failed: %s", lines->path,
                           (long long)lines->number + 1, strerror(errno));
        return errno == ENOMEM ? nm_fail(err, NM_MEMORY, "%s:%lld: line too long for memory", lines->path,
                                         (long long)lines->number + 1)
                               : NM_OK;
    }
    *more = true;
    lines->number++;
    if (length && lines->text[length - 1] == '\n')
        length--;
    if (length && lines->text[length - 1] == '\r')
        length--;
    lines->text[length] = 0;
    lines->bytes = (size_t)length;
    return NM_OK;
}

void nm_lines_release(nm_lines *lines)
{
    free(lines->text);
    *lines = (nm_lines){0};
}

nm_status nm_folder_create(const char *path, nm_error *err)
{
    char *copy = nm_format("%s", path);
    nm_status status = NM_OK;
    for (char *at = copy + 1; status == NM_OK; at++) {
        char here = *at;
        if (here != '/' && here != 0)
            continue;
        *at = 0;
        if (mkdir(copy, 0777) && errno != EEXIST)
            status = nm_fail(err, NM_IO, "%s: %s", copy, strerror(errno));
        *at = here;
        if (here == 0)
            break;
    }
    struct stat info;
    if (status == NM_OK && (stat(path, &info) || !S_ISDIR(info.st_mode)))
        status = nm_fail(err, NM_IO, "%s: not a folder", path);
    free(copy);
    return status;
}

bool nm_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *nm_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    return nm_format("%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
}
