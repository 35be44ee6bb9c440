#include "norma/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "api/inference.h"
#include "data/prepare.h"
#include "task/prepared_texts.h"
#include "text/moses_rules.h"
#include "base/buffer.h"
#include "text/utf8.h"

struct nm_prepared {
    nm_options *options;
    const nm_prepare_config *config;
    nm_prepared_texts like; /* of prepare.like */
    nm_prepare_report report;
};

/* Appends text with control characters replaced by '?'. */
static void append_visible(nm_buffer *out, const char *text)
{
    for (; *text; text++)
        nm_buffer_append_byte(out, *text == 0x7f || (unsigned char)*text < ' ' ? '?' : *text);
}

static void append_example(nm_buffer *out, const nm_drop_example *example, int sides)
{
    const char *path = example->path ? example->path : "";
    NM_AUTO_FREE char *head =
        nm_format("\n  %s%sline %lld:", path, *path ? ", " : "", (long long)example->line);
    nm_buffer_append(out, head, strlen(head));
    for (int side = 0; side < sides; side++) {
        const char *separator = side ? " | " : " ";
        nm_buffer_append(out, separator, strlen(separator));
        append_visible(out, example->text[side]);
    }
}

/* Warns if the filters dropped more than WARN_PERCENT of the training pairs: a filter for other languages or
 * another tokenization can drop most of a corpus. Duplicates do not count: they show nothing about the
 * filters. */
static void warn_of_drops(const nm_prepared *self, const nm_prepare_events *events)
{
    enum { WARN_PERCENT = 5 };
    const nm_prepare_report *report = &self->report;
    const nm_prepare_split_report *train = &report->splits[0];
    nm_drop_reason most = 0;
    int64_t dropped = 0;
    for (int drop = 0; drop < NM_DROP_N; drop++) {
        if (drop == NM_DROP_DUPLICATE)
            continue;
        dropped += train->dropped[drop];
        if (train->dropped[drop] > train->dropped[most])
            most = (nm_drop_reason)drop;
    }
    if (100 * dropped <= WARN_PERCENT * train->pairs)
        return;
    const char *option = nm_drop_reason_option(most);
    NM_AUTO_FREE char *first = nm_format(
        "%.1f %% of the training %s were dropped, most of them as \"%s\"%s%s%s",
        100.0 * (double)dropped / (double)train->pairs, nm_prepared_unit(self), nm_drop_reason_text(most),
        *option ? "; the option --" : "", option, *option ? " changes this filter" : "");
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_buffer_append(&text, first, strlen(first));
    for (int i = 0; i < train->n_examples[most]; i++)
        append_example(&text, &train->examples[most][i], report->sides);
    events->message(events->user, text.data);
}

/* Warns if more than a few percent of the validation or test pairs, or of the lines of plain text, occur in
 * the training text. Short sentences often do. */
static void warn_of_repeated_pairs(const nm_prepared *self, const nm_prepare_events *events)
{
    enum { PAIR_PERCENT = 2, LINE_PERCENT = 10 };
    const nm_prepare_report *report = &self->report;
    bool pairs = report->sides == 2;
    for (int split = 1; split < NM_PREPARE_SPLITS; split++) {
        const nm_prepare_split_report *s = &report->splits[split];
        if (100 * s->repeated <= (pairs ? PAIR_PERCENT : LINE_PERCENT) * s->kept)
            continue;
        NM_AUTO_FREE char *text =
            nm_format("%lld of %lld %s of %s also occur in the training text: scores on them do not "
                      "show how the model %s new text",
                      (long long)s->repeated, (long long)s->kept, nm_prepared_unit(self),
                      nm_prepare_split_names[split], pairs ? "translates" : "predicts");
        events->message(events->user, text);
    }
}

/* Warns if the training text seems to be tokenized already: the Moses tokenizer would split the entities of
 * the first tokenization (&apos; becomes "&amp; apos ;") and the marks of BPE. */
static void warn_of_tokenized_text(const nm_prepared *self, const nm_prepare_events *events)
{
    enum { WARN_PERCENT = 1 };
    const nm_prepare_split_report *train = &self->report.splits[0];
    int64_t kept = train->kept + train->held_out;
    if (100 * train->tokenized <= WARN_PERCENT * kept)
        return;
    NM_AUTO_FREE char *text =
        nm_format("%lld of %lld training %s contain &apos;, &quot; or \"@@ \", as text that is "
                  "tokenized already: it needs --tokenizer none, or norma "
                  "detokenize first",
                  (long long)train->tokenized, (long long)kept, nm_prepared_unit(self));
    events->message(events->user, text);
}

