/* Every kernel on every CPU level against the reference kernel in double, at odd sizes, with gaps between
 * rows and guard zones. Bitwise identical for every number of threads, and at all levels except base.
 * Fenced `ref` in float is checked in the same way. */
#include "kernel_checks.h"
#include "kernel_levels.h"
#include "support/sanitizer.h"

#include "backend/backend_private.h"
#include "backend/device/launch.h"

static const char *only; /* the kernel to check; NULL: all */
static bool thorough;    /* device kernels at all sizes in all orders of threads */

static bool is_chosen(const kernel_check *row)
{
    return !only || !strcmp(row->name, only);
}

static void run_size(const kernel_check *row, pair *p, const char *level, size z)
{
    char what[128];
    snprintf(what, sizeof what, "%s on %s, %d threads, %d x %d, gap %d", row->name, level,
             (int)p->on[ACTUAL]->threads, (int)z.rows, (int)z.cols, (int)z.gap);
    p->what = what;
    row->check(p, z);
    pair_close(p);
}

static void run_check(const kernel_check *row, pair *p, const char *level)
{
    static const int32_t rows[] = {1, 2, 3, 17, 130}, cols[] = {1, 7, 16, 64, 129, 512};
    for (int r = 0; r < 5; r++)
        for (int c = 0; c < 6; c++)
            run_size(row, p, level, (size){rows[r], cols[c], (r + c) % 2 ? 3 : 0});
}

static void check_level(nm_backend_options options, const char *level)
{
    nm_backend *backend = level_create(options);
    if (!backend)
        skip();
    nm_backend *reference = level_create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    for (int i = 0; i < N_KERNEL_CHECKS; i++) {
        if (!is_chosen(&kernel_checks[i]))
            continue;
        pair p = {.on = {backend, reference}, .seed = 1};
        run_check(&kernel_checks[i], &p, level);
    }
    nm_backend_free(backend);
    nm_backend_free(reference);
}

enum { FEW_FIRST = 1, FEW_END = 3, WIDE = 4 };

/* Runs every kernel at sizes from `first` to before `end`; hashes[i]: results of check i. */
static void hash_results(nm_backend *backend, nm_backend *reference, const char *level, int first, int end,
                         uint64_t *hashes)
{
    for (int i = 0; i < N_KERNEL_CHECKS; i++) {
        if (!is_chosen(&kernel_checks[i]))
            continue;
        pair p = {.on = {backend, reference},
                  .seed = 1,
                  .looser = backend->bf16 ? bf16_tolerance(kernel_checks[i].name) : 1};
        for (int z = first; z < end; z++)
            run_size(&kernel_checks[i], &p, level, hash_sizes[z]);
        hashes[i] = p.hash;
    }
}

/* Fails unless all backends, those of this machine, give bitwise identical results. */
static void check_equal(const nm_backend_options *options, int n)
{
    nm_backend *reference = level_create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    uint64_t expected[N_KERNEL_CHECKS] = {0}, actual[N_KERNEL_CHECKS] = {0};
    for (int k = 0; k < n; k++) {
        nm_backend *backend = level_create(options[k]);
        if (!backend)
            continue;
        hash_results(backend, reference, options[k].isa, 0, N_HASH_SIZES, k ? actual : expected);
        for (int i = 0; k && i < N_KERNEL_CHECKS; i++)
            if (actual[i] != expected[i])
                fail_msg("%s: results with %s, %d threads differ from those with %s, %d threads",
                         kernel_checks[i].name, options[k].isa, (int)options[k].threads, options[0].isa,
                         (int)options[0].threads);
        nm_backend_free(backend);
    }
    nm_backend_free(reference);
}

static void test_threads(void **state)
{
    (void)state;
    const nm_backend_options options[] = {{.name = "cpu", .isa = "auto", .threads = 1},
                                          {.name = "cpu", .isa = "auto", .threads = 2},
                                          {.name = "cpu", .isa = "auto", .threads = 3}};
    check_equal(options, 3);
}

