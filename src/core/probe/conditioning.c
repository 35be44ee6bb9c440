#include "probe/conditioning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/numbers.h"
#include "probe/eval_pass.h"
#include "probe/spectrum.h"

NM_FIELDS(nm_layer_condition, NM_LAYER_CONDITION)

typedef struct condition_pass {
    nm_conditioning *conditioning;
    nm_gram *grams; /* of conditioning->layers */
    size_t capacity, gram_capacity;
    bool input_norm;    /* the first norm of a layer reads the layer's input */
    nm_site last;       /* the previous norm */
    nm_mat last_output; /* its output, for post-norm; valid until the next batch */
} condition_pass;

static size_t find_layer(condition_pass *l, const char *stack, int layer, int32_t width)
{
    nm_conditioning *c = l->conditioning;
    for (size_t i = 0; i < c->n; i++)
        if (c->layers[i].layer == layer && !strcmp(c->layers[i].stack, stack))
            return i;
    NM_GROW(l->grams, c->n, l->gram_capacity);
    NM_GROW(c->layers, c->n, l->capacity);
    c->layers[c->n] = (nm_layer_condition){.layer = layer};
    snprintf(c->layers[c->n].stack, sizeof c->layers->stack, "%s", stack);
    nm_gram_init(&l->grams[c->n], width);
    return c->n++;
}

static void add_input(condition_pass *l, const nm_norm_call *call, const nm_site *site, nm_mat input)
{
    NM_AUTO_FREE double *x = nm_mat_values(call->backend, input);
    size_t at = find_layer(l, site->stack, site->layer, input.cols);
    nm_gram_add(&l->grams[at], x, input.rows);
}

static void on_norm(void *user, const nm_norm_call *call, bool backward)
{
    condition_pass *l = user;
    nm_site site = nm_site_parse(call->norm->site.name);
    bool same_stack = !strcmp(site.stack, l->last.stack),
         new_layer = !same_stack || site.layer != l->last.layer;
    if (backward)
        return;
    if (site.layer >= 0 && new_layer && l->input_norm)
        add_input(l, call, &site, call->x);
    else if (site.layer > 0 && new_layer && same_stack && l->last_output.data)
        add_input(l, call, &site, l->last_output);
    l->last = site;
    l->last_output = call->y;
}

static void reset_batch(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out)
{
    condition_pass *l = user;
    (void)tape;
    (void)batch;
    (void)out;
    l->last = (nm_site){.layer = -1};
    l->last_output = (nm_mat){0};
}

static void finish(condition_pass *l)
{
    nm_conditioning *c = l->conditioning;
    for (size_t i = 0; i < c->n; i++) {
        nm_gram *gram = &l->grams[i];
        NM_AUTO_FREE double *values = nm_allocate((size_t)gram->d * sizeof *values);
        nm_gram_singular(gram, values);
        c->layers[i].rows = gram->rows;
        c->layers[i].c50 = nm_condition(values, gram->d, 0.5);
        c->layers[i].c80 = nm_condition(values, gram->d, 0.8);
        c->layers[i].c_max = values[0];
        nm_gram_release(gram);
    }
    free(l->grams);
}

nm_status nm_conditioning_measure(nm_conditioning *conditioning, nm_task *task, nm_model *model,
                                  nm_split split, int64_t max_batches, nm_error *err)
{
    *conditioning = (nm_conditioning){0};
    const nm_stack_options *stack = model->config; /* the first member of every configuration */
    nm_norm_position position = stack->norm_position;
    if (position == NM_INSIDE_NORM || position == NM_MIX_NORM)
        return NM_OK; /* no norm is at the inputs of all layers */
    condition_pass l = {.conditioning = conditioning, .input_norm = position != NM_POST_NORM};
    reset_batch(&l, NULL, NULL, NULL);
    const nm_eval_pass pass = {.task = task,
                               .model = model,
                               .split = split,
                               .kind = NM_EVAL_PASS_INFER,
                               .max_batches = max_batches,
                               .user = &l,
                               .norm = on_norm,
                               .batch = reset_batch};
    nm_status status = nm_eval_pass_run(&pass, &conditioning->batches, err);
    finish(&l);
    if (status != NM_OK)
        nm_conditioning_release(conditioning);
    return status;
}

void nm_conditioning_release(nm_conditioning *conditioning)
{
    free(conditioning->layers);
    *conditioning = (nm_conditioning){0};
}
