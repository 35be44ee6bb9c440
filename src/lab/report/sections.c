#include "report/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "base/summary.h"
#include "report/html.h"
#include "report/norm_colors.h"
#include "report/plot.h"

typedef struct summary {                  /* of one run */
    double score, low, high, p_holm, p;   /* of the test set */
    double valid_score, loss, perplexity; /* of the best validation */
    double updates, best_update, seconds, speed, others, memory, tid_mean, tid_variance;
} summary;

static summary summarize(const nm_report *report, size_t i)
{
    const nm_report_run *run = &report->runs[i];
    const nm_report_result *result = &report->results[i];
    const nm_series *train = nm_report_run_find(run, "train/loss"),
                    *speed = nm_report_run_find(run, "train/tokens_per_second");
    double best = nm_report_run_best_update(run);
    return (summary){
        .score = result->score,
        .low = result->low,
        .high = result->high,
        .p = result->p,
        .p_holm = result->p_holm,
        .valid_score = nm_report_valid_score(report, i),
        .loss = nm_series_at(nm_report_run_find(run, "valid/loss"), best),
        .perplexity = nm_series_at(nm_report_run_find(run, "valid/perplexity"), best),
        .updates = nm_report_run_updates(run),
        .best_update = best,
        .seconds = train && train->n ? train->seconds[train->n - 1] : NAN,
        .speed = speed && speed->n ? nm_median(speed->value, speed->n) : NAN,
        .others = nm_report_run_others(run),
        .memory = nm_report_run_last(run, "start/step_mib"),
        .tid_mean = nm_report_run_tid(run, "mean"),
        .tid_variance = nm_report_run_tid(run, "variance"),
    };
}

typedef struct column { /* offset: of its value, a double, in a summary */
    const char *title, *hint;
    size_t offset;
    char format; /* number of decimals; n: count, t: duration, %: ratio as percent */
    int better;  /* -1: lower, 1: higher, 0: neither, 2: as for the score */
} column;

