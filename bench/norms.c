/* Forward and backward of every norm type as a standalone layer: time, least memory traffic (forward: read
 * x, write y; backward: read x and dy, write dx), fraction of the rate of a copy of that size, speedup
 * over the reference kernels, and time relative to LayerNorm. */
#include <string.h>

#include "bench.h"

enum { HEADS = 8, MOST = 41 };

static const struct {
    int32_t rows, width;
} norm_shapes[] = {{4096, 512}, {2048, 256}, {4096, 1024}, {16384, 512}, {16384, 1024}};

/* Settings without warm-up, which is the state during most of the training. */
static const char *settings_of(const nm_norm_type *type)
{
    for (const nm_option *option = type->options; option && option->name; option++)
        if (!strcmp(option->name, "warmup"))
            return "warmup=0";
    return NULL;
}

typedef struct pair {
    double forward, backward; /* seconds */
} pair;

static pair time_norm(const bench *on, nm_backend *backend, const nm_norm_type *type, int32_t rows,
                      int32_t width, double budget)
{
    nm_norm *norm;
    nm_error err;
    const nm_norm_site place = {.name = "bench", .width = width, .groups = HEADS};
    if (nm_norm_create(&norm, backend, type->name, settings_of(type), &place, &err) != NM_OK)
        bench_fail("%s", err.text);
    double times[MOST];
    pair taken = {0};
    for (int back = 0; back < 2; back++) { /* forward alone; then backward, each after a forward */
        double begin = bench_now();
        int n = -1; /* the first call allocates memory */
        for (; n < MOST && (n < 5 || bench_now() - begin < budget / 2); n++) {
            double start = bench_now();
            nm_status status = nm_norm_forward(norm, rows, on->data[0], on->data[3], &err);
            if (back && status == NM_OK) {
                bench_wait(on);
                start = bench_now();
                status = nm_norm_backward(norm, on->data[5], on->data[6], &err);
            }
            if (status != NM_OK)
                bench_fail("%s", err.text);
            bench_wait(on);
            if (n >= 0)
                times[n] = bench_now() - start;
        }
        *(back ? &taken.backward : &taken.forward) = bench_median(times, n);
    }
    nm_norm_free(norm);
    return taken;
}

static json_t *direction(double seconds, double bytes, const bench_copy *copy, double plain, double layer)
{
    double rate = 1e-9 * bytes / seconds;
    json_t *one = json_pack("{sf sf sf sf sf}", "microseconds", 1e6 * seconds, "bytes", bytes, "rate", rate,
                            "of_copy", rate / copy->ceiling, "times_ref", plain / seconds);
    if (layer > 0)
        json_object_set_new(one, "layernorms", json_real(seconds / layer));
    return one;
}

static json_t *measure(const bench *on, const nm_norm_type *type, int32_t rows, int32_t width,
                       const bench_copy copy[2], pair layer, pair *taken)
{
    const int32_t fewer = rows < 16 ? 1 : rows / 16; /* for the slow reference kernels */
    const double times = (double)rows / fewer;
    bool quick = on->options->quick;
    double bytes = (double)rows * width * sizeof(float);
    *taken = time_norm(on, on->cpu, type, rows, width, quick ? 0.02 : 0.4);
    pair plain = {0};
    if (!on->device)
        plain = time_norm(on, on->ref, type, fewer, width, 0);
    return json_pack("{ss s[ii] so so}", "norm", type->name, "shape", rows, width, "forward",
                     direction(taken->forward, 2 * bytes, &copy[0], plain.forward * times, layer.forward),
                     "backward",
                     direction(taken->backward, 3 * bytes, &copy[1], plain.backward * times, layer.backward));
}

/* LayerNorm is measured first: the other times are relative to it. */
static void measure_shape(const bench *on, int32_t rows, int32_t width, json_t *out)
{
    double bytes = (double)rows * width * sizeof(float);
    const bench_copy copy[2] = {bench_copy_ceiling(on, 2 * bytes), bench_copy_ceiling(on, 3 * bytes)};
    pair layer = {0}, taken;
    const nm_norm_type *first = nm_norm_type_find("layer");
    json_t *one = measure(on, first, rows, width, copy, layer, &layer);
    if (strstr(first->name, on->options->match))
        json_array_append_new(out, one);
    else
        json_decref(one);
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        if (*type != first && strcmp((*type)->name, "none") && strcmp((*type)->name, "fix") &&
            strstr((*type)->name, on->options->match))
            json_array_append_new(out, measure(on, *type, rows, width, copy, layer, &taken));
}

json_t *bench_norms(const bench *on)
{
    json_t *out = json_array();
    size_t n = on->options->quick ? 1 : sizeof norm_shapes / sizeof *norm_shapes;
    for (size_t i = 0; i < n; i++) {
        const int32_t rows = norm_shapes[i].rows, most = on->options->rows;
        measure_shape(on, rows < most ? rows : most, norm_shapes[i].width, out);
    }
    return out;
}
