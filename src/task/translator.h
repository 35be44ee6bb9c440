/* Translation of text: tokenizer, BPE, dictionary, decoding, detokenization, all with the settings in the model file. */
#ifndef NM_TRANSLATOR_H
#define NM_TRANSLATOR_H

#include "data/line_list.h"
#include "decode/decode.h"
#include "task/model_loader.h"
#include "task/text_coder.h"

/* The translations of a line, best first; none for an empty line and for a line that is too long. */
typedef struct nm_translated {
    bool too_long;
    int32_t n;
    struct nm_translated_text {
        char *text;
        double score;
    } * list;
} nm_translated;

typedef struct nm_translator_config {
    nm_text_format input, output;
    const nm_decode_options *decode;
} nm_translator_config;

typedef struct nm_translator nm_translator;

/* Models must outlive the translator; the first one has the settings of text preparation. NM_MISMATCH: models of different
 * dictionaries; NM_USAGE: contradictory options. */
nm_status nm_translator_create(nm_translator **translator, const nm_loaded_model *models, int32_t n_models,
                               const nm_translator_config *config, nm_error *err);
void nm_translator_free(nm_translator *translator);

/* Translates lines of valid UTF-8 into out[0 .. lines->n - 1] (release each). After an error, out has nothing to release. */
nm_status nm_translator_run(nm_translator *translator, const nm_line_list *lines, nm_translated *out,
                            nm_error *err);
void nm_translated_release(nm_translated *translated);

/* Maximum number of source tokens of a line, including the end symbol. */
int32_t nm_translator_longest(const nm_translator *translator);

#endif
