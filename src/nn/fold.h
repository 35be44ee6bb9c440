/* Norms that are one map per feature at inference, y = s x + t, joined with the linear maps that read y and nothing else
 * does:  W y + b = (W diag(s)) x + (b + W t).  Which norms are such a map is theirs to say (`affine`); who reads them is
 * the model's. */
#ifndef NM_FOLD_H
#define NM_FOLD_H

#include "nn/params.h"
#include "norma/option.h"

typedef struct nm_fold_map {  /* reads the norm's rows; its matrix is shared with nobody */
    nm_tensor *weight, *bias; /* bias may be NULL: then the map takes only a norm that shifts nothing */
} nm_fold_map;

typedef struct nm_fold_site {
    nm_norm *norm;
    const char
        *option; /* that names the type of this norm and of others: all of one name are joined, or none */
    nm_fold_map *maps; /* all readers; none when something else than these reads it, e.g. a residual sum */
    size_t n_maps, maps_capacity;
    double *scale, *shift; /* of nm_fold_run */
} nm_fold_site;

typedef struct nm_fold {
    nm_fold_site *sites;
    size_t n, capacity;
} nm_fold;

/* Lists a norm, without readers; the option's name is static text. Then each reader of the norm listed last. */
void nm_fold_add_site(nm_fold *fold, nm_norm *norm, const char *option);
void nm_fold_add_map(nm_fold *fold, nm_tensor *weight, nm_tensor *bias);
/* Joins what can be: changes the maps, and the norms let rows through from then on (nm_norm.folded). */
void nm_fold_run(nm_fold *fold, nm_backend *backend);
/* Writes into the options what the listed norms are now. */
void nm_fold_say(const nm_fold *fold, nm_options *options);
size_t nm_fold_count(const nm_fold *fold); /* norms that are joined */
void nm_fold_release(nm_fold *fold);

#endif
