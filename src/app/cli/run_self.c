#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/run_self.h"

static volatile pid_t running;

static void on_signal(int number)
{
    if (running > 0)
        kill(running, number);
}

static void restore(const struct sigaction inherited[NSIG])
{
    for (int i = 1; i < NSIG; i++)
        sigaction(i, &inherited[i], NULL);
}

/* Does not return. The child has its own process group, because the parent forwards Ctrl-C. If the parent is
 * killed, the child receives SIGTERM. */
static void exec_self(char **arguments, pid_t parent, const sigset_t *mask,
                      const struct sigaction inherited[NSIG])
{
    restore(inherited);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent)
        execv("/proc/self/exe", arguments);
    dprintf(STDERR_FILENO, "norma: cannot start itself: %s\n", strerror(errno));
    _exit(NM_IO);
}

int run_self(const char *const *arguments)
{
    struct sigaction inherited[NSIG];
    sigset_t forwarded, all, before;
    int code = 0;
    pid_t parent = getpid();
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &inherited[i]);
    nm_cli_stop_signals(&forwarded);
    nm_cli_handle_signals(&forwarded, on_signal, 0);
    sigfillset(&all);
    fflush(NULL);
    sigprocmask(SIG_SETMASK, &all, &before); /* blocks signals until `running` is set */
    pid_t process = fork();
    if (process == 0)
        exec_self((char **)(uintptr_t)arguments, parent, &before, inherited);
    running = process;
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (process > 0 && waitpid(process, &code, 0) < 0 && errno == EINTR)
        continue;
    running = 0;
    restore(inherited);
    if (process < 0)
        fprintf(stderr, "norma: cannot start a process: %s\n", strerror(errno));
    if (process > 0 && WIFSIGNALED(code) && sigismember(&forwarded, WTERMSIG(code)) == 1)
        return NM_INTERRUPTED;
    return process > 0 && WIFEXITED(code) ? WEXITSTATUS(code) : NM_IO;
}
