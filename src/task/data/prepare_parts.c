/* What the steps of nm_prepare_run share: names, settings, and the report. */
#include <stdlib.h>

#include "base/file.h"
#include "data/prepare_private.h"

const char *const nm_prepare_split_names[NM_PREPARE_SPLITS] = {"train", "valid", "test"};

nm_document_rule nm_prepare_document_rule(const nm_prepare_config *config)
{
    return (nm_document_rule){config->documents, config->document_separator};
}

void nm_prepare_cleaner_init(nm_cleaner *cleaner, const nm_prepare_config *config, int side)
{
    const nm_clean_options options = {.punctuation = config->punctuation,
                                      .non_printing = config->remove_non_printing,
                                      .language = side ? config->target_lang : config->source_lang};
    nm_cleaner_init(cleaner, &options);
}

const char *nm_prepare_side_name(int sides, int side)
{
    return sides == 1 ? "text" : side ? "target" : "source";
}

const char *nm_prepare_prefix(const nm_prepare_config *config, int split)
{
    return split == PREPARE_TRAIN ? config->train : split == PREPARE_VALID ? config->valid : config->test;
}

bool nm_prepare_has_split(const nm_prepare_config *config, int split)
{
    return *nm_prepare_prefix(config, split) || (split == PREPARE_VALID && config->valid_every);
}

char *nm_prepare_path(const nm_prepare *self, int split, int side, const char *suffix)
{
    NM_AUTO_FREE char *name =
        nm_format("%s.%s%s%s", nm_prepare_split_names[split], nm_prepare_side_name(self->sides, side),
                  suffix ? "." : "", suffix ? suffix : "");
    return nm_path_join(self->config->output, name);
}

static const struct {
    const char *text, *option;
} drops[NM_DROP_N] = {
#define D(name, text, option) {text, option},
    NM_DROP_LIST(D)
#undef D
};

const char *nm_drop_reason_text(nm_drop_reason drop)
{
    return drop < NM_DROP_N ? drops[drop].text : "kept";
}

const char *nm_drop_reason_option(nm_drop_reason drop)
{
    return drop < NM_DROP_N ? drops[drop].option : "";
}

void nm_prepare_report_release(nm_prepare_report *report)
{
    for (int split = 0; split < NM_PREPARE_SPLITS; split++) {
        free(report->splits[split].columns);
        for (int drop = 0; drop < NM_DROP_N; drop++)
            for (int i = 0; i < report->splits[split].n_examples[drop]; i++) {
                nm_drop_example *example = &report->splits[split].examples[drop][i];
                free(example->path);
                for (int side = 0; side < NM_PREPARE_SIDES; side++)
                    free(example->text[side]);
            }
    }
    *report = (nm_prepare_report){0};
}

nm_status nm_prepare_report_progress(const nm_prepare *self, const char *step, int64_t lines, nm_error *err)
{
    const nm_prepare_progress progress = {step, lines};
    if (!self->events->progress || self->events->progress(self->events->user, &progress))
        return NM_OK;
    return nm_fail(err, NM_INTERRUPTED, "interrupted; %s is as before", self->config->output);
}
