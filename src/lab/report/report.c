#include "report/report.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/seed_test.h"
#include "base/summary.h"
#include "report/norm_colors.h"

const char *nm_count_show(char text[NM_NUMBER_BYTES], double value)
{
    char digits[NM_NUMBER_BYTES];
    size_t at = 0;
    if (!isfinite(value) || fabs(value) >= 1e15)
        return isfinite(value) ? nm_number_show(text, value) : strcpy(text, "-");
    size_t n = (size_t)snprintf(digits, sizeof digits, "%.0f", fabs(value));
    if (value <= -0.5)
        text[at++] = '-';
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

/* 1.2e-07 as "1.20×10⁻⁷", without spaces, so that a line cannot break inside it. */
static const char *format_power(char text[NM_NUMBER_BYTES], double value)
{
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    char plain[NM_NUMBER_BYTES];
    snprintf(plain, sizeof plain, "%.2e", value);
    char *e = strchr(plain, 'e');
    const char *at = e + 2 + strspn(e + 2, "0");
    size_t length =
        (size_t)snprintf(text, NM_NUMBER_BYTES, "%.*s×10%s", (int)(e - plain), plain, e[1] == '-' ? "⁻" : "");
    for (; *at && length < NM_NUMBER_BYTES; at++)
        length += (size_t)snprintf(text + length, NM_NUMBER_BYTES - length, "%s", digits[*at - '0']);
    return text;
}

const char *nm_number_show(char text[NM_NUMBER_BYTES], double value)
{
    double size = fabs(value);
    if (!isfinite(value))
        return strcpy(text, "-");
    if (size >= 1000 && size < 1e6)
        return nm_count_show(text, value);
    if (size >= 1e6 || (size < 1e-4 && size > 0))
        return format_power(text, value);
    snprintf(text, NM_NUMBER_BYTES, size < 1 ? "%.3g" : "%.4g", value);
    return text;
}

const char *nm_duration_show(char text[NM_NUMBER_BYTES], double seconds)
{
    double shown = seconds < 120 ? seconds : seconds < 7200 ? seconds / 60 : seconds / 3600;
    if (!isfinite(seconds))
        return strcpy(text, "-");
    snprintf(text, NM_NUMBER_BYTES, "%.*f %s", shown < 10 ? 1 : 0, shown,
             seconds < 120    ? "s"
             : seconds < 7200 ? "min"
                              : "h");
    return text;
}

static const char *last_parts(const char *folder, int parts)
{
    const char *at = folder + strlen(folder);
    while (at > folder && (at[-1] != '/' || --parts))
        at--;
    return at;
}

static bool all_differ(char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(names[i], names[k]))
                return false;
    return true;
}

static bool name_exists(const nm_report *report, size_t before, const char *name)
{
    for (size_t i = 0; i < before; i++)
        if (!strcmp(report->runs[i].name, name))
            return true;
    return false;
}

static void make_unique(nm_report *report, size_t i)
{
    char *name = report->runs[i].name;
    for (int number = 2; name_exists(report, i, report->runs[i].name); number++) {
        if (report->runs[i].name != name)
            free(report->runs[i].name);
        report->runs[i].name = nm_format("%s (%d)", name, number);
    }
    if (report->runs[i].name != name)
        free(name);
}

enum { MOST_PARTS = 6 };

/* Names each run by the last components of its path, as many as distinguish the runs: comparisons of two
 * projects differ only before the folders runs/NAME-compare/VARIANT-SEED. If MOST_PARTS are not enough, with
 * numbers. */
static void name_runs(nm_report *report)
{
    NM_AUTO_FREE char **names = nm_allocate((report->n + 1) * sizeof *names);
    for (int parts = 1; parts <= MOST_PARTS; parts++) {
        for (size_t i = 0; i < report->n; i++) {
            NM_AUTO_FREE char *folder = nm_duplicate(report->runs[i].folder);
            for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/';)
                folder[--length] = 0;
            free(names[i]);
            names[i] = nm_duplicate(last_parts(folder, parts));
        }
        if (all_differ(names, report->n))
            break;
    }
    for (size_t i = 0; i < report->n; i++) {
        report->runs[i].name = names[i];
        make_unique(report, i);
    }
}

const char *nm_name_seed(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash && dash[1] && !dash[1 + strspn(dash + 1, "0123456789")] ? dash : name + strlen(name);
}

/* "rbn:norm.rbn.lambda=0.1-1", the name that norma compare gives to a run, as "rbn-1", or with settings as
 * "rbn lambda=0.1-1". */
