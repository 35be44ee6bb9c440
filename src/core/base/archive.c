#include "base/archive.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/edit_distance.h"
#include "base/memory.h"
#include "base/shared_library.h"

static const char library_name[] = "libarchive.so.13";

/* The parts of libarchive's archive.h that are used. */
typedef struct archive archive_stream;
typedef struct archive_entry archive_entry;
typedef ssize_t read_callback(archive_stream *, void *data, const void **block);
typedef int64_t skip_callback(archive_stream *, void *data, int64_t bytes);
typedef int64_t seek_callback(archive_stream *, void *data, int64_t offset, int whence);
enum { ARCHIVE_WARN = -20, ARCHIVE_FATAL = -30, BLOCK = 1 << 16 };

struct nm_archive {
    char *file;
    int fd;
    int error; /* errno of a failed read of the file, which libarchive may report as damaged data; 0: none */
    bool zip_only; /* NumPy's npz */
    void *library;
    archive_stream *stream;
    archive_stream *(*create)(void);
    int (*set_read)(archive_stream *, read_callback *);
    int (*set_skip)(archive_stream *, skip_callback *);
    int (*set_seek)(archive_stream *, seek_callback *);
    int (*set_data)(archive_stream *, void *data);
    int (*open)(archive_stream *);
    int (*error_number)(archive_stream *);
    int (*next)(archive_stream *, archive_entry **entry);
    const char *(*name)(archive_entry *), *(*hard_link)(archive_entry *), *(*symbolic_link)(archive_entry *);
    unsigned (*kind)(archive_entry *);
    archive_entry *entry; /* the current member */
    ssize_t (*read)(archive_stream *, void *out, size_t n);
    const char *(*message)(archive_stream *);
    int (*release)(archive_stream *);
    char block[BLOCK];
};

size_t nm_archive_prefix(const char *path)
{
    struct stat info;
    if (!stat(path, &info))
        return 0;
    size_t found = 0;
    NM_AUTO_FREE char *copy = nm_duplicate(path);
    for (char *slash = strrchr(copy, '/'); slash && slash > copy && !found; slash = strrchr(copy, '/')) {
        *slash = 0;
        if (!stat(copy, &info)) {
            found = S_ISREG(info.st_mode) ? (size_t)(slash - copy) : 0;
            break;
        }
    }
    return found;
}

static bool load_all(nm_archive *self)
{
    return nm_library_find(self->library, "archive_read_new", &self->create) &&
           nm_library_find(self->library, "archive_read_set_read_callback", &self->set_read) &&
           nm_library_find(self->library, "archive_read_set_skip_callback", &self->set_skip) &&
           nm_library_find(self->library, "archive_read_set_seek_callback", &self->set_seek) &&
           nm_library_find(self->library, "archive_read_set_callback_data", &self->set_data) &&
           nm_library_find(self->library, "archive_read_open1", &self->open) &&
           nm_library_find(self->library, "archive_errno", &self->error_number) &&
           nm_library_find(self->library, "archive_read_next_header", &self->next) &&
           nm_library_find(self->library, "archive_entry_pathname", &self->name) &&
           nm_library_find(self->library, "archive_entry_hardlink", &self->hard_link) &&
           nm_library_find(self->library, "archive_entry_symlink", &self->symbolic_link) &&
           nm_library_find(self->library, "archive_entry_filetype", &self->kind) &&
           nm_library_find(self->library, "archive_read_data", &self->read) &&
           nm_library_find(self->library, "archive_error_string", &self->message) &&
           nm_library_find(self->library, "archive_read_free", &self->release);
}

static ssize_t read_block(archive_stream *stream, void *data, const void **block)
{
    (void)stream;
    nm_archive *self = data;
    ssize_t bytes = read(self->fd, self->block, BLOCK);
    *block = self->block;
    if (bytes >= 0)
        return bytes;
    self->error = errno;
    return ARCHIVE_FATAL;
}

/* Returns the number of skipped bytes; libarchive reads what remains. */
static int64_t skip_bytes(archive_stream *stream, void *data, int64_t bytes)
{
    (void)stream;
    const nm_archive *self = data;
    return lseek(self->fd, bytes, SEEK_CUR) < 0 ? 0 : bytes;
}

static int64_t seek_file(archive_stream *stream, void *data, int64_t offset, int whence)
{
    (void)stream;
    nm_archive *self = data;
    off_t at = lseek(self->fd, offset, whence);
    return at < 0 ? ARCHIVE_FATAL : at;
}

