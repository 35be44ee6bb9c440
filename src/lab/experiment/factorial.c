#include "experiment/factorial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/record.h"
#include "base/selection.h"
#include "base/summary.h"

static NM_FIELDS(nm_factor_effect, NM_FACTOR_EFFECT)

static const struct {
    const char *name, *option;
} aliases[] = {{"norm", "model.norm"}, {"site", "model.norm_position"}, {"residual", "model.residual"},
               {"init", "model.init"}, {"optimizer", "optim.name"},     {"lr", "schedule.lr"}};

/* The option of a factor, and its short name. */
static const char *option_of(const char *factor)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(factor, aliases[i].name))
            return aliases[i].option;
    return factor;
}

static nm_status check_factors(const nm_grid *grid, nm_error *err)
{
    for (size_t f = 0; f < grid->n; f++) {
        const nm_grid_axis *axis = &grid->list[f];
        bool rates = !strcmp(option_of(axis->key), "schedule.lr");
        if (option_of(axis->key) == axis->key && !strchr(axis->key, '.'))
            return nm_fail(
                err, NM_USAGE,
                "compare.factorial: unknown factor %.60s; norm, site, residual, init, optimizer, lr or "
                "SECTION.KEY",
                axis->key);
        if (axis->n < 2 && !rates)
            return nm_fail(err, NM_USAGE, "compare.factorial: %.60s has one level", axis->key);
        for (size_t i = 0; i < axis->n; i++)
            for (size_t k = 0; k < i; k++)
                if (!strcmp(axis->values[i], axis->values[k]))
                    return nm_fail(err, NM_USAGE, "compare.factorial: %.60s has the level %.60s twice",
                                   axis->key, axis->values[i]);
    }
    return NM_OK;
}

static void release_axis(nm_grid_axis *axis)
{
    nm_free_list(axis->values, axis->n);
    free(axis->key);
}

/* Moves the learning rates out of the factors. */
static void take_rates(nm_factorial *f)
{
    for (size_t i = 0; i < f->factors.n; i++) {
        nm_grid_axis *axis = &f->factors.list[i];
        if (strcmp(option_of(axis->key), "schedule.lr"))
            continue;
        f->rates = nm_duplicate("schedule.lr=");
        for (size_t k = 0; k < axis->n; k++)
            nm_format_append(&f->rates, "%s%s", k ? "," : "", axis->values[k]);
        release_axis(axis);
        memmove(axis, axis + 1, (f->factors.n - i - 1) * sizeof *axis);
        f->factors.n--;
        return;
    }
}

/* The level of factor `factor` in a cell: digits in a mixed radix. */
static size_t level_of(const nm_factorial *f, size_t factor, size_t cell)
{
    for (size_t i = f->factors.n; i-- > factor + 1;)
        cell /= f->factors.list[i].n;
    return cell % f->factors.list[factor].n;
}

static bool is_norm(const nm_grid_axis *axis)
{
    return !strcmp(option_of(axis->key), "model.norm");
}

/* The length of the label of a norm with settings, "LABEL=NORM:key=value"; 0: the level has none. */
static size_t label_length(const nm_grid_axis *axis, size_t level)
{
    size_t n = strcspn(axis->values[level], "=:");
    return is_norm(axis) && axis->values[level][n] == '=' ? n : 0;
}

static char *level_name(const nm_grid_axis *axis, size_t level)
{
    size_t label = label_length(axis, level);
    return label ? nm_format("%.*s", (int)label, axis->values[level]) : nm_duplicate(axis->values[level]);
}

static char *cell_text(const nm_factorial *f, size_t cell)
{
    NM_AUTO_FREE char *name = nm_duplicate(""), *settings = nm_duplicate("");
    char *norm = nm_duplicate(NM_RECIPE_NORMS);
    for (size_t i = 0; i < f->factors.n; i++) {
        const nm_grid_axis *axis = &f->factors.list[i];
        size_t level = level_of(f, i, cell), label = label_length(axis, level);
        NM_AUTO_FREE char *part = level_name(axis, level);
        nm_format_append(&name, "%s%s", i ? "/" : "", part);
        if (is_norm(axis)) {
            free(norm);
            norm = nm_duplicate(axis->values[level] + label + (label > 0));
        } else {
            nm_format_append(&settings, ":%s={%s}", option_of(axis->key), axis->values[level]);
        }
    }
    for (char *at = name; *at; at++) /* separators of a list of variants */
        *at = strchr("=:,{}", *at) ? '_' : *at;
    char *text = nm_format("%s=%s%s", name, norm, settings);
    free(norm);
    return text;
}

