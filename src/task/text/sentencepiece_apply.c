/* Normalization, segmentation and decoding with SentencePiece models. Order of operations, rounding to float
 * and treatment of ties are those of the library, so that results are identical. */
#include <stdlib.h>
#include <string.h>

#include "text/sentencepiece_coder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define SPACE_SYMBOL    "\xE2\x96\x81" /* U+2581 */
#define UNKNOWN_PENALTY 10.0f
enum { SPACE_BYTES = 3 };

nm_spm_coder *nm_spm_coder_create(const nm_spm *spm)
{
    nm_spm_coder *coder = nm_allocate(sizeof *coder);
    coder->spm = spm;
    return coder;
}

void nm_spm_coder_free(nm_spm_coder *coder)
{
    if (!coder)
        return;
    nm_buffer_release(&coder->text);
    NM_FREE(coder->paths, coder->ends, coder->symbols, coder->heap, coder->undos, coder->edges,
            coder->last_edges, coder->forward, coder->partials, coder);
}

static uint32_t find_child(const nm_spm *spm, uint32_t parent, uint32_t point)
{
    size_t probe = 0;
    for (uint32_t i;
         (i = nm_hash_map_next(&spm->children, nm_hash_pair(parent, point), &probe)) != NM_HASH_NONE;)
        if (spm->nodes[i].parent == parent && spm->nodes[i].point == point)
            return i;
    return NM_HASH_NONE;
}

/* Length in bytes of the longest user-defined piece at the start of the text, 0 if there is none. */
static size_t match_user_defined(const nm_spm *spm, const char *text, size_t bytes)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t at = 0; spm->has_user_defined && at < bytes;) {
        node = find_child(spm, node, nm_utf8_next(text, &at));
        if (node == NM_HASH_NONE)
            break;
        int32_t piece = spm->nodes[node].piece;
        if (piece >= 0 && spm->pieces[piece].type == NM_SPM_USER_DEFINED)
            longest = at;
    }
    return longest;
}

/* Finds the longest rule that matches at the start of the text. Returns its length in bytes, 0 if there is
 * none, and sets *replacement. A unit of the double array contains the label of its node, a flag for a value,
 * and the offset to the children. */
static size_t find_rule(const nm_spm_rules *rules, const char *text, size_t bytes, const char **replacement)
{
    size_t longest = 0, node = 0;
    if (!rules->n_units)
        return 0;
    uint32_t unit = rules->units[0];
    for (size_t i = 0; i < bytes; i++) {
        node ^= (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
        node ^= (unsigned char)text[i];
        if (node >= rules->n_units)
            break;
        unit = rules->units[node];
        if ((unit & 0x800000FF) != (unsigned char)text[i])
            break;
        if (!(unit & 0x100)) /* no value */
            continue;
        size_t leaf = node ^ (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
        size_t value = leaf < rules->n_units ? rules->units[leaf] & 0x7FFFFFFF : SIZE_MAX;
        bool whole = i + 1 == bytes || !nm_utf8_continues(text[i + 1]);
        if (!whole || value >= rules->replacement_bytes || nm_utf8_continues(rules->replacements[value]))
            continue;
        longest = i + 1;
        *replacement = rules->replacements + value;
    }
    return longest;
}

/* Normalizes a prefix of the text. Returns its length in bytes and sets its replacement. */
static size_t normalize_prefix(const nm_spm *spm, const char *text, size_t bytes, const char **to,
                               size_t *to_bytes)
{
    size_t used = match_user_defined(spm, text, bytes);
    if (!used && (used = find_rule(&spm->rules, text, bytes, to))) {
        *to_bytes = strlen(*to);
        return used;
    }
    *to = text;
    return *to_bytes = used ? used : nm_utf8_length(*text);
}

static void append_escaped(const char *text, size_t bytes, nm_buffer *out)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ')
            nm_buffer_append(out, SPACE_SYMBOL, SPACE_BYTES);
        else
            nm_buffer_append_byte(out, text[i]);
    }
}

