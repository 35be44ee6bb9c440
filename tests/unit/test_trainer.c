/* Training runs on a generated corpus: bitwise identical for any number of threads and after a resume, for
 * every norm; the loss decreases; divergence is reported and keeps the last checkpoint; checkpoints
 * survive errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "support/tiny_run.h"

typedef struct job {
    const char *const *settings; /* pairs, NULL at the end */
    const char *norm, *threads, *updates;
    char *folder;
    bool resume;
} job;

static nm_options *options_of(const job *j)
{
    static const char *const settings[] = {"train.validate_every", "15", "train.score", "true",
                                           "decode.beam",          "2",  NULL};
    nm_options *options = tiny_options(settings);
    tiny_set(options, "model.norm", j->norm ? j->norm : "layer");
    tiny_set(options, "device.threads", j->threads ? j->threads : "1");
    tiny_set(options, "train.updates", j->updates);
    for (int i = 0; j->settings && j->settings[i]; i += 2)
        tiny_set(options, j->settings[i], j->settings[i + 1]);
    return options;
}

static nm_train_state ended; /* state at the end of the last run */

/* Runs the job; returns the hash of the final weights. */
static uint64_t run(const job *j, nm_status expected, nm_error *err)
{
    nm_options *options = options_of(j);
    nm_trainer *trainer;
    uint64_t hash = 0;
    nm_status status =
        nm_trainer_open(&trainer, &nm_task_translation, options, j->folder, j->resume, NULL, err);
    if (status == NM_OK) {
        status = nm_trainer_run(trainer, err);
        hash = nm_trainer_weights_hash(trainer);
        ended = *nm_trainer_state(trainer);
        nm_trainer_close(trainer);
    }
    if (status != expected)
        fail_msg("status %d, expected %d: %s", status, expected, status ? err->text : "");
    nm_options_free(options);
    return hash;
}

static void test_threads_are_exact(void **state)
{
    (void)state;
    static const char *const threads[] = {"1", "2", "3"};
    uint64_t hashes[3];
    nm_error err;
    for (int i = 0; i < 3; i++) {
        job j = {.threads = threads[i], .updates = "20", .folder = tiny_folder(), .norm = "batch"};
        hashes[i] = run(&j, NM_OK, &err);
        tiny_data_remove(j.folder);
    }
    assert_true(hashes[0] == hashes[1] && hashes[0] == hashes[2]);
}

/* A run of 24 updates with a validation at 15, and one that stops after `first` updates and is resumed. */
static void assert_resume_is_exact(const char *norm, const char *first, const char *const *settings)
{
    nm_error err;
    job whole = {.norm = norm, .updates = "24", .folder = tiny_folder(), .settings = settings};
    uint64_t unbroken = run(&whole, NM_OK, &err);
    job part = {.norm = norm, .updates = first, .folder = tiny_folder(), .settings = settings};
    run(&part, NM_OK, &err);
    part.updates = "24";
    part.resume = true;
    uint64_t resumed = run(&part, NM_OK, &err);
    if (unbroken != resumed)
        fail_msg("%s, resumed after %s updates: different weights", norm, first);
    if (atoi(first) > 15 || !strcmp(first, "10")) { /* the others validate at the end of the first part */
        char *a = tiny_log(whole.folder), *b = tiny_log(part.folder);
        char *extra = strstr(b, "\"type\":\"valid\"");
        assert_non_null(extra);
        assert_non_null(strstr(a, "\"update\":20"));
        assert_non_null(strstr(b, "\"update\":20"));
        free(a);
        free(b);
    }
    tiny_data_remove(whole.folder);
    tiny_data_remove(part.folder);
}

static void test_resume_is_exact_for_every_norm(void **state)
{
    (void)state;
    /* the stopped part plans 10 updates, not 24: ramps that follow the plan would differ */
    static const char *const settings[] = {"norm.renorm.shorten_ramp", "false", NULL};
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        if (strcmp((*type)->name, "fix"))
            assert_resume_is_exact((*type)->name, "10", settings);
}

