#include "task/kneser_ney.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash_map.h"
#include "base/memory.h"

enum { MAX_ORDER = 16, NO_TOKEN = -1 };
#define NONE UINT32_MAX

/* An n-gram: its first n - 1 tokens are an n-gram of the table of the next lower order. */
typedef struct gram {
    uint32_t prefix;      /* index of the first n - 1 tokens; NONE for unigrams */
    int32_t token;        /* the last token */
    uint32_t occurrences; /* in the text */
    uint32_t preceding;   /* number of different tokens before it */
    bool begins_line;
} gram;

typedef struct context { /* an n-gram h as context */
    double total;        /* c(h) */
    uint32_t n[3];       /* N_1(h), N_2(h), N_3+(h) */
} context;

typedef struct table { /* the n-grams of one order */
    nm_hash_map map;
    gram *grams;
    size_t n, capacity;
    context *contexts; /* [n]: the n-grams as contexts of the next higher order; NULL in the highest order */
    double discounts[3]; /* D(1), D(2), D(3+) */
} table;

struct nm_kneser_ney {
    int32_t *tokens; /* [n]: the training text, with NO_TOKEN at the start of each line */
    int64_t n;
    int32_t eos, vocab_size;
    int order;
    table tables[MAX_ORDER]; /* [order]: tables[k] has the n-grams of order k + 1 */
    context root;            /* the empty context */
    /* [n]: n-gram of the highest order that ends at each token; NONE at the start of a line */
    uint32_t *ends;
};

nm_kneser_ney *nm_kneser_ney_create(const int32_t *ids, int64_t n, int32_t eos, int32_t vocab_size)
{
    nm_kneser_ney *model = nm_allocate(sizeof *model);
    int64_t lines = 1;
    *model = (nm_kneser_ney){.eos = eos, .vocab_size = vocab_size};
    for (int64_t i = 0; i < n; i++)
        lines += ids[i] == eos;
    model->tokens = nm_allocate((size_t)(n + lines) * sizeof *model->tokens);
    model->ends = nm_allocate((size_t)(n + lines) * sizeof *model->ends);
    for (int64_t i = 0; i < n; i++) {
        if (!i || ids[i - 1] == eos)
            model->tokens[model->n++] = NO_TOKEN;
        model->tokens[model->n++] = ids[i];
    }
    return model;
}

void nm_kneser_ney_free(nm_kneser_ney *model)
{
    if (!model)
        return;
    for (int k = 0; k < MAX_ORDER; k++) {
        nm_hash_map_release(&model->tables[k].map);
        NM_FREE(model->tables[k].grams, model->tables[k].contexts);
    }
    NM_FREE(model->tokens, model->ends, model);
}

int nm_kneser_ney_order(const nm_kneser_ney *model)
{
    return model->order;
}

static uint32_t find(const table *self, uint32_t prefix, int32_t token)
{
    size_t probe = 0;
    uint32_t hash = nm_hash_pair(prefix, (uint32_t)token);
    for (uint32_t i; (i = nm_hash_map_next(&self->map, hash, &probe)) != NM_HASH_NONE;)
        if (self->grams[i].prefix == prefix && self->grams[i].token == token)
            return i;
    return NONE;
}

static uint32_t add(table *self, uint32_t prefix, int32_t token)
{
    NM_GROW(self->grams, self->n, self->capacity);
    self->grams[self->n] = (gram){.prefix = prefix, .token = token};
    nm_hash_map_add(&self->map, nm_hash_pair(prefix, (uint32_t)token), (uint32_t)self->n);
    return (uint32_t)self->n++;
}

/* Adds the n-grams of the next order, to which model->ends refers afterwards. */
static nm_status add_order(nm_kneser_ney *model, nm_error *err)
{
    int k = model->order; /* index of the new table */
    table *self = &model->tables[k], *shorter = k ? &model->tables[k - 1] : NULL;
    uint32_t before = NONE; /* the shorter n-gram that ends at the token before */
    for (int64_t i = 0; i < model->n; i++) {
        bool starts = model->tokens[i] == NO_TOKEN;
        uint32_t suffix = shorter ? model->ends[i] : NONE, prefix = starts ? NONE : before;
        before = suffix;
        model->ends[i] = NONE;
        if (shorter && prefix == NONE)
            continue;
        uint32_t found = find(self, prefix, model->tokens[i]);
        if (found == NONE) {
            if (self->n + 1 >= NM_HASH_MAX)
                return nm_fail(err, NM_MEMORY, "more than %zu different %d-grams", self->n, k + 1);
            found = add(self, prefix, model->tokens[i]);
            gram *new = &self->grams[found];
            new->begins_line = shorter ? shorter->grams[prefix].begins_line : starts;
            if (shorter)
                shorter->grams[suffix].preceding++;
        }
        self->grams[found].occurrences++;
        model->ends[i] = found;
    }
    return NM_OK;
}

