/* Every kernel of every CPU level against the plain one in double, at odd sizes, with gaps between rows, with
 * guard zones, and with the same bits for every number of threads. Fenced `ref` in float is checked the same
 * way.
 *
 * The list of checks is the list of kernels: a kernel without a check_<name> does not compile. */
#include "kernel_pair.h"

typedef struct size {
    int32_t rows, cols, gap;
} size;

static const nm_dropout third = {0.3, 7, 5, 9}, none = {0, 7, 5, 9};
static const nm_dropout *const drops[] = {&third, NULL, &none};
enum { N_DROPS = 3 };

/* A float sum of n products of normal numbers is off by some root of n units of its own size. */
static double sum_ulps(int32_t n)
{
    return 16 + 2 * sqrt(n);
}

/* Another width for the other side of a product. */
static int32_t other_width(int32_t cols)
{
    return cols > 64 ? 33 : cols * 2 + 1;
}

static int32_t heads_for(int32_t cols)
{
    static const int32_t heads[][2] = {{1, 1}, {7, 7}, {16, 4}, {64, 4}, {129, 3}, {512, 8}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (heads[i][0] == cols)
            return heads[i][1];
    return 1;
}

static double positive(pair *p, uint64_t index)
{
    return fabs(pair_normal(p, index)) + 0.5;
}

/* Few different values, so that there are ties. */
static double coarse(pair *p, uint64_t index)
{
    return round(4 * pair_normal(p, index)) / 4;
}

static double shifted(pair *p, uint64_t index)
{
    return pair_normal(p, index) + 0.5;
}

static double small(pair *p, uint64_t index)
{
    return 0.1 * pair_normal(p, index);
}

static twin random_vector(pair *p, int32_t n)
{
    return pair_random(p, 1, n, 0);
}

/* --- copies --- */

static void check_upload(pair *p, size z)
{
    twin x = pair_random(p, z.rows, z.cols, z.gap);
    twin_compare(p, "what came back", x, 0, 0);
}

static void check_download(pair *p, size z)
{
    check_upload(p, z); /* there and back: one is nothing without the other */
}

static void check_copy(pair *p, size z)
{
    twin x = pair_random(p, z.rows, z.cols, 0), y = pair_random(p, z.rows, z.cols, 0);
    for (int s = SUBJECT; s <= JUDGE; s++) {
        size_t bytes = (size_t)z.rows * (size_t)z.cols * nm_dtype_bytes(p->on[s]->dtype);
        p->on[s]->k.copy(p->on[s], y.m[s].data, x.m[s].data, bytes);
    }
    twin_compare(p, "copy", y, 0, 0);
}

static void check_zero(pair *p, size z)
{
    twin x = pair_random(p, z.rows, z.cols, 0);
    for (int s = SUBJECT; s <= JUDGE; s++)
        p->on[s]->k.zero(p->on[s], x.m[s].data,
                         (size_t)z.rows * (size_t)z.cols * nm_dtype_bytes(p->on[s]->dtype));
    twin_compare(p, "zeros", x, 0, 0);
}

/* --- products --- */

static void check_gemm(pair *p, size z)
{
    int32_t inner = other_width(z.cols);
    for (int form = 0; form < 4; form++) {
        bool ta = form & 1, tb = form & 2;
        twin a = pair_random(p, ta ? inner : z.rows, ta ? z.rows : inner, z.gap);
        twin bm = pair_random(p, tb ? z.cols : inner, tb ? inner : z.cols, z.gap);
        twin c = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, gemm, ta, tb, 0.5, a.m[s], bm.m[s], form == 0 ? 0.0 : form == 1 ? 1.0 : -2.0, c.m[s]);
        twin_compare(p, "c", c, sum_ulps(inner), 1);
    }
    twin a = pair_random(p, z.rows, inner, z.gap), bm = pair_random(p, inner, z.cols, z.gap);
    twin c = pair_random(p, z.rows, z.cols, z.gap);
    for (int32_t r = 0; r < z.rows; r++)
        twin_fill_row(p, c, r, NAN);
    BOTH(p, gemm, false, false, 1, a.m[s], bm.m[s], 0, c.m[s]);
    twin_compare(p, "c that was NaN and has beta 0", c, sum_ulps(inner), 1);
}

static void check_linear(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int form = 0; form < 2 * N_DROPS; form++) {
        twin x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
        twin bias = random_vector(p, out), y = pair_random(p, z.rows, out, z.gap);
        nm_act act = form < N_DROPS ? NM_ACT_NONE : NM_ACT_RELU;
        BOTH(p, linear, x.m[s], w.m[s], form % N_DROPS == 1 ? NULL : bias.m[s].data, act,
             drops[form % N_DROPS], y.m[s]);
        twin_compare(p, "y", y, sum_ulps(z.cols), 1);
    }
}

/* Whether or not the backend has another form of the weight, `linear` gives the same. */
static void check_pack(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    twin x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
    twin bias = random_vector(p, out), y = pair_random(p, z.rows, out, z.gap);
    void *forms[2] = {NULL, NULL};
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_backend *b = p->on[s];
        size_t bytes = 0;
        nm_error err;
        b->k.pack(b, w.m[s], NULL, &bytes);
        if (!bytes)
            continue;
        assert_int_equal(nm_backend_take(b, bytes, &forms[s], &err), NM_OK);
        b->k.pack(b, w.m[s], forms[s], &bytes);
        nm_backend_hold(b, w.m[s], forms[s]);
    }
    BOTH(p, linear, x.m[s], w.m[s], bias.m[s].data, NM_ACT_NONE, NULL, y.m[s]);
    twin_compare(p, "y", y, sum_ulps(z.cols), 1);
    for (int s = SUBJECT; s <= JUDGE; s++)
        if (forms[s]) {
            nm_backend_unhold(p->on[s], forms[s]);
            nm_backend_give(p->on[s], forms[s]);
        }
}

/* --- int8: the same bits everywhere --- */

static void check_round_int8(pair *p, size z)
{
    twin m = pair_random(p, z.rows, z.cols, z.gap);
    BOTH(p, round_int8, m.m[s]);
    twin_compare(p, "m", m, 0, 0);
}

static void *take_int8(nm_backend *b, nm_mat weight)
{
    size_t bytes = 0;
    nm_error err;
    void *form;
    b->k.pack_int8(b, weight, NULL, &bytes);
    assert_int_equal(nm_backend_take(b, bytes, &form, &err), NM_OK);
    b->k.pack_int8(b, weight, form, &bytes);
    return form;
}

