#include "text/metric_tokenizer.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/file.h"
#include "text/tokenize_13a.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

static void run_13a(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    (void)state;
    nm_tokenize_13a(text, scratch, out);
}

static void run_none(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    (void)state, (void)scratch;
    nm_buffer_append(out, text, strlen(text));
}

static void run_char(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    (void)state, (void)scratch;
    for (size_t bytes; *text; text += bytes) {
        nm_code_point(text, &bytes);
        nm_buffer_append(out, text, bytes);
        nm_buffer_append_byte(out, ' ');
    }
}

/* The ranges of sacreBLEU. It writes two ranges of code points above U+FFFF with four digits, which makes
 * them U+2001 to U+2A6D and U+2F81 to U+2FA1. */
static bool is_chinese(int32_t code)
{
    static const struct {
        int32_t first, last;
    } ranges[] = {{0x3400, 0x4db5}, {0x4e00, 0x9fa5}, {0x9fa6, 0x9fbb}, {0xf900, 0xfa2d}, {0xfa30, 0xfa6a},
                  {0xfa70, 0xfad9}, {0x2001, 0x2a6d}, {0x2f81, 0x2fa1}, {0xff00, 0xffef}, {0x2e80, 0x2eff},
                  {0x3000, 0x303f}, {0x31c0, 0x31ef}, {0x2f00, 0x2fdf}, {0x2ff0, 0x2fff}, {0x3100, 0x312f},
                  {0x31a0, 0x31bf}, {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f}, {0x2600, 0x26ff}, {0x2700, 0x27bf},
                  {0x3200, 0x32ff}, {0x3300, 0x33ff}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

static void run_zh(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    (void)state;
    NM_AUTO(nm_buffer_release) nm_buffer separated = {0};
    nm_buffer_clear(&separated);
    while (nm_space_length(text))
        text += nm_space_length(text);
    for (size_t bytes; *text; text += bytes) {
        bool chinese = is_chinese(nm_code_point(text, &bytes));
        if (chinese)
            nm_buffer_append_byte(&separated, ' ');
        nm_buffer_append(&separated, text, bytes);
        if (chinese)
            nm_buffer_append_byte(&separated, ' ');
    }
    nm_split_punctuation(separated.data, scratch, out);
}

typedef enum kind { OTHER, NUMBER, PUNCTUATION, SYMBOL } kind;

static kind kind_of(const char *text, size_t *bytes)
{
    int32_t code = nm_code_point(text, bytes);
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return PUNCTUATION;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return SYMBOL;
    default:
        return OTHER;
    }
}

/* One pass over non-overlapping pairs of a punctuation mark P and a character x that is not a number. after:
 * "xP" becomes "x P "; otherwise "Px" becomes " P x". */
static void split_pairs(const char *text, bool after, nm_buffer *out)
{
    for (size_t first, second = 0; *text; text += first + second) {
        kind a = kind_of(text, &first), b = text[first] ? kind_of(text + first, &second) : OTHER;
        bool is_pair =
            text[first] && (after ? a != NUMBER && b == PUNCTUATION : a == PUNCTUATION && b != NUMBER);
        if (!is_pair)
            second = 0;
        if (is_pair && !after)
            nm_buffer_append_byte(out, ' ');
        nm_buffer_append(out, text, first);
        if (is_pair)
            nm_buffer_append_byte(out, ' ');
        nm_buffer_append(out, text + first, second);
        if (is_pair && after)
            nm_buffer_append_byte(out, ' ');
    }
}

static void run_intl(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    (void)state;
    NM_AUTO(nm_buffer_release) nm_buffer once = {0};
    nm_buffer_clear(&once);
    nm_buffer_clear(scratch);
    split_pairs(text, true, &once);
    split_pairs(once.data, false, scratch);
    for (const char *at = scratch->data; *at;) {
        size_t bytes;
        bool symbol = kind_of(at, &bytes) == SYMBOL;
        if (symbol)
            nm_buffer_append_byte(out, ' ');
        nm_buffer_append(out, at, bytes);
        if (symbol)
            nm_buffer_append_byte(out, ' ');
        at += bytes;
    }
}

typedef struct spm_state {
    nm_spm *spm;
    nm_spm_coder *coder;
} spm_state;

static nm_status open_spm(const nm_metric_tokenizer_config *config, void **state, nm_error *err)
{
    if (!config->spm_model || !*config->spm_model)
        return nm_fail(err, NM_USAGE, "the tokenizer spm needs a SentencePiece model (--spm-model FILE)");
    NM_AUTO_FREE char *bytes = NULL;
    size_t n_bytes = 0;
    nm_spm *spm = NULL;
    nm_status status = nm_file_read(config->spm_model, &bytes, &n_bytes, err);
    NM_THEN(status, nm_spm_parse(bytes, n_bytes, config->spm_model, &spm, err));
    NM_TRY(status);
    spm_state *self = nm_allocate(sizeof *self);
    *self = (spm_state){spm, nm_spm_coder_create(spm)};
    *state = self;
    return NM_OK;
}

static void run_spm(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    (void)scratch;
    nm_spm_encode(((spm_state *)state)->coder, text, strlen(text), true, out);
}

static void close_spm(void *state)
{
    spm_state *self = state;
    nm_spm_coder_free(self->coder);
    nm_spm_free(self->spm);
    free(self);
}

static const nm_metric_tokenizer_type tokenizer_13a = {"13a", NULL, run_13a, NULL},
                                      tokenizer_intl = {"intl", NULL, run_intl, NULL},
                                      tokenizer_zh = {"zh", NULL, run_zh, NULL},
                                      tokenizer_char = {"char", NULL, run_char, NULL},
                                      tokenizer_none = {"none", NULL, run_none, NULL},
                                      tokenizer_spm = {"spm", open_spm, run_spm, close_spm};

static const nm_metric_tokenizer_type *const types[] = {&tokenizer_13a,
                                                        &tokenizer_intl,
                                                        &tokenizer_zh,
                                                        &tokenizer_char,
                                                        &tokenizer_none,
                                                        &nm_metric_tokenizer_japanese,
                                                        &nm_metric_tokenizer_korean,
                                                        &tokenizer_spm};

nm_status nm_metric_tokenizer_open(nm_metric_tokenizer *tokenizer, const nm_metric_tokenizer_config *config,
                                   nm_error *err)
{
    *tokenizer = (nm_metric_tokenizer){0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i]->name, config->name)) {
            NM_TRY(types[i]->open ? types[i]->open(config, &tokenizer->state, err) : NM_OK);
            tokenizer->type = types[i];
            return NM_OK;
        }
    return nm_fail(err, NM_USAGE, "unknown tokenizer of BLEU \"%.40s\"; available: " NM_METRIC_TOKENIZERS,
                   config->name);
}

