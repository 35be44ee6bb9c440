#include "probe/tid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/eval_pass.h"
#include "probe/numbers.h"

/* ROW_EPSILON: PowerNorm's epsilon, added to the mean square of a row. */
static const double TINY = 1e-12, ROW_EPSILON = 1e-5;

typedef struct site_sums {
    int32_t width;
    int64_t batches;                  /* of the current pass */
    double *mean, *variance, *square; /* first pass: sums; second pass: means over the batches */
    nm_tid_site result;               /* second pass: sums of the ratios */
} site_sums;

struct nm_tid_accumulator {
    site_sums *sites;
    size_t n, capacity;
    bool second_pass;
};

nm_tid_accumulator *nm_tid_accumulator_create(void)
{
    return nm_allocate(sizeof(nm_tid_accumulator));
}

static site_sums *find_site(nm_tid_accumulator *acc, const nm_norm *norm, int32_t width)
{
    for (size_t i = 0; i < acc->n; i++)
        if (!strcmp(acc->sites[i].result.name, norm->site.name))
            return &acc->sites[i];
    NM_GROW(acc->sites, acc->n, acc->capacity);
    site_sums *site = &acc->sites[acc->n++];
    *site = (site_sums){.width = width,
                        .mean = nm_allocate((size_t)width * sizeof(double)),
                        .variance = nm_allocate((size_t)width * sizeof(double)),
                        .square = nm_allocate((size_t)width * sizeof(double)),
                        .result = {.uses_batch = (norm->type->traits & NM_USES_BATCH) != 0}};
    snprintf(site->result.name, sizeof site->result.name, "%s", norm->site.name);
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
    site->result.mean += sqrt(mean) / (sqrt(sigma) + TINY);
    site->result.variance += sqrt(deviation) / (sqrt(sigma) + TINY);
    site->result.square += sqrt(root) / (sqrt(psi) + TINY);
}

/* mean, variance, square: of the batch, device [width]. */
static void add_batch(nm_tid_accumulator *acc, const nm_norm_call *call, const void *mean,
                      const void *variance, const void *square)
{
    nm_backend *b = call->backend;
    site_sums *site = find_site(acc, call->norm, call->x.cols);
    size_t width = (size_t)site->width;
    NM_AUTO_FREE double *m = nm_vector_values(b, mean, width), *v = nm_vector_values(b, variance, width),
                        *s = nm_vector_values(b, square, width);
    for (size_t i = 0; i < width && !acc->second_pass; i++) {
        site->mean[i] += m[i];
        site->variance[i] += v[i];
        site->square[i] += s[i];
    }
    if (acc->second_pass)
        add_ratios(site, m, v, s);
    site->batches++;
}

void nm_tid_accumulate(void *accumulator, const nm_norm_call *call, bool backward)
{
    nm_backend *b = call->backend;
    int32_t heads = call->norm->site.groups, head_groups = heads > 0 && call->x.cols % heads == 0 ? heads : 1;
    size_t unit = nm_dtype_bytes(b->dtype), bytes = (size_t)call->x.cols * unit;
    if (backward)
        return;
    void *mean = call->alloc(call->allocator, bytes), *variance = call->alloc(call->allocator, bytes),
         *square = call->alloc(call->allocator, bytes),
         *head_scale = call->alloc(call->allocator, (size_t)call->x.rows * (size_t)head_groups * unit);
    if (!head_scale)
        return;
    int32_t own_groups;
    void *own_scale = nm_call_row_scale(call, &own_groups); /* NULL: the norm does not scale its rows */
    const nm_feature_norm own = {.groups = own_groups, .row_scale_ready = true},
                          per_head = {.groups = head_groups, .eps = ROW_EPSILON};
    NM_CALL(b, feature_moments, .spec = &own, .x = call->x, .row_scale = own_scale, .center = mean,
            .mean = mean, .square = variance);
    NM_CALL(b, feature_moments, .spec = own_scale ? &own : &per_head, .x = call->x,
            .row_scale = own_scale ? own_scale : head_scale, .square = square);
    add_batch(accumulator, call, mean, variance, square);
}

void nm_tid_accumulator_start_second_pass(nm_tid_accumulator *acc)
{
    for (size_t s = 0; s < acc->n; s++) {
        site_sums *site = &acc->sites[s];
        for (int32_t i = 0; i < site->width; i++) {
            site->mean[i] /= (double)site->batches;
            site->variance[i] /= (double)site->batches;
            site->square[i] /= (double)site->batches;
        }
        site->batches = 0;
    }
    acc->second_pass = true;
}

/* Whether a site's name is `prefix` or continues it with a dot: "enc" and "enc.0" are prefixes of
 * "enc.0.ffn.norm". */
static bool has_prefix(const char *name, const char *prefix, size_t length)
{
    return !strncmp(name, prefix, length) && (!name[length] || name[length] == '.');
}

