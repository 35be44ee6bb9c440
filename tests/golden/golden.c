/* norma-golden [--backend NAME] DIR...: runs every golden case in the folders and their subfolders, in double
 * by `ref` and in single precision by `cpu`; with --backend in single precision by this backend, and only
 * cases that compute. Prints one line per failed or skipped case, then "N passed, N failed, N skipped", and
 * how many cases do not compute. Exit code: 0 none failed, 1 a case failed, 2 no case was found or could be
 * run. */
#include "golden.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"

static const golden_family *const families[] = {&golden_norm,        &golden_optim,        &golden_schedule,
                                                &golden_loss,        &golden_attention,    &golden_bpe,
                                                &golden_metric,      &golden_model_family, &golden_decode,
                                                &golden_analysis,    &golden_crf,          &golden_block,
                                                &golden_init,        &golden_conv,         &golden_image_norm,
                                                &golden_image_model, &golden_lm_train,     NULL};

enum { MAX_DEPTH = 32 };

golden_result golden_fail(golden_case *test, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!*test->reason)
        vsnprintf(test->reason, sizeof test->reason, format, args);
    va_end(args);
    return GOLDEN_FAILED;
}

golden_result golden_skip(golden_case *test, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!*test->reason)
        vsnprintf(test->reason, sizeof test->reason, format, args);
    va_end(args);
    return GOLDEN_SKIPPED;
}

static bool read_shape(const json_t *shape, golden_tensor *tensor, size_t *count)
{
    if (!json_is_array(shape) || json_array_size(shape) > sizeof tensor->shape / sizeof *tensor->shape)
        return false;
    *count = 1;
    tensor->rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->rank; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return false;
        tensor->shape[i] = json_integer_value(extent);
        if (__builtin_mul_overflow(*count, (size_t)tensor->shape[i], count))
            return false;
    }
    return true;
}

golden_result golden_read(golden_case *test, const json_t *value, const char *what, golden_tensor *tensor)
{
    const json_t *data = json_object_get(value, "data"), *single = data;
    size_t count;
    *tensor = (golden_tensor){0};
    if (!read_shape(json_object_get(value, "shape"), tensor, &count))
        return golden_fail(test, "%s: no tensor", what);
    bool scalar = json_is_number(data) && tensor->rank == 0; /* shape [] with a bare number */
    if (!scalar && (!json_is_array(data) || json_array_size(data) != count))
        return golden_fail(test, "%s: shape and data disagree", what);
    tensor->data = nm_allocate(count * sizeof *tensor->data);
    tensor->count = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *number = scalar ? single : json_array_get(data, i);
        if (!json_is_number(number)) {
            golden_release(tensor);
            return golden_fail(test, "%s: element %zu is no number", what, i);
        }
        tensor->data[i] = json_number_value(number);
    }
    return GOLDEN_PASSED;
}

void golden_release(golden_tensor *tensor)
{
    free(tensor->data);
    *tensor = (golden_tensor){0};
}

golden_result golden_counter(golden_case *test, const json_t *value, const char *what, int64_t *counter)
{
    const json_t *number = value, *data = json_object_get(value, "data");
    if (data)
        number = json_is_array(data) && json_array_size(data) == 1 ? json_array_get(data, 0) : data;
    double count = json_number_value(number);
    if (!json_is_number(number) || !(fabs(count) < 1e15) || count != floor(count))
        return golden_fail(test, "%s: not an integer", what);
    *counter = (int64_t)count;
    return GOLDEN_PASSED;
}

void *golden_reals(const golden_case *test, const double *values, size_t count)
{
    size_t bytes = (count * nm_dtype_bytes(test->backend->dtype) + 64) / 64 * 64;
    void *reals = aligned_alloc(64, bytes);
    NM_ASSERT(reals != NULL);
    memset(reals, 0, bytes);
    for (size_t i = 0; values && i < count; i++)
        if (test->single)
            ((float *)reals)[i] = (float)values[i];
        else
            ((double *)reals)[i] = values[i];
    return reals;
}

double golden_real(const golden_case *test, const void *values, size_t index)
{
    return test->single ? (double)((const float *)values)[index] : ((const double *)values)[index];
}

golden_result golden_compare(golden_case *test, const char *what, const void *got, const double *want,
                             size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        double a = golden_real(test, got, i), b = want[i];
        if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
            return golden_fail(test, "%s[%zu]: got %.10g, expected %.10g", what, i, a, b);
    }
    return GOLDEN_PASSED;
}

