/* train.activation_checkpointing = layer needs less memory than none and gives, in float and in bf16, bitwise
 * identical weights and logs (penalties, running statistics and instruments included), for every norm and any
 * number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/tiny_run.h"

typedef struct outcome {
    uint64_t hash;
    size_t bytes;
    char *log; /* without times and memory */
    char *folder;
} outcome;

static outcome run(const char *const *settings)
{
    nm_error err;
    nm_options *options = tiny_options(settings);
    nm_probe *probe;
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_OK);
    nm_train_callbacks callbacks = {.hooks = nm_probe_hooks(probe)};
    nm_trainer *trainer;
    outcome o = {.folder = tiny_folder()};
    if (nm_trainer_open(&trainer, &nm_task_translation, options, o.folder, false, &callbacks, &err) !=
            NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    o.hash = nm_trainer_weights_hash(trainer);
    o.bytes = nm_trainer_peak_bytes(trainer);
    o.log = tiny_log(o.folder);
    nm_probe_free(probe);
    nm_trainer_close(trainer);
    nm_options_free(options);
    return o;
}

static void release(outcome *o)
{
    tiny_data_remove(o->folder);
    free(o->log);
}

static void assert_exact(const char *norm, const char *norm_position, const char *threads,
                         const char *precision)
{
    const char *settings[] = {"train.activation_checkpointing",
                              "none",
                              "model.norm",
                              norm,
                              "model.decoder_norm",
                              norm,
                              "model.norm_position",
                              norm_position,
                              "device.threads",
                              threads,
                              "device.precision",
                              precision,
                              "model.encoder_layers",
                              "3",
                              "model.decoder_layers",
                              "3",
                              "model.relu_dropout",
                              "0.1",
                              "model.attention_dropout",
                              "0.1",
                              "train.divergence_factor",
                              "0",
                              "train.shards",
                              "2",
                              "train.updates",
                              "12",
                              "probe.every",
                              "4",
                              NULL};
    outcome stored = run(settings);
    settings[1] = "layer";
    outcome recomputed = run(settings);
    if (stored.hash != recomputed.hash)
        fail_msg("%s, %s-norm, %s threads, %s: different weights", norm, norm_position, threads, precision);
    assert_string_equal(stored.log, recomputed.log);
    assert_true(recomputed.bytes < stored.bytes);
    release(&stored);
    release(&recomputed);
}

static void test_every_norm_is_exact(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        if (strcmp((*type)->name, "fix")) {
            assert_exact((*type)->name, "pre", "2", "float");
            assert_exact((*type)->name, "post", "1", "float");
        }
}

/* In bf16, stored operands are rounded, and recomputed ones are not. */
static void test_stored_operands_are_exact(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        if (strcmp((*type)->name, "fix")) {
            assert_exact((*type)->name, "pre", "1", "bf16");
            assert_exact((*type)->name, "post", "2", "bf16");
        }
}

/* A batch that needs more memory than the kernels' scratch, which is larger in bf16 on CPUs without its
 * instructions. */
static void test_stored_operands_need_less_memory(void **state)
{
    (void)state;
    const char *settings[] = {"device.precision", "float", "train.updates", "2",  "model.ff", "256",
                              "train.max_tokens", "1000",  "model.width",   "32", NULL};
    outcome in_float = run(settings);
    settings[1] = "bf16";
    outcome in_bf16 = run(settings);
    assert_true(in_bf16.bytes < in_float.bytes);
    release(&in_float);
    release(&in_bf16);
}

static void test_threads_are_exact(void **state)
{
    (void)state;
    assert_exact("power", "pre", "1", "float");
    assert_exact("power", "pre", "3", "float");
    assert_exact("layer", "pre", "3", "float");
}

enum { ROWS = 6, WIDTH = 8 };

typedef struct shared_norm {
    nm_norm *norm;
    nm_tensor *x;
} shared_norm;

static nm_tensor *normalize_twice(nm_tape *tape, const void *context)
{
    const shared_norm *t = context;
    return nm_normalize(tape, t->norm, nm_residual(tape, t->x, nm_normalize(tape, t->norm, t->x), 0.2));
}

