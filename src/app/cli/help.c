/* Help and manual pages, generated from descriptors and option tables. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/memory.h"
#include "cli/cli.h"

enum { MIN_WIDTH = 72, DEFAULT_WIDTH = 80, MAX_WIDTH = 110, OPTION_INDENT = 2, HELP_INDENT = 30 };

/* Width of the output in columns: the environment variable COLUMNS, otherwise the width of the terminal,
 * otherwise 80. */
static int output_width(FILE *out)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size = {0};
    int width = columns ? atoi(columns) : 0;
    if (width <= 0 && !ioctl(fileno(out), TIOCGWINSZ, &size))
        width = size.ws_col;
    if (width <= 0)
        width = DEFAULT_WIDTH;
    return width < MIN_WIDTH ? MIN_WIDTH : width > MAX_WIDTH ? MAX_WIDTH : width;
}

/* Prints words, starting at column `column`, in lines of up to `width` columns with an indentation of
 * `indent` columns. An empty line in the text separates paragraphs. Ends with a newline. */
static void print_wrapped(const char *text, int column, int indent, int width, FILE *out)
{
    bool first = true;
    while (*text) {
        size_t space = strspn(text, " \n"), length = strcspn(text + space, " \n");
        bool paragraph = !first && space > 1 && !strncmp(text, "\n\n", 2);
        text += space;
        if (!length)
            break;
        if (column < indent) {
            fprintf(out, "%*s", indent - column, "");
            column = indent;
        } else if (paragraph || (column > indent && column + 1 + (int)length > width)) {
            fprintf(out, "%s%*s", paragraph ? "\n\n" : "\n", indent, "");
            column = indent;
        } else if (!first) {
            putc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)length, text);
        column += (int)length;
        text += length;
        first = false;
    }
    putc('\n', out);
}

/* Default and range of an option: "(default: 4; 1 .. 1024)"; heap. */
static char *describe_range(const nm_option *row)
{
    const char *initial = *row->initial ? row->initial : "empty";
    if (row->choices)
        return nm_format("(default: %s; one of %s)", initial, row->choices);
    if (row->kind == NM_BOOL || row->kind == NM_TEXT)
        return nm_format("(default: %s)", initial);
    return nm_format("(default: %s; %.10g .. %.10g)", initial, row->min, row->max);
}

/* Whether the list of paths contains "SECTION.KEY"; list NULL: true. */
static bool lists_option(const char *const *list, const char *section, const char *key)
{
    size_t length = strlen(section);
    for (; list && *list; list++)
        if (!strncmp(*list, section, length) && (*list)[length] == '.' && !strcmp(*list + length + 1, key))
            return true;
    return !list;
}

bool nm_cli_accepts(const nm_command *command, const char *section, const char *key)
{
    return !command->unlisted || !lists_option(command->unlisted, section, key);
}

static const char *placeholder(const nm_option *row)
{
    static const char *const names[] = {
        [NM_BOOL] = "", [NM_INT] = " N", [NM_REAL] = " X", [NM_TEXT] = " TEXT", [NM_ENUM] = " NAME"};
    return row->choices ? " NAME" : names[row->kind];
}

/* The value of a key in "key=value key=value", of *length characters; "-" if it is not set. */
static const char *preset_value(const char *settings, const char *key, size_t key_length, size_t *length)
{
    for (const char *at = settings; *at; at += strcspn(at, " "), at += *at == ' ')
        if (!strncmp(at, key, key_length) && at[key_length] == '=') {
            *length = strcspn(at + key_length + 1, " ");
            return at + key_length + 1;
        }
    *length = 1;
    return "-";
}

/* Whether one of the first n presets sets the key at `at`. */
static bool is_listed_earlier(const nm_preset *presets, int n, const char *at, size_t length)
{
    for (int i = 0; i < n; i++) {
        size_t ignored;
        if (*preset_value(presets[i].settings, at, length, &ignored) != '-')
            return true;
    }
    return false;
}

enum { KEY_WIDTH = 20, COLUMN_GAP = 2 };

/* Width of the column of a preset: of its name and values. */
static int preset_width(const nm_preset *preset)
{
    int width = (int)strlen(preset->name);
    for (const char *at = preset->settings; *at; at += *at == ' ') {
        const char *value = strchr(at, '=') + 1;
        int length = (int)strcspn(value, " ");
        width = length > width ? length : width;
        at = value + length;
    }
    return width;
}

