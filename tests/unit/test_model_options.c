/* Model options without effect in a configuration: an error that names the reason if set on the command line,
 * a warning if set by a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/model.h"

typedef struct rule_case {
    const nm_model_type *type;
    const char *others;         /* settings of the configuration, "model.attention=softmax" */
    const char *option, *value; /* has no effect with them */
    const char *reason;         /* part of the message */
} rule_case;

static const rule_case refused[] = {
    {&nm_model_seq2seq, "model.norm_position=post", "model.encoder_final_norm", "batch", "no final norm"},
    {&nm_model_seq2seq, "model.norm_position=post", "model.decoder_final_norm", "layer", "no final norm"},
    {&nm_model_lm, "model.norm_position=post", "model.final_norm", "rms", "no final norm"},
    {&nm_model_lm, "model.attention=softmax", "model.cores", "2", "no cores"},
    {&nm_model_lm, "model.attention=softmax", "model.core_width", "40", "no cores"},
    {&nm_model_lm, "model.attention=block-term", "model.attention_dropout", "0.1", "no attention weights"},
    {&nm_model_lm, "model.adaptive=false", "model.cutoffs", "4,6", "only the adaptive softmax"},
    {&nm_model_classifier, "model.norm_position=post", "model.final_norm", "rms", "no final norm"},
    {&nm_model_classifier, "model.positions=none", "model.max_positions", "256", "not limited"},
    {&nm_model_lm, "model.norm_position=pre", "model.post_layers", "1", "only mix"},
    {&nm_model_lm, "model.residual=plain", "model.layer_scale", "1e-4", "only layerscale"},
    {&nm_model_lm, "model.rope=none", "model.rope_base", "500000", "no rotary position embeddings"},
    {&nm_model_lm, "model.qk_norm=none", "model.qk_norm_type", "layer", "not normalized"},
    {&nm_model_lm, "model.rope=half", "model.qk_norm_after_rope", "true",
     "needs model.rope and model.qk_norm"},
    {&nm_model_lm, "model.attention=block-term", "model.rope", "half", "block-term attention"},
    {&nm_model_lm, "model.attention=block-term", "model.qk_norm", "head", "block-term attention"},
    {&nm_model_tagger, "model.heads=4", "model.key_value_heads", "2", "relative positions"},
    {&nm_model_tagger, "model.heads=4", "model.head_width", "8", "relative positions"},
    {&nm_model_tagger, "model.heads=4", "model.v_norm", "head", "relative positions"},
    {&nm_model_tagger, "model.char_dim=0", "model.char_dropout", "0.2", "no character encoder"},
};

static const rule_case accepted[] = {
    {&nm_model_seq2seq, "model.norm_position=pre", "model.encoder_final_norm", "batch", ""},
    {&nm_model_seq2seq, "model.norm_position=post", "model.encoder_final_norm", "none", ""},
    {&nm_model_lm, "model.attention=block-term", "model.cores", "2", ""},
    {&nm_model_lm, "model.preset=medium", "model.attention_dropout", "0.2", ""},
    {&nm_model_lm, "model.adaptive=true", "model.cutoffs", "4,6", ""},
    {&nm_model_classifier, "model.positions=learned", "model.max_positions", "256", ""},
    {&nm_model_classifier, "model.rope=half", "model.max_positions", "256", ""},
    {&nm_model_lm, "model.residual=resi-dual", "model.final_norm", "rms", ""},
    {&nm_model_lm, "model.norm_position=mix", "model.post_layers", "1", ""},
    {&nm_model_lm, "model.v_norm=head", "model.qk_norm_type", "layer", ""},
    {&nm_model_tagger, "model.preset=conll", "model.char_dropout", "0.2", ""},
};

static nm_status check(const rule_case *c, nm_origin origin, char **warning, nm_error *err)
{
    nm_options *options = nm_options_create();
    char name[64];
    const char *equals = strchr(c->others, '=');
    nm_model_options_add(options, c->type);
    nm_norm_options_add(options);
    snprintf(name, sizeof name, "%.*s", (int)(equals - c->others), c->others);
    assert_int_equal(nm_options_set(options, name, equals + 1, origin, err), NM_OK);
    assert_int_equal(nm_options_set(options, c->option, c->value, origin, err), NM_OK);
    nm_status status = nm_options_check(options, warning, err);
    nm_options_free(options);
    return status;
}

static void test_options_without_effect(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const rule_case *c = &refused[i];
        nm_error err;
        char *warning;
        assert_int_equal(check(c, NM_ORIGIN_COMMAND, &warning, &err), NM_USAGE);
        assert_null(warning);
        if (!strstr(err.text, c->option) || !strstr(err.text, c->reason))
            fail_msg("%s", err.text);
        assert_int_equal(check(c, NM_ORIGIN_FILE, &warning, &err), NM_OK);
        assert_non_null(warning);
        if (!strstr(warning, c->option) || !strstr(warning, c->reason))
            fail_msg("%s", warning);
        free(warning);
    }
}

