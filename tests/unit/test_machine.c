/* Limits of control groups, read from made-up files of /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/memory.h"

typedef struct machine {
    char root[64];
} machine;

static void add_file(const machine *m, const char *path, const char *text)
{
    nm_error err;
    char *full = nm_format("%s%s", m->root, path), *slash = strrchr(full, '/');
    *slash = 0;
    assert_int_equal(nm_folder_create(full, &err), NM_OK);
    *slash = '/';
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(full);
}

static int make_machine(void **state)
{
    machine *m = nm_allocate(sizeof *m);
    strcpy(m->root, "/tmp/norma-machine-XXXXXX");
    *state = m;
    return mkdtemp(m->root) ? 0 : -1;
}

static int remove_machine(void **state)
{
    machine *m = *state;
    char *command = nm_format("rm -r %s", m->root);
    int status = system(command);
    free(command);
    free(m);
    return status;
}

static void limits_are(const machine *m, double cpus, size_t memory)
{
    nm_machine_limits limits = nm_machine_limits_read(m->root);
    assert_true(limits.cpus == cpus);
    assert_int_equal(limits.memory, memory);
}

static void test_no_limits(void **state)
{
    const machine *m = *state;
    limits_are(m, INFINITY, SIZE_MAX); /* no /proc */
    add_file(m, "/proc/self/cgroup", "0::/user.slice\n");
    limits_are(m, INFINITY, SIZE_MAX); /* no files of the group */
    add_file(m, "/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    add_file(m, "/sys/fs/cgroup/user.slice/memory.max", "max\n");
    limits_are(m, INFINITY, SIZE_MAX);
    add_file(m, "/proc/self/cgroup", "nonsense\n:\n::\n\n7:cpu\n");
    limits_are(m, INFINITY, SIZE_MAX);
}

static void test_version_2(void **state)
{
    const machine *m = *state;
    add_file(m, "/proc/self/cgroup", "0::/batch/job 7/step\n");
    add_file(m, "/sys/fs/cgroup/batch/job 7/step/cpu.max", "max 100000\n");
    add_file(m, "/sys/fs/cgroup/batch/job 7/step/memory.max", "3000000000\n");
    add_file(m, "/sys/fs/cgroup/batch/job 7/cpu.max", "250000 100000\n");
    add_file(m, "/sys/fs/cgroup/batch/memory.max", "2000000000\n");
    add_file(m, "/sys/fs/cgroup/batch/cpu.max", "800000 100000\n");
    limits_are(m, 2.5, 2000000000); /* the smallest of the group and those around it */
    add_file(m, "/sys/fs/cgroup/cpu.max", "50000 100000\n");
    limits_are(m, 0.5, 2000000000);
}

/* In a container, /proc names the group on the host, and /sys/fs/cgroup is the group itself. */
static void test_container(void **state)
{
    const machine *m = *state;
    add_file(
        m, "/proc/self/cgroup",
        "12:memory:/docker/0123\n11:pids:/docker/0123\n4:cpu,cpuacct:/docker/0123\n1:name=systemd:/\n0::/\n");
    add_file(m, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    add_file(m, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
    add_file(m, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    limits_are(m, 3, 1073741824);
    add_file(m, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    add_file(m, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    limits_are(m, INFINITY, 9223372036854771712u);
    /* A controller whose name begins like another one. */
    add_file(m, "/proc/self/cgroup", "2:cpuacct:/\n3:cpuset:/\n");
    add_file(m, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    limits_are(m, INFINITY, SIZE_MAX);
}

static void test_this_machine(void **state)
{
    (void)state;
    int32_t cpus = nm_machine_cpus();
    assert_in_range(cpus, 1, sysconf(_SC_NPROCESSORS_ONLN));
    double limit = nm_machine_limits_read("").cpus;
    assert_true(cpus < limit + 1);
    size_t memory = nm_machine_memory();
    assert_true(memory > 1 << 20 &&
                memory <= (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_limits, make_machine, remove_machine),
        cmocka_unit_test_setup_teardown(test_version_2, make_machine, remove_machine),
        cmocka_unit_test_setup_teardown(test_container, make_machine, remove_machine),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
