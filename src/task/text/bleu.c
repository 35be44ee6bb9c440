/* BLEU, with m_n clipped matches and t_n n-grams of order n in the hypothesis, c its length and r that of the
 * reference:
 *
 *     p_n  = m_n / t_n
 *     BLEU = min(1, exp(1 - r/c)) (p_1 p_2 p_3 p_4)^(1/4)
 *
 * With exponential smoothing, the k-th order without a match has
 *
 *     p_n  = 1 / (2^k t_n)
 *
 * Variables: matches = m_n, totals = t_n, hyp_len = c, ref_len = r, precisions = 100 p_n. */
#include "text/bleu.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/ngram.h"
#include "text/segment.h"
#include "text/tokenize_13a.h"

typedef struct word_list {
    int32_t *ids;
    size_t count, capacity;
} word_list;

struct nm_bleu {
    nm_bleu_config config;
    nm_segment_words words;
    nm_ngrams ngrams;
    nm_buffer text, scratch;
    word_list hypothesis, reference;
};

nm_bleu *nm_bleu_create(const nm_bleu_config *config)
{
    nm_bleu *bleu = nm_allocate(sizeof *bleu);
    bleu->config = *config;
    return bleu;
}

void nm_bleu_free(nm_bleu *bleu)
{
    if (!bleu)
        return;
    nm_segment_words_release(&bleu->words);
    nm_ngrams_release(&bleu->ngrams);
    nm_buffer_release(&bleu->text);
    nm_buffer_release(&bleu->scratch);
    NM_FREE(bleu->hypothesis.ids, bleu->reference.ids, bleu);
}

/* Lowercases and splits compounds, in this order; tokenization follows. Returns text itself or a buffer of
 * the counter. */
static const char *prepare_segment(nm_bleu *bleu, const char *text)
{
    const nm_bleu_config *config = &bleu->config;
    if (config->lowercase) {
        nm_buffer_clear(&bleu->text);
        if (config->variant == NM_BLEU_MULTI)
            nm_lower_ascii(text, &bleu->text);
        else
            nm_lower_unicode(text, &bleu->text);
        text = bleu->text.data;
    }
    if (config->split_compounds) {
        nm_buffer_clear(&bleu->scratch);
        nm_split_compounds(text, &bleu->scratch);
        nm_buffer_clear(&bleu->text);
        nm_buffer_append(&bleu->text, bleu->scratch.data, bleu->scratch.bytes);
        text = bleu->text.data;
    }
    return text;
}

static void words_push(nm_bleu *bleu, const char *word, size_t bytes, word_list *out)
{
    NM_APPEND(out->ids, out->count, out->capacity, nm_segment_words_id(&bleu->words, word, bytes));
}

static void split_words(nm_bleu *bleu, const char *text, word_list *out)
{
    text = prepare_segment(bleu, text);
    out->count = 0;
    size_t (*space_length)(const char *) = nm_ascii_space_length;
    NM_AUTO(nm_buffer_release) nm_buffer tokens = {0};
    if (bleu->config.variant == NM_BLEU_SACRE_13A) {
        space_length = nm_space_length;
        if (bleu->config.tokenizer)
            nm_metric_tokenize(bleu->config.tokenizer, text, &bleu->scratch, &tokens);
        else
            nm_tokenize_13a(text, &bleu->scratch, &tokens);
        text = tokens.data;
    }
    while (*text) {
        size_t space = 0;
        const char *word = text;
        while (*text && !(space = space_length(text)))
            text++;
        if (text > word)
            words_push(bleu, word, (size_t)(text - word), out);
        text += space;
    }
}

static void count_hypothesis(nm_bleu *bleu, const int32_t *words, size_t n_words, nm_bleu_stats *out)
{
    out->hyp_len = (int64_t)n_words;
    for (int n = 1; n <= NM_BLEU_ORDER; n++)
        out->totals[n - 1] = nm_ngram_total(n_words, n);
    nm_ngrams_match(&bleu->ngrams, words, n_words, NM_BLEU_ORDER, out->matches);
}

void nm_bleu_count(nm_bleu *bleu, const char *hypothesis, const char *const *references, int n_references,
                   nm_bleu_stats *out)
{
    NM_ASSERT(n_references > 0);
    *out = (nm_bleu_stats){0};
    nm_segment_words_clear(&bleu->words);
    nm_ngrams_clear(&bleu->ngrams);
    split_words(bleu, hypothesis, &bleu->hypothesis);
    int64_t hyp_len = (int64_t)bleu->hypothesis.count, closest = INT64_MAX;
    for (int i = 0; i < n_references; i++) {
        split_words(bleu, references[i], &bleu->reference);
        nm_ngrams_add_reference(&bleu->ngrams, bleu->reference.ids, bleu->reference.count, NM_BLEU_ORDER);
        int64_t ref_len = (int64_t)bleu->reference.count, distance = llabs(ref_len - hyp_len);
        if (distance < closest || (distance == closest && ref_len < out->ref_len)) {
            closest = distance;
            out->ref_len = ref_len;
        }
    }
    count_hypothesis(bleu, bleu->hypothesis.ids, bleu->hypothesis.count, out);
}

static void trim_marks(nm_bleu_marks marks, const int32_t **words, size_t *n_words)
{
    while (*n_words && **words == marks.pad) {
        ++*words;
        --*n_words;
    }
    while (*n_words && ((*words)[*n_words - 1] == marks.eos || (*words)[*n_words - 1] == marks.pad))
        --*n_words;
}

