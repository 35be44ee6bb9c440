/* Sections of options: defaults, presets, values by path, and writing of the configuration. Values of every
 * origin are set by set_row, so that ranges and messages are the same. */
#include "base/options_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "base/memory.h"
#include "base/foreign_names.h"
#include "base/nearest_option.h"
#include "base/old_options.h"
#include "base/option_value.h"

const char *const nm_origin_names[] = {"default", "preset", "file",        "size",
                                       "profile", "tune",   "command line"};

nm_options *nm_options_create(void)
{
    return nm_allocate(sizeof(nm_options));
}

void nm_options_release(nm_options **options)
{
    nm_options_free(*options);
}

void nm_options_free(nm_options *options)
{
    if (!options)
        return;
    for (size_t i = 0; i < options->n_sections; i++)
        NM_FREE(options->sections[i].name, options->sections[i].config, options->sections[i].origins);
    for (size_t i = 0; i < options->n_texts; i++)
        free(options->texts[i]);
    NM_FREE(options->sections, options->rules, options->texts, options);
}

void nm_options_add_rules(nm_options *options, const nm_option_rule *rules)
{
    NM_APPEND(options->rules, options->n_rules, options->rules_capacity, rules);
}

nm_options *nm_options_create_like(const nm_options *options)
{
    nm_options *like = nm_options_create();
    for (size_t i = 0; i < options->n_sections; i++)
        nm_options_add(like, options->sections[i].name, options->sections[i].rows,
                       options->sections[i].presets, options->sections[i].config_bytes);
    for (size_t i = 0; i < options->n_rules; i++)
        nm_options_add_rules(like, options->rules[i]);
    return like;
}

static const char *keep_text(nm_options *options, const char *value)
{
    NM_GROW(options->texts, options->n_texts, options->texts_capacity);
    return options->texts[options->n_texts++] = nm_duplicate(value);
}

static nm_status unknown_option(const nm_options *options, const char *path, nm_error *err)
{
    const nm_old_option *old = nm_old_option_find(path, NULL);
    if (old && old->removed)
        return nm_fail(err, NM_USAGE, "unknown option %s: %s", path, old->removed);
    if (old)
        return nm_fail(err, NM_USAGE, "unknown option %s: it has been renamed to %s", path, old->name);
    const char *name = nm_option_name(path);
    const nm_option_section *found = nm_options_find_section(options, name, strlen(name));
    const nm_foreign_row *unavailable = nm_foreign_find(name, true, NULL);
    NM_AUTO_FREE char *best = nm_nearest_option(options, path);
    bool close = best && (!strcmp(nm_option_name(best), name) || nm_edit_distance(path, best) <= 1);
    nm_status status;
    if (found && found->rows && found->rows->name && !close)
        status = nm_fail(err, NM_USAGE, "unknown option %.200s: %s is a section of options, such as %s.%s",
                         path, name, name, found->rows->name);
    else if (unavailable)
        status = nm_fail(err, NM_USAGE, "unknown option %.200s: %s", path, unavailable->norma);
    else if (best)
        status = nm_fail(err, NM_USAGE, "unknown option %.200s; the most similar one is %s", path, best);
    else
        status = nm_fail(err, NM_USAGE, "unknown option %.200s; --help lists the options", path);
    return status;
}

void nm_options_accept_any_text(nm_options *options)
{
    options->any_text = true;
}

static nm_status set_row(nm_options *options, nm_option_section *section, size_t index, const char *value,
                         nm_origin origin, nm_error *err);

static nm_status apply_preset(nm_options *options, nm_option_section *section, const char *name,
                              nm_error *err)
{
    const nm_preset *preset = nm_options_find_preset(section, name);
    if (!preset)
        return nm_fail(err, NM_USAGE, "%s.preset = %.100s: unknown preset", section->name, name);
    size_t n = nm_option_row_count(section->rows);
    bool had_structure = false;
    for (size_t i = 0; i < n; i++)
        had_structure |= section->origins[i] == NM_ORIGIN_PRESET && nm_option_is_structure(section, i);
    /* Undo the settings of a preset that was chosen before, but sizes leave the structure as it is, and a
     * structure the sizes. */
    bool undo = had_structure == nm_preset_has_structure(section, preset);
    for (size_t i = 0; i < n; i++)
        if (undo && section->origins[i] == NM_ORIGIN_PRESET) {
            section->origins[i] = NM_ORIGIN_DEFAULT;
            NM_TRY(set_row(options, section, i, section->rows[i].initial, NM_ORIGIN_DEFAULT, err));
        }
    char *copy = nm_duplicate(preset->settings), *rest = copy;
    nm_status status = NM_OK;
    const char *value;
    for (size_t i; status == NM_OK && nm_preset_next_setting(section, &rest, &i, &value);)
        status = set_row(options, section, i, value, NM_ORIGIN_PRESET, err);
    free(copy);
    return status;
}

