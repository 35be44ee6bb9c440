/* The result of a call of the translator; all arrays are owned. */
#pragma once

#include "norma/translator.h"

typedef struct nm_translated { /* one translation */
    char *text;
    double score, *token_scores; /* [n_tokens] */
    char **tokens;               /* [n_tokens] */
    size_t n_tokens, n_words;
    nm_translation_word *words; /* [n_words]; NULL without translate.alignment */
} nm_translated;

struct nm_translations {
    size_t n;
    struct nm_text_translations {
        bool too_long;
        size_t n;
        nm_translated *list;
    } * texts;
};
