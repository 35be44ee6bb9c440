/* Variants, grids and the division of cores of a comparison. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "experiment/core_share.h"
#include "experiment/run_queue.h"
#include "experiment/variants.h"
#include "norm/norm_assignment.h"
#include "task/tasks.h"
#include "train/train_options.h"

static void has_setting(const nm_variant *variant, size_t i, const char *key, const char *value)
{
    assert_true(i < variant->settings.n);
    assert_string_equal(variant->settings.list[i].key, key);
    assert_string_equal(variant->settings.list[i].value, value);
}

static void test_variants_are_settings(void **state)
{
    (void)state;
    nm_variants v = {0};
    nm_error err;
    assert_int_equal(nm_variants_parse(&v, "layer,,scale+fix:norm.scale.trainable=false:x.y,rms+off", &err),
                     NM_OK);
    assert_int_equal(v.n, 3);
    has_setting(&v.list[0], 0, "model.norm", "layer");
    assert_int_equal(v.list[0].settings.n, 1);
    assert_string_equal(v.list[1].name, "scale+fix:norm.scale.trainable=false:x.y");
    has_setting(&v.list[1], 0, "model.fixnorm", "true");
    has_setting(&v.list[1], 1, "model.norm", "scale");
    has_setting(&v.list[1], 2, "norm.scale.trainable", "false");
    has_setting(&v.list[1], 3, "x.y", "true");
    has_setting(&v.list[2], 0, "model.fixnorm", "off");
    assert_int_equal(v.list[2].origin, 2);
    nm_variants_release(&v);
}

static void test_default_of_an_option_that_variants_set(void **state)
{
    (void)state;
    nm_variants v = {0};
    nm_error err;
    assert_int_equal(nm_variants_parse(&v, "layer,scale+fix", &err), NM_OK);
    nm_variants_set_default(&v, "model.norm_position", "post");
    assert_int_equal(v.list[0].settings.n, 1);
    nm_variants_set_default(&v, "model.fixnorm", "false");
    has_setting(&v.list[0], 1, "model.fixnorm", "false");
    assert_int_equal(v.list[1].settings.n, 2);
    nm_variants_release(&v);
}

/* They also keep the FixNorm of the recipe. */
static void test_norms_of_the_recipe(void **state)
{
    (void)state;
    nm_variants v = {0};
    nm_error err;
    assert_int_equal(
        nm_variants_parse(&v, "recipe,post=recipe:model.norm_position=post,scale+fix,layer", &err), NM_OK);
    assert_int_equal(v.n, 4);
    assert_string_equal(v.list[0].name, "recipe");
    nm_variants_set_default(&v, "model.fixnorm", "false");
    assert_int_equal(v.list[0].settings.n, 0);
    has_setting(&v.list[1], 0, "model.norm_position", "post");
    assert_int_equal(v.list[1].settings.n, 1);
    has_setting(&v.list[3], 1, "model.fixnorm", "false");
    nm_variants_release(&v);
}

static void test_labels_name_variants(void **state)
{
    (void)state;
    nm_variants v = {0};
    nm_error err;
    assert_int_equal(
        nm_variants_parse(&v, "PN-LS=power:norm.power.scaling=group,fixed=scale+fix,rms:a=b", &err), NM_OK);
    assert_int_equal(v.n, 3);
    assert_string_equal(v.list[0].name, "PN-LS");
    assert_int_equal(v.list[0].settings.n, 2);
    has_setting(&v.list[0], 0, "model.norm", "power");
    has_setting(&v.list[0], 1, "norm.power.scaling", "group");
    assert_string_equal(v.list[1].name, "fixed");
    has_setting(&v.list[1], 0, "model.fixnorm", "true");
    has_setting(&v.list[1], 1, "model.norm", "scale");
    assert_string_equal(v.list[2].name, "rms:a=b");
    nm_variants_release(&v);
}

static void test_malformed_variants(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",       ",",  "+fix",      ":a=b",           "layer:=3",       "layer::a=b", "layre",
        "=layer", "x=", "x=y=layer", "layer:a={b,rms", "layer:a=b},rms", "}layer{",    "layer:a=1:b=2:a=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nm_variants v = {0};
        nm_error err;
        assert_int_equal(nm_variants_parse(&v, bad[i], &err), NM_USAGE);
        nm_variants_release(&v);
    }
}

