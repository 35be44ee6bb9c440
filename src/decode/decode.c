/* The decoder as its callers see it: options, batches by length, results in the order of the input. */
#include "decode/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/beam.h"
#include "model/seq2seq.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_decode_options, field, initial, min, max, help)
#define PICK(field, initial, choices, help) NM_CHOICE(nm_decode_options, field, initial, choices, help)

/* clang-format off */
static const nm_option decode_options[] = {
    PICK(preset, "fairseq", "fairseq|wmt|tears", "habits of a known program"),
    ROW(beam, "5", 1, 1000, "hypotheses kept per sentence; 1 is greedy search"),
    PICK(search, "fairseq", "fairseq|tears", "ended hypotheses leave the beam (fairseq) or stay in it with their score (tears)"),
    PICK(length_penalty, "power", "power|gnmt", "score = sum of log probabilities / length^alpha, or / ((5 + length)/6)^alpha"),
    ROW(alpha, "1", -100, 100, "exponent of the length penalty; 0: none"),
    ROW(max_length_a, "1", 0, 1000, "longest translation = max_length_a * source + max_length_b tokens, ..."),
    ROW(max_length_b, "50", 0, 1 << 20, "... lengths counting the end symbol of the source"),
    ROW(min_length, "1", 0, 1 << 20, "shortest translation in tokens, without the end symbol"),
    ROW(nbest, "1", 1, 1000, "translations per sentence, at most beam"),
    ROW(batch_tokens, "2048", 1, 1 << 24, "most source tokens decoded at once; changes speed and memory, never a result"),
    {0}};

static const nm_preset decode_presets[] = {
    {"fairseq", "search=fairseq beam=5 length_penalty=power alpha=1 max_length_a=1 max_length_b=50", "IWSLT in the PN and RBN papers"},
    {"wmt", "search=fairseq beam=4 length_penalty=power alpha=0.6 max_length_a=0 max_length_b=200", "WMT in the PN paper"},
    {"tears", "search=tears beam=4 length_penalty=gnmt alpha=0.6 max_length_a=1 max_length_b=50", "Transformers without Tears"},
    {0}};
/* clang-format on */

struct nm_decoder {
    nm_scorer scorer;
    nm_decode_options options;
    nm_decode_words words;
    const nm_beam_rule *rule;
    int32_t max_positions; /* of the shortest model of an ensemble */
};

nm_decode_options *nm_decode_options_add(nm_options *options)
{
    return nm_options_add(options, "decode", decode_options, decode_presets, sizeof(nm_decode_options));
}

double nm_length_penalty(const nm_decode_options *options, int32_t n)
{
    return pow(strcmp(options->length_penalty, "gnmt") ? n : (5.0 + n) / 6.0, options->alpha);
}

static nm_status check_models(nm_model *const *models, int32_t n_models, const nm_decode_words *words,
                              nm_error *err)
{
    for (int32_t m = 0; m < n_models; m++) {
        if (models[m]->type != &nm_model_seq2seq)
            return nm_fail(err, NM_UNSUPPORTED, "a model of type %s cannot translate", models[m]->type->name);
        if (models[m]->source_size != models[0]->source_size ||
            models[m]->target_size != models[0]->target_size)
            return nm_fail(
                err, NM_MISMATCH,
                "models %d and 1 of the ensemble have different vocabularies: %d and %d source words, "
                "%d and %d target words",
                m + 1, models[m]->source_size, models[0]->source_size, models[m]->target_size,
                models[0]->target_size);
    }
    NM_ASSERT(words->eos >= 0 && words->eos < models[0]->target_size);
    NM_ASSERT(words->first >= 0 && words->first < models[0]->target_size);
    return NM_OK;
}

