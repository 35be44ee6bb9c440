/* Lengths, shapes and offsets are checked against the size of the file before any tensor is accessible. */
#include "base/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"

enum { HEADER_MAX = 100000000, LENGTH_BYTES = 8, ALIGNMENT = 64 };

static const struct {
    const char *text;
    size_t bytes;
} types[] = {
#define T(name, bytes) {#name, bytes},
    NM_TENSOR_TYPES(T)
#undef T
};

enum { N_TYPES = sizeof types / sizeof types[0] };

struct nm_safetensors {
    nm_file_map map;
    char *path;
    json_t *header; /* owns the names */
    nm_safetensor *tensors;
    size_t count;
    nm_safetensors **parts; /* nm_safetensors_join: owners of the tensors; otherwise NULL */
    size_t n_parts;
};

size_t nm_tensor_type_bytes(nm_tensor_type type)
{
    return types[type].bytes;
}

/* The metadata key "xxh3": XXH3-64 of the header and of the data of each tensor in the order of the data, as
 * 16 hexadecimal digits each, separated by spaces. */
static const char checksum_key[] = "xxh3";
enum { CHECKSUM_DIGITS = 16 };

static uint64_t data_checksum(const nm_safetensor *tensor)
{
    return XXH3_64bits(tensor->bytes ? tensor->data : "", tensor->bytes);
}

/* Checksum of a header without its checksums: the metadata and the name, type, shape and offsets of each
 * tensor. False without memory. */
static bool header_checksum(const json_t *header, uint64_t *checksum)
{
    NM_AUTO_FREE char *text = json_dumps(header, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        *checksum = XXH3_64bits(text, strlen(text));
    return text != NULL;
}

static nm_status malformed(const nm_safetensors *file, const char *what, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s: malformed safetensors file: %s", file->path, what);
}

static nm_status malformed_tensor(const nm_safetensors *file, const char *name, const char *what,
                                  nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s: malformed safetensors file: tensor '%.200s': %s", file->path, name,
                   what);
}

static nm_status read_header(nm_safetensors *file, size_t *data_start, nm_error *err)
{
    if (file->map.bytes < LENGTH_BYTES)
        return malformed(file, "shorter than the header length", err);
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | (unsigned char)file->map.data[i];
    bool fits = length <= HEADER_MAX && length <= file->map.bytes - LENGTH_BYTES;
    if (!fits && file->map.bytes > LENGTH_BYTES && file->map.data[LENGTH_BYTES] != '{')
        return nm_fail(err, NM_FORMAT, "%s: not a safetensors file, the format of models", file->path);
    if (!fits)
        return nm_fail(err, NM_FORMAT,
                       "%s: malformed safetensors file: header length %llu does not fit a file of %zu bytes",
                       file->path, (unsigned long long)length, file->map.bytes);
    json_error_t cause;
    file->header = json_loadb(file->map.data + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &cause);
    /* jansson reports a failed allocation by its code or without a text. */
    if (!file->header && (json_error_code(&cause) == json_error_out_of_memory || !*cause.text))
        return nm_fail(err, NM_MEMORY, "%s: out of memory for the header", file->path);
    if (!file->header)
        return nm_fail(err, NM_FORMAT, "%s: malformed safetensors file: header, byte %d: %s", file->path,
                       cause.position, cause.text);
    if (!json_is_object(file->header))
        return malformed(file, "the header is not a JSON object", err);
    *data_start = LENGTH_BYTES + (size_t)length;
    return NM_OK;
}

static bool read_type(const json_t *value, nm_tensor_type *type)
{
    const char *text = json_string_value(value);
    for (int i = 0; text && i < N_TYPES; i++)
        if (!strcmp(text, types[i].text)) {
            *type = (nm_tensor_type)i;
            return true;
        }
    return false;
}

/* Sets rank, shape and count. False unless value is an array of at most NM_TENSOR_MAX_RANK non-negative
 * integers whose product fits size_t. */
