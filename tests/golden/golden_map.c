/* Parameters of the source programs and of Norma. Norma stacks projections of the same input: q, k, v of a
 * self-attention, k and v of a cross-attention. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "golden_model.h"

enum { SHORT = 64, NAME = 96 }; /* of a module; of a parameter in it */

typedef struct range { /* elements */
    size_t first, source_first, count;
} range;

static void add_piece(golden_model *made, range at, const char *ours, const char *source_format, ...)
    __attribute__((format(printf, 4, 5)));

static void add_piece(golden_model *made, range at, const char *ours, const char *source_format, ...)
{
    NM_GROW(made->pieces, made->n_pieces, made->pieces_capacity);
    golden_piece *piece = &made->pieces[made->n_pieces++];
    *piece = (golden_piece){.first = at.first, .source_first = at.source_first, .count = at.count};
    snprintf(piece->ours, sizeof piece->ours, "%s", ours);
    va_list args;
    va_start(args, source_format);
    vsnprintf(piece->source, sizeof piece->source, source_format, args);
    va_end(args);
}

/* Rows of a weight [., in] and of its bias. source: prefix of weight and bias in the source program. */
static void add_rows(golden_model *made, const char *ours, size_t first, const char *source,
                     size_t source_first, size_t rows, size_t in)
{
    bool plural = made->tears && !strstr(source, "proj"); /* of stacked projections */
    char name[NAME];
    snprintf(name, sizeof name, "%s.weight", ours);
    add_piece(made, (range){first * in, source_first * in, rows * in}, name, "%s.weight%s", source,
              plural ? "s" : "");
    snprintf(name, sizeof name, "%s.bias", ours);
    add_piece(made, (range){first, source_first, rows}, name, "%s.bias%s", source, plural ? "es" : "");
}

static void add_place(golden_model *made, const char *ours, const char *source)
{
    NM_GROW(made->places, made->n_places, made->places_capacity);
    golden_place *place = &made->places[made->n_places++];
    snprintf(place->ours, sizeof place->ours, "%s", ours);
    snprintf(place->source, sizeof place->source, "%s", source);
    for (size_t n = 0; n < made->model->params.n_norms; n++) {
        const nm_norm *norm = made->model->params.norms[n];
        for (int i = 0; !strcmp(norm->site.name, ours) && i < norm->shape.n_params; i++) {
            char name[NAME];
            snprintf(name, sizeof name, "%s.%s", ours, norm->shape.params[i].name);
            add_piece(made, (range){0, 0, (size_t)norm->shape.params[i].length}, name, "%s.%s", source,
                      norm->shape.params[i].name);
        }
    }
}

static void fairseq_attention(golden_model *made, const char *ours, const char *source, const char *norm,
                              bool cross, size_t d)
{
    char name[NAME], from[NAME];
    for (size_t i = 0; i < 3; i++) { /* q, k, v */
        bool apart = cross && i == 0;
        snprintf(name, sizeof name, "%s.%s", ours, cross ? apart ? "q" : "kv" : "qkv");
        snprintf(from, sizeof from, "%s.%c_proj", source, "qkv"[i]);
        add_rows(made, name, (cross && !apart ? i - 1 : i) * d, from, 0, d, d);
    }
    snprintf(name, sizeof name, "%s.out", ours);
    snprintf(from, sizeof from, "%s.out_proj", source);
    add_rows(made, name, 0, from, 0, d, d);
    snprintf(name, sizeof name, "%s.norm", ours);
    add_place(made, name, norm);
}

static void fairseq_layer(golden_model *made, const nm_stack_config *c, int i)
{
    const char *stack = c->decoder ? "decoder" : "encoder";
    size_t d = (size_t)c->width, ff = (size_t)c->ff;
    char ours[SHORT], source[SHORT], norm[SHORT];
    snprintf(ours, sizeof ours, "%s.%d.self", c->prefix, i);
    snprintf(source, sizeof source, "%s.layers.%d.self_attn", stack, i);
    snprintf(norm, sizeof norm, "%s.layers.%d.self_attn_layer_norm", stack, i);
    fairseq_attention(made, ours, source, norm, false, d);
    if (c->decoder) {
        snprintf(ours, sizeof ours, "%s.%d.cross", c->prefix, i);
        snprintf(source, sizeof source, "%s.layers.%d.encoder_attn", stack, i);
        snprintf(norm, sizeof norm, "%s.layers.%d.encoder_attn_layer_norm", stack, i);
        fairseq_attention(made, ours, source, norm, true, d);
    }
    snprintf(ours, sizeof ours, "%s.%d.ffn.in", c->prefix, i);
    snprintf(source, sizeof source, "%s.layers.%d.fc1", stack, i);
    add_rows(made, ours, 0, source, 0, ff, d);
    snprintf(ours, sizeof ours, "%s.%d.ffn.out", c->prefix, i);
    snprintf(source, sizeof source, "%s.layers.%d.fc2", stack, i);
    add_rows(made, ours, 0, source, 0, d, ff);
    snprintf(ours, sizeof ours, "%s.%d.ffn.norm", c->prefix, i);
    snprintf(norm, sizeof norm, "%s.layers.%d.final_layer_norm", stack, i);
    add_place(made, ours, norm);
}