nm_status nm_decoder_create(nm_decoder **out, nm_model *const *models, int32_t n_models,
                            const nm_decode_options *options, const nm_decode_words *words, nm_error *err)
{
    NM_TRY(check_models(models, n_models, words, err));
    nm_decoder *decoder = nm_allocate(sizeof *decoder);
    *decoder = (nm_decoder){.options = *options,
                            .words = *words,
                            .rule = strcmp(options->search, "tears") ? &nm_beam_fairseq : &nm_beam_tears,
                            .max_positions = INT32_MAX};
    for (int32_t m = 0; m < n_models; m++) {
        int32_t positions = (int32_t)nm_seq2seq_config_of(models[m])->max_positions;
        decoder->max_positions = positions < decoder->max_positions ? positions : decoder->max_positions;
    }
    /* two more than the rule looks at: pad and a forbidden eos may stand among the best */
    int32_t k = decoder->rule->candidates * (int32_t)options->beam + 2;
    nm_status status = nm_scorer_init(&decoder->scorer, models, n_models, words->eos, k, err);
    if (status != NM_OK) {
        nm_decoder_free(decoder);
        return status;
    }
    *out = decoder;
    return NM_OK;
}

void nm_decoder_free(nm_decoder *decoder)
{
    if (!decoder)
        return;
    nm_scorer_release(&decoder->scorer);
    free(decoder);
}

int32_t nm_decoder_longest(const nm_decoder *decoder)
{
    return decoder->max_positions;
}

void nm_translation_release(nm_translation *translation)
{
    for (int32_t i = 0; i < translation->n; i++) {
        free(translation->list[i].ids);
        free(translation->list[i].token_scores);
    }
    free(translation->list);
    *translation = (nm_translation){0};
}

int32_t nm_hypothesis_words(const nm_hypothesis *hypothesis, int32_t eos)
{
    int32_t n = hypothesis->n;
    return n > 0 && hypothesis->ids[n - 1] == eos ? n - 1 : n;
}

/* ---- batches ---- */

typedef struct ordered { /* sources by length, longest first; those that cannot be translated are left out */
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
    double wanted = decoder->options.max_length_a * source_length + (double)decoder->options.max_length_b;
    int32_t most = decoder->max_positions - 1;
    return wanted < 1 ? 1 : wanted < most ? (int32_t)wanted : most;
}

static nm_status decode_batch(nm_decoder *decoder, const nm_id_list *sources, const ordered *order, int32_t n,
                              nm_translation *out, nm_error *err)
{
    int32_t *offsets = nm_allocate(((size_t)n + 1) * sizeof *offsets);
    int32_t *limits = nm_allocate((size_t)n * sizeof *limits);
    nm_translation *done = nm_allocate((size_t)n * sizeof *done);
    for (int32_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i] + order[i].length;
        limits[i] = limit_of(decoder, order[i].length);
    }
    int32_t *ids = nm_allocate((size_t)offsets[n] * sizeof *ids);
    for (int32_t i = 0; i < n; i++)
        memcpy(ids + offsets[i], sources[order[i].index].ids, (size_t)order[i].length * sizeof *ids);
    nm_packing packing = {
        .n_seqs = n, .n_tokens = offsets[n], .longest = order[0].length, .offsets = offsets};
    nm_status status = nm_beam_run(&decoder->scorer, decoder->rule, &decoder->options, &decoder->words,
                                   &packing, ids, limits, done, err);
    for (int32_t i = 0; i < n; i++)
        out[order[i].index] = done[i];
    free(offsets);
    free(limits);
    free(ids);
    free(done);
    return status;
}

nm_status nm_decode(nm_decoder *decoder, const nm_id_list *sources, size_t n, nm_translation *out,
                    nm_error *err)
{
    ordered *order = nm_allocate(n * sizeof *order);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = (nm_translation){0};
        if (sources[i].n > 0 && sources[i].n <= decoder->max_positions)
            order[count++] = (ordered){i, sources[i].n};
    }
    qsort(order, count, sizeof *order, longer_first);
    nm_status status = nm_scorer_refresh(&decoder->scorer, err);
    for (size_t first = 0, size; first < count && status == NM_OK; first += size) {
        int64_t tokens = order[first].length;
        for (size = 1; first + size < count; size++) {
            tokens += order[first + size].length;
            if (tokens > decoder->options.batch_tokens)
                break;
        }
        status = decode_batch(decoder, sources, order + first, (int32_t)size, out, err);
    }
    nm_scorer_rest(&decoder->scorer);
    for (size_t i = 0; i < n && status != NM_OK; i++)
        nm_translation_release(&out[i]);
    free(order);
    return status;
}
