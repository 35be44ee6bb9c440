#include "probe/confidence.h"

#include <math.h>
#include <stdlib.h>

#include "probe/numbers.h"
#include "probe/eval_pass.h"
#include "train/train_options.h"

NM_FIELDS(nm_confidence, NM_CONFIDENCE)

enum { BLOCK_ROWS = 64, BINS = 10 };

typedef struct bin {
    double confidence, correct, n;
} bin;

typedef struct confidence_pass {
    nm_model *model;
    nm_confidence *sums;
    double epsilon;
    bool others; /* the smoothing distributes epsilon over the other tokens only */
    bin bins[BINS];
} confidence_pass;

/* log_p: log probabilities of the tokens or classes, [size], -infinity for those that are masked. Masked and
 * ignored targets are counted separately. */
static void add_target(confidence_pass *l, const double *log_p, int32_t size, int32_t target)
{
    nm_confidence *sums = l->sums;
    int32_t best = 0, allowed = 0;
    double entropy = 0, all = 0;
    if (target == NM_TARGET_IGNORED || (!(log_p[target] > -INFINITY) && !isnan(log_p[target]))) {
        sums->masked++;
        return;
    }
    for (int32_t v = 0; v < size; v++) {
        if (!(log_p[v] > -INFINITY))
            continue;
        allowed++;
        all -= log_p[v];
        entropy -= exp(log_p[v]) * log_p[v];
        if (log_p[v] > log_p[best])
            best = v;
    }
    double confidence = exp(log_p[best]),
           each = l->others ? l->epsilon / (allowed - 1) : l->epsilon / allowed,
           own = 1 - l->epsilon - (l->others ? each : 0);
    bin *b = &l->bins[confidence < 1 ? (int)(confidence * BINS) : BINS - 1];
    b->confidence += confidence;
    b->correct += best == target;
    b->n++;
    sums->targets++;
    sums->confidence += confidence;
    sums->accuracy += best == target;
    sums->target_probability += exp(log_p[target]);
    sums->entropy += entropy;
    sums->nll -= log_p[target];
    sums->smoothed_nll += own * -log_p[target] + each * all;
    sums->smoothed_target += 1 - l->epsilon + (l->others ? 0 : each);
}

typedef struct block { /* consecutive rows of the batch's hidden vectors */
    int32_t first, rows;
    void *logits, *cluster_logits; /* device workspace for BLOCK_ROWS rows: [rows, V], [rows, clusters] */
} block;

/* Log probabilities of a block, [rows, V], heap. */
static double *block_log_probs(const confidence_pass *l, const nm_model_output *out, const block *at)
{
    nm_backend *b = l->model->backend;
    nm_mat hidden = nm_tensor_mat(out->hidden), logits = nm_mat_of(at->logits, at->rows, out->weight->rows);
    const nm_dropout none = {0};
    hidden.data = (char *)hidden.data + (size_t)at->first * (size_t)hidden.stride * nm_dtype_bytes(b->dtype);
    hidden.rows = at->rows;
    NM_CALL(b, linear, .x = hidden, .weight = nm_tensor_mat(out->weight),
            .bias = out->bias ? out->bias->data : NULL, .drop = &none, .y = logits);
    if (!out->clusters) {
        NM_CALL(b, log_softmax, .x = logits, .allowed = l->model->allowed, .y = logits);
        return nm_mat_values(b, logits);
    }
    nm_mat cluster_logits = nm_mat_of(at->cluster_logits, at->rows, out->clusters->n);
    NM_CALL(b, linear, .x = hidden, .weight = nm_tensor_mat(out->cluster_weight),
            .bias = out->cluster_bias->data, .drop = &none, .y = cluster_logits);
    double *log_p = nm_mat_values(b, logits), *clusters = nm_mat_values(b, cluster_logits);
    for (int32_t r = 0; r < at->rows; r++)
        nm_adaptive_log_probs(out->clusters, logits.cols, clusters + r * out->clusters->n,
                              log_p + (size_t)r * (size_t)logits.cols);
    free(clusters);
    return log_p;
}

/* Whether the output is a softmax with one target per row. */
static bool is_softmax(const nm_batch *batch, const nm_model_output *out)
{
    if (!out->hidden || !out->weight || !batch->target_out ||
        out->hidden->rows != batch->n_targets + batch->n_ignored)
        return false;
    for (int32_t i = 0; i < out->hidden->rows; i++)
        if (batch->target_out[i] != NM_TARGET_IGNORED &&
            (batch->target_out[i] < 0 || batch->target_out[i] >= out->weight->rows))
            return false;
    return true;
}

static void after_batch(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out)
{
    confidence_pass *l = user;
    if (!is_softmax(batch, out))
        return;
    const int32_t size = out->weight->rows, rows = out->hidden->rows;
    size_t row_bytes = BLOCK_ROWS * nm_dtype_bytes(l->model->backend->dtype);
    block at = {.logits = nm_tape_alloc(tape, (size_t)size * row_bytes),
                .cluster_logits =
                    out->clusters ? nm_tape_alloc(tape, (size_t)out->clusters->n * row_bytes) : NULL};
    for (; !nm_tape_exhausted(tape) && at.first < rows; at.first += BLOCK_ROWS) {
        at.rows = rows - at.first < BLOCK_ROWS ? rows - at.first : BLOCK_ROWS;
        NM_AUTO_FREE double *log_p = block_log_probs(l, out, &at);
        for (int32_t r = 0; r < at.rows; r++)
            add_target(l, log_p + (size_t)r * (size_t)size, size, batch->target_out[at.first + r]);
    }
}

static void finish(confidence_pass *l)
{
    nm_confidence *c = l->sums;
    double n = (double)c->targets;
    for (int i = 0; i < BINS; i++)
        c->calibration_error += fabs(l->bins[i].confidence - l->bins[i].correct) / n;
    double *sums[] = {&c->confidence, &c->accuracy,     &c->target_probability, &c->entropy,
                      &c->nll,        &c->smoothed_nll, &c->smoothed_target};
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
    confidence_pass l = {.model = model,
                         .sums = confidence,
                         .epsilon = train->label_smoothing,
                         .others = train->smoothing == NM_SMOOTH_OTHERS};
    const nm_eval_pass pass = {.task = task,
                               .model = model,
                               .split = split,
                               .kind = NM_EVAL_PASS_INFER,
                               .max_batches = max_batches,
                               .user = &l,
                               .batch = after_batch};
    NM_TRY(nm_eval_pass_run(&pass, &confidence->batches, err));
    if (confidence->targets)
        finish(&l);
    return isfinite(confidence->nll) && isfinite(confidence->entropy)
               ? NM_OK
               : nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
}
