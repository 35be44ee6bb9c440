/* norm.at, norms of single sites: naming every layer equals setting the norm globally, bit for bit, in every
 * model; entries select the sites that they name; entries that cannot apply are errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "model/tagger_model.h"

enum { VOCAB = 11, SEQS = 3, TOKENS = 12 };

static const int32_t offsets[] = {0, 5, 9, TOKENS};
static const int32_t ids[] = {5, 4, 3, 7, 2, 8, 6, 4, 2, 9, 10, 2},
                     pos[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2};
#define PACKING                                                                                              \
    {                                                                                                        \
        .n_seqs = SEQS, .n_tokens = TOKENS, .longest = 5, .offsets = offsets                                 \
    }
static const nm_batch batch = {.n = SEQS,
                               .n_targets = TOKENS,
                               .source = PACKING,
                               .target = PACKING,
                               .source_ids = ids,
                               .source_pos = pos,
                               .target_in = ids,
                               .target_out = ids,
                               .target_pos = pos};

typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    nm_tape tape;
} rig;

/* settings: "model.norm=batch norm.at=enc=layer" */
static nm_status rig_open(rig *r, const nm_model_type *type, const char *settings, nm_error *err)
{
    static const char common[] = "model.preset=tiny model.width=16 model.ff=24 model.heads=2 ";
    static const nm_tagger_model_sizes more = {.chars = 7, .bigrams = 5};
    static const nm_model_sizes sizes = {
        .source = VOCAB, .target = VOCAB, .plan = {.warmup_updates = 7}, .more = &more};
    static const nm_backend_options device = {.name = "ref", .dtype = NM_F64, .threads = 1};
    char text[512], *rest = text;
    snprintf(text, sizeof text, "%s%s", common, settings);
    *r = (rig){.options = nm_options_create()};
    assert_int_equal(nm_backend_create(&r->backend, &device, err), NM_OK);
    nm_model_options_add(r->options, type);
    nm_norm_options_add(r->options);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = 0;
        if (nm_options_set(r->options, word, value, NM_ORIGIN_COMMAND, err) != NM_OK)
            fail_msg("%s", err->text);
    }
    NM_TRY(nm_model_create(&r->model, type, r->backend, r->options, &sizes, true, err));
    nm_params_initialize(&r->model->params, 5);
    return nm_tape_init(&r->tape, r->backend, (size_t)16 << 20, err);
}

static void rig_close(rig *r)
{
    nm_tape_release(&r->tape);
    nm_model_free(r->model);
    nm_options_free(r->options);
    nm_backend_free(r->backend);
}

/* One training step without the update: values, gradients and running statistics are compared afterwards. */
static void run_step(rig *r)
{
    nm_error err;
    nm_loss_spec spec = {.targets = ids};
    nm_tape_start(&r->tape, true, 5, 3);
    nm_model_output out = r->model->type->forward(r->model, &r->tape, &batch);
    assert_non_null(nm_softmax_loss_of(&r->tape, out.hidden, out.weight, out.bias, &spec));
    assert_int_equal(nm_tape_backward(&r->tape, &err), NM_OK);
}

static void assert_same_model(const nm_model *a, const nm_model *b)
{
    assert_int_equal(a->params.n, b->params.n);
    assert_int_equal(a->params.n_norms, b->params.n_norms);
    for (size_t i = 0; i < a->params.n_norms; i++) {
        const nm_norm *left = a->params.norms[i], *right = b->params.norms[i];
        assert_string_equal(left->type->name, right->type->name);
        assert_memory_equal(left->counters, right->counters, sizeof left->counters);
    }
    size_t bytes = nm_params_bytes(&a->params), unit = nm_dtype_bytes(NM_F64);
    assert_memory_equal(a->params.values, b->params.values, bytes);
    assert_memory_equal(a->params.grads, b->params.grads, bytes);
    assert_int_equal(a->params.n_state, b->params.n_state);
    if (a->params.n_state)
        assert_memory_equal(a->params.state, b->params.state, a->params.n_state * unit);
}

typedef struct identity {
    const nm_model_type *type;
    const char *global, *by_site; /* %s: the norm */
} identity;

static const identity identities[] = {
    {&nm_model_seq2seq, "model.encoder_norm=%s model.decoder_norm=%s",
     "norm.at=enc.0-1=%s,enc.final=%s,dec.0=%s,dec.1=%s,dec.final=%s"},
    {&nm_model_seq2seq, "model.norm_position=post model.encoder_norm=%s",
     "model.norm_position=post norm.at=enc.0=%s,enc.1=%s"},
    {&nm_model_lm, "model.norm=%s", "norm.at=lm.0.self=%s,lm.0.ffn=%s,lm.1=%s,lm.final=%s"},
    {&nm_model_lm, "model.attention=block-term model.causal=true model.context=5 model.norm=%s",
     "model.attention=block-term model.causal=true model.context=5 norm.at=lm=%s"},
    {&nm_model_classifier, "model.layers=2 model.norm_position=pre model.norm=%s",
     "model.layers=2 model.norm_position=pre norm.at=enc.0-1=%s,enc.final=%s"},
    {&nm_model_tagger, "model.layers=2 model.char_dim=0 model.norm=%s",
     "model.layers=2 model.char_dim=0 norm.at=enc.0-1=%s"},
    /* sites that only some structures have */
    {&nm_model_lm, "model.norm_position=sandwich model.norm=%s",
     "model.norm_position=sandwich norm.at=lm.0.self=%s,lm.0.ffn=%s,lm.1=%s,lm.final=%s"},
    {&nm_model_lm, "model.norm_position=sub model.norm=%s", "model.norm_position=sub norm.at=lm=%s"},
    {&nm_model_lm, "model.qk_norm=full model.qk_norm_type=%s",
     "model.qk_norm=full norm.at=lm.0.self.query=%s,lm.0.self.key=%s,lm.1.self.query=%s,lm.1.self.key=%s"},
};

