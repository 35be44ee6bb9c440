/* The plan of a comparison: its runs, their updates, and their duration by the speed of the first updates of
 * each variant (FOLDER/speed); and its queue.jsonl, which norma watch shows. */
#pragma once

#include "experiment/experiment.h"

/* Opens FOLDER/queue.jsonl and adds the runs of the comparison. Errors of nm_run_journal_open. */
nm_status nm_comparison_journal_open(nm_experiment *experiment, nm_error *err);
/* Appends a run that has started, ended or been scored. */
void nm_comparison_journal_add(nm_experiment *experiment, const nm_run_job *job);
/* Sets experiment->plan. The speed is measured if `always`, or if this takes at most two percent of the
 * updates and Slurm does not train the runs. Errors of the data and of nm_experiment_train. */
nm_status nm_comparison_plan_make(nm_experiment *experiment, nm_stop *stop, bool always, nm_error *err);
/* "12 of 15 runs have no result: 5 variants, 3 seeds, 1200 updates each, 2 at a time: about 3.2 h". Heap. */
char *nm_comparison_plan_line(const nm_experiment *experiment);
/* That line, and the parts as a Markdown table. Heap. */
char *nm_comparison_plan_markdown(const nm_experiment *experiment);
