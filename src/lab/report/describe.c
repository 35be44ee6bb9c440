/* The description below a figure, computed from the drawn curves. A curve with more points than are visible
 * has the minimum and the maximum of each segment, or the mean if there are many curves (drawing.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "report/figure.h"

enum {
    FEW = 4,       /* runs that a sentence can list */
    MIN_POINTS = 8 /* with fewer, a correlation of 0.7 occurs by chance in more than 5 % of samples */
};

static void write_number(FILE *out, double value)
{
    char text[NM_NUMBER_BYTES];
    fputs(nm_number_show(text, value), out);
}

static void write_count(FILE *out, double value)
{
    char text[NM_NUMBER_BYTES];
    fputs(nm_count_show(text, value), out);
}

static void write_x(FILE *out, const nm_figure *figure, const nm_drawing *drawing, double x)
{
    if (figure->x_seconds) {
        fprintf(out, "%.*f %s", x < 10 ? 1 : 0, x, drawing->x_unit);
    } else {
        fputs("update ", out);
        write_count(out, x);
    }
}

typedef struct ranked {
    const nm_curve *curve;
    double value, x;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return x < y ? -1 : x > y;
}

static size_t best_point(const nm_curve *curve, bool falls)
{
    size_t best = 0;
    for (size_t i = 1; i < curve->n; i++)
        if (falls ? curve->y[i] < curve->y[best] : curve->y[i] > curve->y[best])
            best = i;
    return best;
}

/* Best first, by the best point of each run; heap. */
static ranked *rank_best(const nm_drawing *drawing, bool falls)
{
    ranked *list = nm_allocate((drawing->n + 1) * sizeof *list);
    for (size_t c = 0; c < drawing->n; c++) {
        size_t best = best_point(&drawing->curves[c], falls);
        list[c] = (ranked){&drawing->curves[c], drawing->curves[c].y[best] * (falls ? 1 : -1),
                           drawing->curves[c].x[best]};
    }
    qsort(list, drawing->n, sizeof *list, compare_ranked);
    for (size_t c = 0; c < drawing->n; c++)
        list[c].value *= falls ? 1 : -1;
    return list;
}

static void write_list(const nm_report *report, const ranked *list, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s%s ", i ? ", " : "", nm_curve_name(report, list[i].curve));
        write_number(out, list[i].value);
    }
}

/* Linear interpolation of a curve at x; NaN outside its points. */
static double value_at(const nm_curve *curve, double x)
{
    for (size_t i = 1; i < curve->n; i++)
        if (curve->x[i - 1] <= x && x <= curve->x[i] && curve->x[i] > curve->x[i - 1]) {
            double t = (x - curve->x[i - 1]) / (curve->x[i] - curve->x[i - 1]);
            return curve->y[i - 1] + t * (curve->y[i] - curve->y[i - 1]);
        }
    return curve->n == 1 && curve->x[0] == x ? curve->y[0] : NAN;
}

/* The x of the last point at which `worse` is not worse than `better`; -INFINITY if it is worse at every
 * common point; NaN if it is not worse at the last one. */
static double worse_after(const nm_curve *worse, const nm_curve *better, bool falls)
{
    double last = -INFINITY;
    size_t n_worse = 0;
    for (size_t i = 0; i < worse->n; i++) {
        double other = value_at(better, worse->x[i]);
        if (isnan(other))
            continue;
        if (falls ? worse->y[i] > other : worse->y[i] < other) {
            n_worse++;
        } else {
            last = worse->x[i];
            n_worse = 0;
        }
    }
    return n_worse ? last : NAN;
}

/* The last value at or before this update; NaN when there is none. */
static double value_until(const nm_series *series, double update)
{
    double value = NAN;
    for (size_t i = 0; i < series->n; i++)
        if (series->update[i] <= update)
            value = series->value[i];
    return value;
}

/* The largest value over the sites of a pattern at this update, and its site; NaN when there is none. */
static double largest_site(const nm_report_run *run, const char *pattern, double update, const char **site,
                           size_t *length)
{
    double most = NAN;
    const char *part;
    size_t part_len;
    for (size_t i = 0; i < run->n_series; i++) {
        if (!nm_tag_match(pattern, run->series[i].tag, &part, &part_len))
            continue;
        double value = value_until(&run->series[i], update);
        if (isnan(value) || value <= most)
            continue;
        most = value;
        *site = part;
        *length = part_len;
    }
    return most;
}

/* The run's statistics at this update: TID if its checkpoints were measured, otherwise the distance between
 * batch and running variance if that was recorded. */
static void write_statistics(const nm_report_run *run, double update, FILE *out)
{
    const char *site = "";
    size_t length = 0;
    double most;
    if (!nm_report_run_find(run, "valid/batch_nll"))
        return; /* its norms do not use batch statistics */
    if (isfinite(most = largest_site(run, "inspect/tid.sites/*/variance", update, &site, &length))) {
        fprintf(out, "; the variance TID of %.*s is then %.1f %%", (int)length, site, 100 * most);
    } else if (isfinite(most = largest_site(run, "probe/distance/*/variance", update, &site, &length))) {
        fprintf(out, "; the distance between batch and running variance of %.*s is then ", (int)length, site);
        write_number(out, most);
    }
}

