/* The contents of nm_options, for the files that implement include/norma/option.h: options_table.c (looking
 * up), options.c (values), options_check.c (options without effect), options_read.c (INI files). */
#pragma once

#include "norma/option.h"

typedef struct nm_option_section {
    char *name;
    const nm_option *rows;
    const nm_preset *presets;
    char *config;
    size_t config_bytes;
    nm_origin *origins; /* per row */
} nm_option_section;

struct nm_options {
    nm_option_section *sections;
    size_t n_sections, sections_capacity;
    const nm_option_rule **rules; /* arrays that end with {0} */
    size_t n_rules, rules_capacity;
    char **texts; /* all text values that have been set; configs point to them */
    size_t n_texts, texts_capacity;
    bool saved;      /* read from a saved configuration, which was checked before it was saved */
    bool no_presets; /* while a saved configuration is read: it contains the settings of its presets */
    bool has_sizes;  /* sections [size.N] were found */
    bool any_text;   /* nm_options_accept_any_text */
};

/* In comments of saved configurations, by origin. */
extern const char *const nm_origin_names[];

/* The section with this name, or NULL. */
nm_option_section *nm_options_find_section(const nm_options *options, const char *name, size_t name_len);
/* Section and row number of "section.key"; false: unknown. */
bool nm_options_find_row(const nm_options *options, const char *path, nm_option_section **section,
                         size_t *index);
/* The value of row number index as text, heap. */
char *nm_option_section_value(const nm_option_section *section, size_t index);
/* Number of rows; rows may be NULL. */
size_t nm_option_row_count(const nm_option *rows);
/* The preset of a section, or NULL. */
const nm_preset *nm_options_find_preset(const nm_option_section *section, const char *name);
/* Whether an option belongs to the structure of a model: choices, texts and switches of the section "model"
 * do, numbers are sizes and rates. */
bool nm_option_is_structure(const nm_option_section *section, size_t index);
/* Whether a preset sets a part of the structure of a model. The others set only sizes. */
bool nm_preset_has_structure(const nm_option_section *section, const nm_preset *preset);
/* The next setting "NAME=VALUE" of a preset, from a copy of its list: the index of the row, and *value; false
 * at the end. */
bool nm_preset_next_setting(const nm_option_section *section, char **rest, size_t *index, const char **value);