/* The decays of a schedule by validations continue: here the loss rises, so that there are some before the stop. */
static void test_resume_keeps_the_decays_of_the_schedule(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "no-warmup",
                                           "schedule.patience",
                                           "1",
                                           "schedule.decay",
                                           "0.5",
                                           "schedule.lr",
                                           "0.2",
                                           "train.divergence_factor",
                                           "0",
                                           "train.validate_every",
                                           "3",
                                           "train.score",
                                           "false",
                                           NULL};
    nm_error err;
    job whole = {.updates = "24", .folder = tiny_folder(), .settings = settings};
    uint64_t unbroken = run(&whole, NM_OK, &err);
    double factor = ended.schedule.factor;
    job part = {.updates = "15", .folder = tiny_folder(), .settings = settings};
    run(&part, NM_OK, &err);
    assert_true(ended.schedule.factor < 1);
    part.updates = "24";
    part.resume = true;
    assert_true(run(&part, NM_OK, &err) == unbroken);
    assert_true(ended.schedule.factor == factor);
    tiny_data_remove(whole.folder);
    tiny_data_remove(part.folder);
}

/* Without learning the first validation stays the best: two more without a new best end the run. */
static void test_early_stopping(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "schedule.name", "constant", "schedule.lr", "0", "train.patience", "2", "train.validate_every", "3",
        "train.score",   "false",    NULL};
    nm_error err;
    job j = {.updates = "30", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_int_equal(ended.best_update, 3);
    assert_int_equal(ended.update, 9);
    tiny_data_remove(j.folder);
}

/* A new best validation after worse ones begins the count again. The learning rate is so high that the loss goes up and down. */
static void test_a_new_best_resets_the_patience(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "constant",
                                           "schedule.lr",
                                           "0.03",
                                           "train.patience",
                                           "100",
                                           "train.validate_every",
                                           "1",
                                           "train.score",
                                           "false",
                                           NULL};
    nm_error err;
    job j = {.updates = "24", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *log = tiny_log(j.folder);
    int64_t worse_before = 0, validations = 0;
    for (const char *at = log; (at = strstr(at, "\"type\":\"valid\"")) != NULL; at++) {
        const char *end = at + strcspn(at, "\n"), *best = strstr(at, "\"best\":true");
        worse_before += ++validations < ended.best_update && !(best && best < end);
    }
    assert_true(worse_before > 0);
    assert_int_equal(ended.bad_checks, ended.update - ended.best_update);
    free(log);
    tiny_data_remove(j.folder);
}

static void test_the_newest_checkpoints_are_kept(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "train.save_every", "2", "train.keep_last", "3", "train.score", "false", NULL};
    nm_error err;
    job j = {.updates = "12", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    for (int update = 2; update <= 12; update += 2)
        for (int part = 0; part < 2; part++) {
            char *path =
                nm_format("%s/checkpoints/%08d.%ssafetensors", j.folder, update, part ? "state." : "");
            assert_true(nm_file_exists(path) == (update >= 8));
            free(path);
        }
    tiny_data_remove(j.folder);
}

static void test_resume_is_exact_at_any_update(void **state)
{
    (void)state;
    static const char *const steps[] = {"1", "7", "15", "16", "23"};
    static const char *const settings[] = {"train.shards",
                                           "2",
                                           "data.word_dropout",
                                           "0.1",
                                           "schedule.name",
                                           "no-warmup",
                                           "schedule.patience",
                                           "1",
                                           "schedule.decay",
                                           "0.5",
                                           NULL};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        assert_resume_is_exact("power", steps[i], settings);
}

