/* The contents of a figure: the points of its curves that are visible, the range of its axes, titles and
 * labels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "report/figure.h"

enum { MAX_POINTS = 400, MIN_POINTS = 60, ALL_POINTS = 6000, MANY_CURVES = 8 };

char *nm_drawing_title(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report)
{
    return nm_figure_text(drawing->title ? drawing->title : figure->title, report);
}

char *nm_drawing_x_label(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report)
{
    return nm_figure_text(drawing->x_label ? drawing->x_label : figure->x_label, report);
}

char *nm_drawing_y_label(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report)
{
    return nm_figure_text(drawing->y_label ? drawing->y_label : figure->y_label, report);
}

/* Replaces each of `most` segments by its mean: with many noisy curves, only their trend is visible. */
static void reduce_to_means(nm_curve *curve, size_t most)
{
    for (size_t s = 0; s < most; s++) {
        size_t from = s * curve->n / most, to = (s + 1) * curve->n / most;
        double x = 0, y = 0;
        for (size_t i = from; i < to; i++) {
            x += curve->x[i];
            y += curve->y[i];
        }
        curve->x[s] = x / (double)(to - from);
        curve->y[s] = y / (double)(to - from);
    }
    curve->n = most;
}

/* Replaces each of most / 2 segments by its minimum and its maximum, in their order, so that spikes stay
 * visible. */
static void reduce_to_extremes(nm_curve *curve, size_t most)
{
    size_t segments = most / 2, kept = 0;
    for (size_t s = 0; s < segments; s++) {
        size_t from = s * curve->n / segments, to = (s + 1) * curve->n / segments, low = from, high = from;
        for (size_t i = from; i < to; i++) {
            low = curve->y[i] < curve->y[low] ? i : low;
            high = curve->y[i] >= curve->y[high] ? i : high;
        }
        size_t pair[2] = {low < high ? low : high, low < high ? high : low};
        for (int k = 0; k < (pair[0] == pair[1] ? 1 : 2); k++) {
            curve->x[kept] = curve->x[pair[k]];
            curve->y[kept++] = curve->y[pair[k]];
        }
    }
    curve->n = kept;
}

/* Removes the points that have no place on a logarithmic axis. */
static void keep_positive(nm_curve *curve)
{
    size_t kept = 0;
    for (size_t i = 0; i < curve->n; i++) {
        if (curve->y[i] <= 0 || (curve->low && curve->low[i] <= 0))
            continue;
        curve->x[kept] = curve->x[i];
        curve->y[kept] = curve->y[i];
        if (curve->low) {
            curve->low[kept] = curve->low[i];
            curve->high[kept] = curve->high[i];
        }
        kept++;
    }
    curve->n = kept;
}

static size_t all_values(const nm_drawing *drawing, double **values)
{
    size_t n = 0, capacity = 0;
    *values = NULL;
    for (size_t c = 0; c < drawing->n; c++)
        for (size_t i = 0; i < drawing->curves[c].n; i++) {
            const nm_curve *curve = &drawing->curves[c];
            NM_GROW(*values, n + 1, capacity);
            (*values)[n++] = curve->low ? curve->low[i] : curve->y[i];
            if (curve->high)
                (*values)[n++] = curve->high[i];
        }
    NM_ASSERT(n > 0); /* curves without points have been removed */
    nm_sort_doubles(*values, n);
    return n;
}

/* Adds a margin, a fraction of the range. Values that differ only by rounding count as one value, around
 * which the range has a fixed relative width. */
static void widen(double *low, double *high, double fraction, bool logarithm)
{
    bool one = *high - *low <= 1e-5 * fmax(fabs(*low), fabs(*high));
    if (logarithm) {
        double factor = one ? 1.5 : pow(*high / *low, fraction);
        *low /= factor;
        *high *= factor;
    } else {
        double more = one ? fmax(0.05 * fabs(*high), 1e-6) : fraction * (*high - *low);
        *low -= more;
        *high += more;
    }
}

/* The first losses of a run, or those of a diverged run, would leave no resolution for the others: a linear
 * axis spans at most twice the range of the lower 90 % of the values. */
static void frame_y(nm_drawing *drawing, const nm_figure *figure)
{
    double *values;
    size_t n = all_values(drawing, &values);
    drawing->y_min = values[0];
    drawing->y_max = values[n - 1];
    if (!figure->y_log && figure->collect == nm_collect_history && n >= 20) {
        double most = values[0] + 2 * (values[n * 9 / 10] - values[0]);
        drawing->y_max = most > values[0] ? fmin(drawing->y_max, most) : drawing->y_max;
    }
    while (n && values[n - 1] > drawing->y_max) {
        drawing->n_above++;
        n--;
    }
    if (figure->line > 0) {
        drawing->y_min = fmin(drawing->y_min, figure->line);
        drawing->y_max = fmax(drawing->y_max, figure->line);
    }
    /* Values close to zero would have the same effect on a logarithmic axis. */
    if (figure->y_log && figure->collect == nm_collect_history && n >= 20 && values[0] < values[n / 10] / 100)
        drawing->y_min = values[n / 10] / 10;
    while (drawing->n_below < n && values[drawing->n_below] < drawing->y_min)
        drawing->n_below++;
    widen(&drawing->y_min, &drawing->y_max, 0.05, figure->y_log);
    free(values);
}

