/* Language modeling: a data folder of `norma prepare --format text`, contiguous streams cut into segments,
 * perplexity as the score. */
#include "task/lm_task.h"

#include <stdlib.h>
#include <string.h>

#include "backend/device_options.h"
#include "base/file.h"
#include "base/random.h"
#include "data/checksums.h"
#include "data/prepare.h"
#include "model/sampler.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_lm_task_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_lm_task_config, field, initial, LIST, help)

/* clang-format off */
static const nm_option lm_task_options[] = {
    ROW(folder, "", 0, 0, "Data folder written by norma prepare --format text."),
    PICK(order, "streams", NM_LM_ORDERS,
        "Order of training segments: consecutive segments of train.max_tokens / model.context parallel "
        "streams, or shuffled."),
    PICK(incomplete, "score", NM_LM_INCOMPLETES,
        "Last, shorter segment of a stream: used in training and scored, or dropped as in the tensorized "
        "Transformer's code."),
    ROW(eval_streams, "1", 1, 1e9,
        "Number of contiguous streams of the validation and test text, without the remainder; "
        "1: the whole text."),
    ROW(word_dropout, "0", 0, 0.99, "Fraction of input tokens replaced by <unk> in training."),
    NM_SUBWORD_SAMPLING_OPTIONS(nm_lm_task_config),
    {0}};
/* clang-format on */

static const char *const text_names[] = {"data.ini", "dict.txt", "codes.bpe", "units.txt"};
static const char spm_name[] = "sentencepiece.model";

static nm_lm_parts *parts_of(const nm_task *task)
{
    return task->parts;
}

static nm_status parse_texts(nm_lm_parts *parts, const char *where, nm_error *err)
{
    nm_model_text texts[NM_LM_TEXTS];
    for (int i = 0; i < NM_LM_TEXTS; i++) {
        texts[i] = (nm_model_text){where, text_names[i], parts->texts[i]};
        if (!parts->texts[i] && i < NM_LM_CODES)
            return nm_fail(err, NM_FORMAT, "%s: has no %s: not the folder or model of a language model",
                           where, text_names[i]);
    }
    NM_TRY(nm_model_text_check_codes(&texts[NM_LM_CODES], err));
    if (texts[NM_LM_SUBWORDS].text)
        NM_TRY(nm_model_text_vocab(&texts[NM_LM_SUBWORDS], NULL, &parts->subwords, err));
    NM_TRY(nm_model_text_vocab(&texts[NM_LM_DICTIONARY], &texts[NM_LM_SETTINGS], &parts->vocab, err));
    parts->allowed = nm_vocab_output_mask(parts->vocab);
    return NM_OK;
}

static nm_status read_texts(nm_lm_parts *parts, const char *folder, nm_error *err)
{
    for (int i = 0; i < NM_LM_TEXTS; i++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, text_names[i]);
        nm_status status = nm_model_text_read_optional(path, &parts->texts[i], err);
        if (status == NM_OK && i == NM_LM_DICTIONARY && !parts->texts[i])
            status = nm_fail(err, NM_MISMATCH, "%s: not found: prepare the folder with --format text", path);
        NM_TRY(status);
    }
    NM_AUTO_FREE char *path = nm_path_join(folder, spm_name);
    return nm_model_spm_read_optional(&parts->spm, path, err);
}

