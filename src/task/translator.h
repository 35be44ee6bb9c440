/* Text in, text out: the way of a line through tokenizer, BPE, dictionary, search and back, all as the model file says.
 */
#ifndef NM_TRANSLATOR_H
#define NM_TRANSLATOR_H

#include "data/line_list.h"
#include "decode/decode.h"
#include "task/model_loader.h"

/* Text as people write it; words as `norma prepare` leaves them before BPE; units as they are in the dictionary. */
typedef enum nm_text_format { NM_FORMAT_RAW, NM_FORMAT_TOKENIZED, NM_FORMAT_SUBWORD } nm_text_format;
#define NM_TEXT_FORMATS "raw|tokenized|subword"

/* One line's translations, best first; none for an empty line and for one that is too long. */
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

/* Models must outlive the translator; the first one says how text is prepared. NM_MISMATCH: models of different
 * dictionaries; NM_USAGE: options that do not go together. */
nm_status nm_translator_create(nm_translator **translator, const nm_loaded_model *models, int32_t n_models,
                               const nm_translator_config *config, nm_error *err);
void nm_translator_free(nm_translator *translator);

/* Translates lines of valid UTF-8 into out[0 .. lines->n - 1] (release each). On failure out holds nothing. */
nm_status nm_translator_run(nm_translator *translator, const nm_line_list *lines, nm_translated *out,
                            nm_error *err);
void nm_translated_release(nm_translated *translated);

/* Most source tokens of a line, the end symbol included. */
int32_t nm_translator_longest(const nm_translator *translator);

#endif