static bool read_shape(const json_t *value, nm_safetensor *tensor)
{
    if (!json_is_array(value) || json_array_size(value) > NM_TENSOR_MAX_RANK)
        return false;
    tensor->rank = (int)json_array_size(value);
    tensor->count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        const json_t *extent = json_array_get(value, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return false;
        tensor->shape[i] = json_integer_value(extent);
        if (__builtin_mul_overflow(tensor->count, (size_t)tensor->shape[i], &tensor->count))
            return false;
    }
    return !__builtin_mul_overflow(tensor->count, types[tensor->type].bytes, &tensor->bytes);
}

static bool read_offsets(const json_t *value, size_t *begin, size_t *end)
{
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) < json_integer_value(first))
        return false;
    *begin = (size_t)json_integer_value(first);
    *end = (size_t)json_integer_value(last);
    return true;
}

static nm_status read_tensor(nm_safetensors *file, const char *name, const json_t *value, size_t data_start,
                             nm_error *err)
{
    nm_safetensor *tensor = &file->tensors[file->count];
    size_t begin, end;
    *tensor = (nm_safetensor){.name = name};
    if (!json_is_object(value) || json_object_size(value) != 3)
        return malformed_tensor(file, name, "expected exactly dtype, shape and data_offsets", err);
    if (!read_type(json_object_get(value, "dtype"), &tensor->type))
        return malformed_tensor(file, name, "unknown dtype", err);
    if (!read_shape(json_object_get(value, "shape"), tensor))
        return malformed_tensor(file, name, "invalid shape", err);
    if (!read_offsets(json_object_get(value, "data_offsets"), &begin, &end) ||
        end > file->map.bytes - data_start)
        return malformed_tensor(file, name, "data_offsets outside the file", err);
    if (end - begin != tensor->bytes)
        return malformed_tensor(file, name, "data_offsets and shape disagree", err);
    tensor->data = file->map.data + data_start + begin;
    file->count++;
    return NM_OK;
}

static int compare_positions(const void *left, const void *right)
{
    const nm_safetensor *a = left, *b = right;
    if (a->data != b->data)
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The data of the tensors must be contiguous: no overlap, no gap, nothing after the last tensor. */
static nm_status check_contiguous(const nm_safetensors *file, size_t data_start, nm_error *err)
{
    const char *at = file->map.data + data_start;
    for (size_t i = 0; i < file->count; i++) {
        const nm_safetensor *tensor = &file->tensors[i];
        if ((const char *)tensor->data != at)
            return malformed_tensor(file, tensor->name, "its data overlaps another tensor or follows a gap",
                                    err);
        at += tensor->bytes;
    }
    if (at != file->map.data + file->map.bytes)
        return malformed(file, "bytes after the last tensor", err);
    return NM_OK;
}

static nm_status read_metadata(const nm_safetensors *file, json_t *map, nm_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(map))
        return malformed(file, "__metadata__ is not a JSON object", err);
    json_object_foreach(map, key, value)
    {
        if (!json_is_string(value))
            return malformed(file, "__metadata__ contains a value that is not a string", err);
    }
    return NM_OK;
}

static nm_status damaged(const nm_safetensors *file, const char *part, const char *name, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s: damaged file: %s%.200s%s does not match its checksum", file->path,
                   part, name, *name ? "'" : "");
}

/* Files without checksums are accepted. The checksums are removed from the metadata, because they apply to
 * this file only. */
static nm_status verify_checksums(nm_safetensors *file, bool of_data, nm_error *err)
{
    json_t *metadata = json_object_get(file->header, "__metadata__");
    json_auto_t *list = json_incref(json_object_get(metadata, checksum_key));
    if (!list)
        return NM_OK;
    json_object_del(metadata, checksum_key);
    nm_status status = NM_OK;
    uint64_t actual;
    const char *expected = json_string_value(list);
    if (json_string_length(list) != (file->count + 1) * (CHECKSUM_DIGITS + 1) - 1)
        status = malformed(file, "the number of checksums is not that of the tensors", err);
    else if (!header_checksum(file->header, &actual))
        status = nm_fail(err, NM_MEMORY, "%s: out of memory for the header", file->path);
    else if (strtoull(expected, NULL, 16) != actual)
        status = damaged(file, "the header", "", err);
    for (size_t i = 0; of_data && i < file->count && status == NM_OK; i++) {
        expected += CHECKSUM_DIGITS + 1;
        if (strtoull(expected, NULL, 16) != data_checksum(&file->tensors[i]))
            status = damaged(file, "tensor '", file->tensors[i].name, err);
    }
    return status;
}

