/* Parts of norma demo: built-in recipes (recipes/demo*.ini), the split of a text, and processes of this program. */
#ifndef NM_DEMO_H
#define NM_DEMO_H

#include "norma/status.h"

extern const char demo_recipe[], demo_lm_recipe[], demo_tag_recipe[]; /* NUL-terminated */

/* The units that a split keeps whole: lines, or paragraphs, which end at an empty line. */
typedef enum demo_unit { DEMO_LINES, DEMO_PARAGRAPHS } demo_unit;

/* Splits the file into FOLDER/train.SUFFIX, valid.SUFFIX and test.SUFFIX: of every 20 blocks of consecutive units, one is
 * validation and one is test data. *units is set to the number of units; if it is not 0 before, the file must have that
 * many. NM_FORMAT. */
nm_status demo_split(const char *path, demo_unit unit, const char *folder, const char *suffix, int64_t *units,
                     nm_error *err);

/* Runs this program with the arguments (NULL-terminated) and waits; signals are forwarded to it. Returns its exit code, NM_IO
 * if it cannot be started. */
int demo_run(const char *const *arguments);

#endif
