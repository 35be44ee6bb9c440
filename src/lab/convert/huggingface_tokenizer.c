#include "convert/huggingface_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/json_file.h"
#include "task/text_coder.h"
#include "text/bpe.h"
#include "text/byte_level.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool has_type(const json_t *object, const char *type)
{
    return !strcmp(text_of(object, "type"), type);
}

/* The elements of a Sequence; the object itself, if it has another type. */
static size_t n_elements(const json_t *object, const char *key)
{
    return has_type(object, "Sequence") ? json_array_size(json_object_get(object, key))
                                        : json_is_object(object);
}

static const json_t *element(const json_t *object, const char *key, size_t i)
{
    return has_type(object, "Sequence") ? json_array_get(json_object_get(object, key), i) : object;
}

static bool find_rules(const char *expression, nm_pretokenizer *rules)
{
    for (int i = 0; i < NM_PRETOKENIZERS_COUNT; i++)
        if (!strcmp(expression, nm_pretokenizer_expression((nm_pretokenizer)i))) {
            *rules = (nm_pretokenizer)i;
            return true;
        }
    return false;
}

/* Whether the text is split by rules that Norma has: ByteLevel with its own rules, those of GPT-2, possibly
 * after Digits, or Split before ByteLevel. */
static bool read_rules(const json_t *pretokenizer, nm_pretokenizer *rules)
{
    static const char key[] = "pretokenizers";
    size_t n = n_elements(pretokenizer, key);
    const json_t *split = element(pretokenizer, key, 0),
                 *bytes = n ? element(pretokenizer, key, n - 1) : NULL;
    if (!has_type(bytes, "ByteLevel") || nm_json_flag(bytes, "add_prefix_space", true))
        return false;
    *rules = NM_PRETOKENIZER_GPT2;
    if (nm_json_flag(bytes, "use_regex", true) && n == 2 && has_type(split, "Digits")) {
        *rules = NM_PRETOKENIZER_SMOLLM;
        return nm_json_flag(split, "individual_digits", false);
    }
    if (nm_json_flag(bytes, "use_regex", true))
        return n == 1;
    return n == 2 && has_type(split, "Split") && !strcmp(text_of(split, "behavior"), "Isolated") &&
           !nm_json_flag(split, "invert", false) &&
           find_rules(text_of(json_object_get(split, "pattern"), "Regex"), rules);
}

/* Whether the normalizers are those of the rules, after lowercasing if *lowercase. */
static bool read_normalizer(const json_t *normalizer, nm_import_codes *codes)
{
    bool composes = false;
    for (size_t i = 0; i < n_elements(normalizer, "normalizers"); i++) {
        const json_t *step = element(normalizer, "normalizers", i);
        if (has_type(step, "Lowercase") && !composes)
            codes->lowercase = true;
        else if (has_type(step, "NFC"))
            composes = true;
        else
            return false;
    }
    return composes == nm_pretokenizer_composes(codes->pretokenizer);
}

static bool is_empty(const json_t *object, const char *key)
{
    return !*text_of(object, key) && !json_is_true(json_object_get(object, key));
}

static nm_status check_byte_level(const json_t *file, nm_import_codes *codes, const char *path, nm_error *err)
{
    static const char *const no_effect[] = {"continuing_subword_prefix", "end_of_word_suffix",
                                            "byte_fallback"};
    const json_t *model = json_object_get(file, "model");
    const char *reason = NULL;
    if (!read_rules(json_object_get(file, "pre_tokenizer"), &codes->pretokenizer))
        reason = "pre_tokenizer";
    else if (!read_normalizer(json_object_get(file, "normalizer"), codes))
        reason = "normalizer";
    for (size_t i = 0; i < sizeof no_effect / sizeof *no_effect; i++)
        if (!is_empty(model, no_effect[i]))
            reason = no_effect[i];
    if (!reason)
        return NM_OK;
    return nm_fail(
        err, NM_UNSUPPORTED,
        "%s: this '%s' is not supported; without tokenizer.json, the model reads tokens of vocab.json", path,
        reason);
}