static void test_reversal_is_learned(void **state)
{
    (void)state;
    nm_error err;
    static const char *const settings[] = {"train.max_tokens",
                                           "400",
                                           "model.dropout",
                                           "0",
                                           "model.embedding_dropout",
                                           "0",
                                           "train.validate_every",
                                           "150",
                                           "schedule.name",
                                           "constant",
                                           NULL};
    job j = {.updates = "300", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *text = tiny_log(j.folder), *last = NULL;
    for (char *at = text; (at = strstr(at, "\"nll\":")) != NULL; at++)
        last = at;
    assert_non_null(last);
    assert_true(atof(last + 6) < 0.7 * 2.3); /* ln 10 = 2.3: chance level of ten words */
    free(text);
    tiny_data_remove(j.folder);
}

static void test_divergence_keeps_the_checkpoint(void **state)
{
    (void)state;
    nm_error err;
    static const char *const wild[] = {"schedule.lr", "100", "schedule.warmup", "0", "optim.name",
                                       "sgd",         NULL};
    job j = {.updates = "6", .folder = tiny_folder(), .norm = "batch"};
    run(&j, NM_OK, &err);
    char *kept = nm_format("%s/checkpoints/00000006.safetensors", j.folder);
    assert_true(nm_file_exists(kept));
    j.resume = true;
    j.updates = "400";
    j.settings = wild;
    run(&j, NM_DIVERGED, &err);
    assert_non_null(strstr(err.text, "update "));
    assert_true(nm_file_exists(kept));
    free(kept);
    tiny_data_remove(j.folder);
}

static void test_run_is_not_overwritten(void **state)
{
    (void)state;
    nm_error err;
    job j = {.updates = "2", .folder = tiny_folder()};
    run(&j, NM_OK, &err);
    run(&j, NM_USAGE, &err);
    assert_non_null(strstr(err.text, "--resume"));
    tiny_data_remove(j.folder);
}

static char *checkpoint_file(const char *folder, const char *name)
{
    return nm_format("%s/checkpoints/%s", folder, name);
}

/* A symbolic link to itself stands for any error of opening: no permission, no free descriptor, a failing
 * disk. */
static void test_unreadable_checkpoint_stays(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.save_every", "1", NULL};
    static const char *const files[] = {"00000006.safetensors", "00000006.state.safetensors"};
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    j.resume = true;
    j.updates = "8";
    for (int i = 0; i < 2; i++) {
        char *path = checkpoint_file(j.folder, files[i]), *moved = nm_format("%s.moved", path);
        assert_int_equal(rename(path, moved), 0);
        assert_int_equal(symlink(path, path), 0);
        run(&j, NM_IO, &err);
        assert_non_null(strstr(err.text, files[i]));
        struct stat info;
        assert_int_equal(lstat(path, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(rename(moved, path), 0);
        free(path);
        free(moved);
    }
    char *folder = checkpoint_file(j.folder, "."), *moved = nm_format("%s/moved", j.folder);
    folder[strlen(folder) - 2] = 0;
    assert_int_equal(rename(folder, moved), 0);
    assert_int_equal(symlink(folder, folder), 0);
    run(&j, NM_IO, &err); /* not an empty folder: a fresh start would overwrite the run */
    assert_int_equal(rename(moved, folder) && (unlink(folder) || rename(moved, folder)), 0);
    char *log = tiny_log(j.folder);
    assert_non_null(strstr(log, "\"update\":5"));
    free(log);
    run(&j, NM_OK, &err);
    tiny_data_remove(j.folder);
    free(folder);
    free(moved);
}

/* A run whose newest training state is damaged continues from the one before, and keeps the damaged files under another name. */
static void check_damaged_state(void (*damage)(const char *path))
{
    static const char *const settings[] = {"train.save_every", "1", NULL};
    nm_error err;
    job whole = {.updates = "8", .folder = tiny_folder(), .settings = settings};
    uint64_t unbroken = run(&whole, NM_OK, &err);
    job j = {.updates = "6", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *path = checkpoint_file(j.folder, "00000006.state.safetensors"),
         *damaged = checkpoint_file(j.folder, "00000006.state.safetensors.damaged"),
         *model = checkpoint_file(j.folder, "00000006.safetensors.damaged");
    damage(path);
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    j.resume = true;
    j.updates = "8";
    assert_true(run(&j, NM_OK, &err) == unbroken);
    assert_int_equal(stat(damaged, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_true(nm_file_exists(model));
    free(path);
    free(damaged);
    free(model);
    tiny_data_remove(j.folder);
    tiny_data_remove(whole.folder);
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, 100), 0);
}

static void test_damaged_checkpoint_is_renamed(void **state)
{
    (void)state;
    check_damaged_state(cut);
}

static void collect_message(void *user, const char *text)
{
    char **messages = user, *longer = nm_format("%s%s\n", *messages, text);
    free(*messages);
    *messages = longer;
}

/* SGD's momentum and Adam's second moment are stored in the same tensor. */
static void test_resume_with_another_optimizer(void **state)
{
    (void)state;
    static const char *const sgd[] = {"optim.name", "sgd", "schedule.lr", "0", NULL};
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder()};
    uint64_t adam = run(&j, NM_OK, &err);
    j.settings = sgd;
    j.updates = "7";
    nm_options *options = options_of(&j);
    nm_trainer *trainer;
    nm_progress progress;
    char *messages = nm_duplicate("");
    const nm_train_callbacks callbacks = {.user = &messages, .message = collect_message};
    assert_int_equal(
        nm_trainer_open(&trainer, &nm_task_translation, options, j.folder, true, &callbacks, &err), NM_OK);
    assert_non_null(strstr(messages, "optim.name"));
    assert_int_equal(nm_trainer_update(trainer, &progress, &err), NM_OK);
    assert_true(nm_trainer_weights_hash(trainer) == adam); /* rate 0 */
    nm_trainer_close(trainer);
    nm_options_free(options);
    free(messages);
    tiny_data_remove(j.folder);
}

/* A score of one kind is not compared with one of another kind: BLEU is positive, the negative loss is
 * not. */
static void test_resume_with_another_selection_metric(void **state)
{
    (void)state;
    static const char *const by_score[] = {"train.best_by", "score", "train.validate_every", "2", NULL};
    static const char *const by_loss[] = {"train.best_by", "loss", "train.validate_every", "2", NULL};
    nm_error err;
    job j = {.updates = "4", .folder = tiny_folder(), .settings = by_score};
    run(&j, NM_OK, &err);
    j.resume = true;
    j.settings = by_loss;
    j.updates = "8";
    run(&j, NM_OK, &err);
    char *log = tiny_log(j.folder), *valid = strstr(log, "\"type\":\"valid\",\"update\":6");
    assert_non_null(valid);
    assert_non_null(strstr(valid, "\"best\":true"));
    free(log);
    tiny_data_remove(j.folder);
}

/* These schedules depend on the planned updates; a limit of time determines them, but not a fraction of them in advance. */
static void test_schedule_without_a_length_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"cosine", "cosine-ma2019", "linear"};
    nm_error err;
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        const char *const unlimited[] = {"schedule.name", names[i / 2], "train.patience", "1", NULL};
        const char *const fraction[] = {
            "schedule.name", names[i / 2], "train.seconds", "1", "schedule.warmup_fraction", "0.1", NULL};
        job j = {.updates = "0", .folder = tiny_folder(), .settings = i % 2 ? fraction : unlimited};
        run(&j, NM_USAGE, &err);
        assert_non_null(strstr(err.text, "schedule.updates"));
        tiny_data_remove(j.folder);
    }
}

