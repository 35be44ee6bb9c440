/* Means over seeds, tests, and what the tables show: see compare_table.h. */
#include "cli/compare_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/compare_sheet.h"
#include "metric/summary.h"

void compare_table_release(compare_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        free(table->groups[i].rows);
    free(table->groups);
    *table = (compare_table){0};
}

/* ---- means ---- */

/* Of one number of the rows that came to their end; measured: and were scored. */
static nm_summary spread_of(const compare_group *group, size_t offset, bool measured)
{
    double *values = nm_allocate((group->n + 1) * sizeof *values);
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++)
        if (!group->rows[i]->exit_code && (group->rows[i]->measured || !measured))
            memcpy(&values[n++], (const char *)group->rows[i] + offset, sizeof *values);
    nm_summary spread = nm_summary_of(values, n);
    free(values);
    return spread;
}

#define ROW(name) offsetof(compare_row, name)

void compare_table_summarize_logs(compare_table *table)
{
    for (size_t g = 0; g < table->n; g++) {
        compare_group *group = &table->groups[g];
        nm_summary loss = spread_of(group, ROW(loss), false);
        group->finished = 0;
        for (size_t i = 0; i < group->n; i++)
            group->finished += !group->rows[i]->exit_code;
        group->loss = loss.mean;
        group->loss_deviation = loss.deviation;
        group->nll = spread_of(group, ROW(nll), false).mean;
        group->perplexity = table->perplexity ? exp(group->nll) : NAN;
        group->tokens_per_second = spread_of(group, ROW(tokens_per_second), false).mean;
        group->step_mib = spread_of(group, ROW(step_mib), false).mean;
        group->value = group->value_deviation = group->low = group->high = NAN;
        group->p = group->p_holm = group->tid_mean = group->tid_variance = NAN;
    }
}

/* ---- the grid ---- */

static bool is_better_point(const compare_group *a, const compare_group *b)
{
    bool whole_a = a->finished == (double)a->n, whole_b = b->finished == (double)b->n;
    if (whole_a != whole_b)
        return whole_a;
    return isfinite(a->loss) && !(a->loss >= b->loss);
}

void compare_table_choose(compare_table *table)
{
    for (size_t g = 0; g < table->n;) {
        size_t best = g, end = g;
        for (; end < table->n && table->groups[end].variant->origin == table->groups[g].variant->origin;
             end++)
            if (is_better_point(&table->groups[end], &table->groups[best]))
                best = end;
        table->groups[best].chosen = true;
        g = end;
    }
}

/* ---- tests ---- */

static const compare_row *row_of_seed(const compare_group *group, int64_t seed)
{
    for (size_t i = 0; i < group->n; i++)
        if (group->rows[i]->seed == seed && group->rows[i]->measured)
            return group->rows[i];
    return NULL;
}

typedef struct mean_score { /* over seeds, on the whole test set and on each draw of the bootstrap */
    double value, *draws;
    size_t n;
} mean_score;

/* Of the seeds that other has too (NULL: all). */
static mean_score mean_of(const compare_group *group, const compare_group *other)
{
    size_t n_resamples = (size_t)nm_bootstrap_default().n_resamples;
    mean_score mean = {.draws = nm_allocate(n_resamples * sizeof(double))};
    for (size_t i = 0; i < group->n; i++) {
        const compare_row *row = group->rows[i];
        if (!row->measured || (other && !row_of_seed(other, row->seed)))
            continue;
        mean.n++;
        mean.value += row->value;
        for (size_t k = 0; k < n_resamples; k++)
            mean.draws[k] += row->draws[k];
    }
    for (size_t k = 0; k < n_resamples; k++)
        mean.draws[k] /= (double)mean.n;
    mean.value /= (double)mean.n;
    return mean;
}

static bool same_test_set(const compare_group *a, const compare_group *b)
{
    int64_t segments = -1;
    const compare_group *groups[] = {a, b};
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < groups[g]->n; i++) {
            const compare_row *row = groups[g]->rows[i];
            if (row->measured && segments >= 0 && row->segments != segments)
                return false;
            if (row->measured)
                segments = row->segments;
        }
    return true;
}

static double paired_p(const compare_group *first, const compare_group *group)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    mean_score a = mean_of(first, group), b = mean_of(group, first);
    double p = a.n && same_test_set(first, group)
                   ? nm_bootstrap_p(a.value, a.draws, b.value, b.draws, &config)
                   : NAN;
    free(a.draws);
    free(b.draws);
    return p;
}

