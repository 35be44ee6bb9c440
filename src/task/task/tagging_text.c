/* Texts of tagging: reads column files into sentences, builds vocabularies and tags, and stores these in
 * model files. */
#include <stdlib.h>
#include <string.h>

#include "task/held_out.h"
#include "task/model_texts.h"
#include "base/text_input.h"
#include "task/tagging.h"
#include "text/utf8.h"

static const char *const split_keys[] = {"data.train", "data.valid", "data.test"};

void nm_tag_corpus_clear(nm_tag_corpus *corpus)
{
    corpus->forms = (nm_corpus){.ids = corpus->ids, .offsets = corpus->offsets};
    corpus->unknown_tags = 0;
}

void nm_tag_corpus_release(nm_tag_corpus *corpus)
{
    NM_FREE(corpus->ids, corpus->gold, corpus->offsets);
    *corpus = (nm_tag_corpus){0};
}

static void add_gold(nm_tagging_parts *parts, nm_tag_corpus *corpus, uint64_t at, const char *const *gold,
                     int32_t n)
{
    NM_AUTO_FREE char **names = nm_allocate((size_t)n * sizeof *names);
    nm_tags_convert(parts->scheme, gold, n, names);
    for (int32_t i = 0; i < n; i++) {
        corpus->gold[at + (uint64_t)i] =
            (int32_t)nm_counter_add(&parts->gold_names, names[i], strlen(names[i]), 1);
        free(names[i]);
    }
}

void nm_tagging_add(nm_tagging_parts *parts, nm_tag_corpus *corpus, const char *const *tokens,
                    const char *const *gold, int32_t n)
{
    nm_corpus *c = &corpus->forms;
    size_t s = (size_t)c->n;
    uint64_t at = s ? corpus->offsets[s] : 0;
    NM_GROW(corpus->offsets, s + 1, corpus->offsets_capacity);
    corpus->offsets[s] = at;
    corpus->offsets[s + 1] = at + (uint64_t)n;
    for (int32_t i = 0; i < n; i++) {
        size_t k = (size_t)at + (size_t)i;
        NM_GROW(corpus->ids, k, corpus->ids_capacity);
        NM_GROW(corpus->gold, k, corpus->gold_capacity);
        corpus->ids[k] = (int32_t)nm_counter_add(&parts->forms, tokens[i], strlen(tokens[i]), 1);
        corpus->gold[k] = -1;
    }
    if (gold)
        add_gold(parts, corpus, at, gold, n);
    c->ids = corpus->ids;
    c->offsets = corpus->offsets;
    c->n++;
}

static void zero_digits(const char *text, nm_buffer *out)
{
    for (; *text; text++)
        nm_buffer_append_byte(out, *text >= '0' && *text <= '9' ? '0' : *text);
}

/* Normalizes a form: replaces digits by 0 (data.zero_digits) and, for words, lowercases it
 * (data.lowercase). */
static void spell(const nm_tagging_config *config, const char *form, bool word, nm_buffer *out)
{
    nm_buffer_clear(out);
    if (config->zero_digits)
        zero_digits(form, out);
    else
        nm_buffer_append(out, form, strlen(form));
    if (!word || !config->lowercase)
        return;
    nm_buffer lower = {0};
    nm_buffer_clear(&lower);
    nm_utf8_lowercase(out->data, out->bytes, &lower);
    nm_buffer_release(out);
    *out = lower;
}

void nm_tagging_bigram(const nm_tagging_parts *parts, const nm_tagging_config *config,
                       const nm_tag_corpus *corpus, int64_t s, int64_t i, nm_buffer *out)
{
    uint64_t at = corpus->offsets[s] + (uint64_t)i;
    bool last = at + 1 == corpus->offsets[s + 1];
    const char *right = last ? "<eos>" : parts->forms.items[corpus->ids[at + 1]].text;
    spell(config, parts->forms.items[corpus->ids[at]].text, false, out);
    if (config->zero_digits)
        zero_digits(right, out);
    else
        nm_buffer_append(out, right, strlen(right));
}

static int32_t entry_number(const nm_counter *vocabulary, const char *text, size_t bytes, int32_t first,
                            int32_t unknown)
{
    size_t item = nm_counter_find(vocabulary, text, bytes);
    return item == SIZE_MAX ? unknown : first + (int32_t)item;
}

