/* The curves of a figure. */
#include <math.h>

#include "base/memory.h"
#include "report/figure.h"

const char *nm_curve_name(const nm_report *report, const nm_curve *curve)
{
    return curve->name ? curve->name : report->runs[curve->run].name;
}

nm_run_style nm_curve_style(const nm_report *report, const nm_curve *curve)
{
    return curve->family ? curve->style : report->styles[curve->run];
}

nm_curve *nm_drawing_add(nm_drawing *drawing, size_t run, size_t n, bool bars)
{
    NM_GROW(drawing->curves, drawing->n, drawing->capacity);
    nm_curve *curve = &drawing->curves[drawing->n++];
    size_t bytes = (n + 1) * sizeof(double);
    *curve = (nm_curve){.run = run, .x = nm_allocate(bytes), .y = nm_allocate(bytes)};
    if (bars) {
        curve->low = nm_allocate(bytes);
        curve->high = nm_allocate(bytes);
    }
    return curve;
}

void nm_drawing_drop_empty(nm_drawing *drawing)
{
    nm_curve *last = &drawing->curves[drawing->n - 1];
    if (last->n)
        return;
    nm_curve_release(last);
    drawing->n--;
}

void nm_curve_add(nm_curve *curve, double x, double y)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    curve->x[curve->n] = x;
    curve->y[curve->n++] = y;
}

void nm_curve_sort(nm_curve *curve)
{
    for (size_t i = 1; i < curve->n; i++)
        for (size_t k = i; k > 0 && curve->x[k] < curve->x[k - 1]; k--) {
            double *of[] = {curve->x, curve->y, curve->low, curve->high};
            for (int j = 0; j < (curve->low ? 4 : 2); j++) {
                double swap = of[j][k];
                of[j][k] = of[j][k - 1];
                of[j][k - 1] = swap;
            }
        }
}

void nm_curve_release(nm_curve *curve)
{
    NM_FREE(curve->x, curve->y, curve->low, curve->high, curve->name, curve->value, curve->mean_x,
            curve->mean_y, curve->runs.list);
}
