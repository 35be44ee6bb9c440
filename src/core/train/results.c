#include "train/results.h"

#include <stdlib.h>

#include "base/memory.h"

/* Memory for one more pass, which ends at `end` */
static nm_status reserve(nm_results *results, size_t end, nm_error *err)
{
    NM_RESERVE(results->ends, (size_t)results->n_passes + 1, results->passes_capacity);
    if (end <= results->capacity)
        return NM_OK;
    NM_TRY(nm_backend_realloc(results->backend, end * sizeof *results->numbers, (void **)&results->numbers,
                              err));
    results->capacity = end;
    return NM_OK;
}

nm_status nm_results_init(nm_results *results, nm_backend *backend, nm_error *err)
{
    *results = (nm_results){.backend = backend};
    return nm_backend_alloc(backend, NM_PLAN_SIZE * sizeof *results->plan, (void **)&results->plan, err);
}

void nm_results_release(nm_results *results)
{
    if (results->backend) {
        nm_backend_dealloc(results->backend, results->plan);
        nm_backend_dealloc(results->backend, results->numbers);
    }
    free(results->ends);
    *results = (nm_results){0};
}

void nm_results_start(nm_results *results)
{
    results->n_passes = 0;
}

/* Where the numbers of the next pass begin */
static size_t next_start(const nm_results *results)
{
    return results->n_passes ? (size_t)results->ends[results->n_passes - 1] : 0;
}

nm_status nm_results_add(nm_results *results, const nm_tape *tape, const double *sums, nm_error *err)
{
    size_t start = next_start(results), end = start + 3;
    for (const nm_penalty *penalty = tape->first_penalty; penalty; penalty = penalty->next)
        end++;
    NM_TRY(reserve(results, end, err));
    double *to = results->numbers + start;
    nm_backend_copy(results->backend, to, sums, 2 * sizeof *sums);
    to += 3;
    for (const nm_penalty *penalty = tape->first_penalty; penalty; penalty = penalty->next)
        nm_backend_copy(results->backend, to++, penalty->value, sizeof *sums);
    results->ends[results->n_passes++] = (int32_t)end;
    return NM_OK;
}

nm_status nm_results_set(nm_results *results, const nm_shard_sums *sums, nm_error *err)
{
    const double numbers[4] = {sums->loss, sums->nll, 0, sums->penalty};
    NM_ASSERT(!results->n_passes);
    NM_TRY(reserve(results, 4, err));
    nm_backend_upload(results->backend, results->numbers, numbers, sizeof numbers);
    results->ends[results->n_passes++] = 4;
    return NM_OK;
}

nm_status nm_results_read(nm_results *results, nm_error *err)
{
    nm_backend_download(results->backend, results->host, results->plan, sizeof results->host);
    return nm_backend_check(results->backend, err);
}