/* errno of the failure that libarchive has returned; EBADMSG for data that it cannot read. */
static int failure(const nm_archive *self)
{
    if (self->error)
        return self->error;
    return self->error_number(self->stream) == ENOMEM ? ENOMEM : EBADMSG;
}

/* what: that the data is not that of an archive. */
static nm_status fail_reading(const nm_archive *self, const char *what, nm_error *err)
{
    int cause = failure(self);
    if (cause != EBADMSG)
        return nm_fail(err, nm_file_error_status(cause), "%s: %s", self->file, strerror(cause));
    const char *text = self->message(self->stream);
    return nm_fail(err, NM_FORMAT, "%s: %s: %s", self->file, what, text ? text : "unknown error");
}

nm_status nm_archive_next(nm_archive *self, const char **name, nm_error *err)
{
    archive_entry *entry;
    for (*name = NULL; !*name;) {
        int result = self->next(self->stream, &entry);
        if (result < ARCHIVE_WARN)
            return fail_reading(self, "not an archive, or a damaged one", err);
        if (result > 0)
            return NM_OK;
        *name = self->name(entry);
        self->entry = entry;
    }
    *name += !strncmp(*name, "./", 2) ? 2 : 0;
    return NM_OK;
}

/* Reads headers until that of the member, whose data follows. */
static nm_status find_member(nm_archive *self, const char *member, nm_error *err)
{
    const char *name;
    char *nearest = NULL;
    int distance = 0;
    bool found = false;
    nm_status status;
    while ((status = nm_archive_next(self, &name, err)) == NM_OK && name) {
        found = !strcmp(name, member);
        if (found)
            break;
        int other = nm_edit_distance(name, member);
        if (!nearest || other < distance) {
            free(nearest);
            nearest = nm_duplicate(name);
            distance = other;
        }
    }
    if (status == NM_OK && !found)
        status = nm_fail(err, NM_IO, "%s: the archive has no file %s; the most similar name is %s",
                         self->file, member, nearest ? nearest : "none: it is empty");
    free(nearest);
    return status;
}

/* Tar and zip with four compressions, by name: libarchive's "all" would start programs such as lrzip from
 * PATH, which the first
 * bytes of a file select, and read many formats that no corpus has. */
static nm_status enable_formats(nm_archive *self, nm_error *err)
{
    static const char *const names[] = {
        "archive_read_support_filter_gzip", "archive_read_support_filter_bzip2",
        "archive_read_support_filter_xz",   "archive_read_support_filter_zstd",
        "archive_read_support_format_tar",  "archive_read_support_format_zip"};
    enum { FORMATS = 4 }; /* the first of them */
    for (size_t i = self->zip_only ? FORMATS + 1 : 0; i < sizeof names / sizeof *names; i++) {
        int (*enable)(archive_stream *);
        /* ARCHIVE_WARN: this libarchive was built without the compression's library and would start a
         * program */
        if ((!nm_library_find(self->library, names[i], &enable) || enable(self->stream)) && i >= FORMATS)
            return nm_fail(err, NM_UNSUPPORTED, "%s: libarchive cannot read it: %s", self->file, names[i]);
    }
    return NM_OK;
}

static nm_status open_archive(nm_archive *self, nm_error *err)
{
    self->fd = open(self->file, O_RDONLY | O_CLOEXEC);
    if (self->fd < 0)
        return nm_fail(err, nm_file_error_status(errno), "%s: %s", self->file, strerror(errno));
    nm_status loaded = nm_library_open(&self->library, library_name, RTLD_LOCAL, err);
    if (loaded == NM_MEMORY)
        return loaded;
    if (loaded != NM_OK || !load_all(self))
        return nm_fail(
            err, NM_UNSUPPORTED,
            "%s: reading archives needs libarchive (%s, Debian package libarchive13); or unpack it",
            self->file, library_name);
    self->stream = self->create();
    if (!self->stream)
        return nm_fail(err, NM_MEMORY, "%s: out of memory", self->file);
    NM_TRY(enable_formats(self, err));
    self->set_read(self->stream, read_block);
    self->set_skip(self->stream, skip_bytes);
    self->set_seek(self->stream, seek_file);
    self->set_data(self->stream, self);
    return self->open(self->stream) ? fail_reading(self, "not an archive", err) : NM_OK;
}

/* Opens the archive before its first member. */
static nm_status create_archive(nm_archive **archive, const char *file, bool zip_only, nm_error *err)
{
    *archive = nm_allocate(sizeof **archive);
    (*archive)->file = nm_duplicate(file);
    (*archive)->fd = -1;
    (*archive)->zip_only = zip_only;
    nm_status status = open_archive(*archive, err);
    if (status != NM_OK) {
        nm_archive_close(*archive);
        *archive = NULL;
    }
    return status;
}

