/* Options from INI files: sections of options, [profile.NAME], [size.N] and [tune], and saved
 * configurations. */
#include <stdlib.h>
#include <string.h>

#include "base/ini_file.h"
#include "base/memory.h"
#include "base/old_options.h"
#include "base/options_table.h"

/* Sections of an INI file by the runs to which they apply. */
typedef enum section_kind {
    PLAIN_SECTIONS, /* all runs; profiles are among them */
    SIZE_SECTIONS,  /* [size.N] */
    TUNE_SECTION    /* [tune] */
} section_kind;

/* What a reading function does with the settings. */
typedef struct reading {
    nm_options *options;
    bool saved;          /* a configuration that nm_options_write wrote, possibly for another command */
    section_kind kind;   /* read only these sections */
    int64_t size;        /* of the training data, for SIZE_SECTIONS */
    const char *profile; /* NAME of the section [profile.NAME] to read; NULL or "": none */
    bool profile_found, sizes_found;
    const char *only; /* nm_options_peek: the only option to read; NULL: all options are set */
    char *found;      /* its value */
} reading;

/* The origin that nm_options_write appended to the line as a comment. Saved values of defaults and presets
 * have the origin file. Presets of this version do not apply: an option that did not exist yet has its
 * default, which is the earlier behavior. */
static nm_origin saved_origin(const char *comment)
{
    for (int i = NM_ORIGIN_FILE; comment && i <= NM_ORIGIN_COMMAND; i++)
        if (!strcmp(comment, nm_origin_names[i]))
            return (nm_origin)i;
    return NM_ORIGIN_FILE;
}

/* Whether the settings of a section apply. *origin is set for sections that hold full names, and otherwise
 * unchanged. */
static nm_status section_applies(reading *self, const char *section, bool *applies, nm_origin *origin,
                                 nm_error *err)
{
    bool profile = section && !strncmp(section, "profile.", 8),
         size = section && !strncmp(section, "size.", 5);
    bool tune = section && !strcmp(section, "tune");
    *applies = self->kind == (size ? SIZE_SECTIONS : tune ? TUNE_SECTION : PLAIN_SECTIONS);
    if (profile) {
        *applies = *applies && self->profile && !strcmp(section + 8, self->profile);
        self->profile_found |= *applies;
        *origin = NM_ORIGIN_PROFILE;
    } else if (size) {
        char *end;
        long long most = strtoll(section + 5, &end, 10);
        if (most <= 0 || *end)
            return nm_fail(err, NM_FORMAT, "[%.100s]: expected [size.N] with a positive number N", section);
        *applies = *applies && self->size <= most;
        self->sizes_found = true;
        *origin = NM_ORIGIN_SIZE;
    } else if (tune) {
        *origin = NM_ORIGIN_TUNE;
    }
    return NM_OK;
}

/* path, value: the option, with its present name and value. */
static nm_status apply(reading *self, const char *path, const char *value, nm_origin origin, nm_error *err)
{
    if (!self->only)
        return nm_options_set(self->options, path, value, origin, err);
    if (!strcmp(path, self->only)) {
        free(self->found);
        self->found = nm_duplicate(value);
    }
    return NM_OK;
}

static nm_status read_setting(void *user, const nm_ini_setting *setting, nm_error *err)
{
    reading *self = user;
    const char *section = setting->section;
    if (self->saved && section && !nm_options_find_section(self->options, section, strlen(section)))
        return NM_OK;
    bool applies;
    nm_origin own = NM_ORIGIN_DEFAULT;
    NM_TRY(section_applies(self, section, &applies, &own, err));
    if (!applies)
        return NM_OK;
    NM_AUTO_FREE char *path =
        section && !own ? nm_format("%s.%s", section, setting->name) : nm_duplicate(setting->name);
    const nm_old_option *old = nm_old_option_find(path, setting->value);
    if (old && old->removed) {
        bool has_effect = old->old_value && strcmp(setting->value, old->old_value) != 0;
        return has_effect ? nm_fail(err, NM_UNSUPPORTED, "%s = %.40s: %s", path, setting->value, old->removed)
                          : NM_OK;
    }
    nm_origin origin = own ? own : self->saved ? saved_origin(setting->comment) : NM_ORIGIN_FILE;
    return apply(self, old ? old->name : path, old && old->value ? old->value : setting->value, origin, err);
}

/* Reads the text or, if text is NULL, the file of this name. */
static nm_status read_settings(reading *self, const char *name, const char *text, nm_error *err)
{
    nm_status status = text ? nm_ini_read_text(name, text, read_setting, self, err)
                            : nm_ini_read_file(name, read_setting, self, err);
    if (self->options)
        self->options->has_sizes |= self->sizes_found;
    return status;
}

nm_status nm_options_read(nm_options *options, const char *path, nm_error *err)
{
    reading self = {.options = options};
    return read_settings(&self, path, NULL, err);
}

nm_status nm_options_read_profile(nm_options *options, const char *path, const char *profile, nm_error *err)
{
    reading self = {.options = options, .profile = profile};
    NM_TRY(read_settings(&self, path, NULL, err));
    if (*profile && !self.profile_found)
        return nm_fail(err, NM_USAGE, "%s: there is no profile %.100s (section [profile.%.100s])", path,
                       profile, profile);
    return NM_OK;
}

bool nm_options_has_sizes(const nm_options *options)
{
    return options->has_sizes;
}

nm_status nm_options_read_sizes(nm_options *options, const char *name, const char *text, int64_t size,
                                nm_error *err)
{
    reading self = {.options = options, .kind = SIZE_SECTIONS, .size = size};
    return read_settings(&self, name, text, err);
}

nm_status nm_options_read_tune(nm_options *options, const char *name, const char *text, nm_error *err)
{
    reading self = {.options = options, .kind = TUNE_SECTION};
    return read_settings(&self, name, text, err);
}

nm_status nm_options_peek(const char *path, const char *option, char **value, nm_error *err)
{
    reading self = {.only = option};
    nm_status status = read_settings(&self, path, NULL, err);
    *value = self.found;
    return status;
}

nm_status nm_options_read_text(nm_options *options, const char *name, const char *text, nm_error *err)
{
    reading self = {.options = options};
    return read_settings(&self, name, text, err);
}

nm_status nm_options_read_saved(nm_options *options, const char *name, const char *text, nm_error *err)
{
    reading self = {.options = options, .saved = true};
    options->saved = options->no_presets = true;
    nm_status status = read_settings(&self, name, text, err);
    options->no_presets = false;
    return status;
}
