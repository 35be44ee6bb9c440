/* Training of a comparison's runs by Slurm: one job array, one task per run that has no result yet.
 *
 * FOLDER is that of the comparison, RUN one of its run folders:
 *     FOLDER/slurm/N.sh       script of the array N; a task selects its run by SLURM_ARRAY_TASK_ID
 *     FOLDER/slurm/N.runs     the runs of the tasks 0, 1, ...: a line "KEY NAME" each
 *     FOLDER/slurm/N-K.txt    what Slurm writes about task K, such as an exceeded time limit
 *     RUN.txt                 standard error of the run
 *     RUN.exit                "CODE KEY": exit code of the run, written when it has ended
 *
 * The jobs are named after FOLDER and N. A caller that is killed finds its tasks again by that name, so that no run
 * is submitted twice. A task that Slurm requeues continues its run from the last checkpoint. More than 1000 runs
 * (Slurm's default limit of an array) are several arrays. */
#ifndef NM_SLURM_ARRAY_H
#define NM_SLURM_ARRAY_H

#include "experiment/run_queue.h"

/* Submits the waiting runs that are not in Slurm's queue, with the options for sbatch (words separated by spaces), and
 * waits until all have ended. queue->share.jobs limits the parallel tasks if it is less than the number of runs; the
 * threads of a run are share.threads, or if that is 0 the CPUs of the task. A run that fails, or whose task is
 * canceled, is reported in its result. NM_USAGE if an option of sbatch is one that this function sets, or if a run is
 * being trained with other settings; NM_IO if sbatch fails; NM_INTERRUPTED leaves the tasks in Slurm's queue. */
nm_status nm_slurm_array_train(nm_run_queue *queue, const char *folder, const char *options, nm_error *err);

#endif
