/* norma score: scores a file of system outputs, with bootstrap intervals, a paired test against a second
 * system, or scores of single lines. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/archive.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/record.h"
#include "cli/model_command.h"
#include "text/score_metric.h"
#include "norma/score.h"

typedef struct score_options { /* section [score] */
    const char *reference, *against;
    NM_SCORE_FIELDS;
    bool json;
} score_options;

/* clang-format off */
static const nm_option score_rows[] = {
    NM_OPTION(score_options, reference, "", 0, 0,
        "File of references; several: comma-separated, or the option repeated."),
    NM_OPTION(score_options, against, "", 0, 0,
        "File of another system's translations for a paired bootstrap test."),
    NM_SCORE_ROWS(score_options),
    NM_OPTION(score_options, json, "false", 0, 0, "Print one JSON object."),
    {0},
};
/* clang-format on */

static const nm_option_rule rules[] = {
    {"score.centered", "score.against", "!", "only the test against another system has differences", NULL},
    {0}};

static void add_options(nm_options *options)
{
    nm_options_add_rules(options, nm_score_rules);
}

/* State of the command. */
typedef struct score_job {
    const score_options *options;
    const char *hypothesis; /* path; "-" is standard input */
    nm_scorer *scorer;
    char **references;
    size_t n_references, reference_capacity;
    nm_scores *scores, *other;
} score_job;

static void job_release(score_job *job)
{
    nm_free_list(job->references, job->n_references);
    nm_scorer_close(job->scorer);
    nm_scores_free(job->scores);
    nm_scores_free(job->other);
}

static bool is_input(const void *context, const char *path)
{
    (void)context;
    return nm_archive_prefix(path) ? nm_archive_contains(path) : nm_file_may_exist(path);
}

/* Collects all occurrences of --reference; the option table contains only the last one. */
static nm_status find_references(const nm_cli *cli, score_job *job, nm_error *err)
{
    for (size_t i = 0; i + 1 < cli->n_settings; i += 2) {
        if (strcmp(cli->settings[i], "score.reference"))
            continue;
        const char *rest = cli->settings[i + 1];
        for (char *path; (path = nm_path_list_next(&rest, is_input, NULL));) {
            NM_APPEND(job->references, job->n_references, job->reference_capacity, path);
        }
    }
    return job->n_references ? NM_OK : nm_fail(err, NM_USAGE, "score: no --reference given");
}

static nm_status open_scorer(const nm_cli *cli, const char *metric, score_job *job, nm_error *err)
{
    const score_options *options = job->options;
    NM_AUTO_FREE const char **settings = nm_cli_settings(cli, "score.reference,score.against,score.json");
    NM_TRY(nm_scorer_open(&job->scorer, metric, settings, err));
    if (*options->against && options->bootstrap == 0)
        return nm_fail(err, NM_USAGE, "score: --against needs bootstrap resamples (--bootstrap)");
    if (*options->against && options->sentence)
        return nm_fail(err, NM_USAGE, "score: --against compares corpus scores, not those of --sentence");
    return NM_OK;
}

/* Standard input can be read only once; with --against, the references are read twice. */
static nm_status check_standard_input(const score_job *job, nm_error *err)
{
    int n_hypotheses = !strcmp(job->hypothesis, "-") + !strcmp(job->options->against, "-"), n_references = 0;
    for (size_t i = 0; i < job->n_references; i++)
        n_references += !strcmp(job->references[i], "-");
    if (n_hypotheses + n_references > 1 || (n_references && *job->options->against))
        return nm_fail(err, NM_USAGE, "score: standard input cannot be read twice; name a file");
    return NM_OK;
}

static nm_status score_files(score_job *job, nm_error *err)
{
    const score_options *options = job->options;
    const char *const *references = (const char *const *)job->references;
    NM_TRY(check_standard_input(job, err));
    NM_TRY(
        nm_scorer_run_files(job->scorer, job->hypothesis, references, job->n_references, &job->scores, err));
    if (!*options->against)
        return NM_OK;
    return nm_scorer_run_files(job->scorer, options->against, references, job->n_references, &job->other,
                               err);
}

static void print_interval(const score_job *job, nm_interval interval)
{
    printf("interval: %.2f to %.2f (95 %% of %lld bootstrap resamples, mean %.2f, seed %lld)\n", interval.low,
           interval.high, (long long)job->options->bootstrap, interval.mean, (long long)job->options->seed);
}

static nm_status print_corpus(const score_job *job, nm_error *err)
{
    nm_interval interval;
    nm_paired paired;
    puts(nm_scores_line(job->scores));
    if (!job->other) {
        if (nm_scores_interval(job->scores, &interval))
            print_interval(job, interval);
        return NM_OK;
    }
    NM_TRY(nm_scores_compare(job->scores, job->other, &paired, err));
    print_interval(job, paired.a);
    printf("against %s\n%s\n", job->options->against, nm_scores_line(job->other));
    print_interval(job, paired.b);
    printf("difference: %+.2f (%.2f to %.2f), p = %.*f (paired bootstrap, %s)\n",
           paired.score_a - paired.score_b, paired.difference.low, paired.difference.high,
           job->options->bootstrap > 10000 ? 6 : 4, paired.p,
           job->options->centered ? "centered" : "one-sided, Koehn 2004");
    return NM_OK;
}

#define INTERVAL(F)                                                                                          \
    F(real, low, "95 % bootstrap interval")                                                                  \
    F(real, high, "Upper end of the interval")                                                               \
    F(real, mean, "Mean over the resamples")
static NM_FIELDS_OF(interval, nm_interval, INTERVAL)

