/* Score of translation: BLEU of the translations of a split against the references of the data folder.
 * References are tokenized words before BPE, and the score is that of multi-bleu on these tokens, as in the
 * papers. With a tokenizer that keeps the text, references are lines of text, and the score is that of
 * sacreBLEU with the tokenizer of the target language. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/prepare.h"
#include "model/decode.h"
#include "task/sampler_tokens.h"
#include "text/bleu.h"
#include "train/shards.h"
#include "task/translation.h"
#include "text/bpe.h"

enum { SAMPLES = 3 };

char *nm_translation_words_path(const nm_task *task, nm_split split, int target)
{
    const nm_translation_config *config = task->config;
    return nm_format("%s/%s.%s.words", config->folder, nm_prepare_split_names[split],
                     target ? "target" : "source");
}

nm_status nm_translation_read_words(nm_line_list *list, const char *path, nm_error *err)
{
    FILE *stream = NULL;
    nm_status status = nm_file_open(&stream, path, "rb", err);
    NM_AUTO(nm_lines_release) nm_lines reader = {0};
    nm_lines_init(&reader, stream, path);
    for (bool more = status == NM_OK; more;) {
        status = nm_lines_next(&reader, &more, err);
        if (status != NM_OK || !more)
            break;
        nm_line_list_add(list, reader.text, reader.bytes + 1);
    }
    if (stream)
        fclose(stream);
    return status;
}

/* Converts ids to words or, with a tokenizer that keeps the text, to detokenized text. units: workspace for
 * the subwords. */
static void words_of(const nm_translation_parts *parts, nm_id_list translation, nm_buffer *units,
                     nm_buffer *words)
{
    nm_buffer_clear(units);
    nm_buffer_clear(words);
    nm_vocab_decode(parts->target_vocab, translation.ids, (size_t)translation.n, units);
    if (parts->target_tokenizer.type)
        nm_detokenize(&parts->target_tokenizer, units->data, units->bytes, words);
    else
        nm_bpe_remove(units->data, units->bytes, words);
}

static char *sample_text(char *before, const char *source, const char *output, const char *reference)
{
    char *text = nm_format("%s%s  source: %s\n  output: %s\n  reference: %s\n", before ? before : "",
                           before ? "\n" : "", source, output, reference);
    free(before);
    return text;
}

static void count_all(const nm_translation_parts *parts, const nm_id_list *found, size_t n,
                      const nm_line_list *sources, const nm_line_list *references, nm_task_score *score)
{
    static const nm_bleu_config of_words = {.variant = NM_BLEU_MULTI},
                                of_text = {.variant = NM_BLEU_SACRE_13A};
    const nm_bleu_config *scored = parts->target_tokenizer.type ? &of_text : &of_words;
    nm_bleu_config config = *scored;
    if (parts->target_tokenizer.type)
        config.tokenizer = &parts->bleu_tokenizer;
    nm_bleu *bleu = nm_bleu_create(&config);
    nm_bleu_stats sum = {0}, *each = nm_allocate((n + 1) * sizeof *each);
    NM_AUTO(nm_buffer_release) nm_buffer units = {0};
    NM_AUTO(nm_buffer_release) nm_buffer words = {0};
    for (size_t i = 0; i < n; i++) {
        words_of(parts, found[i], &units, &words);
        size_t bytes;
        const char *reference = nm_line_list_get(references, i, &bytes);
        nm_bleu_count(bleu, words.data, &reference, 1, &each[i]);
        nm_bleu_add(&sum, &each[i]);
        if (i < SAMPLES && i < sources->n)
            score->samples =
                sample_text(score->samples, nm_line_list_get(sources, i, &bytes), words.data, reference);
    }
    score->name = "bleu";
    score->title = "BLEU";
    score->value = nm_bleu_compute(&config, &sum).bleu;
    score->counts = (nm_counts){(const int64_t *)each, n, NM_BLEU_COUNTS};
    score->of_counts = nm_bleu_of_counts;
    score->context = scored;
    NM_AUTO_FREE char *signature = nm_bleu_signature(&config, 1);
    snprintf(score->signature, sizeof score->signature, "%s", signature);
    nm_bleu_free(bleu);
}

nm_special_tokens nm_translation_special_tokens(const nm_vocab *vocab, bool **excluded)
{
    nm_special_tokens special = {
        .first = nm_translation_first_id(vocab), .eos = vocab->eos, .pad = vocab->pad, .unk = vocab->unk};
    *excluded = nm_allocate((size_t)nm_vocab_size(vocab) * sizeof **excluded);
    for (int32_t id = 0; id < nm_vocab_size(vocab); id++) {
        (*excluded)[id] = nm_lm_excludes(vocab, id, true);
        special.n_excluded += (*excluded)[id];
    }
    special.excluded = *excluded;
    return special;
}

