/* Input lines, alignments and JSON objects of translate and rescore. */
#pragma once

#include <jansson.h>

#include "base/text_input.h"
#include "cli/line_numbers.h"
#include "cli/model_command.h"
#include "base/line_list.h"
#include "norma/translator.h"

/* Replaces the list by the next lines, NUL-terminated: up to max_lines lines and about 16 MiB, from a
 * terminal one line. The list is empty at the end of the input. skipped: replaces lines that are not UTF-8 or
 * contain zero bytes by empty ones, and receives their numbers; NULL: they are NM_FORMAT. After an error the
 * list has the preceding lines. */
nm_status nm_cli_read_lines(nm_lines *reader, int64_t max_lines, nm_line_list *lines,
                            nm_cli_line_numbers *skipped, nm_error *err);
/* Reads from another file as many lines as first_lines contains, which were read from `first`; at the end of
 * `first`, this file must also be at its end. NM_MISMATCH if the files have different numbers of lines. After
 * an error first_lines and lines have the preceding lines; none after NM_MISMATCH. */
nm_status nm_cli_read_other(nm_lines *reader, const nm_lines *first, nm_line_list *first_lines,
                            nm_line_list *lines, nm_error *err);
/* Writes the alignment in Pharaoh format, SOURCE-TARGET: " ||| 0-0 1-2". */
void nm_cli_write_alignment(const nm_translations *all, size_t text, size_t rank, FILE *output);
/* A new object with text, score, tokens and token scores of a translation, and its words if `alignment`;
 * numbers that are not finite are null. */
json_t *nm_cli_translation_json(const nm_translations *all, size_t text, size_t rank, bool alignment);
