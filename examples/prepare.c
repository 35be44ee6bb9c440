/* Prepares a data folder from parallel text and prints what it contains; Ctrl-C ends the preparation and
 * leaves the folder as it was.
 *
 *     cc prepare.c -lnorma -o prepare && ./prepare train corpus/train source_lang de target_lang en output
 *     data/de-en */
#include <signal.h>
#include <stdio.h>

#include "norma/prepare.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static bool on_progress(void *user, const nm_prepare_progress *progress)
{
    (void)user;
    printf("%s %lld\n", progress->step, (long long)progress->lines);
    return !interrupted;
}

static void on_message(void *user, const char *text)
{
    (void)user;
    printf("note: %s\n", text);
}

int main(int argc, char **argv)
{
    const nm_prepare_events events = {.progress = on_progress, .message = on_message};
    nm_prepared *prepared = NULL;
    nm_prepared_split split;
    nm_prepared_drop drop;
    nm_prepared_side side;
    nm_error err = {NM_OK, ""};
    (void)argc;
    signal(SIGINT, on_interrupt);
    nm_status status = nm_prepare_folder(&prepared, NULL, (const char *const *)argv + 1, &events, &err);
    for (int32_t i = 0; i < 3; i++) {
        if (!nm_prepared_get_split(prepared, i, &split))
            continue;
        printf("%s: %lld of %lld lines\n", split.name, (long long)split.kept, (long long)split.lines);
        for (size_t k = 0; nm_prepared_get_drop(prepared, i, k, &drop); k++)
            printf("  %lld %s\n", (long long)drop.lines, drop.reason);
    }
    for (int32_t i = 0; nm_prepared_get_side(prepared, i, &side); i++)
        printf("%s: dictionary of %lld\n", side.name, (long long)side.dictionary);
    nm_prepared_free(prepared);
    if (status != NM_OK)
        fprintf(stderr, "prepare: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