nm_status nm_factorial_parse(nm_factorial *f, const char *text, nm_error *err)
{
    enum { MAX_CELLS = 1000 };
    nm_status status = nm_grid_parse(&f->factors, text, err);
    if (status != NM_OK)
        return nm_error_prefix(err, "compare.factorial");
    NM_TRY(check_factors(&f->factors, err));
    take_rates(f);
    f->n_cells = 1;
    for (size_t i = 0; i < f->factors.n && f->n_cells <= MAX_CELLS; i++)
        f->n_cells *= f->factors.list[i].n;
    if (!f->factors.n || f->n_cells > MAX_CELLS)
        return nm_fail(err, NM_USAGE, "compare.factorial: %s",
                       f->factors.n ? "more than 1000 cells" : "no factors");
    f->norms = nm_duplicate("");
    for (size_t cell = 0; cell < f->n_cells; cell++) {
        NM_AUTO_FREE char *variant = cell_text(f, cell);
        nm_format_append(&f->norms, "%s%s", cell ? "," : "", variant);
    }
    return NM_OK;
}

typedef struct contrast {
    size_t factors[2], levels[2];
    bool interaction;
} contrast;

/* The weight of a cell in a contrast. */
static double weight_of(const nm_factorial *f, const contrast *c, size_t cell)
{
    double weight = 1, cells = (double)f->n_cells;
    for (int i = 0; i < 1 + c->interaction; i++) {
        size_t level = level_of(f, c->factors[i], cell);
        cells /= (double)f->factors.list[c->factors[i]].n;
        weight *= level == c->levels[i] ? 1 : level == 0 ? -1 : 0;
    }
    return weight / cells;
}

static char *contrast_text(const nm_factorial *f, const contrast *c)
{
    const char *open = c->interaction ? "(" : "", *close = c->interaction ? ")" : "";
    char *text = NULL;
    for (int i = 0; i < 1 + c->interaction; i++) {
        const nm_grid_axis *axis = &f->factors.list[c->factors[i]];
        NM_AUTO_FREE char *level = level_name(axis, c->levels[i]), *first = level_name(axis, 0);
        nm_format_append(&text, "%s%s%s - %s%s", i ? " x " : "", open, level, first, close);
    }
    return text;
}

static nm_factor_effect effect_of(const nm_factorial *f, const contrast *c, const nm_run_result *const *runs,
                                  size_t n_seeds, double margin)
{
    size_t n = 0, n_draws = (size_t)nm_bootstrap_default().n_resamples;
    NM_AUTO_FREE double *scores = nm_allocate((n_seeds + 1) * sizeof *scores);
    double **resamples = nm_allocate((n_seeds + 1) * sizeof *resamples);
    nm_factor_effect effect;
    nm_record_clear(nm_factor_effect_fields(), &effect);
    for (size_t s = 0; s < n_seeds; s++) {
        bool whole = true;
        for (size_t cell = 0; cell < f->n_cells; cell++)
            whole = whole && runs[cell * n_seeds + s];
        if (!whole)
            continue;
        resamples[n] = nm_allocate(n_draws * sizeof **resamples);
        for (size_t cell = 0; cell < f->n_cells; cell++) {
            const nm_run_result *run = runs[cell * n_seeds + s];
            double weight = weight_of(f, c, cell);
            scores[n] += weight * run->value;
            for (size_t k = 0; k < n_draws && run->draws; k++)
                resamples[n][k] += weight * run->draws[k];
        }
        n++;
    }
    if (n) {
        nm_seed_difference d =
            nm_seed_mean_test(&(nm_seed_scores){n, n_draws, scores, (const double *const *)resamples}, 0.05);
        effect.effect = d.value;
        effect.low = d.low;
        effect.high = d.high;
        effect.p = d.p;
        effect.p_equivalence = margin > 0 ? nm_seed_equivalence(&d, margin) : NAN;
        effect.deviation = nm_summary_of(scores, n).deviation;
    }
    effect.seeds = (int64_t)n;
    nm_free_list(resamples, n);
    effect.term = c->interaction ? nm_format("%s x %s", f->factors.list[c->factors[0]].key,
                                             f->factors.list[c->factors[1]].key)
                                 : nm_duplicate(f->factors.list[c->factors[0]].key);
    effect.contrast = contrast_text(f, c);
    effect.level = level_name(&f->factors.list[c->factors[0]], c->levels[0]);
    if (c->interaction)
        effect.second_level = level_name(&f->factors.list[c->factors[1]], c->levels[1]);
    return effect;
}

static void add_effect(nm_factorial *f, const contrast *c, const nm_run_result *const *runs, size_t n_seeds,
                       double margin, size_t *capacity)
{
    NM_APPEND(f->effects, f->n_effects, *capacity, effect_of(f, c, runs, n_seeds, margin));
}

