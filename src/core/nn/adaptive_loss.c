/* Adaptive softmax (Grave et al. 2017) with output embeddings of full width, as in Transformer-XL's code. The
 * head is a softmax over the frequent tokens and one entry per tail cluster; a tail is a softmax over the
 * tokens of its cluster, computed only for targets in that cluster. With the log-softmaxes head and tail_i,
 * and H entries in the head:
 *     log p(v) = head(v)                         v in the head
 *     log p(v) = head(H - i) + tail_i(v)         v in cluster i = 1 .. n
 * Label smoothing applies to the target distribution of each of these softmaxes: of the head, and of the tail
 * of the target's cluster. Smoothing over the whole vocabulary would need the tails of all clusters for every
 * token. Head and tails use the softmax loss kernel, so that the logits of a batch are never stored and the
 * gradients are computed in the same pass. */
#include <math.h>

#include "nn/tape.h"

static void adaptive_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *hidden = node->in[0];
    nm_mat dh = nm_tensor_grad_sum(tape, hidden);
    if (dh.data)
        NM_CALL(tape->backend, add, .alpha = 1, .x = nm_mat_of(node->saved, hidden->rows, hidden->cols),
                .y = dh);
}

static const nm_op adaptive_op = {.name = "adaptive_loss", .backward = adaptive_backward};

typedef struct adaptive {
    nm_tape *tape;
    nm_backend *b;
    const nm_adaptive_params *params;
    nm_tensor *hidden;
    const nm_loss_spec *spec;
    const int32_t *targets; /* spec->targets */
    void *d_hidden;         /* device [tokens, d]; NULL unless training */
} adaptive;

static size_t element_bytes(const adaptive *a)
{
    return nm_dtype_bytes(a->b->dtype);
}

static void *at_row(const adaptive *a, void *data, int32_t row, int32_t cols)
{
    return data ? (char *)data + (size_t)row * (size_t)cols * element_bytes(a) : NULL;
}

/* Cluster of a token; 0: the head. */
static int32_t cluster_of(const nm_adaptive_clusters *clusters, int32_t token)
{
    int32_t cluster = 0;
    while (cluster < clusters->n && token >= clusters->first[cluster])
        cluster++;
    return cluster;
}

static double *run_loss(const adaptive *a, nm_softmax_loss_args loss, const int32_t *targets, int32_t n)
{
    loss.sums = loss.add_sums ? loss.sums : nm_tape_alloc(a->tape, 2 * sizeof *loss.sums);
    loss.targets = nm_tape_upload(a->tape, targets, (size_t)n * sizeof *targets);
    loss.grad_scale = a->tape->grad_scale;
    loss.smoothing = a->spec->smoothing;
    loss.eps = loss.weight.rows > 1 ? a->spec->eps : 0; /* one class cannot be smoothed */
    if (nm_tape_exhausted(a->tape))
        return NULL;
    a->b->k.softmax_loss(a->b, &loss);
    return loss.sums;
}

/* Loss sums of the head. Its weight is a copy of the head's rows of the output projection, followed by the
 * cluster entries; the gradient of the copy is added to both. */
