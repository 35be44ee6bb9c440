/* Vocabulary in fairseq's dictionary format. The order of ties, the threshold and the padding symbols are
 * those of fairseq's Dictionary.finalize. */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"
#include "base/words.h"

nm_vocab_options nm_vocab_options_default(void)
{
    return (nm_vocab_options){.order = NM_VOCAB_FAIRSEQ, .multiple = 8};
}

static nm_vocab *create(nm_vocab_order order)
{
    static const char *const specials[2][NM_VOCAB_N_SPECIAL] = {
        [NM_VOCAB_FAIRSEQ] = {"<s>", "<pad>", "</s>", "<unk>"},
        [NM_VOCAB_TEARS] = {"<pad>", "<s>", "</s>", "<unk>"},
    };
    nm_vocab *vocab = nm_allocate(sizeof *vocab);
    for (int i = 0; i < NM_VOCAB_N_SPECIAL; i++)
        nm_counter_add(&vocab->symbols, specials[order][i], strlen(specials[order][i]), 0);
    vocab->order = order;
    vocab->bos = order == NM_VOCAB_FAIRSEQ ? 0 : 1;
    vocab->pad = 1 - vocab->bos;
    vocab->eos = 2;
    vocab->unk = 3;
    return vocab;
}

void nm_vocab_free(nm_vocab *vocab)
{
    if (!vocab)
        return;
    nm_counter_release(&vocab->symbols);
    free(vocab);
}

/* Symbols that can be omitted. */
enum { N_OPTIONAL = 3 };
static const char *const optional_names[N_OPTIONAL] = {"bos", "pad", "unk"};

static int32_t optional_id(const nm_vocab *vocab, size_t i)
{
    const int32_t ids[N_OPTIONAL] = {vocab->bos, vocab->pad, vocab->unk};
    return ids[i];
}

nm_status nm_vocab_omit(nm_vocab *vocab, const char *names, nm_error *err)
{
    for (const char *at = names; *at;) {
        size_t bytes = strcspn(at, ","), i = 0;
        while (i < N_OPTIONAL && (strncmp(at, optional_names[i], bytes) || optional_names[i][bytes]))
            i++;
        if (i == N_OPTIONAL)
            return nm_fail(err, NM_USAGE,
                           "prepare.omit_symbols = %.100s: the names are bos, pad and unk, comma-separated",
                           names);
        vocab->omitted[optional_id(vocab, i)] = true;
        at += bytes + (at[bytes] == ',');
    }
    return NM_OK;
}

char *nm_vocab_omitted_names(const nm_vocab *vocab)
{
    nm_buffer names = {0};
    nm_buffer_clear(&names);
    for (size_t i = 0; i < N_OPTIONAL; i++)
        if (nm_vocab_omits(vocab, optional_id(vocab, i))) {
            if (names.bytes)
                nm_buffer_append_byte(&names, ',');
            nm_buffer_append(&names, optional_names[i], strlen(optional_names[i]));
        }
    return names.data;
}

bool nm_vocab_omits(const nm_vocab *vocab, int32_t id)
{
    return id < NM_VOCAB_N_SPECIAL && vocab->omitted[id];
}

uint8_t *nm_vocab_output_mask(const nm_vocab *vocab)
{
    int32_t n = nm_vocab_size(vocab);
    bool all = true;
    for (int32_t id = 0; id < NM_VOCAB_N_SPECIAL; id++)
        all &= !vocab->omitted[id];
    if (all)
        return NULL;
    uint8_t *mask = nm_allocate((size_t)n);
    for (int32_t id = 0; id < n; id++)
        mask[id] = !nm_vocab_omits(vocab, id);
    return mask;
}

static const char padding_name[] = "madeupword";

bool nm_vocab_has_padding_name(const char *symbol)
{
    const char *number = symbol + sizeof padding_name - 1;
    return !strncmp(symbol, padding_name, sizeof padding_name - 1) && *number &&
           !number[strspn(number, "0123456789")];
}

bool nm_vocab_is_padding(const nm_vocab *vocab, int32_t id)
{
    return !nm_vocab_count(vocab, id) && nm_vocab_has_padding_name(nm_vocab_symbol(vocab, id));
}

