/* Mean and standard deviation over all elements of a norm's input and output, and the largest standard
 * deviation of a feature, which shows features with outlier activations. */
#include <math.h>

#include "base/json.h"
#include "probe/instrument.h"

/* An object with the moments of x; null if the tape is exhausted. */
static json_t *moments(const nm_norm_call *call, nm_mat x)
{
    nm_backend *b = call->backend;
    size_t width = (size_t)x.cols, bytes = width * nm_dtype_bytes(b->dtype);
    void *mean = call->alloc(call->allocator, bytes), *square = call->alloc(call->allocator, bytes);
    if (!mean || !square)
        return json_null();
    const nm_feature_norm plain = {.groups = 0};
    NM_CALL(b, feature_moments, .spec = &plain, .x = x, .center = mean, .mean = mean, .square = square);
    NM_AUTO_FREE double *m = nm_vector_values(b, mean, width), *v = nm_vector_values(b, square, width);
    double sum = 0, total = 0, largest = 0;
    for (size_t i = 0; i < width; i++)
        sum += m[i];
    sum /= (double)width;
    for (size_t i = 0; i < width; i++) {
        total += v[i] + (m[i] - sum) * (m[i] - sum);
        largest = fmax(largest, v[i]);
    }
    json_t *object = json_object();
    nm_line_number(object, "mean", sum);
    nm_line_number(object, "deviation", sqrt(total / (double)width));
    nm_line_number(object, "largest_deviation", sqrt(largest));
    return object;
}

static void measure_norm(nm_probe_record *record, const nm_norm_call *call, bool backward)
{
    if (backward)
        return;
    json_t *line = nm_probe_record_line(record, call->norm->site.name);
    nm_json_add(line, "{s:o, s:o, s:i}", "input", moments(call, call->x), "output", moments(call, call->y),
                "rows", call->x.rows);
}

const nm_instrument nm_instrument_moments = {
    .name = "moments",
    .norm = measure_norm,
};
