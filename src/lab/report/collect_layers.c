/* Loss in score and TID against the number of layers with batch norms, which norm.at varies: Wang et al.
 * 2022, figure 3. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/summary.h"
#include "norma/norm_type.h"
#include "report/collect_grid.h"
#include "report/norm_colors.h"

static const nm_norm_type *batch_norm_named(const char *name, size_t length)
{
    for (int i = 0; nm_norm_types[i]; i++)
        if (strlen(nm_norm_types[i]->name) == length && !strncmp(nm_norm_types[i]->name, name, length))
            return nm_norm_types[i]->traits & NM_USES_BATCH ? nm_norm_types[i] : NULL;
    return NULL;
}

/* The norm with batch statistics of a run: the norm of the model, or the first such norm in norm.at; NULL:
 * none. */
static const nm_norm_type *batch_norm_of(const nm_report_run *run)
{
    const char *norm = nm_report_run_norm(run), *at = nm_report_run_setting(run, "norm.at");
    const nm_norm_type *type = batch_norm_named(norm, strlen(norm));
    while (!type && at && (at = strchr(at, '=')) != NULL) {
        at++;
        type = batch_norm_named(at, strcspn(at, ", "));
    }
    return type;
}

/* Whether the runs vary norm.at and no numeric setting, which would make the number of layers ambiguous. */
static bool varies_sites(const nm_report *report)
{
    bool any = false;
    for (size_t g = 0; g < report->grid.n_groups; g++) {
        const nm_report_run *run = &report->runs[report->grid.groups[g].runs.list[0]];
        const char *at = nm_report_run_setting(run, "norm.at");
        any |= at && *at && batch_norm_of(run);
        if (isnan(nm_report_run_last(run, "start/batch_layers")))
            return false;
    }
    return any && !report->grid.n_axes;
}

/* TID of the last layer, mean and range over the seeds. */
static nm_mean_score mean_tid(const nm_report *report, const nm_run_set *set, const char *quantity)
{
    NM_AUTO_FREE double *values = nm_allocate((set->n + 1) * sizeof *values);
    nm_mean_score tid = {.low = INFINITY, .high = -INFINITY};
    for (size_t i = 0; i < set->n; i++) {
        values[i] = nm_report_run_tid(&report->runs[set->list[i]], quantity);
        tid.low = fmin(tid.low, values[i]);
        tid.high = fmax(tid.high, values[i]);
    }
    nm_summary summary = nm_summary_of(values, set->n);
    tid.mean = summary.mean;
    tid.n = summary.n;
    return tid;
}

typedef struct layer_values { /* by group of the grid, each a point of the figure */
    double *layers, fewest;   /* number of layers with batch norms, and the smallest such number */
    nm_mean_score *values;
    bool tested;
    nm_score_bar bar;
} layer_values;

/* quantity: "@score" for the loss in score against the mean of the groups with the fewest batch layers;
 * otherwise a quantity of TID. */
static layer_values layer_values_of(const nm_report *report, const char *quantity)
{
    const nm_score_grid *grid = &report->grid;
    bool score = !strcmp(quantity, "@score");
    layer_values v = {.layers = nm_allocate((grid->n_groups + 1) * sizeof *v.layers), .fewest = INFINITY};
    nm_grid_scores s = nm_grid_scores_of(report); /* without axes, point g is group g */
    v.tested = s.tested;
    v.bar = score ? s.bar : NM_BAR_NONE;
    v.values = s.list;
    double sum = 0, n = 0;
    for (size_t g = 0; g < grid->n_groups; g++) {
        v.layers[g] = nm_report_run_last(&report->runs[grid->groups[g].runs.list[0]], "start/batch_layers");
        if (!score)
            v.values[g] = mean_tid(report, &grid->groups[g].runs, quantity);
        if (!score && v.values[g].n > 1)
            v.bar = NM_BAR_RANGE;
        v.fewest = v.values[g].n ? fmin(v.fewest, v.layers[g]) : v.fewest;
    }
    for (size_t g = 0; g < grid->n_groups && score; g++)
        if (v.layers[g] == v.fewest && v.values[g].n) {
            sum += v.values[g].mean;
            n++;
        }
    for (size_t g = 0; g < grid->n_groups && score; g++) {
        nm_mean_score *at = &v.values[g];
        double reference = sum / n, low = reference - at->high, high = reference - at->low;
        at->mean = (report->test_rises ? 1 : -1) * (reference - at->mean);
        at->low = report->test_rises ? low : -high;
        at->high = report->test_rises ? high : -low;
    }
    return v;
}

