#include "backend/device_options.h"

#include <string.h>

#include "base/cache_folder.h"

#define DEVICE(field, initial, min, max, help) NM_OPTION(nm_device_config, field, initial, min, max, help)

/* clang-format off */
#define INFERENCE_ROWS(default_precision) \
    NM_WORD(nm_device_config, backend, "cpu", "cpu|ref|emulated|cuda", \
        "Backend: optimized SIMD kernels (cpu), plain C reference kernels (ref), an NVIDIA GPU (cuda), or " \
        "the kernels for GPUs, executed by an emulator, which is slow (emulated)."), \
    DEVICE(ordinal, "0", 0, 1023, "Number of the GPU of the backend cuda."), \
    NM_WORD(nm_device_config, gemm, "cublas", "cublas|own", \
        "Matrix multiplications of the backend cuda: cuBLASLt (cublas), or Norma's kernel, with the bits " \
        "of the backend emulated (own)."), \
    DEVICE(cache, "auto", 0, 0, \
        "Directory of compiled GPU kernels; auto: norma in $XDG_CACHE_HOME or ~/.cache; none: they are " \
        "compiled at every start."), \
    NM_WORD(nm_device_config, isa, "auto", "auto|base|avx2|avx512|vnni|avx512_bf16|amx|neon|dotprod", \
        "CPU instruction set of the cpu backend, neon and dotprod: 64-bit Arm; " \
        "auto: the best one that the CPU supports."), \
    DEVICE(threads, "0", 0, 4096, \
        "Number of threads; 0: one per core, at most the CPU limit of the container."), \
    DEVICE(fold, "true", 0, 1, \
        "At inference, fold norms that are affine per feature into the linear layers that follow them."), \
    NM_CHOICE(nm_device_config, precision, default_precision, NM_PRECISIONS, \
        "Precision of linear layers, attention and output layer: float32; tf32 operands (cuda only); " \
        "bf16 operands with float sums, which are faster on CPUs with AMX, and on AMD CPUs with " \
        "AVX512_BF16; auto: bf16 on these CPUs and on GPUs, otherwise float; at inference only: dynamic " \
        "int8 quantization; trained: auto for a model that was trained in bf16, otherwise float.")

static const nm_option inference_options[] = {INFERENCE_ROWS("trained"), {0}};
static const nm_option device_options[] = {
    INFERENCE_ROWS("float"),
    DEVICE(memory_mib, "0", 0, 1e9,
        "Memory limit of a training step in MiB; 0: the physical memory, the limit of the container, or " \
        "the free memory of the GPU."),
    DEVICE(profile, "false", 0, 1, "Time every kernel during training and print a table at the end."),
    {0}};
/* clang-format on */

/* clang-format off */
static const nm_option_rule device_rules[] = {
    {"device.ordinal", "device.backend", "cuda", "only the backend cuda has a number of a GPU", NULL},
    {"device.gemm", "device.backend", "cuda", "only the backend cuda can use cuBLASLt", NULL},
    {"device.cache", "device.backend", "cuda", "only the backend cuda compiles kernels", NULL},
    {0}};
/* clang-format on */

void nm_device_options_add(nm_options *options)
{
    nm_options_add_rules(options, device_rules);
    nm_options_add(options, "device", device_options, NULL, sizeof(nm_device_config));
}

void nm_device_inference_options_add(nm_options *options)
{
    nm_options_add_rules(options, device_rules);
    nm_options_add(options, "device", inference_options, NULL, sizeof(nm_device_config));
}

nm_status nm_device_reject_inference(const nm_device_config *device, const char *activity, nm_error *err)
{
    if (device->precision != NM_PRECISION_INT8 && device->precision != NM_PRECISION_TRAINED)
        return NM_OK;
    return nm_fail(err, NM_USAGE, "device.precision = %s is for inference only; %s computes in float or bf16",
                   device->precision == NM_PRECISION_INT8 ? "int8" : "trained", activity);
}

static bool is_cuda(const nm_device_config *device)
{
    return !strcmp(device->backend, "cuda");
}

/* NULL: compiled kernels are not kept. */
static const char *cache_of(const nm_device_config *device)
{
    if (!strcmp(device->cache, "auto"))
        return nm_cache_folder();
    return strcmp(device->cache, "none") ? device->cache : NULL;
}

static bool is_bf16(const nm_device_config *device)
{
    if (device->precision != NM_PRECISION_AUTO)
        return device->precision == NM_PRECISION_BF16;
    return is_cuda(device) || (!strcmp(device->backend, "cpu") && nm_backend_bf16_is_faster(device->isa));
}

nm_status nm_device_choose_precision(nm_options *options, nm_error *err)
{
    const nm_device_config *device = nm_options_find(options, "device");
    if (device->precision != NM_PRECISION_AUTO)
        return NM_OK;
    return nm_options_set(options, "device.precision", is_bf16(device) ? "bf16" : "float",
                          nm_options_origin(options, "device.precision"), err);
}

bool nm_device_is_bf16(const nm_options *options)
{
    const nm_device_config *device = nm_options_find(options, "device");
    return device->precision == NM_PRECISION_BF16;
}

nm_status nm_device_choose_trained(nm_options *options, bool trained_in_bf16, nm_error *err)
{
    nm_device_config device = *(const nm_device_config *)nm_options_find(options, "device");
    if (device.precision != NM_PRECISION_TRAINED)
        return NM_OK;
    device.precision = NM_PRECISION_AUTO;
    return nm_options_set(options, "device.precision", trained_in_bf16 && is_bf16(&device) ? "bf16" : "float",
                          nm_options_origin(options, "device.precision"), err);
}

nm_status nm_device_open(const nm_device_config *device, nm_backend **backend, nm_error *err)
{
    if (device->precision == NM_PRECISION_TF32 && !is_cuda(device))
        return nm_fail(err, NM_USAGE, "device.precision = tf32 needs device.backend = cuda");
    const nm_backend_options options = {.name = device->backend,
                                        .isa = device->isa,
                                        .bf16 = is_bf16(device),
                                        .threads = (int32_t)device->threads,
                                        .tf32 = device->precision == NM_PRECISION_TF32,
                                        .own_gemm = !strcmp(device->gemm, "own"),
                                        .ordinal = (int32_t)device->ordinal,
                                        .cache = cache_of(device)};
    return nm_backend_create(backend, &options, err);
}

size_t nm_device_memory_bytes(const nm_device_config *device, const nm_backend *backend)
{
    if (device->memory_mib)
        return (size_t)device->memory_mib << 20;
    return nm_backend_memory(backend);
}
