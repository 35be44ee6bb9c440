#include "norma/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/inference.h"
#include "text/score_files.h"

typedef struct score_options { /* section [score] */
    NM_SCORE_FIELDS;
} score_options;

static const nm_option score_rows[] = {NM_SCORE_ROWS(score_options), {0}};

struct nm_scorer {
    nm_options *options;
    const score_options *score;
    nm_score_config config;              /* without tokenizer */
    nm_metric_tokenizer_config tokenize; /* name NULL: the default tokenizer of the metric */
    nm_bootstrap_config resampling;
    nm_workspaces tokenizers; /* idle nm_metric_tokenizer */
    nm_call_requests calls;
};

struct nm_scores {
    nm_score_config config;
    nm_metric_tokenizer tokenizer; /* only its type, for the signature */
    nm_bootstrap_config resampling;
    nm_counts counts;
    int n_references;
    uint64_t references_hash;
    double value;
    char *line, *signature;
    char *metric_signature;  /* with metric and bootstrap options; equal for comparable scores */
    nm_call_requests *calls; /* heap: those of const scores may be interrupted, too */
};

/* Whether a key begins with one of the words of a list, each followed by a space. */
static bool begins_with_listed(const char *list, const char *key)
{
    for (; *list; list = strchr(list, ' ') + 1)
        if (!strncmp(key, list, strcspn(list, " ")))
            return true;
    return false;
}

/* NM_USAGE for options that have no effect on the metric. */
static nm_status check_options(const nm_options *options, const nm_score_metric *metric, nm_error *err)
{
    NM_AUTO_FREE char *warning = NULL;
    char *path;
    for (size_t i = 0; (path = nm_options_path(options, i)); i++) {
        const char *key = strchr(path, '.') + 1;
        bool own = begins_with_listed("bootstrap seed centered sentence ", key) ||
                   begins_with_listed(metric->options, key);
        nm_status status = NM_OK;
        if (!own && nm_options_origin(options, path) != NM_ORIGIN_DEFAULT)
            status = nm_fail(err, NM_USAGE, "%s has no effect on this metric", path);
        free(path);
        NM_TRY(status);
    }
    return nm_options_check(options, &warning, err);
}

static nm_status configure(nm_scorer *self, const char *name, nm_error *err)
{
    const score_options *score = self->score;
    const nm_score_metric *metric = nm_score_metric_find(name);
    if (!metric)
        return nm_fail(err, NM_USAGE, "score: unknown metric '%.40s'; available: " NM_SCORE_METRICS, name);
    NM_TRY(check_options(self->options, metric, err));
    bool sacrebleu = score->metric_variant != NM_BLEU_MULTI;
    if (sacrebleu && score->split_compounds)
        return nm_fail(
            err, NM_USAGE,
            "score.split_compounds is an option of multi-bleu (score.metric_variant = multi-bleu)");
    if (nm_options_origin(self->options, "score.tokenize") != NM_ORIGIN_DEFAULT) {
        if (!sacrebleu)
            return nm_fail(err, NM_USAGE, "score.tokenize is an option of sacreBLEU, not of multi-bleu");
        self->tokenize = (nm_metric_tokenizer_config){score->tokenize, score->spm_model,
                                                      score->mecab_dictionary, score->mecab_library};
    }
    self->config = (nm_score_config){.metric = metric,
                                     .bleu = {.variant = sacrebleu ? NM_BLEU_SACRE_13A : NM_BLEU_MULTI,
                                              .lowercase = score->lowercase,
                                              .split_compounds = score->split_compounds,
                                              .effective_order = score->sentence && sacrebleu},
                                     .chrf = {.char_order = (int)score->char_order,
                                              .word_order = (int)score->word_order,
                                              .beta = score->beta,
                                              .lowercase = score->lowercase},
                                     .ter = {.normalized = score->ter_normalized,
                                             .no_punctuation = score->ter_no_punctuation,
                                             .asian = score->ter_asian,
                                             .case_sensitive = score->ter_case_sensitive},
                                     .tags = score->tag_scheme};
    self->resampling = nm_bootstrap_default();
    self->resampling.n_resamples = (int)score->bootstrap;
    self->resampling.seed = (uint64_t)score->seed;
    self->resampling.centered = score->centered;
    return NM_OK;
}

static void tokenizer_free(void *tokenizer)
{
    nm_metric_tokenizer_close(tokenizer);
    free(tokenizer);
}

/* *tokenizer: NULL for the default tokenizer of the metric. */
static nm_status acquire_tokenizer(nm_scorer *self, nm_metric_tokenizer **tokenizer, nm_error *err)
{
    *tokenizer = NULL;
    if (!self->tokenize.name)
        return NM_OK;
    *tokenizer = nm_workspaces_acquire(&self->tokenizers);
    if (*tokenizer)
        return NM_OK;
    nm_metric_tokenizer *created = nm_allocate(sizeof *created);
    nm_status status = nm_metric_tokenizer_open(created, &self->tokenize, err);
    NM_RETURN_NEW(status, tokenizer, created, free);
}

