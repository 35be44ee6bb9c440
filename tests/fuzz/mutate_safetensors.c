/* Safetensors files: changes the metadata, the description of a tensor, its numbers or the list of tensors,
 * and writes a file with correct offsets and checksums, so that the change reaches the code after the parser.
 * One of eight mutations changes arbitrary bytes instead. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "mutate.h"

enum { MAX_TENSORS = 512 };

typedef struct tensor {
    const char *name;
    json_t *shape;
    const char *dtype;
    uint8_t *bytes; /* owned */
    size_t n;
} tensor;

typedef struct archive {
    json_t *header;
    json_t *metadata; /* may be NULL */
    tensor tensors[MAX_TENSORS];
    size_t n;
} archive;

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void release(archive *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->tensors[i].bytes);
    json_decref(a->header);
}

/* False unless the data has the layout of a file; its checksums are not verified. */
static bool read_archive(archive *a, const uint8_t *data, size_t bytes)
{
    uint64_t length;
    *a = (archive){0};
    if (bytes < sizeof length)
        return false;
    memcpy(&length, data, sizeof length);
    if (length > bytes - sizeof length)
        return false;
    a->header = json_loadb((const char *)data + sizeof length, length, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(a->header))
        return false;
    const uint8_t *start = data + sizeof length + length;
    size_t available = bytes - sizeof length - length;
    const char *name;
    json_t *value;
    json_object_foreach(a->header, name, value)
    {
        json_t *offsets = json_object_get(value, "data_offsets");
        json_int_t first = json_integer_value(json_array_get(offsets, 0)),
                   end = json_integer_value(json_array_get(offsets, 1));
        const char *dtype = json_string_value(json_object_get(value, "dtype"));
        if (!strcmp(name, "__metadata__")) {
            a->metadata = value;
            continue;
        }
        if (a->n == MAX_TENSORS || !dtype || first < 0 || end < first || (size_t)end > available)
            return false;
        tensor *t = &a->tensors[a->n++];
        *t = (tensor){name, json_object_get(value, "shape"), dtype, malloc((size_t)(end - first) + 1),
                      (size_t)(end - first)};
        memcpy(t->bytes, start + first, t->n);
    }
    return a->n > 0 || a->metadata;
}

