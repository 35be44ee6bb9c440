/* The runs of norma compare as processes of their own, so many at a time as there are cores for, so that an interruption or
 * a divergence of one leaves the others alone. What is done stands in the runs' folders and nowhere else: whatever way
 * the queue ends, the next one goes on there. */
#ifndef NM_COMPARE_QUEUE_H
#define NM_COMPARE_QUEUE_H

#include <sys/types.h>

#include "cli/cli.h"
#include "cli/compare_row.h"
#include "cli/compare_share.h"
#include "cli/compare_variants.h"

typedef enum compare_state { COMPARE_WAITING, COMPARE_RUNNING, COMPARE_ENDED } compare_state;

typedef struct compare_job { /* one run */
    const compare_variant *variant;
    char *folder, *log_path; /* log_path: what its process says */
    char key[COMPARE_KEY_BYTES];
    char said[256]; /* last, once it has ended */
    compare_row row;
    compare_state state; /* ENDED from the start when its test.json holds */
    pid_t process;
} compare_job;

typedef struct compare_queue {
    const nm_cli *cli;
    const char *recipe;
    const char *profile; /* of the recipe; "": none */
    compare_job *jobs;
    size_t n, capacity;
    compare_share share;
} compare_queue;

/* The options a run will have: recipe, command line, variant, seed. */
nm_status compare_options_of(const compare_queue *queue, const compare_variant *variant, int64_t seed,
                             nm_options **options, nm_error *err);
/* Holds the folder, against another comparison and what a killed one left behind, until the program ends. */
nm_status compare_folder_lock(const char *folder, nm_error *err);
/* Runs what waits. A run that fails is told by its row; NM_INTERRUPTED after a signal, and any other failure, when all
 * processes have been stopped in order. */
nm_status compare_queue_run(compare_queue *queue, nm_error *err);
/* Whether SIGINT or SIGTERM has come since compare_queue_run. */
bool compare_queue_stopped(void);
void compare_queue_release(compare_queue *queue);

#endif