static bool ends_with_space_symbol(const nm_buffer *text)
{
    return text->bytes >= SPACE_BYTES &&
           !memcmp(text->data + text->bytes - SPACE_BYTES, SPACE_SYMBOL, SPACE_BYTES);
}

/* Sets coder->text to the normalized line. If the model requires it, spaces at both ends are removed and
 * other runs of spaces are reduced to one. */
static void normalize(nm_spm_coder *coder, const char *line, size_t bytes)
{
    const nm_spm *spm = coder->spm;
    nm_buffer *out = &coder->text;
    const char *to;
    size_t to_bytes, at = 0;
    nm_buffer_clear(out);
    while (spm->remove_extra_spaces && at < bytes) {
        size_t used = normalize_prefix(spm, line + at, bytes - at, &to, &to_bytes);
        if (to_bytes != 1 || *to != ' ')
            break;
        at += used;
    }
    if (at == bytes)
        return;
    if (spm->add_dummy_prefix && !spm->space_is_suffix)
        nm_buffer_append(out, SPACE_SYMBOL, SPACE_BYTES);
    for (bool after_space = spm->remove_extra_spaces; at < bytes;) {
        at += normalize_prefix(spm, line + at, bytes - at, &to, &to_bytes);
        for (; after_space && to_bytes && *to == ' '; to++)
            to_bytes--;
        append_escaped(to, to_bytes, out);
        if (to_bytes)
            after_space = spm->remove_extra_spaces && to[to_bytes - 1] == ' ';
    }
    while (spm->remove_extra_spaces && ends_with_space_symbol(out))
        out->data[out->bytes -= SPACE_BYTES] = 0;
    if (spm->add_dummy_prefix && spm->space_is_suffix)
        nm_buffer_append(out, SPACE_SYMBOL, SPACE_BYTES);
}

static void append_token(nm_spm_coder *coder, const char *text, size_t bytes, nm_buffer *out)
{
    if (out->bytes > coder->start)
        nm_buffer_append_byte(out, ' ');
    nm_buffer_append(out, text, bytes);
}

/* A run of unknown pieces becomes one token; with byte fallback, its bytes become tokens. */
void nm_spm_append_piece(nm_spm_coder *coder, const char *text, size_t bytes, int32_t piece, nm_buffer *out)
{
    const nm_spm *spm = coder->spm;
    bool unknown = piece == spm->unknown;
    if (!unknown) {
        append_token(coder, "", 0, out);
        nm_spm_append_name(spm, (size_t)piece, out);
    } else if (spm->byte_fallback) {
        for (size_t i = 0; i < bytes; i++) {
            const nm_count *byte = &spm->texts.items[spm->bytes[(unsigned char)text[i]]];
            append_token(coder, byte->text, byte->bytes, out);
        }
    } else if (coder->unknown_as_text) {
        if (coder->after_unknown)
            nm_buffer_append(out, text, bytes);
        else
            append_token(coder, text, bytes, out);
    } else if (!coder->after_unknown) {
        append_token(coder, NM_SPM_UNKNOWN_TOKEN, strlen(NM_SPM_UNKNOWN_TOKEN), out);
    }
    coder->after_unknown = unknown;
}

/* Replaces the best path to a position if the score is higher. */
static void update_path(best_path *to, double score, size_t start, int32_t piece)
{
    if (to->start != SIZE_MAX && !(score > (double)to->score))
        return;
    *to = (best_path){(float)score, piece, start};
}

static void add_edge(nm_spm_coder *coder, size_t start, size_t end, double score, int32_t piece)
{
    NM_APPEND(coder->edges, coder->n_edges, coder->edge_capacity,
              (edge){.score = score, .start = start, .end = end, .piece = piece});
}