#define RESAMPLES(F)                                                                                         \
    F(int, draws, "Number of resamples")                                                                     \
    F(int, seed, "Random seed")
NM_RECORD(resamples, RESAMPLES)
static NM_FIELDS(resamples, RESAMPLES)

#define OTHER_SYSTEM(F)                                                                                      \
    F(real, score, "Score of the other system")                                                              \
    F(text, line, "Line that is printed without `--json`")                                                   \
    F(json, interval, "95 % bootstrap interval")                                                             \
    F(text, file, "Name of the file")
NM_RECORD(other_system, OTHER_SYSTEM)
static NM_FIELDS(other_system, OTHER_SYSTEM)

#define SCORE(F)                                                                                             \
    F(real, score, "Score")                                                                                  \
    F(text, line, "Line that is printed without `--json`")                                                   \
    F(text, signature, "Signature, as sacreBLEU's")                                                          \
    F(text, metric, "Name of the metric")                                                                    \
    F(int, lines, "Number of lines")                                                                         \
    F(json, line_scores, "Score of each line, with `--sentence`", "line_scores?")                            \
    F(json, bootstrap, "How the intervals were computed; not with `--bootstrap 0`", "bootstrap?")            \
    F(json, interval, "95 % bootstrap interval", "interval?")                                                \
    F(json, against, "The other system, with `--against`", "against?")                                       \
    F(json, difference, "Difference of the two scores, with its interval", "difference?")                    \
    F(text, test, "Paired test: `koehn` or `centered`", "test?")                                             \
    F(real, p,                                                                                               \
      "Its p value. `koehn` is one-sided: the fraction of resamples in which the better system is "          \
      "not better",                                                                                          \
      "p?")
NM_RECORD(score_line, SCORE)
static NM_FIELDS(score_line, SCORE)

static json_t *json_interval(nm_interval of)
{
    return nm_record_json(interval_fields(), &of);
}

static nm_status add_bootstrap(const score_job *job, score_line *line, nm_error *err)
{
    nm_interval own;
    nm_paired paired;
    if (!job->options->bootstrap)
        return NM_OK;
    const resamples drawn = {job->options->bootstrap, job->options->seed};
    if (job->other) {
        NM_TRY(nm_scores_compare(job->scores, job->other, &paired, err));
        own = paired.a;
        const other_system other = {nm_scores_value(job->other), nm_scores_line(job->other),
                                    json_interval(paired.b), job->options->against};
        line->against = nm_record_json(other_system_fields(), &other);
        line->difference = json_interval(paired.difference);
        line->test = job->options->centered ? "centered" : "koehn";
        line->p = paired.p;
    } else {
        nm_scores_interval(job->scores, &own);
    }
    line->bootstrap = nm_record_json(resamples_fields(), &drawn);
    line->interval = json_interval(own);
    return NM_OK;
}

static json_t *line_score(const void *scores, size_t i)
{
    return json_real(nm_scores_segment(scores, i));
}

static nm_status print_json(const score_job *job, const char *metric, nm_error *err)
{
    score_line line = {.score = nm_scores_value(job->scores),
                       .line = nm_scores_line(job->scores),
                       .signature = nm_scores_signature(job->scores),
                       .metric = metric,
                       .lines = (int64_t)nm_scores_n(job->scores),
                       .p = NAN};
    if (job->options->sentence)
        line.line_scores = nm_json_list(nm_scores_n(job->scores), line_score, job->scores);
    else
        NM_TRY(add_bootstrap(job, &line, err));
    nm_json_print(nm_record_json(score_line_fields(), &line), JSON_INDENT(1), stdout);
    return NM_OK;
}

static nm_status print(const score_job *job, const char *metric, nm_error *err)
{
    if (job->options->json)
        return print_json(job, metric, err);
    if (!job->options->sentence)
        return print_corpus(job, err);
    for (size_t i = 0; i < nm_scores_n(job->scores); i++)
        printf("%.2f\n", nm_scores_segment(job->scores, i));
    return NM_OK;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    score_job job = {.options = nm_options_find(cli->options, "score"),
                     .hypothesis = argc > 1 ? argv[1] : "-"};
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 2, &err);
    NM_THEN(status, open_scorer(cli, argv[0], &job, &err));
    NM_THEN(status, find_references(cli, &job, &err));
    NM_THEN(status, score_files(&job, &err));
    NM_THEN(status, print(&job, argv[0], &err));
    NM_THEN(status, nm_file_close(stdout, "standard output", &err));
    job_release(&job);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_score = {
    .name = "score",
    .summary = "score translations by BLEU, chrF or TER, labels by accuracy, tags by F1",
    .usage = "bleu|chrf|ter|accuracy|f1 [FILE] --reference FILE [--against FILE] [OPTION ...]",
    .details =
        "Scores translations, one per line, of FILE or standard input against one or several files of "
        "references. The scores are those of sacreBLEU, of detokenized text, and are printed with their "
        "signature; with --metric-variant multi-bleu BLEU is that of multi-bleu.perl, of tokenized text, "
        "as in papers that report it. accuracy compares lines that are labels; f1 compares the spans of "
        "lines of "
        "space-separated tags such as B-PER, as seqeval, or with --tag-scheme none the classes of tokens. "
        "The interval is a bootstrap over the "
        "lines. With --against, p is that of a "
        "paired bootstrap test between the two systems (Koehn 2004), one-sided: the fraction of resamples in "
        "which the better system is not better.",
    .section = "score",
    .rules = rules,
    .rows = score_rows,
    .config_bytes = sizeof(score_options),
    .options = add_options,
    .run = run,
};
