/* Single instructions of the kernel dialect against their definitions in C: the matrix instruction of tensor
 * cores, shuffles, barriers, and arithmetic at the limits of float. Every kernel runs thirty times.
 *     device_instructions [emulated|cuda]
 * Exit code: 0 all results are those expected, 1 not. The dialect has no asynchronous copies. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend_private.h"
#include "backend/device/cuda.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "instructions.h"

#include "backend/device/functions.inc"

enum { RUNS = 30, BLOCKS = 24, INEXACT = BLOCKS - 4, MOST = ARITHMETIC_THREADS * ARITHMETIC };

static const char *backend_name = "emulated";
static nm_backend *backend;
static CUmodule module; /* cuda: the compiled kernels */

typedef struct trial {
    const nm_device_kernel *kernel;
    int in, out; /* words of a block */
    void (*fill)(int block, u32 *in);
    void (*expect)(const u32 *in, u32 *out);
} trial;

static u32 draw(int block, int i)
{
    return nm_random4(1, NM_RANDOM_TEST, (uint32_t)block, 0, (uint64_t)i).w[0];
}

static float whole(int block, int i)
{
    return (float)(draw(block, i) % 17) - 8;
}

/* Integers, whose sums are exact; in the last blocks sums that are not, and before them infinities. */
static float mma_value(int block, int i)
{
    const float value = whole(block, i);
    if (block >= INEXACT)
        return value / 3 * exp2f(whole(block, i + 1));
    return block == INEXACT - 1 && i % 41 == 5 ? value * INFINITY : value;
}

static void fill_mma(int block, u32 *in)
{
    for (int i = 0; i < MMA_C; i++)
        in[i] = AS_U32(mma_value(block, 2 * i)) >> 16 | (AS_U32(mma_value(block, 2 * i + 1)) & 0xFFFF0000u);
    for (int i = MMA_C; i < MMA_IN; i++)
        in[i] = AS_U32(whole(block, 2 * i));
}

static double bf16_at(const u32 *pairs, int k)
{
    return (double)AS_F32(k % 2 ? pairs[k / 2] & 0xFFFF0000u : pairs[k / 2] << 16);
}

static void expect_mma(const u32 *in, u32 *out)
{
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < 8; col++) {
            double sum = (double)AS_F32(in[MMA_C + row * 8 + col]);
            for (int k = 0; k < 16; k++)
                sum += bf16_at(in + row * 8, k) * bf16_at(in + MMA_B + col * 8, k);
            out[row * 8 + col] = AS_U32((float)sum);
        }
}

static void fill_shuffles(int block, u32 *in)
{
    for (int i = 0; i < SHUFFLE_THREADS; i++)
        in[i] = AS_U32(whole(block, i) + 0.5f);
}

static void expect_shuffles(const u32 *in, u32 *out)
{
    for (int t = 0; t < SHUFFLE_THREADS; t++) {
        float sum = 0, most = -INFINITY;
        for (int lane = 0; lane < 32; lane++) {
            sum += AS_F32(in[t / 32 * 32 + lane]);
            most = fmaxf(most, AS_F32(in[t / 32 * 32 + lane]));
        }
        for (int i = 0; i < 5; i++)
            out[i * SHUFFLE_THREADS + t] = in[t ^ 1 << i];
        out[5 * SHUFFLE_THREADS + t] = in[t ^ 31];
        out[6 * SHUFFLE_THREADS + t] = AS_U32(sum);
        out[7 * SHUFFLE_THREADS + t] = AS_U32(most);
    }
}

static void fill_barriers(int block, u32 *in)
{
    for (int i = 0; i < BARRIER_THREADS; i++)
        in[i] = draw(block, i);
}

static void expect_barriers(const u32 *in, u32 *out)
{
    u32 old[BARRIER_THREADS];
    memcpy(out, in, sizeof old);
    for (int round = 0; round < 63; round++) {
        memcpy(old, out, sizeof old);
        for (int t = 0; t < BARRIER_THREADS; t++)
            out[t] =
                5 * old[t] + old[round < 32 ? (t + 37 * round + 32) % BARRIER_THREADS : t ^ (round - 31)];
    }
}

