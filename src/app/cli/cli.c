#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int nm_cli_fail(const nm_error *err)
{
    fprintf(stderr, "norma: %s\n", err->text);
    return (int)err->status;
}

nm_status nm_cli_check_arguments(const nm_cli *cli, int argc, char **argv, int min, int max, nm_error *err)
{
    const nm_command *command = cli->command;
    if (argc < min)
        return nm_fail(err, NM_USAGE, "%s: too few arguments; usage: norma %s %s", command->name,
                       command->name, command->usage);
    if (argc > max)
        return nm_fail(err, NM_USAGE, "%s: unexpected argument %.200s; usage: norma %s %s", command->name,
                       argv[max], command->name, command->usage);
    return NM_OK;
}

nm_status nm_cli_apply(const nm_cli *cli, nm_options *options, nm_error *err)
{
    for (size_t i = 0; i < cli->n_settings; i += 2)
        if (nm_options_row(options, cli->settings[i]))
            NM_TRY(nm_options_set(options, cli->settings[i], cli->settings[i + 1], NM_ORIGIN_COMMAND, err));
    return NM_OK;
}

char *nm_cli_option_name(const nm_command *command, const nm_options *options, const char *section,
                         const char *key)
{
    for (const char *at = command->section; at && *at;) {
        size_t length = strcspn(at, ",");
        NM_AUTO_FREE char *path = nm_format("%.*s.%s", (int)length, at, key);
        bool has = nm_options_row(options, path) != NULL;
        if (has && strlen(section) == length && !strncmp(section, at, length))
            return nm_format("--%s", key);
        if (has)
            break;
        at += length + (at[length] == ',');
    }
    return nm_format("--%s.%s", section, key);
}

void nm_cli_stop_signals(sigset_t *signals)
{
    static const int numbers[] = {SIGINT,  SIGTERM,   SIGHUP,  SIGUSR1, SIGUSR2, SIGXCPU,
                                  SIGALRM, SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(signals, numbers[i]);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        sigaddset(signals, number);
}

void nm_cli_handle_signals(const sigset_t *signals, void (*handler)(int number), int flags)
{
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, inherited;
        if (sigismember(signals, number) == 1 && !sigaction(number, NULL, &inherited) &&
            inherited.sa_handler == SIG_DFL)
            sigaction(number, &action, NULL);
    }
}

void nm_cli_handle_stops(void (*handler)(int number))
{
    sigset_t signals;
    nm_cli_stop_signals(&signals);
    nm_cli_handle_signals(&signals, handler, 0);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = handler}, NULL);
    signal(SIGCHLD, SIG_DFL); /* the parent process may have ignored it */
}

char *nm_cli_beside_program(const char *name)
{
    NM_AUTO_FREE char *own = realpath("/proc/self/exe", NULL);
    char *slash = own ? strrchr(own, '/') : NULL;
    return slash ? nm_format("%.*s/%s", (int)(slash - own), own, name) : NULL;
}