static void test_rows(const compare_group *first, compare_group *group)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    for (size_t i = 0; i < group->n; i++) {
        compare_row *row = group->rows[i];
        const compare_row *other = row_of_seed(first, row->seed);
        if (!row->measured || !other || other->segments != row->segments)
            continue;
        row->against = other->variant;
        row->p = nm_bootstrap_p(other->value, other->draws, row->value, row->draws, &config);
    }
}

static void summarize_scores(compare_group *group)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    nm_summary value = spread_of(group, ROW(value), true);
    group->value = value.mean;
    group->value_deviation = value.deviation;
    group->tid_mean = spread_of(group, ROW(tid_mean), true).mean;
    group->tid_variance = spread_of(group, ROW(tid_variance), true).mean;
    mean_score mean = mean_of(group, NULL);
    if (mean.n) {
        nm_interval interval = nm_bootstrap_interval_of(mean.draws, &config);
        group->low = interval.low;
        group->high = interval.high;
    }
    free(mean.draws);
}

static bool is_scored(const compare_group *group)
{
    for (size_t i = 0; i < group->n; i++)
        if (group->chosen && group->rows[i]->measured)
            return true;
    return false;
}

static const compare_group *first_scored(const compare_table *table)
{
    for (size_t g = 0; g < table->n; g++)
        if (is_scored(&table->groups[g]))
            return &table->groups[g];
    return NULL;
}

void compare_table_test(compare_table *table)
{
    const compare_group *first = first_scored(table);
    double *p = nm_allocate((table->n + 1) * sizeof *p);
    for (size_t g = 0; g < table->n; g++) {
        compare_group *group = &table->groups[g];
        p[g] = NAN;
        if (!is_scored(group))
            continue;
        summarize_scores(group);
        if (group == first)
            continue;
        p[g] = group->p = paired_p(first, group);
        test_rows(first, group);
    }
    nm_holm(p, table->n, p);
    for (size_t g = 0; g < table->n; g++)
        table->groups[g].p_holm = p[g];
    free(p);
}

/* ---- tables ---- */

typedef struct column {
    const char *title; /* NULL: that of the score */
    size_t offset;
    int digits;
    double factor;
} column;

