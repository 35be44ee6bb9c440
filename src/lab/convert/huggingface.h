/* Declarations shared by the files of the Hugging Face format: names of tensors (huggingface_map.c,
 * huggingface_llama.c), files of several classes (huggingface_write_files.c), writing, reading. */
#pragma once

#include "convert/convert.h"
#include "convert/huggingface_tokenizer.h"
#include "convert/tensor_map.h"
#include "model/lm.h"

/* Maps the tensors of M2M100 and Marian. With shared embeddings, the file has one matrix, the first entry of
 * the map, to which the class ties the others. */
void nm_huggingface_map_seq2seq(nm_tensor_map *map, nm_model *model);
/* The embeddings of a language model in the file, as a multiple of those of the model: not 1 if
 * model.embedding_scale is not that of the class. */
double nm_huggingface_table_factor(const nm_model *model);
/* Whether all values of a vector are 0; NULL: yes. trains: after a training, which changes the vector unless
 * it is fixed. */
bool nm_huggingface_is_zero(const nm_model *model, const nm_tensor *vector, bool trains);
/* Whether input embeddings and output projection are one matrix of the file. */
bool nm_huggingface_is_tied(const nm_model *model);
/* Maps the tensors of GPT-2, whose names begin with prefix, without the positions and the output
 * projection. */
void nm_huggingface_map_gpt2(nm_tensor_map *map, nm_model *model, const char *prefix);

/* Width of the residual stream of the models below. */
int32_t nm_huggingface_wide_width(const nm_stack_config *config);
/* Add the tensors of GPT2LMHeadModel and of BlenderbotForConditionalGeneration for a pre-norm model with
 * LayerNorm, RMSNorm or ScaleNorm and any bias of the output projection, in a wider residual stream
 * (huggingface_wide.c). eps: layer_norm_epsilon. NM_UNSUPPORTED: other norms, or several epsilons. */
nm_status nm_huggingface_wide_gpt2(const nm_model *model, const nm_map_ids *ids, nm_tensor_list *list,
                                   double *eps, nm_error *err);
nm_status nm_huggingface_wide_blenderbot(const nm_model *model, nm_tensor_list *list, nm_error *err);
/* Their errors, without tensors. */
nm_status nm_huggingface_wide_check(const nm_model *model, nm_error *err);

/* A class of decoder-only models with RMSNorm, rotary position embeddings and gated units
 * (huggingface_llama.c). */
typedef struct nm_llama_class {
    const char *model_type, *name;
    nm_norm_position position;
    nm_head_norm qk_norm;
    double epsilon;        /* of the norms, unless config.json has it */
    bool biases;           /* whether all linear layers can have them */
    bool attention_biases; /* whether only those of attention can have them */
    bool input_biases;     /* whether those of queries, keys and values always have them */
    bool window;           /* whether there are layers with a sliding window */
    /* Gemma: embeddings are multiplied by sqrt(width), and shared with the output projection by default;
     * norms have the gains weight + 1, and layers with a window have their own angles. */
    bool gemma;
} nm_llama_class;

/* NULL: there is none. */
const nm_llama_class *nm_llama_class_named(const char *model_type);
/* The class of a model with the structure of one of these classes, otherwise NULL. */
const nm_llama_class *nm_llama_class_of(const nm_lm_config *config);
/* Maps the tensors of these classes, without the norms and the output projection. */
void nm_huggingface_map_llama(nm_tensor_map *map, nm_model *model);
/* Calls `visit` for each norm of a model with the structure of one of these classes and its tensor, until it
 * fails. */
typedef nm_status nm_llama_norm(const nm_norm *norm, const char *tensor, void *context, nm_error *err);
nm_status nm_llama_each_norm(const nm_model *model, nm_llama_norm *visit, void *context, nm_error *err);
/* *class: the name of the class of a model; trains: see nm_huggingface_is_zero. NM_UNSUPPORTED, naming the
 * option, if no class has the structure of the model. */
nm_status nm_huggingface_choose_llama(nm_model *model, bool trains, const char **class, nm_error *err);
/* Writes a model for which nm_huggingface_choose_llama has found a class. */
nm_status nm_huggingface_write_llama(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                                     const char *folder, nm_error *err);

/* The name of an activation in transformers. NM_UNSUPPORTED: it has none. */
nm_status nm_huggingface_activation(nm_activation activation, const char **name, nm_error *err);
/* The tokenizer of a language model. */
nm_huggingface_tokenizer nm_huggingface_lm_tokenizer(const nm_loaded_model *loaded,
                                                     const nm_huggingface_vocab *vocab);
nm_status nm_huggingface_write_tensors(const nm_tensor_list *list, const char *folder, nm_error *err);
/* Writes the files of a language model other than config.json and the tensors: its tokenizer, the settings of
 * generation. */
nm_status nm_huggingface_write_lm_texts(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                                        const char *folder, nm_error *err);

/* nm_foreign_format.write and .read; settings are not used. */
nm_status nm_huggingface_write(const nm_loaded_model *loaded, const char *folder, nm_error *err);
nm_status nm_huggingface_read(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err);