/* The value of the last record of the log with the key. */
static double last_value(const char *log, const char *key)
{
    const char *found = NULL;
    for (const char *at = log; (at = strstr(at, key)) != NULL; at++)
        found = at;
    return found ? atof(found + strlen(key)) : NAN;
}

/* A limit of time ends the schedule, and a resumed run continues from the recorded position. */
static void test_schedule_ends_with_the_time(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "linear",
                                           "schedule.warmup",
                                           "1",
                                           "train.seconds",
                                           "0.4",
                                           "train.log_every",
                                           "1",
                                           NULL};
    static const char *const longer[] = {"schedule.name",
                                         "linear",
                                         "schedule.warmup",
                                         "1",
                                         "train.seconds",
                                         "0.8",
                                         "train.log_every",
                                         "1",
                                         NULL};
    nm_error err;
    job j = {.updates = "1000000", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *log = tiny_log(j.folder);
    double end = last_value(log, "\"schedule_position\":");
    free(log);
    assert_true(end > 0 && end <= 1);
    j.resume = true;
    j.settings = longer;
    run(&j, NM_OK, &err);
    log = tiny_log(j.folder);
    const char *resumed = strstr(log, "\"type\":\"resume\"");
    assert_non_null(resumed);
    const char *first = strstr(resumed, "\"schedule_position\":");
    assert_non_null(first);
    double begin = atof(first + strlen("\"schedule_position\":"));
    assert_true(begin > 0.25); /* about half of the doubled time, not the beginning */
    assert_true(last_value(log, "\"schedule_position\":") > begin);
    free(log);
    tiny_data_remove(j.folder);
}

