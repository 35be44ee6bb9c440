#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run_self.h"

static volatile pid_t running;

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
enum { N_FORWARDED = sizeof forwarded / sizeof *forwarded };

static void on_signal(int number)
{
    if (running > 0)
        kill(running, number);
}

/* Does not return. The child has its own process group, because the parent forwards Ctrl-C. If the parent is
 * killed, the child receives SIGTERM. */
static void exec_self(char **arguments, pid_t parent, const sigset_t *mask,
                      const struct sigaction inherited[N_FORWARDED])
{
    for (int i = 0; i < N_FORWARDED; i++)
        sigaction(forwarded[i], &inherited[i], NULL);
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
    struct sigaction action = {.sa_handler = on_signal}, inherited[N_FORWARDED];
    sigset_t all, before;
    int code = 0;
    pid_t parent = getpid();
    for (int i = 0; i < N_FORWARDED; i++) {
        sigaction(forwarded[i], NULL, &inherited[i]);
        if (inherited[i].sa_handler != SIG_IGN) /* nohup ignores SIGHUP */
            sigaction(forwarded[i], &action, NULL);
    }
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
    for (int i = 0; i < N_FORWARDED; i++)
        sigaction(forwarded[i], &inherited[i], NULL);
    if (process < 0)
        fprintf(stderr, "norma: cannot start a process: %s\n", strerror(errno));
    for (int i = 0; i < N_FORWARDED; i++)
        if (process > 0 && WIFSIGNALED(code) && WTERMSIG(code) == forwarded[i])
            return NM_INTERRUPTED;
    return process > 0 && WIFEXITED(code) ? WEXITSTATUS(code) : NM_IO;
}
