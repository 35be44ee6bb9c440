/* Linked into every test program: its first argument is the name of the test to run; * matches any
 * characters.
 *     build/tests/test_options 'reads_*'
 * The last lines count the tests that ran. glibc passes the arguments of main to constructors. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>

__attribute__((constructor)) static void choose_test(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
}
