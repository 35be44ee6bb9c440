/* Resuming: weights bitwise identical to those of an uninterrupted run, for every norm and at any update;
 * settings that a resumed run keeps or rejects; checkpoints that are damaged or cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#include "support/tiny_job.h"

/* The first progress report of a session. */
typedef struct first_report {
    nm_training_progress progress;
    double clock;
} first_report;

static void keep_first_report(void *user, const nm_training_progress *progress)
{
    first_report *report = user;
    if (!report->clock)
        *report = (first_report){*progress, nm_clock()};
}

/* Tokens of the earlier session are not divided by the time of this one. */
static void test_throughput_is_that_of_the_session(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.log_every", "100", NULL};
    nm_error err;
    job j = {.updates = "14", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_true(j.ended.sum_tokens == j.ended.tokens); /* of no record yet */
    j.updates = "15";
    nm_options *options = options_of(&j);
    nm_trainer *trainer;
    first_report report = {.clock = 0};
    const nm_train_callbacks callbacks = {.user = &report, .progress = keep_first_report};
    assert_int_equal(
        nm_trainer_open(&trainer, &nm_task_translation, options, j.folder, true, &callbacks, &err), NM_OK);
    double opened = nm_clock();
    usleep(100000); /* long in comparison with what the callback adds to the time */
    assert_int_equal(nm_trainer_run(trainer, &err), NM_OK);
    double tokens = (double)(report.progress.tokens - j.ended.tokens), most = 3 * tokens;
    assert_true(tokens > 0 && report.progress.tokens > 5 * tokens);
    assert_true(report.progress.tokens_per_second * (report.clock - opened) < most);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(j.folder);
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
    static const char *const renorm[] = {"norm.renorm.shorten_ramp", "false", NULL},
                             *const progressive[] = {"norm.progressive.shorten_lambda", "false", NULL};
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        const char *name = (*type)->name;
        if (strcmp(name, "fix"))
            assert_resume_is_exact(name, "10",
                                   !strcmp(name, "renorm")        ? renorm
                                   : !strcmp(name, "progressive") ? progressive
                                                                  : NULL);
    }
}

/* The decays of a schedule by validations continue: here the loss rises, so that there are some before the
 * stop. The validation at the end of the first part, after update 16, is not one of the unbroken run and
 * causes none. */
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
    static const char *const first[] = {"15", "16"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        job part = {.updates = first[i], .folder = tiny_folder(), .settings = settings};
        run(&part, NM_OK, &err);
        assert_true(part.ended.checked_update == part.ended.update);
        assert_true(part.ended.schedule.factor < 1);
        part.updates = "24";
        part.resume = true;
        assert_true(run(&part, NM_OK, &err) == unbroken);
        assert_true(part.ended.schedule.factor == whole.ended.schedule.factor);
        assert_int_equal(part.ended.bad_checks, whole.ended.bad_checks);
        tiny_data_remove(part.folder);
    }
    tiny_data_remove(whole.folder);
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

/* The momentum of the matrices and the moments of the other parameters, with accumulation, clipping and
 * frozen weights. */
static void test_resume_is_exact_with_muon(void **state)
{
    (void)state;
    static const char *const steps[] = {"1", "10"};
    static const char *const settings[] = {"optim.name",
                                           "muon",
                                           "optim.weight_decay",
                                           "0.1",
                                           "train.shards",
                                           "2",
                                           "train.max_grad_norm",
                                           "0.5",
                                           "model.freeze",
                                           "enc.0.ffn",
                                           "optim.decayed_parameters",
                                           "matrices",
                                           NULL};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        assert_resume_is_exact("layer", steps[i], settings);
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

/* A run whose newest training state is damaged continues from the one before, and keeps the damaged files
 * under another name. */
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
    assert_int_equal(access(model, F_OK), 0);
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

/* Without a usable checkpoint nothing is renamed: a second attempt must not begin the run anew. */
static void test_a_run_with_damaged_checkpoints_only_stays(void **state)
{
    (void)state;
    nm_error err;
    job j = {.updates = "16", .folder = tiny_folder()};
    run(&j, NM_OK, &err);
    char *folder = checkpoint_file(j.folder, "");
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".state.")) {
            char *path = checkpoint_file(j.folder, entry->d_name);
            cut(path);
            free(path);
        }
    closedir(dir);
    char *before = tiny_log(j.folder), *way_out = nm_format("%s/best.safetensors can be trained", j.folder);
    j.resume = true;
    for (int attempt = 0; attempt < 2; attempt++) {
        run(&j, NM_FORMAT, &err);
        assert_non_null(strstr(err.text, "no checkpoint can be used"));
        assert_non_null(strstr(err.text, way_out));
    }
    char *after = tiny_log(j.folder);
    assert_string_equal(before, after);
    free(before);
    free(after);
    free(way_out);
    free(folder);
    tiny_data_remove(j.folder);
}

