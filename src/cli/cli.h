/* What all commands share: descriptors, arguments, help, messages.
 *
 * A command is one file with its descriptor at the end and one line in the table of main.c. Its options come from the tables
 * of the sections that it registers. Help, manual page and shell completion are generated from them. */
#ifndef NM_CLI_H
#define NM_CLI_H

#include "norma/option.h"

typedef struct nm_cli nm_cli;

typedef struct nm_command {
    const char *name, *summary; /* "prepare", "one line without a period" */
    const char *usage;          /* arguments after the name: "[RECIPE] --train PREFIX ..." */
    const char *details;        /* paragraphs for help and manual, separated by empty lines, or NULL */
    /* Sections whose options need no "section." on the command line, comma-separated: the first section that has the option
     * is meant. NULL: none. */
    const char *section;
    const char *const *common;            /* options that --help lists, ends with NULL; NULL: all options */
    const char *takes_options;            /* path of the option whose value may begin with "--"; NULL: none */
    void (*options)(nm_options *options); /* registers the sections; NULL: none */
    bool
        ranks; /* several processes of an MPI launcher divide the work; otherwise the first one does it alone */
    bool trains; /* the first argument is a recipe, whose run.task determines further sections */
    /* Gets the arguments that are not options; returns the exit code. */
    int (*run)(nm_cli *cli, int argc, char **argv);
} nm_command;

struct nm_cli {
    const nm_command *command;
    nm_options *options;
    const struct nm_task_type *task; /* of a command that trains */
    char **settings;                 /* "section.key", value, in the order of the command line */
    size_t n_settings, settings_capacity;
    char *command_line; /* as a shell would take it */
};

/* All commands, in the order of the help; ends with NULL. */
extern const nm_command *const nm_commands[];

/* Applies the settings of the command line to other options (those of a model file), if these have them. */
nm_status nm_cli_apply(const nm_cli *cli, nm_options *options, nm_error *err);
/* Prints "norma: message" to standard error and returns the exit code. */
int nm_cli_fail(const nm_error *err);
/* NM_USAGE unless min <= argc <= max. */
nm_status nm_cli_check_arguments(const nm_cli *cli, int argc, int min, int max, nm_error *err);

/* Runs a command with the arguments after its name, including --help and --manual. */
int nm_cli_run(const nm_command *command, int argc, char **argv);
/* Registers the sections of a command; *task: that of the command line or recipe, otherwise translation. */
nm_status nm_cli_add_options(const nm_command *command, nm_options *options, int argc, char **argv,
                             const struct nm_task_type **task, nm_error *err);
nm_status nm_cli_task_options(nm_options *options, int argc, char **argv, const struct nm_task_type **task,
                              nm_error *err);
/* "--key" for an option that needs no section in this command, else "--section.key"; heap. */
char *nm_cli_option_name(const nm_command *command, const nm_options *options, const char *section,
                         const char *key);

/* topic: "all", a section, or NULL for the common options. */
void nm_cli_help(const nm_command *command, const char *topic, int argc, char **argv, FILE *out);
void nm_cli_manual(const nm_command *command, FILE *out);
/* Writes text for roff with its special characters escaped; an empty line begins a paragraph. */
void nm_cli_write_roff(const char *text, FILE *out);

/* The path of a recipe: name if it is a file, else that of an installed or source recipe with this name (norma recipes).
 * NM_IO if there is none. Heap. */
nm_status nm_cli_find_recipe(const char *name, char **path, nm_error *err);
/* The same, but *path is NULL if there is none. */
nm_status nm_cli_look_up_recipe(const char *name, char **path, nm_error *err);

#endif
