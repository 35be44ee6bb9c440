/* Second step of `norma prepare`: BPE and dictionaries, computed from the counted words. The segmentation of
 * a word does not depend on its context, so the text is not read again. */
#include "data/prepare_private.h"

#include <string.h>

#include "text/byte_level.h"
#include "text/utf8.h"

/* Sets the counts of user symbols to 0, because BPE does not split them. */
static void uncount_user_symbols(const nm_prepare *self, nm_counter *words)
{
    for (size_t i = 0; i < self->user_symbols.n; i++) {
        const nm_count *symbol = &self->user_symbols.items[i];
        size_t word = nm_counter_find(words, symbol->text, symbol->bytes);
        if (word != SIZE_MAX)
            words->items[word].count = 0;
    }
}

static nm_status get_bpe(nm_prepare *self, nm_error *err)
{
    const nm_prepare_config *config = self->config;
    bool byte_level = !strcmp(config->tokenizer, nm_tokenizer_byte_level.name);
    if (self->spm[PREPARE_SOURCE])
        return NM_OK;
    if (*config->like) {
        if (self->like->codes)
            NM_TRY(nm_bpe_parse(self->like->codes, strlen(self->like->codes), "codes.bpe of prepare.like",
                                &self->bpe, err));
    } else if (*config->codes) {
        NM_TRY(nm_bpe_read(config->codes, &self->bpe, err));
        NM_TRY(nm_bpe_match_tokenizer(self->bpe, byte_level, config->codes, err));
    } else if (config->bpe_merges || config->bpe_vocabulary || byte_level) {
        NM_AUTO(nm_counter_release) nm_counter all = {0};
        nm_counter_merge(&all, &self->words[PREPARE_SOURCE]);
        nm_counter_merge(&all, &self->words[PREPARE_TARGET]);
        uncount_user_symbols(self, &all);
        nm_bpe_learn_options options = nm_bpe_learn_options_default();
        options.total_symbols = config->bpe_vocabulary;
        options.byte_level = byte_level;
        options.n_merges = config->bpe_vocabulary ? config->bpe_vocabulary : config->bpe_merges;
        NM_TRY(nm_bpe_learn(&all, &options, &self->bpe, err));
        if (config->bpe_vocabulary && !self->bpe->n_merges)
            return nm_fail(err, NM_MISMATCH,
                           "prepare.bpe_vocabulary = %lld: the training text already has more characters",
                           (long long)config->bpe_vocabulary);
    }
    if (self->bpe)
        nm_bpe_keep_whole(self->bpe, &self->user_symbols);
    self->report->merges = self->bpe ? (int64_t)self->bpe->n_merges : 0;
    return NM_OK;
}

static void add_piece(nm_word_subwords *pieces, size_t subword)
{
    NM_APPEND(pieces->numbers, pieces->n, pieces->capacity, (int32_t)subword);
}

/* Counts the subwords of counted words; applier NULL: each word is a subword. Appends their indexes to pieces
 * unless it is NULL. */
static void count_subwords(nm_bpe_applier *applier, const nm_counter *words, nm_counter *subwords,
                           nm_word_subwords *pieces)
{
    NM_AUTO(nm_buffer_release) nm_buffer line = {0};
    for (size_t i = 0; i < words->n; i++) {
        const nm_count *word = &words->items[i];
        nm_buffer_clear(&line);
        if (applier)
            nm_bpe_apply_line(applier, word->text, word->bytes, &line);
        else
            nm_buffer_append(&line, word->text, word->bytes);
        for (size_t at = 0; at < line.bytes;) {
            const char *space = memchr(line.data + at, ' ', line.bytes - at);
            size_t bytes = space ? (size_t)(space - line.data) - at : line.bytes - at;
            size_t subword = nm_counter_add(subwords, line.data + at, bytes, word->count);
            if (pieces)
                add_piece(pieces, subword);
            at += bytes + 1;
        }
        if (pieces) {
            NM_APPEND(pieces->ends, pieces->n_words, pieces->words_capacity, pieces->n);
        }
    }
}

/* Adds a subword, with count 1 if it does not occur in the text. */
static void add_absent(nm_counter *subwords, const char *text, size_t bytes)
{
    size_t i = nm_counter_add(subwords, text, bytes, 0);
    if (!subwords->items[i].count)
        subwords->items[i].count = 1;
}

/* Adds a subword that BPE-dropout can produce. */
static void add_possible(nm_counter *subwords, const char *text, size_t bytes, bool last, nm_buffer *key)
{
    nm_buffer_clear(key);
    nm_buffer_append(key, text, bytes);
    if (!last)
        nm_buffer_append(key, NM_BPE_SEPARATOR, strlen(NM_BPE_SEPARATOR));
    add_absent(subwords, key->data, key->bytes);
}