static void look_up_chars(nm_tagging_parts *parts, const nm_tagging_config *config, const nm_buffer *text)
{
    size_t at = 0;
    for (int64_t n = 0; at < text->bytes && n < config->max_chars; n++) {
        size_t bytes = nm_utf8_length(text->data[at]);
        NM_APPEND(parts->form_chars, parts->n_chars, parts->chars_capacity,
                  entry_number(&parts->chars, text->data + at, bytes, NM_CHAR_FIRST, NM_CHAR_UNKNOWN));
        at += bytes;
    }
}

void nm_tagging_look_up(nm_tagging_parts *parts, const nm_tagging_config *config)
{
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    for (; parts->n_forms < parts->forms.n; parts->n_forms++) {
        size_t f = parts->n_forms;
        const char *form = parts->forms.items[f].text;
        NM_GROW(parts->form_words, f, parts->forms_capacity);
        NM_GROW(parts->char_starts, f + 1, parts->starts_capacity);
        parts->char_starts[f] = parts->n_chars;
        spell(config, form, false, &text);
        look_up_chars(parts, config, &text);
        parts->char_starts[f + 1] = parts->n_chars;
        spell(config, form, true, &text);
        parts->form_words[f] = entry_number(&parts->words, text.data, text.bytes, 1, NM_WORD_UNKNOWN);
    }
}

void nm_tagging_clear_forms(nm_tagging_parts *parts)
{
    nm_counter_release(&parts->forms);
    parts->n_forms = parts->n_chars = 0;
}

typedef struct reader {
    const char *encoding;
    nm_tagging_parts *parts;
    const nm_tagging_config *config;
    nm_tag_scheme scheme; /* of the file */
    const char **tokens, **texts;
    char **tags; /* [n_tags], heap: the texts of the last sentence as span tags */
    int32_t n_tags;
    size_t tokens_capacity, texts_capacity;
} reader;

static nm_status check_column(const nm_columns *c, const char *option, int64_t column, nm_error *err)
{
    if (column <= c->n_columns)
        return NM_OK;
    return nm_fail(err, NM_FORMAT, "%s:%lld: %d columns, but %s is %lld", c->lines.path, (long long)c->line,
                   c->n_columns, option, (long long)column);
}

/* Sets the tokens of the current sentence and the texts of its tags. */
static nm_status read_fields(reader *r, const nm_columns *c, nm_error *err)
{
    NM_ASSERT(c->n > 0);
    NM_TRY(check_column(c, "data.token_column", r->config->token_column, err));
    NM_TRY(check_column(c, "data.tag_column", r->config->tag_column, err));
    if (r->config->token_column == (r->config->tag_column ? r->config->tag_column : c->n_columns))
        return nm_fail(err, r->config->tag_column ? NM_USAGE : NM_FORMAT,
                       "%s:%lld: column %lld of %d is that of the tokens and of the tags (data.token_column, "
                       "data.tag_column)",
                       c->lines.path, (long long)c->line, (long long)r->config->token_column, c->n_columns);
    for (int32_t i = 0; i < c->n; i++) {
        NM_GROW(r->tokens, (size_t)i, r->tokens_capacity);
        NM_GROW(r->texts, (size_t)i, r->texts_capacity);
        r->tokens[i] = nm_columns_field(c, i, (int32_t)r->config->token_column - 1);
        r->texts[i] = nm_columns_field(c, i, (int32_t)r->config->tag_column - 1);
    }
    return NM_OK;
}

/* Sets the tags of the current sentence. NM_FORMAT for a text that is no tag of the scheme. */
static nm_status read_tags(reader *r, const nm_columns *c, nm_error *err)
{
    nm_tags_free(r->tags, r->n_tags);
    r->tags = nm_allocate(((size_t)c->n + 1) * sizeof *r->tags);
    for (r->n_tags = 0; r->n_tags < c->n; r->n_tags++) {
        const char *text = r->texts[r->n_tags];
        if (!(r->tags[r->n_tags] = nm_tag_read(r->scheme, text)))
            return nm_fail(err, NM_FORMAT,
                           "%s:%lld: '%.60s' is not a tag (expected O, or one of B, I, M, E, S, L, U, alone "
                           "or with a hyphen and a label; for tags without such marks set data.file_scheme "
                           "to io or none)",
                           c->lines.path, (long long)c->line + r->n_tags, text);
    }
    return NM_OK;
}

