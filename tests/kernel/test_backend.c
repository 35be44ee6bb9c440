/* Backends: creation and its errors, memory, packed weights, workers, dry run, fenced memory, device
 * options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend_private.h"
#include "backend/device_options.h"
#include "norma/backend.h"

static nm_backend *create(nm_backend_options options)
{
    nm_error err;
    nm_backend *backend;
    if (nm_backend_create(&backend, &options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

static void *alloc_floats(nm_backend *backend, size_t bytes)
{
    nm_error err;
    void *memory;
    if (nm_backend_alloc(backend, bytes, &memory, &err) != NM_OK)
        fail_msg("%s", err.text);
    return memory;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        nm_backend_options options;
        nm_status status;
    } cases[] = {
        {{.name = "gpu"}, NM_USAGE},
        {{.name = NULL}, NM_USAGE},
        {{.name = "ref", .threads = -1}, NM_USAGE},
        {{.name = "cpu", .fenced = true}, NM_UNSUPPORTED},
        {{.name = "cpu", .dtype = NM_F64}, NM_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_error err = {0};
        nm_backend *backend = (nm_backend *)&err;
        assert_int_equal(nm_backend_create(&backend, &cases[i].options, &err), cases[i].status);
        assert_null(backend);
        assert_true(err.text[0] != 0);
    }
    nm_backend_free(NULL);
}

static void test_memory(void **state)
{
    (void)state;
    nm_backend *backend = create((nm_backend_options){.name = "ref"});
    char *a = alloc_floats(backend, 1000), *empty = alloc_floats(backend, 0);
    /* much more than the machine has: only touched pages count */
    char *large = alloc_floats(backend, (size_t)1 << 36);
    assert_true((uintptr_t)a % 64 == 0 && (uintptr_t)large % 64 == 0 && empty != a);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(a[i], 0);
    large[(size_t)1 << 35] = 1;
    nm_backend_dealloc(backend, a);
    nm_backend_dealloc(backend, empty);
    nm_backend_dealloc(backend, NULL);
    nm_error err;
    void *none;
    assert_int_equal(nm_backend_alloc(backend, SIZE_MAX / 2, &none, &err), NM_MEMORY);
    assert_null(none);
    nm_backend_free(backend); /* also frees `large` */
}

static void check_retaking(bool fenced)
{
    nm_backend *backend = create((nm_backend_options){.name = "ref", .fenced = fenced});
    nm_error err;
    void *memory = NULL, *other = alloc_floats(backend, 100);
    enum { BYTES = 3 * 4096, MORE = 9 << 20 };
    unsigned char host[BYTES], *all = calloc(MORE, 1);
    for (int i = 0; i < BYTES; i++)
        host[i] = (unsigned char)(i % 251 + 1);
    assert_int_equal(nm_backend_realloc(backend, BYTES, &memory, &err), NM_OK);
    nm_backend_upload(backend, memory, host, BYTES);
    assert_int_equal(nm_backend_realloc(backend, MORE, &memory, &err), NM_OK);
    nm_backend_download(backend, all, memory, MORE);
    assert_memory_equal(all, host, BYTES);
    for (int i = BYTES; i < MORE; i++)
        assert_int_equal(all[i], 0);
    void *before = memory;
    assert_int_equal(nm_backend_realloc(backend, SIZE_MAX / 2, &memory, &err), NM_MEMORY);
    assert_ptr_equal(memory, before);
    nm_backend_dealloc(backend, other);
    nm_backend_dealloc(backend, memory);
    nm_backend_free(backend);
    free(all);
}

static void test_retaking(void **state)
{
    (void)state;
    check_retaking(false);
    check_retaking(true);
}

/* A worker shares the memory and the packed weights of its backend, with bitwise identical results; so
 * does a worker of a worker. */
