#include "report/score_grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static void add_run(nm_run_set *set, size_t run)
{
    NM_APPEND(set->list, set->n, set->capacity, run);
}

bool nm_setting_is_ignored(const char *key)
{
    return !strncmp(key, "run.", 4) || !strcmp(key, "train.seed") || !strncmp(key, "device.", 7) ||
           !strncmp(key, "probe.", 6);
}

const char *nm_report_run_norm(const nm_report_run *run)
{
    const char *encoder = nm_report_run_setting(run, "model.encoder_norm"),
               *norm = nm_report_run_setting(run, "model.norm");
    return encoder && *encoder ? encoder : norm ? norm : "";
}

/* Whether a setting determines only how many records and checkpoints are written, and not the training. */
static bool is_bookkeeping(const char *key)
{
    return !strcmp(key, "train.log_every") || !strcmp(key, "train.save_every") ||
           !strcmp(key, "train.keep_last");
}

/* Whether a norm of this name may occur in the model; LayerNorm may without an option that names it. */
static bool uses_norm(const nm_report_run *run, const char *norm, size_t length)
{
    if (length == 5 && !strncmp(norm, "layer", 5))
        return true;
    for (size_t i = 0; i < run->n_settings; i++) {
        const char *value = run->settings[i].value;
        if (!strncmp(run->settings[i].key, "model.", 6) && strlen(value) == length &&
            !strncmp(value, norm, length))
            return true;
    }
    const char *at = nm_report_run_setting(run, "norm.at");
    while (at && (at = strchr(at, '=')) != NULL) {
        at++;
        if (!strncmp(at, norm, length) && (!at[length] || strchr(", ", at[length])))
            return true;
    }
    return false;
}

/* The value of a setting; NULL if the run has none, or if it belongs to a norm that the model does not
 * have. */
static const char *value_of(const nm_report_run *run, const char *key)
{
    const char *norm = key + strlen("norm.");
    if (!strncmp(key, "norm.", strlen("norm.")) && strchr(norm, '.') &&
        !uses_norm(run, norm, strcspn(norm, ".")))
        return NULL;
    return nm_report_run_setting(run, key);
}

static double parse_number(const char *text)
{
    char *end;
    double value = text && *text ? strtod(text, &end) : NAN;
    return isfinite(value) && !*end ? value : NAN;
}

typedef struct column { /* a setting in which the runs differ */
    const char *key;
    const char **texts; /* [n]; NULL: it does not apply to the run */
    double *numbers;    /* [n] */
    bool numeric;
} column;

typedef struct columns {
    column *list;
    size_t n, capacity;
} columns;

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static void add_column(columns *all, const nm_report_run *runs, size_t n, const char *key)
{
    column c = {key, nm_allocate((n + 1) * sizeof *c.texts), nm_allocate((n + 1) * sizeof *c.numbers), true};
    bool differs = false;
    for (size_t r = 0; r < n; r++) {
        c.texts[r] = value_of(&runs[r], key);
        c.numbers[r] = parse_number(c.texts[r]);
        c.numeric &= !c.texts[r] || isfinite(c.numbers[r]);
        differs |= !same_text(c.texts[r], c.texts[0]);
    }
    if (differs) {
        NM_APPEND(all->list, all->n, all->capacity, c);
    } else {
        NM_FREE(c.texts, c.numbers);
    }
}

static columns find_columns(const nm_report_run *runs, size_t n)
{
    columns all = {0};
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < runs[r].n_settings; i++) {
            const char *key = runs[r].settings[i].key;
            if (!nm_setting_is_ignored(key) && !is_bookkeeping(key) && !nm_report_runs_set(runs, r, key))
                add_column(&all, runs, n, key);
        }
    return all;
}

static void release_columns(columns *all)
{
    for (size_t c = 0; c < all->n; c++)
        NM_FREE(all->list[c].texts, all->list[c].numbers);
    free(all->list);
}

static bool same_group(const columns *all, size_t a, size_t b)
{
    for (size_t c = 0; c < all->n; c++)
        if (!all->list[c].numeric && !same_text(all->list[c].texts[a], all->list[c].texts[b]))
            return false;
    return true;
}

