/* FixNorm (Nguyen and Chiang 2018): a row is brought to length 1,
 *     m = max(|x|, epsilon)        y = x / m        dx = (dy - x <dy, x> / m^2) / m
 * Models apply it to the rows of the embedding matrix. */
#include "norm/types.h"

typedef struct fix_config {
    double epsilon;
} fix_config;

static const nm_option fix_options[] = {
    NM_OPTION(fix_config, epsilon, "1e-12", 0, 1, "smallest length divided by"), {0}};

static void fix_shape(const void *config, const nm_norm_site *place, nm_norm_shape *shape)
{
    (void)config;
    (void)place;
    shape->n_params = 0;
}

static nm_token_norm fix_spec(const nm_norm_call *call)
{
    const fix_config *config = call->norm->config;
    return (nm_token_norm){.kind = NM_TOKEN_LENGTH, .groups = 1, .eps = config->epsilon};
}

static void fix_forward(nm_norm_call *call)
{
    const nm_token_norm spec = fix_spec(call);
    nm_norm_token_forward(call, &spec);
}

static void fix_backward(nm_norm_call *call)
{
    const nm_token_norm spec = fix_spec(call);
    nm_norm_token_backward(call, &spec);
}

const nm_norm_type nm_norm_fix = {
    .name = "fix",
    .title = "FixNorm",
    .source = "Nguyen and Chiang 2018; Nguyen and Salazar 2019, section 2.2",
    .options = fix_options,
    .config_size = sizeof(fix_config),
    .shape = fix_shape,
    .train = fix_forward,
    .infer = fix_forward,
    .backward = fix_backward,
};