/* Bitwise identical at all levels with FMA. */
static void test_levels(void **state)
{
    (void)state;
#if defined(__aarch64__)
    const nm_backend_options options[] = {{.name = "cpu", .isa = "neon", .threads = 1},
                                          {.name = "cpu", .isa = "dotprod", .threads = 1}};
#else
    const nm_backend_options options[] = {{.name = "cpu", .isa = "avx2", .threads = 1},
                                          {.name = "cpu", .isa = "avx512", .threads = 1},
                                          {.name = "cpu", .isa = "vnni", .threads = 1}};
#endif
    nm_backend *lowest = level_create(options[0]);
    if (!lowest)
        skip();
    nm_backend_free(lowest);
    check_equal(options, sizeof options / sizeof *options);
}

static void test_ref_float_fenced(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "ref", .dtype = NM_F32, .fenced = true}, "ref");
}

static const nm_device_kernel *const device_kernels[] = {
#define K(name) &nm_device_##name,
    NM_DEVICE_KERNELS(K)
#undef K
};
enum { N_DEVICE_KERNELS = sizeof device_kernels / sizeof *device_kernels };

static int64_t count_launches(void)
{
    int64_t n = 0;
    for (int i = 0; i < N_DEVICE_KERNELS; i++)
        n += *device_kernels[i]->launches;
    return n;
}

/* Rows that move bytes or only report a size launch nothing. */
static bool launches(const char *row)
{
    static const char *const plain[] = {"upload", "download", "copy", "zero", "pack"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(plain[i], row))
            return false;
    return true;
}

/* The device kernels, in several orders of the threads of a block, whose results must be bitwise identical:
 * at few sizes, and in float at the others in one order; or at all sizes. Every row launches device
 * kernels. */
static void check_row(int row, nm_backend *reference, bool bf16, int orders)
{
    uint64_t hashes[3][N_KERNEL_CHECKS] = {{0}}, others[N_KERNEL_CHECKS];
    const char *const level = bf16 ? "emulated, bf16" : "emulated";
    const int64_t before = count_launches();
    only = kernel_checks[row].name;
    for (int order = NM_EMULATOR_ASCENDING; order < orders; order++) {
        nm_emulator_set_order((nm_emulator_order)order);
        nm_backend *backend = level_create(
            (nm_backend_options){.name = "emulated", .threads = order == NM_EMULATOR_ASCENDING ? 2 : 1});
        backend->bf16 = bf16;
        if (order == NM_EMULATOR_ASCENDING && !thorough && !bf16) {
            if (!THREAD_SANITIZER)
                hash_results(backend, reference, level, 0, FEW_FIRST, others);
            hash_results(backend, reference, level, THREAD_SANITIZER ? WIDE : FEW_END, N_HASH_SIZES, others);
        }
        if (thorough)
            hash_results(backend, reference, level, 0, N_HASH_SIZES, hashes[order]);
        else
            hash_results(backend, reference, level, FEW_FIRST, FEW_END, hashes[order]);
        nm_backend_free(backend);
        if (hashes[order][row] != hashes[0][row] || !hashes[order][row])
            fail_msg("%s: results depend on the order of threads", only);
    }
    nm_emulator_set_order(NM_EMULATOR_ASCENDING);
    if (launches(only) && count_launches() == before)
        fail_msg("%s launches no device kernel", only);
}

/* All sizes if a row, or "all", is named. Sanitized fibers are slow: one order of the threads, and with the
 * thread sanitizer three sizes. */
static void test_emulated(void **state)
{
    (void)state;
    nm_backend *reference = level_create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    const int orders = ADDRESS_SANITIZER || THREAD_SANITIZER ? 1 : 3;
    const char *const named = only;
    for (int i = 0; i < N_KERNEL_CHECKS; i++) {
        const char *name = kernel_checks[i].name;
        if (named && strcmp(named, name) != 0)
            continue;
        check_row(i, reference, false, orders);
        if (bf16_tolerance(name) > 0)
            check_row(i, reference, true, orders);
    }
    only = named;
    nm_backend_free(reference);
    for (int i = 0; i < N_DEVICE_KERNELS && !only; i++)
        if (*device_kernels[i]->launches == 0)
            fail_msg("no check launches the device kernel %s", device_kernels[i]->name);
}

