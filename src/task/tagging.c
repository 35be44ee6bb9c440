/* Tagging: column files read as they are, a conditional random field over tags, F1 of spans as the score. Vocabularies and
 * tags come from the training text and travel in the model. */
#include "task/tagging.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW(field, initial, min, max, help) NM_OPTION(nm_tagging_config, field, initial, min, max, help)
#define PICK(field, initial, choices, help) NM_CHOICE(nm_tagging_config, field, initial, choices, help)

/* clang-format off */
static const nm_option tagging_options[] = {
    ROW(train, "", 0, 0, "file of columns: a token a line, a blank line behind each sentence"),
    ROW(valid, "", 0, 0, "the same for validation"),
    ROW(test, "", 0, 0, "the same for the test"),
    ROW(token_column, "1", 1, NM_COLUMNS_MAX, "column of the tokens"),
    ROW(tag_column, "0", 0, NM_COLUMNS_MAX, "column of the tags; 0: the last"),
    PICK(file_scheme, "auto", "auto|" NM_TAG_SCHEMES, "of the tags in the files; auto: by the marks that occur"),
    PICK(scheme, "bioes", NM_TAG_SCHEMES, "that the model learns; the files' tags are converted"),
    ROW(repair, "false", 0, 1, "read sequences that are illegal in the scheme as conlleval does, instead of stopping"),
    ROW(lowercase, "true", 0, 1, "look words up in lower case; characters keep theirs"),
    ROW(zero_digits, "true", 0, 1, "look words and characters up with 0 for every digit"),
    ROW(min_count, "1", 1, 1e9, "words and bigrams rarer than that in the training text are unknown"),
    ROW(min_char_count, "2", 1, 1e9, "the same for characters"),
    ROW(max_chars, "40", 1, 65536, "characters of a word that are looked at"),
    ROW(vectors, "", 0, 0, "word vectors in the form of GloVe or word2vec's text form; their length becomes 1"),
    ROW(bigram_vectors, "", 0, 0, "the same for bigrams, a token and its right neighbor written together"),
    ROW(batch, "16", 1, 1 << 20, "sentences of a batch, within train.max_tokens"),
    PICK(order, "length", "length|random", "which sentences share a batch: of similar length, or any"),
    ROW(max_length, "512", 1, 1 << 16, "longer sentences are left out of training and validation loss"),
    ROW(word_dropout, "0.02", 0, 0.99, "share of words replaced by the unknown one in training, with their characters"),
    ROW(bigram_dropout, "0.02", 0, 0.99, "the same for bigrams"),
    {0}};
/* clang-format on */

static nm_status tagging_open(nm_task *task, nm_error *err)
{
    task->parts = nm_allocate(sizeof(nm_tagging_parts));
    return nm_tagging_read(task, err);
}

static nm_status tagging_open_model(nm_task *task, const nm_safetensors *file, nm_error *err)
{
    task->parts = nm_allocate(sizeof(nm_tagging_parts));
    return nm_tagging_parse(task, file, err);
}

static void tagging_close(nm_task *task)
{
    nm_tagging_parts *parts = task->parts;
    if (!parts)
        return;
    nm_counter *const counters[] = {&parts->words, &parts->chars, &parts->bigrams, &parts->forms,
                                    &parts->gold_names};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        nm_counter_release(counters[i]);
    for (int split = 0; split < NM_TAGGING_SPLITS; split++)
        nm_tag_corpus_release(&parts->splits[split]);
    for (int32_t t = 0; t < parts->n_tags; t++)
        free(parts->tags[t]);
    nm_word_vectors_release(&parts->vectors);
    nm_word_vectors_release(&parts->bigram_vectors);
    free(parts->tags);
    free(parts->format_words);
    free(parts->format_chars);
    free(parts->char_starts);
    free(parts);
    task->parts = NULL;
}

/* ---- model ---- */