static nm_status read_file(nm_safetensors *file, bool verifies_data, nm_error *err)
{
    size_t data_start = 0;
    NM_TRY(read_header(file, &data_start, err));
    file->tensors = nm_allocate((json_object_size(file->header) + 1) * sizeof *file->tensors);
    const char *name;
    json_t *value;
    json_object_foreach(file->header, name, value)
    {
        if (!strcmp(name, "__metadata__"))
            NM_TRY(read_metadata(file, value, err));
        else
            NM_TRY(read_tensor(file, name, value, data_start, err));
    }
    if (file->count > 1)
        qsort(file->tensors, file->count, sizeof *file->tensors, compare_positions);
    NM_TRY(check_contiguous(file, data_start, err));
    return verify_checksums(file, verifies_data, err);
}

static nm_status open_file(nm_safetensors **file, const char *path, bool verifies_data, nm_error *err)
{
    *file = NULL;
    nm_safetensors *opened = nm_allocate(sizeof *opened);
    opened->path = nm_duplicate(path);
    nm_status status = nm_file_map_open(&opened->map, path, err);
    NM_THEN(status, read_file(opened, verifies_data, err));
    NM_RETURN_NEW(status, file, opened, nm_safetensors_close);
}

nm_status nm_safetensors_open(nm_safetensors **file, const char *path, nm_error *err)
{
    return open_file(file, path, true, err);
}

nm_status nm_safetensors_open_metadata(nm_safetensors **file, const char *path, nm_error *err)
{
    return open_file(file, path, false, err);
}

nm_status nm_safetensors_join(nm_safetensors **file, nm_safetensors *const *parts, size_t n, const char *path,
                              nm_error *err)
{
    nm_safetensors *all = nm_allocate(sizeof *all);
    all->path = nm_duplicate(path);
    all->parts = nm_allocate((n + 1) * sizeof(nm_safetensors *));
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        all->parts[all->n_parts++] = parts[i];
        count += parts[i]->count;
    }
    all->tensors = nm_allocate((count + 1) * sizeof *all->tensors);
    nm_status status = NM_OK;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i]->count && status == NM_OK; k++) {
            const nm_safetensor *tensor = &parts[i]->tensors[k];
            if (nm_safetensors_find(all, tensor->name))
                status =
                    nm_fail(err, NM_FORMAT, "%s: the tensor '%.100s' is in two files", path, tensor->name);
            all->tensors[all->count++] = *tensor;
        }
    *file = status == NM_OK ? all : NULL;
    if (status != NM_OK)
        nm_safetensors_close(all);
    return status;
}

bool nm_safetensors_make_writable(nm_safetensors *file)
{
    return file->map.bytes &&
           mprotect((void *)(uintptr_t)file->map.data, file->map.bytes, PROT_READ | PROT_WRITE) == 0;
}

void nm_safetensors_close(nm_safetensors *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->n_parts; i++)
        nm_safetensors_close(file->parts[i]);
    free(file->parts);
    json_decref(file->header);
    nm_file_unmap(&file->map);
    NM_FREE(file->tensors, file->path, file);
}

const nm_safetensor *nm_safetensors_find(const nm_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->tensors[i].name, name))
            return &file->tensors[i];
    return NULL;
}

