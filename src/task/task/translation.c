/* Translation: a data folder of `norma prepare`, one source and one target sequence per example, BLEU as the
 * score. */
#include "task/translation.h"

#include <string.h>

#include "backend/device_options.h"
#include "base/file.h"
#include "data/alignments.h"
#include "data/checksums.h"
#include "data/prepare.h"
#include "model/seq2seq.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_translation_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option translation_options[] = {
    ROW(folder, "", 0, 0, "Data folder written by norma prepare."),
    ROW(max_length, "256", 1, 1 << 20,
        "Maximum length of a sequence in tokens; longer ones are excluded from training and from the "
        "validation loss, and counted."),
    NM_CHOICE(nm_translation_config, order, "length", NM_EXAMPLE_ORDERS,
        "Sentences of a training batch: of similar length (sorted by target, then source length), "
        "or random."),
    ROW(word_dropout, "0", 0, 0.99,
        "Fraction of source and target input tokens replaced by <unk> in training."),
    ROW(mask_words, "false", 0, 1,
        "Restrict the output vocabulary to the subwords of the training data's target side; "
        "other target tokens are excluded from the loss and counted at each validation."),
    ROW(alignment_weight, "0.1", 0, 1000,
        "Guided alignment: weight of the cross-entropy of the attention of model.alignment_head to the word "
        "alignments, per target token."),
    NM_SUBWORD_SAMPLING_OPTIONS(nm_translation_config),
    {0}};
/* clang-format on */

static const nm_option_rule translation_rules[] = {{"data.alignment_weight", "model.alignment_head", "!0",
                                                    "no head learns alignments (model.alignment_head)", NULL},
                                                   {0}};

static const char *const text_names[] = {"data.ini",  "dict.source.txt",  "dict.target.txt",
                                         "codes.bpe", "units.source.txt", "units.target.txt"};
static const char *const spm_names[] = {"sentencepiece.source.model", "sentencepiece.target.model"};

static nm_translation_parts *parts_of(const nm_task *task)
{
    return task->parts;
}

static nm_status parse_texts(nm_translation_parts *parts, const char *where, nm_error *err)
{
    nm_model_text texts[NM_TRANSLATION_TEXTS];
    for (int i = 0; i < NM_TRANSLATION_TEXTS; i++)
        texts[i] = (nm_model_text){where, text_names[i], parts->texts[i]};
    const nm_model_text *settings = &texts[NM_TEXT_SETTINGS];
    NM_TRY(nm_model_text_check_codes(&texts[NM_TEXT_CODES], err));
    if (texts[NM_TEXT_SUBWORDS].text)
        NM_TRY(nm_model_text_vocab(&texts[NM_TEXT_SUBWORDS], NULL, &parts->source_subwords, err));
    if (texts[NM_TEXT_TARGET_SUBWORDS].text)
        NM_TRY(nm_model_text_vocab(&texts[NM_TEXT_TARGET_SUBWORDS], NULL, &parts->target_subwords, err));
    NM_TRY(nm_model_text_vocab(&texts[NM_TEXT_SOURCE], settings, &parts->source_vocab, err));
    return nm_model_text_vocab(&texts[NM_TEXT_TARGET], settings, &parts->target_vocab, err);
}

static nm_status read_texts(nm_translation_parts *parts, const char *folder, nm_error *err)
{
    for (int i = 0; i < NM_TRANSLATION_TEXTS; i++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, text_names[i]);
        NM_TRY(i < NM_TEXT_CODES ? nm_model_text_read(path, &parts->texts[i], err)
                                 : nm_model_text_read_optional(path, &parts->texts[i], err));
    }
    for (int target = 0; target < 2; target++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, spm_names[target]);
        NM_TRY(nm_model_spm_read_optional(&parts->spm[target], path, err));
    }
    return NM_OK;
}

/* If the tokenizer keeps the text, the score is computed on detokenized text. */
static nm_status open_text_scoring(nm_translation_parts *parts, const nm_prepare_config *config,
                                   nm_error *err)
{
    const nm_tokenizer_type *type = nm_tokenizer_find(config->tokenizer);
    if (!type || !type->keeps_text)
        return NM_OK;
    nm_tokenizer_options options = nm_tokenizer_options_default();
    options.spm = parts->spm[1].spm;
    options.pretokenizer = config->pretokenizer;
    NM_TRY(nm_tokenizer_open(&parts->target_tokenizer, config->tokenizer, &options, err));
    const nm_metric_tokenizer_config tokenizer = {.name =
                                                      nm_metric_tokenizer_of_language(config->target_lang)};
    return nm_metric_tokenizer_open(&parts->bleu_tokenizer, &tokenizer, err);
}

