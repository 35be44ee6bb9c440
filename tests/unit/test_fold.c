/* Folding of norms into linear layers: outputs are unchanged except for rounding, and norms that cannot be
 * folded stay. */
#include "decode_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/lm.h"
#include "task/tasks.h"
#include "train/checkpoint.h"

enum { SEQS = 2, TOKENS = 9, MAX_SETTINGS = 24 };

static const int32_t offsets[] = {0, 5, TOKENS}, places[] = {0, 1, 2, 3, 4, 0, 1, 2, 3};
static const int32_t words[] = {5, 4, 3, 7, EOS, 8, 6, 4, EOS};

typedef struct rig {
    nm_options *options;
    nm_model *model;
    nm_tape tape;
} rig;

static double draw(uint32_t site, size_t i)
{
    nm_random_words w = nm_random4(3, NM_RANDOM_TEST, site, 0, i);
    return nm_random_normal(w.w[0], w.w[1]);
}

static void write_numbers(nm_backend *b, void *device, const double *values, size_t n)
{
    float *narrow = nm_allocate(n * sizeof *narrow);
    for (size_t i = 0; i < n; i++)
        narrow[i] = (float)values[i];
    if (b->dtype == NM_F64)
        nm_backend_upload(b, device, values, n * sizeof *values);
    else
        nm_backend_upload(b, device, narrow, n * sizeof *narrow);
    free(narrow);
}

/* Random running statistics: means around 0, all others positive; none at its initial value. */
static void vary_state(nm_norm *norm, nm_backend *b, uint32_t site)
{
    for (int s = 0; s < norm->shape.n_state; s++) {
        size_t n = (size_t)norm->shape.state[s].length;
        double *values = nm_allocate(n * sizeof *values);
        bool mean = strstr(norm->shape.state[s].name, "mean");
        for (size_t i = 0; i < n; i++) {
            double z = draw(site + (uint32_t)s, i);
            values[i] = mean ? z : 0.3 + fabs(z);
        }
        write_numbers(b, norm->state[s], values, n);
        free(values);
    }
}

/* Random biases and norm weights: initial values would hide errors. */
static void vary(nm_model *model)
{
    nm_params *params = &model->params;
    for (size_t p = 0; p < params->n; p++) {
        const nm_tensor *tensor = &params->list[p]->tensor;
        size_t n = (size_t)tensor->cols;
        if (tensor->rows > 1)
            continue;
        double *values = nm_allocate(n * sizeof *values);
        for (size_t i = 0; i < n; i++)
            values[i] = (strstr(tensor->name, "norm.weight") != NULL) + 0.3 * draw((uint32_t)p, i);
        write_numbers(model->backend, tensor->data, values, n);
        free(values);
    }
    for (size_t i = 0; i < params->n_norms; i++)
        vary_state(params->norms[i], model->backend, 1000 + 10 * (uint32_t)i);
}

/* settings: "model.norm=batch share_embeddings=none": names without a section are those of [model]. */
static rig rig_open(nm_backend *backend, const nm_model_type *type, const char *settings)
{
    rig r = {.options = nm_options_create()};
    nm_error err = {0};
    char text[512], path[600], *rest = text;
    snprintf(text, sizeof text, "preset=tiny width=16 ff=24 heads=2 %s", settings);
    nm_model_options_add(r.options, type);
    nm_norm_options_add(r.options);
    for (char *one; (one = strtok_r(rest, " ", &rest));) {
        char *value = strchr(one, '=');
        *value++ = 0;
        snprintf(path, sizeof path, "%s%s", strchr(one, '.') ? "" : "model.", one);
        set(r.options, path, value);
    }
    const nm_model_sizes sizes = {.source = WORDS, .target = WORDS, .plan = {.warmup_updates = 1}};
    if (nm_model_create(&r.model, type, backend, r.options, &sizes, false, &err) != NM_OK ||
        nm_tape_init(&r.tape, backend, (size_t)16 << 20, &err) != NM_OK)
        fail_msg("%s: %s", settings, err.text);
    nm_params_initialize(&r.model->params, 5);
    vary(r.model);
    return r;
}

static void rig_close(rig *r)
{
    nm_tape_release(&r->tape);
    nm_model_free(r->model);
    nm_options_free(r->options);
}

