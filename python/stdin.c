/* stdin for the objects of libnorma.so of the Python package (option --wrap of the linker, cmake/NormaPython.cmake). json_loadf
 * of jansson compares its argument with stdin to name the source of an error; nothing in libnorma reads it. */
#include <stdio.h>

extern FILE *__wrap_stdin __attribute__((visibility("hidden")));
FILE *__wrap_stdin;