/* Braces protect commas and colons in a value, and are not part of it. */
static void test_braces_enclose_a_value(void **state)
{
    (void)state;
    nm_variants v = {0};
    nm_error err;
    assert_int_equal(
        nm_variants_parse(
            &v, "layer, mixed=layer:norm.at={enc.0=batch,enc.1=rms}:a={x:y} , rms:b={c},{d}=rms", &err),
        NM_OK);
    assert_int_equal(v.n, 4);
    assert_string_equal(v.list[1].name, "mixed");
    assert_int_equal(v.list[1].settings.n, 3);
    has_setting(&v.list[1], 0, "model.norm", "layer");
    has_setting(&v.list[1], 1, "norm.at", "enc.0=batch,enc.1=rms");
    has_setting(&v.list[1], 2, "a", "x:y");
    assert_string_equal(v.list[2].name, "rms:b={c}");
    has_setting(&v.list[2], 1, "b", "c");
    assert_string_equal(v.list[3].name, "{d}");
    nm_variants_release(&v);
    assert_int_equal(nm_variants_parse(&v, "layer:norm.at={enc.0=batch,enc.1=rms}:a={x}-{y}", &err), NM_OK);
    assert_string_equal(v.list[0].name, "layer:norm.at={enc.0=batch,enc.1=rms}:a={x}-{y}");
    has_setting(&v.list[0], 2, "a", "{x}-{y}");
    nm_variants_release(&v);
}

static nm_options *options_of(const char *text);

/* A value that was cut at its comma is neither a variant nor its name. */
static void test_values_cut_at_commas(void **state)
{
    (void)state;
    static const struct {
        const char *norms;
        bool is_cut;
    } cases[] = {{"base=layer,mixed=layer:norm.at=enc.0=batch,enc.1=rms", true},
                 {"layer:norm.at=enc.0=batch,dec.final=rms", true},
                 {"layer:norm.at=lm.0=batch,lm.1=rms", true},
                 {"layer:model.freeze=enc.0,embed", true},
                 {"layer,norm.at=rms", true},
                 {"layer,model.norm=rms", true},
                 {"layer:norm.at=enc.0=batch,v1.5=rms,encoder.2=rms,enc=rms", false},
                 {"layer:norm.layer.epsilon=0.1", false}};
    nm_options *options = options_of("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_variants v = {0};
        nm_error err;
        nm_status status = nm_variants_parse(&v, cases[i].norms, &err);
        if (status == NM_OK)
            status = nm_variants_check_names(&v, options, &err);
        assert_int_equal(status, cases[i].is_cut ? NM_USAGE : NM_OK);
        if (cases[i].is_cut)
            assert_non_null(strstr(err.text, "in braces, as in norm.at={enc.0=batch,enc.1=rms}"));
        nm_variants_release(&v);
    }
    nm_options_free(options);
}

static void test_braces_in_grids(void **state)
{
    (void)state;
    nm_variants v = {0}, p = {0};
    nm_grid grid = {0};
    nm_error err;
    nm_options *options[] = {options_of("")};
    assert_int_equal(nm_variants_parse(&v, "layer", &err), NM_OK);
    assert_int_equal(
        nm_grid_parse(&grid, "norm.at={enc.0=batch,enc.1=rms}, {enc.0=batch},{}; train.shards=1, 2", &err),
        NM_OK);
    assert_int_equal(nm_grid_expand(&grid, &v, options, &p, &err), NM_OK);
    assert_int_equal(p.n, 6);
    assert_string_equal(p.list[1].name, "layer:norm.at={enc.0=batch,enc.1=rms}:train.shards=2");
    has_setting(&p.list[1], 1, "norm.at", "enc.0=batch,enc.1=rms");
    has_setting(&p.list[1], 2, "train.shards", "2");
    assert_string_equal(p.list[2].name, "layer:norm.at=enc.0=batch:train.shards=1");
    has_setting(&p.list[4], 1, "norm.at", "");
    nm_options_free(options[0]);
    nm_grid_release(&grid);
    nm_variants_release(&v);
    nm_variants_release(&p);
}

static void test_malformed_grids(void **state)
{
    (void)state;
    static const char *const bad[] = {"a",       "=1",    "a=",     "a=1,",   "a=1,,2",
                                      "a=1;a=2", "b=1;c", "a={1,2", "a=1},2", "a={1},,{2}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nm_grid grid = {0};
        nm_error err;
        assert_int_equal(nm_grid_parse(&grid, bad[i], &err), NM_USAGE);
        nm_grid_release(&grid);
    }
}