/* out: gradient of the input, gradient of the weight, both running statistics. */
static void step_with_two_segments(bool recompute, float *out)
{
    nm_error err;
    nm_backend *b;
    nm_params params;
    nm_tape tape;
    nm_options *options = nm_options_create();
    nm_norm_options_add(options);
    tiny_set(options, "norm.power.warmup", "0");
    const nm_backend_options plain = {.name = "ref"};
    const nm_norm_site place = {.name = "shared", .width = WIDTH, .groups = 2};
    assert_int_equal(nm_backend_create(&b, &plain, &err), NM_OK);
    nm_params_init(&params, b);
    nm_norm *norm;
    assert_int_equal(nm_params_add_norm(&params, "power", options, &place, &norm, &err), NM_OK);
    assert_int_equal(nm_params_allocate(&params, true, &err), NM_OK);
    nm_params_initialize(&params, 1);
    assert_int_equal(nm_tape_init(&tape, b, 1 << 20, &err), NM_OK);
    tape.recompute = recompute;
    nm_tape_start(&tape, true, 5, 0);
    nm_tensor *x = nm_tape_tensor(&tape, ROWS, WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = (float)(i * 37 % 11) - 4;
    nm_tensor *y = x;
    for (int i = 0; i < 2; i++) {
        const shared_norm call = {norm, y};
        y = nm_recomputed_segment(&tape, normalize_twice, &call, sizeof call);
    }
    bool add;
    nm_mat dy = nm_tensor_grad(&tape, y, &add);
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)dy.data)[i] = (float)(i * 17 % 7) - 2;
    assert_int_equal(nm_tape_backward(&tape, &err), NM_OK);
    nm_params_update_norms(&params, 1);
    memcpy(out, x->grad, ROWS * WIDTH * sizeof *out);
    memcpy(out + ROWS * WIDTH, norm->param_grads[0], WIDTH * sizeof *out);
    memcpy(out + ROWS * WIDTH + WIDTH, norm->state[0], WIDTH * sizeof *out);
    memcpy(out + ROWS * WIDTH + 2 * WIDTH, norm->state[1], WIDTH * sizeof *out);
    assert_int_equal(norm->counters[0], 1);
    nm_tape_release(&tape);
    nm_params_release(&params);
    nm_backend_free(b);
    nm_options_free(options);
}

static void test_shared_norm_has_exact_statistics(void **state)
{
    (void)state;
    float stored[(ROWS + 3) * WIDTH], recomputed[(ROWS + 3) * WIDTH];
    step_with_two_segments(false, stored);
    step_with_two_segments(true, recomputed);
    assert_memory_equal(stored, recomputed, sizeof stored);
}

/* The penalties of all norms of a pass are in its loss, however many there are. */
static void test_every_penalty_is_summed(void **state)
{
    (void)state;
    enum { NORMS = 300 };
    nm_error err;
    nm_backend *b;
    nm_params params;
    nm_tape tape;
    nm_norm *norm;
    nm_options *options = nm_options_create();
    nm_norm_options_add(options);
    const nm_norm_site site = {.name = "site", .width = WIDTH};
    assert_int_equal(nm_backend_create(&b, &(nm_backend_options){.name = "ref"}, &err), NM_OK);
    nm_params_init(&params, b);
    assert_int_equal(nm_params_add_norm(&params, "rbn", options, &site, &norm, &err), NM_OK);
    assert_int_equal(nm_params_allocate(&params, true, &err), NM_OK);
    nm_params_initialize(&params, 1);
    nm_tape_init_growing(&tape, b);
    nm_tape_start(&tape, true, 1, 0);
    tape.n_targets = ROWS;
    nm_tensor *x = nm_tape_tensor(&tape, ROWS, WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++)
        ((float *)x->data)[i] = (float)(i * 37 % 101) / 23 - 2;
    nm_normalize(&tape, norm, x);
    double results[3];
    const double *no_loss = x->data; /* two numbers that are not read */
    assert_int_equal(nm_tape_results(&tape, no_loss, results, &err), NM_OK);
    const double one = results[2];
    double sum = one;
    assert_true(one > 0);
    for (int i = 1; i < NORMS; i++, sum += one)
        nm_normalize(&tape, norm, x);
    assert_int_equal(nm_tape_results(&tape, no_loss, results, &err), NM_OK);
    assert_true(results[2] == sum);
    nm_tape_release(&tape);
    nm_params_release(&params);
    nm_backend_free(b);
    nm_options_free(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_norm_is_exact),
        cmocka_unit_test(test_threads_are_exact),
        cmocka_unit_test(test_stored_operands_are_exact),
        cmocka_unit_test(test_stored_operands_need_less_memory),
        cmocka_unit_test(test_shared_norm_has_exact_statistics),
        cmocka_unit_test(test_every_penalty_is_summed),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