/* Logits of all tokens at all positions, then those of the clusters; the caller frees them. */
static double *scores(rig *r, size_t *n)
{
    nm_backend *b = r->model->backend;
    const nm_packing packing = {.n_seqs = SEQS, .n_tokens = TOKENS, .longest = 5, .offsets = offsets};
    const nm_batch batch = {.n = SEQS,
                            .source = packing,
                            .target = packing,
                            .source_ids = words,
                            .source_pos = places,
                            .target_in = words,
                            .target_pos = places};
    nm_tape_start(&r->tape, false, 0, 0);
    nm_model_output out = r->model->type->forward(r->model, &r->tape, &batch);
    nm_tensor *logits[2] = {nm_linear(&r->tape, out.hidden, out.weight, out.bias, NM_ACT_NONE, 0)};
    int count = 1;
    if (r->model->type == &nm_model_lm && nm_lm_of(r->model)->cluster_weight)
        logits[count++] = nm_linear(&r->tape, out.hidden, nm_lm_of(r->model)->cluster_weight,
                                    nm_lm_of(r->model)->cluster_bias, NM_ACT_NONE, 0);
    double *values = nm_allocate((size_t)TOKENS * 2 * WORDS * sizeof *values);
    *n = 0;
    for (int t = 0; t < count; t++) {
        size_t more = (size_t)logits[t]->rows * (size_t)logits[t]->cols;
        float *narrow = nm_allocate(more * sizeof *narrow);
        if (b->dtype == NM_F64)
            nm_backend_download(b, values + *n, logits[t]->data, more * sizeof *values);
        else
            nm_backend_download(b, narrow, logits[t]->data, more * sizeof *narrow);
        for (size_t i = 0; i < more && b->dtype == NM_F32; i++)
            values[*n + i] = (double)narrow[i];
        free(narrow);
        *n += more;
    }
    return values;
}

static void check_fold(nm_backend *backend, const nm_model_type *type, const char *settings, size_t folded,
                       double tolerance)
{
    rig r = rig_open(backend, type, settings);
    size_t n, again_n;
    double *before = scores(&r, &n), largest = 0;
    size_t count = nm_model_fold(r.model, NULL);
    if (count != folded)
        fail_msg("%s: %zu norms folded instead of %zu", settings, count, folded);
    assert_int_equal(nm_model_fold(r.model, NULL), folded); /* folding again changes nothing */
    double *after = scores(&r, &again_n);
    assert_int_equal(n, again_n);
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(before[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs(before[i] - after[i]) <= tolerance * largest))
            fail_msg("%s: %.9g became %.9g", settings, before[i], after[i]);
    free(before);
    free(after);
    rig_close(&r);
}

typedef struct fold_case {
    const nm_model_type *type;
    const char *settings;
    size_t folded;
} fold_case;

#define BOTH_SIDES(norm) "encoder_norm=" norm " decoder_norm=" norm " "
#define OPEN             "share_embeddings=none output_bias=true"

