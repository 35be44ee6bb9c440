/* ResNet for small images (He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2): a
 * 3x3 convolution, stages of blocks of two 3x3 convolutions, the mean over all positions. The first block of
 * every stage but the first halves height and width. N: norm, conv: without bias.
 *
 *     stem            x = relu(N(conv(image)))
 *     block           y = relu(S(x) + N(conv(relu(N(conv(x))))))
 *
 * The shortcut S is the identity, or where size or channels change, every second row and column with channels
 * of zeros (after the others, or on both sides), or a 1x1 convolution and a norm. With pre-activation (He et
 * al. 2016, "Identity Mappings in Deep Residual Networks"):
 *
 *     stem            x = conv(image)
 *     block           u = relu(N(x))
 *                     y = S(x) + conv(relu(N(conv(u))))      S(u), without a norm, where S is a convolution
 *     end             relu(N(x)) */
#include <math.h>
#include <stdlib.h>

#include "model/image_model.h"

/* Comma-separated positive integers; returns their number, 0 if the text is malformed. */
static int32_t parse_list(const char *text, int32_t most, int32_t *values)
{
    int32_t n = 0;
    for (;;) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > most || n == NM_RESNET_MAX_STAGES)
            return 0;
        values[n++] = (int32_t)value;
        if (!*end)
            return n;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
}

static nm_tensor *add_convolution(nm_model *model, const nm_windows *w, int32_t in, int32_t out,
                                  const char *name)
{
    const int32_t patch = w->size * w->size * in;
    nm_tensor *weight = nm_params_add(&model->params, out, patch,
                                      (nm_init){NM_INIT_NORMAL, sqrt(2.0 / patch)}, "res.%s.weight", name);
    nm_params_mark_hidden(weight, (int32_t[NM_PARAM_BLOCKS]){out});
    return weight;
}

/* The norm "res.NAME.norm" of maps of this size. */
static nm_status add_norm(nm_model *model, int32_t height, int32_t width, int32_t channels, const char *name,
                          nm_norm **norm, nm_error *err)
{
    const nm_image_model_config *c = model->config;
    NM_AUTO_FREE char *site_name = nm_format("res.%s.norm", name);
    const nm_norm_site site = {
        .name = site_name, .width = channels, .groups = 1, .rows = height * width, .plan = model->plan};
    return nm_params_add_norm(&model->params, c->norm, model->options, &site, norm, err);
}

/* The block `index` of all; w: its first convolution. */
static nm_status build_block(nm_resnet_block *block, nm_model *model, int32_t index, nm_error *err)
{
    const nm_image_model_config *c = model->config;
    const nm_windows *w = &block->first;
    const int32_t height = nm_windows_along(w, w->height), width = nm_windows_along(w, w->width);
    const bool pre = c->pre_activation, convolved = c->shortcut == NM_SHORTCUT_CONV;
    char name[32];
    block->second = (nm_windows){1, height, width, 3, 1, 1};
    block->shortcut = (nm_windows){1, w->height, w->width, 1, w->stride, 0};
    block->changes = w->stride > 1 || block->in != block->out;
    block->padded_first = c->shortcut == NM_SHORTCUT_PAD_BOTH ? (block->out - block->in) / 2 : 0;
    if (block->changes && !convolved && block->out < block->in)
        return nm_fail(err, NM_USAGE,
                       "model.widths: padding cannot reduce %d channels to %d; set model.shortcut = conv",
                       block->in, block->out);
    snprintf(name, sizeof name, "%d.conv1", index);
    block->weights[0] = add_convolution(model, &block->first, block->in, block->out, name);
    NM_TRY(pre ? add_norm(model, w->height, w->width, block->in, name, &block->norms[0], err)
               : add_norm(model, height, width, block->out, name, &block->norms[0], err));
    snprintf(name, sizeof name, "%d.conv2", index);
    block->weights[1] = add_convolution(model, &block->second, block->out, block->out, name);
    NM_TRY(add_norm(model, height, width, block->out, name, &block->norms[1], err));
    if (!block->changes || !convolved)
        return NM_OK;
    snprintf(name, sizeof name, "%d.shortcut", index);
    block->shortcut_weight = add_convolution(model, &block->shortcut, block->in, block->out, name);
    return pre ? NM_OK : add_norm(model, height, width, block->out, name, &block->shortcut_norm, err);
}

/* Sets the numbers of blocks and channels of the stages, and *n to their number. */
static nm_status read_stages(const nm_image_model_config *c, int32_t *widths, int32_t *blocks, int32_t *n,
                             nm_error *err)
{
    *n = parse_list(c->widths, 1 << 16, widths);
    if (!*n)
        return nm_fail(err, NM_USAGE,
                       "model.widths = %.100s: expected 1 to %d channel numbers such as 16,32,64", c->widths,
                       NM_RESNET_MAX_STAGES);
    if (parse_list(c->blocks, NM_RESNET_MAX_BLOCKS, blocks) != *n)
        return nm_fail(err, NM_USAGE,
                       "model.blocks = %.100s: expected %d numbers, one per stage of model.widths", c->blocks,
                       *n);
    return NM_OK;
}