/* The form is the same in every backend. */
static void check_pack_int8(pair *p, size z)
{
    twin w = pair_random(p, z.rows, z.cols, 0);
    size_t bytes[2];
    char *copy[2];
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_backend *b = p->on[s];
        void *form = take_int8(b, w.m[s]);
        b->k.pack_int8(b, w.m[s], NULL, &bytes[s]);
        copy[s] = nm_allocate(bytes[s]);
        b->k.download(b, copy[s], form, bytes[s]);
        nm_backend_give(b, form);
    }
    assert_int_equal(bytes[SUBJECT], bytes[JUDGE]);
    assert_memory_equal(copy[SUBJECT], copy[JUDGE], bytes[JUDGE]);
    p->hash = XXH64(copy[SUBJECT], bytes[SUBJECT], p->hash);
    free(copy[SUBJECT]);
    free(copy[JUDGE]);
}

/* All rows of a weight and some, by the kernel itself and by `linear` over a held weight. */
static void check_linear_int8(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    twin x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
    twin bias = random_vector(p, out);
    void *forms[2] = {take_int8(p->on[SUBJECT], w.m[SUBJECT]), take_int8(p->on[JUDGE], w.m[JUDGE])};
    for (int form = 0; form < 4; form++) {
        int32_t first = form % 2 ? out / 3 : 0, rows = form % 2 ? (out - first + 1) / 2 : out;
        twin y = pair_random(p, z.rows, rows, z.gap);
        for (int s = SUBJECT; s <= JUDGE; s++) {
            const nm_int8 weight = {forms[s], out, z.cols, first};
            p->on[s]->k.linear_int8(p->on[s], x.m[s], &weight, form / 2 ? bias.m[s].data : NULL,
                                    form == 3 ? NM_ACT_RELU : NM_ACT_NONE, y.m[s]);
        }
        twin_compare(p, "y", y, 0, 0);
    }
    twin y = pair_random(p, z.rows, out, z.gap);
    for (int s = SUBJECT; s <= JUDGE; s++)
        nm_backend_hold_int8(p->on[s], w.m[s], forms[s]);
    BOTH(p, linear, x.m[s], w.m[s], bias.m[s].data, NM_ACT_NONE, &none, y.m[s]);
    twin_compare(p, "y of linear", y, 0, 0);
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_backend_unhold(p->on[s], forms[s]);
        nm_backend_give(p->on[s], forms[s]);
    }
}

static void check_act_grad(pair *p, size z)
{
    for (int form = 0; form < 2 * N_DROPS; form++) {
        twin y = pair_make(p, z.rows, z.cols, z.gap, coarse), dy = pair_random(p, z.rows, z.cols, z.gap);
        twin dz = form % 2 ? dy : pair_random(p, z.rows, z.cols, z.gap);
        nm_act act = form < N_DROPS ? NM_ACT_NONE : NM_ACT_RELU;
        BOTH(p, act_grad, act, drops[form % N_DROPS], y.m[s], dy.m[s], dz.m[s]);
        twin_compare(p, "dz", dz, 4, 0);
    }
}

static void check_linear_grad_input(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int add = 0; add < 2; add++) {
        twin dy = pair_random(p, z.rows, out, z.gap), w = pair_random(p, out, z.cols, 0);
        twin dx = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, linear_grad_input, dy.m[s], w.m[s], add, dx.m[s]);
        twin_compare(p, "dx", dx, sum_ulps(out), 1);
    }
}

static void check_linear_grad_weight(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int with = 0; with < 2; with++) {
        twin dy = pair_random(p, z.rows, out, z.gap), x = pair_random(p, z.rows, z.cols, z.gap);
        twin dw = pair_random(p, out, z.cols, 0), db = random_vector(p, out);
        BOTH(p, linear_grad_weight, dy.m[s], x.m[s], dw.m[s], with ? db.m[s].data : NULL);
        twin_compare(p, "dw", dw, sum_ulps(z.rows), 1);
        if (with)
            twin_compare(p, "db", db, 4, 1);
    }
}

/* --- element by element --- */

static void check_scale(pair *p, size z)
{
    twin x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, 0);
    BOTH(p, scale, -1.7, x.m[s], y.m[s]);
    BOTH(p, scale, 0.3, x.m[s], x.m[s]);
    twin_compare(p, "y", y, 2, 0);
    twin_compare(p, "x in place", x, 2, 0);
}

static void check_add(pair *p, size z)
{
    twin x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, 0);
    BOTH(p, add, 0.7, x.m[s], y.m[s]);
    twin_compare(p, "y", y, 2, 1);
}

static void check_add_dropout(pair *p, size z)
{
    for (int form = 0; form < N_DROPS; form++) {
        twin x = pair_random(p, z.rows, z.cols, z.gap), f = pair_random(p, z.rows, z.cols, 0);
        twin y = form == 1 ? x : pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, add_dropout, x.m[s], f.m[s], drops[form], y.m[s]);
        twin_compare(p, "y", y, 4, 1);
    }
}

static void check_dropout(pair *p, size z)
{
    for (int form = 0; form < 2 * N_DROPS; form++) {
        twin x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, dropout, x.m[s], drops[form % N_DROPS], form < N_DROPS, y.m[s]);
        twin_compare(p, "y", y, 4, 1);
    }
}

static void check_embed(pair *p, size z)
{
    enum { WORDS = 11, PLACES = 5 };
    for (int form = 0; form < N_DROPS; form++) {
        pair_list ids = pair_ids(p, z.rows, WORDS), pos = pair_ids(p, z.rows, PLACES);
        twin table = pair_random(p, WORDS, z.cols, 0), places = pair_random(p, PLACES, z.cols, 0);
        twin out = pair_random(p, z.rows, z.cols, z.gap);
        nm_mat no_places = {NULL, 0, 0, 0};
        BOTH(p, embed, ids.memory[s], form == 1 ? NULL : pos.memory[s], 3.25, table.m[s],
             form == 1 ? no_places : places.m[s], drops[form], out.m[s]);
        twin_compare(p, "out", out, 4, 1);
    }
}

static void check_embed_grad(pair *p, size z)
{
    enum { WORDS = 11 };
    for (int form = 0; form < N_DROPS; form++) {
        pair_list ids = pair_ids(p, z.rows, form == 2 ? 1 : WORDS);
        twin dout = pair_random(p, z.rows, z.cols, z.gap), dtable = pair_random(p, WORDS, z.cols, 0);
        BOTH(p, embed_grad, ids.memory[s], 3.25, dout.m[s], drops[form], dtable.m[s]);
        twin_compare(p, "dtable", dtable, sum_ulps(z.rows), 4);
    }
}

