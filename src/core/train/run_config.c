#include "train/run_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors.h"
#include "base/utf8_check.h"
#include "norm/norm_assignment.h"
#include "train/checkpoint.h"
#include "train/manifest.h"
#include "train/schedule.h"

static const nm_option run_options[] = {
    NM_OPTION(nm_run_options, folder, "", 0, 0,
              "Run folder; empty: runs/RECIPE with the name of the recipe, or runs/RECIPE-PROFILE."),
    NM_OPTION(nm_run_options, task, "translation", 0, 0,
              "Task, if the recipe does not set it; determines the options of [data] and [model]."),
    NM_OPTION(nm_run_options, profile, "", 0, 0,
              "Profile of the recipe to apply, such as small (section [profile.small]); empty: none."),
    NM_OPTION(
        nm_run_options, tune, "", 0, 0,
        "Model file or run folder that is trained further: its structure replaces that of the recipe, and "
        "its parameters are the initial values. For data that norma prepare --like has prepared."),
    NM_OPTION(
        nm_run_options, tune_width, "0", 0, 65536,
        "With run.tune: width of the model for which schedule.lr of the section [tune] is meant. The rate is "
        "multiplied by tune_width / model.width, because wider models need smaller rates; 0: it is not."),
    NM_CHOICE(nm_run_options, resume, "no", NM_RESUMES,
              "Continue from the newest checkpoint, or start if there is none: with the configuration of the "
              "run (yes, or the option "
              "without a value), or with options of the command line replacing those of the run (override)."),
    NM_OPTION(nm_run_options, quiet, "false", 0, 1, "Print validations and warnings only, no progress."),
    NM_OPTION(
        nm_run_options, dry_run, "false", 0, 1,
        "Read the data, print the number of parameters and the memory of a step, and end without training "
        "or writing a file."),
    NM_OPTION(
        nm_run_options, tensorboard, "false", 0, 1,
        "Also write the log as TensorBoard event files, to the subfolder tensorboard of the run folder."),
    NM_OPTION(nm_run_options, report_seconds, "30", 0.1, 1e6,
              "Seconds between progress lines if standard error is not a terminal."),
    {0}};

nm_run_options *nm_run_options_add(nm_options *options)
{
    return nm_options_add(options, "run", run_options, NULL, sizeof(nm_run_options));
}

/* Sections ("run.", ...) and options that may be changed when a run is resumed: they affect the number of
 * updates, logging, saving and the score of validations, but not the updates themselves. */
static const char *const changeable[] = {
    "run.",
    "comm.",
    "probe.",
    "decode.",
    "train.updates",
    "train.epochs",
    "train.seconds",
    "train.patience",
    "train.log_every",
    "train.save_every",
    "train.keep_last",
    "train.check_shard",
    "device.threads",
    "device.profile",
    "device.fold",
    "device.memory_mib",
    "device.ordinal",
    "device.cache",
    "data.folder",
    "data.train",
    "data.valid",
    "data.test",
    "data.eval_streams",
};

static bool is_changeable(const char *path)
{
    if (!strcmp(path, "run.tune")) /* the run has the parameters of this model already */
        return false;
    for (size_t i = 0; i < sizeof changeable / sizeof *changeable; i++) {
        size_t length = strlen(changeable[i]);
        if (!strncmp(path, changeable[i], length) && (changeable[i][length - 1] == '.' || !path[length]))
            return true;
    }
    return false;
}

static bool limits_updates(const char *path)
{
    return !strcmp(path, "train.updates") || !strcmp(path, "train.epochs");
}

/* Whether the schedule of the run depends on this limit: schedules that end with the run scale their decay to
 * its planned length. */
static bool sets_schedule_length(const nm_options *run, const char *path)
{
    const nm_schedule_config *schedule = nm_options_find(run, "schedule");
    if (!schedule || !nm_schedule_has_length(schedule))
        return false;
    return (limits_updates(path) && !schedule->updates) ||
           (!strcmp(path, "train.patience") && schedule->early_stopping);
}

/* Whether the learning rates after a resume follow this limit instead of the old one. */
static bool moves_schedule(const nm_options *run, const char *path)
{
    const nm_schedule_config *schedule = nm_options_find(run, "schedule");
    return sets_schedule_length(run, path) ||
           (schedule && nm_schedule_has_length(schedule) && !strcmp(path, "train.seconds"));
}

