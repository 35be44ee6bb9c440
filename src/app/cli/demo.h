/* Parts of norma demo: built-in recipes (recipes/demo*.ini), the split of a text, and processes of this
 * program. */
#ifndef NM_DEMO_H
#define NM_DEMO_H

#include "norma/status.h"

extern const char demo_recipe[], demo_lm_recipe[], demo_tag_recipe[]; /* NUL-terminated */

/* Units that are not divided between splits: lines, or paragraphs, which end at an empty line. */
typedef enum demo_unit { DEMO_LINES, DEMO_PARAGRAPHS } demo_unit;

/* Splits a file into FOLDER/train.SUFFIX, valid.SUFFIX and test.SUFFIX: of every 20 blocks of consecutive
 * units, one is validation and one is test data. *units: in: expected number of units, 0: any; out: number of
 * units. NM_FORMAT for another number, fewer than 100 units, or text that is not UTF-8; NM_IO. */
nm_status demo_split(const char *path, demo_unit unit, const char *folder, const char *suffix, int64_t *units,
                     nm_error *err);

/* Runs this program with the arguments (NULL-terminated), waits for it and forwards signals to it. Returns
 * its exit code; NM_INTERRUPTED if a forwarded signal terminated it, NM_IO if it could not be started. */
int demo_run(const char *const *arguments);

#endif