nm_status nm_safetensors_expect(const nm_safetensors *file, const char *name, nm_tensor_type type,
                                size_t count, const nm_safetensor **found, nm_error *err)
{
    const nm_safetensor *tensor = nm_safetensors_find(file, name);
    if (!tensor)
        return nm_fail(err, NM_MISMATCH, "%s: has no tensor '%s'", file->path, name);
    if (tensor->type != type || tensor->count != count)
        return nm_fail(err, NM_MISMATCH,
                       "%s: tensor '%s' has %zu numbers of type %s, expected %zu of type %s", file->path,
                       name, tensor->count, types[tensor->type].text, count, types[type].text);
    *found = tensor;
    return NM_OK;
}

size_t nm_safetensors_count(const nm_safetensors *file)
{
    return file->count;
}

const nm_safetensor *nm_safetensors_at(const nm_safetensors *file, size_t index)
{
    NM_ASSERT(index < file->count);
    return &file->tensors[index];
}

const char *nm_safetensors_metadata(const nm_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

static bool is_among(const char *key, const char *const *list)
{
    while (*list && strcmp(*list, key))
        list++;
    return *list != NULL;
}

const char *nm_safetensors_metadata_difference(const nm_safetensors *a, const nm_safetensors *b,
                                               const char *const *ignored)
{
    json_t *maps[] = {json_object_get(a->header, "__metadata__"), json_object_get(b->header, "__metadata__")};
    for (int k = 0; k < 2; k++)
        for (void *at = json_object_iter(maps[k]); at; at = json_object_iter_next(maps[k], at)) {
            const char *key = json_object_iter_key(at);
            if (!is_among(key, ignored) &&
                !json_equal(json_object_iter_value(at), json_object_get(maps[1 - k], key)))
                return key;
        }
    return NULL;
}

const char *nm_safetensors_path(const nm_safetensors *file)
{
    return file->path;
}

typedef struct piece {
    char *name;
    nm_safetensor tensor;
} piece;

struct nm_safetensors_writer {
    piece *pieces;
    size_t count, capacity;
    json_t *metadata;
    char *bad_text; /* the first key whose text is not UTF-8 */
};

nm_safetensors_writer *nm_safetensors_begin(void)
{
    nm_safetensors_writer *writer = nm_allocate(sizeof *writer);
    writer->metadata = json_object();
    return writer;
}

void nm_safetensors_add(nm_safetensors_writer *writer, const char *name, nm_tensor_type type, int rank,
                        const int64_t *shape, const void *data)
{
    NM_ASSERT(rank >= 0 && rank <= NM_TENSOR_MAX_RANK);
    NM_GROW(writer->pieces, writer->count, writer->capacity);
    piece *added = &writer->pieces[writer->count++];
    *added = (piece){nm_duplicate(name), {.type = type, .rank = rank, .data = data, .count = 1}};
    for (int i = 0; i < rank; i++) {
        added->tensor.shape[i] = shape[i];
        added->tensor.count *= (size_t)shape[i];
    }
    added->tensor.bytes = added->tensor.count * types[type].bytes;
}

const char *nm_safetensors_added_metadata(const nm_safetensors_writer *writer, const char *key)
{
    return json_string_value(json_object_get(writer->metadata, key));
}

void nm_safetensors_copy_metadata(nm_safetensors_writer *writer, const nm_safetensors *file)
{
    json_t *map = json_object_get(file->header, "__metadata__");
    if (map)
        json_object_update(writer->metadata, map);
}

void nm_safetensors_add_metadata(nm_safetensors_writer *writer, const char *key, const char *text)
{
    if (json_object_set_new(writer->metadata, key, json_string(text)) && !writer->bad_text)
        writer->bad_text = nm_duplicate(key);
}

void nm_safetensors_abandon(nm_safetensors_writer *writer)
{
    if (!writer)
        return;
    for (size_t i = 0; i < writer->count; i++)
        free(writer->pieces[i].name);
    free(writer->pieces);
    json_decref(writer->metadata);
    NM_FREE(writer->bad_text, writer);
}

/* Sorts by element size, largest first; otherwise keeps the order. */
static void sort_pieces(nm_safetensors_writer *writer)
{
    piece *sorted = nm_allocate((writer->count + 1) * sizeof *sorted);
    size_t placed = 0;
    for (size_t bytes = 8; bytes; bytes /= 2)
        for (size_t i = 0; i < writer->count; i++)
            if (types[writer->pieces[i].tensor.type].bytes == bytes)
                sorted[placed++] = writer->pieces[i];
    NM_ASSERT(placed == writer->count);
    free(writer->pieces);
    writer->pieces = sorted;
}

/* Checksums of the header and of all tensors as a JSON string; NULL without memory. */
static json_t *format_checksums(const nm_safetensors_writer *writer, const json_t *header)
{
    size_t bytes = (writer->count + 1) * (CHECKSUM_DIGITS + 1);
    char *text = nm_allocate(bytes + 1), *at = text;
    uint64_t checksum;
    json_t *list = NULL;
    if (header_checksum(header, &checksum)) {
        at += sprintf(at, "%016" PRIx64, checksum);
        for (size_t i = 0; i < writer->count; i++)
            at += sprintf(at, " %016" PRIx64, data_checksum(&writer->pieces[i].tensor));
        list = json_string(text);
    }
    free(text);
    return list;
}

/* The JSON header as a heap string, with checksums; NULL if the name of a tensor is not UTF-8. */
static char *format_header(const nm_safetensors_writer *writer)
{
    json_auto_t *header = json_object();
    size_t at = 0;
    bool failed = json_object_set(header, "__metadata__", writer->metadata) != 0;
    for (size_t i = 0; i < writer->count; i++) {
        const piece *here = &writer->pieces[i];
        NM_ASSERT(!json_object_get(header, here->name));
        json_t *shape = json_array();
        for (int k = 0; k < here->tensor.rank; k++)
            json_array_append_new(shape, json_integer(here->tensor.shape[k]));
        json_t *entry =
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[here->tensor.type].text, "shape", shape,
                      "data_offsets", (json_int_t)at, (json_int_t)at + (json_int_t)here->tensor.bytes);
        failed |= json_object_set_new(header, here->name, entry) != 0;
        at += here->tensor.bytes;
    }
    failed =
        failed || json_object_set_new(writer->metadata, checksum_key, format_checksums(writer, header)) != 0;
    return failed ? NULL : json_dumps(header, JSON_COMPACT);
}