/* A merge is "left right" or ["left", "right"]. */
static nm_status append_merge(nm_buffer *text, const json_t *merge, const char *path, nm_error *err)
{
    const char *left = json_string_value(json_array_get(merge, 0)),
               *right = json_string_value(json_array_get(merge, 1)), *pair = json_string_value(merge);
    if (!pair && !(left && right))
        return nm_fail(err, NM_FORMAT, "%s: a merge is not a pair of tokens", path);
    const char *parts[] = {pair ? pair : left, pair ? "" : " ", pair ? "" : right, "\n"};
    for (int i = 0; i < 4; i++)
        nm_buffer_append(text, parts[i], strlen(parts[i]));
    return NM_OK;
}

/* Appends the tokens that the merges of the text do not produce. With `ignore_merges`, a word that is such a
 * token is not split. */
static nm_status append_whole_words(nm_buffer *text, json_t *vocab, const char *path, nm_error *err)
{
    nm_bpe *bpe;
    NM_TRY(nm_bpe_parse(text->data, text->bytes, path, &bpe, err));
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_buffer split = {0};
    const char *token;
    json_t *id;
    json_object_foreach(vocab, token, id)
    {
        size_t bytes = strlen(token);
        if (!bytes || bytes > NM_BPE_MAX_SYMBOL || nm_byte_level_find_other(token, bytes) < bytes)
            continue; /* no text has it */
        nm_buffer_clear(&split);
        nm_bpe_apply_line(applier, token, bytes, &split);
        if (!memchr(split.data, ' ', split.bytes))
            continue;
        nm_buffer_append(text, token, bytes);
        nm_buffer_append_byte(text, '\n');
    }
    nm_buffer_release(&split);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
    return NM_OK;
}

static nm_status read_merges(const json_t *model, nm_import_codes *codes, const char *path, nm_error *err)
{
    const json_t *merges = json_object_get(model, "merges");
    nm_buffer text = {0};
    nm_status status = NM_OK;
    nm_bpe_write_header(NM_BPE_BYTE_LEVEL, &text);
    for (size_t i = 0; i < json_array_size(merges) && status == NM_OK; i++)
        status = append_merge(&text, json_array_get(merges, i), path, err);
    if (status == NM_OK && nm_json_flag(model, "ignore_merges", false))
        status = append_whole_words(&text, json_object_get(model, "vocab"), path, err);
    codes->text = text.data;
    return status;
}

/* The vocabulary of the model and the tokens that are added to it. The caller releases the result. */
static json_t *all_tokens(const json_t *file)
{
    json_t *all = json_copy(json_object_get(json_object_get(file, "model"), "vocab"));
    const json_t *added = json_object_get(file, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const char *text = text_of(token, "content");
        if (!json_object_get(all, text))
            json_object_set(all, text, json_object_get(token, "id"));
    }
    return all;
}

static nm_status read_tokenizer_json(const json_t *file, int64_t size, nm_foreign_vocab *vocab,
                                     nm_import_codes *codes, const char *path, nm_error *err)
{
    const json_t *model = json_object_get(file, "model");
    bool bpe = has_type(model, "BPE");
    if ((!bpe && !has_type(model, "WordLevel")) || !json_is_object(json_object_get(model, "vocab")))
        return nm_fail(err, NM_UNSUPPORTED,
                       "%s: only byte-level BPE and tokenizers of the type WordLevel are supported; without "
                       "tokenizer.json, the model reads tokens of vocab.json",
                       path);
    if (bpe) {
        NM_TRY(check_byte_level(file, codes, path, err));
        NM_TRY(read_merges(model, codes, path, err));
    }
    json_auto_t *tokens = all_tokens(file);
    return nm_foreign_vocab_read(vocab, tokens, size, path, err);
}