double golden_number(const golden_case *test, const char *key, double otherwise)
{
    const json_t *value = json_object_get(test->config, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

int32_t golden_whole(const golden_case *test, const char *key, int32_t otherwise)
{
    double value = golden_number(test, key, otherwise);
    return value >= INT32_MAX ? INT32_MAX : value <= -INT32_MAX ? -INT32_MAX : (int32_t)value;
}

const char *golden_text(const golden_case *test, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(test->config, key));
    return text ? text : otherwise;
}

bool golden_flag(const golden_case *test, const char *key)
{
    const json_t *value = json_object_get(test->config, key);
    return json_is_true(value) || (json_is_number(value) && json_number_value(value) != 0);
}

golden_result golden_set(golden_case *test, nm_options *options, const char *path, const char *value)
{
    nm_error err = {0};
    if (nm_options_set(options, path, value, NM_ORIGIN_COMMAND, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    return GOLDEN_PASSED;
}

golden_result golden_set_number(golden_case *test, nm_options *options, const char *path, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return golden_set(test, options, path, text);
}

typedef struct totals {
    int counts[GOLDEN_LEFT_OUT + 1]; /* by golden_result */
    nm_backend *backends[2];         /* in double, NULL: not run; in single precision */
} totals;

static const char *text_of(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text ? text : "";
}

static const golden_family *find_family(const char *name)
{
    for (const golden_family *const *family = families; *family; family++)
        if (!strcmp((*family)->name, name))
            return *family;
    return NULL;
}

/* In double, then in single precision unless the family does not compute; the result is the first that did
 * not pass. */
static golden_result run_family(const golden_family *family, golden_case *test, const totals *all)
{
    static const double tolerances[2][2] = {{1e-9, 1e-9}, {2e-4, 2e-3}};
    if (!family->computes)
        return all->backends[0] ? family->run(test) : GOLDEN_LEFT_OUT;
    for (int single = !all->backends[0]; single < 2; single++) {
        test->single = single;
        test->backend = all->backends[single];
        test->value_tolerance = tolerances[single][0];
        test->gradient_tolerance = tolerances[single][1];
        GOLDEN_TRY(family->run(test));
    }
    return GOLDEN_PASSED;
}

static golden_result run_root(const json_t *root, golden_case *test, const totals *all)
{
    if (strcmp(text_of(root, "format"), "tnorm-golden-1"))
        return golden_skip(test, "not of the format tnorm-golden-1");
    const char *name = text_of(root, "family");
    const golden_family *family = find_family(name);
    test->root = root;
    test->config = json_object_get(root, "config");
    test->method = text_of(root, "method");
    test->variant = text_of(root, "variant");
    return family ? run_family(family, test, all) : golden_skip(test, "family '%.100s' has no runner", name);
}

static void run_file(const char *path, totals *all)
{
    static const char *const words[] = {"pass", "FAIL", "skip"};
    json_error_t cause;
    golden_case test = {.path = path};
    json_t *root = json_load_file(path, 0, &cause);
    golden_result result = root ? run_root(root, &test, all)
                                : golden_fail(&test, "not JSON: line %d: %s", cause.line, cause.text);
    all->counts[result]++;
    if (result == GOLDEN_FAILED || result == GOLDEN_SKIPPED)
        printf("%s %s%s: %s\n", words[result], path,
               result == GOLDEN_FAILED && test.backend ? test.single ? " (single)" : " (double)" : "",
               test.reason);
    json_decref(root);
}

static bool ends_in_json(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && !strcmp(name + length - 5, ".json");
}

static bool run_path(const char *path, int depth, totals *all);

static bool run_folder(const char *path, int depth, totals *all)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) {
        fprintf(stderr, "norma-golden: %s: cannot read this folder\n", path);
        return false;
    }
    bool readable = true;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') {
            char *inner = nm_format("%s/%s", path, entries[i]->d_name);
            readable &= run_path(inner, depth + 1, all);
            free(inner);
        }
        free(entries[i]);
    }
    free(entries);
    return readable;
}

static bool run_path(const char *path, int depth, totals *all)
{
    struct stat info;
    if (stat(path, &info)) {
        fprintf(stderr, "norma-golden: %s: not found\n", path);
        return false;
    }
    if (S_ISDIR(info.st_mode))
        return depth > MAX_DEPTH || run_folder(path, depth, all);
    if (S_ISREG(info.st_mode) && ends_in_json(path))
        run_file(path, all);
    return true;
}

/* name NULL: in both precisions */
static bool open_backends(totals *all, const char *name)
{
    const nm_backend_options options[2] = {
        {.name = "ref", .dtype = NM_F64, .threads = 1},
        {.name = name ? name : "cpu", .dtype = NM_F32, .isa = "auto", .threads = 1}};
    nm_error err = {0};
    for (int i = name != NULL; i < 2; i++)
        if (nm_backend_create(&all->backends[i], &options[i], &err) != NM_OK) {
            fprintf(stderr, "norma-golden: %s\n", err.text);
            return false;
        }
    return true;
}

int main(int argc, char **argv)
{
    totals all = {0};
    const bool named = argc > 2 && !strcmp(argv[1], "--backend");
    const int first = named ? 3 : 1;
    bool usable = argc > first && open_backends(&all, named ? argv[2] : NULL);
    if (argc <= first)
        fprintf(stderr, "usage: norma-golden [--backend NAME] DIR...\n");
    for (int i = first; usable && i < argc; i++)
        usable = run_path(argv[i], 0, &all);
    nm_backend_free(all.backends[0]);
    nm_backend_free(all.backends[1]);
    int found = all.counts[GOLDEN_PASSED] + all.counts[GOLDEN_FAILED] + all.counts[GOLDEN_SKIPPED];
    if (usable && !found)
        fprintf(stderr, "norma-golden: no cases found\n");
    if (all.counts[GOLDEN_LEFT_OUT])
        printf("%d left out, which do not compute\n", all.counts[GOLDEN_LEFT_OUT]);
    printf("%d passed, %d failed, %d skipped\n", all.counts[GOLDEN_PASSED], all.counts[GOLDEN_FAILED],
           all.counts[GOLDEN_SKIPPED]);
    return all.counts[GOLDEN_FAILED] ? 1 : usable && found ? 0 : 2;
}
