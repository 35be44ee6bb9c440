#include "report/event_code.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#ifndef NORMA_PROTOBUF

bool nm_event_code_available(void)
{
    return false;
}

uint8_t *nm_event_code_version(double time, size_t *bytes)
{
    (void)time;
    *bytes = 0;
    return NULL;
}

uint8_t *nm_event_code_line(const nm_report_run *line, double start, size_t *bytes)
{
    (void)line;
    (void)start;
    *bytes = 0;
    return NULL;
}

#else

#include "event.pb-c.h"

enum { STRINGS = 7 }; /* TensorFlow's DT_STRING */

bool nm_event_code_available(void)
{
    return true;
}

static uint8_t *pack(const Norma__Event *event, size_t *bytes)
{
    *bytes = norma__event__get_packed_size(event);
    uint8_t *data = nm_allocate(*bytes + 1);
    norma__event__pack(event, data);
    return data;
}

uint8_t *nm_event_code_version(double time, size_t *bytes)
{
    static char version[] = "brain.Event:2";
    Norma__Event event = NORMA__EVENT__INIT;
    event.wall_time = time;
    event.what_case = NORMA__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    return pack(&event, bytes);
}

typedef struct values { /* the values of one summary; the list and everything it points to are heap memory */
    Norma__Value **list;
    size_t n, capacity;
} values;

static Norma__Value *add_value(values *v, char *tag)
{
    Norma__Value *value = nm_allocate(sizeof *value);
    norma__value__init(value);
    value->tag = tag;
    NM_APPEND(v->list, v->n, v->capacity, value);
    return value;
}

static void add_scalar(values *v, const nm_series *series)
{
    Norma__Value *value = add_value(v, nm_duplicate(series->tag));
    value->value_case = NORMA__VALUE__VALUE_SIMPLE_VALUE;
    value->simple_value = (float)series->value[series->n - 1];
}

static double sibling_value(const nm_report_run *line, const char *tag, size_t stem, const char *end)
{
    NM_AUTO_FREE char *name = nm_format("%.*s%s", (int)stem, tag, end);
    return nm_report_run_last(line, name);
}

/* Adds a histogram with bins of equal width from low to high; its sums use the centers of the bins. */
static void add_histogram(values *v, const nm_report_run *line, const nm_vector *counts)
{
    size_t stem = strlen(counts->tag) - strlen("counts");
    double low = sibling_value(line, counts->tag, stem, "low"),
           high = sibling_value(line, counts->tag, stem, "high");
    if (!isfinite(low) || !isfinite(high))
        return;
    Norma__Value *value = add_value(v, nm_format("%.*s", (int)stem - 1, counts->tag));
    Norma__Histogram *h = nm_allocate(sizeof *h);
    norma__histogram__init(h);
    h->min = low;
    h->max = high;
    h->n_bucket = h->n_bucket_limit = counts->n;
    h->bucket = nm_allocate((counts->n + 1) * sizeof *h->bucket);
    h->bucket_limit = nm_allocate((counts->n + 1) * sizeof *h->bucket_limit);
    for (size_t i = 0; i < counts->n; i++) {
        double count = isfinite(counts->values[i]) ? counts->values[i] : 0;
        double middle = low + (high - low) * ((double)i + 0.5) / (double)counts->n;
        h->bucket[i] = count;
        h->bucket_limit[i] = low + (high - low) * ((double)i + 1) / (double)counts->n;
        h->num += count;
        h->sum += count * middle;
        h->sum_squares += count * middle * middle;
    }
    value->value_case = NORMA__VALUE__VALUE_HISTO;
    value->histo = h;
}

static void add_text(values *v, const nm_text *text)
{
    static char plugin_name[] = "text";
    Norma__Value *value = add_value(v, nm_duplicate(text->key));
    Norma__Tensor *tensor = nm_allocate(sizeof *tensor);
    norma__tensor__init(tensor);
    tensor->dtype = STRINGS;
    tensor->tensor_shape = nm_allocate(sizeof *tensor->tensor_shape);
    norma__shape__init(tensor->tensor_shape);
    tensor->n_string_val = 1;
    tensor->string_val = nm_allocate(sizeof *tensor->string_val);
    tensor->string_val[0].data = (uint8_t *)nm_duplicate(text->value);
    tensor->string_val[0].len = strlen(text->value);
    value->metadata = nm_allocate(sizeof *value->metadata);
    norma__metadata__init(value->metadata);
    value->metadata->plugin_data = nm_allocate(sizeof *value->metadata->plugin_data);
    norma__plugin__init(value->metadata->plugin_data);
    value->metadata->plugin_data->plugin_name = plugin_name;
    value->value_case = NORMA__VALUE__VALUE_TENSOR;
    value->tensor = tensor;
}

static void release_values(values *v)
{
    for (size_t i = 0; i < v->n; i++) {
        NM_AUTO_FREE Norma__Value *value = v->list[i];
        if (value->value_case == NORMA__VALUE__VALUE_HISTO) {
            NM_FREE(value->histo->bucket, value->histo->bucket_limit, value->histo);
        } else if (value->value_case == NORMA__VALUE__VALUE_TENSOR) {
            NM_FREE(value->tensor->string_val[0].data, value->tensor->string_val, value->tensor->tensor_shape,
                    value->tensor, value->metadata->plugin_data, value->metadata);
        }
        free(value->tag);
    }
    free(v->list);
}

/* Strings with other keys are labels of numbers in the log. */
static bool is_text_event(const char *key)
{
    return !strncmp(key, "samples/", 8) || !strncmp(key, "start/", 6);
}

uint8_t *nm_event_code_line(const nm_report_run *line, double start, size_t *bytes)
{
    values v = {0};
    double update = 0;
    for (size_t i = 0; i < line->n_series; i++) {
        update = line->series[i].update[line->series[i].n - 1];
        add_scalar(&v, &line->series[i]);
    }
    for (size_t i = 0; i < line->n_vectors; i++)
        if (nm_ends_with(line->vectors[i].tag, ".counts"))
            add_histogram(&v, line, &line->vectors[i]);
    for (size_t i = 0; i < line->n_texts; i++) {
        if (!is_text_event(line->texts[i].key))
            continue;
        update = line->texts[i].update;
        add_text(&v, &line->texts[i]);
    }
    uint8_t *data = NULL;
    if (v.n) {
        Norma__Event event = NORMA__EVENT__INIT;
        Norma__Summary summary = NORMA__SUMMARY__INIT;
        event.wall_time = start + line->seconds;
        event.step = fabs(update) < 1e15 ? (int64_t)update : 0;
        event.what_case = NORMA__EVENT__WHAT_SUMMARY;
        event.summary = &summary;
        summary.n_value = v.n;
        summary.value = v.list;
        data = pack(&event, bytes);
    }
    release_values(&v);
    return data;
}

#endif
