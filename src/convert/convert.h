/* Conversion of models to and from the formats of other programs.
 *
 * A format is one file that defines an nm_foreign_format, and one line in formats.c. Nothing is guessed: a part of a model that
 * the other program cannot compute, or that Norma cannot, is NM_UNSUPPORTED, and the message names the part and the reason. */
#ifndef NM_CONVERT_H
#define NM_CONVERT_H

#include "task/model_loader.h"

/* Logit of tokens that the other program may not output; finite, so that no NaN can arise. */
#define NM_EXCLUDED_LOGIT (-1e9)

/* What the files of a format do not tell. */
typedef struct nm_convert_settings {
    int64_t heads;      /* number of attention heads; 0: not given */
    const char *vocabs; /* files of the vocabularies, "SOURCE,TARGET"; "": not given */
} nm_convert_settings;

typedef struct nm_foreign_format {
    const char *name;  /* "ctranslate2", as in --to and --from */
    const char *title; /* "CTranslate2 folder" */
    /* Writes the files of the model to a folder, which exists. The model is on the backend ref, in float. NULL: the
     * format is not written. */
    nm_status (*write)(const nm_loaded_model *loaded, const char *folder, nm_error *err);
    /* Reads a file or folder and writes a model file. NULL: the format is not read. */
    nm_status (*read)(const char *path, const nm_convert_settings *settings, const char *output,
                      nm_error *err);
} nm_foreign_format;

extern const nm_foreign_format nm_format_ctranslate2, nm_format_huggingface, nm_format_fairseq,
    nm_format_marian;

/* All formats, NULL at the end. */
extern const nm_foreign_format *const nm_foreign_formats[];
/* NM_USAGE names the formats. */
nm_status nm_foreign_format_find(const char *name, const nm_foreign_format **format, nm_error *err);

/* Loads the model (a file or a run folder) and writes it in this format to a folder, which is created. */
nm_status nm_convert_to(const nm_foreign_format *format, const char *model, const char *folder,
                        nm_error *err);
/* Reads a model of this format and writes it as a model file. */
nm_status nm_convert_from(const nm_foreign_format *format, const nm_convert_settings *settings,
                          const char *path, const char *output, nm_error *err);

#endif
