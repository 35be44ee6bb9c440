/* Shared library for LD_PRELOAD: the n-th allocation of a program fails.
 *
 *     FAULT_AT=n          number of the allocation that fails, from 1; 0: none
 *     FAULT_FOLLOWING=1   and all after it
 *     FAULT_REPORT=FILE   gets "hit" when an allocation fails. With FAULT_AT=0 it gets, at the exit of the
 *                         program, the number
 *                         of allocations, and the numbers of the first and the last one of each call stack.
 *
 * Counting starts at the first fcntl(0, F_GETFD), with which main() of norma begins: earlier allocations are
 * those of the loader. Allocations by the OpenMP runtime are not counted, because that library ends the
 * process itself. Those by libarchive, which is loaded when it is needed, are not counted, because it reports
 * them as damaged archives or ends the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The allocator of glibc under the names that remain when the usual ones are replaced. */
void *__libc_malloc(size_t bytes);                     /* NOLINT(bugprone-reserved-identifier) */
void *__libc_calloc(size_t n, size_t bytes);           /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *block, size_t size);        /* NOLINT(bugprone-reserved-identifier) */
void *__libc_memalign(size_t alignment, size_t bytes); /* NOLINT(bugprone-reserved-identifier) */

enum { FRAMES = 24, MAX_STACKS = 1 << 14, MAX_EXCLUDED = 8 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool started, following;
static long at, count;
static const char *report;
static struct {
    uintptr_t begin, end;
} excluded[MAX_EXCLUDED]; /* addresses of libraries */
static int n_excluded;
static struct {
    uint64_t hash;
    long first, last;
} stacks[MAX_STACKS];
static long n_stacks;
static _Thread_local bool inside;

static int find_excluded(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "libgomp") && !strstr(info->dlpi_name, "libomp") &&
        !strstr(info->dlpi_name, "libarchive"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && n_excluded < MAX_EXCLUDED; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            excluded[n_excluded].begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            excluded[n_excluded].end = excluded[n_excluded].begin + info->dlpi_phdr[i].p_memsz;
            n_excluded++;
        }
    return 0;
}

static bool is_excluded(const void *caller)
{
    for (int i = 0; i < n_excluded; i++)
        if ((uintptr_t)caller >= excluded[i].begin && (uintptr_t)caller < excluded[i].end)
            return true;
    return false;
}

__attribute__((constructor)) static void read_settings(void)
{
    void *frames[FRAMES];
    backtrace(frames, FRAMES); /* its first call allocates */
    dl_iterate_phdr(find_excluded, NULL);
    const char *number = getenv("FAULT_AT");
    at = number ? atol(number) : 0;
    following = getenv("FAULT_FOLLOWING") != NULL;
    report = getenv("FAULT_REPORT");
    /* for this process only */
    unsetenv("FAULT_AT");
    unsetenv("FAULT_FOLLOWING");
    unsetenv("FAULT_REPORT");
    unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void write_report(void)
{
    started = false;
    if (at || !report)
        return;
    FILE *stream = fopen(report, "w");
    if (!stream)
        return;
    fprintf(stream, "%ld\n", count);
    for (long i = 0; i < n_stacks; i++)
        fprintf(stream, "%ld %ld\n", stacks[i].first, stacks[i].last);
    fclose(stream);
}

static void record_stack(void)
{
    void *frames[FRAMES];
    int n = backtrace(frames, FRAMES);
    uint64_t hash = 14695981039346656037u;
    for (int i = 1; i < n; i++)
        hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
    long i = 0;
    while (i < n_stacks && stacks[i].hash != hash)
        i++;
    if (i == n_stacks && n_stacks < MAX_STACKS) {
        stacks[n_stacks].hash = hash;
        stacks[n_stacks++].first = count;
    }
    if (i < n_stacks)
        stacks[i].last = count;
}

static bool fails(const void *caller)
{
    if (!started || inside || is_excluded(caller))
        return false;
    inside = true;
    pthread_mutex_lock(&mutex);
    count++;
    bool hit = at && (count == at || (following && count > at));
    if (!at && report)
        record_stack();
    if (hit && count == at && report) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        (void)!syscall(SYS_write, fd, "hit\n", 4);
        syscall(SYS_close, fd);
    }
    pthread_mutex_unlock(&mutex);
    inside = false;
    if (hit)
        errno = ENOMEM;
    return hit;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    if (fails(__builtin_return_address(0)))
        return ENOMEM;
    *block = __libc_memalign(alignment, bytes);
    return *block ? 0 : ENOMEM;
}

/* The allocations of the loader are not counted. */
void *dlopen(const char *name, int mode)
{
    void *(*next)(const char *, int);
    void *symbol = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&next, &symbol, sizeof next);
    inside = true;
    void *library = next(name, mode);
    n_excluded = 0;
    dl_iterate_phdr(find_excluded, NULL);
    inside = false;
    return library;
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (fd == 0 && command == F_GETFD)
        started = true;
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));
