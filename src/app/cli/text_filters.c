/* norma tokenize, detokenize, subword, normalize: the steps of text preparation as filters, to inspect their
 * results and to use them in pipelines. The settings are those of a data folder or model (--like), or
 * options. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/text_input.h"
#include "cli/model_command.h"
#include "data/prepare.h"
#include "task/model_loader.h"
#include "task/prepared_texts.h"
#include "task/text_coder.h"
#include "text/moses_rules.h"
#include "text/utf8.h"
#include "text/words.h"

#define NORMAL_FORMS(C)                                                                                      \
    C(FORM_NFC, "nfc")                                                                                       \
    C(FORM_NFD, "nfd")                                                                                       \
    C(FORM_NFKC, "nfkc")                                                                                     \
    C(FORM_NFKD, "nfkd") C(FORM_PUNCTUATION, "punctuation") C(FORM_PRINTABLE, "printable")
NM_CHOICES(normal_form, NORMAL_FORMS);

#define SIDES(C) C(SIDE_SOURCE, "source") C(SIDE_TARGET, "target")
NM_CHOICES(text_side, SIDES);

typedef struct filter_config { /* section [text] */
    const char *output, *like, *tokenizer, *language, *nonbreaking_prefixes, *user_symbols, *codes,
        *spm_model, *encoding;
    text_side side;
    nm_text_format format;
    normal_form form;
    nm_pretokenizer pretokenizer;
    bool aggressive, escape, protect, lowercase, undo;
} filter_config;