static void fairseq_stack(golden_model *made, const nm_stack *stack)
{
    for (int i = 0; i < stack->config.layers; i++)
        fairseq_layer(made, &stack->config, i);
    if (stack->final_norm)
        add_place(made, stack->final_norm->site.name,
                  stack->config.decoder ? "decoder.layer_norm" : "encoder.layer_norm");
}

static void tears_attention(golden_model *made, const char *ours, const char *source, bool cross, size_t d)
{
    char name[NAME];
    snprintf(name, sizeof name, "%s.%s", ours, cross ? "q" : "qkv");
    add_rows(made, name, 0, source, 0, cross ? d : 3 * d, d);
    if (cross) {
        snprintf(name, sizeof name, "%s.kv", ours);
        add_rows(made, name, 0, source, d, 2 * d, d);
    }
    snprintf(name, sizeof name, "%s.out", ours);
    add_rows(made, name, 0, source, 3 * d, d, d);
}

static void tears_place(golden_model *made, const char *ours, const char *stack, int number)
{
    char source[SHORT];
    snprintf(source, sizeof source, "%s.scales.%d", stack, number);
    add_place(made, ours, source);
}

static void tears_layer(golden_model *made, const nm_stack_config *c, int i)
{
    static const char *const parts[2][3] = {{"self", "ffn"}, {"self", "cross", "ffn"}};
    const char *stack = c->decoder ? "decoder" : "encoder";
    size_t d = (size_t)c->width, ff = (size_t)c->ff;
    char ours[SHORT], source[SHORT];
    for (int cross = 0; cross <= c->decoder; cross++) {
        snprintf(ours, sizeof ours, "%s.%d.%s", c->prefix, i, cross ? "cross" : "self");
        snprintf(source, sizeof source, "%s.%s.%d", stack, cross ? "cross_atts" : "atts", i);
        tears_attention(made, ours, source, cross, d);
    }
    snprintf(ours, sizeof ours, "%s.%d.ffn.in", c->prefix, i);
    snprintf(source, sizeof source, "%s.ffs.%d.in_proj", stack, i);
    add_rows(made, ours, 0, source, 0, ff, d);
    snprintf(ours, sizeof ours, "%s.%d.ffn.out", c->prefix, i);
    snprintf(source, sizeof source, "%s.ffs.%d.out_proj", stack, i);
    add_rows(made, ours, 0, source, 0, d, ff);
    for (int n = 0; n < 2 + c->decoder; n++) {
        snprintf(ours, sizeof ours, "%s.%d.%s.norm", c->prefix, i, parts[c->decoder][n]);
        tears_place(made, ours, stack, (2 + c->decoder) * i + n);
    }
}

static void tears_stack(golden_model *made, const nm_stack *stack)
{
    const nm_stack_config *c = &stack->config;
    for (int i = 0; i < c->layers; i++)
        tears_layer(made, c, i);
    if (stack->final_norm)
        tears_place(made, stack->final_norm->site.name, c->decoder ? "decoder" : "encoder",
                    (2 + c->decoder) * c->layers);
}

void golden_map_names(golden_model *made)
{
    const nm_seq2seq *s = nm_seq2seq_of(made->model);
    size_t words = (size_t)s->target_table->rows, d = (size_t)s->target_table->cols;
    add_piece(made, (range){0, 0, words * d}, "embed.weight", "%s",
              made->tears ? "word_embedding" : "encoder.embed_tokens.weight");
    if (s->output_bias)
        add_piece(made, (range){0, 0, words}, "output.bias", "out_bias");
    void (*map)(golden_model *, const nm_stack *) = made->tears ? tears_stack : fairseq_stack;
    map(made, &s->encoder);
    map(made, &s->decoder);
}
