/* GroupNorm of images (Wu and He 2018): the groups of features are normalized with statistics over all
 * positions of an image. One
 * group is what much of the literature on vision calls LayerNorm; LayerNorm of single positions, as in
 * ConvNeXt, is the type
 * layer. For an image of P positions, and each of G groups of its P d/G elements:
 *
 *     mu      = mean(x)                                   shift
 *     s2      = mean((x - mu)^2)
 *     z       = (x - mu) / sqrt(s2 + epsilon)             scale = 1 / sqrt(s2 + epsilon)
 *     y       = weight z + bias                           weight, bias: per feature
 *
 * Backward, q = weight dy, within each group:
 *
 *     dx      = (q - mean(q) - z mean(q z)) / sqrt(s2 + epsilon)
 *     dweight = sum over rows of dy z
 *     dbias   = sum over rows of dy
 *
 * A row of the kernel is one group of one image. At sites without images (site.rows = 0) a row is one token,
 * and the type equals
 * group. */
#include "norm/types.h"

typedef struct group2d_config {
    double epsilon;
    int64_t groups;
} group2d_config;

/* clang-format off */
static const nm_option group2d_options[] = {
    NM_OPTION(group2d_config, epsilon, "1e-5", 0, 1, "Constant added to the variance."),
    NM_OPTION(group2d_config, groups, "1", 1, 65536,
              "Number of groups of features; 1: LayerNorm over all features and positions of an image."),
    {0}};
/* clang-format on */

static nm_status group2d_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const group2d_config *config = settings;
    return nm_norm_check_groups(config->groups, site, err);
}

/* Where the elements of a group are. */
typedef struct grouping {
    nm_token_norm spec;
    int32_t parts; /* number of matrices, one per group, to which features are copied; 1: no copy */
    nm_mat rows;   /* shape of the kernel's matrices, without data */
} grouping;

static grouping grouping_of(const nm_norm_call *call)
{
    const group2d_config *config = call->norm->config;
    const int32_t groups = (int32_t)config->groups,
                  positions = call->norm->site.rows ? call->norm->site.rows : 1;
    const int32_t images = call->x.rows / positions, parts = positions > 1 ? groups : 1;
    NM_ASSERT(images * positions == call->x.rows);
    return (grouping){
        .spec = {.kind = NM_TOKEN_CENTER, .groups = groups / parts, .eps = config->epsilon},
        .parts = parts,
        .rows = nm_mat_of(NULL, images * parts, positions * call->x.cols / parts),
    };
}

static nm_mat with_data(nm_mat shape, void *data)
{
    shape.data = data;
    return shape;
}

/* The features of group i among the rows [rows, d], and as the i-th matrix of those in which groups are
 * contiguous. */
static nm_mat features_of(const nm_norm_call *call, const grouping *g, void *data, int32_t i)
{
    const int32_t d = call->x.cols, cols = d / g->parts;
    char *first = (char *)data + (size_t)(i * cols) * nm_dtype_bytes(call->backend->dtype);
    return (nm_mat){first, call->x.rows, cols, d};
}

static nm_mat matrix_of(const nm_norm_call *call, const grouping *g, void *data, int32_t i)
{
    const int32_t cols = call->x.cols / g->parts;
    const size_t bytes = (size_t)call->x.rows * (size_t)cols * nm_dtype_bytes(call->backend->dtype);
    return nm_mat_of((char *)data + (size_t)i * bytes, call->x.rows, cols);
}

/* The matrix in which groups are contiguous: a copy in `memory`, or the rows themselves. */
static nm_mat gather_groups(const nm_norm_call *call, const grouping *g, void *rows, void *memory)
{
    if (g->parts == 1)
        return with_data(g->rows, rows);
    for (int32_t i = 0; i < g->parts; i++)
        NM_CALL(call->backend, scale, .alpha = 1, .x = features_of(call, g, rows, i),
                .y = matrix_of(call, g, memory, i));
    return with_data(g->rows, memory);
}

/* The inverse: rows = or += the groups. */
static void scatter_groups(const nm_norm_call *call, const grouping *g, void *groups, bool add, void *rows)
{
    for (int32_t i = 0; i < g->parts; i++) {
        nm_mat from = matrix_of(call, g, groups, i), to = features_of(call, g, rows, i);
        if (add)
            NM_CALL(call->backend, add, .alpha = 1, .x = from, .y = to);
        else
            NM_CALL(call->backend, scale, .alpha = 1, .x = from, .y = to);
    }
}

static nm_map_args affine_of(const nm_norm_call *call, void *z)
{
    return (nm_map_args){.op = NM_MAP_IDENTITY,
                         .x = with_data(call->x, z),
                         .weight = call->norm->params[0],
                         .bias = call->norm->params[1],
                         .y = call->y};
}

static void group2d_forward(nm_norm_call *call)
{
    const grouping g = grouping_of(call);
    const int32_t n = call->x.rows * call->x.cols, groups = g.rows.rows * g.spec.groups;
    void *shift = nm_norm_publish(call, "shift", groups), *scale = nm_norm_publish(call, "scale", groups);
    void *z = nm_norm_publish(call, "z", n), *memory = g.parts > 1 ? nm_norm_scratch(call, n) : z;
    if (!memory)
        return;
    NM_CALL(call->backend, token_norm, .spec = &g.spec, .x = gather_groups(call, &g, call->x.data, memory),
            .y = with_data(g.rows, memory), .shift = shift, .scale = scale);
    if (g.parts > 1)
        scatter_groups(call, &g, memory, false, z);
    const nm_map_args affine = affine_of(call, z);
    call->backend->k.map(call->backend, &affine);
}

static void group2d_backward(nm_norm_call *call)
{
    const grouping g = grouping_of(call);
    const int32_t n = call->x.rows * call->x.cols;
    void *q = nm_norm_scratch(call, n), *memory[2] = {NULL, NULL};
    for (int i = 0; i < 2 && g.parts > 1; i++)
        memory[i] = nm_norm_scratch(call, n);
    if (!q || (g.parts > 1 && !memory[1]))
        return;
    NM_CALL(call->backend, map_grad, .forward = affine_of(call, nm_norm_find(call, "z")), .dy = call->dy,
            .dx = with_data(call->x, q), .d_weight = call->norm->param_grads[0],
            .d_bias = call->norm->param_grads[1]);
    const bool direct = g.parts == 1;
    nm_mat x = gather_groups(call, &g, call->x.data, memory[0]), dz = gather_groups(call, &g, q, memory[1]);
    NM_CALL(call->backend, token_norm_grad, .spec = &g.spec, .dy = dz, .x = x,
            .shift = nm_norm_find(call, "shift"), .scale = nm_norm_find(call, "scale"),
            .add = direct && call->add, .dx = with_data(g.rows, direct ? call->dx.data : q));
    if (!direct)
        scatter_groups(call, &g, q, call->add, call->dx.data);
}

const nm_norm_type nm_norm_group2d = {
    .name = "group2d",
    .title = "GroupNorm2d",
    .formula = "GroupNorm with statistics over all positions of an image",
    .source = "Wu and He 2018",
    .traits = NM_USES_FEATURES,
    .options = group2d_options,
    .config_size = sizeof(group2d_config),
    .check = group2d_check,
    .shape = nm_norm_shape_affine,
    .train = group2d_forward,
    .infer = group2d_forward,
    .backward = group2d_backward,
};