static nm_status open_scoring(nm_translation_parts *parts, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *settings;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&settings, &config, "data.ini", parts->texts[NM_TEXT_SETTINGS], err));
    return open_text_scoring(parts, config, err);
}

/* A folder without these files is an error when they are needed. */
static nm_status read_words(nm_task *task, nm_split split, int target, nm_error *err)
{
    nm_translation_parts *parts = task->parts;
    NM_AUTO_FREE char *path = nm_translation_words_path(task, split, target);
    nm_status status = NM_OK;
    if (parts->sides[split][target].n && nm_file_may_exist(path))
        status = nm_translation_read_words(&parts->words[split][target], path, err);
    return status;
}

static void set_batching(nm_task *task, int split)
{
    const nm_translation_config *config = task->config;
    nm_translation_parts *parts = task->parts;
    parts->batching[split] =
        (nm_batching){.source = &parts->sides[split][0],
                      .target = &parts->sides[split][1],
                      .max_tokens = task->max_tokens,
                      .max_length = config->max_length,
                      .by_length = split != NM_SPLIT_TRAIN || config->order == NM_ORDER_LENGTH,
                      .seed = task->seed};
}

static nm_status open_samplers(nm_task *task, nm_error *err)
{
    const nm_translation_config *config = task->config;
    nm_translation_parts *parts = task->parts;
    const nm_device_config *device = nm_options_find(task->options, "device");
    int64_t limit = config->max_length < task->max_tokens ? config->max_length : task->max_tokens;
    for (int target = 0; target < 2; target++) {
        const nm_subword_source source = {.corpus = &parts->sides[NM_SPLIT_TRAIN][target],
                                          .vocab = target ? parts->target_vocab : parts->source_vocab,
                                          .settings = parts->texts[NM_TEXT_SETTINGS],
                                          .codes = parts->texts[NM_TEXT_CODES],
                                          .spm = parts->spm[target].spm,
                                          .max_length = limit,
                                          .seed = task->seed,
                                          .side = (uint32_t)target,
                                          .threads = (int32_t)device->threads};
        NM_TRY(nm_subword_sampler_create(&parts->samplers[target], &config->sampling, &source, err));
    }
    if (parts->samplers[0] && config->mask_words)
        return nm_fail(err, NM_USAGE,
                       "data.mask_words excludes target subwords that do not occur in the data folder, but "
                       "data.subword_dropout and data.subword_sampling sample them");
    return NM_OK;
}

/* Opens the word alignments of the training pairs if a head learns them. */
static nm_status open_alignments(nm_task *task, nm_error *err)
{
    const nm_translation_config *config = task->config;
    nm_translation_parts *parts = task->parts;
    const nm_seq2seq_config *model = nm_options_find(task->options, "model");
    if (!model->alignment_head)
        return NM_OK;
    NM_TRY(nm_alignments_open(&parts->alignments, config->folder, parts->sides[NM_SPLIT_TRAIN], err));
    if (parts->samplers[0])
        return nm_fail(
            err, NM_USAGE,
            "model.alignment_head: the alignments are those of the subwords of the data folder, but "
            "data.subword_dropout and data.subword_sampling sample others");
    task->fingerprint ^= parts->alignments.fingerprint << 2;
    return NM_OK;
}

static uint64_t pair_fingerprint(const nm_corpus sides[2])
{
    return sides[0].fingerprint ^ (sides[1].fingerprint << 1);
}