static void write_worse_run(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                            const ranked *list, FILE *out)
{
    const ranked *worst = &list[drawing->n - 1];
    double after = worse_after(worst->curve, list[0].curve, nm_figure_falls(figure, report));
    if (isnan(after))
        return;
    if (after < 0) {
        fprintf(out, " %s is worse than %s from the start.", nm_curve_name(report, worst->curve),
                nm_curve_name(report, list[0].curve));
        return;
    }
    fprintf(out, " %s is worse than %s after ", nm_curve_name(report, worst->curve),
            nm_curve_name(report, list[0].curve));
    write_x(out, figure, drawing, after);
    if (!figure->x_seconds)
        write_statistics(&report->runs[worst->curve->run], after, out);
    putc('.', out);
}

/* The values at the end of the shortest run, which compare the speed of learning. */
static void write_common_time(const nm_report *report, const nm_drawing *drawing, FILE *out)
{
    double common = INFINITY;
    ranked list[FEW];
    size_t n = 0;
    for (size_t c = 0; c < drawing->n; c++)
        common = fmin(common, drawing->curves[c].x[drawing->curves[c].n - 1]);
    for (size_t c = 0; c < drawing->n && drawing->n <= FEW; c++) {
        list[n] = (ranked){&drawing->curves[c], value_at(&drawing->curves[c], common), common};
        n += isfinite(list[n].value) ? 1 : 0;
    }
    if (n < 2)
        return;
    fprintf(out, " After %.*f %s, the time of the shortest run: ", common < 10 ? 1 : 0, common,
            drawing->x_unit);
    write_list(report, list, n, out);
    putc('.', out);
}

void nm_describe_best(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    bool falls = nm_figure_falls(figure, report);
    ranked *list = rank_best(drawing, falls);
    if (report->data_problem && drawing->n > 1) {
        fputs("Best values: ", out);
        write_list(report, list, drawing->n <= 2 * FEW ? drawing->n : 2 * FEW, out);
        fprintf(out, "%s; not ranked: %s.", drawing->n > 2 * FEW ? ", ..." : "", report->data_problem);
        free(list);
        return;
    }
    fprintf(out, "%s has the %s value, ", nm_curve_name(report, list[0].curve), falls ? "lowest" : "highest");
    write_number(out, list[0].value);
    fputs(" at ", out);
    write_x(out, figure, drawing, list[0].x);
    if (drawing->n > 1) {
        fputs(drawing->n <= FEW ? "; the best of the others: " : "; the worst run: ", out);
        if (drawing->n <= FEW)
            write_list(report, list + 1, drawing->n - 1, out);
        else
            write_list(report, list + drawing->n - 1, 1, out);
    }
    putc('.', out);
    if (figure->x_seconds)
        write_common_time(report, drawing, out);
    else if (drawing->n > 1)
        write_worse_run(report, figure, drawing, list, out);
    free(list);
}

void nm_describe_scores(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                        FILE *out)
{
    ranked *list = rank_best(drawing, nm_figure_falls(figure, report));
    for (size_t c = 0; c < drawing->n && c < 2 * FEW; c++) {
        const nm_curve *curve = list[c].curve;
        fprintf(out, "%s%s ", c ? ", " : "", drawing->ticks[(size_t)curve->x[0]]);
        write_number(out, curve->y[0]);
        fputs(" (", out);
        write_number(out, curve->low[0]);
        fputs(" to ", out);
        write_number(out, curve->high[0]);
        putc(')', out);
    }
    fputs(drawing->n > 2 * FEW ? ", ..." : ".", out);
    free(list);
}

/* Best first. */
void nm_describe_last(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    bool falls = nm_figure_falls(figure, report);
    ranked *list = nm_allocate((drawing->n + 1) * sizeof *list);
    for (size_t c = 0; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        list[c] = (ranked){curve, curve->y[curve->n - 1] * (falls ? 1 : -1), curve->x[curve->n - 1]};
    }
    qsort(list, drawing->n, sizeof *list, compare_ranked);
    for (size_t c = 0; c < drawing->n; c++)
        list[c].value *= falls ? 1 : -1;
    fputs("Last values: ", out);
    write_list(report, list, drawing->n <= 2 * FEW ? drawing->n : FEW, out);
    if (drawing->n > 2 * FEW) {
        fputs(", ..., ", out);
        write_list(report, list + drawing->n - 1, 1, out);
    }
    putc('.', out);
    free(list);
}

/* Lowest median first, over all points or the second half; heap. */
static ranked *rank_median(const nm_drawing *drawing, bool second_half)
{
    ranked *list = nm_allocate((drawing->n + 1) * sizeof *list);
    for (size_t c = 0; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        size_t from = second_half ? curve->n / 2 : 0;
        list[c] = (ranked){curve, nm_median(curve->y + from, curve->n - from), 0};
    }
    qsort(list, drawing->n, sizeof *list, compare_ranked);
    return list;
}