void nm_spm_add_edges(nm_spm_coder *coder, size_t start)
{
    const nm_spm *spm = coder->spm;
    const nm_buffer *text = &coder->text;
    size_t first_bytes = nm_utf8_length(text->data[start]);
    bool single = false;
    uint32_t node = 0;
    for (size_t at = start; at < text->bytes;) {
        node = find_child(spm, node, nm_utf8_next(text->data, &at));
        if (node == NM_HASH_NONE)
            break;
        int32_t id = spm->nodes[node].piece;
        if (id < 0 || spm->pieces[id].type == NM_SPM_UNUSED)
            continue;
        double score = spm->pieces[id].type == NM_SPM_USER_DEFINED
                           ? (double)((float)(at - start) * spm->bonus) - 0.1
                           : (double)spm->pieces[id].score;
        add_edge(coder, start, at, score, id);
        single |= at - start == first_bytes;
    }
    if (!single)
        add_edge(coder, start, start + first_bytes, (double)(spm->min_score - UNKNOWN_PENALTY), spm->unknown);
}

/* Extends the best path that ends at `start`. As in the library, scores are stored as float and added in
 * double, or in float for an unknown piece. */
static void extend_paths(nm_spm_coder *coder, size_t start)
{
    float score_here = coder->paths[start].score;
    coder->n_edges = 0;
    nm_spm_add_edges(coder, start);
    for (size_t i = 0; i < coder->n_edges; i++) {
        const edge *e = &coder->edges[i];
        double score = e->piece == coder->spm->unknown ? (double)((float)e->score + score_here)
                                                       : e->score + (double)score_here;
        update_path(&coder->paths[e->end], score, start, e->piece);
    }
}

void nm_spm_push_end(nm_spm_coder *coder, size_t end)
{
    NM_APPEND(coder->ends, coder->n_ends, coder->end_capacity, end);
}

static void segment_unigram(nm_spm_coder *coder, nm_buffer *out)
{
    const nm_buffer *text = &coder->text;
    NM_RESERVE(coder->paths, text->bytes + 1, coder->path_capacity);
    for (size_t i = 0; i <= text->bytes; i++)
        coder->paths[i] = (best_path){0, -1, SIZE_MAX};
    for (size_t at = 0; at < text->bytes; at += nm_utf8_length(text->data[at]))
        extend_paths(coder, at);
    coder->n_ends = 0;
    for (size_t end = text->bytes; end > 0; end = coder->paths[end].start)
        nm_spm_push_end(coder, end);
    while (coder->n_ends) {
        size_t end = coder->ends[--coder->n_ends], start = coder->paths[end].start;
        nm_spm_append_piece(coder, text->data + start, end - start, coder->paths[end].piece, out);
    }
}

