/* The translation decoder: options, batches of sentences of similar length, parallel batches, results in
 * input order. */
#include "model/decode.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "model/beam.h"
#include "model/forced.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_decode_options, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_decode_options, field, initial, LIST, help)
#define WORD(field, initial, words, help)   NM_WORD(nm_decode_options, field, initial, words, help)

/* clang-format off */
static const nm_option decode_options[] = {
    WORD(preset, "fairseq", "fairseq|wmt|tears", "Defaults compatible with a known program."),
    ROW(beam, "5", 1, 1000, "Beam size; 1: greedy search."),
    PICK(search, "fairseq", NM_SEARCHES,
        "Beam search in which finished hypotheses leave the beam (fairseq), or stay in it and keep their "
        "score (tears); or sampling of decode.nbest translations."),
    PICK(length_penalty, "power", NM_LENGTH_PENALTIES,
        "Divisor of the sum of log probabilities: length^alpha, or ((5 + length)/6)^alpha."),
    ROW(alpha, "1", -100, 100, "Exponent of the length penalty; 0: no length penalty."),
    ROW(max_length_a, "1", 0, 1000,
        "Maximum length of a translation, factor a of a * source length + b; "
        "lengths in tokens, with the EOS token </s>."),
    ROW(max_length_b, "50", 0, 1 << 20,
        "Maximum length of a translation, constant b of a * source length + b."),
    ROW(min_length, "1", 0, 1 << 20,
        "Minimum length of a translation in tokens, without the EOS token </s>."),
    ROW(nbest, "1", 1, 1000,
        "Number of translations per sentence, at most decode.beam; with sampling, the number of samples."),
    ROW(batch_tokens, "1024", 1, 1 << 24,
        "Maximum number of source tokens in a batch of one thread; changes speed and memory, not results."),
    ROW(diverse_groups, "1", 1, 1000,
        "Number of groups of diverse beam search, a divisor of decode.beam; 1: beam search. "
        "A translation that several groups find is listed once."),
    ROW(diverse_strength, "0.5", 0, 1000,
        "Diverse beam search: reduction of the log probability of a token for each hypothesis of earlier "
        "groups that continues with it."),
    ROW(temperature, "1", 0, 1e3, "Sampling: divisor of the log probabilities; 0: the most probable token."),
    ROW(top_k, "0", 0, 1e9, "Sampling: number of most probable tokens to sample from; 0: all."),
    ROW(top_p, "1", 0, 1,
        "Sampling: probability mass of the most probable tokens to sample from (nucleus sampling); 1: all."),
    ROW(min_p, "0", 0, 1,
        "Sampling: minimum probability of a token relative to the most probable one (min-p "
        "sampling); 0: all."),
    ROW(seed, "1", 0, 4294967295.0,
        "Sampling: random seed. The samples of a sentence depend on the seed and the sentence only."),
    ROW(repetition_penalty, "1", 1e-3, 1e3,
        "Repetition penalty: logits of tokens of the translation so far are divided by it if they are "
        "positive, and multiplied if negative; 1: none. An ensemble applies it to its log probabilities."),
    ROW(no_repeat_ngram_size, "0", 0, 1000,
        "Size of n-grams of tokens that may occur only once in a translation; 0: no limit. "
        "Scores do not change; a prefix and constraints may repeat them."),
    ROW(unknown, "true", 0, 1,
        "Allow <unk> in the output. false: its probability is not given to other tokens, whose scores do not "
        "change; a prefix may contain it."),
    {0}};