static char *short_name(const char *name, bool settings)
{
    const char *seed = nm_name_seed(name);
    size_t head = strcspn(name, ":");
    if (head >= (size_t)(seed - name))
        return nm_duplicate(name);
    char *text = nm_format("%.*s", (int)head, name);
    for (const char *at = name + head; settings && at < seed;) {
        const char *end = at + 1 + strcspn(at + 1, ":"), *from = at + 1;
        end = end < seed ? end : seed;
        for (const char *c = from; c < end && *c != '='; c++)
            from = *c == '.' ? c + 1 : from;
        char *more = nm_format("%s %.*s", text, (int)(end - from), from);
        free(text);
        text = more;
        at = end;
    }
    char *whole = nm_format("%s%s", text, seed);
    free(text);
    return whole;
}

/* Replaces the names with short ones if these are unique; returns whether they are. */
static bool use_short_names(nm_report *report, bool settings)
{
    NM_AUTO_FREE char **names = nm_allocate((report->n + 1) * sizeof *names);
    for (size_t i = 0; i < report->n; i++)
        names[i] = short_name(report->runs[i].name, settings);
    bool unique = all_differ(names, report->n);
    for (size_t i = 0; i < report->n; i++)
        if (unique) {
            free(report->runs[i].name);
            report->runs[i].name = names[i];
        } else {
            free(names[i]);
        }
    return unique;
}

/* A seed that all runs share is left out of the names. */
static void drop_common_seed(nm_report *report)
{
    for (size_t i = 0; i < report->n; i++) {
        const char *name = report->runs[i].name, *seed = nm_name_seed(name);
        if (report->n < 2 || seed == name || strcmp(seed, nm_name_seed(report->runs[0].name)))
            return;
    }
    for (size_t i = 0; i < report->n; i++)
        report->runs[i].name[nm_name_seed(report->runs[i].name) - report->runs[i].name] = 0;
}

static bool has_settings_of(const nm_report_run *a, const nm_report_run *b)
{
    for (size_t i = 0; i < a->n_settings; i++) {
        const char *other = nm_report_run_setting(b, a->settings[i].key);
        if (!nm_setting_is_ignored(a->settings[i].key) && (!other || strcmp(other, a->settings[i].value)))
            return false;
    }
    return true;
}

static bool same_settings(const nm_report_run *a, const nm_report_run *b)
{
    return a->n_settings && a->n_settings == b->n_settings && has_settings_of(a, b);
}

static nm_run_style style_of(const nm_report *report, size_t i)
{
    nm_run_style style = {.color = nm_norm_color_index(nm_report_run_norm(&report->runs[i]))};
    for (size_t k = 0; k < i; k++) {
        if (same_settings(&report->runs[i], &report->runs[k]))
            return report->styles[k];
        if (report->styles[k].color == style.color && report->styles[k].variant >= style.variant)
            style.variant = report->styles[k].variant + 1;
    }
    return style;
}

/* Start times are whole seconds: a run after another one may seem to start up to a second before its end. */
static bool overlap(const nm_report_run *a, const nm_report_run *b)
{
    double begin = fmax(nm_report_run_start(a), nm_report_run_start(b));
    double end = fmin(nm_report_run_end(a), nm_report_run_end(b));
    return end - begin >= 1;
}

double nm_report_run_others(const nm_report_run *run)
{
    const nm_series *others = nm_report_run_find(run, "train/other_cores");
    return others ? nm_summary_of(others->value, others->n).mean : NAN;
}

/* Throughput is comparable if all runs were on one host, one after the other, and the host had little other
 * load. Runs without a start time may have overlapped. */
static const char *speed_problem_of(const nm_report *report)
{
    static const double busy = 0.5; /* cores */
    const char *first = nm_report_run_text(&report->runs[0], "start/host");
    for (size_t i = 0; i < report->n; i++) {
        const nm_report_run *run = &report->runs[i];
        const char *host = nm_report_run_text(run, "start/host");
        if (!host || !first || isnan(nm_report_run_start(run)))
            return "a log has no host or start time";
        if (strcmp(host, first))
            return "the runs were on different machines";
        for (size_t k = 0; k < i; k++)
            if (overlap(run, &report->runs[k]))
                return "runs shared the machine";
    }
    for (size_t i = 0; i < report->n; i++)
        if (nm_report_run_others(&report->runs[i]) > busy)
            return "other programs used more than half a core during a run";
    return NULL;
}