/* The values of the training state as versions up to 0.1 stored them: in the tensor "state" of 768 bytes, at
 * these offsets. */
static const struct old_value {
    const char *name;
    size_t at, bytes;
} old_values[] = {{"update", 0, 8},
                  {"epoch", 8, 8},
                  {"batch", 16, 8},
                  {"step", 24, 8},
                  {"tokens", 32, 8},
                  {"bad_checks", 40, 8},
                  {"log_bytes", 48, 8},
                  {"checked_epochs", 56, 8},
                  {"checked_update", 64, 8},
                  {"best_loss", 72, 8},
                  {"best_score", 80, 8},
                  {"seconds", 88, 8},
                  {"best_update", 96, 8},
                  {"best_value", 104, 8},
                  {"score_title", 112, 16},
                  {"best_by_score", 128, 8},
                  {"schedule_by_score", 136, 8},
                  {"optimizer", 144, 8},
                  {"sum_loss", 152, 8},
                  {"sum_nll", 160, 8},
                  {"sum_penalty", 168, 8},
                  {"sum_norm", 176, 8},
                  {"sum_tokens", 184, 8},
                  {"sum_targets", 192, 8},
                  {"sum_updates", 200, 8},
                  {"warned_level", 208, 8},
                  {"schedule.factor", 216, 8},
                  {"schedule.scores", 224, 512},
                  {"schedule.n_scores", 736, 8},
                  {"schedule.skip_from", 744, 8},
                  {"schedule.skip_to", 752, 8},
                  {"schedule.best", 760, 8}};
enum { N_OLD_VALUES = sizeof old_values / sizeof *old_values, OLD_BYTES = 768 };

/* What a state file becomes. Its checksums are right in every case. */
typedef enum rewriting { FORGED, OLD, OLD_FORGED, EMPTY, REVERSED, WITHOUT_NEW_VALUES } rewriting;

static const int64_t forged_length = NM_SCHEDULE_MAX_PATIENCE + 1; /* that no run has */

/* Version 0.1 has no manifests, by which a rewritten file would be found. */
static void remove_manifests(const char *path)
{
    char *folder = nm_format("%.*s", (int)(strrchr(path, '/') - path), path);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".intoto.json")) {
            char *manifest = nm_path_join(folder, entry->d_name);
            assert_int_equal(unlink(manifest), 0);
            free(manifest);
        }
    closedir(dir);
    free(folder);
}

static void rewrite_state(const char *path, rewriting how)
{
    remove_manifests(path);
    nm_safetensors *file;
    nm_error err;
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_copy_metadata(writer, file);
    char old[OLD_BYTES] = {0};
    const int64_t old_bytes = OLD_BYTES, unknown = 5;
    size_t n = nm_safetensors_count(file), n_found = 0;
    for (size_t i = 0; i < n; i++) {
        const nm_safetensor *tensor = nm_safetensors_at(file, how == REVERSED ? n - 1 - i : i);
        const char *name = !strncmp(tensor->name, "state.", 6) ? tensor->name + 6 : NULL;
        const void *bytes = tensor->data;
        if (how == FORGED && name && !strcmp(name, "schedule.n_scores"))
            bytes = &forged_length;
        for (size_t k = 0; name && k < N_OLD_VALUES; k++)
            if (!strcmp(old_values[k].name, name)) {
                assert_int_equal(tensor->bytes, old_values[k].bytes);
                memcpy(old + old_values[k].at, bytes, old_values[k].bytes);
                n_found++;
            }
        bool dropped = name && (how == OLD || how == OLD_FORGED || how == EMPTY ||
                                (how == WITHOUT_NEW_VALUES && !strcmp(name, "warned_level")));
        if (!dropped)
            nm_safetensors_add(writer, tensor->name, tensor->type, tensor->rank, tensor->shape, bytes);
    }
    assert_int_equal(n_found, N_OLD_VALUES);
    if (how == OLD_FORGED)
        memcpy(old + 736, &forged_length, sizeof forged_length);
    if (how == OLD || how == OLD_FORGED)
        nm_safetensors_add(writer, "state", NM_TENSOR_U8, 1, &old_bytes, old);
    if (how == WITHOUT_NEW_VALUES) /* and with one of a later version */
        nm_safetensors_add(writer, "state.of_tomorrow", NM_TENSOR_I64, 0, NULL, &unknown);
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
    nm_safetensors_close(file);
}

