/* Collectors: series to curves, by update or time, by site or across runs. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "report/figure.h"

#define MARK_SPREAD 0.6 /* fraction of the distance between two ticks */

typedef struct pattern {
    char text[160];
} pattern;

static bool has_any(const nm_report_run *run, const char *tag)
{
    for (size_t i = 0; i < run->n_series; i++)
        if (nm_tag_match(tag, run->series[i].tag, NULL, NULL))
            return true;
    for (size_t i = 0; i < run->n_vectors; i++)
        if (nm_tag_match(tag, run->vectors[i].tag, NULL, NULL))
            return true;
    return false;
}

/* The first of the figure's patterns for which the run has values, or the last one. */
static pattern pattern_of(const nm_figure *figure, const nm_report *report, const nm_report_run *run)
{
    const char *at = strcmp(figure->tag, "@score") ? figure->tag : report->score_tag;
    pattern p;
    for (;;) {
        size_t length = strcspn(at, "|");
        snprintf(p.text, sizeof p.text, "%.*s", (int)length, at);
        if (!at[length] || has_any(run, p.text))
            return p;
        at += length + 1;
    }
}

char *nm_figure_text(const char *text, const nm_report *report)
{
    size_t before = strcspn(text, "@#");
    const char *name = text[before] == '#' ? report->test_name : report->score_name;
    return text[before] ? nm_format("%.*s%s%s", (int)before, text, name, text + before + 1)
                        : nm_duplicate(text);
}

typedef struct sums { /* sums of one run over the matching sites, by update or time */
    double *x, *sum;
    size_t *count, n, capacity;
} sums;

static void insert_x(sums *s, size_t at, double x)
{
    size_t capacity[2] = {s->capacity, s->capacity};
    NM_GROW(s->x, s->n, capacity[0]);
    NM_GROW(s->sum, s->n, capacity[1]);
    NM_GROW(s->count, s->n, s->capacity);
    memmove(s->x + at + 1, s->x + at, (s->n - at) * sizeof *s->x);
    memmove(s->sum + at + 1, s->sum + at, (s->n - at) * sizeof *s->sum);
    memmove(s->count + at + 1, s->count + at, (s->n - at) * sizeof *s->count);
    s->x[at] = x;
    s->sum[at] = 0;
    s->count[at] = 0;
    s->n++;
}

/* Adds a series, minus the values of another series at the same updates. x ascends within a series, so each
 * search starts where the last one ended. */
static void add_series(sums *s, const nm_series *series, const nm_series *minus, bool seconds)
{
    size_t at = 0, other = 0;
    for (size_t i = 0; i < series->n; i++) {
        double x = seconds ? series->seconds[i] : series->update[i], y = series->value[i];
        if (minus) {
            while (other < minus->n && minus->update[other] < series->update[i])
                other++;
            if (other == minus->n || minus->update[other] > series->update[i])
                continue;
            y -= minus->value[other];
        }
        while (at < s->n && s->x[at] < x)
            at++;
        if (at == s->n || s->x[at] > x) /* no other site has a value at this x */
            insert_x(s, at, x);
        s->sum[at] += y;
        s->count[at]++;
    }
}

static double largest_time(const nm_report *report, const nm_figure *figure)
{
    double largest = 0;
    for (size_t r = 0; r < report->n; r++) {
        pattern tag = pattern_of(figure, report, &report->runs[r]);
        const nm_series *series = nm_report_run_find(&report->runs[r], tag.text);
        for (size_t i = 0; series && i < series->n; i++)
            largest = fmax(largest, series->seconds[i]);
    }
    return largest;
}

/* "enc.2.ffn.norm": layer 2 of the stack enc; false for a site outside layers. */
static bool layer_of(const char *site, size_t length, size_t *stack, long *layer)
{
    const char *dot = memchr(site, '.', length);
    if (!dot || !isdigit((unsigned char)dot[1]))
        return false;
    *stack = (size_t)(dot - site);
    *layer = strtol(dot + 1, NULL, 10);
    return true;
}

/* The series of the last site in the last layer of the first stack; NULL if no site is in a layer. */
static const nm_series *last_layer_series(const nm_report_run *run, const char *tag)
{
    const nm_series *top = NULL;
    const char *first = NULL, *site;
    size_t length, stack, first_stack = 0;
    long layer, highest = 0;
    for (size_t i = 0; i < run->n_series; i++) {
        const nm_series *series = &run->series[i];
        if (!nm_tag_match(tag, series->tag, &site, &length) || !layer_of(site, length, &stack, &layer))
            continue;
        if (!first) {
            first = site;
            first_stack = stack;
        }
        if (stack == first_stack && !memcmp(site, first, stack) && (!top || layer >= highest)) {
            top = series;
            highest = layer;
        }
    }
    return top;
}

