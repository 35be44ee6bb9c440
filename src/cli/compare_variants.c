/* Variants and grid of norma compare: see compare_variants.h. */
#include "cli/compare_variants.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MOST_POINTS = 10000 };

static void add_setting(compare_variant *variant, const char *key, const char *value)
{
    NM_GROW(variant->settings, variant->n, variant->capacity);
    variant->settings[variant->n++] = (compare_setting){nm_duplicate(key), nm_duplicate(value)};
}

static compare_variant *add_variant(compare_variants *variants, char *name, size_t origin)
{
    NM_GROW(variants->list, variants->n, variants->capacity);
    compare_variant *variant = &variants->list[variants->n++];
    *variant = (compare_variant){.name = name, .origin = origin};
    return variant;
}

/* ---- variants ---- */

/* "scale+fix:norm.scale.trainable=false"; the text is taken apart. */
static nm_status parse_variant(compare_variant *variant, char *text, nm_error *err)
{
    char *rest = text, *norm = strsep(&rest, ":"), *plus = strchr(norm, '+');
    if (plus) {
        *plus++ = 0;
        add_setting(variant, "model.fixnorm", strcmp(plus, "fix") ? plus : "true");
    }
    if (!*norm)
        return nm_fail(err, NM_USAGE, "compare.norms: %.100s begins with no norm", variant->name);
    add_setting(variant, "model.norm", norm);
    for (char *setting; (setting = strsep(&rest, ":")) != NULL;) {
        char *equals = strchr(setting, '=');
        if (equals)
            *equals++ = 0;
        if (!*setting)
            return nm_fail(err, NM_USAGE, "compare.norms: %.100s has a setting without a name",
                           variant->name);
        add_setting(variant, setting, equals ? equals : "true");
    }
    return NM_OK;
}

nm_status compare_variants_parse(compare_variants *variants, const char *text, nm_error *err)
{
    char *copy = nm_duplicate(text), *rest = copy;
    nm_status status = NM_OK;
    for (char *one; status == NM_OK && (one = strsep(&rest, ",")) != NULL;)
        if (*one)
            status = parse_variant(add_variant(variants, nm_duplicate(one), variants->n), one, err);
    free(copy);
    if (status == NM_OK && !variants->n)
        return nm_fail(err, NM_USAGE, "compare.norms is empty");
    return status;
}

/* ---- grid ---- */

static nm_status parse_axis(compare_grid *grid, char *text, nm_error *err)
{
    char *values = strchr(text, '=');
    if (!values || values == text)
        return nm_fail(err, NM_USAGE, "compare.grid: %.100s: expected KEY=VALUE,VALUE,...", text);
    *values++ = 0;
    for (size_t i = 0; i < grid->n; i++)
        if (!strcmp(grid->list[i].key, text))
            return nm_fail(err, NM_USAGE, "compare.grid: %.100s is listed twice", text);
    NM_GROW(grid->list, grid->n, grid->capacity);
    compare_axis *axis = &grid->list[grid->n++];
    *axis = (compare_axis){.key = nm_duplicate(text)};
    for (char *value; (value = strsep(&values, ",")) != NULL;) {
        if (!*value)
            return nm_fail(err, NM_USAGE, "compare.grid: %.100s has an empty value", axis->key);
        NM_GROW(axis->values, axis->n, axis->capacity);
        axis->values[axis->n++] = nm_duplicate(value);
    }
    return NM_OK;
}

nm_status compare_grid_parse(compare_grid *grid, const char *text, nm_error *err)
{
    char *copy = nm_duplicate(text), *rest = copy;
    nm_status status = NM_OK;
    for (char *axis; status == NM_OK && (axis = strsep(&rest, ";")) != NULL;)
        if (*axis)
            status = parse_axis(grid, axis, err);
    free(copy);
    return status;
}

