#include "experiment/comparison_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/record.h"
#include "base/seed_test.h"
#include "base/summary.h"

void nm_comparison_table_release(nm_comparison_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        free(table->summaries[i].results);
    free(table->summaries);
    *table = (nm_comparison_table){0};
}

/* Mean and deviation of a double, at `offset` in the results, over the finished runs; measured: only over the
 * scored runs. */
static nm_summary summarize(const nm_variant_summary *summary, size_t offset, bool measured)
{
    NM_AUTO_FREE double *values = nm_allocate((summary->n + 1) * sizeof *values);
    size_t n = 0;
    for (size_t i = 0; i < summary->n; i++)
        if (!summary->results[i]->exit_code && (summary->results[i]->measured || !measured))
            memcpy(&values[n++], (const char *)summary->results[i] + offset, sizeof *values);
    return nm_summary_of(values, n);
}

static NM_FIELDS(nm_compared_variant, NM_COMPARED_VARIANT)
static NM_FIELDS_OF(summary, nm_variant_summary, NM_COMPARED_VARIANT)
static NM_FIELDS_OF(summary_score, nm_variant_summary, NM_VARIANT_SCORE)
static NM_FIELDS_OF(summary_test, nm_variant_summary, NM_TEST_MEASUREMENTS)
static NM_FIELDS_OF(result_log, nm_run_result, NM_LOG_MEASUREMENTS)
static NM_FIELDS_OF(result_test, nm_run_result, NM_TEST_MEASUREMENTS)
static NM_FIELDS_OF(run_identity, nm_compared_run, NM_RUN_IDENTITY)
static NM_FIELDS_OF(run_log, nm_compared_run, NM_RUN_LOG)
static NM_FIELDS_OF(run_score, nm_compared_run, NM_RUN_SCORE)

nm_compared_variant nm_variant_summary_describe(const nm_variant_summary *summary)
{
    nm_compared_variant variant;
    nm_record_copy(nm_compared_variant_fields(), &variant, summary_fields(), summary);
    return variant;
}

/* The mean of every measurement. */
static void set_means(nm_variant_summary *summary, const nm_field *measurements, bool measured)
{
    for (const nm_field *field = measurements; field->name; field++) {
        double mean = summarize(summary, field->offset, measured).mean;
        memcpy((char *)summary + nm_record_find(summary_fields(), field->name)->offset, &mean, sizeof mean);
    }
}

#define RESULT(name) offsetof(nm_run_result, name)

void nm_comparison_table_summarize_logs(nm_comparison_table *table)
{
    for (size_t g = 0; g < table->n; g++) {
        nm_variant_summary *summary = &table->summaries[g];
        summary->finished = 0;
        for (size_t i = 0; i < summary->n; i++)
            summary->finished += !summary->results[i]->exit_code;
        set_means(summary, result_log_fields(), false);
        nm_record_clear(summary_test_fields(), summary);
        summary->loss_deviation = summarize(summary, RESULT(loss), false).deviation;
        summary->perplexity = table->perplexity ? exp(summary->nll) : NAN;
        summary->score = summary->score_deviation = summary->low = summary->high = NAN;
        summary->p = summary->p_holm = summary->p_equivalence = NAN;
        summary->difference = summary->difference_low = summary->difference_high = NAN;
    }
}

/* The value that the settings give to an option; "" if they do not contain it. */
static const char *setting_of(const nm_settings *settings, const char *key)
{
    const char *value = "";
    for (size_t i = 0; i < settings->n; i++)
        if (!strcmp(settings->list[i].key, key))
            value = settings->list[i].value;
    return value;
}

/* Losses with different label smoothing are not comparable. */
static bool same_smoothing(const nm_variant *a, const nm_variant *b)
{
    static const char *const keys[] = {"train.label_smoothing", "train.smoothing"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(setting_of(&a->settings, keys[i]), setting_of(&b->settings, keys[i])) != 0)
            return false;
    return true;
}

static bool is_better_point(const nm_variant_summary *a, const nm_variant_summary *b, bool by_nll)
{
    bool whole_a = a->finished == (int64_t)a->n, whole_b = b->finished == (int64_t)b->n;
    if (whole_a != whole_b)
        return whole_a;
    double loss_a = by_nll ? a->nll : a->loss, loss_b = by_nll ? b->nll : b->loss;
    return isfinite(loss_a) && !(loss_a >= loss_b);
}

