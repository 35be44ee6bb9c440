/* Norms of single sites: the option norm.at, a comma-separated list of SITES=NORM,
 *     enc.0-2=batch,enc.3-5=layer,dec.1.self=rms,dec.final=scale
 * SITES is the beginning of site names: STACK, STACK.LAYERS, STACK.LAYERS.SUBLAYER,
 * STACK.LAYERS.SUBLAYER.PART, STACK.final or STACK.embedding, where STACK is enc, dec or lm, LAYERS is a
 * layer or a range of layers counted from 0, SUBLAYER is self, cross or ffn, and PART is output, inner,
 * query, key or value. If several entries match a site, the last one applies. */
#pragma once

#include "norma/option.h"

typedef struct nm_norm_assignment {
    char *sites, *type; /* "enc.0-2", "batch" */
    bool matched;       /* at least one site of the model matches */
    bool applied;       /* the norm of at least one site has this type */
} nm_norm_assignment;

typedef struct nm_norm_assignments {
    nm_norm_assignment *list;
    size_t n, capacity;
} nm_norm_assignments;

/* Parses the value of norm.at; *assignments must be {0} and is released by the caller in every case. NM_USAGE
 * names the entry that is malformed. */
nm_status nm_norm_assignments_parse(nm_norm_assignments *assignments, const char *text, nm_error *err);
void nm_norm_assignments_release(nm_norm_assignments *assignments);

/* The last entry that matches a site ("enc.3.ffn.norm"), owned by the list, or NULL. */
const nm_norm_assignment *nm_norm_assignments_find(const nm_norm_assignments *assignments, const char *site);
/* Like nm_norm_assignments_find, for building a model: sets `matched` and `applied` of the entries. */
const nm_norm_assignment *nm_norm_assignments_apply(nm_norm_assignments *assignments, const char *site);
/* After a model is built: NM_USAGE for an entry that matches none of its sites (n names, in the order of the
 * model), that names layers that the model does not have, or that has no effect because later entries match
 * the same sites. */
nm_status nm_norm_assignments_check(const nm_norm_assignments *assignments, const char *const *sites,
                                    size_t n, nm_error *err);

/* Whether the statement is true of the norm type of this name in a run with these options. */
typedef bool nm_norm_predicate(const nm_options *options, const char *name, const void *argument);
/* Whether it is true of a norm that the options name, in [model] or in norm.at. */
bool nm_norm_options_any(const nm_options *options, nm_norm_predicate *is, const void *argument);

/* Whether an option applies to a run with these options: norm.X.NAME only if they name a norm of the type X;
 * norm.groups, norm.state and norm.statistics only if they name a norm that uses groups, running statistics
 * or batch statistics. */
bool nm_norm_option_applies(const nm_options *options, const char *path);

/* Whether the options set model.encoder_norm: such a recipe compares norms of the encoder and keeps that of
 * the decoder. */
bool nm_varies_encoder_norm(const nm_options *options);
/* The option with the norm that a comparison replaces: "model.encoder_norm" if the recipe sets it, otherwise
 * "model.norm". */
const char *nm_norm_option(const nm_options *options);

/* Depends on the planned updates (nm_norm_type.follows_length). No argument: NULL. */
nm_norm_predicate nm_norm_follows_length;
/* The argument is the wanted name. */
nm_norm_predicate nm_norm_is_named;