/* Prints a table of n presets: a row for every key that one of them sets and a column for every preset. */
static void print_preset_table(const nm_preset *presets, int n, FILE *out)
{
    fprintf(out, "%*s%-*s", 2 * OPTION_INDENT, "", KEY_WIDTH, "");
    for (int i = 0; i < n; i++)
        fprintf(out, "%*s%*s", COLUMN_GAP, "", preset_width(&presets[i]), presets[i].name);
    putc('\n', out);
    for (int k = 0; k < n; k++)
        for (const char *at = presets[k].settings; *at; at += strcspn(at, " "), at += *at == ' ') {
            size_t key = strcspn(at, "="), length;
            if (is_listed_earlier(presets, k, at, key))
                continue;
            fprintf(out, "%*s%-*.*s", 2 * OPTION_INDENT, "", KEY_WIDTH, (int)key, at);
            for (int i = 0; i < n; i++) {
                const char *value = preset_value(presets[i].settings, at, key, &length);
                fprintf(out, "%*s%*.*s", COLUMN_GAP, "", preset_width(&presets[i]), (int)length, value);
            }
            putc('\n', out);
        }
}

/* Prints the tables of all presets, as many in each as the width permits. */
static void print_preset_tables(const nm_preset *presets, int width, FILE *out)
{
    while (presets->name) {
        int n = 0, used = 2 * OPTION_INDENT + KEY_WIDTH;
        while (presets[n].name && (n == 0 || used + COLUMN_GAP + preset_width(&presets[n]) <= width)) {
            used += COLUMN_GAP + preset_width(&presets[n]);
            n++;
        }
        print_preset_table(presets, n, out);
        putc('\n', out);
        presets += n;
    }
}

static void print_presets(const char *name, const nm_preset *presets, int width, FILE *out)
{
    fprintf(out, "\n%*sPresets of %s:\n", OPTION_INDENT, "", name);
    for (const nm_preset *preset = presets; preset->name; preset++) {
        int column = fprintf(out, "%*s%s", 2 * OPTION_INDENT, "", preset->name);
        print_wrapped(preset->help, column, 2 * OPTION_INDENT + 10, width, out);
    }
    putc('\n', out);
    print_preset_tables(presets, width, out);
}

static void print_section(const nm_command *command, const nm_options *options, const char *section,
                          const nm_option *rows, const nm_preset *presets, const char *const *list, int width,
                          FILE *out)
{
    bool any = false;
    for (const nm_option *row = rows; row && row->name; row++) {
        if (!lists_option(list, section, row->name) || !nm_cli_accepts(command, section, row->name))
            continue;
        if (!any)
            fprintf(out, "\n[%s]\n", section);
        any = true;
        NM_AUTO_FREE char *name = nm_cli_option_name(command, options, section, row->name),
                          *range = describe_range(row);
        NM_AUTO_FREE char *text = nm_format("%s %s", row->help, range);
        for (char *letter = name; *letter && !strchr(name, '.'); letter++) /* as it is typed; in files "_" */
            *letter = *letter == '_' ? '-' : *letter;
        int column = fprintf(out, "%*s%s%s", OPTION_INDENT, "", name, placeholder(row));
        if (column >= HELP_INDENT) {
            putc('\n', out);
            column = 0;
        }
        print_wrapped(text, column, HELP_INDENT, width, out);
        if (presets && !strcmp(row->name, "preset"))
            print_presets(name, presets, width, out);
    }
}

static bool has_section(const nm_options *options, const char *topic)
{
    const char *section;
    const nm_option *rows;
    const nm_preset *presets;
    for (size_t i = 0; topic && nm_options_section(options, i, &section, &rows, &presets); i++)
        if (!strcmp(section, topic))
            return true;
    return false;
}

static void print_options(const nm_command *command, const nm_options *options, const char *topic, FILE *out)
{
    int width = output_width(out);
    const char *section;
    const nm_option *rows;
    const nm_preset *presets;
    bool single = has_section(options, topic);
    const char *const *list = topic ? NULL : command->common;
    for (size_t i = 0; nm_options_section(options, i, &section, &rows, &presets); i++)
        if (!single || !strcmp(section, topic))
            print_section(command, options, section, rows, presets, list, width, out);
    if (list) {
        putc('\n', out);
        NM_AUTO_FREE char *more =
            nm_format("These are the most common options. norma %s --help all lists all of them, norma %s "
                      "--help SECTION those of one section, for example --help train.",
                      command->name, command->name);
        print_wrapped(more, 0, 0, width, out);
    }
}

