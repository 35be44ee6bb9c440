/* Translation models of the golden cases: built from the configuration of a case, with the parameters under
 * Norma's names. */
#ifndef GOLDEN_MODEL_H
#define GOLDEN_MODEL_H

#include "golden.h"
#include "model/seq2seq.h"

/* Elements first .. first + count - 1 of a parameter of Norma are those of the source from source_first
 * on. */
typedef struct golden_piece {
    char ours[96], source[96];
    size_t first, source_first, count;
} golden_piece;

typedef struct golden_place { /* a norm: Norma's name and the source's module */
    char ours[96], source[96];
} golden_place;

typedef struct golden_model {
    const json_t *root, *config;
    bool tears;                          /* the code of Nguyen and Salazar; otherwise fairseq's descendants */
    int32_t pad, bos, eos, warmup_steps; /* warmup_steps: of norms inside the layers */
    nm_options *options;
    nm_model *model;
    golden_piece *pieces;
    golden_place *places;
    size_t n_pieces, pieces_capacity, n_places, places_capacity;
} golden_model;

/* Builds the model of a case of family "model" and fills in its parameters and state. Release in any case. */
golden_result golden_model_build(golden_case *test, const json_t *root, golden_model *made);
void golden_model_release(golden_model *made);

/* Running state "MODULE.NAME" of the source: a device vector, or a counter. Fails if there is none. */
typedef struct golden_state {
    void *vector;
    int32_t length;
    int64_t *counter;
} golden_state;
golden_result golden_model_state(golden_case *test, const golden_model *made, const char *name,
                                 golden_state *state);

/* Cases of method "text_classifier" (in golden_classifier.c). */
golden_result golden_classifier_run(golden_case *test);

/* The map of names, for golden_model_build (in golden_map.c). */
void golden_map_names(golden_model *made);

/* Cases of the method "tensorized_lm" (in golden_lm.c). */
golden_result golden_lm_run(golden_case *test);

/* Copies of device numbers, in the precision of the case (free). */
void *golden_download(const golden_case *test, const void *device, size_t count);

#endif
