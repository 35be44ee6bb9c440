/* The options of a comparison: sections [compare] and [run]. The other options are those of norma train, for
 * all runs. */
#pragma once

#include "experiment/text_table.h"
#include "norma/option.h"

typedef struct nm_comparison_options { /* section [compare] */
    const char *norms, *grid, *factorial, *folder, *results, *launch, *slurm;
    nm_table_format format;
    int64_t seeds, jobs, tid_batches, average, tuning_seeds;
    double margin;
    bool samples, score_grid, dry_run;
} nm_comparison_options;

typedef struct nm_compared_recipe { /* section [run], also passed to the runs */
    const char *task, *profile, *tune;
} nm_compared_recipe;

/* Registers both sections. */
void nm_comparison_options_add(nm_options *options);