#define FIELD(name) offsetof(summary, name)
static const column columns[] = {
    {"test", "score on the test set, as norma compare measured it", FIELD(score), '2', 2},
    {"from", "95 % bootstrap interval of the test score", FIELD(low), '1', 0},
    {"to", "95 % bootstrap interval of the test score", FIELD(high), '1', 0},
    {"p (Holm)",
     "test of the variant against the first one, with Holm's correction over the variants, as norma compare "
     "prints it",
     FIELD(p_holm), '3', 0},
    {"p (uncorrected)",
     "paired bootstrap against the first variant's run with the same seed; not corrected for the number of "
     "runs",
     FIELD(p), '3', 0},
    {"validation", "score of the best validation", FIELD(valid_score), '2', 2},
    {"loss", "of the best validation, nats per token", FIELD(loss), '3', -1},
    {"perplexity", "of the best validation", FIELD(perplexity), '2', -1},
    {"best at", "update of the best validation", FIELD(best_update), 'n', 0},
    {"updates", "number of updates so far", FIELD(updates), 'n', 0},
    {"time", "training time", FIELD(seconds), 't', 0},
    {"tokens/s", "throughput, median of the run", FIELD(speed), 'n', 1},
    {"other cores",
     "mean number of cores that other programs used while the run trained; with them, the speed depends on "
     "what else ran",
     FIELD(others), '1', 0},
    {"MiB", "memory of the largest training step", FIELD(memory), 'n', -1},
    {"TID mean", "at the input of the last feed-forward norm of the encoder, or of the only stack",
     FIELD(tid_mean), '%', 0},
    {"TID var.", "at the input of the last feed-forward norm of the encoder, or of the only stack",
     FIELD(tid_variance), '%', 0},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static double field(const summary *s, size_t offset)
{
    double value;
    memcpy(&value, (const char *)s + offset, sizeof value);
    return value;
}

static void write_cell(FILE *out, const column *c, double value, bool best)
{
    char text[NM_NUMBER_BYTES];
    fputs("<td", out);
    if (isfinite(value))
        fprintf(out, " data-value=\"%.9g\"", value);
    fputs(best ? " class=\"best\">" : ">", out);
    if (!isfinite(value))
        fputs("–", out);
    else if (c->format == 'n')
        fputs(nm_count_show(text, value), out);
    else if (c->format == 't')
        fputs(nm_duration_show(text, value), out);
    else if ((c->offset == FIELD(p) || c->offset == FIELD(p_holm)) && value < 0.0005)
        fputs("&lt;0.001", out);
    else if (fabs(value) >= 1e5)
        fputs(nm_number_show(text, value), out);
    else
        fprintf(out, "%.*f", c->format == '%' ? 1 : c->format - '0', c->format == '%' ? 100 * value : value);
    fputs(c->format == '%' && isfinite(value) ? "&nbsp;%</td>" : "</td>", out);
}

static bool is_best(const summary *all, size_t n, size_t i, const column *c, int better)
{
    double value = field(&all[i], c->offset);
    size_t n_worse = 0;
    for (size_t k = 0; k < n; k++) {
        double other = field(&all[k], c->offset);
        if (better * (other - value) > 0)
            return false;
        n_worse += better * (other - value) < 0;
    }
    return n_worse > 0;
}

static void write_swatch(FILE *out, nm_run_style style)
{
    fprintf(out,
            "<svg class=\"swatch\" width=\"22\" height=\"10\" aria-hidden=\"true\"><path d=\"M1 5H21\" "
            "stroke=\"%s\" "
            "stroke-width=\"2.5\" stroke-dasharray=\"%s\"/><path d=\"%s\" fill=\"%s\"/></svg>",
            nm_norm_color(style), nm_plot_dashes(style), nm_plot_marker(style), nm_norm_color(style));
}

static void write_run_button(const nm_report *report, size_t i, FILE *out)
{
    fprintf(out, "<button type=\"button\" class=\"run\" data-run=\"%zu\" aria-pressed=\"true\">", i);
    write_swatch(out, report->styles[i]);
    nm_html_text(out, report->runs[i].name);
    fputs(nm_report_run_is_unfinished(&report->runs[i]) ? " <em>unfinished</em></button>" : "</button>", out);
}

void nm_section_open(const char *id, const char *title, bool open, FILE *out)
{
    fprintf(out, "<section id=\"%s\"><details class=\"fold\"%s><summary><h2>%s</h2></summary>\n", id,
            open ? " open" : "", title);
}

void nm_section_legend(const nm_report *report, FILE *out)
{
    fputs("<nav class=\"legend\">", out);
    for (size_t i = 0; i < report->n; i++)
        write_run_button(report, i, out);
    fputs("</nav>\n", out);
}

static bool any_finite(const nm_report *report, const summary *all, size_t offset)
{
    for (size_t i = 0; i < report->n; i++)
        if (isfinite(field(&all[i], offset)))
            return true;
    return false;
}

static bool column_shown(const nm_report *report, const summary *all, const column *c)
{
    if (c->offset == FIELD(perplexity) && !strcmp(report->score_tag, "valid/perplexity"))
        return false; /* it is the score */
    if (c->offset == FIELD(p) && any_finite(report, all, FIELD(p_holm)))
        return false;
    return any_finite(report, all, c->offset);
}

/* Whether the values of a column are comparable between the runs. */
static bool column_ranked(const nm_report *report, const column *c)
{
    if (c->offset == FIELD(speed))
        return !report->speed_problem;
    bool depends_on_data = c->offset == FIELD(score) || c->offset == FIELD(valid_score) ||
                           c->offset == FIELD(loss) || c->offset == FIELD(perplexity);
    return !depends_on_data || !report->data_problem;
}

static void write_row(const nm_report *report, const summary *all, size_t i, FILE *out)
{
    fputs("<tr><th scope=\"row\">", out);
    write_run_button(report, i, out);
    fputs("</th>", out);
    for (int c = 0; c < N_COLUMNS; c++)
        if (column_shown(report, all, &columns[c])) {
            bool rises = columns[c].offset == FIELD(score) ? report->test_rises : report->score_rises;
            bool is_ranked = column_ranked(report, &columns[c]);
            int better = !is_ranked ? 0 : columns[c].better == 2 ? (rises ? 1 : -1) : columns[c].better;
            write_cell(out, &columns[c], field(&all[i], columns[c].offset),
                       is_best(all, report->n, i, &columns[c], better));
        }
    fputs("</tr>\n", out);
}

static void write_problems(const nm_report *report, FILE *out)
{
    char count[NM_NUMBER_BYTES];
    for (size_t i = 0; i < report->n; i++) {
        const nm_report_run *run = &report->runs[i];
        if (!run->bad_lines && !run->open_end && run->n_series)
            continue;
        fputs("<p class=\"note\">", out);
        nm_html_text(out, run->name);
        if (run->bad_lines) {
            fprintf(out, ": %s lines of log.jsonl cannot be read, ",
                    nm_count_show(count, (double)run->bad_lines));
            fprintf(out, "the first is line %s.", nm_count_show(count, (double)run->first_bad));
        } else if (run->open_end)
            fputs(": the last line of log.jsonl is incomplete; the run is active or was cut off.", out);
        else
            fputs(": nothing has been logged yet.", out);
        fputs("</p>\n", out);
    }
}

/* Writes the fields with which the signatures of all runs begin; the later ones may differ between runs. */
static void write_signature(const nm_report *report, FILE *out)
{
    const char *first = NULL, *name = report->score_name;
    size_t common = 0;
    for (size_t i = 0; i < report->n; i++) {
        const char *other = nm_report_run_text(&report->runs[i], "test/signature");
        name = other ? report->test_name : name;
        other = other ? other : nm_report_run_text(&report->runs[i], "valid/signature");
        if (!other)
            continue;
        if (!first) {
            first = other;
            common = strlen(other);
        }
        common = nm_signature_common(first, common, other);
    }
    if (!common)
        return;
    NM_AUTO_FREE char *text = nm_format("%.*s", (int)common, first);
    nm_html_text(out, name);
    fputs(": <code>", out);
    nm_html_text(out, text);
    fputs("</code>.", out);
}

static void write_test_sets(const nm_report *report, FILE *out)
{
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < report->n; i++) {
        double segments = nm_report_run_last(&report->runs[i], "test/segments");
        least = fmin(least, segments); /* ignores NaN */
        most = fmax(most, segments);
    }
    if (least < most)
        fprintf(out,
                "The test scores cannot be compared, because the test sets differ: they have %.0f to %.0f "
                "segments. ",
                least, most);
}