/* clang-format off */
static const nm_option filter_rows[] = {
    NM_OPTION(filter_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_OPTION(filter_config, like, "", 0, 0,
        "Data folder, model file or run folder, whose settings, BPE codes and SentencePiece model are used."),
    NM_CHOICE(filter_config, side, "source", SIDES, "Side of the data folder or model of --like."),
    NM_OPTION(filter_config, undo, "false", 0, 0,
        "Reverse the step: join pieces, subwords or tokens to text."),
    NM_WORD(filter_config, tokenizer, "moses", NM_TOKENIZER_NAMES, "Tokenizer without --like."),
    NM_CHOICE(filter_config, pretokenizer, "gpt2", NM_PRETOKENIZERS,
        "Rules of the tokenizer byte_level, which split text into words."),
    NM_OPTION(filter_config, language, "en", 0, 0,
        "Language of the Moses tokenizer or of its punctuation rules, a code of two or three letters."),
    NM_OPTION(filter_config, aggressive, "false", 0, 0,
        "Splitting of words at hyphens into @-@ by the Moses tokenizer."),
    NM_OPTION(filter_config, escape, "true", 0, 0,
        "Escaping of & | < > ' \" [ ] as entities by the Moses tokenizer."),
    NM_OPTION(filter_config, protect, "false", 0, 0,
        "Addresses of pages, mail addresses and tags of markup as one token each by the Moses tokenizer."),
    NM_OPTION(filter_config, nonbreaking_prefixes, "", 0, 0,
        "File of abbreviations for the Moses tokenizer in the format of its nonbreaking_prefixes, or folder "
        "with a file nonbreaking_prefix.LANGUAGE; empty: Norma's own list of the language."),
    NM_OPTION(filter_config, lowercase, "false", 0, 0, "Lowercasing."),
    NM_OPTION(filter_config, user_symbols, "", 0, 0,
        "User-defined symbols, comma-separated, such as <2en>,<num>, each of which is one token."),
    NM_OPTION(filter_config, codes, "", 0, 0, "File of BPE codes for subword."),
    NM_OPTION(filter_config, spm_model, "", 0, 0,
        "SentencePiece model; selects the tokenizer sentencepiece."),
    NM_CHOICE(filter_config, format, "raw", NM_WORD_FORMATS,
        "Format of the text that subword reads, or writes with --undo."),
    NM_CHOICE(filter_config, form, "nfkc", NORMAL_FORMS,
        "Normalization without --like and without a SentencePiece model: a Unicode normal form; "
        "punctuation like Moses' normalize-punctuation.perl for the language; "
        "printable replaces non-printing characters by spaces."),
    NM_OPTION(filter_config, encoding, "utf-8", 0, 0,
        "Encoding of the input, a name of iconv such as latin1 or utf-16."),
    {0}};
/* clang-format on */

typedef enum step { TOKENIZE, DETOKENIZE, SUBWORD, NORMALIZE } step;

typedef struct filter {
    const filter_config *config;
    step step;
    nm_prepared_texts texts; /* with --like; otherwise only codes and the SentencePiece model of side 0 */
    int side;                /* of texts */
    nm_vocab *subwords;
    nm_spm_coder *normalizer;
    nm_text_coder coder;
    char *prefixes; /* heap; NULL: those of the language */
    nm_buffer line, out;
} filter;

/* The tokenizer without --like; that of a SentencePiece model if one is given. */
static const char *given_tokenizer(const filter_config *config)
{
    return *config->spm_model ? "sentencepiece" : config->tokenizer;
}

/* Why an option that was given has no effect, or NULL if it has one. */
static const char *no_effect(const filter *self, const char *option)
{
    const filter_config *config = self->config;
    const char *tokenizer = given_tokenizer(config);
    bool moses = !strcmp(tokenizer, "moses"), normalizes = self->step == NORMALIZE;
    bool joins = self->step == DETOKENIZE || config->undo;
    if (!strcmp(option, "side"))
        return *config->like ? NULL : "without --like";
    if (!strcmp(option, "codes"))
        return self->step == SUBWORD ? NULL : ": only subword applies BPE";
    if (!strcmp(option, "format"))
        return self->step == SUBWORD ? NULL : ": only subword uses it";
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
static nm_status check_options(const nm_cli *cli, const filter *self, nm_error *err)
{
    static const char *const of_like[] = {
        "tokenizer", "pretokenizer", "language", "aggressive", "escape", "protect", "nonbreaking_prefixes",
        "lowercase", "user_symbols", "codes",    "spm_model"};
    if (self->step == NORMALIZE && self->config->undo)
        return nm_fail(err, NM_USAGE, "normalization cannot be undone");
    if (self->step == DETOKENIZE && self->config->undo)
        return nm_fail(err, NM_USAGE, "detokenize has no --undo: use norma tokenize");
    for (const nm_option *row = filter_rows; row->name; row++) {
        char *path = nm_format("text.%s", row->name);
        bool given = nm_options_origin(cli->options, path) != NM_ORIGIN_DEFAULT, fixed = false;
        free(path);
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
static nm_status check_subwords(const filter *self, nm_error *err)
{
    const filter_config *config = self->config;
    bool given = *config->like || *config->codes || *config->spm_model || config->undo ||
                 !strcmp(config->tokenizer, nm_tokenizer_byte_level.name);
    return self->step != SUBWORD || given ? NM_OK
                                          : nm_fail(err, NM_USAGE,
                                                    "subword: no subwords given: --like DATA|MODEL, --codes "
                                                    "FILE or --spm-model FILE (norma tokenize writes words)");
}

static nm_status open_coder(filter *self, const nm_prepare_config *prepare, const char *language,
                            nm_error *err)
{
    int64_t threshold = prepare->bpe_vocabulary_threshold;
    const nm_prepared_texts *texts = &self->texts;
    const char *subwords =
        texts->subwords[self->side] ? texts->subwords[self->side] : texts->dictionaries[self->side];
    if (threshold && subwords)
        NM_TRY(
            nm_vocab_parse(subwords, strlen(subwords), "dictionary", NM_VOCAB_FAIRSEQ, &self->subwords, err));
    nm_text_coder_config config = {.tokenizer = prepare->tokenizer,
                                   .options = nm_tokenizer_options_default(),
                                   .clean = {prepare->punctuation, prepare->remove_non_printing, language},
                                   .lowercase = prepare->lowercase,
                                   .codes = self->step == SUBWORD ? texts->codes : NULL,
                                   .codes_name = *self->config->codes ? self->config->codes : "BPE codes",
                                   .subwords = self->subwords,
                                   .threshold = self->subwords ? threshold : 0};
    config.options.aggressive = prepare->aggressive;
    config.options.escape = prepare->escape;
    config.options.protect = prepare->protect;
    config.options.prefixes = self->prefixes;
    config.options.spm = texts->spm[self->side].spm;
    config.options.pretokenizer = prepare->pretokenizer;
    config.options.user_symbols = prepare->user_symbols;
    if (nm_tokenizer_has_language(prepare->tokenizer) && *language)
        config.options.language = language;
    return nm_text_coder_open(&self->coder, &config, err);
}

static nm_status open_like(filter *self, nm_error *err)
{
    bool source = self->config->side == SIDE_SOURCE;
    NM_TRY(nm_prepared_texts_read(&self->texts, self->config->like, err));
    self->side = source || self->texts.plain ? 0 : 1;
    nm_options *options = nm_options_create();
    const nm_prepare_config *prepare =
        nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    nm_status status = nm_options_read_text(options, "data.ini", self->texts.settings, err);
    if (status == NM_OK)
        self->prefixes = nm_duplicate(source ? prepare->source_prefixes : prepare->target_prefixes);
    if (status == NM_OK)
        status = open_coder(self, prepare, source ? prepare->source_lang : prepare->target_lang, err);
    nm_options_free(options);
    return status;
}

static nm_status open_given(filter *self, nm_error *err)
{
    const filter_config *config = self->config;
    nm_prepare_config prepare = {.tokenizer = given_tokenizer(config),
                                 .pretokenizer = config->pretokenizer,
                                 .aggressive = config->aggressive,
                                 .escape = config->escape,
                                 .protect = config->protect,
                                 .lowercase = config->lowercase,
                                 .user_symbols = config->user_symbols};
    if (*config->spm_model)
        NM_TRY(nm_model_spm_read(&self->texts.spm[0], config->spm_model, err));
    if (*config->codes)
        NM_TRY(nm_model_text_read(config->codes, &self->texts.codes, err));
    if (self->step == NORMALIZE && !self->texts.spm[0].spm) {
        prepare.tokenizer = "none";
        if (config->form == FORM_PUNCTUATION)
            prepare.punctuation = NM_PUNCTUATION_MOSES;
        prepare.remove_non_printing = config->form == FORM_PRINTABLE;
    }
    bool reads = (self->step == TOKENIZE || self->step == SUBWORD) && !config->undo &&
                 !strcmp(prepare.tokenizer, nm_tokenizer_moses.name) && config->format == NM_FORMAT_RAW;
    if (reads && *config->nonbreaking_prefixes)
        NM_TRY(nm_moses_prefixes_read(config->nonbreaking_prefixes, config->language, &self->prefixes, err));
    else if (reads && !nm_moses_has_prefixes(config->language))
        nm_cli_warn("there is no list of abbreviations for this language, so that of English is used; "
                    "--nonbreaking-prefixes reads a list of Moses");
    return open_coder(self, &prepare, config->language, err);
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

static nm_status filter_line(filter *self, const char *line, size_t bytes, nm_error *err)
{
    nm_text_coder *coder = &self->coder;
    bool keeps_text = coder->tokenizer.type->keeps_text, undo = self->config->undo;
    bool detokenizes = self->step == DETOKENIZE || (self->step == TOKENIZE && undo);
    nm_buffer *out = &self->out;
    nm_buffer_clear(out);
    nm_buffer_clear(&self->line);
    if (self->step == NORMALIZE) {
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
    } else if (self->step == SUBWORD && undo) {
        if (keeps_text)
            nm_buffer_append(&self->line, line, bytes);
        else
            nm_bpe_remove(line, bytes, &self->line);
        if (keeps_text || self->config->format == NM_FORMAT_RAW)
            nm_detokenize(&coder->tokenizer, self->line.data, self->line.bytes, out);
        else
            nm_buffer_append(out, self->line.data, self->line.bytes);
    } else if (detokenizes) {
        nm_detokenize(&coder->tokenizer, line, bytes, out);
    } else {
        nm_text_coder_run(coder, self->step == SUBWORD ? self->config->format : NM_FORMAT_RAW, line, bytes);
        nm_buffer_append(out, coder->subwords.data, coder->subwords.bytes);
    }
    nm_buffer_append_byte(out, '\n');
    return NM_OK;
}

static nm_status filter_lines(filter *self, nm_lines *lines, FILE *output, nm_error *err)
{
    for (;;) {
        bool more;
        NM_TRY(nm_lines_next_text(lines, &more, err));
        if (!more)
            return NM_OK;
        NM_TRY(filter_line(self, lines->text, lines->bytes, err));
        fwrite(self->out.data, 1, self->out.bytes, output);
        if (ferror(output))
            return NM_OK; /* the error is reported when the output is closed */
    }
}

static nm_status run_filter(filter *self, const char *input, nm_error *err)
{
    NM_TRY(*self->config->like ? open_like(self, err) : open_given(self, err));
    if (self->texts.spm[self->side].spm)
        self->normalizer = nm_spm_coder_create(self->texts.spm[self->side].spm);
    FILE *stream;
    NM_TRY(nm_text_open_checked(&stream, input, self->config->encoding, err));
    nm_cli_output output;
    nm_lines lines;
    nm_lines_init(&lines, stream, nm_input_name(input));
    nm_status status = nm_cli_output_open(&output, self->config->output, input, err);
    if (status == NM_OK) {
        /* the result of a line is written before the next line is read */
        if (stream == stdin && output.stream == stdout)
            setvbuf(stdout, NULL, _IOLBF, 0);
        status = filter_lines(self, &lines, output.stream, err);
        status = nm_cli_output_close(&output, status, err);
    }
    nm_lines_release(&lines);
    if (stream != stdin)
        fclose(stream);
    return status;
}

static int run(nm_cli *cli, int argc, char **argv, step which)
{
    nm_error err = {0};
    filter self = {.config = nm_options_find(cli->options, "text"), .step = which};
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 0, 1, &err);
    if (status == NM_OK)
        status = check_options(cli, &self, &err);
    if (status == NM_OK)
        status = check_subwords(&self, &err);
    if (status == NM_OK)
        status = run_filter(&self, argc ? argv[0] : "-", &err);
    nm_text_coder_close(&self.coder);
    nm_spm_coder_free(self.normalizer);
    nm_prepared_texts_release(&self.texts);
    nm_vocab_free(self.subwords);
    free(self.prefixes);
    nm_buffer_release(&self.line);
    nm_buffer_release(&self.out);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

static void add_options(nm_options *options)
{
    nm_options_add(options, "text", filter_rows, NULL, sizeof(filter_config));
}

static int run_tokenize(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, TOKENIZE);
}

static int run_detokenize(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, DETOKENIZE);
}

static int run_subword(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, SUBWORD);
}

static int run_normalize(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, NORMALIZE);
}

#define SETTINGS_HELP                                                                                        \
    "Lines of FILE or standard input are read, and results are written to standard output. The settings "    \
    "are those of a data folder or model (--like), or the options."

static const char *const not_of_tokenizers[] = {"text.codes", "text.format", "text.form", NULL};
static const char *const not_of_detokenize[] = {"text.codes",
                                                "text.format",
                                                "text.form",
                                                "text.undo",
                                                "text.aggressive",
                                                "text.escape",
                                                "text.lowercase",
                                                "text.pretokenizer",
                                                "text.user_symbols",
                                                "text.protect",
                                                "text.nonbreaking_prefixes",
                                                NULL};
static const char *const not_of_subword[] = {"text.form", NULL};
static const char *const not_of_normalize[] = {
    "text.codes",  "text.format",       "text.undo",         "text.tokenizer", "text.aggressive",
    "text.escape", "text.pretokenizer", "text.user_symbols", "text.protect",   "text.nonbreaking_prefixes",
    NULL};

const nm_command nm_command_tokenize = {
    .name = "tokenize",
    .summary = "tokenize lines of text as norma prepare does",
    .usage = "[FILE] [--like DATA|MODEL] [--undo] [OPTION ...]",
    .details = SETTINGS_HELP
    " With --undo, tokens are joined to text again, as by norma detokenize. SentencePiece writes "
    "pieces.",
    .section = "text",
    .unlisted = not_of_tokenizers,
    .options = add_options,
    .run = run_tokenize,
};

const nm_command nm_command_detokenize = {
    .name = "detokenize",
    .summary = "join tokens to text as norma translate does",
    .usage = "[FILE] [--like DATA|MODEL] [OPTION ...]",
    .details = SETTINGS_HELP,
    .section = "text",
    .unlisted = not_of_detokenize,
    .options = add_options,
    .run = run_detokenize,
};

const nm_command nm_command_subword = {
    .name = "subword",
    .summary = "split text into the subwords that a model reads",
    .usage = "[FILE] --like DATA|MODEL|--codes FILE|--spm-model FILE [--undo] [OPTION ...]",
    .details = SETTINGS_HELP
    " Text is tokenized, lowercased if that is set, and split by BPE or SentencePiece: the result "
    "is what norma prepare turns into ids, except that symbols outside the dictionary become "
    "<unk> there. With --undo, subwords are joined and detokenized.",
    .section = "text",
    .unlisted = not_of_subword,
    .options = add_options,
    .run = run_subword,
};

const nm_command nm_command_normalize = {
    .name = "normalize",
    .summary = "normalize Unicode text as a SentencePiece model does",
    .usage = "[FILE] [--like DATA|MODEL] [--form nfc|nfd|nfkc|nfkd|punctuation|printable]",
    .details = SETTINGS_HELP " With a SentencePiece model its rules are applied, otherwise the steps of the "
                             "data folder (--like), a Unicode "
                             "normal form, or a script of Moses.",
    .section = "text",
    .unlisted = not_of_normalize,
    .options = add_options,
    .run = run_normalize,
};