/* Whether norms of the run scale their ramps to this limit. */
static bool sets_ramps(const nm_options *run, const char *path)
{
    return limits_updates(path) && nm_norm_options_any(run, nm_norm_follows_length, NULL);
}

bool nm_run_config_may_change(const nm_options *run, const char *path)
{
    return is_changeable(path) && !sets_schedule_length(run, path) && !sets_ramps(run, path);
}

bool nm_run_config_is_of_model(const nm_options *run, const char *path)
{
    if (!strncmp(path, "model.", 6))
        return !nm_ends_with(path, "dropout") && strcmp(path, "model.init") &&
               strcmp(path, "model.init_from") && strcmp(path, "model.freeze");
    if (!strcmp(path, "norm.at"))
        return true;
    return !strncmp(path, "norm.", 5) && strchr(path + 5, '.') && nm_norm_option_applies(run, path);
}

nm_status nm_run_config_read(nm_options **run, const nm_options *like, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL, *path = nm_path_join(folder, "config.ini");
    nm_status status = nm_file_read_optional(path, &text, err);
    *run = NULL;
    if (status == NM_OK && text) {
        *run = nm_options_create_like(like);
        status = nm_options_read_saved(*run, path, text, err);
    }
    if (status != NM_OK) {
        nm_options_free(*run);
        *run = NULL;
    }
    return status;
}

static nm_status refuse(const nm_options *run, const char *path, const char *old, const char *new,
                        const char *folder, nm_error *err)
{
    const char *reason = "";
    if (sets_schedule_length(run, path))
        reason = " and ends the schedule with it (schedule.updates fixes the length in updates)";
    else if (sets_ramps(run, path))
        reason = " and shortens the ramps of its norms to it";
    return nm_fail(err, NM_USAGE,
                   "%s = %.100s: the run in %s uses %.100s%s; omit the option, choose another folder, or "
                   "continue with the new value by --resume=override",
                   path, *new ? new : "(empty)", folder, *old ? old : "(empty)", reason);
}

void nm_run_config_list(nm_run_differences *differences, const char *path, const char *value,
                        const char *other)
{
    enum { LISTED = 4 };
    if (++differences->n > LISTED + 1)
        return;
    const char *text = differences->text ? differences->text : "", *separator = *text ? ", " : "";
    char *longer = differences->n > LISTED ? nm_format("%s, ...", text)
                                           : nm_format("%s%s%s = %.60s (%s %.60s)", text, separator, path,
                                                       *value ? value : "(empty)", differences->owner,
                                                       *other ? other : "(empty)");
    free(differences->text);
    differences->text = longer;
}

bool nm_run_config_agrees(const char *path, const char *old, const char *new)
{
    return !strcmp(old, new) || (!strcmp(path, "device.precision") && !strcmp(new, "auto"));
}

static nm_status merge_option(nm_options *run, const nm_options *requested, const char *path,
                              const char *folder, nm_resume resume, nm_error *err)
{
    NM_AUTO_FREE char *old = nm_options_get(run, path), *new = nm_options_get(requested, path);
    bool given = nm_options_origin(requested, path) == NM_ORIGIN_COMMAND ||
                 (!strncmp(path, "run.", 4) && is_changeable(path));
    nm_status status = NM_OK;
    if (given && !nm_run_config_agrees(path, old, new)) {
        bool allowed = nm_run_config_may_change(run, path);
        status = allowed || resume == NM_RESUME_OVERRIDE
                     ? nm_options_set(run, path, new, NM_ORIGIN_COMMAND, err)
                     : refuse(run, path, old, new, folder, err);
    }
    return status;
}

/* Whether the value of the run is that of its recipe, not of the command line or of the model that it trains
 * further. */
static bool is_of_recipe(const nm_options *run, const char *path)
{
    const nm_run_options *options = nm_options_find(run, "run");
    bool tuned = options && *options->tune && !strncmp(path, "model.", 6);
    return !tuned && nm_options_origin(run, path) < NM_ORIGIN_TUNE;
}

