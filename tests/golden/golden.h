/* Golden cases: JSON files with inputs and expected outputs ("tnorm-golden-1"). One source file per family
 * runs its cases; the table in golden.c lists the families. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <jansson.h>

#include "norma/norm_type.h"
#include "norma/option.h"

typedef enum golden_result { GOLDEN_PASSED, GOLDEN_FAILED, GOLDEN_SKIPPED, GOLDEN_LEFT_OUT } golden_result;

typedef struct golden_case {
    const char *path, *method, *variant; /* never NULL */
    const json_t *root, *config;
    nm_backend *backend; /* precision of the case; NULL for families that do not compute */
    bool single;
    double value_tolerance, gradient_tolerance; /* |a - b| <= tolerance (1 + |b|) */
    char reason[512];                           /* of a failure or a skip; set by the functions below */
} golden_case;

typedef struct golden_family {
    const char *name;
    golden_result (*run)(golden_case *test);
    bool computes; /* run in double and in single precision */
} golden_family;

/* The families, one file each. */
extern const golden_family golden_norm, golden_optim, golden_schedule, golden_loss, golden_attention;
extern const golden_family golden_bpe, golden_metric, golden_model_family, golden_decode, golden_analysis,
    golden_crf, golden_block, golden_init, golden_conv, golden_image_norm, golden_image_model,
    golden_lm_train;

/* Methods of families that have several, one file each. */
golden_result golden_relative_attention(golden_case *test); /* of "attention" */
golden_result golden_block_term(golden_case *test);         /* of "attention" */
golden_result golden_self_attention(golden_case *test);     /* of "attention" */
golden_result golden_span_f1(golden_case *test);            /* of "metric" */

/* Values of one call of a layer without padding rows, in the precision of the case: [rows, width] each. */
typedef struct golden_rows {
    int32_t rows, width;
    const void *x, *dy;
    void *y, *dx; /* results */
} golden_rows;

/* A layer after `scaler` whose statistics count the padding rows, which are overwritten with the mean of the
 * real rows. scaler gets the real rows only. */
golden_result golden_padded_train(golden_case *test, nm_norm *scaler, nm_norm *norm, const golden_rows *io,
                                  int32_t pads);
golden_result golden_padded_infer(golden_case *test, nm_norm *scaler, nm_norm *norm, const golden_rows *io);
/* A layer that counts `pads` padding rows in means over the gradient, but not in mean squares: each feature
 * of a padding row is the root mean square of the real rows, and its gradient is 0. */
golden_result golden_padded_gradient_train(golden_case *test, nm_norm *norm, const golden_rows *io,
                                           int32_t pads);

/* Both store the reason unless one is stored, and return GOLDEN_FAILED or GOLDEN_SKIPPED. */
golden_result golden_fail(golden_case *test, const char *format, ...) __attribute__((format(printf, 2, 3)));
golden_result golden_skip(golden_case *test, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define GOLDEN_TRY(call)                                                                                     \
    do {                                                                                                     \
        golden_result result_ = (call);                                                                      \
        if (result_ != GOLDEN_PASSED)                                                                        \
            return result_;                                                                                  \
    } while (0)

/* A tensor as doubles in heap memory; free with golden_release. */
typedef struct golden_tensor {
    double *data;
    size_t count;
    int rank;
    int64_t shape[8];
} golden_tensor;

/* Fails if the value is not a tensor, or if shape and data disagree. what: its name in messages. */
golden_result golden_read(golden_case *test, const json_t *value, const char *what, golden_tensor *tensor);
void golden_release(golden_tensor *tensor);
/* A counter of running state: a number, or a tensor of one number; fails otherwise. */
golden_result golden_counter(golden_case *test, const json_t *value, const char *what, int64_t *counter);

/* Values in the precision of the case, in 64-byte aligned heap memory (free). */
void *golden_reals(const golden_case *test, const double *values, size_t count);
double golden_real(const golden_case *test, const void *values, size_t index);
/* Compares actual with expected values; fails with the first that deviates. */
golden_result golden_compare(golden_case *test, const char *what, const void *got, const double *want,
                             size_t count, double tolerance);

/* config[key], or a default when it is absent. */
double golden_number(const golden_case *test, const char *key, double otherwise);
/* The same as an integer, absolute value at most 2^31 - 1. */
int32_t golden_whole(const golden_case *test, const char *key, int32_t otherwise);
const char *golden_text(const golden_case *test, const char *key, const char *otherwise);
bool golden_flag(const golden_case *test, const char *key);

/* Sets an option of a model; fails with the message of nm_options_set. */
golden_result golden_set(golden_case *test, nm_options *options, const char *path, const char *value);
golden_result golden_set_number(golden_case *test, nm_options *options, const char *path, double value);
/* Skips a case whose optimizer is a variant that Norma does not have. */
golden_result golden_plain_optimizer(golden_case *test);

#endif
