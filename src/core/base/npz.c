#include "base/npz.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/archive.h"
#include "base/memory.h"

void nm_npz_release(nm_npz *npz)
{
    for (size_t i = 0; i < npz->n; i++)
        NM_FREE(npz->arrays[i].name, npz->arrays[i].data);
    free(npz->arrays);
    nm_hash_map_release(&npz->names);
    free(npz->path);
    *npz = (nm_npz){0};
}

const nm_npz_array *nm_npz_find(const nm_npz *npz, const char *name)
{
    for (size_t i = 0; i < npz->n; i++)
        if (!strcmp(npz->arrays[i].name, name))
            return &npz->arrays[i];
    return NULL;
}

/* The text from the value of a key on; the header is a dictionary in Python's syntax. NULL: it does not
 * contain the key. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    return at ? at + strlen(key) + strspn(at + strlen(key), " :") : NULL;
}

static bool parse_shape(const char *at, nm_npz_array *array)
{
    if (*at++ != '(')
        return false;
    size_t count = 1;
    for (at += strspn(at, " "); *at != ')'; at += strspn(at, ", ")) {
        char *end;
        errno = 0;
        long long length = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (length < 0 || errno || array->rank == NM_NPZ_MAX_RANK ||
            (length && count > SIZE_MAX / sizeof(double) / (size_t)length))
            return false;
        array->shape[array->rank++] = length;
        count *= (size_t)length;
        at = end;
    }
    array->count = count;
    return true;
}

/* Parses a header such as {'descr': '<f4', 'fortran_order': False, 'shape': (13, 32), } */
static nm_status parse_header(const nm_npz *npz, const char *header, nm_npz_array *array, nm_error *err)
{
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'"),
               *shape = value_of(header, "'shape'");
    if (!type || !order || !shape || *type != '\'' || !parse_shape(shape, array))
        return nm_fail(err, NM_FORMAT, "%s: %.100s: the header of the array is malformed", npz->path,
                       array->name);
    array->kind = type[1] ? type[2] : 0;
    array->item_bytes = array->kind && isdigit((unsigned char)type[3]) ? type[3] - '0' : 0;
    bool known = array->item_bytes && type[4] == '\'' && strchr("fiu", array->kind) &&
                 (type[1] == '<' || (strchr("|=", type[1]) && array->item_bytes == 1));
    if (!known)
        return nm_fail(err, NM_UNSUPPORTED, "%s: %.100s: arrays of the type %.*s are not supported",
                       npz->path, array->name, (int)strcspn(type + 1, "'"), type + 1);
    if (strncmp(order, "False", 5))
        return nm_fail(err, NM_UNSUPPORTED, "%s: %.100s: arrays in Fortran order are not supported",
                       npz->path, array->name);
    return NM_OK;
}

/* Parses the npy file in array->data and replaces it with the elements. */
static nm_status parse_array(const nm_npz *npz, nm_npz_array *array, nm_error *err)
{
    enum { MAGIC = 6, VERSION = MAGIC, LENGTH = 8 };
    const unsigned char *bytes = array->data;
    size_t header = 0, begin = 0;
    bool valid = array->bytes > LENGTH + 4 && !memcmp(bytes, "\x93NUMPY", MAGIC) && bytes[VERSION] >= 1 &&
                 bytes[VERSION] <= 3;
    if (valid) {
        int length_bytes = bytes[VERSION] == 1 ? 2 : 4;
        for (int i = length_bytes - 1; i >= 0; i--)
            header = header << 8 | bytes[LENGTH + i];
        begin = LENGTH + (size_t)length_bytes;
        valid = header <= array->bytes - begin;
    }
    if (!valid)
        return nm_fail(err, NM_FORMAT, "%s: %.100s: not an array of NumPy", npz->path, array->name);
    NM_AUTO_FREE char *text = nm_allocate(header + 1);
    memcpy(text, bytes + begin, header);
    NM_TRY(parse_header(npz, text, array, err));
    size_t rest = array->bytes - begin - header;
    if (array->count > SIZE_MAX / (size_t)array->item_bytes ||
        rest != array->count * (size_t)array->item_bytes)
        return nm_fail(err, NM_FORMAT, "%s: %.100s: the array has %zu bytes, which does not match its shape",
                       npz->path, array->name, rest);
    memmove(array->data, bytes + begin + header, rest);
    array->bytes = rest;
    return NM_OK;
}