static void return_tokenizer(nm_scorer *self, nm_metric_tokenizer *tokenizer)
{
    if (tokenizer)
        nm_workspaces_return(&self->tokenizers, tokenizer);
}

static nm_status open_scorer(nm_scorer *self, const char *metric, const char *const *options, nm_error *err)
{
    nm_metric_tokenizer *tokenizer;
    if (!metric)
        return nm_fail(err, NM_USAGE, "nm_scorer_open: metric is NULL");
    NM_TRY(nm_settings_apply(self->options, "score", options, err));
    NM_TRY(configure(self, metric, err));
    NM_TRY(acquire_tokenizer(self, &tokenizer, err)); /* reports a missing model or dictionary */
    return_tokenizer(self, tokenizer);
    return NM_OK;
}

nm_status nm_scorer_open(nm_scorer **scorer, const char *metric, const char *const *options, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!scorer)
        return nm_fail(err, NM_USAGE, "nm_scorer_open: scorer is NULL");
    nm_scorer *self = nm_allocate(sizeof *self);
    nm_workspaces_init(&self->tokenizers);
    nm_call_requests_init(&self->calls);
    self->options = nm_options_create();
    nm_options_accept_any_text(self->options);
    self->score = nm_options_add(self->options, "score", score_rows, NULL, sizeof(score_options));
    nm_options_add_rules(self->options, nm_score_rules);
    nm_status status = open_scorer(self, metric, options, err);
    NM_RETURN_NEW(status, scorer, self, nm_scorer_close);
}

void nm_scorer_close(nm_scorer *self)
{
    if (!self)
        return;
    nm_workspaces_release(&self->tokenizers, tokenizer_free);
    nm_call_requests_release(&self->calls);
    nm_options_free(self->options);
    free(self);
}

void nm_scorer_set_proceed(nm_scorer *self, bool (*proceed)(void *user), void *user)
{
    if (self)
        nm_call_requests_set_proceed(&self->calls, proceed, user);
}

typedef struct test_set {
    const char *const *hypotheses, *const *references;
    size_t n;
    const char *file; /* path of the hypotheses; NULL: texts. The references are then paths, too */
    size_t n_references;
} test_set;

static nm_status count(const nm_score_config *config, const test_set *set, nm_counts *counts, uint64_t *hash,
                       nm_error *err)
{
    int n_references = (int)set->n_references;
    if (set->file)
        return nm_score_count_files(config, set->file, set->references, n_references, counts, hash, err);
    return nm_score_count_texts(config, set->hypotheses, set->n, set->references, n_references, counts, hash,
                                err);
}

static void complete(nm_scores *self)
{
    NM_AUTO_FREE int64_t *sum = nm_counts_sum(self->counts);
    const nm_score_metric *metric = self->config.metric;
    self->value = metric->score(&self->config, sum);
    self->line = metric->line(&self->config, sum, self->n_references);
    self->signature = metric->signature(&self->config, self->n_references);
    self->metric_signature =
        nm_format("%s %s %d %llu %d", metric->name, self->signature, self->resampling.n_resamples,
                  (unsigned long long)self->resampling.seed, self->resampling.centered);
}

static nm_status run(nm_scorer *self, const test_set *set, nm_scores **scores, nm_error *err)
{
    enum { MOST_REFERENCES = 1 << 16 };
    nm_metric_tokenizer *tokenizer;
    if (!set->n_references || set->n_references > MOST_REFERENCES)
        return nm_fail(err, NM_USAGE, "%zu references", set->n_references);
    if (self->config.metric->one_reference && set->n_references > 1)
        return nm_fail(err, NM_USAGE, "%s is computed against one reference", self->config.metric->name);
    NM_TRY(acquire_tokenizer(self, &tokenizer, err));
    nm_score_config config = self->config;
    config.bleu.tokenizer = tokenizer;
    nm_call call;
    nm_call_begin(&call, &self->calls);
    config.stop = &call.stop;
    nm_counts counts;
    uint64_t hash = 0;
    nm_status status = count(&config, set, &counts, &hash, err);
    if (status == NM_OK) {
        nm_scores *out = nm_allocate(sizeof *out);
        *out = (nm_scores){.config = self->config,
                           .resampling = self->resampling,
                           .counts = counts,
                           .references_hash = hash,
                           .n_references = (int)set->n_references,
                           .calls = nm_allocate(sizeof *out->calls)};
        nm_call_requests_init(out->calls);
        if (tokenizer) {
            out->tokenizer.type = tokenizer->type;
            out->config.bleu.tokenizer = &out->tokenizer;
        }
        complete(out);
        *scores = out;
    }
    return_tokenizer(self, tokenizer);
    return status;
}

