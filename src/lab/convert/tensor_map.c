#include "convert/tensor_map.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"

static nm_map_entry *add_entry(nm_tensor_map *map, const nm_map_entry *entry, const char *name_format,
                               va_list args)
{
    char name[192];
    vsnprintf(name, sizeof name, name_format, args);
    NM_GROW(map->entries, map->n, map->capacity);
    map->entries[map->n] = *entry;
    map->entries[map->n].name = nm_duplicate(name);
    return &map->entries[map->n++];
}

nm_map_entry *nm_tensor_map_add(nm_tensor_map *map, nm_tensor *param, const char *name_format, ...)
{
    va_list args;
    va_start(args, name_format);
    nm_map_entry entry = {.param = param, .rows = param->rows == 1 ? 0 : param->rows, .factor = 1};
    nm_map_entry *added = add_entry(map, &entry, name_format, args);
    va_end(args);
    return added;
}

nm_map_entry *nm_tensor_map_add_part(nm_tensor_map *map, nm_tensor *param, int32_t index, int32_t parts,
                                     const char *name_format, ...)
{
    bool vector = param->rows == 1;
    int32_t size = (vector ? param->cols : param->rows) / parts;
    va_list args;
    va_start(args, name_format);
    nm_map_entry entry = {.param = param, .first = index * size, .rows = vector ? -size : size, .factor = 1};
    nm_map_entry *added = add_entry(map, &entry, name_format, args);
    va_end(args);
    return added;
}

void nm_tensor_map_release(nm_tensor_map *map)
{
    for (size_t i = 0; i < map->n; i++)
        free(map->entries[i].name);
    free(map->entries);
    *map = (nm_tensor_map){0};
}

/* The block of the parameter: [*rows, *cols] from element *first on; *rows 0: a vector of *cols elements. */
static void block_of(const nm_map_entry *entry, size_t *first, int64_t *rows, int64_t *cols)
{
    bool vector = entry->param->rows == 1 && entry->rows <= 0;
    *rows = vector ? 0 : entry->rows;
    *cols = vector && entry->rows < 0 ? -entry->rows : entry->param->cols;
    *first = (size_t)entry->first * (vector ? 1 : (size_t)*cols);
}

static double *transpose(const double *values, int64_t rows, int64_t cols)
{
    double *out = nm_allocate((size_t)(rows * cols) * sizeof *out);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[c * rows + r] = values[r * cols + c];
    return out;
}

/* The rows of the tokens that the other vocabulary has, in its order. Heap. */
static double *select_rows(const double *values, const int32_t *ids, int64_t n, int32_t size, int64_t width)
{
    double *out = nm_allocate((size_t)(size * width) * sizeof *out);
    for (int64_t id = 0; id < n; id++)
        if (ids[id] >= 0)
            memcpy(out + ids[id] * width, values + id * width, (size_t)width * sizeof *out);
    return out;
}

static void write_entry(const nm_map_entry *entry, nm_backend *backend, const nm_map_ids *ids,
                        nm_tensor_list *list)
{
    size_t first;
    int64_t rows, cols;
    block_of(entry, &first, &rows, &cols);
    size_t n = (size_t)(rows ? rows : 1) * (size_t)cols;
    NM_AUTO_FREE double *changed = NULL, *values = nm_param_values(backend, entry->param);
    double *block = values + first;
    for (size_t k = 0; k < n; k++)
        block[k] = entry->factor * block[k] + entry->offset;
    if (entry->transposed && rows) {
        changed = transpose(block, rows, cols);
        nm_tensor_list_add(list, changed, cols, rows, "%s", entry->name);
    } else if (ids && entry->vocab) {
        int32_t size = ids->size[entry->vocab];
        changed = select_rows(block, ids->ids[entry->vocab], rows ? rows : cols, size, rows ? cols : 1);
        nm_tensor_list_add(list, changed, rows ? size : 0, rows ? cols : size, "%s", entry->name);
    } else {
        nm_tensor_list_add(list, block, rows, cols, "%s", entry->name);
    }
}

