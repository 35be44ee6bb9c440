/* Vision Transformer (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words"): the patches of an image as
 * tokens of an encoder. A patch is a convolution whose stride is its size. With a class token, which precedes
 * the patches, the vector of an image is the output at this token, otherwise the mean over all tokens after
 * the final norm. */
#include "model/image_model.h"

nm_status nm_vit_build(nm_vit *vit, nm_model *model, nm_error *err)
{
    const nm_image_sizes *size = nm_image_sizes_of(model);
    const nm_image_model_config *c = vit->config = model->config;
    const int32_t d = (int32_t)c->width, patch = (int32_t)c->patch;
    const nm_init narrow = {NM_INIT_NORMAL, 0.02};
    NM_TRY(nm_stack_check(&c->stack, true, err));
    if (size->height % patch || size->width % patch)
        return nm_fail(err, NM_USAGE, "model.patch = %d does not divide images of %d x %d", patch,
                       size->width, size->height);
    vit->patches = (nm_windows){1, size->height, size->width, patch, patch, 0};
    vit->tokens = nm_windows_count(&vit->patches) + (c->pooling == NM_IMAGE_TOKEN);
    const int32_t inputs = patch * patch * size->channels;
    vit->patch_weight =
        nm_params_add(&model->params, d, inputs, nm_init_ffn(c->init, false, inputs, d), "patches.weight");
    vit->patch_bias = nm_params_add(&model->params, 1, d, (nm_init){NM_INIT_CONSTANT, 0}, "patches.bias");
    if (c->pooling == NM_IMAGE_TOKEN)
        vit->token = nm_params_add(&model->params, 1, d, narrow, "token.weight");
    vit->positions = nm_params_add(&model->params, vit->tokens, d, narrow, "positions.weight");
    nm_stack_config stack = nm_stack_configure(&c->stack, model->plan, "enc");
    stack.layers = (int32_t)c->layers;
    stack.init = c->init;
    stack.depths = (nm_depths){(int32_t)c->layers, 0};
    stack.sequence_rows = vit->tokens;
    if (*c->final_norm)
        stack.final_norm = c->final_norm;
    return nm_stack_build(&vit->encoder, &stack, &model->params, model->options, err);
}

static const int32_t *positions_of(nm_tape *tape, int32_t images, int32_t tokens)
{
    int32_t *positions = nm_tape_host(tape, (size_t)images * (size_t)tokens * sizeof *positions);
    for (int32_t i = 0; positions && i < images * tokens; i++)
        positions[i] = i % tokens;
    return positions;
}

nm_tensor *nm_vit_forward(nm_tape *tape, const nm_vit *vit, nm_tensor *x, int32_t images)
{
    nm_windows windows = vit->patches;
    windows.images = images;
    x = nm_convolve(tape, x, &windows, vit->patch_weight, vit->patch_bias);
    if (vit->token)
        x = nm_prepended(tape, x, vit->token, images);
    const int32_t *positions = positions_of(tape, images, vit->tokens);
    nm_packing packing = nm_image_packing(tape, images, vit->tokens);
    if (nm_tape_exhausted(tape))
        return x;
    x = nm_residual(tape, x,
                    nm_embed(tape, vit->positions, positions, NULL, images * vit->tokens, 1, NULL, 0), 0);
    x = nm_dropped(tape, x, nm_stack_embedding_drop(&vit->config->stack));
    x = nm_stack_forward(tape, &vit->encoder, x, &packing, NULL, NULL, NULL);
    return nm_pool(tape, x, &packing, vit->token ? NM_POOL_FIRST : NM_POOL_MEAN);
}
