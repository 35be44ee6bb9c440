/* Edit distance, so that the message about an unknown name can suggest the most similar one. */
#pragma once

#include <stdbool.h>

enum { NM_EDIT_DISTANCE_BYTES = 63 };

/* Optimal string alignment distance (Levenshtein, with exchanged neighbors as one change) between the first
 * NM_EDIT_DISTANCE_BYTES bytes of a and b. */
int nm_edit_distance(const char *a, const char *b);
/* Whether a name at this distance is a plausible correction of `name`: at most every third character is
 * wrong. */
bool nm_edit_distance_is_near(int distance, const char *name);
