/* Scores of segments: a byte of options, hypothesis and two references separated by NUL bytes. Scores are in
 * their range, identical texts have the best score, and an additional reference never lowers a number of
 * matches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text/bleu.h"
#include "text/chrf.h"
#include "text/ter.h"

enum { MAX_SEGMENT = 400 };

static void check_bleu(uint32_t flags, const char *hypothesis, const char *const *references)
{
    static const char *const names[] = {"13a", "intl", "zh", "char", "none"};
    nm_metric_tokenizer_config tokenizer_config = {.name = names[flags % 5]};
    nm_metric_tokenizer tokenizer;
    nm_error err;
    NM_ASSERT(nm_metric_tokenizer_open(&tokenizer, &tokenizer_config, &err) == NM_OK);
    nm_bleu_config config = {.variant = flags & 8 ? NM_BLEU_MULTI : NM_BLEU_SACRE_13A,
                             .lowercase = flags & 16,
                             .split_compounds = flags & 32,
                             .tokenizer = flags & 8 ? NULL : &tokenizer,
                             .effective_order = flags & 64};
    nm_bleu *bleu = nm_bleu_create(&config);
    nm_bleu_stats one, two, same;
    nm_bleu_count(bleu, hypothesis, references, 1, &one);
    nm_bleu_count(bleu, hypothesis, references, 2, &two);
    nm_bleu_count(bleu, hypothesis, &hypothesis, 1, &same);
    for (int i = 0; i < NM_BLEU_ORDER; i++) {
        NM_ASSERT(one.matches[i] <= one.totals[i] && one.matches[i] <= two.matches[i]);
        NM_ASSERT(same.matches[i] == same.totals[i] && same.totals[i] == one.totals[i]);
    }
    double score = nm_bleu_compute(&config, &one).bleu;
    NM_ASSERT(score >= 0 && score <= 100 + 1e-9);
    nm_bleu_free(bleu);
    nm_metric_tokenizer_close(&tokenizer);
}

static void check_chrf(uint32_t flags, const char *hypothesis, const char *const *references)
{
    nm_chrf_config config = nm_chrf_default();
    config.word_order = flags & 1 ? 2 : 0;
    config.lowercase = flags & 2;
    nm_chrf *chrf = nm_chrf_create(&config);
    int64_t counts[NM_CHRF_MAX_COUNTS];
    nm_chrf_count(chrf, hypothesis, references, 2, counts);
    double score = nm_chrf_of_counts(counts, &config);
    NM_ASSERT(score >= 0 && score <= 100 + 1e-9);
    nm_chrf_count(chrf, hypothesis, &hypothesis, 1, counts);
    score = nm_chrf_of_counts(counts, &config);
    NM_ASSERT(score == 0 || fabs(score - 100) < 1e-9);
    nm_chrf_free(chrf);
}

static void check_ter(uint32_t flags, const char *hypothesis, const char *const *references)
{
    nm_ter_config config = {flags & 1, flags & 2, flags & 4, flags & 8};
    nm_ter *ter = nm_ter_create(&config);
    int64_t counts[NM_TER_COUNTS];
    nm_ter_count(ter, hypothesis, references, 2, counts);
    NM_ASSERT(counts[0] >= 0 && counts[1] >= 0);
    nm_ter_count(ter, hypothesis, &hypothesis, 1, counts);
    NM_ASSERT(counts[0] == 0);
    nm_ter_free(ter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 3 * (size_t)MAX_SEGMENT) /* TER is quadratic in the length */
        return 0;
    uint32_t flags = fuzz_choice(&data, &bytes, 256);
    char *hypothesis = fuzz_part(&data, &bytes), *first = fuzz_part(&data, &bytes),
         *second = fuzz_part(&data, &bytes);
    const char *const references[] = {first, second};
    check_bleu(flags, hypothesis, references);
    check_chrf(flags, hypothesis, references);
    check_ter(flags, hypothesis, references);
    free(hypothesis);
    free(first);
    free(second);
    return 0;
}