/* tiny: 2 + 2 layers; 2 * 2 + 1 and 2 * 3 + 1 norms, a language model of 2 layers 2 * 2 + 1 */
static const fold_case cases[] = {
    {&nm_model_seq2seq, BOTH_SIDES("batch") OPEN, 12},
    {&nm_model_seq2seq, BOTH_SIDES("batch") OPEN " norm.batch.preset=rbn", 12},
    {&nm_model_seq2seq, BOTH_SIDES("pnv") OPEN " norm.pnv.preset=rbn", 12},
    {&nm_model_seq2seq, BOTH_SIDES("power") OPEN " norm.power.scaling=none", 12},
    {&nm_model_seq2seq, BOTH_SIDES("rbn") OPEN, 12},
    {&nm_model_seq2seq, BOTH_SIDES("mabn") OPEN " norm.mabn.window=2", 12},
    {&nm_model_seq2seq, BOTH_SIDES("renorm") OPEN, 12},
    {&nm_model_seq2seq, BOTH_SIDES("repbn") OPEN, 12},
    {&nm_model_seq2seq, BOTH_SIDES("progressive") OPEN, 12},
    {&nm_model_seq2seq, BOTH_SIDES("un") OPEN, 12},
    {&nm_model_seq2seq, BOTH_SIDES("none") OPEN, 0},
    /* the decoder's default is layer */
    {&nm_model_seq2seq, "norm=batch", 5},
    {&nm_model_seq2seq, "norm=batch encoder_final_norm=layer", 4},
    /* output projection shared with an embedding, L2-normalized, without bias */
    {&nm_model_seq2seq, BOTH_SIDES("batch") "share_embeddings=all output_bias=true", 11},
    {&nm_model_seq2seq, BOTH_SIDES("batch") "share_embeddings=decoder output_bias=true", 11},
    {&nm_model_seq2seq, BOTH_SIDES("batch") "fixnorm=true " OPEN, 11},
    {&nm_model_seq2seq, BOTH_SIDES("batch") "share_embeddings=none", 11},
    {&nm_model_seq2seq, BOTH_SIDES("none") "share_embeddings=none", 0},
    /* row scaling, per-token norms, norms with a residual connection as reader */
    {&nm_model_seq2seq, BOTH_SIDES("power") OPEN, 0},
    {&nm_model_seq2seq, BOTH_SIDES("mabn") OPEN " norm.mabn.center_weights=true", 0},
    {&nm_model_seq2seq, BOTH_SIDES("batch") OPEN " norm.batch.scaling=layer", 0},
    {&nm_model_seq2seq, BOTH_SIDES("layer") OPEN, 0},
    {&nm_model_seq2seq, BOTH_SIDES("scale") OPEN, 0},
    {&nm_model_seq2seq, BOTH_SIDES("batch") OPEN " norm_position=post", 0},
    /* norms of entries of norm.at are folded independently of the other norms */
    {&nm_model_seq2seq, "norm.at=enc.0=batch,dec=rbn " OPEN, 9},
    {&nm_model_seq2seq, "norm=batch norm.at=enc.0.self=layer", 4},
    {&nm_model_seq2seq, "norm=batch norm.at=enc.final=layer", 4},
    {&nm_model_lm, "norm=batch attention=softmax layers=2 share_embeddings=false output_bias=true", 5},
    {&nm_model_lm, "norm=batch norm_position=pre attention=softmax layers=2 share_embeddings=true", 4},
    {&nm_model_lm, "norm=batch layers=2 share_embeddings=true embedding_scale=none positions=learned", 4},
    {&nm_model_lm,
     "norm=batch norm_position=pre attention=softmax layers=2 share_embeddings=false output_bias=true "
     "adaptive=true "
     "cutoffs=4,6",
     5},
    {&nm_model_lm, "norm=batch norm_position=post attention=softmax layers=2", 0},
    {&nm_model_lm, "norm=batch norm_position=pre attention=block-term layers=2 context=6 cores=2", 0},
    /* inner norms are read by a linear layer; norms of outputs, of heads and of scaled inputs are not */
    {&nm_model_lm, "norm=batch norm_position=sub layers=2", 8},
    {&nm_model_lm, "norm=batch norm_position=sandwich layers=2", 0},
    {&nm_model_lm, "norm=batch norm_position=sandwich layers=2 share_embeddings=false output_bias=true", 1},
    {&nm_model_lm, "norm=batch norm_position=inside layers=2 share_embeddings=false output_bias=true", 1},
    {&nm_model_lm, "norm=batch norm_position=mix layers=4", 0},
    {&nm_model_lm, "norm=batch residual=depth-scaled layers=2", 0},
    {&nm_model_lm, "norm=batch residual=layerscale layers=2 gated=true", 4},
    {&nm_model_lm, "norm=batch bias=false layers=2", 0},
    {&nm_model_lm,
     "norm=batch norm_position=post residual=resi-dual layers=2 share_embeddings=false output_bias=true", 0},
    {&nm_model_lm, "norm=batch embedding_norm=batch qk_norm=head qk_norm_type=batch rope=half layers=2", 4},
    {&nm_model_classifier, "norm=rbn norm_position=pre layers=2 pooling=mean", 5},
    {&nm_model_classifier, "norm=rbn norm_position=pre layers=2 pooling=first", 5},
    {&nm_model_classifier, "norm=rbn norm_position=pre layers=2 ngram_dim=3 ngram_buckets=7", 4},
    {&nm_model_classifier, "norm=rbn norm_position=post layers=2", 0}};

static void test_outputs_are_unchanged(void **state)
{
    (void)state;
    nm_backend *exact = backend_of("ref", NM_F64, 1, true), *fast = backend_of("cpu", NM_F32, 1, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_fold(exact, cases[i].type, cases[i].settings, cases[i].folded, 1e-12);
        check_fold(fast, cases[i].type, cases[i].settings, cases[i].folded, 1e-5);
    }
    nm_backend_free(exact);
    nm_backend_free(fast);
}

