/* Lines of input and of JSON, common to translate and rescore. */
#ifndef NM_CLI_TRANSLATION_LINES_H
#define NM_CLI_TRANSLATION_LINES_H

#include <jansson.h>

#include "base/text_input.h"
#include "cli/model_command.h"
#include "data/line_list.h"
#include "norma/translator.h"
#include "text/words.h"

/* Reads up to max_lines lines, from a terminal one, in place of those of the list; none at the end. The lines end with NUL. */
nm_status nm_cli_read_lines(nm_lines *reader, int64_t max_lines, nm_line_list *lines, nm_error *err);
/* The lines as an array, heap; the lines belong to the list. */
const char **nm_cli_line_texts(const nm_line_list *lines);
/* Text, score, tokens and token scores; what is not finite is null. */
json_t *nm_cli_translation_json(const nm_translations *all, size_t text, size_t rank);
/* A number, or null if it is not finite. */
json_t *nm_cli_json_number(double value);

#endif