/* Selects one of n points. */
static void select_point(nm_variant_summary *points, size_t n)
{
    bool by_nll = false;
    for (size_t i = 1; i < n; i++)
        by_nll = by_nll || !same_smoothing(points[0].variant, points[i].variant);
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (is_better_point(&points[i], &points[best], by_nll))
            best = i;
    points[best].selected = true;
    points[best].by_nll = by_nll;
}

void nm_comparison_table_select(nm_comparison_table *table)
{
    for (size_t g = 0, end; g < table->n; g = end) {
        for (end = g + 1; end < table->n; end++)
            if (table->summaries[end].variant->origin != table->summaries[g].variant->origin)
                break;
        select_point(&table->summaries[g], end - g);
    }
}

static const nm_run_result *result_of_seed(const nm_variant_summary *summary, int64_t seed)
{
    for (size_t i = 0; i < summary->n; i++)
        if (summary->results[i]->seed == seed && summary->results[i]->measured)
            return summary->results[i];
    return NULL;
}

/* The scored runs of a variant; with `other`, only those with seeds for which that variant was also
 * scored. */
typedef struct seed_scores {
    nm_seed_scores group;
    double *scores;
    const double **resamples;
} seed_scores;

static seed_scores seed_scores_of(const nm_variant_summary *summary, const nm_variant_summary *other)
{
    seed_scores result = {.group.n_resamples = (size_t)nm_bootstrap_default().n_resamples,
                          .scores = nm_allocate((summary->n + 1) * sizeof(double)),
                          .resamples = nm_allocate((summary->n + 1) * sizeof(double *))};
    for (size_t i = 0; i < summary->n; i++) {
        const nm_run_result *run = summary->results[i];
        if (!run->measured || (other && !result_of_seed(other, run->seed)))
            continue;
        result.scores[result.group.n] = run->value;
        result.resamples[result.group.n++] = run->draws;
    }
    result.group.scores = result.scores;
    result.group.resamples = result.resamples;
    return result;
}

static void seed_scores_release(seed_scores *scores)
{
    NM_FREE(scores->scores, scores->resamples);
}

static bool same_test_set(const nm_variant_summary *a, const nm_variant_summary *b)
{
    int64_t segments = -1;
    const nm_variant_summary *pair[] = {a, b};
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < pair[g]->n; i++) {
            const nm_run_result *run = pair[g]->results[i];
            if (run->measured && segments >= 0 && run->segments != segments)
                return false;
            if (run->measured)
                segments = run->segments;
        }
    return true;
}

/* If the variants have one seed in common, only the two models with that seed can be compared, over the test
 * segments. NaN otherwise. */
static double model_p(const nm_variant_summary *first, const nm_variant_summary *summary)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    NM_AUTO(seed_scores_release) seed_scores a = seed_scores_of(first, summary);
    NM_AUTO(seed_scores_release) seed_scores b = seed_scores_of(summary, first);
    double p = NAN;
    if (a.group.n == 1 && b.group.n == 1)
        p = nm_bootstrap_p(a.scores[0], a.resamples[0], b.scores[0], b.resamples[0], &config);
    return p;
}

static void test_variant(const nm_comparison_table *table, const nm_variant_summary *first,
                         nm_variant_summary *summary)
{
    if (!same_test_set(first, summary))
        return;
    NM_AUTO(seed_scores_release) seed_scores a = seed_scores_of(summary, NULL);
    NM_AUTO(seed_scores_release) seed_scores b = seed_scores_of(first, NULL);
    nm_seed_difference d = nm_seed_test(&a.group, &b.group, nm_bootstrap_default().outside);
    summary->difference = d.value;
    summary->difference_low = d.low;
    summary->difference_high = d.high;
    summary->of_models = !isfinite(d.p);
    summary->p = summary->of_models ? model_p(first, summary) : d.p;
    if (table->margin > 0)
        summary->p_equivalence = nm_seed_equivalence(&d, table->margin);
}

