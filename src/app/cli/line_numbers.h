/* Numbers of the lines that a message is about: all are counted, and the first ones are named. */
#pragma once

#include "cli/open_comm.h"

enum { NM_CLI_LINES_NAMED = 4 };

/* {0}: no line. */
typedef struct nm_cli_line_numbers {
    int64_t n;
    int64_t first[NM_CLI_LINES_NAMED]; /* ascending, from 1 */
} nm_cli_line_numbers;

/* number: larger than those added before. */
void nm_cli_line_numbers_add(nm_cli_line_numbers *lines, int64_t number);
/* Replaces the numbers with those of all processes. Collective. */
nm_status nm_cli_line_numbers_gather(nm_cli_line_numbers *lines, nm_comm *comm, nm_error *err);
/* "line 7", "lines 2, 3, 7, 9 and 5 more"; heap. */
char *nm_cli_line_numbers_text(const nm_cli_line_numbers *lines);
