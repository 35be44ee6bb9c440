#include "experiment/run_match.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "norm/norm_assignment.h"
#include "train/run_config.h"

typedef struct progress { /* of the run's last record in its log */
    double updates, epochs, seconds;
} progress;

typedef struct match {
    const nm_options *planned;
    nm_options *run;
    progress done;
    nm_settings *continued;
    nm_run_differences differences;
} match;

static nm_status read_progress(progress *done, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL, *path = nm_path_join(folder, "log.jsonl");
    nm_status status = nm_file_read_optional(path, &text, err);
    *done = (progress){0};
    char *rest = text;
    for (char *line; status == NM_OK && rest && (line = strsep(&rest, "\n")) != NULL;) {
        json_t *record = json_loads(line, 0, NULL);
        const char *type = json_string_value(json_object_get(record, "type"));
        if (type && !strcmp(type, "train"))
            *done = (progress){json_number_value(json_object_get(record, "update")),
                               json_number_value(json_object_get(record, "epoch")) + 1,
                               json_number_value(json_object_get(record, "seconds"))};
        json_decref(record);
    }
    return status;
}

/* Whether the option belongs to a norm that the model does not have. */
static bool is_of_other_norm(const match *self, const char *path)
{
    /* norm.layer: the decoder may use it without an option that names it */
    return strncmp(path, "norm.layer.", 11) && !nm_norm_option_applies(self->planned, path);
}

/* Whether the run can still end at this value of a limit. 0: no limit. */
static bool is_reachable(const match *self, const char *path, const char *old, const char *new)
{
    double before = strtod(old, NULL), limit = strtod(new, NULL);
    if (limit == 0 || (before != 0 && limit >= before))
        return true;
    return (!strcmp(path, "train.updates") && self->done.updates <= limit) ||
           (!strcmp(path, "train.epochs") && self->done.epochs <= limit) ||
           (!strcmp(path, "train.seconds") && self->done.seconds <= limit);
}

static bool is_one_of(const char *path, const char *const *list)
{
    while (*list && strcmp(path, *list))
        list++;
    return *list;
}

static void compare_option(match *self, const char *path, const char *old, const char *new)
{
    static const char *const limits[] = {"train.updates", "train.epochs", "train.seconds", "train.patience",
                                         NULL};
    static const char *const data[] = {"data.folder", "data.train", "data.valid", "data.test", NULL};
    /* nm_run_check_initial_model compares the files. */
    bool moved = !strcmp(path, "model.init_from") && *old && *new;
    if (nm_run_config_agrees(path, old, new) || is_of_other_norm(self, path) || moved)
        return;
    bool limit = is_one_of(path, limits);
    if (!nm_run_config_may_change(self->run, path) || (limit && !is_reachable(self, path, old, new)))
        nm_run_config_list(&self->differences, path, old, new);
    else if (limit || is_one_of(path, data))
        nm_settings_add(self->continued, path, new);
}

nm_status nm_run_match(const nm_options *planned, const char *folder, nm_settings *continued, nm_error *err)
{
    match self = {.planned = planned, .continued = continued, .differences.owner = "the comparison has"};
    NM_TRY(nm_run_config_read(&self.run, planned, folder, err));
    if (!self.run)
        return NM_OK;
    nm_status status = read_progress(&self.done, folder, err);
    char *path;
    for (size_t i = 0; status == NM_OK && (path = nm_options_path(planned, i)) != NULL; i++) {
        NM_AUTO_FREE char *old = nm_options_get(self.run, path), *new = nm_options_get(planned, path);
        compare_option(&self, path, old, new);
        free(path);
    }
    if (self.differences.text)
        status =
            nm_fail(err, NM_MISMATCH,
                    "%s: the run has %s; choose another --folder, or remove this one to train the run again",
                    folder, self.differences.text);
    free(self.differences.text);
    nm_options_free(self.run);
    return status;
}
