/* One update of training: learning rate, gradient norm, clipping, frozen parameters, divergence, and the
 * position in the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "support/tiny_run.h"

typedef struct run {
    nm_options *options;
    nm_trainer *trainer;
    char *folder;
} run;

/* settings: pairs, NULL at the end. */
static run open_run(const char *const *settings)
{
    run r = {.options = tiny_options(settings), .folder = tiny_folder()};
    nm_error err;
    if (nm_trainer_open(&r.trainer, &nm_task_translation, r.options, r.folder, false, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
    return r;
}

static void close_run(run *r)
{
    nm_trainer_close(r->trainer);
    nm_options_free(r->options);
    tiny_data_remove(r->folder);
}

static nm_training_progress update(run *r)
{
    nm_training_progress progress;
    nm_error err;
    if (nm_trainer_update(r->trainer, &progress, &err) != NM_OK)
        fail_msg("%s", err.text);
    return progress;
}

static const nm_params *params_of(const run *r)
{
    return &nm_trainer_model(r->trainer)->params;
}

/* The L2 norm of the change of all parameters by one update. */
static double change(run *r, nm_training_progress *progress)
{
    const nm_params *params = params_of(r);
    float *before = nm_allocate(nm_params_bytes(params));
    memcpy(before, params->values, nm_params_bytes(params));
    *progress = update(r);
    double square = 0;
    for (size_t i = 0; i < params->n_elements; i++) {
        double difference = (double)((const float *)params->values)[i] - (double)before[i];
        square += difference * difference;
    }
    free(before);
    return sqrt(square);
}

#define PLAIN_SGD                                                                                            \
    "optim.name", "sgd", "optim.momentum", "0", "schedule.name", "constant", "schedule.lr", "10",            \
        "model.dropout", "0", "model.share_embeddings", "none"

static void assert_near(double actual, double expected)
{
    if (!(fabs(actual - expected) <= 1e-3 * fabs(expected)))
        fail_msg("%.9g, expected %.9g", actual, expected);
}

/* Plain SGD: the change of the parameters is the learning rate times the clipped gradient. Frozen parameters
 * do not contribute to its norm. */
static void test_gradient_norm_and_clipping(void **state)
{
    (void)state;
    static const char *const frozen[] = {"", "enc.0", "dec.*"};
    for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++) {
        nm_training_progress progress, clipped;
        const char *const all[] = {PLAIN_SGD, "train.max_grad_norm", "0", "model.freeze", frozen[i], NULL};
        run r = open_run(all);
        double moved = change(&r, &progress);
        assert_near(moved, 10 * progress.grad_norm);
        close_run(&r);
        char *half = nm_format("%.17g", progress.grad_norm / 2),
             *twice = nm_format("%.17g", progress.grad_norm * 2);
        const char *const low[] = {PLAIN_SGD, "train.max_grad_norm", half, "model.freeze", frozen[i], NULL};
        r = open_run(low);
        assert_near(change(&r, &clipped), 10 * progress.grad_norm / 2);
        assert_true(clipped.grad_norm == progress.grad_norm);
        close_run(&r);
        const char *const high[] = {PLAIN_SGD, "train.max_grad_norm", twice, "model.freeze", frozen[i], NULL};
        r = open_run(high);
        assert_near(change(&r, &clipped), 10 * progress.grad_norm);
        close_run(&r);
        free(half);
        free(twice);
    }
}

static void test_the_learning_rate_is_that_of_the_update(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "schedule.name", "cosine", "schedule.lr", "0.004", "schedule.warmup", "4",
        "train.updates", "40",     NULL};
    run r = open_run(settings);
    for (int n = 1; n <= 4; n++)
        assert_true(fabs(update(&r).learning_rate - 0.001 * n) < 1e-12);
    close_run(&r);
}

static void test_position_in_the_data(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.shards", "2", "train.updates", "100", NULL};
    run r = open_run(settings);
    nm_training_progress progress = update(&r);
    const nm_train_state *s = nm_trainer_state(r.trainer);
    int64_t n = 1;
    for (; progress.epoch < 2; n++) {
        int64_t batch = progress.batch, epoch = progress.epoch;
        progress = update(&r);
        if (progress.epoch == epoch)
            assert_int_equal(progress.batch, batch + 2);
        else
            assert_true(progress.epoch == epoch + 1 && progress.batch <= 2);
        assert_true(n < 100);
    }
    assert_int_equal(s->update, n);
    assert_int_equal(s->sum_updates, n);
    assert_int_equal(s->step, 2 * n);
    close_run(&r);
}

static void test_the_divergence_threshold(void **state)
{
    (void)state;
    static const char *const without[] = {"train.divergence_factor", "0", NULL};
    run r = open_run(without);
    double factor = update(&r).loss / log((double)nm_trainer_model(r.trainer)->target_size);
    close_run(&r);
    for (int k = 0; k < 2; k++) {
        char *text = nm_format("%.9g", factor * (k ? 1.1 : 0.7));
        const char *const settings[] = {"train.divergence_factor", text, NULL};
        r = open_run(settings);
        nm_training_progress progress;
        nm_error err;
        assert_int_equal(nm_trainer_update(r.trainer, &progress, &err), k ? NM_OK : NM_DIVERGED);
        if (!k)
            assert_non_null(strstr(err.text, "exceeds the divergence threshold; try a lower schedule.lr"));
        close_run(&r);
        free(text);
    }
}

