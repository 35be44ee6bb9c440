/* SentencePiece models of `norma prepare`: given, or learned from the training text by spm_train, the program
 * of SentencePiece, which is needed for learning only. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/subprocess.h"
#include "data/prepare_private.h"
#include "text/clean.h"
#include "text/utf8.h"

/* Temporary subfolder of the data folder for learning, and its files. spm_train stores their names in the
 * model, so they are relative and constant, and the model does not depend on them. */
static const char learn_folder[] = "sentencepiece.tmp";
static const char *const learn_files[] = {"text", "messages", "sentencepiece.model", "sentencepiece.vocab"};
enum { TEXT, MESSAGES, MODEL };

char *nm_prepare_spm_name(int sides, int side)
{
    return sides == 1 ? nm_duplicate("sentencepiece.model")
                      : nm_format("sentencepiece.%s.model", nm_prepare_side_name(sides, side));
}

/* Writes the lines of the sides first .. last, cleaned and, with the option lowercase, in lower case. Lines
 * that are not text are skipped; nm_prepare_words reports them. */
static void write_lines(const nm_prepare *self, const nm_prepare_block *block, int first, int last,
                        nm_cleaner *cleaners, nm_buffer *lower, FILE *out)
{
    for (size_t i = 0; i < block->lines[first].n; i++)
        for (int side = first; side <= last; side++) {
            size_t bytes;
            const char *line = nm_line_list_get(&block->lines[side], i, &bytes);
            if (!bytes || memchr(line, 0, bytes) || nm_utf8_find_invalid(line, bytes) < bytes)
                continue;
            if (nm_cleaner_is_active(&cleaners[side])) {
                const nm_buffer *clean = nm_clean(&cleaners[side], line, bytes);
                line = clean->data;
                bytes = clean->bytes;
            }
            if (self->config->lowercase) {
                nm_buffer_clear(lower);
                nm_utf8_lowercase(line, bytes, lower);
                line = lower->data;
                bytes = lower->bytes;
            }
            fwrite(line, 1, bytes, out);
            putc('\n', out);
        }
}

static nm_status write_text(const nm_prepare *self, const char *path, int first, int last, nm_error *err)
{
    nm_prepare_reader reader;
    NM_AUTO_FREE nm_prepare_block *block = nm_allocate(sizeof *block);
    NM_AUTO(nm_buffer_release) nm_buffer lower = {0};
    nm_cleaner cleaners[NM_PREPARE_SIDES];
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        nm_prepare_cleaner_init(&cleaners[side], self->config, side);
    FILE *out = NULL;
    nm_status status = nm_prepare_reader_open(&reader, self, PREPARE_TRAIN, err);
    NM_THEN(status, nm_file_open(&out, path, "wb", err));
    if (status == NM_OK) {
        do {
            nm_prepare_reader_next(&reader, block);
            write_lines(self, block, first, last, cleaners, &lower, out);
        } while (block->lines[PREPARE_SOURCE].n);
        status = nm_file_close(out, path, err);
        if (status == NM_OK && reader.err.status != NM_OK) {
            *err = reader.err;
            status = err->status;
        }
    }
    nm_prepare_reader_close(&reader);
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        nm_cleaner_release(&cleaners[side]);
    nm_prepare_block_release(block);
    return status;
}

/* Fails with the end of the messages of spm_train, on one line. */
static nm_status train_error(const char *path, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    nm_file_read(path, &text, &bytes, NULL);
    while (bytes && (unsigned char)text[bytes - 1] <= ' ')
        text[--bytes] = 0;
    const char *end = bytes > 400 ? text + bytes - 400 : text;
    while (end && nm_utf8_continues(*end))
        end++;
    for (char *at = text; at && *at; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    const bool few_pieces = text && strstr(text, "required_chars");
    nm_fail(err, NM_MISMATCH, "spm_train failed%s: %s",
            few_pieces ? ", prepare.spm_vocab_size is too small for the characters of the text" : "",
            bytes ? end : "without a message");
    return NM_MISMATCH;
}

/* The normalization of the model that is learned for the sides up to `last`. NFKC replaces the full-width
 * punctuation of Chinese and Japanese and decomposes vowels of Thai and Lao, and nmt_nfkc replaces the
 * zero-width non-joiners within Persian words by spaces, so a Transformer that produces these languages
 * learns other text. */
static const char *normalization(const nm_prepare *self, int last)
{
    const nm_prepare_config *config = self->config;
    const char *languages[NM_PREPARE_SIDES] = {config->source_lang, config->target_lang};
    if (strcmp(config->spm_normalization, "auto"))
        return config->spm_normalization;
    if (last < self->sides - 1)
        return "nmt_nfkc";
    return nm_language_has_no_spaces(languages[last])     ? "identity"
           : nm_language_has_non_joiners(languages[last]) ? "nfkc"
                                                          : "nmt_nfkc";
}

/* Starts spm_train. Its number of threads is fixed, because it determines the order of sums. */
static nm_status start_training(const nm_prepare_config *config, const char *rule, const char *folder,
                                pid_t *process, nm_error *err)
{
    char *type = nm_format("--model_type=%s", config->spm_type),
         *size = nm_format("--vocab_size=%lld", (long long)config->spm_vocab_size),
         *coverage = nm_format("--character_coverage=%.17g", config->spm_character_coverage),
         *rules = nm_format("--normalization_rule_name=%s", rule),
         *symbols = nm_format("--user_defined_symbols=%s", config->user_symbols);
    char *const arguments[] = {"spm_train",
                               "--input=text",
                               "--model_prefix=sentencepiece",
                               "--num_threads=16",
                               "--minloglevel=1",
                               "--hard_vocab_limit=false",
                               type,
                               size,
                               coverage,
                               rules,
                               symbols,
                               config->spm_byte_fallback ? "--byte_fallback=true" : "--byte_fallback=false",
                               NULL};
    int failed = nm_subprocess_start(arguments, folder, learn_files[MESSAGES], process);
    NM_FREE(type, size, coverage, rules, symbols);
    if (failed == ENOENT)
        return nm_fail(
            err, NM_UNSUPPORTED,
            "spm_train, which learns SentencePiece models, is not installed; its Debian package is "
            "sentencepiece. An existing model (--spm-model) does not require it");
    return failed ? nm_fail(err, nm_file_error_status(failed), "cannot start spm_train: %s", strerror(failed))
                  : NM_OK;
}

static nm_status learn_in(nm_prepare *self, const char *folder, int first, int last, nm_buffer *model,
                          nm_error *err)
{
    char *paths[3], *bytes = NULL;
    size_t n_bytes = 0;
    pid_t process;
    int code = 0;
    for (int i = 0; i < 3; i++)
        paths[i] = nm_path_join(folder, learn_files[i]);
    nm_status status = write_text(self, paths[TEXT], first, last, err);
    NM_THEN(status, start_training(self->config, normalization(self, last), folder, &process, err));
    if (status == NM_OK) {
        while (waitpid(process, &code, 0) < 0 && errno == EINTR)
            continue;
        status = WIFEXITED(code) && !WEXITSTATUS(code) ? nm_file_read(paths[MODEL], &bytes, &n_bytes, err)
                                                       : train_error(paths[MESSAGES], err);
    }
    if (status == NM_OK)
        nm_buffer_append(model, bytes, n_bytes);
    free(bytes);
    for (int i = 0; i < 3; i++)
        free(paths[i]);
    return status;
}

static nm_status learn(nm_prepare *self, int first, int last, nm_buffer *model, nm_error *err)
{
    NM_AUTO_FREE char *folder = nm_path_join(self->config->output, learn_folder);
    nm_status status = nm_folder_create(folder, err);
    NM_THEN(status, learn_in(self, folder, first, last, model, err));
    for (size_t i = 0; i < sizeof learn_files / sizeof *learn_files; i++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, learn_files[i]);
        unlink(path);
    }
    rmdir(folder);
    return status;
}