static void fill_to_multiple(nm_vocab *vocab, int32_t multiple)
{
    for (int i = 0; multiple > 1 && vocab->symbols.n % (size_t)multiple != 0; i++) {
        char word[32];
        int length = snprintf(word, sizeof word, "%s%04d", padding_name, i);
        nm_counter_add(&vocab->symbols, word, (size_t)length, 0);
    }
}

nm_status nm_vocab_build(const nm_counter *counts, const nm_vocab_options *options, nm_vocab **vocab,
                         nm_error *err)
{
    *vocab = NULL;
    nm_vocab *made = create(options->order);
    size_t limit = options->max_size > 0 ? (size_t)options->max_size : NM_VOCAB_MAX_SIZE + (size_t)1;
    NM_AUTO_FREE uint32_t *numbers = nm_counter_sort(counts, NM_COUNT_THEN_BYTES);
    nm_status status = NM_OK;
    for (size_t i = 0; i < counts->n && made->symbols.n < limit; i++) {
        const nm_count *item = &counts->items[numbers[i]];
        if (item->count < options->threshold)
            break;
        size_t known = nm_counter_find(&made->symbols, item->text, item->bytes);
        if (known < NM_VOCAB_N_SPECIAL)
            continue;
        if (item->bytes > NM_VOCAB_MAX_SYMBOL) {
            status = nm_fail(err, NM_FORMAT, "a symbol of %u bytes does not fit into a vocabulary (limit %d)",
                             item->bytes, NM_VOCAB_MAX_SYMBOL);
            break;
        }
        nm_counter_add(&made->symbols, item->text, item->bytes, item->count);
    }
    fill_to_multiple(made, options->multiple);
    if (status == NM_OK && made->symbols.n > NM_VOCAB_MAX_SIZE)
        status =
            nm_fail(err, NM_FORMAT, "more than %d symbols: set a threshold or a size", NM_VOCAB_MAX_SIZE);
    NM_RETURN_NEW(status, vocab, made, nm_vocab_free);
}

/* Whether the first symbol is that of a vocabulary of Marian, whose lines `"</s>": 0` would be read as
 * symbols with counts. */
static bool begins_yaml(const char *symbol, size_t bytes)
{
    static const char *const firsts[] = {"\"</s>\":", "'</s>':", "</s>:", "\"<unk>\":", "<unk>:"};
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
        if (strlen(firsts[i]) == bytes && !memcmp(symbol, firsts[i], bytes))
            return true;
    return false;
}

/* A line of fairseq, or of OpenNMT, which has a tab in place of the space. */
static bool parse_line(const char *line, size_t bytes, size_t *symbol_bytes, int64_t *count)
{
    return nm_count_parse(line, bytes, ' ', symbol_bytes, count) ||
           nm_count_parse(line, bytes, '\t', symbol_bytes, count);
}

static nm_status add_symbol_line(nm_vocab *vocab, const char *line, size_t bytes, const char *name,
                                 long long number, nm_error *err)
{
    size_t symbol_bytes;
    int64_t count;
    size_t bad = nm_utf8_find_invalid(line, bytes);
    if (bad < bytes)
        return nm_fail(err, NM_FORMAT, "%s:%lld: not UTF-8: byte 0x%02x at position %zu", name, number,
                       (unsigned)(unsigned char)line[bad], bad + 1);
    if (memchr(line, 0, bytes))
        return nm_fail(err, NM_FORMAT, "%s:%lld: contains a zero byte", name, number);
    if (!parse_line(line, bytes, &symbol_bytes, &count))
        return nm_fail(err, NM_FORMAT, "%s:%lld: expected \"symbol count\", not \"%.*s\"", name, number,
                       bytes > 60 ? 60 : (int)bytes, line);
    if (number == 1 && begins_yaml(line, symbol_bytes))
        return nm_fail(err, NM_FORMAT,
                       "%s: a YAML vocabulary of Marian, not a dictionary of lines \"symbol count\"; "
                       "docs/migration.md converts it",
                       name);
    if (symbol_bytes > NM_VOCAB_MAX_SYMBOL)
        return nm_fail(err, NM_FORMAT, "%s:%lld: symbol of %zu bytes, the limit is %d", name, number,
                       symbol_bytes, NM_VOCAB_MAX_SYMBOL);
    size_t known = nm_counter_find(&vocab->symbols, line, symbol_bytes);
    if (known < NM_VOCAB_N_SPECIAL)
        return nm_fail(err, NM_FORMAT, "%s:%lld: %s is a special symbol, which a dictionary does not list",
                       name, number, vocab->symbols.items[known].text);
    if (known != SIZE_MAX)
        return nm_fail(err, NM_FORMAT, "%s:%lld: duplicate symbol \"%.*s\"", name, number,
                       symbol_bytes > 60 ? 60 : (int)symbol_bytes, line);
    if (vocab->symbols.n >= NM_VOCAB_MAX_SIZE)
        return nm_fail(err, NM_FORMAT, "%s:%lld: more than %d symbols", name, number, NM_VOCAB_MAX_SIZE);
    nm_counter_add(&vocab->symbols, line, symbol_bytes, count);
    return NM_OK;
}

