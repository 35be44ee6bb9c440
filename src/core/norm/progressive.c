/* Progressive re-parameterized BatchNorm, PRepBN (Guo et al. 2024, "SLAB: Efficient Transformers with
 * Simplified Linear Attention and Progressive Re-parameterized Batch Normalization", section 3.2): training
 * begins with a per-token norm T and ends with RepBN, which is affine per feature at inference (repbn.c).
 *
 * Forward of call n (from 0); W is the length of the warm-up, S that of the transition, both in steps of
 * `interval` calls:
 *
 *     s      = ceil(n / interval)
 *     y      = T(x)                                             s < W; the running statistics do not change
 *     lambda = lambda_init max(0, 1 - (s - W)/S)                afterwards
 *     y      = lambda T(x) + (1 - lambda) RepBN(x)
 *
 *     T      = LayerNorm with token_weight and token_bias, or RMSNorm with token_weight, epsilon inside the
 *            root
 *
 * Backward: the sum of both gradients, with the factors lambda and 1 - lambda.
 *
 * Inference: RepBN alone, whatever lambda is.
 *
 * Memory traffic in passes over [rows, width]: with T alone 2 forward and 3 backward, as LayerNorm; with
 * RepBN alone 3 and 5, as BatchNorm; during the transition 6 forward (statistics 1, T 2, adding RepBN 3) and
 * 9 backward (RepBN 5, adding T 4).
 *
 * The released code has S = 60000 for image models. In shorter runs, the transition ends after half of the
 * planned updates (shorten_lambda), because a model is evaluated with RepBN alone. The code for LLaMA counts
 * every 16th call (interval). */
#include <stdio.h>

#include "norm/repbn.h"
#include "norm/types.h"

#define TOKEN_NORMS(C) C(TOKEN_LAYER, "layer") C(TOKEN_RMS, "rms")
NM_CHOICES(token_norm, TOKEN_NORMS);

typedef struct progressive_config {
    nm_repbn_policy policy;
    const char *preset, *warmup;
    token_norm token_norm;
    double token_epsilon, lambda_init;
    int64_t lambda_steps, interval;
    bool shorten_lambda;
} progressive_config;

/* clang-format off */
static const nm_option progressive_options[] = {
    NM_WORD(progressive_config, preset, "default", "default|llama", "Variant of the norm."),
    NM_CHOICE(progressive_config, token_norm, "layer", TOKEN_NORMS,
        "Per-token norm at the beginning of the training: LayerNorm or RMSNorm."),
    NM_OPTION(progressive_config, token_epsilon, "1e-5", 0, 1,
        "Constant added to the variance or the mean square of a token."),
    NM_OPTION(progressive_config, warmup, "0", 0, 0,
              "Number of steps with the per-token norm alone; lr: the warm-up of the learning rate."),
    NM_OPTION(progressive_config, lambda_init, "1", 0, 1,
        "Weight lambda of the per-token norm after the warm-up."),
    NM_OPTION(progressive_config, lambda_steps, "60000", 1, 1e12,
        "Number of steps after the warm-up in which lambda falls to 0."),
    NM_OPTION(progressive_config, shorten_lambda, "true", 0, 0,
              "In runs of fewer updates than twice the warm-up and lambda_steps: lambda reaches 0 after half "
                  "of the updates."),
    NM_OPTION(progressive_config, interval, "1", 1, 1e6,
        "Number of updates of one step of the warm-up and of lambda."),
    NM_OPTION(nm_batch_norm_policy, decay, "0.9", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_OPTION(nm_batch_norm_policy, epsilon, "1e-5", 0, 1, "Constant added to the variance of a feature."),
    NM_OPTION(nm_batch_norm_policy, unbiased_running, "true", 0, 0,
        "Unbiased variance, divisor n - 1, in the running variance."),
    NM_OPTION(nm_repbn_policy, alpha_init, "1", -1e6, 1e6, "Initial value of alpha of RepBN."),
    NM_OPTION(nm_repbn_policy, weight_init, "1", -1e6, 1e6, "Initial value of the weight of RepBN."),
    {0}};

static const nm_preset progressive_presets[] = {
    {"default", "", "the released code for image models"},
    {"llama", "token_norm=rms token_epsilon=1e-6 epsilon=1e-6 alpha_init=0 weight_init=0 interval=16",
        "the released code for LLaMA"},
    {0}};
/* clang-format on */

enum { TOKEN_WEIGHT = 3, TOKEN_BIAS };                         /* parameters, after those of RepBN */
enum { CALLS };                                                /* counters */
enum { STATISTIC_MEAN, STATISTIC_VARIANCE, STATISTIC_UPDATE }; /* the last one only marks an update */

static nm_status progressive_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const progressive_config *config = settings;
    (void)site;
    return nm_norm_check_warmup(&nm_norm_progressive, config->warmup, err);
}