/* The options of a translation run with the settings of the text. */
static nm_options *options_of(const char *text)
{
    nm_options *options = nm_options_create();
    nm_error err;
    nm_train_options_add(options, &nm_task_translation);
    assert_int_equal(nm_options_read_text(options, "recipe.ini", text, &err), NM_OK);
    return options;
}

static void applies(const char *text, const char *key, bool expected)
{
    nm_options *options = options_of(text);
    if (nm_norm_option_applies(options, key) != expected)
        fail_msg("%s %s to %s", key, expected ? "does not apply" : "applies", text);
    nm_options_free(options);
}

/* layer has no lambda; the last axis is fastest; every point has the settings of its variant. */
static void test_grid_points(void **state)
{
    (void)state;
    nm_variants v = {0}, p = {0};
    nm_grid grid = {0};
    nm_error err;
    nm_options *options[] = {options_of("[model]\nnorm = layer\n"), options_of("[model]\nnorm = rbn\n")};
    assert_int_equal(nm_variants_parse(&v, "layer,rbn:norm.rbn.scale=mean", &err), NM_OK);
    assert_int_equal(nm_grid_parse(&grid, "norm.rbn.lambda=0,0.1,1;", &err), NM_OK);
    assert_int_equal(nm_grid_parse(&grid, "train.max_tokens=64,128", &err), NM_OK);
    assert_int_equal(nm_grid_expand(&grid, &v, options, &p, &err), NM_OK);
    assert_int_equal(p.n, 2 + 3 * 2);
    assert_string_equal(p.list[1].name, "layer:train.max_tokens=128");
    has_setting(&p.list[1], 1, "train.max_tokens", "128");
    assert_string_equal(p.list[2].name, "rbn:norm.rbn.scale=mean:norm.rbn.lambda=0:train.max_tokens=64");
    assert_string_equal(p.list[5].name, "rbn:norm.rbn.scale=mean:norm.rbn.lambda=0.1:train.max_tokens=128");
    has_setting(&p.list[7], 1, "norm.rbn.scale", "mean");
    has_setting(&p.list[7], 2, "norm.rbn.lambda", "1");
    has_setting(&p.list[7], 3, "train.max_tokens", "128");
    for (size_t i = 0; i < p.n; i++)
        assert_true(p.list[i].point && p.list[i].origin == (i < 2 ? 0 : 1));
    nm_options_free(options[0]);
    nm_options_free(options[1]);
    nm_grid_release(&grid);
    nm_variants_release(&v);
    nm_variants_release(&p);
}

/* The values rbn of other options are no norms: model.init, presets. */
static void test_settings_apply_to_their_norm(void **state)
{
    (void)state;
    applies("[model]\nnorm = layer\n", "norm.rbn.lambda", false);
    applies("[model]\nnorm = layer\ninit = rbn\n[norm.batch]\npreset = rbn\n", "norm.rbn.lambda", false);
    applies("[model]\nnorm = layer\nencoder_norm = rbn\n", "norm.rbn.lambda", true);
    applies("[norm]\nat = enc.0=rbn\n", "norm.rbn.lambda", true);
    applies("[model]\nnorm = layer\n", "norm.at", true);
    applies("[model]\nnorm = layer\n", "norm.layer.epsilon", true);
    applies("[model]\nnorm = rms\n", "norm.layer.epsilon", false);
    applies("[model]\nnorm = rbn\n", "norm.layer.epsilon", true); /* of the decoder */
    applies("[model]\nnorm = rbn\ndecoder_norm = rms\n", "norm.layer.epsilon", false);
    applies("[model]\nnorm = layer\n", "norm.rms.epsilon", false); /* model.qk_norm_type is rms */
    applies("[model]\nnorm = layer\nqk_norm = head\n", "norm.rms.epsilon", true);
    applies("[model]\nnorm = layer\n", "norm.state", false);
    applies("[model]\nnorm = layer\n", "norm.statistics", false);
    applies("[model]\nnorm = batch\n", "norm.state", true);
    applies("[norm]\nat = dec.final=power\n", "norm.statistics", true);
    applies("[model]\nnorm = batch\n", "norm.groups", false);
    applies("[model]\nnorm = batch\n[norm.batch]\nscaling = group\n", "norm.groups", true);
    applies("[model]\nnorm = power\n", "norm.groups", true);
    applies("[model]\nnorm = power\n[norm.power]\nscaling = none\n", "norm.groups", false);
    applies("[model]\nnorm = group\n", "norm.groups", true);
    applies("[model]\nnorm = group\n[norm.group]\ngroups = 4\n", "norm.groups", false);
}