nm_status nm_vocab_parse(const char *text, size_t bytes, const char *name, nm_vocab_order order,
                         nm_vocab **vocab, nm_error *err)
{
    *vocab = NULL;
    nm_vocab *made = create(order);
    nm_status status = NM_OK;
    long long number = 1;
    for (size_t at = 0; at < bytes && status == NM_OK; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at, next = at + length + 1;
        if (length && text[at + length - 1] == '\r')
            length--;
        status = add_symbol_line(made, text + at, length, name, number, err);
        at = next;
    }
    NM_RETURN_NEW(status, vocab, made, nm_vocab_free);
}

nm_status nm_vocab_read(const char *path, nm_vocab_order order, nm_vocab **vocab, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes;
    *vocab = NULL;
    NM_TRY(nm_file_read_text(path, &text, &bytes, err));
    return nm_vocab_parse(text, bytes, path, order, vocab, err);
}

void nm_vocab_format(const nm_vocab *vocab, nm_buffer *out)
{
    for (size_t i = NM_VOCAB_N_SPECIAL; i < vocab->symbols.n; i++) {
        const nm_count *item = &vocab->symbols.items[i];
        char count[32];
        int length = snprintf(count, sizeof count, " %lld\n", (long long)item->count);
        nm_buffer_append(out, item->text, item->bytes);
        nm_buffer_append(out, count, (size_t)length);
    }
}

int32_t nm_vocab_size(const nm_vocab *vocab)
{
    return (int32_t)vocab->symbols.n;
}

int32_t nm_vocab_find(const nm_vocab *vocab, const char *symbol, size_t bytes)
{
    size_t number = nm_counter_find(&vocab->symbols, symbol, bytes);
    return number == SIZE_MAX || number < NM_VOCAB_N_SPECIAL ? vocab->unk : (int32_t)number;
}

const char *nm_vocab_symbol(const nm_vocab *vocab, int32_t id)
{
    NM_ASSERT(id >= 0 && (size_t)id < vocab->symbols.n);
    return vocab->symbols.items[id].text;
}

int64_t nm_vocab_count(const nm_vocab *vocab, int32_t id)
{
    NM_ASSERT(id >= 0 && (size_t)id < vocab->symbols.n);
    return vocab->symbols.items[id].count;
}

size_t nm_vocab_encode(const nm_vocab *vocab, const char *line, size_t bytes, nm_ids *ids)
{
    const char *word;
    size_t word_bytes, at = 0, unknown = 0;
    while (nm_word_next(line, bytes, &at, &word, &word_bytes)) {
        int32_t id = nm_vocab_find(vocab, word, word_bytes);
        unknown += id == vocab->unk;
        nm_ids_append(ids, id);
    }
    return unknown;
}

void nm_vocab_decode(const nm_vocab *vocab, const int32_t *ids, size_t n, nm_buffer *out)
{
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == vocab->bos || ids[i] == vocab->pad || ids[i] == vocab->eos)
            continue;
        if (!first)
            nm_buffer_append_byte(out, ' ');
        first = false;
        NM_ASSERT(ids[i] >= 0 && (size_t)ids[i] < vocab->symbols.n);
        const nm_count *item = &vocab->symbols.items[ids[i]];
        nm_buffer_append(out, item->text, item->bytes);
    }
}
