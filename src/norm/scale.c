/* ScaleNorm (Nguyen and Salazar 2019, equation 5): a row is brought to the learned length g,
 *     m = max(|x|, epsilon)        y = g x / m        dx = g/m (dy - x <dy, x> / m^2)        dg = sum of dy x
 * / m where |x| <= epsilon m is a constant: dx = g/epsilon dy. g starts at sqrt(d). With trainable = false it
 * stays there, except in the norm that feeds the output layer (their Table 7). */
#include <math.h>

#include "norm/types.h"

typedef struct scale_config {
    double epsilon;
    bool trainable;
} scale_config;

/* clang-format off */
static const nm_option scale_options[] = {
    NM_OPTION(scale_config, epsilon, "1e-5", 0, 1, "smallest length divided by"),
    NM_OPTION(scale_config, trainable, "true", 0, 0, "learn g; when false only the norm before the output layer does"),
    {0}};
/* clang-format on */

static void scale_shape(const void *settings, const nm_norm_site *place, nm_norm_shape *shape)
{
    const scale_config *config = settings;
    shape->n_params = 1;
    shape->params[0] = (nm_norm_vector){.name = "scale",
                                        .length = 1,
                                        .initial = sqrt((double)place->width),
                                        .fixed = !config->trainable && place->kind != NM_SITE_BEFORE_OUTPUT};
}

static nm_token_norm scale_spec(const nm_norm_call *call)
{
    const scale_config *config = call->norm->config;
    return (nm_token_norm){.kind = NM_TOKEN_LENGTH, .groups = 1, .eps = config->epsilon, .weight_len = 1};
}

static void scale_forward(nm_norm_call *call)
{
    const nm_token_norm spec = scale_spec(call);
    nm_norm_token_forward(call, &spec);
}

static void scale_backward(nm_norm_call *call)
{
    const nm_token_norm spec = scale_spec(call);
    nm_norm_token_backward(call, &spec);
}

const nm_norm_type nm_norm_scale = {
    .name = "scale",
    .title = "ScaleNorm",
    .source = "Nguyen and Salazar 2019, equation 5",
    .options = scale_options,
    .config_size = sizeof(scale_config),
    .shape = scale_shape,
    .train = scale_forward,
    .infer = scale_forward,
    .backward = scale_backward,
};
