/* Models of images: a network that maps the images of a batch to one vector each, and a linear layer to the
 * classes. A network is one file. */
#pragma once

#include "model/model.h"
#include "nn/transformer.h"

/* nm_model_sizes.more: all images have this size. */
typedef struct nm_image_sizes {
    int32_t height, width, channels;
} nm_image_sizes;

#define NM_IMAGE_NETWORKS(C) C(NM_IMAGE_RESNET, "resnet") C(NM_IMAGE_VIT, "vit")
NM_CHOICES(nm_image_network, NM_IMAGE_NETWORKS);
#define NM_SHORTCUTS(C)                                                                                      \
    C(NM_SHORTCUT_PAD, "pad") C(NM_SHORTCUT_PAD_BOTH, "pad-both") C(NM_SHORTCUT_CONV, "conv")
NM_CHOICES(nm_shortcut, NM_SHORTCUTS);
#define NM_IMAGE_POOLINGS(C) C(NM_IMAGE_MEAN, "mean") C(NM_IMAGE_TOKEN, "token")
NM_CHOICES(nm_image_pooling, NM_IMAGE_POOLINGS);

typedef struct nm_image_model_config {
    NM_STACK_OPTIONS; /* of vit; norm, init_from and freeze of all networks */
    const char *preset, *final_norm, *widths, *blocks;
    nm_init_scheme init;
    nm_image_network network;
    nm_shortcut shortcut;
    nm_image_pooling pooling;
    bool pre_activation;
    int64_t layers, patch;
} nm_image_model_config;

static inline const nm_image_sizes *nm_image_sizes_of(const nm_model *model)
{
    return model->more_sizes;
}

/* The model from the pixels on: x [images * height * width, channels]. */
nm_model_output nm_image_output(nm_model *model, nm_tape *tape, nm_tensor *x, int32_t images);

/* Offsets of `images` sequences of `length` rows, host memory of the tape, and a device copy. */
nm_packing nm_image_packing(nm_tape *tape, int32_t images, int32_t length);

enum { NM_RESNET_MAX_STAGES = 8, NM_RESNET_MAX_BLOCKS = 256 };

typedef struct nm_resnet_block {
    nm_windows first, second, shortcut;      /* images = 1 */
    nm_tensor *weights[2], *shortcut_weight; /* [out, 9 in], [out, 9 out], [out, in] or NULL */
    nm_norm *norms[2], *shortcut_norm;       /* shortcut_norm: of a convolution without pre-activation */
    int32_t in, out, padded_first;           /* channels; first channel of a padded shortcut */
    bool changes;                            /* size or channels: the shortcut is not the identity */
} nm_resnet_block;

typedef struct nm_resnet {
    const nm_image_model_config *config;
    nm_windows stem;
    nm_tensor *stem_weight;
    nm_norm *stem_norm, *final_norm; /* final_norm: with pre-activation, in place of stem_norm */
    nm_resnet_block *blocks;
    int32_t n_blocks, features;
} nm_resnet;

/* Registers parameters and norms. NM_USAGE for malformed widths or blocks. Release in every case. */
nm_status nm_resnet_build(nm_resnet *resnet, nm_model *model, nm_error *err);
void nm_resnet_release(nm_resnet *resnet);
/* x: [images * height * width, channels]; returns [images, features]. */
nm_tensor *nm_resnet_forward(nm_tape *tape, const nm_resnet *resnet, nm_tensor *x, int32_t images);

typedef struct nm_vit {
    const nm_image_model_config *config;
    nm_windows patches; /* images = 1 */
    nm_tensor *patch_weight, *patch_bias, *token,
        *positions; /* token: [1, d] or NULL; positions: [tokens, d] */
    nm_stack encoder;
    int32_t tokens; /* of an image */
} nm_vit;

nm_status nm_vit_build(nm_vit *vit, nm_model *model, nm_error *err);
nm_tensor *nm_vit_forward(nm_tape *tape, const nm_vit *vit, nm_tensor *x, int32_t images);
