/* Numbers as text have a decimal point in every locale: a program that uses the library may have called
 * setlocale. */
#pragma once

#include <locale.h>
#include <stdlib.h>

/* The locale "C", a constant object of the C library. */
static inline locale_t nm_c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Between the two calls, printf and its relatives use the locale "C" in this thread. */
static inline locale_t nm_c_locale_enter(void)
{
    return uselocale(nm_c_locale());
}

static inline void nm_c_locale_leave(locale_t before)
{
    uselocale(before);
}

/* strtod and strtof in the locale "C". */
static inline double nm_parse_double(const char *text, char **end)
{
    return strtod_l(text, end, nm_c_locale());
}

static inline float nm_parse_float(const char *text, char **end)
{
    return strtof_l(text, end, nm_c_locale());
}
