/* Counts of test sets: a hypothesis file and its references, read line by line together, or segments in memory; one row of counts
 * per segment. Memory is that of the rows; texts are seen once. */
#ifndef NM_SCORE_FILES_H
#define NM_SCORE_FILES_H

#include "metric/score_metric.h"

/* Counts every line of hypothesis ("-" is standard input). NM_MISMATCH with both numbers of lines if a reference is
 * longer or shorter; NM_FORMAT with file and line for text that is not UTF-8 or contains a zero byte, and for files
 * without a line. The caller frees out->values (as it is declared const, by nm_score_counts_release). */
nm_status nm_score_count_files(const nm_score_config *config, const char *hypothesis,
                               const char *const *references, int n_references, nm_counts *out,
                               nm_error *err);
/* The same for n > 0 segments in memory, which are text without line breaks except at the end; references [n_references, n]:
 * those of the first reference, then of the second. NM_FORMAT, NM_MISMATCH of the metric with the index of the segment. */
nm_status nm_score_count_texts(const nm_score_config *config, const char *const *hypotheses, size_t n,
                               const char *const *references, int n_references, nm_counts *out,
                               nm_error *err);
void nm_score_counts_release(nm_counts *counts);

#endif