/* Order of the heap: higher score first, then leftmost. */
static bool comes_first(const candidate *a, const candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void heap_push(nm_spm_coder *coder, candidate item)
{
    NM_GROW(coder->heap, coder->n_heap, coder->heap_capacity);
    size_t at = coder->n_heap++;
    for (; at && comes_first(&item, &coder->heap[(at - 1) / 2]); at = (at - 1) / 2)
        coder->heap[at] = coder->heap[(at - 1) / 2];
    coder->heap[at] = item;
}

static candidate heap_pop(nm_spm_coder *coder)
{
    candidate top = coder->heap[0], last = coder->heap[--coder->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < coder->n_heap; at = child) {
        if (child + 1 < coder->n_heap && comes_first(&coder->heap[child + 1], &coder->heap[child]))
            child++;
        if (!comes_first(&coder->heap[child], &last))
            break;
        coder->heap[at] = coder->heap[child];
    }
    coder->heap[at] = last;
    return top;
}

/* Id of a piece that text can contain, or -1. */
static int32_t find_piece(const nm_spm *spm, const char *text, size_t bytes)
{
    size_t i = nm_counter_find(&spm->texts, text, bytes);
    if (i == SIZE_MAX)
        return -1;
    nm_spm_piece_type type = spm->pieces[i].type;
    bool in_text = type == NM_SPM_NORMAL || type == NM_SPM_USER_DEFINED || type == NM_SPM_UNUSED;
    return in_text ? (int32_t)i : -1;
}

static void add_candidate(nm_spm_coder *coder, int32_t left, int32_t right)
{
    if (left < 0 || right < 0 || coder->symbols[left].frozen || coder->symbols[right].frozen)
        return;
    size_t left_bytes = coder->symbols[left].bytes, bytes = left_bytes + coder->symbols[right].bytes;
    int32_t piece = find_piece(coder->spm, coder->text.data + coder->symbols[left].start, bytes);
    if (piece < 0)
        return;
    heap_push(coder, (candidate){coder->spm->pieces[piece].score, left, right, bytes});
    if (coder->spm->pieces[piece].type != NM_SPM_UNUSED)
        return;
    NM_APPEND(coder->undos, coder->n_undos, coder->undo_capacity, (undo){piece, left_bytes});
}

/* Appends a symbol. Unused pieces are split into the two symbols of their latest merge candidate. */
static void append_symbol(nm_spm_coder *coder, const char *text, size_t bytes, nm_buffer *out)
{
    const nm_spm *spm = coder->spm;
    int32_t piece = find_piece(spm, text, bytes);
    if (piece >= 0 && spm->pieces[piece].type == NM_SPM_UNUSED)
        for (size_t i = coder->n_undos; i-- > 0;)
            if (coder->undos[i].piece == piece) {
                size_t left_bytes = coder->undos[i].left_bytes;
                append_symbol(coder, text, left_bytes, out);
                append_symbol(coder, text + left_bytes, bytes - left_bytes, out);
                return;
            }
    nm_spm_append_piece(coder, text, bytes, piece < 0 ? spm->unknown : piece, out);
}

/* Splits coder->text into the initial symbols: user-defined pieces and characters. */
static void split_symbols(nm_spm_coder *coder)
{
    const nm_buffer *text = &coder->text;
    coder->n_symbols = coder->n_heap = coder->n_undos = 0;
    for (size_t at = 0; at < text->bytes;) {
        size_t matched = match_user_defined(coder->spm, text->data + at, text->bytes - at);
        size_t bytes = matched ? matched : nm_utf8_length(text->data[at]);
        NM_GROW(coder->symbols, coder->n_symbols, coder->symbol_capacity);
        coder->symbols[coder->n_symbols] =
            (symbol){at, bytes, (int32_t)coder->n_symbols - 1, (int32_t)coder->n_symbols + 1, matched > 0};
        coder->n_symbols++;
        at += bytes;
    }
    if (coder->n_symbols)
        coder->symbols[coder->n_symbols - 1].next = -1;
}

static void merge_symbols(nm_spm_coder *coder)
{
    for (size_t i = 1; i < coder->n_symbols; i++)
        add_candidate(coder, (int32_t)i - 1, (int32_t)i);
    while (coder->n_heap) {
        candidate best = heap_pop(coder);
        symbol *left = &coder->symbols[best.left], *right = &coder->symbols[best.right];
        if (!left->bytes || !right->bytes || left->bytes + right->bytes != best.bytes)
            continue; /* another merge changed one of the symbols */
        if (coder->random && nm_random_next(coder->random) < coder->dropout)
            continue;
        left->bytes = best.bytes;
        right->bytes = 0;
        left->next = right->next;
        if (right->next >= 0)
            coder->symbols[right->next].previous = best.left;
        add_candidate(coder, left->previous, best.left);
        add_candidate(coder, best.left, left->next);
    }
}

/* Segments coder->text with a model of type bpe or char. */
static void segment_symbols(nm_spm_coder *coder, nm_buffer *out)
{
    split_symbols(coder);
    if (coder->spm->type == NM_SPM_BPE)
        merge_symbols(coder);
    for (int32_t i = coder->n_symbols ? 0 : -1; i >= 0; i = coder->symbols[i].next)
        append_symbol(coder, coder->text.data + coder->symbols[i].start, coder->symbols[i].bytes, out);
}

void nm_spm_start_line(nm_spm_coder *coder, const nm_buffer *out, bool unknown_as_text)
{
    coder->start = out->bytes;
    coder->after_unknown = false;
    coder->unknown_as_text = unknown_as_text;
}

void nm_spm_set_text(nm_spm_coder *coder, const char *text, size_t bytes)
{
    nm_buffer_clear(&coder->text);
    nm_buffer_append(&coder->text, text, bytes);
}

static void segment(nm_spm_coder *coder, bool unknown_as_text, nm_buffer *out)
{
    nm_spm_start_line(coder, out, unknown_as_text);
    if (coder->spm->type == NM_SPM_UNIGRAM)
        segment_unigram(coder, out);
    else
        segment_symbols(coder, out);
}

void nm_spm_encode(nm_spm_coder *coder, const char *line, size_t bytes, bool unknown_as_text, nm_buffer *out)
{
    normalize(coder, line, bytes);
    segment(coder, unknown_as_text, out);
}

/* Removes the space symbol that normalize has added. */
static void remove_added_space(nm_spm_coder *coder)
{
    nm_buffer *text = &coder->text;
    if (!coder->spm->add_dummy_prefix || !text->bytes)
        return;
    text->bytes -= SPACE_BYTES;
    if (!coder->spm->space_is_suffix)
        memmove(text->data, text->data + SPACE_BYTES, text->bytes);
    text->data[text->bytes] = 0;
}

void nm_spm_encode_inside(nm_spm_coder *coder, const char *line, size_t bytes, nm_buffer *out)
{
    normalize(coder, line, bytes);
    remove_added_space(coder);
    segment(coder, false, out);
}

void nm_spm_sample_merges(nm_spm_coder *coder, const char *text, size_t bytes, double dropout,
                          nm_random_stream *random, nm_buffer *out)
{
    nm_spm_set_text(coder, text, bytes);
    nm_spm_start_line(coder, out, false);
    coder->random = random;
    coder->dropout = dropout;
    segment_symbols(coder, out);
    coder->random = NULL;
}

/* Appends a piece with U+2581 replaced by spaces. */
static void append_surface(const char *piece, size_t bytes, nm_buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        if (bytes - at >= SPACE_BYTES && !memcmp(piece + at, SPACE_SYMBOL, SPACE_BYTES)) {
            nm_buffer_append_byte(out, ' ');
            at += SPACE_BYTES;
        } else {
            nm_buffer_append_byte(out, piece[at++]);
        }
    }
}

