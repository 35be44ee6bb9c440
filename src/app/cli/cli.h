/* Framework of the commands: descriptors, arguments, help, messages.
 *
 * A command is one file with its descriptor at the end and one line in the table of main.c. Its options are
 * those of the sections that it registers. Help, manual page and shell completion are generated from the
 * descriptor and the option tables. */
#pragma once

#include <limits.h>
#include <signal.h>

#include "norma/option.h"

typedef struct nm_cli nm_cli;

typedef struct nm_command {
    const char *name, *summary; /* "prepare"; one line without a period */
    const char *usage;          /* arguments after the name: "[RECIPE] --train PREFIX ..." */
    const char *details;        /* paragraphs for help and manual, separated by empty lines, or NULL */
    /* Sections whose options need no "section." on the command line, comma-separated. If several have an
     * option of this name, the first one is used. NULL: the command has no options. */
    const char *section;
    const char *const *common;   /* paths of the options that --help lists, ends with NULL; NULL: all */
    const char *const *unlisted; /* paths of options that are errors here, ends with NULL; NULL: none */
    const nm_option_rule *rules; /* options that have no effect together with others; NULL: none */
    /* Paths of the options that name a file or folder to write, in addition to those with the key "output";
     * ends with NULL. NULL: none. Existing runs, models and data are not overwritten (output_guard.h). */
    const char *const *outputs;
    const char *takes_options; /* path of the option whose value may begin with "--"; NULL: none */
    /* Options in the first of its sections, and the size of the struct that they fill; NULL: none. */
    const nm_option *rows;
    size_t config_bytes;
    void (*options)(nm_options *options); /* registers further sections; NULL: none */
    const struct nm_task_type *searches;  /* the task whose search it runs, with a section; NULL: none */
    bool infers;                          /* the last section is "device", for inference */
    bool ranks;         /* processes of an MPI launcher divide the work; otherwise only the first one runs */
    bool saves;         /* options are saved in INI files, whose syntax limits text values */
    bool writes_first;  /* the first argument is a file to write */
    bool writes_models; /* the outputs are model files, which may replace other ones that are not of a run */
    /* the output is a data folder, which the command checks itself: it may be prepared again */
    bool writes_data;
    bool trains; /* the first argument is a recipe, whose run.task determines further sections */
    /* Runs the command with the arguments that are not options; returns the exit code. */
    int (*run)(nm_cli *cli, int argc, char **argv);
} nm_command;

struct nm_cli {
    const nm_command *command;
    const nm_command *const *commands; /* all commands, in the order of the help; ends with NULL */
    nm_options *options;
    const struct nm_task_type *task; /* task of the recipe; only if command->trains */
    char **settings; /* alternating "section.key" and value, in the order of the command line */
    size_t n_settings, settings_capacity;
    char *command_line; /* for a POSIX shell */
};

/* Applies the settings of the command line to other options, such as those of a model file; settings that
 * these do not have are ignored. */
nm_status nm_cli_apply(const nm_cli *cli, nm_options *options, nm_error *err);
/* Prints "norma: message" to standard error and returns the exit code. */
int nm_cli_fail(const nm_error *err);
/* NM_USAGE with the usage of the command unless min <= argc <= max. */
nm_status nm_cli_check_arguments(const nm_cli *cli, int argc, char **argv, int min, int max, nm_error *err);
enum { NM_CLI_NO_LIMIT = INT_MAX };

/* Runs one of the commands with the arguments after its name, including --help and --manual. */
int nm_cli_run(const nm_command *command, const nm_command *const *commands, int argc, char **argv);
/* Registers the sections of a command. *task: set if the command trains; the task of the command line or of
 * the recipe, otherwise translation. */
nm_status nm_cli_add_options(const nm_command *command, nm_options *options, int argc, char **argv,
                             const struct nm_task_type **task, nm_error *err);
/* Registers the sections of the trainer, the task and the probes. *task: as for nm_cli_add_options. */
nm_status nm_cli_task_options(nm_options *options, int argc, char **argv, const struct nm_task_type **task,
                              nm_error *err);
/* The recipe of a command without one, heap: with run.resume, the configuration of the run in run.folder;
 * otherwise the recipe for the task of the model that run.tune names. *recipe NULL: there is none. NM_USAGE:
 * run.resume, but no run; NM_IO, NM_FORMAT: the model cannot be read. */
nm_status nm_cli_default_recipe(const nm_options *options, char **recipe, nm_error *err);
/* The name of an option on the command line: "--key" if it needs no section in this command, otherwise
 * "--section.key"; heap. */
char *nm_cli_option_name(const nm_command *command, const nm_options *options, const char *section,
                         const char *key);

/* False for an option of the tables that is an error in this command, which help and completion do not
 * list. */
bool nm_cli_accepts(const nm_command *command, const char *section, const char *key);
/* Prints the help text. topic: "all", a section, or NULL for the common options. argv: remaining arguments,
 * which may contain a recipe. NM_USAGE: the topic is not a section of the command. */
nm_status nm_cli_help(const nm_command *command, const char *topic, int argc, char **argv, FILE *out,
                      nm_error *err);
/* Prints the manual page in roff format. */
void nm_cli_manual(const nm_command *command, FILE *out);
/* Writes text for roff with its special characters escaped; an empty line starts a paragraph. */
void nm_cli_write_roff(const char *text, FILE *out);

/* The signals of users, terminals, batch systems and timers whose default action ends a process, without
 * those of the keyboard and of errors that dump core. */
void nm_cli_stop_signals(sigset_t *signals);
/* Handles signals. Those that the parent process ignores stay ignored, as nohup and background jobs of a
 * script expect, and a handler of a library, such as a profiler's, stays. */
void nm_cli_handle_signals(const sigset_t *signals, void (*handler)(int number), int flags);
/* The signals that end a comparison or a study with its work saved; SIGINT in background jobs, too. */
void nm_cli_handle_stops(void (*handler)(int number));

/* The path of a file in the folder of this program, heap; NULL if the folder is unknown. */
char *nm_cli_beside_program(const char *name);
/* The path of a recipe, heap: `name` if it is a file, otherwise the path of the recipe with this name (norma
 * recipes). NM_IO if there is none. */
nm_status nm_cli_find_recipe(const char *name, char **path, nm_error *err);
/* The same, but *path is NULL if there is none. */
nm_status nm_cli_look_up_recipe(const char *name, char **path, nm_error *err);
