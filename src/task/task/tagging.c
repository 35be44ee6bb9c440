/* Tagging: column files, a conditional random field over tags, F1 of spans as the score. Vocabularies and
 * tags are built from the training text and stored in the model file. */
#include "task/tagging.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "task/split_overlap.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_tagging_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_tagging_config, field, initial, LIST, help)

/* clang-format off */
static const nm_option tagging_options[] = {
    ROW(train, "", 0, 0, "Training file in columns: one token per line, a blank line after each sentence."),
    ROW(valid, "", 0, 0,
        "Validation file in columns; empty: the fraction data.valid_fraction of the training sentences."),
    ROW(test, "", 0, 0, "Test file in columns of comparisons and baselines; empty: none."),
    ROW(encoding, "utf-8", 0, 0, "Encoding of the files in columns, a name of iconv such as latin1."),
    ROW(valid_encoding, "", 0, 0, "Encoding of the validation file; empty: that of data.encoding."),
    ROW(test_encoding, "", 0, 0, "Encoding of the test file; empty: that of data.encoding."),
    ROW(token_column, "1", 1, NM_COLUMNS_MAX, "Column of the tokens, from 1."),
    ROW(tag_column, "0", 0, NM_COLUMNS_MAX, "Column of the tags, from 1; 0: the last column."),
    PICK(file_scheme, "auto", NM_FILE_SCHEMES,
        "Tagging scheme of the files: io: labels without marks; none: a class of each token, such as its "
        "part of speech; auto: recognized in the training file, of marked tags the scheme in which the "
        "fewest transitions are illegal."),
    PICK(scheme, "bioes", NM_MODEL_TAG_SCHEMES,
        "Tagging scheme of a model with spans; tags of the files are converted."),
    ROW(repair, "false", 0, 1,
        "Read tag sequences that are illegal in the scheme as seqeval does; false: they are an error."),
    ROW(lowercase, "true", 0, 1, "Lowercase words for the vocabulary; characters keep their case."),
    ROW(zero_digits, "true", 0, 1, "Replace every digit by 0 in words and characters."),
    ROW(min_count, "1", 1, 1e9,
        "Minimum count of words and bigrams in the training text; rarer ones are unknown."),
    ROW(min_char_count, "2", 1, 1e9,
        "Minimum count of characters in the training text; rarer ones are unknown."),
    ROW(max_chars, "40", 1, 65536, "Maximum number of characters of a word; further characters are ignored."),
    ROW(vectors, "", 0, 0,
        "File of word vectors in the text format of GloVe or word2vec; vectors are L2-normalized. "
        "Empty: none."),
    ROW(bigram_vectors, "", 0, 0,
        "File of vectors of bigrams, which are a token concatenated with the next token; empty: none."),
    ROW(batch, "16", 1, 1 << 20, "Maximum number of sentences in a batch, within train.max_tokens."),
    PICK(order, "length", NM_EXAMPLE_ORDERS, "Sentences of a training batch: of similar length, or random."),
    ROW(max_length, "512", 1, 1 << 16,
        "Maximum length of a sentence in tokens; longer ones are excluded from training and from the "
        "validation loss."),
    ROW(valid_fraction, "0", 0, 0.99,
        "Fraction of the training sentences held out for validation; unused if data.valid is set."),
    ROW(valid_seed, "1", 0, 4294967295.0,
        "Random seed of the choice of held-out sentences, independent of train.seed."),
    ROW(word_dropout, "0.02", 0, 0.99,
        "Fraction of words that are replaced by the unknown word in training, with their characters."),
    ROW(bigram_dropout, "0.02", 0, 0.99,
        "Fraction of bigrams that are replaced by the unknown bigram in training."),
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
    NM_FREE(parts->tags, parts->note, parts->form_words, parts->form_chars, parts->char_starts, parts);
    task->parts = NULL;
}

static const char *tagging_note(const nm_task *task)
{
    return nm_tagging_parts_of(task)->note;
}

/* Files of different corpora have other labels; no model of the one can score well on the other. */
static char *unknown_tags_warning(const nm_tagging_parts *parts)
{
    enum { WARN_PERCENT = 10 };
    for (int split = NM_SPLIT_VALID; split < NM_TAGGING_SPLITS; split++) {
        const nm_tag_corpus *corpus = &parts->splits[split];
        int64_t n = 0; /* tags other than O */
        for (uint64_t at = 0; corpus->forms.n && at < corpus->offsets[corpus->forms.n]; at++)
            n += !nm_tag_outside(parts->gold_names.items[corpus->gold[at]].text);
        if (100 * corpus->unknown_tags > WARN_PERCENT * n)
            return nm_format(
                "%lld of %lld gold tags of the %s set other than O do not occur in the training text; "
                "they count as missed",
                (long long)corpus->unknown_tags, (long long)n,
                split == NM_SPLIT_VALID ? "validation" : "test");
    }
    return NULL;
}

static char *tagging_data_warning(const nm_task *task)
{
    const nm_tagging_parts *parts = nm_tagging_parts_of(task);
    nm_corpus corpora[NM_TAGGING_SPLITS];
    for (int split = 0; split < NM_TAGGING_SPLITS; split++)
        corpora[split] = parts->splits[split].forms;
    return nm_add_overlap_warning(unknown_tags_warning(parts), corpora, "sentences");
}

