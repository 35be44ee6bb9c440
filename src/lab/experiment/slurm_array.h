/* Training of the runs of a comparison by Slurm: one job array with a task for each run that has no result
 * yet.
 *
 * FOLDER is the folder of the comparison, RUN one of its run folders:
 *     FOLDER/slurm/N.sh       script of the array N; a task selects its run by SLURM_ARRAY_TASK_ID
 *     FOLDER/slurm/N.runs     the runs of the tasks 0, 1, ...: a line "KEY NAME" each
 *     FOLDER/slurm/N-K.txt    messages of Slurm about task K, such as an exceeded time limit
 *     RUN.txt                 standard error of the run
 *     RUN.exit                "CODE KEY": exit code of the run, written when it has ended
 *
 * The name of an array is derived from FOLDER and N. By this name, a caller that was killed and started again
 * finds its tasks, so that no run is submitted twice. A task that Slurm requeues continues its run from the
 * last checkpoint. More than 1000 runs (Slurm's default limit for an array) become several arrays. */
#pragma once

#include "experiment/run_queue.h"

/* Submits the waiting runs that are not in Slurm's queue, with the options for sbatch (separated by spaces),
 * and waits until all have ended. queue->share.jobs limits the number of parallel tasks. A run has
 * share.threads threads, or one per CPU of its task if that is 0. A run that fails, or whose task is
 * canceled, is reported in its result. NM_USAGE for an option of sbatch that this function sets, or if a run
 * is being trained with other settings; NM_IO if sbatch fails; NM_INTERRUPTED leaves the tasks in Slurm's
 * queue. */
nm_status nm_slurm_array_train(nm_run_queue *queue, const char *folder, const char *options, nm_error *err);
