#include "cli/model_command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text_input.h"
#include "cli/compare_inputs.h"
#include "train/checkpoint.h"

/* False if there is no such file. The path "-" is the descriptor `standard`. */
static bool get_file_info(const char *path, int standard, struct stat *info)
{
    return !(strcmp(path, "-") ? stat(path, info) : fstat(standard, info));
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static nm_status check_distinct(const char *input, const char *output, nm_error *err)
{
    struct stat in, out;
    if (!input || !get_file_info(input, STDIN_FILENO, &in) || !get_file_info(output, STDOUT_FILENO, &out) ||
        !S_ISREG(in.st_mode) || !is_same_file(&in, &out))
        return NM_OK;
    return nm_fail(err, NM_USAGE, "%s: input and output are the same file",
                   strcmp(output, "-") ? output : nm_input_name(input));
}

nm_status nm_cli_output_open(nm_cli_output *output, const char *path, const char *input, nm_error *err)
{
    *output = (nm_cli_output){.name = strcmp(path, "-") ? path : "standard output"};
    NM_TRY(check_distinct(input, path, err));
    if (!strcmp(path, "-")) {
        output->stream = stdout;
        return NM_OK;
    }
    NM_TRY(nm_file_writer_open(&output->writer, path, err));
    output->stream = output->writer.stream;
    return NM_OK;
}

nm_status nm_cli_output_close(nm_cli_output *output, nm_status status, nm_error *err)
{
    nm_error late = {0};
    nm_status closed = NM_OK;
    if (output->writer.stream && status == NM_OK)
        closed = nm_file_writer_commit(&output->writer, &late);
    else if (output->writer.stream)
        nm_file_writer_abort(&output->writer);
    else if (output->stream)
        closed = nm_file_close(output->stream, output->name, &late);
    *output = (nm_cli_output){0};
    if (status != NM_OK || closed == NM_OK)
        return status;
    *err = late;
    return closed;
}

/* Whether a comma-separated list contains the text. */
static bool list_contains(const char *list, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n == length && !strncmp(at, text, n))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

const char **nm_cli_settings(const nm_cli *cli, const char *own)
{
    const char **settings = nm_allocate((cli->n_settings + 1) * sizeof *settings);
    size_t n = 0;
    for (size_t i = 0; i + 1 < cli->n_settings; i += 2) {
        NM_AUTO_FREE char *section = nm_format("%.*s", (int)strcspn(cli->settings[i], "."), cli->settings[i]);
        bool left_out = list_contains(own, cli->settings[i]) || list_contains(own, section);
        if (left_out)
            continue;
        settings[n++] = cli->settings[i];
        settings[n++] = cli->settings[i + 1];
    }
    return settings;
}

void nm_cli_warn(const char *warning)
{
    if (warning && !nm_cli_launched_rank())
        fprintf(stderr, "norma: warning: %s\n", warning);
}

/* NM_USAGE if the output would replace the file of a model. models: of nm_path_list_next. */
static nm_status check_models_remain(const char *models, const char *output, nm_error *err)
{
    struct stat model, out;
    if (!strcmp(output, "-") || stat(output, &out))
        return NM_OK;
    nm_status status = NM_OK;
    for (char *path; status == NM_OK && (path = nm_path_list_next(&models, NULL, NULL)); free(path)) {
        NM_AUTO_FREE char *file = nm_model_path(path);
        if (!stat(file, &model) && is_same_file(&model, &out))
            status = nm_fail(err, NM_USAGE, "%s: the output is the model", output);
    }
    return status;
}

/* Rank 0 writes to the output of the command, the others to memory. */
static nm_status open_output(nm_model_session *session, const char *models, const char *path,
                             const char *input, nm_error *err)
{
    NM_TRY(check_models_remain(models, path, err));
    if (!session->comm->rank)
        return nm_cli_output_open(&session->output, path, input, err);
    session->output =
        (nm_cli_output){.name = "memory", .stream = nm_text_stream_open(&session->text, &session->bytes)};
    return NM_OK;
}

nm_status nm_model_session_flush(nm_model_session *session, nm_error *err)
{
    nm_comm *comm = session->comm;
    const nm_cli_output *output = &session->output;
    NM_TRY(nm_file_flush(output->stream, output->name, err));
    if (comm->size == 1)
        return NM_OK;
    NM_AUTO_FREE char *all = NULL;
    NM_AUTO_FREE size_t *ends = nm_allocate((size_t)comm->size * sizeof *ends);
    nm_status status =
        nm_comm_gather_bytes(comm, session->text, comm->rank ? session->bytes : 0, &all, ends, err);
    if (status == NM_OK && comm->rank)
        rewind(output->stream);
    else if (status == NM_OK) {
        fwrite(all, 1, ends[comm->size - 1], output->stream);
        status = nm_file_flush(output->stream, output->name, err);
    }
    return status;
}

nm_status nm_cli_fail_standard_input(nm_error *err)
{
    return nm_fail(
        err, NM_USAGE,
        "an input file is required with several processes: only one of them receives standard input");
}

static nm_status run(nm_model_session *session, const nm_model_command *command, int argc, char **argv,
                     void *state, nm_error *err)
{
    static char *standard_input[] = {"-"};
    NM_TRY(nm_cli_check_arguments(session->cli, argc, argv, 1, 1 + command->max_inputs, err));
    session->inputs = argc > 1 ? argv + 1 : standard_input;
    session->n_inputs = argc > 1 ? argc - 1 : 1;
    NM_TRY(command->open(session, state, argv[0], err));
    bool reads = !command->uses_input || command->uses_input(state);
    NM_TRY(open_output(session, argv[0], command->output, reads ? session->inputs[0] : NULL, err));
    if (session->comm->size > 1 && reads && !strcmp(session->inputs[0], "-"))
        return nm_cli_fail_standard_input(err);
    const char *const files[] = {reads ? session->inputs[0] : NULL, command->others[0], command->others[1]};
    NM_TRY(nm_cli_compare_inputs(session->comm, argv[0], files, sizeof files / sizeof *files, err));
    return command->process(session, state, err);
}

int nm_model_command_run(const nm_model_command *command, const nm_cli *cli, int argc, char **argv,
                         void *state)
{
    nm_error err = {0};
    nm_model_session session = {.cli = cli};
    bool prints;
    if (nm_cli_join_ranks(&session.comm, cli->command, &err) != NM_OK)
        return nm_cli_fail_to_join(&err);
    nm_status status = run(&session, command, argc, argv, state, &err);
    if (!session.comm->rank)
        status = nm_cli_output_close(&session.output, status, &err);
    else if (session.output.stream)
        fclose(session.output.stream);
    free(session.text);
    status = nm_comm_finish(session.comm, status, &prints, &err);
    if (prints && status != NM_OK)
        nm_cli_fail(&err);
    if (command->release)
        command->release(state);
    nm_comm_free(session.comm);
    return (int)status;
}
