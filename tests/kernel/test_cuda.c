/* The backend `cuda` on the stub of NVIDIA's libraries (support/cuda_stub.h): its results are those of
 * `emulated`, and every call of a library that fails ends in a message, without a leak. */
#include "kernel_checks.h"
#include "support/sanitizer.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend_private.h"
#include "backend/device/cuda.h"
#include "backend/device/launch.h"
#include "base/file.h"
#include "support/cuda_stub.h"
#include "support/remove_tree.h"

static struct {
    void (*fail_at)(const char *function, int n, int code);
    int (*calls)(const char *function);
    const char *(*function)(int i);
    int (*live)(void);
    void (*reset)(void);
} stub;

/* Libraries that are loaded are found by their name. */
static int load_stub(void **state)
{
    (void)state;
    void *cuda = dlopen(STUB_FOLDER "/libcuda.so.1", RTLD_NOW);
    if (!cuda || !dlopen(STUB_FOLDER "/libnvrtc.so.13", RTLD_NOW) ||
        !dlopen(STUB_FOLDER "/libcublasLt.so.13", RTLD_NOW)) {
        print_message("%s\n", dlerror());
        return 1;
    }
    *(void **)&stub.fail_at = dlsym(cuda, "stub_fail");
    *(void **)&stub.calls = dlsym(cuda, "stub_calls");
    *(void **)&stub.function = dlsym(cuda, "stub_function");
    *(void **)&stub.live = dlsym(cuda, "stub_live");
    *(void **)&stub.reset = dlsym(cuda, "stub_reset");
    return 0;
}

