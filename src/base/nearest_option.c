#include "base/nearest_option.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"

const char *nm_option_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* For comparisons only. */
static size_t distance_to(const char *given, const char *known)
{
    int whole = 2 * nm_edit_distance(given, known);
    int name = 2 * nm_edit_distance(nm_option_name(given), nm_option_name(known)) + 3;
    return ((size_t)(whole < name ? whole : name) << 16) + strlen(known);
}

static bool is_near(const char *given, const char *known)
{
    const char *name = nm_option_name(given);
    return nm_edit_distance_is_near(nm_edit_distance(name, nm_option_name(known)), name);
}

char *nm_nearest_option(const nm_options *options, const char *given)
{
    char *best = NULL, *known;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; (known = nm_options_path(options, i)) != NULL; i++) {
        size_t d = distance_to(given, known);
        if (d < best_distance && is_near(given, known)) {
            free(best);
            best = known;
            best_distance = d;
        } else {
            free(known);
        }
    }
    return best;
}
