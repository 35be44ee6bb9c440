#include "probe/confidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probe/numbers.h"
#include "probe/eval_pass.h"
#include "train/trainer.h"

enum { BLOCK_ROWS = 64, BINS = 10 };

typedef struct bin {
    double confidence, right, n;
} bin;

typedef struct listener {
    nm_model *model;
    nm_confidence *sums;
    double epsilon;
    bool others; /* smoothing over the other words */
    bin bins[BINS];
} listener;

/* Log-probabilities p of the words or classes that one target could be. */
static void add_target(listener *l, const double *p, int32_t size, int32_t target)
{
    nm_confidence *sums = l->sums;
    int32_t best = 0, allowed = 0;
    double entropy = 0, all = 0;
    for (int32_t v = 0; v < size; v++) {
        if (!(p[v] > -INFINITY))
            continue; /* a word that may not be output */
        allowed++;
        all -= p[v];
        entropy -= exp(p[v]) * p[v];
        if (p[v] > p[best])
            best = v;
    }
    double confidence = exp(p[best]), share = l->others ? l->epsilon / (allowed - 1) : l->epsilon / allowed,
           own = 1 - l->epsilon - (l->others ? share : 0);
    bin *b = &l->bins[confidence < 1 ? (int)(confidence * BINS) : BINS - 1];
    b->confidence += confidence;
    b->right += best == target;
    b->n++;
    sums->targets++;
    sums->largest += confidence;
    sums->right += best == target;
    sums->target += exp(p[target]);
    sums->entropy += entropy;
    sums->nll -= p[target];
    sums->smoothed += own * -p[target] + share * all;
    sums->ideal += 1 - l->epsilon + (l->others ? 0 : share);
}

/* Rows first .. first + logits.rows - 1 of the batch's hidden vectors. */
static void add_block(listener *l, const nm_model_output *out, int32_t first, nm_mat logits,
                      const int32_t *targets)
{
    nm_backend *b = l->model->backend;
    nm_mat hidden = nm_tensor_mat(out->hidden);
    hidden.data = (char *)hidden.data + (size_t)first * (size_t)hidden.stride * nm_dtype_bytes(b->dtype);
    hidden.rows = logits.rows;
    const nm_dropout none = {0};
    b->k.linear(b, hidden, nm_tensor_mat(out->weight), out->bias ? out->bias->data : NULL, NM_ACT_NONE, &none,
                logits);
    b->k.log_softmax(b, logits, l->model->allowed, logits);
    double *p = nm_numbers_download_matrix(b, logits);
    for (int32_t r = 0; r < logits.rows; r++)
        add_target(l, p + (size_t)r * (size_t)logits.cols, logits.cols, targets[r]);
    free(p);
}

/* A soft-max with one target for each row is what this knows. */
static bool is_softmax(const nm_batch *batch, const nm_model_output *out)
{
    if (!out->hidden || !out->weight || !batch->target_out || out->hidden->rows != batch->units)
        return false;
    for (int32_t i = 0; i < out->hidden->rows; i++)
        if (batch->target_out[i] < 0 || batch->target_out[i] >= out->weight->rows)
            return false;
    return true;
}

static void after_batch(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out)
{
    listener *l = user;
    if (!is_softmax(batch, out))
        return;
    const int32_t size = out->weight->rows;
    void *memory =
        nm_tape_alloc(tape, (size_t)BLOCK_ROWS * (size_t)size * nm_dtype_bytes(l->model->backend->dtype));
    for (int32_t first = 0; memory && first < out->hidden->rows; first += BLOCK_ROWS) {
        int32_t left = out->hidden->rows - first;
        add_block(l, out, first, nm_mat_of(memory, left < BLOCK_ROWS ? left : BLOCK_ROWS, size),
                  batch->target_out + first);
    }
}

static void average(listener *l)
{
    nm_confidence *c = l->sums;
    double n = (double)c->targets;
    for (int i = 0; i < BINS; i++)
        c->calibration += fabs(l->bins[i].confidence - l->bins[i].right) / n;
    double *sums[] = {&c->largest, &c->right, &c->target, &c->entropy, &c->nll, &c->smoothed, &c->ideal};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] /= n;
    c->epsilon = l->epsilon;
    c->measured = true;
}

nm_status nm_confidence_measure(nm_confidence *confidence, nm_task *task, nm_model *model, nm_split split,
                                int64_t max_batches, nm_error *err)
{
    const nm_train_config *train = nm_options_find(model->options, "train");
    *confidence = (nm_confidence){0};
    listener l = {.model = model,
                  .sums = confidence,
                  .epsilon = train->label_smoothing,
                  .others = !strcmp(train->smoothing, "others")};
    const nm_eval_pass pass = {.task = task,
                               .model = model,
                               .split = split,
                               .kind = NM_EVAL_PASS_INFER,
                               .max_batches = max_batches,
                               .user = &l,
                               .batch = after_batch};
    NM_TRY(nm_eval_pass_run(&pass, &confidence->batches, err));
    if (confidence->targets)
        average(&l);
    return NM_OK;
}
