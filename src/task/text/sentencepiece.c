/* Reading of SentencePiece models. */
#include "text/sentencepiece.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "text/utf8.h"

void nm_spm_free(nm_spm *spm)
{
    if (!spm)
        return;
    nm_counter_release(&spm->texts);
    nm_hash_map_release(&spm->children);
    NM_FREE(spm->pieces, spm->nodes, spm->rules.units, spm->rules.replacements, spm->unknown_surface, spm);
}

void nm_spm_append_name(const nm_spm *spm, size_t id, nm_buffer *out)
{
    const nm_count *piece = &spm->texts.items[id];
    for (size_t i = 0; i < piece->bytes; i++)
        if (strchr(" \t\n\v\f\r", piece->text[i]))
            nm_utf8_append(out, NM_SPM_SPACE_NAMES + (unsigned char)piece->text[i]);
        else
            nm_buffer_append_byte(out, piece->text[i]);
}

void nm_spm_add_pieces(const nm_spm *spm, nm_counter *counter)
{
    NM_AUTO(nm_buffer_release) nm_buffer name = {0};
    for (size_t i = 0; i < spm->texts.n; i++) {
        nm_spm_piece_type type = spm->pieces[i].type;
        if (type != NM_SPM_NORMAL && type != NM_SPM_USER_DEFINED && type != NM_SPM_BYTE)
            continue;
        nm_buffer_clear(&name);
        nm_spm_append_name(spm, i, &name);
        nm_counter_add(counter, name.data, name.bytes, 0);
    }
}

#ifndef NORMA_PROTOBUF

nm_status nm_spm_parse(const void *data, size_t bytes, const char *name, nm_spm **spm, nm_error *err)
{
    (void)data, (void)bytes;
    *spm = NULL;
    return nm_fail(err, NM_UNSUPPORTED,
                   "%s: SentencePiece needs libprotobuf-c-dev and protobuf-c-compiler when Norma is built",
                   name);
}

#else

#include "sentencepiece.pb-c.h"

enum {
    MAX_PIECE_BYTES = 8000,
    MAX_PIECES = 1 << 24
}; /* SentencePiece limits pieces to MAX_PIECE_BYTES, too */

static uint32_t add_child(nm_spm *spm, uint32_t parent, uint32_t point)
{
    size_t probe = 0;
    uint32_t hash = nm_hash_pair(parent, point);
    for (uint32_t i; (i = nm_hash_map_next(&spm->children, hash, &probe)) != NM_HASH_NONE;)
        if (spm->nodes[i].parent == parent && spm->nodes[i].point == point)
            return i;
    NM_GROW(spm->nodes, spm->n_nodes, spm->node_capacity);
    spm->nodes[spm->n_nodes] = (nm_spm_node){parent, point, -1};
    nm_hash_map_add(&spm->children, hash, (uint32_t)spm->n_nodes);
    return (uint32_t)spm->n_nodes++;
}

static void add_to_trie(nm_spm *spm, const char *text, size_t bytes, int32_t piece)
{
    uint32_t node = 0;
    for (size_t at = 0; at < bytes;)
        node = add_child(spm, node, nm_utf8_next(text, &at));
    spm->nodes[node].piece = piece;
}

