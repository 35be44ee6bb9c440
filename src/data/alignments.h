/* Word alignments of the training pairs, for guided alignment. Input: a line of links SOURCE-TARGET for each pair (Pharaoh
 * format), numbers of words from 0; words are what is between white space. In a data folder train.alignment.ids and .off are
 * the links of the subwords, as the numbers target, source of each link, sorted by target, then by source. */
#ifndef NM_ALIGNMENTS_H
#define NM_ALIGNMENTS_H

#include "data/corpus.h"

typedef struct nm_link { /* positions in the two lines */
    uint32_t source, target;
} nm_link;

typedef struct nm_link_list {
    nm_link *data;
    size_t n, capacity;
} nm_link_list;

/* Appends the links of a line. where: "FILE:LINE", for NM_FORMAT: not a list of links, or a number that is not below n_source
 * or n_target. */
nm_status nm_links_parse(nm_link_list *list, const char *line, size_t bytes, size_t n_source, size_t n_target,
                         const char *where, nm_error *err);
/* Sorts by target, then by source, and removes repeated links. */
void nm_links_sort(nm_link_list *list);

/* Opens the alignments of a data folder. NM_USAGE if it has none; NM_MISMATCH if they are not those of the two sides. */
nm_status nm_alignments_open(nm_corpus *corpus, const char *folder, const nm_corpus sides[2], nm_error *err);

#endif