static nm_status lm_open(nm_task *task, nm_error *err)
{
    const nm_lm_task_config *config = task->config;
    nm_lm_parts *parts = task->parts = nm_allocate(sizeof *parts);
    NM_TRY(nm_prepare_check_folder(config->folder, 1, err));
    NM_TRY(read_texts(parts, config->folder, err));
    NM_TRY(nm_checksums_verify(config->folder, err));
    NM_TRY(parse_texts(parts, config->folder, err));
    for (int split = 0; split < NM_LM_SPLITS; split++)
        NM_TRY(nm_prepare_open_split(&parts->splits[split], config->folder, split, 1, 0,
                                     nm_vocab_size(parts->vocab), err));
    const nm_corpus *train = &parts->splits[NM_SPLIT_TRAIN];
    task->size = (int64_t)train->offsets[train->n];
    task->fingerprint = train->fingerprint;
    task->valid_fingerprint = parts->splits[NM_SPLIT_VALID].fingerprint;
    const nm_device_config *device = nm_options_find(task->options, "device");
    const nm_subword_source source = {.corpus = train,
                                      .vocab = parts->vocab,
                                      .settings = parts->texts[NM_LM_SETTINGS],
                                      .codes = parts->texts[NM_LM_CODES],
                                      .spm = parts->spm.spm,
                                      .seed = task->seed,
                                      .threads = (int32_t)device->threads};
    return nm_subword_sampler_create(&parts->sampler, &config->sampling, &source, err);
}

static nm_status lm_measure(const void *section, int64_t *size, nm_error *err)
{
    const nm_lm_task_config *config = section;
    int64_t lines;
    NM_TRY(nm_prepare_check_folder(config->folder, 1, err));
    return nm_prepare_measure(config->folder, 1, &lines, size, err);
}

static nm_status lm_open_model(nm_task *task, const nm_safetensors *file, nm_error *err)
{
    nm_lm_parts *parts = task->parts = nm_allocate(sizeof *parts);
    nm_model_texts_load(parts->texts, text_names, NM_LM_TEXTS, file);
    NM_TRY(nm_model_spm_load(&parts->spm, spm_name, file, err));
    return parse_texts(parts, nm_safetensors_path(file), err);
}

static void lm_save(const nm_task *task, nm_safetensors_writer *writer)
{
    nm_model_texts_save(parts_of(task)->texts, text_names, NM_LM_TEXTS, writer);
    nm_model_spm_save(&parts_of(task)->spm, spm_name, writer);
}

static void lm_close(nm_task *task)
{
    nm_lm_parts *parts = task->parts;
    if (!parts)
        return;
    nm_model_texts_free(parts->texts, NM_LM_TEXTS);
    for (int split = 0; split < NM_LM_SPLITS; split++)
        nm_corpus_close(&parts->splits[split]);
    free(parts->allowed);
    nm_vocab_free(parts->vocab);
    nm_vocab_free(parts->subwords);
    nm_subword_sampler_free(parts->sampler);
    nm_model_spm_release(&parts->spm);
    free(parts);
    task->parts = NULL;
}

static nm_model_sizes lm_sizes(const nm_task *task)
{
    int32_t words = nm_vocab_size(parts_of(task)->vocab);
    return (nm_model_sizes){.source = words, .target = words, .plan = task->plan};
}

static nm_status lm_prepare_model(nm_task *task, nm_model *model, nm_error *err)
{
    const nm_lm_parts *parts = parts_of(task);
    const nm_lm_config *config = nm_lm_config_of(model);
    if (!parts->allowed)
        return NM_OK;
    if (nm_vocab_omits(parts->vocab, nm_lm_first_input(config, parts->vocab)))
        return nm_fail(err, NM_USAGE,
                       "model.first_input = bos: the vocabulary has no <s> (prepare.omit_symbols)");
    return config->adaptive ? nm_fail(err, NM_UNSUPPORTED,
                                      "model.adaptive = true: adaptive softmax does not support "
                                      "prepare.omit_symbols")
                            : nm_model_allow(model, parts->allowed, err);
}

static const nm_lm_config *model_config(const nm_task *task)
{
    return nm_options_find(task->options, "model");
}

static int64_t batch_segments(const nm_task *task)
{
    int64_t n = task->max_tokens / model_config(task)->context;
    return n < 1 ? 1 : n;
}

static char *lm_data_warning(const nm_task *task)
{
    int64_t context = model_config(task)->context;
    return task->max_tokens >= context
               ? NULL
               : nm_format("train.max_tokens = %lld is less than model.context: a batch has one segment of "
                           "%lld tokens",
                           (long long)task->max_tokens, (long long)context);
}