/* Warns if more than a few percent of the training tokens are not in the dictionary, as with one of another
 * tokenizer or other subwords. */
static void warn_of_unknown_tokens(const nm_prepared *self, const nm_prepare_events *events)
{
    enum { WARN_PERCENT = 10 };
    const nm_prepare_report *report = &self->report;
    const nm_prepare_split_report *train = &report->splits[0];
    for (int side = 0; side < report->sides; side++) {
        if (100 * train->unknown[side] <= WARN_PERCENT * train->tokens[side])
            continue;
        NM_AUTO_FREE char *text = nm_format(
            "%s: %.1f %% of the training tokens are unknown: the dictionary must be that of the tokenizer "
            "and of the BPE codes or SentencePiece model",
            nm_prepare_side_name(report->sides, side),
            100.0 * (double)train->unknown[side] / (double)train->tokens[side]);
        events->message(events->user, text);
    }
}

/* Warns if a much larger part of the validation or test tokens is unknown than of the training tokens, as in
 * text of another encoding, language or tokenization. Words are unknown more often than subwords. */
static void warn_of_other_text(const nm_prepared *self, const nm_prepare_events *events)
{
    const nm_prepare_report *report = &self->report;
    const bool words = !report->merges && !report->pieces[0];
    const double limit = words ? 0.25 : 0.02;
    for (int split = 1; split < NM_PREPARE_SPLITS; split++)
        for (int side = 0; side < report->sides; side++) {
            const nm_prepare_split_report *train = &report->splits[0], *s = &report->splits[split];
            double here = (double)s->unknown[side] / (double)(s->tokens[side] ? s->tokens[side] : 1);
            double there =
                (double)train->unknown[side] / (double)(train->tokens[side] ? train->tokens[side] : 1);
            if (here <= limit + 3 * there)
                continue;
            NM_AUTO_FREE char *text =
                nm_format("%s%s%s: %.1f %% of the tokens are unknown, %.1f %% of the training text: is its "
                          "encoding (--%s-encoding), language or tokenization another one?",
                          nm_prepare_split_names[split], report->sides == 2 ? ", " : "",
                          report->sides == 2 ? nm_prepare_side_name(report->sides, side) : "", 100 * here,
                          100 * there, nm_prepare_split_names[split]);
            events->message(events->user, text);
        }
}

/* Warns if text of a language without spaces was tokenized by the Moses tokenizer, which leaves clauses as
 * single words. Text that contains spaces between words nevertheless has about as many words as the other
 * side. */
static void warn_of_missing_spaces(const nm_prepared *self, const nm_prepare_events *events)
{
    const nm_prepare_config *config = self->config;
    const char *const languages[] = {config->source_lang, config->target_lang};
    const nm_prepare_report *report = &self->report;
    const int64_t *words = report->splits[0].words;
    if (strcmp(config->tokenizer, "moses"))
        return;
    for (int side = 0; side < report->sides; side++) {
        int other = report->sides - 1 - side;
        bool compared = other != side && !nm_language_has_no_spaces(languages[other]);
        if (!nm_language_has_no_spaces(languages[side]) || (compared && 2 * words[side] >= words[other]))
            continue;
        NM_AUTO_FREE char *text =
            nm_format("%s: \"%s\" is written without spaces, at which the Moses tokenizer splits words: "
                      "use --tokenizer sentencepiece, or none for text that is segmented already",
                      nm_prepare_side_name(report->sides, side), languages[side]);
        events->message(events->user, text);
    }
}

static nm_status read_settings(nm_options *options, const char *settings, nm_error *err)
{
    if (!settings)
        return NM_OK;
    return strchr(settings, '\n') ? nm_options_read_text(options, "the settings", settings, err)
                                  : nm_options_read(options, settings, err);
}

static bool is_file(const char *option)
{
    static const char *const files[] = {"codes",     "dict_source",      "dict_target",
                                        "spm_model", "spm_target_model", "nonbreaking_prefixes"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!strcmp(option, files[i]))
            return true;
    return false;
}

/* Replaces the options that prepare.like determines. */
static nm_status use_settings_of_like(nm_prepared *self, const nm_options *like, nm_error *err)
{
    for (size_t i = 0; nm_prepare_like_options[i]; i++) {
        const char *name = nm_prepare_like_options[i];
        NM_AUTO_FREE char *path = nm_format("prepare.%s", name),
                          *value = is_file(name) ? nm_duplicate("") : nm_options_get(like, path);
        NM_TRY(nm_options_origin(self->options, path) == NM_ORIGIN_COMMAND
                   ? nm_fail(err, NM_USAGE, "%s cannot be combined with prepare.like, which has the settings",
                             path)
                   : nm_options_set(self->options, path, value, NM_ORIGIN_PROFILE, err));
    }
    return NM_OK;
}

