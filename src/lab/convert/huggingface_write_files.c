/* Writing of Hugging Face folders: files that several classes have. */

#include "base/file.h"
#include "base/json.h"
#include "convert/huggingface.h"
#include "convert/json_file.h"
#include "task/lm_task.h"
#include "task/sampler_tokens.h"

nm_status nm_huggingface_activation(nm_activation activation, const char **name, nm_error *err)
{
    static const char *const names[][2] = {NM_ACTIVATIONS(NM_ACTIVATION_HF)};
    static const char *const words[] = {NM_ACTIVATIONS(NM_CHOICE_NAME)};
    *name = names[activation][0];
    return *name ? NM_OK
                 : nm_fail(err, NM_UNSUPPORTED, "transformers has no activation %s (model.activation)",
                           words[activation]);
}

bool nm_huggingface_is_zero(const nm_model *model, const nm_tensor *vector, bool trains)
{
    if (vector && trains && !((const nm_param *)vector)->fixed)
        return false;
    NM_AUTO_FREE double *values = nm_param_values(model->backend, vector);
    bool zero = true;
    for (int32_t i = 0; vector && i < vector->cols; i++)
        zero &= values[i] == 0;
    return zero;
}

nm_status nm_huggingface_write_tensors(const nm_tensor_list *list, const char *folder, nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add_metadata(writer, "format", "pt");
    for (size_t i = 0; i < list->n; i++)
        nm_safetensors_add(writer, list->items[i].name, NM_TENSOR_F32, list->items[i].rank,
                           list->items[i].shape, list->items[i].data);
    NM_AUTO_FREE char *path = nm_path_join(folder, "model.safetensors");
    return nm_safetensors_finish(writer, path, err);
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

/* A token that norma generate never generates, or NULL. */
static json_t *not_generated(const void *user, size_t id)
{
    const nm_huggingface_vocab *vocab = user;
    return vocab->ids[id] >= 0 && nm_lm_excludes(vocab->vocab, (int32_t)id, false)
               ? json_integer(vocab->ids[id])
               : NULL;
}

nm_status nm_huggingface_write_lm_texts(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                                        const char *folder, nm_error *err)
{
    const nm_lm_config *config = nm_lm_config_of(loaded->model);
    json_t *generation =
        json_pack("{s:o, s:o, s:o, s:I, s:o}", "bos_token_id",
                  nm_huggingface_id(vocab, nm_lm_first_input(config, vocab->vocab)), "eos_token_id",
                  nm_huggingface_id(vocab, vocab->vocab->eos), "pad_token_id",
                  nm_huggingface_id(vocab, vocab->vocab->pad), "max_length", (json_int_t)config->context,
                  "suppress_tokens", nm_json_list((size_t)nm_vocab_size(vocab->vocab), not_generated, vocab));
    NM_TRY(nm_json_write(generation, folder, "generation_config.json", err));
    const nm_huggingface_tokenizer tokenizer = nm_huggingface_lm_tokenizer(loaded, vocab);
    return nm_huggingface_write_tokenizer(&tokenizer, folder, err);
}