static nm_backend *create(nm_backend_options options)
{
    nm_backend *backend;
    nm_error err;
    if (nm_backend_create(&backend, &options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

/* Hash of the results of a kernel at a few sizes */
static uint64_t hash_of(nm_backend *backend, nm_backend *reference, const kernel_check *check)
{
    static const size sizes[] = {{17, 129, 3}, {1, 7, 0}};
    pair p = {.on = {backend, reference}, .seed = 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        p.what = check->name;
        check->check(&p, sizes[i]);
        pair_close(&p);
    }
    return p.hash;
}

/* The checks also compare with ref in double. own: Norma's GEMM; otherwise the stub of cuBLASLt, which is
 * bitwise identical */
static void compare_with_emulated(bool own)
{
    nm_backend *reference = create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    nm_backend *emulated = create((nm_backend_options){.name = "emulated", .threads = 2});
    nm_backend *cuda = create((nm_backend_options){.name = "cuda", .threads = 2, .own_gemm = own});
    for (int i = 0; i < N_KERNEL_CHECKS; i++)
        if (hash_of(cuda, reference, &kernel_checks[i]) != hash_of(emulated, reference, &kernel_checks[i]))
            fail_msg("%s: results differ from those of emulated", kernel_checks[i].name);
    assert_int_equal(nm_backend_check(cuda, NULL), NM_OK);
    assert_true(own == !stub.calls("cublasLtMatmul"));
    nm_backend_free(cuda);
    nm_backend_free(emulated);
    nm_backend_free(reference);
    assert_int_equal(stub.live(), 0);
}

static void test_own_kernels(void **state)
{
    (void)state;
    stub.reset();
    compare_with_emulated(true);
}

static void test_cublas(void **state)
{
    (void)state;
    stub.reset();
    compare_with_emulated(false);
}

enum { ROWS = 9, COLS = 20, OUT = 12, BYTES = 6 << 20 };

/* y = relu(x weight^T + bias) and dw += dy^T x, [ROWS, OUT] and [OUT, COLS], from memory that is filled
 * with numbers. */
static void run_layer(nm_backend *b, float *memory, float *y, float *dw)
{
    const nm_mat x = nm_mat_of(memory, ROWS, COLS), weight = nm_mat_of(memory + 257, OUT, COLS);
    const nm_mat out = nm_mat_of(memory + 512, ROWS, OUT), grad = nm_mat_of(memory + 768, OUT, COLS);
    const nm_dropout drop = {0.25, 3, 1, 1};
    NM_CALL(b, linear, .x = x, .weight = weight, .bias = memory + 1024, .act = NM_ACT_RELU, .drop = &drop,
            .y = out);
    NM_CALL(b, linear_grad_weight, .dy = out, .x = x, .dw = grad);
    nm_backend_download(b, y, out.data, ROWS * OUT * sizeof *y);
    nm_backend_download(b, dw, grad.data, OUT * COLS * sizeof *dw);
}

/* Everything that calls a library: memory of all kinds, transfers larger than a slot of pinned memory,
 * kernels, a worker. */
static nm_status run_everything(nm_backend_options options, float *y, float *dw, nm_error *err)
{
    static float numbers[BYTES / sizeof(float)], back[BYTES / sizeof(float)];
    nm_backend *b = NULL, *worker = NULL;
    void *memory = NULL, *reserved = NULL, *small = NULL;
    nm_status status = nm_backend_create(&b, &options, err);
    if (status == NM_OK)
        status = nm_backend_alloc(b, BYTES / 2, &memory, err);
    if (status == NM_OK)
        status = nm_backend_realloc(b, BYTES, &memory, err);
    if (status == NM_OK)
        status = nm_backend_reserve(b, (size_t)100 << 20, &reserved, err);
    if (status == NM_OK && !nm_backend_commit(b, reserved, 40 << 20)) {
        status = nm_backend_check(b, err);
        status = status == NM_OK ? nm_fail(err, NM_MEMORY, "commit: cuMemCreate") : status;
    }
    if (status == NM_OK) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            numbers[i] = (float)((int)(i * 2654435761u >> 8 & 0xFF) - 128) / 64 + (float)(i >> 18);
        nm_backend_upload(b, memory, numbers, BYTES);
        nm_backend_copy(b, (char *)reserved + (35 << 20), memory, 1 << 20);
        nm_backend_download(b, back, memory, BYTES);
        status = nm_backend_check(b, err);
        assert_true(status != NM_OK || !memcmp(numbers, back, BYTES));
        nm_backend_copy(b, (char *)reserved + (35 << 20) + 64, (char *)reserved + (35 << 20), 1 << 20);
        nm_backend_download(b, back, (char *)reserved + (35 << 20) + 64, 1 << 20); /* memory that overlaps */
        status = nm_backend_check(b, err);
        assert_true(status != NM_OK || !memcmp(numbers, back, 1 << 20));
    }
    if (status == NM_OK) {
        float last = 1;
        nm_backend_download(b, &last, (char *)reserved + (39 << 20), sizeof last);
        assert_true(nm_backend_check(b, NULL) != NM_OK || last == 0); /* new memory is zero */
        run_layer(b, memory, y, dw);
        status = nm_backend_check(b, err);
    }
    if (status == NM_OK)
        status = nm_backend_create_worker(&worker, b, 1, err);
    if (status == NM_OK)
        status = nm_backend_alloc(worker, 4096, &small, err);
    if (status == NM_OK) {
        nm_backend_upload(worker, small, numbers, 4096);
        NM_CALL(worker, scale, .alpha = 2, .x = nm_mat_of(small, 32, 32), .y = nm_mat_of(small, 32, 32));
        nm_backend_download(worker, back, small, 4096);
        status = nm_backend_check(worker, err);
        assert_true(status != NM_OK || back[5] == 2 * numbers[5]);
    }
    if (small)
        nm_backend_dealloc(worker, small);
    nm_backend_free(worker);
    if (memory)
        nm_backend_dealloc(b, memory);
    nm_backend_free(b); /* frees `reserved`, too */
    return status;
}

static float largest_difference(const float *a, const float *b, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* Products in float, tf32 (which the stub computes in float) and bf16, by cuBLASLt and by the own kernel */
static void test_precision(void **state)
{
    (void)state;
    float y[2][ROWS * OUT], dw[2][OUT * COLS];
    nm_error err;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int own = 0; own < 2; own++) {
            const nm_backend_options options = {.name = "cuda", .bf16 = bf16, .own_gemm = own, .tf32 = !bf16};
            if (run_everything(options, y[own], dw[own], &err) != NM_OK)
                fail_msg("%s", err.text);
        }
        assert_true(largest_difference(y[0], y[1], ROWS * OUT) <= 1e-4f);
        assert_true(largest_difference(dw[0], dw[1], OUT * COLS) <= 1e-4f * 64);
    }
}

static bool destroys(const char *function)
{
    static const char *const words[] = {"Destroy", "Free", "Release", "Unload", "Unmap"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(function, words[i]))
            return true;
    return false;
}

/* cuMemFree_v2 -> cuMemFree */
static bool names(const char *message, const char *function)
{
    char plain[64];
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(function, "_"), function);
    return strstr(message, plain) != NULL;
}

