/* Agreement of the ranks of a run: they compare program, options and data, and share the checkpoint, the
 * training state and messages. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "train/trainer_private.h"

typedef struct setup { /* of one rank */
    char version[32], build[NM_BUILD_TEXT], device[256];
    uint64_t options, data, valid_data, elements;
} setup;

static uint64_t options_hash(const nm_options *options)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    FILE *stream = nm_text_stream_open(&text, &bytes);
    nm_options_write(options, stream);
    nm_text_stream_close(stream);
    return XXH3_64bits(text, bytes);
}

static nm_status compare_setups(const setup *setups, int32_t size, nm_error *err)
{
    for (int32_t rank = 1; rank < size; rank++) {
        const setup *s = &setups[rank], *first = &setups[0];
        if (strcmp(s->version, first->version))
            return nm_fail(err, NM_MISMATCH, "rank %d runs Norma %s, rank 0 %s", rank, s->version,
                           first->version);
        if (strcmp(s->build, first->build))
            return nm_fail(err, NM_MISMATCH,
                           "rank %d runs another build of Norma (%.12s) than rank 0 (%.12s)", rank, s->build,
                           first->build);
        if (s->options != first->options)
            return nm_fail(
                err, NM_MISMATCH,
                "rank %d has other options than rank 0: all need the same recipe, command line and, "
                "with --resume, run folder",
                rank);
        if (s->data != first->data || s->elements != first->elements)
            return nm_fail(err, NM_MISMATCH, "rank %d has other data than rank 0 in the data folder", rank);
        if (s->valid_data != first->valid_data)
            return nm_fail(err, NM_MISMATCH, "rank %d has other validation data than rank 0", rank);
        if (strcmp(s->device, first->device))
            return nm_fail(
                err, NM_MISMATCH,
                "rank %d computes with %s, rank 0 with %s: set device.isa to a level that all have", rank,
                s->device, first->device);
    }
    return NM_OK;
}

nm_status nm_ranks_compare_setup(const nm_trainer *trainer, nm_error *err)
{
    nm_comm *comm = trainer->comm;
    const nm_norm_config *norms = nm_options_find(trainer->options, "norm");
    if (comm->size == 1)
        return NM_OK;
    if (norms->state == NM_STATE_MICRO_BATCH && trainer->config->shards > 1)
        return nm_fail(err, NM_USAGE,
                       "norm.state = micro-batch: running statistics that advance from shard to shard "
                       "require a single process");
    NM_AUTO_FREE setup *setups = nm_allocate((size_t)comm->size * sizeof *setups);
    setup *own = &setups[comm->rank];
    snprintf(own->version, sizeof own->version, "%s", NORMA_VERSION);
    nm_build_id(own->build);
    snprintf(own->device, sizeof own->device, "backend %s, level %s", trainer->backend->name,
             nm_backend_training_level(trainer->backend));
    own->options = options_hash(trainer->options);
    own->data = trainer->task.fingerprint;
    own->valid_data = trainer->task.valid_fingerprint;
    own->elements = trainer->model->params.n_elements;
    NM_TRY(nm_comm_gather(comm, setups, sizeof *setups, err));
    return compare_setups(setups, comm->size, err);
}

nm_status nm_ranks_compare_weights(const nm_trainer *trainer, nm_error *err)
{
    nm_comm *comm = trainer->comm;
    if (comm->size == 1)
        return NM_OK;
    NM_AUTO_FREE uint64_t *hashes = nm_allocate((size_t)comm->size * sizeof *hashes);
    hashes[comm->rank] = nm_trainer_weights_hash(trainer);
    nm_status status = nm_comm_gather(comm, hashes, sizeof *hashes, err);
    for (int32_t rank = 1; status == NM_OK && rank < comm->size; rank++)
        if (hashes[rank] != hashes[0])
            status = nm_fail(
                err, NM_MISMATCH,
                "update %lld: the parameters of rank %d differ from those of rank 0: its machine computes "
                "different results; no checkpoint is written",
                (long long)trainer->state.update, rank);
    return status;
}

nm_status nm_ranks_share_state(nm_trainer *trainer, nm_error *err)
{
    NM_TRY(nm_comm_broadcast(trainer->comm, &trainer->state, sizeof trainer->state, err));
    trainer->schedule.state = trainer->state.schedule;
    return NM_OK;
}