static bool is_value_in(const char *model, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = model; (at = strstr(at, " = ")) != NULL; at += 3)
        if (!strncmp(at + 3, value, length) && strchr(" \n", at[3 + length]))
            return true;
    return false;
}

bool compare_axis_applies(const compare_axis *axis, const compare_variant *variant, const char *model)
{
    if (strncmp(axis->key, "norm.", 5))
        return true;
    char *norm = nm_format("%.*s", (int)strcspn(axis->key + 5, "."), axis->key + 5);
    bool applies = is_value_in(model, norm);
    for (size_t i = 0; i < variant->n && !applies; i++)
        applies = !strcmp(variant->settings[i].value, norm);
    free(norm);
    return applies;
}

static void add_point_setting(compare_variant *point, const char *key, const char *value)
{
    char *name = nm_format("%s:%s=%s", point->name, key, value);
    free(point->name);
    point->name = name;
    add_setting(point, key, value);
}

/* The point whose number, written with the lengths of the axes as bases, gives its place on each. */
static void add_point(compare_variants *points, const compare_variant *variant, const compare_axis **axes,
                      size_t n_axes, size_t number)
{
    compare_variant *point = add_variant(points, nm_duplicate(variant->name), variant->origin);
    for (size_t i = 0; i < variant->n; i++)
        add_setting(point, variant->settings[i].key, variant->settings[i].value);
    size_t below = 1;
    for (size_t a = 0; a < n_axes; a++)
        below *= axes[a]->n;
    point->point = below > 1;
    for (size_t a = 0; a < n_axes; a++) {
        below /= axes[a]->n;
        add_point_setting(point, axes[a]->key, axes[a]->values[number / below % axes[a]->n]);
    }
}

static nm_status expand_variant(const compare_grid *grid, const compare_variant *variant, const char *model,
                                const compare_axis **axes, bool *used, compare_variants *points,
                                nm_error *err)
{
    size_t n_axes = 0, n = 1;
    for (size_t a = 0; a < grid->n; a++) {
        if (!compare_axis_applies(&grid->list[a], variant, model))
            continue;
        used[a] = true;
        axes[n_axes++] = &grid->list[a];
        n *= grid->list[a].n;
        if (n > MOST_POINTS)
            return nm_fail(err, NM_USAGE, "compare.grid: more than %d points", MOST_POINTS);
    }
    for (size_t i = 0; i < n; i++)
        add_point(points, variant, axes, n_axes, i);
    return NM_OK;
}

nm_status compare_grid_expand(const compare_grid *grid, const compare_variants *variants, char *const *models,
                              compare_variants *points, nm_error *err)
{
    const compare_axis **axes = nm_allocate((grid->n + 1) * sizeof *axes);
    bool *used = nm_allocate(grid->n + 1);
    nm_status status = NM_OK;
    for (size_t v = 0; v < variants->n && status == NM_OK; v++)
        status = expand_variant(grid, &variants->list[v], models[v], axes, used, points, err);
    for (size_t a = 0; a < grid->n && status == NM_OK; a++)
        if (!used[a])
            status =
                nm_fail(err, NM_USAGE, "compare.grid: no variant has the norm of %.100s", grid->list[a].key);
    free(axes);
    free(used);
    return status;
}

void compare_variants_release(compare_variants *variants)
{
    for (size_t v = 0; v < variants->n; v++) {
        for (size_t i = 0; i < variants->list[v].n; i++) {
            free(variants->list[v].settings[i].key);
            free(variants->list[v].settings[i].value);
        }
        free(variants->list[v].settings);
        free(variants->list[v].name);
    }
    free(variants->list);
    *variants = (compare_variants){0};
}

void compare_grid_release(compare_grid *grid)
{
    for (size_t a = 0; a < grid->n; a++) {
        for (size_t i = 0; i < grid->list[a].n; i++)
            free(grid->list[a].values[i]);
        free(grid->list[a].values);
        free(grid->list[a].key);
    }
    free(grid->list);
    *grid = (compare_grid){0};
}