/* Early stopping with a best validation that is never exceeded ends the schedule. */
static void test_schedule_ends_with_early_stopping(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "linear",
                                           "schedule.warmup",
                                           "1",
                                           "schedule.early_stopping",
                                           "true",
                                           "train.patience",
                                           "3",
                                           "train.validate_every",
                                           "2",
                                           "train.log_every",
                                           "1",
                                           "model.dropout",
                                           "0.5",
                                           NULL};
    nm_error err;
    job once = {.updates = "400", .folder = tiny_folder(), .settings = settings};
    run(&once, NM_OK, &err);
    char *log = tiny_log(once.folder);
    double position = last_value(log, "\"schedule_position\":");
    assert_true(position > 0.6);
    assert_true(last_value(log, "\"update\":") < 400);
    free(log);
    tiny_data_remove(once.folder);
}

static void test_the_initial_checkpoint_is_kept(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.save_initial",
                                           "true",
                                           "train.save_every",
                                           "2",
                                           "train.keep_last",
                                           "1",
                                           "train.score",
                                           "false",
                                           NULL};
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    for (int update = 0; update <= 6; update += 2) {
        char *name = nm_format("%08d.safetensors", update), *path = checkpoint_file(j.folder, name);
        assert_true(nm_file_exists(path) == (update % 6 == 0));
        free(name);
        free(path);
    }
    tiny_data_remove(j.folder);
}

