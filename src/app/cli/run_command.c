/* Running a command: its options, its recipe, and the function of its descriptor. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/option_value.h"
#include "base/subprocess.h"
#include "cli/cli.h"
#include "cli/open_comm.h"
#include "cli/output_guard.h"

/* The path of an option in the tables: "source-lang" -> "prepare.source_lang", "train.lr" -> "train.lr";
 * heap. See nm_option_path. */
static char *option_path(const nm_cli *cli, const char *name, size_t length)
{
    const char *sections = cli->command->section;
    char *own = nm_format("%.*s", (int)length, name);
    for (char *at = own; *at; at++)
        if (*at == '-')
            *at = '_';
    if (!sections)
        return own;
    char *path = nm_option_path(cli->options, sections, own);
    free(own);
    return path;
}

/* The value of an option: the text after the equals sign in "--key=value" (equals points to the sign),
 * otherwise the next argument; then *i is incremented. For a boolean option, and for a choice with the value
 * "yes", the next argument is used only if it is a valid value; otherwise the value is "true" or "yes".
 * verbatim: the next argument may begin with "--". NULL: there is no value. */
static const char *option_value(const nm_option *row, bool verbatim, const char *equals, const char *next,
                                int *i)
{
    if (equals)
        return equals + 1;
    bool ignored;
    if (row && row->kind == NM_BOOL && !(next && nm_bool_parse(next, &ignored)))
        return "true";
    if (row && nm_choice_index(row->choices, "yes") >= 0 &&
        !(next && nm_choice_index(row->choices, next) >= 0))
        return "yes";
    if (!next || (!verbatim && !strncmp(next, "--", 2)))
        return NULL;
    ++*i;
    return next;
}

static void add_setting(nm_cli *cli, const char *path, const char *value)
{
    const char *parts[2] = {path, value};
    for (int k = 0; k < 2; k++) {
        NM_APPEND(cli->settings, cli->n_settings, cli->settings_capacity, nm_duplicate(parts[k]));
    }
}

/* Whether the option negates a boolean option: "--no-samples" means "--samples=false". Then *path and *row
 * are those of the boolean option. */
static bool is_negation(const nm_cli *cli, const char *name, char **path, const nm_option **row)
{
    if (strncmp(name, "no-", 3))
        return false;
    char *positive = option_path(cli, name + 3, strlen(name + 3));
    const nm_option *found = nm_options_row(cli->options, positive);
    if (!found || found->kind != NM_BOOL) {
        free(positive);
        return false;
    }
    free(*path);
    *path = positive;
    *row = found;
    return true;
}

static nm_status set_option(nm_cli *cli, int argc, char **argv, int *i, nm_error *err)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '='), *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    NM_AUTO_FREE char *path = option_path(cli, name, equals ? (size_t)(equals - name) : strlen(name));
    const nm_option *row = nm_options_row(cli->options, path);
    bool negated = !row && !equals && is_negation(cli, name, &path, &row);
    bool verbatim = cli->command->takes_options && !strcmp(path, cli->command->takes_options);
    const char *value = negated ? "false" : option_value(row, verbatim, equals, next, i);
    nm_status status;
    if (row && !value)
        status = nm_fail(err, NM_USAGE, "option --%s needs a value", name);
    else
        status = nm_options_set(cli->options, path, value ? value : "", NM_ORIGIN_COMMAND, err);
    if (status == NM_OK)
        add_setting(cli, path, value);
    return status;
}

/* Applies the options in argv and moves the other *n arguments to its front. "--" ends the options. */
static nm_status parse(nm_cli *cli, int argc, char **argv, int *n, nm_error *err)
{
    *n = 0;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        if (ended || argv[i][0] != '-' || !argv[i][1])
            argv[(*n)++] = argv[i];
        else if (!strcmp(argv[i], "--"))
            ended = true;
        else if (!strcmp(argv[i], "-o")) { /* the only short option, as in many programs */
            argv[i] = "--output";
            NM_TRY(set_option(cli, argc, argv, &i, err));
        } else if (argv[i][1] != '-')
            return nm_fail(err, NM_USAGE, "unknown option %.200s; options have long names: norma %s --help",
                           argv[i], cli->command->name);
        else
            NM_TRY(set_option(cli, argc, argv, &i, err));
    }
    return NM_OK;
}

