/* Whether a run that exists belongs to a comparison: a resumed run keeps its own configuration, so a
 * comparison whose settings have changed would compare runs with different settings. */
#pragma once

#include "experiment/variants.h"

/* Compares the configuration of the run in the folder with that of the comparison. Options that do not affect
 * its updates, and those of norms that the model does not have, may differ. *continued: settings with which
 * the run is continued, because it may have other values: larger limits, paths of the same data. NM_MISMATCH
 * if other options differ, or if the run has exceeded a limit of the comparison; NM_IO. A folder without a
 * configuration belongs to every comparison. */
nm_status nm_run_match(const nm_options *planned, const char *folder, nm_settings *continued, nm_error *err);