static void test_worker(void **state)
{
    (void)state;
    enum { IN = 40, OUT = 33, ROWS = 3 };
    nm_error err;
    nm_backend *main = create((nm_backend_options){.name = "cpu", .isa = "auto", .threads = 2}), *worker,
               *second;
    float *x = alloc_floats(main, ROWS * IN * sizeof *x),
          *weight = alloc_floats(main, OUT * IN * sizeof *weight),
          *y = alloc_floats(main, ROWS * OUT * sizeof *y), first[ROWS * OUT], again[ROWS * OUT];
    for (int i = 0; i < OUT * IN; i++)
        weight[i] = (float)(i % 17) / 7 - 1;
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)(i % 13) / 5 - 1;
    nm_mat w = nm_mat_of(weight, OUT, IN);
    size_t bytes = 0;
    NM_CALL(main, pack, .weight = w, .bytes = &bytes);
    void *form = alloc_floats(main, bytes);
    NM_CALL(main, pack, .weight = w, .packed = form, .bytes = &bytes);
    assert_int_equal(nm_backend_create_worker(&worker, main, 1, &err), NM_OK);
    assert_int_equal(nm_backend_create_worker(&second, worker, 1, &err), NM_OK);
    assert_string_equal(worker->isa, main->isa);
    assert_int_equal(worker->threads, 1);
    NM_CALL(main, linear, .x = nm_mat_of(x, ROWS, IN), .weight = w, .act = NM_ACT_NONE,
            .y = nm_mat_of(y, ROWS, OUT));
    memcpy(first, y, sizeof first);
    assert_false(nm_backend_has_packed(second, w));
    nm_backend_register_weight(main, w, form);
    assert_true(nm_backend_has_packed(worker, w) && nm_backend_has_packed(second, w));
    memset(weight, 0, OUT * IN * sizeof *weight); /* the result shows whether the packed weight was read */
    NM_CALL(second, linear, .x = nm_mat_of(x, ROWS, IN), .weight = w, .act = NM_ACT_NONE,
            .y = nm_mat_of(y, ROWS, OUT));
    memcpy(again, y, sizeof again);
    assert_memory_equal(first, again, sizeof first);
    nm_backend_free(second);
    nm_backend_free(worker);
    nm_backend_unregister_weight(main, form);
    nm_backend_free(main);
}

static void test_plan(void **state)
{
    (void)state;
    nm_backend *backend = create((nm_backend_options){.name = "ref"});
    float *x = alloc_floats(backend, 4 * sizeof *x), host[4] = {1, 2, 3, 4};
    double dot = 5;
    nm_backend_upload(backend, x, host, sizeof host);
    nm_backend_dry_run(backend, true);
    assert_true(backend->dry_run);
    nm_backend_zero(backend, x, sizeof host);
    NM_CALL(backend, gemm, .alpha = 1, .a = nm_mat_of(NULL, 9, 9), .b = nm_mat_of(NULL, 1, 1), .beta = 1,
            .c = nm_mat_of(NULL, 2, 2));
    nm_backend_download(backend, host, x, sizeof host);
    NM_CALL(backend, dot, .n = 4, .a = x, .b = x, .out = &dot);
    assert_true(host[0] == 0 && host[3] == 0 && dot == 0);
    nm_backend_dry_run(backend, false);
    assert_false(backend->dry_run);
    nm_backend_download(backend, host, x, sizeof host);
    assert_true(host[0] == 1 && host[3] == 4);
    nm_backend_free(backend);
}

static void check_scratch_of_loss(nm_backend_options options, int32_t tokens)
{
    enum { WORDS = 3000, WIDTH = 64 };
    nm_backend *b = create(options);
    size_t floats = (size_t)tokens * WIDTH;
    float *hidden = alloc_floats(b, floats * sizeof *hidden),
          *d_hidden = alloc_floats(b, floats * sizeof *hidden);
    float *weight = alloc_floats(b, sizeof(float[WORDS][WIDTH])),
          *d_weight = alloc_floats(b, sizeof(float[WORDS][WIDTH]));
    int32_t *targets = calloc((size_t)tokens, sizeof *targets);
    double *sums = alloc_floats(b, 2 * sizeof *sums);
    assert_non_null(targets);
    const nm_softmax_loss_args loss = {.hidden = nm_mat_of(hidden, tokens, WIDTH),
                                       .weight = nm_mat_of(weight, WORDS, WIDTH),
                                       .targets = targets,
                                       .grad_scale = 1,
                                       .sums = sums,
                                       .d_hidden = d_hidden,
                                       .d_weight = d_weight};
    nm_backend_dry_run(b, true);
    b->k.softmax_loss(b, &loss);
    nm_backend_dry_run(b, false);
    size_t requested = nm_backend_scratch_bytes(b), allocated = 0;
    for (int i = 0; i < NM_SCRATCH_SLOTS; i++)
        assert_true(nm_backend_inside(b)->scratch[i].bytes == 0);
    assert_true(sums[0] == 0);
    b->k.softmax_loss(b, &loss);
    assert_true(sums[0] > 0);
    for (int i = 0; i < NM_SCRATCH_SLOTS; i++)
        allocated += nm_backend_inside(b)->scratch[i].bytes;
    /* The panels of the other GEMMs have another padding. */
    assert_in_range(allocated, requested, requested + 65536);
    nm_backend_dry_run(b, true);
    nm_backend_dry_run(b, false);
    assert_int_equal(nm_backend_scratch_bytes(b), 0);
    free(targets);
    nm_backend_free(b);
}

