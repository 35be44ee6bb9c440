/* Hashes of the results of the device kernels: those of the emulator are in hashes.txt, and a GPU must
 * give the same.
 *     device_hashes [emulated|cuda]      compares; also checks all results against ref in double
 *     device_hashes BACKEND --repeat N   runs every kernel N times, which must give one hash
 *     device_hashes --write              writes hashes.txt, after a kernel has changed
 * "close": the kernel calls logf, powf, log or cospi, which differ in the last bits between a C library
 * and a GPU; then only the comparison with ref counts. So it does on a GPU for rows that end in .bf16, whose
 * sums tensor cores may round in another way. Kernels of ref are not listed. DEVICE_CACHE in the
 * environment: folder of the kernels compiled for a GPU. Exit code: 0 equal, 1 not. */
#include "../kernel/kernel_checks.h"

#include "backend/device/launch.h"

static const char *backend_name = "emulated";
static bool write_file;
static int repeats = 1;

static const char *const close_kernels[] = {"random_init", "vec", "softmax_loss",
                                            "log_softmax", "mix", "log_top_k"};

static bool is_close(const char *kernel)
{
    for (size_t i = 0; i < sizeof close_kernels / sizeof *close_kernels; i++)
        if (!strcmp(kernel, close_kernels[i]))
            return true;
    return false;
}

/* Whether a row of the table has kernels of the dialect */
static bool is_device_kernel(int row)
{
    nm_kernels kernels = {0};
    nm_device_fill(&kernels);
    void (*functions[NM_N_KERNELS])(void);
    _Static_assert(sizeof functions == sizeof kernels, "a table of function pointers");
    memcpy(functions, &kernels, sizeof functions);
    return functions[row] != NULL;
}

static uint64_t hash_of(nm_backend *backend, nm_backend *reference, const kernel_check *check)
{
    pair p = {.on = {backend, reference},
              .seed = 1,
              .what = check->name,
              .looser = backend->bf16 ? bf16_tolerance(check->name) : 1};
    for (int i = 0; i < N_HASH_SIZES; i++) {
        check->check(&p, hash_sizes[i]);
        pair_close(&p);
    }
    return p.hash;
}

static nm_backend *create(nm_backend_options options)
{
    nm_backend *backend;
    nm_error err;
    if (nm_backend_create(&backend, &options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

/* The hash of a kernel in the file, or false */
static bool find_hash(FILE *file, const char *kernel, uint64_t *hash)
{
    char line[128], name[64];
    unsigned long long number;
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llx", name, &number) == 2 && !strcmp(name, kernel)) {
            *hash = number;
            return true;
        }
    return false;
}

typedef struct counts {
    int equal, close, different, varying;
} counts;

/* Compares the hash of a row with that of the file, or writes it. */
static void count_row(counts *n, FILE *file, const char *name, uint64_t hash, bool must_equal)
{
    uint64_t expected = 0;
    if (write_file)
        fprintf(file, "%s %016llx\n", name, (unsigned long long)hash);
    if (write_file || (find_hash(file, name, &expected) && hash == expected))
        n->equal++;
    else if (!must_equal)
        n->close++;
    else {
        printf("%s: %016llx, expected %016llx\n", name, (unsigned long long)hash,
               (unsigned long long)expected);
        n->different++;
    }
}

/* Rows in float and, in bf16, those that have other kernels */
static void count_rows(counts *n, FILE *file, nm_backend *backend, nm_backend *reference)
{
    for (int i = 0; i < N_KERNEL_CHECKS; i++) {
        const kernel_check *check = &kernel_checks[i];
        char name[64];
        if (!is_device_kernel(i) || (backend->bf16 && !(bf16_tolerance(check->name) > 0)))
            continue;
        snprintf(name, sizeof name, "%s%s", check->name, backend->bf16 ? ".bf16" : "");
        const uint64_t hash = hash_of(backend, reference, check);
        for (int k = 1; k < repeats; k++)
            if (hash_of(backend, reference, check) != hash) {
                printf("%s: run %d has other bits\n", name, k + 1);
                n->varying++;
                break;
            }
        if (is_close(check->name))
            n->close++;
        else
            count_row(n, file, name, hash, !backend->bf16 || !strcmp(backend_name, "emulated"));
    }
}

static void test_hashes(void **state)
{
    (void)state;
    nm_backend *reference = create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    nm_backend *backend = create((nm_backend_options){
        .name = backend_name, .threads = 2, .own_gemm = true, .cache = getenv("DEVICE_CACHE")});
    FILE *file = fopen(HASHES, write_file ? "w" : "r");
    counts n = {0};
    assert_non_null(file);
    if (write_file)
        fprintf(file, "# Results of the device kernels on the emulator (device_hashes.c): kernel, hash\n");
    for (int bf16 = 0; bf16 < 2; bf16++) {
        backend->bf16 = bf16;
        count_rows(&n, file, backend, reference);
    }
    fclose(file);
    printf("%s, %d runs: %d rows with the bits of the file, %d close to ref, %d different, %d varying\n",
           backend_name, repeats, n.equal, n.close, n.different, n.varying);
    nm_backend_free(backend);
    nm_backend_free(reference);
    if (n.different || n.varying)
        fail_msg("a kernel has changed: device_hashes --write, after its checks; on a GPU: it does not give "
                 "the bits");
}

int main(int argc, char **argv)
{
    write_file = argc > 1 && !strcmp(argv[1], "--write");
    if (argc > 1 && !write_file)
        backend_name = argv[1];
    if (argc > 3 && !strcmp(argv[2], "--repeat"))
        repeats = atoi(argv[3]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hashes)};
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
