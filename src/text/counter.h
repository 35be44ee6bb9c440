/* A map from byte strings to counts, in order of first appearance; also gives strings dense numbers.
 *
 * Memory grows with the number of different strings, not with the text counted. Texts stay where they are
 * until release, so pointers to them may be kept. A counter that nobody changes may be read by many threads.
 */
#ifndef NM_COUNTER_H
#define NM_COUNTER_H

#include <stdio.h>
#include "base/hash_map.h"
#include "norma/status.h"

typedef struct nm_count {
    const char *text; /* NUL-terminated */
    uint32_t bytes, hash;
    int64_t count;
} nm_count;

typedef struct nm_counter {
    nm_count *items; /* [n], in order of first appearance */
    size_t n, capacity;
    nm_hash_map map; /* to indexes of items */
    char **chunks;   /* storage of the texts */
    size_t n_chunks, chunk_capacity, chunk_used, chunk_bytes;
} nm_counter;

typedef enum nm_count_order {
    NM_COUNT_THEN_FIRST, /* by falling count, then by first appearance (subword-nmt's get-vocab) */
    NM_COUNT_THEN_BYTES  /* by falling count, then by bytes = code points (fastBPE's getvocab, fairseq) */
} nm_count_order;

/* Longest string: the longest line there may be, and what lowercasing adds to it. */
#define NM_COUNTER_MAX_BYTES ((size_t)1 << 30)

/* {0} is an empty counter too. */
void nm_counter_init(nm_counter *counter);
void nm_counter_release(nm_counter *counter);
/* Empties it for strings of another text of about that size. */
void nm_counter_clear(nm_counter *counter);

/* Adds count to the string's count, putting it in first if it is new; returns its number. */
size_t nm_counter_add(nm_counter *counter, const char *text, size_t bytes, int64_t count);
/* Number of the string, or SIZE_MAX. */
size_t nm_counter_find(const nm_counter *counter, const char *text, size_t bytes);
/* Its count, 0 if it is unknown. */
int64_t nm_counter_get(const nm_counter *counter, const char *text, size_t bytes);
/* Adds all counts of the other one. */
void nm_counter_merge(nm_counter *counter, const nm_counter *other);
/* The same, so many times (0: strings alone); numbers[i], if wanted, is the number here of its string i. */
void nm_counter_join(nm_counter *counter, const nm_counter *other, int64_t times, uint32_t *numbers);
/* Forgets strings counted less often than least. Numbers change. */
void nm_counter_cut(nm_counter *counter, int64_t least);

/* Counts the words of a line, or of a text file: line by line, each checked to be UTF-8. */
void nm_counter_add_line(nm_counter *counter, const char *line, size_t bytes);
nm_status nm_counter_add_file(nm_counter *counter, const char *path, int64_t *n_lines, nm_error *err);

/* Item numbers in the wanted order; the caller frees. */
uint32_t *nm_counter_sort(const nm_counter *counter, nm_count_order order);

/* Files of lines "string count" (subword-nmt's vocabulary files). Strings that stand twice are an error. */
nm_status nm_counter_read(nm_counter *counter, const char *path, nm_error *err);
void nm_counter_write(const nm_counter *counter, nm_count_order order, FILE *stream);
/* Splits a line "string count" at its last space. False if it is not of that form or the count is no number
 * from 0 to 2^63 - 1. */
bool nm_count_parse(const char *line, size_t bytes, size_t *text_bytes, int64_t *count);

#endif
