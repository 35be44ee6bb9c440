#include "task/model_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/words.h"
#include "data/prepare.h"
#include "text/bpe.h"

nm_status nm_model_text_read(const char *path, char **text, nm_error *err)
{
    size_t bytes;
    NM_TRY(nm_file_read_text(path, text, &bytes, err));
    const char *zero = memchr(*text, 0, bytes);
    size_t bad = zero ? (size_t)(zero - *text) : nm_utf8_find_invalid(*text, bytes), line = 1;
    for (size_t i = 0; i < bad; i++)
        line += bad < bytes && (*text)[i] == '\n';
    if (zero)
        return nm_fail(err, NM_FORMAT, "%s:%zu: not text: contains a zero byte", path, line);
    if (bad == bytes)
        return nm_text_check(*text, bytes, path, err); /* the limit of the size */
    return nm_fail(err, NM_FORMAT, "%s:%zu: not UTF-8: byte 0x%02x", path, line,
                   (unsigned)(unsigned char)(*text)[bad]);
}

nm_status nm_model_text_read_optional(const char *path, char **text, nm_error *err)
{
    bool found;
    NM_TRY(nm_file_find(path, &found, err));
    return found ? nm_model_text_read(path, text, err) : NM_OK;
}

void nm_model_texts_load(char **texts, const char *const *names, int n, const nm_safetensors *file)
{
    for (int i = 0; i < n; i++)
        texts[i] = nm_duplicate(nm_safetensors_metadata(file, names[i]));
}

void nm_model_texts_save(char *const *texts, const char *const *names, int n, nm_safetensors_writer *writer)
{
    for (int i = 0; i < n; i++)
        if (texts[i])
            nm_safetensors_add_metadata(writer, names[i], texts[i]);
}

void nm_model_texts_free(char **texts, int n)
{
    for (int i = 0; i < n; i++)
        free(texts[i]);
}

static nm_status must_be_there(const nm_model_text *text, nm_error *err)
{
    return text->text ? NM_OK : nm_fail(err, NM_FORMAT, "%s: has no %s", text->where, text->name);
}

static char *full_name(const nm_model_text *text)
{
    return nm_format("%s: %s", text->where, text->name);
}

/* Parses a dictionary with the order of its special symbols. */
static nm_status parse_dictionary(const nm_model_text *dictionary, nm_vocab_order order, nm_vocab **vocab,
                                  nm_error *err)
{
    NM_TRY(must_be_there(dictionary, err));
    NM_AUTO_FREE char *name = full_name(dictionary);
    return nm_vocab_parse(dictionary->text, strlen(dictionary->text), name, order, vocab, err);
}

nm_status nm_model_text_vocab(const nm_model_text *dictionary, const nm_model_text *settings,
                              nm_vocab **vocab, nm_error *err)
{
    if (!settings)
        return parse_dictionary(dictionary, NM_VOCAB_FAIRSEQ, vocab, err);
    NM_TRY(must_be_there(settings, err));
    NM_AUTO_FREE char *name = full_name(settings);
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&options, &config, name, settings->text, err));
    NM_TRY(parse_dictionary(dictionary, config->special_ids, vocab, err));
    return nm_vocab_omit(*vocab, config->omit_symbols, err);
}

nm_status nm_model_text_check_codes(const nm_model_text *codes, nm_error *err)
{
    if (!codes->text)
        return NM_OK;
    NM_AUTO_FREE char *name = full_name(codes);
    nm_bpe *bpe;
    nm_status status = nm_bpe_parse(codes->text, strlen(codes->text), name, &bpe, err);
    nm_bpe_free(bpe);
    return status;
}