/* Adds the subwords that BPE-dropout can produce from the words of the training text: their characters, and
 * those of their substrings that are symbols of the model. */
static void add_possible_subwords(const nm_bpe *bpe, const nm_counter *words, nm_counter *subwords)
{
    NM_AUTO(nm_buffer_release) nm_buffer key = {0};
    size_t longest = 0;
    for (size_t i = 0; i < bpe->symbols.n; i++)
        longest = bpe->symbols.items[i].bytes > longest ? bpe->symbols.items[i].bytes : longest;
    for (size_t i = 0; i < words->n; i++) {
        const nm_count *word = &words->items[i];
        if (nm_counter_find(&bpe->whole, word->text, word->bytes) != SIZE_MAX)
            continue;
        for (size_t start = 0; word->count && start < word->bytes; start += nm_utf8_length(word->text[start]))
            for (size_t end = start; end < word->bytes && end - start < longest;) {
                end += nm_utf8_length(word->text[end]);
                bool last = end == word->bytes, single = end == start + nm_utf8_length(word->text[start]);
                if (single || nm_bpe_has_symbol(bpe, word->text + start, end - start, last))
                    add_possible(subwords, word->text + start, end - start, last, &key);
            }
    }
}

/* Adds the subwords of prepare.like, with their counts, to those that BPE may produce. */
static nm_status add_subwords_of_like(nm_prepare *self, int side, nm_error *err)
{
    const char *text =
        self->like->subwords[side] ? self->like->subwords[side] : self->like->dictionaries[side];
    nm_vocab *vocab;
    NM_TRY(nm_vocab_parse(text, strlen(text), "subwords of prepare.like", NM_VOCAB_FAIRSEQ, &vocab, err));
    nm_counter_merge(&self->bpe_counts[side], &vocab->symbols);
    nm_vocab_free(vocab);
    return NM_OK;
}

static void count_side(nm_prepare *self, int side)
{
    int64_t threshold = self->config->bpe_vocabulary_threshold;
    nm_counter *counts = &self->bpe_counts[side];
    if (self->bpe && threshold && !*self->config->like) {
        nm_bpe_applier *plain = nm_bpe_applier_create(self->bpe, NULL, 0);
        count_subwords(plain, &self->words[side], counts, NULL);
        nm_bpe_applier_free(plain);
    }
    nm_bpe_applier *applier =
        self->bpe ? nm_bpe_applier_create(self->bpe, counts->n ? counts : NULL, threshold) : NULL;
    count_subwords(applier, &self->words[side], &self->subwords[side], &self->pieces[side]);
    nm_bpe_applier_free(applier);
    if (self->words[side].n)
        for (size_t i = 0; i < self->user_symbols.n; i++)
            add_absent(&self->subwords[side], self->user_symbols.items[i].text,
                       self->user_symbols.items[i].bytes);
    if (self->bpe && self->config->subword_sampling)
        add_possible_subwords(self->bpe, &self->words[side], &self->subwords[side]);
}

/* Replaces the indexes of subwords with ids. Releases the counters of words and subwords. */
static nm_status find_ids(nm_prepare *self, int side, nm_error *err)
{
    const nm_counter *subwords = &self->subwords[side];
    const nm_vocab *vocab = self->vocab[side];
    nm_word_subwords *pieces = &self->pieces[side];
    NM_AUTO_FREE int32_t *ids = nm_allocate(subwords->n * sizeof *ids);
    nm_status status = NM_OK;
    for (size_t i = 0; i < subwords->n && status == NM_OK; i++) {
        const nm_count *subword = &subwords->items[i];
        ids[i] = nm_vocab_find(vocab, subword->text, subword->bytes);
        if (nm_vocab_omits(vocab, ids[i]))
            status = nm_fail(
                err, NM_FORMAT,
                "the text has the token '%.*s', which the dictionary lacks, and the vocabulary has no "
                "<unk> (prepare.omit_symbols)",
                (int)subword->bytes, subword->text);
    }
    for (size_t i = 0; i < pieces->n && status == NM_OK; i++)
        pieces->numbers[i] = ids[pieces->numbers[i]];
    nm_counter_release(&self->words[side]);
    nm_counter_release(&self->subwords[side]);
    return status;
}

/* Adds all subwords that text can have, with count 0. */
static void add_all_subwords(const nm_prepare *self, const nm_spm *spm, nm_counter *all)
{
    if (spm) {
        nm_spm_add_pieces(spm, all);
        return;
    }
    nm_byte_level_add_symbols(all);
    const nm_counter *const lists[] = {&self->bpe->symbols, &self->bpe->whole};
    for (int list = 0; list < 2; list++)
        for (size_t i = 0; i < lists[list]->n; i++)
            nm_counter_add(all, lists[list]->items[i].text, lists[list]->items[i].bytes, 0);
}