void nm_section_runs(const nm_report *report, FILE *out)
{
    NM_AUTO_FREE summary *all = nm_allocate((report->n + 1) * sizeof *all);
    for (size_t i = 0; i < report->n; i++)
        all[i] = summarize(report, i);
    nm_section_open("runs", "Runs", true, out);
    fputs("<div class=\"scroll\"><table "
          "class=\"numbers\"><thead><tr><th><button type=\"button\" class=\"sort\">run</button></th>",
          out);
    for (int c = 0; c < N_COLUMNS; c++)
        if (column_shown(report, all, &columns[c])) {
            fprintf(out, "<th title=\"%s\"><button type=\"button\" class=\"sort\">%s", columns[c].hint,
                    columns[c].title);
            if (columns[c].offset == FIELD(score) || columns[c].offset == FIELD(valid_score)) {
                putc(' ', out);
                nm_html_text(out, columns[c].offset == FIELD(score) ? report->test_name : report->score_name);
            }
            fputs("</button></th>", out);
        }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; i < report->n; i++)
        write_row(report, all, i, out);
    fputs("</tbody></table></div>\n<p class=\"hint\">The name of a run hides or shows it in all figures. "
          "Click a column title to sort by it; the second click reverses the order, the third restores it. ",
          out);
    if (!column_shown(report, all, &columns[0]))
        fputs("Test scores with intervals, p and TID come from <code>norma compare</code>. ", out);
    if (report->n > 1 && report->speed_problem)
        fprintf(out, "The speed is not ranked: %s. ", report->speed_problem);
    if (report->n > 1 && report->data_problem)
        fprintf(out, "Losses and scores are not ranked: %s. ", report->data_problem);
    write_test_sets(report, out);
    write_signature(report, out);
    fputs("</p>\n", out);
    write_problems(report, out);
    fputs("</details></section>\n", out);
}

