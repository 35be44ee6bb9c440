/* How far two names are apart, so that a message about an unknown one can offer the nearest known one. */
#ifndef NM_EDIT_DISTANCE_H
#define NM_EDIT_DISTANCE_H

/* Levenshtein distance of a and the first 63 bytes of b. */
int nm_edit_distance(const char *a, const char *b);

#endif