static void check_gather(pair *p, size z)
{
    twin x = pair_random(p, 9, z.cols, z.gap), out = pair_random(p, z.rows, z.cols, 0);
    pair_list rows = pair_ids(p, z.rows, 9);
    BOTH(p, gather, rows.memory[s], x.m[s], out.m[s]);
    twin_compare(p, "out", out, 0, 0);
}

/* --- attention --- */

enum { MAX_SEQS = 8 };

typedef struct test_packing {
    int32_t offsets[MAX_SEQS + 1];
    nm_packing side[2];
} test_packing;

/* n_seqs sequences: all of length 1 but the last. */
static void packing_init(pair *p, test_packing *packing, int32_t n_seqs, int32_t first_length, int32_t tokens)
{
    packing->offsets[0] = 0;
    for (int32_t s = 0; s < n_seqs; s++)
        packing->offsets[s + 1] = s + 1 == n_seqs ? tokens : (s + 1) * first_length;
    pair_list list = pair_list_of(p, packing->offsets, ((size_t)n_seqs + 1) * sizeof(int32_t));
    int32_t last = tokens - (n_seqs - 1) * first_length;
    for (int s = SUBJECT; s <= JUDGE; s++)
        packing->side[s] = (nm_packing){n_seqs, tokens, last > first_length ? last : first_length,
                                        packing->offsets, list.memory[s]};
}

typedef struct attention_case {
    bool cross, causal;
    const nm_dropout *drop;
} attention_case;

static const attention_case attention_cases[] = {
    {false, false, NULL}, {false, true, &third}, {true, false, &third}, {true, true, &none}};
enum { N_ATTENTION_CASES = 4 };

/* Self-attention takes q, k, v as slices of one matrix, as the model does; cross-attention k, v of another
 * one. */
typedef struct attention_inputs {
    test_packing q_packing, k_packing;
    twin q, k, v;
    int32_t heads;
    double scale;
} attention_inputs;

static void attention_init(pair *p, attention_inputs *in, const attention_case *c, size z)
{
    int32_t n_seqs = z.rows < 4 ? 1 : 3, keys = c->cross ? z.rows + 5 * n_seqs : z.rows;
    packing_init(p, &in->q_packing, n_seqs, 1, z.rows);
    packing_init(p, &in->k_packing, n_seqs, c->cross ? 6 : 1, keys);
    twin all = pair_random(p, z.rows, 3 * z.cols, z.gap);
    in->q = twin_slice(p, all, 0, z.cols);
    twin other = c->cross ? pair_random(p, keys, 2 * z.cols, 0) : twin_slice(p, all, z.cols, 2 * z.cols);
    in->k = twin_slice(p, other, 0, z.cols);
    in->v = twin_slice(p, other, z.cols, z.cols);
    in->heads = heads_for(z.cols);
    in->scale = 1 / sqrt(z.cols / in->heads);
}

static void check_attention(pair *p, size z)
{
    for (int i = 0; i < N_ATTENTION_CASES; i++) {
        const attention_case *c = &attention_cases[i];
        attention_inputs in;
        attention_init(p, &in, c, z);
        twin out = pair_random(p, z.rows, z.cols, z.gap), lse = random_vector(p, z.rows * in.heads);
        BOTH(p, attention, in.q.m[s], in.k.m[s], in.v.m[s], &in.q_packing.side[s], &in.k_packing.side[s],
             in.heads, c->causal, in.scale, c->drop, out.m[s], i == 2 ? NULL : lse.m[s].data);
        twin_compare(p, "out", out, 64, 1);
        if (i != 2)
            twin_compare(p, "lse", lse, 32, 1);
    }
}

static void check_attention_grad(pair *p, size z)
{
    for (int i = 0; i < N_ATTENTION_CASES; i++) {
        const attention_case *c = &attention_cases[i];
        attention_inputs in, grads;
        attention_init(p, &in, c, z);
        attention_init(p, &grads, c, z);
        twin out = pair_random(p, z.rows, z.cols, 0), dout = pair_random(p, z.rows, z.cols, z.gap);
        twin lse = random_vector(p, z.rows * in.heads);
        BOTH(p, attention, in.q.m[s], in.k.m[s], in.v.m[s], &in.q_packing.side[s], &in.k_packing.side[s],
             in.heads, c->causal, in.scale, c->drop, out.m[s], lse.m[s].data);
        BOTH(p, attention_grad, in.q.m[s], in.k.m[s], in.v.m[s], &in.q_packing.side[s], &in.k_packing.side[s],
             in.heads, c->causal, in.scale, c->drop, out.m[s], lse.m[s].data, dout.m[s], grads.q.m[s],
             grads.k.m[s], grads.v.m[s]);
        pair_mark(p, out);
        pair_mark(p, lse);
        twin_compare(p, "dq", grads.q, 128, 2);
        twin_compare(p, "dk", grads.k, 128, 2);
        twin_compare(p, "dv", grads.v, 128, 2);
    }
}

static void check_attention_rows(pair *p, size z)
{
    enum { CACHE = 21 };
    int32_t *offsets = nm_allocate(((size_t)z.rows + 1) * sizeof *offsets);
    for (int32_t i = 0; i < z.rows; i++)
        offsets[i + 1] = offsets[i] + 1 + i * 7 % CACHE;
    twin q = pair_random(p, z.rows, z.cols, z.gap), out = pair_random(p, z.rows, z.cols, z.gap);
    twin kv = pair_random(p, CACHE, 2 * z.cols, 0);
    twin k = twin_slice(p, kv, 0, z.cols), v = twin_slice(p, kv, z.cols, z.cols);
    pair_list rows = pair_ids(p, offsets[z.rows], CACHE);
    pair_list starts = pair_list_of(p, offsets, ((size_t)z.rows + 1) * sizeof *offsets);
    BOTH(p, attention_rows, q.m[s], k.m[s], v.m[s], rows.memory[s], starts.memory[s], heads_for(z.cols), 0.4,
         out.m[s]);
    twin_compare(p, "out", out, 64, 1);
    free(offsets);
}

/* --- block-term attention --- */

typedef struct term_inputs {
    test_packing packing;
    twin qkv, part[3], positions, weight, core, content, place;
    nm_block_term side[2];
} term_inputs;

