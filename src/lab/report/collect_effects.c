/* The figure of a factorial comparison: differences of mean scores with their 95 % intervals. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/figure.h"

enum { LEGEND_COLORS = 20 }; /* rows of norm_colors.c without "none" */

/* The curve of a factor or an interaction, which are the families of the legend. */
static nm_curve *curve_of(nm_drawing *drawing, const char *term, size_t n)
{
    for (size_t c = 0; c < drawing->n; c++)
        if (!strcmp(drawing->curves[c].family, term))
            return &drawing->curves[c];
    nm_curve *curve = nm_drawing_add(drawing, 0, n, true);
    curve->family = term;
    curve->name = nm_duplicate(term);
    curve->style.color = 1 + (int)(drawing->n - 1) % LEGEND_COLORS;
    return curve;
}

void nm_collect_effects(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    (void)figure;
    for (size_t i = 0; i < report->n_effects; i++) {
        const nm_factor_effect *e = &report->effects[i];
        if (!isfinite(e->effect))
            continue;
        nm_curve *curve = curve_of(drawing, e->term, report->n_effects);
        curve->low[curve->n] = isfinite(e->low) ? e->low : e->effect;
        curve->high[curve->n] = isfinite(e->high) ? e->high : e->effect;
        nm_curve_add(curve, (double)drawing->n_ticks, e->effect);
        NM_APPEND(drawing->ticks, drawing->n_ticks, drawing->ticks_capacity,
                  e->second_level ? nm_format("%s x %s", e->level, e->second_level)
                                  : nm_duplicate(e->contrast));
    }
    drawing->legend = drawing->n > 1;
    if (drawing->n)
        drawing->note =
            nm_format("Each cell has its best learning rate. Bars are 95 %% intervals over seeds and "
                      "test segments. An interaction is how much the difference of one factor "
                      "depends on the other one.");
}