static void progressive_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const progressive_config *config = settings;
    nm_repbn_shape(settings, site, shape);
    nm_norm_shape_param(shape, "token_weight", site->width, 1);
    if (config->token_norm == TOKEN_LAYER)
        nm_norm_shape_param(shape, "token_bias", site->width, 0);
    nm_norm_shape_counter(shape, "iters");
    nm_norm_shape_statistic(shape, "update", NM_STATISTIC_MEAN);
}

typedef struct plan { /* in steps */
    int64_t warmup, transition;
} plan;

static plan plan_of(const nm_norm *norm)
{
    const progressive_config *config = norm->config;
    int64_t warmup = nm_norm_warmup(config->warmup, norm->site.plan.warmup_updates);
    int64_t rest = norm->site.plan.updates / config->interval / 2 - warmup, transition = config->lambda_steps;
    if (config->shorten_lambda && norm->site.plan.updates > 0 && rest < transition)
        transition = rest > 1 ? rest : 1;
    return (plan){warmup, transition};
}

static bool progressive_follows_length(const void *settings)
{
    const progressive_config *config = settings;
    return config->shorten_lambda;
}

static void progressive_note(const nm_norm *norm, char *text, size_t size)
{
    const progressive_config *config = norm->config;
    const plan p = plan_of(norm);
    snprintf(text, size, "per-token norm alone for %lld updates, then a transition of %lld updates to RepBN",
             (long long)(p.warmup * config->interval), (long long)(p.transition * config->interval));
}

typedef struct parts { /* of a call */
    double lambda;
    bool token, batch; /* which norms are computed */
} parts;

static parts parts_of(const nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    const progressive_config *config = norm->config;
    const plan p = plan_of(norm);
    int64_t calls = call->update - 1, step = calls / config->interval + (calls % config->interval != 0);
    if (step < p.warmup)
        return (parts){.lambda = 1, .token = true};
    int64_t left = p.warmup + p.transition - step;
    double lambda = left > 0 ? config->lambda_init * (double)left / (double)p.transition : 0;
    return (parts){.lambda = lambda, .token = lambda > 0, .batch = true};
}

static nm_token_norm token_spec(const nm_norm *norm)
{
    const progressive_config *config = norm->config;
    bool layer = config->token_norm == TOKEN_LAYER;
    return (nm_token_norm){.kind = layer ? NM_TOKEN_CENTER : NM_TOKEN_RMS,
                           .groups = 1,
                           .eps = config->token_epsilon,
                           .weight_len = norm->site.width,
                           .bias_len = layer ? norm->site.width : 0};
}

static void *vector_at(const nm_norm_call *call, void *vectors, int i)
{
    return (char *)vectors +
           (size_t)i * (size_t)call->norm->site.width * nm_dtype_bytes(call->backend->dtype);
}

/* Number of parameters of T. */
static int token_params(const nm_norm *norm)
{
    return norm->shape.n_params - TOKEN_WEIGHT;
}

/* y = lambda T(x). vectors, [2 width]: memory for lambda token_weight and lambda token_bias. */
static void token_forward(nm_norm_call *call, double lambda, const nm_residual_sum *sum, void *shift,
                          void *scale, void *vectors)
{
    const nm_norm *norm = call->norm;
    const nm_token_norm spec = token_spec(norm);
    for (int i = 0; i < token_params(norm); i++)
        NM_NORM_VEC(call, LINEAR, .out = vector_at(call, vectors, i), .a = norm->params[TOKEN_WEIGHT + i],
                    .s = lambda);
    NM_CALL(call->backend, token_norm, .spec = &spec, .sum = sum, .x = call->x, .weight = vectors,
            .bias = spec.bias_len ? vector_at(call, vectors, 1) : NULL, .y = call->y,
            .shift = nm_token_norm_centers(spec.kind) ? shift : NULL, .scale = scale);
}

