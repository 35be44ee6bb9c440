/* Reading a Hugging Face folder: what huggingface_read.c and huggingface_read_llama.c share. */
#pragma once

#include <jansson.h>

#include "convert/huggingface.h"
#include "convert/import.h"

enum { NM_HF_MAX_WIDTH = 65536, NM_HF_MAX_INNER = 1 << 20, NM_HF_MAX_LAYERS = 1000, NM_HF_MAX_HEADS = 1024 };

typedef struct nm_hf_reader {
    const char *folder;
    char *config_path;
    json_t *config;
    nm_safetensors *file;
    nm_foreign_vocab vocab;
    nm_import in;
    nm_error *err;
} nm_hf_reader;

/* Adds the keys that config.json lacks with the values of transformers. type: its model_type. */
void nm_hf_add_defaults(json_t *config, const char *type);

/* A flag of config.json that changes the function that the class computes. */
typedef struct nm_hf_flag {
    const char *key;
    bool expected;
} nm_hf_flag;

/* flags: ends with a NULL key. NM_UNSUPPORTED, naming the first flag that has another value. */
nm_status nm_hf_check_flags(nm_hf_reader *from, const nm_hf_flag *flags);
/* An integer of config.json between 1 and max. NM_FORMAT. */
nm_status nm_hf_count(nm_hf_reader *from, const char *key, int64_t max, int64_t *value);
/* The embeddings and the last layers must exist, so that the memory for vocabulary and layers is proportional
 * to the size of the file. NM_MISMATCH. */
nm_status nm_hf_check_table(const nm_hf_reader *from, const char *name, int64_t tokens);
nm_status nm_hf_check_layers(const nm_hf_reader *from, const char *prefix, int64_t layers, const char *part);
/* The id of a special token, the first of a list; `otherwise` if config.json does not have the key. */
int32_t nm_hf_token(const nm_hf_reader *from, const char *key, int32_t otherwise);
/* Sets model.activation; key: of the activation's name. NM_UNSUPPORTED. */
nm_status nm_hf_set_activation(nm_hf_reader *from, const char *key);
/* A dropout rate of config.json, `otherwise` that of transformers, and the option that it sets; key NULL: the
 * class has none, the rate is `otherwise`. */
typedef struct nm_hf_rate {
    const char *key, *option;
    double otherwise;
} nm_hf_rate;
/* Sets dropout rates for further training. rates: ends with option NULL. NM_USAGE: a rate out of range. */
nm_status nm_hf_set_rates(nm_hf_reader *from, const nm_hf_rate *rates);
/* The vocabulary and text processing of a language model, which begins a text with its BOS token, if it has
 * one. size: in tokens. */
nm_status nm_hf_read_lm_texts(nm_hf_reader *from, int64_t size);

/* Reads a model of the class and writes it to the file `output`. */
nm_status nm_hf_read_llama(nm_hf_reader *from, const nm_llama_class *class, const char *output);