static size_t select_prefix(nm_tid *tid, const char *prefix, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < tid->n; i++)
        if (has_prefix(tid->sites[i].name, prefix, length)) {
            tid->sites[i].averaged = true;
            n++;
        }
    return n;
}

static void select_all(nm_tid *tid, bool averaged)
{
    for (size_t i = 0; i < tid->n; i++)
        tid->sites[i].averaged = averaged;
}

static void select_default(nm_tid *tid)
{
    size_t n = 0;
    for (size_t i = 0; i < tid->n; i++)
        n += tid->sites[i].averaged = tid->sites[i].uses_batch;
    if (!n && !select_prefix(tid, "enc", 3))
        select_all(tid, true);
}

nm_status nm_tid_select(nm_tid *tid, const char *sites, nm_error *err)
{
    const bool all = !strcmp(sites, "all"), by_default = !strcmp(sites, "auto");
    select_all(tid, all);
    if (by_default)
        select_default(tid);
    if (all || by_default)
        return NM_OK;
    for (const char *at = sites; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length && !select_prefix(tid, at, length))
            return nm_fail(err, NM_USAGE,
                           "no norm of this model has a name that begins with '%.*s'; the first one is %s",
                           (int)length, at, tid->n ? tid->sites[0].name : "not there");
        at += length;
    }
    return NM_OK;
}

void nm_tid_accumulator_finish(nm_tid_accumulator *acc, nm_tid *tid)
{
    *tid = (nm_tid){.n = acc->n, .sites = nm_allocate((acc->n + 1) * sizeof *tid->sites)};
    for (size_t s = 0; s < acc->n; s++) {
        site_sums *site = &acc->sites[s];
        double n = (double)site->batches;
        tid->sites[s] = site->result;
        tid->sites[s].mean /= n;
        tid->sites[s].variance /= n;
        tid->sites[s].square /= n;
        tid->batches = site->batches;
        NM_FREE(site->mean, site->variance, site->square);
    }
    select_default(tid);
    NM_FREE(acc->sites, acc);
}

nm_status nm_tid_measure(nm_tid *tid, nm_task *task, nm_model *model, int64_t max_batches, nm_error *err)
{
    nm_tid_accumulator *acc = nm_tid_accumulator_create();
    const nm_eval_pass pass = {.task = task,
                               .model = model,
                               .split = NM_SPLIT_TRAIN,
                               .kind = NM_EVAL_PASS_BATCH,
                               .max_batches = max_batches,
                               .user = acc,
                               .norm = nm_tid_accumulate};
    nm_status status = nm_eval_pass_run(&pass, NULL, err);
    nm_tid_accumulator_start_second_pass(acc);
    NM_THEN(status, nm_eval_pass_run(&pass, NULL, err));
    nm_tid_accumulator_finish(acc, tid);
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
    static const char suffix[] = ".ffn.norm";
    const nm_tid_site *last = tid->n ? &tid->sites[tid->n - 1] : NULL, *feed_forward = NULL, *encoder = NULL;
    for (size_t i = 0; i < tid->n; i++) {
        const char *name = tid->sites[i].name, *end = strstr(name, suffix);
        if (!end || end[sizeof suffix - 1])
            continue;
        feed_forward = &tid->sites[i];
        if (has_prefix(name, "enc", 3))
            encoder = feed_forward;
    }
    return encoder ? encoder : feed_forward ? feed_forward : last;
}

nm_tid_site nm_tid_average(const nm_tid *tid)
{
    nm_tid_site average = {.name = "average"};
    double n = 0;
    for (size_t i = 0; i < tid->n; i++)
        n += tid->sites[i].averaged;
    for (size_t i = 0; i < tid->n; i++) {
        if (!tid->sites[i].averaged)
            continue;
        average.mean += tid->sites[i].mean / n;
        average.variance += tid->sites[i].variance / n;
        average.square += tid->sites[i].square / n;
    }
    return average;
}

static NM_FIELDS(nm_tid_site, NM_TID_SITE)

#define TID(F)                                                                                               \
    F(int, batches, "Number of batches of each pass")                                                        \
    F(json, last, "TID of the last layer")                                                                   \
    F(json, average, "Average over the selected sites")                                                      \
    F(json, sites, "TID of each norm site")
NM_RECORD(tid_line, TID)
static NM_FIELDS(tid_line, TID)

json_t *nm_tid_json(const nm_tid *tid)
{
    const nm_field *fields = nm_tid_site_fields();
    const nm_tid_site average = nm_tid_average(tid), *last = nm_tid_last(tid);
    const tid_line line = {.batches = tid->batches,
                           .last = last ? nm_record_json(fields, last) : json_null(),
                           .average = last ? nm_record_json(fields, &average) : json_null(),
                           .sites = nm_record_array(fields, tid->sites, sizeof *tid->sites, tid->n)};
    return nm_record_json(tid_line_fields(), &line);
}
