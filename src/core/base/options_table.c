/* Looking up sections, options and presets. */
#include "base/options_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

size_t nm_option_row_count(const nm_option *rows)
{
    size_t n = 0;
    while (rows && rows[n].name)
        n++;
    return n;
}

nm_option_section *nm_options_find_section(const nm_options *options, const char *name, size_t length)
{
    for (size_t i = 0; i < options->n_sections; i++)
        if (strlen(options->sections[i].name) == length && !strncmp(options->sections[i].name, name, length))
            return &options->sections[i];
    return NULL;
}

void *nm_options_find(const nm_options *options, const char *name)
{
    nm_option_section *section = nm_options_find_section(options, name, strlen(name));
    return section ? section->config : NULL;
}

bool nm_options_section(const nm_options *options, size_t index, const char **name, const nm_option **rows,
                        const nm_preset **presets)
{
    if (index >= options->n_sections)
        return false;
    *name = options->sections[index].name;
    *rows = options->sections[index].rows;
    *presets = options->sections[index].presets;
    return true;
}

bool nm_options_find_row(const nm_options *options, const char *path, nm_option_section **section,
                         size_t *index)
{
    const char *dot = strrchr(path, '.');
    if (!dot || !(*section = nm_options_find_section(options, path, (size_t)(dot - path))))
        return false;
    size_t n = nm_option_row_count((*section)->rows);
    for (*index = 0; *index < n; ++*index)
        if (!strcmp((*section)->rows[*index].name, dot + 1))
            return true;
    return false;
}

const nm_option *nm_options_row(const nm_options *options, const char *path)
{
    nm_option_section *section;
    size_t index;
    return nm_options_find_row(options, path, &section, &index) ? &section->rows[index] : NULL;
}

nm_origin nm_options_origin(const nm_options *options, const char *path)
{
    nm_option_section *section;
    size_t index;
    return nm_options_find_row(options, path, &section, &index) ? section->origins[index] : NM_ORIGIN_DEFAULT;
}

char *nm_options_path(const nm_options *options, size_t index)
{
    for (size_t s = 0; s < options->n_sections; s++) {
        size_t n = nm_option_row_count(options->sections[s].rows);
        if (index < n)
            return nm_format("%s.%s", options->sections[s].name, options->sections[s].rows[index].name);
        index -= n;
    }
    return NULL;
}

const nm_preset *nm_options_find_preset(const nm_option_section *section, const char *name)
{
    for (const nm_preset *preset = section->presets; preset && preset->name; preset++)
        if (!strcmp(preset->name, name))
            return preset;
    return NULL;
}

bool nm_option_is_structure(const nm_option_section *section, size_t index)
{
    nm_option_kind kind = section->rows[index].kind;
    return !strcmp(section->name, "model") && kind != NM_INT && kind != NM_REAL;
}

bool nm_preset_has_structure(const nm_option_section *section, const nm_preset *preset)
{
    char *copy = nm_duplicate(preset->settings), *rest = copy;
    const char *value;
    bool found = false;
    for (size_t i; nm_preset_next_setting(section, &rest, &i, &value);)
        found |= nm_option_is_structure(section, i);
    free(copy);
    return found;
}

bool nm_preset_next_setting(const nm_option_section *section, char **rest, size_t *index, const char **value)
{
    for (char *word; (word = strsep(rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = 0;
        *value = equals + 1;
        for (*index = 0; section->rows[*index].name && strcmp(section->rows[*index].name, word);)
            ++*index;
        NM_ASSERT(section->rows[*index].name);
        return true;
    }
    return false;
}
