/* Image classification: labeled images, standardization, class probabilities. */
#pragma once

#include "data/image_set.h"
#include "model/image_model.h"
#include "task/tasks.h"

enum { NM_IMAGE_SPLITS = 3 };
enum { NM_IMAGE_TEXT_LABELS, NM_IMAGE_TEXT_STANDARDIZATION, NM_IMAGE_TEXTS };

typedef struct nm_image_config { /* section [data] */
    const char *train, *valid, *test;
    int64_t size, batch, crop, per_class, valid_seed;
    double valid_fraction;
    bool mirror;
} nm_image_config;

/* A value of a pixel from 0 to 1 becomes (value - mean) / deviation, per channel. */
typedef struct nm_image_standardization {
    double mean[NM_IMAGE_CHANNELS], deviation[NM_IMAGE_CHANNELS];
} nm_image_standardization;

typedef struct nm_image_parts {
    char *texts[NM_IMAGE_TEXTS]; /* class names, one per line; means and deviations */
    nm_counter classes;          /* item i is the name of class i */
    nm_image_standardization standardization;
    nm_image_sizes size;
    nm_image_set sets[NM_IMAGE_SPLITS]; /* empty after open_model */
    uint64_t *offsets;                  /* 0, 1, ...: an image is one example of length 1 */
    nm_corpus corpora[NM_IMAGE_SPLITS];
    nm_batching batching[NM_IMAGE_SPLITS];
    char *note;
} nm_image_parts;

static inline nm_image_parts *nm_image_parts_of(const nm_task *task)
{
    return task->parts;
}

/* Writes the standardized image `index` of a set, [size * size * 3]. */
void nm_image_values(const nm_image_standardization *standardization, const nm_image_set *set, size_t index,
                     float *values);
/* Writes the class probabilities of all images, [n, classes]; a result depends on its image only. NM_DIVERGED
 * if logits are not finite; NM_MEMORY; NM_INTERRUPTED. */
nm_status nm_image_probabilities(const nm_task *task, nm_model *model, const nm_image_set *set, size_t n,
                                 double *probabilities, nm_error *err);
/* The most probable class; of equally probable ones the first. */
int32_t nm_image_best(const double *probabilities, size_t classes);
/* Fills the score of the first n images of a split with these predicted classes. */
void nm_image_count(const nm_image_parts *parts, nm_split split, const int32_t *predicted, size_t n,
                    nm_task_score *score);
