/* Suggestions for options that do not exist. */
#pragma once

#include "norma/option.h"

/* The part of "section.name" after the last dot. */
const char *nm_option_name(const char *path);
/* The known option that is most similar to the given one, heap; NULL if none is similar. In this order: one
 * wrong character; the meaning that a name has in other toolkits (foreign_names.h); the same name without its
 * section or with the wrong one; a name that begins with the given one and is at most three times as long; a
 * small edit distance; a name that ends with the given one and is at most twice as long. Of several, the one
 * with the smallest edit distance, then with the fewest sections, then the shortest. */
char *nm_nearest_option(const nm_options *options, const char *given);
