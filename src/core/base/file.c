#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

static nm_status fail_errno(nm_error *err, const char *path, const char *action, int cause)
{
    return nm_fail(err, nm_file_error_status(cause), "%s: %s%s", *path ? path : "a file without a name",
                   action, strerror(cause));
}

/* Opens a regular file and sets *bytes to its size. */
static nm_status open_regular(int *fd, size_t *bytes, const char *path, nm_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO is refused below */
    if (*fd < 0)
        return fail_errno(err, path, "", errno);
    struct stat info;
    nm_status status = NM_OK;
    if (fstat(*fd, &info))
        status = fail_errno(err, path, "", errno);
    else if (!S_ISREG(info.st_mode))
        status =
            nm_fail(err, NM_IO, "%s: %s", path, S_ISDIR(info.st_mode) ? "is a folder" : "not a regular file");
    if (status != NM_OK)
        close(*fd);
    *bytes = (size_t)info.st_size;
    return status;
}

static bool faults_are_handled; /* set before the first thread starts */

void nm_file_map_faults_are_handled(void)
{
    faults_are_handled = true;
}

nm_status nm_file_map_open(nm_file_map *map, const char *path, nm_error *err)
{
    if (!faults_are_handled)
        return nm_file_map_copy(map, path, err);
    *map = (nm_file_map){0};
    int fd;
    size_t bytes;
    NM_TRY(open_regular(&fd, &bytes, path, err));
    nm_status status = NM_OK;
    if (bytes > 0) {
        void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = fail_errno(err, path, "cannot map: ", errno);
        else
            *map = (nm_file_map){data, bytes};
    }
    close(fd);
    return status;
}

static nm_status read_bytes(int fd, char *data, size_t bytes, const char *path, nm_error *err)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = read(fd, data + at, bytes - at);
        if (n < 0 && errno != EINTR)
            return fail_errno(err, path, "reading failed: ", errno);
        if (n == 0)
            return nm_fail(err, NM_IO, "%s: was truncated while it was read", path);
        at += n > 0 ? (size_t)n : 0;
    }
    return NM_OK;
}

nm_status nm_file_map_copy(nm_file_map *map, const char *path, nm_error *err)
{
    *map = (nm_file_map){0};
    int fd;
    size_t bytes;
    NM_TRY(open_regular(&fd, &bytes, path, err));
    nm_status status = NM_OK;
    if (bytes > 0) {
        void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) {
            status = nm_fail(err, NM_MEMORY, "%s: out of memory (%zu MiB)", path, bytes >> 20);
        } else {
            *map = (nm_file_map){data, bytes};
            status = read_bytes(fd, data, bytes, path, err);
        }
    }
    close(fd);
    if (status != NM_OK)
        nm_file_unmap(map);
    return status;
}

void nm_file_unmap(nm_file_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (nm_file_map){0};
}

/* Opens path for reading without waiting for the writer of a FIFO. read() on a FIFO returns 0 if it has no
 * writer, and EAGAIN if its writer has not written yet. A writer that is being started has FIFO_WAIT_MS to
 * open it. */
