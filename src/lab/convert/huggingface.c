/* Hugging Face folders (config.json, generation_config.json, model.safetensors, tokenizer.json), for the
 * classes of transformers that compute the same function:
 *     M2M100ForConditionalGeneration    translation, pre-norm, LayerNorm, fairseq's positions
 *     MarianMTModel                     translation, post-norm, LayerNorm
 *     GPT2LMHeadModel                   language models, pre-norm, LayerNorm
 *     LlamaForCausalLM and others       language models with RMSNorm and rotary position embeddings
 *                                       (huggingface_llama.c)
 * The tokenizer is in huggingface_tokenizer.c. */
#include "convert/huggingface.h"

const nm_foreign_format nm_format_huggingface = {
    .name = "huggingface",
    .title = "Hugging Face folder",
    .write = nm_huggingface_write,
    .read = nm_huggingface_read,
};
