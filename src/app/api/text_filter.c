#include "norma/text.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "api/inference.h"
#include "api/sections.h"
#include "base/memory.h"
#include "data/prepare.h"
#include "task/prepared_texts.h"
#include "text/byte_level.h"
#include "text/moses_rules.h"
#include "text/utf8.h"

typedef struct filter_config { /* section [text] */
    NM_TEXT_FILTER_FIELDS;
} filter_config;

/* clang-format off */
static const nm_option filter_rows[] = {
    NM_TEXT_FILTER_ROWS(filter_config),
    {0}};
/* clang-format on */

struct nm_text_filter {
    nm_options *options;
    const filter_config *config;
    nm_text_step step;
    nm_prepared_texts texts; /* with --like; otherwise only codes and the SentencePiece model of side 0 */
    int side;                /* of texts */
    nm_vocab *subwords;
    nm_spm_coder *normalizer;
    nm_text_coder coder;
    bool keeps_return; /* of CRLF: byte-level text of documents that are no lines */
    const char *warning;
    nm_buffer line, out;
};

/* The tokenizer without --like; that of a SentencePiece model if one is given. */
static const char *given_tokenizer(const filter_config *config)
{
    return *config->spm_model ? "sentencepiece" : config->tokenizer;
}

/* Why an option that was given has no effect, or NULL if it has one. */
static const char *no_effect(const nm_text_filter *self, const char *option)
{
    const filter_config *config = self->config;
    const char *tokenizer = given_tokenizer(config);
    bool moses = !strcmp(tokenizer, "moses"), normalizes = self->step == NM_STEP_NORMALIZE;
    bool joins = self->step == NM_STEP_DETOKENIZE || config->undo;
    if (!strcmp(option, "side"))
        return *config->like ? NULL : "without --like";
    if (!strcmp(option, "codes"))
        return self->step == NM_STEP_SUBWORD ? NULL : ": only subword applies BPE";
    if (!strcmp(option, "format"))
        return self->step == NM_STEP_SUBWORD ? NULL : ": only subword uses it";
    if (!strcmp(option, "form")) {
        if (!normalizes)
            return ": only normalize uses it";
        return *config->like        ? "with --like, which has the steps"
               : *config->spm_model ? "with a SentencePiece model"
                                    : NULL;
    }
    if (!strcmp(option, "tokenizer"))
        return normalizes                             ? ": normalize does not tokenize"
               : strcmp(config->tokenizer, tokenizer) ? "with a SentencePiece model"
                                                      : NULL;
    if (!strcmp(option, "pretokenizer"))
        return normalizes || joins                               ? ": nothing is tokenized"
               : strcmp(tokenizer, nm_tokenizer_byte_level.name) ? "without the tokenizer byte_level"
                                                                 : NULL;
    if (!strcmp(option, "language") && normalizes)
        return config->form == FORM_PUNCTUATION && !*config->spm_model ? NULL : "without --form punctuation";
    if (!strcmp(option, "language"))
        return nm_tokenizer_has_language(tokenizer) ? NULL : "with this tokenizer";
    if (!strcmp(option, "lowercase"))
        return joins ? ": tokens are joined as they are" : NULL;
    if (!strcmp(option, "user_symbols"))
        return normalizes || joins                        ? ": nothing is tokenized"
               : nm_tokenizer_find(tokenizer)->keeps_text ? "with this tokenizer"
                                                          : NULL;
    if (!strcmp(option, "aggressive") || !strcmp(option, "escape") || !strcmp(option, "protect") ||
        !strcmp(option, "nonbreaking_prefixes"))
        return normalizes || joins ? ": nothing is tokenized" : moses ? NULL : "without the tokenizer moses";
    return NULL;
}

/* Options that the settings of --like determine are errors with --like. So are options without effect. */
static nm_status check_options(const nm_text_filter *self, nm_error *err)
{
    static const char *const of_like[] = {
        "tokenizer", "pretokenizer", "language", "aggressive", "escape", "protect", "nonbreaking_prefixes",
        "lowercase", "user_symbols", "codes",    "spm_model"};
    if (self->step == NM_STEP_NORMALIZE && self->config->undo)
        return nm_fail(err, NM_USAGE, "normalization cannot be undone");
    if (self->step == NM_STEP_DETOKENIZE && self->config->undo)
        return nm_fail(err, NM_USAGE, "detokenize has no --undo: use norma tokenize");
    for (const nm_option *row = filter_rows; row->name; row++) {
        NM_AUTO_FREE char *path = nm_format("text.%s", row->name);
        bool given = nm_options_origin(self->options, path) != NM_ORIGIN_DEFAULT, fixed = false;
        for (size_t i = 0; i < sizeof of_like / sizeof *of_like; i++)
            fixed |= !strcmp(of_like[i], row->name);
        if (given && fixed && *self->config->like)
            return nm_fail(err, NM_USAGE, "text.%s cannot be combined with --like, which has the settings",
                           row->name);
        const char *reason = given ? no_effect(self, row->name) : NULL;
        if (reason)
            return nm_fail(err, NM_USAGE, "text.%s has no effect%s%s", row->name, *reason == ':' ? "" : " ",
                           reason);
    }
    return NM_OK;
}