/* merges.txt of GPT-2 and Qwen 2, whose rules depend on the class of the tokenizer. */
static nm_status read_merges_txt(const char *folder, nm_import_codes *codes, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "merges.txt"),
                      *config_path = nm_path_join(folder, "tokenizer_config.json");
    json_auto_t *config = NULL;
    nm_status status = nm_model_text_read_optional(path, &codes->text, err);
    if (status == NM_OK && codes->text && nm_file_may_exist(config_path))
        status = nm_json_read(&config, config_path, err);
    if (!strncmp(text_of(config, "tokenizer_class"), "Qwen2", 5))
        codes->pretokenizer = NM_PRETOKENIZER_QWEN2;
    return status;
}

/* Whether the merges of the model can be applied; parses them once, so that messages name the file. */
static nm_status check_codes(const nm_import_codes *codes, const char *path, nm_error *err)
{
    nm_bpe *bpe;
    NM_TRY(nm_bpe_parse(codes->text, strlen(codes->text), path, &bpe, err));
    nm_status status = nm_bpe_match_tokenizer(bpe, true, path, err);
    nm_bpe_free(bpe);
    return status;
}

nm_status nm_huggingface_read_tokenizer(const char *folder, int64_t size, nm_foreign_vocab *vocab,
                                        nm_import_codes *codes, nm_error *err)
{
    char *path = nm_path_join(folder, "tokenizer.json");
    json_auto_t *file = NULL;
    bool has_json;
    nm_status status = nm_file_find(path, &has_json, err);
    if (status == NM_OK && !has_json) {
        free(path);
        path = nm_path_join(folder, "vocab.json");
    }
    NM_THEN(status, nm_json_read(&file, path, err));
    if (status == NM_OK && has_json)
        status = read_tokenizer_json(file, size, vocab, codes, path, err);
    else if (status == NM_OK)
        status = nm_foreign_vocab_read(vocab, file, size, path, err);
    if (status == NM_OK && !has_json)
        status = read_merges_txt(folder, codes, err);
    if (status == NM_OK && codes->text)
        status = check_codes(codes, has_json ? path : "merges.txt", err);
    free(path);
    return status;
}

nm_status nm_huggingface_read_pieces(const char *folder, int64_t size, nm_foreign_vocab *vocab,
                                     nm_model_spm *spm, bool *found, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "tokenizer.model");
    nm_status status = nm_file_find(path, found, err);
    if (status == NM_OK && *found)
        status = nm_model_spm_read(spm, path, err);
    if (status == NM_OK && *found) {
        const nm_counter *pieces = &spm->spm->texts;
        json_auto_t *none = json_object();
        status = (int64_t)pieces->n <= size
                     ? nm_foreign_vocab_read(vocab, none, size, path, err)
                     : nm_fail(err, NM_MISMATCH, "%s: has %zu pieces, but the model has %lld tokens", path,
                               pieces->n, (long long)size);
        NM_AUTO(nm_buffer_release) nm_buffer name = {0};
        for (size_t i = 0; status == NM_OK && i < pieces->n; i++) {
            nm_buffer_clear(&name);
            nm_spm_append_name(spm->spm, i, &name);
            bool used = spm->spm->pieces[i].type != NM_SPM_CONTROL;
            if (used || !strcmp(name.data, pieces->items[i].text))
                vocab->symbols[i] = nm_duplicate(name.data);
        }
    }
    return status;
}

nm_huggingface_vocab nm_huggingface_vocab_of(const nm_vocab *vocab)
{
    nm_huggingface_vocab out = {.vocab = vocab,
                                .ids = nm_allocate((size_t)nm_vocab_size(vocab) * sizeof *out.ids)};
    for (int32_t id = 0; id < nm_vocab_size(vocab); id++)
        out.ids[id] = nm_vocab_omits(vocab, id) ? -1 : out.size++;
    return out;
}

json_t *nm_huggingface_id(const nm_huggingface_vocab *vocab, int32_t id)
{
    return vocab->ids[id] < 0 ? json_null() : json_integer(vocab->ids[id]);
}

nm_map_ids nm_huggingface_ids(const nm_huggingface_vocab *vocab)
{
    return (nm_map_ids){.ids = {[NM_OF_TARGET_VOCAB] = vocab->ids},
                        .size = {[NM_OF_TARGET_VOCAB] = vocab->size}};
}

