/* Suggestions for options that do not exist. */
#ifndef NM_NEAREST_OPTION_H
#define NM_NEAREST_OPTION_H

#include "norma/option.h"

/* The part of "section.name" after the last dot. */
const char *nm_option_name(const char *path);
/* The known option that is most similar to the given one, heap; NULL if none is similar. In this order: the same name without its
 * section or with the wrong one; the meaning that a name has in other toolkits; a name that begins with the given one; a small
 * edit distance; a name that ends with the given one. Of several, the one with the smallest edit distance, then with the fewest
 * sections, then the shortest. */
char *nm_nearest_option(const nm_options *options, const char *given);

#endif
