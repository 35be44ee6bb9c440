/* Reading of Hugging Face folders: what several classes have. */
#include "convert/huggingface_reader.h"

#include <string.h>

#include "convert/json_file.h"
#include "task/lm_task.h"

nm_status nm_hf_check_table(const nm_hf_reader *from, const char *name, int64_t tokens)
{
    const nm_safetensor *table = nm_safetensors_find(from->file, name);
    return table && table->rank == 2 && table->shape[0] == tokens
               ? NM_OK
               : nm_fail(from->err, NM_MISMATCH, "%s: has no tensor '%s' for the %lld tokens of %s",
                         nm_safetensors_path(from->file), name, (long long)tokens, from->config_path);
}

nm_status nm_hf_check_layers(const nm_hf_reader *from, const char *prefix, int64_t layers, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%lld.%s", prefix, (long long)layers - 1, part);
    return nm_safetensors_find(from->file, name)
               ? NM_OK
               : nm_fail(from->err, NM_MISMATCH, "%s: has no tensor '%s' of the last layer of %s",
                         nm_safetensors_path(from->file), name, from->config_path);
}

nm_status nm_hf_set_activation(nm_hf_reader *from, const char *key)
{
    static const char *const names[][2] = {NM_ACTIVATIONS(NM_ACTIVATION_HF)};
    static const char *const words[] = {NM_ACTIVATIONS(NM_CHOICE_NAME)};
    const char *name = json_string_value(json_object_get(from->config, key));
    for (int i = 0; name && i < NM_ACTIVATIONS_COUNT; i++)
        for (int k = 0; k < 2; k++)
            if (names[i][k] && !strcmp(names[i][k], name))
                return nm_import_set(&from->in, "model.activation", "%s", words[i]);
    return nm_fail(from->err, NM_UNSUPPORTED, "%s: %s '%.50s' is not supported", from->config_path, key,
                   name ? name : "");
}

nm_status nm_hf_check_flags(nm_hf_reader *from, const nm_hf_flag *flags)
{
    for (; flags->key; flags++)
        if (nm_json_flag(from->config, flags->key, flags->expected) != flags->expected)
            return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is %s, which Norma does not support",
                           from->config_path, flags->key, flags->expected ? "false" : "true");
    return NM_OK;
}

nm_status nm_hf_count(nm_hf_reader *from, const char *key, int64_t max, int64_t *value)
{
    return nm_json_count(from->config, key, max, from->config_path, value, from->err);
}

nm_status nm_hf_set_rates(nm_hf_reader *from, const nm_hf_rate *rates)
{
    for (; rates->option; rates++) {
        double rate =
            rates->key ? nm_json_real(from->config, rates->key, rates->otherwise) : rates->otherwise;
        NM_TRY(nm_import_set(&from->in, rates->option, "%.17g", rate));
    }
    return NM_OK;
}

int32_t nm_hf_token(const nm_hf_reader *from, const char *key, int32_t otherwise)
{
    const json_t *first = json_array_get(json_object_get(from->config, key), 0);
    int64_t id =
        json_is_integer(first) ? json_integer_value(first) : nm_json_id(from->config, key, otherwise);
    return id >= 0 && id < INT32_MAX ? (int32_t)id : -1;
}

static bool is_other_symbol(const nm_foreign_vocab *vocab, int32_t index)
{
    return index == vocab->bos || index == vocab->eos;
}

nm_status nm_hf_read_lm_texts(nm_hf_reader *from, int64_t size)
{
    nm_import *in = &from->in;
    nm_model_spm *spm = &((nm_lm_parts *)in->loaded.task.parts)->spm;
    bool pieces;
    NM_TRY(nm_huggingface_read_pieces(from->folder, size, &from->vocab, spm, &pieces, from->err));
    if (!pieces)
        NM_TRY(nm_huggingface_read_tokenizer(from->folder, size, &from->vocab, &from->in.codes, from->err));
    from->vocab.eos = from->vocab.first = nm_hf_token(from, "eos_token_id", -1);
    int32_t first = nm_hf_token(from, "bos_token_id", from->vocab.eos);
    from->vocab.bos = first != from->vocab.eos ? first : nm_foreign_vocab_find(&from->vocab, "<s>");
    from->vocab.pad = nm_foreign_vocab_find(&from->vocab, "<pad>");
    from->vocab.unk = pieces ? spm->spm->unknown : nm_foreign_vocab_find(&from->vocab, "<unk>");
    if (is_other_symbol(&from->vocab, from->vocab.pad))
        from->vocab.pad = -1;
    if (is_other_symbol(&from->vocab, from->vocab.unk))
        from->vocab.unk = -1;
    if (from->vocab.eos < 0)
        return nm_fail(from->err, NM_FORMAT, "%s: 'eos_token_id' is missing", from->config_path);
    NM_TRY(nm_import_vocab(in, &from->vocab, true, from->folder));
    NM_TRY(nm_import_set(in, "model.first_input", "%s", first != from->vocab.eos ? "bos" : "eos"));
    NM_TRY(nm_import_set(in, "model.output_bias", "false"));
    return nm_import_texts(in, from->folder);
}
