#include "convert/ctranslate2_file.h"

#include <string.h>

#include "base/bf16.h"
#include "base/file.h"
#include "convert/ctranslate2.h"

static const size_t type_bytes[NM_CT2_N_TYPES] = {4, 1, 2, 4, 2, 2};

void nm_ct2_file_release(nm_ct2_file *file)
{
    nm_counter_release(&file->names);
    NM_FREE(file->variables, file->aliased, file->bytes, file->spec, file->path);
    *file = (nm_ct2_file){0};
}

typedef struct cursor {
    nm_ct2_file *file;
    size_t at, bytes;
    nm_error *err;
} cursor;

static nm_status damaged(const cursor *self, const char *what)
{
    return nm_fail(self->err, NM_FORMAT, "%s: damaged file: %s at byte %zu", self->file->path, what,
                   self->at);
}

/* Reads an unsigned little-endian number of 1, 2 or 4 bytes. */
static nm_status parse_number(cursor *self, size_t n, uint32_t *number)
{
    *number = 0;
    if (n > self->bytes - self->at)
        return damaged(self, "it ends");
    for (size_t i = n; i-- > 0;)
        *number = *number << 8 | (unsigned char)self->file->bytes[self->at + i];
    self->at += n;
    return NM_OK;
}

/* Reads a NUL-terminated text of printable ASCII characters; *text points into the memory of the file. */
static nm_status parse_text(cursor *self, const char **text)
{
    uint32_t length;
    NM_TRY(parse_number(self, 2, &length));
    *text = self->file->bytes + self->at;
    if (length < 2 || length > self->bytes - self->at || (*text)[length - 1])
        return damaged(self, "a name is malformed");
    for (uint32_t i = 0; i + 1 < length; i++)
        if ((*text)[i] <= ' ' || (*text)[i] > '~')
            return damaged(self, "a name is malformed");
    self->at += length;
    return NM_OK;
}

static nm_status parse_variable(cursor *self)
{
    nm_ct2_file *file = self->file;
    nm_ct2_variable variable = {.count = 1};
    const char *name;
    uint32_t rank, type, bytes;
    NM_TRY(parse_text(self, &name));
    NM_TRY(parse_number(self, 1, &rank));
    if (rank > NM_CT2_MAX_RANK)
        return damaged(self, "a variable has too many dimensions");
    variable.rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t length;
        NM_TRY(parse_number(self, 4, &length));
        variable.shape[i] = length;
        if (length && variable.count > self->bytes / length)
            return damaged(self, "a variable is larger than the file");
        variable.count *= length;
    }
    NM_TRY(parse_number(self, 1, &type));
    NM_TRY(parse_number(self, 4, &bytes));
    if (type >= NM_CT2_N_TYPES)
        return damaged(self, "a variable has an unknown type");
    if (bytes != variable.count * type_bytes[type] || bytes > self->bytes - self->at)
        return damaged(self, "the size of a variable does not match its shape");
    variable.type = (int)type;
    variable.data = file->bytes + self->at;
    self->at += bytes;
    if (nm_counter_add(&file->names, name, strlen(name), 1) != file->n)
        return damaged(self, "a name occurs twice");
    NM_APPEND(file->variables, file->n, file->capacity, variable);
    return NM_OK;
}

static nm_status parse_alias(cursor *self)
{
    nm_ct2_file *file = self->file;
    const char *name, *of;
    NM_TRY(parse_text(self, &name));
    NM_TRY(parse_text(self, &of));
    size_t found = nm_counter_find(&file->names, of, strlen(of));
    if (found >= file->n)
        return damaged(self, "an alias of a variable that does not exist");
    if (nm_counter_add(&file->names, name, strlen(name), 1) != file->n + file->n_aliases)
        return damaged(self, "a name occurs twice");
    NM_APPEND(file->aliased, file->n_aliases, file->alias_capacity, found);
    return NM_OK;
}

static nm_status parse_file(cursor *self)
{
    nm_ct2_file *file = self->file;
    uint32_t version, revision, n;
    const char *spec;
    NM_TRY(parse_number(self, 4, &version));
    if (version != NM_CT2_BINARY_VERSION)
        return nm_fail(self->err, version && version < 100 ? NM_UNSUPPORTED : NM_FORMAT,
                       "%s: not version %d of CTranslate2's binary format but %u", file->path,
                       NM_CT2_BINARY_VERSION, version);
    NM_TRY(parse_text(self, &spec));
    file->spec = nm_duplicate(spec);
    NM_TRY(parse_number(self, 4, &revision));
    file->revision = revision;
    NM_TRY(parse_number(self, 4, &n));
    for (uint32_t i = 0; i < n; i++)
        NM_TRY(parse_variable(self));
    NM_TRY(parse_number(self, 4, &n));
    for (uint32_t i = 0; i < n; i++)
        NM_TRY(parse_alias(self));
    return self->at == self->bytes ? NM_OK : damaged(self, "data after the end");
}

