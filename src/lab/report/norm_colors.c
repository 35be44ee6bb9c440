#include "report/norm_colors.h"

#include <string.h>

/* Colors of norms. The last rows are for further norms, by a hash of the name. */
static const struct {
    const char *norm, *color;
} colors[] = {
    {"none", "#7d838c"},  {"layer", "#3b82c4"}, {"rms", "#1797a6"},   {"scale", "#8a7f3c"},
    {"fix", "#a5673f"},   {"group", "#7a6fe0"}, {"batch", "#d9730d"}, {"pnv", "#cf5aa0"},
    {"power", "#2f9e5f"}, {"rbn", "#d64545"},   {"mabn", "#b86bd6"},  {"renorm", "#b08400"},
    {"dyt", "#5c8a8a"},   {"derf", "#6b9a1f"},  {"unit", "#c2578a"},  {"prms", "#5f7fd9"},
    {"ada", "#9c5f2e"},   {"seed", "#4f9d9d"},  {"repbn", "#a94f7d"}, {"progressive", "#3f8f4f"},
    {"un", "#8552a8"},    {NULL, "#c08a3e"},    {NULL, "#4a6fa5"},    {NULL, "#b5533c"},
};
enum { N_COLORS = sizeof colors / sizeof *colors };

int nm_norm_color_index(const char *norm)
{
    int named = 0;
    unsigned hash = 0;
    for (; colors[named].norm; named++)
        if (!strcmp(colors[named].norm, norm))
            return named;
    while (*norm)
        hash = hash * 31 + (unsigned char)*norm++;
    return named + (int)(hash % (unsigned)(N_COLORS - named));
}

const char *nm_norm_color(nm_run_style style)
{
    return colors[style.color].color;
}
