/* The registered normalization types; options, initialization and running state of all of them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/edit_distance.h"
#include "norm/types.h"

#define TABLE_ENTRY(name) &nm_norm_##name,
const nm_norm_type *const nm_norm_types[] = {NM_NORM_TYPES(TABLE_ENTRY) NULL};
#undef TABLE_ENTRY

const nm_norm_type *nm_norm_type_find(const char *name)
{
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        if (!strcmp((*type)->name, name))
            return *type;
    return NULL;
}

/* clang-format off */
static const nm_option norm_options[] = {
    NM_OPTION(nm_norm_config, groups, "0", 0, 65536,
        "Number of groups of features of GroupNorm and of group scaling; 0: the number of attention heads."),
    NM_OPTION(nm_norm_config, at, "", 0, 0,
        "Normalization of single sites, SITES=NORM, comma-separated, for example "
        "enc.0-2=batch,dec.1.self=rms; empty: none."),
    NM_CHOICE(nm_norm_config, statistics, "shard", NM_NORM_STATISTICS,
              "Rows that batch statistics are computed on with train.shards > 1: those of each shard, or of "
                  "all shards of the update "
              "(synchronized batch statistics)."),
    NM_CHOICE(nm_norm_config, state, "update", NM_NORM_STATE_MODES,
              "When running statistics, counters and warm-ups advance with train.shards > 1: once per "
                  "update, with the statistics of "
              "all its shards; with every shard, one after another, as with accumulation in the released "
                  "code; or separately for "
              "every shard number, like the workers of the released code (the model file has the state of "
                  "worker 0)."),
    {0}};
/* clang-format on */

void nm_norm_options_add(nm_options *options)
{
    nm_options_add(options, "norm", norm_options, NULL, sizeof(nm_norm_config));
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        char section[64];
        snprintf(section, sizeof section, "norm.%s", (*type)->name);
        nm_options_add(options, section, (*type)->options, (*type)->presets, (*type)->config_size);
    }
}

/* The letters and digits of a name in lower case, without "norm" or "normalization" and a number of
 * dimensions at its end: "LayerNorm" and "layer_norm" are "layer", "BatchNorm1d" is "batch". */
static void reduce_name(const char *name, char reduced[32])
{
    static const char *const endings[] = {"normalization", "norm"};
    size_t n = 0;
    for (; *name && n < 31; name++)
        if (isalnum((unsigned char)*name))
            reduced[n++] = (char)tolower((unsigned char)*name);
    if (n > 2 && reduced[n - 1] == 'd' && isdigit((unsigned char)reduced[n - 2]))
        n -= 2;
    reduced[n] = '\0';
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t length = strlen(endings[i]);
        if (n > length && !strcmp(reduced + n - length, endings[i]))
            reduced[n -= length] = '\0';
    }
}

/* The type whose name or title is similar to the name; NULL: none. */
static const nm_norm_type *similar_type(const char *name)
{
    char given[32], own[32], title[32];
    const nm_norm_type *best = NULL;
    int least = NM_EDIT_DISTANCE_BYTES;
    reduce_name(name, given);
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        reduce_name((*type)->name, own);
        reduce_name((*type)->title, title);
        int a = nm_edit_distance(given, own), b = nm_edit_distance(given, title), d = a < b ? a : b;
        if (d < least && nm_edit_distance_is_near(d, given)) {
            least = d;
            best = *type;
        }
    }
    return best;
}

nm_status nm_norm_unknown(const char *name, nm_error *err)
{
    char known[512] = "";
    size_t length = 0;
    for (const nm_norm_type *const *type = nm_norm_types; *type && length < sizeof known; type++)
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "",
                                   (*type)->name);
    const nm_norm_type *similar = similar_type(name);
    if (similar)
        return nm_fail(err, NM_USAGE, "unknown norm '%.100s'; the most similar one is %s (%s); available: %s",
                       name, similar->name, similar->title, known);
    return nm_fail(err, NM_USAGE, "unknown norm '%.100s'; available: %s", name, known);
}

