/* The common part of commands that open a model and map input to output: arguments MODEL [FILE ...], device, model, output
 * file. Such a command is an nm_model_command and functions that open the model and process the input. */
#ifndef NM_CLI_MODEL_COMMAND_H
#define NM_CLI_MODEL_COMMAND_H

#include "backend/device.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/open_comm.h"

/* The output of a command. A new or regular file is complete or absent: it is written to a temporary file, which replaces it
 * when the command succeeds. Devices and pipes are written directly. */
typedef struct nm_cli_output {
    FILE *stream;
    const char *name; /* for messages; not owned */
    nm_file_writer writer;
} nm_cli_output;

/* "-" is standard output. NM_USAGE if the output is the same file as the input ("-": standard input; NULL: none), which it
 * would overwrite. */
nm_status nm_cli_output_open(nm_cli_output *output, const char *path, const char *input, nm_error *err);
/* Replaces the file if status is NM_OK, else discards what was written; returns the first failure. */
nm_status nm_cli_output_close(nm_cli_output *output, nm_status status, nm_error *err);

typedef struct nm_model_session {
    const nm_cli *cli;
    char **inputs; /* paths, "-" is standard input; at least one */
    int n_inputs;
    nm_cli_output output;
    nm_comm *comm; /* processes that divide the input; the one alone has size 1 */
    char *text;    /* output of a rank other than 0, until the next flush */
    size_t bytes;
} nm_model_session;

typedef struct nm_model_command {
    /* Opens the model at path with a public header (include/norma). */
    nm_status (*open)(nm_model_session *session, void *state, const char *path, nm_error *err);
    int max_inputs;
    const char *output;                    /* path; "-" is standard output */
    bool (*uses_input)(const void *state); /* NULL: always */
    nm_status (*process)(nm_model_session *session, void *state, nm_error *err);
    void (*release)(void *state); /* may be NULL */
} nm_model_command;

/* Several processes read the same input and each computes and writes a part of it. By all of them, equally often: writes what
 * they have written since the last call to the output of rank 0, in the order of ranks. */
nm_status nm_model_session_flush(nm_model_session *session, nm_error *err);

/* Runs the command; returns the exit code. */
int nm_model_command_run(const nm_model_command *command, const nm_cli *cli, int argc, char **argv,
                         void *state);

/* The settings of the command line for the options of a public header: alternating names and values that end with NULL; heap,
 * the strings belong to cli. own: sections or options that only the command has, "translate.output,translate.buffer". */
const char **nm_cli_settings(const nm_cli *cli, const char *own);

/* Prints a warning; NULL: none. */
void nm_cli_warn(const char *warning);

/* NM_USAGE: several processes cannot divide standard input. */
nm_status nm_cli_fail_standard_input(nm_error *err);

#endif