static nm_status translation_open(nm_task *task, nm_error *err)
{
    const nm_translation_config *config = task->config;
    nm_translation_parts *parts = task->parts = nm_allocate(sizeof *parts);
    NM_TRY(nm_prepare_check_folder(config->folder, 2, err));
    NM_TRY(read_texts(parts, config->folder, err));
    NM_TRY(nm_checksums_verify(config->folder, err));
    NM_TRY(parse_texts(parts, config->folder, err));
    NM_TRY(open_scoring(parts, err));
    for (int split = 0; split < NM_TRANSLATION_SPLITS; split++) {
        for (int target = 0; target < 2; target++)
            NM_TRY(nm_prepare_open_split(&parts->sides[split][target], config->folder, split, 2, target,
                                         nm_vocab_size(target ? parts->target_vocab : parts->source_vocab),
                                         err));
        for (int target = 0; target < 2 && split != NM_SPLIT_TRAIN; target++)
            NM_TRY(read_words(task, (nm_split)split, target, err));
        if (parts->sides[split][0].n != parts->sides[split][1].n)
            return nm_fail(err, NM_MISMATCH, "%s: %s has %lld source and %lld target sequences",
                           config->folder, nm_prepare_split_names[split], (long long)parts->sides[split][0].n,
                           (long long)parts->sides[split][1].n);
        set_batching(task, split);
    }
    NM_TRY(open_samplers(task, err));
    task->size = parts->sides[NM_SPLIT_TRAIN][0].n;
    task->fingerprint = pair_fingerprint(parts->sides[NM_SPLIT_TRAIN]);
    task->valid_fingerprint = pair_fingerprint(parts->sides[NM_SPLIT_VALID]);
    return open_alignments(task, err);
}

static nm_status translation_measure(const void *section, int64_t *size, nm_error *err)
{
    const nm_translation_config *config = section;
    int64_t tokens;
    NM_TRY(nm_prepare_check_folder(config->folder, 2, err));
    return nm_prepare_measure(config->folder, 2, size, &tokens, err);
}

static nm_status translation_open_model(nm_task *task, const nm_safetensors *file, nm_error *err)
{
    nm_translation_parts *parts = task->parts = nm_allocate(sizeof *parts);
    nm_model_texts_load(parts->texts, text_names, NM_TRANSLATION_TEXTS, file);
    const nm_safetensor *allowed = nm_safetensors_find(file, "target.allowed");
    nm_status status = parse_texts(parts, nm_safetensors_path(file), err);
    for (int target = 0; target < 2 && status == NM_OK; target++)
        status = nm_model_spm_load(&parts->spm[target], spm_names[target], file, err);
    if (status == NM_OK && allowed) {
        if (allowed->type != NM_TENSOR_U8 || allowed->count != (size_t)nm_vocab_size(parts->target_vocab))
            return nm_fail(err, NM_MISMATCH, "%s: target.allowed does not have the size of the dictionary",
                           nm_safetensors_path(file));
        parts->allowed = nm_allocate(allowed->count);
        memcpy(parts->allowed, allowed->data, allowed->count);
    }
    return status;
}

static void translation_save(const nm_task *task, nm_safetensors_writer *writer)
{
    const nm_translation_parts *parts = parts_of(task);
    nm_model_texts_save(parts->texts, text_names, NM_TRANSLATION_TEXTS, writer);
    for (int target = 0; target < 2; target++)
        nm_model_spm_save(&parts->spm[target], spm_names[target], writer);
    const int64_t size = nm_vocab_size(parts->target_vocab);
    if (parts->allowed)
        nm_safetensors_add(writer, "target.allowed", NM_TENSOR_U8, 1, &size, parts->allowed);
}

static void translation_close(nm_task *task)
{
    nm_translation_parts *parts = task->parts;
    if (!parts)
        return;
    nm_model_texts_free(parts->texts, NM_TRANSLATION_TEXTS);
    for (int split = 0; split < NM_TRANSLATION_SPLITS; split++)
        for (int target = 0; target < 2; target++) {
            nm_corpus_close(&parts->sides[split][target]);
            nm_line_list_release(&parts->words[split][target]);
        }
    nm_corpus_close(&parts->alignments);
    for (int target = 0; target < 2; target++) {
        nm_subword_sampler_free(parts->samplers[target]);
        nm_model_spm_release(&parts->spm[target]);
    }
    nm_tokenizer_close(&parts->target_tokenizer);
    nm_metric_tokenizer_close(&parts->bleu_tokenizer);
    nm_vocab_free(parts->source_vocab);
    nm_vocab_free(parts->source_subwords);
    nm_vocab_free(parts->target_subwords);
    nm_vocab_free(parts->target_vocab);
    NM_FREE(parts->allowed, parts);
    task->parts = NULL;
}