/* The affine map of every type equals its inference. */
static void test_affine_equals_inference(void **state)
{
    (void)state;
    enum { WIDTH = 8, ROWS = 3 };
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    int n_affine = 0;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        const nm_norm_site place = {.name = "here", .width = WIDTH, .groups = 2};
        double x[ROWS * WIDTH], y[ROWS * WIDTH], scale[WIDTH], shift[WIDTH];
        nm_norm *norm;
        nm_error err;
        assert_int_equal(nm_norm_create(&norm, backend, (*type)->name, NULL, &place, &err), NM_OK);
        vary_state(norm, backend, 1);
        for (int p = 0; p < norm->shape.n_params; p++)
            for (int i = 0; i < norm->shape.params[p].length; i++)
                ((double *)norm->params[p])[i] += draw(50 + (uint32_t)p, (size_t)i);
        for (size_t i = 0; i < ROWS * WIDTH; i++)
            x[i] = draw(99, i);
        assert_int_equal(nm_norm_infer(norm, ROWS, x, y, &err), NM_OK);
        if ((*type)->affine && (*type)->affine(norm, backend, scale, shift)) {
            n_affine++;
            for (int i = 0; i < ROWS * WIDTH; i++)
                assert_true(fabs(y[i] - (scale[i % WIDTH] * x[i] + shift[i % WIDTH])) < 1e-12);
        }
        nm_norm_free(norm);
    }
    assert_true(n_affine >= 8);
    nm_backend_free(backend);
}

static void write_plain(const nm_model *model, const char *path)
{
    nm_error err;
    nm_safetensors *like = NULL;
    if (nm_safetensors_finish(nm_safetensors_begin(), path, &err) != NM_OK ||
        nm_safetensors_open(&like, path, &err) != NM_OK ||
        nm_checkpoint_rewrite(path, model, &nm_task_translation, NM_WEIGHTS_FLOAT, like, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_safetensors_close(like);
}

/* Loading a file into a folded model restores it bitwise; it can be folded again. */
static void test_loading_unfolds(void **state)
{
    (void)state;
    char path[] = "/tmp/norma-fold-XXXXXX";
    int fd = mkstemp(path);
    nm_backend *backend = backend_of("cpu", NM_F32, 1, false);
    rig r = rig_open(backend, &nm_model_seq2seq, BOTH_SIDES("batch") OPEN);
    nm_safetensors *file;
    nm_error err;
    size_t n;
    assert_true(fd >= 0 && close(fd) == 0);
    write_plain(r.model, path);
    double *before = scores(&r, &n);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nm_model_fold(r.model, NULL), 12);
        assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
        assert_int_equal(nm_model_file_load(file, r.model, &err), NM_OK);
        nm_safetensors_close(file);
        double *after = scores(&r, &n);
        assert_memory_equal(before, after, n * sizeof *before);
        free(after);
    }
    free(before);
    unlink(path);
    rig_close(&r);
    nm_backend_free(backend);
}

static void test_same_translation(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.norm", "batch", "model.decoder_norm", "batch", NULL};
    static const int32_t one[] = {5, 4, EOS}, two[] = {3, 8, 7, 4, EOS};
    const nm_id_list sources[] = {{one, 3}, {two, 5}};
    const nm_special_tokens special = {.first = EOS, .eos = EOS, .pad = PAD, .unk = -1};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, 7, settings);
    nm_translation found[2][2];
    vary(made.model);
    for (int folded = 0; folded < 2; folded++) {
        nm_decoder *decoder;
        nm_error err;
        assert_int_equal(folded ? nm_model_fold(made.model, NULL) : 0, folded ? 11 : 0);
        assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, nm_options_find(made.options, "decode"),
                                           &special, &err),
                         NM_OK);
        assert_int_equal(nm_decode(decoder, sources, 2, found[folded], &err), NM_OK);
        nm_decoder_free(decoder);
    }
    for (int s = 0; s < 2; s++) {
        const nm_hypothesis *a = found[0][s].list, *b = found[1][s].list;
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
        assert_true(fabs(a->score - b->score) < 1e-10);
        nm_translation_release(&found[0][s]);
        nm_translation_release(&found[1][s]);
    }
    tiny_release(&made);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine_equals_inference), cmocka_unit_test(test_outputs_are_unchanged),
        cmocka_unit_test(test_loading_unfolds), cmocka_unit_test(test_same_translation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
