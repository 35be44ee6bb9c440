#include <stdlib.h>

#include "task/baseline.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_baseline_config, field, initial, min, max, help)
/* clang-format off */
const nm_option nm_baseline_options[] = {
    ROW(regularization, "0", 0, 1e9,
        "Inverse strength C of the L2 regularization of the logistic regression; "
        "0: chosen on the validation texts."),
    ROW(max_features, "0", 0, 1e8,
        "Maximum number of n-grams of the logistic regression, those in most texts first; 0: by memory."),
    ROW(order, "0", 0, 16, "Order of the n-gram language model; 0: chosen on the validation text."),
    {0}};
/* clang-format on */

#define BASELINE(name) &nm_baseline_##name,
const nm_baseline_type *const nm_baseline_types[] = {NM_BASELINES(BASELINE) NULL};

void nm_baseline_result_release(nm_baseline_result *result)
{
    for (int split = 0; split < NM_BASELINE_SPLITS; split++)
        nm_task_score_release(&result->scores[split]);
    free(result->settings);
    *result = (nm_baseline_result){0};
}
