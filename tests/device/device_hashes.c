/* Hashes of the results of the device kernels: those of the emulator are in hashes.txt, and a GPU must
 * give the same.
 *     device_hashes [emulated|cuda]      compares; also checks all results against ref in double
 *     device_hashes BACKEND --print      prints all hashes; those of two runs must be equal
 *     device_hashes --write              writes hashes.txt, after a kernel has changed
 * "close": the kernel calls logf, powf, log or cospi, which differ in the last bits between a C library
 * and a GPU; then only the comparison with ref counts. Kernels of ref are not listed. Exit code: 0 equal,
 * 1 not. */
#include "../kernel/kernel_checks.h"

#include "backend/device/launch.h"

static const char *backend_name = "emulated";
static bool write_file, print_only;

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
    static const size sizes[] = {{1, 7, 0}, {2, 16, 3}, {17, 129, 3}, {130, 64, 0}, {3, 600, 0}};
    pair p = {.on = {backend, reference}, .seed = 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        p.what = check->name;
        check->check(&p, sizes[i]);
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

static void test_hashes(void **state)
{
    (void)state;
    nm_backend *reference = create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    nm_backend *backend = create((nm_backend_options){.name = backend_name, .threads = 2, .own_gemm = true});
    FILE *file = fopen(HASHES, write_file ? "w" : "r");
    assert_non_null(file);
    int equal = 0, close = 0, different = 0;
    if (write_file)
        fprintf(file, "# Results of the device kernels on the emulator (device_hashes.c): kernel, hash\n");
    for (int i = 0; i < N_KERNEL_CHECKS; i++) {
        uint64_t expected = 0;
        if (!is_device_kernel(i))
            continue;
        const char *name = kernel_checks[i].name;
        const uint64_t hash = hash_of(backend, reference, &kernel_checks[i]);
        if (print_only)
            printf("%s %016llx\n", name, (unsigned long long)hash);
        if (is_close(name)) {
            close++;
            continue;
        }
        if (write_file)
            fprintf(file, "%s %016llx\n", name, (unsigned long long)hash);
        else if (find_hash(file, name, &expected) && hash == expected)
            equal++;
        else {
            printf("%s: %016llx, expected %016llx\n", name, (unsigned long long)hash,
                   (unsigned long long)expected);
            different++;
        }
    }
    fclose(file);
    printf("%s: %d kernels with the bits of the file, %d close to ref, %d different\n", backend_name, equal,
           close, different);
    nm_backend_free(backend);
    nm_backend_free(reference);
    if (different && !print_only)
        fail_msg("a kernel has changed: device_hashes --write, after its checks; on a GPU: it does not give "
                 "the bits");
}

int main(int argc, char **argv)
{
    write_file = argc > 1 && !strcmp(argv[1], "--write");
    print_only = argc > 2 && !strcmp(argv[2], "--print");
    if (argc > 1 && !write_file)
        backend_name = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hashes)};
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
