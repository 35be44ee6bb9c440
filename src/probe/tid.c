#include "probe/tid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/numbers.h"
#include "probe/eval_pass.h"

static const double TINY = 1e-12, ROW_EPSILON = 1e-5; /* PowerNorm's */

typedef struct site_sums {
    char name[128];
    int32_t width;
    int64_t batches;                  /* of the pass at hand */
    double *mean, *variance, *square; /* first pass: sums; afterwards: means over the batches */
    nm_tid_site ratios;               /* sums of the second pass */
} site_sums;

struct nm_tid_sums {
    site_sums *sites;
    size_t n, capacity;
    bool second_pass;
};

nm_tid_sums *nm_tid_begin(void)
{
    return nm_allocate(sizeof(nm_tid_sums));
}

static site_sums *find_site(nm_tid_sums *sums, const char *name, int32_t width)
{
    for (size_t i = 0; i < sums->n; i++)
        if (!strcmp(sums->sites[i].name, name))
            return &sums->sites[i];
    NM_GROW(sums->sites, sums->n, sums->capacity);
    site_sums *site = &sums->sites[sums->n++];
    *site = (site_sums){.width = width,
                        .mean = nm_allocate((size_t)width * sizeof(double)),
                        .variance = nm_allocate((size_t)width * sizeof(double)),
                        .square = nm_allocate((size_t)width * sizeof(double))};
    snprintf(site->name, sizeof site->name, "%s", name);
    return site;
}

static void add_ratios(site_sums *site, const double *batch_mean, const double *batch_variance,
                       const double *batch_square)
{
    double mean = 0, deviation = 0, root = 0, sigma = 0, psi = 0;
    for (int32_t i = 0; i < site->width; i++) {
        double m = batch_mean[i] - site->mean[i], d = sqrt(batch_variance[i]) - sqrt(site->variance[i]),
               r = sqrt(batch_square[i]) - sqrt(site->square[i]);
        mean += m * m;
        deviation += d * d;
        root += r * r;
        sigma += site->variance[i];
        psi += site->square[i];
    }
    site->ratios.mean += sqrt(mean) / (sqrt(sigma) + TINY);
    site->ratios.variance += sqrt(deviation) / (sqrt(sigma) + TINY);
    site->ratios.square += sqrt(root) / (sqrt(psi) + TINY);
}

static void add_batch(nm_tid_sums *sums, const nm_norm_call *call, const void *mean, const void *variance,
                      const void *square)
{
    nm_backend *b = call->backend;
    site_sums *site = find_site(sums, call->norm->place.name, call->x.cols);
    size_t width = (size_t)site->width;
    double *m = nm_numbers_download(b, mean, width), *v = nm_numbers_download(b, variance, width),
           *s = nm_numbers_download(b, square, width);
    for (size_t i = 0; i < width && !sums->second_pass; i++) {
        site->mean[i] += m[i];
        site->variance[i] += v[i];
        site->square[i] += s[i];
    }
    if (sums->second_pass)
        add_ratios(site, m, v, s);
    site->batches++;
    free(m);
    free(v);
    free(s);
}

void nm_tid_listen(void *user, const nm_norm_call *call, bool backward)
{
    nm_backend *b = call->backend;
    int32_t heads = call->norm->place.heads, groups = heads > 0 && call->x.cols % heads == 0 ? heads : 1;
    size_t unit = nm_dtype_bytes(b->dtype), bytes = (size_t)call->x.cols * unit;
    if (backward)
        return;
    void *mean = call->take(call->from, bytes), *variance = call->take(call->from, bytes),
         *square = call->take(call->from, bytes),
         *row_scale = call->take(call->from, (size_t)call->x.rows * (size_t)groups * unit);
    if (!row_scale)
        return;
    const nm_feature_norm plain = {.groups = 0}, scaled = {.groups = groups, .eps = ROW_EPSILON};
    b->k.feature_moments(b, &plain, call->x, NULL, mean, mean, variance);
    b->k.feature_moments(b, &scaled, call->x, row_scale, NULL, NULL, square);
    add_batch(user, call, mean, variance, square);
}

void nm_tid_turn(nm_tid_sums *sums)
{
    for (size_t s = 0; s < sums->n; s++) {
        site_sums *site = &sums->sites[s];
        for (int32_t i = 0; i < site->width; i++) {
            site->mean[i] /= (double)site->batches;
            site->variance[i] /= (double)site->batches;
            site->square[i] /= (double)site->batches;
        }
        site->batches = 0;
    }
    sums->second_pass = true;
}

void nm_tid_finish(nm_tid_sums *sums, nm_tid *tid)
{
    *tid = (nm_tid){.n = sums->n, .sites = nm_allocate((sums->n + 1) * sizeof *tid->sites)};
    for (size_t s = 0; s < sums->n; s++) {
        site_sums *site = &sums->sites[s];
        double n = (double)site->batches;
        tid->sites[s] = (nm_tid_site){.mean = site->ratios.mean / n,
                                      .variance = site->ratios.variance / n,
                                      .square = site->ratios.square / n};
        memcpy(tid->sites[s].name, site->name, sizeof site->name);
        tid->batches = site->batches;
        free(site->mean);
        free(site->variance);
        free(site->square);
    }
    free(sums->sites);
    free(sums);
}

nm_status nm_tid_measure(nm_tid *tid, nm_task *task, nm_model *model, int64_t max_batches, nm_error *err)
{
    nm_tid_sums *sums = nm_tid_begin();
    const nm_eval_pass pass = {.task = task,
                               .model = model,
                               .split = NM_SPLIT_TRAIN,
                               .kind = NM_EVAL_PASS_BATCH,
                               .max_batches = max_batches,
                               .user = sums,
                               .norm = nm_tid_listen};
    nm_status status = nm_eval_pass_run(&pass, NULL, err);
    nm_tid_turn(sums);
    if (status == NM_OK)
        status = nm_eval_pass_run(&pass, NULL, err);
    nm_tid_finish(sums, tid);
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

nm_tid_site nm_tid_average(const nm_tid *tid)
{
    nm_tid_site average = {.name = "average"};
    double n = (double)tid->n;
    for (size_t i = 0; i < tid->n; i++) {
        average.mean += tid->sites[i].mean / n;
        average.variance += tid->sites[i].variance / n;
        average.square += tid->sites[i].square / n;
    }
    return average;
}