static void frame_x(nm_drawing *drawing, const nm_figure *figure)
{
    drawing->x_min = INFINITY;
    drawing->x_max = -INFINITY;
    for (size_t c = 0; c < drawing->n; c++)
        for (size_t i = 0; i < drawing->curves[c].n; i++) {
            drawing->x_min = fmin(drawing->x_min, drawing->curves[c].x[i]);
            drawing->x_max = fmax(drawing->x_max, drawing->curves[c].x[i]);
        }
    if (drawing->at) {
        double first = drawing->at[0], last = drawing->at[drawing->n_ticks - 1];
        double margin = last > first ? 0.06 * (last - first) : 0.5;
        drawing->x_min = first - margin;
        drawing->x_max = last + margin;
    } else if (drawing->ticks) {
        drawing->x_min = -0.5;
        drawing->x_max = (double)drawing->n_ticks - 0.5;
    } else if (figure->style == NM_FIGURE_SCATTER ||
               drawing->x_max - drawing->x_min <= 1e-6 * fabs(drawing->x_max)) {
        widen(&drawing->x_min, &drawing->x_max, 0.08, false);
    } else if (!(figure->tail > 0) && drawing->x_min > 0 && drawing->x_min < 0.5 * drawing->x_max) {
        drawing->x_min = 0;
    }
}

static void to_percent(nm_curve *curve, bool scatter)
{
    for (size_t i = 0; i < curve->n; i++) {
        *(scatter ? &curve->x[i] : &curve->y[i]) *= 100;
        if (curve->low) {
            curve->low[i] *= 100;
            curve->high[i] *= 100;
        }
    }
}

/* Keeps the points in the last part of the x axis; curves with fewer than three such points become empty. */
static void keep_tail(nm_drawing *drawing, double tail)
{
    double end = 0;
    for (size_t c = 0; c < drawing->n; c++)
        end = fmax(end, drawing->curves[c].x[drawing->curves[c].n - 1]);
    for (size_t c = 0; c < drawing->n; c++) {
        nm_curve *curve = &drawing->curves[c];
        size_t kept = 0;
        for (size_t i = 0; i < curve->n; i++)
            if (curve->x[i] >= (1 - tail) * end) {
                curve->x[kept] = curve->x[i];
                curve->y[kept++] = curve->y[i];
            }
        curve->n = kept < 3 ? 0 : kept;
    }
}

void nm_drawing_make(nm_drawing *drawing, const nm_report *report, const nm_figure *figure)
{
    *drawing = (nm_drawing){0};
    figure->collect(report, figure, drawing);
    if (figure->tail > 0)
        keep_tail(drawing, figure->tail);
    size_t most = drawing->n ? ALL_POINTS / drawing->n : 0, kept = 0;
    most = most > MAX_POINTS ? MAX_POINTS : most < MIN_POINTS ? MIN_POINTS : most;
    for (size_t c = 0; c < drawing->n; c++) {
        nm_curve curve = drawing->curves[c];
        if (figure->percent)
            to_percent(&curve, figure->style == NM_FIGURE_SCATTER);
        if (figure->y_log)
            keep_positive(&curve);
        if (curve.n > most && !curve.low)
            (drawing->n > MANY_CURVES ? reduce_to_means : reduce_to_extremes)(&curve, most);
        if (curve.n)
            drawing->curves[kept++] = curve;
        else
            nm_curve_release(&curve);
    }
    drawing->n = kept;
    if (!drawing->n || drawing->framed)
        return;
    frame_x(drawing, figure);
    frame_y(drawing, figure);
}

void nm_drawing_release(nm_drawing *drawing)
{
    for (size_t c = 0; c < drawing->n; c++)
        nm_curve_release(&drawing->curves[c]);
    for (size_t i = 0; i < drawing->n_ticks; i++)
        free(drawing->ticks[i]);
    for (size_t i = 0; i < drawing->n_rows; i++)
        free(drawing->rows[i]);
    for (size_t i = 0; i < drawing->n_labels; i++)
        free(drawing->labels[i].text);
    free(drawing->labels);
    free(drawing->ticks);
    free(drawing->rows);
    free(drawing->at);
    free(drawing->title);
    free(drawing->x_label);
    free(drawing->y_label);
    free(drawing->note);
    free(drawing->curves);
    *drawing = (nm_drawing){0};
}
