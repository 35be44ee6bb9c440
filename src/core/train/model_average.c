#include "train/model_average.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model_file.h"
#include "norma/norm_type.h"

/* NM_UNSUPPORTED for int8 and bf16 files: the mean of rounded weights is less exact than the rounded mean. */
static nm_status check_float(const nm_safetensors *file, nm_error *err)
{
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        nm_tensor_type type = nm_safetensors_at(file, i)->type;
        if (type == NM_TENSOR_I8 || type == NM_TENSOR_BF16)
            return nm_fail(err, NM_UNSUPPORTED,
                           "%s: %s model cannot be averaged: average the float models, then export the mean",
                           nm_safetensors_path(file), type == NM_TENSOR_I8 ? "an int8" : "a bf16");
    }
    return NM_OK;
}

/* Models that are averaged may differ in options, update, preparation of the data and program version. */
static nm_status check_same_texts(const nm_safetensors *first, const nm_safetensors *other, nm_error *err)
{
    static const char *const varying[] = {"config", "update", "norma", "data.ini", NULL};
    const char *key = nm_safetensors_metadata_difference(first, other, varying);
    if (!key)
        return NM_OK;
    return nm_fail(
        err, NM_MISMATCH,
        "%s: '%s' differs from that of %s: models of different tasks, dictionaries or codes have no "
        "common mean",
        nm_safetensors_path(other), key, nm_safetensors_path(first));
}

/* A section of the text of a configuration: the lines after "[name]" up to the next section. "" if there is
 * none. */
static char *section_text(const char *config, const char *name)
{
    char *heading = nm_format("[%s]\n", name), *text = nm_duplicate("");
    const char *start = config ? strstr(config, heading) : NULL;
    if (start) {
        start += strlen(heading);
        const char *end = strstr(start, "\n[");
        free(text);
        text = nm_format("%.*s", (int)(end ? end - start : (ptrdiff_t)strlen(start)), start);
    }
    free(heading);
    return text;
}

/* The value in a line "key = value ; origin"; false: not such a line. Shortens the line to the key. */
static bool split_line(char *line, char **value)
{
    char *equals = strstr(line, " = "), *next, *origin = NULL;
    if (!equals)
        return false;
    *equals = 0;
    *value = equals + 3;
    for (char *at = *value; (next = strstr(at, " ; ")) != NULL; at = next + 1)
        origin = next;
    if (origin)
        *origin = 0;
    return true;
}

/* Options that only training uses. */
static bool is_of_training(const char *key)
{
    static const char *const prefixes[] = {"preset", "init", "embedding_init", "freeze"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(key, prefixes[i], strlen(prefixes[i])))
            return true;
    return nm_ends_with(key, "dropout");
}

/* Whether the section has the key with another value. Versions of the program differ in their keys. */
static bool has_other_value(const char *section, const char *key, const char *value)
{
    char *copy = nm_duplicate(section), *rest = copy, *line, *found;
    bool differs = false;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (split_line(line, &found) && !strcmp(line, key))
            differs = strcmp(found, value) != 0;
    free(copy);
    return differs;
}

/* Tensors of the same shapes may belong to different functions, such as those with another number of heads or
 * epsilon. */
static nm_status check_same_section(const nm_safetensors *first, const nm_safetensors *other,
                                    const char *name, nm_error *err)
{
    char *section = section_text(nm_safetensors_metadata(first, "config"), name), *rest = section, *line;
    char *others = section_text(nm_safetensors_metadata(other, "config"), name), *value;
    nm_status status = NM_OK;
    while (status == NM_OK && (line = strsep(&rest, "\n")) != NULL)
        if (split_line(line, &value) && !is_of_training(line) && has_other_value(others, line, value))
            status = nm_fail(err, NM_MISMATCH,
                             "%s: %s.%s differs from that of %s: models of different configurations have no "
                             "common mean",
                             nm_safetensors_path(other), name, line, nm_safetensors_path(first));
    NM_FREE(section, others);
    return status;
}

static nm_status check_same_options(const nm_safetensors *first, const nm_safetensors *other, nm_error *err)
{
    NM_TRY(check_same_section(first, other, "model", err));
    NM_TRY(check_same_section(first, other, "norm", err));
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        NM_AUTO_FREE char *name = nm_format("norm.%s", (*type)->name);
        NM_TRY(check_same_section(first, other, name, err));
    }
    return NM_OK;
}

static nm_status check_same(const nm_safetensors *first, const nm_safetensors *other, nm_error *err)
{
    for (size_t i = 0; i < nm_safetensors_count(first); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(first, i), *found;
        NM_TRY(nm_safetensors_expect(other, tensor->name, tensor->type, tensor->count, &found, err));
    }
    return NM_OK;
}

/* The value of a key in a section, heap; NULL: there is none. */
static char *find_value(const nm_safetensors *file, const char *section, const char *key)
{
    char *text = section_text(nm_safetensors_metadata(file, "config"), section), *rest = text, *line, *value;
    char *found = NULL;
    while (!found && (line = strsep(&rest, "\n")) != NULL)
        if (split_line(line, &value) && !strcmp(line, key))
            found = nm_duplicate(value);
    free(text);
    return found;
}

