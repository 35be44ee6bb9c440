/* npz files: changes the header, the data or the name of an array, or the list of arrays, and writes an
 * archive with correct sizes and checksums, so that the change reaches the code after the archive reader. One
 * of eight mutations changes arbitrary bytes instead. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "mutate.h"

enum { MAX_MEMBERS = 256, LOCAL_HEADER = 30, CENTRAL_HEADER = 46, END_RECORD = 22, NPY_HEADER = 10 };
enum { LOCAL_MARK = 0x04034B50, CENTRAL_MARK = 0x02014B50, END_MARK = 0x06054B50 };

typedef struct member {
    char name[64];
    uint8_t *data; /* owned */
    size_t bytes;
} member;

typedef struct archive {
    member members[MAX_MEMBERS];
    size_t n;
} archive;

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static uint32_t number(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static void put(uint8_t **at, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * i);
}

static void release(archive *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->members[i].data);
}

/* The members before the central directory; false unless all of them are stored without compression. */
static bool read_archive(archive *a, const uint8_t *data, size_t bytes)
{
    size_t at = 0;
    a->n = 0;
    while (bytes - at >= LOCAL_HEADER && number(data + at, 4) == LOCAL_MARK) {
        uint32_t method = number(data + at + 8, 2), n = number(data + at + 18, 4),
                 name = number(data + at + 26, 2), extra = number(data + at + 28, 2);
        size_t begin = at + LOCAL_HEADER + name + extra;
        if (method || begin > bytes || n > bytes - begin || name >= sizeof a->members[0].name ||
            a->n == MAX_MEMBERS)
            return false;
        member *m = &a->members[a->n++];
        *m = (member){.data = malloc(n + 1), .bytes = n};
        memcpy(m->name, data + at + LOCAL_HEADER, name);
        memcpy(m->data, data + begin, n);
        at = begin + n;
    }
    return a->n > 0;
}

/* The fields that the two headers of a member have in common. */
static void put_description(uint8_t **to, const member *m)
{
    put(to, 10, 2); /* version */
    put(to, 0, 2);  /* flags */
    put(to, 0, 2);  /* stored */
    put(to, 0, 4);  /* time */
    put(to, (uint32_t)crc32(0, m->data, (uInt)m->bytes), 4);
    put(to, (uint32_t)m->bytes, 4);
    put(to, (uint32_t)m->bytes, 4);
    put(to, (uint32_t)strlen(m->name), 2);
    put(to, 0, 2); /* extra */
}

static void put_bytes(uint8_t **to, const void *data, size_t bytes)
{
    memcpy(*to, data, bytes);
    *to += bytes;
}

static size_t write_archive(const archive *a, uint8_t *data, size_t max_bytes)
{
    size_t total = END_RECORD, offset = 0;
    for (size_t i = 0; i < a->n; i++)
        total += LOCAL_HEADER + CENTRAL_HEADER + 2 * strlen(a->members[i].name) + a->members[i].bytes;
    if (total > max_bytes)
        return 0;
    uint8_t *to = data;
    for (size_t i = 0; i < a->n; i++) {
        const member *m = &a->members[i];
        put(&to, LOCAL_MARK, 4);
        put_description(&to, m);
        put_bytes(&to, m->name, strlen(m->name));
        put_bytes(&to, m->data, m->bytes);
    }
    size_t central = (size_t)(to - data);
    for (size_t i = 0; i < a->n; i++) {
        const member *m = &a->members[i];
        put(&to, CENTRAL_MARK, 4);
        put(&to, 20, 2); /* version of the writer */
        put_description(&to, m);
        put(&to, 0, 2); /* comment */
        put(&to, 0, 4); /* disk, attributes */
        put(&to, 0, 4); /* attributes */
        put(&to, (uint32_t)offset, 4);
        put_bytes(&to, m->name, strlen(m->name));
        offset += LOCAL_HEADER + strlen(m->name) + m->bytes;
    }
    put(&to, END_MARK, 4);
    put(&to, 0, 4); /* disks */
    put(&to, (uint32_t)a->n, 2);
    put(&to, (uint32_t)a->n, 2);
    put(&to, (uint32_t)((size_t)(to - data) - 12 - central), 4);
    put(&to, (uint32_t)central, 4);
    put(&to, 0, 2); /* comment */
    return (size_t)(to - data);
}