static void test_axes_apply_to_their_norm(void **state)
{
    (void)state;
    nm_variants v = {0}, p = {0};
    nm_grid grid = {0};
    nm_error err;
    nm_options *plain[] = {options_of("[model]\nnorm = layer\n")},
               *mixed[] = {options_of("[model]\nencoder_norm = rbn\n")};
    assert_int_equal(nm_variants_parse(&v, "layer", &err), NM_OK);
    assert_int_equal(nm_grid_parse(&grid, "norm.rbn.lambda=0", &err), NM_OK);
    assert_int_equal(nm_grid_expand(&grid, &v, plain, &p, &err), NM_USAGE);
    nm_variants_release(&p);
    assert_int_equal(nm_grid_expand(&grid, &v, mixed, &p, &err), NM_OK);
    assert_int_equal(p.n, 1);
    assert_false(p.list[0].point); /* a single value is set without being a grid */
    has_setting(&p.list[0], 1, "norm.rbn.lambda", "0");
    nm_variants_release(&p);
    nm_grid_release(&grid);
    /* Options of [norm] itself are no options of a norm. */
    assert_int_equal(nm_grid_parse(&grid, "norm.at=enc.0=batch,enc.0-1=batch", &err), NM_OK);
    assert_int_equal(nm_grid_expand(&grid, &v, plain, &p, &err), NM_OK);
    assert_int_equal(p.n, 2);
    has_setting(&p.list[1], 1, "norm.at", "enc.0-1=batch");
    nm_options_free(plain[0]);
    nm_options_free(mixed[0]);
    nm_grid_release(&grid);
    nm_variants_release(&v);
    nm_variants_release(&p);
}

/* A setting of all variants belongs to those that have its norm, also at the points of a grid. */
static void test_common_settings(void **state)
{
    (void)state;
    nm_variants v = {0}, p = {0};
    nm_grid grid = {0};
    nm_settings common = {0};
    nm_error err;
    nm_options *options[] = {options_of("[model]\nnorm = layer\n"), options_of("[model]\nnorm = rbn\n")};
    assert_int_equal(nm_variants_parse(&v, "layer,rbn", &err), NM_OK);
    assert_int_equal(nm_grid_parse(&grid, "train.max_tokens=64,128", &err), NM_OK);
    nm_settings_add(&common, "norm.rbn.lambda", "3");
    nm_settings_add(&common, "train.updates", "9");
    assert_int_equal(nm_variants_exclude(&v, &common, options, &err), NM_OK);
    assert_int_equal(nm_grid_expand(&grid, &v, options, &p, &err), NM_OK);
    assert_int_equal(p.n, 4);
    for (size_t i = 0; i < p.n; i++)
        assert_int_equal(p.list[i].excluded.n, i < 2);
    assert_string_equal(p.list[1].excluded.list[0].key, "norm.rbn.lambda");
    nm_settings_add(&common, "norm.power.decay", "0");
    assert_int_equal(nm_variants_exclude(&v, &common, options, &err), NM_USAGE);
    assert_string_equal(err.text, "norm.power.decay = 0 has no effect: no variant has this norm");
    nm_options_free(options[0]);
    nm_options_free(options[1]);
    nm_settings_release(&common);
    nm_grid_release(&grid);
    nm_variants_release(&v);
    nm_variants_release(&p);
}

static void test_too_many_points(void **state)
{
    (void)state;
    nm_variants v = {0}, p = {0};
    nm_grid grid = {0};
    nm_error err;
    nm_options *options[] = {options_of("")};
    assert_int_equal(nm_variants_parse(&v, "layer", &err), NM_OK);
    assert_int_equal(nm_grid_parse(&grid, "a=1,2,3,4,5,6,7,8,9,10;b=1,2,3,4,5,6,7,8,9,10", &err), NM_OK);
    assert_int_equal(nm_grid_parse(&grid, "c=1,2,3,4,5,6,7,8,9,10;d=1,2,3,4,5,6,7,8,9,10;e=1,2", &err),
                     NM_OK);
    assert_int_equal(nm_grid_expand(&grid, &v, options, &p, &err), NM_USAGE);
    nm_options_free(options[0]);
    nm_grid_release(&grid);
    nm_variants_release(&v);
    nm_variants_release(&p);
}