/* Unless min_count or max_words excludes them, the dictionary contains all pieces of a SentencePiece model,
 * and all subwords of byte-level BPE, so that bytes and characters that do not occur in the training text are
 * not unknown. */
static nm_status build_vocab(nm_prepare *self, const nm_counter *subwords, const nm_spm *spm,
                             nm_vocab **vocab, nm_error *err)
{
    const nm_prepare_config *config = self->config;
    nm_vocab_options options = nm_vocab_options_default();
    options.order = config->special_ids;
    /* Subwords that do not occur in the training text have count 0. */
    options.threshold = config->min_count > 1 ? config->min_count : 1;
    options.max_size = (int32_t)config->max_words;
    options.multiple = (int32_t)config->dict_multiple;
    if (!spm && !(self->bpe && self->bpe->format == NM_BPE_BYTE_LEVEL))
        return nm_vocab_build(subwords, &options, vocab, err);
    NM_AUTO(nm_counter_release) nm_counter all = {0};
    add_all_subwords(self, spm, &all);
    nm_counter_merge(&all, subwords);
    options.threshold = config->min_count;
    return nm_vocab_build(&all, &options, vocab, err);
}

/* Copies a joint dictionary, because each side owns its own. */
static nm_status copy_vocab(const nm_vocab *from, nm_vocab **to, nm_error *err)
{
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_vocab_format(from, &text);
    return nm_vocab_parse(text.data, text.bytes, "joint dictionary", from->order, to, err);
}

static bool same_vocab(const nm_vocab *a, const nm_vocab *b)
{
    if (nm_vocab_size(a) != nm_vocab_size(b))
        return false;
    for (int32_t i = 0; i < nm_vocab_size(a); i++)
        if (strcmp(nm_vocab_symbol(a, i), nm_vocab_symbol(b, i)))
            return false;
    return true;
}

static nm_status get_joint_vocab(nm_prepare *self, nm_error *err)
{
    nm_vocab **vocab = self->vocab;
    const char *of_model = self->like->dictionaries[0] ? "the dictionaries of the model" : NULL;
    if (vocab[PREPARE_SOURCE] && vocab[PREPARE_TARGET])
        return same_vocab(vocab[PREPARE_SOURCE], vocab[PREPARE_TARGET])
                   ? NM_OK
                   : nm_fail(err, NM_MISMATCH, "%s%s%s differ, but --joint requires one dictionary",
                             of_model ? of_model : self->config->dict_source, of_model ? "" : " and ",
                             of_model ? "" : self->config->dict_target);
    int have = vocab[PREPARE_TARGET] ? PREPARE_TARGET : PREPARE_SOURCE;
    if (!vocab[have]) {
        NM_AUTO(nm_counter_release) nm_counter all = {0};
        nm_counter_merge(&all, &self->subwords[PREPARE_SOURCE]);
        nm_counter_merge(&all, &self->subwords[PREPARE_TARGET]);
        NM_TRY(build_vocab(self, &all, self->spm[PREPARE_SOURCE], &vocab[have], err));
    }
    return copy_vocab(vocab[have], &vocab[1 - have], err);
}

static nm_status get_vocab(nm_prepare *self, nm_error *err)
{
    const nm_prepare_config *config = self->config;
    for (int side = 0; side < self->sides; side++) {
        const char *given = side == PREPARE_SOURCE ? config->dict_source : config->dict_target,
                   *like = self->like->dictionaries[side];
        if (like)
            NM_TRY(nm_vocab_parse(like, strlen(like), "dictionary of prepare.like", config->special_ids,
                                  &self->vocab[side], err));
        else if (*given)
            NM_TRY(nm_vocab_read(given, config->special_ids, &self->vocab[side], err));
    }
    if (config->joint && self->sides == 2)
        NM_TRY(get_joint_vocab(self, err));
    for (int side = 0; side < self->sides; side++) {
        if (!self->vocab[side])
            NM_TRY(build_vocab(self, &self->subwords[side], self->spm[side], &self->vocab[side], err));
        NM_TRY(nm_vocab_omit(self->vocab[side], config->omit_symbols, err));
        self->report->dict_size[side] = nm_vocab_size(self->vocab[side]);
    }
    return NM_OK;
}

nm_status nm_prepare_subwords(nm_prepare *self, nm_error *err)
{
    NM_TRY(get_bpe(self, err));
    bool restricted = self->bpe && self->config->bpe_vocabulary_threshold && *self->config->like;
    for (int side = 0; restricted && side < self->sides; side++)
        NM_TRY(add_subwords_of_like(self, side, err));
#pragma omp parallel for num_threads(self->threads) schedule(static, 1)
    for (int side = 0; side < self->sides; side++)
        count_side(self, side);
    NM_TRY(get_vocab(self, err));
    for (int side = 0; side < self->sides; side++)
        NM_TRY(find_ids(self, side, err));
    return NM_OK;
}
