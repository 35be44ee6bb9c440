/* Texts of the validation and test sets that are also training texts. */
#pragma once

#include "base/corpus.h"

/* A warning if more than 10 % of the sequences of the validation or the test set are also in the training
 * set, heap; NULL: none. Labels are not compared. corpora: training, validation and test set; sequences are
 * equal if their ids are. unit: "texts". */
char *nm_split_overlap_warning(const nm_corpus corpora[3], const char *unit);
/* Another warning (heap; NULL: none), of which it takes ownership, followed by that of
 * nm_split_overlap_warning; heap or NULL. */
char *nm_add_overlap_warning(char *other, const nm_corpus corpora[3], const char *unit);
