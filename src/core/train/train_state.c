/* The training state in checkpoints: a tensor "state.NAME" for every value, so that members may be added,
 * removed and reordered. */
#include <math.h>
#include <string.h>

#include "train/trainer.h"

NM_FIELDS(nm_train_state, NM_TRAIN_STATE)
static NM_FIELDS(nm_schedule_state, NM_SCHEDULE_STATE)

/* Versions up to 0.1 stored the bytes of this struct as the tensor "state". It never changes. */
#define OLD_STATE(F)                                                                                         \
    F(int, update, "")                                                                                       \
    F(int, epoch, "")                                                                                        \
    F(int, batch, "")                                                                                        \
    F(int, step, "")                                                                                         \
    F(int, tokens, "")                                                                                       \
    F(int, bad_checks, "")                                                                                   \
    F(int, log_bytes, "")                                                                                    \
    F(int, checked_epochs, "")                                                                               \
    F(int, checked_update, "")                                                                               \
    F(real, best_loss, "")                                                                                   \
    F(real, best_score, "")                                                                                  \
    F(real, seconds, "")                                                                                     \
    F(int, best_update, "")                                                                                  \
    F(real, best_value, "")                                                                                  \
    F(chars(16), score_title, "")                                                                            \
    F(int, best_by_score, "")                                                                                \
    F(int, schedule_by_score, "")                                                                            \
    F(int, optimizer, "")                                                                                    \
    F(real, sum_loss, "")                                                                                    \
    F(real, sum_nll, "")                                                                                     \
    F(real, sum_penalty, "")                                                                                 \
    F(real, sum_norm, "")                                                                                    \
    F(int, sum_tokens, "")                                                                                   \
    F(int, sum_targets, "")                                                                                  \
    F(int, sum_updates, "")                                                                                  \
    F(real, warned_level, "")                                                                                \
    F(real, factor, "")                                                                                      \
    F(reals(64), scores, "")                                                                                 \
    F(int, n_scores, "")                                                                                     \
    F(real, skip_from, "")                                                                                   \
    F(real, skip_to, "")                                                                                     \
    F(real, best, "")
/* clang-format off */
NM_RECORD(old_state, OLD_STATE)
static NM_FIELDS(old_state, OLD_STATE)
/* clang-format on */

void nm_train_state_write(const nm_train_state *state, nm_safetensors_writer *writer)
{
    nm_record_save(writer, "state", nm_train_state_fields(), state);
    nm_record_save(writer, "state.schedule", nm_schedule_state_fields(), &state->schedule);
}

static nm_status read_old(nm_train_state *state, const nm_safetensors *file, nm_error *err)
{
    const nm_safetensor *bytes;
    old_state old;
    NM_TRY(nm_safetensors_expect(file, "state", NM_TENSOR_U8, sizeof old, &bytes, err));
    memcpy(&old, bytes->data, sizeof old);
    nm_record_copy(nm_train_state_fields(), state, old_state_fields(), &old);
    nm_record_copy(nm_schedule_state_fields(), &state->schedule, old_state_fields(), &old);
    return NM_OK;
}

/* Checks the values that are used as an index or a length. */
static bool state_is_valid(const nm_train_state *s)
{
    return s->update >= 0 && s->epoch >= 0 && s->epoch <= UINT32_MAX && s->batch >= 0 && s->step >= 0 &&
           s->tokens >= 0 && s->bad_checks >= 0 && s->log_bytes >= 0 && s->sum_updates >= 0 &&
           s->sum_tokens >= 0 && s->seconds >= 0 && isfinite(s->seconds) && s->schedule.n_scores >= 0 &&
           s->schedule.n_scores <= NM_SCHEDULE_MAX_PATIENCE && isfinite(s->schedule.factor) &&
           s->schedule.skip_from >= 0 && s->schedule.skip_to >= 0 && s->schedule.skip_to <= 1 &&
           s->schedule.best >= 0 && s->schedule.best <= 1 && memchr(s->score_title, 0, sizeof s->score_title);
}

nm_status nm_train_state_read(nm_train_state *state, const nm_safetensors *file, nm_error *err)
{
    if (nm_safetensors_find(file, "state"))
        NM_TRY(read_old(state, file, err));
    else if (!nm_safetensors_find(file, "state.update"))
        return nm_fail(err, NM_FORMAT, "%s: no training state", nm_safetensors_path(file));
    NM_TRY(nm_record_load(file, "state", nm_train_state_fields(), state, err));
    NM_TRY(nm_record_load(file, "state.schedule", nm_schedule_state_fields(), &state->schedule, err));
    if (!state_is_valid(state))
        return nm_fail(err, NM_FORMAT, "%s: invalid training state", nm_safetensors_path(file));
    return NM_OK;
}
