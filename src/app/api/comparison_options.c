#include "api/comparison_options.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_comparison_options, field, initial, min, max, help)
/* clang-format off */
static const nm_option comparison_rows[] = {
    ROW(norms, "layer,scale+fix,batch,power,rbn", 0, 0,
        "Variants, comma-separated: NORM, NORM+fix (with FixNorm, which the others then do not have), or "
            "NORM:key=value for further settings; LABEL=NORM... "
        "names a variant. NORM may be recipe, the norms of the recipe. "
            "A value with commas or colons is written in braces: "
        "NORM:norm.at={enc.0=batch,enc.1=rms}. Models without FixNorm have scale in place of scale+fix by "
            "default; with run.tune the default is tuned=recipe."),
    ROW(grid, "", 0, 0,
        "Grid search, KEY=VALUE,VALUE,...: all combinations of the keys (separated by ; "
            "or given as repeated options) are "
        "trained, and the one with the lowest validation loss is scored. "
            "norm.X.* applies to variants with norm X. A value with "
        "commas or semicolons is written in braces: norm.at={enc.0=batch,enc.1=rms},{enc.0=batch}."),
    ROW(factorial, "", 0, 0,
        "Factorial comparison in place of compare.norms: FACTOR=LEVEL,LEVEL;... with the factors norm, site "
            "(model.norm_position), residual, init, optimizer or any option; lr=RATE,... is tuned in each "
            "cell. A norm can have settings, as in compare.norms: "
            "norm=layer,plain=batch:norm.batch.preset=pn. Prints main effects and interactions."),
    ROW(tuning_seeds, "0", 0, 10000,
        "Number of seeds of all grid points; the other seeds train only the best point of each variant. "
            "0: all seeds; with compare.factorial 1."),
    ROW(score_grid, "false", 0, 1, "Score all grid points on the test set, not only the selected ones."),
    ROW(seeds, "1", 1, 10000, "Number of runs of each variant, with seeds 1, 2, ..."),
    ROW(margin, "0", 0, 1e6,
        "Margin of the equivalence tests, in units of the score (0.3 BLEU); 0: no equivalence tests."),
    ROW(average, "0", 0, 1000,
        "Number of last checkpoints whose averaged weights are scored; 0 scores the best checkpoint."),
    ROW(launch, "", 0, 0,
        "Command that starts each run, words separated by spaces, for example srun -n4 or mpirun -n 2; "
        "empty: none."),
    ROW(slurm, "", 0, 0,
        "Options of sbatch, words separated by spaces, for example --time=2:00:00 --mem=4G: Slurm trains the "
            "runs that have no "
        "result yet, as tasks of one job array; empty: no Slurm."),
    ROW(jobs, "0", 0, 1024,
        "Number of parallel runs, which share the CPU cores; 0 keeps all cores busy. "
        "With Slurm: number of parallel tasks; 0: no limit."),
    ROW(folder, "", 0, 0,
        "Folder of the run folders; empty: runs/RECIPE-compare with the name of the recipe, or "
        "runs/RECIPE-PROFILE-compare."),
    ROW(results, "", 0, 0,
        "Folder of a comparison whose table is printed again from its logs and results, without training; "
            "no recipe is given."),
    ROW(dry_run, "false", 0, 1, "Measure the speed, print the plan with the time of each part and end."),
    ROW(tid_batches, "50", 0, 1e9, "Number of training batches on which TID is measured; 0: one epoch."),
    ROW(samples, "true", 0, 1, "Print examples from the test set below the table."),
    NM_CHOICE(nm_comparison_options, format, "text", NM_TABLE_FORMATS, "Format of the table."),
    {0}};
/* clang-format on */

static const nm_option recipe_rows[] = {
    NM_OPTION(nm_compared_recipe, task, "translation", 0, 0, "Task, if the recipe does not set it."),
    NM_OPTION(nm_compared_recipe, profile, "", 0, 0,
              "Profile of the recipe to apply, such as small (section [profile.small]); empty: none."),
    NM_OPTION(nm_compared_recipe, tune, "", 0, 0,
              "Model file or run folder that all runs train further, with its structure; empty: none."),
    {0}};

void nm_comparison_options_add(nm_options *options)
{
    nm_options_add(options, "compare", comparison_rows, NULL, sizeof(nm_comparison_options));
    nm_options_add(options, "run", recipe_rows, NULL, sizeof(nm_compared_recipe));
}