static nm_status check_legal(const reader *r, const nm_columns *c, nm_error *err)
{
    const char *const *tags = (const char *const *)r->tags;
    int32_t bad = r->config->repair ? c->n : nm_tags_check(r->scheme, tags, c->n);
    if (bad == c->n)
        return NM_OK;
    bool follows = nm_tag_allowed(r->scheme, bad ? tags[bad - 1] : NULL, tags[bad]);
    return nm_fail(err, NM_FORMAT,
                   "%s:%lld: tag %.60s is illegal in scheme %s %s%.60s; data.file_scheme names another one, "
                   "data.repair = true reads it as seqeval does",
                   c->lines.path, (long long)c->line + bad, tags[bad], nm_tag_scheme_name(r->scheme),
                   follows ? "at the end of a sentence"
                   : bad   ? "after "
                           : "at the beginning of a sentence",
                   follows || !bad ? "" : tags[bad - 1]);
}

/* One pass over a file: counts its tag prefixes in guess, or appends its sentences to corpus; either may be
 * NULL. held: receives the sentences that are held out for validation; NULL: none are. */
static nm_status pass(reader *r, const char *path, nm_tag_guess *guess, nm_tag_corpus *corpus,
                      nm_tag_corpus *held, nm_error *err)
{
    FILE *stream;
    NM_TRY(nm_text_open_checked(&stream, path, r->encoding, err));
    NM_AUTO(nm_columns_release) nm_columns columns = {0};
    nm_columns_init(&columns, stream, path);
    nm_status status = NM_OK;
    int64_t sentence = -1;
    for (bool more = true; status == NM_OK;) {
        status = nm_columns_next(&columns, &more, err);
        if (status != NM_OK || !more)
            break;
        if (nm_columns_document(&columns))
            continue;
        bool out = held && nm_held_out(r->config->valid_seed, r->config->valid_fraction, ++sentence);
        status = read_fields(r, &columns, err);
        if (status == NM_OK && guess)
            nm_tag_guess_add(guess, r->texts, columns.n);
        if (status == NM_OK && corpus)
            status = read_tags(r, &columns, err);
        if (status == NM_OK && corpus)
            status = check_legal(r, &columns, err);
        if (status == NM_OK && corpus)
            nm_tagging_add(r->parts, out ? held : corpus, r->tokens, (const char *const *)r->tags, columns.n);
    }
    fclose(stream);
    return status;
}

static nm_status check_train(const nm_tagging_config *config, nm_error *err)
{
    return *config->train ? NM_OK
                          : nm_fail(err, NM_USAGE, "%s is not set: give a file of columns", split_keys[0]);
}

nm_status nm_tagging_measure(const void *config, int64_t *n_sentences, nm_error *err)
{
    const nm_tagging_config *c = config;
    const char *path = c->train;
    FILE *stream;
    *n_sentences = 0;
    NM_TRY(check_train(c, err));
    NM_TRY(nm_file_check_rereadable(path, err));
    NM_TRY(nm_text_open(&stream, path, c->encoding, err));
    NM_AUTO(nm_columns_release) nm_columns columns = {0};
    nm_columns_init(&columns, stream, path);
    nm_status status = NM_OK;
    for (bool more = true; status == NM_OK && more;) {
        status = nm_columns_next(&columns, &more, err);
        *n_sentences += more && !nm_columns_document(&columns);
    }
    fclose(stream);
    return status;
}

static bool has_marks(nm_tag_scheme scheme)
{
    return scheme != NM_TAGS_IO && scheme != NM_TAGS_NONE;
}

/* Sets the scheme of a file. The validation and test files have marks if the training file has. */
static nm_status find_scheme(reader *r, const char *path, bool train, nm_error *err)
{
    nm_tag_guess guess = {0};
    if (r->config->file_scheme != NM_FILE_SCHEME_AUTO) {
        r->scheme = (nm_tag_scheme)(r->config->file_scheme - 1);
        return NM_OK;
    }
    r->scheme = r->parts->file_scheme;
    if (!train && !has_marks(r->scheme))
        return NM_OK;
    NM_TRY(nm_file_check_rereadable(path, err));
    NM_TRY(pass(r, path, &guess, NULL, NULL, err));
    r->scheme = train ? nm_tag_guess_scheme(&guess) : nm_tag_guess_spans(&guess);
    return NM_OK;
}