/* The name of the member that a symbolic link in `member` leads to, heap; NULL if it leads out of the
 * archive. */
static char *resolve_link(const char *member, const char *target)
{
    const char *slash = strrchr(member, '/');
    size_t n = slash ? (size_t)(slash - member) : 0;
    if (*target == '/')
        return NULL;
    char *name = nm_allocate(strlen(member) + strlen(target) + 2);
    memcpy(name, member, n);
    while (*target) {
        size_t part = strcspn(target, "/");
        if (part == 2 && !memcmp(target, "..", 2)) {
            if (!n) {
                free(name);
                return NULL;
            }
            while (n && name[n - 1] != '/')
                n--;
            n -= n > 0;
        } else if (part && !(part == 1 && *target == '.')) {
            if (n)
                name[n++] = '/';
            memcpy(name + n, target, part);
            n += part;
        }
        target += part + (target[part] != 0);
    }
    name[n] = 0;
    return name;
}

/* *target: heap, the member that the current one, a link, leads to; NULL for a regular file. NM_UNSUPPORTED
 * for other kinds, whose
 * data would be read as an empty text. */
static nm_status find_target(const nm_archive *self, const char *member, char **target, nm_error *err)
{
    enum { KIND = 0170000, REGULAR = 0100000, FOLDER = 0040000 };
    const char *hard = self->hard_link(self->entry), *symbolic = self->symbolic_link(self->entry);
    unsigned kind = self->kind(self->entry) & KIND;
    *target = NULL;
    if (hard) {
        *target = nm_duplicate(hard + (strncmp(hard, "./", 2) ? 0 : 2));
        return NM_OK;
    }
    if (symbolic) {
        *target = resolve_link(member, symbolic);
        return *target ? NM_OK
                       : nm_fail(err, NM_UNSUPPORTED, "%s: %s is a link to %s, which is not in the archive",
                                 self->file, member, symbolic);
    }
    return kind == REGULAR ? NM_OK
                           : nm_fail(err, NM_UNSUPPORTED, "%s: %s is %s", self->file, member,
                                     kind == FOLDER ? "a folder" : "not a regular file");
}

nm_status nm_archive_open(nm_archive **archive, const char *path, nm_error *err)
{
    enum { MAX_LINKS = 16 };
    size_t prefix = nm_archive_prefix(path);
    *archive = NULL;
    if (!prefix) /* it was removed since, or cannot be read */
        return nm_fail(err, NM_IO, "%s: No such file in an archive", path);
    char *file = nm_format("%.*s", (int)prefix, path), *member = nm_duplicate(path + prefix + 1);
    nm_status status = NM_OK;
    for (int links = 0; status == NM_OK && !*archive; links++) {
        char *target = NULL;
        status = create_archive(archive, file, false, err);
        NM_THEN(status, find_member(*archive, member, err));
        NM_THEN(status, find_target(*archive, member, &target, err));
        if (status == NM_OK && target && links == MAX_LINKS)
            status = nm_fail(err, NM_FORMAT, "%s: %s leads to more than %d links", file, path + prefix + 1,
                             MAX_LINKS);
        if (*archive && (status != NM_OK || target)) { /* a target may precede its link */
            nm_archive_close(*archive);
            *archive = NULL;
        }
        if (target) {
            free(member);
            member = target;
        }
    }
    NM_FREE(member, file);
    return status;
}

bool nm_archive_contains(const char *path)
{
    NM_AUTO_FREE char *file = nm_format("%.*s", (int)nm_archive_prefix(path), path);
    nm_archive *archive;
    nm_status status = create_archive(&archive, file, false, NM_IGNORED);
    NM_THEN(status, find_member(archive, path + strlen(file) + 1, NM_IGNORED));
    if (archive)
        nm_archive_close(archive);
    return status == NM_OK;
}

nm_status nm_archive_open_zip(nm_archive **archive, const char *file, nm_error *err)
{
    struct stat info;
    if (stat(file, &info))
        return nm_fail(err, nm_file_error_status(errno), "%s: %s", file, strerror(errno));
    return create_archive(archive, file, true, err);
}

ssize_t nm_archive_read(nm_archive *self, char *out, size_t n)
{
    ssize_t bytes = self->read(self->stream, out, n);
    if (bytes >= 0)
        return bytes;
    errno = failure(self);
    return -1;
}

void nm_archive_close(nm_archive *self)
{
    if (self->stream)
        self->release(self->stream);
    if (self->library)
        dlclose(self->library);
    if (self->fd >= 0)
        close(self->fd);
    NM_FREE(self->file, self);
}
