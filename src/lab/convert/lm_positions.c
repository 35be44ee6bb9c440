#include "convert/lm_positions.h"

#include "convert/tensor_list.h"

double *nm_lm_position_values(const nm_model *model)
{
    const nm_lm *lm = model->parts;
    const nm_lm_config *config = nm_lm_config_of(model);
    if (lm->position_table)
        return nm_param_values(model->backend, lm->position_table);
    if (lm->positions.data)
        return nm_mat_values(model->backend, lm->positions);
    return nm_allocate((size_t)config->context * (size_t)config->width * sizeof(double));
}
