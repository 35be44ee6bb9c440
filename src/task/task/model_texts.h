/* The texts of a task that are stored in its model file: dictionary, settings, BPE codes, lists of names.
 * They are read from a data folder or from the model file, and checked when they are parsed. */
#pragma once

#include "base/safetensors.h"
#include "text/counter.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

/* Reads a text file, UTF-8 without zero bytes. *text is heap memory, also after an error. */
nm_status nm_model_text_read(const char *path, char **text, nm_error *err);
/* Like nm_model_text_read for a file that may be absent; *text is then unchanged. */
nm_status nm_model_text_read_optional(const char *path, char **text, nm_error *err);

/* texts: [n], heap, NULL for a text that is missing; names: [n] keys in the metadata of the model file. */
void nm_model_texts_load(char **texts, const char *const *names, int n, const nm_safetensors *file);
void nm_model_texts_save(char *const *texts, const char *const *names, int n, nm_safetensors_writer *writer);
void nm_model_texts_free(char **texts, int n);

/* A text, not owned, and its name in messages, "WHERE: NAME", with the model file or data folder as WHERE. */
typedef struct nm_model_text {
    const char *where, *name, *text; /* text NULL: missing */
} nm_model_text;

/* Parses a dictionary. settings: data.ini of its data folder, with the order of the special symbols and the
 * omitted ones; NULL: fairseq's order, none omitted. Free *vocab with nm_vocab_free, also after an error.
 * NM_FORMAT, also if a text is missing; NM_USAGE for an invalid setting. */
nm_status nm_model_text_vocab(const nm_model_text *dictionary, const nm_model_text *settings,
                              nm_vocab **vocab, nm_error *err);
/* NM_FORMAT if the text is not BPE codes; a missing text is valid. */
nm_status nm_model_text_check_codes(const nm_model_text *codes, nm_error *err);
/* Adds the names of a text with one name per line to *names. NM_FORMAT for empty and duplicate lines. */
nm_status nm_model_text_names(const nm_model_text *list, nm_counter *names, nm_error *err);
/* Adds the names of the list or, with dictionary, of the symbols in the metadata `name` of a model file that
 * `kept` lacks. path NULL: nothing happens. NM_IO; NM_FORMAT. */
nm_status nm_model_text_keep(const char *path, const char *name, bool dictionary, nm_counter *kept,
                             nm_error *err);
/* The inverse of nm_model_text_names; heap. */
char *nm_model_text_of_names(const nm_counter *names);

/* A SentencePiece model with the bytes of its file, owned; {0}: none. */
typedef struct nm_model_spm {
    void *bytes;
    size_t n_bytes;
    nm_spm *spm;
} nm_model_spm;

nm_status nm_model_spm_read(nm_model_spm *model, const char *path, nm_error *err);
/* Like nm_model_spm_read for a file that may be absent; *model is then unchanged. */
nm_status nm_model_spm_read_optional(nm_model_spm *model, const char *path, nm_error *err);
/* Loads the model from, and saves it to, the U8 tensor `name` of a model file, which is absent without a
 * model. */
nm_status nm_model_spm_load(nm_model_spm *model, const char *name, const nm_safetensors *file, nm_error *err);
void nm_model_spm_save(const nm_model_spm *model, const char *name, nm_safetensors_writer *writer);
bool nm_model_spm_equal(const nm_model_spm *a, const nm_model_spm *b);
void nm_model_spm_release(nm_model_spm *model);