static uint32_t count_of(const nm_kneser_ney *model, int k, const gram *item)
{
    if (item->token == NO_TOKEN) /* the start of a line is not predicted */
        return 0;
    return k + 1 == model->order || item->begins_line ? item->occurrences : item->preceding;
}

static void set_discounts(table *self, const double n[4])
{
    double y = n[0] / (n[0] + 2 * n[1]);
    bool valid = true;
    for (int r = 0; r < 3; r++) {
        self->discounts[r] = r + 1 - (r + 2) * y * n[r + 1] / n[r];
        valid &= isfinite(self->discounts[r]) && self->discounts[r] >= 0 && self->discounts[r] <= r + 1;
    }
    for (int r = 0; r < 3 && !valid; r++)
        self->discounts[r] = 0.5 * (r + 1);
}

static void finish_order(nm_kneser_ney *model, int k)
{
    table *self = &model->tables[k], *shorter = k ? &model->tables[k - 1] : NULL;
    double numbers[4] = {0};
    if (shorter) {
        free(shorter->contexts);
        shorter->contexts = nm_allocate((shorter->n + 1) * sizeof *shorter->contexts);
    } else {
        model->root = (context){0};
    }
    for (size_t i = 0; i < self->n; i++) {
        const gram *item = &self->grams[i];
        uint32_t count = count_of(model, k, item);
        context *at = shorter ? &shorter->contexts[item->prefix] : &model->root;
        if (!count)
            continue;
        at->total += count;
        at->n[count < 3 ? count - 1 : 2]++;
        if (count <= 4)
            numbers[count - 1]++;
    }
    set_discounts(self, numbers);
}

nm_status nm_kneser_ney_extend(nm_kneser_ney *model, nm_error *err)
{
    NM_ASSERT(model->order < MAX_ORDER);
    NM_TRY(add_order(model, err));
    model->order++;
    for (int k = 0; k < model->order; k++)
        finish_order(model, k);
    return NM_OK;
}

/* P_{k+1}(token | h) from `shorter` = P_k(token | h'). h has the index `prefix` and the statistics `at`. */
static double interpolate(const nm_kneser_ney *model, int k, const context *at, uint32_t prefix,
                          int32_t token, double shorter)
{
    const table *self = &model->tables[k];
    const double *d = self->discounts;
    uint32_t found = find(self, prefix, token), count = 0;
    if (found != NONE)
        count = count_of(model, k, &self->grams[found]);
    double kept = count ? count - d[count < 3 ? count - 1 : 2] : 0,
           gamma = d[0] * at->n[0] + d[1] * at->n[1] + d[2] * at->n[2];
    return ((kept > 0 ? kept : 0) + gamma * shorter) / at->total;
}

void nm_kneser_ney_score(const nm_kneser_ney *model, const int32_t *ids, int64_t n, double *nll)
{
    uint32_t ends[MAX_ORDER]; /* ends[k]: the (k+1)-gram that ends at the previous token, or NONE */
    for (int64_t i = 0; i < n; i++) {
        if (!i || ids[i - 1] == model->eos)
            for (int k = 0; k < model->order; k++)
                ends[k] = k ? NONE : find(&model->tables[0], NONE, NO_TOKEN);
        double p = 1.0 / model->vocab_size;
        if (model->order && model->root.total > 0)
            p = interpolate(model, 0, &model->root, NONE, ids[i], p);
        for (int k = 1; k < model->order && ends[k - 1] != NONE; k++) {
            const context *at = &model->tables[k - 1].contexts[ends[k - 1]];
            if (at->total > 0)
                p = interpolate(model, k, at, ends[k - 1], ids[i], p);
        }
        nll[i] = -log(p);
        for (int k = model->order - 1; k > 0; k--)
            ends[k] = ends[k - 1] == NONE ? NONE : find(&model->tables[k], ends[k - 1], ids[i]);
        if (model->order)
            ends[0] = find(&model->tables[0], NONE, ids[i]);
    }
}
