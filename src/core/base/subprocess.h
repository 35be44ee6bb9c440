/* Programs that Norma starts, and commands for the shell. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

/* Starts the program arguments[0], found in PATH, in the folder. Its standard input is empty; output and
 * errors are written to the file `messages` in the folder. Returns 0 or an errno value, ENOENT if the program
 * is not installed. */
int nm_subprocess_start(char *const *arguments, const char *folder, const char *messages, pid_t *process);

/* Writes text as one word for a POSIX shell, in quotes if it needs them: run, 'my run'. */
void nm_shell_write_word(const char *text, FILE *out);
/* The same as a heap string. */
char *nm_shell_word(const char *text);