void nm_factorial_compute(nm_factorial *f, const nm_run_result *const *runs, size_t n_seeds, double margin)
{
    size_t capacity = 0;
    for (size_t a = 0; a < f->factors.n; a++)
        for (size_t i = 1; i < f->factors.list[a].n; i++)
            add_effect(f, &(contrast){{a, a}, {i, i}, false}, runs, n_seeds, margin, &capacity);
    for (size_t a = 0; a < f->factors.n; a++)
        for (size_t b = a + 1; b < f->factors.n; b++)
            for (size_t i = 1; i < f->factors.list[a].n; i++)
                for (size_t j = 1; j < f->factors.list[b].n; j++)
                    add_effect(f, &(contrast){{a, b}, {i, j}, true}, runs, n_seeds, margin, &capacity);
    NM_AUTO_FREE double *p = nm_allocate((f->n_effects + 1) * sizeof *p),
                        *e = nm_allocate((f->n_effects + 1) * sizeof *e);
    for (size_t k = 0; k < f->n_effects; k++) {
        p[k] = f->effects[k].p;
        e[k] = f->effects[k].p_equivalence;
    }
    nm_holm(p, f->n_effects, p);
    nm_holm(e, f->n_effects, e);
    for (size_t k = 0; k < f->n_effects; k++) {
        nm_factor_effect *effect = &f->effects[k];
        effect->p_holm = p[k];
        effect->p_equivalence = e[k];
        if (margin > 0 && isfinite(effect->deviation))
            effect->seeds_needed =
                nm_seeds_needed(effect->deviation, margin, 0.05 / (double)f->n_effects, 0.8);
    }
}

static char *cell(double value, bool exact, int digits)
{
    return isfinite(value) ? exact ? nm_format("%.9g", value) : nm_format("%.*f", digits, value)
                           : nm_duplicate(exact ? "" : "-");
}

static char *p_cell(double p, bool exact)
{
    return !exact && p < 0.0005 ? nm_duplicate("<0.001") : cell(p, exact, 3);
}

void nm_factorial_print(const nm_factorial *f, nm_table_format format, double margin, FILE *out)
{
    static const char *const titles[] = {"factor",   "effect",  "estimate", "95 % from",   "to",
                                         "p (Holm)", "p equiv", "seeds",    "seeds needed"};
    NM_AUTO(nm_text_table_release) nm_text_table cells = {0};
    bool exact = format == NM_TABLE_CSV;
    size_t columns = sizeof titles / sizeof *titles;
    for (size_t c = 0; c < columns; c++)
        nm_text_table_add(&cells, nm_duplicate(titles[c]));
    cells.columns = cells.n;
    for (size_t k = 0; k < f->n_effects; k++) {
        const nm_factor_effect *e = &f->effects[k];
        nm_text_table_add(&cells, nm_duplicate(e->term));
        nm_text_table_add(&cells, nm_duplicate(e->contrast));
        nm_text_table_add(&cells, cell(e->effect, exact, 2));
        nm_text_table_add(&cells, cell(e->low, exact, 2));
        nm_text_table_add(&cells, cell(e->high, exact, 2));
        nm_text_table_add(&cells, p_cell(e->p_holm, exact));
        nm_text_table_add(&cells, p_cell(e->p_equivalence, exact));
        nm_text_table_add(&cells, nm_format("%lld", (long long)e->seeds));
        nm_text_table_add(&cells, e->seeds_needed ? nm_format("%lld", (long long)e->seeds_needed)
                                                  : nm_duplicate(exact ? "" : "-"));
    }
    fputc('\n', out);
    nm_text_table_print(&cells, format, out);
    const char *line = format == NM_TABLE_LATEX ? "% " : format == NM_TABLE_MARKDOWN ? "- " : "";
    if (exact)
        return;
    fprintf(out,
            "\n%seffects: means over the other factors, paired over seeds; t tests over seeds and test "
            "segments, with "
            "Holm's correction over all rows\n",
            line);
    if (margin > 0)
        fprintf(out,
                "%sp equiv, seeds needed: for a difference of %g, the latter with 80 %% power after Holm's "
                "correction\n",
                line, margin);
}

json_t *nm_factorial_json(const nm_factorial *f)
{
    return nm_record_array(nm_factor_effect_fields(), f->effects, sizeof *f->effects, f->n_effects);
}

void nm_factorial_release(nm_factorial *f)
{
    for (size_t k = 0; k < f->n_effects; k++)
        NM_FREE((char *)f->effects[k].term, (char *)f->effects[k].contrast, (char *)f->effects[k].level,
                (char *)f->effects[k].second_level);
    free(f->effects);
    nm_grid_release(&f->factors);
    NM_FREE(f->norms, f->rates);
    *f = (nm_factorial){0};
}