/* Returns whether an array has the name already, and adds it to the names. */
static bool add_name(nm_npz *npz, const char *name)
{
    const uint32_t hash = (uint32_t)XXH3_64bits(name, strlen(name));
    size_t probe = 0;
    for (uint32_t i; (i = nm_hash_map_next(&npz->names, hash, &probe)) != NM_HASH_NONE;)
        if (!strcmp(npz->arrays[i].name, name))
            return true;
    nm_hash_map_add(&npz->names, hash, (uint32_t)npz->n);
    return false;
}

/* Weights hardly compress; a file that unpacks to much more than its size fills the memory. */
enum { MAX_RATIO = 100, SMALL_FILE = 1 << 20 };

/* Reads the current member. Memory grows with the actual data, because the sizes in the archive may be
 * wrong. */
static nm_status read_member(nm_npz *npz, nm_archive *archive, const char *name, nm_error *err)
{
    enum { BLOCK = 1 << 16, MAX_ARRAYS = 1 << 14 };
    static const char suffix[] = ".npy";
    char block[BLOCK];
    size_t length = strlen(name), capacity = 0;
    if (length <= strlen(suffix) || strcmp(name + length - strlen(suffix), suffix))
        return nm_fail(err, NM_FORMAT, "%s: %.100s: not the name of an array", npz->path, name);
    if (npz->n == MAX_ARRAYS)
        return nm_fail(err, NM_FORMAT, "%s: more than %d arrays", npz->path, MAX_ARRAYS);
    NM_GROW(npz->arrays, npz->n, npz->capacity);
    nm_npz_array *array = &npz->arrays[npz->n];
    *array = (nm_npz_array){.name = nm_format("%.*s", (int)(length - strlen(suffix)), name)};
    bool twice = add_name(npz, array->name);
    npz->n++;
    if (twice)
        return nm_fail(err, NM_FORMAT, "%s: %.100s: there are two arrays of this name", npz->path,
                       array->name);
    for (;;) {
        ssize_t n = nm_archive_read(archive, block, BLOCK);
        if (n > 0 && (size_t)n > npz->left)
            return nm_fail(err, NM_FORMAT, "%s: %.100s: the arrays unpack to more than %d times the file",
                           npz->path, array->name, MAX_RATIO);
        npz->left -= n > 0 ? (size_t)n : 0;
        if (n < 0)
            return nm_fail(err, NM_FORMAT, "%s: %.100s: the archive is damaged", npz->path, array->name);
        if (!n)
            return parse_array(npz, array, err);
        char *data = array->data;
        NM_RESERVE(data, array->bytes + (size_t)n, capacity);
        array->data = data;
        memcpy(data + array->bytes, block, (size_t)n);
        array->bytes += (size_t)n;
    }
}

nm_status nm_npz_read(nm_npz *npz, const char *path, nm_error *err)
{
    nm_archive *archive;
    struct stat info;
    *npz = (nm_npz){.path = nm_duplicate(path)};
    size_t bytes = stat(path, &info) ? 0 : (size_t)info.st_size;
    npz->left = MAX_RATIO * (bytes > SMALL_FILE ? bytes : SMALL_FILE);
    NM_TRY(nm_archive_open_zip(&archive, path, err));
    const char *name;
    nm_status status;
    while ((status = nm_archive_next(archive, &name, err)) == NM_OK && name) {
        status = read_member(npz, archive, name, err);
        if (status != NM_OK)
            break;
    }
    nm_archive_close(archive);
    if (status == NM_OK && !npz->n)
        status = nm_fail(err, NM_FORMAT, "%s: the archive has no arrays", path);
    return status;
}
