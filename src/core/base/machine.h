/* Resources of the machine that this process may use. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Limits of control groups, as set by containers, systemd and batch systems. */
typedef struct nm_machine_limits {
    double cpus;   /* CPU time per time; INFINITY: not limited */
    size_t memory; /* bytes; SIZE_MAX: not limited */
} nm_machine_limits;

/* The smallest limits of the control group of this process and of the groups around it, versions 1 and 2
 * (cgroups(7)). A file that cannot be read sets no limit. root: prefix of the paths /proc and /sys, "" for
 * those of the machine. */
nm_machine_limits nm_machine_limits_read(const char *root);

/* Number of CPUs, at least 1: those of the affinity mask, at most the CPU limit, rounded up. */
int32_t nm_machine_cpus(void);

/* Physical memory in bytes, at most the memory limit. */
size_t nm_machine_memory(void);