/* The parameters of runs with other seeds are in other orders: their mean is no model. Files of other
 * programs have no seed. */
static nm_status check_same_seed(const nm_safetensors *first, const nm_safetensors *other, nm_error *err)
{
    NM_AUTO_FREE char *seed = find_value(first, "train", "seed"),
                      *others = find_value(other, "train", "seed");
    nm_status status = NM_OK;
    if (seed && others && strcmp(seed, others))
        status = nm_fail(err, NM_MISMATCH,
                         "%s: train.seed is %s, but %s in %s: only models of one run have a common mean",
                         nm_safetensors_path(other), others, seed, nm_safetensors_path(first));
    return status;
}

enum { AVERAGE_BLOCK = 4096 };

/* sum[i] += element first + i of the tensor, whose data may be unaligned in files of other toolkits. */
static void add_elements(const nm_safetensor *tensor, size_t first, size_t n, double *sum)
{
    double f64;
    float f32;
    const char *data = (const char *)tensor->data + first * nm_tensor_type_bytes(tensor->type);
    for (size_t i = 0; i < n && tensor->type == NM_TENSOR_F64; i++) {
        memcpy(&f64, data + i * sizeof f64, sizeof f64);
        sum[i] += f64;
    }
    for (size_t i = 0; i < n && tensor->type == NM_TENSOR_F32; i++) {
        memcpy(&f32, data + i * sizeof f32, sizeof f32);
        sum[i] += (double)f32;
    }
}

/* Sums are in double and in the order of the files. */
static void *average_tensor(nm_safetensors *const *files, int n, const nm_safetensor *like)
{
    void *mean = nm_allocate(like->bytes);
    NM_AUTO_FREE const nm_safetensor **tensors = nm_allocate((size_t)n * sizeof(const nm_safetensor *));
    for (int f = 0; f < n; f++)
        tensors[f] = nm_safetensors_find(files[f], like->name);
    for (size_t first = 0; first < like->count; first += AVERAGE_BLOCK) {
        double sum[AVERAGE_BLOCK] = {0};
        size_t count = like->count - first < AVERAGE_BLOCK ? like->count - first : AVERAGE_BLOCK;
        for (int f = 0; f < n; f++)
            add_elements(tensors[f], first, count, sum);
        for (size_t i = 0; i < count; i++)
            if (like->type == NM_TENSOR_F64)
                ((double *)mean)[first + i] = sum[i] / n;
            else
                ((float *)mean)[first + i] = (float)(sum[i] / n);
    }
    return mean;
}

static int newest_of(nm_safetensors *const *files, int n)
{
    int newest = 0;
    long long best = -1;
    for (int f = 0; f < n; f++) {
        const char *update = nm_safetensors_metadata(files[f], "update");
        long long value = update ? atoll(update) : 0;
        if (value > best) {
            best = value;
            newest = f;
        }
    }
    return newest;
}

static nm_status write_average(nm_safetensors *const *files, int n, const char *out, nm_error *err)
{
    const nm_safetensors *newest = files[newest_of(files, n)];
    nm_safetensors_writer *writer = nm_safetensors_begin();
    NM_AUTO(nm_host_copies_release) nm_host_copies means = {0};
    for (size_t i = 0; i < nm_safetensors_count(newest); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(newest, i);
        const void *data = tensor->data;
        if (tensor->type == NM_TENSOR_F32 || tensor->type == NM_TENSOR_F64) {
            NM_GROW(means.blocks, means.n, means.capacity);
            data = means.blocks[means.n++] = average_tensor(files, n, tensor);
        }
        nm_safetensors_add(writer, tensor->name, tensor->type, tensor->rank, tensor->shape, data);
    }
    nm_safetensors_copy_metadata(writer, newest);
    return nm_safetensors_finish(writer, out, err);
}

nm_status nm_model_average(const char *const *paths, int n, const char *out, nm_error *err)
{
    NM_AUTO_FREE nm_safetensors **files = nm_allocate((size_t)n * sizeof *files);
    nm_status status = n > 0 ? NM_OK : nm_fail(err, NM_USAGE, "no model to average");
    for (int f = 0; f < n && status == NM_OK; f++) {
        status = nm_safetensors_open(&files[f], paths[f], err);
        NM_THEN(status, check_float(files[f], err));
        if (status == NM_OK && !nm_safetensors_metadata(files[f], "task"))
            status = nm_model_file_not_a_model(files[f], err);
        if (status == NM_OK && f > 0)
            status = check_same(files[0], files[f], err);
        if (status == NM_OK && f > 0)
            status = check_same_texts(files[0], files[f], err);
        NM_THEN(status, nm_model_file_check_finite(files[f], err));
        if (status == NM_OK && f > 0 && nm_safetensors_count(files[f]) != nm_safetensors_count(files[0]))
            status = nm_fail(err, NM_MISMATCH, "%s: has tensors that %s lacks", paths[f], paths[0]);
        if (status == NM_OK && f > 0)
            status = check_same_options(files[0], files[f], err);
        if (status == NM_OK && f > 0)
            status = check_same_seed(files[0], files[f], err);
    }
    NM_THEN(status, write_average(files, n, out, err));
    for (int f = 0; f < n; f++)
        nm_safetensors_close(files[f]);
    return status;
}