/* Whether two runs have different values of a setting. Runs without a configuration are left out. */
static bool settings_differ(const nm_report *report, const char *key)
{
    const char *first = NULL;
    for (size_t i = 0; i < report->n; i++) {
        const char *value = nm_report_run_setting(&report->runs[i], key);
        value = value ? value : "";
        if (!report->runs[i].n_settings)
            continue;
        if (first && strcmp(first, value))
            return true;
        first = value;
    }
    return false;
}

/* Losses and scores are comparable if the runs were validated on the same text with the same dictionary.
 * Texts that are held out depend on the training text. */
static const char *data_problem_of(const nm_report *report)
{
    const char *valid = nm_report_run_setting(&report->runs[0], "data.valid");
    bool is_held_out = !valid || !*valid;
    return settings_differ(report, "run.task")      ? "the runs have different tasks"
           : settings_differ(report, "data.folder") ? "the runs have different data folders"
           : settings_differ(report, "data.valid") || (is_held_out && settings_differ(report, "data.train"))
               ? "the runs have different validation data"
               : NULL;
}

static bool is_score(const char *tag)
{
    static const char *const others[] = {
        "loss",           "nll",   "perplexity", "batch_loss",       "batch_nll",
        "best",           "epoch", "seconds",    "batch_perplexity", "tokens",
        "masked_targets", "load",  "other_cores"};
    if (strncmp(tag, "valid/", 6) || strchr(tag + 6, '/') || strchr(tag + 6, '.'))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(tag + 6, others[i]))
            return false;
    return true;
}

static void find_score(nm_report *report)
{
    report->score_tag = nm_duplicate("valid/perplexity");
    for (size_t i = 0; i < report->n; i++)
        for (size_t k = 0; k < report->runs[i].n_series && !report->score_rises; k++)
            if (is_score(report->runs[i].series[k].tag)) {
                free(report->score_tag);
                report->score_tag = nm_duplicate(report->runs[i].series[k].tag);
                report->score_rises = true;
            }
    report->score_name = nm_duplicate(report->score_tag + strlen("valid/"));
    for (char *at = report->score_name; *at && strlen(report->score_name) <= 4; at++)
        *at = (char)toupper((unsigned char)*at); /* abbreviations */
}

/* The score on the test set is another one than that of validation if the latter has only a loss (train.score
 * = false). */
static void find_test_score(nm_report *report)
{
    const char *name = NULL;
    report->test_rises = report->score_rises;
    for (size_t i = 0; i < report->n && !name; i++) {
        const nm_report_run *run = &report->runs[i];
        const char *score = nm_report_run_text(run, "test/score");
        if (!score || !strcmp(score, report->score_tag + strlen("valid/")))
            continue;
        name = nm_report_run_text(run, "test/title");
        report->test_rises = nm_report_run_last(run, "test/lower_is_better") != 1;
    }
    report->test_name = nm_duplicate(name ? name : report->score_name);
}

double nm_report_valid_score(const nm_report *report, size_t i)
{
    const nm_report_run *run = &report->runs[i];
    return nm_series_at(nm_report_run_find(run, report->score_tag), nm_report_run_best_update(run));
}

bool nm_report_is_tested(const nm_report *report, const nm_run_set *sets, size_t n)
{
    size_t tested = 0;
    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < sets[s].n; i++) {
            bool known = isfinite(report->results[sets[s].list[i]].score);
            if (!known && isfinite(nm_report_valid_score(report, sets[s].list[i])))
                return false;
            tested += known;
        }
    return tested > 0;
}

typedef struct seed_scores { /* the scored runs of a set */
    double *scores;
    const double **draws;
    size_t n, n_draws, one; /* one: index of the last run */
    bool resampled;         /* the resamples of all runs are known */
} seed_scores;

static seed_scores seed_scores_of(const nm_report *report, const nm_run_set *set, bool tested)
{
    seed_scores s = {.scores = nm_allocate((set->n + 1) * sizeof *s.scores),
                     .draws = nm_allocate((set->n + 1) * sizeof *s.draws),
                     .resampled = true};
    for (size_t i = 0; i < set->n; i++) {
        const nm_report_result *result = &report->results[set->list[i]];
        double score = tested ? result->score : nm_report_valid_score(report, set->list[i]);
        if (!isfinite(score))
            continue;
        s.resampled &= result->draws && (!s.n || result->n_draws == s.n_draws);
        s.n_draws = result->n_draws;
        s.one = set->list[i];
        s.scores[s.n] = score;
        s.draws[s.n++] = result->draws;
    }
    return s;
}

static void seed_scores_release(seed_scores *s)
{
    NM_FREE(s->scores, s->draws);
}