static nm_status open_with_writer(FILE **stream, const char *path, nm_error *err)
{
    enum { FIFO_WAIT_MS = 2000 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0)
        return fail_errno(err, path, "", errno);
    if (!fstat(fd, &info) && S_ISFIFO(info.st_mode)) {
        char nothing;
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        poll(&readable, 1, FIFO_WAIT_MS);
        if (!readable.revents && read(fd, &nothing, 0) == 0 && read(fd, &nothing, 1) == 0) {
            close(fd);
            return nm_fail(err, NM_IO, "%s: is a FIFO that no process writes to", path);
        }
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    *stream = fdopen(fd, "rb");
    if (*stream)
        return NM_OK;
    int cause = errno;
    close(fd);
    return fail_errno(err, path, "", cause);
}

/* A pipe or a device may never end, and a text file may be sparse: both have a limit. */
static const size_t max_stream = (size_t)128 << 20, max_text = (size_t)1 << 30;

static nm_status read_at_most(const char *path, size_t most, char **text, size_t *bytes, nm_error *err)
{
    FILE *stream = stdin;
    struct stat info;
    if (strcmp(path, "-"))
        NM_TRY(open_with_writer(&stream, path, err));
    if (!fstat(fileno(stream), &info) && !S_ISREG(info.st_mode) && max_stream < most)
        most = max_stream;
    size_t length = 0, capacity = 1 << 16;
    char *buffer = malloc(capacity);
    bool complete = false;
    while (buffer && !complete && length <= most) {
        length += fread(buffer + length, 1, capacity - 1 - length, stream);
        complete = length < capacity - 1;
        capacity *= complete || length > most ? 1 : 2;
        char *larger = complete ? buffer : realloc(buffer, capacity);
        if (!larger)
            free(buffer);
        buffer = larger;
    }
    bool failed = buffer && ferror(stream) != 0;
    int cause = errno;
    if (stream != stdin)
        fclose(stream);
    if (!buffer)
        return nm_fail(err, NM_MEMORY, "%s: out of memory", path);
    if (length > most) {
        free(buffer);
        return nm_fail(err, NM_FORMAT, "%s: has more than %zu bytes", path, most);
    }
    if (failed) {
        free(buffer);
        return cause == EISDIR ? nm_fail(err, NM_IO, "%s: is a folder", path)
                               : fail_errno(err, path, "reading failed: ", cause);
    }
    buffer[length] = 0;
    *text = buffer;
    if (bytes)
        *bytes = length;
    return NM_OK;
}

nm_status nm_file_read(const char *path, char **text, size_t *bytes, nm_error *err)
{
    return read_at_most(path, SIZE_MAX, text, bytes, err);
}

nm_status nm_file_read_text(const char *path, char **text, size_t *bytes, nm_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF";
    size_t length;
    NM_TRY(read_at_most(path, max_text, text, &length, err));
    if (!strncmp(*text, mark, sizeof mark - 1)) {
        length -= sizeof mark - 1;
        memmove(*text, *text + sizeof mark - 1, length + 1);
    }
    if (bytes)
        *bytes = length;
    return NM_OK;
}

nm_status nm_file_read_optional(const char *path, char **text, nm_error *err)
{
    bool found;
    *text = NULL;
    NM_TRY(nm_file_find(path, &found, err));
    return found ? nm_file_read(path, text, NULL, err) : NM_OK;
}

static const char temporary_suffix[] = ".new";
enum { RANDOM_DIGITS = 8, TEMPORARY_TAIL = 1 + RANDOM_DIGITS + (int)sizeof temporary_suffix - 1 };

/* "FOLDER/NAME.XXXXXXXX.new", heap. NAME is cut where the result would be too long for a file name. */
static char *format_temporary(const char *target)
{
    uint32_t word = 0;
    if (getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word)
        word = (uint32_t)getpid() * 0x9E3779B9u ^ (uint32_t)clock();
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    size_t name_bytes = strnlen(name, NAME_MAX - TEMPORARY_TAIL);
    return nm_format("%.*s.%08x%s", (int)((size_t)(name - target) + name_bytes), target, word,
                     temporary_suffix);
}

bool nm_file_is_temporary(const char *name)
{
    size_t length = strlen(name);
    if (length <= TEMPORARY_TAIL || strcmp(name + length - (sizeof temporary_suffix - 1), temporary_suffix))
        return false;
    const char *tail = name + length - TEMPORARY_TAIL;
    return *tail == '.' && strspn(tail + 1, "0123456789abcdef") == RANDOM_DIGITS;
}

void nm_folder_remove_temporaries(const char *folder)
{
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
        if (nm_file_is_temporary(entry->d_name))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}

/* The folder of a path, heap. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? nm_format("%.*s", (int)(slash - path + 1), path) : nm_format(".");
}

static void format_descriptor(char path[64], int fd)
{
    snprintf(path, 64, "/proc/self/fd/%d", fd);
}

/* Creates the temporary file of writer->target. Returns its descriptor, or -1 with errno. */
static int create_temporary(nm_file_writer *writer)
{
    enum { TRIES = 100 };
    char *folder = folder_of(writer->target), name[64];
    int unnamed = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(folder);
    format_descriptor(name, unnamed);
    if (unnamed >= 0 && access(name, F_OK) == 0) {
        writer->temporary = nm_duplicate("");
        return unnamed;
    }
    if (unnamed >= 0) /* no /proc: the file could not be linked to a name later */
        close(unnamed);
    for (int i = 0; i < TRIES; i++) {
        free(writer->temporary);
        writer->temporary = format_temporary(writer->target);
        int fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

nm_status nm_file_writer_open(nm_file_writer *writer, const char *path, nm_error *err)
{
    *writer = (nm_file_writer){.path = nm_duplicate(path)};
    if (!strcmp(path, "-")) {
        writer->stream = stdout;
        return NM_OK;
    }
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        nm_file_writer_abort(writer);
        return nm_fail(err, NM_IO, "%s: is a folder", path);
    }
    bool direct = exists && !S_ISREG(info.st_mode);
    int fd, reason; /* errno, which the end of a scope may change */
    if (direct) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
        reason = errno;
    } else {
        NM_AUTO_FREE char *resolved = exists ? realpath(path, NULL) : NULL;
        bool lost = exists && !resolved;
        reason = errno;
        writer->target = nm_duplicate(resolved ? resolved : path);
        fd = lost ? -1 : create_temporary(writer);
        reason = lost ? reason : errno;
        if (fd >= 0 && exists)
            (void)!fchmod(fd, info.st_mode & 0777);
    }
    writer->stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (writer->stream)
        return NM_OK;
    nm_status status = fail_errno(err, path, "", fd >= 0 ? errno : reason);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && writer->temporary && *writer->temporary)
        unlink(writer->temporary);
    nm_file_writer_abort(writer);
    return status;
}

