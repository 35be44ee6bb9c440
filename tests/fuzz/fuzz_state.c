/* Training states: a run resumes from the input instead of the state file that it wrote, or fails with a
 * message of one line; a resumed run continues to train. The empty input stands for the state file of the
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fuzz.h"
#include "mutate.h"
#include "support/tiny_run.h"

static const char *const settings[] = {"model.width",
                                       "8",
                                       "model.ff",
                                       "8",
                                       "model.encoder_layers",
                                       "1",
                                       "model.decoder_layers",
                                       "1",
                                       "train.max_tokens",
                                       "60",
                                       "train.validate_every",
                                       "2",
                                       "train.save_every",
                                       "2",
                                       "train.updates",
                                       "4",
                                       "schedule.name",
                                       "val-decay",
                                       "train.patience",
                                       "3",
                                       "model.norm",
                                       "batch",
                                       NULL};

static char *run_folder, *model, *state;
static size_t model_bytes, state_bytes;

static void end(void)
{
    tiny_data_remove(data);
    free(run_folder);
    free(model);
    free(state);
}

static char *checkpoint(const char *suffix)
{
    return nm_format("%s/checkpoints/00000002.%s", run_folder, suffix);
}

static char *read_checkpoint(const char *suffix, size_t *bytes)
{
    char *path = checkpoint(suffix), *text;
    nm_error err;
    NM_ASSERT(nm_file_read(path, &text, bytes, &err) == NM_OK);
    free(path);
    return text;
}

static void write_checkpoint(const char *suffix, const void *contents, size_t bytes)
{
    char *path = checkpoint(suffix);
    nm_error err;
    NM_ASSERT(nm_file_write(path, contents, bytes, &err) == NM_OK);
    free(path);
}

/* Opens the run and trains to its limit of updates. */
static nm_status train(bool resume, const char *updates, nm_error *err)
{
    nm_options *options = tiny_options(settings);
    tiny_set(options, "train.updates", updates);
    nm_trainer *trainer = NULL;
    nm_status status =
        nm_trainer_open(&trainer, &nm_task_translation, options, run_folder, resume, NULL, err);
    if (status == NM_OK)
        status = nm_trainer_run(trainer, err);
    nm_trainer_close(trainer);
    nm_options_free(options);
    return status;
}

static void begin(void)
{
    nm_error err;
    data = tiny_data_create(20, 10);
    atexit(end);
    run_folder = nm_path_join(fuzz_folder(), "run");
    if (train(false, "2", &err) != NM_OK)
        fail_msg("%s", err.text);
    model = read_checkpoint("safetensors", &model_bytes);
    state = read_checkpoint("state.safetensors", &state_bytes);
}

size_t fuzz_first_input(uint8_t *input, size_t max_bytes)
{
    if (!model)
        begin();
    if (max_bytes < state_bytes)
        return 0;
    memcpy(input, state, state_bytes);
    return state_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (!model)
        begin();
    fuzz_remove_folder(run_folder);
    char *checkpoints = nm_path_join(run_folder, "checkpoints");
    nm_error err;
    NM_ASSERT(nm_folder_create(checkpoints, &err) == NM_OK);
    free(checkpoints);
    write_checkpoint("safetensors", model, model_bytes);
    write_checkpoint("state.safetensors", bytes ? (const void *)input : state, bytes ? bytes : state_bytes);
    nm_status status = train(true, "4", &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    NM_ASSERT(bytes || status == NM_OK);
    return 0;
}