void nm_bleu_count_ids(nm_bleu *bleu, nm_bleu_marks marks, const int32_t *hypothesis, size_t hyp_len,
                       const int32_t *reference, size_t ref_len, nm_bleu_stats *out)
{
    trim_marks(marks, &hypothesis, &hyp_len);
    trim_marks(marks, &reference, &ref_len);
    *out = (nm_bleu_stats){.ref_len = (int64_t)ref_len};
    word_list *copy = &bleu->reference;
    copy->count = 0;
    for (size_t i = 0; i < ref_len; i++) {
        NM_APPEND(copy->ids, copy->count, copy->capacity,
                  reference[i] == marks.unk ? INT32_MIN : reference[i]);
    }
    nm_ngrams_clear(&bleu->ngrams);
    nm_ngrams_add_reference(&bleu->ngrams, copy->ids, copy->count, NM_BLEU_ORDER);
    count_hypothesis(bleu, hypothesis, hyp_len, out);
}

void nm_bleu_add(nm_bleu_stats *sum, const nm_bleu_stats *one)
{
    for (int n = 0; n < NM_BLEU_ORDER; n++) {
        sum->matches[n] += one->matches[n];
        sum->totals[n] += one->totals[n];
    }
    sum->hyp_len += one->hyp_len;
    sum->ref_len += one->ref_len;
}

static double brevity_penalty(int64_t hyp_len, int64_t ref_len)
{
    if (hyp_len >= ref_len)
        return 1;
    return hyp_len > 0 ? exp(1 - (double)ref_len / (double)hyp_len) : 0;
}

/* Sets the precisions and returns the number of orders with n-grams. Each variant has the order of operations
 * of its reference implementation, because rounding errors can change the digits that are printed. */
static int fill_precisions(const nm_bleu_stats *sum, nm_bleu_variant variant, double *precisions)
{
    double halved = 1;
    int n = 0;
    for (; n < NM_BLEU_ORDER && sum->totals[n] > 0; n++) {
        double matches = (double)sum->matches[n], total = (double)sum->totals[n];
        if (variant == NM_BLEU_MULTI)
            precisions[n] = 100 * (matches / total);
        else if (sum->matches[n] > 0)
            precisions[n] = 100 * matches / total;
        else
            precisions[n] = 100 / ((halved *= 2) * total);
    }
    return n;
}

nm_bleu_score nm_bleu_compute(const nm_bleu_config *config, const nm_bleu_stats *sum)
{
    nm_bleu_score score = {.hyp_len = sum->hyp_len, .ref_len = sum->ref_len};
    score.brevity_penalty = brevity_penalty(sum->hyp_len, sum->ref_len);
    score.ratio = sum->ref_len > 0 ? (double)sum->hyp_len / (double)sum->ref_len : 0;
    if (sum->matches[0] == 0)
        return score; /* without any match there is no smoothing */
    int n_orders = fill_precisions(sum, config->variant, score.precisions);
    int order = config->effective_order ? n_orders : NM_BLEU_ORDER;
    double log_sum = 0;
    for (int n = 0; n < order; n++) {
        if (!(score.precisions[n] > 0))
            return score;
        log_sum += log(score.precisions[n] / 100);
    }
    score.bleu = 100 * score.brevity_penalty * exp(log_sum / order);
    return score;
}

double nm_bleu_of_counts(const int64_t *counts, const void *context)
{
    nm_bleu_stats sum; /* int64_t fields in the order of the row */
    memcpy(&sum, counts, sizeof sum);
    return nm_bleu_compute(context, &sum).bleu;
}

char *nm_bleu_signature(const nm_bleu_config *config, int n_references)
{
    bool multi = config->variant == NM_BLEU_MULTI;
    const char *tokenizer = multi ? "none" : config->tokenizer ? config->tokenizer->type->name : "13a";
    return nm_format("nrefs:%d|case:%s|eff:%s|tok:%s%s|smooth:%s|version:norma-%s", n_references,
                     config->lowercase ? "lc" : "mixed", config->effective_order ? "yes" : "no",
                     config->split_compounds ? "atat+" : "", tokenizer, multi ? "none" : "exp",
                     NORMA_VERSION);
}

static char *sacre_line(const nm_bleu_config *config, const nm_bleu_score *score, int n_references)
{
    const double *p = score->precisions;
    NM_AUTO_FREE char *signature = nm_bleu_signature(config, n_references);
    return nm_format("BLEU|%s = %.1f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %" PRId64
                     " ref_len = %" PRId64 ")",
                     signature, score->bleu, p[0], p[1], p[2], p[3], score->brevity_penalty, score->ratio,
                     score->hyp_len, score->ref_len);
}

char *nm_bleu_line(const nm_bleu_config *config, const nm_bleu_score *score, int n_references)
{
    const double *p = score->precisions;
    if (config->variant == NM_BLEU_SACRE_13A)
        return sacre_line(config, score, n_references);
    if (score->ref_len == 0)
        return nm_format("BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)");
    return nm_format("BLEU = %.2f, %.1f/%.1f/%.1f/%.1f (BP=%.3f, ratio=%.3f, hyp_len=%" PRId64
                     ", ref_len=%" PRId64 ")",
                     score->bleu, p[0], p[1], p[2], p[3], score->brevity_penalty, score->ratio,
                     score->hyp_len, score->ref_len);
}
