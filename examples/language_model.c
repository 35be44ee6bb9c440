/* Log probabilities of the lines of standard input under a language model of Norma, and one continuation of
 * the first line; or the perplexity of files.
 *
 *     cc language_model.c -lnorma -o language_model && ./language_model runs/ptb <lines.txt
 *     ./language_model runs/ptb test.txt other.txt */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "norma/language_model.h"

enum { MOST = 1000 }; /* lines that are read */

static nm_status print_scores(nm_language_model *model, const char *const *lines, size_t n, nm_error *err)
{
    nm_lm_scores *scores;
    NM_TRY(nm_language_model_score(model, lines, n, NM_LM_TEXT, &scores, err));
    for (size_t i = 0; i < n; i++)
        printf("%.4f\t%zu tokens\n", nm_lm_scores_line(scores, i), nm_lm_scores_n_tokens(scores, i));
    printf("perplexity %.4f\n", nm_lm_scores_perplexity(scores));
    nm_lm_scores_free(scores);
    return NM_OK;
}

static nm_status print_continuation(nm_language_model *model, const char *const *lines, nm_error *err)
{
    nm_lm_texts *texts;
    NM_TRY(nm_language_model_generate(model, lines, 1, 0, &texts, err));
    printf("%s\n", nm_lm_texts_get(texts, 0));
    nm_lm_texts_free(texts);
    return NM_OK;
}

static nm_status print_files(nm_language_model *model, char **paths, nm_error *err)
{
    for (; *paths; paths++) {
        nm_perplexity *perplexity;
        NM_TRY(nm_language_model_perplexity(model, *paths, &perplexity, err));
        const nm_perplexity_sums sums = nm_perplexity_get_sums(perplexity);
        const nm_interval interval = nm_perplexity_interval(perplexity);
        printf("%s: perplexity %.4f [%.4f, %.4f]\n", *paths, exp(sums.nll / (double)sums.tokens),
               interval.low, interval.high);
        nm_perplexity_free(perplexity);
    }
    return NM_OK;
}

static nm_status print_input(nm_language_model *model, nm_error *err)
{
    char *lines[MOST] = {0};
    size_t sizes[MOST] = {0}, n = 0;
    while (n < MOST && getline(&lines[n], &sizes[n], stdin) >= 0)
        n++;
    nm_status status = print_scores(model, (const char *const *)lines, n, err);
    if (status == NM_OK && n)
        status = print_continuation(model, (const char *const *)lines, err);
    for (size_t i = 0; i < MOST; i++)
        free(lines[i]);
    return status;
}

int main(int argc, char **argv)
{
    const char *const options[] = {"tokens", "12", "temperature", "0.8", NULL};
    nm_language_model *model = NULL;
    nm_error err = {NM_OK, ""};
    nm_status status = nm_language_model_open(&model, argc > 1 ? argv[1] : NULL, options, &err);
    if (status == NM_OK)
        status = argc > 2 ? print_files(model, argv + 2, &err) : print_input(model, &err);
    nm_language_model_close(model);
    if (status != NM_OK)
        fprintf(stderr, "language_model: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
