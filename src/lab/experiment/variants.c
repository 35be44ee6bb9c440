#include "experiment/variants.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "norm/norm_assignment.h"
#include "norm/common.h"
#include "norma/norm_type.h"

enum { MAX_POINTS = 10000 };

void nm_settings_add(nm_settings *settings, const char *key, const char *value)
{
    NM_APPEND(settings->list, settings->n, settings->capacity,
              (nm_setting){nm_duplicate(key), nm_duplicate(value)});
}

void nm_settings_add_all(nm_settings *settings, const nm_settings *more)
{
    for (size_t i = 0; i < more->n; i++)
        nm_settings_add(settings, more->list[i].key, more->list[i].value);
}

void nm_settings_release(nm_settings *settings)
{
    for (size_t i = 0; i < settings->n; i++)
        NM_FREE(settings->list[i].key, settings->list[i].value);
    free(settings->list);
    *settings = (nm_settings){0};
}

json_t *nm_settings_json(const nm_settings *settings)
{
    json_t *o = json_object();
    for (size_t i = 0; i < settings->n; i++)
        json_object_set_new(o, settings->list[i].key, json_string(settings->list[i].value));
    return o;
}

static nm_variant *add_variant(nm_variants *variants, const char *name, size_t origin)
{
    NM_GROW(variants->list, variants->n, variants->capacity);
    nm_variant *variant = &variants->list[variants->n++];
    *variant = (nm_variant){.name = nm_duplicate(name), .origin = origin};
    return variant;
}

nm_status nm_norm_option_replace(nm_options *options, const nm_options *recipe, char **message, nm_error *err)
{
    *message = NULL;
    if (nm_options_origin(options, "model.norm") != NM_ORIGIN_COMMAND ||
        nm_options_origin(options, "model.encoder_norm") == NM_ORIGIN_COMMAND ||
        !nm_varies_encoder_norm(recipe))
        return NM_OK;
    NM_AUTO_FREE char *norm = nm_options_get(options, "model.norm"),
                      *own = nm_options_get(recipe, "model.norm");
    nm_status status = nm_options_set(options, "model.encoder_norm", norm, NM_ORIGIN_COMMAND, err);
    NM_THEN(status, nm_options_set(options, "model.norm", own, NM_ORIGIN_COMMAND, err));
    *message =
        nm_format("this recipe varies model.encoder_norm: --model.norm %s replaces that one, model.norm "
                  "stays %s; for the decoder set model.decoder_norm",
                  norm, own);
    return status;
}

/* Braces protect the separators in a value: "norm.at={enc.0=batch,enc.1=rms}". */
static nm_status check_braces(const char *option, const char *text, nm_error *err)
{
    int depth = 0;
    for (const char *at = text; *at && depth >= 0; at++)
        depth += (*at == '{') - (*at == '}');
    return depth ? nm_fail(err, NM_USAGE, "%s: %.200s: unbalanced braces", option, text) : NM_OK;
}

/* strsep for one separator outside balanced braces; the item has no surrounding spaces. */
static char *next_item(char **rest, char separator)
{
    char *item = *rest, *at = item;
    int depth = 0;
    if (!item)
        return NULL;
    for (; *at && (depth || *at != separator); at++)
        depth += (*at == '{') - (*at == '}');
    *rest = *at ? at + 1 : NULL;
    *at = 0;
    return nm_trim(item);
}

/* The value without the pair of braces that encloses it. */
static char *without_braces(char *value)
{
    size_t length = strlen(value);
    int depth = 0;
    if (*value != '{' || value[length - 1] != '}')
        return value;
    for (size_t i = 0; i + 1 < length; i++) {
        depth += (value[i] == '{') - (value[i] == '}');
        if (!depth) /* "{a},{b}" */
            return value;
    }
    value[length - 1] = 0;
    return value + 1;
}

#define BRACES_HINT "a value that contains commas is written in braces, as in norm.at={enc.0=batch,enc.1=rms}"

/* "PN=power:norm.power.scaling=group" has the label "PN": its first equals sign is before the first colon. */
static nm_status parse_label(nm_variant *variant, char **text, nm_error *err)
{
    char *equals = *text + strcspn(*text, "=:");
    if (*equals != '=')
        return NM_OK;
    if (equals == *text)
        return nm_fail(err, NM_USAGE, "norms: %.100s has an empty label", variant->name);
    variant->name[equals - *text] = 0;
    *text = equals + 1;
    return NM_OK;
}