/* Finds the recipe. If it does not exist, that is the cause of unknown options of its task: its error then
 * replaces `status` and err. */
static nm_status find_recipe(const char *name, nm_status status, char **path, nm_error *err)
{
    nm_error missing;
    nm_status found = nm_cli_find_recipe(name, path, &missing);
    if (found != NM_OK)
        *err = missing;
    return found != NM_OK ? found : status;
}

/* Options of the command line without effect. A recipe or a model file is checked when it is opened. */
static nm_status check_rules(const nm_cli *cli, nm_error *err)
{
    NM_AUTO_FREE char *warning = NULL; /* none: the options are of the command line */
    return cli->command->rules ? nm_options_check(cli->options, &warning, err) : NM_OK;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    int n = 0;
    NM_AUTO_FREE char *recipe = NULL, *chosen = NULL;
    nm_status status = nm_cli_add_options(cli->command, cli->options, argc, argv, &cli->task, &err);
    NM_THEN(status, parse(cli, argc, argv, &n, &err));
    NM_THEN(status, check_rules(cli, &err));
    NM_THEN(status, nm_guard_outputs(cli, n, argv, &err));
    if (cli->command->trains && !n && status == NM_OK)
        status = nm_cli_default_recipe(cli->options, &chosen, &err);
    if (chosen)
        argv[n++] = chosen;
    if (cli->command->trains && n && (status == NM_OK || status == NM_USAGE))
        status = find_recipe(argv[0], status, &recipe, &err);
    if (recipe)
        argv[0] = recipe;
    return status == NM_OK       ? cli->command->run(cli, n, argv)
           : cli->command->ranks ? nm_cli_fail_once(&err)
                                 : nm_cli_fail(&err);
}

/* The command with its arguments for a POSIX shell: "norma train 'my recipe.ini' --resume"; heap. */
static char *command_line(const nm_command *command, int argc, char **argv)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = nm_text_stream_open(&text, &bytes);
    fprintf(out, "norma %s", command->name);
    for (int i = 0; i < argc; i++) {
        putc(' ', out);
        nm_shell_write_word(argv[i], out);
    }
    nm_text_stream_close(out);
    return text;
}

/* The index of the argument `text` before "--", or -1. */
static int find_argument(int argc, char **argv, const char *text)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], text))
            return i;
    return -1;
}

int nm_cli_run(const nm_command *command, const nm_command *const *commands, int argc, char **argv)
{
    int at = find_argument(argc, argv, "--help");
    bool prints = nm_cli_launched_rank() == 0;
    if (at >= 0 || find_argument(argc, argv, "-h") >= 0) {
        const char *topic = at >= 0 && at + 1 < argc ? argv[at + 1] : NULL;
        nm_error err;
        bool failed = prints && nm_cli_help(command, topic, argc, argv, stdout, &err) != NM_OK;
        return failed ? nm_cli_fail(&err) : NM_OK;
    }
    if (find_argument(argc, argv, "--manual") >= 0) {
        nm_error err;
        if (prints && isatty(STDOUT_FILENO)) /* roff is for man, not for readers */
            return nm_cli_help(command, "all", argc, argv, stdout, &err) == NM_OK ? NM_OK : nm_cli_fail(&err);
        if (prints)
            nm_cli_manual(command, stdout);
        return NM_OK;
    }
    nm_cli cli = {.command = command,
                  .commands = commands,
                  .options = nm_options_create(),
                  .command_line = command_line(command, argc, argv)};
    int code = run(&cli, argc, argv);
    nm_free_list(cli.settings, cli.n_settings);
    free(cli.command_line);
    nm_options_free(cli.options);
    return code;
}
