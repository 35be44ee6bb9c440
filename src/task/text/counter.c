/* Counts of byte strings: XXH3 as hash, strings stored in chunks. */
#include "text/counter.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "base/words.h"

enum { CHUNK_BYTES = 1 << 16 };

void nm_counter_release(nm_counter *counter)
{
    nm_free_list(counter->chunks, counter->n_chunks);
    free(counter->items);
    nm_hash_map_release(&counter->map);
    *counter = (nm_counter){0};
}

void nm_counter_clear(nm_counter *counter)
{
    nm_counter kept = {.items = counter->items, .capacity = counter->capacity, .map = counter->map};
    nm_hash_map_clear(&kept.map);
    counter->items = NULL;
    counter->map = (nm_hash_map){0};
    nm_counter_release(counter);
    *counter = kept;
}

static uint32_t hash_text(const char *text, size_t bytes)
{
    return (uint32_t)(XXH3_64bits(text, bytes) >> 32);
}

/* Index of the string, or NM_HASH_NONE. */
static uint32_t find_item(const nm_counter *counter, const char *text, size_t bytes, uint32_t hash)
{
    size_t probe = 0;
    for (uint32_t i; (i = nm_hash_map_next(&counter->map, hash, &probe)) != NM_HASH_NONE;) {
        const nm_count *item = &counter->items[i];
        if (item->bytes == bytes && !memcmp(item->text, text, bytes))
            return i;
    }
    return NM_HASH_NONE;
}

static const char *store_text(nm_counter *counter, const char *text, size_t bytes)
{
    if (!counter->n_chunks || counter->chunk_used + bytes + 1 > counter->chunk_bytes) {
        NM_GROW(counter->chunks, counter->n_chunks, counter->chunk_capacity);
        counter->chunk_bytes = bytes + 1 > CHUNK_BYTES ? bytes + 1 : CHUNK_BYTES;
        counter->chunks[counter->n_chunks++] = nm_reallocate(NULL, counter->chunk_bytes);
        counter->chunk_used = 0;
    }
    char *copy = counter->chunks[counter->n_chunks - 1] + counter->chunk_used;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    counter->chunk_used += bytes + 1;
    return copy;
}

static size_t add_hashed(nm_counter *counter, const char *text, size_t bytes, uint32_t hash, int64_t count)
{
    uint32_t found = find_item(counter, text, bytes, hash);
    if (found != NM_HASH_NONE) {
        counter->items[found].count += count;
        return found;
    }
    NM_GROW(counter->items, counter->n, counter->capacity);
    counter->items[counter->n] = (nm_count){store_text(counter, text, bytes), (uint32_t)bytes, hash, count};
    nm_hash_map_add(&counter->map, hash, (uint32_t)counter->n);
    return counter->n++;
}

size_t nm_counter_add(nm_counter *counter, const char *text, size_t bytes, int64_t count)
{
    NM_ASSERT(bytes <= NM_COUNTER_MAX_BYTES);
    return add_hashed(counter, text, bytes, hash_text(text, bytes), count);
}

size_t nm_counter_find(const nm_counter *counter, const char *text, size_t bytes)
{
    uint32_t found = find_item(counter, text, bytes, hash_text(text, bytes));
    return found == NM_HASH_NONE ? SIZE_MAX : found;
}

int64_t nm_counter_get(const nm_counter *counter, const char *text, size_t bytes)
{
    size_t number = nm_counter_find(counter, text, bytes);
    return number == SIZE_MAX ? 0 : counter->items[number].count;
}

void nm_counter_merge(nm_counter *counter, const nm_counter *other)
{
    nm_counter_add_scaled(counter, other, 1, NULL);
}

void nm_counter_add_scaled(nm_counter *counter, const nm_counter *other, int64_t times, uint32_t *numbers)
{
    for (size_t i = 0; i < other->n; i++) {
        const nm_count *item = &other->items[i];
        size_t number = add_hashed(counter, item->text, item->bytes, item->hash, times * item->count);
        if (numbers)
            numbers[i] = (uint32_t)number;
    }
}

void nm_counter_add_line(nm_counter *counter, const char *line, size_t bytes)
{
    const char *word;
    size_t word_bytes, at = 0;
    while (nm_word_next(line, bytes, &at, &word, &word_bytes))
        nm_counter_add(counter, word, word_bytes, 1);
}

nm_status nm_counter_add_file(nm_counter *counter, const char *path, int64_t *n_lines, nm_error *err)
{
    FILE *stream;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    NM_AUTO(nm_lines_release) nm_lines lines = {0};
    nm_lines_init(&lines, stream, path);
    bool more = true;
    nm_status status;
    while ((status = nm_lines_next(&lines, &more, err)) == NM_OK && more) {
        status = nm_line_check(&lines, err);
        if (status != NM_OK)
            break;
        nm_counter_add_line(counter, lines.text, lines.bytes);
    }
    if (n_lines)
        *n_lines = lines.number;
    nm_input_close(stream);
    return status;
}

typedef struct sort_key {
    const nm_count *item;
    uint32_t number;
} sort_key;

static int compare_first(const void *left, const void *right)
{
    const sort_key *a = left, *b = right;
    if (a->item->count != b->item->count)
        return a->item->count < b->item->count ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_bytes(const void *left, const void *right)
{
    const nm_count *a = ((const sort_key *)left)->item, *b = ((const sort_key *)right)->item;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

uint32_t *nm_counter_sort(const nm_counter *counter, nm_count_order order)
{
    NM_AUTO_FREE sort_key *keys = nm_allocate(counter->n * sizeof *keys);
    for (size_t i = 0; i < counter->n; i++)
        keys[i] = (sort_key){&counter->items[i], (uint32_t)i};
    if (counter->n)
        qsort(keys, counter->n, sizeof *keys, order == NM_COUNT_THEN_FIRST ? compare_first : compare_bytes);
    uint32_t *numbers = nm_allocate(counter->n * sizeof *numbers);
    for (size_t i = 0; i < counter->n; i++)
        numbers[i] = keys[i].number;
    return numbers;
}

bool nm_count_parse(const char *line, size_t bytes, char separator, size_t *text_bytes, int64_t *count)
{
    const char *space = memrchr(line, separator, bytes);
    if (!space || space == line || space + 1 == line + bytes)
        return false;
    int64_t value = 0;
    for (const char *digit = space + 1; digit < line + bytes; digit++) {
        if (*digit < '0' || *digit > '9' || value > (INT64_MAX - (*digit - '0')) / 10)
            return false;
        value = 10 * value + (*digit - '0');
    }
    *text_bytes = (size_t)(space - line);
    *count = value;
    return true;
}
