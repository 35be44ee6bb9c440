#include "train/results.h"

#include <stdlib.h>

#include "backend/device_memory.h"
#include "base/memory.h"

static nm_status reserve(nm_results *results, size_t n, nm_error *err)
{
    if (n <= results->capacity)
        return NM_OK;
    NM_TRY(nm_backend_realloc(results->backend, n * sizeof *results->device, (void **)&results->device, err));
    results->host = nm_reallocate(results->host, n * sizeof *results->host);
    results->capacity = n;
    return NM_OK;
}

nm_status nm_results_init(nm_results *results, nm_backend *backend, nm_error *err)
{
    *results = (nm_results){.backend = backend, .n = NM_RESULT_PASSES};
    return reserve(results, NM_RESULT_PASSES, err);
}

void nm_results_release(nm_results *results)
{
    if (results->device)
        nm_backend_dealloc(results->backend, results->device);
    free(results->host);
    free(results->ends);
    *results = (nm_results){0};
}

void nm_results_start(nm_results *results)
{
    results->n = NM_RESULT_PASSES;
    results->n_passes = 0;
}

nm_status nm_results_add(nm_results *results, const nm_tape *tape, const double *sums, nm_error *err)
{
    size_t end = results->n + 2;
    for (const nm_penalty *penalty = tape->first_penalty; penalty; penalty = penalty->next)
        end++;
    NM_TRY(reserve(results, end, err));
    if (results->n_passes == results->passes_capacity)
        results->ends =
            nm_reallocate(results->ends, (size_t)++results->passes_capacity * sizeof *results->ends);
    nm_backend_copy(results->backend, results->device + results->n, sums, 2 * sizeof *sums);
    results->n += 2;
    for (const nm_penalty *penalty = tape->first_penalty; penalty; penalty = penalty->next)
        nm_backend_copy(results->backend, results->device + results->n++, penalty->value, sizeof *sums);
    results->ends[results->n_passes++] = end;
    return NM_OK;
}

nm_status nm_results_read(nm_results *results, nm_error *err)
{
    nm_backend_download(results->backend, results->host, results->device, results->n * sizeof *results->host);
    return nm_backend_check(results->backend, err);
}

/* The sum over the passes first .. first + 2^level - 1, of which those before n_passes exist */
static void add_passes(const nm_results *results, int64_t first, int level, double total[3])
{
    if (!level) {
        const double *numbers = results->host + (first ? results->ends[first - 1] : NM_RESULT_PASSES);
        total[0] = numbers[0];
        total[1] = numbers[1];
        total[2] = 0;
        for (numbers += 2; numbers < results->host + results->ends[first]; numbers++)
            total[2] += *numbers;
        return;
    }
    const int64_t middle = first + ((int64_t)1 << (level - 1));
    add_passes(results, first, level - 1, total);
    if (middle >= results->n_passes)
        return;
    double second[3];
    add_passes(results, middle, level - 1, second);
    for (int i = 0; i < 3; i++)
        total[i] += second[i];
}

void nm_results_total(const nm_results *results, nm_shard_sums *sums)
{
    if (!results->n_passes)
        return;
    double total[3];
    int levels = 0;
    while ((int64_t)1 << levels < results->n_passes)
        levels++;
    add_passes(results, 0, levels, total);
    sums->loss = total[0];
    sums->nll = total[1];
    sums->penalty = total[2];
}
