/* Baselines of images: the nearest class mean, and logistic regression. Both read the pixels of an image that
 * is scaled to 8 x 8: 192 numbers from 0 to 1.
 *
 *     nearest class mean    argmin over k of |x - mean of the training images of class k| */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "task/baseline.h"
#include "task/logistic.h"
#include "task/image.h"

enum { SIDE = 8, FEATURES = SIDE * SIDE * NM_IMAGE_CHANNELS };

static void features_of(const nm_image_set *set, size_t index, float *features)
{
    uint8_t small[FEATURES];
    nm_image_scale(set->pixels + nm_image_bytes(set) * index, set->size, set->size, SIDE, small);
    for (int i = 0; i < FEATURES; i++)
        features[i] = (float)small[i] / 255;
}

/* Scores the splits with predict(context, features, n, predicted). */
static void score_splits(const nm_image_parts *parts,
                         int32_t (*predict)(const void *context, const float *features), const void *context,
                         nm_baseline_result *result)
{
    for (nm_split split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST; split++) {
        const nm_image_set *set = &parts->sets[split];
        float features[FEATURES];
        if (!set->n)
            continue;
        NM_AUTO_FREE int32_t *predicted = nm_allocate(set->n * sizeof *predicted);
        for (size_t i = 0; i < set->n; i++) {
            features_of(set, i, features);
            predicted[i] = predict(context, features);
        }
        nm_image_count(parts, split, predicted, set->n, &result->scores[split]);
    }
}

typedef struct class_means {
    size_t n;      /* classes */
    double *means; /* [n, FEATURES] */
} class_means;

static int32_t nearest_mean(const void *context, const float *features)
{
    const class_means *self = context;
    double least = INFINITY;
    size_t best = 0;
    for (size_t k = 0; k < self->n; k++) {
        double sum = 0;
        for (size_t i = 0; i < FEATURES; i++) {
            double difference = (double)features[i] - self->means[k * FEATURES + i];
            sum += difference * difference;
        }
        best = sum < least ? k : best;
        least = fmin(sum, least);
    }
    return (int32_t)best;
}

static nm_status class_mean_run(const nm_task *task, const nm_baseline_config *config,
                                nm_baseline_result *result, nm_error *err)
{
    const nm_image_parts *parts = task->parts;
    const nm_image_set *train = &parts->sets[NM_SPLIT_TRAIN];
    class_means self = {parts->classes.n, nm_allocate(parts->classes.n * FEATURES * sizeof *self.means)};
    NM_AUTO_FREE size_t *counts = nm_allocate(self.n * sizeof *counts);
    float features[FEATURES];
    (void)config;
    (void)err;
    for (size_t i = 0; i < train->n; i++) {
        const size_t k = (size_t)train->labels[i];
        features_of(train, i, features);
        counts[k]++;
        for (size_t j = 0; j < FEATURES; j++)
            self.means[k * FEATURES + j] += (double)features[j];
    }
    for (size_t i = 0; i < self.n * FEATURES; i++)
        self.means[i] = counts[i / FEATURES] ? self.means[i] / (double)counts[i / FEATURES] : INFINITY;
    score_splits(parts, nearest_mean, &self, result);
    free(self.means);
    return NM_OK;
}

static nm_sparse matrix_of(const nm_image_set *set)
{
    nm_sparse x = {.n = set->n,
                   .n_columns = FEATURES,
                   .starts = nm_allocate((set->n + 1) * sizeof *x.starts),
                   .at = nm_allocate((set->n * FEATURES + 1) * sizeof *x.at),
                   .values = nm_allocate((set->n * FEATURES + 1) * sizeof *x.values)};
    for (size_t i = 0; i < set->n; i++) {
        features_of(set, i, x.values + i * FEATURES);
        for (size_t j = 0; j < FEATURES; j++)
            x.at[i * FEATURES + j] = (int32_t)j;
        x.starts[i + 1] = (i + 1) * FEATURES;
    }
    return x;
}

typedef struct linear_scores {
    size_t classes;
    const double *weights; /* [FEATURES + 1, classes], the last row is the bias */
} linear_scores;

static int32_t highest_score(const void *context, const float *features)
{
    const linear_scores *self = context;
    double most = -INFINITY;
    size_t best = 0;
    for (size_t k = 0; k < self->classes; k++) {
        double score = self->weights[FEATURES * self->classes + k];
        for (size_t i = 0; i < FEATURES; i++)
            score += (double)features[i] * self->weights[i * self->classes + k];
        best = score > most ? k : best;
        most = fmax(score, most);
    }
    return (int32_t)best;
}

static nm_status logistic_pixels_run(const nm_task *task, const nm_baseline_config *config,
                                     nm_baseline_result *result, nm_error *err)
{
    const nm_image_parts *parts = task->parts;
    const nm_image_set *train = &parts->sets[NM_SPLIT_TRAIN], *valid = &parts->sets[NM_SPLIT_VALID];
    const int threads = config->threads ? (int)config->threads : 1;
    NM_AUTO(nm_sparse_release) nm_sparse x = matrix_of(train);
    NM_AUTO(nm_sparse_release) nm_sparse y = matrix_of(valid);
    NM_AUTO_FREE double *weights = nm_allocate((FEATURES + 1) * parts->classes.n * sizeof *weights);
    double c = config->regularization;
    const int32_t classes = (int32_t)parts->classes.n;
    (void)err;
    if (c > 0) {
        const nm_logistic_config fit = {.c = c, .tolerance = 1e-4, .max_steps = 100, .threads = threads};
        nm_logistic_fit(&x, train->labels, classes, &fit, weights);
    } else {
        c = nm_logistic_choose(&x, train->labels, &y, valid->labels, classes, threads, weights, NULL);
    }
    const linear_scores scores = {parts->classes.n, weights};
    score_splits(parts, highest_score, &scores, result);
    result->settings = nm_format("C %g, %d x %d pixels", c, SIDE, SIDE);
    return NM_OK;
}

const nm_baseline_type nm_baseline_class_mean = {
    .name = "class-mean", .title = "nearest class mean", .task = &nm_task_image, .run = class_mean_run};
const nm_baseline_type nm_baseline_logistic_pixels = {.name = "logistic-pixels",
                                                      .title = "logistic regression on pixels",
                                                      .task = &nm_task_image,
                                                      .run = logistic_pixels_run};
