/* Gradients of a whole model in double against central differences of its loss. Include behind cmocka.h. */
#ifndef MODEL_GRADIENTS_H
#define MODEL_GRADIENTS_H

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "model/model.h"

/* Every parameter along one random direction. loss: of the model as it is; with training, gradients are added too. */
static void model_check_gradients(nm_model *model, double (*loss)(void *user, bool training), void *user)
{
    nm_params *params = &model->params;
    nm_backend *b = model->backend;
    b->k.zero(b, params->grads, params->n_elements * sizeof(double));
    loss(user, true);
    double *grads =
        malloc(params->n_elements * sizeof *grads); /* the loss adds to gradients whenever it is computed */
    b->k.download(b, grads, params->grads, params->n_elements * sizeof *grads);
    for (size_t p = 0; p < params->n; p++) {
        nm_tensor *t = &params->list[p]->tensor;
        size_t n = (size_t)t->rows * (size_t)t->cols;
        double *value = malloc(n * sizeof *value), *moved = malloc(n * sizeof *moved),
               *direction = malloc(n * sizeof *moved);
        double expected = 0, square = 0, sides[2];
        b->k.download(b, value, t->data, n * sizeof *value);
        for (size_t i = 0; i < n; i++) {
            nm_random_words w = nm_random4(9, NM_RANDOM_TEST, (uint32_t)p, 0, i);
            direction[i] = nm_random_normal(w.w[0], w.w[1]);
            square += value[i] * value[i] / (double)n;
            expected += direction[i] * grads[params->list[p]->offset + i];
        }
        double step =
            square > 0 ? 1e-5 * fmin(1, 10 * sqrt(square)) : 1e-5; /* FixNorm's embeddings are small */
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < n; i++)
                moved[i] = value[i] + (side ? -step : step) * direction[i];
            b->k.upload(b, t->data, moved, n * sizeof *moved);
            sides[side] = loss(user, false);
        }
        b->k.upload(b, t->data, value, n * sizeof *value);
        double measured = (sides[0] - sides[1]) / (2 * step);
        if (!(fabs(measured - expected) <= 1e-6 * (1 + fabs(expected))))
            fail_msg("%s: backward %.12g, differences %.12g", t->name, expected, measured);
        free(value);
        free(moved);
        free(direction);
    }
    free(grads);
}

#endif
