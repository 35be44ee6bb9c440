/* Records: structs that are declared as a list of rows. The list also gives the rows that write and read the
 * struct (JSON, tables, checkpoints), its layout in Python and its table in the documentation, so that a new
 * member is one row:
 *
 *     #define NM_POINT(F)                                        \
 *         F(real, height, "Height above the sea, m")             \
 *         F(int, visits, "Number of visits", "n")                \
 *         F(text, note, "What a visitor wrote", "note?")
 *     NM_RECORD(nm_point, NM_POINT)
 *
 * is `typedef struct nm_point { double height; int64_t visits; const char *note; } nm_point;`. A row has the
 * kind and the name of the member, what it means, and its key in JSON: the name of the member unless it is
 * given. A key that ends with "?" is left out if the value is not known; the key "" is never written. */
#ifndef NORMA_RECORD_H
#define NORMA_RECORD_H

#include <stdbool.h>
#include <stdint.h>

/* The kinds. Not known is NULL for a text, NaN for a real number, 0 for the others, and "" for chars. */
#define NM_TYPE_text        const char *
#define NM_TYPE_int         int64_t
#define NM_TYPE_code        int32_t /* an enum or an exit code */
#define NM_TYPE_real        double
#define NM_TYPE_flag        bool
#define NM_TYPE_hash        uint64_t            /* in JSON 16 hexadecimal digits */
#define NM_TYPE_json        struct json_t *     /* for C only: a nested value, which the writer takes over */
#define NM_TYPE_chars(n)    __typeof__(char[n]) /* a text within the record */
#define NM_TYPE_reals(n)    __typeof__(double[n]) /* an array within the record */
#define NM_TYPE_other(type) __typeof__(type)      /* for C only: never written */

#define NM_MEMBER(kind, name, ...) NM_TYPE_##kind name;
#define NM_RECORD(T, LIST)                                                                                   \
    typedef struct T {                                                                                       \
        LIST(NM_MEMBER)                                                                                      \
    } T;

#endif
