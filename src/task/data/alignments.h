/* Word alignments of the training pairs, for guided alignment. The input has a line of links SOURCE-TARGET
 * for each pair (Pharaoh format); words are separated by whitespace and numbered from 0. In a data folder,
 * train.alignment.ids and .off contain the links between subwords, two numbers (target, source) per link,
 * sorted by target, then by source. */
#pragma once

#include "base/corpus.h"

typedef struct nm_link { /* indexes of words or subwords in the two lines */
    uint32_t source, target;
} nm_link;

typedef struct nm_link_list {
    nm_link *data;
    size_t n, capacity;
} nm_link_list;

/* Appends the links of a line. NM_FORMAT: it is not a list of links, or a number is not below n_source or
 * n_target; the message begins with `where` ("FILE:LINE"). */
nm_status nm_links_parse(nm_link_list *list, const char *line, size_t bytes, size_t n_source, size_t n_target,
                         const char *where, nm_error *err);
/* Sorts by target, then by source, and removes duplicates. */
void nm_links_sort(nm_link_list *list);

/* Opens the alignments of a data folder; the caller closes the corpus. NM_USAGE if there are none;
 * NM_MISMATCH if they do not fit the source and the target in `sides`; the errors of nm_corpus_open. */
nm_status nm_alignments_open(nm_corpus *corpus, const char *folder, const nm_corpus sides[2], nm_error *err);