nm_status nm_norm_prepare(nm_norm *norm, const char *type, const void *config, const nm_norm_site *site,
                          nm_error *err)
{
    *norm = (nm_norm){.type = nm_norm_type_find(type), .config = config, .site = *site};
    if (!norm->type)
        return nm_norm_unknown(type, err);
    if (site->width < 1)
        return nm_fail(err, NM_USAGE, "norm '%s': %d features", site->name, site->width);
    if (norm->type->check)
        NM_TRY(norm->type->check(config, site, err));
    if (norm->type->shape)
        norm->type->shape(config, site, &norm->shape);
    return NM_OK;
}

static void fill(nm_backend *backend, void *vector, int32_t length, double value)
{
    NM_CALL(backend, vec, .op = NM_VEC_FILL, .n = length, .out = vector, .s = value);
}

void nm_norm_initialize(nm_norm *norm, nm_backend *backend)
{
    const nm_norm_shape *shape = &norm->shape;
    for (int i = 0; i < shape->n_params; i++)
        fill(backend, norm->params[i], shape->params[i].length, shape->params[i].initial);
    for (int i = 0; i < shape->n_state; i++)
        fill(backend, norm->state[i], shape->state[i].length, shape->state[i].initial);
    memset(norm->counters, 0, sizeof norm->counters);
    nm_norm_discard_statistics(norm);
}

void nm_norm_update_state(nm_norm *norm, nm_backend *backend, double grad_scale)
{
    nm_norm_call call = {.backend = backend, .norm = norm, .grad_scale = grad_scale};
    if (norm->type->update_state)
        norm->type->update_state(&call);
    nm_norm_discard_statistics(norm);
}

/* The formulas of nm_norm_collect and nm_norm_collect_moments. */
void nm_norm_combine(nm_backend *backend, int32_t width, int n, const nm_norm_combination *combinations,
                     void *const *vectors, const double *vector_rows, void *const *earlier,
                     const double *rows)
{
#define VEC(operation, to, ...)                                                                              \
    NM_CALL(backend, vec, .op = NM_VEC_##operation, .n = width, .out = (to), __VA_ARGS__)
    for (int i = n - 1; i >= 0; i--) { /* a variance before its mean */
        void *own = vectors[i];
        double own_rows = vector_rows[i], total = rows[i] + own_rows, w = own_rows / total;
        if (rows[i] == 0)
            continue;
        if (own_rows == 0) {
            VEC(COPY, own, .a = earlier[i]);
        } else if (combinations[i] == NM_STATISTIC_SUM) {
            VEC(LINEAR, own, .a = earlier[i], .b = own, .s = 1, .t = 1);
        } else {
            VEC(LINEAR, own, .a = earlier[i], .b = own, .s = rows[i] / total, .t = w);
        }
        if (combinations[i] == NM_STATISTIC_VARIANCE && own_rows > 0) {
            void *difference = earlier[i]; /* no longer needed */
            VEC(LINEAR, difference, .a = vectors[i - 1], .b = earlier[i - 1], .s = 1, .t = -1);
            VEC(MUL_ADD, own, .a = difference, .b = difference, .c = own, .s = w * (1 - w), .t = 1);
            VEC(CLIP, own, .a = own, .t = nm_norm_largest_square(backend));
        }
    }
#undef VEC
}

void nm_norm_add_statistics(nm_norm *norm, nm_backend *backend, void *const *earlier, const double *rows)
{
    nm_norm_combination combinations[NM_NORM_CAPACITY];
    for (int i = 0; i < norm->shape.n_statistics; i++)
        combinations[i] = norm->shape.statistics[i].combination;
    nm_norm_combine(backend, norm->site.width, norm->shape.n_statistics, combinations, norm->statistics,
                    norm->collected_rows, earlier, rows);
    for (int i = 0; i < norm->shape.n_statistics; i++)
        norm->collected_rows[i] += rows[i];
}

void nm_norm_discard_statistics(nm_norm *norm)
{
    memset(norm->collected_rows, 0, sizeof norm->collected_rows);
}
