#include "cli/translation_lines.h"

#include <math.h>
#include <unistd.h>

static const size_t max_buffer_bytes = (size_t)16 << 20;

nm_status nm_cli_read_lines(nm_lines *reader, int64_t max_lines, nm_line_list *lines, nm_error *err)
{
    size_t most = isatty(fileno(reader->stream)) ? 1 : (size_t)max_lines, bytes = 0;
    nm_line_list_clear(lines);
    while (lines->n < most && bytes < max_buffer_bytes) {
        bool more;
        NM_TRY(nm_lines_next(reader, &more, err));
        if (!more)
            break;
        NM_TRY(nm_line_check_text(reader, err));
        nm_line_list_add(lines, reader->text, reader->bytes + 1);
        bytes += reader->bytes;
    }
    return NM_OK;
}

const char **nm_cli_line_texts(const nm_line_list *lines)
{
    const char **texts = nm_allocate(lines->n * sizeof *texts);
    size_t bytes;
    for (size_t i = 0; i < lines->n; i++)
        texts[i] = nm_line_list_get(lines, i, &bytes);
    return texts;
}

json_t *nm_cli_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *nm_cli_translation_json(const nm_translations *all, size_t text, size_t rank)
{
    json_t *tokens = json_array(), *scores = json_array();
    for (size_t k = 0; k < nm_translations_n_tokens(all, text, rank); k++) {
        json_array_append_new(tokens, json_string(nm_translations_token(all, text, rank, k)));
        json_array_append_new(scores, nm_cli_json_number(nm_translations_token_scores(all, text, rank)[k]));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "text", nm_translations_text(all, text, rank), "score",
                     nm_cli_json_number(nm_translations_score(all, text, rank)), "tokens", tokens,
                     "token_scores", scores);
}