/* Segments of up to 5 tokens, the last one shorter where the form allows it. */
static int32_t term_init(pair *p, term_inputs *in, size z, bool causal)
{
    int32_t length = z.rows < 5 ? z.rows : 5, h = z.cols % 9 + 1, n_seqs = z.rows / length;
    n_seqs = n_seqs > MAX_SEQS ? MAX_SEQS : n_seqs;
    int32_t tokens = causal && length > 1 ? n_seqs * length - 1 : n_seqs * length;
    packing_init(p, &in->packing, n_seqs, length, tokens);
    in->qkv = pair_random(p, tokens, 3 * h, z.gap);
    for (int i = 0; i < 3; i++)
        in->part[i] = twin_slice(p, in->qkv, i * h, h);
    in->positions = pair_random(p, length, h, 0);
    in->weight = pair_random(p, length * length, z.cols, z.gap);
    in->core = pair_random(p, 2, h, 0);
    in->content = random_vector(p, h);
    in->place = random_vector(p, h);
    for (int s = SUBJECT; s <= JUDGE; s++)
        in->side[s] = (nm_block_term){.q = in->part[0].m[s],
                                      .k = in->part[1].m[s],
                                      .v = in->part[2].m[s],
                                      .positions = in->positions.m[s],
                                      .weight = in->weight.m[s],
                                      .core = in->core.m[s],
                                      .content = in->content.m[s].data,
                                      .place = in->place.m[s].data,
                                      .packing = &in->packing.side[s],
                                      .length = length,
                                      .causal = causal};
    return tokens;
}

/* Sums of 25 pairs of 9 products of three and more: sizes cancel */
enum { TERM_ULPS = 256, TERM_SIZE = 8 };

static void check_block_term(pair *p, size z)
{
    for (int causal = 0; causal < 2; causal++) {
        term_inputs in;
        int32_t tokens = term_init(p, &in, z, causal);
        twin out = pair_random(p, tokens, z.cols, z.gap);
        BOTH(p, block_term, &in.side[s], out.m[s]);
        twin_compare(p, "out", out, TERM_ULPS, TERM_SIZE);
    }
}

static void check_block_term_grad(pair *p, size z)
{
    for (int causal = 0; causal < 2; causal++) {
        term_inputs in, d;
        int32_t tokens = term_init(p, &in, z, causal);
        term_init(p, &d, z, causal);
        twin dout = pair_random(p, tokens, z.cols, z.gap);
        nm_block_term_grads grads[2];
        for (int s = SUBJECT; s <= JUDGE; s++)
            grads[s] =
                (nm_block_term_grads){d.part[0].m[s], d.part[1].m[s], d.part[2].m[s],      d.positions.m[s],
                                      d.weight.m[s],  d.core.m[s],    d.content.m[s].data, d.place.m[s].data};
        BOTH(p, block_term_grad, &in.side[s], dout.m[s], &grads[s]);
        double wide = TERM_SIZE * sqrt((double)z.cols);
        twin_compare(p, "dqkv", d.qkv, TERM_ULPS, wide);
        twin_compare(p, "dpositions", d.positions, TERM_ULPS, wide);
        twin_compare(p, "dweight", d.weight, TERM_ULPS, TERM_SIZE);
        twin_compare(p, "dcore", d.core, TERM_ULPS, wide);
        twin_compare(p, "dcontent", d.content, TERM_ULPS, wide);
        twin_compare(p, "dplace", d.place, TERM_ULPS, wide);
    }
}

/* Loss sums of both sides. */
static void compare_sums(pair *p, double *const sums[2], int32_t tokens)
{
    double got[2], want[2];
    p->on[SUBJECT]->k.download(p->on[SUBJECT], got, sums[SUBJECT], sizeof got);
    p->on[JUDGE]->k.download(p->on[JUDGE], want, sums[JUDGE], sizeof want);
    for (int i = 0; i < 2; i++)
        if (!(fabs(got[i] - want[i]) <= 16 * (double)FLT_EPSILON * (fabs(want[i]) + tokens)))
            fail_msg("%s: sum %d is %.9g, should be %.9g", p->what, i, got[i], want[i]);
}

/* --- attention with relative positions, pooling, conditional random field --- */

enum { SHORT_SEQS = 4 };

/* Up to four sequences of unequal length, none empty; more only where there are rows enough. */
static nm_packing short_packing(int32_t rows, int32_t offsets[SHORT_SEQS + 1])
{
    int32_t n = rows < SHORT_SEQS ? rows : SHORT_SEQS, longest = 0;
    for (int32_t s = 0; s <= n; s++)
        offsets[s] = (int32_t)((int64_t)rows * s * s / (n * n));
    for (int32_t s = 1; s < n; s++)
        offsets[s] = offsets[s] > offsets[s - 1] ? offsets[s] : offsets[s - 1] + 1;
    for (int32_t s = 0; s < n; s++)
        longest = offsets[s + 1] - offsets[s] > longest ? offsets[s + 1] - offsets[s] : longest;
    return (nm_packing){n, rows, longest, offsets, NULL};
}

typedef struct relative_inputs {
    int32_t offsets[SHORT_SEQS + 1];
    nm_packing packing;
    twin qkv, key_bias, distance_bias, positions, out, lse;
    nm_relative call[2];
} relative_inputs;

static void relative_forward(pair *p, relative_inputs *in, size z, const nm_dropout *drop)
{
    int32_t heads = heads_for(z.cols), c = z.cols / heads;
    in->packing = short_packing(z.rows, in->offsets);
    int32_t zero = in->packing.longest - 1;
    in->qkv = pair_make(p, z.rows, 3 * z.cols, z.gap, small);
    in->key_bias = random_vector(p, z.cols);
    in->distance_bias = random_vector(p, z.cols);
    in->positions = pair_random(p, 2 * zero + 1, c, 0);
    in->out = pair_random(p, z.rows, z.cols, z.gap);
    in->lse = pair_random(p, heads, z.rows, 0);
    for (int s = SUBJECT; s <= JUDGE; s++) {
        in->call[s] = (nm_relative){.q = twin_slice(p, in->qkv, 0, z.cols).m[s],
                                    .k = twin_slice(p, in->qkv, z.cols, z.cols).m[s],
                                    .v = twin_slice(p, in->qkv, 2 * z.cols, z.cols).m[s],
                                    .q_packing = &in->packing,
                                    .k_packing = &in->packing,
                                    .heads = heads,
                                    .key_bias = in->key_bias.m[s].data,
                                    .distance_bias = in->distance_bias.m[s].data,
                                    .positions = in->positions.m[s],
                                    .zero_row = zero,
                                    .drop = drop ? *drop : none};
        p->on[s]->k.relative_attention(p->on[s], &in->call[s], in->out.m[s], in->lse.m[s].data);
    }
}