#define GROUP(name) offsetof(compare_group, name)
static const column columns[] = {
    {"n", GROUP(finished), 0, 1},
    {NULL, GROUP(value), 2, 1},
    {"±", GROUP(value_deviation), 2, 1},
    {"95 % from", GROUP(low), 1, 1},
    {"to", GROUP(high), 1, 1},
    {"p (Holm)", GROUP(p_holm), 3, 1},
    {"loss", GROUP(loss), 3, 1},
    {"loss ±", GROUP(loss_deviation), 3, 1},
    {"valid ppl", GROUP(perplexity), 2, 1},
    {"tok/s", GROUP(tokens_per_second), 0, 1},
    {"MiB", GROUP(step_mib), 0, 1},
    {"TID mean %", GROUP(tid_mean), 1, 100},
    {"TID var %", GROUP(tid_variance), 1, 100},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static double number_in(const compare_group *group, const column *c)
{
    double value;
    memcpy(&value, (const char *)group + c->offset, sizeof value);
    return c->factor * value;
}

/* That of the language models' score is "ppl": the validation's must be told from it. */
static const char *title_of(const compare_table *table, const column *c)
{
    const compare_group *first = first_scored(table);
    if (c->title)
        return c->title;
    for (size_t i = 0; first && i < first->n; i++)
        if (first->rows[i]->measured)
            return first->rows[i]->title;
    return "score";
}

static bool is_shown(const compare_table *table, const column *c, bool grid)
{
    for (size_t g = 0; g < table->n; g++)
        if ((grid ? table->groups[g].variant->point : table->groups[g].chosen) &&
            isfinite(number_in(&table->groups[g], c)))
            return true;
    return false;
}

/* Of the first run that failed, or NULL. */
static const compare_row *failed_row(const compare_group *group)
{
    for (size_t i = 0; i < group->n; i++)
        if (group->rows[i]->exit_code)
            return group->rows[i];
    return NULL;
}

static bool is_listed(const compare_group *group, bool grid)
{
    return grid ? group->variant->point : group->chosen;
}

static char *note_of(const compare_group *group, bool grid)
{
    const compare_row *failed = failed_row(group);
    const char *picked = grid && group->chosen ? "picked" : "";
    if (failed && group->n == 1)
        return nm_format("failed: %s", failed->trouble);
    if (failed)
        return nm_format("%s%sseed %lld failed: %s", picked, *picked ? "; " : "", (long long)failed->seed,
                         failed->trouble);
    return nm_duplicate(picked);
}

static char *cell_of(const compare_group *group, const column *c, bool exact)
{
    double value = number_in(group, c);
    if (!isfinite(value))
        return nm_duplicate(exact ? "" : "-");
    return exact ? nm_format("%.9g", value) : nm_format("%.*f", c->digits, value);
}

static bool has_notes(const compare_table *table, bool grid)
{
    bool any = grid;
    for (size_t g = 0; g < table->n; g++)
        any = any || (is_listed(&table->groups[g], grid) && failed_row(&table->groups[g]));
    return any;
}

static void add_titles(compare_sheet *sheet, const compare_table *table, const bool *shown, bool notes)
{
    compare_sheet_add(sheet, nm_duplicate("norm"));
    for (int c = 0; c < N_COLUMNS; c++)
        if (shown[c])
            compare_sheet_add(sheet, nm_duplicate(title_of(table, &columns[c])));
    if (notes)
        compare_sheet_add(sheet, nm_duplicate("note"));
    sheet->columns = sheet->n;
}

static void print_groups(const compare_table *table, bool grid, const char *format, FILE *out)
{
    compare_sheet sheet = {0};
    bool shown[N_COLUMNS], notes = has_notes(table, grid), exact = !strcmp(format, "csv");
    for (int c = 0; c < N_COLUMNS; c++)
        shown[c] = is_shown(table, &columns[c], grid);
    add_titles(&sheet, table, shown, notes);
    for (size_t g = 0; g < table->n; g++) {
        const compare_group *group = &table->groups[g];
        if (!is_listed(group, grid))
            continue;
        compare_sheet_add(&sheet, nm_duplicate(group->variant->name));
        for (int c = 0; c < N_COLUMNS; c++)
            if (shown[c])
                compare_sheet_add(&sheet, cell_of(group, &columns[c], exact));
        if (notes)
            compare_sheet_add(&sheet, note_of(group, grid));
    }
    compare_sheet_print(&sheet, format, out);
    compare_sheet_release(&sheet);
}

static bool has_grid(const compare_table *table)
{
    for (size_t g = 0; g < table->n; g++)
        if (table->groups[g].variant->point)
            return true;
    return false;
}

void compare_table_print_grid(const compare_table *table, const char *format, FILE *out)
{
    if (!has_grid(table) || !strcmp(format, "json"))
        return;
    print_groups(table, true, format, out);
    for (size_t g = 0; g < table->n; g++) {
        const compare_group *group = &table->groups[g];
        if (strcmp(format, "csv") && group->chosen && group->variant->point)
            fprintf(out, "%s%spicked by validation loss: %s\n", strcmp(format, "latex") ? "\n" : "",
                    strcmp(format, "latex") ? "" : "% ", group->variant->name);
    }
    fputc('\n', out);
}

static const compare_row *any_measured(const compare_table *table)
{
    const compare_group *first = first_scored(table);
    for (size_t i = 0; first && i < first->n; i++)
        if (first->rows[i]->measured)
            return first->rows[i];
    return NULL;
}

static void print_footer(const compare_table *table, const char *format, FILE *out)
{
    const compare_row *row = any_measured(table);
    if (!row || !strcmp(format, "csv"))
        return;
    const char *line = !strcmp(format, "latex") ? "% " : !strcmp(format, "markdown") ? "- " : "";
    bool tested = false, seeds = false;
    for (size_t g = 0; g < table->n; g++) {
        tested = tested || isfinite(table->groups[g].p_holm);
        seeds = seeds || isfinite(table->groups[g].value_deviation);
    }
    fprintf(out, "%s%s%s: %s\n", *line == '%' ? "" : "\n", line, row->title, row->signature);
    if (seeds)
        fprintf(out, "%sn: seeds; score, loss, speed, TID: means over them; ±: their sample deviation\n",
                line);
    fprintf(out, "%s95 %%: bootstrap over the test set%s\n", line, seeds ? ", of the mean over seeds" : "");
    if (tested)
        fprintf(out, "%sp: paired bootstrap against the first row, Holm's correction over the rows\n", line);
    fprintf(out, "%sloss: best validation, as trained; MiB: of a training step; TID: last encoder layer\n",
            line);
}

static bool is_better(const compare_row *a, const compare_row *b)
{
    return a->lower_is_better ? a->value < b->value : a->value > b->value;
}

static void print_samples(const compare_table *table, FILE *out)
{
    const compare_row *best = NULL;
    for (size_t g = 0; g < table->n; g++)
        for (size_t i = 0; i < table->groups[g].n && table->groups[g].chosen; i++) {
            const compare_row *row = table->groups[g].rows[i];
            if (row->measured && (!best || is_better(row, best)))
                best = row;
        }
    if (best && best->samples)
        fprintf(out, "\nFrom the test set, by %s:\n%s", best->variant, best->samples);
}

/* ---- JSON ---- */

static json_t *group_json(const compare_group *group)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"score_mean", group->value},
                   {"score_deviation", group->value_deviation},
                   {"interval_low", group->low},
                   {"interval_high", group->high},
                   {"p", group->p},
                   {"p_holm", group->p_holm},
                   {"valid_loss_mean", group->loss},
                   {"valid_loss_deviation", group->loss_deviation},
                   {"valid_nll_mean", group->nll},
                   {"tokens_per_second_mean", group->tokens_per_second},
                   {"step_mib_mean", group->step_mib},
                   {"tid_mean_mean", group->tid_mean},
                   {"tid_variance_mean", group->tid_variance}};
    json_t *o = json_object();
    json_object_set_new(o, "norm", json_string(group->variant->name));
    json_object_set_new(o, "n", json_integer((json_int_t)group->finished));
    json_object_set_new(o, "seeds", json_integer((json_int_t)group->n));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(o, numbers[i].key, compare_number(numbers[i].value));
    return o;
}

