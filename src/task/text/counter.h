/* A map from byte strings to counts and to consecutive indexes, in the order of first occurrence.
 *
 * Memory grows with the number of distinct strings. Strings do not move until release or clear, so pointers
 * to them stay valid. Concurrent reads are safe without a concurrent write. */
#pragma once

#include "base/hash_map.h"
#include "norma/status.h"

typedef struct nm_count {
    const char *text; /* NUL-terminated */
    uint32_t bytes, hash;
    int64_t count;
} nm_count;

/* {0} is empty. */
typedef struct nm_counter {
    nm_count *items; /* [n], in the order of first occurrence */
    size_t n, capacity;
    nm_hash_map map; /* to indexes of items */
    char **chunks;   /* storage of the strings */
    size_t n_chunks, chunk_capacity, chunk_used, chunk_bytes;
} nm_counter;

typedef enum nm_count_order {
    NM_COUNT_THEN_FIRST, /* by descending count, then by first occurrence (subword-nmt's get-vocab) */
    /* by descending count, then by bytes, which is by code points (fastBPE's getvocab, fairseq) */
    NM_COUNT_THEN_BYTES
} nm_count_order;

/* Maximum length of a string in bytes. A line of NM_TEXT_MAX_LINE bytes fits, even if lowercasing makes it
 * longer. */
#define NM_COUNTER_MAX_BYTES ((size_t)1 << 30)

void nm_counter_release(nm_counter *counter);
/* Removes all strings; the memory of items and map is kept. */
void nm_counter_clear(nm_counter *counter);

/* Adds `count` to the count of the string, which is inserted if it is new. Returns its index. */
size_t nm_counter_add(nm_counter *counter, const char *text, size_t bytes, int64_t count);
/* Index of the string, or SIZE_MAX. */
size_t nm_counter_find(const nm_counter *counter, const char *text, size_t bytes);
/* Count of the string, 0 if it is unknown. */
int64_t nm_counter_get(const nm_counter *counter, const char *text, size_t bytes);
/* Adds all counts of the other counter. */
void nm_counter_merge(nm_counter *counter, const nm_counter *other);
/* Adds the counts of the other counter multiplied by `times`; 0 inserts its strings only. Unless numbers is
 * NULL, numbers[i] is set to the index in `counter` of string i of `other`. */
void nm_counter_add_scaled(nm_counter *counter, const nm_counter *other, int64_t times, uint32_t *numbers);

/* Counts the words of a line, or of all lines of a text file. *n_lines: their number; may be NULL. NM_IO;
 * NM_FORMAT if the file is not UTF-8. */
void nm_counter_add_line(nm_counter *counter, const char *line, size_t bytes);
nm_status nm_counter_add_file(nm_counter *counter, const char *path, int64_t *n_lines, nm_error *err);

/* Indexes in the given order; the caller frees. */
uint32_t *nm_counter_sort(const nm_counter *counter, nm_count_order order);

/* Splits a line "string count" at its last separator. False if the count is not a number from 0 to 2^63 -
 * 1. */
bool nm_count_parse(const char *line, size_t bytes, char separator, size_t *text_bytes, int64_t *count);
