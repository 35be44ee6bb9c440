/* Models of images: options, presets, and the linear layer to the classes. */
#include "model/image_model.h"

#include <math.h>
#include <stdlib.h>

#define ROW(field, initial, min, max, help) NM_OPTION(nm_image_model_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_image_model_config, field, initial, LIST, help)
#define WORD(field, initial, words, help)   NM_WORD(nm_image_model_config, field, initial, words, help)

/* clang-format off */
static const nm_option image_options[] = {
    WORD(preset, "resnet20", "resnet20|resnet18|vit|tiny|tiny-vit",
        "Network, sizes and defaults of a known model."),
    NM_STACK_ROWS(nm_image_model_config, "192", "768", "3", "pre",
                  "0", "Dropout rate on the output of each sublayer.", "0", "0", "0"),
    PICK(network, "resnet", NM_IMAGE_NETWORKS,
        "Network: residual network of convolutions (resnet), or Transformer over patches (vit)."),
    ROW(widths, "16,32,64", 0, 0, "ResNet: number of channels of each stage, comma-separated."),
    ROW(blocks, "3,3,3", 0, 0,
        "ResNet: number of blocks of two convolutions in each stage, comma-separated."),
    PICK(shortcut, "pad", NM_SHORTCUTS,
        "ResNet: shortcut where the number of channels changes: channels of zeros after the others (pad) or "
        "on both sides (pad-both), or a 1x1 convolution (conv)."),
    ROW(pre_activation, "false", 0, 1,
        "ResNet: norm and activation precede the convolutions of a block instead of following them."),
    ROW(layers, "12", 1, 1000, "ViT: number of encoder layers."),
    ROW(patch, "4", 1, 224, "ViT: height and width of a patch in pixels."),
    PICK(pooling, "mean", NM_IMAGE_POOLINGS,
        "ViT: representation of an image: the mean over all tokens, or the output at a class token."),
    ROW(final_norm, "", 0, 0,
        "ViT: normalization after the encoder, not in post-norm; empty: as model.norm."),
    PICK(init, "torch", NM_INIT_SCHEMES, NM_INIT_SCHEME_HELP),
    {0}};

static bool is_vit(const nm_options *options)
{
    return ((const nm_image_model_config *)nm_options_find(options, "model"))->network == NM_IMAGE_VIT;
}

#define VIT_ONLY(name) {"model." #name, "model.network", "vit", "a ResNet has no encoder", NULL}
#define RESNET_ONLY(name) \
    {"model." #name, "model.network", "resnet", "only a ResNet has stages of convolutions", NULL}

static const nm_option_rule image_rules[] = {
    NM_STACK_RULES,
    NM_SOFTMAX_RULES(is_vit, "a ResNet has no attention"),
    VIT_ONLY(width), VIT_ONLY(ff), VIT_ONLY(heads), VIT_ONLY(norm_position), VIT_ONLY(residual),
        VIT_ONLY(activation),
    VIT_ONLY(gated), VIT_ONLY(bias), VIT_ONLY(embedding_norm), VIT_ONLY(dropout), VIT_ONLY(attention_dropout),
    VIT_ONLY(relu_dropout), VIT_ONLY(embedding_dropout), VIT_ONLY(layers), VIT_ONLY(patch), VIT_ONLY(pooling),
    VIT_ONLY(init), VIT_ONLY(final_norm),
    RESNET_ONLY(widths), RESNET_ONLY(blocks), RESNET_ONLY(shortcut), RESNET_ONLY(pre_activation),
    {"model.final_norm", NULL, NULL, "post-norm has no final norm", nm_stack_has_final_norm},
    {0}};

static const nm_preset image_presets[] = {
    {"resnet20", "network=resnet widths=16,32,64 blocks=3,3,3 shortcut=pad norm=batch",
        "ResNet20 of He et al. 2016 for CIFAR-10, 0.27 M parameters."},
    {"resnet18", "network=resnet widths=64,128,256,512 blocks=2,2,2,2 shortcut=conv norm=batch",
        "ResNet18 in the usual form for CIFAR-10, 11.2 M parameters."},
    {"vit",
        "network=vit width=192 ff=768 heads=3 layers=12 patch=4 norm_position=pre activation=gelu norm=layer",
        "The sizes of ViT-Tiny, with patches of 4 pixels."},
    {"tiny", "network=resnet widths=4,6 blocks=1,1 shortcut=conv norm=batch", "Tests."},
    {"tiny-vit",
        "network=vit width=16 ff=32 heads=2 layers=1 patch=8 norm_position=pre activation=gelu norm=layer",
        "Tests."},
    {0}};
/* clang-format on */

typedef struct image_model {
    nm_resnet resnet;
    nm_vit vit;
    nm_tensor *output_weight, *output_bias;
} image_model;

static nm_status image_build(nm_model *model, nm_error *err)
{
    const nm_image_model_config *c = model->config;
    image_model *self = model->parts = nm_allocate(sizeof *self);
    const bool vit = c->network == NM_IMAGE_VIT;
    NM_TRY(vit ? nm_vit_build(&self->vit, model, err) : nm_resnet_build(&self->resnet, model, err));
    const int32_t d = vit ? (int32_t)c->width : self->resnet.features;
    const nm_init linear = {NM_INIT_UNIFORM, 1 / sqrt(d)};
    self->output_weight = nm_params_add(&model->params, model->target_size, d, linear, "output.weight");
    self->output_bias = nm_params_add(&model->params, 1, model->target_size, linear, "output.bias");
    return NM_OK;
}

static nm_status image_ready(nm_model *model, nm_error *err)
{
    image_model *self = model->parts;
    return self->vit.config ? nm_stack_ready(&self->vit.encoder, model->backend, self->vit.tokens, err)
                            : NM_OK;
}

static void image_release(nm_model *model)
{
    image_model *self = model->parts;
    nm_stack_release(&self->vit.encoder, model->backend);
    nm_resnet_release(&self->resnet);
    free(self);
}

/* The output layer of a ViT reads the final norm through the pooling, which commutes with a per-feature
 * affine map. */
static void image_fold(const nm_model *model, nm_fold *fold)
{
    const image_model *self = model->parts;
    if (self->vit.config && nm_stack_fold(&self->vit.encoder, fold, "model.norm", "model.final_norm"))
        nm_fold_add_reader(fold, self->output_weight, self->output_bias);
}

nm_model_output nm_image_output(nm_model *model, nm_tape *tape, nm_tensor *x, int32_t images)
{
    const image_model *self = model->parts;
    nm_tensor *hidden = self->vit.config ? nm_vit_forward(tape, &self->vit, x, images)
                                         : nm_resnet_forward(tape, &self->resnet, x, images);
    return (nm_model_output){.hidden = hidden, .weight = self->output_weight, .bias = self->output_bias};
}

static nm_model_output image_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_image_sizes *size = nm_image_sizes_of(model);
    const int32_t rows = batch->source.n_tokens;
    NM_ASSERT(batch->source_width == size->channels && rows == batch->n * size->height * size->width);
    return nm_image_output(model, tape, nm_input(tape, batch->source_values, rows, batch->source_width),
                           batch->n);
}

const nm_model_type nm_model_image = {
    .name = "image",
    .options = image_options,
    .presets = image_presets,
    .rules = image_rules,
    .config_size = sizeof(nm_image_model_config),
    .build = image_build,
    .ready = image_ready,
    .forward = image_forward,
    .release = image_release,
    .fold = image_fold,
};