static bool is_set(const nm_settings *settings, const char *key)
{
    bool found = false;
    for (size_t i = 0; i < settings->n; i++)
        found = found || !strcmp(settings->list[i].key, key);
    return found;
}

static bool has_key(const nm_variant *variant, const char *key)
{
    return is_set(&variant->settings, key);
}

void nm_variants_set_default(nm_variants *variants, const char *key, const char *value)
{
    bool used = false;
    for (size_t i = 0; i < variants->n; i++)
        used = used || has_key(&variants->list[i], key);
    for (size_t i = 0; i < variants->n && used; i++)
        if (!has_key(&variants->list[i], key) && has_key(&variants->list[i], "model.norm"))
            nm_settings_add(&variants->list[i].settings, key, value);
}

/* Parses the settings "norm.scale.trainable=false:model.rope" after the norm; the text is modified. */
static nm_status parse_settings(nm_variant *variant, char *text, nm_error *err)
{
    NM_AUTO(nm_settings_release) nm_settings settings = {0};
    nm_status status = NM_OK;
    for (char *setting; status == NM_OK && (setting = next_item(&text, ':')) != NULL;) {
        char *equals = strchr(setting, '=');
        if (equals)
            *equals++ = 0;
        if (!*setting)
            status = nm_fail(err, NM_USAGE, "norms: %.100s has a setting without a name", variant->name);
        else if (is_set(&settings, setting))
            status = nm_fail(err, NM_USAGE, "norms: %.100s sets %.100s twice", variant->name, setting);
        else
            nm_settings_add(&settings, setting, equals ? without_braces(equals) : "true");
    }
    nm_settings_add_all(&variant->settings, &settings);
    return status;
}

/* Parses "scale+fix:norm.scale.trainable=false"; the text is modified. after_setting: an earlier variant has
 * settings, so that the text may be part of a value. */
static nm_status parse_variant(nm_variant *variant, char *text, bool after_setting, nm_error *err)
{
    NM_TRY(parse_label(variant, &text, err));
    char *rest = text, *norm = next_item(&rest, ':'), *plus = strchr(norm, '+');
    if (plus) {
        *plus++ = 0;
        nm_settings_add(&variant->settings, "model.fixnorm", strcmp(plus, "fix") ? plus : "true");
    }
    if (!*norm)
        return nm_fail(err, NM_USAGE, "norms: %.100s does not begin with a norm", variant->name);
    bool replaces = strcmp(norm, NM_RECIPE_NORMS) != 0;
    if (replaces && !nm_norm_type_find(norm)) {
        nm_norm_unknown(norm, err);
        return nm_error_prefix(err, "norms: %.100s%s", variant->name,
                               after_setting ? " (" BRACES_HINT ")" : "");
    }
    if (replaces)
        nm_settings_add(&variant->settings, "model.norm", norm);
    return parse_settings(variant, rest, err);
}

nm_status nm_variants_parse(nm_variants *variants, const char *text, nm_error *err)
{
    NM_TRY(check_braces("norms", text, err));
    char *copy = nm_duplicate(text), *rest = copy;
    nm_status status = NM_OK;
    bool settings = false;
    for (char *one; status == NM_OK && (one = next_item(&rest, ',')) != NULL;) {
        if (!*one)
            continue;
        bool own = strchr(one, ':') != NULL;
        status = parse_variant(add_variant(variants, one, variants->n), one, settings, err);
        settings = settings || own;
    }
    free(copy);
    if (status == NM_OK && !variants->n)
        return nm_fail(err, NM_USAGE, "norms is empty");
    return status;
}

/* Whether the name is the path of an option, "norm.at", or of a site, "enc.0". */
static bool is_path(const char *name, const nm_options *options)
{
    static const char *const stacks[] = {"enc", "dec", "lm"};
    size_t length = strcspn(name, ".");
    NM_AUTO_FREE char *first = nm_format("%.*s", (int)length, name);
    bool found = nm_options_find(options, first) != NULL;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        found = found || !strcmp(first, stacks[i]);
    return name[length] && found;
}

