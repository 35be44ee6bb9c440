#include "base/record.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

enum { HASH_BYTES = 17 };

/* The value of a member that is not an array. */
typedef union value {
    const char *text;
    json_t *json;
    int64_t number;
    int32_t code;
    double real;
    bool flag;
    uint64_t hash;
} value;

static value value_of(const nm_field *field, const void *record)
{
    value v = {0};
    memcpy(&v, (const char *)record + field->offset, field->bytes < sizeof v ? field->bytes : sizeof v);
    return v;
}

static void set(const nm_field *field, void *record, const void *from, size_t bytes)
{
    memcpy((char *)record + field->offset, from, bytes);
}

static const char *text_of(const nm_field *field, const void *record)
{
    return field->kind == NM_FIELD_CHARS ? (const char *)record + field->offset
                                         : value_of(field, record).text;
}

const nm_field *nm_record_find(const nm_field *fields, const char *name)
{
    for (const nm_field *field = fields; field->name; field++)
        if (!strcmp(field->name, name))
            return field;
    return NULL;
}

static bool is_known(const nm_field *field, const void *record)
{
    static const value zero;
    value v = value_of(field, record);
    if (field->kind == NM_FIELD_REAL)
        return !isnan(v.real);
    return field->kind == NM_FIELD_CHARS ? *text_of(field, record) != 0 : memcmp(&v, &zero, sizeof v) != 0;
}

static json_t *reals_json(const nm_field *field, const void *record)
{
    json_t *array = json_array();
    double number;
    for (size_t at = 0; at < field->bytes; at += sizeof number) {
        memcpy(&number, (const char *)record + field->offset + at, sizeof number);
        json_array_append_new(array, nm_json_number(number));
    }
    return array;
}

static json_t *value_json(const nm_field *field, const void *record)
{
    value v = value_of(field, record);
    char digits[HASH_BYTES];
    switch (field->kind) {
    case NM_FIELD_TEXT:
    case NM_FIELD_CHARS: {
        const char *text = text_of(field, record);
        return text ? json_string(text) : json_null();
    }
    case NM_FIELD_INT:
        return json_integer(v.number);
    case NM_FIELD_CODE:
        return json_integer(v.code);
    case NM_FIELD_REAL:
        return nm_json_number(v.real);
    case NM_FIELD_FLAG:
        return json_boolean(v.flag);
    case NM_FIELD_HASH:
        snprintf(digits, sizeof digits, "%016" PRIx64, v.hash);
        return json_string(digits);
    case NM_FIELD_REALS:
        return reals_json(field, record);
    case NM_FIELD_JSON:
        return v.json ? v.json : json_null();
    case NM_FIELD_OTHER:
        break;
    }
    return NULL;
}

/* The key of a row without "?"; false if the row is never written. */
static bool key_of(const nm_field *field, char key[NM_FIELD_KEY_BYTES], bool *optional)
{
    snprintf(key, NM_FIELD_KEY_BYTES, "%s", field->key ? field->key : field->name);
    size_t length = strlen(key);
    *optional = length && key[length - 1] == '?';
    key[length - *optional] = 0;
    return *key && field->kind != NM_FIELD_OTHER;
}

void nm_record_add_json(json_t *object, const nm_field *fields, const void *record)
{
    char key[NM_FIELD_KEY_BYTES];
    bool optional;
    for (const nm_field *field = fields; field->name; field++)
        if (key_of(field, key, &optional) && (!optional || is_known(field, record)))
            json_object_set_new(object, key, value_json(field, record));
}

json_t *nm_record_json(const nm_field *fields, const void *record)
{
    json_t *object = json_object();
    nm_record_add_json(object, fields, record);
    return object;
}

json_t *nm_record_array(const nm_field *fields, const void *records, size_t bytes, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, nm_record_json(fields, (const char *)records + i * bytes));
    return list;
}

static bool read_reals(const nm_field *field, char *to, const json_t *from)
{
    if (!json_is_array(from) || json_array_size(from) * sizeof(double) != field->bytes)
        return false;
    for (size_t i = 0; i < json_array_size(from); i++) {
        const json_t *item = json_array_get(from, i);
        double number = json_is_number(item) ? json_number_value(item) : NAN;
        memcpy(to + i * sizeof number, &number, sizeof number);
    }
    return true;
}

/* False if the value has another type or is too long. */
static bool read_value(const nm_field *field, void *record, const json_t *from)
{
    value v = {0};
    const char *text = json_string_value(from);
    switch (field->kind) {
    case NM_FIELD_TEXT:
        v.text = text;
        break;
    case NM_FIELD_INT:
        v.number = json_integer_value(from);
        break;
    case NM_FIELD_CODE:
        v.code = (int32_t)json_integer_value(from);
        break;
    case NM_FIELD_REAL:
        v.real = json_is_number(from) ? json_number_value(from) : NAN;
        break;
    case NM_FIELD_FLAG:
        v.flag = json_is_true(from);
        break;
    case NM_FIELD_HASH:
        v.hash = text ? strtoull(text, NULL, 16) : 0;
        break;
    case NM_FIELD_CHARS:
        if (!text || strlen(text) >= field->bytes)
            return false;
        snprintf((char *)record + field->offset, field->bytes, "%s", text);
        return true;
    case NM_FIELD_REALS:
        return read_reals(field, (char *)record + field->offset, from);
    case NM_FIELD_JSON:
    case NM_FIELD_OTHER:
        return false;
    }
    set(field, record, &v, field->bytes);
    bool null = json_is_null(from), whole = field->kind == NM_FIELD_INT || field->kind == NM_FIELD_CODE;
    return whole                          ? json_is_integer(from)
           : field->kind == NM_FIELD_REAL ? json_is_number(from) || null
           : field->kind == NM_FIELD_FLAG ? json_is_boolean(from)
                                          : text || null;
}

