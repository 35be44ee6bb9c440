/* Finds spans in lines of tokens, separated by spaces, with a model of Norma: one span per output line, with
 * the number of its input line.
 *
 *     cc tag.c -lnorma -o tag && ./tag runs/conll2003 <sentences.txt */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "norma/tagger.h"

enum { LONGEST = 1024 }; /* tokens of a line; the rest is left out */

static void print_spans(const nm_tagged *tagged, const char *const *tokens, int number)
{
    nm_tagged_span span;
    for (size_t k = 0; nm_tagged_get_span(tagged, 0, k, &span); k++) {
        printf("%d\t%s\t", number, span.label);
        for (size_t i = span.first; i < span.end; i++)
            printf("%s%c", tokens[i], i + 1 < span.end ? ' ' : '\n');
    }
}

int main(int argc, char **argv)
{
    const char *const options[] = {"scheme", "bioes", "device.threads", "1", NULL};
    nm_tagger *tagger = NULL;
    nm_error err = {NM_OK, ""};
    char *line = NULL;
    size_t size = 0;
    nm_status status = nm_tagger_open(&tagger, argc > 1 ? argv[1] : NULL, options, &err);
    for (int number = 1; status == NM_OK && getline(&line, &size, stdin) >= 0; number++) {
        const char *tokens[LONGEST];
        nm_tagged *tagged;
        size_t n = 0;
        for (char *rest = line, *token; n < LONGEST && (token = strtok_r(rest, " \n", &rest));)
            tokens[n++] = token;
        status = nm_tagger_run(tagger, tokens, &n, 1, &tagged, &err);
        if (status != NM_OK)
            break;
        print_spans(tagged, tokens, number);
        nm_tagged_free(tagged);
    }
    free(line);
    nm_tagger_close(tagger);
    if (status != NM_OK)
        fprintf(stderr, "tag: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
