/* stdin and stderr for the objects of libnorma.so of the Python package (option --wrap of the linker,
 * cmake/NormaPython.cmake). json_loadf of jansson compares its argument with stdin to name the source of an
 * error; nothing in libnorma reads it. libpng would print messages that have no handler to stderr. */
#include <stdio.h>

extern FILE *__wrap_stdin __attribute__((visibility("hidden")));
extern FILE *__wrap_stderr __attribute__((visibility("hidden")));
extern FILE *__real_stderr;
FILE *__wrap_stdin, *__wrap_stderr;

__attribute__((constructor)) static void find_stderr(void)
{
    __wrap_stderr = __real_stderr;
}
