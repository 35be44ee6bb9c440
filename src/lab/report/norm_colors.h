/* A norm has the same color in every report. */
#pragma once

#include "report/score_grid.h"

/* nm_run_style.color of the runs with this norm, and the color "#3b82c4". */
int nm_norm_color_index(const char *norm);
const char *nm_norm_color(nm_run_style style);