/* Scores are sums of c products of normal numbers, and an error in them is a relative one in the weights. */
static void check_relative_attention(pair *p, size z)
{
    for (int d = 0; d < 2; d++) {
        relative_inputs in;
        relative_forward(p, &in, z, drops[d]);
        twin_compare(p, "out", in.out, 64 + 4 * sum_ulps(z.cols), 0.1);
        twin_compare(p, "lse", in.lse, sum_ulps(z.cols), 1);
        pair_close(p);
    }
}

static void check_relative_attention_grad(pair *p, size z)
{
    relative_inputs in;
    relative_forward(p, &in, z, &third);
    twin dout = pair_random(p, z.rows, z.cols, 0), d = pair_random(p, z.rows, 3 * z.cols, z.gap);
    twin d_key = random_vector(p, z.cols), d_distance = random_vector(p, z.cols);
    for (int s = SUBJECT; s <= JUDGE; s++) {
        const nm_relative_grad grad = {.out = in.out.m[s],
                                       .dout = dout.m[s],
                                       .lse = in.lse.m[s].data,
                                       .dq = twin_slice(p, d, 0, z.cols).m[s],
                                       .dk = twin_slice(p, d, z.cols, z.cols).m[s],
                                       .dv = twin_slice(p, d, 2 * z.cols, z.cols).m[s],
                                       .d_key_bias = d_key.m[s].data,
                                       .d_distance_bias = d_distance.m[s].data};
        p->on[s]->k.relative_attention_grad(p->on[s], &in.call[s], &grad);
    }
    double ulps = 64 + 8 * sum_ulps(z.cols), rows = sqrt(z.rows);
    twin_compare(p, "out", in.out, ulps, 0.1);
    twin_compare(p, "lse", in.lse, ulps, 1);
    twin_compare(p, "dq, dk, dv", d, ulps, rows);
    twin_compare(p, "d_key_bias", d_key, ulps, rows);
    twin_compare(p, "d_distance_bias", d_distance, ulps, rows);
}

static void check_pool_max(pair *p, size z)
{
    int32_t offsets[SHORT_SEQS + 1];
    nm_packing packing = short_packing(z.rows, offsets);
    twin x = pair_make(p, z.rows, z.cols, z.gap, coarse), out = pair_random(p, packing.n_seqs, z.cols, z.gap);
    twin dout = pair_random(p, packing.n_seqs, z.cols, z.gap), dx = pair_random(p, z.rows, z.cols, z.gap);
    pair_list where = pair_ids(p, packing.n_seqs * z.cols, 1);
    BOTH(p, pool_max, x.m[s], &packing, out.m[s], where.memory[s]);
    BOTH(p, pool_max_grad, dout.m[s], where.memory[s], dx.m[s]);
    twin_compare(p, "out", out, 0, 0);
    twin_compare(p, "dx", dx, 0, 0);
}

static void check_pool_max_grad(pair *p, size z)
{
    check_pool_max(p, z); /* needs the places that it finds */
}

static void check_crf(pair *p, size z)
{
    int32_t offsets[SHORT_SEQS + 1], tags = z.cols < 30 ? z.cols : 30;
    nm_packing packing = short_packing(z.rows, offsets);
    twin x = pair_random(p, z.rows, tags, z.gap), transitions = pair_random(p, tags, tags, 0);
    twin start = random_vector(p, tags), end = random_vector(p, tags), d = pair_random(p, z.rows, tags, 0);
    twin d_transitions = pair_random(p, tags, tags, 0), d_start = random_vector(p, tags);
    twin d_end = random_vector(p, tags);
    pair_list gold = pair_ids(p, z.rows, tags), sums = pair_list_of(p, (double[]){7, 8}, 2 * sizeof(double));
    for (int with_grad = 0; with_grad < 2; with_grad++) {
        for (int s = SUBJECT; s <= JUDGE; s++) {
            nm_crf crf = {.emissions = x.m[s],
                          .transitions = transitions.m[s].data,
                          .start = start.m[s].data,
                          .end = end.m[s].data,
                          .packing = &packing,
                          .gold = gold.memory[s],
                          .grad_scale = 0.5,
                          .sums = sums.memory[s],
                          .d_emissions = with_grad ? d.m[s].data : NULL,
                          .d_transitions = with_grad ? d_transitions.m[s].data : NULL,
                          .d_start = with_grad ? d_start.m[s].data : NULL,
                          .d_end = with_grad ? d_end.m[s].data : NULL};
            p->on[s]->k.crf(p->on[s], &crf);
        }
        compare_sums(p, (double *const[]){sums.memory[SUBJECT], sums.memory[JUDGE]}, z.rows);
    }
    twin_compare(p, "d_emissions", d, 16, 1);
    twin_compare(p, "d_transitions", d_transitions, 16, 1);
    twin_compare(p, "d_start", d_start, 16, 1);
    twin_compare(p, "d_end", d_end, 16, 1);
}

/* --- loss --- */

/* Every third word is not allowed, and no target is one of them. */
static pair_list allowed_words(pair *p, int32_t words)
{
    uint8_t *allowed = nm_allocate((size_t)words);
    for (int32_t v = 0; v < words; v++)
        allowed[v] = v % 3 != 2;
    pair_list list = pair_list_of(p, allowed, (size_t)words);
    free(allowed);
    return list;
}

static pair_list loss_targets(pair *p, int32_t tokens, int32_t words)
{
    int32_t *targets = nm_allocate((size_t)tokens * sizeof *targets);
    for (int32_t i = 0; i < tokens; i++)
        targets[i] = i * 5 % words % 3 == 2 ? 0 : i * 5 % words;
    pair_list list = pair_list_of(p, targets, (size_t)tokens * sizeof *targets);
    free(targets);
    return list;
}

typedef struct loss_case {
    int32_t words;
    nm_smoothing smoothing;
    double eps;
    bool bias, mask, hidden, weight; /* which gradients are wanted */
} loss_case;