nm_status nm_model_text_names(const nm_model_text *list, nm_counter *names, nm_error *err)
{
    NM_TRY(must_be_there(list, err));
    const char *at = list->text;
    for (int64_t line = 1; *at; line++) {
        size_t bytes = strcspn(at, "\n");
        if (bytes > NM_TEXT_MAX_LINE || !bytes || nm_counter_find(names, at, bytes) != SIZE_MAX)
            return nm_fail(err, NM_FORMAT, "%s: %s:%lld: an empty or duplicate line", list->where, list->name,
                           (long long)line);
        nm_counter_add(names, at, bytes, 1);
        at += bytes + (at[bytes] == '\n');
    }
    return NM_OK;
}

static void add_missing(const nm_counter *from, size_t first, nm_counter *kept)
{
    for (size_t i = first; i < from->n; i++)
        nm_counter_add(kept, from->items[i].text, from->items[i].bytes, 0);
}

nm_status nm_model_text_keep(const char *path, const char *name, bool dictionary, nm_counter *kept,
                             nm_error *err)
{
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    nm_vocab *vocab = NULL;
    NM_AUTO(nm_counter_release) nm_counter names = {0};
    if (!path)
        return NM_OK;
    NM_TRY(nm_safetensors_open(&file, path, err));
    const nm_model_text text = {path, name, nm_safetensors_metadata(file, name)};
    nm_status status =
        dictionary ? nm_model_text_vocab(&text, NULL, &vocab, err) : nm_model_text_names(&text, &names, err);
    if (status == NM_OK)
        add_missing(dictionary ? &vocab->symbols : &names, dictionary ? NM_VOCAB_N_SPECIAL : 0, kept);
    nm_vocab_free(vocab);
    return status;
}

char *nm_model_text_of_names(const nm_counter *names)
{
    nm_buffer text = {0};
    nm_buffer_clear(&text);
    for (size_t i = 0; i < names->n; i++) {
        nm_buffer_append(&text, names->items[i].text, names->items[i].bytes);
        nm_buffer_append_byte(&text, '\n');
    }
    return text.data;
}

nm_status nm_model_spm_read(nm_model_spm *model, const char *path, nm_error *err)
{
    char *bytes = NULL;
    nm_status status = nm_file_read(path, &bytes, &model->n_bytes, err);
    model->bytes = bytes;
    return status == NM_OK ? nm_spm_parse(model->bytes, model->n_bytes, path, &model->spm, err) : status;
}

nm_status nm_model_spm_read_optional(nm_model_spm *model, const char *path, nm_error *err)
{
    bool found;
    NM_TRY(nm_file_find(path, &found, err));
    return found ? nm_model_spm_read(model, path, err) : NM_OK;
}

nm_status nm_model_spm_load(nm_model_spm *model, const char *name, const nm_safetensors *file, nm_error *err)
{
    const nm_safetensor *tensor = nm_safetensors_find(file, name);
    if (!tensor)
        return NM_OK;
    if (tensor->type != NM_TENSOR_U8)
        return nm_fail(err, NM_FORMAT, "%s: %s is not stored as bytes", nm_safetensors_path(file), name);
    model->bytes = nm_allocate(tensor->bytes + 1);
    model->n_bytes = tensor->bytes;
    if (tensor->bytes)
        memcpy(model->bytes, tensor->data, tensor->bytes);
    return nm_spm_parse(model->bytes, model->n_bytes, nm_safetensors_path(file), &model->spm, err);
}

void nm_model_spm_save(const nm_model_spm *model, const char *name, nm_safetensors_writer *writer)
{
    const int64_t size = (int64_t)model->n_bytes;
    if (model->bytes)
        nm_safetensors_add(writer, name, NM_TENSOR_U8, 1, &size, model->bytes);
}

bool nm_model_spm_equal(const nm_model_spm *a, const nm_model_spm *b)
{
    return a->n_bytes == b->n_bytes && (!a->n_bytes || !memcmp(a->bytes, b->bytes, a->n_bytes));
}

void nm_model_spm_release(nm_model_spm *model)
{
    nm_spm_free(model->spm);
    free(model->bytes);
    *model = (nm_model_spm){0};
}