static const nm_option_rule decode_rules[] = {
    {"decode.diverse_groups", "decode.search", "fairseq|tears", "samples have no groups", NULL},
    {"decode.beam", "decode.search", "fairseq|tears", "sampling has no beam", NULL},
    {"decode.diverse_strength", "decode.diverse_groups", "!1", "it needs diverse_groups", NULL},
    {"decode.temperature", "decode.search", "sample",
        "only sampling has a temperature (decode.search = sample)", NULL},
    {"decode.top_k", "decode.search", "sample",
        "beam search is not limited to the most probable tokens (decode.search = sample)", NULL},
    {"decode.top_p", "decode.search", "sample",
        "beam search is not limited to the most probable tokens (decode.search = sample)", NULL},
    {"decode.min_p", "decode.search", "sample",
        "beam search is not limited to the most probable tokens (decode.search = sample)", NULL},
    {"decode.seed", "decode.search", "sample", "beam search has no random numbers (decode.search = sample)",
        NULL},
    {"decode.top_k", "decode.temperature", "!", "it always chooses the most probable token", NULL},
    {"decode.top_p", "decode.temperature", "!", "it always chooses the most probable token", NULL},
    {"decode.min_p", "decode.temperature", "!", "it always chooses the most probable token", NULL},
    {"decode.seed", "decode.temperature", "!", "it has no random numbers", NULL},
    {0}};

static const nm_preset decode_presets[] = {
    {"fairseq", "search=fairseq beam=5 length_penalty=power alpha=1 max_length_a=1 max_length_b=50",
        "IWSLT in the PN and RBN papers."},
    {"wmt", "search=fairseq beam=4 length_penalty=power alpha=0.6 max_length_a=0 max_length_b=200",
        "WMT in the PN paper."},
    {"tears", "search=tears beam=4 length_penalty=gnmt alpha=0.6 max_length_a=1 max_length_b=50",
        "Transformers without Tears."},
    {0}};
/* clang-format on */

/* Inter-batch parallelism: with several threads, each batch is translated by one thread. There are up to
 * BATCHES_PER_THREAD batches per thread, so that threads finish at about the same time, each of at least
 * MIN_BATCH_TOKENS source and target tokens. */
enum { BATCHES_PER_THREAD = 4, MIN_BATCH_TOKENS = 1024 };

typedef struct decode_worker {
    nm_backend *backend;
    nm_token_scorer scorer;
} decode_worker;

struct nm_decoder {
    nm_token_scorer scorer; /* main scorer, whose tables the workers share */
    nm_backend *backend;    /* owned backend of a decoder from nm_decoder_create_worker; otherwise NULL */
    decode_worker *workers; /* [threads of the backend], of which the first n_workers exist */
    int32_t n_workers;
    nm_decode_options options;
    nm_special_tokens special;
    bool *excluded; /* owned copy of special.excluded; NULL in a worker */
    const nm_beam_rule *rule;
    int32_t max_positions, layers, heads; /* minimum over the ensemble */
    const nm_shortlist *shortlist;        /* NULL: none */
    const nm_stop *stop;
};

void nm_decode_options_add(nm_options *options)
{
    nm_options_add_rules(options, decode_rules);
    nm_options_add(options, "decode", decode_options, decode_presets, sizeof(nm_decode_options));
}

nm_status nm_decode_options_check(const nm_decode_options *options, nm_error *err)
{
    if (options->search != NM_SEARCH_SAMPLE && options->nbest > options->beam)
        return nm_fail(err, NM_USAGE, "decode.nbest = %lld is more than decode.beam = %lld",
                       (long long)options->nbest, (long long)options->beam);
    if (options->search != NM_SEARCH_SAMPLE && options->diverse_groups > 1 &&
        options->beam % options->diverse_groups)
        return nm_fail(err, NM_USAGE, "decode.beam = %lld is not a multiple of decode.diverse_groups = %lld",
                       (long long)options->beam, (long long)options->diverse_groups);
    if (options->max_length_a == 0 && options->min_length > options->max_length_b)
        return nm_fail(err, NM_USAGE,
                       "decode.min_length = %lld is more than the maximum length, decode.max_length_b = %lld",
                       (long long)options->min_length, (long long)options->max_length_b);
    return NM_OK;
}