/* The rate of inverse-sqrt after 4 updates of warm-up is lr sqrt(4/(n - 1)): below lr/2 from update 18 on. */
static void test_the_lowest_learning_rate_ends_the_run(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.min_lr", "0.0015", "train.score", "false", NULL};
    nm_error err;
    job j = {.updates = "30", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_int_equal(ended.update, 17);
    tiny_data_remove(j.folder);
}

/* Whatever train.validate_every is. The schedule gets negative losses where no score is computed: higher is better. */
static void test_a_run_ends_with_a_validation(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.score", "false", NULL};
    nm_error err;
    job j = {.updates = "20", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_int_equal(ended.checked_update, 20);
    assert_int_equal(ended.schedule.n_scores, 2);
    for (int i = 0; i < 2; i++)
        assert_true(ended.schedule.scores[i] < -1);
    assert_true(ended.schedule.scores[1] == -ended.best_loss || ended.best_update == 15);
    tiny_data_remove(j.folder);
}

static void test_other_training_data_are_refused(void **state)
{
    (void)state;
    nm_error err;
    job j = {.updates = "4", .folder = tiny_folder()};
    run(&j, NM_OK, &err);
    char *other = tiny_data_create(150, 10);
    const char *const settings[] = {"data.folder", other, NULL};
    j.settings = settings;
    j.resume = true;
    j.updates = "8";
    run(&j, NM_MISMATCH, &err);
    assert_non_null(strstr(err.text, "other data"));
    tiny_data_remove(other);
    tiny_data_remove(j.folder);
}

/* Writes the training state at path again, with a length in it that no run has; its checksums are right. */
static void forge_state(const char *path)
{
    nm_safetensors *file;
    nm_error err;
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_copy_metadata(writer, file);
    nm_train_state forged;
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(file, i);
        const void *bytes = tensor->data;
        if (!strcmp(tensor->name, "state")) {
            memcpy(&forged, tensor->data, sizeof forged);
            forged.schedule.n_scores = NM_SCHEDULE_MAX_PATIENCE + 1;
            bytes = &forged;
        }
        nm_safetensors_add(writer, tensor->name, tensor->type, tensor->rank, tensor->shape, bytes);
    }
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
    nm_safetensors_close(file);
}

static void test_an_invalid_state_is_damage(void **state)
{
    (void)state;
    check_damaged_state(forge_state);
}

static void write_text_corpus(const char *folder, const char *split, int sentences)
{
    char *prefix = nm_format("%s/%s.text", folder, split);
    nm_corpus_writer writer;
    nm_error err;
    assert_int_equal(nm_corpus_writer_open(&writer, prefix, &err), NM_OK);
    for (int s = 0; s < sentences; s++) {
        int32_t ids[6];
        for (int t = 0; t < 5; t++) /* each word determines the next one */
            ids[t] = TINY_SPECIAL + (s + t) % 8;
        ids[5] = TINY_EOS;
        nm_corpus_writer_add(&writer, ids, 6);
    }
    assert_int_equal(nm_corpus_writer_commit(&writer, &err), NM_OK);
    free(prefix);
}

/* Perplexity, which the schedule and train.best_by = score get with the opposite sign. */
static void test_a_lower_perplexity_is_better(void **state)
{
    (void)state;
    char *text = tiny_folder(), *folder = tiny_folder();
    tiny_write_text(text, "data.ini", "[prepare]\nformat = text\n");
    tiny_write_text(text, "dict.txt", "a 8\nb 7\nc 6\nd 5\ne 4\nf 3\ng 2\nh 1\n");
    write_text_corpus(text, "train", 60);
    write_text_corpus(text, "valid", 9);
    const char *const settings[] = {"data.folder",
                                    text,
                                    "model.preset",
                                    "tiny",
                                    "model.width",
                                    "16",
                                    "model.context",
                                    "8",
                                    "train.max_tokens",
                                    "64",
                                    "train.best_by",
                                    "score",
                                    "train.validate_every",
                                    "20",
                                    "train.updates",
                                    "60",
                                    "schedule.name",
                                    "constant",
                                    "schedule.lr",
                                    "0.003",
                                    "device.threads",
                                    "1",
                                    NULL};
    nm_options *options = nm_options_create();
    nm_error err;
    nm_train_options_add(options, &nm_task_lm);
    nm_probe_options_add(options);
    for (int i = 0; settings[i]; i += 2)
        if (nm_options_set(options, settings[i], settings[i + 1], NM_ORIGIN_FILE, &err) != NM_OK)
            fail_msg("%s", err.text);
    nm_trainer *trainer;
    if (nm_trainer_open(&trainer, &nm_task_lm, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    const nm_train_state *s = nm_trainer_state(trainer);
    assert_int_equal(s->best_update, 60);
    assert_true(s->best_value > 1 && s->best_score == -s->best_value);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(text);
    tiny_data_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_are_exact),
        cmocka_unit_test(test_resume_is_exact_for_every_norm),
        cmocka_unit_test(test_resume_keeps_the_decays_of_the_schedule),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_a_new_best_resets_the_patience),
        cmocka_unit_test(test_the_newest_checkpoints_are_kept),
        cmocka_unit_test(test_resume_is_exact_at_any_update),
        cmocka_unit_test(test_reversal_is_learned),
        cmocka_unit_test(test_divergence_keeps_the_checkpoint),
        cmocka_unit_test(test_run_is_not_overwritten),
        cmocka_unit_test(test_schedule_without_a_length_is_refused),
        cmocka_unit_test(test_schedule_ends_with_the_time),
        cmocka_unit_test(test_schedule_ends_with_early_stopping),
        cmocka_unit_test(test_unreadable_checkpoint_stays),
        cmocka_unit_test(test_damaged_checkpoint_is_renamed),
        cmocka_unit_test(test_resume_with_another_optimizer),
        cmocka_unit_test(test_resume_with_another_selection_metric),
        cmocka_unit_test(test_the_initial_checkpoint_is_kept),
        cmocka_unit_test(test_the_lowest_learning_rate_ends_the_run),
        cmocka_unit_test(test_a_run_ends_with_a_validation),
        cmocka_unit_test(test_other_training_data_are_refused),
        cmocka_unit_test(test_an_invalid_state_is_damage),
        cmocka_unit_test(test_a_lower_perplexity_is_better),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
