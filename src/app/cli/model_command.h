/* The common part of commands that open a model and convert input to output: arguments MODEL [FILE ...],
 * device, model, output file. Such a command is an nm_model_command with functions that open the model and
 * process the input. */
#pragma once

#include "backend/device_options.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/open_comm.h"

/* The output of a command. It is first written to a temporary file, which replaces the output file if the
 * command succeeds. Devices and pipes are written directly. */
typedef struct nm_cli_output {
    FILE *stream;
    const char *name; /* for messages; not owned */
    nm_file_writer writer;
} nm_cli_output;

/* Opens the output; path "-": standard output. NM_USAGE if it is the same file as the input ("-": standard
 * input; NULL: none), which it would overwrite; NM_IO. */
nm_status nm_cli_output_open(nm_cli_output *output, const char *path, const char *input, nm_error *err);
/* Replaces the file if status is NM_OK, otherwise discards the output. Returns status, or the error of
 * writing. */
nm_status nm_cli_output_close(nm_cli_output *output, nm_status status, nm_error *err);

typedef struct nm_model_session {
    const nm_cli *cli;
    char **inputs; /* paths, "-" is standard input; at least one */
    int n_inputs;
    nm_cli_output output;
    nm_comm *comm; /* processes that divide the input; size 1 for a single process */
    char *text;    /* [bytes], output of a rank other than 0 since the last flush */
    size_t bytes;
} nm_model_session;

typedef struct nm_model_command {
    /* Opens the model at path with the public interface (include/norma). */
    nm_status (*open)(nm_model_session *session, void *state, const char *path, nm_error *err);
    int max_inputs;
    const char *output;                    /* path; "-": standard output */
    const char *others[2];                 /* further input files; "" or NULL: none */
    bool (*uses_input)(const void *state); /* whether the input is read; NULL: always */
    /* Reads the inputs and writes the results to session->output. */
    nm_status (*process)(nm_model_session *session, void *state, nm_error *err);
    void (*release)(void *state); /* may be NULL */
} nm_model_command;

/* Writes the output of all processes since the last call to the output file of rank 0, in the order of ranks.
 * Collective: several processes read the same input, each processes a part of it, and all call this function
 * equally often. */
nm_status nm_model_session_flush(nm_model_session *session, nm_error *err);

/* Runs the command with the arguments MODEL [FILE ...]. state: passed to the functions of the command.
 * Returns the exit code. */
int nm_model_command_run(const nm_model_command *command, const nm_cli *cli, int argc, char **argv,
                         void *state);

/* The settings of the command line as options of the public interface: alternating names and values, ends
 * with NULL; heap, the strings belong to cli. own: sections and options of the command itself, which are left
 * out: "translate.output,translate.buffer". */
const char **nm_cli_settings(const nm_cli *cli, const char *own);

/* Prints a warning, by the first process only; NULL: none. */
void nm_cli_warn(const char *warning);

/* Fails with NM_USAGE: several processes cannot divide standard input. */
nm_status nm_cli_fail_standard_input(nm_error *err);