static double *head_loss(const adaptive *a)
{
    const nm_adaptive_params *m = a->params;
    int32_t own = m->clusters.first[0], size = own + m->clusters.n, d = a->hidden->cols,
            tokens = a->hidden->rows;
    size_t bytes = (size_t)size * (size_t)d * element_bytes(a),
           own_bytes = (size_t)own * (size_t)d * element_bytes(a);
    bool grads = a->d_hidden != NULL;
    char *weight = nm_tape_alloc(a->tape, bytes),
         *bias = nm_tape_alloc(a->tape, (size_t)size * element_bytes(a));
    char *d_weight = grads ? nm_tape_alloc(a->tape, bytes) : NULL,
         *d_bias = grads ? nm_tape_alloc(a->tape, (size_t)size * element_bytes(a)) : NULL;
    int32_t *targets = nm_tape_host(a->tape, (size_t)tokens * sizeof *targets);
    if (nm_tape_exhausted(a->tape))
        return NULL;
    nm_backend *b = a->b;
    nm_backend_copy(b, weight, m->weight->data, own_bytes);
    nm_backend_copy(b, weight + own_bytes, m->cluster_weight->data, bytes - own_bytes);
    if (m->bias)
        nm_backend_copy(b, bias, m->bias->data, (size_t)own * element_bytes(a));
    else
        nm_backend_zero(b, bias, (size_t)own * element_bytes(a));
    nm_backend_copy(b, at_row(a, bias, own, 1), m->cluster_bias->data,
                    (size_t)m->clusters.n * element_bytes(a));
    if (grads) {
        nm_backend_zero(b, d_weight, bytes);
        nm_backend_zero(b, d_bias, (size_t)size * element_bytes(a));
    }
    for (int32_t i = 0; i < tokens; i++) {
        int32_t cluster = cluster_of(&m->clusters, a->targets[i]);
        targets[i] = cluster ? size - cluster : a->targets[i];
    }
    double *sums = run_loss(a,
                            (nm_softmax_loss_args){.hidden = nm_tensor_mat(a->hidden),
                                                   .weight = nm_mat_of(weight, size, d),
                                                   .bias = bias,
                                                   .d_hidden = a->d_hidden,
                                                   .d_weight = d_weight,
                                                   .d_bias = d_bias},
                            targets, tokens);
    if (!grads || !sums)
        return sums;
    nm_mat to[] = {nm_tensor_grad_sum(a->tape, m->weight), nm_tensor_grad_sum(a->tape, m->cluster_weight),
                   nm_tensor_grad_sum(a->tape, m->cluster_bias)};
    to[0].rows = own;
    NM_CALL(b, add, .alpha = 1, .x = nm_mat_of(d_weight, own, d), .y = to[0]);
    NM_CALL(b, add, .alpha = 1, .x = nm_mat_of(d_weight + own_bytes, m->clusters.n, d), .y = to[1]);
    NM_CALL(b, add, .alpha = 1, .x = nm_mat_of(at_row(a, d_bias, own, 1), 1, m->clusters.n), .y = to[2]);
    if (m->bias)
        NM_CALL(b, add, .alpha = 1, .x = nm_mat_of(d_bias, 1, own),
                .y = nm_mat_of(nm_tensor_grad_sum(a->tape, m->bias).data, 1, own));
    return sums;
}

/* Selects the targets in a tail cluster: *rows = their rows, *targets = their ids relative to the first id of
 * the cluster. Returns their number. */
static int32_t select_cluster(const adaptive *a, int32_t cluster, int32_t **rows, int32_t **targets)
{
    size_t bytes = (size_t)a->hidden->rows * sizeof **rows;
    int32_t n = 0;
    *rows = nm_tape_host(a->tape, bytes);
    *targets = nm_tape_host(a->tape, bytes);
    for (int32_t i = 0; *rows && *targets && i < a->hidden->rows; i++)
        if (cluster_of(&a->params->clusters, a->targets[i]) == cluster) {
            (*rows)[n] = i;
            (*targets)[n++] = a->targets[i] - a->params->clusters.first[cluster - 1];
        }
    return n;
}

