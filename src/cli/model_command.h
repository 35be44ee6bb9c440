/* The common part of commands that open a model and map input to output: arguments MODEL [FILE ...], device, model, output file.
 * Such a command is an nm_model_command and a function that processes the input. */
#ifndef NM_CLI_MODEL_COMMAND_H
#define NM_CLI_MODEL_COMMAND_H

#include "base/file.h"
#include "cli/open_model.h"

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
    nm_backend *backend;
    nm_loaded_model *models; /* several: an ensemble */
    int32_t n_models;
    char **inputs; /* paths, "-" is standard input; at least one */
    int n_inputs;
    nm_cli_output output;
} nm_model_session;

typedef struct nm_model_command {
    const nm_task_type *task;
    const char *refusal; /* of models of other tasks: "does not translate" */
    bool ensemble;       /* the first argument may be several models, comma-separated */
    int max_inputs;
    const char *output;                    /* path; "-" is standard output */
    bool (*uses_input)(const void *state); /* NULL: always */
    nm_status (*process)(nm_model_session *session, void *state, nm_error *err);
    void (*release)(void *state); /* may be NULL */
} nm_model_command;

/* Runs the command; returns the exit code. */
int nm_model_command_run(const nm_model_command *command, const nm_cli *cli, int argc, char **argv,
                         void *state);

/* "standard input" for "-". */
const char *nm_cli_input_name(const char *path);

#endif
