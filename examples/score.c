/* Scores a file of translations, labels or tags against a reference; with a second file of translations, a
 * paired test.
 *
 *     cc score.c -lnorma -o score && ./score bleu hyp.en ref.en [other.en] */
#include <stdio.h>

#include "norma/score.h"

static void print(const char *file, const nm_scores *scores)
{
    size_t lowest = 0;
    nm_interval interval;
    for (size_t i = 1; i < nm_scores_n(scores); i++)
        if (nm_scores_segment(scores, i) < nm_scores_segment(scores, lowest))
            lowest = i;
    printf("%s: %s\n", file, nm_scores_line(scores));
    if (nm_scores_interval(scores, &interval))
        printf("  %.2f to %.2f; line %zu of %zu has the lowest, %.2f\n", interval.low, interval.high,
               lowest + 1, nm_scores_n(scores), nm_scores_segment(scores, lowest));
}

int main(int argc, char **argv)
{
    nm_scorer *scorer = NULL;
    nm_scores *first = NULL, *other = NULL;
    nm_paired paired;
    nm_error err = {NM_OK, ""};
    if (argc < 4) {
        fprintf(stderr, "usage: score bleu|chrf|ter|accuracy|f1 HYPOTHESES REFERENCE [HYPOTHESES]\n");
        return NM_USAGE;
    }
    const char *const references[] = {argv[3]};
    nm_status status = nm_scorer_open(&scorer, argv[1], NULL, &err);
    if (status == NM_OK)
        status = nm_scorer_run_files(scorer, argv[2], references, 1, &first, &err);
    if (status == NM_OK)
        print(argv[2], first);
    if (status == NM_OK && argc > 4)
        status = nm_scorer_run_files(scorer, argv[4], references, 1, &other, &err);
    if (other) {
        print(argv[4], other);
        status = nm_scores_compare(first, other, &paired, &err);
        if (status == NM_OK)
            printf("difference %+.2f, p = %.4f\n", paired.score_a - paired.score_b, paired.p);
    }
    nm_scores_free(first);
    nm_scores_free(other);
    nm_scorer_close(scorer);
    if (status != NM_OK)
        fprintf(stderr, "score: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
