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

/* Replaces each of most / 2 segments by its minimum and its maximum, in their order, so that spikes stay
 * visible, and keeps the means of the segments. */
static void reduce(nm_curve *curve, size_t most)
{
    size_t segments = most / 2, kept = 0;
    curve->mean_x = nm_allocate((segments + 1) * sizeof(double));
    curve->mean_y = nm_allocate((segments + 1) * sizeof(double));
    for (size_t s = 0; s < segments; s++) {
        size_t from = s * curve->n / segments, to = (s + 1) * curve->n / segments, low = from, high = from;
        for (size_t i = from; i < to; i++) {
            low = curve->y[i] < curve->y[low] ? i : low;
            high = curve->y[i] >= curve->y[high] ? i : high;
            curve->mean_x[s] += curve->x[i] / (double)(to - from);
            curve->mean_y[s] += curve->y[i] / (double)(to - from);
        }
        size_t pair[2] = {low < high ? low : high, low < high ? high : low};
        for (int k = 0; k < (pair[0] == pair[1] ? 1 : 2); k++) {
            curve->x[kept] = curve->x[pair[k]];
            curve->y[kept++] = curve->y[pair[k]];
        }
    }
    curve->n = kept;
    curve->n_means = segments;
}

/* With many noisy curves, only their trend is visible. */
static void use_means(nm_curve *curve)
{
    memcpy(curve->x, curve->mean_x, curve->n_means * sizeof(double));
    memcpy(curve->y, curve->mean_y, curve->n_means * sizeof(double));
    curve->n = curve->n_means;
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
    NM_AUTO_FREE double *values = NULL;
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
    if (figure->lined) {
        drawing->y_min = fmin(drawing->y_min, figure->line);
        drawing->y_max = fmax(drawing->y_max, figure->line);
    }
    /* Values close to zero would have the same effect on a logarithmic axis. */
    if (figure->y_log && figure->collect == nm_collect_history && n >= 20 && values[0] < values[n / 10] / 100)
        drawing->y_min = values[n / 10] / 10;
    while (drawing->n_below < n && values[drawing->n_below] < drawing->y_min)
        drawing->n_below++;
    widen(&drawing->y_min, &drawing->y_max, 0.05, figure->y_log);
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
    } else if (drawing->x_min > 0 && drawing->x_min < 0.5 * drawing->x_max) {
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

/* Keeps the points in the visible range, and one on each side, to which the lines at its borders lead. */
static void keep_range(nm_curve *curve, const nm_view *view)
{
    size_t from = 0, to = curve->n;
    while (from + 1 < curve->n && curve->x[from + 1] < view->from)
        from++;
    while (to > from + 1 && curve->x[to - 2] > view->to)
        to--;
    memmove(curve->x, curve->x + from, (to - from) * sizeof(double));
    memmove(curve->y, curve->y + from, (to - from) * sizeof(double));
    curve->n = to - from;
}

void nm_drawing_make(nm_drawing *drawing, const nm_report *report, const nm_figure *figure,
                     const nm_view *view)
{
    *drawing = (nm_drawing){0};
    figure->collect(report, figure, drawing);
    size_t most = drawing->n ? ALL_POINTS / drawing->n : 0, kept = 0;
    bool means = !view && drawing->n > MANY_CURVES;
    most = view ? view->points : most > MAX_POINTS ? MAX_POINTS : most < MIN_POINTS ? MIN_POINTS : most;
    most *= means ? 2 : 1;
    for (size_t c = 0; c < drawing->n; c++) {
        nm_curve curve = drawing->curves[c];
        if (figure->percent)
            to_percent(&curve, figure->style == NM_FIGURE_SCATTER);
        if (figure->y_log)
            keep_positive(&curve);
        if (view && view->from < view->to && !curve.low && curve.n)
            keep_range(&curve, view);
        if (curve.n > most && !curve.low) {
            reduce(&curve, most);
            if (means)
                use_means(&curve);
        }
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
    NM_FREE(drawing->labels, drawing->ticks, drawing->rows, drawing->at, drawing->title, drawing->x_label,
            drawing->y_label, drawing->note, drawing->curves);
    *drawing = (nm_drawing){0};
}
