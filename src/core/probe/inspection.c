#include "probe/inspection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/numbers.h"
#include "probe/spectrum.h"

nm_status nm_inspection_select(nm_inspection_plan *plan, const char *names, nm_error *err)
{
    const struct {
        const char *name;
        bool *selected;
    } known[] = {{"tid", &plan->tid},
                 {"spectrum", &plan->spectrum},
                 {"condition", &plan->condition},
                 {"bounds", &plan->bounds},
                 {"confidence", &plan->confidence}};
    char *copy = nm_duplicate(names), *rest = copy;
    nm_status status = NM_OK;
    plan->named = strcmp(names, "all") != 0;
    for (char *name; status == NM_OK && (name = strsep(&rest, ",")) != NULL;) {
        bool found = !*name;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(name, "all") || !strcmp(name, known[i].name))
                *known[i].selected = found = true;
        if (!found)
            status = nm_fail(
                err, NM_USAGE,
                "unknown measurement %.64s; available: tid, spectrum, condition, bounds, confidence", name);
    }
    free(copy);
    return status;
}

/* The embedding matrix of the source tokens, or the first other one; NULL: none. */
static const nm_tensor *find_embedding(const nm_model *model)
{
    static const char *const names[] = {"embed.weight", "enc.embed.weight", "dec.embed.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const nm_param *param = nm_params_find(&model->params, names[i]);
        if (param)
            return &param->tensor;
    }
    for (size_t i = 0; i < model->params.n; i++)
        if (strstr(model->params.list[i]->tensor.name, "embed.weight"))
            return &model->params.list[i]->tensor;
    return NULL;
}

/* L2 normalization of each row, as the model computes with FixNorm. */
static void normalize_rows(double *x, int64_t rows, int32_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        double *row = x + (size_t)r * (size_t)cols, norm = nm_l2_norm(row, (size_t)cols);
        for (int32_t i = 0; i < cols && norm > 0; i++)
            row[i] /= norm;
    }
}

static void measure_spectrum(nm_inspection *inspection, const nm_model *model)
{
    const nm_tensor *table = find_embedding(model);
    if (!table)
        return;
    NM_AUTO_FREE double *x =
        nm_vector_values(model->backend, table->data, (size_t)table->rows * (size_t)table->cols);
    if (nm_model_option_is(model, "model.fixnorm", "true"))
        normalize_rows(x, table->rows, table->cols);
    NM_AUTO(nm_gram_release) nm_gram gram = {0};
    nm_gram_init(&gram, table->cols);
    nm_gram_add(&gram, x, table->rows);
    inspection->singular = nm_allocate((size_t)table->cols * sizeof *inspection->singular);
    nm_gram_singular(&gram, inspection->singular);
    inspection->n_singular = table->rows < table->cols ? table->rows : table->cols;
    snprintf(inspection->table, sizeof inspection->table, "%s", table->name);
}

static bool has_split(nm_task *task, nm_split split)
{
    NM_AUTO(nm_batches_release) nm_batches batches = {0};
    return task->type->epoch(task, split, 0, false, &batches, NM_IGNORED) == NM_OK;
}

/* NM_UNSUPPORTED if one of the measurements has no result. */
static nm_status check_results(const nm_inspection *inspection, nm_error *err)
{
    const nm_inspection_plan *plan = &inspection->plan;
    if (plan->confidence && !inspection->confidence.measured)
        return nm_fail(
            err, NM_UNSUPPORTED,
            "inspect.measure: confidence needs a model with a probability of each target; the loss "
            "of this one is that of whole sequences");
    const char *missing = plan->tid && !inspection->tid.n                  ? "tid"
                          : plan->spectrum && !inspection->n_singular      ? "spectrum"
                          : plan->condition && !inspection->conditioning.n ? "condition"
                          : plan->bounds && !inspection->bounds.n_groups   ? "bounds"
                                                                           : NULL;
    return missing
               ? nm_fail(err, NM_UNSUPPORTED, "inspect.measure: %s is not defined for this model", missing)
               : NM_OK;
}

static nm_status measure(nm_inspection *inspection, nm_task *task, nm_model *model, nm_error *err)
{
    const nm_inspection_plan *plan = &inspection->plan;
    nm_split split = has_split(task, NM_SPLIT_VALID) ? NM_SPLIT_VALID : NM_SPLIT_TRAIN;
    if (plan->tid)
        NM_TRY(nm_tid_measure(&inspection->tid, task, model, plan->batches, err));
    if (plan->tid && plan->tid_sites)
        NM_TRY(nm_tid_select(&inspection->tid, plan->tid_sites, err));
    if (plan->spectrum)
        measure_spectrum(inspection, model);
    if (plan->condition)
        NM_TRY(nm_conditioning_measure(&inspection->conditioning, task, model, split, plan->batches, err));
    if (plan->bounds)
        NM_TRY(nm_gradient_bounds_measure(&inspection->bounds, task, model, plan->gradient_batches, err));
    if (plan->confidence)
        NM_TRY(nm_confidence_measure(&inspection->confidence, task, model, split, plan->batches, err));
    return plan->named ? check_results(inspection, err) : NM_OK;
}

nm_status nm_inspection_measure(nm_inspection *inspection, const nm_inspection_plan *plan, nm_task *task,
                                nm_model *model, nm_error *err)
{
    *inspection = (nm_inspection){.plan = *plan};
    nm_status status = measure(inspection, task, model, err);
    if (status != NM_OK)
        nm_inspection_release(inspection);
    return status;
}

void nm_inspection_release(nm_inspection *inspection)
{
    nm_tid_release(&inspection->tid);
    nm_conditioning_release(&inspection->conditioning);
    nm_gradient_bounds_release(&inspection->bounds);
    free(inspection->singular);
    *inspection = (nm_inspection){0};
}