nm_status nm_resnet_build(nm_resnet *resnet, nm_model *model, nm_error *err)
{
    const nm_image_sizes *size = nm_image_sizes_of(model);
    const nm_image_model_config *c = resnet->config = model->config;
    int32_t widths[NM_RESNET_MAX_STAGES], blocks[NM_RESNET_MAX_STAGES], stages,
        height = size->height, width = size->width, total = 0;
    NM_TRY(read_stages(c, widths, blocks, &stages, err));
    for (int32_t s = 0; s < stages; s++)
        total += blocks[s];
    resnet->blocks = nm_allocate((size_t)total * sizeof *resnet->blocks);
    resnet->features = widths[stages - 1];
    resnet->stem = (nm_windows){1, height, width, 3, 1, 1};
    resnet->stem_weight = add_convolution(model, &resnet->stem, size->channels, widths[0], "stem");
    if (!c->pre_activation)
        NM_TRY(add_norm(model, height, width, widths[0], "stem", &resnet->stem_norm, err));
    int32_t channels = widths[0];
    for (int32_t s = 0; s < stages; s++)
        for (int32_t i = 0; i < blocks[s]; i++) {
            nm_resnet_block *block = &resnet->blocks[resnet->n_blocks];
            block->first = (nm_windows){1, height, width, 3, s && !i ? 2 : 1, 1};
            block->in = channels;
            block->out = channels = widths[s];
            NM_TRY(build_block(block, model, resnet->n_blocks++, err));
            height = block->second.height;
            width = block->second.width;
        }
    return c->pre_activation ? add_norm(model, height, width, channels, "final", &resnet->final_norm, err)
                             : NM_OK;
}

void nm_resnet_release(nm_resnet *resnet)
{
    free(resnet->blocks);
    *resnet = (nm_resnet){0};
}

static nm_tensor *convolve(nm_tape *tape, nm_tensor *x, const nm_windows *w, int32_t images,
                           nm_tensor *weight)
{
    nm_windows windows = *w;
    windows.images = images;
    return nm_convolve(tape, x, &windows, weight, NULL);
}

typedef struct block_call {
    const nm_resnet_block *block;
    nm_tensor *x;
    int32_t images;
    bool pre_activation;
} block_call;

/* S(x); u: relu(N(x)) with pre-activation, otherwise x. */
static nm_tensor *shortcut(nm_tape *tape, const block_call *call, nm_tensor *u)
{
    const nm_resnet_block *block = call->block;
    if (!block->changes)
        return call->x;
    if (block->shortcut_weight) {
        nm_tensor *y = convolve(tape, u, &block->shortcut, call->images, block->shortcut_weight);
        return block->shortcut_norm ? nm_normalize(tape, block->shortcut_norm, y) : y;
    }
    nm_windows windows = block->shortcut;
    windows.images = call->images;
    return nm_subsampled(tape, call->x, &windows, block->padded_first, block->out);
}

static nm_tensor *block_forward(nm_tape *tape, const void *context)
{
    const block_call *call = context;
    const nm_resnet_block *b = call->block;
    if (call->pre_activation) {
        nm_tensor *u = nm_normalize_relu(tape, b->norms[0], call->x, NULL);
        nm_tensor *h = convolve(tape, u, &b->first, call->images, b->weights[0]);
        h = nm_normalize_relu(tape, b->norms[1], h, NULL);
        h = convolve(tape, h, &b->second, call->images, b->weights[1]);
        nm_tensor *s = shortcut(tape, call, u), *y = nm_residual(tape, s, h, 0);
        nm_tape_report_residual(tape, b->norms[1]->site.name, s, h, y, NULL);
        return y;
    }
    nm_tensor *h = convolve(tape, call->x, &b->first, call->images, b->weights[0]);
    h = nm_normalize_relu(tape, b->norms[0], h, NULL);
    h = convolve(tape, h, &b->second, call->images, b->weights[1]);
    return nm_normalize_relu(tape, b->norms[1], h, shortcut(tape, call, call->x));
}

nm_tensor *nm_resnet_forward(nm_tape *tape, const nm_resnet *resnet, nm_tensor *x, int32_t images)
{
    x = convolve(tape, x, &resnet->stem, images, resnet->stem_weight);
    if (resnet->stem_norm)
        x = nm_normalize_relu(tape, resnet->stem_norm, x, NULL);
    block_call call = {.x = x, .images = images, .pre_activation = resnet->config->pre_activation};
    for (int32_t i = 0; i < resnet->n_blocks; i++) {
        call.block = &resnet->blocks[i];
        call.x = nm_recomputed_segment(tape, block_forward, &call, sizeof call);
    }
    x = resnet->final_norm ? nm_normalize_relu(tape, resnet->final_norm, call.x, NULL) : call.x;
    if (nm_tape_exhausted(tape))
        return x;
    nm_packing packing = nm_image_packing(tape, images, x->rows / images);
    return packing.offsets ? nm_pool(tape, x, &packing, NM_POOL_MEAN) : x;
}