/* The name of a special symbol; NULL if it is omitted. */
static const char *symbol_of(const nm_huggingface_vocab *vocab, int32_t id)
{
    return vocab->ids[id] < 0 ? NULL : nm_vocab_symbol(vocab->vocab, id);
}

/* NULL if the token is omitted. */
static json_t *special_token(const nm_huggingface_vocab *vocab, int32_t id)
{
    if (vocab->ids[id] < 0)
        return NULL;
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)vocab->ids[id], "content",
                     nm_vocab_symbol(vocab->vocab, id), "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", 0, "special", 1);
}

/* transformers finds special tokens in text. Byte-level BPE has no unknown tokens, and "<unk>" is text. */
static json_t *special_tokens(const nm_huggingface_vocab *vocab, bool byte_level)
{
    const nm_vocab *v = vocab->vocab;
    return json_pack("[o*, o*, o*, o*]", special_token(vocab, v->bos), special_token(vocab, v->pad),
                     special_token(vocab, v->eos), byte_level ? NULL : special_token(vocab, v->unk));
}

static json_t *symbols_of(const nm_huggingface_vocab *vocab)
{
    json_t *symbols = json_object();
    for (int32_t i = 0; i < nm_vocab_size(vocab->vocab); i++)
        if (vocab->ids[i] >= 0)
            json_object_set_new(symbols, nm_vocab_symbol(vocab->vocab, i), json_integer(vocab->ids[i]));
    return symbols;
}

/* Appends </s> to a text. */
static json_t *ending_processor(const nm_huggingface_vocab *vocab)
{
    int32_t id = vocab->vocab->eos;
    const char *eos = nm_vocab_symbol(vocab->vocab, id);
    return json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], "
                     "s:{s:{s:s, s:[i], s:[s]}}}",
                     "type", "TemplateProcessing", "single", "Sequence", "id", "A", "type_id", 0,
                     "SpecialToken", "id", eos, "type_id", 0, "pair", "Sequence", "id", "A", "type_id", 0,
                     "Sequence", "id", "B", "type_id", 0, "special_tokens", eos, "id", eos, "ids",
                     (int)vocab->ids[id], "tokens", eos);
}

/* tokenizer.json; releases the parts. */
static json_t *tokenizer_file(const nm_huggingface_tokenizer *from, json_t *normalizer, json_t *pretokenizer,
                              json_t *decoder, json_t *model)
{
    bool byte_level = !json_is_null(decoder);
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation",
                     "padding", "added_tokens", special_tokens(from->vocab, byte_level), "normalizer",
                     normalizer, "pre_tokenizer", pretokenizer, "post_processor",
                     from->ends ? ending_processor(from->vocab) : json_null(), "decoder", decoder, "model",
                     model);
}

/* Subwords are separated by spaces. */
static json_t *word_level(const nm_huggingface_tokenizer *from)
{
    json_t *model = json_pack("{s:s, s:o, s:s}", "type", "WordLevel", "vocab", symbols_of(from->vocab),
                              "unk_token", nm_vocab_symbol(from->vocab->vocab, from->vocab->vocab->unk));
    return tokenizer_file(from, json_null(), json_pack("{s:s}", "type", "WhitespaceSplit"), json_null(),
                          model);
}

static json_t *bytes_step(bool splits)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", splits);
}

static json_t *pretokenizer_of(nm_pretokenizer rules)
{
    if (rules == NM_PRETOKENIZER_GPT2)
        return bytes_step(true);
    if (nm_pretokenizer_separates_digits(rules))
        return json_pack("{s:s, s:[{s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Digits",
                         "individual_digits", 1, bytes_step(true));
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type",
                     "Split", "pattern", "Regex", nm_pretokenizer_expression(rules), "behavior", "Isolated",
                     "invert", 0, bytes_step(false));
}

static json_t *normalizer_of(bool lowercase, bool composes)
{
    if (!lowercase && !composes)
        return json_null();
    return json_pack("{s:s, s:[o*, o*]}", "type", "Sequence", "normalizers",
                     lowercase ? json_pack("{s:s}", "type", "Lowercase") : NULL,
                     composes ? json_pack("{s:s}", "type", "NFC") : NULL);
}