static nm_model_sizes translation_sizes(const nm_task *task)
{
    const nm_translation_parts *parts = parts_of(task);
    return (nm_model_sizes){.source = nm_vocab_size(parts->source_vocab),
                            .target = nm_vocab_size(parts->target_vocab),
                            .plan = task->plan};
}

/* The output vocabulary of data.mask_words: subwords of the target side of the training data, eos and unk
 * (Tears). */
static void find_allowed(nm_translation_parts *parts)
{
    const nm_corpus *target = &parts->sides[NM_SPLIT_TRAIN][1];
    parts->allowed = nm_allocate((size_t)nm_vocab_size(parts->target_vocab));
    parts->allowed[parts->target_vocab->eos] = parts->allowed[parts->target_vocab->unk] = 1;
    for (uint64_t i = 0; i < target->offsets[target->n]; i++)
        parts->allowed[target->ids[i]] = 1;
}

static nm_status translation_prepare_model(nm_task *task, nm_model *model, nm_error *err)
{
    nm_translation_parts *parts = task->parts;
    const nm_translation_config *config = task->config;
    int64_t positions = nm_seq2seq_config_of(model)->max_positions;
    if (config->max_length > positions)
        return nm_fail(err, NM_USAGE, "data.max_length = %lld is more than model.max_positions = %lld",
                       (long long)config->max_length, (long long)positions);
    if (config->mask_words && !parts->allowed && parts->sides[NM_SPLIT_TRAIN][1].n)
        find_allowed(parts);
    return parts->allowed ? nm_model_allow(model, parts->allowed, err) : NM_OK;
}

static const char *translation_entry_name(const nm_task *task, const char *param, int axis, int32_t index)
{
    const nm_translation_parts *parts = parts_of(task);
    bool source = !strcmp(param, "embed.weight") || !strcmp(param, "enc.embed.weight");
    bool target = !strcmp(param, "dec.embed.weight") || !strcmp(param, "output.weight");
    const nm_vocab *vocab = NULL;
    if (!axis && source)
        vocab = parts->source_vocab;
    if (axis ? !strcmp(param, "output.bias") : target)
        vocab = parts->target_vocab;
    return vocab && index < nm_vocab_size(vocab) ? nm_vocab_symbol(vocab, index) : NULL;
}

static nm_status translation_epoch(nm_task *task, nm_split split, uint32_t epoch, bool shuffle,
                                   nm_batches *batches, nm_error *err)
{
    nm_translation_parts *parts = task->parts;
    if (!parts->sides[split][0].n)
        return nm_fail(err, NM_USAGE, "the data folder has no %s data", nm_prepare_split_names[split]);
    if (split == NM_SPLIT_TRAIN && parts->samplers[0]) {
        nm_batching *batching = &parts->batching[split];
        batching->source =
            shuffle ? nm_subword_sampler_sample(parts->samplers[0], epoch) : &parts->sides[split][0];
        batching->target =
            shuffle ? nm_subword_sampler_sample(parts->samplers[1], epoch) : &parts->sides[split][1];
    }
    return nm_batches_create(batches, &parts->batching[split], epoch, shuffle, err);
}

static nm_batch_words batch_words(const nm_task *task, uint32_t step, bool training)
{
    const nm_translation_parts *parts = parts_of(task);
    const nm_translation_config *config = task->config;
    const nm_vocab *vocab = parts->target_vocab;
    return (nm_batch_words){.target_first = nm_translation_first_id(vocab),
                            .unknown = vocab->unk,
                            .word_dropout = training ? config->word_dropout : 0,
                            .step = step};
}

/* A guide with space for n links, allocated in the arena; the caller fills in *offsets [n_targets + 1] and
 * *keys [n]. */
static nm_alignment_guide *guide_create(const nm_task *task, int32_t n_targets, size_t n, int32_t **offsets,
                                        int32_t **keys, nm_arena *arena)
{
    const nm_translation_config *config = task->config;
    const nm_seq2seq_config *model = nm_options_find(task->options, "model");
    nm_alignment_guide *guide = nm_arena_alloc(arena, sizeof *guide);
    *offsets = nm_arena_alloc(arena, ((size_t)n_targets + 1) * sizeof **offsets);
    *keys = nm_arena_alloc(arena, (n + 1) * sizeof **keys);
    *guide = (nm_alignment_guide){.offsets = *offsets,
                                  .keys = *keys,
                                  .layer = nm_seq2seq_alignment_layer(model),
                                  .head = (int32_t)model->alignment_head - 1,
                                  .weight = config->alignment_weight};
    return guide;
}