/* Adds the series of a run at the sites of the figure. */
static void add_sites(sums *s, const nm_figure *figure, const nm_report_run *run, const char *tag)
{
    const nm_series *minus = figure->minus ? nm_report_run_find(run, figure->minus) : NULL;
    const nm_series *top = figure->sites == NM_SITES_LAST_LAYER ? last_layer_series(run, tag) : NULL;
    if (figure->minus && !minus)
        return;
    for (size_t i = 0; i < run->n_series; i++) {
        const nm_series *series = &run->series[i];
        if (!nm_tag_match(tag, series->tag, NULL, NULL) ||
            (figure->sites == NM_SITES_LAST_LAYER && series != top))
            continue;
        add_series(s, series, minus, figure->x_seconds);
        if (figure->sites == NM_SITES_FIRST)
            break;
    }
}

void nm_collect_history(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    double unit = 1;
    if (figure->x_seconds) {
        double largest = largest_time(report, figure);
        unit = largest < 600 ? 1 : largest < 3 * 3600 ? 60 : 3600;
        drawing->x_unit = unit < 2 ? "s" : unit < 100 ? "min" : "h";
    }
    for (size_t r = 0; r < report->n; r++) {
        const nm_report_run *run = &report->runs[r];
        pattern tag = pattern_of(figure, report, run);
        sums s = {0};
        add_sites(&s, figure, run, tag.text);
        nm_curve *curve = nm_drawing_add(drawing, r, s.n, false);
        for (size_t i = 0; i < s.n; i++)
            nm_curve_add(curve, s.x[i] / unit, s.sum[i] / (double)s.count[i]);
        nm_drawing_drop_empty(drawing);
        NM_FREE(s.x, s.sum, s.count);
    }
}

void nm_collect_unless_score(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    if (strcmp(figure->tag, report->score_tag))
        nm_collect_history(report, figure, drawing);
}

void nm_collect_checkpoints(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    nm_collect_history(report, figure, drawing);
    size_t kept = 0;
    for (size_t c = 0; c < drawing->n; c++) {
        nm_curve curve = drawing->curves[c];
        if (curve.n < 2)
            nm_curve_release(&curve);
        else
            drawing->curves[kept++] = curve;
    }
    drawing->n = kept;
}

static double tick_of(nm_drawing *drawing, const char *site, size_t length)
{
    if (length > 5 && !strncmp(site + length - 5, ".norm", 5))
        length -= 5;
    char *name = nm_format("%.*s", (int)length, site);
    for (size_t i = 0; i < drawing->n_ticks; i++)
        if (!strcmp(drawing->ticks[i], name)) {
            free(name);
            return (double)i;
        }
    NM_GROW(drawing->ticks, drawing->n_ticks, drawing->ticks_capacity);
    drawing->ticks[drawing->n_ticks] = name;
    return (double)drawing->n_ticks++;
}

/* The value of a series in a figure by site: the median or the last value; for measurements of checkpoints,
 * the value of the best model. */
static double summary_value(const nm_figure *figure, const nm_report_run *run, const nm_series *series)
{
    if (figure->median)
        return nm_median(series->value, series->n);
    double best =
        strncmp(series->tag, "inspect/", 8) ? NAN : nm_series_at(series, nm_report_run_best_update(run));
    return isfinite(best) ? best : series->value[series->n - 1];
}

void nm_collect_sites(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    const char *site;
    size_t length;
    for (size_t r = 0; r < report->n; r++) {
        const nm_report_run *run = &report->runs[r];
        pattern tag = pattern_of(figure, report, run);
        nm_curve *curve = nm_drawing_add(drawing, r, run->n_series, false);
        for (size_t i = 0; i < run->n_series; i++) {
            const nm_series *series = &run->series[i];
            if (series->n && nm_tag_match(tag.text, series->tag, &site, &length))
                nm_curve_add(curve, tick_of(drawing, site, length), summary_value(figure, run, series));
        }
        nm_drawing_drop_empty(drawing);
    }
    drawing->spread = MARK_SPREAD;
}

bool nm_tick_same_kind(const char *a, const char *b)
{
    for (;;) {
        bool number = isdigit((unsigned char)*a) && isdigit((unsigned char)*b);
        if (number) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a != *b) {
            return false;
        } else if (!*a++) {
            return true;
        } else {
            b++;
        }
    }
}

/* Attention, then feed-forward, then the others, as in the panels of the papers. */
static int kind_rank(const char *tick)
{
    static const char *const parts[] = {".self", ".cross", ".ffn"};
    int n = sizeof parts / sizeof *parts;
    for (int i = 0; i < n; i++)
        if (strstr(tick, parts[i]))
            return i;
    return n;
}

/* The new position of each site: by rank of its kind, then by first occurrence of the kind. Sites of one kind
 * occur in the order of their depth. Heap. */