static nm_status add_merges(const nm_bpe *bpe, const nm_vocab *vocab, json_t *merges, nm_error *err)
{
    for (size_t i = 0; i < bpe->n_merges; i++) {
        const nm_bpe_merge *merge = &bpe->merges[i];
        const uint32_t parts[] = {merge->left, merge->right, merge->joined};
        for (int p = 0; p < 3; p++) {
            const nm_count *symbol = &bpe->symbols.items[parts[p]];
            if (nm_counter_find(&vocab->symbols, symbol->text, symbol->bytes) == SIZE_MAX)
                return nm_fail(err, NM_UNSUPPORTED,
                               "the dictionary lacks the subword \"%.*s\" of byte-level BPE (min_count, "
                               "max_words or a given dictionary), which transformers does not allow",
                               (int)symbol->bytes, symbol->text);
        }
        const nm_count *left = &bpe->symbols.items[merge->left], *right = &bpe->symbols.items[merge->right];
        json_array_append_new(merges, json_pack("[s%, s%]", left->text, (size_t)left->bytes, right->text,
                                                (size_t)right->bytes));
    }
    return NM_OK;
}

static nm_status make_byte_level(const nm_huggingface_tokenizer *from, const nm_byte_level_rules *rules,
                                 json_t **file, nm_error *err)
{
    nm_bpe *bpe;
    json_t *merges = json_array();
    NM_TRY(nm_bpe_parse(from->codes, strlen(from->codes), "codes.bpe", &bpe, err));
    nm_status status = add_merges(bpe, from->vocab->vocab, merges, err);
    bool has_whole_words = bpe->whole.n > 0;
    nm_bpe_free(bpe);
    if (status != NM_OK) {
        json_decref(merges);
        return status;
    }
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                  "ignore_merges", (int)has_whole_words, "vocab", symbols_of(from->vocab), "merges", merges);
    *file =
        tokenizer_file(from, normalizer_of(rules->lowercase, nm_pretokenizer_composes(rules->pretokenizer)),
                       pretokenizer_of(rules->pretokenizer), bytes_step(true), model);
    return NM_OK;
}

static nm_status make_file(const nm_huggingface_tokenizer *from, json_t **file, nm_error *err)
{
    nm_byte_level_rules rules;
    NM_TRY(nm_text_coder_byte_level(from->settings, &rules, err));
    if (rules.used && from->codes)
        return make_byte_level(from, &rules, file, err);
    *file = word_level(from);
    return NM_OK;
}

nm_status nm_huggingface_check_tokenizer(const nm_huggingface_tokenizer *tokenizer, nm_error *err)
{
    json_auto_t *file = NULL;
    return make_file(tokenizer, &file, err);
}

nm_status nm_huggingface_write_tokenizer(const nm_huggingface_tokenizer *from, const char *folder,
                                         nm_error *err)
{
    const nm_vocab *vocab = from->vocab->vocab;
    json_t *file = NULL;
    NM_TRY(make_file(from, &file, err));
    bool byte_level = !json_is_null(json_object_get(file, "decoder"));
    NM_TRY(nm_json_write(file, folder, "tokenizer.json", err));
    json_t *config = json_pack(
        "{s:s, s:I, s:b, s:s*, s:s*, s:s*, s:s*}", "tokenizer_class", "PreTrainedTokenizerFast",
        "model_max_length", (json_int_t)from->longest, "clean_up_tokenization_spaces", 0, "bos_token",
        symbol_of(from->vocab, nm_vocab_omits(vocab, vocab->bos) ? vocab->eos : vocab->bos), "eos_token",
        symbol_of(from->vocab, vocab->eos), "pad_token", symbol_of(from->vocab, vocab->pad), "unk_token",
        byte_level ? NULL : symbol_of(from->vocab, vocab->unk));
    return nm_json_write(config, folder, "tokenizer_config.json", err);
}