nm_status nm_ranks_share_stop(nm_trainer *trainer, nm_error *err)
{
    nm_comm *comm = trainer->comm;
    if (comm->size == 1)
        return nm_check_stop(trainer->callbacks.stop, err);
    NM_AUTO_FREE bool *stops = nm_allocate((size_t)comm->size * sizeof *stops);
    stops[comm->rank] = nm_stop_is_set(trainer->callbacks.stop);
    nm_status status = nm_comm_gather(comm, stops, sizeof *stops, err);
    for (int32_t rank = 0; rank < comm->size && status == NM_OK; rank++)
        trainer->stop |= stops[rank];
    if (status == NM_OK && trainer->stop)
        return nm_fail(err, NM_INTERRUPTED, "stopped");
    return status;
}

nm_status nm_ranks_share_interruption(nm_trainer *trainer, nm_status status, nm_error *err)
{
    status = nm_comm_share_interruption(trainer->comm, status, err);
    trainer->stop |= status == NM_INTERRUPTED;
    return status;
}

nm_status nm_ranks_share_checkpoint(nm_trainer *trainer, nm_error *err)
{
    nm_params *params = &trainer->model->params;
    nm_comm *comm = trainer->comm;
    size_t unit = nm_dtype_bytes(trainer->backend->dtype), bytes = nm_params_bytes(params);
    if (comm->size == 1)
        return NM_OK;
    /* Device memory is host memory, which nm_shard_tree_init has checked. */
    NM_TRY(nm_ranks_share_state(trainer, err));
    NM_TRY(nm_comm_broadcast(comm, params->values, bytes, err));
    if (trainer->ema.values)
        NM_TRY(nm_comm_broadcast(comm, trainer->ema.values, bytes, err));
    /* The optimizer state of a fresh run is zero on all ranks. */
    if (trainer->state.update && trainer->shards.sharded) {
        NM_TRY(nm_optimizer_distribute(&trainer->optimizer, err));
    } else if (trainer->state.update) {
        if (trainer->optimizer.m)
            NM_TRY(nm_comm_broadcast(comm, trainer->optimizer.m, bytes, err));
        if (trainer->optimizer.v)
            NM_TRY(nm_comm_broadcast(comm, trainer->optimizer.v, trainer->optimizer.n_v * unit, err));
    }
    if (params->n_state)
        NM_TRY(nm_comm_broadcast(comm, params->state, params->n_state * unit, err));
    for (size_t n = 0; n < params->n_norms; n++)
        NM_TRY(nm_comm_broadcast(comm, params->norms[n]->counters, sizeof params->norms[n]->counters, err));
    return nm_workers_share(&trainer->workers, comm, err);
}

/* Whether the line is one of the lines of `own`, the messages of rank 0. */
static bool is_known(const char *own, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = own; at && *at; at = strchr(at, '\n') + 1)
        if (!strncmp(at, line, length) && at[length] == '\n')
            return true;
    return false;
}

static void report_lines(const nm_trainer *trainer, int32_t rank, char *lines)
{
    for (char *line; (line = strsep(&lines, "\n")) != NULL;) {
        if (!*line || is_known(trainer->messages, line))
            continue;
        NM_AUTO_FREE char *text = nm_format("rank %d: %s", rank, line);
        trainer->callbacks.message(trainer->callbacks.user, text);
    }
}

nm_status nm_ranks_share_messages(nm_trainer *trainer, nm_error *err)
{
    nm_comm *comm = trainer->comm;
    if (comm->size == 1)
        return NM_OK;
    const char *own = trainer->messages ? trainer->messages : "";
    NM_AUTO_FREE char *all = NULL;
    NM_AUTO_FREE size_t *ends = nm_allocate((size_t)comm->size * sizeof *ends);
    nm_status status = nm_comm_gather_bytes(comm, own, strlen(own) + 1, &all, ends, err);
    for (int32_t rank = 1; status == NM_OK && rank < comm->size && trainer->callbacks.message; rank++)
        report_lines(trainer, rank, all + ends[rank - 1]);
    free(trainer->messages);
    trainer->messages = NULL;
    return status;
}