/* Heads of 600 columns, with other random numbers than above: rounding must not grow with the width. */
static void test_emulated_wide_heads(void **state)
{
    (void)state;
    static const kernel_check rows[] = {{"attention", check_attention},
                                        {"relative_attention", check_relative_attention}};
    pair p = {.on = {level_create((nm_backend_options){.name = "emulated"}),
                     level_create((nm_backend_options){.name = "ref", .dtype = NM_F64})}};
    for (int k = 0; k < 2; k++) {
        p.seed = 1;
        for (int i = 0; i < 5; i++)
            run_size(&rows[k], &p, "emulated", hash_sizes[WIDE]);
    }
    nm_backend_free(p.on[ACTUAL]);
    nm_backend_free(p.on[EXPECTED]);
}

/* Five vectors that are read and written, the results of SIGN and POW, and a guard */
enum { LIST_VECTORS = 5, LIST_SIGN = 5, LIST_POW = 6, LIST_GUARD = 7, LIST_MOST = 1031 };

/* Number k of a list of operations, which read results of earlier ones and overwrite their operands; the five
 * vectors stay positive. */
static nm_vec_args list_operation(int k, int32_t n, float *vectors)
{
    const nm_random_words words = nm_random4(1, NM_RANDOM_TEST, 0, 0, (uint64_t)k);
    const nm_vec_op op = (nm_vec_op)(k % (NM_VEC_POW + 1));
    float *at[4];
    for (int i = 0; i < 4; i++)
        at[i] = vectors + (size_t)(words.w[i] % LIST_VECTORS) * (size_t)n;
    if (op == NM_VEC_SIGN || op == NM_VEC_POW)
        at[3] = vectors + (size_t)(op == NM_VEC_SIGN ? LIST_SIGN : LIST_POW) * (size_t)n;
    if (op == NM_VEC_LINEAR && k > NM_VEC_POW)
        at[1] = NULL;
    return (nm_vec_args){
        .op = op, .n = n, .a = at[0], .b = at[1], .c = at[2], .s = 0.25, .t = 0.5, .out = at[3]};
}

/* Executes the operations in turn by ref in float, or by one launch of the device kernel. */
static void run_list(nm_backend *ref, int count, int32_t n, float *vectors)
{
    struct vec_args list = {.count = count, .n = n};
    for (int k = 0; k < count; k++) {
        const nm_vec_args v = list_operation(k, n, vectors);
        list.list[k] = (struct vec_item){nm_device_address(v.a),
                                         nm_device_address(v.b),
                                         nm_device_address(v.c),
                                         nm_device_address(v.out),
                                         v.s,
                                         v.t,
                                         v.op};
        if (ref)
            ref->k.vec(ref, &v);
    }
    if (!ref)
        nm_emulator_run(&nm_device_vec, nm_device_blocks(n, nm_device_vec.threads), 1, 2, &list);
}

static void fill_list(int32_t n, float *vectors)
{
    for (int32_t i = 0; i < n * LIST_GUARD; i++)
        vectors[i] = 0.5f + (float)nm_random_unit(nm_random4(2, NM_RANDOM_TEST, 0, 0, (uint64_t)i).w[0]);
    for (int32_t i = n * LIST_GUARD; i < n * (LIST_GUARD + 1); i++)
        vectors[i] = PAIR_SENTINEL;
}

/* Consecutive operations on vectors are one launch on a GPU. The results are those of ref in float, bitwise
 * but for powers, in every order of the threads. */
