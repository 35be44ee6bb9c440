/* The texts of a task that travel in its model's file: dictionary, settings, BPE codes, lists of names. They come from a data
 * folder or from the model, and what is wrong with them shows when they are opened, not when they are used. */
#ifndef NM_MODEL_TEXTS_H
#define NM_MODEL_TEXTS_H

#include "base/safetensors.h"
#include "text/counter.h"
#include "text/vocab.h"

/* Reads a file that must be text: UTF-8 without zero bytes; heap, also when it fails. */
nm_status nm_model_text_read(const char *path, char **text, nm_error *err);

/* texts[n], heap or NULL, under their names in the model's metadata. */
void nm_model_texts_load(char **texts, const char *const *names, int n, const nm_safetensors *file);
void nm_model_texts_save(char *const *texts, const char *const *names, int n, nm_safetensors_writer *writer);
void nm_model_texts_free(char **texts, int n);

/* A text as messages name it: "WHERE: NAME", the file or folder and the text in it. */
typedef struct nm_model_text {
    const char *where, *name, *text; /* text NULL: not there */
} nm_model_text;

/* The order of the special words, out of a data folder's settings. */
nm_status nm_model_text_order(const nm_model_text *settings, nm_vocab_order *order, nm_error *err);
/* The dictionary. */
nm_status nm_model_text_vocab(const nm_model_text *dictionary, nm_vocab_order order, nm_vocab **vocab,
                              nm_error *err);
/* Whether these are BPE codes; none are fine. */
nm_status nm_model_text_check_codes(const nm_model_text *codes, nm_error *err);
/* A name a line, none of them empty or twice, and back (heap). */
nm_status nm_model_text_names(const nm_model_text *list, nm_counter *names, nm_error *err);
char *nm_model_text_of_names(const nm_counter *names);

#endif