nm_run_set nm_report_seeds(const nm_report *report, size_t r)
{
    nm_run_set set = {0};
    for (size_t i = 0; i < report->n; i++) {
        if (report->styles[i].color != report->styles[r].color ||
            report->styles[i].variant != report->styles[r].variant)
            continue;
        if (i < r)
            break;
        NM_APPEND(set.list, set.n, set.capacity, i);
    }
    return set;
}

nm_score_bar nm_report_bars(const nm_report *report, const nm_run_set *sets, size_t n, bool tested)
{
    size_t most = 0;
    bool interval = tested;
    for (size_t i = 0; i < n; i++) {
        NM_AUTO(seed_scores_release) seed_scores s = seed_scores_of(report, &sets[i], tested);
        const nm_report_result *one = &report->results[s.one];
        interval &=
            s.n == 0 || (s.n == 1 && isfinite(one->low) && isfinite(one->high)) || (s.n > 2 && s.resampled);
        most = s.n > most ? s.n : most;
    }
    return interval ? NM_BAR_INTERVAL : most > 1 ? NM_BAR_RANGE : NM_BAR_NONE;
}

nm_mean_score nm_report_mean_score(const nm_report *report, const nm_run_set *set, bool tested,
                                   nm_score_bar bar)
{
    NM_AUTO(seed_scores_release) seed_scores s = seed_scores_of(report, set, tested);
    nm_mean_score mean = {
        .mean = nm_summary_of(s.scores, s.n).mean, .low = INFINITY, .high = -INFINITY, .n = s.n};
    for (size_t i = 0; i < s.n; i++) {
        mean.low = fmin(mean.low, s.scores[i]);
        mean.high = fmax(mean.high, s.scores[i]);
    }
    if (bar == NM_BAR_INTERVAL && s.n == 1) {
        mean.low = report->results[s.one].low;
        mean.high = report->results[s.one].high;
    } else if (bar == NM_BAR_INTERVAL && s.n) {
        const nm_seed_scores group = {s.n, s.n_draws, s.scores, s.draws};
        nm_interval interval = nm_seed_interval(&group, nm_bootstrap_default().outside);
        mean.low = interval.low;
        mean.high = interval.high;
    }
    if (s.n && (!isfinite(mean.low) || !isfinite(mean.high)))
        mean.low = mean.high = mean.mean;
    return mean;
}

static nm_report_result result_of(const nm_report_run *run)
{
    nm_report_result result = {.score = nm_report_run_last(run, "test/value"),
                               .low = nm_report_run_last(run, "test/low"),
                               .high = nm_report_run_last(run, "test/high"),
                               .p = nm_report_run_last(run, "test/p"),
                               .p_holm = nm_report_run_last(run, "test/p_holm")};
    for (size_t i = 0; i < run->n_vectors; i++)
        if (!strcmp(run->vectors[i].tag, "test/draws")) {
            result.draws = run->vectors[i].values;
            result.n_draws = run->vectors[i].n;
        }
    return result;
}

void nm_report_refresh(nm_report *report)
{
    NM_FREE(report->score_tag, report->score_name, report->test_name);
    report->score_rises = false;
    find_score(report);
    find_test_score(report);
    report->speed_problem = report->n ? speed_problem_of(report) : NULL;
    report->data_problem = report->n ? data_problem_of(report) : NULL;
}

nm_status nm_report_open(nm_report *report, const char *const *folders, size_t n, const char *inspected,
                         nm_error *err)
{
    *report = (nm_report){.runs = nm_allocate((n + 1) * sizeof *report->runs),
                          .results = nm_allocate((n + 1) * sizeof *report->results),
                          .styles = nm_allocate((n + 1) * sizeof *report->styles)};
    for (size_t i = 0; i < n; i++) {
        nm_report_run *run = &report->runs[report->n++];
        NM_TRY(nm_report_run_read(run, folders[i], inspected, err));
        report->styles[i] = style_of(report, i);
        report->results[i] = result_of(run);
    }
    name_runs(report);
    if (!use_short_names(report, false))
        use_short_names(report, true);
    drop_common_seed(report);
    nm_report_refresh(report);
    nm_score_grid_make(&report->grid, report->runs, report->styles, report->n);
    return NM_OK;
}

void nm_report_close(nm_report *report)
{
    for (size_t i = 0; i < report->n; i++)
        nm_report_run_release(&report->runs[i]);
    nm_score_grid_release(&report->grid);
    NM_FREE(report->runs, report->results, report->styles, report->score_tag, report->score_name,
            report->test_name);
    *report = (nm_report){0};
}
