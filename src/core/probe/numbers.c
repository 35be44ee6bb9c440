#include "base/memory.h"
#include "probe/numbers.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double nm_l2_norm(const double *values, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += values[i] * values[i];
    return sqrt(square);
}

double nm_quantile(const double *sorted, size_t n, double q)
{
    double position = q * (double)(n - 1);
    size_t below = (size_t)position;
    return below + 1 < n ? sorted[below] + (position - (double)below) * (sorted[below + 1] - sorted[below])
                         : sorted[n - 1];
}

const void *nm_call_stat(const nm_norm_call *call, const char *name, int32_t length)
{
    for (int i = 0; i < call->n_published; i++)
        if (!strcmp(call->published[i].name, name))
            return call->published[i].length == length ? call->published[i].data : NULL;
    return NULL;
}

void *nm_call_row_scale(const nm_norm_call *call, int32_t *groups)
{
    *groups = 0;
    for (int i = 0; i < call->n_published; i++)
        if (!strcmp(call->published[i].name, "row_scale") && call->x.rows > 0) {
            *groups = call->published[i].length / call->x.rows;
            return call->published[i].data;
        }
    return NULL;
}

int nm_call_pairs(const nm_norm_call *call, nm_call_pair pairs[NM_CALL_MAX_PAIRS])
{
    static const struct {
        const char *quantity, *batch, *running;
        bool root;
    } known[] = {{"mean", "batch_mean", "running_mean", false},
                 {"variance", "batch_var", "running_var", false},
                 {"variance", "batch_var", "running_std", true},
                 {"quadratic_mean", "batch_square", "running_phi", false},
                 {"quadratic_mean", "batch_square", "running_var", false}};
    int n = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known && n < NM_CALL_MAX_PAIRS; i++) {
        const void *batch = nm_call_stat(call, known[i].batch, call->x.cols),
                   *running = nm_call_stat(call, known[i].running, call->x.cols);
        if (batch && running)
            pairs[n++] = (nm_call_pair){known[i].quantity, batch, running, known[i].root};
    }
    return n;
}

double *nm_call_weight(const nm_norm_call *call)
{
    nm_backend *b = call->backend;
    const nm_norm *norm = call->norm;
    int32_t width = call->x.cols;
    const void *weight = nm_call_stat(call, "gain", width), *r = nm_call_stat(call, "r", width);
    bool learned = norm->shape.n_params && norm->shape.params[0].length == width;
    double *out = weight    ? nm_vector_values(b, weight, (size_t)width)
                  : learned ? nm_vector_values(b, norm->params[0], (size_t)width)
                            : nm_allocate((size_t)width * sizeof *out);
    for (int32_t i = 0; i < width && !weight && !learned; i++)
        out[i] = 1;
    if (weight || !r)
        return out;
    NM_AUTO_FREE double *factor = nm_vector_values(b, r, (size_t)width);
    for (int32_t i = 0; i < width; i++)
        out[i] *= factor[i];
    return out;
}

bool nm_model_option_is(const nm_model *model, const char *path, const char *value)
{
    NM_AUTO_FREE char *text = nm_options_get(model->options, path);
    return text && !strcmp(text, value);
}

nm_site nm_site_parse(const char *name)
{
    nm_site site = {.layer = -1};
    char copy[128], *rest = copy;
    snprintf(copy, sizeof copy, "%s", name);
    if (nm_ends_with(copy, ".norm"))
        copy[strlen(copy) - strlen(".norm")] = 0;
    for (char *part; (part = strsep(&rest, ".")) != NULL;) {
        if (isdigit((unsigned char)*part) && site.layer < 0)
            site.layer = atoi(part);
        else if (!*site.stack && rest)
            snprintf(site.stack, sizeof site.stack, "%.31s", part);
        else
            snprintf(site.sublayer, sizeof site.sublayer, "%.63s", part);
    }
    return site;
}

void nm_group_name(const char *parameter, char *group, size_t bytes)
{
    snprintf(group, bytes, "%s", parameter);
    for (int part = 0; part < 2; part++) {
        char *dot = strrchr(group, '.');
        if (dot)
            *dot = 0;
    }
}