static void test_every_layer_equals_global(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof identities / sizeof *identities; i++)
        for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
            const identity *c = &identities[i];
            const char *n = (*type)->name;
            char global[512], by_site[512];
            rig a, b;
            nm_error err = {0};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
            snprintf(global, sizeof global, c->global, n, n);
            snprintf(by_site, sizeof by_site, c->by_site, n, n, n, n, n);
#pragma GCC diagnostic pop
            if (rig_open(&a, c->type, global, &err) != NM_OK || rig_open(&b, c->type, by_site, &err) != NM_OK)
                fail_msg("%s: %s", by_site, err.text);
            run_step(&a);
            run_step(&b);
            assert_same_model(a.model, b.model);
            rig_close(&a);
            rig_close(&b);
        }
}

static const char *type_at(const rig *r, const char *site)
{
    for (size_t i = 0; i < r->model->params.n_norms; i++)
        if (!strcmp(r->model->params.norms[i]->site.name, site))
            return r->model->params.norms[i]->type->name;
    fail_msg("no site %s", site);
    return NULL;
}

static void test_entries_select_sites(void **state)
{
    (void)state;
    rig r;
    nm_error err;
    assert_int_equal(
        rig_open(&r, &nm_model_seq2seq,
                 "model.encoder_layers=12 model.decoder_layers=2 model.norm=rms "
                 "norm.at=enc.0-2=batch,enc.1.ffn=layer,enc.10-11=power,dec.1.self=scale,dec.final=none",
                 &err),
        NM_OK);
    static const char *const expected[][2] = {
        {"enc.0.self.norm", "batch"},  {"enc.1.self.norm", "batch"}, {"enc.1.ffn.norm", "layer"},
        {"enc.2.ffn.norm", "batch"},   {"enc.3.self.norm", "rms"},   {"enc.9.self.norm", "rms"},
        {"enc.10.self.norm", "power"}, {"enc.11.ffn.norm", "power"}, {"enc.final.norm", "rms"},
        {"dec.0.self.norm", "rms"},    {"dec.1.self.norm", "scale"}, {"dec.1.cross.norm", "rms"},
        {"dec.final.norm", "none"}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(type_at(&r, expected[i][0]), expected[i][1]);
    rig_close(&r);
}

static void assert_refused(const char *at, const char *text)
{
    rig r;
    nm_error err = {0};
    char settings[256];
    snprintf(settings, sizeof settings, "norm.at=%s", at);
    if (rig_open(&r, &nm_model_seq2seq, settings, &err) != NM_USAGE || !strstr(err.text, text))
        fail_msg("%s: '%s' is not in: %s", at, text, err.text);
    nm_options_free(r.options);
    nm_backend_free(r.backend);
}

static void test_entries_that_cannot_apply(void **state)
{
    (void)state;
    assert_refused("enc.2=batch",
                   "no site 'enc.2'; its sites are enc.0.self, enc.0.ffn, enc.1.self, enc.1.ffn, ..., ");
    assert_refused("enc.0=batch,lm.0=batch", "no site 'lm.0'");
    assert_refused("enc.0-5=batch", "norm.at: enc.0-5=batch: enc has 2 layers, numbered from 0");
    assert_refused("enc.0-1=batch,dec.1-2.ffn=rms", "norm.at: dec.1-2.ffn=rms: dec has 2 layers");
    assert_refused("enc.0.cross=batch", "no site 'enc.0.cross'");
    assert_refused("enc.0-5.self.x=batch", "no site 'enc.0-5.self.x'");
    assert_refused("e=batch", "no site 'e'");
    assert_refused("enc.0=batch,enc=rms", "enc.0=batch has no effect");
    assert_refused("enc.0=bath", "norm.at: enc.0=bath: unknown norm 'bath'");
    assert_refused("enc.0", "'enc.0' is not of the form SITES=NORM");
    assert_refused("enc.0=", "'enc.0=' is not of the form");
    assert_refused("enc.1-0=batch", "'enc.1-0=batch' is not of the form");
    assert_refused("enc=batch,,dec=batch", "'' is not of the form");
    assert_refused("=batch", "'=batch' is not of the form");
}

/* PowerNorm with warm-up "lr" has 1000 warm-up steps in the final norm of a translation encoder only. */
static void test_final_norm_of_a_classifier(void **state)
{
    (void)state;
    rig r;
    nm_error err;
    assert_int_equal(rig_open(&r, &nm_model_classifier, "model.norm_position=pre model.norm=power", &err),
                     NM_OK);
    for (size_t i = 0; i < r.model->params.n_norms; i++) {
        assert_false(r.model->params.norms[i]->site.kind == NM_SITE_ENCODER_FINAL);
        assert_int_equal(r.model->params.norms[i]->site.plan.warmup_updates, 7);
    }
    rig_close(&r);
    assert_int_equal(rig_open(&r, &nm_model_seq2seq, "model.norm=power", &err), NM_OK);
    assert_true(r.model->params.norms[4]->site.kind == NM_SITE_ENCODER_FINAL);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layer_equals_global), cmocka_unit_test(test_entries_select_sites),
        cmocka_unit_test(test_entries_that_cannot_apply), cmocka_unit_test(test_final_norm_of_a_classifier)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
