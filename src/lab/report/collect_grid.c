/* Figures of scores against settings (report/score_grid.h):
 *
 *     one setting              a curve per group                    Shen et al. 2020, figure 5
 *     two settings             a heat map per group                 Wang et al. 2022, figure 5
 *     three or more settings   parallel coordinates, a line per point
 *
 * The scores are of the test set if every run was scored on it, otherwise of the best validation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/sort.h"
#include "report/collect_grid.h"

enum { MAX_COLUMNS = 12 }; /* cells in a row of panels */
/* An axis is logarithmic if the ratio of its largest to its smallest value is greater. */
static const double log_from = 8;

nm_grid_scores nm_grid_scores_of(const nm_report *report)
{
    const nm_score_grid *grid = &report->grid;
    NM_AUTO_FREE nm_run_set *sets = nm_allocate((grid->n_points + 1) * sizeof *sets);
    for (size_t p = 0; p < grid->n_points; p++)
        sets[p] = grid->points[p].runs;
    nm_grid_scores s = {
        .report = report, .grid = grid, .tested = nm_report_is_tested(report, sets, grid->n_points)};
    s.bar = nm_report_bars(report, sets, grid->n_points, s.tested);
    s.list = nm_allocate((grid->n_points + 1) * sizeof *s.list);
    for (size_t p = 0; p < grid->n_points; p++)
        s.list[p] = nm_report_mean_score(report, &sets[p], s.tested, s.bar);
    return s;
}

size_t nm_keep_distinct(double *values, size_t n)
{
    size_t kept = 0;
    nm_sort_doubles(values, n);
    for (size_t i = 0; i < n; i++)
        if (!kept || values[i] != values[kept - 1])
            values[kept++] = values[i];
    return kept;
}

/* The distinct values of an axis in the points of the groups with include[group], ascending; heap. */
static double *distinct_values(const nm_grid_scores *s, size_t axis, const bool *include, size_t *n)
{
    double *values = nm_allocate((s->grid->n_points + 1) * sizeof *values);
    *n = 0;
    for (size_t p = 0; p < s->grid->n_points; p++) {
        const nm_score_point *point = &s->grid->points[p];
        if (include[point->group] && s->list[p].n && isfinite(point->values[axis]))
            values[(*n)++] = point->values[axis];
    }
    *n = nm_keep_distinct(values, *n);
    return values;
}

size_t nm_grid_index(const double *values, size_t n, double value)
{
    size_t i = 0;
    while (i + 1 < n && values[i] != value)
        i++;
    return i;
}

void nm_curve_add_runs(nm_curve *curve, const nm_run_set *runs)
{
    for (size_t i = 0; i < runs->n; i++) {
        NM_APPEND(curve->runs.list, curve->runs.n, curve->runs.capacity, runs->list[i]);
    }
}

static void set_group(nm_curve *curve, const nm_score_group *group, const nm_run_set *runs)
{
    curve->family = group->name;
    curve->style = group->style;
    nm_curve_add_runs(curve, runs);
}

static void add_tick(nm_drawing *drawing, const char *text)
{
    NM_APPEND(drawing->ticks, drawing->n_ticks, drawing->ticks_capacity, nm_duplicate(text));
}

static void add_row(nm_drawing *drawing, const char *text)
{
    NM_APPEND(drawing->rows, drawing->n_rows, drawing->rows_capacity, nm_duplicate(text));
}

void nm_drawing_add_value(nm_drawing *drawing, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    add_tick(drawing, text);
}

static void add_text(nm_drawing *drawing, double x, double y, char *text)
{
    NM_APPEND(drawing->labels, drawing->n_labels, drawing->labels_capacity, (nm_label){x, y, text});
}

static bool is_better(const nm_grid_scores *s, size_t a, size_t b)
{
    bool rises = s->tested ? s->report->test_rises : s->report->score_rises;
    return rises ? s->list[a].mean > s->list[b].mean : s->list[a].mean < s->list[b].mean;
}

/* The best point of a group; n_points if none has a score. */
static size_t best_point(const nm_grid_scores *s, size_t group)
{
    size_t best = s->grid->n_points;
    for (size_t p = 0; p < s->grid->n_points; p++)
        if (s->grid->points[p].group == group && s->list[p].n &&
            (best == s->grid->n_points || is_better(s, p, best)))
            best = p;
    return best;
}