/* A finite loss with gradients that are not finite: the update is rejected, and no parameter changes. */
static void test_gradients_that_are_not_finite(void **state)
{
    (void)state;
    static const char *const settings[] = {PLAIN_SGD, "train.divergence_factor", "0", NULL};
    run r = open_run(settings);
    const nm_params *params = params_of(&r);
    nm_tensor *output = &nm_params_find(params, "output.weight")->tensor;
    float *weights = output->data;
    for (int64_t i = 0; i < (int64_t)output->rows * output->cols; i++)
        weights[i] *= 1e37f;
    uint64_t before = nm_trainer_weights_hash(r.trainer);
    nm_training_progress progress;
    nm_error err;
    assert_int_equal(nm_trainer_update(r.trainer, &progress, &err), NM_DIVERGED);
    assert_non_null(strstr(err.text, "the gradient of "));
    assert_null(strstr(err.text, "loss inf"));
    assert_null(strstr(err.text, "loss nan"));
    assert_true(nm_trainer_weights_hash(r.trainer) == before);
    close_run(&r);
}

/* Logits that are not finite: the message has no sign of NaN. */
static void test_loss_that_is_not_a_number(void **state)
{
    (void)state;
    static const char *const settings[] = {PLAIN_SGD, "train.divergence_factor", "0", NULL};
    run r = open_run(settings);
    nm_tensor *output = &nm_params_find(params_of(&r), "output.weight")->tensor;
    float *weights = output->data;
    for (int64_t i = 0; i < (int64_t)output->rows * output->cols; i++)
        weights[i] = weights[i] > 0 ? 3e38f : -3e38f;
    nm_training_progress progress;
    nm_error err;
    assert_int_equal(nm_trainer_update(r.trainer, &progress, &err), NM_DIVERGED);
    assert_non_null(strstr(err.text, "loss nan; "));
    close_run(&r);
}

/* Activations whose variance is above the range of float. */
static void test_activations_that_are_too_large(void **state)
{
    (void)state;
    static const char *const norms[] = {"batch", "pnv", "power", "rbn", "renorm", "mabn", "repbn", "un"};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        const char *const settings[] = {"model.norm", norms[k], "model.norm_position", "pre", NULL};
        run r = open_run(settings);
        nm_tensor *embedding = &params_of(&r)->list[0]->tensor;
        float *weights = embedding->data;
        for (int64_t i = 0; i < (int64_t)embedding->rows * embedding->cols; i++)
            weights[i] *= 1e22f;
        nm_training_progress progress;
        nm_error err;
        if (nm_trainer_update(r.trainer, &progress, &err) != NM_DIVERGED)
            fail_msg("%s: no divergence", norms[k]);
        close_run(&r);
    }
}

/* Running statistics that only validation uses are NaN: the validation is a divergence that names them. */
static void test_a_validation_loss_that_is_not_a_number(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.norm", "batch", NULL};
    run r = open_run(settings);
    nm_training_validation validation;
    nm_task_score score;
    nm_error err;
    update(&r);
    assert_int_equal(nm_trainer_validate(r.trainer, &validation, &score, &err), NM_OK);
    assert_true(isfinite(validation.loss));
    nm_norm *norm = params_of(&r)->norms[0];
    for (int32_t i = 0; i < norm->site.width; i++)
        ((float *)norm->state[1])[i] = NAN;
    assert_int_equal(nm_trainer_validate(r.trainer, &validation, &score, &err), NM_DIVERGED);
    assert_non_null(strstr(err.text, "validation at update 1: loss nan; running statistic "));
    assert_non_null(strstr(err.text, norm->site.name));
    close_run(&r);
}

/* The dry run that measures memory is a forward pass in training mode; it does not change the norms. */
static void test_the_dry_run_does_not_change_the_norms(void **state)
{
    (void)state;
    static const char *const norms[] = {"batch", "renorm", "power", "mabn", "repbn", "progressive", "un"};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        const char *const settings[] = {"model.norm", norms[k], "train.updates", "30", NULL};
        run r = open_run(settings);
        const nm_params *params = params_of(&r);
        for (size_t n = 0; n < params->n_norms; n++)
            for (int i = 0; i < NM_NORM_CAPACITY; i++) {
                assert_int_equal(params->norms[n]->counters[i], 0);
                assert_true(params->norms[n]->collected_rows[i] == 0);
            }
        close_run(&r);
    }
}

/* Each epoch ends with an update; the last one may have fewer shards than train.shards. */
static void test_planned_updates_of_epochs(void **state)
{
    (void)state;
    static const char *const one[] = {"train.updates", "1", NULL};
    run r = open_run(one);
    int64_t batches = update(&r).batches, shards = 2;
    close_run(&r);
    while (batches * 3 % shards == 0)
        shards++;
    char *text = nm_format("%d", (int)shards);
    const char *const settings[] = {
        "train.updates", "0", "train.epochs", "3", "train.shards", text, "schedule.name", "linear", NULL};
    r = open_run(settings);
    assert_int_equal(params_of(&r)->norms[0]->site.plan.updates, batches * 3 / shards + 1);
    close_run(&r);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_norm_and_clipping),
        cmocka_unit_test(test_the_learning_rate_is_that_of_the_update),
        cmocka_unit_test(test_position_in_the_data),
        cmocka_unit_test(test_the_divergence_threshold),
        cmocka_unit_test(test_gradients_that_are_not_finite),
        cmocka_unit_test(test_loss_that_is_not_a_number),
        cmocka_unit_test(test_activations_that_are_too_large),
        cmocka_unit_test(test_the_dry_run_does_not_change_the_norms),
        cmocka_unit_test(test_a_validation_loss_that_is_not_a_number),
        cmocka_unit_test(test_planned_updates_of_epochs),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
