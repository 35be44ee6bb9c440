/* norma: the table of commands, and the start of the program. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/cache_folder.h"
#include "base/edit_distance.h"
#include "cli/cli.h"
#include "cli/map_fault.h"
#include "cli/open_comm.h"

/* One line each, in the order of the help text. */
/* clang-format off */
#define COMMANDS(C) \
    C(prepare) \
    C(tokenize) \
    C(detokenize) \
    C(subword) \
    C(normalize) \
    C(recipes) \
    C(train) \
    C(baseline) \
    C(translate) \
    C(rescore) \
    C(perplexity) \
    C(generate) \
    C(classify) \
    C(tag) \
    C(score) \
    C(compare) \
    C(study) \
    C(inspect) \
    C(report) \
    C(watch) \
    C(verify) \
    C(export) \
    C(convert) \
    C(average) \
    C(shortlist) \
    C(bench) \
    C(completion)

#define C(name) extern const nm_command nm_command_##name;
COMMANDS(C)
#undef C

static const nm_command *const commands[] = {
#define C(name) &nm_command_##name,
    COMMANDS(C)
#undef C
    NULL};
/* clang-format on */

static const nm_command *find_command(const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const nm_command *nearest = commands[0];
    nm_error err;
    if (!strcmp(name, "demo")) {
        nm_fail(&err, NM_USAGE, "norma demo is now norma study FILE --budget 10m");
        return nm_cli_fail(&err);
    }
    for (size_t i = 1; commands[i]; i++)
        if (nm_edit_distance(name, commands[i]->name) < nm_edit_distance(name, nearest->name))
            nearest = commands[i];
    if (nm_edit_distance_is_near(nm_edit_distance(name, nearest->name), name))
        nm_fail(&err, NM_USAGE, "unknown command %.200s; the most similar one is %s", name, nearest->name);
    else
        nm_fail(&err, NM_USAGE, "unknown command %.200s; norma --help lists the commands", name);
    return nm_cli_fail(&err);
}

static void print_help(FILE *out)
{
    fputs("norma - train and run Transformers with a choice of normalizations\n\n"
          "usage: norma COMMAND [--section.key value ...] [ARGUMENTS]\n\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\nnorma help COMMAND (or norma COMMAND --help) describes a command and its options,\n"
          "norma COMMAND --manual | man -l - shows its manual page, norma --version the version.\n",
          out);
}

static void print_manual(FILE *out)
{
    fputs(".TH NORMA 1 \"\" \"norma " NORMA_VERSION "\"\n.SH NAME\n"
          "norma \\- train and run Transformers with a choice of normalizations\n"
          ".SH SYNOPSIS\n.B norma\n.I COMMAND\n[\\-\\-section.key value ...] [ARGUMENTS]\n.SH COMMANDS\n",
          out);
    for (size_t i = 0; commands[i]; i++) {
        fprintf(out, ".TP\n.BR norma\\-%s (1)\n", commands[i]->name);
        nm_cli_write_roff(commands[i]->summary, out);
        putc('\n', out);
    }
}

/* "norma help", "norma help COMMAND [SECTION|all|RECIPE]", "norma help --list" (names of commands). */
static int run_help(int argc, char **argv)
{
    if (argc < 1 || !strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")) {
        print_help(stdout);
        return NM_OK;
    }
    if (!strcmp(argv[0], "help")) {
        puts("usage: norma help [COMMAND [SECTION|all|RECIPE]]");
        return NM_OK;
    }
    if (!strcmp(argv[0], "--list")) {
        for (size_t i = 0; commands[i]; i++)
            puts(commands[i]->name);
        return NM_OK;
    }
    const nm_command *command = find_command(argv[0]);
    if (!command)
        return unknown_command(argv[0]);
    /* The topic is a section or "all", but not an option, nor a recipe, whose task determines the options. */
    bool has_topic = argc > 1 && strncmp(argv[1], "--", 2) && !nm_ends_with(argv[1], ".ini");
    int first = has_topic ? 2 : 1;
    nm_error err;
    nm_status status =
        nm_cli_help(command, has_topic ? argv[1] : NULL, argc - first, argv + first, stdout, &err);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

static int run(int argc, char **argv)
{
    const nm_command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (!(command && command->ranks) && nm_cli_launched_rank() > 0)
        return NM_OK; /* only the first process runs the command */
    if (argc < 2) {
        print_help(stderr);
        return NM_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return run_help(argc - 2, argv + 2);
    if (!strcmp(name, "--manual")) {
        print_manual(stdout);
        return NM_OK;
    }
    if (!strcmp(name, "version") || !strcmp(name, "--version")) {
        puts("norma " NORMA_VERSION);
        return NM_OK;
    }
    return command ? nm_cli_run(command, commands, argc - 2, argv + 2) : unknown_command(name);
}

/* In GCC's OpenMP runtime, waiting threads spin for milliseconds; on a machine with other load, two threads
 * can then be many times slower than one (docs/notes/performance-log.md). The runtime reads the environment
 * before main, so the program executes itself again with a short spin count, some tens of microseconds. The
 * environment variable also ends the recursion. */
static void start_with_short_spin(char **argv)
{
    if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY") && !setenv("GOMP_SPINCOUNT", "1000", 0))
        execv("/proc/self/exe", argv); /* returns only on failure: slower, with the same results */
}

/* A program that starts norma and sets NORMA_PARENT to its own process number, as the Python package does,
 * takes it along when it ends for any reason: SIGTERM ends a training with a checkpoint. Commands that this
 * process starts do not inherit that. */
static void end_with_parent(void)
{
    const char *text = getenv("NORMA_PARENT");
    if (!text)
        return;
    const long parent = atol(text);
    unsetenv("NORMA_PARENT");
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it has ended already */
        _exit(NM_INTERRUPTED);
}

/* $XDG_CACHE_HOME/norma, or ~/.cache/norma (XDG Base Directory Specification) */
static void set_cache_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    NM_AUTO_FREE char *path = NULL;
    if (cache && *cache == '/')
        path = nm_format("%s/norma", cache);
    else if (home && *home == '/')
        path = nm_format("%s/.cache/norma", home);
    if (path)
        nm_cache_folder_set(path);
}

/* If a standard descriptor is closed, the next opened file would get its number, and messages or results
 * would be written to that file. Therefore a closed descriptor is opened in the opposite direction, so that
 * using it fails. */
static void open_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(NM_IO);
}

#ifdef __GLIBC__
/* GCC's OpenMP ends the process with exit(1) if it cannot start a thread. Norma itself has no exit code 1. */
static void explain_lack_of_threads(int code, void *unused)
{
    (void)unused;
    if (code != EXIT_FAILURE)
        return;
    nm_error err;
    nm_fail(&err, NM_MEMORY,
            "the system cannot start a thread that it could start earlier: close other programs or use fewer "
            "threads");
    _exit(nm_cli_fail(&err));
}
#endif

int main(int argc, char **argv)
{
    open_standard_descriptors();
    end_with_parent();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file-size limit fails instead */
    start_with_short_spin(argv);
    nm_cli_handle_map_faults();
    nm_memory_init_json();
    set_cache_folder();
#ifdef __GLIBC__
    on_exit(explain_lack_of_threads, NULL);
#endif
    int code = run(argc, argv);
    nm_error err;
    /* Results that cannot be written are an error. */
    if (nm_file_close(stdout, "standard output", &err) != NM_OK && code == NM_OK)
        code = nm_cli_fail(&err);
    return code;
}