static void write_names(const nm_report *report, const char *first, FILE *out)
{
    static const char button[] = "<th><button type=\"button\" class=\"sort\">";
    fprintf(out, "<div class=\"scroll\"><table><thead><tr>%s%s</button></th>", button, first);
    for (size_t i = 0; i < report->n; i++) {
        fputs(button, out);
        nm_html_text(out, report->runs[i].name);
        fputs("</button></th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
}

/* values: [n runs], NULL: unknown; shared: all are equal, and one is written. */
static void write_values(const nm_report *report, const char *label, char *const *values, bool shared,
                         FILE *out)
{
    fputs("<tr><th scope=\"row\">", out);
    nm_html_text(out, label);
    fputs("</th>", out);
    for (size_t i = 0; i < (shared ? 1 : report->n); i++) {
        fputs("<td>", out);
        nm_html_text(out, values[i] && *values[i] ? values[i] : "–");
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void write_setting(const nm_report *report, const char *key, FILE *out)
{
    char **values = nm_allocate((report->n + 1) * sizeof *values);
    for (size_t i = 0; i < report->n; i++)
        values[i] = nm_duplicate(nm_report_run_setting(&report->runs[i], key));
    write_values(report, key, values, false, out);
    nm_free_list(values, report->n);
}

static bool differs(const nm_report *report, const char *key)
{
    const char *first = nm_report_run_setting(&report->runs[0], key);
    for (size_t i = 1; i < report->n; i++) {
        const char *other = nm_report_run_setting(&report->runs[i], key);
        if (!first != !other || (first && strcmp(first, other)))
            return true;
    }
    return false;
}

void nm_section_settings(const nm_report *report, FILE *out)
{
    size_t rows = 0;
    if (report->n < 2)
        return;
    nm_section_open("settings", "Where the configurations differ", false, out);
    write_names(report, "option", out);
    for (size_t r = 0; r < report->n; r++)
        for (size_t i = 0; i < report->runs[r].n_settings; i++) {
            const char *key = report->runs[r].settings[i].key;
            if (!strcmp(key, "run.folder") || nm_report_runs_set(report->runs, r, key) ||
                !differs(report, key))
                continue;
            write_setting(report, key, out);
            rows++;
        }
    fputs("</tbody></table></div>\n", out);
    if (!rows)
        fputs("<p>They are equal except for their folders.</p>\n", out);
    fputs("</details></section>\n", out);
}

typedef enum fact_source {
    FACT_SETTING, /* option of config.ini */
    FACT_TEXT,    /* string of the log */
    FACT_COUNT,   /* number of the log */
    FACT_SIZE     /* number of the log, and size_unit */
} fact_source;

typedef struct fact {
    const char *label, *key;
    fact_source source;
} fact;

static const fact trained[] = {{"task", "run.task", FACT_SETTING},
                               {"data folder", "data.folder", FACT_SETTING},
                               {"training data", "data.train", FACT_SETTING},
                               {"size of the training data", "start/data_size", FACT_SIZE},
                               {"validation data", "data.valid", FACT_SETTING},
                               {"test data", "data.test", FACT_SETTING},
                               {"parameters", "start/parameters", FACT_COUNT},
                               {"preset", "model.preset", FACT_SETTING},
                               {"width", "model.width", FACT_SETTING},
                               {"feed-forward width", "model.ff", FACT_SETTING},
                               {"heads", "model.heads", FACT_SETTING},
                               {"layers", "model.layers", FACT_SETTING},
                               {"encoder layers", "model.encoder_layers", FACT_SETTING},
                               {"decoder layers", "model.decoder_layers", FACT_SETTING},
                               {"norm position", "model.norm_position", FACT_SETTING},
                               {"tokens per batch", "train.max_tokens", FACT_SETTING},
                               {"batches per update", "train.shards", FACT_SETTING},
                               {"started (UTC)", "start/started", FACT_TEXT},
                               {"host", "start/host", FACT_TEXT},
                               {"command", "start/command", FACT_TEXT}};
static const fact environment[] = {
    {"program", "start/norma", FACT_TEXT},       {"compiler", "start/compiler", FACT_TEXT},
    {"device", "start/device", FACT_TEXT},       {"system", "start/system", FACT_TEXT},
    {"backend", "device.backend", FACT_SETTING}, {"threads", "device.threads", FACT_SETTING},
    {"seed", "train.seed", FACT_SETTING}};

/* Heap; NULL when the run has no such fact. */
static char *fact_of(const nm_report_run *run, const fact *f)
{
    char count[NM_NUMBER_BYTES];
    double number;
    const char *text = NULL;
    switch (f->source) {
    case FACT_SETTING:
        text = nm_report_run_setting(run, f->key);
        break;
    case FACT_TEXT:
        text = nm_report_run_text(run, f->key);
        break;
    case FACT_COUNT:
        number = nm_report_run_last(run, f->key);
        text = isfinite(number) ? nm_count_show(count, number) : NULL;
        break;
    case FACT_SIZE:
        number = nm_report_run_last(run, f->key);
        text = nm_report_run_text(run, "start/size_unit");
        return text && isfinite(number) ? nm_format("%s %s", nm_count_show(count, number), text) : NULL;
    }
    return text && *text ? nm_duplicate(text) : NULL;
}

/* shared: writes the facts that are equal in all runs, each once; otherwise the other facts, with a column
 * per run. */
static void write_facts(const nm_report *report, const fact *facts, size_t n_facts, bool shared, FILE *out)
{
    NM_AUTO_FREE char **values = nm_allocate((report->n + 1) * sizeof *values);
    bool any = false;
    for (size_t f = 0; f < n_facts; f++) {
        bool known = false, differ = false;
        for (size_t i = 0; i < report->n; i++) {
            values[i] = fact_of(&report->runs[i], &facts[f]);
            known |= values[i] != NULL;
            differ |= !values[i] != !values[0] || (values[i] && strcmp(values[i], values[0]));
        }
        if (known && differ != shared) {
            if (!any && shared)
                fputs("<table><tbody>\n", out);
            else if (!any)
                write_names(report, "property", out);
            any = true;
            write_values(report, facts[f].label, values, shared, out);
        }
        for (size_t i = 0; i < report->n; i++)
            free(values[i]);
    }
    if (any)
        fputs(shared ? "</tbody></table>\n" : "</tbody></table></div>\n", out);
}

void nm_section_training(const nm_report *report, FILE *out)
{
    nm_section_open("training", "What was trained", false, out);
    write_facts(report, trained, sizeof trained / sizeof *trained, true, out);
    write_facts(report, trained, sizeof trained / sizeof *trained, false, out);
    fputs("</details></section>\n", out);
}

void nm_section_environment(const nm_report *report, FILE *out)
{
    nm_section_open("environment", "Environment", false, out);
    write_facts(report, environment, sizeof environment / sizeof *environment, true, out);
    write_facts(report, environment, sizeof environment / sizeof *environment, false, out);
    fputs("<p class=\"hint\">Page written by norma " NORMA_VERSION ".</p></details></section>\n", out);
}
