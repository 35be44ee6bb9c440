/* The runs of a comparison, and the summaries of their results. */
#include <math.h>

#include "base/file.h"
#include "base/memory.h"
#include "experiment/experiment.h"

/* The name of a variant may contain a path, so '/' becomes '_'. */
static char *run_folder(const char *folder, const char *variant, int64_t seed)
{
    NM_AUTO_FREE char *name = nm_format("%s-%lld", variant, (long long)seed);
    for (char *at = name; *at; at++)
        if (*at == '/')
            *at = '_';
    return nm_path_join(folder, name);
}

static void add_summaries(nm_experiment *c)
{
    size_t seeds = (size_t)c->config.seeds;
    c->table.summaries = nm_allocate((c->points.n + 1) * sizeof *c->table.summaries);
    c->table.n = c->points.n;
    c->table.margin = c->config.margin;
    c->table.factorial = c->factorial.n_cells ? &c->factorial : NULL;
    for (size_t p = 0; p < c->points.n; p++) {
        nm_variant_summary *summary = &c->table.summaries[p];
        *summary = (nm_variant_summary){.variant = &c->points.list[p],
                                        .n = seeds,
                                        .name = c->points.list[p].name,
                                        .seeds = (int64_t)seeds,
                                        .grid_point = c->points.list[p].point};
        summary->results = nm_allocate(seeds * sizeof *summary->results);
        for (size_t i = 0; i < seeds; i++)
            summary->results[i] = &c->queue.jobs[p * seeds + i].result;
    }
}

nm_status nm_experiment_add_runs(nm_experiment *c, nm_error *err)
{
    enum { MAX_RUNS = 10000 };
    nm_run_queue *queue = &c->queue;
    if (c->points.n * (size_t)c->config.seeds > MAX_RUNS)
        return nm_fail(err, NM_USAGE, "%zu variants with %lld seeds are more than %d runs", c->points.n,
                       (long long)c->config.seeds, MAX_RUNS);
    for (size_t p = 0; p < c->points.n; p++)
        for (int64_t seed = 1; seed <= c->config.seeds; seed++) {
            const nm_variant *variant = &c->points.list[p];
            NM_GROW(queue->jobs, queue->n, queue->capacity);
            char *folder = run_folder(c->folder, variant->name, seed);
            queue->jobs[queue->n++] =
                (nm_run_job){.variant = variant,
                             .folder = folder,
                             .log_path = nm_format("%s.txt", folder),
                             .result = {.variant = variant->name, .seed = seed, .p = NAN}};
        }
    add_summaries(c);
    return NM_OK;
}
