#include "base/json.h"
#include "base/record.h"
#include "base/words.h"
#include "cli/translation_lines.h"

#include <unistd.h>

static const size_t max_buffer_bytes = (size_t)16 << 20;

/* Adds the next line to the list. */
static nm_status read_line(nm_lines *reader, nm_line_list *lines, nm_cli_line_numbers *skipped, bool *more,
                           nm_error *err)
{
    NM_TRY(nm_lines_next(reader, more, err));
    if (!*more)
        return NM_OK;
    nm_status status = nm_line_check_text(reader, err);
    if (status == NM_OK)
        nm_line_list_add(lines, reader->text, reader->bytes + 1);
    if (status == NM_OK || !skipped)
        return status;
    nm_line_list_add(lines, "", 1);
    nm_cli_line_numbers_add(skipped, reader->number);
    return NM_OK;
}

nm_status nm_cli_read_lines(nm_lines *reader, int64_t max_lines, nm_line_list *lines,
                            nm_cli_line_numbers *skipped, nm_error *err)
{
    size_t most = isatty(fileno(reader->stream)) ? 1 : (size_t)max_lines;
    nm_line_list_clear(lines);
    for (bool more = true; more && lines->n < most && lines->text.bytes < max_buffer_bytes;)
        NM_TRY(read_line(reader, lines, skipped, &more, err));
    return NM_OK;
}

nm_status nm_cli_read_other(nm_lines *reader, const nm_lines *first, nm_line_list *first_lines,
                            nm_line_list *lines, nm_error *err)
{
    bool more = true;
    nm_line_list_clear(lines);
    while (lines->n < first_lines->n + (first_lines->n == 0) && more) {
        nm_status status = read_line(reader, lines, NULL, &more, err);
        if (status != NM_OK) {
            nm_line_list_truncate(first_lines, lines->n);
            return status;
        }
    }
    if (lines->n == first_lines->n)
        return NM_OK;
    nm_status status =
        nm_fail(err, NM_MISMATCH, "%s ends after line %lld, %s does not", more ? first->path : reader->path,
                (long long)(more ? first->number : reader->number), more ? reader->path : first->path);
    nm_line_list_clear(first_lines);
    nm_line_list_clear(lines);
    return status;
}

void nm_cli_write_alignment(const nm_translations *all, size_t text, size_t rank, FILE *output)
{
    const nm_translation_word *words = nm_translations_words(all, text, rank);
    fputs(" |||", output);
    for (size_t i = 0; i < nm_translations_n_words(all, text, rank); i++)
        if (words[i].source >= 0)
            fprintf(output, " %d-%zu", words[i].source, i);
}

/* Number of code points before byte `to`; `before`: their number before byte *at <= to. Sets *at to `to`. */
static size_t code_points(const char *text, size_t *at, size_t to, size_t before)
{
    for (; *at < to; ++*at)
        before += ((unsigned char)text[*at] & 0xC0) != 0x80;
    return before;
}

#define WORD(F)                                                                                              \
    F(int, begin, "First code point")                                                                        \
    F(int, end, "Code point after the last one")                                                             \
    F(real, score, "Log-probability")                                                                        \
    F(json, source, "Index of the source word, or null")
NM_RECORD(word_line, WORD)
static NM_FIELDS(word_line, WORD)

#define TRANSLATION(F)                                                                                       \
    F(text, text, "Translation")                                                                             \
    F(real, score, "Score of beam search")                                                                   \
    F(json, tokens, "Tokens")                                                                                \
    F(json, token_scores, "Log-probability of each token")                                                   \
    F(json, words, "Words with their alignment", "words?")
NM_RECORD(translation_line, TRANSLATION)
static NM_FIELDS(translation_line, TRANSLATION)

static json_t *words_json(const nm_translations *all, size_t text, size_t rank)
{
    const nm_translation_word *words = nm_translations_words(all, text, rank);
    const char *line = nm_translations_text(all, text, rank);
    json_t *list = json_array();
    size_t at = 0, end = 0;
    for (size_t i = 0; i < nm_translations_n_words(all, text, rank); i++) {
        size_t begin = code_points(line, &at, words[i].begin, end);
        end = code_points(line, &at, words[i].end, begin);
        const word_line word = {(int64_t)begin, (int64_t)end, words[i].score,
                                words[i].source < 0 ? NULL : json_integer(words[i].source)};
        json_array_append_new(list, nm_record_json(word_line_fields(), &word));
    }
    return list;
}

json_t *nm_cli_translation_json(const nm_translations *all, size_t text, size_t rank, bool alignment)
{
    const size_t n = nm_translations_n_tokens(all, text, rank);
    json_t *tokens = json_array();
    for (size_t k = 0; k < n; k++)
        json_array_append_new(tokens, json_string(nm_translations_token(all, text, rank, k)));
    const translation_line record = {nm_translations_text(all, text, rank),
                                     nm_translations_score(all, text, rank), tokens,
                                     nm_json_numbers(nm_translations_token_scores(all, text, rank), n),
                                     alignment ? words_json(all, text, rank) : NULL};
    return nm_record_json(translation_line_fields(), &record);
}