/* The best points, the meaning of the error bars if there are any, coupled settings, and the groups that are
 * not in the figure. Heap. */
static char *make_note(const nm_grid_scores *s, const bool *include, bool bars, const char *before)
{
    const nm_score_grid *grid = s->grid;
    char *text = NULL, number[NM_NUMBER_BYTES];
    size_t bytes, fewest = SIZE_MAX, most = 0, n_left = 0;
    FILE *out = nm_text_stream_open(&text, &bytes);
    fprintf(out, "%sBest: ", before);
    for (size_t g = 0, listed = 0; g < grid->n_groups; g++) {
        size_t best = best_point(s, g);
        n_left += !include[g];
        if (!include[g] || best == grid->n_points)
            continue;
        NM_AUTO_FREE char *name = nm_score_point_name(grid, &grid->points[best]);
        fprintf(out, "%s%s ", listed++ ? ", " : "", name);
        fputs(nm_number_show(number, s->list[best].mean), out);
    }
    for (size_t p = 0; p < grid->n_points; p++)
        if (include[grid->points[p].group] && s->list[p].n) {
            fewest = s->list[p].n < fewest ? s->list[p].n : fewest;
            most = s->list[p].n > most ? s->list[p].n : most;
        }
    fputs(".", out);
    if (most > 1 && fewest == most)
        fprintf(out, " Each point is the mean over %zu seeds", most);
    else if (most > 1)
        fprintf(out, " Each point is the mean over %zu to %zu seeds", fewest, most);
    else
        fputs(" Each point is one run", out);
    fputs(bars && s->bar == NM_BAR_INTERVAL            ? "; intervals are 95 %."
          : bars && s->bar == NM_BAR_RANGE && most > 1 ? "; ranges are from the lowest to the highest seed."
                                                       : ".",
          out);
    for (size_t a = 0; a < grid->n_axes; a++)
        if (*grid->axes[a].coupled)
            fprintf(out, " With %s varies: %s.", grid->axes[a].key, grid->axes[a].coupled);
    if (n_left) {
        fputs(" Without ", out);
        for (size_t g = 0, listed = 0; g < grid->n_groups; g++)
            if (!include[g])
                fprintf(out, "%s%s", listed++ ? ", " : "", grid->groups[g].name);
        fputs(", whose runs do not vary these settings alone.", out);
    }
    nm_text_stream_close(out);
    return text;
}

/* Positions of ascending values on an axis: logarithmic if they span more than a factor of log_from; zero is
 * then one step below the smallest positive value. Heap. */
static double *axis_positions(const double *values, size_t n)
{
    double *at = nm_allocate((n + 1) * sizeof *at);
    size_t zeros = 0;
    while (zeros < n && values[zeros] == 0)
        zeros++;
    bool logarithm = n > zeros && values[0] >= 0 && values[n - 1] > log_from * values[zeros];
    double step = n - zeros > 1 ? log10(values[n - 1] / values[zeros]) / (double)(n - zeros - 1) : 1;
    for (size_t i = 0; i < n; i++)
        at[i] = !logarithm ? values[i] : values[i] > 0 ? log10(values[i]) : log10(values[zeros]) - step;
    return at;
}

static double smallest_distance(const double *at, size_t n)
{
    double least = n > 1 ? INFINITY : 1;
    for (size_t i = 1; i < n; i++)
        least = fmin(least, at[i] - at[i - 1]);
    return least;
}

/* The axis of the first group that varies exactly one axis; n_axes: there is none. */
static size_t single_axis(const nm_score_grid *grid)
{
    for (size_t g = 0; g < grid->n_groups; g++)
        for (size_t a = 0; a < grid->n_axes && grid->groups[g].n_varied == 1; a++)
            if (grid->groups[g].varies[a])
                return a;
    return grid->n_axes;
}

/* Whether a group varies this setting only, or no setting and has a value of this one. */
static bool varies_only(const nm_grid_scores *s, size_t group, size_t axis)
{
    const nm_score_group *of = &s->grid->groups[group];
    if (of->n_varied != of->varies[axis])
        return false;
    for (size_t p = 0; p < s->grid->n_points; p++)
        if (s->grid->points[p].group == group && isfinite(s->grid->points[p].values[axis]))
            return true;
    return false;
}