nm_status nm_variants_check_names(const nm_variants *variants, const nm_options *options, nm_error *err)
{
    for (size_t i = 0; i < variants->n; i++)
        if (is_path(variants->list[i].name, options))
            return nm_fail(err, NM_USAGE, "norms: %.100s is not the name of a variant; " BRACES_HINT,
                           variants->list[i].name);
    return NM_OK;
}

static nm_status parse_axis(nm_grid *grid, char *text, nm_error *err)
{
    char *values = strchr(text, '=');
    if (!values || values == text)
        return nm_fail(err, NM_USAGE, "compare.grid: %.100s: expected KEY=VALUE,VALUE,...", text);
    *values++ = 0;
    text = nm_trim(text);
    for (size_t i = 0; i < grid->n; i++)
        if (!strcmp(grid->list[i].key, text))
            return nm_fail(err, NM_USAGE, "compare.grid: %.100s is listed twice", text);
    NM_GROW(grid->list, grid->n, grid->capacity);
    nm_grid_axis *axis = &grid->list[grid->n++];
    *axis = (nm_grid_axis){.key = nm_duplicate(text)};
    for (char *value; (value = next_item(&values, ',')) != NULL;) {
        if (!*value)
            return nm_fail(err, NM_USAGE, "compare.grid: %.100s has an empty value", axis->key);
        NM_APPEND(axis->values, axis->n, axis->capacity, nm_duplicate(without_braces(value)));
    }
    return NM_OK;
}

nm_status nm_grid_parse(nm_grid *grid, const char *text, nm_error *err)
{
    NM_TRY(check_braces("compare.grid", text, err));
    NM_AUTO_FREE char *copy = nm_duplicate(text);
    char *rest = copy;
    for (char *axis; (axis = next_item(&rest, ';')) != NULL;)
        if (*axis)
            NM_TRY(parse_axis(grid, axis, err));
    return NM_OK;
}

/* Appends the point with this index. The digits of the index in a mixed radix, the lengths of the axes,
 * select the values. */
static void add_point(nm_variants *points, const nm_variant *variant, const nm_grid_axis **axes,
                      size_t n_axes, size_t index)
{
    nm_variant *point = add_variant(points, variant->name, variant->origin);
    nm_settings_add_all(&point->settings, &variant->settings);
    nm_settings_add_all(&point->excluded, &variant->excluded);
    size_t stride = 1;
    for (size_t a = 0; a < n_axes; a++)
        stride *= axes[a]->n;
    point->point = stride > 1;
    for (size_t a = 0; a < n_axes; a++) {
        stride /= axes[a]->n;
        const char *value = axes[a]->values[index / stride % axes[a]->n];
        bool braces = strpbrk(value, ",;") != NULL; /* as on the command line */
        char *name =
            nm_format("%s:%s=%s%s%s", point->name, axes[a]->key, braces ? "{" : "", value, braces ? "}" : "");
        free(point->name);
        point->name = name;
        nm_settings_add(&point->settings, axes[a]->key, value);
    }
}

static nm_status expand_variant(const nm_grid *grid, const nm_variant *variant, const nm_options *options,
                                bool *used, nm_variants *points, nm_error *err)
{
    NM_AUTO_FREE const nm_grid_axis **axes = nm_allocate((grid->n + 1) * sizeof *axes);
    size_t n_axes = 0, n = 1;
    for (size_t a = 0; a < grid->n && n <= MAX_POINTS; a++) {
        if (!nm_norm_option_applies(options, grid->list[a].key))
            continue;
        used[a] = true;
        axes[n_axes++] = &grid->list[a];
        n *= grid->list[a].n;
    }
    for (size_t i = 0; i < n && n <= MAX_POINTS; i++)
        add_point(points, variant, axes, n_axes, i);
    return n <= MAX_POINTS ? NM_OK : nm_fail(err, NM_USAGE, "compare.grid: more than %d points", MAX_POINTS);
}

nm_status nm_grid_expand(const nm_grid *grid, const nm_variants *variants, nm_options *const *options,
                         nm_variants *points, nm_error *err)
{
    NM_AUTO_FREE bool *used = nm_allocate(grid->n + 1);
    for (size_t v = 0; v < variants->n; v++)
        NM_TRY(expand_variant(grid, &variants->list[v], options[v], used, points, err));
    for (size_t a = 0; a < grid->n; a++)
        if (!used[a])
            return nm_fail(err, NM_USAGE, "compare.grid: no variant has the norm of %.100s",
                           grid->list[a].key);
    return NM_OK;
}

