/* Linked into every test program: its first argument is the name of the test to run; * matches any
 * characters. Without a name, ctest leaves out those that match SKIPPED_TESTS of the environment.
 *     build/tests/test_options 'reads_*'
 * The last lines count the tests that ran. glibc passes the arguments of main to constructors. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void choose_test(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    cmocka_set_skip_filter(getenv("SKIPPED_TESTS"));
}
