/* Bag of words: multinomial logistic regression over the unigrams and bigrams of a text. The feature of an
 * n-gram g with count c > 0 in a text is
 *
 *     x_g = (1 + ln c) (1 + ln((1 + N) / (1 + N_g)))
 *
 * with the number N of training texts and the number N_g of those that contain g (scikit-learn's
 * TfidfVectorizer with sublinear_tf). The features of a text are scaled to L2 norm 1. C is the value of a
 * grid with the best accuracy on the validation texts. */
#include <math.h>
#include <stdlib.h>

#include "base/hash_map.h"
#include "base/machine.h"
#include "base/memory.h"
#include "task/baseline.h"
#include "task/logistic.h"
#include "task/classification.h"

enum { NO_WORD = -1, MAX_WEIGHTS = 1 << 24 };

typedef struct gram {
    int32_t first, second; /* ids; second is NO_WORD in a unigram */
    int32_t texts;         /* N_g: number of training texts that contain it */
    int32_t column;        /* in the matrix; -1: not a feature */
    size_t last_text;      /* 1 + index of the last text that contains it */
} gram;

typedef struct bag {
    const nm_classification_parts *parts;
    nm_hash_map map; /* (first, second) -> index in grams */
    gram *grams;
    size_t n_grams, gram_capacity, n_columns;
    double *idf;      /* [n_columns]: 1 + ln((1 + N) / (1 + N_g)) */
    int32_t *columns; /* [n_found]: of the n-grams of the current text */
    size_t n_found, columns_capacity;
} bag;

static gram *find_gram(const bag *self, int32_t first, int32_t second)
{
    size_t probe = 0;
    uint32_t hash = nm_hash_pair((uint32_t)first, (uint32_t)second);
    for (uint32_t i; (i = nm_hash_map_next(&self->map, hash, &probe)) != NM_HASH_NONE;)
        if (self->grams[i].first == first && self->grams[i].second == second)
            return &self->grams[i];
    return NULL;
}

static void count_gram(bag *self, int32_t first, int32_t second, size_t text)
{
    gram *found = find_gram(self, first, second);
    if (!found) {
        NM_GROW(self->grams, self->n_grams, self->gram_capacity);
        found = &self->grams[self->n_grams];
        *found = (gram){.first = first, .second = second, .column = -1};
        nm_hash_map_add(&self->map, nm_hash_pair((uint32_t)first, (uint32_t)second),
                        (uint32_t)self->n_grams++);
    }
    found->texts += found->last_text != text + 1;
    found->last_text = text + 1;
}

/* The words of text i, without <s> and </s>. */
static const int32_t *words_of(const nm_labeled_set *set, size_t i, size_t *n)
{
    *n = set->offsets[i + 1] - set->offsets[i] - 2;
    return set->ids.data + set->offsets[i] + 1;
}

