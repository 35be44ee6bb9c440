/* Functions that the instruments share: quantiles, published statistics of a norm call, site names. */
#pragma once

#include "train/hooks.h"

double nm_l2_norm(const double *values, size_t n);
/* The q-quantile (0 to 1) of sorted values, with linear interpolation. n > 0. */
double nm_quantile(const double *sorted, size_t n, double q);

/* A statistic that the norm has published, device [length]; NULL if there is none with this name and
 * length. */
const void *nm_call_stat(const nm_norm_call *call, const char *name, int32_t length);
/* The factors of the norm's layer or group scaling, device [rows, *groups]; NULL and 0 groups if it has
 * none. */
void *nm_call_row_scale(const nm_norm_call *call, int32_t *groups);
/* A batch statistic and the running statistic before its update, device [width] each. */
typedef struct nm_call_pair {
    const char *quantity; /* "mean", "variance" or "quadratic_mean" (mean squares) */
    const void *batch, *running;
    bool root; /* running holds square roots: square it before comparing */
} nm_call_pair;
enum { NM_CALL_MAX_PAIRS = 3 };
/* Returns the number of pairs that the norm has published. */
int nm_call_pairs(const nm_norm_call *call, nm_call_pair pairs[NM_CALL_MAX_PAIRS]);
/* gamma, the factor of each normalized feature: the weight, times a correction r if there is one; ones for a
 * norm without a weight. [width], heap, freed by the caller. */
double *nm_call_weight(const nm_norm_call *call);

/* Whether an option of the model, such as "model.norm_position", has this value. */
bool nm_model_option_is(const nm_model *model, const char *path, const char *value);

/* "enc.2.ffn.norm": stack "enc", layer 2, sublayer "ffn". "enc.final.norm": layer -1, sublayer "final". */
typedef struct nm_site {
    char stack[32], sublayer[64];
    int layer;
} nm_site;
nm_site nm_site_parse(const char *name);

/* "enc.0.self" for "enc.0.self.qkv.weight" and "enc.0.self.norm.weight"; "embed" for "embed.weight". */
void nm_group_name(const char *parameter, char *group, size_t bytes);
