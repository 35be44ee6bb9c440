/* Launches of the softmax over the vocabulary: losses in chunks of tokens, log probabilities, the most
 * probable tokens. */
#include "backend/device/launch.h"

enum { LOGITS_BYTES = 64 << 20, MIN_CHUNK = 64 };

/* Tokens of a chunk: as many as LOGITS_BYTES of logits, at least MIN_CHUNK */
static int32_t chunk_tokens(int32_t tokens, int32_t words)
{
    const int64_t fit = LOGITS_BYTES / ((int64_t)words * (int64_t)sizeof(float));
    const int64_t chunk = fit < MIN_CHUNK ? MIN_CHUNK : fit;
    return tokens < chunk ? tokens : (int32_t)chunk;
}

static nm_mat rows_of(nm_mat m, int32_t first, int32_t rows)
{
    return (nm_mat){(float *)m.data + (size_t)first * (size_t)m.stride, rows, m.cols, m.stride};
}

static void loss_gradients(nm_backend *b, const nm_softmax_loss_args *args, nm_mat hidden, nm_mat logits,
                           int32_t first)
{
    const nm_mat weight = args->weight;
    if (args->d_hidden) {
        float *to = (float *)args->d_hidden + (size_t)first * (size_t)weight.cols;
        NM_CALL(b, linear_grad_input, .dy = logits, .weight = weight,
                .dx = nm_mat_of(to, hidden.rows, weight.cols));
    }
    if (args->d_weight)
        NM_CALL(b, linear_grad_weight, .dy = logits, .x = hidden,
                .dw = nm_mat_of(args->d_weight, weight.rows, weight.cols));
    nm_device_add_columns(b, logits, args->d_bias);
}

void nm_launch_softmax_loss(nm_backend *b, const nm_softmax_loss_args *args)
{
    const int32_t tokens = args->hidden.rows, words = args->weight.rows, chunk = chunk_tokens(tokens, words);
    NM_ASSERT(args->hidden.cols == args->weight.cols);
    const size_t logits_bytes = (size_t)chunk * (size_t)words * sizeof(float);
    void *logits = (void *)(uintptr_t)nm_device_scratch(b, NM_DEVICE_LOGITS, logits_bytes);
    dptr row_loss = nm_device_scratch(b, NM_DEVICE_ROWS, (size_t)tokens * 2 * sizeof(float) + 1);
    if (b->dry_run)
        return;
    for (int32_t first = 0; first < tokens; first += chunk) {
        const int32_t rows = tokens - first < chunk ? tokens - first : chunk;
        const nm_mat hidden = rows_of(args->hidden, first, rows), out = nm_mat_of(logits, rows, words);
        NM_CALL(b, linear, .x = hidden, .weight = args->weight, .bias = args->bias, .y = out);
        LAUNCH(b, loss_rows, rows, 1, .logits = nm_device_mat(out), ADDRESS(allowed),
               .targets = nm_device_address(args->targets + first),
               .row_loss = row_loss + (dptr)first * 2 * sizeof(float), .eps = (float)args->eps,
               .grad_scale = (float)args->grad_scale, .uniform = args->smoothing == NM_SMOOTH_UNIFORM,
               .ignored = NM_TARGET_IGNORED);
        loss_gradients(b, args, hidden, out, first);
    }
    LAUNCH(b, row_loss_total, 2, 1, .row_loss = row_loss, ADDRESS(sums), .n = tokens, .add = args->add_sums);
}

void nm_launch_log_softmax(nm_backend *b, const nm_log_softmax_args *args)
{
    NM_ASSERT(args->x.rows == args->y.rows && args->x.cols == args->y.cols);
    LAUNCH(b, log_softmax, args->x.rows, 1, MAT(x), MAT(y), ADDRESS(allowed));
}

void nm_launch_mix(nm_backend *b, const nm_mix_args *args)
{
    NM_ASSERT(args->m >= 0 && args->m < args->n && nm_device_same_shape(args->x, args->y));
    LAUNCH(b, mix, nm_device_blocks((int64_t)args->x.rows * args->x.cols, EACH_THREADS), 1, MAT(x), MAT(y),
           ADDRESS(mixture), .log_n = log(args->n), .first = args->m == 0, .last = args->m == args->n - 1);
}

void nm_launch_log_top_k(nm_backend *b, const nm_log_top_k_args *args)
{
    NM_ASSERT(args->k > 0 && args->k <= args->x.cols && args->also >= 0 && args->also < args->x.cols);
    LAUNCH(b, log_top_k, args->x.rows, 1, MAT(x), ADDRESS(allowed), ADDRESS(values), ADDRESS(columns),
           ADDRESS(also_values), ADDRESS(given), ADDRESS(given_values), .k = args->k, .also = args->also,
           .log_sum = !args->ready, .ignored = NM_TARGET_IGNORED);
}
