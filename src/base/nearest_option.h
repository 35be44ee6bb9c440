/* Suggestions for options that do not exist. */
#ifndef NM_NEAREST_OPTION_H
#define NM_NEAREST_OPTION_H

#include "norma/option.h"

/* The part of "section.name" after the last dot. */
const char *nm_option_name(const char *path);
/* The known option that is nearest to the given one, heap; NULL if none is near. An option given without its section, or with the
 * wrong one, is near to those with its name; of several with the same distance, the nearest is the one with the shortest name. */
char *nm_nearest_option(const nm_options *options, const char *given);

#endif