static nm_status set_row(nm_options *options, nm_option_section *section, size_t index, const char *value,
                         nm_origin origin, nm_error *err)
{
    const nm_option *row = &section->rows[index];
    if (origin < section->origins[index])
        return NM_OK;
    void *field = section->config + row->offset;
    char path[160];
    snprintf(path, sizeof path, "%s.%s", section->name, row->name);
    if (row->kind == NM_TEXT && !options->any_text)
        NM_TRY(nm_option_value_check_text(path, value, err));
    NM_TRY(nm_option_value_parse(path, row, value, field, err));
    if (row->kind == NM_TEXT)
        *(const char **)field = keep_text(options, value);
    section->origins[index] = origin;
    if (!strcmp(row->name, "preset") && section->presets && *value && !options->no_presets)
        NM_TRY(apply_preset(options, section, value, err));
    return NM_OK;
}

void *nm_options_add(nm_options *options, const char *name, const nm_option *rows, const nm_preset *presets,
                     size_t config_size)
{
    NM_ASSERT(!nm_options_find_section(options, name, strlen(name)));
    NM_GROW(options->sections, options->n_sections, options->sections_capacity);
    nm_option_section *section = &options->sections[options->n_sections++];
    size_t n = nm_option_row_count(rows);
    *section = (nm_option_section){nm_duplicate(name),       rows,        presets,
                                   nm_allocate(config_size), config_size, nm_allocate(n * sizeof(nm_origin))};
    nm_error err = {0};
    for (size_t i = 0; i < n; i++)
        if (set_row(options, section, i, rows[i].initial, NM_ORIGIN_DEFAULT, &err) != NM_OK)
            nm_panic(rows[i].name, 0, err.text);
    return section->config;
}

nm_status nm_options_set(nm_options *options, const char *path, const char *value, nm_origin origin,
                         nm_error *err)
{
    nm_option_section *section;
    size_t index;
    if (!nm_options_find_row(options, path, &section, &index))
        return unknown_option(options, path, err);
    return set_row(options, section, index, value, origin, err);
}

char *nm_option_section_value(const nm_option_section *section, size_t index)
{
    const nm_option *row = &section->rows[index];
    return nm_option_value_format(row, section->config + row->offset);
}

char *nm_options_get(const nm_options *options, const char *path)
{
    nm_option_section *section;
    size_t index;
    return nm_options_find_row(options, path, &section, &index) ? nm_option_section_value(section, index)
                                                                : NULL;
}

/* The sections that `like` has, too. */
static void write_sections(const nm_options *options, const nm_options *like, bool origins, FILE *out)
{
    bool first = true;
    for (size_t s = 0; s < options->n_sections; s++) {
        const nm_option_section *section = &options->sections[s];
        if (!nm_options_find_section(like, section->name, strlen(section->name)))
            continue;
        fprintf(out, "%s[%s]\n", first ? "" : "\n", section->name);
        first = false;
        for (size_t i = 0; section->rows && section->rows[i].name; i++) {
            NM_AUTO_FREE char *value = nm_option_section_value(section, i);
            fprintf(out, "%s = %s", section->rows[i].name, value);
            if (origins)
                fprintf(out, " ; %s", nm_origin_names[section->origins[i]]);
            fputc('\n', out);
        }
    }
}

void nm_options_write(const nm_options *options, FILE *out)
{
    write_sections(options, options, true, out);
}

void nm_options_write_like(const nm_options *options, const nm_options *like, FILE *out)
{
    write_sections(options, like, true, out);
}

void nm_options_write_values(const nm_options *options, const nm_options *like, FILE *out)
{
    write_sections(options, like, false, out);
}
