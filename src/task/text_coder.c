#include "task/text_coder.h"

#include "text/utf8.h"

nm_status nm_text_coder_open(nm_text_coder *coder, const nm_text_coder_config *config, nm_error *err)
{
    *coder = (nm_text_coder){.lowercase = config->lowercase};
    nm_tokenizer_options options = nm_tokenizer_options_default();
    options.language = config->language;
    NM_TRY(nm_tokenizer_open(&coder->tokenizer, config->tokenizer, &options, err));
    if (!config->codes)
        return NM_OK;
    NM_TRY(nm_bpe_parse(config->codes, strlen(config->codes), config->codes_name, &coder->bpe, err));
    coder->applier = nm_bpe_applier_create(coder->bpe, NULL, 0);
    return NM_OK;
}

void nm_text_coder_run(nm_text_coder *coder, const char *text, size_t bytes)
{
    nm_buffer *result = &coder->words;
    nm_buffer_clear(&coder->words);
    nm_tokenize(&coder->tokenizer, text, bytes, &coder->words);
    if (coder->lowercase) {
        nm_buffer_clear(&coder->lower);
        nm_utf8_lowercase(result->data, result->bytes, &coder->lower);
        result = &coder->lower;
    }
    nm_buffer_clear(&coder->units);
    if (coder->applier)
        nm_bpe_apply_line(coder->applier, result->data, result->bytes, &coder->units);
    else
        nm_buffer_append(&coder->units, result->data, result->bytes);
}

void nm_text_coder_close(nm_text_coder *coder)
{
    nm_bpe_applier_free(coder->applier);
    nm_bpe_free(coder->bpe);
    nm_tokenizer_close(&coder->tokenizer);
    nm_buffer_release(&coder->words);
    nm_buffer_release(&coder->lower);
    nm_buffer_release(&coder->units);
    *coder = (nm_text_coder){0};
}