static void test_options_with_effect(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        nm_error err;
        char *warning;
        if (check(&accepted[i], NM_ORIGIN_COMMAND, &warning, &err) != NM_OK)
            fail_msg("%s", err.text);
        assert_null(warning);
    }
}

typedef struct preset_case {
    const nm_model_type *type;
    const char *recipe[3], *command[3]; /* settings of the file, then of the command line */
    const char *kept;                   /* "path=value" that results, or NULL: NM_USAGE */
    const char *message;                /* part of the error, or of the warning ("": none) */
} preset_case;

static const preset_case presets[] = {
    /* A size leaves the structure as it is, whether keys or a preset of the recipe set it. */
    {&nm_model_seq2seq, {"preset=tears", "init=small"}, {"preset=tiny"}, "model.init=small", ""},
    {&nm_model_lm, {"preset=llama"}, {"preset=tiny"}, "model.norm=rms", ""},
    {&nm_model_lm, {"preset=llama"}, {"preset=tiny"}, "model.width=64", ""},
    {&nm_model_lm, {"preset=medium"}, {"preset=tiny"}, "model.attention_dropout=0", ""},
    /* A structure leaves sizes as they are, and replaces another structure as a whole. */
    {&nm_model_lm, {"preset=medium"}, {"preset=llama"}, "model.width=256", ""},
    {&nm_model_lm, {"preset=olmo2"}, {"preset=gpt2"}, "model.qk_norm=none", ""},
    /* Half of a structure is an error until the option that decides it is given. */
    {&nm_model_lm, {"preset=medium", "init=small"}, {"preset=deepnet"}, NULL, "--model.init small keeps"},
    {&nm_model_lm,
     {"preset=medium", "init=small"},
     {"preset=deepnet", "init=small"},
     "model.residual=deepnorm",
     ""},
    {&nm_model_lm, {"preset=medium", "init=deepnorm"}, {"preset=deepnet"}, "model.residual=deepnorm", ""},
    {&nm_model_seq2seq, {"preset=tears", "init=small"}, {"preset=tfixup"}, NULL, "--model.init small keeps"},
    {&nm_model_seq2seq, {"preset=tears"}, {"preset=tfixup"}, "model.width=512", ""},
    {&nm_model_seq2seq, {"preset=tears"}, {"preset=tfixup"}, "model.init=tfixup", ""},
    {&nm_model_seq2seq, {"preset=tfixup"}, {"preset=tiny"}, "model.norm=none", ""},
    /* Sizes of the recipe that replace those of the preset are a warning. */
    {&nm_model_lm, {"width=96"}, {"preset=tiny"}, "model.width=96", "model.width = 96"}};

static void test_presets_and_recipes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const preset_case *c = &presets[i];
        nm_options *options = nm_options_create();
        nm_error err = {0};
        char *warning = NULL;
        nm_model_options_add(options, c->type);
        nm_norm_options_add(options);
        for (int j = 0; j < 6; j++) {
            const char *setting = j < 3 ? c->recipe[j] : c->command[j - 3], *equals;
            if (!setting)
                continue;
            equals = strchr(setting, '=');
            char *path = nm_format("model.%.*s", (int)(equals - setting), setting);
            nm_origin origin = j < 3 ? NM_ORIGIN_FILE : NM_ORIGIN_COMMAND;
            assert_int_equal(nm_options_set(options, path, equals + 1, origin, &err), NM_OK);
            free(path);
        }
        nm_status status = nm_options_check(options, &warning, &err);
        assert_int_equal(status, c->kept ? NM_OK : NM_USAGE);
        const char *said = status == NM_OK ? (warning ? warning : "") : err.text;
        if (!strstr(said, c->message) || (!*c->message && *said))
            fail_msg("case %zu: %s", i, said);
        if (c->kept) {
            const char *equals = strchr(c->kept, '=');
            char *path = nm_format("%.*s", (int)(equals - c->kept), c->kept);
            char *value = nm_options_get(options, path);
            assert_string_equal(value, equals + 1);
            free(path);
            free(value);
        }
        free(warning);
        nm_options_free(options);
    }
}

/* A configuration that was saved before an option existed has the earlier behavior, whatever its preset sets
 * now; a recipe with the preset has the setting of the preset. */
static void test_saved_configurations(void **state)
{
    (void)state;
    static const char text[] = "[model]\npreset = gpt2 ; command line\nshare_embeddings = true ; default\n";
    for (int saved = 0; saved < 2; saved++) {
        nm_options *options = nm_options_create();
        nm_error err = {0};
        nm_model_options_add(options, &nm_model_lm);
        nm_norm_options_add(options);
        nm_status status = saved ? nm_options_read_saved(options, "config.ini", text, &err)
                                 : nm_options_read_text(options, "recipe.ini", text, &err);
        assert_int_equal(status, NM_OK);
        char *scale = nm_options_get(options, "model.embedding_scale");
        assert_string_equal(scale, saved ? "sqrt" : "none");
        free(scale);
        nm_options_free(options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_without_effect), cmocka_unit_test(test_presets_and_recipes),
        cmocka_unit_test(test_saved_configurations), cmocka_unit_test(test_options_with_effect)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
