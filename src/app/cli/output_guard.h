/* Outputs that would destroy files of a run or of a data folder. */
#ifndef NM_OUTPUT_GUARD_H
#define NM_OUTPUT_GUARD_H

#include "norma/status.h"

/* NM_USAGE if the file `path` exists and has a name that only a run writes: "BEFORE PATH is the model of a run, which would be
 * overwritten: REMEDY". */
nm_status nm_guard_output_file(const char *path, const char *before, const char *remedy, nm_error *err);
/* NM_USAGE if the folder is that of a run or was written by norma prepare. command: for the message. NM_IO. */
nm_status nm_guard_output_folder(const char *folder, const char *command, nm_error *err);

#endif
