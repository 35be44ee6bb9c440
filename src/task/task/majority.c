/* Majority class: predicts the most frequent class of the training texts; of equally frequent ones, the
 * first. */

#include "base/memory.h"
#include "task/baseline.h"
#include "task/classification.h"

static nm_status majority_run(const nm_task *task, const nm_baseline_config *config,
                              nm_baseline_result *result, nm_error *err)
{
    const nm_classification_parts *parts = task->parts;
    int32_t classes = nm_classification_classes(parts), best = 0;
    NM_AUTO_FREE size_t *counts = nm_allocate((size_t)classes * sizeof *counts);
    (void)config;
    (void)err;
    for (size_t i = 0; i < parts->sets[NM_SPLIT_TRAIN].n; i++)
        counts[parts->sets[NM_SPLIT_TRAIN].labels.data[i]]++;
    for (int32_t k = 1; k < classes; k++)
        best = counts[k] > counts[best] ? k : best;
    for (nm_split split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST; split++) {
        size_t n = parts->sets[split].n;
        if (!n)
            continue;
        NM_AUTO_FREE int32_t *predicted = nm_allocate(n * sizeof *predicted);
        for (size_t i = 0; i < n; i++)
            predicted[i] = best;
        nm_classification_count(parts, split, predicted, n, &result->scores[split]);
    }
    result->settings = nm_format("always %s", nm_classification_name(parts, best));
    return NM_OK;
}

const nm_baseline_type nm_baseline_majority = {
    .name = "majority",
    .title = "majority class",
    .task = &nm_task_classification,
    .run = majority_run,
};
