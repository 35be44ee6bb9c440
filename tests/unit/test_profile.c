/* Timing of kernels: what is counted for known shapes, nothing while off or in a dry run; a profiled training
 * run takes the same steps, and its kernels' times lie within those of its updates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "support/tiny_run.h"

static nm_backend *open_backend(bool fenced)
{
    nm_error err;
    nm_backend *b;
    const nm_backend_options plain = {.name = "ref", .fenced = fenced};
    assert_int_equal(nm_backend_create(&b, &plain, &err), NM_OK);
    return b;
}

static nm_kernel_time time_of(const nm_backend *b, const char *kernel)
{
    nm_kernel_time times[NM_N_KERNELS];
    int n = nm_backend_times(b, times);
    for (int i = 0; i < n; i++) {
        assert_true(i == 0 || times[i].seconds <= times[i - 1].seconds);
        if (!strcmp(times[i].kernel, kernel))
            return times[i];
    }
    return (nm_kernel_time){0};
}

static void run_linear(nm_backend *b, float *memory)
{
    const nm_dropout none = {0};
    NM_CALL(b, linear, .x = nm_mat_of(memory, 5, 7), .weight = nm_mat_of(memory + 100, 3, 7), .drop = &none,
            .y = nm_mat_of(memory + 200, 5, 3));
}

static void counts_what_was_done(void **state)
{
    (void)state;
    nm_error err;
    for (int fenced = 0; fenced < 2; fenced++) {
        nm_backend *b = open_backend(fenced);
        void *memory;
        assert_int_equal(nm_backend_alloc(b, 4096, &memory, &err), NM_OK);
        run_linear(b, memory);
        assert_int_equal(time_of(b, "linear").calls, 0);
        nm_backend_profile(b, true);
        run_linear(b, memory);
        run_linear(b, memory);
        nm_backend_zero(b, memory, 400);
        nm_backend_dry_run(b, true);
        run_linear(b, memory);
        nm_backend_dry_run(b, false);
        run_linear(b, memory);
        nm_backend_profile(b, false);
        run_linear(b, memory);
        const nm_kernel_time linear = time_of(b, "linear"), zero = time_of(b, "zero");
        assert_int_equal(linear.calls, 3);
        assert_true(linear.flops == 3 * 2.0 * 5 * 3 * 7 && linear.bytes == 0 && linear.seconds > 0);
        assert_int_equal(zero.calls, 1);
        assert_true(zero.bytes == 400 && zero.flops == 0);
        nm_backend_profile(b, true);
        run_linear(b, memory);
        assert_int_equal(time_of(b, "linear").calls, 4);
        nm_backend_free(b);
    }
}

static void attention_counts_pairs_that_are_seen(void **state)
{
    (void)state;
    nm_error err;
    nm_backend *b = open_backend(false);
    void *memory;
    assert_int_equal(nm_backend_alloc(b, 1 << 16, &memory, &err), NM_OK);
    int32_t *offsets = memory;
    offsets[1] = 2;
    offsets[2] = 5;
    const nm_packing packing = {2, 5, 3, offsets, offsets};
    const nm_dropout none = {0};
    float *values = (float *)memory + 64;
    nm_mat x = nm_mat_of(values, 5, 4), out = nm_mat_of(values + 64, 5, 4);
    nm_backend_profile(b, true);
    NM_CALL(b, attention, .q = x, .k = x, .v = x, .q_packing = &packing, .k_packing = &packing, .heads = 2,
            .scale = 1, .drop = &none, .out = out);
    assert_true(time_of(b, "attention").flops == 4.0 * 4 * (2 * 2 + 3 * 3));
    NM_CALL(b, attention, .q = x, .k = x, .v = x, .q_packing = &packing, .k_packing = &packing, .heads = 2,
            .causal = true, .scale = 1, .drop = &none, .out = out);
    assert_true(time_of(b, "attention").flops == 4.0 * 4 * (2 * 2 + 3 * 3 + 3 + 6));
    NM_CALL(b, attention, .q = x, .k = x, .v = x, .q_packing = &packing, .k_packing = &packing, .heads = 2,
            .causal = true, .window = 2, .scale = 1, .drop = &none, .out = out);
    assert_true(time_of(b, "attention").flops == 4.0 * 4 * (2 * 2 + 3 * 3 + 3 + 6 + 3 + 5));
    nm_backend_free(b);
}

/* The gradient of a norm reads x and dy and writes dx; what is added to is read, too. */
static void norm_gradients_count_their_passes(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 4 };
    static const nm_token_norm spec = {.kind = NM_TOKEN_L2, .groups = 1, .eps = 1e-12};
    const nm_dropout none = {0};
    nm_error err;
    void *memory;
    for (int residual = 0; residual < 3; residual++) /* none, one that is set, one that is added to */
        for (int add = 0; add < 2; add++) {
            nm_backend *b = open_backend(false);
            assert_int_equal(nm_backend_alloc(b, 4096, &memory, &err), NM_OK);
            nm_mat mats[4];
            for (int i = 0; i < 4; i++)
                mats[i] = nm_mat_of((float *)memory + 64 * i, ROWS, COLS);
            const nm_residual_grad grad = {.df = mats[3], .drop = &none, .add = residual == 2};
            nm_backend_profile(b, true);
            NM_CALL(b, token_norm_grad, .spec = &spec, .dy = mats[0], .x = mats[1],
                    .scale = (float *)memory + 512, .add = add, .dx = mats[2],
                    .residual = residual ? &grad : NULL);
            assert_true(time_of(b, "token_norm_grad").bytes == (3 + add + residual) * ROWS * COLS * 4.0);
            nm_backend_free(b);
        }
}

static uint64_t run(const char *profile, nm_profile *out)
{
    const char *const settings[] = {"device.profile", profile, "train.updates", "6", NULL};
    nm_error err;
    nm_options *options = tiny_options(settings);
    char *folder = tiny_folder();
    nm_trainer *trainer;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    uint64_t hash = nm_trainer_weights_hash(trainer);
    *out = nm_trainer_profile(trainer);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
    return hash;
}

static void a_profiled_run_is_the_same_run(void **state)
{
    (void)state;
    nm_profile off, on;
    assert_true(run("false", &off) == run("true", &on));
    assert_int_equal(off.updates, 0);
    assert_int_equal(off.n_kernels, 0);
    assert_int_equal(on.updates, 5); /* the first one is left out */
    assert_true(on.tokens > 0);
    double sum = 0, forward = 0, backward = 0;
    for (int i = 0; i < on.n_kernels; i++) {
        const nm_kernel_time *k = &on.kernels[i];
        sum += k->seconds;
        forward += strcmp(k->kernel, "linear") ? 0 : k->flops;
        backward += strcmp(k->kernel, "linear_grad_weight") ? 0 : k->flops;
        if (!strcmp(k->kernel, "adam"))
            assert_int_equal(k->calls, 5);
    }
    assert_true(sum > 0 && sum <= on.seconds);
    assert_true(forward > 0 && forward == backward); /* validations are not counted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_was_done),
        cmocka_unit_test(norm_gradients_count_their_passes),
        cmocka_unit_test(attention_counts_pairs_that_are_seen),
        cmocka_unit_test(a_profiled_run_is_the_same_run),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