/* The languages and documents of the text are those of prepare.like unless it has others. */
static nm_status use_defaults_of_like(nm_prepared *self, const nm_options *like, nm_error *err)
{
    static const char *const names[] = {"prepare.source_lang", "prepare.target_lang", "prepare.documents",
                                        "prepare.document_separator"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        NM_AUTO_FREE char *value = nm_options_get(like, names[i]),
                          *own = nm_options_get(self->options, names[i]);
        bool differs = nm_options_origin(self->options, names[i]) == NM_ORIGIN_DEFAULT && strcmp(value, own);
        NM_TRY(differs ? nm_options_set(self->options, names[i], value, NM_ORIGIN_FILE, err) : NM_OK);
    }
    return NM_OK;
}

/* NM_MISMATCH if source and target are those of prepare.like in the other order, and its dictionaries
 * differ. */
static nm_status check_order_of_like(const nm_prepared *self, const nm_prepare_config *like, nm_error *err)
{
    const nm_prepare_config *config = self->config;
    char *const *dictionaries = self->like.dictionaries;
    bool swapped = !self->like.plain && !strcmp(config->source_lang, like->target_lang) &&
                   !strcmp(config->target_lang, like->source_lang);
    if (!swapped || !dictionaries[0] || !dictionaries[1] || !strcmp(dictionaries[0], dictionaries[1]))
        return NM_OK;
    return nm_fail(err, NM_MISMATCH,
                   "%s has the languages in the other order, %s to %s, and a separate dictionary for each",
                   config->like, like->source_lang, like->target_lang);
}

static nm_status read_like(nm_prepared *self, nm_error *err)
{
    NM_TRY(nm_prepared_texts_read(&self->like, self->config->like, err));
    NM_AUTO(nm_options_release) nm_options *like;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&like, &config, "data.ini of prepare.like", self->like.settings, err));
    NM_TRY(use_settings_of_like(self, like, err));
    NM_TRY(use_defaults_of_like(self, like, err));
    return check_order_of_like(self, config, err);
}

/* Reads the lists of abbreviations into options, which data folder and models contain. */
static nm_status read_prefixes(nm_prepared *self, nm_error *err)
{
    static const char *const names[] = {"prepare.source_prefixes", "prepare.target_prefixes"};
    const nm_prepare_config *config = self->config;
    const char *const languages[] = {config->source_lang, config->target_lang};
    int sides = config->format == NM_PREPARE_TEXT ? 1 : 2;
    if (!*config->nonbreaking_prefixes)
        return NM_OK;
    for (int side = 0; side < sides; side++) {
        if (nm_options_origin(self->options, names[side]) != NM_ORIGIN_DEFAULT)
            continue;
        char *list;
        NM_TRY(nm_moses_prefixes_read(config->nonbreaking_prefixes, *languages[side] ? languages[side] : "en",
                                      &list, err));
        nm_status status = nm_options_set(self->options, names[side], list, NM_ORIGIN_FILE, err);
        free(list);
        NM_TRY(status);
    }
    return NM_OK;
}

/* Warns if a language has no list of abbreviations: "z.B. 5 tys. zł" has then a token "." */
static void warn_of_missing_prefixes(const nm_prepared *self, const nm_prepare_events *events)
{
    const nm_prepare_config *config = self->config;
    const char *const languages[] = {config->source_lang, config->target_lang}, *const lists[] = {
                                                                                    config->source_prefixes,
                                                                                    config->target_prefixes};
    for (int side = 0; side < self->report.sides && !strcmp(config->tokenizer, "moses"); side++) {
        if (!*languages[side] || *lists[side] || nm_moses_has_prefixes(languages[side]))
            continue;
        NM_AUTO_FREE char *text =
            nm_format("%s: there is no list of abbreviations for \"%s\", so that of English is used; "
                      "nonbreaking_prefixes reads a list of Moses",
                      nm_prepare_side_name(self->report.sides, side), languages[side]);
        events->message(events->user, text);
    }
}

static nm_prepare_existing existing_parts(const nm_prepared_texts *texts)
{
    nm_prepare_existing like = {.codes = texts->codes};
    for (int side = 0; side < 2; side++) {
        like.dictionaries[side] = texts->dictionaries[side];
        like.subwords[side] = texts->subwords[side];
        like.spm[side] = texts->spm[side].bytes;
        like.spm_bytes[side] = texts->spm[side].n_bytes;
    }
    return like;
}

