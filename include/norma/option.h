/* Option tables: one row has the name, type, default, range and help of an option. The parser, --help, the
 * manual page and the saved configuration read the same row. The type of a row follows from the type of the
 * struct field. */
#ifndef NORMA_OPTION_H
#define NORMA_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "norma/choice.h"
#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nm_option_kind { NM_BOOL, NM_INT, NM_REAL, NM_TEXT, NM_ENUM } nm_option_kind;

typedef struct nm_options nm_options; /* sections of options, each value with its origin */

typedef struct nm_option {
    const char *name;
    nm_option_kind kind;
    size_t offset;
    const char *initial;
    double min, max;     /* numbers: inclusive range */
    const char *choices; /* texts and enums: "a|b|c"; texts: NULL for any text */
    const char *help;
} nm_option;

/* A rule for an option that has no effect in some configurations. It has an effect if `applies` returns true
 * or, where `applies` is NULL, if the value of the option `condition` is one of `values`: "a|b"; "!a|b": none
 * of them; "!": not off, see nm_options_check. */
typedef struct nm_option_rule {
    const char *option, *condition, *values; /* "optim.momentum", "optim.name", "sgd" */
    const char *reason;                      /* "only SGD uses momentum" */
    bool (*applies)(const nm_options *options);
} nm_option_rule;

/* A preset is a named list of settings of the same section, "key=value key=value", chosen by the option
 * `preset`. */
typedef struct nm_preset {
    const char *name, *settings, *help;
} nm_preset;

/* Rows of a table in C. C++ has no _Generic; there a row lists the fields of nm_option. */
#define NM_KIND(field)                                                                                       \
    _Generic((field), bool : NM_BOOL, int64_t : NM_INT, double : NM_REAL, const char * : NM_TEXT,            \
             int : NM_ENUM, unsigned : NM_ENUM)
#define NM_OPTION(T, field, initial, min, max, help)                                                         \
    {                                                                                                        \
#field, NM_KIND(((T *)0)->field), offsetof(T, field), initial, min, max, NULL, help                  \
    }
/* A field of the enum of an X list (norma/choice.h), which receives the constant of the word. A field of
 * another type, and words that are not a list, do not compile. */
#define NM_CHOICE(T, field, initial, LIST, help)                                                             \
    {                                                                                                        \
#field,                                                                                              \
            _Generic(((T *)0)->field, LIST##_ENUM                                                            \
                     : NM_ENUM),                                                                             \
            offsetof(T, field), initial, 0, 0, NM_CHOICE_WORDS(LIST), help                                   \
    }
/* A text field that is one of "a|b|c". */
#define NM_WORD(T, field, initial, words, help)                                                              \
    {                                                                                                        \
#field, _Generic(((T *)0)->field, const char * : NM_TEXT), offsetof(T, field), initial, 0, 0, words, \
            help       \
    }

/* Later origins win; within one origin the later setting wins. */
typedef enum nm_origin {
    NM_ORIGIN_DEFAULT,
    NM_ORIGIN_PRESET,
    NM_ORIGIN_FILE,
    NM_ORIGIN_SIZE,    /* a section [size.N], see nm_options_read_sizes */
    NM_ORIGIN_PROFILE, /* the section [profile.NAME] of any file that was read */
    NM_ORIGIN_TUNE,    /* a section [tune], or the structure of a model that is trained further */
    NM_ORIGIN_COMMAND
} nm_origin;

/* Without sections. Free with nm_options_free, which accepts NULL. */
NM_API nm_options *nm_options_create(void);
NM_API void nm_options_free(nm_options *options);
/* For options that are never saved: text values may contain what an INI file cannot hold, namely newlines,
 * whitespace at the ends, and ; after whitespace. Otherwise such a value is NM_USAGE. */
NM_API void nm_options_accept_any_text(nm_options *options);
/* The same sections and rules with default values. Free with nm_options_free. */
NM_API nm_options *nm_options_create_like(const nm_options *options);

/* Registers a section; the returned struct (config_size bytes, owned by options) already holds the defaults.
 * presets may be NULL; when given the table must have a text option named "preset". */
NM_API void *nm_options_add(nm_options *options, const char *section, const nm_option *rows,
                            const nm_preset *presets, size_t config_size);
/* Registers rules, an array that ends with {0}; it must outlive options. Rules whose option or condition is
 * not registered are ignored. */