static int compare_columns(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Makes the n-grams that occur in at least k texts features, in the order of first occurrence. k is the
 * smallest number for which there are at most max_features. */
static void choose_columns(bag *self, size_t max_features)
{
    int32_t least = 1;
    for (size_t kept = SIZE_MAX; kept > max_features; least++) {
        kept = 0;
        for (size_t i = 0; i < self->n_grams; i++)
            kept += self->grams[i].texts >= least;
        if (kept <= max_features)
            break;
    }
    double texts = (double)self->parts->sets[NM_SPLIT_TRAIN].n;
    self->idf = nm_allocate((self->n_grams + 1) * sizeof *self->idf);
    for (size_t i = 0; i < self->n_grams; i++)
        if (self->grams[i].texts >= least) {
            self->idf[self->n_columns] = 1 + log((1 + texts) / (1 + self->grams[i].texts));
            self->grams[i].column = (int32_t)self->n_columns++;
        }
}

static void collect(bag *self, size_t max_features)
{
    const nm_labeled_set *set = &self->parts->sets[NM_SPLIT_TRAIN];
    for (size_t i = 0; i < set->n; i++) {
        size_t n;
        const int32_t *words = words_of(set, i, &n);
        for (size_t t = 0; t < n; t++) {
            count_gram(self, words[t], NO_WORD, i);
            if (t)
                count_gram(self, words[t - 1], words[t], i);
        }
    }
    choose_columns(self, max_features);
}

static void add_column(bag *self, int32_t first, int32_t second)
{
    const gram *found = find_gram(self, first, second);
    if (!found || found->column < 0)
        return;
    NM_APPEND(self->columns, self->n_found, self->columns_capacity, found->column);
}

/* Appends the current text as a row with distinct columns. */
static void add_row(bag *self, nm_sparse *x, size_t *capacity, size_t *value_capacity)
{
    uint64_t first = x->starts[x->n], end = first;
    double square = 0;
    if (self->n_found)
        qsort(self->columns, self->n_found, sizeof *self->columns, compare_columns);
    NM_RESERVE(x->at, first + self->n_found, *capacity);
    NM_RESERVE(x->values, first + self->n_found, *value_capacity);
    for (size_t i = 0, next; i < self->n_found; i = next) {
        for (next = i + 1; next < self->n_found && self->columns[next] == self->columns[i];)
            next++;
        double value = (1 + log((double)(next - i))) * self->idf[self->columns[i]];
        x->at[end] = self->columns[i];
        x->values[end++] = (float)value;
        square += value * value;
    }
    for (uint64_t e = first; e < end; e++)
        x->values[e] = (float)((double)x->values[e] / sqrt(square));
    x->starts[++x->n] = end;
}

static nm_sparse matrix_of(bag *self, nm_split split)
{
    const nm_labeled_set *set = &self->parts->sets[split];
    nm_sparse x = {.n_columns = self->n_columns, .starts = nm_allocate((set->n + 1) * sizeof *x.starts)};
    size_t capacity = 0, value_capacity = 0;
    for (size_t i = 0; i < set->n; i++) {
        size_t n;
        const int32_t *words = words_of(set, i, &n);
        self->n_found = 0;
        for (size_t t = 0; t < n; t++) {
            add_column(self, words[t], NO_WORD);
            if (t)
                add_column(self, words[t - 1], words[t]);
        }
        add_row(self, &x, &capacity, &value_capacity);
    }
    return x;
}

typedef struct fit {
    const nm_classification_parts *parts;
    nm_sparse x[NM_CLASS_SPLITS];
    int32_t classes;
    double *weights;
    int threads;
} fit;

static void predict(const fit *self, nm_split split, nm_task_score *score)
{
    NM_AUTO_FREE int32_t *predicted = nm_allocate((self->x[split].n + 1) * sizeof *predicted);
    nm_logistic_predict(&self->x[split], self->weights, self->classes, self->threads, predicted);
    nm_classification_count(self->parts, split, predicted, self->x[split].n, score);
}

/* fixed: C, or 0 to choose it. Returns C. */
static double fit_weights(fit *self, double fixed)
{
    const nm_labeled_set *train = &self->parts->sets[NM_SPLIT_TRAIN],
                         *valid = &self->parts->sets[NM_SPLIT_VALID];
    if (fixed == 0)
        return nm_logistic_choose(&self->x[NM_SPLIT_TRAIN], train->labels.data, &self->x[NM_SPLIT_VALID],
                                  valid->labels.data, self->classes, self->threads, self->weights, NULL);
    nm_logistic_config config = {.c = fixed, .tolerance = 1e-4, .max_steps = 100, .threads = self->threads};
    nm_logistic_fit(&self->x[NM_SPLIT_TRAIN], train->labels.data, self->classes, &config, self->weights);
    return fixed;
}

static nm_status bag_of_words_run(const nm_task *task, const nm_baseline_config *config,
                                  nm_baseline_result *result, nm_error *err)
{
    const nm_classification_parts *parts = task->parts;
    bag words = {.parts = parts};
    fit self = {.parts = parts,
                .classes = nm_classification_classes(parts),
                .threads = config->threads ? (int)config->threads : nm_machine_cpus()};
    (void)err;
    collect(&words,
            config->max_features > 0 ? (size_t)config->max_features : MAX_WEIGHTS / (size_t)self.classes);
    for (nm_split split = NM_SPLIT_TRAIN; split <= NM_SPLIT_TEST; split++)
        self.x[split] = matrix_of(&words, split);
    self.weights = nm_allocate((words.n_columns + 1) * (size_t)self.classes * sizeof *self.weights);
    double c = fit_weights(&self, config->regularization);
    for (nm_split split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST; split++)
        if (self.x[split].n)
            predict(&self, split, &result->scores[split]);
    result->settings = nm_format("C %g, %zu n-grams", c, words.n_columns);
    for (nm_split split = NM_SPLIT_TRAIN; split <= NM_SPLIT_TEST; split++)
        nm_sparse_release(&self.x[split]);
    free(self.weights);
    nm_hash_map_release(&words.map);
    NM_FREE(words.grams, words.idf, words.columns);
    return NM_OK;
}

const nm_baseline_type nm_baseline_bag_of_words = {
    .name = "bag-of-words",
    .title = "bag-of-words logistic regression",
    .task = &nm_task_classification,
    .run = bag_of_words_run,
};
