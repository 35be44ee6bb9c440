/* What norma compare compares: "layer,scale+fix,batch:norm.batch.preset=pn" is three variants of a recipe, and
 * "norm.rbn.lambda=0,0.1;train.max_tokens=1024,4096" a grid of four points. */
#ifndef NM_COMPARE_VARIANTS_H
#define NM_COMPARE_VARIANTS_H

#include "norma/status.h"

typedef struct compare_setting {
    char *key, *value; /* "norm.batch.preset", "pn" */
} compare_setting;

typedef struct compare_variant {
    char *name; /* as given, for a point of the grid with its settings: names folder and row */
    compare_setting *settings;
    size_t n, capacity;
    size_t origin; /* number of the variant it is a point of, or its own */
    bool point;    /* one of several points of the grid */
} compare_variant;

typedef struct compare_variants {
    compare_variant *list;
    size_t n, capacity;
} compare_variants;

typedef struct compare_axis {
    char *key, **values;
    size_t n, capacity;
} compare_axis;

typedef struct compare_grid {
    compare_axis *list;
    size_t n, capacity;
} compare_grid;

/* NORM[+fix][:key=value]..., by comma. NM_USAGE when there is none, or when one has no norm or an empty key. */
nm_status compare_variants_parse(compare_variants *variants, const char *text, nm_error *err);
/* Adds the axes of "key=value,value;key=value". NM_USAGE. */
nm_status compare_grid_parse(compare_grid *grid, const char *text, nm_error *err);
/* Whether an axis says something about a variant: norm.X.* only where X is the norm, or the value of a setting of the
 * variant or of one of those in model (text of NAME = VALUE lines). */
bool compare_axis_applies(const compare_axis *axis, const compare_variant *variant, const char *model);
/* Replaces a variant by its points, the last axis fastest: every combination of the axes that apply. NM_USAGE when
 * there are more than can be meant, or an axis applies to none. models: text of each variant's section [model]. */
nm_status compare_grid_expand(const compare_grid *grid, const compare_variants *variants, char *const *models,
                              compare_variants *points, nm_error *err);

void compare_variants_release(compare_variants *variants);
void compare_grid_release(compare_grid *grid);

#endif
