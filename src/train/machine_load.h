/* How busy the machine is with other work while a run trains: without it, throughputs of different runs cannot be compared. */
#ifndef NM_MACHINE_LOAD_H
#define NM_MACHINE_LOAD_H

typedef struct nm_load_meter { /* at the last reading, in seconds */
    double clock;
    double busy; /* CPU time of the whole machine, including time stolen by other virtual machines */
    double own;  /* CPU time of this process */
} nm_load_meter;

/* The mean number of cores that other processes, the kernel and other virtual machines have used since the last call: the
 * difference of /proc/stat's busy time and this process's CPU time, relative to the time between. NaN at the first call of a
 * meter that is {0}, and where /proc/stat cannot be read. */
double nm_load_meter_read(nm_load_meter *meter);
/* The 1-minute load average: running and waiting threads, those of this process included; NaN if it is unknown. */
double nm_load_average(void);

#endif