static void make_groups(nm_score_grid *grid, const columns *all, const nm_run_style *styles, size_t n)
{
    for (size_t r = 0; r < n; r++) {
        size_t g = 0;
        while (g < grid->n_groups && !same_group(all, grid->groups[g].runs.list[0], r))
            g++;
        if (g == grid->n_groups) {
            NM_GROW(grid->groups, grid->n_groups, grid->groups_capacity);
            nm_run_style style = {.color = styles[r].color};
            for (size_t k = 0; k < g; k++)
                style.variant += grid->groups[k].style.color == style.color;
            grid->groups[grid->n_groups++] = (nm_score_group){.style = style};
        }
        add_run(&grid->groups[g].runs, r);
    }
}

static bool varies(const column *c, const nm_score_group *group)
{
    double first = NAN;
    for (size_t i = 0; i < group->runs.n; i++) {
        double value = c->numbers[group->runs.list[i]];
        if (isfinite(value) && isfinite(first) && value != first)
            return true;
        first = isfinite(value) ? value : first;
    }
    return false;
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Whether two settings determine each other in every group, such as a batch size and the number of batches
 * per update. */
static bool are_coupled(const nm_score_grid *grid, const column *a, const column *b)
{
    for (size_t g = 0; g < grid->n_groups; g++) {
        const nm_run_set *runs = &grid->groups[g].runs;
        for (size_t i = 0; i < runs->n; i++)
            for (size_t k = 0; k < i; k++)
                if (same_number(a->numbers[runs->list[i]], a->numbers[runs->list[k]]) !=
                    same_number(b->numbers[runs->list[i]], b->numbers[runs->list[k]]))
                    return false;
    }
    return true;
}

/* Moves the columns of the axes to the front of the list, in the order of the configuration. */
static void make_axes(nm_score_grid *grid, columns *all)
{
    for (size_t c = 0; c < all->n; c++) {
        column *found = &all->list[c], axis = *found;
        bool any = false;
        for (size_t g = 0; g < grid->n_groups && axis.numeric; g++)
            any |= varies(&axis, &grid->groups[g]);
        size_t a = 0;
        while (any && a < grid->n_axes && !are_coupled(grid, &all->list[a], &axis))
            a++;
        if (any && a < grid->n_axes) {
            NM_AUTO_FREE char *before = grid->axes[a].coupled;
            grid->axes[a].coupled = nm_format("%s%s%s", before, *before ? ", " : "", axis.key);
        } else if (any) {
            NM_GROW(grid->axes, grid->n_axes, grid->axes_capacity);
            grid->axes[grid->n_axes] = (nm_score_axis){nm_duplicate(axis.key), nm_duplicate("")};
            *found = all->list[grid->n_axes];
            all->list[grid->n_axes++] = axis;
        }
    }
    for (size_t g = 0; g < grid->n_groups; g++) {
        nm_score_group *group = &grid->groups[g];
        group->varies = nm_allocate(grid->n_axes + 1);
        for (size_t a = 0; a < grid->n_axes; a++) {
            group->varies[a] = varies(&all->list[a], group);
            group->n_varied += group->varies[a];
        }
    }
}

/* The name of the folder without the seed: "rbn:norm.rbn.lambda=0.1", as norma compare names runs. Heap. */
static char *variant_of(const char *folder)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    size_t start = length;
    while (start && folder[start - 1] != '/')
        start--;
    size_t seed = length;
    while (seed > start && folder[seed - 1] >= '0' && folder[seed - 1] <= '9')
        seed--;
    if (seed < length && seed > start + 1 && folder[seed - 1] == '-')
        length = seed - 1;
    return nm_format("%.*s", (int)(length - start), folder + start);
}

/* Length in bytes of the colon-separated parts with which both names begin. */
static size_t common_parts(const char *a, const char *b)
{
    size_t common = 0, i = 0;
    for (;; i++) {
        bool end_a = !a[i] || a[i] == ':', end_b = !b[i] || b[i] == ':';
        if (end_a && end_b)
            common = i;
        if (!a[i] || a[i] != b[i])
            return common;
    }
}

/* Whether a part "key=value" of a name sets an axis. */
static bool sets_axis(const nm_score_grid *grid, const char *part)
{
    for (size_t a = 0; a < grid->n_axes; a++) {
        size_t length = strlen(grid->axes[a].key);
        if (!strncmp(part, grid->axes[a].key, length) && part[length] == '=')
            return true;
    }
    return false;
}

/* The parts with which the names of all runs of a group begin, without the axes, and with keys shortened to
 * their last component: "power scaling=group". Heap; "" if there are none. */
