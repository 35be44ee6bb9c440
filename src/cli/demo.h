/* What norma demo is made of: recipes inside the program (recipes/demo*.ini), one text that becomes three, and processes of
 * this program that do the work. */
#ifndef NM_DEMO_H
#define NM_DEMO_H

#include "norma/status.h"

extern const char demo_recipe[], demo_lm_recipe[], demo_tag_recipe[]; /* end with NUL */

typedef enum demo_unit {
    DEMO_LINES,
    DEMO_PARAGRAPHS
} demo_unit; /* what must stay together; paragraphs: an empty line ends them */

/* Writes FOLDER/train.END, valid.END and test.END. Of every 20 blocks of neighboring units one is validation and one
 * test. *units is how many there were; if it is not 0 before, the file must have as many. NM_FORMAT. */
nm_status demo_split(const char *path, demo_unit unit, const char *folder, const char *end, int64_t *units,
                     nm_error *err);

/* Runs this program with the arguments (NULL at the end) and waits; a signal that comes meanwhile is handed on. Returns its
 * exit code, NM_IO when it could not be started. */
int demo_run(const char *const *arguments);

#endif