/* Without codes or a SentencePiece model there are no subwords; byte-level BPE without codes has those of
 * single bytes. */
static nm_status check_subwords(const nm_text_filter *self, nm_error *err)
{
    const filter_config *config = self->config;
    bool given = *config->like || *config->codes || *config->spm_model || config->undo ||
                 !strcmp(config->tokenizer, nm_tokenizer_byte_level.name);
    return self->step != NM_STEP_SUBWORD || given
               ? NM_OK
               : nm_fail(err, NM_USAGE,
                         "subword: no subwords given: --like DATA|MODEL, --codes "
                         "FILE or --spm-model FILE (norma tokenize writes words)");
}

static nm_status open_coder(nm_text_filter *self, const nm_prepare_config *prepare, bool target,
                            nm_error *err)
{
    const char *language = target ? prepare->target_lang : prepare->source_lang;
    int64_t threshold = prepare->bpe_vocabulary_threshold;
    const nm_prepared_texts *texts = &self->texts;
    const char *subwords =
        texts->subwords[self->side] ? texts->subwords[self->side] : texts->dictionaries[self->side];
    if (threshold && subwords)
        NM_TRY(
            nm_vocab_parse(subwords, strlen(subwords), "dictionary", NM_VOCAB_FAIRSEQ, &self->subwords, err));
    nm_text_coder_config config = {.tokenizer = prepare->tokenizer,
                                   .options =
                                       nm_prepare_tokenizer(prepare, target, texts->spm[self->side].spm),
                                   .clean = {prepare->punctuation, prepare->remove_non_printing, language},
                                   .lowercase = prepare->lowercase,
                                   .codes = self->step == NM_STEP_SUBWORD ? texts->codes : NULL,
                                   .codes_name = *self->config->codes ? self->config->codes : "BPE codes",
                                   .subwords = self->subwords,
                                   .threshold = self->subwords ? threshold : 0};
    self->keeps_return = !strcmp(prepare->tokenizer, nm_tokenizer_byte_level.name) && !self->config->undo &&
                         (!*self->config->like || prepare->documents != NM_DOCUMENT_LINE);
    return nm_text_coder_open(&self->coder, &config, err);
}

static nm_status open_like(nm_text_filter *self, nm_error *err)
{
    bool source = self->config->side == SIDE_SOURCE;
    NM_TRY(nm_prepared_texts_read(&self->texts, self->config->like, err));
    self->side = source || self->texts.plain ? 0 : 1;
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *prepare;
    NM_TRY(nm_prepare_read_settings(&options, &prepare, "data.ini", self->texts.settings, err));
    return open_coder(self, prepare, !source, err);
}

static nm_status open_given(nm_text_filter *self, nm_error *err)
{
    const filter_config *config = self->config;
    nm_prepare_config prepare = {.tokenizer = given_tokenizer(config),
                                 .pretokenizer = config->pretokenizer,
                                 .aggressive = config->aggressive,
                                 .escape = config->escape,
                                 .protect = config->protect,
                                 .lowercase = config->lowercase,
                                 .user_symbols = config->user_symbols,
                                 .source_lang = config->language};
    NM_AUTO_FREE char *prefixes = NULL;
    if (*config->spm_model)
        NM_TRY(nm_model_spm_read(&self->texts.spm[0], config->spm_model, err));
    if (*config->codes)
        NM_TRY(nm_model_text_read(config->codes, &self->texts.codes, err));
    if (self->step == NM_STEP_NORMALIZE && !self->texts.spm[0].spm) {
        prepare.tokenizer = "none";
        if (config->form == FORM_PUNCTUATION)
            prepare.punctuation = NM_PUNCTUATION_MOSES;
        prepare.remove_non_printing = config->form == FORM_PRINTABLE;
    }
    bool reads = (self->step == NM_STEP_TOKENIZE || self->step == NM_STEP_SUBWORD) && !config->undo &&
                 !strcmp(prepare.tokenizer, nm_tokenizer_moses.name) && config->format == NM_FORMAT_RAW;
    if (reads && *config->nonbreaking_prefixes)
        NM_TRY(nm_moses_prefixes_read(config->nonbreaking_prefixes, config->language, &prefixes, err));
    else if (reads && !nm_moses_has_prefixes(config->language))
        self->warning = "there is no list of abbreviations for this language, so that of English is used; "
                        "--nonbreaking-prefixes reads a list of Moses";
    prepare.source_prefixes = prefixes;
    return open_coder(self, &prepare, false, err);
}

