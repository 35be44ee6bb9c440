/* Bootstrap: Koehn, "Statistical Significance Tests for Machine Translation Evaluation" (2004); the centered
 * test follows Riezler and Maxwell (2005). */
#include "base/bootstrap.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/sort.h"
#include "base/threads.h"

nm_bootstrap_config nm_bootstrap_default(void)
{
    return (nm_bootstrap_config){.n_resamples = 1000, .seed = 1, .outside = 0.05};
}

static void add_row(nm_counts counts, size_t segment, int64_t *sum)
{
    const int64_t *row = counts.values + segment * (size_t)counts.n_counts;
    for (int i = 0; i < counts.n_counts; i++)
        sum[i] += row[i];
}

int64_t *nm_counts_sum(nm_counts counts)
{
    int64_t *sum = nm_allocate((size_t)counts.n_counts * sizeof *sum);
    for (size_t i = 0; i < counts.n_segments; i++)
        add_row(counts, i, sum);
    return sum;
}

double nm_counts_score(nm_counts counts, nm_score_of_counts score, const void *context)
{
    NM_AUTO_FREE int64_t *sum = nm_counts_sum(counts);
    return score(sum, context);
}

/* Sums the counts of one resample for each system. All systems have the same segments. */
static void sum_resample(const nm_counts *systems, int n_systems, uint64_t seed, uint32_t resample,
                         int64_t **sums)
{
    uint32_t n = (uint32_t)systems[0].n_segments;
    for (int s = 0; s < n_systems; s++)
        for (int i = 0; i < systems[s].n_counts; i++)
            sums[s][i] = 0;
    nm_random_words words = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            words = nm_random4(seed, NM_RANDOM_BOOTSTRAP, 0, resample, i / 4);
        uint32_t segment = nm_random_below(words.w[i % 4], n);
        for (int s = 0; s < n_systems; s++)
            add_row(systems[s], segment, sums[s]);
    }
}

/* Sets scores[s][k] to the score of system s on resample k, for one or two systems. */
static void score_resamples(const nm_counts *systems, int n_systems, nm_score_of_counts score,
                            const void *context, const nm_bootstrap_config *config, double **scores)
{
    size_t row_bytes = (size_t)systems[0].n_counts * sizeof(int64_t);
    int threads = nm_threads_available(nm_threads_default());
#pragma omp parallel num_threads(threads)
    {
        int64_t *sums[2] = {nm_allocate(row_bytes), nm_allocate(row_bytes)};
#pragma omp for schedule(static)
        for (int k = 0; k < config->n_resamples; k++) {
            if (nm_stop_is_set(config->stop))
                continue;
            sum_resample(systems, n_systems, config->seed, (uint32_t)k, sums);
            for (int s = 0; s < n_systems; s++)
                scores[s][k] = score(sums[s], context);
        }
        NM_FREE(sums[0], sums[1]);
    }
}

/* Mean and percentile interval; sorts the values. As in sacreBLEU and Moses, 25 of 1000 values are below the
 * lower bound and 25 above the upper bound. */
static nm_interval interval_of(double *values, const nm_bootstrap_config *config)
{
    double sum = 0;
    if (nm_stop_is_set(config->stop))
        return (nm_interval){0};
    for (int k = 0; k < config->n_resamples; k++)
        sum += values[k];
    nm_sort_doubles(values, (size_t)config->n_resamples);
    int cut = (int)((double)config->n_resamples * config->outside / 2);
    return (nm_interval){sum / config->n_resamples, values[cut], values[config->n_resamples - 1 - cut]};
}

static void check(nm_counts counts, const nm_bootstrap_config *config)
{
    NM_ASSERT(config->n_resamples > 0 && config->outside >= 0 && config->outside < 1);
    NM_ASSERT(counts.n_segments <= UINT32_MAX && counts.n_counts > 0);
}

double *nm_bootstrap_resamples(nm_counts counts, nm_score_of_counts score, const void *context,
                               const nm_bootstrap_config *config)
{
    check(counts, config);
    double *scores = nm_allocate((size_t)config->n_resamples * sizeof *scores);
    score_resamples(&counts, 1, score, context, config, &scores);
    return scores;
}

nm_interval nm_bootstrap_interval_of(const double *scores, const nm_bootstrap_config *config)
{
    size_t bytes = (size_t)config->n_resamples * sizeof *scores;
    NM_AUTO_FREE double *sorted = nm_allocate(bytes);
    memcpy(sorted, scores, bytes);
    return interval_of(sorted, config);
}

nm_interval nm_bootstrap_interval(nm_counts counts, nm_score_of_counts score, const void *context,
                                  const nm_bootstrap_config *config)
{
    NM_AUTO_FREE double *scores = nm_bootstrap_resamples(counts, score, context, config);
    return interval_of(scores, config);
}

/* The observed scores count as one more resample, as in sacreBLEU (Noreen 1989), so that p is never 0. */
static double p_of_count(int count, int n_resamples)
{
    return (count + 1.0) / (n_resamples + 1.0);
}

/* Fraction of resamples on which the system with the higher score is not better. */
static double p_koehn(const double *a, const double *b, bool a_is_better, int n_resamples)
{
    int lost = 0;
    for (int k = 0; k < n_resamples; k++)
        lost += a_is_better ? !(a[k] > b[k]) : !(b[k] > a[k]);
    return p_of_count(lost, n_resamples);
}

/* Fraction of resamples whose absolute difference exceeds its mean by at least the absolute difference of the
 * scores. */
static double p_centered(const double *a, const double *b, double difference, int n_resamples)
{
    double mean = 0;
    int extreme = 0;
    for (int k = 0; k < n_resamples; k++)
        mean += fabs(a[k] - b[k]);
    mean /= n_resamples;
    for (int k = 0; k < n_resamples; k++)
        extreme += fabs(a[k] - b[k]) - mean >= fabs(difference);
    return p_of_count(extreme, n_resamples);
}

double nm_bootstrap_p(double score_a, const double *a, double score_b, const double *b,
                      const nm_bootstrap_config *config)
{
    return config->centered ? p_centered(a, b, score_a - score_b, config->n_resamples)
                            : p_koehn(a, b, score_a >= score_b, config->n_resamples);
}

nm_paired nm_bootstrap_paired(nm_counts a, nm_counts b, nm_score_of_counts score, const void *context,
                              const nm_bootstrap_config *config)
{
    check(a, config);
    NM_ASSERT(a.n_segments == b.n_segments && a.n_counts == b.n_counts);
    int n = config->n_resamples;
    NM_AUTO_FREE double *memory = nm_allocate(3 * (size_t)n * sizeof *memory);
    double *scores[2] = {memory, memory + n}, *differences = memory + 2 * n;
    nm_paired out = {.score_a = nm_counts_score(a, score, context),
                     .score_b = nm_counts_score(b, score, context)};
    score_resamples((nm_counts[]){a, b}, 2, score, context, config, scores);
    out.p = nm_bootstrap_p(out.score_a, scores[0], out.score_b, scores[1], config);
    for (int k = 0; k < n; k++)
        differences[k] = scores[0][k] - scores[1][k];
    out.difference = interval_of(differences, config);
    out.a = interval_of(scores[0], config);
    out.b = interval_of(scores[1], config);
    return out;
}
