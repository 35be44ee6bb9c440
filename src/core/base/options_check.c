/* Options without effect: rules (nm_option_rule), and presets on the command line that a recipe replaces. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option_value.h"
#include "base/options_table.h"

static bool rule_has_effect(const nm_options *options, const nm_option_rule *rule)
{
    if (rule->applies)
        return rule->applies(options);
    NM_AUTO_FREE char *value = nm_options_get(options, rule->condition);
    bool has_effect = true;
    if (value && !strcmp(rule->values, "!"))
        has_effect = !nm_option_value_is_off(value);
    else if (value)
        has_effect = *rule->values == '!' ? nm_choice_index(rule->values + 1, value) < 0
                                          : nm_choice_index(rule->values, value) >= 0;
    return has_effect;
}

/* "with optim.name = adam: only SGD uses momentum" */
static char *rule_reason(const nm_options *options, const nm_option_rule *rule)
{
    NM_AUTO_FREE char *value = rule->condition ? nm_options_get(options, rule->condition) : NULL;
    return value ? nm_format("with %s = %s: %s", rule->condition, value, rule->reason)
                 : nm_format("here: %s", rule->reason);
}

/* Appends to a list of warnings; takes ownership of text. */
static void add_warning(char **warning, char *text)
{
    nm_format_append(warning, "%s%s", *warning ? "; " : "", text);
    free(text);
}

/* Settings of a preset from the command line that a recipe overrides, because a preset is weaker than the
 * settings of files. Half of a structure would be neither the preset's nor the recipe's, so it is an
 * error. */
static nm_status check_preset(const nm_option_section *section, char **warning, nm_error *err)
{
    size_t n = nm_option_row_count(section->rows), at = 0;
    while (at < n && strcmp(section->rows[at].name, "preset"))
        at++;
    if (!section->presets || at == n || section->origins[at] != NM_ORIGIN_COMMAND)
        return NM_OK;
    nm_status status = NM_OK;
    NM_AUTO_FREE char *name = nm_option_section_value(section, at), *replaced = NULL;
    const nm_preset *preset = nm_options_find_preset(section, name);
    char *copy = nm_duplicate(preset ? preset->settings : ""), *rest = copy;
    const char *of_preset;
    for (size_t i; nm_preset_next_setting(section, &rest, &i, &of_preset);) {
        NM_AUTO_FREE char *value = nm_option_section_value(section, i);
        bool differs = section->origins[i] == NM_ORIGIN_FILE && strcmp(value, of_preset);
        if (differs && nm_option_is_structure(section, i) && status == NM_OK)
            status =
                nm_fail(err, NM_USAGE,
                        "%s.preset = %s sets %s = %s, but the recipe has %s; --%s.%s %s keeps the recipe's "
                        "value, --%s.%s %s takes the preset's",
                        section->name, name, section->rows[i].name, of_preset, value, section->name,
                        section->rows[i].name, value, section->name, section->rows[i].name, of_preset);
        if (differs)
            nm_format_append(&replaced, "%s%s.%s = %s", replaced ? ", " : "", section->name,
                             section->rows[i].name, value);
    }
    if (replaced)
        add_warning(warning, nm_format("the recipe's settings %s replace those of %s.preset = %s", replaced,
                                       section->name, name));
    free(copy);
    return status;
}

/* "line" (documents) and "keep" (punctuation) leave the text as it is. What is off does, unless the default
 * is on. */
static bool changes_nothing(const nm_option *row, const char *value)
{
    if (row->kind == NM_BOOL && !strcmp(row->initial, "true"))
        return false;
    return nm_option_value_is_off(value) ||
           (row->kind == NM_ENUM && nm_choice_index("line|keep", value) >= 0);
}

static nm_status check_rule(const nm_options *options, const nm_option_rule *rule, char **warning,
                            nm_error *err)
{
    nm_option_section *section;
    size_t index;
    if (!nm_options_find_row(options, rule->option, &section, &index) ||
        section->origins[index] == NM_ORIGIN_DEFAULT)
        return NM_OK;
    NM_AUTO_FREE char *value = nm_option_section_value(section, index);
    bool changed = section->origins[index] == NM_ORIGIN_COMMAND ||
                   !nm_option_value_is_default(&section->rows[index], value);
    nm_status status = NM_OK;
    if (changed && !changes_nothing(&section->rows[index], value) && !rule_has_effect(options, rule)) {
        NM_AUTO_FREE char *reason = rule_reason(options, rule);
        if (section->origins[index] == NM_ORIGIN_COMMAND) {
            status = nm_fail(err, NM_USAGE, "%s = %.100s has no effect %s", rule->option, value, reason);
        } else if (!options->saved) {
            add_warning(warning, nm_format("%s = %s has no effect %s", rule->option, value, reason));
        }
    }
    return status;
}

nm_status nm_options_check(const nm_options *options, char **warning, nm_error *err)
{
    nm_status status = NM_OK;
    *warning = NULL;
    for (size_t i = 0; i < options->n_rules; i++)
        for (const nm_option_rule *rule = options->rules[i]; rule->option && status == NM_OK; rule++)
            status = check_rule(options, rule, warning, err);
    for (size_t s = 0; s < options->n_sections && !options->saved && status == NM_OK; s++)
        status = check_preset(&options->sections[s], warning, err);
    if (status != NM_OK) {
        free(*warning);
        *warning = NULL;
    }
    return status;
}
