/* Pointwise functions f of kernels (nm_map_args, nm_gate_args) and activations of models, with
 * Phi(z) = (1 + erf(z/sqrt(2)))/2. A row has everything about a function except its vector instructions,
 * which are in src/core/backend/cpu/simd_map.c:
 *
 *     x, word           NM_MAP_x, and NM_ACTIVATION_x for an activation, with its word in model.activation
 *     f(z), f'(z)       in double (src/core/backend/ref_map.inc)
 *     term, f(z), f'(z) in the float arithmetic of devices (src/core/backend/device/functions.inc);
 *                       term sets t, or e for functions with Phi or erf
 *     transformers      name of an activation in configurations of transformers, and another one with which
 *                       it is read, or NULL; both NULL: it has none, and is not written
 *     ct2               number of an activation in CTranslate2, or -1
 *
 * Formats refuse an activation without a name or number. */
#ifndef NORMA_FUNCTIONS_H
#define NORMA_FUNCTIONS_H

#include "norma/choice.h"

/* clang-format off */
/* A(C, columns) for each activation, F(C, columns) for each other function.
 *     silu       also called swish
 *     gelu       Hendrycks and Gimpel 2016
 *     gelu-tanh  their approximation z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), as in GPT-2 */
#define NM_FUNCTIONS(A, F, C) \
    A(C, RELU, "relu", z > 0 || isnan(z) ? z : 0, z > 0, \
        t = z, z > 0 || z != z ? z : 0, z > 0, \
        "relu", NULL, 0) \
    F(C, TANH, "tanh", tanh(z), 1 - tanh(z) * tanh(z), \
        t = tanh_of(z), t, 1 - t * t) \
    F(C, ERF, "erf", erf(z), TWO_SQRT_PI * exp(-z * z), \
        e = erf_of(z), e.value, 1.12837917f * e.exponential) \
    F(C, SIGMOID, "sigmoid", 1 / (1 + exp(-z)), sigmoid(z) * (1 - sigmoid(z)), \
        t = sigmoid_of(z), t, t * (1 - t)) \
    A(C, SILU, "silu", z / (1 + exp(-z)), sigmoid(z) * (1 + z * (1 - sigmoid(z))), \
        t = sigmoid_of(z), z * t, t * FMA(z, 1 - t, 1), \
        "silu", "swish", 2) \
    A(C, GELU, "gelu", z * 0.5 * erfc(-z * SQRT_HALF), \
        0.5 * erfc(-z * SQRT_HALF) + z * 0.5 * SQRT_2_PI * exp(-z * z / 2), \
        e = normal_cdf(z), z * e.value, FMA(z, 0.5f * SQRT_2_PI * e.exponential, e.value), \
        "gelu", NULL, 3) \
    A(C, GELU_TANH, "gelu-tanh", z * 0.5 * (1 + gelu_tanh(z)), \
        0.5 * (1 + gelu_tanh(z)) + \
            0.5 * z * (1 - gelu_tanh(z) * gelu_tanh(z)) * SQRT_2_PI * (1 + 3 * GELU_CUBIC * z * z), \
        t = gelu_tanh(z), 0.5f * z * (1 + t), \
        FMA(0.5f * z * (1 - t * t), SQRT_2_PI * FMA(3 * GELU_CUBIC, z * z, 1), 0.5f * (1 + t)), \
        "gelu_new", "gelu_pytorch_tanh", 1) \
    F(C, IDENTITY, "identity", z, 1, \
        t = z, z, 1)
/* clang-format on */

/* Lists (norma/choice.h) of some of the columns. */
#define NM_FUNCTION_NAMES(C, x, word, ...)               C(NM_MAP_##x, word)
#define NM_FUNCTION_REFERENCE(C, x, word, f, slope, ...) C(NM_MAP_##x, f, slope)
#define NM_FUNCTION_DEVICE(C, x, word, f, slope, term, device_f, device_slope, ...)                          \
    C(NM_MAP_##x, term, device_f, device_slope)
#define NM_FUNCTION_ACTIVATION(C, x, word, f, slope, term, device_f, device_slope, hf, hf_read, ct2)         \
    C(NM_ACTIVATION_##x, word, NM_MAP_##x, hf, hf_read, ct2)
#define NM_FUNCTION_NONE(C, ...)

#define NM_MAP_OPS(C) NM_FUNCTIONS(NM_FUNCTION_NAMES, NM_FUNCTION_NAMES, C)
NM_CHOICES(nm_map_op, NM_MAP_OPS);
#define NM_ACTIVATIONS(C) NM_FUNCTIONS(NM_FUNCTION_ACTIVATION, NM_FUNCTION_NONE, C)
NM_CHOICES(nm_activation, NM_ACTIVATIONS);

#endif
