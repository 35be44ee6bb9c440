#include "experiment/run_match.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "text/buffer.h"
#include "train/run_config.h"

typedef struct progress { /* of the run's last record in its log */
    double updates, epochs, seconds;
} progress;

typedef struct match {
    nm_options *run;
    char *norms; /* values of [model] and norm.at of the comparison */
    progress done;
    nm_settings *continued;
    char *differences; /* list for the message; NULL: none */
    int n;
} match;

static nm_status read_progress(progress *done, const char *folder, nm_error *err)
{
    char *path = nm_path_join(folder, "log.jsonl"), *text;
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
    free(text);
    free(path);
    return status;
}

/* Whether the option belongs to a norm that the model does not have. */
static bool is_of_other_norm(const match *self, const char *path)
{
    static const char section[] = "norm.";
    const char *name = path + sizeof section - 1, *end;
    if (strncmp(path, section, sizeof section - 1) || !(end = strchr(name, '.')))
        return false;
    char *value = nm_format("=%.*s\n", (int)(end - name), name);
    bool found = !strcmp(value, "=layer\n") || strstr(self->norms, value);
    free(value);
    return !found;
}

/* "=NORM" and a newline for every value of [model] and every entry SITES=NORM of norm.at; heap. */
static char *list_norms(const nm_options *options)
{
    nm_buffer out = {0};
    char *path;
    nm_buffer_clear(&out);
    for (size_t i = 0; (path = nm_options_path(options, i)) != NULL; i++) {
        bool at = !strcmp(path, "norm.at"), listed = at || !strncmp(path, "model.", 6);
        char *value = listed ? nm_options_get(options, path) : NULL, *rest = value;
        for (char *entry; (entry = strsep(&rest, at ? "," : "\n")) != NULL;) {
            const char *sign = strrchr(entry, '='), *norm = sign ? sign + 1 : entry;
            nm_buffer_append_byte(&out, '=');
            nm_buffer_append(&out, norm, strlen(norm));
            nm_buffer_append_byte(&out, '\n');
        }
        free(value);
        free(path);
    }
    return out.data;
}

static void add_difference(match *self, const char *path, const char *old, const char *new)
{
    enum { LISTED = 3 };
    if (++self->n > LISTED + 1)
        return;
    char *longer = self->n > LISTED
                       ? nm_format("%s, ...", self->differences)
                       : nm_format("%s%s%s = %.60s (the comparison has %.60s)",
                                   self->differences ? self->differences : "", self->differences ? ", " : "",
                                   path, *old ? old : "(empty)", *new ? new : "(empty)");
    free(self->differences);
    self->differences = longer;
}

/* Whether the run can still end at this value of a limit. 0: no limit. */
static bool is_reachable(const match *self, const char *path, const char *old, const char *new)
{
    double before = strtod(old, NULL), limit = strtod(new, NULL);
    if (!limit || (before && limit >= before))
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
        add_difference(self, path, old, new);
    else if (limit || is_one_of(path, data))
        nm_settings_add(self->continued, path, new);
}

nm_status nm_run_match(const nm_options *planned, const char *folder, nm_settings *continued, nm_error *err)
{
    match self = {.continued = continued};
    NM_TRY(nm_run_config_read(&self.run, planned, folder, err));
    if (!self.run)
        return NM_OK;
    nm_status status = read_progress(&self.done, folder, err);
    self.norms = list_norms(planned);
    char *path;
    for (size_t i = 0; status == NM_OK && (path = nm_options_path(planned, i)) != NULL; i++) {
        char *old = nm_options_get(self.run, path), *new = nm_options_get(planned, path);
        compare_option(&self, path, old, new);
        free(old);
        free(new);
        free(path);
    }
    if (self.differences)
        status =
            nm_fail(err, NM_MISMATCH,
                    "%s: the run has %s; choose another --folder, or remove this one to train the run again",
                    folder, self.differences);
    free(self.differences);
    free(self.norms);
    nm_options_free(self.run);
    return status;
}
