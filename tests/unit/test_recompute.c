/* train.activation_checkpointing = layer against none: for every norm and any number of threads the same weights, the same log, penalties,
 * running statistics and instruments included, in less memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/tiny_run.h"

typedef struct outcome {
    uint64_t hash;
    size_t bytes;
    char *log; /* without times */
    char *folder;
} outcome;

static outcome run(const char *const *settings)
{
    nm_error err;
    nm_options *options = tiny_options(settings);
    nm_probe *probe;
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_OK);
    nm_train_listener listener = {.watch = nm_probe_hooks(probe)};
    nm_trainer *trainer;
    outcome o = {.folder = tiny_folder()};
    if (nm_trainer_open(&trainer, &nm_task_translation, options, o.folder, false, &listener, &err) != NM_OK ||
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

static void check(const char *norm, const char *norm_position, const char *threads)
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
                              "train.accumulate",
                              "2",
                              "train.updates",
                              "12",
                              "probe.every",
                              "4",
                              NULL};
    outcome kept = run(settings);
    settings[1] = "layer";
    outcome again = run(settings);
    if (kept.hash != again.hash)
        fail_msg("%s, %s-norm, %s threads: other weights", norm, norm_position, threads);
    assert_string_equal(kept.log, again.log);
    assert_true(again.bytes < kept.bytes);
    release(&kept);
    release(&again);
}

static void every_norm_keeps_its_bits(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        if (strcmp((*type)->name, "fix")) {
            check((*type)->name, "pre", "2");
            check((*type)->name, "post", "1");
        }
}

static void any_number_of_threads_does(void **state)
{
    (void)state;
    check("power", "pre", "1");
    check("power", "pre", "3");
    check("layer", "pre", "3");
}

/* ---- one norm at two places of a tape ---- */

enum { ROWS = 6, WIDTH = 8 };

typedef struct twice {
    nm_norm *norm;
    nm_tensor *x;
} twice;

static nm_tensor *normalize_twice_over(nm_tape *tape, const void *context)
{
    const twice *t = context;
    return nm_normalize(tape, t->norm, nm_residual(tape, t->x, nm_normalize(tape, t->norm, t->x), 0.2));
}

/* All that moves in one step: the norm's gradients and memory, the gradient of what goes in. */
static void step_of_two(bool recompute, float *out)
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
        const twice call = {norm, y};
        y = nm_recomputed_segment(&tape, normalize_twice_over, &call, sizeof call);
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

static void a_norm_shared_by_segments_remembers_right(void **state)
{
    (void)state;
    float kept[(ROWS + 3) * WIDTH], again[(ROWS + 3) * WIDTH];
    step_of_two(false, kept);
    step_of_two(true, again);
    assert_memory_equal(kept, again, sizeof kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_norm_keeps_its_bits),
        cmocka_unit_test(any_number_of_threads_does),
        cmocka_unit_test(a_norm_shared_by_segments_remembers_right),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
