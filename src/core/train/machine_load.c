#include "train/machine_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "train/trainer_private.h"

/* User, nice, system, irq, softirq and steal time of all cores (proc(5)); NaN if the file cannot be read. */
static double machine_busy(void)
{
    uint64_t user, nice, system, idle, wait, irq, soft_irq, steal;
    FILE *stat = fopen("/proc/stat", "rb");
    int n = stat ? fscanf(stat,
                          "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                          " %" SCNu64 " %" SCNu64,
                          &user, &nice, &system, &idle, &wait, &irq, &soft_irq, &steal)
                 : 0;
    if (stat)
        fclose(stat);
    return n == 8 ? (double)(user + nice + system + irq + soft_irq + steal) / (double)sysconf(_SC_CLK_TCK)
                  : NAN;
}

/* User and system time of this process in seconds. */
static double own_busy(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

double nm_load_meter_read(nm_load_meter *meter)
{
    const nm_load_meter now = {nm_clock(), machine_busy(), own_busy()}, last = *meter;
    *meter = now;
    if (!(last.clock > 0) || now.clock <= last.clock)
        return NAN;
    double others = (now.busy - last.busy) - (now.own - last.own);
    /* The difference may be negative, because the clock ticks of /proc/stat are coarser. */
    return fmax(others, 0) / (now.clock - last.clock);
}

double nm_load_average(void)
{
    double average;
    return getloadavg(&average, 1) == 1 ? average : NAN;
}