static void test_no_core_is_idle(void **state)
{
    (void)state;
    for (int64_t cores = 1; cores <= 64; cores++)
        for (int64_t n = 0; n <= 40; n++) {
            nm_core_share s = nm_core_share_of(n, 0, 0, cores);
            assert_int_equal(s.jobs * s.threads, cores);
            assert_true(s.jobs <= (n ? n : 1));
            for (int64_t more = s.jobs + 1; more <= n && more <= cores; more++)
                assert_true(cores % more); /* more parallel runs would leave a core idle */
            assert_int_equal(nm_core_share_of(n, 0, 4, cores).threads, 4);
            assert_int_equal(nm_core_share_of(n, 0, 4, cores).jobs, cores < 4 ? 1 : cores / 4);
            assert_int_equal(nm_core_share_of(n, 3, 0, cores).jobs, 3);
            if (n >= 3 && cores >= 3)
                assert_true(3 * nm_core_share_of(n, 3, 0, cores).threads <= cores);
            assert_true(nm_core_share_of(n, 3, 0, cores).threads >= 1);
        }
    assert_int_equal(nm_core_share_of(5, 0, 0, 8).jobs, 4);
}

/* A recipe that sets encoder_norm varies that norm; the model's other norms stay. */
static void test_variant_replaces_the_norm_that_the_recipe_varies(void **state)
{
    (void)state;
    nm_error err;
    nm_options *options = nm_options_create();
    nm_train_options_add(options, &nm_task_translation);
    assert_string_equal(nm_norm_option(options), "model.norm");
    const char recipe[] = "[model]\nnorm = layer\nencoder_norm = power\n";
    assert_int_equal(nm_options_read_text(options, "recipe.ini", recipe, &err), NM_OK);
    assert_string_equal(nm_norm_option(options), "model.encoder_norm");
    nm_options_free(options);
    options = nm_options_create();
    nm_train_options_add(options, &nm_task_lm); /* has no encoder_norm */
    assert_string_equal(nm_norm_option(options), "model.norm");
    nm_options_free(options);
}

/* A norm that only norm.at names belongs to the model: axes and differences of its options count. */
static void test_norms_of_single_sites(void **state)
{
    (void)state;
    nm_error err;
    const char recipe[] = "[model]\nnorm = layer\n[norm]\nat = enc.0=rms,enc.1.ffn=batch\n";
    nm_options *options[2];
    char *texts[2];
    for (int i = 0; i < 2; i++)
        options[i] = options_of(recipe);
    assert_int_equal(nm_options_set(options[1], "norm.batch.epsilon", "0.5", NM_ORIGIN_COMMAND, &err), NM_OK);
    for (int i = 0; i < 2; i++)
        texts[i] = nm_configuration_text(options[i], options[i]);
    assert_string_not_equal(texts[0], texts[1]);
    assert_non_null(strstr(texts[0], "[norm.batch]"));
    assert_null(strstr(texts[0], "[norm.power]"));
    assert_true(nm_norm_option_applies(options[0], "norm.batch.epsilon"));
    assert_false(nm_norm_option_applies(options[0], "norm.power.decay"));
    for (int i = 0; i < 2; i++) {
        free(texts[i]);
        nm_options_free(options[i]);
    }
}

static char *configuration(const char *recipe, nm_origin origin, const char *key, const char *value)
{
    nm_error err;
    nm_options *options = nm_options_create();
    nm_train_options_add(options, &nm_task_translation);
    assert_int_equal(nm_options_set(options, key, value, origin, &err), NM_OK);
    assert_int_equal(nm_options_read_text(options, "recipe.ini", recipe, &err), NM_OK);
    char *text = nm_configuration_text(options, options);
    nm_options_free(options);
    return text;
}

/* Origins and options of norms that the model does not have make no difference; values and options of its
 * norms do. The decoder uses layer where the norm is batch. */
