/* Preloaded into processes of a test: a machine that computes wrong results. FAULT: exp or pow, every result
 * of the function is wrong; once, one result of exp, that of call FAULT_CALL. FAULT_RANK: the rank that the
 * launcher has given to the faulty process; without it, all processes are. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_faulty(const char *fault)
{
    const char *name = getenv("FAULT"), *victim = getenv("FAULT_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    return name && !strcmp(name, fault) && (!victim || (rank && !strcmp(victim, rank)));
}

double exp(double x)
{
    static double (*next)(double);
    static int always = -1, once, call;
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "exp");
    if (always < 0) {
        always = is_faulty("exp");
        once = is_faulty("once") ? atoi(getenv("FAULT_CALL")) : 0;
    }
    const double y = next(x);
    return always || (once && ++call == once) ? y * (1 + 1e-5) : y;
}

double pow(double x, double y)
{
    static double (*next)(double, double);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pow");
    const double z = next(x, y);
    return is_faulty("pow") ? z * (1 + 1e-6) : z;
}