void nm_tensor_map_write(const nm_tensor_map *map, nm_backend *backend, const nm_map_ids *ids,
                         nm_tensor_list *list)
{
    for (size_t i = 0; i < map->n; i++)
        write_entry(&map->entries[i], backend, ids, list);
}

static nm_status wrong_shape(const nm_tensor_source *source, const char *name, int rank, const int64_t *shape,
                             int64_t rows, int64_t cols, nm_error *err)
{
    char found[128] = "", *at = found;
    for (int i = 0; i < rank && i < 4; i++)
        at +=
            snprintf(at, (size_t)(found + sizeof found - at), "%s%lld", i ? " x " : "", (long long)shape[i]);
    if (rows)
        return nm_fail(err, NM_MISMATCH, "%s: tensor '%.100s' is [%s], expected [%lld x %lld]", source->path,
                       name, found, (long long)rows, (long long)cols);
    return nm_fail(err, NM_MISMATCH, "%s: tensor '%.100s' is [%s], expected [%lld]", source->path, name,
                   found, (long long)cols);
}

/* Leading dimensions of size 1 are ignored, as in the vectors of Marian. */
static bool has_shape(int rank, const int64_t *shape, int64_t rows, int64_t cols)
{
    while (rank > (rows ? 2 : 1) && shape[0] == 1) {
        rank--;
        shape++;
    }
    return rows ? rank == 2 && shape[0] == rows && shape[1] == cols : rank == 1 && shape[0] == cols;
}

/* The rows of a vocabulary in the order of Norma's ids, zero for tokens without a counterpart. Heap. */
static double *reorder(const double *values, const int32_t *ids, int64_t n, int64_t width)
{
    double *out = nm_allocate((size_t)(n * width) * sizeof *out);
    for (int64_t id = 0; id < n; id++)
        if (ids[id] >= 0)
            memcpy(out + id * width, values + ids[id] * width, (size_t)width * sizeof *out);
    return out;
}

/* Compares the shape of a tensor with that of its entry. *found: false for an optional tensor that does not
 * exist. */
static nm_status check_entry(const nm_map_entry *entry, const nm_tensor_source *source, const nm_map_ids *ids,
                             bool *found, nm_error *err)
{
    size_t first;
    int64_t rows, cols, shape[8] = {0};
    int rank = 0;
    block_of(entry, &first, &rows, &cols);
    *found = source->shape(source->file, entry->name, &rank, shape);
    if (!*found && entry->optional)
        return NM_OK;
    if (!*found)
        return nm_fail(err, NM_MISMATCH, "%s: has no tensor '%.100s', or not as floating-point numbers",
                       source->path, entry->name);
    int64_t foreign = entry->vocab ? ids->size[entry->vocab] : rows ? rows : cols;
    int64_t want_rows = rows ? foreign : 0, want_cols = rows ? cols : foreign;
    bool turned = entry->transposed && rows;
    int64_t expected[] = {turned ? want_cols : want_rows, turned ? want_rows : want_cols};
    return has_shape(rank, shape, expected[0], expected[1])
               ? NM_OK
               : wrong_shape(source, entry->name, rank, shape, expected[0], expected[1], err);
}

static nm_status read_entry(const nm_map_entry *entry, nm_backend *backend, const nm_tensor_source *source,
                            const nm_map_ids *ids, nm_error *err)
{
    size_t first;
    int64_t rows, cols, shape[8] = {0};
    int rank = 0;
    bool found;
    NM_TRY(check_entry(entry, source, ids, &found, err));
    if (!found)
        return NM_OK;
    block_of(entry, &first, &rows, &cols);
    double *values = source->read(source->file, entry->name, &rank, shape);
    if (entry->transposed && rows) {
        double *back = transpose(values, cols, entry->vocab ? ids->size[entry->vocab] : rows);
        free(values);
        values = back;
    }
    if (entry->vocab) {
        double *ordered = reorder(values, ids->ids[entry->vocab], rows ? rows : cols, rows ? cols : 1);
        free(values);
        values = ordered;
    }
    size_t n = (size_t)(rows ? rows : 1) * (size_t)cols;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite &= isfinite(values[i]) != 0;
        values[i] = (values[i] - entry->offset) / entry->factor;
    }
    if (finite)
        nm_tensor_set(backend, entry->param, first, values, n);
    free(values);
    return finite ? NM_OK
                  : nm_fail(err, NM_DIVERGED,
                            "%s: tensor '%.100s' has values that are not finite (NaN or infinity)",
                            source->path, entry->name);
}