/* The curve of a norm: the groups that use it, and the groups without batch norms, which all curves share. */
static void add_norm_curve(const nm_report *report, const nm_norm_type *type, const layer_values *v,
                           const double *ticks, size_t n_ticks, nm_drawing *drawing)
{
    const nm_score_grid *grid = &report->grid;
    nm_curve *curve = nm_drawing_add(drawing, grid->groups[0].runs.list[0], grid->n_groups, true);
    curve->family = type->name;
    curve->name = nm_duplicate(type->name);
    curve->style.color = nm_norm_color_index(type->name);
    for (size_t g = 0; g < grid->n_groups; g++) {
        const nm_score_group *group = &grid->groups[g];
        if (!v->values[g].n ||
            (v->layers[g] > 0 && batch_norm_of(&report->runs[group->runs.list[0]]) != type))
            continue;
        curve->low[curve->n] = v->values[g].low;
        curve->high[curve->n] = v->values[g].high;
        nm_curve_add(curve, (double)nm_grid_index(ticks, n_ticks, v->layers[g]), v->values[g].mean);
        nm_curve_add_runs(curve, &group->runs);
    }
    nm_curve_sort(curve);
    nm_drawing_drop_empty(drawing);
}

static char *layers_note(const layer_values *v, bool score)
{
    static const char *const bars[] = {[NM_BAR_NONE] = "",
                                       [NM_BAR_INTERVAL] = " Bars are 95 % intervals of the score.",
                                       [NM_BAR_RANGE] = " Bars are ranges over the seeds."};
    return score ? nm_format("%s score, compared with that of the runs with %g such layers.%s",
                             v->tested ? "Test" : "Best validation", v->fewest, bars[v->bar])
                 : nm_format("TID of the best model at the last layer, regardless of the type of its norm.%s",
                             bars[v->bar]);
}

void nm_collect_batch_layers(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    const nm_score_grid *grid = &report->grid;
    if (!varies_sites(report))
        return;
    bool score = !strcmp(figure->tag, "@score");
    layer_values v = layer_values_of(report, figure->tag);
    double *ticks = nm_allocate((grid->n_groups + 1) * sizeof *ticks);
    size_t n = 0;
    for (size_t g = 0; g < grid->n_groups; g++)
        if (v.values[g].n)
            ticks[n++] = v.layers[g];
    n = nm_keep_distinct(ticks, n);
    for (size_t g = 0; g < grid->n_groups && n > 1; g++) {
        const nm_norm_type *type = batch_norm_of(&report->runs[grid->groups[g].runs.list[0]]);
        size_t c = 0;
        while (type && c < drawing->n && strcmp(drawing->curves[c].family, type->name))
            c++;
        if (type && c == drawing->n && v.layers[g] > 0)
            add_norm_curve(report, type, &v, ticks, n, drawing);
    }
    if (drawing->n) {
        for (size_t i = 0; i < n; i++)
            nm_drawing_add_value(drawing, ticks[i]);
        drawing->at = ticks;
        drawing->spread = drawing->n > 1 ? NM_GRID_SPREAD : 0;
        drawing->legend = true;
        drawing->note = layers_note(&v, score);
    } else {
        free(ticks);
    }
    NM_FREE(v.layers, v.values);
}
