#include "train/workers.h"

#include <string.h>

#include "train/shards.h"

void nm_workers_init(nm_workers *workers, const nm_params *params, int64_t n)
{
    *workers = (nm_workers){.n = n,
                            .state_bytes = params->n_state * nm_dtype_bytes(params->backend->dtype),
                            .n_counters = params->n_norms * NM_NORM_CAPACITY};
    workers->states = nm_allocate((size_t)n * workers->state_bytes);
    workers->counters = nm_allocate((size_t)n * workers->n_counters * sizeof *workers->counters);
    nm_workers_reset(workers, params);
}

void nm_workers_reset(nm_workers *workers, const nm_params *params)
{
    for (int64_t worker = 0; worker < workers->n; worker++)
        nm_workers_store(workers, params, worker);
}

void nm_workers_release(nm_workers *workers)
{
    NM_FREE(workers->states, workers->counters);
    *workers = (nm_workers){0};
}

static char *state_of(const nm_workers *workers, int64_t worker)
{
    return workers->states + (size_t)worker * workers->state_bytes;
}

static int64_t *counters_of(const nm_workers *workers, int64_t worker)
{
    return workers->counters + (size_t)worker * workers->n_counters;
}

void nm_workers_load(const nm_workers *workers, nm_params *params, int64_t worker)
{
    if (!workers->n)
        return;
    if (params->n_state)
        nm_backend_upload(params->backend, params->state, state_of(workers, worker), workers->state_bytes);
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(params->norms[n]->counters, counters_of(workers, worker) + n * NM_NORM_CAPACITY,
               sizeof params->norms[n]->counters);
}

void nm_workers_store(nm_workers *workers, const nm_params *params, int64_t worker)
{
    if (!workers->n)
        return;
    if (params->n_state)
        nm_backend_download(params->backend, state_of(workers, worker), params->state, workers->state_bytes);
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(counters_of(workers, worker) + n * NM_NORM_CAPACITY, params->norms[n]->counters,
               sizeof params->norms[n]->counters);
}

nm_status nm_workers_gather(nm_workers *workers, nm_comm *comm, nm_error *err)
{
    if (!workers->n || comm->size == 1)
        return NM_OK;
    NM_AUTO_FREE nm_comm_message *messages = nm_allocate(2 * (size_t)comm->size * sizeof *messages);
    size_t n = 0;
    for (int32_t rank = 1; rank < comm->size; rank++) {
        nm_shard_range range = nm_shard_range_of_rank(workers->n, rank, comm->size);
        size_t of_range = (size_t)(range.last - range.first), counters = of_range * workers->n_counters;
        if (comm->rank && comm->rank != rank)
            continue;
        int32_t other = comm->rank ? 0 : rank;
        messages[n++] = (nm_comm_message){other, !comm->rank, state_of(workers, range.first),
                                          of_range * workers->state_bytes};
        messages[n++] = (nm_comm_message){other, !comm->rank, counters_of(workers, range.first),
                                          counters * sizeof *workers->counters};
    }
    return nm_comm_exchange(comm, messages, n, err);
}

nm_status nm_workers_share(nm_workers *workers, nm_comm *comm, nm_error *err)
{
    NM_TRY(nm_comm_broadcast(comm, workers->states, (size_t)workers->n * workers->state_bytes, err));
    return nm_comm_broadcast(comm, workers->counters,
                             (size_t)workers->n * workers->n_counters * sizeof *workers->counters, err);
}

nm_status nm_workers_share_first(nm_workers *workers, nm_params *params, nm_comm *comm, nm_error *err)
{
    if (!workers->n)
        return NM_OK;
    NM_TRY(nm_comm_broadcast(comm, state_of(workers, 0), workers->state_bytes, err));
    NM_TRY(nm_comm_broadcast(comm, counters_of(workers, 0), workers->n_counters * sizeof *workers->counters,
                             err));
    nm_workers_load(workers, params, 0);
    return NM_OK;
}

void nm_workers_write(const nm_workers *workers, nm_safetensors_writer *writer, nm_tensor_type type)
{
    size_t unit = type == NM_TENSOR_F64 ? sizeof(double) : sizeof(float);
    const int64_t elements = workers->n * (int64_t)(workers->state_bytes / unit),
                  bytes = workers->n * (int64_t)(workers->n_counters * sizeof *workers->counters);
    if (!workers->n)
        return;
    nm_safetensors_add(writer, "workers.state", type, 1, &elements, workers->states);
    nm_safetensors_add(writer, "workers.counters", NM_TENSOR_U8, 1, &bytes, workers->counters);
}

nm_status nm_workers_read(nm_workers *workers, const nm_params *params, const nm_safetensors *file,
                          nm_tensor_type type, nm_error *err)
{
    const nm_safetensor *states, *counters;
    const size_t bytes = (size_t)workers->n * workers->n_counters * sizeof *workers->counters;
    if (!workers->n)
        return NM_OK;
    if (!nm_safetensors_find(file, "workers.counters")) {
        nm_workers_reset(workers, params);
        return NM_OK;
    }
    if (nm_safetensors_find(file, "workers.counters")->bytes != bytes)
        return nm_fail(
            err, NM_MISMATCH,
            "%s: norm.state = worker: the checkpoint has a different number of workers (train.shards)",
            nm_safetensors_path(file));
    NM_TRY(nm_safetensors_expect(file, "workers.counters", NM_TENSOR_U8, bytes, &counters, err));
    NM_TRY(nm_safetensors_expect(file, "workers.state", type, (size_t)workers->n * params->n_state, &states,
                                 err));
    memcpy(workers->states, states->data, states->bytes);
    memcpy(workers->counters, counters->data, counters->bytes);
    return NM_OK;
}
