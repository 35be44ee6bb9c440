/* The configuration of a run, config.ini in its folder, with which it is resumed. */
#pragma once

#include <jansson.h>

#include "norma/option.h"

/* In the order of the option run.resume. */
#define NM_RESUMES(C) C(NM_RESUME_NO, "no") C(NM_RESUME_YES, "yes") C(NM_RESUME_OVERRIDE, "override")
NM_CHOICES(nm_resume, NM_RESUMES);

typedef struct nm_run_options { /* section [run] */
    const char *folder, *task, *profile, *tune;
    int64_t tune_width;
    nm_resume resume;
    bool quiet, tensorboard, dry_run;
    double report_seconds;
} nm_run_options;

/* Registers [run]. */
nm_run_options *nm_run_options_add(nm_options *options);

/* Options for resuming the run in folder: the configuration of the run, with the options that `requested` has
 * from the command line. NM_USAGE if one of them differs from the value of the run, unless resume is
 * NM_RESUME_OVERRIDE or the option may be changed: [run], [comm], [probe], [decode], limits of the run
 * (updates, epochs, seconds, patience), intervals of logging and saving, keep_last, folder and files of
 * [data], data.eval_streams, and threads, profile, fold and memory_mib of [device]. Updates and epochs may
 * not be changed if the schedule depends on them, nor patience with schedule.early_stopping. *effective:
 * the sections of *requested with these values, heap; NULL if the folder has no config.ini. *warning: heap
 * text about recipe settings that the run does not use; NULL: none. */
nm_status nm_run_config_merge(nm_options **effective, const nm_options *requested, const char *folder,
                              nm_resume resume, char **warning, nm_error *err);

/* The configuration of the run in folder: the sections of `like` with the values of its config.ini. Heap;
 * *run is NULL if the folder has no config.ini. */
nm_status nm_run_config_read(nm_options **run, const nm_options *like, const char *folder, nm_error *err);
/* Settings that differ, for a message. */
typedef struct nm_run_differences {
    const char *owner; /* of the other values, with its verb: "the run uses" */
    char *text;        /* heap; NULL: no difference. The first ones; the others are "..." */
    int n;
} nm_run_differences;
/* Adds "path = value (owner other)". */
void nm_run_config_list(nm_run_differences *differences, const char *path, const char *value,
                        const char *other);
/* Whether a resumed run may have another value of the option than before. */
bool nm_run_config_may_change(const nm_options *run, const char *path);
/* Whether the option, of [model] or of a norm, determines the function that the model of a run computes. */
bool nm_run_config_is_of_model(const nm_options *run, const char *path);
/* Whether the run has the requested value; auto leaves the precision to the run. */
bool nm_run_config_agrees(const char *path, const char *old, const char *new);

/* The configuration of the run in folder, with the options of section [data] that `requested` has from the
 * command line: its section [data] is that of the resumed run. Heap; *run is NULL if the folder has no
 * config.ini. */
nm_status nm_run_config_read_data(nm_options **run, const nm_options *requested, const char *folder,
                                  nm_error *err);

/* The text of config.ini, heap. NM_USAGE  a value is not UTF-8 */
nm_status nm_run_config_text(const nm_options *options, char **text, nm_error *err);
/* Reads and writes folder/config.ini. *text: heap; NULL if there is no such file. NM_IO */
nm_status nm_run_config_load(char **text, const char *folder, nm_error *err);
nm_status nm_run_config_write(const char *text, const char *folder, nm_error *err);

/* Restores config.ini from the newest checkpoint, which has the true configuration, if the file is missing,
 * or if the program was killed before it wrote that of the last checkpoint. *message: heap, for the user;
 * NULL: none. NM_IO */
nm_status nm_run_config_restore(const char *folder, char **message, nm_error *err);
/* The same, and compares config.ini with the checkpoint. A folder without checkpoints is accepted.
 * NM_FORMAT  config.ini is damaged or was changed
 * NM_IO  a file cannot be read or written */
nm_status nm_run_config_prove(const nm_options *like, const char *folder, char **message, nm_error *err);

/* Options outside [run] whose value differs from folder/config.ini: an object {"section.key": {"from": ...,
 * "to": ...}}, which the caller releases; NULL if none differ or the folder has no config.ini. */
nm_status nm_run_config_changes(const nm_options *options, const char *folder, json_t **changes,
                                nm_error *err);