static void test_emulated_vector_lists(void **state)
{
    (void)state;
    static const int32_t lengths[] = {1, 7, 127, 129, LIST_MOST};
    static const int counts[] = {1, 2, 15, VEC_LIST};
    static float expected[LIST_MOST * (LIST_GUARD + 1)], actual[LIST_MOST * (LIST_GUARD + 1)];
    nm_backend *ref = level_create((nm_backend_options){.name = "ref", .dtype = NM_F32});
    for (int i = 0; i < 5 * 4; i++) {
        const int32_t n = lengths[i % 5], powers = n * LIST_POW;
        fill_list(n, expected);
        run_list(ref, counts[i / 5], n, expected);
        for (int order = NM_EMULATOR_ASCENDING; order <= NM_EMULATOR_SHUFFLED; order++) {
            nm_emulator_set_order((nm_emulator_order)order);
            fill_list(n, actual);
            run_list(NULL, counts[i / 5], n, actual);
            for (int32_t k = powers; k < powers + n; k++)
                if (fabsf(actual[k] - expected[k]) <= 4 * FLT_EPSILON * expected[k])
                    actual[k] = expected[k];
            for (int32_t k = 0; k < n * (LIST_GUARD + 1); k++)
                if (memcmp(&actual[k], &expected[k], sizeof *actual) != 0)
                    fail_msg("%d operations on %d numbers: element %d of vector %d is %.9g, expected %.9g",
                             counts[i / 5], (int)n, (int)(k % n), (int)(k / n), (double)actual[k],
                             (double)expected[k]);
        }
    }
    nm_emulator_set_order(NM_EMULATOR_ASCENDING);
    nm_backend_free(ref);
}

/* No row of the backend `emulated` is a row of `ref` or of a level of `cpu`. */
static void test_emulated_rows(void **state)
{
    (void)state;
    static const nm_backend_options hosts[] = {
        {.name = "ref", .dtype = NM_F32}, {.name = "ref", .dtype = NM_F32, .bf16 = true},
        {.name = "ref", .dtype = NM_F64}, {.name = "cpu", .isa = "base"},
        {.name = "cpu", .isa = "avx2"},   {.name = "cpu", .isa = "avx512"},
        {.name = "cpu", .isa = "vnni"},   {.name = "cpu", .isa = "auto", .bf16 = true},
        {.name = "cpu", .isa = "neon"}};
    nm_backend *emulated = level_create((nm_backend_options){.name = "emulated"});
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        nm_backend *host = level_create(hosts[i]);
        if (!host)
            continue;
#define K(kernel)                                                                                            \
    if (emulated->k.kernel == host->k.kernel)                                                                \
        fail_msg("the row " #kernel " of emulated is that of %s", host->name);
        NM_KERNELS(K)
#undef K
        nm_backend_free(host);
    }
    nm_backend_free(emulated);
}

/* A backend that lacks any row cannot be opened. */
static void test_missing_rows(void **state)
{
    (void)state;
    nm_backend *emulated = level_create((nm_backend_options){.name = "emulated"});
    nm_error err;
    assert_int_equal(nm_backend_require_kernels(&emulated->k, "emulated", &err), NM_OK);
#define K(kernel)                                                                                            \
    {                                                                                                        \
        nm_kernels table = emulated->k;                                                                      \
        table.kernel = NULL;                                                                                 \
        assert_int_equal(nm_backend_require_kernels(&table, "emulated", &err), NM_UNSUPPORTED);              \
        assert_string_equal(err.text, "backend emulated lacks the kernel " #kernel);                         \
    }
    NM_KERNELS(K)
#undef K
    nm_backend_free(emulated);
}

static void test_cpu_base(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "base", .threads = 1}, "base");
}

static void test_cpu_avx2(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "avx2", .threads = 1}, "avx2");
}

static void test_cpu_avx512(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "avx512", .threads = 1}, "avx512");
}

static void test_cpu_vnni(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "vnni", .threads = 1}, "vnni");
}

static void test_cpu_neon(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "neon", .threads = 1}, "neon");
}

static void test_cpu_dotprod(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "dotprod", .threads = 1}, "dotprod");
}

/* test_kernels [TEST [KERNEL|all]] */
int main(int argc, char **argv)
{
    thorough = argc > 2;
    only = thorough && strcmp(argv[2], "all") != 0 ? argv[2] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_float_fenced),
        cmocka_unit_test(test_emulated_rows),
        cmocka_unit_test(test_missing_rows),
        cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_cpu_base),
        cmocka_unit_test(test_cpu_avx2),
        cmocka_unit_test(test_cpu_avx512),
        cmocka_unit_test(test_cpu_vnni),
        cmocka_unit_test(test_cpu_neon),
        cmocka_unit_test(test_cpu_dotprod),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_emulated_wide_heads),
        cmocka_unit_test(test_emulated_vector_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