static bool is_mapped(const nm_tensor_map *map, const char *name)
{
    for (size_t i = 0; i < map->n; i++)
        if (!strcmp(map->entries[i].name, name))
            return true;
    return false;
}

nm_status nm_tensor_map_check(const nm_tensor_map *map, const nm_tensor_source *source, const nm_map_ids *ids,
                              nm_error *err)
{
    const char *name;
    bool found;
    for (size_t i = 0; (name = source->name(source->file, i)) != NULL; i++)
        if (!is_mapped(map, name) && !(source->ignored && source->ignored(name)))
            return nm_fail(err, NM_UNSUPPORTED,
                           "%s: tensor '%.150s' does not belong to any part of the model that Norma supports",
                           source->path, name);
    for (size_t i = 0; i < map->n; i++)
        NM_TRY(check_entry(&map->entries[i], source, ids, &found, err));
    return NM_OK;
}

nm_status nm_tensor_map_read(const nm_tensor_map *map, nm_backend *backend, const nm_tensor_source *source,
                             const nm_map_ids *ids, nm_error *err)
{
    for (size_t i = 0; i < map->n; i++)
        NM_TRY(read_entry(&map->entries[i], backend, source, ids, err));
    return NM_OK;
}

double nm_half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double element(const nm_safetensor *tensor, size_t i)
{
    const char *at = (const char *)tensor->data + i * nm_tensor_type_bytes(tensor->type);
    double f64;
    float f32;
    uint16_t bits16;
    switch (tensor->type) {
    case NM_TENSOR_F64:
        memcpy(&f64, at, sizeof f64);
        return f64;
    case NM_TENSOR_F32:
        memcpy(&f32, at, sizeof f32);
        return (double)f32;
    case NM_TENSOR_F16:
        memcpy(&bits16, at, sizeof bits16);
        return nm_half_value(bits16);
    default:
        memcpy(&bits16, at, sizeof bits16);
        return (double)nm_bf16_value(bits16);
    }
}

static bool safetensor_shape(const void *file, const char *name, int *rank, int64_t *shape)
{
    const nm_safetensor *tensor = nm_safetensors_find(file, name);
    if (!tensor || (tensor->type != NM_TENSOR_F64 && tensor->type != NM_TENSOR_F32 &&
                    tensor->type != NM_TENSOR_F16 && tensor->type != NM_TENSOR_BF16))
        return false;
    *rank = tensor->rank;
    memcpy(shape, tensor->shape, (size_t)tensor->rank * sizeof *shape);
    return true;
}

static double *read_safetensor(const void *file, const char *name, int *rank, int64_t *shape)
{
    if (!safetensor_shape(file, name, rank, shape))
        return NULL;
    const nm_safetensor *tensor = nm_safetensors_find(file, name);
    double *values = nm_allocate((tensor->count + 1) * sizeof *values);
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = element(tensor, i);
    return values;
}

static const char *safetensor_name(const void *file, size_t index)
{
    return index < nm_safetensors_count(file) ? nm_safetensors_at(file, index)->name : NULL;
}

nm_tensor_source nm_tensor_source_safetensors(const nm_safetensors *file)
{
    return (nm_tensor_source){.path = nm_safetensors_path(file),
                              .file = file,
                              .shape = safetensor_shape,
                              .read = read_safetensor,
                              .name = safetensor_name};
}
