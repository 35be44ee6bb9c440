/* TENER's encoder (Yan et al. 2019) with the norm as a choice: attention with relative positions and without output
 * projection, feed-forward layers, no norm behind the last layer of pre-norm.
 *     post-norm:  x <- norm(x + attention(x))     x <- norm(x + drop(ffn(x)))
 *     pre-norm:   x <- x + attention(norm(x))     x <- x + drop(ffn(norm(x))) */
#ifndef NM_RELATIVE_ENCODER_H
#define NM_RELATIVE_ENCODER_H

#include "nn/transformer.h"

typedef struct nm_relative_layer {
    nm_norm *norm;
    nm_tensor *qkv_weight;               /* [3d, d], no bias */
    nm_tensor *key_bias, *distance_bias; /* [1, d]: a and b of every head */
    nm_sublayer_ffn ffn;
} nm_relative_layer;

typedef struct nm_relative_encoder {
    nm_stack stack; /* its configuration; the layers are those below */
    nm_relative_layer *layers;
    nm_relative_table table;
} nm_relative_encoder;

/* Of the configuration width, ff, heads, layers, pre_norm, drop (behind the feed-forward layer), attention_drop,
 * relu_drop, norm, plan and prefix are used. Linear layers begin as U(+-1/sqrt(fan in)), as in the program. */
nm_status nm_relative_encoder_build(nm_relative_encoder *encoder, const nm_stack_config *config,
                                    nm_params *params, const nm_options *options, nm_error *err);
/* Makes the table of distances below `longest`; once memory is there. */
nm_status nm_relative_encoder_ready(nm_relative_encoder *encoder, nm_backend *backend, int32_t longest,
                                    nm_error *err);
void nm_relative_encoder_release(nm_relative_encoder *encoder, nm_backend *backend);

nm_tensor *nm_relative_encoder_forward(nm_tape *tape, const nm_relative_encoder *encoder, nm_tensor *x,
                                       const nm_packing *packing);

#endif