/* The dry run counts the logits of a block, the packed weight and the panels of the loss, and allocates none
 * of them. */
static void test_dry_run_counts_the_scratch_memory_of_the_loss(void **state)
{
    (void)state;
    for (int32_t tokens = 100; tokens <= 1100; tokens += 1000) { /* one block, several */
        check_scratch_of_loss((nm_backend_options){.name = "cpu", .threads = 2}, tokens);
        check_scratch_of_loss((nm_backend_options){.name = "cpu", .threads = 2, .bf16 = true}, tokens);
    }
    check_scratch_of_loss((nm_backend_options){.name = "ref"}, 50);
}

/* Signal that terminates a child process which reads (or writes) device memory. */
static int death_by_touching(volatile float *memory, bool write)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (write)
            memory[1] = 1;
        _exit(memory[0] > 0);
    }
    int result = 0;
    assert_true(child > 0 && waitpid(child, &result, 0) == child);
    return WIFSIGNALED(result) ? WTERMSIG(result) : 0;
}

static void test_fence(void **state)
{
    (void)state;
    nm_backend *open = create((nm_backend_options){.name = "ref"});
    nm_backend *fenced = create((nm_backend_options){.name = "ref", .fenced = true});
    float *free_memory = alloc_floats(open, 64), *memory = alloc_floats(fenced, 64), host[2] = {3, 4};
    assert_int_equal(death_by_touching(free_memory, true), 0);
    assert_int_equal(death_by_touching(memory, false), SIGSEGV);
    nm_backend_upload(fenced, memory, host, sizeof host);
    NM_CALL(fenced, scale, .alpha = 2, .x = nm_mat_of(memory, 1, 2), .y = nm_mat_of(memory, 1, 2));
    nm_backend_download(fenced, host, memory, sizeof host);
    assert_true(host[0] == 6 && host[1] == 8);
    assert_int_equal(death_by_touching(memory, false), SIGSEGV);
    assert_int_equal(death_by_touching(memory, true), SIGSEGV);
    nm_backend_free(open);
    nm_backend_free(fenced);
}

/* A worker reads the memory of the main backend and its own, which are inaccessible after the kernel. */
static void test_fenced_worker(void **state)
{
    (void)state;
    nm_backend *fenced = create((nm_backend_options){.name = "ref", .fenced = true}), *worker;
    nm_error err;
    assert_int_equal(nm_backend_create_worker(&worker, fenced, 1, &err), NM_OK);
    float *memory = alloc_floats(fenced, 64), *own = alloc_floats(worker, 64), host[2] = {3, 4};
    nm_backend_upload(worker, memory, host, sizeof host);
    NM_CALL(worker, scale, .alpha = 2, .x = nm_mat_of(memory, 1, 2), .y = nm_mat_of(own, 1, 2));
    nm_backend_download(worker, host, own, sizeof host);
    assert_true(host[0] == 6 && host[1] == 8);
    assert_int_equal(death_by_touching(memory, false), SIGSEGV);
    assert_int_equal(death_by_touching(own, true), SIGSEGV);
    nm_backend_free(worker);
    nm_backend_free(fenced);
}

static void test_describe(void **state)
{
    (void)state;
    char text[200], tiny[8];
    nm_backend *ref = create((nm_backend_options){.name = "ref", .dtype = NM_F64, .threads = 5});
    nm_backend *cpu = create((nm_backend_options){.name = "cpu", .isa = "base", .threads = 3});
    nm_backend_describe(ref, text, sizeof text);
    assert_true(strstr(text, "ref") && strstr(text, "float64") && strstr(text, "1 thread"));
    assert_string_equal(nm_backend_warning(ref), "");
    nm_backend_describe(cpu, text, sizeof text);
    assert_true(strstr(text, "cpu") && strstr(text, "float32") && strstr(text, "base") &&
                strstr(text, "3 threads"));
    assert_non_null(nm_backend_warning(cpu));
    nm_backend_describe(cpu, tiny, sizeof tiny);
    assert_int_equal(strlen(tiny), sizeof tiny - 1);
    nm_backend_free(ref);
    nm_backend_free(cpu);
}

/* Sets device.precision and device.isa, returns the precision that the training decides. */
static nm_precision chosen(const char *precision, const char *isa, bool trained_in_bf16)
{
    nm_error err;
    nm_options *options = nm_options_create();
    nm_device_inference_options_add(options);
    const nm_device_config *device = nm_options_find(options, "device");
    assert_int_equal(device->precision, NM_PRECISION_TRAINED);
    assert_int_equal(nm_options_set(options, "device.isa", isa, NM_ORIGIN_COMMAND, &err), NM_OK);
    if (precision)
        assert_int_equal(nm_options_set(options, "device.precision", precision, NM_ORIGIN_COMMAND, &err),
                         NM_OK);
    assert_int_equal(nm_device_choose_trained(options, trained_in_bf16, &err), NM_OK);
    const nm_precision result = device->precision;
    nm_options_free(options);
    return result;
}