/* Changes bytes in [begin, end) of the data; the end moves. */
static void change_part(member *m, size_t begin, size_t end)
{
    enum { ROOM = 64 };
    uint8_t *part = malloc(end - begin + ROOM);
    memcpy(part, m->data + begin, end - begin);
    size_t n = LLVMFuzzerMutate(part, end - begin, end - begin + ROOM);
    uint8_t *changed = malloc(m->bytes + n + 1);
    memcpy(changed, m->data, begin);
    memcpy(changed + begin, part, n);
    memcpy(changed + begin + n, m->data + end, m->bytes - end);
    free(part);
    free(m->data);
    m->data = changed;
    m->bytes = m->bytes - (end - begin) + n;
}

/* Sets the length of the first dimension of an array of bytes, such as the configuration, to that of its
 * data. */
static void set_length(member *m, size_t header)
{
    static const char key[] = "'shape': (";
    char *shape = memmem(m->data, header, key, sizeof key - 1), text[16];
    if (!shape || m->bytes < header)
        return;
    shape += sizeof key - 1;
    size_t digits = strspn(shape, "0123456789");
    int n = snprintf(text, sizeof text, "%0*zu", (int)digits, m->bytes - header);
    if ((size_t)n == digits)
        memcpy(shape, text, digits);
}

static void change_member(member *m, uint32_t *seed)
{
    static const char *const values[] = {"0",     "1",   "-1", "2",  "99999999", "true",
                                         "false", "dan", "n",  "da", "''",       "[]"};
    size_t header = m->bytes >= NPY_HEADER ? NPY_HEADER + number(m->data + 8, 2) : 0;
    if (!header || header > m->bytes) {
        change_part(m, 0, m->bytes);
    } else if (next(seed) % 4 == 0) {
        change_part(m, NPY_HEADER, header);
    } else if (strncmp(m->name, "special:", 8)) {
        change_part(m, header, m->bytes);
    } else if (next(seed) % 2) {
        change_part(m, header, m->bytes);
        set_length(m, header);
    } else { /* another value of a key of the configuration */
        size_t at = header + next(seed) % (m->bytes - header + 1);
        const uint8_t *colon = memchr(m->data + at, ':', m->bytes - at);
        const uint8_t *end = colon ? memchr(colon, '\n', m->bytes - (size_t)(colon - m->data)) : NULL;
        const char *value = values[next(seed) % (sizeof values / sizeof *values)];
        size_t n = strlen(value);
        if (!end || (size_t)(end - colon) < n + 2)
            return;
        uint8_t *to = m->data + (colon - m->data) + 1;
        memset(to, ' ', (size_t)(end - colon) - 1); /* the length stays the same */
        memcpy(to + 1, value, n);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned int seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned int seed)
{
    static archive a;
    uint32_t random = seed;
    if (next(&random) % 8 == 0 || !read_archive(&a, data, bytes)) {
        if (a.n)
            release(&a);
        a.n = 0;
        return LLVMFuzzerMutate(data, bytes, max_bytes);
    }
    member *m = &a.members[next(&random) % a.n];
    switch (next(&random) % 8) {
    case 0: /* without this array */
        free(m->data);
        *m = a.members[--a.n];
        break;
    case 1: { /* the name of another one */
        member *other = &a.members[next(&random) % a.n];
        char name[sizeof m->name];
        memcpy(name, m->name, sizeof name);
        memcpy(m->name, other->name, sizeof name);
        memcpy(other->name, name, sizeof name);
        break;
    }
    default:
        change_member(m, &random);
    }
    size_t written = write_archive(&a, data, max_bytes);
    release(&a);
    a.n = 0;
    return written ? written : LLVMFuzzerMutate(data, bytes, max_bytes);
}