void nm_spm_normalize(nm_spm_coder *coder, const char *line, size_t bytes, nm_buffer *out)
{
    normalize(coder, line, bytes);
    remove_added_space(coder);
    append_surface(coder->text.data, coder->text.bytes, out);
}

/* The id of the piece with this name; SIZE_MAX: none. *text: the text of the piece, or the name; text is
 * workspace. */
static size_t find_named(const nm_spm *spm, const char *name, size_t bytes, nm_buffer *text)
{
    size_t id = nm_counter_find(&spm->texts, name, bytes);
    if (id != SIZE_MAX || nm_utf8_find_invalid(name, bytes) < bytes)
        return id;
    nm_buffer_clear(text);
    for (size_t at = 0; at < bytes;) {
        uint32_t point = nm_utf8_next(name, &at);
        bool space = point > NM_SPM_SPACE_NAMES && point <= NM_SPM_SPACE_NAMES + ' ';
        nm_utf8_append(text, space ? point - NM_SPM_SPACE_NAMES : point);
    }
    return nm_counter_find(&spm->texts, text->data, text->bytes);
}

/* Appends the characters of a run of byte pieces. */
static void flush_bytes(nm_buffer *run, nm_buffer *out)
{
    nm_utf8_append_repaired(out, run->data, run->bytes);
    nm_buffer_clear(run);
}

