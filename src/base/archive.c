#include "base/archive.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/edit_distance.h"
#include "base/file.h"
#include "base/memory.h"

static const char library_name[] = "libarchive.so.13";

/* The parts of libarchive's archive.h that are used. */
typedef struct archive archive_stream;
typedef struct archive_entry archive_entry;
enum { ARCHIVE_WARN = -20, BLOCK = 1 << 16 };

struct nm_archive {
    char *file;
    void *library;
    archive_stream *stream;
    archive_stream *(*create)(void);
    int (*all_filters)(archive_stream *), (*all_formats)(archive_stream *);
    int (*open)(archive_stream *, const char *path, size_t block);
    int (*next)(archive_stream *, archive_entry **entry);
    const char *(*name)(archive_entry *);
    ssize_t (*read)(archive_stream *, void *out, size_t n);
    const char *(*message)(archive_stream *);
    int (*release)(archive_stream *);
};

size_t nm_archive_prefix(const char *path)
{
    struct stat info;
    if (!stat(path, &info))
        return 0;
    size_t found = 0;
    char *copy = nm_duplicate(path);
    for (char *slash = strrchr(copy, '/'); slash && slash > copy && !found; slash = strrchr(copy, '/')) {
        *slash = 0;
        if (!stat(copy, &info)) {
            found = S_ISREG(info.st_mode) ? (size_t)(slash - copy) : 0;
            break;
        }
    }
    free(copy);
    return found;
}

/* C has no conversion from an object pointer to a function pointer. */
static bool load(nm_archive *self, const char *name, void *function)
{
    void *symbol = dlsym(self->library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol;
}

static bool load_all(nm_archive *self)
{
    self->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    return self->library && load(self, "archive_read_new", &self->create) &&
           load(self, "archive_read_support_filter_all", &self->all_filters) &&
           load(self, "archive_read_support_format_all", &self->all_formats) &&
           load(self, "archive_read_open_filename", &self->open) &&
           load(self, "archive_read_next_header", &self->next) &&
           load(self, "archive_entry_pathname", &self->name) &&
           load(self, "archive_read_data", &self->read) &&
           load(self, "archive_error_string", &self->message) &&
           load(self, "archive_read_free", &self->release);
}

static const char *message(const nm_archive *self)
{
    const char *text = self->message(self->stream);
    return text ? text : "unknown error";
}

nm_status nm_archive_next(nm_archive *self, const char **name, nm_error *err)
{
    archive_entry *entry;
    for (*name = NULL; !*name;) {
        int result = self->next(self->stream, &entry);
        if (result < ARCHIVE_WARN)
            return nm_fail(err, NM_FORMAT, "%s: not an archive, or a damaged one: %s", self->file,
                           message(self));
        if (result > 0)
            return NM_OK;
        *name = self->name(entry);
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

static nm_status open_archive(nm_archive *self, nm_error *err)
{
    if (!load_all(self))
        return nm_fail(
            err, NM_UNSUPPORTED,
            "%s: reading archives needs libarchive (%s, Debian package libarchive13); or unpack it",
            self->file, library_name);
    self->stream = self->create();
    NM_ASSERT(self->stream);
    self->all_filters(self->stream);
    self->all_formats(self->stream);
    if (self->open(self->stream, self->file, BLOCK))
        return nm_fail(err, NM_FORMAT, "%s: not an archive: %s", self->file, message(self));
    return NM_OK;
}

/* Takes ownership of `file`, the path of the archive. Searches the member unless it is NULL. */
static nm_status create_archive(nm_archive **archive, char *file, const char *member, nm_error *err)
{
    *archive = nm_allocate(sizeof **archive);
    (*archive)->file = file;
    nm_status status = open_archive(*archive, err);
    if (status == NM_OK && member)
        status = find_member(*archive, member, err);
    if (status != NM_OK) {
        nm_archive_close(*archive);
        *archive = NULL;
    }
    return status;
}

nm_status nm_archive_open(nm_archive **archive, const char *path, nm_error *err)
{
    size_t prefix = nm_archive_prefix(path);
    NM_ASSERT(prefix);
    return create_archive(archive, nm_format("%.*s", (int)prefix, path), path + prefix + 1, err);
}

nm_status nm_archive_open_all(nm_archive **archive, const char *file, nm_error *err)
{
    struct stat info;
    if (stat(file, &info))
        return nm_fail(err, nm_file_error_status(errno), "%s: %s", file, strerror(errno));
    return create_archive(archive, nm_duplicate(file), NULL, err);
}

ssize_t nm_archive_read(nm_archive *self, char *out, size_t n)
{
    ssize_t bytes = self->read(self->stream, out, n);
    if (bytes >= 0)
        return bytes;
    errno = EBADMSG;
    return -1;
}

void nm_archive_close(nm_archive *self)
{
    if (self->stream)
        self->release(self->stream);
    if (self->library)
        dlclose(self->library);
    free(self->file);
    free(self);
}
