/* Convolutions as linear layers over patches, for backends and shapes without another kernel. The
 * patches of all images would be size^2 times as large as the input; those of a few images at a time are
 * gathered in args->room, so that the product reads them from the caches:
 *     P   = patches(x)
 *     y   = P W^T + b
 *     dW += dy^T P
 *     db += column sums of dy
 *     dx  = patches_grad(dy W) */
#pragma once

#include "norma/backend.h"

void nm_patchwise_convolve(nm_backend *b, const nm_convolve_args *args);
void nm_patchwise_grad_input(nm_backend *b, const nm_convolve_grad_input_args *args);
void nm_patchwise_grad_weight(nm_backend *b, const nm_convolve_grad_weight_args *args);