/* Adds the loss of a tail cluster to sums; false if the tape is exhausted. */
static bool add_tail(const adaptive *a, int32_t cluster, double *sums)
{
    const nm_adaptive_params *m = a->params;
    int32_t first = m->clusters.first[cluster - 1], d = a->hidden->cols, *rows, *targets;
    int32_t end = cluster < m->clusters.n ? m->clusters.first[cluster] : m->weight->rows;
    int32_t n = select_cluster(a, cluster, &rows, &targets);
    if (!n)
        return !nm_tape_exhausted(a->tape);
    bool grads = a->d_hidden != NULL;
    size_t bytes = (size_t)n * (size_t)d * element_bytes(a);
    void *hidden = nm_tape_alloc(a->tape, bytes), *d_hidden = grads ? nm_tape_alloc(a->tape, bytes) : NULL;
    const int32_t *device_rows = nm_tape_upload(a->tape, rows, (size_t)n * sizeof *rows);
    if (nm_tape_exhausted(a->tape))
        return false;
    nm_backend *b = a->b;
    NM_CALL(b, gather, .rows = device_rows, .x = nm_tensor_mat(a->hidden), .out = nm_mat_of(hidden, n, d));
    nm_softmax_loss_args loss = {.hidden = nm_mat_of(hidden, n, d),
                                 .weight = nm_mat_of(at_row(a, m->weight->data, first, d), end - first, d),
                                 .bias = m->bias ? at_row(a, m->bias->data, first, 1) : NULL,
                                 .add_sums = true,
                                 .sums = sums,
                                 .d_hidden = d_hidden};
    if (grads) {
        loss.d_weight = at_row(a, nm_tensor_grad_sum(a->tape, m->weight).data, first, d);
        loss.d_bias = m->bias ? at_row(a, nm_tensor_grad_sum(a->tape, m->bias).data, first, 1) : NULL;
    }
    if (!run_loss(a, loss, targets, n))
        return false;
    nm_dropout none = {0};
    if (grads) /* d_hidden[rows[i]] += d_hidden_tail[i]; the rows are distinct */
        NM_CALL(b, embed_grad, .ids = device_rows, .scale = 1, .dout = nm_mat_of(d_hidden, n, d),
                .drop = &none, .dtable = nm_mat_of(a->d_hidden, a->hidden->rows, d));
    return true;
}

double *nm_adaptive_loss_of(nm_tape *tape, nm_tensor *hidden, const nm_adaptive_params *params,
                            const nm_loss_spec *spec)
{
    size_t bytes = (size_t)hidden->rows * (size_t)hidden->cols * nm_dtype_bytes(tape->backend->dtype);
    adaptive a = {.tape = tape,
                  .b = tape->backend,
                  .params = params,
                  .hidden = hidden,
                  .spec = spec,
                  .targets = spec->targets,
                  .d_hidden = tape->training ? nm_tape_alloc(tape, bytes) : NULL};
    if (nm_tape_exhausted(tape))
        return NULL;
    double *sums = head_loss(&a);
    for (int32_t cluster = 1; sums && cluster <= params->clusters.n; cluster++)
        if (!add_tail(&a, cluster, sums))
            return NULL;
    if (tape->training)
        nm_tape_record(tape, &adaptive_op, NULL, a.d_hidden)->in[0] = hidden;
    return sums;
}

/* ln(sum_i exp(x_i) + sum_i exp(y_i)) */
static double log_sum_exp(const double *x, int32_t n, const double *y, int32_t m)
{
    double top = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int32_t i = 0; i < m; i++)
        top = y[i] > top ? y[i] : top;
    for (int32_t i = 0; i < n; i++)
        sum += exp(x[i] - top);
    for (int32_t i = 0; i < m; i++)
        sum += exp(y[i] - top);
    return top + log(sum);
}

void nm_adaptive_log_probs(const nm_adaptive_clusters *clusters, int32_t vocabulary,
                           const double *cluster_logits, double *logits)
{
    int32_t own = clusters->n ? clusters->first[0] : vocabulary;
    double head = log_sum_exp(logits, own, cluster_logits, clusters->n);
    for (int32_t i = 0; i < own; i++)
        logits[i] -= head;
    for (int32_t c = 1; c <= clusters->n; c++) {
        int32_t first = clusters->first[c - 1], end = c < clusters->n ? clusters->first[c] : vocabulary;
        double shift =
            cluster_logits[clusters->n - c] - head - log_sum_exp(logits + first, end - first, NULL, 0);
        for (int32_t i = first; i < end; i++)
            logits[i] += shift;
    }
}