static json_t *row_json(const compare_row *row)
{
    json_t *o = json_object();
    json_object_set_new(o, "norm", json_string(row->variant));
    json_object_set_new(o, "seed", json_integer(row->seed));
    json_object_set_new(o, "exit_code", json_integer(row->exit_code));
    if (row->exit_code)
        json_object_set_new(o, "trouble", json_string(row->trouble));
    if (row->exit_code)
        return o;
    json_object_set_new(o, "updates", json_integer(row->updates));
    json_object_set_new(o, "valid_loss", compare_number(row->loss));
    json_object_set_new(o, "valid_nll", compare_number(row->nll));
    json_object_set_new(o, "tokens_per_second", compare_number(row->tokens_per_second));
    json_object_set_new(o, "step_mib", compare_number(row->step_mib));
    if (!row->measured)
        return o;
    json_object_set_new(o, row->name, compare_number(row->value));
    json_object_set_new(o, "low", compare_number(row->low));
    json_object_set_new(o, "high", compare_number(row->high));
    json_object_set_new(o, "p_against_first", compare_number(row->p));
    json_object_set_new(o, "tid_mean", compare_number(row->tid_mean));
    json_object_set_new(o, "tid_variance", compare_number(row->tid_variance));
    json_object_set_new(o, "signature", json_string(row->signature));
    return o;
}

static void print_json(const compare_table *table, FILE *out)
{
    json_t *o = json_object(), *grid = json_array(), *variants = json_array(), *runs = json_array();
    for (size_t g = 0; g < table->n; g++) {
        const compare_group *group = &table->groups[g];
        if (group->variant->point) {
            json_t *point = group_json(group);
            json_object_set_new(point, "picked", json_boolean(group->chosen));
            json_array_append_new(grid, point);
        }
        if (group->chosen)
            json_array_append_new(variants, group_json(group));
        for (size_t i = 0; i < group->n; i++)
            json_array_append_new(runs, row_json(group->rows[i]));
    }
    const compare_row *row = any_measured(table);
    json_object_set_new(o, "score", row ? json_string(row->name) : json_null());
    if (json_array_size(grid))
        json_object_set(o, "grid", grid);
    json_object_set_new(o, "variants", variants);
    json_object_set_new(o, "runs", runs);
    json_decref(grid);
    json_dumpf(o, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(o);
}

void compare_table_print(const compare_table *table, const char *format, int64_t samples, FILE *out)
{
    if (!strcmp(format, "json")) {
        print_json(table, out);
        return;
    }
    print_groups(table, false, format, out);
    print_footer(table, format, out);
    if (samples && (!strcmp(format, "text") || !strcmp(format, "markdown")))
        print_samples(table, out);
}