static void add_guide(const nm_task *task, nm_batch *batch, nm_arena *arena)
{
    const nm_corpus *links = &parts_of(task)->alignments;
    int32_t *offsets, *keys, n = 0;
    size_t numbers = 0;
    for (int32_t i = 0; i < batch->n; i++)
        numbers += (size_t)nm_corpus_length(links, batch->index[i]);
    batch->more = guide_create(task, batch->target.n_tokens, numbers / 2, &offsets, &keys, arena);
    for (int32_t i = 0; i < batch->n; i++) {
        uint64_t at = links->offsets[batch->index[i]], end = links->offsets[batch->index[i] + 1];
        for (int32_t t = batch->target.offsets[i]; t < batch->target.offsets[i + 1]; t++) {
            offsets[t] = n;
            for (; at < end && links->ids[at] == batch->target_pos[t]; at += 2)
                keys[n++] = links->ids[at + 1];
        }
    }
    offsets[batch->target.n_tokens] = n;
}

static nm_batch translation_batch(nm_task *task, nm_split split, const nm_batches *batches, int64_t i,
                                  uint32_t step, bool training, nm_arena *arena)
{
    nm_batch_words words = batch_words(task, step, training);
    nm_batch batch = nm_batches_get(batches, &parts_of(task)->batching[split], i, &words, arena);
    nm_batch_ignore_masked(&batch, parts_of(task)->allowed, arena);
    if (training && parts_of(task)->alignments.n)
        add_guide(task, &batch, arena);
    return batch;
}

static nm_batch translation_largest(nm_task *task, nm_arena *arena)
{
    const nm_translation_config *config = task->config;
    int32_t tokens = (int32_t)task->max_tokens;
    int32_t length = config->max_length < tokens ? (int32_t)config->max_length : tokens;
    nm_arena_reset(arena);
    nm_batch batch = {.n = 0};
    batch.source = nm_batch_fill(tokens, length, &batch.source_ids, arena);
    batch.target = nm_batch_fill(tokens, length, &batch.target_in, arena);
    batch.source_pos = batch.source_ids;
    batch.target_pos = batch.target_out = batch.target_in;
    batch.n = batch.target.n_seqs;
    batch.n_targets = batch.tokens = tokens;
    if (!parts_of(task)->alignments.n)
        return batch;
    int32_t *offsets, *keys;
    batch.more = guide_create(task, tokens, (size_t)tokens, &offsets, &keys, arena);
    for (int32_t t = 0; t < tokens; t++) {
        offsets[t + 1] = t + 1;
        keys[t] = 0;
    }
    offsets[0] = 0;
    return batch;
}

static double *translation_loss(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch,
                                bool smoothed)
{
    (void)task;
    nm_model_output out = model->type->forward(model, tape, batch);
    nm_loss_spec spec = nm_train_loss(model->options, batch->target_out, smoothed);
    spec.allowed = model->allowed;
    return nm_softmax_loss_of(tape, out.hidden, out.weight, out.bias, &spec);
}

static void add_decode_options(nm_options *options)
{
    nm_decode_options_add(options);
    nm_options_add_rules(options, nm_subword_sampling_rules);
    nm_options_add_rules(options, translation_rules);
}

const nm_task_type nm_task_translation = {
    .name = "translation",
    .recipe = "translate",
    .model = &nm_model_seq2seq,
    .options = translation_options,
    .config_size = sizeof(nm_translation_config),
    .perplexity = true,
    .add_options = add_decode_options,
    .add_search_options = nm_decode_options_add,
    .open = translation_open,
    .open_model = translation_open_model,
    .measure = translation_measure,
    .size_unit = "sentence pairs",
    .sizes = translation_sizes,
    .prepare_model = translation_prepare_model,
    .entry_name = translation_entry_name,
    .epoch = translation_epoch,
    .batch = translation_batch,
    .largest = translation_largest,
    .loss = translation_loss,
    .score = nm_translation_score,
    .save = translation_save,
    .close = translation_close,
};