nm_status nm_variants_exclude(nm_variants *variants, const nm_settings *common, nm_options *const *options,
                              nm_error *err)
{
    for (size_t i = 0; i < common->n; i++) {
        const nm_setting *setting = &common->list[i];
        bool used = false;
        for (size_t v = 0; v < variants->n; v++)
            if (nm_norm_option_applies(options[v], setting->key))
                used = true;
            else
                nm_settings_add(&variants->list[v].excluded, setting->key, setting->value);
        if (!used)
            return nm_fail(err, NM_USAGE, "%s = %s has no effect: no variant has %s", setting->key,
                           setting->value,
                           strchr(setting->key + strlen("norm."), '.') ? "this norm" : "a norm that uses it");
    }
    return NM_OK;
}

/* Whether the section with this first line is not that of a norm that the model does not have. */
static bool section_applies(const char *line, const nm_options *options)
{
    NM_AUTO_FREE char *key = nm_format("%.*s.", (int)strcspn(line + 1, "]"), line + 1);
    return nm_norm_option_applies(options, key);
}

/* The norm of an option of [model], heap. An empty one is that of another option; the decoder has LayerNorm
 * in place of batch statistics. */
static char *resolved_norm(const nm_options *options, const char *name)
{
    static const char *const fallbacks[][2] = {{"encoder_norm", "norm"},
                                               {"encoder_final_norm", "encoder_norm"},
                                               {"decoder_norm", "norm"},
                                               {"decoder_final_norm", "decoder_norm"},
                                               {"final_norm", "norm"}};
    char *path = nm_format("model.%s", name), *norm = nm_options_get(options, path);
    free(path);
    for (size_t i = 0; i < sizeof fallbacks / sizeof *fallbacks && norm && !*norm; i++)
        if (!strcmp(name, fallbacks[i][0])) {
            free(norm);
            norm = resolved_norm(options, fallbacks[i][1]);
            const nm_norm_type *type = nm_norm_type_find(norm);
            if (!strcmp(name, "decoder_norm") && type && type->traits & NM_USES_BATCH) {
                free(norm);
                norm = nm_duplicate("layer");
            }
        }
    return norm;
}

/* A setting "KEY = VALUE" of [model]; an empty norm is written as the one that results. */
static void write_model_setting(const nm_options *options, const char *line, FILE *stream)
{
    size_t length = strcspn(line, " ");
    bool norm =
        length > strlen("_norm") && !strncmp(line + length - strlen("_norm"), "_norm", strlen("_norm"));
    NM_AUTO_FREE char *name = nm_format("%.*s", (int)length, line),
                      *value = norm ? resolved_norm(options, name) : NULL;
    if (value)
        fprintf(stream, "%s = %s\n", name, value);
    else
        fprintf(stream, "%s\n", line);
}

char *nm_configuration_text(const nm_options *options, const nm_options *like)
{
    char *all = NULL, *text = NULL;
    size_t bytes;
    FILE *stream = nm_text_stream_open(&all, &bytes);
    nm_options_write_values(options, like, stream);
    nm_text_stream_close(stream);
    stream = nm_text_stream_open(&text, &bytes);
    bool applies = true, model = false;
    char *rest = all;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line == '[') {
            applies = section_applies(line, options);
            model = !strcmp(line, "[model]");
        }
        if (applies && *line && model)
            write_model_setting(options, line, stream);
        else if (applies && *line)
            fprintf(stream, "%s\n", line);
    }
    nm_text_stream_close(stream);
    free(all);
    return text;
}

void nm_variants_release(nm_variants *variants)
{
    for (size_t v = 0; v < variants->n; v++) {
        nm_settings_release(&variants->list[v].settings);
        nm_settings_release(&variants->list[v].excluded);
        free(variants->list[v].name);
    }
    free(variants->list);
    *variants = (nm_variants){0};
}

void nm_grid_release(nm_grid *grid)
{
    for (size_t a = 0; a < grid->n; a++) {
        nm_free_list(grid->list[a].values, grid->list[a].n);
        free(grid->list[a].key);
    }
    free(grid->list);
    *grid = (nm_grid){0};
}