void nm_collect_setting(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    const nm_score_grid *grid = &report->grid;
    size_t axis = single_axis(grid), n;
    (void)figure;
    if (axis == grid->n_axes)
        return;
    nm_grid_scores s = nm_grid_scores_of(report);
    NM_AUTO_FREE bool *include = nm_allocate(grid->n_groups + 1);
    for (size_t g = 0; g < grid->n_groups; g++)
        include[g] = varies_only(&s, g, axis);
    NM_AUTO_FREE double *values = distinct_values(&s, axis, include, &n);
    for (size_t g = 0; g < grid->n_groups && n > 1; g++) {
        if (!include[g])
            continue;
        nm_curve *curve = nm_drawing_add(drawing, grid->groups[g].runs.list[0], grid->n_points, true);
        set_group(curve, &grid->groups[g], &grid->groups[g].runs);
        curve->name = nm_duplicate(grid->groups[g].name);
        for (size_t p = 0; p < grid->n_points; p++)
            if (grid->points[p].group == g && s.list[p].n) {
                curve->low[curve->n] = s.list[p].low;
                curve->high[curve->n] = s.list[p].high;
                nm_curve_add(curve, (double)nm_grid_index(values, n, grid->points[p].values[axis]),
                             s.list[p].mean);
            }
        nm_curve_sort(curve);
        nm_drawing_drop_empty(drawing);
    }
    for (size_t i = 0; i < n && drawing->n; i++)
        nm_drawing_add_value(drawing, values[i]);
    if (drawing->n) {
        drawing->at = axis_positions(values, n);
        drawing->spread = drawing->n > 1 ? NM_GRID_SPREAD * smallest_distance(drawing->at, n) : 0;
        drawing->legend = true;
        drawing->title =
            nm_format("%s against %s", s.tested ? "Test #" : "Best validation @", grid->axes[axis].key);
        drawing->x_label = nm_duplicate(grid->axes[axis].key);
        drawing->y_label = nm_duplicate(s.tested ? "test #" : "best validation @");
        drawing->note = make_note(&s, include, true, "");
    }
    free(s.list);
}

/* The first group that varies exactly two settings. */
static const nm_score_group *first_pair(const nm_score_grid *grid, size_t axes[2])
{
    for (size_t g = 0; g < grid->n_groups; g++) {
        size_t n = 0;
        for (size_t a = 0; a < grid->n_axes && grid->groups[g].n_varied == 2; a++)
            if (grid->groups[g].varies[a])
                axes[n++] = a;
        if (n == 2)
            return &grid->groups[g];
    }
    return NULL;
}

/* The cells of a heat map: one panel per group, n_x cells wide and n_y high, with an empty column or a row
 * for the title between two panels. */
typedef struct panels {
    double *x, *y; /* [n_x], [n_y]: values of the two settings, ascending */
    size_t n_x, n_y, n, across, down;
} panels;

static size_t panel_left(const panels *p, size_t panel)
{
    return panel % p->across * (p->n_x + 1);
}

/* The first panel is at the top; the row above a panel is for its title. */
static size_t panel_bottom(const panels *p, size_t panel)
{
    return (p->down - 1 - panel / p->across) * (p->n_y + 1);
}

static void label_panels(nm_drawing *drawing, const panels *p)
{
    size_t across = p->n < p->across ? p->n : p->across;
    for (size_t i = 0; i + 1 < across * (p->n_x + 1); i++)
        if (i % (p->n_x + 1) < p->n_x)
            nm_drawing_add_value(drawing, p->x[i % (p->n_x + 1)]);
        else
            add_tick(drawing, "");
    for (size_t i = 0; i < p->down * (p->n_y + 1); i++) {
        char text[32] = "";
        if (i % (p->n_y + 1) < p->n_y)
            snprintf(text, sizeof text, "%g", p->y[i % (p->n_y + 1)]);
        add_row(drawing, text);
    }
}