static void test_configurations_are_compared_by_effect(void **state)
{
    (void)state;
    const char layer[] = "[model]\nnorm = layer\n", batch[] = "[model]\nnorm = batch\n";
    char *texts[] = {configuration(layer, NM_ORIGIN_COMMAND, "model.norm", "layer"),
                     configuration(layer, NM_ORIGIN_COMMAND, "norm.batch.epsilon", "0.5"),
                     configuration(layer, NM_ORIGIN_COMMAND, "norm.layer.epsilon", "0.5"),
                     configuration(batch, NM_ORIGIN_COMMAND, "model.norm", "batch"),
                     configuration(batch, NM_ORIGIN_COMMAND, "norm.batch.epsilon", "0.5"),
                     configuration(batch, NM_ORIGIN_COMMAND, "norm.layer.epsilon", "0.5")};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++)
            assert_int_equal(!strcmp(texts[i], texts[k]), i == 1 && k == 0);
    for (int i = 0; i < 6; i++)
        free(texts[i]);
}

/* An empty norm is the one that it defaults to: norms that are set to it make no difference. */
static void test_empty_norms_are_resolved(void **state)
{
    (void)state;
    static const char *const settings[][3] = {
        {"layer", "encoder_norm", "layer"},       {"layer", "encoder_final_norm", "layer"},
        {"rms", "decoder_norm", "rms"},           {"rms", "decoder_final_norm", "rms"},
        {"batch", "decoder_norm", "layer"},       {"batch", "decoder_final_norm", "layer"},
        {"batch", "encoder_final_norm", "batch"}, {"layer", "encoder_final_norm", "rms"},
        {"batch", "decoder_norm", "batch"},       {"rms", "decoder_final_norm", "layer"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char *recipe = nm_format("[model]\nnorm = %s\n", settings[i][0]);
        char *path = nm_format("model.%s", settings[i][1]);
        char *empty = configuration(recipe, NM_ORIGIN_COMMAND, path, ""),
             *given = configuration(recipe, NM_ORIGIN_COMMAND, path, settings[i][2]);
        assert_int_equal(!strcmp(empty, given), i < 7);
        free(recipe);
        free(path);
        free(empty);
        free(given);
    }
}

/* The examples of a validation hide neither the validation nor the progress, the messages of a launcher not
 * that of Norma. */
static void test_last_line_of_a_run(void **state)
{
    (void)state;
    char folder[] = "/tmp/norma-test-XXXXXX", line[64];
    assert_non_null(mkdtemp(folder));
    char *path = nm_path_join(folder, "log.txt");
    /* text, last line, last message */
    static const char *const texts[][3] = {
        {"update 1\nvalid: loss 2\n  source: a\n  output: b\n  reference: c\n", "valid: loss 2", ""},
        {"update 1\nupdate\t2\n", "update 2", ""},
        {"norma: warning: w\nnorma: failed\n----\nPrimary job ended\n  Exit code:    2\n----\n\n",
         "Primary job ended", "norma: failed"},
        {"norma: failed", "norma: failed", "norma: failed"},
        {"  source: a\n", "  source: a", ""},
        {"", "", ""}};
    nm_last_line(path, line, sizeof line);
    assert_string_equal(line, "");
    nm_last_message(path, line, sizeof line);
    assert_string_equal(line, "");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(texts[i][0], file);
        fclose(file);
        nm_last_line(path, line, sizeof line);
        assert_string_equal(line, texts[i][1]);
        nm_last_message(path, line, sizeof line);
        assert_string_equal(line, texts[i][2]);
    }
    unlink(path);
    rmdir(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants_are_settings),
        cmocka_unit_test(test_default_of_an_option_that_variants_set),
        cmocka_unit_test(test_norms_of_the_recipe),
        cmocka_unit_test(test_labels_name_variants),
        cmocka_unit_test(test_malformed_variants),
        cmocka_unit_test(test_braces_enclose_a_value),
        cmocka_unit_test(test_values_cut_at_commas),
        cmocka_unit_test(test_malformed_grids),
        cmocka_unit_test(test_braces_in_grids),
        cmocka_unit_test(test_grid_points),
        cmocka_unit_test(test_settings_apply_to_their_norm),
        cmocka_unit_test(test_axes_apply_to_their_norm),
        cmocka_unit_test(test_common_settings),
        cmocka_unit_test(test_too_many_points),
        cmocka_unit_test(test_no_core_is_idle),
        cmocka_unit_test(test_variant_replaces_the_norm_that_the_recipe_varies),
        cmocka_unit_test(test_norms_of_single_sites),
        cmocka_unit_test(test_configurations_are_compared_by_effect),
        cmocka_unit_test(test_empty_norms_are_resolved),
        cmocka_unit_test(test_last_line_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
