/* chrF (Popovic 2015) and chrF++ (Popovic 2017) with the defaults of sacreBLEU 2.x: spaces are removed,
 * characters are code points, and orders without n-grams on one side are excluded from the average. Corpus
 * scores, bootstrap and paired tests share rows of counts per segment. */
#pragma once

#include "norma/status.h"

#define NM_CHRF_MAX_ORDER 8

typedef struct nm_chrf_config {
    int char_order, word_order; /* default 6 and 0, at most NM_CHRF_MAX_ORDER each; word order 2 is chrF++ */
    double beta;                /* weight of recall relative to precision; default 2 */
    bool lowercase;             /* by Unicode */
} nm_chrf_config;
nm_chrf_config nm_chrf_default(void);

/* A row has three counts for every order, character orders first: n-grams of the hypothesis, of the
 * reference, and clipped matches. */
#define NM_CHRF_MAX_COUNTS (6 * NM_CHRF_MAX_ORDER)
int nm_chrf_n_counts(const nm_chrf_config *config); /* 3 * (char_order + word_order) */

/* Workspace of one thread. */
typedef struct nm_chrf nm_chrf;
nm_chrf *nm_chrf_create(const nm_chrf_config *config);
void nm_chrf_free(nm_chrf *chrf);

/* Counts one segment, with the reference that has the highest score. Texts are NUL-terminated. */
void nm_chrf_count(nm_chrf *chrf, const char *hypothesis, const char *const *references, int n_references,
                   int64_t *counts);

/* Score, 0 to 100, of a row or a sum of rows; context is a const nm_chrf_config *. Also for
 * nm_bootstrap_*. */
double nm_chrf_of_counts(const int64_t *counts, const void *context);

/* "chrF2|nrefs:1|... = 57.3" as printed by sacreBLEU. The caller frees it. */
char *nm_chrf_line(const nm_chrf_config *config, double score, int n_references);
/* "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:norma-X". The caller frees it. */
char *nm_chrf_signature(const nm_chrf_config *config, int n_references);
