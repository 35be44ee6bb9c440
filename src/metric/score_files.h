/* Counts of whole files: a hypothesis file and its references, read line by line together, one row of counts per
 * line. Memory is that of the rows; texts are seen once. */
#ifndef NM_SCORE_FILES_H
#define NM_SCORE_FILES_H

#include "metric/bleu.h"
#include "metric/bootstrap.h"
#include "metric/chrf.h"
#include "metric/ter.h"

typedef enum nm_score_kind { NM_SCORE_BLEU, NM_SCORE_CHRF, NM_SCORE_TER } nm_score_kind;

/* What to count; only the configuration of its kind is looked at. */
typedef struct nm_score_config {
    nm_score_kind kind;
    nm_bleu_config bleu;
    nm_chrf_config chrf;
    nm_ter_config ter;
} nm_score_config;

/* Score of a row of counts, for nm_counts_score and nm_bootstrap_*; context is a const nm_score_config *. */
double nm_score_of_config(const int64_t *counts, const void *context);
/* The line of a score over these summed counts, as the reference program prints it. In heap memory. */
char *nm_score_line(const nm_score_config *config, const int64_t *sum, int n_references);
char *nm_score_signature(const nm_score_config *config, int n_references);

/* Counts every line of hypothesis ("-" is standard input). NM_MISMATCH with both numbers of lines if a reference is
 * longer or shorter; NM_FORMAT with file and line for text that is not UTF-8 or contains a zero byte, and for files
 * without a line. The caller frees out->values (as it is declared const, by nm_score_counts_release). */
nm_status nm_score_count_files(const nm_score_config *config, const char *hypothesis,
                               const char *const *references, int n_references, nm_counts *out,
                               nm_error *err);
void nm_score_counts_release(nm_counts *counts);

#endif