static void forge_state(const char *path)
{
    rewrite_state(path, FORGED);
}

static void forge_old_state(const char *path)
{
    rewrite_state(path, OLD_FORGED);
}

static void remove_state(const char *path)
{
    rewrite_state(path, EMPTY);
}

/* The state of a run that is resumed, before it trains. */
static nm_train_state resumed_state(const job *j)
{
    nm_error err;
    nm_options *options = options_of(j);
    nm_trainer *trainer;
    assert_int_equal(nm_trainer_open(&trainer, &nm_task_translation, options, j->folder, true, NULL, &err),
                     NM_OK);
    nm_train_state state = *nm_trainer_state(trainer);
    nm_trainer_close(trainer);
    nm_options_free(options);
    return state;
}

static void assert_same_state(const nm_train_state *a, const nm_train_state *b)
{
    assert_true(nm_record_equal(nm_train_state_fields(), a, b));
    assert_memory_equal(&a->schedule, &b->schedule, sizeof a->schedule);
}

/* States of other versions: the raw struct of version 0.1, other orders, values that one of the versions
 * does not have. */
static void test_states_of_other_versions_resume_exactly(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "schedule.name", "val-decay", "train.validate_every", "3", "train.patience", "9", NULL};
    static const rewriting all[] = {OLD, REVERSED, WITHOUT_NEW_VALUES};
    nm_error err;
    job whole = {.norm = "power", .updates = "24", .folder = tiny_folder(), .settings = settings};
    uint64_t unbroken = run(&whole, NM_OK, &err);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        job j = {.norm = "power", .updates = "10", .folder = tiny_folder(), .settings = settings};
        run(&j, NM_OK, &err);
        char *path = checkpoint_file(j.folder, "00000010.state.safetensors");
        rewrite_state(path, all[i]);
        free(path);
        assert_true(j.ended.schedule.n_scores && j.ended.checked_update > j.ended.checked_epochs);
        j.updates = "24";
        nm_train_state resumed = resumed_state(&j);
        resumed.log_bytes = j.ended.log_bytes; /* the log has a record of the new session */
        assert_same_state(&resumed, &j.ended);
        j.resume = true;
        assert_true(run(&j, NM_OK, &err) == unbroken);
        whole.ended.seconds = j.ended.seconds;
        whole.ended.log_bytes = j.ended.log_bytes;
        assert_same_state(&j.ended, &whole.ended);
        tiny_data_remove(j.folder);
    }
    tiny_data_remove(whole.folder);
}

static void test_an_invalid_state_is_damage(void **state)
{
    (void)state;
    check_damaged_state(forge_state);
    check_damaged_state(forge_old_state);
    check_damaged_state(remove_state);
}

static void collect_message(void *user, const char *text)
{
    char **messages = user, *longer = nm_format("%s%s\n", *messages, text);
    free(*messages);
    *messages = longer;
}