static void fail_call(const char *function, int n, int code)
{
    float y[ROWS * OUT], dw[OUT * COLS];
    nm_error err = {0};
    stub.reset();
    stub.fail_at(function, n, code);
    const nm_status status = run_everything((nm_backend_options){.name = "cuda"}, y, dw, &err);
    if (stub.live())
        fail_msg("%s, call %d: %d objects leak: %s", function, n, stub.live(), err.text);
    if (destroys(function)) /* what cannot be destroyed is lost, and nothing else happens */
        return;
    if (!strcmp(function, "cublasLtMatmulAlgoGetHeuristic")) { /* the own kernel computes the product */
        assert_int_equal(status, NM_OK);
        return;
    }
    const bool compilation = !strcmp(function, "nvrtcCompileProgram") && code == NVRTC_ERROR_COMPILATION;
    const nm_status expected = compilation                        ? NM_UNSUPPORTED
                               : code == CUDA_ERROR_OUT_OF_MEMORY ? NM_MEMORY
                                                                  : NM_DEVICE;
    const bool named = names(err.text, function) || !strcmp(function, "execute") || compilation ||
                       (code == CUDA_ERROR_OUT_OF_MEMORY && strstr(err.text, "out of memory"));
    if (status == NM_OK || !named || (status != expected && code != CUDA_ERROR_OUT_OF_MEMORY))
        fail_msg("%s, call %d, code %d: status %d, \"%s\"", function, n, code, (int)status, err.text);
    if (!strcmp(function, "execute") && !strstr(err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"))
        fail_msg("execute: %s", err.text);
}

/* Every function, at its first, second and last call */
static void test_failures(void **state)
{
    (void)state;
    float y[ROWS * OUT], dw[OUT * COLS];
    nm_error err = {0};
    enum { MOST = 128 };
    const char *functions[MOST];
    int calls[MOST], n = 0;
    stub.reset();
    assert_int_equal(run_everything((nm_backend_options){.name = "cuda"}, y, dw, &err), NM_OK);
    for (; stub.function(n); n++) {
        functions[n] = stub.function(n);
        calls[n] = stub.calls(functions[n]);
    }
    assert_true(n > 40);
    for (int i = 0; i < n; i++) {
        if (strstr(functions[i], "GetError") || !strcmp(functions[i], "cuMemGetInfo_v2"))
            continue;
        fail_call(functions[i], 1, 700);
        if (!strcmp(functions[i], "cuCtxSetCurrent") || !strcmp(functions[i], "cuStreamSynchronize"))
            continue; /* later calls are also in nm_backend_free */
        if (calls[i] > 1)
            fail_call(functions[i], 2, 700);
        if (calls[i] > 2)
            fail_call(functions[i], calls[i], 700);
    }
    fail_call("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    fail_call("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
    fail_call("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
    fail_call("nvrtcCompileProgram", 1, NVRTC_ERROR_COMPILATION);
    stub.reset();
}

/* The first failure remains, and everything after it does nothing. */
static void test_sticky(void **state)
{
    (void)state;
    nm_backend *b = create((nm_backend_options){.name = "cuda"});
    void *memory;
    nm_error err;
    float value = 3;
    assert_int_equal(nm_backend_alloc(b, 4096, &memory, &err), NM_OK);
    stub.reset();
    stub.fail_at("cuLaunchKernel", 1, 700);
    const nm_mat m = nm_mat_of(memory, 4, 4);
    NM_CALL(b, scale, .alpha = 2, .x = m, .y = m);
    const int calls = stub.calls(NULL);
    NM_CALL(b, add, .alpha = 2, .x = m, .y = m);
    nm_backend_download(b, &value, memory, sizeof value);
    assert_int_equal(stub.calls(NULL), calls);
    assert_true(value == 0);
    assert_int_equal(nm_backend_check(b, &err), NM_DEVICE);
    assert_string_equal(err.text, "the GPU reported CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was "
                                  "encountered) in cuLaunchKernel; the last kernel was scale");
    nm_backend_free(b);
}

/* Nothing is waited for but results. */
static void test_waits(void **state)
{
    (void)state;
    nm_backend *b = create((nm_backend_options){.name = "cuda"});
    void *memory;
    nm_error err;
    assert_int_equal(nm_backend_alloc(b, 1 << 20, &memory, &err), NM_OK);
    float numbers[256] = {1};
    const nm_mat m = nm_mat_of(memory, 16, 16);
    stub.reset();
    nm_backend_upload(b, memory, numbers, sizeof numbers);
    numbers[0] = 9; /* the bytes were copied */
    for (int i = 0; i < 100; i++)
        NM_CALL(b, scale, .alpha = 1, .x = m, .y = m);
    assert_int_equal(stub.calls("execute"), 0);
    nm_backend_download(b, numbers, memory, sizeof numbers);
    assert_int_equal(stub.calls("execute"), 103); /* also the zeros of new memory */
    assert_true(numbers[0] == 1);
    nm_backend_free(b);
}

enum { VEC = 100, VECTORS = 8 };

/* out = a + b/2, vectors of n elements that begin at elements of the memory */
static void vec_at(nm_backend *b, float *memory, int32_t n, int out, int first, int second)
{
    NM_CALL(b, vec, .op = NM_VEC_LINEAR, .n = n, .out = memory + out, .a = memory + first,
            .b = memory + second, .s = 1, .t = 0.5);
}

/* Operations on vectors, of which 32 or fewer of one length are one launch; those whose operands are shifted
 * against a result, or whose results are shifted against an operand, begin another one. */
static void run_vectors(nm_backend *b, float values[VECTORS * VEC])
{
    void *memory;
    nm_error err;
    assert_int_equal(nm_backend_alloc(b, VECTORS * VEC * sizeof *values, &memory, &err), NM_OK);
    for (int i = 0; i < VECTORS * VEC; i++)
        values[i] = sinf((float)i);
    nm_backend_upload(b, memory, values, VECTORS * VEC * sizeof *values);
    for (int i = 0; i < 40; i++) /* 2 launches */
        vec_at(b, memory, VEC, i % 4 * VEC, (i + 1) % 4 * VEC, (i + 2) % 4 * VEC);
    vec_at(b, memory, VEC / 2, 0, VEC, 2 * VEC);           /* another length */
    vec_at(b, memory, VEC, 2 * VEC, VEC, 0);               /* another length */
    vec_at(b, memory, VEC, 4 * VEC, 2 * VEC + 10, 0);      /* reads a result, shifted */
    vec_at(b, memory, VEC, 6 * VEC, 4 * VEC, 0);           /* the same launch */
    vec_at(b, memory, VEC, 2 * VEC, 5 * VEC, 5 * VEC);     /* writes an operand, shifted */
    vec_at(b, memory, VEC, 2 * VEC + 7, 5 * VEC, 5 * VEC); /* writes a result, shifted */
    nm_backend_download(b, values, memory, VECTORS * VEC * sizeof *values);
    nm_backend_dealloc(b, memory);
}

static void test_vectors(void **state)
{
    (void)state;
    float actual[VECTORS * VEC], expected[VECTORS * VEC];
    nm_backend *cuda = create((nm_backend_options){.name = "cuda"}), *worker;
    nm_backend *emulated = create((nm_backend_options){.name = "emulated"});
    nm_error err;
    run_vectors(emulated, expected);
    stub.reset();
    run_vectors(cuda, actual);
    assert_int_equal(stub.calls("cuLaunchKernel"), 2 + 1 + 1 + 1 + 1 + 1);
    assert_memory_equal(actual, expected, sizeof actual);
    assert_int_equal(nm_backend_create_worker(&worker, cuda, 1, &err), NM_OK);
    stub.reset();
    run_vectors(cuda, actual); /* workers may read the results at once */
    assert_int_equal(stub.calls("cuLaunchKernel"), 46);
    assert_memory_equal(actual, expected, sizeof actual);
    nm_backend_free(worker);
    nm_backend_free(cuda);
    nm_backend_free(emulated);
}

static void compile_for(int arch, const char *folder, int expected)
{
    nm_cuda_nvrtc nvrtc;
    nm_error err;
    char *code, text[32];
    stub.reset();
    assert_int_equal(nm_cuda_open_nvrtc(&nvrtc, &err), NM_OK);
    assert_int_equal(nm_cuda_compile(&nvrtc, NULL, arch, folder, &code, &err), NM_OK);
    snprintf(text, sizeof text, "STUB CODE %s_%d", arch > 90 ? "compute" : "sm", arch > 90 ? 90 : arch);
    assert_string_equal(code, text);
    assert_int_equal(stub.calls("nvrtcCompileProgram"), expected);
    free(code);
}

/* The only file of a folder, heap */
static char *only_file(const char *folder, const char *part)
{
    char *command = nm_format("ls %s | grep -c . ; ls %s/*%s*", folder, folder, part), line[512] = "",
         count[32] = "";
    FILE *list = popen(command, "r");
    assert_non_null(fgets(count, sizeof count, list));
    assert_non_null(fgets(line, sizeof line, list));
    pclose(list);
    free(command);
    line[strcspn(line, "\n")] = 0;
    return nm_duplicate(line);
}

static void test_cache(void **state)
{
    (void)state;
    char root[] = "/tmp/norma-cuda-XXXXXX";
    assert_non_null(mkdtemp(root));
    char *folder = nm_format("%s/a/b", root); /* is created */
    compile_for(90, folder, 1);
    compile_for(90, folder, 0);
    compile_for(80, folder, 1);
    compile_for(103, folder, 1); /* newer than NVRTC: PTX of sm_90 */
    compile_for(103, folder, 0);
    compile_for(90, NULL, 1);
    char *path = only_file(folder, "sm_90"), *text;
    size_t bytes;
    nm_error err;
    assert_int_equal(nm_file_read(path, &text, &bytes, &err), NM_OK);
    for (size_t i = 0; i <= bytes; i += i + 1 < bytes ? 7 : 1) { /* truncated, or with a changed byte */
        assert_int_equal(nm_file_write(path, text, i, &err), NM_OK);
        compile_for(90, folder, i < bytes);
        compile_for(90, folder, 0);
        text[i < bytes ? i : 0] ^= 1;
        assert_int_equal(nm_file_write(path, text, bytes, &err), NM_OK);
        compile_for(90, folder, 1);
        text[i < bytes ? i : 0] ^= 1;
    }
    free(text);
    free(path);
    /* Writers at the same time: every reader gets complete code. */
    enum { PROCESSES = 8 };
    remove_tree(folder);
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            nm_cuda_nvrtc nvrtc;
            char *code;
            for (int j = 0; j < 20; j++)
                if (nm_cuda_open_nvrtc(&nvrtc, &err) != NM_OK ||
                    nm_cuda_compile(&nvrtc, NULL, 90, folder, &code, &err) != NM_OK ||
                    strcmp(code, "STUB CODE sm_90"))
                    _exit(1);
            _exit(0);
        }
    for (int i = 0; i < PROCESSES; i++) {
        int ended;
        wait(&ended);
        assert_int_equal(ended, 0);
    }
    compile_for(90, folder, 0);
    free(folder);
    /* A folder that cannot be written: compiled again. */
    compile_for(90, "/proc/none", 1);
    remove_tree(root);
}

static void test_options(void **state)
{
    (void)state;
    nm_backend *b;
    nm_error err;
    nm_backend_options options = {.name = "cuda", .ordinal = 3};
    assert_int_equal(nm_backend_create(&b, &options, &err), NM_USAGE);
    assert_string_equal(err.text, "device.ordinal = 3: this machine has 1 GPU, numbered from 0");
    options.ordinal = -1;
    assert_int_equal(nm_backend_create(&b, &options, &err), NM_USAGE);
    assert_string_equal(err.text, "the number of the GPU is -1");
    options = (nm_backend_options){.name = "cuda", .dtype = NM_F64};
    assert_int_equal(nm_backend_create(&b, &options, &err), NM_UNSUPPORTED);
    b = create((nm_backend_options){.name = "cuda"});
    assert_string_equal(nm_backend_training_level(b), "cuda sm_90, cuBLASLt 130000");
    assert_true(nm_backend_memory(b) > 0);
    nm_backend_free(b);
    b = create((nm_backend_options){.name = "cuda", .own_gemm = true, .threads = 64});
    assert_string_equal(nm_backend_training_level(b), "cuda sm_90");
    assert_int_equal(b->threads, 4);
    assert_null(nm_backend_view(b, NULL));
    nm_backend_free(b);
    assert_int_equal(stub.live(), 0);
}

int main(void)
{
    if (THREAD_SANITIZER) /* the stub has fibers and fixed addresses */
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),     cmocka_unit_test(test_waits),     cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_cache),       cmocka_unit_test(test_precision), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_own_kernels), cmocka_unit_test(test_cublas),    cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, load_stub, NULL);
}
