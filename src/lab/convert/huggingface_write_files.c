/* Writing of Hugging Face folders: files that several classes have. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/huggingface.h"
#include "convert/json_file.h"
#include "task/lm_task.h"
#include "task/sampler_tokens.h"

nm_status nm_huggingface_activation(nm_activation activation, const char **name, nm_error *err)
{
    static const char *const names[] = {NM_ACTIVATIONS(NM_ACTIVATION_HF)};
    static const char *const words[] = {NM_ACTIVATIONS(NM_CHOICE_NAME)};
    *name = names[activation];
    return *name ? NM_OK
                 : nm_fail(err, NM_UNSUPPORTED, "transformers has no activation %s (model.activation)",
                           words[activation]);
}

bool nm_huggingface_is_zero(const nm_model *model, const nm_tensor *vector)
{
    double *values = nm_param_values(model->backend, vector);
    bool zero = true;
    for (int32_t i = 0; vector && i < vector->cols; i++)
        zero &= values[i] == 0;
    free(values);
    return zero;
}

nm_status nm_huggingface_write_tensors(const nm_tensor_list *list, const char *folder, nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add_metadata(writer, "format", "pt");
    for (size_t i = 0; i < list->n; i++)
        nm_safetensors_add(writer, list->items[i].name, NM_TENSOR_F32, list->items[i].rank,
                           list->items[i].shape, list->items[i].data);
    char *path = nm_path_join(folder, "model.safetensors");
    nm_status status = nm_safetensors_finish(writer, path, err);
    free(path);
    return status;
}

nm_huggingface_tokenizer nm_huggingface_lm_tokenizer(const nm_loaded_model *loaded,
                                                     const nm_huggingface_vocab *vocab)
{
    const nm_lm_parts *parts = loaded->task.parts;
    return (nm_huggingface_tokenizer){.vocab = vocab,
                                      .settings = parts->texts[NM_LM_SETTINGS],
                                      .codes = parts->texts[NM_LM_CODES],
                                      .longest = nm_lm_config_of(loaded->model)->context};
}

/* The tokens that norma generate never generates. */
static json_t *not_generated(const nm_huggingface_vocab *vocab)
{
    json_t *list = json_array();
    for (int32_t id = 0; id < nm_vocab_size(vocab->vocab); id++)
        if (vocab->ids[id] >= 0 && nm_lm_excludes(vocab->vocab, id, false))
            json_array_append_new(list, json_integer(vocab->ids[id]));
    return list;
}

nm_status nm_huggingface_write_lm_texts(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                                        const char *folder, nm_error *err)
{
    const nm_lm_config *config = nm_lm_config_of(loaded->model);
    json_t *generation = json_object();
    nm_huggingface_add_id(vocab, generation, "bos_token_id", nm_lm_first_input(config, vocab->vocab));
    nm_huggingface_add_id(vocab, generation, "eos_token_id", vocab->vocab->eos);
    nm_huggingface_add_id(vocab, generation, "pad_token_id", vocab->vocab->pad);
    json_object_set_new(generation, "max_length", json_integer((json_int_t)config->context));
    json_object_set_new(generation, "suppress_tokens", not_generated(vocab));
    NM_TRY(nm_json_write(generation, folder, "generation_config.json", err));
    const nm_huggingface_tokenizer tokenizer = nm_huggingface_lm_tokenizer(loaded, vocab);
    return nm_huggingface_write_tokenizer(&tokenizer, folder, err);
}