nm_status nm_run_config_merge(nm_options **effective, const nm_options *requested, const char *folder,
                              nm_resume resume, char **warning, nm_error *err)
{
    nm_options *run;
    *effective = NULL;
    *warning = NULL;
    NM_TRY(nm_run_config_read(&run, requested, folder, err));
    if (!run)
        return NM_OK;
    nm_status status = NM_OK;
    char *path;
    nm_run_differences differences = {.owner = "the run uses"};
    char *moved = NULL;
    for (size_t i = 0; status == NM_OK && (path = nm_options_path(requested, i)) != NULL; i++) {
        NM_AUTO_FREE char *old = nm_options_get(run, path), *new = nm_options_get(requested, path);
        if (is_of_recipe(run, path) && nm_options_origin(requested, path) != NM_ORIGIN_COMMAND &&
            !is_changeable(path) && !nm_run_config_agrees(path, old, new))
            nm_run_config_list(&differences, path, new, old);
        status = merge_option(run, requested, path, folder, resume, err);
        NM_AUTO_FREE char *merged = nm_options_get(run, path);
        if (status == NM_OK && strcmp(old, merged) && moves_schedule(run, path))
            nm_format_append(&moved, "%s%s = %s instead of %s", moved ? ", " : "", path, merged, old);
        free(path);
    }
    if (status != NM_OK) {
        nm_options_free(run);
        NM_FREE(differences.text, moved);
        return status;
    }
    if (differences.text)
        *warning = nm_format("the recipe has changed since the run was started: %s", differences.text);
    if (moved)
        nm_format_append(warning,
                         "%s%s: the schedule ends with the new limit, so the learning rate of the "
                         "next update is not the one that the run stopped with",
                         *warning ? "; " : "", moved);
    NM_FREE(differences.text, moved);
    *effective = run;
    return NM_OK;
}

nm_status nm_run_config_read_data(nm_options **run, const nm_options *requested, const char *folder,
                                  nm_error *err)
{
    NM_TRY(nm_run_config_read(run, requested, folder, err));
    nm_status status = NM_OK;
    char *path;
    for (size_t i = 0; *run && status == NM_OK && (path = nm_options_path(requested, i)) != NULL; i++) {
        NM_AUTO_FREE char *value = nm_options_get(requested, path);
        if (!strncmp(path, "data.", 5) && nm_options_origin(requested, path) == NM_ORIGIN_COMMAND)
            status = nm_options_set(*run, path, value, NM_ORIGIN_COMMAND, err);
        free(path);
    }
    return status;
}

nm_status nm_run_config_text(const nm_options *options, char **text, nm_error *err)
{
    size_t bytes;
    *text = NULL;
    FILE *memory = nm_text_stream_open(text, &bytes);
    nm_options_write(options, memory);
    nm_text_stream_close(memory);
    return nm_text_check(*text, bytes, "the options", err); /* model files contain them as JSON */
}

nm_status nm_run_config_load(char **text, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "config.ini");
    return nm_file_read_optional(path, text, err);
}

nm_status nm_run_config_write(const char *text, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "config.ini");
    return nm_file_write(path, text, strlen(text), err);
}

/* The first option outside [run] and [comm] that `truth` sets and that has another value in `text`, heap:
 * "schedule.lr = 0.0005 instead of 0.03"; NULL: there is none. unchangeable: only those that a resumed run
 * must not change. */
static char *find_difference(const nm_options *like, const char *text, const char *truth, bool unchangeable)
{
    NM_AUTO(nm_options_release) nm_options *read = nm_options_create_like(like);
    NM_AUTO(nm_options_release) nm_options *checkpoint = nm_options_create_like(like);
    nm_error ignored;
    char *path, *difference = NULL;
    const bool valid = nm_options_read_saved(checkpoint, "config", truth, &ignored) == NM_OK;
    if (nm_options_read_saved(read, "config.ini", text, &ignored) != NM_OK)
        difference = nm_duplicate(ignored.text);
    for (size_t i = 0; valid && !difference && (path = nm_options_path(like, i)) != NULL; i++) {
        NM_AUTO_FREE char *value = nm_options_get(read, path), *expected = nm_options_get(checkpoint, path);
        const bool local = !strncmp(path, "run.", 4) || !strncmp(path, "comm.", 5);
        if (!local && strcmp(value, expected) && nm_options_origin(checkpoint, path) != NM_ORIGIN_DEFAULT &&
            !(unchangeable && is_changeable(path)))
            difference = nm_format("%s = %.100s instead of %.100s", path, *value ? value : "(empty)",
                                   *expected ? expected : "(empty)");
        free(path);
    }
    return difference;
}

