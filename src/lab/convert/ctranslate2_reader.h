/* State of reading a CTranslate2 folder, shared by ctranslate2_read.c and ctranslate2_parameters.c. */
#pragma once

#include <jansson.h>

#include "convert/ctranslate2_file.h"
#include "convert/import.h"

enum { NM_CT2_ENCODER, NM_CT2_DECODER, NM_CT2_STACKS };

/* The norms of a stack; NM_CT2_RMS_OUTSIDE: RMSNorm with a negligible epsilon, in Norma epsilon outside the
 * root. */
typedef enum nm_ct2_norm { NM_CT2_LAYER, NM_CT2_RMS, NM_CT2_RMS_OUTSIDE } nm_ct2_norm;

typedef struct nm_ct2_stack {
    const char *scope; /* "encoder" */
    const char *table; /* name of the embedding matrix */
    nm_ct2_norm norm;
    double scale;  /* of the residual stream, see ctranslate2.c */
    double factor; /* ratio of the embeddings in the file to those of Norma; 1 in translation models */
} nm_ct2_stack;

typedef struct nm_ct2_reader {
    const char *folder;
    char *config_path;
    json_t *config;
    nm_ct2_file file;
    nm_foreign_vocab vocabs[NM_CT2_STACKS];
    nm_import in;
    bool lm; /* a language model, which has only the decoder stack */
    bool pre_norm;
    int64_t width;
    nm_ct2_stack stacks[NM_CT2_STACKS];
    nm_error *err;
} nm_ct2_reader;

/* Index of the first stack of the model. */
static inline int nm_ct2_first_stack(const nm_ct2_reader *from)
{
    return from->lm ? NM_CT2_DECODER : NM_CT2_ENCODER;
}

/* Whether the output projection is this embedding matrix, up to the scale of the stream. */
bool nm_ct2_is_tied(const nm_ct2_reader *from, const char *table);
/* Whether the output projection has a bias with nonzero values. */
bool nm_ct2_has_output_bias(const nm_ct2_reader *from);
/* Declares the model with the options set in from->in, and reads its parameters. */
nm_status nm_ct2_read_parameters(nm_ct2_reader *from);