/* The value of a byte piece such as "<0xE3>", or -1. */
static int byte_of(const char *text, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    if (bytes != 6 || memcmp(text, "<0x", 3) || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high && low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

static nm_status bad_piece(const char *name, size_t i, const char *why, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s: piece %zu of the SentencePiece model %s", name, i, why);
}

static nm_status add_piece(nm_spm *spm, const NormaSpm__Piece *from, size_t i, const char *name,
                           nm_error *err)
{
    size_t bytes = from->piece ? strlen(from->piece) : 0;
    if (!bytes || bytes >= MAX_PIECE_BYTES || nm_utf8_find_invalid(from->piece, bytes) < bytes)
        return bad_piece(name, i, "is empty, too long or not UTF-8", err);
    if (nm_counter_add(&spm->texts, from->piece, bytes, 0) != i)
        return bad_piece(name, i, "occurs twice", err);
    if (from->type < NM_SPM_NORMAL || from->type > NM_SPM_BYTE || !isfinite(from->score))
        return bad_piece(name, i, "has an unknown type or an invalid score", err);
    nm_spm_piece *piece = &spm->pieces[i];
    *piece = (nm_spm_piece){.score = from->score, .type = (nm_spm_piece_type)from->type};
    if (piece->type == NM_SPM_BYTE) {
        int byte = byte_of(from->piece, bytes);
        if (byte < 0)
            return bad_piece(name, i, "is not a byte", err);
        piece->byte = (uint8_t)byte;
        spm->bytes[byte] = (int32_t)i;
    }
    spm->has_user_defined |= piece->type == NM_SPM_USER_DEFINED;
    if (piece->type == NM_SPM_UNKNOWN)
        spm->unknown = (int32_t)i;
    return NM_OK;
}

/* Adds the pieces that text can contain to the trie. A piece whose name is that of another one is not
 * used. */
static void build_trie(nm_spm *spm)
{
    NM_AUTO(nm_buffer_release) nm_buffer name = {0};
    for (size_t i = 0; i < spm->texts.n; i++) {
        const nm_count *text = &spm->texts.items[i];
        nm_spm_piece *piece = &spm->pieces[i];
        if (piece->type != NM_SPM_NORMAL && piece->type != NM_SPM_USER_DEFINED &&
            piece->type != NM_SPM_UNUSED)
            continue;
        nm_buffer_clear(&name);
        nm_spm_append_name(spm, i, &name);
        size_t named = nm_counter_find(&spm->texts, name.data, name.bytes);
        if (named != SIZE_MAX && named != i)
            piece->type = NM_SPM_CONTROL;
        else
            add_to_trie(spm, text->text, text->bytes, (int32_t)i);
    }
}

static nm_status add_pieces(nm_spm *spm, const NormaSpm__Model *model, const char *name, nm_error *err)
{
    if (!model->n_pieces || model->n_pieces > MAX_PIECES)
        return nm_fail(err, NM_FORMAT, "%s: not a SentencePiece model (a .model file of spm_train)", name);
    spm->pieces = nm_allocate(model->n_pieces * sizeof *spm->pieces);
    NM_APPEND(spm->nodes, spm->n_nodes, spm->node_capacity, (nm_spm_node){UINT32_MAX, 0, -1});
    spm->unknown = -1;
    for (int byte = 0; byte < 256; byte++)
        spm->bytes[byte] = -1;
    float max_score = FLT_MIN; /* not -FLT_MAX: as in the library */
    spm->min_score = FLT_MAX;
    for (size_t i = 0; i < model->n_pieces; i++) {
        NM_TRY(add_piece(spm, model->pieces[i], i, name, err));
        const nm_spm_piece *piece = &spm->pieces[i];
        if (piece->type == NM_SPM_NORMAL) {
            spm->min_score = fminf(spm->min_score, piece->score);
            max_score = fmaxf(max_score, piece->score);
        }
    }
    spm->bonus = max_score;
    build_trie(spm);
    if (spm->unknown < 0)
        return nm_fail(err, NM_FORMAT, "%s: the SentencePiece model has no unknown piece", name);
    for (int byte = 0; spm->byte_fallback && byte < 256; byte++)
        if (spm->bytes[byte] < 0)
            return nm_fail(err, NM_FORMAT, "%s: the SentencePiece model has no piece for byte 0x%02X", name,
                           (unsigned)byte);
    return NM_OK;
}

/* The rules are stored as the size of the trie in bytes (uint32, little-endian), the trie, and the
 * replacements. */
static nm_status add_rules(nm_spm_rules *rules, const ProtobufCBinaryData *map, const char *name,
                           nm_error *err)
{
    if (!map->len)
        return NM_OK;
    uint32_t trie_bytes = 0;
    if (map->len > sizeof trie_bytes)
        memcpy(&trie_bytes, map->data, sizeof trie_bytes);
    size_t rest = map->len - sizeof trie_bytes;
    if (map->len <= sizeof trie_bytes || trie_bytes % 4 || trie_bytes >= rest || map->data[map->len - 1])
        return nm_fail(err, NM_FORMAT, "%s: the normalization rules of the SentencePiece model are damaged",
                       name);
    rules->n_units = trie_bytes / 4;
    rules->units = nm_allocate(trie_bytes + 1);
    memcpy(rules->units, map->data + 4, trie_bytes);
    rules->replacement_bytes = rest - trie_bytes;
    rules->replacements = nm_allocate(rules->replacement_bytes);
    memcpy(rules->replacements, map->data + 4 + trie_bytes, rules->replacement_bytes);
    if (nm_utf8_find_invalid(rules->replacements, rules->replacement_bytes) < rules->replacement_bytes)
        return nm_fail(err, NM_FORMAT, "%s: the normalization rules of the SentencePiece model are not UTF-8",
                       name);
    return NM_OK;
}

static nm_status add_settings(nm_spm *spm, const NormaSpm__Model *model, const char *name, nm_error *err)
{
    static const NormaSpm__Trainer default_trainer = NORMA_SPM__TRAINER__INIT;
    static const NormaSpm__Normalizer default_normalizer = NORMA_SPM__NORMALIZER__INIT;
    const NormaSpm__Trainer *trainer = model->trainer_spec ? model->trainer_spec : &default_trainer;
    const NormaSpm__Normalizer *normalizer =
        model->normalizer_spec ? model->normalizer_spec : &default_normalizer;
    spm->type = (nm_spm_type)trainer->model_type;
    spm->byte_fallback = trainer->byte_fallback;
    spm->space_is_suffix = trainer->treat_whitespace_as_suffix;
    spm->add_dummy_prefix = normalizer->add_dummy_prefix;
    spm->remove_extra_spaces = normalizer->remove_extra_whitespaces;
    spm->unknown_surface = nm_duplicate(trainer->unk_surface ? trainer->unk_surface : " \xE2\x81\x87 ");
    if (spm->type != NM_SPM_UNIGRAM && spm->type != NM_SPM_BPE && spm->type != NM_SPM_CHAR)
        return nm_fail(err, NM_UNSUPPORTED,
                       "%s: SentencePiece models of type word are not supported (unigram, bpe and char are)",
                       name);
    if (!normalizer->escape_whitespaces ||
        (model->denormalizer_spec && model->denormalizer_spec->precompiled_charsmap.len))
        return nm_fail(
            err, NM_UNSUPPORTED,
            "%s: SentencePiece models with a denormalizer or without escaped spaces are not supported", name);
    size_t bytes = strlen(spm->unknown_surface);
    if (nm_utf8_find_invalid(spm->unknown_surface, bytes) < bytes || strchr(spm->unknown_surface, '\n'))
        return nm_fail(err, NM_FORMAT, "%s: the surface of unknown pieces is not a line of UTF-8", name);
    return add_rules(&spm->rules, &normalizer->precompiled_charsmap, name, err);
}

/* Memory of protobuf-c, which does not report which of its errors is a failed allocation. */
static void *allocate_message(void *failed, size_t bytes)
{
    void *block = malloc(bytes);
    *(bool *)failed |= !block;
    return block;
}

static void free_message(void *failed, void *block)
{
    (void)failed;
    free(block);
}

nm_status nm_spm_parse(const void *data, size_t bytes, const char *name, nm_spm **out, nm_error *err)
{
    *out = NULL;
    bool failed = false;
    ProtobufCAllocator allocator = {allocate_message, free_message, &failed};
    NormaSpm__Model *model = norma_spm__model__unpack(&allocator, bytes, data);
    if (failed) {
        norma_spm__model__free_unpacked(model, &allocator);
        return nm_fail(err, NM_MEMORY, "%s: out of memory", name);
    }
    if (!model)
        return nm_fail(err, NM_FORMAT, "%s: not a SentencePiece model (a .model file of spm_train)", name);
    nm_spm *spm = nm_allocate(sizeof *spm);
    nm_status status = add_settings(spm, model, name, err);
    NM_THEN(status, add_pieces(spm, model, name, err));
    norma_spm__model__free_unpacked(model, &allocator);
    NM_RETURN_NEW(status, out, spm, nm_spm_free);
}

#endif