static void check_loss_case(pair *p, size z, const loss_case *c)
{
    twin hidden = pair_random(p, z.rows, z.cols, z.gap), weight = pair_make(p, c->words, z.cols, 0, small);
    twin bias = random_vector(p, c->words), d_hidden = pair_random(p, z.rows, z.cols, 0);
    twin d_weight = pair_make(p, c->words, z.cols, 0, small), d_bias = pair_make(p, 1, c->words, 0, small);
    pair_list targets = loss_targets(p, z.rows, c->words), allowed = allowed_words(p, c->words);
    pair_list sums = pair_list_of(p, (const double[]){77, 78}, 2 * sizeof(double));
    double grad_scale = 1.0 / z.rows;
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_softmax_loss loss = {hidden.m[s],
                                weight.m[s],
                                c->bias ? bias.m[s].data : NULL,
                                targets.memory[s],
                                c->mask ? allowed.memory[s] : NULL,
                                c->smoothing,
                                c->eps,
                                grad_scale,
                                sums.memory[s],
                                c->hidden ? d_hidden.m[s].data : NULL,
                                c->weight ? d_weight.m[s].data : NULL,
                                c->weight && c->bias ? d_bias.m[s].data : NULL};
        p->on[s]->k.softmax_loss(p->on[s], &loss);
    }
    compare_sums(p, (double *const[]){sums.memory[SUBJECT], sums.memory[JUDGE]}, z.rows);
    if (c->hidden)
        twin_compare(p, "d_hidden", d_hidden, 64, 0.1 * grad_scale);
    if (c->weight)
        twin_compare(p, "d_weight", d_weight, 64, grad_scale * sqrt(z.rows));
    if (c->weight && c->bias)
        twin_compare(p, "d_bias", d_bias, 64, grad_scale * sqrt(z.rows));
}

static void check_softmax_loss(pair *p, size z)
{
    static const loss_case cases[] = {{2, NM_SMOOTH_UNIFORM, 0, false, false, true, true},
                                      {33, NM_SMOOTH_UNIFORM, 0.1, true, false, true, true},
                                      {33, NM_SMOOTH_OTHERS, 0.1, false, false, true, false},
                                      {257, NM_SMOOTH_UNIFORM, 0.1, true, true, true, true},
                                      {257, NM_SMOOTH_OTHERS, 0.1, true, true, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_loss_case(p, z, &cases[i]);
        pair_close(p);
    }
    if (z.cols == 7 && z.rows == 130) { /* several blocks of rows */
        size tall = {600, 7, z.gap};
        check_loss_case(p, tall, &cases[1]);
    }
}

static void check_log_softmax(pair *p, size z)
{
    twin x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, 0);
    pair_list allowed = allowed_words(p, z.cols);
    BOTH(p, log_softmax, x.m[s], allowed.memory[s], y.m[s]);
    BOTH(p, log_softmax, x.m[s], NULL, x.m[s]);
    twin_compare(p, "y", y, 16, 1);
    twin_compare(p, "x in place", x, 16, 1);
}

static void check_top_k(pair *p, size z)
{
    int32_t ks[] = {1, z.cols < 5 ? z.cols : 5, z.cols < 40 ? z.cols : 40};
    for (int i = 0; i < 3; i++) {
        int32_t k = ks[i];
        size_t bytes = (size_t)z.rows * (size_t)k * sizeof(int32_t);
        twin x = pair_make(p, z.rows, z.cols, z.gap, coarse), values = pair_random(p, z.rows, k, 0);
        if (z.rows > 2)
            twin_fill_row(p, x, 1, -INFINITY);
        int32_t *columns[2] = {nm_allocate(bytes), nm_allocate(bytes)};
        pair_list lists = pair_list_of(p, columns[0], bytes);
        BOTH(p, top_k, x.m[s], k, values.m[s].data, lists.memory[s]);
        for (int s = SUBJECT; s <= JUDGE; s++)
            p->on[s]->k.download(p->on[s], columns[s], lists.memory[s], bytes);
        twin_compare(p, "values", values, 0, 0);
        if (memcmp(columns[SUBJECT], columns[JUDGE], bytes) != 0)
            fail_msg("%s: other columns than the judge's (k = %d)", p->what, (int)k);
        free(columns[SUBJECT]);
        free(columns[JUDGE]);
    }
}

/* --- norms --- */

static const nm_token_form token_forms[] = {NM_TOKEN_CENTER, NM_TOKEN_CENTER_UNBIASED, NM_TOKEN_RMS,
                                            NM_TOKEN_RMS_OUTSIDE, NM_TOKEN_LENGTH};
enum { N_TOKEN_FORMS = 5 };

typedef struct token_inputs {
    nm_token_norm spec;
    twin x, gain, bias, y, shift, scale;
} token_inputs;

/* Variants 0 .. 2 N_TOKEN_FORMS - 1: every form with gains of length d, groups and no bias; with one gain and
 * bias. In matrices of three rows and more the second row is zero. */
static void token_init(pair *p, token_inputs *in, int variant, size z)
{
    bool single = variant >= N_TOKEN_FORMS;
    nm_token_form form = token_forms[variant % N_TOKEN_FORMS];
    int32_t groups = single || z.cols < 14 || heads_for(z.cols) == 4 ? 1 : heads_for(z.cols);
    double eps = single ? 0.1 : form == NM_TOKEN_RMS_OUTSIDE ? 1e-8 : 1e-5;
    in->spec = (nm_token_norm){form, groups, eps, single ? 1 : z.cols, single ? 0 : z.cols};
    in->x = pair_make(p, z.rows, z.cols, z.gap, shifted);
    if (z.rows > 2)
        twin_fill_row(p, in->x, 1, 0);
    in->gain = random_vector(p, z.cols);
    in->bias = random_vector(p, z.cols);
    in->y = pair_random(p, z.rows, z.cols, z.gap);
    in->shift = pair_random(p, z.rows, groups, 0);
    in->scale = pair_random(p, z.rows, groups, 0);
}

static bool token_centered(const token_inputs *in)
{
    return in->spec.form == NM_TOKEN_CENTER || in->spec.form == NM_TOKEN_CENTER_UNBIASED;
}

static void token_forward(pair *p, const token_inputs *in)
{
    BOTH(p, token_norm, &in->spec, in->x.m[s], in->gain.m[s].data, in->bias.m[s].data, in->y.m[s],
         token_centered(in) ? in->shift.m[s].data : NULL, in->scale.m[s].data);
}

static void check_token_norm(pair *p, size z)
{
    for (int variant = 0; variant < 2 * N_TOKEN_FORMS; variant++) {
        token_inputs in;
        token_init(p, &in, variant, z);
        token_forward(p, &in);
        twin_compare(p, "y", in.y, 64, 1);
        twin_compare(p, "scale", in.scale, 64, 0);
        if (token_centered(&in))
            twin_compare(p, "shift", in.shift, 32, 1);
        pair_close(p);
    }
}

/* The largest |scale| of every row: gradients are that size before terms cancel. */
static double *row_scales(pair *p, const token_inputs *in)
{
    int32_t rows = in->scale.m[0].rows, groups = in->scale.m[0].cols;
    double *scales = twin_judged(p, in->scale), *largest = nm_allocate((size_t)rows * sizeof *largest);
    for (int32_t i = 0; i < rows * groups; i++)
        largest[i / groups] = fmax(largest[i / groups], fabs(scales[i]));
    free(scales);
    return largest;
}

