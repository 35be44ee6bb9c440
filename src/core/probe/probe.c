#include "probe/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "probe/instrument.h"

/* In the order of their lines in the log. */
/* clang-format off */
#define INSTRUMENTS(I) \
    I(distance) \
    I(deviation) \
    I(gradient_parts) \
    I(gain) \
    I(gradient) \
    I(scale) \
    I(penalty) \
    I(update_ratio) \
    I(effective_rate) \
    I(moments) \
    I(residual_share) \
    I(massive) \
    I(attention_entropy)

#define I(name) extern const nm_instrument nm_instrument_##name;
INSTRUMENTS(I)
#undef I

static const nm_instrument *const instruments[] = {
#define I(name) &nm_instrument_##name,
    INSTRUMENTS(I)
#undef I
};
enum { N_INSTRUMENTS = sizeof instruments / sizeof *instruments };

#define I(name) #name ", "
#define ROW(field, initial, min, max, help) NM_OPTION(nm_probe_config, field, initial, min, max, help)
static const nm_option probe_options[] = {
    ROW(every, "0", 0, 1e12, "Number of updates between measurements of the instruments; 0 disables them."),
    ROW(checkpoints, "false", 0, 1, "Also measure at the updates that end in a checkpoint."),
    ROW(instruments, "all", 0, 0, "Comma-separated instruments: " INSTRUMENTS(I) "or all."),
    {0}};
#undef I
/* clang-format on */

struct nm_probe {
    nm_probe_config config;
    nm_train_hooks hooks;
    nm_probe_record records[N_INSTRUMENTS];
};

static bool measures(const nm_options *options)
{
    const nm_probe_config *config = nm_options_find(options, "probe");
    return config->every || config->checkpoints;
}

static const nm_option_rule rules[] = {
    {"probe.instruments", NULL, NULL, "probe.every = 0 and probe.checkpoints = false disable the instruments",
     measures},
    {0}};

void nm_probe_options_add(nm_options *options)
{
    nm_options_add(options, "probe", probe_options, NULL, sizeof(nm_probe_config));
    nm_options_add_rules(options, rules);
}

static bool is_due(void *user, int64_t update, bool checkpoint)
{
    nm_probe *probe = user;
    if (!(probe->config.every && update % probe->config.every == 0) &&
        !(probe->config.checkpoints && checkpoint))
        return false;
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        json_decref(probe->records[i].lines); /* of an update that failed */
        probe->records[i].update = update;
        probe->records[i].lines = json_array();
    }
    return true;
}

static void on_norm(void *user, const nm_norm_call *call, bool backward)
{
    nm_probe *probe = user;
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        nm_probe_record *record = &probe->records[i];
        record->backend = call->backend;
        if (record->instrument && record->instrument->norm)
            record->instrument->norm(record, call, backward);
    }
}

static void on_residual(void *user, const nm_residual_call *call)
{
    nm_probe *probe = user;
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        nm_probe_record *record = &probe->records[i];
        if (record->instrument && record->instrument->residual)
            record->instrument->residual(record, call);
    }
}

static void on_attention(void *user, const nm_attention_call *call)
{
    nm_probe *probe = user;
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        nm_probe_record *record = &probe->records[i];
        if (record->instrument && record->instrument->attention)
            record->instrument->attention(record, call);
    }
}

static void on_gradients(void *user, const nm_model *model, double n_targets, double learning_rate)
{
    nm_probe *probe = user;
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        nm_probe_record *record = &probe->records[i];
        record->backend = model->backend;
        record->n_targets = n_targets;
        record->learning_rate = learning_rate;
        if (record->instrument && record->instrument->gradients)
            record->instrument->gradients(record, model);
    }
}

static json_t *on_updated(void *user, const nm_model *model)
{
    nm_probe *probe = user;
    json_t *all = json_array();
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        nm_probe_record *record = &probe->records[i];
        if (record->instrument && record->instrument->updated)
            record->instrument->updated(record, model);
        json_array_extend(all, record->lines);
        json_decref(record->lines);
        record->lines = NULL;
    }
    return all;
}

static nm_status unknown_instrument(const char *name, nm_error *err)
{
    const char *best = instruments[0]->name;
    for (int i = 1; i < N_INSTRUMENTS; i++)
        if (nm_edit_distance(name, instruments[i]->name) < nm_edit_distance(name, best))
            best = instruments[i]->name;
    return nm_fail(err, NM_USAGE, "probe.instruments: unknown instrument %.64s; the most similar one is %s",
                   name, best);
}

static nm_status select_instruments(nm_probe *probe, const char *names, nm_error *err)
{
    char *copy = nm_duplicate(names), *rest = copy;
    nm_status status = NM_OK;
    for (char *name; status == NM_OK && (name = strsep(&rest, ",")) != NULL;) {
        bool found = !*name;
        for (int i = 0; i < N_INSTRUMENTS; i++)
            if (!strcmp(name, "all") || !strcmp(name, instruments[i]->name)) {
                probe->records[i].instrument = instruments[i];
                found = true;
            }
        if (!found)
            status = unknown_instrument(name, err);
    }
    free(copy);
    return status;
}

nm_status nm_probe_create(nm_probe **out, const nm_options *options, nm_error *err)
{
    const nm_probe_config *config = nm_options_find(options, "probe");
    *out = NULL;
    nm_probe *probe = nm_allocate(sizeof *probe);
    probe->config = *config;
    probe->hooks =
        (nm_train_hooks){probe, is_due, on_norm, on_residual, on_attention, on_gradients, on_updated};
    /* An unknown name is an error even if no measurements are enabled. */
    nm_status status = select_instruments(probe, config->instruments, err);
    if (status == NM_OK && (config->every || config->checkpoints))
        *out = probe;
    else
        nm_probe_free(probe);
    return status;
}

const nm_train_hooks *nm_probe_hooks(const nm_probe *probe)
{
    return probe ? &probe->hooks : NULL;
}

void nm_probe_free(nm_probe *probe)
{
    if (!probe)
        return;
    for (int i = 0; i < N_INSTRUMENTS; i++) {
        nm_probe_record *record = &probe->records[i];
        if (record->instrument && record->instrument->release)
            record->instrument->release(record);
        json_decref(record->lines);
    }
    free(probe);
}