/* Reads or learns the model of the sides first .. last. */
static nm_status get_model(nm_prepare *self, const char *given, int first, int last, nm_error *err)
{
    nm_buffer *model = &self->spm_bytes[first];
    if (*given) {
        NM_AUTO_FREE char *bytes = NULL;
        size_t n_bytes = 0;
        nm_status status = nm_file_read(given, &bytes, &n_bytes, err);
        if (status == NM_OK)
            nm_buffer_append(model, bytes, n_bytes);
        NM_TRY(status);
    } else {
        NM_TRY(learn(self, first, last, model, err));
    }
    const char *name = *given ? given : "the learned model";
    NM_TRY(nm_spm_parse(model->data, model->bytes, name, &self->spm[first], err));
    self->report->pieces[first] = (int64_t)self->spm[first]->texts.n;
    if (last > first) {
        nm_buffer_append(&self->spm_bytes[last], model->data, model->bytes);
        self->spm[last] = self->spm[first];
        self->report->pieces[last] = self->report->pieces[first];
    }
    return NM_OK;
}

static nm_status use_models_of_like(nm_prepare *self, nm_error *err)
{
    const nm_prepare_existing *like = self->like;
    for (int side = 0; side < self->sides; side++) {
        if (!like->spm[side])
            return nm_fail(err, NM_FORMAT, "%s: a SentencePiece model is missing", self->config->like);
        nm_buffer_append(&self->spm_bytes[side], like->spm[side], like->spm_bytes[side]);
        NM_TRY(
            nm_spm_parse(like->spm[side], like->spm_bytes[side], self->config->like, &self->spm[side], err));
        self->report->pieces[side] = (int64_t)self->spm[side]->texts.n;
    }
    return NM_OK;
}

/* The models, given or learned. */
static nm_status get_models(nm_prepare *self, nm_error *err)
{
    const nm_prepare_config *config = self->config;
    if (*config->like)
        return use_models_of_like(self, err);
    if (self->sides == 1)
        return get_model(self, config->spm_model, PREPARE_SOURCE, PREPARE_SOURCE, err);
    if (config->joint && *config->spm_target_model)
        return nm_fail(err, NM_USAGE, "two SentencePiece models need two dictionaries (--joint false)");
    if (config->joint)
        return get_model(self, config->spm_model, PREPARE_SOURCE, PREPARE_TARGET, err);
    if (*config->spm_target_model && !*config->spm_model)
        return nm_fail(err, NM_USAGE, "--spm-target-model needs --spm-model, the model of the source");
    if (*config->spm_model && !*config->spm_target_model)
        return get_model(self, config->spm_model, PREPARE_SOURCE, PREPARE_TARGET, err);
    NM_TRY(get_model(self, config->spm_model, PREPARE_SOURCE, PREPARE_SOURCE, err));
    return get_model(self, config->spm_target_model, PREPARE_TARGET, PREPARE_TARGET, err);
}

nm_status nm_prepare_sentencepiece(nm_prepare *self, nm_error *err)
{
    NM_TRY(get_models(self, err));
    if (self->config->documents == NM_DOCUMENT_LINE || nm_spm_keeps_newlines(self->spm[PREPARE_SOURCE]))
        return NM_OK;
    return nm_fail(err, NM_USAGE,
                   "prepare.documents: the SentencePiece model does not keep newlines, which requires the "
                   "normalization identity, and byte fallback or a piece of a newline");
}