static nm_status check_models(nm_model *const *models, int32_t n_models, const nm_special_tokens *special,
                              nm_error *err)
{
    for (int32_t m = 0; m < n_models; m++) {
        const nm_generator *generator = models[m]->type->generator;
        if (!generator || !generator->encoder)
            return nm_fail(err, NM_UNSUPPORTED, "a model of type %s cannot translate", models[m]->type->name);
        if (models[m]->source_size != models[0]->source_size ||
            models[m]->target_size != models[0]->target_size)
            return nm_fail(
                err, NM_MISMATCH,
                "models %d and 1 of the ensemble have different vocabularies: %d and %d source tokens, "
                "%d and %d target tokens",
                m + 1, models[m]->source_size, models[0]->source_size, models[m]->target_size,
                models[0]->target_size);
    }
    NM_ASSERT(special->eos >= 0 && special->eos < models[0]->target_size);
    NM_ASSERT(special->first >= 0 && special->first < models[0]->target_size);
    return NM_OK;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

nm_status nm_decoder_create(nm_decoder **out, nm_model *const *models, int32_t n_models,
                            const nm_decode_options *options, const nm_special_tokens *special, nm_error *err)
{
    NM_TRY(check_models(models, n_models, special, err));
    nm_decoder *decoder = nm_allocate(sizeof *decoder);
    *decoder = (nm_decoder){.options = *options,
                            .special = *special,
                            .rule = options->search == NM_SEARCH_TEARS ? &nm_beam_tears : &nm_beam_fairseq,
                            .max_positions = INT32_MAX,
                            .layers = INT32_MAX,
                            .heads = INT32_MAX};
    if (special->excluded) {
        size_t bytes = (size_t)models[0]->target_size * sizeof *decoder->excluded;
        decoder->excluded = nm_allocate(bytes);
        memcpy(decoder->excluded, special->excluded, bytes);
        decoder->special.excluded = decoder->excluded;
    }
    for (int32_t m = 0; m < n_models; m++) {
        const nm_generator *generator = models[m]->type->generator;
        const nm_stack_config *stack = &generator->decoder(models[m])->config;
        decoder->max_positions = least(decoder->max_positions, generator->context(models[m]));
        decoder->layers = least(decoder->layers, stack->layers);
        decoder->heads = least(decoder->heads, stack->heads);
    }
    nm_status status =
        nm_token_scorer_init(&decoder->scorer, models, n_models, special->eos,
                             nm_beam_tokens(decoder->rule, options) +
                                 (options->search == NM_SEARCH_SAMPLE ? 0 : special->n_excluded),
                             err);
    NM_THEN(status, nm_decoder_refresh(decoder, err));
    NM_RETURN_NEW(status, out, decoder, nm_decoder_free);
}

nm_status nm_decoder_create_worker(nm_decoder **out, const nm_decoder *main, nm_error *err)
{
    const nm_backend *shared = main->scorer.backend;
    nm_backend *backend;
    NM_TRY(nm_backend_create_worker(&backend, shared, shared->threads, err));
    nm_decoder *decoder = nm_allocate(sizeof *decoder);
    *decoder = (nm_decoder){.backend = backend,
                            .options = main->options,
                            .special = main->special,
                            .rule = main->rule,
                            .shortlist = main->shortlist,
                            .max_positions = main->max_positions,
                            .layers = main->layers,
                            .heads = main->heads};
    nm_status status = nm_token_scorer_init_worker(&decoder->scorer, &main->scorer, backend, err);
    NM_RETURN_NEW(status, out, decoder, nm_decoder_free);
}

void nm_decoder_free(nm_decoder *decoder)
{
    if (!decoder)
        return;
    for (int32_t i = 0; i < decoder->n_workers; i++) {
        nm_token_scorer_release(&decoder->workers[i].scorer);
        nm_backend_free(decoder->workers[i].backend);
    }
    NM_FREE(decoder->workers, decoder->excluded);
    nm_token_scorer_release(&decoder->scorer);
    nm_backend_free(decoder->backend);
    free(decoder);
}

nm_status nm_decoder_refresh(nm_decoder *decoder, nm_error *err)
{
    return nm_token_scorer_refresh(&decoder->scorer, err);
}

void nm_decoder_set_shortlist(nm_decoder *decoder, const nm_shortlist *shortlist)
{
    decoder->shortlist = shortlist;
}

void nm_decoder_set_stop(nm_decoder *decoder, const nm_stop *stop)
{
    decoder->stop = stop;
}

int32_t nm_decoder_longest(const nm_decoder *decoder)
{
    return decoder->max_positions;
}

int32_t nm_decoder_layers(const nm_decoder *decoder)
{
    return decoder->layers;
}

int32_t nm_decoder_heads(const nm_decoder *decoder)
{
    return decoder->heads;
}

void nm_translation_release(nm_translation *translation)
{
    for (int32_t i = 0; i < translation->n; i++)
        NM_FREE(translation->list[i].ids, translation->list[i].attention, translation->list[i].token_scores);
    free(translation->list);
    *translation = (nm_translation){0};
}

int32_t nm_hypothesis_length(const nm_hypothesis *hypothesis, int32_t eos)
{
    int32_t n = hypothesis->n;
    return n > 0 && hypothesis->ids[n - 1] == eos ? n - 1 : n;
}

typedef struct ordered { /* a source that can be translated; sorted by length, longest first */
    size_t index;
    int32_t length;
} ordered;

static int longer_first(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int32_t limit_of(const nm_decoder *decoder, int32_t source_length)
{
    double limit = decoder->options.max_length_a * source_length + (double)decoder->options.max_length_b;
    int32_t most = decoder->max_positions - 1;
    return limit < 1 ? 1 : limit < most ? (int32_t)limit : most;
}

typedef struct batch { /* n consecutive ordered sources */
    size_t first;
    int32_t n;
} batch;

typedef struct decode_job {
    const nm_decoder *decoder;
    const nm_id_list *sources, *targets;  /* [n]; targets: for forced decoding; NULL: search */
    const nm_id_list *prefixes;           /* [n]; NULL: none */
    const nm_constraints *constraints;    /* [n]; NULL: none */
    const nm_attention_choice *attention; /* for forced decoding; NULL: none */
    ordered *order;
    size_t n_sources, n_batches;
    batch *batches;
    nm_translation *out;
} decode_job;

/* Forced decoding of a batch. */
static nm_status score_batch(const decode_job *job, const ordered *order, const nm_packing *packing,
                             const int32_t *ids, nm_token_scorer *scorer, nm_translation *done, nm_error *err)
{
    const nm_decoder *decoder = job->decoder;
    int32_t n = packing->n_seqs;
    NM_AUTO_FREE nm_id_list *targets = nm_allocate((size_t)n * sizeof *targets);
    NM_AUTO_FREE nm_hypothesis *scored = nm_allocate((size_t)n * sizeof *scored);
    for (int32_t i = 0; i < n; i++)
        targets[i] = job->targets[order[i].index];
    nm_status status =
        nm_forced_run(scorer, &decoder->special, job->attention, packing, ids, targets, scored, err);
    for (int32_t i = 0; i < n; i++) {
        double sum = 0;
        done[i] = (nm_translation){.list = nm_allocate(sizeof(nm_hypothesis)), .n = 1};
        for (int32_t t = 0; status == NM_OK && t < scored[i].n; t++)
            sum += scored[i].token_scores[t];
        scored[i].score = sum / nm_length_penalty(&decoder->options, scored[i].n);
        done[i].list[0] = scored[i];
    }
    return status;
}

/* Minimum number of tokens of translation i, without eos: those of its prefix and its constraints. */
static int32_t required_tokens(const decode_job *job, size_t i)
{
    return (job->prefixes ? job->prefixes[i].n : 0) +
           (job->constraints ? nm_constraints_tokens(&job->constraints[i]) : 0);
}

/* The tokens of the prefix and the constraints of translation i, appended to *ids. */
static void append_required(const decode_job *job, size_t i, nm_ids *ids)
{
    for (int32_t t = 0; job->prefixes && t < job->prefixes[i].n; t++)
        nm_ids_append(ids, job->prefixes[i].ids[t]);
    for (int32_t p = 0; job->constraints && p < job->constraints[i].n; p++)
        for (int32_t t = 0; t < job->constraints[i].phrases[p].n; t++)
            nm_ids_append(ids, job->constraints[i].phrases[p].ids[t]);
}

/* The tokens that the shortlist selects for each source of a batch; the caller releases them. ids: those of
 * the sources. */
static nm_token_selection select_tokens(const decode_job *job, const ordered *order,
                                        const nm_packing *sources, const int32_t *ids)
{
    const nm_shortlist *shortlist = job->decoder->shortlist;
    nm_ids selected = {0}, required = {0};
    nm_token_selection out = {.n = sources->n_seqs,
                              .offsets = nm_allocate(((size_t)sources->n_seqs + 1) * sizeof(size_t)),
                              .source_of = nm_allocate((size_t)sources->n_tokens * sizeof(int32_t))};
    NM_AUTO_FREE uint8_t *mark = nm_allocate((size_t)shortlist->target_size);
    for (int32_t i = 0; i < out.n; i++) {
        const int32_t *range = &sources->offsets[i];
        required.n = 0;
        append_required(job, order[i].index, &required);
        nm_shortlist_select(shortlist, ids + range[0], range[1] - range[0], &required, mark, &selected);
        out.offsets[i + 1] = selected.n;
        for (int32_t t = range[0]; t < range[1]; t++)
            out.source_of[t] = i;
    }
    out.ids = selected.data;
    nm_ids_release(&required);
    return out;
}

static void selection_release(nm_token_selection *selection)
{
    NM_FREE(selection->ids, selection->offsets, selection->source_of);
}

/* Searches translations of a batch, or scores given ones. */
static nm_status run_batch(const decode_job *job, const ordered *order, const nm_beam_batch *search,
                           nm_token_scorer *scorer, nm_translation *done, nm_error *err)
{
    const nm_decoder *decoder = job->decoder;
    NM_AUTO(selection_release) nm_token_selection selection = {0};
    if (decoder->shortlist)
        selection = select_tokens(job, order, search->sources, search->ids);
    NM_TRY(nm_token_scorer_select(scorer, decoder->shortlist ? &selection : NULL, err));
    return job->targets
               ? score_batch(job, order, search->sources, search->ids, scorer, done, err)
               : nm_beam_run(scorer, decoder->rule, &decoder->options, &decoder->special, search, done, err);
}

/* The length limit of translation i: at least its required tokens. A prefix that reaches the limit does not
 * count. */
static int32_t limit_with(const decode_job *job, size_t i, int32_t limit)
{
    int32_t most = job->decoder->max_positions - 1, required = required_tokens(job, i);
    int32_t prefix = job->prefixes ? job->prefixes[i].n : 0;
    if (prefix >= limit)
        limit = prefix < most - limit ? prefix + limit : most;
    return limit > required ? limit : required;
}

static nm_status decode_batch(const decode_job *job, const batch *here, nm_token_scorer *scorer,
                              nm_error *err)
{
    const nm_decoder *decoder = job->decoder;
    const ordered *order = job->order + here->first;
    int32_t n = here->n;
    scorer->stop = decoder->stop;
    NM_AUTO_FREE int32_t *offsets = nm_allocate(((size_t)n + 1) * sizeof *offsets);
    NM_AUTO_FREE int32_t *limits = nm_allocate((size_t)n * sizeof *limits);
    NM_AUTO_FREE nm_id_list *prefixes = job->prefixes ? nm_allocate((size_t)n * sizeof *prefixes) : NULL;
    NM_AUTO_FREE nm_constraints *constraints =
        job->constraints ? nm_allocate((size_t)n * sizeof *constraints) : NULL;
    NM_AUTO_FREE nm_translation *done = nm_allocate((size_t)n * sizeof *done);
    for (int32_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i] + order[i].length;
        limits[i] = limit_with(job, order[i].index, limit_of(decoder, order[i].length));
        if (prefixes)
            prefixes[i] = job->prefixes[order[i].index];
        if (constraints)
            constraints[i] = job->constraints[order[i].index];
    }
    NM_AUTO_FREE int32_t *ids = nm_allocate((size_t)offsets[n] * sizeof *ids);
    for (int32_t i = 0; i < n; i++)
        memcpy(ids + offsets[i], job->sources[order[i].index].ids, (size_t)order[i].length * sizeof *ids);
    nm_packing packing = {
        .n_seqs = n, .n_tokens = offsets[n], .longest = order[0].length, .offsets = offsets};
    const nm_beam_batch search = {
        .sources = &packing, .ids = ids, .limits = limits, .prefixes = prefixes, .constraints = constraints};
    nm_status status = run_batch(job, order, &search, scorer, done, err);
    for (int32_t i = 0; i < n; i++)
        job->out[order[i].index] = done[i];
    return status;
}

/* Estimated number of tokens of a source and its translation, which is assumed to have the same length,
 * within the limits. */
static int64_t work_of(const decode_job *job, const ordered *one)
{
    const nm_decoder *decoder = job->decoder;
    int32_t length = one->length;
    if (job->targets)
        return length + job->targets[one->index].n;
    int64_t least = decoder->options.min_length + 1, most = limit_of(decoder, length);
    int64_t likely = length > least ? length : least;
    return length + (likely < most ? likely : most);
}

static bool fits(const decode_job *job, const nm_id_list *list)
{
    return list->n > 0 && list->n <= job->decoder->max_positions;
}

/* Sorts the sources that can be translated; returns the estimated number of tokens of sources and
 * translations. */
static int64_t order_sources(decode_job *job, size_t n)
{
    int64_t work = 0;
    job->order = nm_allocate(n * sizeof *job->order);
    for (size_t i = 0; i < n; i++) {
        job->out[i] = (nm_translation){0};
        if (!fits(job, &job->sources[i]) || (job->targets && !fits(job, &job->targets[i])))
            continue;
        if (required_tokens(job, i) >= job->decoder->max_positions)
            continue;
        job->order[job->n_sources] = (ordered){i, job->sources[i].n};
        work += work_of(job, &job->order[job->n_sources++]);
    }
    qsort(job->order, job->n_sources, sizeof *job->order, longer_first);
    return work;
}

/* most_work: a batch ends when its estimated number of tokens reaches it. */
static void cut_batches(decode_job *job, int64_t most_work)
{
    job->batches = nm_allocate(job->n_sources * sizeof *job->batches);
    int64_t tokens = 0, work = 0, most = job->decoder->options.batch_tokens;
    for (size_t i = 0; i < job->n_sources; i++) {
        int32_t length = job->order[i].length;
        tokens += length;
        if (i == 0 || tokens > most || work >= most_work) {
            job->batches[job->n_batches++] = (batch){i, 0};
            tokens = length;
            work = 0;
        }
        work += work_of(job, &job->order[i]);
        job->batches[job->n_batches - 1].n++;
    }
}

/* The number of workers for n sources; creates missing workers. 1: the main scorer translates all batches. */
static int32_t workers_for(nm_decoder *decoder, size_t n, nm_status *status, nm_error *err)
{
    int32_t threads = decoder->scorer.backend->threads, workers = n < (size_t)threads ? (int32_t)n : threads;
    if (workers > 1 && !decoder->workers)
        decoder->workers = nm_allocate((size_t)threads * sizeof *decoder->workers);
    while (workers > 1 && decoder->n_workers < workers && *status == NM_OK) {
        decode_worker *worker = &decoder->workers[decoder->n_workers];
        if (nm_backend_create_worker(&worker->backend, decoder->scorer.backend, 1, err) != NM_OK)
            return 1; /* the backend has no workers */
        *status = nm_token_scorer_init_worker(&worker->scorer, &decoder->scorer, worker->backend, err);
        if (*status == NM_OK) {
            decoder->n_workers++;
        } else { /* a later call creates it again */
            nm_token_scorer_release(&worker->scorer);
            nm_backend_free(worker->backend);
        }
    }
    return workers < 1 ? 1 : workers;
}

/* Estimated number of tokens of a batch if `work` tokens are divided among the workers. */
static int64_t work_per_batch(int64_t work, int32_t workers)
{
    int64_t each = (work + workers - 1) / workers, batches = each / MIN_BATCH_TOKENS;
    batches = batches < 1 ? 1 : batches > BATCHES_PER_THREAD ? BATCHES_PER_THREAD : batches;
    return workers > 1 ? (each + batches - 1) / batches : INT64_MAX;
}

static nm_status run_serial(decode_job *job, nm_token_scorer *scorer, nm_error *err)
{
    for (size_t i = 0; i < job->n_batches; i++)
        NM_TRY(decode_batch(job, &job->batches[i], scorer, err));
    return NM_OK;
}

static nm_status run_parallel(decode_job *job, decode_worker *workers, int32_t n, nm_error *err)
{
    nm_status failed = NM_OK;
#pragma omp parallel for num_threads(n) schedule(dynamic, 1)
    for (size_t i = 0; i < job->n_batches; i++) {
        nm_status before, status;
        nm_error local = {0};
#pragma omp atomic read
        before = failed;
        if (before != NM_OK)
            continue;
        status = decode_batch(job, &job->batches[i], &workers[omp_get_thread_num()].scorer, &local);
        if (status == NM_OK)
            continue;
#pragma omp critical(nm_decode_failed)
        {
#pragma omp atomic write
            failed = status;
            *err = local;
        }
    }
    return failed;
}

static nm_status run_job(nm_decoder *decoder, decode_job *job, size_t n, nm_error *err)
{
    int64_t work = order_sources(job, n);
    nm_status status = NM_OK;
    int32_t workers = workers_for(decoder, job->n_sources, &status, err);
    cut_batches(job, work_per_batch(work, workers));
    NM_THEN(status, workers > 1 ? run_parallel(job, decoder->workers, workers, err)
                                : run_serial(job, &decoder->scorer, err));
    for (size_t i = 0; i < n && status != NM_OK; i++)
        nm_translation_release(&job->out[i]);
    NM_FREE(job->order, job->batches);
    return status;
}

nm_status nm_decode(nm_decoder *decoder, const nm_id_list *sources, size_t n, nm_translation *out,
                    nm_error *err)
{
    return run_job(decoder, &(decode_job){.decoder = decoder, .sources = sources, .out = out}, n, err);
}

nm_status nm_decode_prefixes(nm_decoder *decoder, const nm_id_list *sources, const nm_id_list *prefixes,
                             const nm_constraints *constraints, size_t n, nm_translation *out, nm_error *err)
{
    const nm_decode_options *options = &decoder->options;
    if (constraints && (options->search != NM_SEARCH_FAIRSEQ || options->diverse_groups > 1))
        return nm_fail(err, NM_USAGE,
                       "constraints need decode.search = fairseq and no decode.diverse_groups");
    decode_job job = {
        .decoder = decoder, .sources = sources, .prefixes = prefixes, .constraints = constraints, .out = out};
    return run_job(decoder, &job, n, err);
}

nm_status nm_decode_score(nm_decoder *decoder, const nm_id_list *sources, const nm_id_list *targets, size_t n,
                          const nm_attention_choice *attention, nm_translation *out, nm_error *err)
{
    if (attention && (attention->layer < 0 || attention->layer >= decoder->layers))
        return nm_fail(err, NM_USAGE, "attention of layer %d: the decoder has layers 1 to %d",
                       attention->layer + 1, decoder->layers);
    if (attention && attention->head >= decoder->heads)
        return nm_fail(err, NM_USAGE, "attention of head %d: a layer has heads 1 to %d", attention->head + 1,
                       decoder->heads);
    decode_job job = {
        .decoder = decoder, .sources = sources, .targets = targets, .attention = attention, .out = out};
    return run_job(decoder, &job, n, err);
}
