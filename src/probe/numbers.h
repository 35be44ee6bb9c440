/* What instruments share: numbers from device memory, quantiles, what a norm's call publishes, names of sites. */
#ifndef NM_NUMBERS_H
#define NM_NUMBERS_H

#include "model/model.h"

/* n numbers of the backend's type as doubles, in heap memory that the caller frees. */
double *nm_numbers_download(nm_backend *backend, const void *device, size_t n);
/* A whole matrix without gaps between rows. */
double *nm_numbers_download_matrix(nm_backend *backend, nm_mat mat);

double nm_numbers_length(const double *values, size_t n); /* 2-norm */
/* The q-quantile (0 to 1) of ascending values, with linear interpolation. n > 0. */
double nm_numbers_quantile(const double *sorted, size_t n, double q);

/* A statistic that the call's norm has published, of this length; NULL when it has none of that name. */
const void *nm_call_stat(const nm_norm_call *call, const char *name, int32_t length);
/* The factors of the norm's own layer or group scaling, [rows, *groups], device; NULL and 0 groups when it has none. */
void *nm_call_row_scale(const nm_norm_call *call, int32_t *groups);
/* A statistic of the batch and the running one before its update, [width] each; device. */
typedef struct nm_call_pair {
    const char *quantity; /* "mean", "variance" or "quadratic_mean" (squares are compared) */
    const void *batch, *running;
    bool root; /* running is to be squared before it compares */
} nm_call_pair;
enum { NM_CALL_MAX_PAIRS = 3 };
int nm_call_pairs(const nm_norm_call *call, nm_call_pair pairs[NM_CALL_MAX_PAIRS]);
/* What multiplies the normalized x per feature: the learned gain with any correction; heap, width numbers. */
double *nm_call_gain(const nm_norm_call *call);

/* "enc.2.ffn.norm": stack "enc", layer 2, sublayer "ffn"; "enc.final.norm": layer -1, sublayer "final". */
typedef struct nm_site {
    char stack[32], sublayer[64];
    int layer;
} nm_site;
nm_site nm_site_parse(const char *name);

/* "enc.0.self" of "enc.0.self.qkv.weight" and of "enc.0.self.norm.weight"; "embed" of "embed.weight". */
void nm_group_name(const char *parameter, char *group, size_t bytes);

#endif