/* Translates the sentences first .. first + n - 1 of a split. */
static nm_status translate_split(nm_task *task, nm_model *model, nm_split split, size_t first, size_t n,
                                 nm_translation *found, nm_error *err)
{
    const nm_translation_parts *parts = task->parts;
    const nm_corpus *corpus = &parts->sides[split][0];
    NM_AUTO_FREE nm_id_list *inputs = nm_allocate((n + 1) * sizeof *inputs);
    for (size_t i = 0; i < n; i++)
        inputs[i] = (nm_id_list){corpus->ids + corpus->offsets[first + i],
                                 (int32_t)nm_corpus_length(corpus, (int64_t)(first + i))};
    NM_AUTO_FREE bool *excluded = NULL;
    const nm_special_tokens words = nm_translation_special_tokens(parts->target_vocab, &excluded);
    nm_decoder *decoder;
    nm_status status =
        nm_decoder_create(&decoder, &model, 1, nm_options_find(task->options, "decode"), &words, err);
    if (status == NM_OK) {
        nm_decoder_set_stop(decoder, task->stop);
        status = nm_decode(decoder, inputs, n, found, err);
        nm_decoder_free(decoder);
    }
    return status;
}

nm_status nm_translation_count(const nm_task *task, nm_split split, const nm_id_list *found, size_t n,
                               nm_task_score *score, nm_error *err)
{
    nm_translation_parts *parts = task->parts;
    nm_line_list *sides = parts->words[split];
    *score = (nm_task_score){0};
    nm_status status = NM_OK;
    for (int target = 1; target >= 0 && status == NM_OK; target--) {
        NM_AUTO_FREE char *path = nm_translation_words_path(task, split, target);
        if (!sides[target].n) /* there was no such file */
            status = nm_translation_read_words(&sides[target], path, err);
        if (status == NM_OK && sides[target].n < n)
            status = nm_fail(err, NM_MISMATCH, "%s: %zu lines for %zu sequences", path, sides[target].n, n);
    }
    if (status == NM_OK)
        count_all(parts, found, n, &sides[0], &sides[1], score);
    return status;
}

/* Gathers the best translations of all processes, in the order of the sentences. best: [sentences of all
 * processes], views of *memory, heap. */
static nm_status gather_best(nm_comm *comm, const nm_translation *found, size_t n, nm_id_list *best,
                             char **memory, nm_error *err)
{
    size_t length = 0, k = 0, *ends = nm_allocate((size_t)comm->size * sizeof *ends);
    for (size_t i = 0; i < n; i++)
        length += 1 + (found[i].n ? (size_t)found[i].list[0].n : 0);
    NM_AUTO_FREE int32_t *own = nm_allocate((length + 1) * sizeof *own);
    for (size_t i = 0; i < n; i++) {
        int32_t ids = found[i].n ? found[i].list[0].n : 0;
        own[k++] = ids;
        if (ids)
            memcpy(own + k, found[i].list[0].ids, (size_t)ids * sizeof *own);
        k += (size_t)ids;
    }
    nm_status status = nm_comm_gather_bytes(comm, own, length * sizeof *own, memory, ends, err);
    const int32_t *at = (const int32_t *)(const void *)*memory;
    const int32_t *end = status == NM_OK ? at + ends[comm->size - 1] / sizeof *at : at;
    for (size_t i = 0; at < end; at += 1 + *at)
        best[i++] = (nm_id_list){at + 1, *at};
    free(ends);
    return status;
}

nm_status nm_translation_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                               nm_task_score *score, nm_error *err)
{
    const nm_translation_parts *parts = task->parts;
    *score = (nm_task_score){0};
    size_t n = (size_t)parts->sides[split][0].n;
    if (examples && (size_t)examples < n)
        n = (size_t)examples;
    nm_comm alone = {.type = &nm_comm_none, .size = 1}, *comm = task->comm ? task->comm : &alone;
    const nm_shard_range own = nm_shard_range_of((int64_t)n, comm);
    size_t first = (size_t)own.first, n_own = (size_t)(own.last - own.first);
    NM_AUTO_FREE nm_translation *found = nm_allocate((n_own + 1) * sizeof *found);
    NM_AUTO_FREE nm_id_list *best = nm_allocate((n + 1) * sizeof *best);
    NM_AUTO_FREE char *memory = NULL;
    nm_status status = translate_split(task, model, split, first, n_own, found, err);
    status = nm_comm_share_interruption(comm, status, err);
    NM_THEN(status, gather_best(comm, found, n_own, best, &memory, err));
    NM_THEN(status, nm_translation_count(task, split, best, n, score, err));
    for (size_t i = 0; i < n_own; i++)
        nm_translation_release(&found[i]);
    return status;
}