/* dx of lambda T(x), which contains the factor of the weight. The gradients of the parameters are those of T,
 * and are multiplied by lambda. vectors, [3 width]: memory for lambda token_weight and for two gradients. */
static void token_backward(nm_norm_call *call, double lambda, bool add, void *vectors)
{
    nm_norm *norm = call->norm;
    const nm_token_norm spec = token_spec(norm);
    bool layer = nm_token_norm_centers(spec.kind);
    void *grads = vector_at(call, vectors, 1);
    NM_NORM_VEC(call, LINEAR, .out = vectors, .a = norm->params[TOKEN_WEIGHT], .s = lambda);
    nm_backend_zero(call->backend, grads,
                    2 * (size_t)norm->site.width * nm_dtype_bytes(call->backend->dtype));
    NM_CALL(call->backend, token_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .weight = vectors,
            .shift = layer ? nm_norm_find(call, "token_shift") : NULL,
            .scale = nm_norm_find(call, "token_scale"), .add = add, .dx = call->dx,
            .residual = call->residual, .d_weight = grads,
            .d_bias = layer ? vector_at(call, grads, 1) : NULL);
    for (int i = 0; i < token_params(norm); i++)
        nm_norm_average(call, norm->param_grads[TOKEN_WEIGHT + i], 1, vector_at(call, grads, i), lambda);
}

static void *alloc_rows(nm_norm_call *call, const char *name, bool publish)
{
    return publish ? nm_norm_publish(call, name, call->x.rows) : nm_norm_scratch(call, call->x.rows);
}

static void progressive_train(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    call->update = norm->counters[CALLS] + 1;
    const parts p = parts_of(call);
    nm_repbn_parts batch;
    void *shift = alloc_rows(call, "token_shift", p.token), *scale = alloc_rows(call, "token_scale", p.token);
    void *vectors = nm_norm_scratch(call, 2 * norm->site.width);
    if (!(p.batch ? nm_repbn_measure(call, &batch) : nm_repbn_reserve(call)))
        return;
    if (p.token)
        token_forward(call, p.lambda, p.batch ? NULL : call->sum, shift, scale, vectors);
    if (p.batch)
        nm_repbn_apply(call, &batch, 1 - p.lambda, p.token);
    nm_norm_collect(call, STATISTIC_UPDATE, norm->params[TOKEN_WEIGHT]);
}

static void progressive_backward(nm_norm_call *call)
{
    const parts p = parts_of(call);
    const nm_residual_grad *residual = call->residual;
    void *vectors = nm_norm_scratch(call, 3 * call->norm->site.width);
    if (!p.batch && !nm_repbn_reserve_backward(call))
        return;
    call->residual = p.token ? NULL : residual; /* the last kernel that writes dx has it */
    if (p.batch)
        nm_repbn_backward_scaled(call, 1 - p.lambda);
    call->residual = residual;
    if (p.token && vectors)
        token_backward(call, p.lambda, call->add || p.batch, vectors);
}

static void progressive_update_state(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    nm_batch_norm_update_state(call);
    norm->counters[CALLS] += norm->collected_rows[STATISTIC_UPDATE] > 0;
}

const nm_norm_type nm_norm_progressive = {
    .name = "progressive",
    .title = "Progressive RepBN",
    .formula = "y = lambda LayerNorm(x) + (1 - lambda) RepBN(x), lambda falls from 1 to 0",
    .source = "Guo et al. 2024, section 3.2; github.com/xinghaochen/SLAB",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE | NM_HAS_TRANSITION,
    .options = progressive_options,
    .presets = progressive_presets,
    .config_size = sizeof(progressive_config),
    .check = progressive_check,
    .note = progressive_note,
    .shape = progressive_shape,
    .train = progressive_train,
    .infer = nm_repbn_infer,
    .backward = progressive_backward,
    .infer_backward = nm_repbn_infer_backward,
    .update_state = progressive_update_state,
    .affine = nm_repbn_affine,
    .follows_length = progressive_follows_length,
};
