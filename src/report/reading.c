/* The sentence below a figure, computed from its numbers. What is drawn is what is spoken of: thinned curves keep
 * the lowest and the highest point of each stretch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "report/figure.h"

enum {
    FEW = 4, /* runs that a sentence can name one by one */
    MANY = 8 /* points: of fewer, one set in twenty and more has a correlation of 0.7 by chance */
};

static const char *name_of(const nm_report *report, const nm_curve *curve)
{
    return report->runs[curve->run].name;
}

static void say_number(FILE *out, double value)
{
    char text[NM_NUMBER_BYTES];
    fputs(nm_number_show(text, value), out);
}

static void say_count(FILE *out, double value)
{
    char text[NM_NUMBER_BYTES];
    fputs(nm_count_show(text, value), out);
}

static void say_x(FILE *out, const nm_figure *figure, const nm_drawing *drawing, double x)
{
    if (figure->x_seconds) {
        fprintf(out, "%.*f %s", x < 10 ? 1 : 0, x, drawing->x_unit);
    } else {
        fputs("update ", out);
        say_count(out, x);
    }
}

/* ---- order of the runs by one number each ---- */

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

/* Best first, by each run's best point; heap. */
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

static void say_list(const nm_report *report, const ranked *list, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s%s ", i ? ", " : "", name_of(report, list[i].curve));
        say_number(out, list[i].value);
    }
}

/* ---- the best of each, and where one falls behind ---- */

/* A curve's value at x, between its points; NaN outside of them. */
static double value_at(const nm_curve *curve, double x)
{
    for (size_t i = 1; i < curve->n; i++)
        if (curve->x[i - 1] <= x && x <= curve->x[i] && curve->x[i] > curve->x[i - 1]) {
            double share = (x - curve->x[i - 1]) / (curve->x[i] - curve->x[i - 1]);
            return curve->y[i - 1] + share * (curve->y[i] - curve->y[i - 1]);
        }
    return curve->n == 1 && curve->x[0] == x ? curve->y[0] : NAN;
}

/* The x of the last point at which worse is not behind; -INFINITY when it is behind at every point of both; NaN when it
 * is not behind at its end. */
static double falls_behind_after(const nm_curve *worse, const nm_curve *better, bool falls)
{
    double last = -INFINITY;
    size_t behind = 0;
    for (size_t i = 0; i < worse->n; i++) {
        double other = value_at(better, worse->x[i]);
        if (isnan(other))
            continue;
        if (falls ? worse->y[i] > other : worse->y[i] < other) {
            behind++;
        } else {
            last = worse->x[i];
            behind = 0;
        }
    }
    return behind ? last : NAN;
}

/* The last value not after this update; NaN when there is none. */
static double value_until(const nm_series *series, double update)
{
    double value = NAN;
    for (size_t i = 0; i < series->n; i++)
        if (series->update[i] <= update)
            value = series->value[i];
    return value;
}

/* The place with the largest value of a pattern at this update; NaN when there is none. */
static double largest_place(const nm_report_run *run, const char *pattern, double update, const char **site,
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

/* What the run's statistics were like at this update: TID where its checkpoints were measured, else the distance from the
 * remembered variance, where that was recorded. */
static void say_statistics(const nm_report_run *run, double update, FILE *out)
{
    const char *site = "";
    size_t length = 0;
    double most;
    if (!nm_report_run_find(run, "valid/batch_nll"))
        return; /* its norms do not use the batch */
    if (isfinite(most = largest_place(run, "inspect/tid.sites/*/variance", update, &site, &length))) {
        fprintf(out, ", when the variance TID of %.*s is %.1f %%", (int)length, site, 100 * most);
    } else if (isfinite(most = largest_place(run, "probe/distance/*/variance", update, &site, &length))) {
        fprintf(out, ", when the variance of %.*s is ", (int)length, site);
        say_number(out, most);
        fputs(" from the remembered one", out);
    }
}

static void say_behind(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                       const ranked *list, FILE *out)
{
    const ranked *worst = &list[drawing->n - 1];
    double after = falls_behind_after(worst->curve, list[0].curve, nm_figure_falls(figure, report));
    if (isnan(after))
        return;
    if (after < 0) {
        fprintf(out, " %s is behind %s from the start.", name_of(report, worst->curve),
                name_of(report, list[0].curve));
        return;
    }
    fprintf(out, " %s falls behind %s after ", name_of(report, worst->curve), name_of(report, list[0].curve));
    say_x(out, figure, drawing, after);
    if (!figure->x_seconds)
        say_statistics(&report->runs[worst->curve->run], after, out);
    putc('.', out);
}

/* Where every run has been: the values there say more about speed than those at the ends. */
static void say_common_time(const nm_report *report, const nm_drawing *drawing, FILE *out)
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
    fprintf(out, " After %.*f %s, as long as all have trained: ", common < 10 ? 1 : 0, common,
            drawing->x_unit);
    say_list(report, list, n, out);
    putc('.', out);
}

