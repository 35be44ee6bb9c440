/* Load of the machine by other processes during training, which affects throughput. */
#pragma once

typedef struct nm_load_meter { /* at the last reading, in seconds */
    double clock;
    double busy; /* CPU time of the whole machine, including time stolen by other virtual machines */
    double own;  /* CPU time of this process */
} nm_load_meter;

/* Mean number of cores that other processes, the kernel and other virtual machines have used since the last
 * call: the busy time of /proc/stat minus the CPU time of this process, divided by the elapsed time. NaN in
 * the first call for a meter that is {0}, and if /proc/stat cannot be read. */
double nm_load_meter_read(nm_load_meter *meter);
/* 1-minute load average: number of running and waiting threads, including those of this process; NaN if it is
 * unknown. */
double nm_load_average(void);