static char *common_name(const nm_score_grid *grid, const nm_score_group *group, const nm_report_run *runs)
{
    char *name = variant_of(runs[group->runs.list[0]].folder);
    for (size_t i = 1; i < group->runs.n; i++) {
        NM_AUTO_FREE char *other = variant_of(runs[group->runs.list[i]].folder);
        name[common_parts(name, other)] = 0;
    }
    char *out = name + strcspn(name, ":");
    for (char *at = out; *at;) {
        char *end = at + 1 + strcspn(at + 1, ":"), *from = at + 1;
        for (char *c = from; c < end && *c != '='; c++)
            from = *c == '.' ? c + 1 : from;
        if (!sets_axis(grid, at + 1)) {
            *out++ = ' ';
            memmove(out, from, (size_t)(end - from));
            out += end - from;
        }
        at = end;
    }
    *out = 0;
    return name;
}

static bool name_is_taken(const nm_score_grid *grid, size_t before, const char *name)
{
    for (size_t g = 0; g < before; g++)
        if (!strcmp(grid->groups[g].name, name))
            return true;
    return false;
}

static void name_groups(nm_score_grid *grid, const nm_report_run *runs)
{
    for (size_t g = 0; g < grid->n_groups; g++) {
        nm_score_group *group = &grid->groups[g];
        group->name = common_name(grid, group, runs);
        if (!*group->name) {
            const char *norm = nm_report_run_norm(&runs[group->runs.list[0]]);
            free(group->name);
            group->name = nm_duplicate(*norm ? norm : "runs");
        }
        char *name = group->name;
        for (int number = 2; name_is_taken(grid, g, group->name); number++) {
            if (group->name != name)
                free(group->name);
            group->name = nm_format("%s (%d)", name, number);
        }
        if (group->name != name)
            free(name);
    }
}

static bool is_point_of(const nm_score_grid *grid, const columns *all, const nm_score_point *point,
                        size_t group, size_t run)
{
    bool same = point->group == group;
    for (size_t a = 0; a < grid->n_axes && same; a++)
        same = same_number(point->values[a], all->list[a].numbers[run]);
    return same;
}

static void make_points(nm_score_grid *grid, const columns *all)
{
    for (size_t g = 0; g < grid->n_groups; g++)
        for (size_t i = 0, first = grid->n_points; i < grid->groups[g].runs.n; i++) {
            size_t run = grid->groups[g].runs.list[i], p = first;
            while (p < grid->n_points && !is_point_of(grid, all, &grid->points[p], g, run))
                p++;
            if (p == grid->n_points) {
                NM_GROW(grid->points, grid->n_points, grid->points_capacity);
                nm_score_point *point = &grid->points[grid->n_points++];
                *point =
                    (nm_score_point){.group = g, .values = nm_allocate((grid->n_axes + 1) * sizeof(double))};
                for (size_t a = 0; a < grid->n_axes; a++)
                    point->values[a] = all->list[a].numbers[run];
            }
            add_run(&grid->points[p].runs, run);
        }
}

void nm_score_grid_make(nm_score_grid *grid, const nm_report_run *runs, const nm_run_style *styles, size_t n)
{
    *grid = (nm_score_grid){0};
    columns all = find_columns(runs, n);
    make_groups(grid, &all, styles, n);
    make_axes(grid, &all);
    name_groups(grid, runs);
    make_points(grid, &all);
    release_columns(&all);
}

void nm_score_grid_release(nm_score_grid *grid)
{
    for (size_t a = 0; a < grid->n_axes; a++)
        NM_FREE(grid->axes[a].key, grid->axes[a].coupled);
    for (size_t g = 0; g < grid->n_groups; g++)
        NM_FREE(grid->groups[g].name, grid->groups[g].varies, grid->groups[g].runs.list);
    for (size_t p = 0; p < grid->n_points; p++)
        NM_FREE(grid->points[p].values, grid->points[p].runs.list);
    NM_FREE(grid->axes, grid->groups, grid->points);
    *grid = (nm_score_grid){0};
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

const char *nm_score_axis_label(const nm_score_grid *grid, size_t axis)
{
    const char *word = last_word(grid->axes[axis].key);
    for (size_t a = 0; a < grid->n_axes; a++)
        if (a != axis && !strcmp(last_word(grid->axes[a].key), word))
            return grid->axes[axis].key;
    return word;
}

char *nm_score_point_name(const nm_score_grid *grid, const nm_score_point *point)
{
    const nm_score_group *group = &grid->groups[point->group];
    char *name = nm_duplicate(group->name);
    for (size_t a = 0; a < grid->n_axes; a++)
        if (group->varies[a]) {
            nm_format_append(&name, " %s=%g", nm_score_axis_label(grid, a), point->values[a]);
        }
    return name;
}