/* Random bits, also NaN, infinities and denormal numbers; numbers between -8 and 8, and between them some
 * that are rounded */
static void fill_arithmetic(int block, u32 *in)
{
    for (int i = 0; i < 3 * ARITHMETIC_THREADS; i++) {
        const u32 bits = draw(block, i);
        in[i] = block % 3 == 0   ? bits
                : block % 3 == 1 ? AS_U32(whole(block, i) / 2)
                                 : (bits & 0x81FFFFFFu) + 0x3F000000u;
    }
}

static void expect_arithmetic(const u32 *in, u32 *out)
{
    for (int t = 0; t < ARITHMETIC_THREADS; t++, in += 3, out += ARITHMETIC) {
        const float x = AS_F32(in[0]), y = AS_F32(in[1]), z = AS_F32(in[2]), root = sqrtf(fabsf(x));
        const volatile float product = x * y;
        const volatile double wide = (double)x * (double)y;
        const float floats[] = {fmaf(x, y, z),
                                product + z,
                                x / y,
                                root,
                                (float)(sqrt(fabs((double)x)) - (double)root),
                                ceilf(x),
                                rintf(x),
                                fmaxf(x, y),
                                fminf(x, y)};
        memcpy(out, floats, sizeof floats);
        out[9] = (u32)((u64)in[0] * in[1] >> 32);
        out[10] = in[2] >> 8;
        for (int i = 0; i < 32; i += 8)
            out[10] += (u32)((int8_t)(in[0] >> i) * (int8_t)(in[1] >> i));
        out[11] = AS_U32(exp_of(x));
        out[12] = AS_U32(tanh_of(x));
        out[13] = AS_U32(erf_of(x).value);
        out[14] = AS_U32((float)(wide + (double)z));
    }
}

static bool is_number(const trial *t, int word)
{
    return t->fill != fill_barriers &&
           !(t->fill == fill_arithmetic && (word % ARITHMETIC == 9 || word % ARITHMETIC == 10));
}

/* NaNs are equal, and of numbers also 0 and -0: fmaxf(0, -0) may be either. */
static bool is_same(u32 a, u32 b, bool number)
{
    const float x = AS_F32(a), y = AS_F32(b);
    return a == b || (number && ((isnan(x) && isnan(y)) || (x == 0 && y == 0)));
}

static void launch(const trial *t, const void *args)
{
    if (!module) {
        nm_emulator_run(t->kernel, BLOCKS, 1, 2, args);
        return;
    }
    nm_cuda_stream *s = nm_backend_inside(backend)->device;
    void *parameters[] = {(void *)(uintptr_t)args};
    CUfunction function = NULL;
    CUDA(s, cuModuleGetFunction, &function, module, t->kernel->name);
    CUDA(s, cuLaunchKernel, function, BLOCKS, 1, 1, (unsigned)t->kernel->threads, 1, 1, 0, s->stream,
         parameters, NULL);
}

/* Compares a run. Sums of mma that are not exact are only counted: tensor cores may round them in another
 * way. */
static void compare(const trial *t, int run, const u32 *actual, const u32 *expected)
{
    int n = 0, once = 0;
    for (int i = 0; i < BLOCKS * t->out; i++) {
        const bool same = is_same(actual[i], expected[i], is_number(t, i));
        if (t->in == MMA_IN && i / t->out >= INEXACT) {
            n++;
            once += same;
        } else if (!same) {
            fail_msg("%s on %s, run %d: word %d of block %d is %08x, expected %08x", t->kernel->name,
                     backend_name, run, i % t->out, i / t->out, (unsigned)actual[i], (unsigned)expected[i]);
        }
    }
    if (n && run == 0)
        printf("%d of %d sums that are not exact are rounded once\n", once, n);
    if (n && once < n && !strcmp(backend_name, "emulated"))
        fail_msg("the emulator rounds once");
}