NM_API void nm_options_add_rules(nm_options *options, const nm_option_rule *rules);
/* Checks the registered rules. *warning: one message, heap, about options without effect that files, profiles
 * and presets set; NULL if there are none, or if the values are from nm_options_read_saved, which had the
 * warning before. Values that turn an option off (0, false, none, empty), "line" and "keep" are always
 * accepted.
 * NM_USAGE: an option that has no effect was set on the command line; the message has the reason */
NM_API nm_status nm_options_check(const nm_options *options, char **warning, nm_error *err);
/* The struct of a section, or NULL. */
NM_API void *nm_options_find(const nm_options *options, const char *section);

/* Sets "section.key".
 * NM_USAGE: an invalid value, or an unknown name; the message has the most similar one */
NM_API nm_status nm_options_set(nm_options *options, const char *path, const char *value, nm_origin origin,
                                nm_error *err);
/* Reads an INI file; a line `include = other.ini` at its top (before any section) reads that one first,
 * relative to the file. Errors: NM_IO; NM_USAGE and NM_FORMAT, with file and line in the message. */
NM_API nm_status nm_options_read(nm_options *options, const char *path, nm_error *err);
/* Reads the file and applies its section [profile.NAME], which holds full names ("train.epochs = 3") and
 * takes precedence over the other settings of all files that are read. profile "": none. NM_USAGE when no
 * file has that profile. */
NM_API nm_status nm_options_read_profile(nm_options *options, const char *path, const char *profile,
                                         nm_error *err);
/* Whether a file or text that was read has sections [size.N]. They hold full names, and other reading
 * functions skip them. */
NM_API bool nm_options_has_sizes(const nm_options *options);
/* Reads the INI text or, if text is NULL, the file of this name again and applies its sections [size.N] with
 * N >= size, size being the size of the training data. Of several values of an option the last one wins. */
NM_API nm_status nm_options_read_sizes(nm_options *options, const char *name, const char *text, int64_t size,
                                       nm_error *err);
/* Reads the INI text or, if text is NULL, the file of this name again and applies its sections [tune], which
 * hold full names and which other reading functions skip. */
NM_API nm_status nm_options_read_tune(nm_options *options, const char *name, const char *text, nm_error *err);
/* *value: value of one option in an INI file, heap; NULL if the file does not set it. The rest of the file
 * is not checked. For options that determine which sections are registered. NM_IO: the file cannot be
 * read. */
NM_API nm_status nm_options_peek(const char *path, const char *option, char **value, nm_error *err);
/* Reads the same syntax from memory; name is for messages. Such a text may not include files. */
NM_API nm_status nm_options_read_text(nm_options *options, const char *name, const char *text, nm_error *err);
/* Reads text that nm_options_write wrote, possibly for another command: unregistered sections are ignored.
 * Values that came from the command line or a profile keep that origin; all others have NM_ORIGIN_FILE. */
NM_API nm_status nm_options_read_saved(nm_options *options, const char *name, const char *text,
                                       nm_error *err);
/* Writes every value with its origin as a comment; reading that back gives the same structs. */
NM_API void nm_options_write(const nm_options *options, FILE *out);
/* The same, restricted to the sections that `like` has, too. */
NM_API void nm_options_write_like(const nm_options *options, const nm_options *like, FILE *out);
/* The same without origins. */
NM_API void nm_options_write_values(const nm_options *options, const nm_options *like, FILE *out);
/* Section number index, in the order of registration; its rows and presets end with an element without a
 * name, and are NULL if there are none. False past the last section. For help, manual pages and
 * completion. */
NM_API bool nm_options_section(const nm_options *options, size_t index, const char **name,
                               const nm_option **rows, const nm_preset **presets);
/* "section.key" of the option with this index in the order of registration, heap, or NULL after the last
 * one. */
NM_API char *nm_options_path(const nm_options *options, size_t index);
/* The origin of the value of "section.key"; NM_ORIGIN_DEFAULT when unknown. */
NM_API nm_origin nm_options_origin(const nm_options *options, const char *path);
/* The row of "section.key", or NULL when unknown. */
NM_API const nm_option *nm_options_row(const nm_options *options, const char *path);
/* The value of "section.key" as text into heap memory (caller frees), or NULL when unknown. */
NM_API char *nm_options_get(const nm_options *options, const char *path);

#ifdef __cplusplus
}
#endif
#endif