static void check_token_norm_grad(pair *p, size z)
{
    for (int variant = 0; variant < 2 * N_TOKEN_FORMS; variant++) {
        token_inputs in;
        token_init(p, &in, variant, z);
        twin dy = pair_random(p, z.rows, z.cols, z.gap), dx = pair_random(p, z.rows, z.cols, z.gap);
        twin d_gain = random_vector(p, in.spec.gain_length), d_bias = random_vector(p, z.cols);
        token_forward(p, &in);
        BOTH(p, token_norm_grad, &in.spec, dy.m[s], in.x.m[s], in.gain.m[s].data,
             token_centered(&in) ? in.shift.m[s].data : NULL, in.scale.m[s].data, variant % 2 == 1, dx.m[s],
             variant == 0 ? NULL : d_gain.m[s].data, in.spec.bias_length ? d_bias.m[s].data : NULL);
        double *sizes = row_scales(p, &in);
        twin_compare_sized(p, "dx", dx, 64, sizes);
        if (variant != 0)
            twin_compare(p, "d_gain", d_gain, 32, sqrt(z.rows * (in.spec.gain_length == 1 ? z.cols : 1)));
        if (in.spec.bias_length)
            twin_compare(p, "d_bias", d_bias, 8, sqrt(z.rows));
        pair_mark(p, in.y);
        pair_mark(p, in.shift);
        pair_mark(p, in.scale);
        free(sizes);
        pair_close(p);
    }
}

/* Feature norms come without groups, with one, and with as many as heads. */
static int32_t group_choice(int i, int32_t cols)
{
    return i == 0 ? 0 : i == 1 ? 1 : heads_for(cols);
}

static void check_feature_moments(pair *p, size z)
{
    for (int i = 0; i < 9; i++) {
        nm_feature_norm spec = {group_choice(i % 3, z.cols), 1e-5, false};
        twin x = pair_make(p, z.rows, z.cols, z.gap, shifted), center = random_vector(p, z.cols);
        twin row_scale = pair_random(p, z.rows, spec.groups ? spec.groups : 1, 0);
        twin mean = random_vector(p, z.cols), square = random_vector(p, z.cols);
        bool about_mean = i / 3 == 0, no_mean = i / 3 == 1;
        BOTH(p, feature_moments, &spec, x.m[s], spec.groups ? row_scale.m[s].data : NULL,
             about_mean ? mean.m[s].data
             : no_mean  ? NULL
                        : center.m[s].data,
             no_mean ? NULL : mean.m[s].data, square.m[s].data);
        if (!no_mean)
            twin_compare(p, "mean", mean, 16, 1);
        twin_compare(p, "square", square, 32, 1);
        if (spec.groups)
            twin_compare(p, "row_scale", row_scale, 32, 0);
        pair_close(p);
    }
}

static void check_feature_norm(pair *p, size z)
{
    for (int i = 0; i < 6; i++) {
        nm_feature_norm spec = {group_choice(i % 3, z.cols), 1e-5, i >= 3};
        twin x = pair_make(p, z.rows, z.cols, z.gap, shifted);
        twin row_scale = pair_make(p, z.rows, spec.groups ? spec.groups : 1, 0, positive);
        twin shift = random_vector(p, z.cols), scale = pair_make(p, 1, z.cols, 0, positive);
        twin gain = random_vector(p, z.cols), bias = random_vector(p, z.cols),
             square = random_vector(p, z.cols);
        twin y = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, feature_norm, &spec, x.m[s], spec.groups ? row_scale.m[s].data : NULL,
             i % 2 ? shift.m[s].data : NULL, scale.m[s].data, i == 2 ? NULL : gain.m[s].data,
             i == 4 ? NULL : bias.m[s].data, y.m[s], i % 2 ? square.m[s].data : NULL);
        twin_compare(p, "y", y, 64, 2);
        if (i % 2)
            twin_compare(p, "square", square, 32, 1);
        if (spec.groups && !spec.row_scale_ready)
            twin_compare(p, "row_scale", row_scale, 32, 0);
        pair_close(p);
    }
}

static void check_feature_norm_grad(pair *p, size z)
{
    for (int i = 0; i < 9; i++) {
        nm_feature_norm spec = {group_choice(i % 3, z.cols), 1e-5, true};
        bool only_sums = i / 3 == 0, only_dx = i / 3 == 1;
        twin dy = pair_random(p, z.rows, z.cols, z.gap), x = pair_make(p, z.rows, z.cols, z.gap, shifted);
        twin row_scale = pair_make(p, z.rows, spec.groups ? spec.groups : 1, 0, positive);
        twin shift = random_vector(p, z.cols), scale = pair_make(p, 1, z.cols, 0, positive);
        twin a = random_vector(p, z.cols), c0 = random_vector(p, z.cols), c1 = random_vector(p, z.cols);
        twin sum_dy = random_vector(p, z.cols), sum_dy_z = random_vector(p, z.cols);
        twin dx = pair_random(p, z.rows, z.cols, z.gap);
        nm_mat no_matrix = {NULL, 0, 0, 0};
        BOTH(p, feature_norm_grad, &spec, dy.m[s], x.m[s], spec.groups ? row_scale.m[s].data : NULL,
             i == 4 ? NULL : shift.m[s].data, scale.m[s].data, a.m[s].data, i % 2 ? c0.m[s].data : NULL,
             i % 2 ? c1.m[s].data : NULL, i > 6, only_sums ? no_matrix : dx.m[s],
             only_dx ? NULL : sum_dy.m[s].data, only_dx ? NULL : sum_dy_z.m[s].data);
        if (!only_sums)
            twin_compare(p, "dx", dx, 64, 8);
        if (!only_dx) {
            twin_compare(p, "sum_dy", sum_dy, 8, sqrt(z.rows));
            twin_compare(p, "sum_dy_z", sum_dy_z, 32, 2 * sqrt(z.rows));
        }
        pair_close(p);
    }
}

/* --- vectors and optimizers --- */