static void run_trial(const trial *t)
{
    static u32 in[BLOCKS * MOST], expected[BLOCKS * MOST], actual[BLOCKS * MOST], first[BLOCKS * MOST];
    const size_t in_bytes = sizeof *in * BLOCKS * (size_t)t->in, bytes = sizeof *in * BLOCKS * (size_t)t->out;
    void *from, *to;
    nm_error err;
    for (int block = 0; block < BLOCKS; block++) {
        t->fill(block, in + block * t->in);
        t->expect(in + block * t->in, expected + block * t->out);
    }
    assert_int_equal(nm_backend_alloc(backend, in_bytes, &from, &err), NM_OK);
    assert_int_equal(nm_backend_alloc(backend, bytes, &to, &err), NM_OK);
    nm_backend_upload(backend, from, in, in_bytes);
    const dptr args[] = {(dptr)(uintptr_t)from, (dptr)(uintptr_t)to};
    for (int run = 0; run < RUNS; run++) {
        nm_emulator_set_order((nm_emulator_order)(run % (NM_EMULATOR_SHUFFLED + 1)));
        NM_CALL(backend, zero, .data = to, .bytes = bytes);
        launch(t, args);
        nm_backend_download(backend, actual, to, bytes);
        if (nm_backend_check(backend, &err) != NM_OK)
            fail_msg("%s", err.text);
        compare(t, run, actual, expected);
        if (run == 0)
            memcpy(first, actual, bytes);
        else if (memcmp(first, actual, bytes) != 0)
            fail_msg("%s on %s: run %d has other bits than the first one", t->kernel->name, backend_name,
                     run);
    }
    nm_backend_dealloc(backend, from);
    nm_backend_dealloc(backend, to);
}

static void test_instructions(void **state)
{
    (void)state;
    static const trial trials[] = {
        {&nm_device_try_mma, MMA_IN, MMA_OUT, fill_mma, expect_mma},
        {&nm_device_try_shuffles, SHUFFLE_THREADS, SHUFFLES * SHUFFLE_THREADS, fill_shuffles,
         expect_shuffles},
        {&nm_device_try_barriers, BARRIER_THREADS, BARRIER_THREADS, fill_barriers, expect_barriers},
        {&nm_device_try_arithmetic, 3 * ARITHMETIC_THREADS, ARITHMETIC * ARITHMETIC_THREADS, fill_arithmetic,
         expect_arithmetic}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        run_trial(&trials[i]);
}

/* Compiles the kernels by NVRTC, with the options of the backend. */
static void compile(void)
{
    nm_cuda_stream *s = nm_backend_inside(backend)->device;
    nm_cuda_nvrtc nvrtc;
    nm_error err;
    char *header, *kernels, *code;
    size_t bytes;
    if (nm_file_read(INSTRUCTIONS ".h", &header, &bytes, &err) != NM_OK ||
        nm_file_read(INSTRUCTIONS ".inc", &kernels, &bytes, &err) != NM_OK ||
        nm_cuda_open_nvrtc(&nvrtc, &err) != NM_OK)
        fail_msg("%s", err.text);
    char *source = nm_format("%s#include \"backend/device/functions.inc\"\n%s", header, kernels);
    if (nm_cuda_compile(&nvrtc, source, atoi(backend->isa + strlen("sm_")), NULL, &code, &err) != NM_OK)
        fail_msg("%s", err.text);
    CUDA(s, cuModuleLoadData, &module, code);
    free(code);
    free(source);
    free(header);
    free(kernels);
}

static int open_backend(void **state)
{
    (void)state;
    nm_error err;
    const nm_backend_options options = {
        .name = backend_name, .own_gemm = true, .cache = getenv("DEVICE_CACHE")};
    if (nm_backend_create(&backend, &options, &err) != NM_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    if (nm_backend_inside(backend)->target)
        compile();
    return 0;
}

static int close_backend(void **state)
{
    (void)state;
    nm_backend_free(backend);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        backend_name = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_instructions)};
    return cmocka_run_group_tests(tests, open_backend, close_backend) ? 1 : 0;
}
