/* Translation edit rate (Snover et al. 2006): the number of insertions, deletions, substitutions and shifts of phrases that
 * turn the hypothesis into the reference, divided by the length of the reference. Lower is better. With the limits of Tercom
 * and the results of sacreBLEU 2.x: lower case, words between spaces. */
#ifndef NM_TER_H
#define NM_TER_H

#include "norma/status.h"

typedef struct nm_ter_config {
    bool normalized;     /* splits off punctuation of ASCII */
    bool no_punctuation; /* removes punctuation */
    bool asian; /* with normalized: splits CJK characters; with no_punctuation: removes their punctuation */
    bool case_sensitive;
} nm_ter_config;

/* A row of counts: edits times the number of references, and the sum of the lengths of the references. */
enum { NM_TER_COUNTS = 2 };

/* Has a workspace for one segment: one per thread. */
typedef struct nm_ter nm_ter;
nm_ter *nm_ter_create(const nm_ter_config *config);
void nm_ter_free(nm_ter *ter);

/* Counts one segment: the edits to the closest reference. Texts are NUL-terminated. */
void nm_ter_count(nm_ter *ter, const char *hypothesis, const char *const *references, int n_references,
                  int64_t *counts);

/* Score in percent, at least 0, of a row or a sum of rows; context is not used. Also for nm_bootstrap_*. */
double nm_ter_of_counts(const int64_t *counts, const void *context);

/* "TER|nrefs:1|... = 57.3" as printed by sacreBLEU. Heap; the caller frees. */
char *nm_ter_line(const nm_ter_config *config, double score, int n_references);
/* "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:norma-X". Heap; the caller frees. */
char *nm_ter_signature(const nm_ter_config *config, int n_references);

#endif
