/* cmocka of Debian 12 compares floats only: doubles with a tolerance. Include after cmocka.h. */
#ifndef NEAR_H
#define NEAR_H

#include <math.h>

#define assert_near(got, want, tolerance) assert_near_at(got, want, tolerance, __FILE__, __LINE__)

static inline void assert_near_at(double got, double want, double tolerance, const char *file, int line)
{
    if (fabs(got - want) <= tolerance)
        return;
    print_error("%.17g is not %.17g within %g\n", got, want, tolerance);
    _fail(file, line);
}

#endif