static nm_status segments_of(const nm_task *task, nm_split split, nm_lm_segments *segments, nm_error *err)
{
    const nm_lm_task_config *config = task->config;
    const nm_lm_config *model = model_config(task);
    const nm_corpus *sampled = split == NM_SPLIT_TRAIN ? parts_of(task)->sampled : NULL,
                    *corpus = sampled ? sampled : &parts_of(task)->splits[split];
    if (!corpus->n)
        return nm_fail(err, NM_USAGE, "the data folder has no %s data", nm_prepare_split_names[split]);
    bool incomplete = config->incomplete == NM_LM_INCOMPLETE_SCORE && model->causal;
    int64_t streams = split != NM_SPLIT_TRAIN                ? config->eval_streams
                      : config->order == NM_LM_ORDER_STREAMS ? batch_segments(task)
                                                             : 1;
    return nm_lm_segments_make(segments, corpus->ids, (int64_t)corpus->offsets[corpus->n], streams,
                               (int32_t)model->context, incomplete,
                               nm_lm_first_input(model, parts_of(task)->vocab), err);
}

/* Fisher-Yates shuffle: the order depends on seed and epoch only. */
static void shuffle_segments(int64_t *order, int64_t n, uint64_t seed, uint32_t epoch)
{
    for (int64_t i = n - 1; i > 0; i--) {
        nm_random_words words = nm_random4(seed, NM_RANDOM_SHUFFLE, 0, epoch, (uint64_t)i);
        int64_t j = (int64_t)(((uint64_t)words.w[0] << 31 | words.w[1] >> 1) % (uint64_t)(i + 1)),
                kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

static nm_status lm_epoch(nm_task *task, nm_split split, uint32_t epoch, bool shuffle, nm_batches *batches,
                          nm_error *err)
{
    const nm_lm_task_config *config = task->config;
    nm_lm_segments segments = {0};
    nm_lm_parts *parts = task->parts;
    *batches = (nm_batches){0};
    if (split == NM_SPLIT_TRAIN && parts->sampler)
        parts->sampled = shuffle ? nm_subword_sampler_sample(parts->sampler, epoch) : NULL;
    NM_TRY(segments_of(task, split, &segments, err));
    int64_t n = segments.streams * segments.per_stream, each = batch_segments(task);
    batches->n = (n + each - 1) / each;
    batches->order = nm_allocate((size_t)n * sizeof *batches->order);
    batches->starts = nm_allocate(((size_t)batches->n + 1) * sizeof *batches->starts);
    for (int64_t i = 0; i < n; i++)
        batches->order[i] = i;
    for (int64_t i = 0; i <= batches->n; i++)
        batches->starts[i] = i * each < n ? i * each : n;
    if (shuffle && config->order == NM_LM_ORDER_SHUFFLED)
        shuffle_segments(batches->order, n, task->seed, epoch);
    return NM_OK;
}

/* The input with word dropout; the targets are unchanged. */
static const int32_t *drop_input(const nm_task *task, const nm_batch *batch, uint32_t step, nm_arena *arena)
{
    const nm_lm_task_config *config = task->config;
    const nm_batch_words words = {
        .unknown = parts_of(task)->vocab->unk, .word_dropout = config->word_dropout, .step = step};
    int32_t *ids = nm_arena_alloc(arena, (size_t)batch->tokens * sizeof *ids);
    memcpy(ids, batch->target_in, (size_t)batch->tokens * sizeof *ids);
    nm_batch_drop_words(ids, batch->tokens, &words, task->seed, 0);
    return ids;
}

static nm_batch lm_batch(nm_task *task, nm_split split, const nm_batches *batches, int64_t i, uint32_t step,
                         bool training, nm_arena *arena)
{
    nm_lm_segments segments = {0};
    nm_status status = segments_of(task, split, &segments, NM_IGNORED);
    NM_ASSERT(status == NM_OK); /* lm_epoch has called it with the same arguments */
    nm_arena_reset(arena);
    int64_t first = batches->starts[i];
    int32_t n = (int32_t)(batches->starts[i + 1] - first);
    int64_t *begins = nm_arena_alloc(arena, (size_t)n * sizeof *begins);
    int32_t *lengths = nm_arena_alloc(arena, (size_t)n * sizeof *lengths);
    for (int32_t s = 0; s < n; s++)
        begins[s] = nm_lm_segment_begin(&segments, batches->order[first + s], &lengths[s]);
    nm_batch batch = nm_lm_pack(segments.ids, segments.before, begins, NULL, lengths, n, arena);
    nm_batch_ignore_masked(&batch, parts_of(task)->allowed, arena);
    batch.index = batches->order + first;
    const nm_lm_task_config *config = task->config;
    if (training && config->word_dropout > 0)
        batch.target_in = drop_input(task, &batch, step, arena);
    return batch;
}

/* All targets are the last token of the dictionary, because with adaptive softmax targets in the last cluster
 * need the most memory. */
static nm_batch lm_largest(nm_task *task, nm_arena *arena)
{
    int32_t length = (int32_t)model_config(task)->context, n = (int32_t)batch_segments(task);
    nm_arena_reset(arena);
    int32_t *ids = nm_arena_alloc(arena, (size_t)length * sizeof *ids);
    for (int32_t i = 0; i < length; i++)
        ids[i] = nm_vocab_size(parts_of(task)->vocab) - 1;
    int64_t *begins = nm_arena_alloc(arena, (size_t)n * sizeof *begins);
    int32_t *lengths = nm_arena_alloc(arena, (size_t)n * sizeof *lengths);
    for (int32_t s = 0; s < n; s++) {
        begins[s] = 0;
        lengths[s] = length;
    }
    return nm_lm_pack(ids, ids[0], begins, NULL, lengths, n, arena);
}

static double *lm_loss(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch, bool smoothed)
{
    (void)task;
    nm_loss_spec spec = nm_train_loss(model->options, batch->target_out, smoothed);
    return nm_lm_loss(model, tape, nm_lm_hidden(model, tape, batch), &spec);
}

static const char *lm_entry_name(const nm_task *task, const char *param, int axis, int32_t index)
{
    bool rows = !strcmp(param, "embed.weight") || !strcmp(param, "output.weight");
    bool has_entries = axis ? !strcmp(param, "output.bias") : rows;
    const nm_vocab *vocab = parts_of(task)->vocab;
    return has_entries && index < nm_vocab_size(vocab) ? nm_vocab_symbol(vocab, index) : NULL;
}

static bool lm_is_noncausal(const nm_options *options)
{
    const nm_lm_config *model = nm_options_find(options, "model");
    return !model->causal;
}

static void add_sampling_rules(nm_options *options)
{
    nm_options_add_rules(options, nm_subword_sampling_rules);
}

const nm_task_type nm_task_lm = {
    .name = "lm",
    .recipe = "lm",
    .model = &nm_model_lm,
    .options = lm_task_options,
    .config_size = sizeof(nm_lm_task_config),
    .add_options = add_sampling_rules,
    .add_search_options = nm_sample_options_add,
    .perplexity = true,
    .mean_loss = true,
    .is_noncausal = lm_is_noncausal,
    .open = lm_open,
    .open_model = lm_open_model,
    .measure = lm_measure,
    .size_unit = "tokens",
    .sizes = lm_sizes,
    .prepare_model = lm_prepare_model,
    .entry_name = lm_entry_name,
    .data_warning = lm_data_warning,
    .epoch = lm_epoch,
    .batch = lm_batch,
    .largest = lm_largest,
    .loss = lm_loss,
    .score = nm_lm_task_score,
    .save = lm_save,
    .close = lm_close,
};