static size_t *order_by_depth(char **ticks, size_t n)
{
    size_t *key = nm_allocate((n + 1) * sizeof *key), *position = nm_allocate((n + 1) * sizeof *position);
    for (size_t i = 0; i < n; i++) {
        size_t kind = 0;
        while (!nm_tick_same_kind(ticks[kind], ticks[i]))
            kind++;
        key[i] = (size_t)kind_rank(ticks[i]) * n + kind;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            position[i] += key[k] < key[i] || (k < i && key[k] == key[i]);
    free(key);
    return position;
}

void nm_collect_depth(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    nm_collect_sites(report, figure, drawing);
    size_t n = drawing->n_ticks;
    NM_AUTO_FREE size_t *position = order_by_depth(drawing->ticks, n);
    NM_AUTO_FREE char **ticks = nm_allocate((n + 1) * sizeof *ticks);
    for (size_t i = 0; i < n; i++)
        ticks[position[i]] = drawing->ticks[i];
    for (size_t i = 0; i < n; i++)
        drawing->ticks[i] = ticks[i];
    for (size_t c = 0; c < drawing->n; c++) {
        nm_curve *curve = &drawing->curves[c];
        for (size_t i = 0; i < curve->n; i++)
            curve->x[i] = (double)position[(size_t)curve->x[i]];
        nm_curve_sort(curve);
    }
}

/* Uses the last vector of each site: quantiles in equal steps from the minimum to the maximum. */
void nm_collect_quantiles(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    const char *site;
    size_t length;
    for (size_t r = 0; r < report->n; r++) {
        const nm_report_run *run = &report->runs[r];
        nm_curve *curve = nm_drawing_add(drawing, r, run->n_vectors, true);
        for (size_t i = 0; i < run->n_vectors; i++) {
            const nm_vector *v = &run->vectors[i];
            if (v->n < 3 || !nm_tag_match(figure->tag, v->tag, &site, &length))
                continue;
            double x = tick_of(drawing, site, length);
            size_t at = 0, tenth = (v->n - 1) / 10;
            while (at < curve->n && curve->x[at] != x)
                at++;
            curve->n = at == curve->n ? at + 1 : curve->n;
            curve->x[at] = x;
            curve->y[at] = v->values[(v->n - 1) / 2];
            curve->low[at] = v->values[tenth];
            curve->high[at] = v->values[v->n - 1 - tenth];
        }
        nm_drawing_drop_empty(drawing);
    }
    drawing->spread = MARK_SPREAD;
}

void nm_collect_spectrum(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    for (size_t r = 0; r < report->n; r++) {
        const nm_report_run *run = &report->runs[r];
        const nm_vector *last = NULL;
        for (size_t i = 0; i < run->n_vectors; i++)
            if (nm_tag_match(figure->tag, run->vectors[i].tag, NULL, NULL))
                last = &run->vectors[i];
        nm_curve *curve = nm_drawing_add(drawing, r, last ? last->n : 0, false);
        for (size_t i = 0; last && i < last->n; i++)
            nm_curve_add(curve, (double)(i + 1), last->values[i]);
        nm_drawing_drop_empty(drawing);
    }
}

/* The run that the others are compared with: the first with a test score and no paired test; report->n:
 * none. */
static size_t reference_of(const nm_report *report)
{
    size_t first = report->n;
    for (size_t r = report->n; r-- > 0;) {
        const nm_report_result *result = &report->results[r];
        bool better = first == report->n || isnan(result->p) || !isnan(report->results[first].p);
        first = isfinite(result->score) && better ? r : first;
    }
    return first;
}

void nm_collect_test_scores(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    static const char *const titles[] = {[NM_BAR_NONE] = "Test #",
                                         [NM_BAR_INTERVAL] = "Test #, mean and 95 % interval",
                                         [NM_BAR_RANGE] = "Test #, mean and range over the seeds"};
    (void)figure;
    NM_AUTO_FREE nm_run_set *sets = nm_allocate((report->n + 1) * sizeof *sets);
    for (size_t r = 0; r < report->n; r++)
        sets[r] = nm_report_seeds(report, r);
    nm_score_bar bar = nm_report_bars(report, sets, report->n, true);
    for (size_t r = 0; r < report->n; r++) {
        nm_mean_score score = nm_report_mean_score(report, &sets[r], true, bar);
        free(sets[r].list);
        if (!score.n)
            continue;
        const char *name = report->runs[r].name;
        nm_curve *curve = nm_drawing_add(drawing, r, 1, true);
        nm_curve_add(curve, tick_of(drawing, name, strlen(name) - strlen(nm_name_seed(name))), score.mean);
        curve->low[0] = score.low;
        curve->high[0] = score.high;
    }
    drawing->title = nm_duplicate(titles[bar]);
    while (drawing->n == 1) { /* nothing to compare */
        drawing->curves[0].n = 0;
        nm_drawing_drop_empty(drawing);
    }
}

/* Only runs whose norms use batch statistics have a discrepancy: their logs contain the loss with batch
 * statistics. */
void nm_collect_score_gap(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    size_t reference = reference_of(report);
    double first = reference < report->n ? report->results[reference].score : NAN;
    for (size_t r = 0; r < report->n; r++) {
        if (!nm_report_run_find(&report->runs[r], "valid/batch_nll"))
            continue;
        nm_curve *curve = nm_drawing_add(drawing, r, 1, false);
        nm_curve_add(curve, nm_report_run_tid(&report->runs[r], figure->tag),
                     (first - report->results[r].score) * (report->test_rises ? 1 : -1));
        nm_drawing_drop_empty(drawing);
    }
    while (drawing->n && drawing->n < 3) { /* two points always lie on a line */
        drawing->curves[drawing->n - 1].n = 0;
        nm_drawing_drop_empty(drawing);
    }
}
