/* What transformers 5.24 assumes for keys that config.json lacks, unless the reader of the class has the
 * value. `make test-interchange` compares. */
#include <string.h>

#include "convert/huggingface_reader.h"

/* clang-format off */
#define LLAMAS "llama mistral qwen2 qwen3 olmo2 "
#define SEQ2SEQ "marian m2m_100 "

static const struct {
    const char *types, *key, *text; /* text NULL: number */
    int32_t number;
} defaults[] = {
    {"gpt2", "vocab_size", NULL, 50257}, {"gpt2", "n_positions", NULL, 1024}, {"gpt2", "n_embd", NULL, 768},
    {"gpt2", "n_layer", NULL, 12}, {"gpt2", "n_head", NULL, 12}, {"gpt2", "bos_token_id", NULL, 50256},
    {"gpt2", "eos_token_id", NULL, 50256}, {"gpt2", "activation_function", "gelu_new", 0},
    {"marian", "vocab_size", NULL, 58101}, {"m2m_100", "vocab_size", NULL, 128112},
    {SEQ2SEQ, "max_position_embeddings", NULL, 1024}, {SEQ2SEQ, "d_model", NULL, 1024},
    {SEQ2SEQ, "encoder_layers", NULL, 12}, {SEQ2SEQ, "decoder_layers", NULL, 12},
    {SEQ2SEQ, "encoder_ffn_dim", NULL, 4096}, {SEQ2SEQ, "decoder_ffn_dim", NULL, 4096},
    {SEQ2SEQ, "encoder_attention_heads", NULL, 16}, {SEQ2SEQ, "decoder_attention_heads", NULL, 16},
    {"marian", "scale_embedding", NULL, 0}, {"marian", "decoder_start_token_id", NULL, 58100},
    {"marian", "pad_token_id", NULL, 58100}, {"marian", "eos_token_id", NULL, 0},
    {"marian", "activation_function", "gelu", 0}, {"m2m_100", "activation_function", "relu", 0},
    {"m2m_100", "decoder_start_token_id", NULL, 2}, {"m2m_100", "pad_token_id", NULL, 1},
    {"m2m_100", "bos_token_id", NULL, 0}, {"m2m_100", "eos_token_id", NULL, 2},
    {"llama mistral", "vocab_size", NULL, 32000}, {"qwen2 qwen3", "vocab_size", NULL, 151936},
    {"olmo2", "vocab_size", NULL, 50304}, {"gemma3_text", "vocab_size", NULL, 262208},
    {LLAMAS, "hidden_size", NULL, 4096}, {"gemma3_text", "hidden_size", NULL, 2304},
    {"llama olmo2", "intermediate_size", NULL, 11008}, {"mistral", "intermediate_size", NULL, 14336},
    {"qwen2 qwen3", "intermediate_size", NULL, 22016}, {"gemma3_text", "intermediate_size", NULL, 9216},
    {LLAMAS, "num_hidden_layers", NULL, 32}, {"gemma3_text", "num_hidden_layers", NULL, 26},
    {LLAMAS, "num_attention_heads", NULL, 32}, {"gemma3_text", "num_attention_heads", NULL, 8},
    {"mistral", "num_key_value_heads", NULL, 8}, {"qwen2 qwen3", "num_key_value_heads", NULL, 32},
    {"gemma3_text", "num_key_value_heads", NULL, 4}, {"qwen3", "head_dim", NULL, 128},
    {"gemma3_text", "head_dim", NULL, 256}, {LLAMAS, "hidden_act", "silu", 0},
    {"gemma3_text", "hidden_activation", "gelu_pytorch_tanh", 0},
    {"llama olmo2", "max_position_embeddings", NULL, 2048},
    {"mistral gemma3_text", "max_position_embeddings", NULL, 131072},
    {"qwen2 qwen3", "max_position_embeddings", NULL, 32768}, {"llama mistral", "bos_token_id", NULL, 1},
    {"llama mistral", "eos_token_id", NULL, 2}, {"olmo2", "eos_token_id", NULL, 50279},
    {"gemma3_text", "bos_token_id", NULL, 2}, {"gemma3_text", "eos_token_id", NULL, 1},
};
/* clang-format on */

static bool is_listed(const char *types, const char *type)
{
    size_t bytes = strlen(type);
    for (const char *at = strstr(types, type); at; at = strstr(at + 1, type))
        if ((at == types || at[-1] == ' ') && (at[bytes] == ' ' || !at[bytes]))
            return true;
    return false;
}

void nm_hf_add_defaults(json_t *config, const char *type)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (is_listed(defaults[i].types, type) && !json_object_get(config, defaults[i].key))
            json_object_set_new(config, defaults[i].key,
                                defaults[i].text ? json_string(defaults[i].text)
                                                 : json_integer(defaults[i].number));
}
