/* Trains a model from a recipe and prints every validation; Ctrl-C stops after the current update and writes
 * a checkpoint, from which the next call continues.
 *
 *     cc train.c -lnorma -o train && ./train recipe.ini runs/mine [section.key value ...] */
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "norma/train.h"

static nm_training *training;

static void on_interrupt(int number)
{
    (void)number;
    nm_training_stop(training);
}

static void on_validated(void *user, const nm_training_validation *v)
{
    (void)user;
    printf("update %lld: loss %.4f%s\n", (long long)v->update, v->loss, v->best ? ", best so far" : "");
}

static void on_message(void *user, const char *text)
{
    (void)user;
    printf("note: %s\n", text);
}

int main(int argc, char **argv)
{
    const nm_training_events events = {.validated = on_validated, .message = on_message};
    nm_error err = {NM_OK, ""};
    struct stat info;
    if (argc < 3) {
        fprintf(stderr, "usage: train RECIPE FOLDER [section.key value ...]\n");
        return NM_USAGE;
    }
    nm_training_resume resume = stat(argv[2], &info) ? NM_TRAINING_NEW : NM_TRAINING_RESUME;
    nm_status status =
        nm_training_open(&training, argv[1], argv[2], (const char *const *)argv + 3, resume, &events, &err);
    if (status == NM_OK) {
        signal(SIGINT, on_interrupt);
        status = nm_training_run(training, &err);
        const nm_training_summary run = nm_training_summarize(training);
        printf("%lld updates of %zu parameters; best validation at update %lld: loss %.4f\n",
               (long long)run.updates, nm_training_parameters(training), (long long)run.best_update,
               run.best_loss);
        signal(SIGINT, SIG_DFL);
    }
    nm_training_close(training);
    if (status != NM_OK)
        fprintf(stderr, "train: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