/* NM_USAGE with the sections of the command. */
static nm_status unknown_section(const nm_command *command, const nm_options *options, const char *topic,
                                 nm_error *err)
{
    const char *section;
    const nm_option *rows;
    const nm_preset *presets;
    NM_AUTO_FREE char *names = nm_duplicate("all");
    for (size_t i = 0; nm_options_section(options, i, &section, &rows, &presets); i++)
        nm_list_append(&names, section);
    return nm_fail(err, NM_USAGE, "%s: no section %.100s; --help SECTION: %s", command->name, topic, names);
}

/* Whether the word after --help is a section, or else not a topic: another option, or the recipe. */
static bool is_topic(const nm_command *command, const nm_options *options, const char *topic)
{
    NM_AUTO_FREE char *recipe = NULL;
    if (!topic || *topic == '-' || !strcmp(topic, "all") || has_section(options, topic))
        return true;
    return command->trains && nm_cli_look_up_recipe(topic, &recipe, NM_IGNORED) == NM_OK && recipe;
}

nm_status nm_cli_help(const nm_command *command, const char *topic, int argc, char **argv, FILE *out,
                      nm_error *err)
{
    int width = output_width(out);
    NM_AUTO(nm_options_release) nm_options *options = nm_options_create();
    nm_error invalid;
    const struct nm_task_type *task;
    nm_status status = nm_cli_add_options(command, options, argc, argv, &task, &invalid);
    if (!is_topic(command, options, topic))
        return unknown_section(command, options, topic, err);
    if (!has_section(options, topic)) {
        NM_AUTO_FREE char *title = nm_format("norma %s - %s\n\nusage: norma %s %s", command->name,
                                             command->summary, command->name, command->usage);
        print_wrapped(title, 0, 0, width, out);
        if (command->details) {
            putc('\n', out);
            print_wrapped(command->details, 0, 0, width, out);
        }
    }
    if (status != NM_OK)
        fprintf(out, "\n(%s)\n", invalid.text);
    print_options(command, options, topic, out);
    return NM_OK;
}

void nm_cli_write_roff(const char *text, FILE *out)
{
    bool start = true;
    for (; *text; text++) {
        if (start && *text == '\n') {
            fputs(".PP\n", out);
            continue;
        }
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '\\' || *text == '-')
            putc('\\', out);
        putc(*text == '\\' ? 'e' : *text, out);
        start = *text == '\n';
    }
}

static void write_roff_options(const nm_command *command, const nm_options *options, FILE *out)
{
    const char *section;
    const nm_option *rows;
    const nm_preset *presets;
    for (size_t i = 0; nm_options_section(options, i, &section, &rows, &presets); i++) {
        if (!rows || !rows->name)
            continue;
        fprintf(out, ".SS [%s]\n", section);
        for (const nm_option *row = rows; row->name; row++) {
            if (!nm_cli_accepts(command, section, row->name))
                continue;
            NM_AUTO_FREE char *range = describe_range(row);
            fprintf(out, ".TP\n.B \\-\\-%s.%s\n", section, row->name);
            nm_cli_write_roff(row->help, out);
            putc('\n', out);
            nm_cli_write_roff(range, out);
            putc('\n', out);
        }
        for (const nm_preset *preset = presets; preset && preset->name; preset++) {
            fprintf(out, ".TP\n.B preset %s\n", preset->name);
            nm_cli_write_roff(preset->help, out);
            fputs(": ", out);
            nm_cli_write_roff(preset->settings, out);
            putc('\n', out);
        }
    }
}

void nm_cli_manual(const nm_command *command, FILE *out)
{
    fputs(".TH NORMA\\-", out);
    for (const char *at = command->name; *at; at++)
        putc(toupper((unsigned char)*at), out);
    fprintf(out, " 1 \"\" \"norma " NORMA_VERSION "\"\n.SH NAME\nnorma\\-%s \\- ", command->name);
    nm_cli_write_roff(command->summary, out);
    fprintf(out, "\n.SH SYNOPSIS\n.B norma %s\n", command->name);
    nm_cli_write_roff(command->usage, out);
    if (command->details) {
        fputs("\n.SH DESCRIPTION\n", out);
        nm_cli_write_roff(command->details, out);
    }
    putc('\n', out);
    if (command->section) {
        fputs(".SH OPTIONS\n", out);
        NM_AUTO(nm_options_release) nm_options *options = nm_options_create();
        nm_error err;
        const struct nm_task_type *task;
        nm_cli_add_options(command, options, 0, NULL, &task, &err);
        write_roff_options(command, options, out);
    }
    fputs(".SH EXIT STATUS\n", out);
#define S(name, code, text) fprintf(out, ".TP\n.B %d\n%s\n", code, text);
    NM_STATUS_LIST(S)
#undef S
    fputs(".SH SEE ALSO\n.BR norma (1)\n", out);
}