static void test_runs(const nm_variant_summary *first, nm_variant_summary *summary)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    for (size_t i = 0; i < summary->n; i++) {
        nm_run_result *run = summary->results[i];
        const nm_run_result *other = result_of_seed(first, run->seed);
        if (!run->measured || !other || other->segments != run->segments)
            continue;
        run->against = other->variant;
        run->p = nm_bootstrap_p(other->value, other->draws, run->value, run->draws, &config);
    }
}

static void summarize_scores(nm_variant_summary *summary)
{
    nm_summary value = summarize(summary, RESULT(value), true);
    summary->score = value.mean;
    summary->score_deviation = value.deviation;
    set_means(summary, result_test_fields(), true);
    NM_AUTO(seed_scores_release) seed_scores scores = seed_scores_of(summary, NULL);
    if (scores.group.n) {
        nm_interval interval = nm_seed_interval(&scores.group, nm_bootstrap_default().outside);
        summary->low = interval.low;
        summary->high = interval.high;
    }
}

static const nm_run_result *measured_run(const nm_variant_summary *summary)
{
    for (size_t i = 0; i < summary->n; i++)
        if (summary->results[i]->measured)
            return summary->results[i];
    return NULL;
}

static const nm_variant_summary *first_scored(const nm_comparison_table *table)
{
    for (size_t s = 0; s < table->n; s++)
        if (table->summaries[s].selected && measured_run(&table->summaries[s]))
            return &table->summaries[s];
    return NULL;
}

/* A variant whose settings have no effect trains the same model as another variant with the same seed. */
static void find_same_weights(nm_run_result *run, const nm_comparison_table *table, size_t end)
{
    for (size_t s = 0; s < end && !run->same_weights; s++) {
        const nm_run_result *other = result_of_seed(&table->summaries[s], run->seed);
        if (other && run->measured && other->weights && other->weights == run->weights)
            run->same_weights = other;
    }
}

/* Effects of the factors over the selected points of the cells. */
static void compute_effects(nm_comparison_table *table)
{
    nm_factorial *f = table->factorial;
    size_t n_seeds = 0, cell = 0;
    for (size_t s = 0; s < table->n; s++)
        n_seeds = table->summaries[s].n > n_seeds ? table->summaries[s].n : n_seeds;
    NM_AUTO_FREE const nm_run_result **runs = nm_allocate((f->n_cells * n_seeds + 1) * sizeof *runs);
    for (size_t s = 0; s < table->n && cell < f->n_cells; s++) {
        const nm_variant_summary *summary = &table->summaries[s];
        for (size_t i = 0; i < summary->n && summary->selected; i++)
            if (summary->results[i]->measured)
                runs[cell * n_seeds + i] = summary->results[i];
        cell += summary->selected;
    }
    nm_factorial_compute(f, runs, n_seeds, table->margin);
}

void nm_comparison_table_test(nm_comparison_table *table)
{
    const nm_variant_summary *first = first_scored(table);
    NM_AUTO_FREE double *p = nm_allocate((table->n + 1) * sizeof *p);
    for (size_t s = 0; s < table->n; s++) {
        nm_variant_summary *summary = &table->summaries[s];
        p[s] = NAN;
        if (!measured_run(summary))
            continue;
        for (size_t i = 0; i < summary->n; i++)
            find_same_weights(summary->results[i], table, s);
        summarize_scores(summary);
        if (summary == first || !summary->selected)
            continue;
        test_variant(table, first, summary);
        p[s] = summary->p;
        test_runs(first, summary);
    }
    if (table->factorial)
        compute_effects(table);
    nm_holm(p, table->n, p);
    for (size_t s = 0; s < table->n; s++) {
        table->summaries[s].p_holm = p[s];
        for (size_t i = 0; i < table->summaries[s].n; i++)
            table->summaries[s].results[i]->p_holm = p[s];
    }
}

typedef struct column {
    const char *title; /* NULL: title of the score */
    size_t offset;
    int digits;
    double factor;
} column;

