#include "base/machine.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_TEXT = 16384 };

/* Reads a small file without allocating memory; false if it cannot be read. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n<bytes - 1; n += got> 0 ? (size_t)got : 0)
        got = read(file, text + n, bytes - 1 - n);
    close(file);
    text[n] = 0;
    return n > 0;
}

/* A file of a group; false if there is none. */
static bool read_group_file(const char *folder, const char *group, const char *name, char *text, size_t bytes)
{
    char path[MAX_PATH];
    int length = snprintf(path, sizeof path, "%s%s/%s", folder, group, name);
    return length > 0 && length < MAX_PATH && read_text(path, text, bytes);
}

static void limit_cpus(nm_machine_limits *limits, double quota, double period)
{
    if (quota > 0 && period > 0)
        limits->cpus = fmin(limits->cpus, quota / period);
}

/* Version 2 writes "max" for no limit, version 1 a huge number. */
static void limit_memory(nm_machine_limits *limits, const char *text)
{
    unsigned long long bytes = strtoull(text, NULL, 10);
    if (bytes > 0 && bytes < limits->memory)
        limits->memory = (size_t)bytes;
}

/* Version 2: cpu.max is "QUOTA PERIOD" or "max PERIOD", in microseconds. */
static void read_unified_group(nm_machine_limits *limits, const char *folder, const char *group)
{
    char text[128];
    double quota, period;
    if (read_group_file(folder, group, "cpu.max", text, sizeof text) &&
        sscanf(text, "%lf %lf", &quota, &period) == 2)
        limit_cpus(limits, quota, period);
    if (read_group_file(folder, group, "memory.max", text, sizeof text))
        limit_memory(limits, text);
}

/* Version 1: a quota of -1 is no limit. */
static void read_cpu_group(nm_machine_limits *limits, const char *folder, const char *group)
{
    char quota[64], period[64];
    if (read_group_file(folder, group, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_group_file(folder, group, "cpu.cfs_period_us", period, sizeof period))
        limit_cpus(limits, strtod(quota, NULL), strtod(period, NULL));
}

static void read_memory_group(nm_machine_limits *limits, const char *folder, const char *group)
{
    char text[64];
    if (read_group_file(folder, group, "memory.limit_in_bytes", text, sizeof text))
        limit_memory(limits, text);
}

/* Reads the group and the groups around it. In a container the path of the group may be the one on the host,
 * which does not exist there; the limits of the container are then those of the topmost folder. */
static void read_groups(nm_machine_limits *limits, const char *root, const char *controller, char *group,
                        void (*read_group)(nm_machine_limits *, const char *, const char *))
{
    char folder[MAX_PATH];
    int length = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, controller);
    if (length < 0 || length >= MAX_PATH)
        return;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        read_group(limits, folder, group);
    }
}

static bool lists(const char *controllers, const char *controller)
{
    size_t length = strlen(controller);
    for (const char *at = controllers; (at = strstr(at, controller)); at += length)
        if ((at == controllers || at[-1] == ',') && (at[length] == 0 || at[length] == ','))
            return true;
    return false;
}

nm_machine_limits nm_machine_limits_read(const char *root)
{
    nm_machine_limits limits = {INFINITY, SIZE_MAX};
    char path[MAX_PATH], text[MAX_TEXT];
    int length = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (length < 0 || length >= MAX_PATH || !read_text(path, text, sizeof text))
        return limits;
    /* "HIERARCHY:CONTROLLERS:/GROUP"; version 2 has hierarchy 0 and no controllers. */
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        controllers++;
        if (!*controllers)
            read_groups(&limits, root, "", group, read_unified_group);
        else if (lists(controllers, "cpu"))
            read_groups(&limits, root, "/cpu", group, read_cpu_group);
        else if (lists(controllers, "memory"))
            read_groups(&limits, root, "/memory", group, read_memory_group);
    }
    return limits;
}

static int32_t affinity_cpus(void)
{
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    return n < 1 ? 1 : (int32_t)n;
}

int32_t nm_machine_cpus(void)
{
    double limit = ceil(nm_machine_limits_read("").cpus);
    int32_t n = affinity_cpus();
    return limit < n ? (int32_t)limit : n;
}

size_t nm_machine_memory(void)
{
    size_t physical = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t limit = nm_machine_limits_read("").memory;
    return limit < physical ? limit : physical;
}
