#include "cli/line_numbers.h"

#include <stdlib.h>

#include "base/memory.h"

void nm_cli_line_numbers_add(nm_cli_line_numbers *lines, int64_t number)
{
    if (lines->n < NM_CLI_LINES_NAMED)
        lines->first[lines->n] = number;
    lines->n++;
}

/* Inserts a number, in order, if it is among the first ones. named: how many are there. */
static void insert(nm_cli_line_numbers *lines, int64_t named, int64_t number)
{
    int64_t at = named < NM_CLI_LINES_NAMED ? named : NM_CLI_LINES_NAMED;
    for (; at > 0 && lines->first[at - 1] > number; at--)
        if (at < NM_CLI_LINES_NAMED)
            lines->first[at] = lines->first[at - 1];
    if (at < NM_CLI_LINES_NAMED)
        lines->first[at] = number;
}

nm_status nm_cli_line_numbers_gather(nm_cli_line_numbers *lines, nm_comm *comm, nm_error *err)
{
    nm_cli_line_numbers *each = nm_allocate((size_t)comm->size * sizeof *each), all = {0};
    each[comm->rank] = *lines;
    nm_status status = nm_comm_gather(comm, each, sizeof *each, err);
    int64_t named = 0;
    for (int32_t rank = 0; rank < comm->size && status == NM_OK; rank++) {
        for (int64_t i = 0; i < each[rank].n && i < NM_CLI_LINES_NAMED; i++)
            insert(&all, named++, each[rank].first[i]);
        all.n += each[rank].n;
    }
    if (status == NM_OK)
        *lines = all;
    free(each);
    return status;
}

char *nm_cli_line_numbers_text(const nm_cli_line_numbers *lines)
{
    char *text = nm_duplicate(lines->n == 1 ? "line" : "lines");
    for (int64_t i = 0; i < lines->n && i < NM_CLI_LINES_NAMED; i++)
        nm_format_append(&text, "%s %lld", i ? "," : "", (long long)lines->first[i]);
    if (lines->n > NM_CLI_LINES_NAMED)
        nm_format_append(&text, " and %lld more", (long long)(lines->n - NM_CLI_LINES_NAMED));
    return text;
}