static nm_model_sizes tagging_sizes(const nm_task *task)
{
    const nm_tagging_parts *parts = task->parts;
    return (nm_model_sizes){.source = (int32_t)parts->words.n + 1,
                            .target = parts->n_tags,
                            .plan = task->plan,
                            .more = &parts->sizes};
}

static nm_status tagging_prepare_model(nm_task *task, nm_model *model, nm_error *err)
{
    const nm_tagging_config *config = task->config;
    int64_t positions = nm_tagger_config_of(model)->max_positions;
    if (config->max_length > positions)
        return nm_fail(err, NM_USAGE, "data.max_length = %lld is more than model.max_positions = %lld",
                       (long long)config->max_length, (long long)positions);
    return NM_OK;
}

/* Puts vectors of length 1 into the rows of the words that have one. */
static nm_status take_vectors(nm_model *model, nm_tensor *table, const nm_counter *vocabulary,
                              nm_word_vectors *vectors, const char *path, const char *option, nm_error *err)
{
    nm_backend *b = model->backend;
    if (!vectors->width)
        return NM_OK;
    if (!table || vectors->width != table->cols)
        return nm_fail(err, NM_MISMATCH, "%s: vectors of %d numbers, but %s is %d", path, vectors->width,
                       option, table ? table->cols : 0);
    size_t width = (size_t)table->cols, unit = nm_dtype_bytes(b->dtype);
    void *row = nm_allocate(width * unit);
    nm_word_vectors_unit(vectors);
    for (size_t i = 0; i < vocabulary->n; i++) {
        const float *vector = nm_word_vectors_find(vectors, vocabulary->items[i].text);
        for (size_t k = 0; vector && k < width; k++)
            nm_dtype_set(b->dtype, row, k, (double)vector[k]);
        if (vector)
            nm_backend_upload(b, (char *)table->data + (i + 1) * width * unit, row, width * unit);
    }
    free(row);
    nm_word_vectors_release(vectors);
    return NM_OK;
}

static nm_status tagging_init_params(nm_task *task, nm_model *model, nm_error *err)
{
    nm_tagging_parts *parts = task->parts;
    const nm_tagging_config *config = task->config;
    const nm_tagger *t = nm_tagger_of(model);
    NM_TRY(take_vectors(model, t->words, &parts->words, &parts->vectors, config->vectors, "model.word_dim",
                        err));
    return take_vectors(model, t->bigrams, &parts->bigrams, &parts->bigram_vectors, config->bigram_vectors,
                        "model.bigram_dim", err);
}

static double *tagging_loss(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch,
                            bool smoothed)
{
    (void)task;
    (void)smoothed;
    nm_tensor *emissions = nm_tagger_emissions(model, tape, batch);
    nm_packing packing = nm_tape_packing(tape, &batch->source);
    return nm_crf_loss(tape, emissions, &nm_tagger_of(model)->crf, &packing, batch->target_out);
}

/* Every tag equally likely for every token of a sentence as long as the longest: sentences are long, and the random
 * transitions of the beginning cost more than knowing nothing. */
static double tagging_chance_loss(const nm_task *task)
{
    const nm_tagging_config *config = task->config;
    return (double)config->max_length * log(nm_tagging_parts_of(task)->n_tags + 1.0);
}

const nm_task_type nm_task_tagging = {
    .name = "tagging",
    .model = &nm_model_tagger,
    .options = tagging_options,
    .config_size = sizeof(nm_tagging_config),
    .mean_loss = true,
    .open = tagging_open,
    .open_model = tagging_open_model,
    .sizes = tagging_sizes,
    .prepare_model = tagging_prepare_model,
    .init_params = tagging_init_params,
    .epoch = nm_tagging_epoch,
    .batch = nm_tagging_batch,
    .largest = nm_tagging_largest,
    .loss = tagging_loss,
    .score = nm_tagging_score,
    .chance_loss = tagging_chance_loss,
    .save = nm_tagging_save,
    .close = tagging_close,
};
