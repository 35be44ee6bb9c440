/* norma score: BLEU, chrF and TER of a file of translations, with bootstrap intervals, a paired test against a second system, and
 * scores of single lines. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli.h"
#include "metric/score_files.h"

typedef enum metric_variant { VARIANT_MULTI_BLEU, VARIANT_SACREBLEU } metric_variant;

typedef struct score_options {
    const char *reference, *against;
    metric_variant metric_variant;
    const char *tokenize, *spm_model, *mecab_dictionary;
    bool lowercase, split_compounds;
    int64_t char_order, word_order;
    double beta;
    int64_t bootstrap, seed;
    bool ter_normalized, ter_no_punctuation, ter_asian, ter_case_sensitive;
    bool centered, sentence, json;
} score_options;

/* clang-format off */
static const nm_option score_rows[] = {
    NM_OPTION(score_options, reference, "", 0, 0, "File of references; several: comma-separated, or the option repeated."),
    NM_OPTION(score_options, against, "", 0, 0, "File of another system's translations for a paired bootstrap test."),
    NM_CHOICE(score_options, metric_variant, "multi-bleu", "multi-bleu|sacrebleu",
              "BLEU as multi-bleu.perl computes it, on the given tokens, or as sacreBLEU, with 13a tokenization and smoothing."),
    NM_CHOICE(score_options, tokenize, "13a", NM_METRIC_TOKENIZERS,
              "Tokenizer of sacreBLEU, which it selects: intl for European text, zh for Chinese, ja-mecab for Japanese words, char for characters, none, or spm for a SentencePiece model."),
    NM_OPTION(score_options, spm_model, "", 0, 0, "SentencePiece model of --tokenize spm, such as that of flores200."),
    NM_OPTION(score_options, mecab_dictionary, "", 0, 0, "Folder of MeCab's IPA dictionary for --tokenize ja-mecab; empty: that of Debian's mecab-ipadic-utf8."),
    NM_OPTION(score_options, lowercase, "false", 0, 0, "Compare in lower case (BLEU, chrF)."),
    NM_OPTION(score_options, split_compounds, "false", 0, 0, "Split hyphenated words into WORD ##AT##-##AT## WORD on both sides (BLEU)."),
    NM_OPTION(score_options, char_order, "6", 1, NM_CHRF_MAX_ORDER, "Order of the longest character n-grams (chrF)."),
    NM_OPTION(score_options, word_order, "0", 0, NM_CHRF_MAX_ORDER, "Order of the longest word n-grams (chrF); 2 is chrF++."),
    NM_OPTION(score_options, beta, "2", 0.001, 1000, "Weight of recall relative to precision (chrF)."),
    NM_OPTION(score_options, ter_normalized, "false", 0, 0, "Split off punctuation (TER)."),
    NM_OPTION(score_options, ter_no_punctuation, "false", 0, 0, "Remove punctuation (TER)."),
    NM_OPTION(score_options, ter_asian, "false", 0, 0, "With --ter-normalized, split CJK characters; with --ter-no-punctuation, remove their punctuation (TER)."),
    NM_OPTION(score_options, ter_case_sensitive, "false", 0, 0, "Distinguish upper and lower case (TER)."),
    NM_OPTION(score_options, bootstrap, "1000", 0, 10000000, "Number of bootstrap resamples for interval and test; 0: no interval."),
    NM_OPTION(score_options, seed, "1", 0, 9e15, "Random seed of the bootstrap."),
    NM_OPTION(score_options, centered, "false", 0, 0, "Test with centered differences, as the Moses script, instead of Koehn's test."),
    NM_OPTION(score_options, sentence, "false", 0, 0, "Print the score of every line instead of the corpus score."),
    NM_OPTION(score_options, json, "false", 0, 0, "Print one JSON object."),
    {0},
};
/* clang-format on */

static bool uses_asian(const nm_options *options)
{
    const score_options *score = nm_options_find(options, "score");
    return score->ter_normalized || score->ter_no_punctuation;
}

