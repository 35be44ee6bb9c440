/* Status codes and error messages.
 *
 * Every function that can fail for an external cause (file, option, memory) returns an nm_status and fills an
 * nm_error with one line: what failed, and where. Callers may prepend context with nm_error_prefix().
 * Programming errors (for example a wrong shape) abort, see NM_ASSERT. The library prints and exits only
 * then, and when a small allocation fails (src/core/base/memory.h). */
#ifndef NORMA_STATUS_H
#define NORMA_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions and tables of the public headers; the shared library exports no other symbols. */
#define NM_API __attribute__((visibility("default")))

/* Name, exit code of the program, text. Exit code 1 is not used, so that it indicates a crash. */
#define NM_STATUS_LIST(S)                                                                                    \
    S(OK, 0, "success")                                                                                      \
    S(USAGE, 2, "wrong option or argument")                                                                  \
    S(IO, 3, "reading or writing failed")                                                                    \
    S(FORMAT, 4, "malformed input")                                                                          \
    S(MISMATCH, 5, "files or settings that do not match")                                                    \
    S(MEMORY, 6, "out of memory")                                                                            \
    S(UNSUPPORTED, 7, "not supported here")                                                                  \
    S(DIVERGED, 8, "divergence: a value is not finite, or the loss exceeds the divergence threshold")        \
    S(INTERRUPTED, 9, "interrupted")                                                                         \
    S(DEVICE, 10, "the GPU or its driver failed")

typedef enum nm_status {
#define S(name, code, text) NM_##name = code,
    NM_STATUS_LIST(S)
#undef S
} nm_status;

typedef struct nm_error {
    nm_status status;
    char text[1024];
} nm_error;

/* The version of the library, as "1.2.3". */
NM_API const char *nm_version(void);

/* Short English text of a status; never NULL. */
NM_API const char *nm_status_text(nm_status status);

/* Sets status and message (printf format) and returns status. err may be NULL. */
NM_API nm_status nm_fail(nm_error *err, nm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends "context: " to the message and returns the status of the error. */
NM_API nm_status nm_error_prefix(nm_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints a message and aborts. For programming errors only. */
NM_API void nm_panic(const char *file, int line, const char *what) __attribute__((noreturn));

/* Aborts with a message if the condition is false, in every build. */
#define NM_ASSERT(condition)                                                                                 \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            nm_panic(__FILE__, __LINE__, #condition);                                                        \
    } while (0)

/* Returns the status of the call from the function that contains it, unless it is NM_OK. */
#define NM_TRY(call)                                                                                         \
    do {                                                                                                     \
        nm_status status_ = (call);                                                                          \
        if (status_ != NM_OK)                                                                                \
            return status_;                                                                                  \
    } while (0)

/* A step of a function that releases something at its end: status = call, unless a step before it failed. */
#define NM_THEN(status, call)                                                                                \
    do {                                                                                                     \
        if ((status) == NM_OK)                                                                               \
            (status) = (call);                                                                               \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