void nm_metric_tokenizer_close(nm_metric_tokenizer *tokenizer)
{
    if (tokenizer->type && tokenizer->type->close)
        tokenizer->type->close(tokenizer->state);
    *tokenizer = (nm_metric_tokenizer){0};
}

void nm_metric_tokenize(const nm_metric_tokenizer *tokenizer, const char *text, nm_buffer *scratch,
                        nm_buffer *out)
{
    NM_AUTO(nm_buffer_release) nm_buffer line = {0};
    nm_buffer_clear(&line);
    size_t end = 0, space;
    for (size_t at = 0, bytes; text[at]; at += bytes) {
        nm_code_point(text + at, &bytes);
        space = nm_space_length(text + at);
        end = space ? end : at + bytes;
    }
    nm_buffer_append(&line, text, end);
    nm_buffer_append(out, "", 0);
    tokenizer->type->tokenize(tokenizer->state, line.data, scratch, out);
}

const char *nm_metric_tokenizer_of_language(const char *language)
{
    if (!nm_language_has_no_spaces(language))
        return "13a";
    static const char *const chinese[] = {"zh", "cmn", "yue"}; /* also zho */
    for (size_t i = 0; i < sizeof chinese / sizeof *chinese; i++)
        if (!strncmp(language, chinese[i], strlen(chinese[i])))
            return "zh";
    return "char";
}