static nm_status fail_other_config(const char *folder, int64_t update, const char *difference, nm_error *err)
{
    return nm_fail(
        err, NM_FORMAT,
        "%s/config.ini: not the configuration of checkpoint %lld (%s); remove the file, and --resume "
        "restores it from the checkpoint",
        folder, (long long)update, difference ? difference : "[run], [comm], comments or spaces");
}

/* Checkpoints of version 0.1 have no manifest, but their models contain most options. */
static nm_status compare_with_model(const nm_options *like, const char *folder, const char *text,
                                    nm_error *err)
{
    size_t n;
    NM_AUTO_FREE char *difference = NULL;
    char **paths;
    nm_safetensors *file;
    NM_TRY(nm_checkpoint_list(folder, &paths, &n, err));
    int64_t update = n ? strtoll(strrchr(paths[n - 1], '/') + 1, NULL, 10) : 0;
    if (n && nm_safetensors_open_metadata(&file, paths[n - 1], NM_IGNORED) == NM_OK) {
        const char *config = nm_safetensors_metadata(file, "config");
        difference = config ? find_difference(like, text, config, true) : NULL;
        nm_safetensors_close(file);
    }
    nm_checkpoint_list_free(paths, n);
    return difference ? fail_other_config(folder, update, difference, err) : NM_OK;
}

/* Writes the text if config.ini is missing, or that of the checkpoint before (digest `before`): the program
 * was killed between the checkpoint and its copy of the configuration. */
static nm_status restore(const char *folder, const char *text, const char *truth, int64_t update,
                         const char *before, char **message, nm_error *err)
{
    char digest[NM_DIGEST_TEXT] = "";
    if (text)
        nm_digest_of_text(text, digest);
    if (text && (!strcmp(text, truth) || strcmp(digest, before)))
        return NM_OK;
    NM_TRY(nm_run_config_write(truth, folder, err));
    if (!text)
        *message = nm_format("%s/config.ini was missing and is restored from checkpoint %lld", folder,
                             (long long)update);
    return NM_OK;
}

nm_status nm_run_config_restore(const char *folder, char **message, nm_error *err)
{
    NM_AUTO_FREE char *truth = NULL, *text = NULL;
    char before[NM_DIGEST_TEXT];
    int64_t update;
    *message = NULL;
    NM_TRY(nm_manifest_find_config(folder, &truth, &update, before, err));
    nm_status status = truth ? nm_run_config_load(&text, folder, err) : NM_OK;
    if (truth && status == NM_OK)
        status = restore(folder, text, truth, update, before, message, err);
    return status;
}

nm_status nm_run_config_prove(const nm_options *like, const char *folder, char **message, nm_error *err)
{
    NM_AUTO_FREE char *difference = NULL, *truth = NULL, *text = NULL;
    char before[NM_DIGEST_TEXT];
    int64_t update;
    NM_TRY(nm_run_config_restore(folder, message, err));
    NM_TRY(nm_manifest_find_config(folder, &truth, &update, before, err));
    nm_status status = nm_run_config_load(&text, folder, err);
    if (status == NM_OK && text && !truth) {
        status = compare_with_model(like, folder, text, err);
    } else if (status == NM_OK && text && strcmp(text, truth)) {
        difference = find_difference(like, text, truth, false);
        status = fail_other_config(folder, update, difference, err);
    }
    return status;
}

nm_status nm_run_config_changes(const nm_options *options, const char *folder, json_t **changes,
                                nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *run = NULL;
    *changes = NULL;
    NM_TRY(nm_run_config_read(&run, options, folder, err));
    char *path;
    for (size_t i = 0; run && (path = nm_options_path(options, i)) != NULL; i++) {
        NM_AUTO_FREE char *old = nm_options_get(run, path), *new = nm_options_get(options, path);
        if (strncmp(path, "run.", 4) && strcmp(old, new)) {
            if (!*changes)
                *changes = json_object();
            json_object_set_new(*changes, path, json_pack("{s:s, s:s}", "from", old, "to", new));
        }
        free(path);
    }
    return NM_OK;
}
