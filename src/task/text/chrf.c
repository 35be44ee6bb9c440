/* chrF, with precision P and recall R averaged over the orders that have n-grams on both sides:
 *
 *     F = (1 + beta^2) P R / (beta^2 P + R) */
#include "text/chrf.h"

#include <string.h>

#include "base/memory.h"
#include "text/ngram.h"
#include "text/segment.h"

/* Ids of the characters of a segment, without spaces, and of its words, with outer punctuation split off. */
typedef struct segment_tokens {
    int32_t *chars, *words;
    size_t n_chars, char_capacity, n_words, word_capacity;
} segment_tokens;

struct nm_chrf {
    nm_chrf_config config;
    nm_segment_words words;
    nm_ngrams ngrams;
    nm_buffer text;
    segment_tokens hypothesis, reference;
};

nm_chrf_config nm_chrf_default(void)
{
    return (nm_chrf_config){.char_order = 6, .word_order = 0, .beta = 2};
}

int nm_chrf_n_counts(const nm_chrf_config *config)
{
    return 3 * (config->char_order + config->word_order);
}

nm_chrf *nm_chrf_create(const nm_chrf_config *config)
{
    NM_ASSERT(config->char_order >= 1 && config->char_order <= NM_CHRF_MAX_ORDER);
    NM_ASSERT(config->word_order >= 0 && config->word_order <= NM_CHRF_MAX_ORDER);
    nm_chrf *chrf = nm_allocate(sizeof *chrf);
    chrf->config = *config;
    return chrf;
}

void nm_chrf_free(nm_chrf *chrf)
{
    if (!chrf)
        return;
    nm_segment_words_release(&chrf->words);
    nm_ngrams_release(&chrf->ngrams);
    nm_buffer_release(&chrf->text);
    NM_FREE(chrf->hypothesis.chars, chrf->hypothesis.words, chrf->reference.chars, chrf->reference.words,
            chrf);
}

static bool is_punctuation(char byte)
{
    return (byte >= '!' && byte <= '/') || (byte >= ':' && byte <= '@') || (byte >= '[' && byte <= '`') ||
           (byte >= '{' && byte <= '~');
}

static void word_push(nm_chrf *chrf, const char *word, size_t bytes, segment_tokens *out)
{
    NM_APPEND(out->words, out->n_words, out->word_capacity, nm_segment_words_id(&chrf->words, word, bytes));
}

/* Splits one ASCII punctuation character off the end, otherwise off the start, unless the word is a single
 * character. */
static void word_split(nm_chrf *chrf, const char *word, size_t bytes, size_t n_chars, segment_tokens *out)
{
    if (n_chars > 1 && is_punctuation(word[bytes - 1])) {
        word_push(chrf, word, bytes - 1, out);
        word_push(chrf, word + bytes - 1, 1, out);
    } else if (n_chars > 1 && is_punctuation(word[0])) {
        word_push(chrf, word, 1, out);
        word_push(chrf, word + 1, bytes - 1, out);
    } else {
        word_push(chrf, word, bytes, out);
    }
}

static void read_tokens(nm_chrf *chrf, const char *text, segment_tokens *out)
{
    out->n_chars = out->n_words = 0;
    if (chrf->config.lowercase) {
        nm_buffer_clear(&chrf->text);
        nm_lower_unicode(text, &chrf->text);
        text = chrf->text.data;
    }
    while (*text) {
        const char *word = text;
        size_t space = 0, n_chars = out->n_chars, bytes;
        while (*text && !(space = nm_space_length(text))) {
            NM_APPEND(out->chars, out->n_chars, out->char_capacity, nm_code_point(text, &bytes));
            text += bytes;
        }
        if (text > word && chrf->config.word_order > 0)
            word_split(chrf, word, (size_t)(text - word), out->n_chars - n_chars, out);
        text += space;
    }
}

/* Fills `order` rows of three counts. */
static void count_matches(nm_ngrams *ngrams, const int32_t *hypothesis, size_t hyp_len,
                          const int32_t *reference, size_t ref_len, int order, int64_t *counts)
{
    int64_t matches[NM_CHRF_MAX_ORDER] = {0};
    nm_ngrams_clear(ngrams);
    nm_ngrams_add_reference(ngrams, reference, ref_len, order);
    nm_ngrams_match(ngrams, hypothesis, hyp_len, order, matches);
    for (int n = 0; n < order; n++) {
        int64_t in_reference = nm_ngram_total(ref_len, n + 1);
        /* An order without n-grams in the reference does not reduce the precision. */
        counts[3 * n] = in_reference ? nm_ngram_total(hyp_len, n + 1) : 0;
        counts[3 * n + 1] = in_reference;
        counts[3 * n + 2] = matches[n];
    }
}

void nm_chrf_count(nm_chrf *chrf, const char *hypothesis, const char *const *references, int n_references,
                   int64_t *counts)
{
    NM_ASSERT(n_references > 0);
    const nm_chrf_config *config = &chrf->config;
    nm_segment_words_clear(&chrf->words);
    segment_tokens *hyp = &chrf->hypothesis, *ref = &chrf->reference;
    read_tokens(chrf, hypothesis, hyp);
    double best = -1;
    for (int i = 0; i < n_references; i++) {
        int64_t row[NM_CHRF_MAX_COUNTS] = {0};
        read_tokens(chrf, references[i], ref);
        count_matches(&chrf->ngrams, hyp->chars, hyp->n_chars, ref->chars, ref->n_chars, config->char_order,
                      row);
        count_matches(&chrf->ngrams, hyp->words, hyp->n_words, ref->words, ref->n_words, config->word_order,
                      row + 3 * config->char_order);
        double score = n_references > 1 ? nm_chrf_of_counts(row, config) : 0;
        if (score > best) {
            best = score;
            memcpy(counts, row, (size_t)nm_chrf_n_counts(config) * sizeof *counts);
        }
    }
}

double nm_chrf_of_counts(const int64_t *counts, const void *context)
{
    const nm_chrf_config *config = context;
    double precision = 0, recall = 0, factor = config->beta * config->beta;
    int n_orders = 0;
    for (int i = 0; i < config->char_order + config->word_order; i++) {
        const int64_t *row = counts + 3 * i;
        if (row[0] == 0 || row[1] == 0)
            continue;
        precision += (double)row[2] / (double)row[0];
        recall += (double)row[2] / (double)row[1];
        n_orders++;
    }
    if (n_orders == 0 || !(precision + recall > 0))
        return 0;
    precision /= n_orders;
    recall /= n_orders;
    return 100 * ((1 + factor) * precision * recall / (factor * precision + recall));
}

char *nm_chrf_signature(const nm_chrf_config *config, int n_references)
{
    return nm_format("nrefs:%d|case:%s|eff:yes|nc:%d|nw:%d|space:no|version:norma-%s", n_references,
                     config->lowercase ? "lc" : "mixed", config->char_order, config->word_order,
                     NORMA_VERSION);
}

/* "chrF2", "chrF2++"; heap. */
static char *name_of(const nm_chrf_config *config)
{
    return nm_format("chrF%g%.*s", config->beta, config->word_order, "++++++++");
}

char *nm_chrf_line(const nm_chrf_config *config, double score, int n_references)
{
    NM_AUTO_FREE char *signature = nm_chrf_signature(config, n_references), *name = name_of(config);
    return nm_format("%s|%s = %.1f", name, signature, score);
}