static size_t write_archive(const archive *a, uint8_t *data, size_t max_bytes)
{
    json_t *header = json_object();
    size_t at = 0;
    char *checksums = calloc(a->n + 2, 17), part[18];
    if (a->metadata) {
        json_object_del(a->metadata, "xxh3");
        json_object_set(header, "__metadata__", a->metadata);
    }
    for (size_t i = 0; i < a->n; i++) {
        const tensor *t = &a->tensors[i];
        json_t *entry = json_pack("{s:s, s:O, s:[I,I]}", "dtype", t->dtype, "shape", t->shape, "data_offsets",
                                  (json_int_t)at, (json_int_t)(at + t->n));
        at += t->n;
        if (entry)
            json_object_set_new(header, t->name, entry);
    }
    char *text = json_dumps(header, JSON_COMPACT | JSON_SORT_KEYS);
    if (a->metadata && text) {
        sprintf(checksums, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
        for (size_t i = 0; i < a->n; i++) {
            sprintf(part, " %016llx", (unsigned long long)XXH3_64bits(a->tensors[i].bytes, a->tensors[i].n));
            strcat(checksums, part);
        }
        json_object_set_new(a->metadata, "xxh3", json_string(checksums));
        free(text);
        text = json_dumps(header, JSON_COMPACT);
    }
    size_t length = text ? strlen(text) : 0, bytes = sizeof(uint64_t) + length + at;
    uint64_t stored = length;
    if (text && bytes <= max_bytes) {
        memcpy(data, &stored, sizeof stored);
        memcpy(data + sizeof stored, text, length);
        at = sizeof stored + length;
        for (size_t i = 0; i < a->n; i++) {
            memcpy(data + at, a->tensors[i].bytes, a->tensors[i].n);
            at += a->tensors[i].n;
        }
    } else {
        bytes = 0;
    }
    json_decref(header);
    free(text);
    free(checksums);
    return bytes;
}

/* Writes an unusual number at a random position of a tensor. */
static void change_numbers(tensor *t, uint32_t *seed)
{
    static const uint32_t floats[] = {0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00000001,
                                      0x80000000, 0x3F800000, 0x7E967699, 0xFFFFFFFF, 0};
    if (!t->n)
        return;
    if (t->n >= 4 && next(seed) % 2) {
        size_t at = next(seed) % (t->n / 4);
        memcpy(t->bytes + 4 * at, &floats[next(seed) % 10], 4);
    } else {
        LLVMFuzzerMutate(t->bytes, t->n, t->n);
    }
}

static void change_shape(tensor *t, uint32_t *seed)
{
    static const json_int_t sizes[] = {0, 1, 2, -1, 1 << 20, 0x7FFFFFFF, 0x80000000, 0x7FFFFFFFFFFFFFFF};
    static const char *const types[] = {"F32", "F64", "I8", "U8", "I32", "I64", "BF16", "X"};
    size_t rank = json_array_size(t->shape);
    switch (next(seed) % 4) {
    case 0:
        json_array_append_new(t->shape, json_integer(1));
        break;
    case 1:
        json_array_remove(t->shape, 0);
        break;
    case 2:
        t->dtype = types[next(seed) % 8];
        break;
    default:
        if (rank)
            json_array_set_new(t->shape, next(seed) % rank, json_integer(sizes[next(seed) % 8]));
    }
}

/* Data and shape with one row more or less, as for another dictionary or width. */
static void change_rows(tensor *t, uint32_t *seed)
{
    json_int_t rows = json_integer_value(json_array_get(t->shape, 0));
    if (rows < 1 || rows > INT32_MAX || t->n % (size_t)rows)
        return;
    size_t row = t->n / (size_t)rows;
    if (next(seed) % 2 && rows > 1) {
        t->n -= row;
        rows--;
    } else {
        t->bytes = realloc(t->bytes, t->n + row + 1);
        memset(t->bytes + t->n, 0, row);
        t->n += row;
        rows++;
    }
    json_array_set_new(t->shape, 0, json_integer(rows));
}

static void change_metadata(archive *a, uint32_t *seed)
{
    size_t n = json_object_size(a->metadata);
    if (!n)
        return;
    size_t chosen = next(seed) % n;
    void *at = json_object_iter(a->metadata);
    while (chosen--)
        at = json_object_iter_next(a->metadata, at);
    char key[128];
    snprintf(key, sizeof key, "%s", json_object_iter_key(at));
    const char *text = json_string_value(json_object_iter_value(at));
    if (!text || next(seed) % 16 == 0) {
        json_object_del(a->metadata, key);
        return;
    }
    size_t bytes = strlen(text), max_bytes = bytes + 256;
    char *changed = malloc(max_bytes + 1);
    memcpy(changed, text, bytes);
    if (!strcmp(key, "config"))
        bytes = fuzz_mutate_ini(changed, bytes, max_bytes, next(seed));
    else
        bytes = LLVMFuzzerMutate((uint8_t *)changed, bytes, max_bytes);
    for (size_t i = 0; i < bytes; i++)
        if (!changed[i] || changed[i] & 0x80)
            changed[i] = '?';
    json_object_set_new(a->metadata, key, json_stringn(changed, bytes));
    free(changed);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned int seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned int seed)
{
    uint32_t random = seed;
    archive a;
    if (bytes < 16 && fuzz_first_input) {
        bytes = fuzz_first_input(data, max_bytes);
        if (!bytes)
            return LLVMFuzzerMutate(data, bytes, max_bytes);
    }
    if (next(&random) % 8 == 0)
        return LLVMFuzzerMutate(data, bytes, max_bytes);
    if (!read_archive(&a, data, bytes)) {
        release(&a);
        return LLVMFuzzerMutate(data, bytes, max_bytes);
    }
    tensor *t = a.n ? &a.tensors[next(&random) % a.n] : NULL;
    switch (next(&random) % 8) {
    case 0:
        if (t)
            change_shape(t, &random);
        break;
    case 1:
        if (t)
            change_rows(t, &random);
        break;
    case 2:
        if (t) { /* without this tensor */
            free(t->bytes);
            *t = a.tensors[--a.n];
        }
        break;
    case 3:
    case 4:
        if (t)
            change_numbers(t, &random);
        break;
    default:
        change_metadata(&a, &random);
    }
    size_t written = write_archive(&a, data, max_bytes);
    release(&a);
    return written ? written : LLVMFuzzerMutate(data, bytes, max_bytes);
}