static void write_range(const nm_report *report, const ranked *list, size_t n, FILE *out)
{
    if (n <= FEW) {
        write_list(report, list, n, out);
        return;
    }
    fprintf(out, "from ");
    write_list(report, list, 1, out);
    fputs(" to ", out);
    write_list(report, list + n - 1, 1, out);
}

void nm_describe_level(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    ranked *list = rank_median(drawing, true);
    const nm_curve *most = &drawing->curves[0];
    size_t where = best_point(most, false);
    fputs("Median of the second half: ", out);
    write_range(report, list, drawing->n, out);
    for (size_t c = 1; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        size_t best = best_point(curve, false);
        if (curve->y[best] > most->y[where]) {
            most = curve;
            where = best;
        }
    }
    fputs("; largest value ", out);
    write_number(out, most->y[where]);
    fprintf(out, " (%s, ", nm_curve_name(report, most));
    write_x(out, figure, drawing, most->x[where]);
    fputs(").", out);
    free(list);
}

static void write_extreme(const nm_report *report, const nm_drawing *drawing, bool largest, FILE *out)
{
    const nm_curve *found = &drawing->curves[0];
    size_t where = 0;
    for (size_t c = 0; c < drawing->n; c++)
        for (size_t i = 0; i < drawing->curves[c].n; i++) {
            double y = drawing->curves[c].y[i];
            if (largest ? y > found->y[where] : y < found->y[where]) {
                found = &drawing->curves[c];
                where = i;
            }
        }
    write_number(out, found->y[where]);
    fprintf(out, " at %s (%s)", drawing->ticks[(size_t)found->x[where]], nm_curve_name(report, found));
}

void nm_describe_sites(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    ranked *list = rank_median(drawing, false);
    fputs("Median over the sites: ", out);
    write_range(report, list, drawing->n, out);
    fputs("; largest ", out);
    write_extreme(report, drawing, true, out);
    fputs(", smallest ", out);
    write_extreme(report, drawing, false, out);
    if (figure->line > 0)
        for (size_t c = 0; c < drawing->n && drawing->n <= FEW; c++) {
            size_t above = 0;
            for (size_t i = 0; i < drawing->curves[c].n; i++)
                above += drawing->curves[c].y[i] > figure->line;
            fprintf(out, "; %s is above %g at %zu of %zu sites", nm_curve_name(report, &drawing->curves[c]),
                    figure->line, above, drawing->curves[c].n);
        }
    putc('.', out);
    free(list);
}

/* The number of kinds of sublayer whose value is larger in the last layer than in the first. */
static void count_growth(const nm_drawing *drawing, const nm_curve *curve, size_t *grow, size_t *kinds)
{
    *grow = *kinds = 0;
    for (size_t from = 0, to; from < curve->n; from = to) {
        const char *first = drawing->ticks[(size_t)curve->x[from]];
        for (to = from + 1; to < curve->n && nm_tick_same_kind(first, drawing->ticks[(size_t)curve->x[to]]);)
            to++;
        *kinds += to - from > 1;
        *grow += to - from > 1 && curve->y[to - 1] > curve->y[from];
    }
}

void nm_describe_depth(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    const char *before = " Larger in the last layer than in the first: ";
    nm_describe_sites(report, figure, drawing, out);
    for (size_t c = 0; c < drawing->n && drawing->n <= 2 * FEW; c++) {
        size_t grow, kinds;
        count_growth(drawing, &drawing->curves[c], &grow, &kinds);
        if (!kinds)
            continue;
        fprintf(out, "%s%s in %zu of %zu kinds of sublayer", before,
                nm_curve_name(report, &drawing->curves[c]), grow, kinds);
        before = ", ";
    }
    fputs(*before == ',' ? "." : "", out);
}

/* The decay: how many values are above one half and one fifth of the largest. */
void nm_describe_spectrum(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                          FILE *out)
{
    (void)figure;
    for (size_t c = 0; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        size_t half = 0, fifth = 0;
        while (half < curve->n && curve->y[half] > 0.5 * curve->y[0])
            half++;
        while (fifth < curve->n && curve->y[fifth] > 0.2 * curve->y[0])
            fifth++;
        fprintf(out, "%s%s: ", c ? "; " : "", nm_curve_name(report, curve));
        write_count(out, (double)half);
        fputs(" values are above 1/2 of the largest, ", out);
        write_count(out, (double)fifth);
        fputs(" above 1/5", out);
    }
    putc('.', out);
}

void nm_describe_correlation(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                             FILE *out)
{
    double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    (void)figure;
    for (size_t c = 0; c < drawing->n; c++) {
        double a = drawing->curves[c].x[0], b = drawing->curves[c].y[0];
        n++;
        x += a;
        y += b;
        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    double r = (n * xy - x * y) / sqrt((n * xx - x * x) * (n * yy - y * y));
    fprintf(out, "Compared with %s. ", report->runs[nm_figure_reference(report)].name);
    if (isfinite(r))
        fprintf(out, "The correlation of TID and loss in score over %.0f runs is %.2f%s.", n, r,
                n < MIN_POINTS ? "; so few runs are weak evidence" : "");
    else
        fprintf(out, "All %.0f runs have the same TID or the same score.", n);
}