void nm_spm_decode(const nm_spm *spm, const char *pieces, size_t bytes, nm_buffer *out)
{
    bool strips = spm->add_dummy_prefix || spm->remove_extra_spaces, at_start = true, stripped = false;
    size_t start = out->bytes;
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    NM_AUTO(nm_buffer_release) nm_buffer run = {0};
    nm_buffer_append(out, "", 0);
    for (size_t at = 0; at < bytes;) {
        const char *piece = pieces + at, *end = memchr(piece, ' ', bytes - at);
        size_t length = end ? (size_t)(end - piece) : bytes - at;
        at += length + 1;
        if (!length)
            continue;
        size_t id = find_named(spm, piece, length, &text);
        if (id != SIZE_MAX) {
            piece = spm->texts.items[id].text;
            length = spm->texts.items[id].bytes;
        }
        nm_spm_piece_type type = id == SIZE_MAX ? NM_SPM_UNKNOWN : spm->pieces[id].type;
        if (type == NM_SPM_BYTE) {
            nm_buffer_append(&run, &(const char){(char)spm->pieces[id].byte}, 1);
            continue;
        }
        flush_bytes(&run, out);
        at_start = at_start && !stripped && out->bytes == start;
        stripped = false;
        bool is_token =
            length == strlen(NM_SPM_UNKNOWN_TOKEN) && !memcmp(piece, NM_SPM_UNKNOWN_TOKEN, length);
        if (type == NM_SPM_UNKNOWN && (id != SIZE_MAX || is_token)) {
            nm_buffer_append(out, spm->unknown_surface, strlen(spm->unknown_surface));
        } else if (type == NM_SPM_UNKNOWN) {
            nm_buffer_append(out, piece, length);
        } else if (type != NM_SPM_CONTROL) {
            if (at_start && strips && length >= SPACE_BYTES && !memcmp(piece, SPACE_SYMBOL, SPACE_BYTES)) {
                piece += SPACE_BYTES;
                length -= SPACE_BYTES;
                stripped = !spm->remove_extra_spaces;
            }
            append_surface(piece, length, out);
        }
    }
    if (run.bytes) /* a generation can end within a character */
        run.bytes -= nm_utf8_incomplete_end(run.data, run.bytes);
    flush_bytes(&run, out);
}

bool nm_spm_keeps_newlines(const nm_spm *spm)
{
    static const char text[] = "\n\n\n";
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    NM_AUTO(nm_buffer_release) nm_buffer back = {0};
    NM_AUTO(nm_buffer_release) nm_buffer pieces = {0};
    nm_spm_encode(coder, text, sizeof text - 1, false, &pieces);
    nm_spm_decode(spm, pieces.data, pieces.bytes, &back);
    bool equal = !strcmp(back.data, text);
    nm_spm_coder_free(coder);
    return equal;
}

static nm_status spm_create(const nm_tokenizer_options *options, void **state, nm_error *err)
{
    if (!options->spm)
        return nm_fail(err, NM_USAGE, "the tokenizer sentencepiece needs a SentencePiece model");
    *state = nm_spm_coder_create(options->spm);
    return NM_OK;
}

static void spm_tokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    nm_spm_encode(state, line, bytes, false, out);
}

/* Removes the space that the model adds after the text. Newlines and zero bytes, which byte pieces can
 * produce, become spaces. */
static void spm_detokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    size_t start = out->bytes;
    const nm_spm *spm = ((const nm_spm_coder *)state)->spm;
    nm_spm_decode(spm, line, bytes, out);
    if (spm->space_is_suffix && spm->add_dummy_prefix && out->bytes > start &&
        out->data[out->bytes - 1] == ' ')
        out->data[--out->bytes] = 0;
    for (size_t i = start; i < out->bytes; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r' || !out->data[i])
            out->data[i] = ' ';
}

static void spm_free(void *state)
{
    nm_spm_coder_free(state);
}

const nm_tokenizer_type nm_tokenizer_sentencepiece = {
    .name = "sentencepiece",
    .title = "pieces of a SentencePiece model, from raw text of any language",
    .keeps_text = true,
    .create = spm_create,
    .tokenize = spm_tokenize,
    .detokenize = spm_detokenize,
    .free = spm_free,
};