static const nm_tagger_model_sizes assumed_sizes = {.chars = 1, .bigrams = 1};

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
    int64_t positions = nm_tagger_model_config_of(model)->max_positions;
    if (config->max_length > positions)
        return nm_fail(err, NM_USAGE, "data.max_length = %lld is more than model.max_positions = %lld",
                       (long long)config->max_length, (long long)positions);
    return NM_OK;
}

/* The first entries, for unknown items and positions outside a word, get names that no token has. */
static const char *tagging_entry_name(const nm_task *task, const char *param, int axis, int32_t index)
{
    static const char *const unnamed[] = {" 0", " 1"};
    const nm_tagging_parts *parts = task->parts;
    const struct {
        const char *param;
        const nm_counter *entries;
        int32_t first;
    } tables[] = {{"embed.weight", &parts->words, 1},
                  {"chars.embed.weight", &parts->chars, NM_CHAR_FIRST},
                  {"bigrams.embed.weight", &parts->bigrams, 1}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        size_t entry = (size_t)(index - tables[i].first);
        if (axis || strcmp(param, tables[i].param))
            continue;
        if (index < tables[i].first)
            return unnamed[index];
        return entry < tables[i].entries->n ? tables[i].entries->items[entry].text : NULL;
    }
    bool both = !strcmp(param, "crf.transitions"), rows = !strcmp(param, "output.weight");
    bool columns = !strcmp(param, "output.bias") || !strcmp(param, "crf.start") || !strcmp(param, "crf.end");
    return (both || (axis ? columns : rows)) && index < parts->n_tags ? parts->tags[index] : NULL;
}

/* Initializes the embeddings of items that have a vector with the L2-normalized vector. */
static nm_status init_from_vectors(nm_model *model, nm_tensor *table, const nm_counter *vocabulary,
                                   nm_word_vectors *vectors, const char *path, const char *option,
                                   nm_error *err)
{
    nm_backend *b = model->backend;
    if (!vectors->width)
        return NM_OK;
    if (!table || vectors->width != table->cols)
        return nm_fail(err, NM_MISMATCH, "%s: vectors have dimension %d, but %s is %d", path, vectors->width,
                       option, table ? table->cols : 0);
    size_t width = (size_t)table->cols, unit = nm_dtype_bytes(b->dtype);
    NM_AUTO_FREE void *row = nm_allocate(width * unit);
    nm_word_vectors_unit(vectors);
    for (size_t i = 0; i < vocabulary->n; i++) {
        const float *vector = nm_word_vectors_find(vectors, vocabulary->items[i].text);
        for (size_t k = 0; vector && k < width; k++)
            nm_dtype_set(b->dtype, row, k, (double)vector[k]);
        if (vector)
            nm_backend_upload(b, (char *)table->data + (i + 1) * width * unit, row, width * unit);
    }
    nm_word_vectors_release(vectors);
    return NM_OK;
}

static nm_status tagging_init_params(nm_task *task, nm_model *model, nm_error *err)
{
    nm_tagging_parts *parts = task->parts;
    const nm_tagging_config *config = task->config;
    const nm_tagger_model_layers *t = nm_tagger_model_of(model);
    NM_TRY(init_from_vectors(model, t->words, &parts->words, &parts->vectors, config->vectors,
                             "model.word_dim", err));
    return init_from_vectors(model, t->bigrams, &parts->bigrams, &parts->bigram_vectors,
                             config->bigram_vectors, "model.bigram_dim", err);
}

static double *tagging_loss(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch,
                            bool smoothed)
{
    (void)task;
    (void)smoothed;
    nm_tensor *emissions = nm_tagger_model_emissions(model, tape, batch);
    nm_packing packing = nm_tape_packing(tape, &batch->source);
    return nm_crf_loss(tape, emissions, &nm_tagger_model_of(model)->crf, &packing, batch->target_out);
}

/* The loss is a sum over the tokens of a sentence, so this is the loss of uniform tag probabilities for a
 * sentence of the maximum length. One more tag is assumed, because random initial transitions cost more than
 * uniform ones. */
static double tagging_chance_loss(const nm_task *task)
{
    const nm_tagging_config *config = task->config;
    return (double)config->max_length * log(nm_tagging_parts_of(task)->n_tags + 1.0);
}

static const char *const text_options[] = {"data.scheme", "data.lowercase", "data.zero_digits", NULL};

static const nm_option_rule tagging_rules[] = {
    {"data.valid_encoding", "data.valid", "!", "there is no validation file", NULL},
    {"data.test_encoding", "data.test", "!", "there is no test file", NULL},
    {0}};

static void tagging_add_options(nm_options *options)
{
    nm_options_add_rules(options, tagging_rules);
}

const nm_task_type nm_task_tagging = {
    .name = "tagging",
    .recipe = "tag",
    .model = &nm_model_tagger,
    .options = tagging_options,
    .config_size = sizeof(nm_tagging_config),
    .text_options = text_options,
    .mean_loss = true,
    .add_options = tagging_add_options,
    .open = tagging_open,
    .open_model = tagging_open_model,
    .note = tagging_note,
    .data_warning = tagging_data_warning,
    .measure = nm_tagging_measure,
    .size_unit = "sentences",
    .sizes = tagging_sizes,
    .assumed_sizes = &assumed_sizes,
    .prepare_model = tagging_prepare_model,
    .entry_name = tagging_entry_name,
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