static nm_status read_file(nm_tagging_parts *parts, const nm_tagging_config *config, const char *path,
                           const char *encoding, nm_tag_corpus *corpus, nm_tag_corpus *held, nm_error *err)
{
    reader r = {.parts = parts, .config = config, .encoding = *encoding ? encoding : config->encoding};
    bool train = corpus == &parts->splits[NM_SPLIT_TRAIN];
    if (!strcmp(path, "-"))
        return nm_fail(err, NM_USAGE, "training data comes from files, not from standard input");
    nm_status status = find_scheme(&r, path, train, err);
    if (train) {
        parts->file_scheme = r.scheme;
        parts->scheme = r.scheme == NM_TAGS_NONE ? NM_TAGS_NONE : config->scheme;
    }
    NM_THEN(status, pass(&r, path, NULL, corpus, held, err));
    if (status == NM_OK && !corpus->forms.n && held && held->forms.n)
        status =
            nm_fail(err, NM_USAGE, "%s: data.valid_fraction leaves no sentence for training: lower it", path);
    if (status == NM_OK && !corpus->forms.n)
        status = nm_fail(err, NM_FORMAT, "%s: contains no sentence", path);
    NM_FREE(r.tokens, r.texts);
    nm_tags_free(r.tags, r.n_tags);
    return status;
}

static const char *const text_names[] = {"words.txt", "chars.txt", "bigrams.txt",
                                         "tags.txt"}; /* of a model file */
static const char *const file_scheme_key = "file_scheme";

/* Adds the items with at least this count to `kept`, in descending order of count. */
static void keep_frequent(const nm_counter *counted, int64_t least, nm_counter *kept)
{
    NM_AUTO_FREE uint32_t *order = nm_counter_sort(counted, NM_COUNT_THEN_BYTES);
    for (size_t i = 0; i < counted->n; i++) {
        const nm_count *item = &counted->items[order[i]];
        if (item->count >= least)
            nm_counter_add(kept, item->text, item->bytes, item->count);
    }
}

/* Counts the words of a split and, unless NULL, its characters and bigrams. */
static void count_split(const nm_tagging_parts *parts, const nm_tagging_config *config, int split,
                        nm_counter *words, nm_counter *chars, nm_counter *bigrams)
{
    const nm_tag_corpus *corpus = &parts->splits[split];
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    for (int64_t s = 0; s < corpus->forms.n; s++)
        for (uint64_t at = corpus->offsets[s]; at < corpus->offsets[s + 1]; at++) {
            const char *form = parts->forms.items[corpus->ids[at]].text;
            spell(config, form, true, &text);
            nm_counter_add(words, text.data, text.bytes, 1);
            spell(config, form, false, &text);
            for (size_t i = 0; chars && i < text.bytes; i += nm_utf8_length(text.data[i]))
                nm_counter_add(chars, text.data + i, nm_utf8_length(text.data[i]), 1);
            if (!bigrams)
                continue;
            nm_tagging_bigram(parts, config, corpus, s, (int64_t)(at - corpus->offsets[s]), &text);
            nm_counter_add(bigrams, text.data, text.bytes, 1);
        }
}

/* A line about tags that were recognized as tags without marks or labels; heap. NULL: they have both. */
static char *describe_tags(const nm_tagging_parts *parts, const nm_tagging_config *config)
{
    if (config->file_scheme != NM_FILE_SCHEME_AUTO)
        return NULL;
    if (parts->file_scheme == NM_TAGS_NONE)
        return nm_format(
            "%s: each tag is a class of its token; the score is the accuracy (data.file_scheme = "
            "none)",
            config->train);
    if (parts->file_scheme == NM_TAGS_IO)
        return nm_format("%s: tags are labels without marks; a span is a run of equal labels "
                         "(data.file_scheme = io)",
                         config->train);
    if (nm_tag_bare(parts->tags[parts->n_tags - 1]))
        return nm_format("%s: tags are marks without labels; the spans are those of the scheme %s",
                         config->train, nm_tag_scheme_name(parts->file_scheme));
    return NULL;
}