void nm_say_best(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    bool falls = nm_figure_falls(figure, report);
    ranked *list = rank_best(drawing, falls);
    fprintf(out, "%s has the %s value, ", name_of(report, list[0].curve), falls ? "lowest" : "highest");
    say_number(out, list[0].value);
    fputs(" at ", out);
    say_x(out, figure, drawing, list[0].x);
    if (drawing->n > 1) {
        fputs(drawing->n <= FEW ? "; the best of the others: " : "; the last of all is ", out);
        if (drawing->n <= FEW)
            say_list(report, list + 1, drawing->n - 1, out);
        else
            say_list(report, list + drawing->n - 1, 1, out);
    }
    putc('.', out);
    if (figure->x_seconds)
        say_common_time(report, drawing, out);
    else if (drawing->n > 1)
        say_behind(report, figure, drawing, list, out);
    free(list);
}

/* Best first. */
void nm_say_last(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
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
    say_list(report, list, drawing->n <= 2 * FEW ? drawing->n : FEW, out);
    if (drawing->n > 2 * FEW) {
        fputs(", ..., ", out);
        say_list(report, list + drawing->n - 1, 1, out);
    }
    putc('.', out);
    free(list);
}

/* ---- levels ---- */

/* Lowest first, by the median of the second half. */
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

static void say_range(const nm_report *report, const ranked *list, size_t n, FILE *out)
{
    if (n <= FEW) {
        say_list(report, list, n, out);
        return;
    }
    fprintf(out, "from ");
    say_list(report, list, 1, out);
    fputs(" to ", out);
    say_list(report, list + n - 1, 1, out);
}

void nm_say_level(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    ranked *list = rank_median(drawing, true);
    const nm_curve *most = &drawing->curves[0];
    size_t where = best_point(most, false);
    fputs("Median of the second half: ", out);
    say_range(report, list, drawing->n, out);
    for (size_t c = 1; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        size_t best = best_point(curve, false);
        if (curve->y[best] > most->y[where]) {
            most = curve;
            where = best;
        }
    }
    fputs("; largest value ", out);
    say_number(out, most->y[where]);
    fprintf(out, " (%s, ", name_of(report, most));
    say_x(out, figure, drawing, most->x[where]);
    fputs(").", out);
    free(list);
}

/* ---- places ---- */

static void say_extreme(const nm_report *report, const nm_drawing *drawing, bool largest, FILE *out)
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
    say_number(out, found->y[where]);
    fprintf(out, " at %s (%s)", drawing->ticks[(size_t)found->x[where]], name_of(report, found));
}

void nm_say_sites(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    ranked *list = rank_median(drawing, false);
    fputs("Median over the places: ", out);
    say_range(report, list, drawing->n, out);
    fputs("; largest ", out);
    say_extreme(report, drawing, true, out);
    fputs(", smallest ", out);
    say_extreme(report, drawing, false, out);
    if (figure->line > 0)
        for (size_t c = 0; c < drawing->n && drawing->n <= FEW; c++) {
            size_t above = 0;
            for (size_t i = 0; i < drawing->curves[c].n; i++)
                above += drawing->curves[c].y[i] > figure->line;
            fprintf(out, "; %s is above %g at %zu of %zu places", name_of(report, &drawing->curves[c]),
                    figure->line, above, drawing->curves[c].n);
        }
    putc('.', out);
    free(list);
}

/* ---- by depth ---- */

/* In how many kinds of sublayer the last layer has more than the first. */
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

void nm_say_depth(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    const char *before = " Larger in the last layer than in the first: ";
    nm_say_sites(report, figure, drawing, out);
    for (size_t c = 0; c < drawing->n && drawing->n <= 2 * FEW; c++) {
        size_t grow, kinds;
        count_growth(drawing, &drawing->curves[c], &grow, &kinds);
        if (!kinds)
            continue;
        fprintf(out, "%s%s in %zu of %zu kinds of sublayer", before, name_of(report, &drawing->curves[c]),
                grow, kinds);
        before = ", ";
    }
    fputs(*before == ',' ? "." : "", out);
}

/* How soon they fall: the rank by which half of the largest is reached. */
void nm_say_spectrum(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out)
{
    (void)figure;
    for (size_t c = 0; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        size_t half = 0, fifth = 0;
        while (half < curve->n && curve->y[half] > 0.5 * curve->y[0])
            half++;
        while (fifth < curve->n && curve->y[fifth] > 0.2 * curve->y[0])
            fifth++;
        fprintf(out, "%s%s: ", c ? "; " : "", name_of(report, curve));
        say_count(out, (double)half);
        fputs(" of them are above half of the largest, ", out);
        say_count(out, (double)fifth);
        fputs(" above a fifth", out);
    }
    putc('.', out);
}

/* ---- across runs ---- */

void nm_say_correlation(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
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
    fprintf(out, "Worse than %s. ", report->runs[nm_figure_reference(report)].name);
    if (isfinite(r))
        fprintf(out, "Over %.0f runs TID and gap have a correlation of %.2f%s.", n, r,
                n < MANY ? "; so few points prove little" : "");
    else
        fprintf(out, "All %.0f runs have the same TID or the same gap.", n);
}
