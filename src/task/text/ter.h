/* Translation edit rate (Snover et al. 2006): the number of insertions, deletions, substitutions and shifts
 * of phrases that turn the hypothesis into the reference, divided by the length of the reference. Lower is
 * better. Results are those of sacreBLEU 2.x, with the limits of Tercom; by default text is lowercased and
 * split at spaces. */
#pragma once

#include "norma/status.h"

typedef struct nm_ter_config {
    bool normalized;     /* split off ASCII punctuation */
    bool no_punctuation; /* remove punctuation */
    bool asian; /* with normalized: split off CJK characters; with no_punctuation: remove CJK punctuation */
    bool case_sensitive;
} nm_ter_config;

/* A row of counts: number of edits times number of references, and sum of the lengths of the references. */
enum { NM_TER_COUNTS = 2 };

/* Workspace of one thread. */
typedef struct nm_ter nm_ter;
nm_ter *nm_ter_create(const nm_ter_config *config);
void nm_ter_free(nm_ter *ter);

/* Counts one segment, with the edits to the closest reference. Texts are NUL-terminated. */
void nm_ter_count(nm_ter *ter, const char *hypothesis, const char *const *references, int n_references,
                  int64_t *counts);

/* Score in percent of a row or a sum of rows; it can exceed 100. context is unused. Also for
 * nm_bootstrap_*. */
double nm_ter_of_counts(const int64_t *counts, const void *context);

/* "TER|nrefs:1|... = 57.3" as printed by sacreBLEU. The caller frees it. */
char *nm_ter_line(const nm_ter_config *config, double score, int n_references);
/* "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:norma-X". The caller frees it. */
char *nm_ter_signature(const nm_ter_config *config, int n_references);
