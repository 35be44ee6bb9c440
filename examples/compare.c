/* Trains variants of a recipe and prints a line for each and the table in Markdown; Ctrl-C stops the runs
 * with checkpoints, from which the next call continues.
 *
 *     cc compare.c -lnorma -o compare && ./compare recipe.ini norms layer,power seeds 3 folder runs/compared
 *     [NAME VALUE ...]
 *
 * The runs are processes of the program `norma`, which is found in PATH or named by the environment variable
 * NORMA. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "norma/compare.h"

static nm_comparison *comparison;

static void on_interrupt(int number)
{
    (void)number;
    nm_comparison_stop(comparison);
}

static void on_finished(void *user, const nm_compared_run *run)
{
    (void)user;
    printf("%s, seed %lld: %s\n", run->variant, (long long)run->seed,
           run->failure ? run->failure : "trained");
}

int main(int argc, char **argv)
{
    const nm_comparison_events events = {.finished = on_finished};
    nm_error err = {NM_OK, ""};
    nm_compared_variant variant;
    if (argc < 2) {
        fprintf(stderr, "usage: compare RECIPE [NAME VALUE ...]\n");
        return NM_USAGE;
    }
    nm_status status = nm_comparison_open(&comparison, getenv("NORMA"), argv[1],
                                          (const char *const *)argv + 2, &events, &err);
    if (status == NM_OK) {
        signal(SIGINT, on_interrupt);
        status = nm_comparison_run(comparison, &err);
        signal(SIGINT, SIG_DFL);
    }
    for (size_t i = 0; nm_comparison_get_variant(comparison, i, &variant); i++)
        printf("%s: validation loss %.4f, score %.2f from %lld of %lld runs\n", variant.name, variant.loss,
               variant.score, (long long)variant.finished, (long long)variant.seeds);
    const char *table = nm_comparison_text(comparison, "markdown");
    if (table)
        printf("\n%s", table);
    nm_comparison_close(comparison);
    if (status != NM_OK)
        fprintf(stderr, "compare: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