static const nm_option_rule score_rules[] = {
    {"score.spm_model", "score.tokenize", "spm", "only that tokenizer has a model", NULL},
    {"score.mecab_dictionary", "score.tokenize", "ja-mecab", "only that tokenizer has a dictionary", NULL},
    {"score.ter_asian", NULL, NULL, "it needs ter_normalized or ter_no_punctuation", uses_asian},
    {0}};

static void add_options(nm_options *options)
{
    nm_options_add(options, "score", score_rows, NULL, sizeof(score_options));
    nm_options_add_rules(options, score_rules);
}

/* Everything one call works with. */
typedef struct score_job {
    const score_options *options;
    const char *metric;
    const char *hypothesis; /* path; "-" is standard input */
    nm_score_config config;
    nm_metric_tokenizer tokenizer;
    nm_bootstrap_config resampling;
    char *paths; /* of the references, split at the commas */
    const char **references;
    int n_references, reference_capacity;
    nm_counts counts, other;
} score_job;

static void job_release(score_job *job)
{
    free(job->paths);
    free(job->references);
    nm_metric_tokenizer_close(&job->tokenizer);
    nm_score_counts_release(&job->counts);
    nm_score_counts_release(&job->other);
}

/* All occurrences of --reference; the option table has only the last one. */
static nm_status find_references(const nm_cli *cli, score_job *job, nm_error *err)
{
    for (size_t i = 0; i + 1 < cli->n_settings; i += 2) {
        if (strcmp(cli->settings[i], "score.reference"))
            continue;
        char *longer = nm_format("%s,%s", job->paths ? job->paths : "", cli->settings[i + 1]);
        free(job->paths);
        job->paths = longer;
    }
    char *rest = job->paths;
    for (char *path; rest && (path = strtok_r(NULL, ",", &rest));) {
        NM_GROW(job->references, job->n_references, job->reference_capacity);
        job->references[job->n_references++] = path;
    }
    return job->n_references ? NM_OK : nm_fail(err, NM_USAGE, "score: no --reference given");
}

/* Options of one metric are errors with another one. */
static nm_status check_metric(const nm_cli *cli, nm_score_kind kind, nm_error *err)
{
    static const struct {
        const char *prefix;
        int kinds; /* bits */
    } parts[] = {{"score.ter_", 1 << NM_SCORE_TER},
                 {"score.tokenize", 1 << NM_SCORE_BLEU},
                 {"score.spm_model", 1 << NM_SCORE_BLEU},
                 {"score.mecab_dictionary", 1 << NM_SCORE_BLEU},
                 {"score.lowercase", 1 << NM_SCORE_BLEU | 1 << NM_SCORE_CHRF}};
    for (size_t i = 0; i + 1 < cli->n_settings; i += 2)
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (!strncmp(cli->settings[i], parts[k].prefix, strlen(parts[k].prefix)) &&
                !(parts[k].kinds >> kind & 1))
                return nm_fail(err, NM_USAGE, "%s has no effect on this metric", cli->settings[i]);
    char *warning = NULL;
    nm_status status = nm_options_check(cli->options, &warning, err);
    free(warning);
    return status;
}

/* --tokenize selects sacreBLEU. */
static nm_status open_tokenizer(const nm_cli *cli, score_job *job, bool *sacrebleu, nm_error *err)
{
    const score_options *options = job->options;
    if (nm_options_origin(cli->options, "score.tokenize") == NM_ORIGIN_DEFAULT)
        return NM_OK;
    if (!*sacrebleu && nm_options_origin(cli->options, "score.metric_variant") != NM_ORIGIN_DEFAULT)
        return nm_fail(err, NM_USAGE, "score: --tokenize is an option of sacreBLEU, not of multi-bleu");
    *sacrebleu = true;
    const nm_metric_tokenizer_config config = {options->tokenize, options->spm_model,
                                               options->mecab_dictionary};
    return nm_metric_tokenizer_open(&job->tokenizer, &config, err);
}