static void add_panel(nm_drawing *drawing, const nm_grid_scores *s, const size_t axes[2], size_t group,
                      const panels *p, size_t panel)
{
    const nm_score_group *of = &s->grid->groups[group];
    nm_curve *curve = nm_drawing_add(drawing, of->runs.list[0], s->grid->n_points, false);
    set_group(curve, of, &of->runs);
    curve->name = nm_duplicate(of->name);
    curve->value = nm_allocate((s->grid->n_points + 1) * sizeof *curve->value);
    for (size_t i = 0; i < s->grid->n_points; i++) {
        const nm_score_point *point = &s->grid->points[i];
        if (point->group != group || !s->list[i].n)
            continue;
        curve->value[curve->n] = s->list[i].mean;
        nm_curve_add(curve,
                     (double)(panel_left(p, panel) + nm_grid_index(p->x, p->n_x, point->values[axes[0]])),
                     (double)(panel_bottom(p, panel) + nm_grid_index(p->y, p->n_y, point->values[axes[1]])));
    }
    nm_drawing_drop_empty(drawing);
    if (p->n > 1)
        add_text(drawing, (double)panel_left(p, panel) + (double)(p->n_x - 1) / 2,
                 (double)(panel_bottom(p, panel) + p->n_y), nm_duplicate(of->name));
}

void nm_collect_heat_map(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    const nm_score_grid *grid = &report->grid;
    size_t axes[2];
    const nm_score_group *first = first_pair(grid, axes);
    (void)figure;
    if (!first)
        return;
    nm_grid_scores s = nm_grid_scores_of(report);
    NM_AUTO_FREE bool *include = nm_allocate(grid->n_groups + 1);
    panels p = {0};
    for (size_t g = 0; g < grid->n_groups; g++) {
        const nm_score_group *group = &grid->groups[g];
        include[g] = group->n_varied == 2 && group->varies[axes[0]] && group->varies[axes[1]];
        p.n += include[g];
    }
    p.x = distinct_values(&s, axes[0], include, &p.n_x);
    p.y = distinct_values(&s, axes[1], include, &p.n_y);
    p.across = MAX_COLUMNS / (p.n_x + 1) ? MAX_COLUMNS / (p.n_x + 1) : 1;
    p.down = (p.n + p.across - 1) / p.across;
    for (size_t g = 0, panel = 0; g < grid->n_groups; g++)
        if (include[g])
            add_panel(drawing, &s, axes, g, &p, panel++);
    if (drawing->n) {
        label_panels(drawing, &p);
        drawing->framed = true;
        drawing->x_min = drawing->y_min = -0.5;
        drawing->x_max = (double)drawing->n_ticks - 0.5;
        drawing->y_max = (double)drawing->n_rows - (p.n > 1 ? 0.5 : 1.5);
        drawing->title = nm_format("%s by %s and %s", s.tested ? "Test #" : "Best validation @",
                                   grid->axes[axes[0]].key, grid->axes[axes[1]].key);
        drawing->x_label = nm_duplicate(grid->axes[axes[0]].key);
        drawing->y_label = nm_duplicate(grid->axes[axes[1]].key);
        drawing->note = make_note(&s, include, false, "Lighter is better. ");
    }
    NM_FREE(p.x, p.y, s.list);
}

/* The group that varies the most settings; NULL if no group varies three or more. */
static const nm_score_group *widest_group(const nm_score_grid *grid)
{
    const nm_score_group *widest = NULL;
    for (size_t g = 0; g < grid->n_groups; g++)
        if (grid->groups[g].n_varied > (widest ? widest->n_varied : 2))
            widest = &grid->groups[g];
    return widest;
}

typedef struct parallel {
    size_t *axes, n; /* indices of the axes of the grid; the axis of the score follows them */
    double **values; /* [n], ascending */
    size_t *n_values;
    double worst, best;
} parallel;

static bool has_all_axes(const nm_grid_scores *s, const parallel *p, size_t group)
{
    for (size_t i = 0; i < s->grid->n_points; i++)
        for (size_t a = 0; a < p->n && s->grid->points[i].group == group; a++)
            if (isnan(s->grid->points[i].values[p->axes[a]]))
                return false;
    return true;
}

/* Points with a score, worst first, so that the best lines are drawn last. Heap. */
static size_t *rank_points(const nm_grid_scores *s, const bool *include, size_t *n)
{
    size_t *list = nm_allocate((s->grid->n_points + 1) * sizeof *list);
    *n = 0;
    for (size_t p = 0; p < s->grid->n_points; p++) {
        if (!include[s->grid->points[p].group] || !s->list[p].n)
            continue;
        size_t k = (*n)++;
        for (; k > 0 && is_better(s, list[k - 1], p); k--)
            list[k] = list[k - 1];
        list[k] = p;
    }
    return list;
}

