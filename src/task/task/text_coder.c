#include "task/text_coder.h"

#include <stdlib.h>
#include <string.h>

#include "data/prepare.h"
#include "text/utf8.h"

nm_status nm_text_coder_open(nm_text_coder *coder, const nm_text_coder_config *config, nm_error *err)
{
    *coder = (nm_text_coder){.lowercase = config->lowercase};
    nm_cleaner_init(&coder->cleaner, &config->clean);
    NM_TRY(nm_tokenizer_open(&coder->tokenizer, config->tokenizer, &config->options, err));
    if (!config->codes)
        return NM_OK;
    NM_TRY(nm_bpe_parse(config->codes, strlen(config->codes), config->codes_name, &coder->bpe, err));
    bool byte_level = coder->tokenizer.type == &nm_tokenizer_byte_level;
    NM_TRY(nm_bpe_match_tokenizer(coder->bpe, byte_level, config->codes_name, err));
    nm_bpe_keep_whole(coder->bpe, &coder->tokenizer.user_symbols);
    coder->applier = nm_bpe_applier_create(coder->bpe, config->threshold ? &config->subwords->symbols : NULL,
                                           config->threshold);
    return NM_OK;
}

static nm_status open_side(nm_text_coder *coder, bool target, const nm_prepare_config *config,
                           const nm_subword_model *subwords, nm_error *err)
{
    const nm_text_coder_config coder_config = {
        .tokenizer = config->tokenizer,
        .options = nm_prepare_tokenizer(config, target, target ? subwords->target_spm : subwords->source_spm),
        .clean = {config->punctuation, config->remove_non_printing,
                  target ? config->target_lang : config->source_lang},
        .lowercase = config->lowercase,
        .codes = subwords->codes,
        .codes_name = "the model's BPE codes",
        .subwords = target ? subwords->target_subwords : subwords->subwords,
        .threshold = config->bpe_vocabulary_threshold};
    NM_TRY(nm_text_coder_open(coder, &coder_config, err));
    coder->documents = config->documents;
    coder->document_separator = nm_duplicate(config->document_separator);
    return NM_OK;
}

/* The name of the settings in messages. */
static const char *const ORIGIN = "the model's data.ini";

nm_status nm_text_coder_languages(const char *settings, char **languages, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    *languages = NULL;
    NM_TRY(nm_prepare_read_settings(&options, &config, ORIGIN, settings, err));
    if (*config->source_lang && *config->target_lang) {
        char *both = nm_format("%s:%s", config->source_lang, config->target_lang);
        if (both[strcspn(both, " \t\r\n")])
            free(both);
        else
            *languages = both;
    }
    return NM_OK;
}

nm_status nm_text_coder_byte_level(const char *settings, nm_byte_level_rules *rules, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&options, &config, ORIGIN, settings, err));
    *rules = (nm_byte_level_rules){.used = !strcmp(config->tokenizer, nm_tokenizer_byte_level.name),
                                   .lowercase = config->lowercase,
                                   .pretokenizer = config->pretokenizer};
    return NM_OK;
}

nm_status nm_text_coder_open_prepared(nm_text_coder *coder, nm_tokenizer *target, const char *settings,
                                      const nm_subword_model *subwords, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&options, &config, ORIGIN, settings, err));
    NM_TRY(open_side(coder, false, config, subwords, err));
    if (!target)
        return NM_OK;
    const nm_tokenizer_options chosen = nm_prepare_tokenizer(config, true, subwords->target_spm);
    return nm_tokenizer_open(target, config->tokenizer, &chosen, err);
}

nm_status nm_text_coder_open_target(nm_text_coder *coder, const char *settings,
                                    const nm_subword_model *subwords, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&options, &config, ORIGIN, settings, err));
    return open_side(coder, true, config, subwords, err);
}

/* Appends the subwords of coder->words or, with byte-level BPE, of coder->tokens. */
static void segment(nm_text_coder *coder, const nm_buffer *words)
{
    if (coder->applier)
        nm_bpe_apply_line(coder->applier, words->data, words->bytes, &coder->subwords);
    else
        nm_buffer_append(&coder->subwords, words->data, words->bytes);
}

/* With a tokenizer that keeps the text, the words are the text, in lower case if coder->lowercase. */
static void run_on_text(nm_text_coder *coder, nm_text_format format, const char *text, size_t bytes)
{
    if (format == NM_FORMAT_SUBWORD) {
        nm_buffer_append(&coder->subwords, text, bytes);
        nm_detokenize(&coder->tokenizer, text, bytes, &coder->words);
        return;
    }
    if (coder->lowercase && format == NM_FORMAT_RAW)
        nm_utf8_lowercase(text, bytes, &coder->words);
    else
        nm_buffer_append(&coder->words, text, bytes);
    nm_buffer *tokens = coder->applier ? &coder->tokens : &coder->subwords;
    nm_tokenize(&coder->tokenizer, coder->words.data, coder->words.bytes, tokens);
    if (coder->applier)
        segment(coder, tokens);
}

void nm_text_coder_run(nm_text_coder *coder, nm_text_format format, const char *text, size_t bytes)
{
    nm_buffer *tokens = coder->lowercase ? &coder->tokens : &coder->words;
    nm_buffer_clear(&coder->tokens);
    nm_buffer_clear(&coder->words);
    nm_buffer_clear(&coder->subwords);
    if (format == NM_FORMAT_RAW && nm_cleaner_is_active(&coder->cleaner)) {
        const nm_buffer *clean = nm_clean(&coder->cleaner, text, bytes);
        text = clean->data;
        bytes = clean->bytes;
    }
    if (coder->tokenizer.type->keeps_text) {
        run_on_text(coder, format, text, bytes);
        return;
    }
    if (format == NM_FORMAT_RAW) {
        nm_tokenize(&coder->tokenizer, text, bytes, tokens);
        if (coder->lowercase)
            nm_utf8_lowercase(tokens->data, tokens->bytes, &coder->words);
    } else if (format == NM_FORMAT_TOKENIZED) {
        nm_tokenizer_separate_symbols(&coder->tokenizer, text, bytes, &coder->words);
    } else {
        nm_buffer_append(&coder->words, text, bytes);
    }
    if (format == NM_FORMAT_SUBWORD)
        nm_buffer_append(&coder->subwords, coder->words.data, coder->words.bytes);
    else
        segment(coder, &coder->words);
}

void nm_text_coder_close(nm_text_coder *coder)
{
    nm_bpe_applier_free(coder->applier);
    nm_bpe_free(coder->bpe);
    nm_cleaner_release(&coder->cleaner);
    nm_tokenizer_close(&coder->tokenizer);
    nm_buffer_release(&coder->tokens);
    nm_buffer_release(&coder->words);
    nm_buffer_release(&coder->subwords);
    free(coder->document_separator);
    *coder = (nm_text_coder){0};
}
