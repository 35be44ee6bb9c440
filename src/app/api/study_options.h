/* The options of a study: section [study]. The other options are those of norma train, for all runs. */
#pragma once

#include "api/comparison_options.h"

typedef struct nm_study_options { /* section [study] */
    const char *norms, *budget, *folder, *rates, *launch, *slurm;
    int64_t seeds, jobs, updates, tid_batches;
    double delta;
} nm_study_options;

/* Registers [study] and [run]. */
void nm_study_options_add(nm_options *options);
/* Seconds of a duration such as "90", "90s", "30m" or "2h". NM_USAGE. */
nm_status nm_study_parse_budget(const char *text, double *seconds, nm_error *err);
/* Ascending positive numbers of "0.5,1,2"; at most `most`. NM_USAGE. */
nm_status nm_study_parse_rates(const char *text, double *list, size_t most, size_t *n, nm_error *err);