/* Adds to the note how many words of the vocabulary have a vector. */
static void add_coverage(nm_tagging_parts *parts, const char *path)
{
    const nm_counter *vocabulary = &parts->words;
    char *before = parts->note;
    size_t n = 0;
    for (size_t i = 0; i < vocabulary->n; i++)
        n += nm_word_vectors_find(&parts->vectors, vocabulary->items[i].text) != NULL;
    parts->note = nm_format("%s%s%s: %zu of %zu words of the training text have a vector",
                            before ? before : "", before ? "; " : "", path, n, vocabulary->n);
    free(before);
}

/* Adds the items that have a vector to the vocabulary, also those that occur in the validation or test data
 * only. */
static void add_with_vectors(const nm_counter *seen, const nm_word_vectors *vectors, nm_counter *kept)
{
    for (size_t i = 0; i < seen->n; i++)
        if (nm_word_vectors_find(vectors, seen->items[i].text) &&
            nm_counter_find(kept, seen->items[i].text, seen->items[i].bytes) == SIZE_MAX)
            nm_counter_add(kept, seen->items[i].text, seen->items[i].bytes, 0);
}

static nm_status make_vocabularies(nm_task *task, nm_error *err)
{
    nm_tagging_parts *parts = task->parts;
    const nm_tagging_config *config = task->config;
    const nm_tagger_model_config *model = nm_options_find(task->options, "model");
    NM_AUTO(nm_counter_release) nm_counter words = {0};
    NM_AUTO(nm_counter_release) nm_counter chars = {0};
    NM_AUTO(nm_counter_release) nm_counter bigrams = {0};
    nm_counter *with_bigrams = model->bigram_dim ? &bigrams : NULL;
    count_split(parts, config, NM_SPLIT_TRAIN, &words, model->char_dim ? &chars : NULL, with_bigrams);
    keep_frequent(&words, config->min_count, &parts->words);
    keep_frequent(&chars, config->min_char_count, &parts->chars);
    keep_frequent(&bigrams, config->min_count, &parts->bigrams);
    for (int split = NM_SPLIT_VALID; split < NM_TAGGING_SPLITS; split++)
        count_split(parts, config, split, &words, NULL, with_bigrams);
    nm_status status = NM_OK;
    if (*config->vectors)
        status = nm_word_vectors_read(&parts->vectors, config->vectors, &words, err);
    if (status == NM_OK && *config->bigram_vectors)
        status = nm_word_vectors_read(&parts->bigram_vectors, config->bigram_vectors, &bigrams, err);
    parts->note = describe_tags(parts, config);
    if (status == NM_OK && *config->vectors)
        add_coverage(parts, config->vectors);
    if (status == NM_OK) {
        add_with_vectors(&words, &parts->vectors, &parts->words);
        add_with_vectors(&bigrams, &parts->bigram_vectors, &parts->bigrams);
    }
    nm_counter *const kept[] = {&parts->words, &parts->chars, &parts->bigrams};
    for (int i = 0; i < 3 && status == NM_OK; i++)
        status = nm_model_text_keep(task->kept_entries_of, text_names[i], false, kept[i], err);
    return status;
}