bool nm_record_read_json(const nm_field *fields, void *record, const json_t *object)
{
    char key[NM_FIELD_KEY_BYTES];
    bool optional, complete = true;
    for (const nm_field *field = fields; field->name; field++) {
        if (!key_of(field, key, &optional))
            continue;
        const json_t *found = json_object_get(object, key);
        complete = (found ? read_value(field, record, found) : optional) && complete;
    }
    return complete;
}

void nm_record_clear(const nm_field *fields, void *record)
{
    double unknown = NAN;
    for (const nm_field *field = fields; field->name; field++) {
        memset((char *)record + field->offset, 0, field->bytes);
        if (field->kind == NM_FIELD_REAL)
            set(field, record, &unknown, sizeof unknown);
    }
}

/* The bytes that make up a value; *bytes is 0 for NULL and for rows of the kind other. */
static const void *bytes_of(const nm_field *field, const void *record, size_t *bytes)
{
    const char *at = (const char *)record + field->offset;
    bool is_text = field->kind == NM_FIELD_TEXT;
    const char *text = is_text ? text_of(field, record) : NULL;
    *bytes = field->kind >= NM_FIELD_JSON    ? 0
             : is_text                       ? (text ? strlen(text) + 1 : 0)
             : field->kind == NM_FIELD_CHARS ? strnlen(at, field->bytes)
                                             : field->bytes;
    return is_text && text ? text : at;
}

bool nm_record_equal(const nm_field *fields, const void *a, const void *b)
{
    size_t a_bytes, b_bytes;
    for (const nm_field *field = fields; field->name; field++) {
        const void *at_a = bytes_of(field, a, &a_bytes), *at_b = bytes_of(field, b, &b_bytes);
        if (a_bytes != b_bytes || memcmp(at_a, at_b, a_bytes) != 0)
            return false;
    }
    return true;
}

void nm_record_copy(const nm_field *to_fields, void *to, const nm_field *from_fields, const void *from)
{
    for (const nm_field *source = from_fields; source->name; source++) {
        const nm_field *field = nm_record_find(to_fields, source->name);
        if (field && field->kind == source->kind && field->bytes == source->bytes)
            set(field, to, (const char *)from + source->offset, source->bytes);
    }
}

/* How the kinds are stored. Rows of the other kinds have no tensor. */
static const struct {
    bool stored, vector;
    nm_tensor_type type;
} tensors[] = {
    [NM_FIELD_INT] = {true, false, NM_TENSOR_I64},  [NM_FIELD_CODE] = {true, false, NM_TENSOR_I32},
    [NM_FIELD_REAL] = {true, false, NM_TENSOR_F64}, [NM_FIELD_FLAG] = {true, false, NM_TENSOR_BOOL},
    [NM_FIELD_HASH] = {true, false, NM_TENSOR_U64}, [NM_FIELD_CHARS] = {true, true, NM_TENSOR_U8},
    [NM_FIELD_REALS] = {true, true, NM_TENSOR_F64}, [NM_FIELD_OTHER] = {false, false, 0}};

void nm_record_save(nm_safetensors_writer *writer, const char *prefix, const nm_field *fields,
                    const void *record)
{
    for (const nm_field *field = fields; field->name; field++) {
        if (!tensors[field->kind].stored)
            continue;
        nm_tensor_type type = tensors[field->kind].type;
        int64_t length = (int64_t)(field->bytes / nm_tensor_type_bytes(type));
        NM_AUTO_FREE char *name = nm_format("%s.%s", prefix, field->name);
        nm_safetensors_add(writer, name, type, tensors[field->kind].vector, &length,
                           (const char *)record + field->offset);
    }
}

/* Vectors may be shorter than the member; a text ends within its tensor. */
static bool fits(const nm_field *field, const nm_safetensor *tensor)
{
    const unsigned char *data = tensor->data;
    return tensor->type == tensors[field->kind].type &&
           (tensors[field->kind].vector ? tensor->bytes <= field->bytes : tensor->bytes == field->bytes) &&
           (field->kind != NM_FIELD_CHARS || memchr(data, 0, tensor->bytes)) &&
           (field->kind != NM_FIELD_FLAG || *data <= 1);
}

nm_status nm_record_load(const nm_safetensors *file, const char *prefix, const nm_field *fields, void *record,
                         nm_error *err)
{
    for (const nm_field *field = fields; field->name; field++) {
        if (!tensors[field->kind].stored)
            continue;
        char *name = nm_format("%s.%s", prefix, field->name);
        const nm_safetensor *tensor = nm_safetensors_find(file, name);
        free(name);
        if (!tensor)
            continue;
        if (!fits(field, tensor))
            return nm_fail(err, NM_FORMAT, "%s: invalid value of %s", nm_safetensors_path(file),
                           tensor->name);
        set(field, record, tensor->data, tensor->bytes);
    }
    return NM_OK;
}