/* Resumes a run of the optimizer `first` with `second`: the state starts from zero. */
static void check_other_optimizer(const char *first, const char *second)
{
    const char *const before[] = {"optim.name", first, NULL};
    const char *const after[] = {"optim.name", second, "schedule.lr", "0", NULL};
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder(), .settings = before};
    uint64_t trained = run(&j, NM_OK, &err);
    j.settings = after;
    j.updates = "7";
    nm_options *options = options_of(&j);
    nm_trainer *trainer;
    nm_training_progress progress;
    char *messages = nm_duplicate("");
    const nm_train_callbacks callbacks = {.user = &messages, .message = collect_message};
    assert_int_equal(
        nm_trainer_open(&trainer, &nm_task_translation, options, j.folder, true, &callbacks, &err), NM_OK);
    assert_non_null(strstr(messages, "optim.name"));
    assert_int_equal(nm_trainer_update(trainer, &progress, &err), NM_OK);
    assert_true(nm_trainer_weights_hash(trainer) == trained); /* rate 0 */
    nm_trainer_close(trainer);
    nm_options_free(options);
    free(messages);
    tiny_data_remove(j.folder);
}

/* SGD's momentum and Adam's second moment are stored in the same tensor. The state of Muon is shorter. */
static void test_resume_with_another_optimizer(void **state)
{
    (void)state;
    check_other_optimizer("adam-fairseq", "sgd");
    check_other_optimizer("adamw", "muon");
    check_other_optimizer("muon", "adamw");
    check_other_optimizer("muon", "sgd");
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
    assert_non_null(strstr(err.text, "the run was trained on other data"));
    tiny_data_remove(other);
    tiny_data_remove(j.folder);
}

/* Validations of the two sessions would be compared with each other; a run that was never validated has
 * none. */
static void test_other_validation_data_are_refused(void **state)
{
    (void)state;
    nm_error err;
    for (int validated = 0; validated < 2; validated++) {
        char *folder = tiny_data_create(120, 10);
        const char *const settings[] = {"data.folder", folder, NULL};
        job j = {.updates = "4", .folder = tiny_folder(), .settings = settings};
        tiny_write_split(folder, "valid", validated ? 13 : 0, 10, 2);
        run(&j, NM_OK, &err);
        tiny_write_split(folder, "valid", 13, 10, 9);
        j.resume = true;
        j.updates = "8";
        run(&j, validated ? NM_MISMATCH : NM_OK, &err);
        if (validated)
            assert_non_null(strstr(err.text, "validated on other data"));
        tiny_data_remove(folder);
        tiny_data_remove(j.folder);
    }
}

/* Records after the checkpoint belong to updates that are computed again, or to a configuration that was not
 * used. */
static void test_resume_cuts_the_log_at_the_checkpoint(void **state)
{
    (void)state;
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder()};
    run(&j, NM_OK, &err);
    char *path = nm_format("%s/log.jsonl", j.folder);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("{\"type\":\"train\",\"update\":77}\n{\"type\":\"resume\",\"update\":6,\"mark\":78}\n", file);
    assert_int_equal(fclose(file), 0);
    j.resume = true;
    j.updates = "8";
    run(&j, NM_OK, &err);
    char *log = tiny_log(j.folder);
    assert_null(strstr(log, "\"update\":77"));
    assert_null(strstr(log, "\"mark\":78"));
    assert_non_null(strstr(log, "\"update\":8"));
    free(log);
    free(path);
    tiny_data_remove(j.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_is_exact_for_every_norm),
        cmocka_unit_test(test_resume_keeps_the_decays_of_the_schedule),
        cmocka_unit_test(test_resume_is_exact_at_any_update),
        cmocka_unit_test(test_resume_is_exact_with_muon),
        cmocka_unit_test(test_unreadable_checkpoint_stays),
        cmocka_unit_test(test_damaged_checkpoint_is_renamed),
        cmocka_unit_test(test_resume_with_another_optimizer),
        cmocka_unit_test(test_resume_with_another_selection_metric),
        cmocka_unit_test(test_other_training_data_are_refused),
        cmocka_unit_test(test_other_validation_data_are_refused),
        cmocka_unit_test(test_an_invalid_state_is_damage),
        cmocka_unit_test(test_states_of_other_versions_resume_exactly),
        cmocka_unit_test(test_resume_cuts_the_log_at_the_checkpoint),
        cmocka_unit_test(test_throughput_is_that_of_the_session),
        cmocka_unit_test(test_a_run_with_damaged_checkpoints_only_stays),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
