/* How the text of a data folder or a model was prepared: settings, BPE codes, dictionaries, SentencePiece
 * models. */
#pragma once

#include "task/model_texts.h"

typedef struct nm_prepared_texts {
    char *settings, *codes; /* data.ini; codes.bpe, NULL: none */
    bool plain;             /* plain text: its dictionary is that of side 0 */
    /* Of source and target: dictionary, and counts of the subwords that BPE may produce, NULL: all. */
    char *dictionaries[2], *subwords[2];
    nm_model_spm spm[2]; /* empty without SentencePiece */
} nm_prepared_texts;

/* Reads a data folder, whose checksums are verified, a model file, or the model of a run folder. NM_FORMAT if
 * it has no data.ini; NM_IO. The caller releases the texts, also after an error. */
nm_status nm_prepared_texts_read(nm_prepared_texts *texts, const char *path, nm_error *err);
void nm_prepared_texts_release(nm_prepared_texts *texts);