static void check_vec(pair *p, size z)
{
    for (int op = NM_VEC_FILL; op <= NM_VEC_ABOVE; op++) {
        bool compares = op >= NM_VEC_CLIP, roots = op >= NM_VEC_DIV && op <= NM_VEC_SQRT;
        twin a = pair_make(p, 1, z.cols, 0, roots ? positive : compares ? coarse : pair_normal);
        twin vb = pair_make(p, 1, z.cols, 0, roots ? positive : compares ? coarse : pair_normal);
        twin c = random_vector(p, z.cols), out = z.gap ? random_vector(p, z.cols) : a;
        double low = op == NM_VEC_RSQRT_CLAMP ? 0.9 : op == NM_VEC_CLIP ? -0.75 : 0.25;
        BOTH(p, vec, (nm_vec_op)op, z.cols, out.m[s].data, a.m[s].data,
             op == NM_VEC_LINEAR && z.gap ? NULL : vb.m[s].data, c.m[s].data, low, 0.5);
        twin_compare(p, "out", out, 4, 1);
        pair_close(p);
    }
}

static void check_dot(pair *p, size z)
{
    twin a = pair_random(p, z.rows, z.cols, 0), c = pair_random(p, z.rows, z.cols, 0);
    size_t n = (size_t)z.rows * (size_t)z.cols;
    double got[2] = {7, 7};
    BOTH(p, dot, n, a.m[s].data, c.m[s].data, &got[s]);
    if (!(fabs(got[SUBJECT] - got[JUDGE]) <= 1e-12 * sqrt((double)n) * (1 + fabs(got[JUDGE]))))
        fail_msg("%s: %.17g, should be %.17g", p->what, got[SUBJECT], got[JUDGE]);
}

static void check_adam(pair *p, size z)
{
    for (int form = NM_ADAM_TORCH; form <= NM_ADAMW_TORCH; form++)
        for (int64_t step = 1; step < 1000; step += 900) {
            nm_adam adam = {(nm_adam_form)form, 0.5, 0.9, 0.98, 1e-3, 0.1, 0.3, step};
            twin w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
            twin m = pair_make(p, z.rows, z.cols, 0, small), v = pair_make(p, z.rows, z.cols, 0, positive);
            BOTH(p, adam, &adam, (size_t)z.rows * (size_t)z.cols, w.m[s].data, g.m[s].data, m.m[s].data,
                 v.m[s].data);
            twin_compare(p, "p", w, 16, 1);
            twin_compare(p, "m", m, 8, 0.1);
            twin_compare(p, "v", v, 8, 0);
        }
}

static void check_sgd(pair *p, size z)
{
    for (int clips = 0; clips < 2; clips++) {
        twin w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
        twin v = pair_random(p, z.rows, z.cols, 0);
        BOTH(p, sgd, 0.5, 0.9, 1.5, clips ? 0.8 : 0.0, (size_t)z.rows * (size_t)z.cols, w.m[s].data,
             g.m[s].data, v.m[s].data);
        twin_compare(p, "p", w, 8, 1);
        twin_compare(p, "v", v, 8, 1);
    }
}

/* --- the suite --- */

typedef struct check_row {
    const char *name;
    void (*check)(pair *p, size z);
} check_row;

static const check_row checks[] = {
#define K(name, args) {#name, check_##name},
    NM_KERNELS(K)
#undef K
};
enum { N_CHECKS = sizeof checks / sizeof *checks };

static void run_size(const check_row *row, pair *p, const char *level, size z)
{
    char what[128];
    snprintf(what, sizeof what, "%s on %s, %d threads, %d x %d, gap %d", row->name, level,
             (int)p->on[SUBJECT]->threads, (int)z.rows, (int)z.cols, (int)z.gap);
    p->what = what;
    row->check(p, z);
    pair_close(p);
}

static void run_check(const check_row *row, pair *p, const char *level)
{
    static const int32_t rows[] = {1, 2, 3, 17, 130}, cols[] = {1, 7, 16, 64, 129, 512};
    for (int r = 0; r < 5; r++)
        for (int c = 0; c < 6; c++)
            run_size(row, p, level, (size){rows[r], cols[c], (r + c) % 2 ? 3 : 0});
}

static nm_backend *create(const nm_backend_options *options)
{
    nm_backend *backend = NULL;
    nm_error err;
    nm_status status = nm_backend_create(&backend, options, &err);
    if (status == NM_UNSUPPORTED)
        print_message("SKIPPED, this machine has no %s: %s\n", options->isa, err.text);
    else if (status != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

static void check_level(nm_backend_options options, const char *level)
{
    const nm_backend_options judge_options = {.name = "ref", .dtype = NM_F64};
    nm_backend *judge = create(&judge_options), *subject = create(&options);
    for (int i = 0; subject && i < N_CHECKS; i++) {
        pair p = {.on = {subject, judge}, .seed = 1};
        run_check(&checks[i], &p, level);
    }
    nm_backend_free(subject);
    nm_backend_free(judge);
}

/* The same bits with one, two and three threads. */
static void test_threads(void **state)
{
    (void)state;
    const nm_backend_options judge_options = {.name = "ref", .dtype = NM_F64};
    nm_backend_options options = {.name = "cpu", .isa = "auto"};
    nm_backend *judge = create(&judge_options);
    uint64_t hashes[N_CHECKS];
    for (options.threads = 1; options.threads <= 3; options.threads++) {
        nm_backend *subject = create(&options);
        for (int i = 0; i < N_CHECKS; i++) {
            pair p = {.on = {subject, judge}, .seed = 1};
            run_size(&checks[i], &p, "auto", (size){1, 7, 0});
            run_size(&checks[i], &p, "auto", (size){2, 16, 3});
            run_size(&checks[i], &p, "auto", (size){17, 129, 3});
            run_size(&checks[i], &p, "auto", (size){130, 64, 0});
            if (options.threads == 1)
                hashes[i] = p.hash;
            else if (p.hash != hashes[i])
                fail_msg("%s: other bits with %d threads than with one", checks[i].name,
                         (int)options.threads);
        }
        nm_backend_free(subject);
    }
    nm_backend_free(judge);
}

static void test_ref_float_fenced(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "ref", .dtype = NM_F32, .fenced = true}, "ref");
}

static void test_cpu_base(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "base", .threads = 1}, "base");
}

#if defined(__x86_64__)
static void test_cpu_avx2(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "avx2", .threads = 1}, "avx2");
}

static void test_cpu_avx512(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "avx512", .threads = 1}, "avx512");
}

static void test_cpu_vnni(void **state)
{
    (void)state;
    check_level((nm_backend_options){.name = "cpu", .isa = "vnni", .threads = 1}, "vnni");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_float_fenced),
        cmocka_unit_test(test_cpu_base),
#if defined(__x86_64__)
        cmocka_unit_test(test_cpu_avx2),
        cmocka_unit_test(test_cpu_avx512),
        cmocka_unit_test(test_cpu_vnni),
#endif
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
