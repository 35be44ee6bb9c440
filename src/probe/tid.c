#include "probe/tid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probe/numbers.h"

typedef struct site_sums {
    int32_t width;
    double *mean, *variance; /* first pass: sums; afterwards: means over the batches */
    double ratio_mean, ratio_variance;
} site_sums;

typedef struct listener {
    nm_backend *backend;
    nm_tape *tape;
    nm_tid *tid;
    site_sums *sums;
    size_t capacity, sums_capacity;
    bool second_pass;
    double *batch_mean, *batch_variance; /* host scratch of the widest site */
    int32_t scratch_width;
} listener;

void nm_tid_ratio(int32_t n, const double *batch_mean, const double *batch_variance, const double *mean,
                  const double *variance, double *mean_tid, double *variance_tid)
{
    double mean_square = 0, sigma_square = 0, sigma = 0;
    for (int32_t i = 0; i < n; i++) {
        double s = sqrt(variance[i]), d = sqrt(batch_variance[i]) - s, m = batch_mean[i] - mean[i];
        mean_square += m * m;
        sigma_square += d * d;
        sigma += variance[i];
    }
    *mean_tid = sqrt(mean_square) / (sqrt(sigma) + 1e-8);
    *variance_tid = sqrt(sigma_square) / (sqrt(sigma) + 1e-8);
}

static size_t find_site(listener *l, const char *name, int32_t width)
{
    for (size_t i = 0; i < l->tid->n; i++)
        if (!strcmp(l->tid->sites[i].name, name))
            return i;
    size_t capacity = l->capacity;
    NM_GROW(l->tid->sites, l->tid->n, l->capacity);
    NM_ASSERT(capacity == l->sums_capacity);
    NM_GROW(l->sums, l->tid->n, l->sums_capacity);
    nm_tid_site *site = &l->tid->sites[l->tid->n];
    *site = (nm_tid_site){.mean = 0};
    snprintf(site->name, sizeof site->name, "%s", name);
    l->sums[l->tid->n] = (site_sums){.width = width,
                                     .mean = nm_allocate((size_t)width * sizeof(double)),
                                     .variance = nm_allocate((size_t)width * sizeof(double))};
    if (width > l->scratch_width) {
        l->batch_mean = nm_reallocate(l->batch_mean, (size_t)width * sizeof(double));
        l->batch_variance = nm_reallocate(l->batch_variance, (size_t)width * sizeof(double));
        l->scratch_width = width;
    }
    return l->tid->n++;
}

static void listen(void *user, const nm_norm_call *call, bool backward)
{
    listener *l = user;
    if (backward)
        return;
    nm_backend *b = l->backend;
    size_t unit = nm_dtype_bytes(b->dtype);
    int32_t width = call->x.cols;
    void *mean = nm_tape_take(l->tape, (size_t)width * unit),
         *variance = nm_tape_take(l->tape, (size_t)width * unit);
    if (!mean || !variance)
        return;
    const nm_feature_norm plain = {.groups = 0};
    b->k.feature_moments(b, &plain, call->x, NULL, mean, mean, variance);
    size_t site = find_site(l, call->norm->place.name, width); /* may move the array */
    site_sums *sums = &l->sums[site];
    nm_numbers_download(b, l->batch_mean, mean, (size_t)width);
    nm_numbers_download(b, l->batch_variance, variance, (size_t)width);
    if (l->second_pass) {
        double m, v;
        nm_tid_ratio(width, l->batch_mean, l->batch_variance, sums->mean, sums->variance, &m, &v);
        sums->ratio_mean += m;
        sums->ratio_variance += v;
        return;
    }
    for (int32_t i = 0; i < width; i++) {
        sums->mean[i] += l->batch_mean[i];
        sums->variance[i] += l->batch_variance[i];
    }
}

static nm_status pass(listener *l, nm_task *task, nm_model *model, const nm_batches *batches, nm_error *err)
{
    nm_arena host;
    NM_TRY(nm_arena_init(&host, (size_t)1 << 34, err));
    nm_status status = NM_OK;
    for (int64_t i = 0; i < l->tid->batches && status == NM_OK; i++) {
        nm_batch batch = task->type->batch(task, NM_SPLIT_TRAIN, batches, i, 0, false, &host);
        nm_tape_start(l->tape, false, 0, 0);
        l->tape->batch_stats = true;
        model->type->forward(model, l->tape, &batch);
        if (nm_tape_exhausted(l->tape))
            status = nm_fail(err, NM_MEMORY, "a batch of %d tokens doesn't fit", batch.source.n_tokens);
    }
    nm_arena_release(&host);
    return status;
}

static nm_status both_passes(listener *l, nm_task *task, nm_model *model, const nm_batches *batches,
                             nm_error *err)
{
    NM_TRY(pass(l, task, model, batches, err));
    double n = (double)l->tid->batches;
    for (size_t s = 0; s < l->tid->n; s++)
        for (int32_t i = 0; i < l->sums[s].width; i++) {
            l->sums[s].mean[i] /= n;
            l->sums[s].variance[i] /= n;
        }
    l->second_pass = true;
    NM_TRY(pass(l, task, model, batches, err));
    for (size_t s = 0; s < l->tid->n; s++) {
        l->tid->sites[s].mean = l->sums[s].ratio_mean / n;
        l->tid->sites[s].variance = l->sums[s].ratio_variance / n;
    }
    return NM_OK;
}

nm_status nm_tid_measure(nm_tid *tid, nm_task *task, nm_model *model, int64_t max_batches, nm_error *err)
{
    *tid = (nm_tid){0};
    nm_tape tape;
    NM_TRY(nm_tape_init(&tape, model->backend, (size_t)1 << 36, err));
    listener l = {.backend = model->backend, .tape = &tape, .tid = tid};
    tape.listen = listen;
    tape.listener = &l;
    nm_batches batches = {0};
    nm_status status = task->type->epoch(task, NM_SPLIT_TRAIN, 0, true, &batches, err);
    if (status == NM_OK) {
        tid->batches = max_batches && max_batches < batches.n ? max_batches : batches.n;
        nm_norm_memory memory =
            nm_norm_memory_keep(&model->params); /* batch-type norms move it with every batch */
        status = both_passes(&l, task, model, &batches, err);
        nm_norm_memory_put_back(&memory, &model->params);
        nm_batches_release(&batches);
    }
    for (size_t s = 0; s < tid->n; s++) {
        free(l.sums[s].mean);
        free(l.sums[s].variance);
    }
    free(l.sums);
    free(l.batch_mean);
    free(l.batch_variance);
    nm_tape_release(&tape);
    if (status != NM_OK)
        nm_tid_release(tid);
    return status;
}

void nm_tid_release(nm_tid *tid)
{
    free(tid->sites);
    *tid = (nm_tid){0};
}

const nm_tid_site *nm_tid_last(const nm_tid *tid)
{
    const nm_tid_site *last = tid->n ? &tid->sites[tid->n - 1] : NULL;
    for (size_t i = 0; i < tid->n; i++) {
        const char *name = tid->sites[i].name, *end = strstr(name, ".ffn.norm");
        if (!strncmp(name, "enc.", 4) && end && !end[9])
            last = &tid->sites[i];
    }
    return last;
}
