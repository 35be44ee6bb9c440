/* Counts of test sets, one row per segment, from a hypothesis file and its references, or from segments in
 * memory. Files are read once, line by line; only the rows are stored. */
#pragma once

#include "text/score_metric.h"

/* Counts every line of the hypothesis file ("-" is standard input). *references_hash: of the text of all
 * references, the same for files and for segments in memory. NM_MISMATCH if a reference has another number of
 * lines; NM_FORMAT with file and line for text that is not UTF-8 or contains a zero byte, and for an empty
 * file; the errors of nm_text_open and of the metric; NM_INTERRUPTED by config->stop. The caller frees the
 * counts with nm_score_counts_release. */
nm_status nm_score_count_files(const nm_score_config *config, const char *hypothesis,
                               const char *const *references, int n_references, nm_counts *out,
                               uint64_t *references_hash, nm_error *err);
/* The same for n > 0 segments in memory, which may end with a newline and contain none otherwise; references
 * [n_references, n]. The errors of the metric, with the index of the segment; NM_INTERRUPTED. */
nm_status nm_score_count_texts(const nm_score_config *config, const char *const *hypotheses, size_t n,
                               const char *const *references, int n_references, nm_counts *out,
                               uint64_t *references_hash, nm_error *err);
void nm_score_counts_release(nm_counts *counts);
