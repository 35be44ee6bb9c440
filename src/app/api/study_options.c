#include "api/study_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW(field, initial, min, max, help) NM_OPTION(nm_study_options, field, initial, min, max, help)
/* clang-format off */
static const nm_option study_rows[] = {
    ROW(budget, "2h", 0, 0, "Time for the whole study, such as 30m or 2h; a number alone is in seconds."),
    ROW(norms, "", 0, 0,
        "Variants, as for norma compare; empty: layer, rms, scale+fix (scale without FixNorm), batch, power, "
        "rbn and dyt."),
    ROW(delta, "0", 0, 1e6,
        "Smallest difference that matters, in units of the score (0.5 BLEU), of a perplexity in percent: "
        "indifference zone of the selection and margin of the equivalence tests; 0: 0.5 points or 1 %."),
    ROW(seeds, "0", 0, 1000,
        "Number of fresh seeds of each finalist; 0: as many as the measured variance needs and the budget "
        "has time for."),
    ROW(rates, "0.5,1,2,4", 0, 0,
        "Learning rates to try for each variant, as multiples of the one in the recipe, comma-separated."),
    ROW(updates, "0", 0, 1e9, "Number of updates of a complete run; 0: as many as the budget has time for."),
    ROW(jobs, "0", 0, 1024, "Number of parallel runs, which share the CPU cores; 0 keeps all cores busy."),
    ROW(launch, "", 0, 0,
        "Command that starts each run, words separated by spaces, for example mpirun -n 2; empty: none."),
    ROW(slurm, "", 0, 0,
        "Options of sbatch, words separated by spaces: Slurm trains the runs of each part as one job array; "
        "waiting counts against the budget; empty: no Slurm."),
    ROW(folder, "", 0, 0, "Folder of the study; empty: study-NAME with the name of the data."),
    ROW(tid_batches, "20", 0, 1e9, "Number of training batches on which TID is measured; 0: one epoch."),
    {0}};

static const nm_option recipe_rows[] = {
    NM_OPTION(nm_compared_recipe, task, "translation", 0, 0, "Task, if the recipe does not set it."),
    NM_OPTION(nm_compared_recipe, profile, "", 0, 0,
              "Profile of the recipe to apply, such as small (section [profile.small]); empty: none."),
    {0}};
/* clang-format on */

void nm_study_options_add(nm_options *options)
{
    nm_options_add(options, "study", study_rows, NULL, sizeof(nm_study_options));
    nm_options_add(options, "run", recipe_rows, NULL, sizeof(nm_compared_recipe));
}

nm_status nm_study_parse_budget(const char *text, double *seconds, nm_error *err)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; end > text && i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].unit) && isfinite(number) && number > 0) {
            *seconds = number * units[i].seconds;
            return NM_OK;
        }
    return nm_fail(err, NM_USAGE, "study.budget: %.60s is not a duration such as 30m or 2h", text);
}

nm_status nm_study_parse_rates(const char *text, double *list, size_t most, size_t *n, nm_error *err)
{
    *n = 0;
    for (const char *at = text;; at++) {
        char *end;
        double number = strtod(at, &end);
        if (end == at || !(number > (*n ? list[*n - 1] : 0)) || !isfinite(number) || (*end && *end != ','))
            return nm_fail(err, NM_USAGE, "study.rates: %.100s: expected ascending positive numbers, 0.5,1,2",
                           text);
        if (*n >= most)
            return nm_fail(err, NM_USAGE, "study.rates: at most %zu rates", most);
        list[(*n)++] = number;
        at = end;
        if (!*at)
            return NM_OK;
    }
}
