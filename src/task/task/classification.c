/* Text classification: tables of labels and texts, one class per text, accuracy as the score. Without a
 * validation file, a fraction of the training texts is held out, as in the code of the RBN paper. */
#include "task/classification.h"

#include <string.h>
#include <xxhash.h>

#include "data/prepare.h"
#include "model/classifier_model.h"
#include "task/model_texts.h"
#include "task/split_overlap.h"
#include "train/train_options.h"

#define ROW(field, initial, min, max, help)                                                                  \
    NM_OPTION(nm_classification_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option classification_options[] = {
    ROW(train, "", 0, 0, "Training table of labels and texts."),
    ROW(valid, "", 0, 0, "Validation table; empty: the fraction data.valid_fraction of the training texts."),
    ROW(test, "", 0, 0, "Test table of comparisons and baselines; empty: none."),
    NM_LABELED_ROWS(nm_classification_config),
    ROW(valid_encoding, "", 0, 0, "Encoding of the validation table; empty: that of data.encoding."),
    ROW(test_encoding, "", 0, 0, "Encoding of the test table; empty: that of data.encoding."),
    NM_WORD(nm_classification_config, tokenizer, "basic_english", "none|moses|basic_english",
        "Tokenizer: none for text with words separated by spaces; Moses; "
        "or torchtext's basic_english, which lowercases and separates punctuation."),
    ROW(language, "en", 0, 0, "Language of the Moses tokenizer: a code of two or three letters."),
    ROW(lowercase, "false", 0, 1, "Lowercase the text (basic_english always does)."),
    ROW(codes, "", 0, 0, "File of BPE codes as written by norma prepare; empty: whole words."),
    ROW(min_count, "1", 1, 1e9, "Minimum count of a word in the training texts; rarer words become <unk>."),
    ROW(max_words, "100000", 1, NM_VOCAB_MAX_SIZE - NM_VOCAB_N_SPECIAL,
        "Maximum number of words in the dictionary."),
    ROW(max_length, "512", 3, 1 << 20,
        "Maximum length of a text in tokens, with <s> and </s>; longer texts are truncated."),
    ROW(batch, "64", 1, 1 << 20, "Maximum number of texts in a batch, within train.max_tokens."),
    ROW(valid_fraction, "0.3", 0, 0.99,
        "Fraction of the training texts held out for validation; unused if data.valid is set."),
    ROW(valid_seed, "1", 0, 4294967295.0,
        "Random seed of the choice of held-out texts, independent of train.seed."),
    ROW(class_balance, "0", 0, 1,
        "Exponent b of the repetition of training texts of rare classes, which are repeated (N / n)^b times "
        "for a class with n texts, and N texts of the most frequent class; "
        "0: no repetition, 1: all classes are equally frequent."),
    ROW(word_dropout, "0", 0, 0.99, "Fraction of words replaced by <unk> in training."),
    NM_CHOICE(nm_classification_config, score, "accuracy", NM_CLASSIFICATION_METRICS,
        "Score of validations (by which train.best_by = score selects the best checkpoint), of norma compare "
        "and of norma baseline: accuracy, or the mean of F1 over the classes that occur, in which rare "
        "classes count as much as frequent ones."),
    {0}};
/* clang-format on */

static const char *const text_names[] = {"dict.txt", "labels.txt", "codes.bpe"};

static const nm_option_rule classification_rules[] = {
    {"data.language", "data.tokenizer", "moses", "only the Moses tokenizer depends on the language", NULL},
    {"data.valid_encoding", "data.valid", "!", "there is no validation table", NULL},
    NM_LABELED_RULES,
    {"data.test_encoding", "data.test", "!", "there is no test table", NULL},
    {0}};

static void classification_add_options(nm_options *options)
{
    nm_options_add_rules(options, classification_rules);
}

nm_status nm_classification_open_coder(nm_classification_parts *parts, const nm_classification_config *config,
                                       const char *codes_name, nm_error *err)
{
    nm_text_coder_config coder = {.tokenizer = config->tokenizer,
                                  .options = nm_tokenizer_options_default(),
                                  .lowercase = config->lowercase,
                                  .codes = parts->texts[NM_CLASS_TEXT_CODES],
                                  .codes_name = codes_name};
    coder.options.language = config->language;
    return nm_text_coder_open(&parts->coder, &coder, err);
}

static uint64_t fingerprint(const nm_labeled_set *set)
{
    if (!set->n)
        return 0;
    uint64_t ids = XXH3_64bits(set->ids.data, set->ids.n * sizeof *set->ids.data),
             labels = XXH3_64bits(set->labels.data, set->labels.n * sizeof *set->labels.data);
    return ids ^ XXH3_64bits_withSeed(set->offsets, (set->n + 1) * sizeof *set->offsets, labels);
}

/* NM_USAGE if the counts of macro F1, which are those of each class for each text, are too large. */
static nm_status check_score(const nm_classification_parts *parts, nm_error *err)
{
    const size_t most = (size_t)1 << 26, row = nm_macro_f1_counts(nm_classification_labels(parts));
    for (int split = NM_SPLIT_VALID; split < NM_CLASS_SPLITS && parts->macro_f1; split++)
        if (parts->sets[split].n > most / row)
            return nm_fail(err, NM_USAGE,
                           "data.score = macro_f1: %d classes and %zu %s texts are too many, the limit of "
                           "their product is about %zu; use accuracy",
                           nm_classification_labels(parts), parts->sets[split].n,
                           nm_prepare_split_names[split], most / 3);
    return NM_OK;
}

static nm_status classification_open(nm_task *task, nm_error *err)
{
    const nm_classification_config *config = task->config;
    nm_classification_parts *parts = task->parts = nm_allocate(sizeof *parts);
    if (*config->codes)
        NM_TRY(nm_model_text_read(config->codes, &parts->texts[NM_CLASS_TEXT_CODES], err));
    NM_TRY(nm_classification_open_coder(parts, config, config->codes, err));
    NM_TRY(nm_classification_read(task, err));
    parts->macro_f1 = config->score == NM_CLASSIFICATION_MACRO_F1;
    NM_TRY(check_score(parts, err));
    for (int split = 0; split < NM_CLASS_SPLITS; split++) {
        parts->corpora[split] = nm_labeled_set_corpus(&parts->sets[split]);
        parts->known[split] = parts->corpora[split];
        parts->known[split].n = (int64_t)parts->n_known[split];
        parts->batching[split] = (nm_batching){.source = &parts->known[split],
                                               .max_tokens = task->max_tokens,
                                               .max_length = config->max_length,
                                               .max_examples = config->batch,
                                               .seed = task->seed};
    }
    task->fingerprint = fingerprint(&parts->sets[NM_SPLIT_TRAIN]);
    task->valid_fingerprint = fingerprint(&parts->sets[NM_SPLIT_VALID]);
    return NM_OK;
}

static nm_status parse_labels(nm_classification_parts *parts, const nm_model_text *labels, nm_error *err)
{
    NM_TRY(nm_model_text_names(labels, &parts->labels, err));
    if (parts->labels.n < 2 || parts->labels.n > NM_CLASSES_MAX)
        return nm_fail(err, NM_FORMAT, "%s: %s: %zu labels", labels->where, labels->name, parts->labels.n);
    return NM_OK;
}

static nm_status classification_open_model(nm_task *task, const nm_safetensors *file, nm_error *err)
{
    nm_classification_parts *parts = task->parts = nm_allocate(sizeof *parts);
    nm_model_texts_load(parts->texts, text_names, NM_CLASS_TEXTS, file);
    nm_model_text texts[NM_CLASS_TEXTS];
    for (int i = 0; i < NM_CLASS_TEXTS; i++)
        texts[i] = (nm_model_text){nm_safetensors_path(file), text_names[i], parts->texts[i]};
    NM_TRY(nm_model_text_vocab(&texts[NM_CLASS_TEXT_DICTIONARY], NULL, &parts->vocab, err));
    NM_TRY(parse_labels(parts, &texts[NM_CLASS_TEXT_LABELS], err));
    NM_AUTO_FREE char *name = nm_format("%s: %s", nm_safetensors_path(file), text_names[NM_CLASS_TEXT_CODES]);
    return nm_classification_open_coder(parts, task->config, name, err);
}

static void classification_save(const nm_task *task, nm_safetensors_writer *writer)
{
    nm_model_texts_save(nm_classification_parts_of(task)->texts, text_names, NM_CLASS_TEXTS, writer);
}

static void classification_close(nm_task *task)
{
    nm_classification_parts *parts = task->parts;
    if (!parts)
        return;
    nm_model_texts_free(parts->texts, NM_CLASS_TEXTS);
    for (int split = 0; split < NM_CLASS_SPLITS; split++)
        nm_labeled_set_release(&parts->sets[split]);
    nm_vocab_free(parts->vocab);
    nm_counter_release(&parts->labels);
    nm_counter_release(&parts->others);
    nm_text_coder_close(&parts->coder);
    NM_FREE(parts->note, parts);
    task->parts = NULL;
}

static const char *classification_note(const nm_task *task)
{
    return nm_classification_parts_of(task)->note;
}

static char *unknown_labels_warning(const nm_classification_parts *parts)
{
    char *text = NULL;
    for (int split = NM_SPLIT_VALID; split < NM_CLASS_SPLITS; split++) {
        size_t n = parts->sets[split].n, unknown = n - parts->n_known[split];
        if (unknown)
            nm_format_append(&text, "%s%zu of %zu %s texts", text ? " and " : "", unknown, n,
                             split == NM_SPLIT_VALID ? "validation" : "test");
    }
    if (!text)
        return NULL;
    NM_AUTO_FREE char *names = nm_classification_list(&parts->others);
    nm_format_append(&text,
                     " have labels that do not occur in the training data (%s); they count as errors in "
                     "scores, and are not part of losses",
                     names);
    return text;
}

static char *classification_data_warning(const nm_task *task)
{
    const nm_classification_parts *parts = nm_classification_parts_of(task);
    return nm_add_overlap_warning(unknown_labels_warning(parts), parts->corpora, "texts");
}

static nm_model_sizes classification_sizes(const nm_task *task)
{
    const nm_classification_parts *parts = nm_classification_parts_of(task);
    return (nm_model_sizes){.source = nm_vocab_size(parts->vocab),
                            .target = nm_classification_classes(parts),
                            .plan = task->plan};
}

static nm_status classification_prepare_model(nm_task *task, nm_model *model, nm_error *err)
{
    const nm_classification_config *config = task->config;
    const nm_classifier_model_config *c = nm_classifier_model_config_of(model);
    if (nm_classifier_model_has_positions(c) && config->max_length > c->max_positions)
        return nm_fail(err, NM_USAGE, "data.max_length = %lld is more than model.max_positions = %lld",
                       (long long)config->max_length, (long long)c->max_positions);
    return NM_OK;
}

static const char *classification_entry_name(const nm_task *task, const char *param, int axis, int32_t index)
{
    const nm_classification_parts *parts = nm_classification_parts_of(task);
    bool of_words = !strcmp(param, "embed.weight") || !strcmp(param, "ngrams.words");
    if (!axis && of_words)
        return index < nm_vocab_size(parts->vocab) ? nm_vocab_symbol(parts->vocab, index) : NULL;
    bool of_classes = axis ? !strcmp(param, "output.bias") : !strcmp(param, "output.weight");
    return of_classes && index < nm_classification_classes(parts) ? nm_classification_name(parts, index)
                                                                  : NULL;
}

static bool same_words(const nm_vocab *a, const nm_vocab *b)
{
    bool same = nm_vocab_size(a) == nm_vocab_size(b);
    for (int32_t i = 0; same && i < nm_vocab_size(a); i++)
        same = !strcmp(nm_vocab_symbol(a, i), nm_vocab_symbol(b, i));
    return same;
}

/* The inverse document frequencies belong to the training texts. The row of a bigram is a hash of two
 * ids, which in another dictionary are those of other words. */
static bool classification_transfers(const nm_task *task, const nm_task *source, const char *param)
{
    static const char *const computed[] = {"ngrams.words_idf", "ngrams.bigrams_idf"};
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        if (!strcmp(param, computed[i]))
            return false;
    return strcmp(param, "ngrams.bigrams") ||
           (source &&
            same_words(nm_classification_parts_of(task)->vocab, nm_classification_parts_of(source)->vocab));
}

static nm_status classification_epoch(nm_task *task, nm_split split, uint32_t epoch, bool shuffle,
                                      nm_batches *batches, nm_error *err)
{
    nm_classification_parts *parts = task->parts;
    if (!parts->sets[split].n)
        return nm_fail(err, NM_USAGE, "there are no %s texts", nm_prepare_split_names[split]);
    return nm_batches_create(batches, &parts->batching[split], epoch, shuffle, err);
}

/* Adds the targets: each text has one position, its class. labels NULL: class 0. */
static void add_classes(nm_batch *batch, const nm_ids *labels, nm_arena *arena)
{
    int32_t n = batch->n;
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    int32_t *classes = nm_arena_alloc(arena, (size_t)n * sizeof *classes);
    for (int32_t i = 0; i < n; i++) {
        offsets[i] = i;
        classes[i] = labels ? labels->data[batch->index[i]] : 0;
    }
    offsets[n] = n;
    batch->target = (nm_packing){.n_seqs = n, .n_tokens = n, .longest = 1, .offsets = offsets};
    batch->target_out = classes;
    batch->n_targets = n;
    batch->tokens = batch->source.n_tokens;
}

static nm_batch classification_batch(nm_task *task, nm_split split, const nm_batches *batches, int64_t i,
                                     uint32_t step, bool training, nm_arena *arena)
{
    const nm_classification_config *config = task->config;
    const nm_classification_parts *parts = nm_classification_parts_of(task);
    nm_batch_words words = {
        .unknown = parts->vocab->unk, .word_dropout = training ? config->word_dropout : 0, .step = step};
    nm_batch batch = nm_batches_get(batches, &parts->batching[split], i, &words, arena);
    add_classes(&batch, &parts->sets[split].labels, arena);
    return batch;
}

static nm_batch classification_largest(nm_task *task, nm_arena *arena)
{
    const nm_classification_config *config = task->config;
    int64_t length = config->max_length < task->max_tokens ? config->max_length : task->max_tokens;
    int64_t n = task->max_tokens / length < config->batch ? task->max_tokens / length : config->batch;
    nm_arena_reset(arena);
    nm_batch batch = {.n = (int32_t)n};
    batch.source = nm_batch_fill((int32_t)(n * length), (int32_t)length, &batch.source_ids, arena);
    batch.source_pos = batch.source_ids;
    add_classes(&batch, NULL, arena);
    return batch;
}

static double *classification_loss(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch,
                                   bool smoothed)
{
    (void)task;
    nm_model_output out = model->type->forward(model, tape, batch);
    nm_loss_spec spec = nm_train_loss(model->options, batch->target_out, smoothed);
    return nm_softmax_loss_of(tape, out.hidden, out.weight, out.bias, &spec);
}

static const char *const text_options[] = {"data.tokenizer", "data.language", "data.lowercase", "data.codes",
                                           NULL};

const nm_task_type nm_task_classification = {
    .name = "classification",
    .recipe = "classify",
    .model = &nm_model_classifier,
    .options = classification_options,
    .config_size = sizeof(nm_classification_config),
    .text_options = text_options,
    .add_options = classification_add_options,
    .mean_loss = true,
    .open = classification_open,
    .open_model = classification_open_model,
    .note = classification_note,
    .data_warning = classification_data_warning,
    .measure = nm_classification_measure,
    .size_unit = "texts",
    .sizes = classification_sizes,
    .prepare_model = classification_prepare_model,
    .init_params = nm_classification_init_params,
    .transfers = classification_transfers,
    .entry_name = classification_entry_name,
    .epoch = classification_epoch,
    .batch = classification_batch,
    .largest = classification_largest,
    .loss = classification_loss,
    .score = nm_classification_score,
    .save = classification_save,
    .close = classification_close,
};
