/* Conversion of models to and from the formats of other toolkits.
 *
 * A format is one file that defines an nm_foreign_format, and a row of NM_FOREIGN_FORMATS. Conversion is
 * exact: a part of a model that the other toolkit or Norma does not support is NM_UNSUPPORTED, and the
 * message names the part and the reason. */
#pragma once

#include "task/model_loader.h"

/* Settings that the files of a format do not contain. */
typedef struct nm_convert_settings {
    int64_t heads;      /* number of attention heads; 0: not given */
    const char *vocabs; /* files of the vocabularies, "SOURCE,TARGET"; "": not given */
} nm_convert_settings;

typedef struct nm_foreign_format {
    const char *name;  /* "ctranslate2", as in --to and --from */
    const char *title; /* "CTranslate2 folder" */
    /* Writes the files of the model to an existing folder. The model is on the backend ref, in float32. NULL:
     * writing is not supported. */
    nm_status (*write)(const nm_loaded_model *loaded, const char *folder, nm_error *err);
    /* Reads the file or folder `path` and writes the model file `output`. NULL: reading is not supported. */
    nm_status (*read)(const char *path, const nm_convert_settings *settings, const char *output,
                      nm_error *err);
    bool uses_heads, uses_vocabs; /* which settings `read` uses */
} nm_foreign_format;

/* clang-format off */
/* The constants nm_format_NAME, with the help of norma convert. */
#define NM_FOREIGN_FORMATS(F) \
    F(ctranslate2, \
        "a folder for CTranslate2, of a translation model or a language model. Norms that are affine per " \
        "feature at inference are converted, too, so that a model with batch norms keeps its results.") \
    F(huggingface, \
        "a folder for transformers, in the class that computes the same function: M2M100 for pre-norm and " \
        "Marian for post-norm translation models, GPT-2 for language models with LayerNorm, and Llama, " \
        "Mistral, Qwen3, OLMo 2 or Gemma 3 for those with RMSNorm and rotary position embeddings.") \
    F(fairseq, "a folder with the weights of a fairseq model as model.safetensors (read only).") \
    F(marian, "an npz file of Marian with its vocabularies, --vocabs (read only).")
/* clang-format on */
#define NM_DECLARE_FORMAT(name, help) extern const nm_foreign_format nm_format_##name;
NM_FOREIGN_FORMATS(NM_DECLARE_FORMAT)

/* The class of transformers for which nm_format_huggingface writes a model, static, after a training of this
 * model. NM_UNSUPPORTED: there is none; the message names the part and the reason. */
nm_status nm_huggingface_class(const nm_loaded_model *loaded, const char **class, nm_error *err);

/* All formats, NULL at the end. */
extern const nm_foreign_format *const nm_foreign_formats[];
/* NM_USAGE if there is no such format; the message lists the formats. */
nm_status nm_foreign_format_find(const char *name, const nm_foreign_format **format, nm_error *err);

/* Loads a model file or the model of a run folder and writes it in this format to a folder, which is created
 * if necessary, with the files of its text processing (text_files.h). NM_UNSUPPORTED, NM_IO. */
nm_status nm_convert_to(const nm_foreign_format *format, const char *model, const char *folder,
                        nm_error *err);
/* Reads a model of this format from `path` and writes it to the model file `output`. NM_UNSUPPORTED,
 * NM_MISMATCH, NM_FORMAT, NM_IO. */
nm_status nm_convert_from(const nm_foreign_format *format, const nm_convert_settings *settings,
                          const char *path, const char *output, nm_error *err);
