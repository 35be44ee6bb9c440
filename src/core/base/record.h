/* Writing and reading records (norma/record.h). A function that receives rows and a record works for every
 * list. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/safetensors.h"
#include "norma/record.h"

typedef enum nm_field_kind {
    NM_FIELD_TEXT,
    NM_FIELD_INT,
    NM_FIELD_CODE,
    NM_FIELD_REAL,
    NM_FIELD_FLAG,
    NM_FIELD_HASH,
    NM_FIELD_CHARS,
    NM_FIELD_REALS,
    NM_FIELD_JSON,
    NM_FIELD_OTHER
} nm_field_kind;

enum { NM_FIELD_KEY_BYTES = 64 };

/* A row. key: NULL for the name of the member. Rows end with one without a name. */
typedef struct nm_field {
    const char *name;
    nm_field_kind kind;
    size_t offset, bytes;
    const char *help, *key;
} nm_field;

#define NM_KIND_text        NM_FIELD_TEXT
#define NM_KIND_int         NM_FIELD_INT
#define NM_KIND_code        NM_FIELD_CODE
#define NM_KIND_real        NM_FIELD_REAL
#define NM_KIND_flag        NM_FIELD_FLAG
#define NM_KIND_hash        NM_FIELD_HASH
#define NM_KIND_chars(n)    NM_FIELD_CHARS
#define NM_KIND_reals(n)    NM_FIELD_REALS
#define NM_KIND_json        NM_FIELD_JSON
#define NM_KIND_other(type) NM_FIELD_OTHER
#define NM_ROW(member_kind, member, ...)                                                                     \
    {.name = #member,                                                                                        \
     .kind = NM_KIND_##member_kind,                                                                          \
     .offset = offsetof(nm_this_record, member),                                                             \
     .bytes = sizeof(((nm_this_record *)0)->member),                                                         \
     .help = __VA_ARGS__},
/* Defines the function NAME_fields, which returns the rows of the list for the struct T; "static" may
 * precede it. */
#define NM_FIELDS(T, LIST) NM_FIELDS_OF(T, T, LIST)
#define NM_FIELDS_OF(NAME, T, LIST)                                                                          \
    const nm_field *NAME##_fields(void)                                                                      \
    {                                                                                                        \
        typedef T nm_this_record;                                                                            \
        static const nm_field rows[] = {LIST(NM_ROW){0}};                                                    \
        return rows;                                                                                         \
    }

/* The row of a member; NULL: there is none. */
const nm_field *nm_record_find(const nm_field *fields, const char *name);

/* A new object, and the keys of a record in an object that exists. Numbers that are not finite are null. */
json_t *nm_record_json(const nm_field *fields, const void *record);
void nm_record_add_json(json_t *object, const nm_field *fields, const void *record);
/* A new array of n records of `bytes` bytes each. */
json_t *nm_record_array(const nm_field *fields, const void *records, size_t bytes, size_t n);
/* Sets all members to not known. */
void nm_record_clear(const nm_field *fields, void *record);
/* Sets the members whose keys exist; the others keep their values. Texts are those of the object, which must
 * outlive the record. Returns false if a value has another type or is too long, or if a key without "?" is
 * missing. */
bool nm_record_read_json(const nm_field *fields, void *record, const json_t *object);

/* Whether all members are equal; texts by their characters, numbers by their bits. Rows of the kind other do
 * not count. */
bool nm_record_equal(const nm_field *fields, const void *a, const void *b);
/* Copies the members that both lists have with the same kind and size. */
void nm_record_copy(const nm_field *to_fields, void *to, const nm_field *from_fields, const void *from);

/* Adds every member as a tensor of one number, or a vector, with the name PREFIX.MEMBER. The record must
 * live until the writer has finished. Rows of the kinds text and other are left out. */
void nm_record_save(nm_safetensors_writer *writer, const char *prefix, const nm_field *fields,
                    const void *record);
/* Sets the members that the file has; the others keep their values: a file of another version may have other
 * members.
 *
 * NM_FORMAT  a value has another type, or does not fit into the member */
nm_status nm_record_load(const nm_safetensors *file, const char *prefix, const nm_field *fields, void *record,
                         nm_error *err);