/* offset separates the lines of points with a common value. */
static void add_grid_line(nm_drawing *drawing, const nm_grid_scores *s, const parallel *p, size_t index,
                          double offset)
{
    const nm_score_point *point = &s->grid->points[index];
    nm_curve *curve = nm_drawing_add(drawing, point->runs.list[0], p->n + 1, false);
    set_group(curve, &s->grid->groups[point->group], &point->runs);
    curve->name = nm_score_point_name(s->grid, point);
    curve->value = nm_allocate((p->n + 2) * sizeof *curve->value);
    curve->emphasized = index == best_point(s, point->group);
    for (size_t a = 0; a < p->n; a++) {
        double value = point->values[p->axes[a]];
        size_t n = p->n_values[a];
        double position = n > 1 ? (double)nm_grid_index(p->values[a], n, value) / (double)(n - 1) : 0.5;
        curve->value[a] = value;
        nm_curve_add(curve, (double)a, position + offset);
    }
    curve->value[p->n] = s->list[index].mean;
    nm_curve_add(curve, (double)p->n,
                 p->best != p->worst ? (s->list[index].mean - p->worst) / (p->best - p->worst) : 0.5);
}

/* Labels at most eight values of each axis, and five values on the axis of the score. */
static void label_axes(nm_drawing *drawing, const parallel *p)
{
    enum { MOST = 8, SCORES = 5 };
    char number[NM_NUMBER_BYTES];
    for (size_t a = 0; a < p->n; a++)
        for (size_t i = 0, n = p->n_values[a], step = (n + MOST - 1) / MOST; i < n; i += step)
            add_text(drawing, (double)a, n > 1 ? (double)i / (double)(n - 1) : 0.5,
                     nm_format("%g", p->values[a][i]));
    for (size_t i = 0; i < SCORES; i++) {
        double position = (double)i / (SCORES - 1);
        if (p->best != p->worst || i == SCORES / 2)
            add_text(drawing, (double)p->n, position,
                     nm_duplicate(nm_number_show(number, p->worst + position * (p->best - p->worst))));
    }
}

void nm_collect_parallel(const nm_report *report, const nm_figure *figure, nm_drawing *drawing)
{
    const nm_score_grid *grid = &report->grid;
    const nm_score_group *widest = widest_group(grid);
    size_t n_lines;
    (void)figure;
    if (!widest)
        return;
    nm_grid_scores s = nm_grid_scores_of(report);
    parallel p = {.axes = nm_allocate((grid->n_axes + 1) * sizeof *p.axes),
                  .values = nm_allocate((grid->n_axes + 1) * sizeof *p.values),
                  .n_values = nm_allocate((grid->n_axes + 1) * sizeof *p.n_values)};
    NM_AUTO_FREE bool *include = nm_allocate(grid->n_groups + 1);
    for (size_t a = 0; a < grid->n_axes; a++)
        if (widest->varies[a])
            p.axes[p.n++] = a;
    for (size_t g = 0; g < grid->n_groups; g++)
        include[g] = has_all_axes(&s, &p, g);
    for (size_t a = 0; a < p.n; a++) {
        p.values[a] = distinct_values(&s, p.axes[a], include, &p.n_values[a]);
        add_tick(drawing, nm_score_axis_label(grid, p.axes[a]));
    }
    NM_AUTO_FREE size_t *order = rank_points(&s, include, &n_lines);
    if (n_lines) {
        p.worst = s.list[order[0]].mean;
        p.best = s.list[order[n_lines - 1]].mean;
    }
    for (size_t i = 0; i < n_lines; i++)
        add_grid_line(drawing, &s, &p, order[i], 0.06 * (((double)i + 0.5) / (double)n_lines - 0.5));
    add_tick(drawing, s.tested ? report->test_name : report->score_name);
    if (drawing->n) {
        label_axes(drawing, &p);
        drawing->framed = true;
        drawing->legend = true;
        drawing->x_min = -0.35;
        drawing->x_max = (double)p.n + 0.45;
        drawing->y_min = -0.06;
        drawing->y_max = 1.06;
        drawing->title = nm_format("%s by %zu settings", s.tested ? "Test #" : "Best validation @", p.n);
        drawing->note = make_note(&s, include, false, "The best point of each group is drawn bold. ");
    }
    nm_free_list(p.values, p.n);
    NM_FREE(p.n_values, p.axes, s.list);
}
