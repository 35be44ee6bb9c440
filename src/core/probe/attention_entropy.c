/* Entropy of softmax attention, mean over the rows of A (Zhai et al. 2023, Stabilizing Transformer Training
 * by Preventing Attention Entropy Collapse, section 3):
 *     A       = softmax(scale Q K^T)                                   before dropout
 *     entropy = -1/T sum_i sum_j A_ij log A_ij                         of each head, in nats
 *     uniform = 1/T sum_i log(number of keys that token i attends to)  the largest possible entropy
 * A low entropy means that heads attend to few tokens, and 0 to one. To bound the time of a measurement, T is
 * the number of tokens of the first sequences of the batch that have at least 256 tokens together. */
#include <math.h>
#include <stdlib.h>

#include "probe/instrument.h"

enum { ENOUGH_TOKENS = 256 };

typedef struct entropies {
    double *heads; /* sums over tokens, of each head */
    double uniform;
    int64_t tokens;
} entropies;

/* Entropy of softmax(scores) of n > 0 keys; overwrites the scores. */
static double entropy_of(double *scores, int32_t n)
{
    double largest = -INFINITY, sum = 0, weighted = 0;
    for (int32_t i = 0; i < n; i++)
        largest = fmax(largest, scores[i]);
    for (int32_t i = 0; i < n; i++) {
        const double shifted = scores[i] - largest, e = exp(shifted);
        sum += e;
        weighted += e > 0 ? e * shifted : 0;
    }
    return log(sum) - weighted / sum;
}

/* Adds the tokens of sequence s. q, k: host, all rows. */
static void add_sequence(const nm_attention_args *a, int32_t s, const double *q, const double *k,
                         entropies *sums)
{
    const int32_t first = a->q_packing->offsets[s], m = a->q_packing->offsets[s + 1] - first,
                  first_key = a->k_packing->offsets[s], n = a->k_packing->offsets[s + 1] - first_key,
                  width = a->q.cols, head_width = width / a->heads;
    NM_AUTO_FREE double *scores = nm_allocate(((size_t)n + 1) * sizeof *scores);
    for (int32_t i = 0; i < m && n; i++) {
        const int32_t end = a->causal ? n - m + i + 1 : n,
                      begin = a->window && end > a->window ? end - a->window : 0;
        for (int32_t h = 0; h < a->heads; h++) {
            for (int32_t j = begin; j < end; j++) {
                const double *x = q + (size_t)(first + i) * (size_t)width + (size_t)h * (size_t)head_width,
                             *y =
                                 k + (size_t)(first_key + j) * (size_t)width + (size_t)h * (size_t)head_width;
                double dot = 0;
                for (int32_t c = 0; c < head_width; c++)
                    dot += x[c] * y[c];
                scores[j - begin] = a->scale * dot;
            }
            sums->heads[h] += entropy_of(scores, end - begin);
        }
        sums->uniform += log(end - begin);
        sums->tokens++;
    }
}

static void measure_attention(nm_probe_record *record, const nm_attention_call *call)
{
    const nm_attention_args *a = call->args;
    entropies sums = {.heads = nm_allocate((size_t)a->heads * sizeof *sums.heads)};
    NM_AUTO_FREE double *q = nm_mat_values(call->backend, a->q), *k = nm_mat_values(call->backend, a->k);
    double mean = 0;
    for (int32_t s = 0; s < a->q_packing->n_seqs && sums.tokens < ENOUGH_TOKENS; s++)
        add_sequence(a, s, q, k, &sums);
    json_t *line = nm_probe_record_line(record, call->site), *heads = nm_line_array(line, "heads");
    for (int32_t h = 0; h < a->heads; h++) {
        nm_array_number(heads, sums.heads[h] / (double)sums.tokens);
        mean += sums.heads[h] / (double)sums.tokens / a->heads;
    }
    nm_line_number(line, "entropy", mean);
    nm_line_number(line, "uniform", sums.uniform / (double)sums.tokens);
    nm_line_count(line, "rows", sums.tokens);
    free(sums.heads);
}

const nm_instrument nm_instrument_attention_entropy = {
    .name = "attention_entropy",
    .attention = measure_attention,
};