char *nm_file_writer_readable(const nm_file_writer *writer)
{
    char descriptor[64];
    if (writer->temporary && *writer->temporary)
        return nm_duplicate(writer->temporary);
    format_descriptor(descriptor, fileno(writer->stream));
    return nm_duplicate(descriptor);
}

/* Gives the temporary file a name. False with errno. */
static bool name_temporary(nm_file_writer *writer)
{
    enum { TRIES = 100 };
    char descriptor[64];
    format_descriptor(descriptor, fileno(writer->stream));
    for (int i = 0; i < TRIES && !*writer->temporary; i++) {
        char *name = format_temporary(writer->target);
        bool linked = linkat(AT_FDCWD, descriptor, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        int cause = errno;
        if (linked) {
            free(writer->temporary);
            writer->temporary = name;
        } else {
            free(name);
            errno = cause;
            if (cause != EEXIST)
                break;
        }
    }
    return *writer->temporary;
}

void nm_file_writer_abort(nm_file_writer *writer)
{
    if (writer->stream) {
        if (writer->stream != stdout)
            fclose(writer->stream);
        if (writer->temporary && *writer->temporary)
            unlink(writer->temporary);
    }
    NM_FREE(writer->path, writer->temporary, writer->target);
    *writer = (nm_file_writer){0};
}

static void sync_folder_of(const char *path)
{
    NM_AUTO_FREE char *folder = folder_of(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* A stream records that an earlier write failed, but not why; fflush tries again and sets errno. */
nm_status nm_file_flush(FILE *stream, const char *path, nm_error *err)
{
    bool earlier = ferror(stream) != 0;
    if (fflush(stream))
        return fail_errno(err, path, "writing failed: ", errno);
    return earlier ? nm_fail(err, NM_IO, "%s: writing failed, the disk may be full", path) : NM_OK;
}

nm_status nm_file_append(nm_file_writer *writer, const void *data, size_t bytes, nm_error *err)
{
    if (bytes && fwrite(data, 1, bytes, writer->stream) != bytes)
        return fail_errno(err, writer->path, "writing failed: ", errno);
    return NM_OK;
}

nm_status nm_file_writer_commit(nm_file_writer *writer, nm_error *err)
{
    nm_status status = nm_file_flush(writer->stream, writer->path, err);
    if (status == NM_OK && writer->temporary && fsync(fileno(writer->stream)))
        status = fail_errno(err, writer->path, "writing failed: ", errno);
    if (status == NM_OK && writer->temporary && !name_temporary(writer))
        status = fail_errno(err, writer->path, "cannot name the temporary file: ", errno);
    if (writer->stream != stdout && fclose(writer->stream) && status == NM_OK)
        status = fail_errno(err, writer->path, "writing failed: ", errno);
    writer->stream = NULL;
    if (writer->temporary) {
        if (status == NM_OK && rename(writer->temporary, writer->target))
            status = fail_errno(err, writer->path, "", errno);
        if (status == NM_OK)
            sync_folder_of(writer->target);
        else if (*writer->temporary)
            unlink(writer->temporary);
    }
    nm_file_writer_abort(writer);
    return status;
}

nm_status nm_file_write(const char *path, const void *data, size_t bytes, nm_error *err)
{
    nm_file_writer writer;
    NM_TRY(nm_file_writer_open(&writer, path, err));
    if (bytes)
        fwrite(data, 1, bytes, writer.stream); /* commit reports a failure */
    return nm_file_writer_commit(&writer, err);
}

static nm_status copy_file(const char *path, const char *name, nm_error *err)
{
    NM_AUTO(nm_file_unmap) nm_file_map map = {0};
    NM_TRY(nm_file_map_open(&map, path, err));
    return nm_file_write(name, map.data, map.bytes, err);
}

nm_status nm_file_rename(const char *path, const char *name, nm_error *err)
{
    if (rename(path, name))
        return fail_errno(err, name, "", errno);
    sync_folder_of(name);
    return NM_OK;
}

nm_status nm_file_link(const char *path, const char *name, nm_error *err)
{
    enum { TRIES = 100 };
    int cause = EEXIST;
    for (int i = 0; i < TRIES && cause == EEXIST; i++) {
        NM_AUTO_FREE char *temporary = format_temporary(name);
        bool linked = link(path, temporary) == 0;
        cause = linked && rename(temporary, name) == 0 ? 0 : errno;
        if (linked)
            unlink(temporary); /* rename() keeps both names when they are links to the same file */
    }
    if (!cause) {
        sync_folder_of(name);
        return NM_OK;
    }
    if (cause == EPERM || cause == EOPNOTSUPP || cause == EMLINK || cause == EXDEV || cause == ENOSYS)
        return copy_file(path, name, err);
    return fail_errno(err, name, "", cause);
}

nm_status nm_file_open(FILE **stream, const char *path, const char *mode, nm_error *err)
{
    if (!strcmp(path, "-")) {
        *stream = mode[0] == 'r' ? stdin : stdout;
        return NM_OK;
    }
    *stream = fopen(path, mode);
    if (!*stream)
        return fail_errno(err, path, "", errno);
    struct stat info;
    if (mode[0] == 'r' && !fstat(fileno(*stream), &info) && S_ISDIR(info.st_mode)) {
        fclose(*stream);
        *stream = NULL;
        return nm_fail(err, NM_IO, "%s: is a folder", path);
    }
    return NM_OK;
}

void nm_input_close(FILE *stream)
{
    if (stream && stream != stdin)
        fclose(stream);
}

nm_status nm_file_close(FILE *stream, const char *path, nm_error *err)
{
    nm_status status = nm_file_flush(stream, path, err);
    if (stream != stdout && stream != stdin && fclose(stream) && status == NM_OK)
        status = fail_errno(err, path, "writing failed: ", errno);
    return status;
}

void nm_lines_init(nm_lines *lines, FILE *stream, const char *path)
{
    *lines = (nm_lines){.stream = stream, .path = path};
}

static bool grow_line(nm_lines *lines)
{
    size_t capacity = lines->capacity ? 2 * lines->capacity : 256;
    char *text = realloc(lines->text, capacity);
    if (!text)
        return false;
    lines->text = text;
    lines->capacity = capacity;
    return true;
}

nm_status nm_lines_next(nm_lines *lines, bool *more, nm_error *err)
{
    errno = 0;
    size_t length = 0, dropped = 0;
    bool memory = true;
    for (int byte = 0; byte != '\n' && memory && (byte = getc_unlocked(lines->stream)) != EOF;) {
        memory = length + 1 < lines->capacity || grow_line(lines);
        if (memory && length <= NM_LINE_MAX)
            lines->text[length++] = (char)byte;
        else if (memory && ++dropped > NM_LINE_MAX)
            return nm_fail(err, NM_FORMAT, "%s:%lld: line of more than %zu bytes", lines->path,
                           (long long)lines->number + 1, 2 * NM_LINE_MAX);
    }
    *more = false;
    if (!memory)
        return nm_fail(err, NM_MEMORY, "%s:%lld: line too long for memory", lines->path,
                       (long long)lines->number + 1);
    if (ferror(lines->stream))
        return nm_fail(err, nm_input_error_status(errno), "%s:%lld: reading failed: %s", lines->path,
                       (long long)lines->number + 1, nm_input_error_text(errno));
    if (!length)
        return NM_OK;
    lines->text[length] = 0;
    *more = true;
    lines->number++;
    static const char mark[] = "\xEF\xBB\xBF";
    if (lines->number == 1 && !lines->keep_bom && length >= 3 && !memcmp(lines->text, mark, 3)) {
        length -= 3;
        memmove(lines->text, lines->text + 3, (size_t)length + 1);
    }
    lines->has_newline = length && lines->text[length - 1] == '\n';
    length -= lines->has_newline;
    lines->has_return = length && lines->text[length - 1] == '\r';
    length -= lines->has_return;
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
    NM_AUTO_FREE char *copy = nm_format("%s", path);
    nm_status status = NM_OK;
    for (char *at = copy + 1; status == NM_OK; at++) {
        char here = *at;
        if (here != '/' && here != 0)
            continue;
        *at = 0;
        if (mkdir(copy, 0777) && errno != EEXIST)
            status = fail_errno(err, copy, "", errno);
        *at = here;
        if (here == 0)
            break;
    }
    struct stat info;
    if (status == NM_OK && stat(path, &info))
        status = fail_errno(err, path, "", errno);
    else if (status == NM_OK && !S_ISDIR(info.st_mode))
        status = nm_fail(err, NM_IO, "%s: not a folder", path);
    return status;
}

nm_status nm_file_find(const char *path, bool *found, nm_error *err)
{
    *found = access(path, F_OK) == 0;
    bool absent = !*found && (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG);
    return *found || absent ? NM_OK : fail_errno(err, path, "", errno);
}

nm_status nm_file_find_in(const char *folder, const char *name, bool *found, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, name);
    return nm_file_find(path, found, err);
}

nm_status nm_file_check_rereadable(const char *path, nm_error *err)
{
    struct stat info;
    bool other =
        !strcmp(path, "-") || (!stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
    return other ? nm_fail(err, NM_USAGE,
                           "%s: not a regular file, but it is read more than once: save it to a file", path)
                 : NM_OK;
}

bool nm_file_is_same(const char *a, const char *b)
{
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

bool nm_file_may_exist(const char *path)
{
    bool found;
    return nm_file_find(path, &found, NM_IGNORED) != NM_OK || found;
}

char *nm_path_list_next(const char **list, bool (*exists)(const void *context, const char *name),
                        const void *context)
{
    const char *at = *list + strspn(*list, ",");
    size_t shortest = strcspn(at, ","), n = strlen(at);
    char *name = NULL;
    while (n > shortest) {
        free(name);
        name = nm_format("%.*s", (int)n, at);
        if (exists ? exists(context, name) : nm_file_may_exist(name))
            break;
        do
            n--;
        while (at[n] != ',');
    }
    if (n <= shortest) {
        free(name);
        n = shortest;
        name = n ? nm_format("%.*s", (int)n, at) : NULL;
    }
    *list = at + n;
    return name;
}

char *nm_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    return nm_format("%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
}

/* Process id in a lock file that another process has locked; 0 when it cannot be read. */
static long read_owner(int fd)
{
    char text[32] = {0};
    return pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

static nm_status fail_locked(const char *folder, long owner, nm_error *err)
{
    static const char remedy[] = "wait for it to finish or choose another folder";
    return owner > 0
               ? nm_fail(err, NM_IO, "%s: is being written by process %ld; %s", folder, owner, remedy)
               : nm_fail(err, NM_IO, "%s: another program has locked %s/.lock; %s", folder, folder, remedy);
}

/* The owner removes the lock file on release, so a lock is valid only if the path still names the locked
 * file. */
static bool is_current(int fd, const char *path)
{
    struct stat locked, named;
    return !fstat(fd, &locked) && !lstat(path, &named) && locked.st_dev == named.st_dev &&
           locked.st_ino == named.st_ino;
}

nm_status nm_folder_lock_acquire(nm_folder_lock *lock, const char *folder, nm_error *err)
{
    char *path = nm_path_join(folder, ".lock");
    nm_status status = NM_OK;
    *lock = (nm_folder_lock){.descriptor = -1};
    for (bool locked = false; status == NM_OK && !locked;) {
        int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd < 0 && errno == ELOOP) {
            status = nm_fail(err, NM_IO, "%s: is a symbolic link, not a lock of Norma: remove it", path);
        } else if (fd < 0) {
            status = fail_errno(err, path, "", errno);
        } else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            status = fail_locked(folder, read_owner(fd), err);
        } else {
            locked = is_current(fd, path);
        }
        if (locked) {
            lock->descriptor = fd;
            char text[32];
            int bytes = snprintf(text, sizeof text, "%ld\n", (long)getpid());
            if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)bytes, 0) != bytes)
                status = fail_errno(err, path, "writing failed: ", errno);
        } else if (fd >= 0) {
            close(fd);
        }
    }
    lock->path = path;
    if (status != NM_OK && lock->descriptor < 0) {
        free(path);
        lock->path = NULL;
    } else if (status != NM_OK) {
        nm_folder_lock_release(lock);
    }
    return status;
}

void nm_folder_lock_release(nm_folder_lock *lock)
{
    if (!lock->path)
        return;
    unlink(lock->path); /* while the lock is held: afterwards it could be the file of the next owner */
    close(lock->descriptor);
    free(lock->path);
    *lock = (nm_folder_lock){.descriptor = -1};
}