/* The default precision of inference is that of training where the CPU is faster in it. */
static void test_precision_of_training(void **state)
{
    (void)state;
    assert_int_equal(chosen(NULL, "auto", false), NM_PRECISION_FLOAT);
    assert_int_equal(chosen(NULL, "auto", true),
                     nm_backend_bf16_is_faster("auto") ? NM_PRECISION_BF16 : NM_PRECISION_FLOAT);
    assert_int_equal(chosen(NULL, "base", true), NM_PRECISION_FLOAT);
    assert_int_equal(chosen("int8", "auto", true), NM_PRECISION_INT8);
    assert_int_equal(chosen("float", "auto", true), NM_PRECISION_FLOAT);
    assert_int_equal(chosen("bf16", "base", false), NM_PRECISION_BF16);
}

/* The options of [device]: defaults, an int8 precision that training rejects, the memory limit. */
static void test_device_options(void **state)
{
    (void)state;
    nm_error err;
    nm_options *options = nm_options_create();
    nm_device_options_add(options);
    const nm_device_config *device = nm_options_find(options, "device");
    nm_backend *backend;
    assert_int_equal(device->precision, NM_PRECISION_FLOAT);
    assert_int_equal(nm_device_open(device, &backend, &err), NM_OK);
    assert_true(nm_device_memory_bytes(device, backend) > (size_t)1 << 20);
    assert_int_equal(nm_options_set(options, "device.precision", "int8", NM_ORIGIN_COMMAND, &err), NM_OK);
    assert_int_equal(nm_device_reject_inference(device, "training", &err), NM_USAGE);
    assert_non_null(strstr(err.text, "training"));
    assert_int_equal(nm_options_set(options, "device.precision", "trained", NM_ORIGIN_COMMAND, &err), NM_OK);
    assert_int_equal(nm_device_reject_inference(device, "training", &err), NM_USAGE);
    assert_int_equal(nm_options_set(options, "device.memory_mib", "3", NM_ORIGIN_COMMAND, &err), NM_OK);
    assert_int_equal(nm_device_memory_bytes(device, backend), (size_t)3 << 20);
    nm_backend_free(backend);
    assert_int_equal(nm_options_set(options, "device.threads", "2", NM_ORIGIN_COMMAND, &err), NM_OK);
    assert_int_equal(nm_device_open(device, &backend, &err), NM_OK);
    assert_string_equal(backend->name, "cpu");
    assert_int_equal(backend->threads, 2);
    nm_backend_free(backend);
    assert_int_equal(nm_options_set(options, "device.precision", "tf32", NM_ORIGIN_COMMAND, &err), NM_OK);
    assert_int_equal(nm_device_open(device, &backend, &err), NM_USAGE);
    nm_options_free(options);
}

#if defined(__x86_64__)

/* From now on, the kernel refuses arch_prctl in this process, and with it the permission to use the tiles of
 * AMX. */
static bool refuse_tiles(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

enum { CANNOT_REFUSE = 77 };

/* Without the permission, auto selects another level, and level amx is refused. Returns 0, or the number of
 * the failed check. */
static int check_refused_tiles(void)
{
    nm_error err;
    nm_backend *automatic = NULL, *tiles = NULL;
    if (!refuse_tiles())
        return CANNOT_REFUSE;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        nm_backend_options options = {.name = "cpu", .isa = "auto", .threads = 1, .bf16 = bf16 != 0};
        if (nm_backend_create(&automatic, &options, &err) != NM_OK)
            return 1;
        bool other = strcmp(automatic->isa, "amx") != 0;
        nm_backend_free(automatic);
        if (!other)
            return 2;
        options.isa = "amx";
        if (nm_backend_create(&tiles, &options, &err) != NM_UNSUPPORTED)
            return 3;
    }
    return 0;
}

static void test_refused_tiles(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(check_refused_tiles());
    int result = 0;
    assert_true(child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result));
    if (WEXITSTATUS(result) == CANNOT_REFUSE)
        skip();
    assert_int_equal(WEXITSTATUS(result), 0);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_retaking),
        cmocka_unit_test(test_worker),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_dry_run_counts_the_scratch_memory_of_the_loss),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_fenced_worker),
        cmocka_unit_test(test_device_options),
        cmocka_unit_test(test_precision_of_training),
        cmocka_unit_test(test_describe),
#if defined(__x86_64__)
        cmocka_unit_test(test_refused_tiles),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