static nm_status normalize_unicode(normal_form form, const char *line, nm_buffer *out, nm_error *err)
{
    static const int forms[] = {[FORM_NFC] = UTF8PROC_COMPOSE,
                                [FORM_NFD] = UTF8PROC_DECOMPOSE,
                                [FORM_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                [FORM_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    int options = UTF8PROC_NULLTERM | UTF8PROC_STABLE | forms[form];
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t bytes =
        utf8proc_map((const utf8proc_uint8_t *)line, 0, &text, (utf8proc_option_t)options);
    if (bytes < 0)
        return nm_fail(err, bytes == UTF8PROC_ERROR_NOMEM ? NM_MEMORY : NM_FORMAT,
                       "the Unicode normal form: %s", utf8proc_errmsg(bytes));
    nm_buffer_append(out, (const char *)text, (size_t)bytes);
    free(text);
    return NM_OK;
}

/* Unlike an output of a model, that of a filter has the carriage returns of byte-level text. */
static void detokenize(const nm_tokenizer *tokenizer, const char *line, size_t bytes, nm_buffer *out)
{
    if (tokenizer->type != &nm_tokenizer_byte_level) {
        nm_detokenize(tokenizer, line, bytes, out);
        return;
    }
    nm_byte_level_decode(line, bytes, out);
    for (size_t i = 0; i < out->bytes; i++)
        out->data[i] = out->data[i] == '\n' ? ' ' : out->data[i];
}

static nm_status filter_line(nm_text_filter *self, const char *line, size_t bytes, nm_error *err)
{
    nm_text_coder *coder = &self->coder;
    bool keeps_text = coder->tokenizer.type->keeps_text, undo = self->config->undo;
    bool detokenizes = self->step == NM_STEP_DETOKENIZE || (self->step == NM_STEP_TOKENIZE && undo);
    nm_buffer *out = &self->out;
    nm_buffer_clear(out);
    nm_buffer_clear(&self->line);
    if (self->step == NM_STEP_NORMALIZE) {
        bool cleans = nm_cleaner_is_active(&coder->cleaner);
        if (cleans) {
            const nm_buffer *clean = nm_clean(&coder->cleaner, line, bytes);
            line = clean->data;
            bytes = clean->bytes;
        }
        if (coder->lowercase)
            nm_utf8_lowercase(line, bytes, &self->line);
        else
            nm_buffer_append(&self->line, line, bytes);
        if (self->normalizer)
            nm_spm_normalize(self->normalizer, self->line.data, self->line.bytes, out);
        else if (cleans || *self->config->like)
            nm_buffer_append(out, self->line.data, self->line.bytes);
        else
            NM_TRY(normalize_unicode(self->config->form, self->line.data, out, err));
    } else if (self->step == NM_STEP_SUBWORD && undo) {
        if (keeps_text)
            nm_buffer_append(&self->line, line, bytes);
        else
            nm_bpe_remove(line, bytes, &self->line);
        if (keeps_text || self->config->format == NM_FORMAT_RAW)
            detokenize(&coder->tokenizer, self->line.data, self->line.bytes, out);
        else
            nm_buffer_append(out, self->line.data, self->line.bytes);
    } else if (detokenizes) {
        detokenize(&coder->tokenizer, line, bytes, out);
    } else {
        nm_text_coder_run(coder, self->step == NM_STEP_SUBWORD ? self->config->format : NM_FORMAT_RAW, line,
                          bytes);
        nm_buffer_append(out, coder->subwords.data, coder->subwords.bytes);
    }
    return NM_OK;
}

static nm_status open_filter(nm_text_filter *self, const char *const *options, nm_error *err)
{
    NM_TRY(nm_settings_apply(self->options, "text", options, err));
    NM_TRY(check_options(self, err));
    NM_TRY(check_subwords(self, err));
    NM_TRY(*self->config->like ? open_like(self, err) : open_given(self, err));
    if (self->texts.spm[self->side].spm)
        self->normalizer = nm_spm_coder_create(self->texts.spm[self->side].spm);
    return NM_OK;
}

nm_status nm_text_filter_open(nm_text_filter **filter, nm_text_step step, const char *const *options,
                              nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!filter)
        return nm_fail(err, NM_USAGE, "nm_text_filter_open: filter is NULL");
    nm_text_filter *self = nm_allocate(sizeof *self);
    self->step = step;
    self->options = nm_options_create();
    nm_options_accept_any_text(self->options);
    self->config = nm_options_add(self->options, "text", filter_rows, NULL, sizeof(filter_config));
    nm_status status = open_filter(self, options, err);
    NM_RETURN_NEW(status, filter, self, nm_text_filter_close);
}

void nm_text_filter_close(nm_text_filter *self)
{
    if (!self)
        return;
    nm_text_coder_close(&self->coder);
    nm_spm_coder_free(self->normalizer);
    nm_prepared_texts_release(&self->texts);
    nm_vocab_free(self->subwords);
    nm_buffer_release(&self->line);
    nm_buffer_release(&self->out);
    nm_options_free(self->options);
    free(self);
}

const char *nm_text_filter_warning(const nm_text_filter *self)
{
    return self ? self->warning : NULL;
}

nm_status nm_text_filter_run(nm_text_filter *self, const char *line, const char **result, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !result)
        return nm_fail(err, NM_USAGE, "nm_text_filter_run: %s is NULL", self ? "result" : "filter");
    NM_TRY(nm_lines_check(&line, 1, "line", err));
    size_t bytes = strcspn(line, "\n");
    bytes -= bytes && line[bytes - 1] == '\r' && !self->keeps_return;
    NM_TRY(filter_line(self, line, bytes, err));
    *result = self->out.data;
    return NM_OK;
}
