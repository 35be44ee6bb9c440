/* Variants and grids of a comparison: "layer,scale+fix,batch:norm.batch.preset=pn" is three variants of a
 * recipe, "norm.rbn.lambda=0,0.1;train.max_tokens=1024,4096" is a grid of four points. A value in braces may
 * contain the separators: "layer:norm.at={enc.0=batch,enc.1=rms}" is one variant. Spaces around items are
 * ignored. */
#pragma once

#include <jansson.h>

#include "norma/option.h"
#include "norma/status.h"

typedef struct nm_setting {
    char *key, *value; /* "norm.batch.preset", "pn" */
} nm_setting;

typedef struct nm_settings { /* owned copies; later settings override earlier ones */
    nm_setting *list;
    size_t n, capacity;
} nm_settings;

typedef struct nm_variant {
    /* Name of run folder and table row: the label or the text as given, followed by the settings of a grid
     * point. */
    char *name;
    nm_settings settings;
    /* Settings of all variants that this one does not get: of norms that it does not have. */
    nm_settings excluded;
    size_t origin; /* index of the variant that a grid point belongs to, or its own index */
    bool point;    /* one of several grid points of its variant */
} nm_variant;

typedef struct nm_variants {
    nm_variant *list;
    size_t n, capacity;
} nm_variants;

typedef struct nm_grid_axis {
    char *key, **values;
    size_t n, capacity;
} nm_grid_axis;

typedef struct nm_grid {
    nm_grid_axis *list;
    size_t n, capacity;
} nm_grid;

/* Copies key and value. */
void nm_settings_add(nm_settings *settings, const char *key, const char *value);
void nm_settings_add_all(nm_settings *settings, const nm_settings *more);
void nm_settings_release(nm_settings *settings);
/* A new object with the values as strings. */
json_t *nm_settings_json(const nm_settings *settings);

/* If the recipe sets model.encoder_norm, model.norm from the command line would have no effect on the
 * encoder. As in norma compare, its value then replaces model.encoder_norm, and model.norm keeps the value of
 * the recipe. options: those of the command line, before the recipe is read; recipe: those of the recipe
 * only. *message: description of the replacement, heap; NULL if there was none. */
nm_status nm_norm_option_replace(nm_options *options, const nm_options *recipe, char **message,
                                 nm_error *err);

/* Instead of a norm: the norms of the recipe or, with run.tune, of the model. */
#define NM_RECIPE_NORMS "recipe"

/* [LABEL=]NORM[+fix][:key=value]..., comma-separated; NORM sets model.norm, or is NM_RECIPE_NORMS; LABEL
 * replaces the whole text as the variant's name. NM_USAGE if the list is empty, if its braces are unbalanced,
 * or if a variant has an empty label, no norm, an unknown norm, an empty key or a key twice. */
nm_status nm_variants_parse(nm_variants *variants, const char *text, nm_error *err);
/* NM_USAGE if a name is the path of an option or of a site of norms: it is part of a value with commas that
 * is not in braces. options: of the runs, for their sections. */
nm_status nm_variants_check_names(const nm_variants *variants, const nm_options *options, nm_error *err);
/* If a variant sets the option, the other variants that replace the norm get this value. */
void nm_variants_set_default(nm_variants *variants, const char *key, const char *value);
/* Adds the axes of "key=value,value;key=value". NM_USAGE if the text is malformed. */
nm_status nm_grid_parse(nm_grid *grid, const char *text, nm_error *err);
/* Appends the grid points of every variant to points: all combinations of the axes that apply, the last axis
 * fastest. options: of each variant. NM_USAGE for more than 10000 points of a variant, or if an axis applies
 * to no variant. */
nm_status nm_grid_expand(const nm_grid *grid, const nm_variants *variants, nm_options *const *options,
                         nm_variants *points, nm_error *err);
/* Excludes settings of all variants from the variants to which they do not apply. NM_USAGE if one applies to
 * no variant. */
nm_status nm_variants_exclude(nm_variants *variants, const nm_settings *common, nm_options *const *options,
                              nm_error *err);

/* The options that determine a model as text, without origins: every section of `like`, except norm.X if no
 * norm is of the type X. An empty norm of [model] is the one that results. Equal texts mean equal
 * configurations. Heap. */
char *nm_configuration_text(const nm_options *options, const nm_options *like);

void nm_variants_release(nm_variants *variants);
void nm_grid_release(nm_grid *grid);