static nm_status configure(const nm_cli *cli, const char *metric, score_job *job, nm_error *err)
{
    const score_options *options = job->options;
    static const char *const names[] = {
        [NM_SCORE_BLEU] = "bleu", [NM_SCORE_CHRF] = "chrf", [NM_SCORE_TER] = "ter"};
    bool sacrebleu = options->metric_variant == VARIANT_SACREBLEU;
    int kind = 0;
    while (kind <= NM_SCORE_TER && strcmp(metric, names[kind]))
        kind++;
    if (kind > NM_SCORE_TER)
        return nm_fail(err, NM_USAGE, "score: unknown metric '%s'; known: bleu, chrf, ter", metric);
    NM_TRY(check_metric(cli, (nm_score_kind)kind, err));
    NM_TRY(open_tokenizer(cli, job, &sacrebleu, err));
    if (*options->against && options->bootstrap == 0)
        return nm_fail(err, NM_USAGE, "score: --against needs bootstrap resamples (--bootstrap)");
    if (*options->against && options->sentence)
        return nm_fail(err, NM_USAGE, "score: --against compares corpus scores, not those of --sentence");
    job->config = (nm_score_config){.kind = (nm_score_kind)kind,
                                    .bleu = {.variant = sacrebleu ? NM_BLEU_SACRE_13A : NM_BLEU_MULTI,
                                             .lowercase = options->lowercase,
                                             .split_compounds = options->split_compounds,
                                             .tokenizer = job->tokenizer.type ? &job->tokenizer : NULL,
                                             .effective_order = options->sentence && sacrebleu},
                                    .chrf = {.char_order = (int)options->char_order,
                                             .word_order = (int)options->word_order,
                                             .beta = options->beta,
                                             .lowercase = options->lowercase},
                                    .ter = {.normalized = options->ter_normalized,
                                            .no_punctuation = options->ter_no_punctuation,
                                            .asian = options->ter_asian,
                                            .case_sensitive = options->ter_case_sensitive}};
    job->resampling = nm_bootstrap_default();
    job->resampling.n_resamples = (int)options->bootstrap;
    job->resampling.seed = (uint64_t)options->seed;
    job->resampling.centered = options->centered;
    return NM_OK;
}

/* Standard input can be read only once; with --against the references are read twice. */
static nm_status check_standard_input(const score_job *job, nm_error *err)
{
    int n_hypotheses = !strcmp(job->hypothesis, "-") + !strcmp(job->options->against, "-"), n_references = 0;
    for (int i = 0; i < job->n_references; i++)
        n_references += !strcmp(job->references[i], "-");
    if (n_hypotheses + n_references > 1 || (n_references && *job->options->against))
        return nm_fail(err, NM_USAGE, "score: standard input cannot be read twice; name a file");
    return NM_OK;
}

static nm_status count_files(score_job *job, nm_error *err)
{
    const score_options *options = job->options;
    NM_TRY(check_standard_input(job, err));
    NM_TRY(nm_score_count_files(&job->config, job->hypothesis, job->references, job->n_references,
                                &job->counts, err));
    if (!*options->against)
        return NM_OK;
    return nm_score_count_files(&job->config, options->against, job->references, job->n_references,
                                &job->other, err);
}

static char *corpus_line(const score_job *job, nm_counts counts)
{
    int64_t *sum = nm_counts_sum(counts);
    char *line = nm_score_line(&job->config, sum, job->n_references);
    free(sum);
    return line;
}

static void print_interval(const score_job *job, nm_interval interval)
{
    printf("interval: %.2f to %.2f (95 %% of %d bootstrap resamples, mean %.2f, seed %" PRIu64 ")\n",
           interval.low, interval.high, job->resampling.n_resamples, interval.mean, job->resampling.seed);
}

static void print_corpus(const score_job *job)
{
    char *line = corpus_line(job, job->counts);
    puts(line);
    free(line);
    if (job->resampling.n_resamples && !*job->options->against)
        print_interval(
            job, nm_bootstrap_interval(job->counts, nm_score_of_config, &job->config, &job->resampling));
    if (!*job->options->against)
        return;
    nm_paired paired =
        nm_bootstrap_paired(job->counts, job->other, nm_score_of_config, &job->config, &job->resampling);
    print_interval(job, paired.a);
    line = corpus_line(job, job->other);
    printf("against %s\n%s\n", job->options->against, line);
    free(line);
    print_interval(job, paired.b);
    printf("difference: %+.2f (%.2f to %.2f), p = %.4f (paired bootstrap, %s)\n",
           paired.score_a - paired.score_b, paired.difference.low, paired.difference.high, paired.p,
           job->resampling.centered ? "centered" : "Koehn 2004");
}