#define SUMMARY(name) offsetof(nm_variant_summary, name)
static const column columns[] = {
    {"n", SUMMARY(finished), 0, 1},
    {NULL, SUMMARY(score), 2, 1},
    {"±", SUMMARY(score_deviation), 2, 1},
    {"95 % from", SUMMARY(low), 1, 1},
    {"to", SUMMARY(high), 1, 1},
    {"diff", SUMMARY(difference), 2, 1},
    {"diff from", SUMMARY(difference_low), 2, 1},
    {"diff to", SUMMARY(difference_high), 2, 1},
    {"p (Holm)", SUMMARY(p_holm), 3, 1},
    {"p equiv", SUMMARY(p_equivalence), 3, 1},
    {"loss", SUMMARY(loss), 3, 1},
    {"loss ±", SUMMARY(loss_deviation), 3, 1},
    {"valid ppl", SUMMARY(perplexity), 2, 1},
    {"tok/s", SUMMARY(tokens_per_second), 0, 1},
    {"MiB", SUMMARY(step_mib), 0, 1},
    {"TID mean %", SUMMARY(tid_mean), 1, 100},
    {"TID var %", SUMMARY(tid_variance), 1, 100},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static double number_in(const nm_variant_summary *summary, const column *c)
{
    double value = (double)summary->finished;
    if (c->offset != SUMMARY(finished))
        memcpy(&value, (const char *)summary + c->offset, sizeof value);
    return c->factor * value;
}

static const char *title_of(const nm_comparison_table *table, const column *c)
{
    const nm_variant_summary *first = first_scored(table);
    return c->title ? c->title : first ? measured_run(first)->title : "score";
}

static bool is_shown(const nm_comparison_table *table, const column *c, bool grid)
{
    for (size_t g = 0; g < table->n; g++)
        if ((grid ? table->summaries[g].variant->point : table->summaries[g].selected) &&
            isfinite(number_in(&table->summaries[g], c)))
            return true;
    return false;
}

/* The first run that failed, or NULL. */
static const nm_run_result *failed_run(const nm_variant_summary *summary)
{
    for (size_t i = 0; i < summary->n; i++)
        if (summary->results[i]->exit_code)
            return summary->results[i];
    return NULL;
}

static bool has_row(const nm_variant_summary *summary, bool grid)
{
    return grid ? summary->variant->point : summary->selected;
}

static char *note_of(const nm_variant_summary *summary, bool grid)
{
    const nm_run_result *failed = failed_run(summary);
    const char *selected = grid && summary->selected ? "selected" : "";
    if (failed && summary->n == 1)
        return nm_format("failed: %s", failed->failure);
    if (failed)
        return nm_format("%s%sseed %lld failed: %s", selected, *selected ? "; " : "", (long long)failed->seed,
                         failed->failure);
    return nm_duplicate(selected);
}

static char *cell_of(const nm_variant_summary *summary, const column *c, bool exact)
{
    double value = number_in(summary, c);
    bool is_p = c->offset == SUMMARY(p_holm) || c->offset == SUMMARY(p_equivalence);
    if (!isfinite(value))
        return nm_duplicate(exact ? "" : "-");
    if (!exact && is_p && value < 0.0005) /* a bootstrap cannot show that p is 0 */
        return nm_duplicate("<0.001");
    return exact ? nm_format("%.9g", value) : nm_format("%.*f", c->digits, value);
}

static bool has_notes(const nm_comparison_table *table, bool grid)
{
    bool any = grid;
    for (size_t g = 0; g < table->n; g++)
        any = any || (has_row(&table->summaries[g], grid) && failed_run(&table->summaries[g]));
    return any;
}

static void add_titles(nm_text_table *cells, const nm_comparison_table *table, const bool *shown, bool notes)
{
    nm_text_table_add(cells, nm_duplicate("norm"));
    for (int c = 0; c < N_COLUMNS; c++)
        if (shown[c])
            nm_text_table_add(cells, nm_duplicate(title_of(table, &columns[c])));
    if (notes)
        nm_text_table_add(cells, nm_duplicate("note"));
    cells->columns = cells->n;
}

static void print_summaries(const nm_comparison_table *table, bool grid, nm_table_format format, FILE *out)
{
    NM_AUTO(nm_text_table_release) nm_text_table cells = {0};
    bool shown[N_COLUMNS], notes = has_notes(table, grid), exact = format == NM_TABLE_CSV;
    for (int c = 0; c < N_COLUMNS; c++)
        shown[c] = is_shown(table, &columns[c], grid);
    add_titles(&cells, table, shown, notes);
    for (size_t g = 0; g < table->n; g++) {
        const nm_variant_summary *summary = &table->summaries[g];
        if (!has_row(summary, grid))
            continue;
        nm_text_table_add(&cells, nm_duplicate(summary->variant->name));
        for (int c = 0; c < N_COLUMNS; c++)
            if (shown[c])
                nm_text_table_add(&cells, cell_of(summary, &columns[c], exact));
        if (notes)
            nm_text_table_add(&cells, note_of(summary, grid));
    }
    nm_text_table_print(&cells, format, out);
}

static bool has_grid(const nm_comparison_table *table)
{
    for (size_t g = 0; g < table->n; g++)
        if (table->summaries[g].variant->point)
            return true;
    return false;
}

void nm_comparison_table_print_grid(const nm_comparison_table *table, nm_table_format format, FILE *out)
{
    if (!has_grid(table) || format == NM_TABLE_JSON)
        return;
    print_summaries(table, true, format, out);
    for (size_t g = 0; g < table->n; g++) {
        const nm_variant_summary *summary = &table->summaries[g];
        if (format != NM_TABLE_CSV && summary->selected && summary->variant->point)
            fprintf(out, "%s%sselected by validation loss%s: %s\n", format != NM_TABLE_LATEX ? "\n" : "",
                    format != NM_TABLE_LATEX ? "" : "% ", summary->by_nll ? " without label smoothing" : "",
                    summary->variant->name);
    }
    fputc('\n', out);
}

/* Number of bytes of the signature of `run` with which the signatures of all shown runs begin. */
static int common_signature(const nm_comparison_table *table, const nm_run_result *run)
{
    size_t common = strlen(run->signature);
    for (size_t g = 0; g < table->n; g++)
        for (size_t i = 0; i < table->summaries[g].n && table->summaries[g].selected; i++)
            if (table->summaries[g].results[i]->measured)
                common =
                    nm_signature_common(run->signature, common, table->summaries[g].results[i]->signature);
    return (int)common;
}

/* What diff and p mean. */
static void print_tests(const nm_comparison_table *table, const nm_variant_summary *first, const char *line,
                        FILE *out)
{
    bool of_norms = false, of_models = false;
    for (size_t g = 0; g < table->n; g++) {
        const nm_variant_summary *summary = &table->summaries[g];
        of_norms = of_norms || (isfinite(summary->p_holm) && !summary->of_models);
        of_models = of_models || (isfinite(summary->p_holm) && summary->of_models);
    }
    if (of_norms || of_models)
        fprintf(out, "%sdiff, p: to %s; p with Holm's correction over the rows\n", line,
                first->variant->name);
    if (of_norms)
        fprintf(out, "%sp: two-sided t test over seeds and test segments\n", line);
    if (of_models)
        fprintf(
            out,
            "%sp%s: one-sided: the fraction of resamples in which the better system is not better (paired "
            "bootstrap over test segments)\n"
            "%sthis p compares models; one seed is not enough to compare the norms (--seeds 3)\n",
            line, of_norms ? " of variants with one seed" : "", line);
}

static void print_footer(const nm_comparison_table *table, nm_table_format format, FILE *out)
{
    const nm_variant_summary *first = first_scored(table);
    const nm_run_result *run = first ? measured_run(first) : NULL;
    if (!run || format == NM_TABLE_CSV)
        return;
    const char *line = format == NM_TABLE_LATEX ? "% " : format == NM_TABLE_MARKDOWN ? "- " : "";
    bool seeds = false;
    for (size_t g = 0; g < table->n; g++)
        seeds = seeds || isfinite(table->summaries[g].score_deviation);
    fprintf(out, "%s%s%s: %.*s\n", *line == '%' ? "" : "\n", line, run->title, common_signature(table, run),
            run->signature);
    if (seeds)
        fprintf(out, "%sn: seeds; score, loss, speed, TID: means over seeds; ±: sample standard deviation\n",
                line);
    fprintf(out, "%s95 %%: confidence interval %s\n", line,
            seeds ? "of the mean over seeds and test segments" : "over test segments (bootstrap)");
    print_tests(table, first, line, out);
    if (table->margin > 0 && seeds) {
        NM_AUTO_FREE char *margin = nm_format("%g", table->margin);
        fprintf(out, "%sp equiv: two one-sided tests of a difference of at least %s\n", line, margin);
    }
    fprintf(out,
            "%sloss: training objective at the best validation; MiB: of a training step; TID: last encoder "
            "layer\n",
            line);
}

static bool is_better(const nm_run_result *a, const nm_run_result *b)
{
    return a->lower_is_better ? a->value < b->value : a->value > b->value;
}

static void print_samples(const nm_comparison_table *table, FILE *out)
{
    const nm_run_result *best = NULL;
    for (size_t g = 0; g < table->n; g++)
        for (size_t i = 0; i < table->summaries[g].n && table->summaries[g].selected; i++) {
            const nm_run_result *run = table->summaries[g].results[i];
            if (run->measured && (!best || is_better(run, best)))
                best = run;
        }
    if (best && best->samples)
        fprintf(out, "\nTest set, %s, seed %lld:\n%s", best->variant, (long long)best->seed, best->samples);
}

static void add_means(json_t *o, const nm_variant_summary *summary, const nm_field *measurements)
{
    for (const nm_field *field = measurements; field->name; field++) {
        double mean;
        memcpy(&mean, (const char *)summary + nm_record_find(summary_fields(), field->name)->offset,
               sizeof mean);
        NM_AUTO_FREE char *key = nm_format("%s_mean", field->key ? field->key : field->name);
        json_object_set_new(o, key, nm_json_number(mean));
    }
}

static json_t *summary_json(const nm_variant_summary *summary)
{
    json_t *o = nm_record_json(summary_score_fields(), summary);
    add_means(o, summary, result_log_fields());
    add_means(o, summary, result_test_fields());
    return o;
}

static json_t *run_json(const nm_run_result *result)
{
    const nm_compared_run run = nm_run_result_describe(result);
    json_t *o = nm_record_json(run_identity_fields(), &run);
    if (run.exit_code)
        return o;
    nm_record_add_json(o, run_log_fields(), &run);
    if (run.scored) {
        json_object_set_new(o, run.score_name, nm_json_number(run.score));
        nm_record_add_json(o, run_score_fields(), &run);
    }
    return o;
}

static void print_json(const nm_comparison_table *table, FILE *out)
{
    json_t *grid = json_array(), *variants = json_array(), *runs = json_array();
    for (size_t g = 0; g < table->n; g++) {
        const nm_variant_summary *summary = &table->summaries[g];
        if (summary->variant->point) {
            json_t *point = summary_json(summary);
            nm_json_add(point, "{s:b, s:o}", "selected", (int)summary->selected, "settings",
                        nm_settings_json(&summary->variant->settings));
            json_array_append_new(grid, point);
        }
        if (summary->selected)
            json_array_append_new(variants, summary_json(summary));
        for (size_t i = 0; i < summary->n; i++)
            json_array_append_new(runs, run_json(summary->results[i]));
    }
    const nm_variant_summary *first = first_scored(table);
    const nm_run_result *run = first ? measured_run(first) : NULL;
    json_t *o = json_pack("{s:s?, s:O*, s:o*, s:o, s:o}", "score", run ? run->name : NULL, "grid",
                          json_array_size(grid) ? grid : NULL, "effects",
                          table->factorial ? nm_factorial_json(table->factorial) : NULL, "variants", variants,
                          "runs", runs);
    json_decref(grid);
    nm_json_print(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9), out);
}

void nm_comparison_table_print(const nm_comparison_table *table, nm_table_format format, bool samples,
                               FILE *out)
{
    if (format == NM_TABLE_JSON) {
        print_json(table, out);
        return;
    }
    print_summaries(table, false, format, out);
    print_footer(table, format, out);
    if (table->factorial)
        nm_factorial_print(table->factorial, format, table->margin, out);
    if (samples && (format == NM_TABLE_TEXT || format == NM_TABLE_MARKDOWN))
        print_samples(table, out);
}
