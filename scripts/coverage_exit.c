/* Part of the programs of a coverage build (scripts/coverage.sh), whose linker replaces the functions: a
 * process that ends with _exit() or executes another program writes its counts first, which GCC does for
 * exit() only. */
#include <unistd.h>

void __gcov_dump(void);
void __gcov_reset(void);

void __real__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code)
{
    __gcov_dump();
    __real__exit(code);
}

/* If the call fails, the process continues and counts from 0. */
int __real_execv(const char *path, char *const *arguments);
int __wrap_execv(const char *path, char *const *arguments);
int __wrap_execv(const char *path, char *const *arguments)
{
    __gcov_dump();
    __gcov_reset();
    return __real_execv(path, arguments);
}

int __real_execvp(const char *file, char *const *arguments);
int __wrap_execvp(const char *file, char *const *arguments);
int __wrap_execvp(const char *file, char *const *arguments)
{
    __gcov_dump();
    __gcov_reset();
    return __real_execvp(file, arguments);
}