static void add_tag(nm_tagging_parts *parts, const char *tag)
{
    parts->tags = nm_reallocate(parts->tags, ((size_t)parts->n_tags + 1) * sizeof *parts->tags);
    parts->tags[parts->n_tags++] = nm_duplicate(tag);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* O if it occurs, then every label of the training text in byte order, with every mark of the scheme. */
static void make_tags(nm_tagging_parts *parts, const nm_counter *names)
{
    NM_AUTO_FREE const char **labels = nm_allocate((names->n + 1) * sizeof *labels);
    size_t n = 0;
    for (size_t i = 0; i < names->n; i++)
        if (!nm_tag_outside(names->items[i].text))
            labels[n++] = nm_tag_label(names->items[i].text);
    qsort(labels, n, sizeof *labels, compare_texts);
    if (n < names->n)
        add_tag(parts, "O");
    for (size_t i = 0; i < n; i++)
        for (const char *mark = nm_tag_marks(parts->scheme);
             *mark && (!i || strcmp(labels[i - 1], labels[i])); mark++) {
            NM_AUTO_FREE char *tag = nm_format("%c%s%s", *mark, *labels[i] ? "-" : "", labels[i]);
            add_tag(parts, tag);
        }
}

static void set_sizes(nm_tagging_parts *parts)
{
    parts->sizes =
        (nm_tagger_model_sizes){(int32_t)parts->chars.n + NM_CHAR_FIRST, (int32_t)parts->bigrams.n + 1};
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t fingerprint(const nm_tagging_parts *parts, int split)
{
    const nm_tag_corpus *corpus = &parts->splits[split];
    uint64_t hash = (uint64_t)corpus->forms.n;
    for (int64_t s = 0; s < corpus->forms.n; s++)
        for (uint64_t at = corpus->offsets[s]; at < corpus->offsets[s + 1]; at++) {
            hash = mix(hash, parts->forms.items[corpus->ids[at]].hash);
            hash = mix(hash, (uint64_t)corpus->gold[at] << 32 | (uint64_t)(at == corpus->offsets[s]));
        }
    return hash;
}

/* Counts the tokens of each split whose gold tag does not occur in the training text. */
static void count_unknown_tags(nm_tagging_parts *parts)
{
    for (int split = 0; split < NM_TAGGING_SPLITS; split++) {
        nm_tag_corpus *corpus = &parts->splits[split];
        for (uint64_t at = 0; corpus->forms.n && at < corpus->offsets[corpus->forms.n]; at++)
            corpus->unknown_tags += corpus->gold[at] >= parts->n_tags;
    }
}

/* Replaces the numbers in `names` of the gold tags by those in parts->gold_names. */
static void rename_gold(nm_tagging_parts *parts, nm_tag_corpus *corpus, const nm_counter *names)
{
    for (uint64_t at = 0; at < corpus->offsets[corpus->forms.n]; at++) {
        const nm_count *name = &names->items[corpus->gold[at]];
        corpus->gold[at] = (int32_t)nm_counter_add(&parts->gold_names, name->text, name->bytes, 1);
    }
}

/* Reads the training text and defines the tags of the model, which become the first gold names; the gold tags
 * of the training text, which were numbered in order of occurrence, are renumbered. */
static nm_status read_train(nm_task *task, nm_error *err)
{
    nm_tagging_parts *parts = task->parts;
    const nm_tagging_config *config = task->config;
    nm_tag_corpus *train = &parts->splits[NM_SPLIT_TRAIN];
    nm_tag_corpus *held = *config->valid ? NULL : &parts->splits[NM_SPLIT_VALID];
    NM_TRY(read_file(parts, config, config->train, "", train, held, err));
    const char *only = parts->gold_names.n == 1 ? parts->gold_names.items[0].text : "";
    if (nm_tag_outside(only) || (*only && parts->scheme == NM_TAGS_NONE))
        return nm_fail(err, NM_FORMAT, "%s: every token has the tag %.60s: there is nothing to learn",
                       config->train, nm_tag_outside(only) ? only : nm_tag_label(only));
    nm_counter names = parts->gold_names;
    parts->gold_names = (nm_counter){0};
    make_tags(parts, &names);
    for (int32_t t = 0; t < parts->n_tags; t++)
        NM_ASSERT(nm_counter_add(&parts->gold_names, parts->tags[t], strlen(parts->tags[t]), 0) == (size_t)t);
    rename_gold(parts, train, &names);
    if (held && held->forms.n)
        rename_gold(parts, held, &names);
    nm_counter_release(&names);
    return NM_OK;
}

nm_status nm_tagging_read(nm_task *task, nm_error *err)
{
    nm_tagging_parts *parts = task->parts;
    const nm_tagging_config *config = task->config;
    const char *const paths[] = {config->train, config->valid, config->test};
    const char *const encodings[] = {"", config->valid_encoding, config->test_encoding};
    static const char *const options[] = {NULL, "--data.valid_encoding", "--data.test_encoding"};
    NM_TRY(check_train(config, err));
    NM_TRY(read_train(task, err));
    for (int split = NM_SPLIT_VALID; split < NM_TAGGING_SPLITS; split++) {
        if (*paths[split] && !*encodings[split])
            NM_TRY(nm_text_refuse_utf8(paths[split], config->encoding, options[split], err));
        if (*paths[split])
            NM_TRY(
                read_file(parts, config, paths[split], encodings[split], &parts->splits[split], NULL, err));
    }
    NM_TRY(make_vocabularies(task, err));
    nm_tagging_look_up(parts, config);
    set_sizes(parts);
    count_unknown_tags(parts);
    task->size = parts->splits[NM_SPLIT_TRAIN].forms.n;
    if (!*config->valid)
        task->size += parts->splits[NM_SPLIT_VALID].forms.n;
    task->fingerprint = fingerprint(parts, NM_SPLIT_TRAIN);
    task->valid_fingerprint = fingerprint(parts, NM_SPLIT_VALID);
    return NM_OK;
}

void nm_tagging_save(const nm_task *task, nm_safetensors_writer *writer)
{
    const nm_tagging_parts *parts = task->parts;
    const nm_counter *const counters[] = {&parts->words, &parts->chars, &parts->bigrams};
    for (int i = 0; i < 3; i++) {
        NM_AUTO_FREE char *names = nm_model_text_of_names(counters[i]);
        nm_safetensors_add_metadata(writer, text_names[i], names);
    }
    nm_safetensors_add_metadata(writer, file_scheme_key, nm_tag_scheme_name(parts->file_scheme));
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_buffer_clear(&text);
    for (int32_t t = 0; t < parts->n_tags; t++) {
        nm_buffer_append(&text, parts->tags[t], strlen(parts->tags[t]));
        nm_buffer_append_byte(&text, '\n');
    }
    nm_safetensors_add_metadata(writer, text_names[3], text.data);
}

static nm_status parse_names(const nm_safetensors *file, const char *name, nm_counter *names, nm_error *err)
{
    const nm_model_text list = {nm_safetensors_path(file), name, nm_safetensors_metadata(file, name)};
    return nm_model_text_names(&list, names, err);
}

static nm_status parse_tags(nm_tagging_parts *parts, const nm_safetensors *file, nm_error *err)
{
    nm_counter *names = &parts->gold_names;
    NM_TRY(parse_names(file, text_names[3], names, err));
    for (size_t i = 0; i < names->n; i++) {
        const char *tag = names->items[i].text;
        bool valid = nm_tag_valid(tag) || nm_tag_bare(tag);
        if (!valid || (*tag != 'O' && !strchr(nm_tag_marks(parts->scheme), *tag)))
            return nm_fail(err, NM_FORMAT, "%s: %s:%zu: '%.60s' is not a tag of the scheme %s",
                           nm_safetensors_path(file), text_names[3], i + 1, tag,
                           nm_tag_scheme_name(parts->scheme));
        add_tag(parts, tag);
    }
    return parts->n_tags
               ? NM_OK
               : nm_fail(err, NM_FORMAT, "%s: %s is empty", nm_safetensors_path(file), text_names[3]);
}

/* Models of earlier versions do not name the scheme of their training file. */
static nm_status parse_scheme(nm_tagging_parts *parts, const nm_tagging_config *config,
                              const nm_safetensors *file, nm_error *err)
{
    const char *name = nm_safetensors_metadata(file, file_scheme_key);
    if (!nm_tag_scheme_parse(name ? name : "bio", &parts->file_scheme))
        return nm_fail(err, NM_FORMAT, "%s: %s: '%.60s' is not a tagging scheme", nm_safetensors_path(file),
                       file_scheme_key, name);
    parts->scheme = parts->file_scheme == NM_TAGS_NONE ? NM_TAGS_NONE : config->scheme;
    return NM_OK;
}

nm_status nm_tagging_parse(nm_task *task, const nm_safetensors *file, nm_error *err)
{
    nm_tagging_parts *parts = task->parts;
    const nm_tagging_config *config = task->config;
    nm_counter *const counters[] = {&parts->words, &parts->chars, &parts->bigrams};
    NM_TRY(parse_scheme(parts, config, file, err));
    for (int i = 0; i < 3; i++)
        NM_TRY(parse_names(file, text_names[i], counters[i], err));
    NM_TRY(parse_tags(parts, file, err));
    set_sizes(parts);
    return NM_OK;
}
