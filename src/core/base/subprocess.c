#include "base/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

extern char **environ;

int nm_subprocess_start(char *const *arguments, const char *folder, const char *messages, pid_t *process)
{
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed)
        return failed;
    failed = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, messages,
                                                  O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (!failed)
        failed = posix_spawnp(process, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

void nm_shell_write_word(const char *text, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    bool quoted = !*text || text[strspn(text, plain)];
    fputs(quoted ? "'" : "", out);
    for (const char *at = text; *at; at++)
        fputs(*at == '\'' ? "'\\''" : (char[]){*at, 0}, out);
    fputs(quoted ? "'" : "", out);
}

char *nm_shell_word(const char *text)
{
    char *word = NULL;
    size_t bytes;
    FILE *out = nm_text_stream_open(&word, &bytes);
    nm_shell_write_word(text, out);
    nm_text_stream_close(out);
    return word;
}