static void write_all(FILE *stream, const nm_safetensors_writer *writer, const char *header)
{
    size_t length = strlen(header);
    size_t padding = (ALIGNMENT - (LENGTH_BYTES + length) % ALIGNMENT) % ALIGNMENT;
    uint64_t total = length + padding;
    for (int i = 0; i < LENGTH_BYTES; i++)
        fputc((int)(total >> 8 * i & 0xFF), stream);
    fwrite(header, 1, length, stream);
    for (size_t i = 0; i < padding; i++)
        fputc(' ', stream);
    for (size_t i = 0; i < writer->count; i++)
        if (writer->pieces[i].tensor.bytes)
            fwrite(writer->pieces[i].tensor.data, 1, writer->pieces[i].tensor.bytes, stream);
}

nm_status nm_safetensors_finish(nm_safetensors_writer *writer, const char *path, nm_error *err)
{
    nm_status status = NM_OK;
    char *header = NULL;
    nm_file_writer file;
    if (writer->bad_text) {
        status = nm_fail(err, NM_USAGE, "%s: the text of '%s' is not UTF-8", path, writer->bad_text);
        goto done;
    }
    sort_pieces(writer);
    header = format_header(writer);
    if (!header) {
        status = nm_fail(err, NM_USAGE, "%s: the name of a tensor is not UTF-8", path);
        goto done;
    }
    status = nm_file_writer_open(&file, path, err);
    if (status == NM_OK) {
        write_all(file.stream, writer, header);
        status = nm_file_writer_commit(&file, err);
    }
done:
    free(header);
    nm_safetensors_abandon(writer);
    return status;
}