nm_status nm_scorer_run(nm_scorer *self, const char *const *hypotheses, size_t n,
                        const char *const *references, size_t n_references, nm_scores **scores, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !scores)
        return nm_fail(err, NM_USAGE, "nm_scorer_run: %s is NULL", self ? "scores" : "scorer");
    if (!n)
        return nm_fail(err, NM_USAGE, "no segments to score");
    NM_TRY(nm_lines_check(hypotheses, n, "hypothesis", err));
    if (n_references && !references)
        return nm_fail(err, NM_USAGE, "the array of references is NULL");
    for (size_t r = 0; r < n_references; r++)
        NM_TRY(nm_lines_check(references + r * n, n, "reference", err));
    const test_set set = {
        .hypotheses = hypotheses, .references = references, .n = n, .n_references = n_references};
    return run(self, &set, scores, err);
}

nm_status nm_scorer_run_files(nm_scorer *self, const char *hypothesis, const char *const *references,
                              size_t n_references, nm_scores **scores, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !scores)
        return nm_fail(err, NM_USAGE, "nm_scorer_run_files: %s is NULL", self ? "scores" : "scorer");
    bool missing = !hypothesis || (n_references && !references);
    for (size_t r = 0; r < n_references && !missing; r++)
        missing = !references[r];
    if (missing)
        return nm_fail(err, NM_USAGE, "nm_scorer_run_files: a path is NULL");
    const test_set set = {.file = hypothesis, .references = references, .n_references = n_references};
    return run(self, &set, scores, err);
}

void nm_scores_free(nm_scores *self)
{
    if (!self)
        return;
    nm_score_counts_release(&self->counts);
    NM_FREE(self->line, self->signature, self->metric_signature);
    nm_call_requests_release(self->calls);
    NM_FREE(self->calls, self);
}

void nm_scores_set_proceed(nm_scores *self, bool (*proceed)(void *user), void *user)
{
    if (self)
        nm_call_requests_set_proceed(self->calls, proceed, user);
}

size_t nm_scores_n(const nm_scores *self)
{
    return self ? self->counts.n_segments : 0;
}

double nm_scores_value(const nm_scores *self)
{
    return self ? self->value : NAN;
}

double nm_scores_segment(const nm_scores *self, size_t segment)
{
    if (segment >= nm_scores_n(self))
        return NAN;
    return nm_score_of_config(self->counts.values + segment * (size_t)self->counts.n_counts, &self->config);
}

const char *nm_scores_line(const nm_scores *self)
{
    return self ? self->line : NULL;
}

const char *nm_scores_signature(const nm_scores *self)
{
    return self ? self->signature : NULL;
}

bool nm_scores_interval(const nm_scores *self, nm_interval *interval)
{
    if (!self || !interval || !self->resampling.n_resamples)
        return false;
    nm_call call;
    nm_call_begin(&call, self->calls);
    nm_bootstrap_config resampling = self->resampling;
    resampling.stop = &call.stop;
    nm_interval found = nm_bootstrap_interval(self->counts, nm_score_of_config, &self->config, &resampling);
    if (call.stop.requested)
        return false;
    *interval = found;
    return true;
}

nm_status nm_scores_compare(const nm_scores *a, const nm_scores *b, nm_paired *paired, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!a || !b || !paired)
        return nm_fail(err, NM_USAGE, "nm_scores_compare: %s is NULL", a && b ? "paired" : "a system");
    if (strcmp(a->metric_signature, b->metric_signature))
        return nm_fail(err, NM_USAGE, "the scores are of different metrics or options: %s and %s",
                       a->metric_signature, b->metric_signature);
    if (!a->resampling.n_resamples)
        return nm_fail(err, NM_USAGE, "the paired test needs bootstrap resamples (score.bootstrap)");
    if (a->counts.n_segments != b->counts.n_segments)
        return nm_fail(err, NM_MISMATCH, "%zu and %zu segments", a->counts.n_segments, b->counts.n_segments);
    if (a->references_hash != b->references_hash)
        return nm_fail(err, NM_MISMATCH, "the systems were scored against different references");
    nm_call call;
    nm_call_begin(&call, a->calls);
    nm_bootstrap_config resampling = a->resampling;
    resampling.stop = &call.stop;
    nm_paired found = nm_bootstrap_paired(a->counts, b->counts, nm_score_of_config, &a->config, &resampling);
    if (call.stop.requested)
        return nm_fail(err, NM_INTERRUPTED, "stopped");
    *paired = found;
    return NM_OK;
}
