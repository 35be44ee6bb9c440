/* What all commands share: descriptors, arguments, help, messages.
 *
 * A command is one file with its descriptor at the end and one line in the table of main.c. Options come from
 * the tables of the sections that the command registers; help and manual page are printed from them. */
#ifndef NM_CLI_H
#define NM_CLI_H

#include "norma/option.h"

typedef struct nm_cli nm_cli;

typedef struct nm_command {
    const char *name, *summary; /* "prepare", "one line without a period" */
    const char *usage;          /* arguments behind the name: "[RECIPE.ini] --train PREFIX ..." */
    const char *details;        /* paragraphs for help and manual, or NULL */
    const char
        *section; /* options of these sections ("a,b", the first that has it) need no "section."; or NULL */
    void (*options)(nm_options *options); /* registers the sections; NULL: none */
    bool trains; /* takes a recipe, whose run.task says which further sections there are */
    /* Gets the arguments that are no options; returns the exit code. */
    int (*run)(nm_cli *cli, int argc, char **argv);
} nm_command;

struct nm_cli {
    const nm_command *command;
    nm_options *options;
    const struct nm_task_type *task; /* of a command that trains */
    char **settings;                 /* "section.key", value, in the order given: for nm_cli_apply */
    size_t n_settings, settings_capacity;
};

/* Reads an INI file named on the command line; what the command line said stays. */
nm_status nm_cli_read(nm_cli *cli, const char *path, nm_error *err);
/* Sets what the command line said in other options too (those read from a model file), as far as they have it. */
nm_status nm_cli_apply(const nm_cli *cli, nm_options *options, nm_error *err);
/* Prints "norma: message" to stderr and returns the exit code. */
int nm_cli_fail(const nm_error *err);
/* NM_USAGE unless the number of arguments is within the limits. */
nm_status nm_cli_check_arguments(const nm_cli *cli, int argc, int least, int most, nm_error *err);

/* For main.c: runs a command with the arguments behind its name; answers --help and --manual itself. */
int nm_cli_run(const nm_command *command, int argc, char **argv);
void nm_cli_help(const nm_command *command, int argc, char **argv, FILE *out);
void nm_cli_manual(const nm_command *command, FILE *out);
/* The sections of the task that the command line or the recipe on it names (neither: translation). */
nm_status nm_cli_task_options(nm_options *options, int argc, char **argv, const struct nm_task_type **task,
                              nm_error *err);
/* A paragraph for roff: what roff would take as its own is escaped. */
void nm_cli_write_roff(const char *text, FILE *out);

#endif