static nm_status prepare_data(nm_prepared *self, const char *settings, const char *const *options,
                              const nm_prepare_events *events, nm_error *err)
{
    char *warning;
    NM_TRY(nm_settings_apply(self->options, "prepare", options, err));
    NM_TRY(read_settings(self->options, settings, err));
    if (*self->config->like)
        NM_TRY(read_like(self, err));
    NM_TRY(nm_options_check(self->options, &warning, err));
    if (warning && events->message)
        events->message(events->user, warning);
    free(warning);
    NM_TRY(read_prefixes(self, err));
    const nm_prepare_existing like = existing_parts(&self->like);
    NM_TRY(nm_prepare_run(self->options, &like, events, &self->report, err));
    if (events->message) {
        warn_of_drops(self, events);
        warn_of_repeated_pairs(self, events);
        warn_of_tokenized_text(self, events);
        warn_of_unknown_tokens(self, events);
        warn_of_other_text(self, events);
        warn_of_missing_spaces(self, events);
        warn_of_missing_prefixes(self, events);
    }
    return NM_OK;
}

nm_status nm_prepare_folder(nm_prepared **prepared, const char *settings, const char *const *options,
                            const nm_prepare_events *events, nm_error *err)
{
    static const nm_prepare_events none;
    err = err ? err : NM_IGNORED;
    nm_prepared *self = nm_allocate(sizeof *self);
    self->options = nm_options_create();
    self->config =
        nm_options_add(self->options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    nm_options_add_rules(self->options, nm_prepare_rules);
    nm_status status = prepare_data(self, settings, options, events ? events : &none, err);
    if (status == NM_OK && prepared)
        *prepared = self;
    else
        nm_prepared_free(self);
    return status;
}

void nm_prepared_free(nm_prepared *self)
{
    if (!self)
        return;
    nm_prepare_report_release(&self->report);
    nm_prepared_texts_release(&self->like);
    nm_options_free(self->options);
    free(self);
}

const char *nm_prepared_folder(const nm_prepared *self)
{
    return self ? self->config->output : NULL;
}

int32_t nm_prepared_n_sides(const nm_prepared *self)
{
    return self ? self->report.sides : 0;
}

const char *nm_prepared_unit(const nm_prepared *self)
{
    return !self                                         ? NULL
           : self->report.sides == 2                     ? "pairs"
           : self->config->documents == NM_DOCUMENT_LINE ? "lines"
                                                         : "documents";
}

int64_t nm_prepared_merges(const nm_prepared *self)
{
    return self ? self->report.merges : 0;
}

bool nm_prepared_get_side(const nm_prepared *self, int32_t side, nm_prepared_side *out)
{
    if (side < 0 || side >= nm_prepared_n_sides(self) || !out)
        return false;
    const nm_prepare_report *report = &self->report;
    *out = (nm_prepared_side){.name = nm_prepare_side_name(report->sides, side),
                              .word_types = report->word_types[side],
                              .dictionary = report->dict_size[side],
                              .pieces = report->pieces[side]};
    return true;
}

/* The report of a split; NULL: the folder has no such split. */
static const nm_prepare_split_report *find_split(const nm_prepared *self, int32_t split)
{
    bool found = self && split >= 0 && split < NM_PREPARE_SPLITS && nm_prepare_has_split(self->config, split);
    return found ? &self->report.splits[split] : NULL;
}

bool nm_prepared_get_split(const nm_prepared *self, int32_t split, nm_prepared_split *out)
{
    const nm_prepare_split_report *found = find_split(self, split);
    if (!found || !out)
        return false;
    *out = (nm_prepared_split){.name = nm_prepare_split_names[split],
                               .lines = found->pairs,
                               .kept = found->kept,
                               .held_out = found->held_out,
                               .links = split ? 0 : self->report.links,
                               .repeated = found->repeated,
                               .columns = found->columns};
    memcpy(out->words, found->words, sizeof out->words);
    memcpy(out->tokens, found->tokens, sizeof out->tokens);
    memcpy(out->unknown, found->unknown, sizeof out->unknown);
    return true;
}

bool nm_prepared_get_drop(const nm_prepared *self, int32_t split, size_t index, nm_prepared_drop *out)
{
    const nm_prepare_split_report *found = find_split(self, split);
    for (int drop = 0; found && out && drop < NM_DROP_N; drop++) {
        if (!found->dropped[drop] || index--)
            continue;
        *out = (nm_prepared_drop){.reason = nm_drop_reason_text((nm_drop_reason)drop),
                                  .option = nm_drop_reason_option((nm_drop_reason)drop),
                                  .lines = found->dropped[drop]};
        return true;
    }
    return false;
}