static double line_score(const score_job *job, size_t i)
{
    return nm_score_of_config(job->counts.values + i * (size_t)job->counts.n_counts, &job->config);
}

static json_t *json_interval(nm_interval interval)
{
    return json_pack("{s:f, s:f, s:f}", "low", interval.low, "high", interval.high, "mean", interval.mean);
}

static json_t *json_system(const score_job *job, nm_counts counts)
{
    char *line = corpus_line(job, counts);
    json_t *system = json_pack("{s:f, s:s}", "score",
                               nm_counts_score(counts, nm_score_of_config, &job->config), "line", line);
    free(line);
    return system;
}

static void json_add_bootstrap(const score_job *job, json_t *root)
{
    json_object_set_new(root, "bootstrap",
                        json_pack("{s:i, s:I}", "draws", job->resampling.n_resamples, "seed",
                                  (json_int_t)job->resampling.seed));
    if (!*job->options->against) {
        nm_interval interval =
            nm_bootstrap_interval(job->counts, nm_score_of_config, &job->config, &job->resampling);
        json_object_set_new(root, "interval", json_interval(interval));
        return;
    }
    nm_paired paired =
        nm_bootstrap_paired(job->counts, job->other, nm_score_of_config, &job->config, &job->resampling);
    json_t *other = json_system(job, job->other);
    json_object_set_new(other, "interval", json_interval(paired.b));
    json_object_set_new(other, "file", json_string(job->options->against));
    json_object_set_new(root, "interval", json_interval(paired.a));
    json_object_set_new(root, "against", other);
    json_object_set_new(root, "difference", json_interval(paired.difference));
    json_object_set_new(root, "test", json_string(job->resampling.centered ? "centered" : "koehn"));
    json_object_set_new(root, "p", json_real(paired.p));
}

static void print_json(const score_job *job)
{
    json_t *root = json_system(job, job->counts);
    char *signature = nm_score_signature(&job->config, job->n_references);
    json_object_set_new(root, "signature", json_string(signature));
    json_object_set_new(root, "metric", json_string(job->metric));
    json_object_set_new(root, "lines", json_integer((json_int_t)job->counts.n_segments));
    free(signature);
    if (job->options->sentence) {
        json_t *lines = json_array();
        for (size_t i = 0; i < job->counts.n_segments; i++)
            json_array_append_new(lines, json_real(line_score(job, i)));
        json_object_set_new(root, "line_scores", lines);
    } else if (job->resampling.n_resamples) {
        json_add_bootstrap(job, root);
    }
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(root);
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    score_job job = {.options = nm_options_find(cli->options, "score"),
                     .hypothesis = argc > 1 ? argv[1] : "-"};
    nm_status status = nm_cli_check_arguments(cli, argc, 1, 2, &err);
    if (status == NM_OK)
        status = configure(cli, job.metric = argv[0], &job, &err);
    if (status == NM_OK)
        status = find_references(cli, &job, &err);
    if (status == NM_OK)
        status = count_files(&job, &err);
    if (status == NM_OK) {
        if (job.options->json)
            print_json(&job);
        else if (job.options->sentence)
            for (size_t i = 0; i < job.counts.n_segments; i++)
                printf("%.2f\n", line_score(&job, i));
        else
            print_corpus(&job);
        status = nm_file_close(stdout, "standard output", &err);
    }
    job_release(&job);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_score = {
    .name = "score",
    .summary = "score translations by BLEU, chrF or TER",
    .usage = "bleu|chrf|ter [FILE] --reference FILE [--against FILE] [OPTION ...]",
    .details = "Scores translations, one per line, of FILE or standard input against one or several files of "
               "references. The scores are those of multi-bleu.perl and of sacreBLEU, and are printed with "
               "their signature. The interval is a bootstrap over the lines. With --against, p is that of a "
               "paired bootstrap test between the two systems (Koehn 2004).",
    .section = "score",
    .options = add_options,
    .run = run,
};