nm_status nm_ct2_file_read(nm_ct2_file *file, const char *path, nm_error *err)
{
    cursor self = {.file = file, .err = err};
    *file = (nm_ct2_file){.path = nm_duplicate(path)};
    NM_TRY(nm_file_read(path, &file->bytes, &self.bytes, err));
    return parse_file(&self);
}

const nm_ct2_variable *nm_ct2_file_find(const nm_ct2_file *file, const char *name)
{
    size_t i = nm_counter_find(&file->names, name, strlen(name));
    if (i == SIZE_MAX)
        return NULL;
    return &file->variables[i < file->n ? i : file->aliased[i - file->n]];
}

static double element(const nm_ct2_variable *variable, size_t i)
{
    const char *at = variable->data + i * type_bytes[variable->type];
    float f32;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    uint16_t bits;
    switch (variable->type) {
    case NM_CT2_FLOAT32:
        memcpy(&f32, at, sizeof f32);
        return (double)f32;
    case NM_CT2_INT8:
        memcpy(&i8, at, sizeof i8);
        return i8;
    case NM_CT2_INT16:
        memcpy(&i16, at, sizeof i16);
        return i16;
    case NM_CT2_INT32:
        memcpy(&i32, at, sizeof i32);
        return i32;
    case NM_CT2_FLOAT16:
        memcpy(&bits, at, sizeof bits);
        return nm_half_value(bits);
    default:
        memcpy(&bits, at, sizeof bits);
        return (double)nm_bf16_value(bits);
    }
}

bool nm_ct2_file_scalar(const nm_ct2_file *file, const char *name, double *value)
{
    const nm_ct2_variable *variable = nm_ct2_file_find(file, name);
    if (!variable || variable->count != 1)
        return false;
    *value = element(variable, 0);
    return true;
}

/* The scales of an integer variable; NULL: there are none of a suitable size. */
static const nm_ct2_variable *scales_of(const nm_ct2_file *file, const nm_ct2_variable *variable)
{
    NM_AUTO_FREE char *scale_name = nm_format("%s_scale", file->names.items[variable - file->variables].text);
    const nm_ct2_variable *scale = nm_ct2_file_find(file, scale_name);
    bool fits =
        scale && (scale->count == 1 || (variable->rank == 2 && scale->count == (size_t)variable->shape[0]));
    return fits ? scale : NULL;
}

static bool variable_shape(const void *data, const char *name, int *rank, int64_t *shape)
{
    const nm_ct2_file *file = data;
    const nm_ct2_variable *variable = nm_ct2_file_find(file, name);
    if (!variable || variable->type == NM_CT2_INT32)
        return false;
    bool quantized = variable->type == NM_CT2_INT8 || variable->type == NM_CT2_INT16;
    if (quantized && !scales_of(file, variable))
        return false;
    *rank = variable->rank;
    memcpy(shape, variable->shape, (size_t)variable->rank * sizeof *shape);
    return true;
}

static double *read_variable(const void *data, const char *name, int *rank, int64_t *shape)
{
    const nm_ct2_file *file = data;
    if (!variable_shape(file, name, rank, shape))
        return NULL;
    const nm_ct2_variable *variable = nm_ct2_file_find(file, name);
    bool quantized = variable->type == NM_CT2_INT8 || variable->type == NM_CT2_INT16;
    const nm_ct2_variable *scale = quantized ? scales_of(file, variable) : NULL;
    double *values = nm_allocate((variable->count + 1) * sizeof *values);
    size_t columns = scale ? variable->count / (scale->count ? scale->count : 1) : 1;
    for (size_t i = 0; i < variable->count; i++)
        values[i] = element(variable, i) / (scale ? element(scale, i / columns) : 1);
    return values;
}

static const char *variable_name(const void *data, size_t index)
{
    const nm_ct2_file *file = data;
    return index < file->names.n ? file->names.items[index].text : NULL;
}

nm_tensor_source nm_ct2_file_source(const nm_ct2_file *file)
{
    return (nm_tensor_source){.path = file->path,
                              .file = file,
                              .shape = variable_shape,
                              .read = read_variable,
                              .name = variable_name};
}
