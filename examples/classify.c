/* Classifies lines of standard input with a model of Norma: label and probability of each line.
 *
 *     cc classify.c -lnorma -o classify && ./classify runs/sst2 <reviews.txt */
#include <stdio.h>
#include <stdlib.h>

#include "norma/classifier.h"

int main(int argc, char **argv)
{
    nm_classifier *classifier = NULL;
    nm_error err = {NM_OK, ""};
    char *line = NULL;
    size_t size = 0;
    nm_status status = nm_classifier_open(&classifier, argc > 1 ? argv[1] : NULL, NULL, &err);
    while (status == NM_OK && getline(&line, &size, stdin) >= 0) {
        nm_classifications *found;
        status = nm_classifier_run(classifier, (const char *const *)&line, 1, &found, &err);
        if (status != NM_OK)
            break;
        printf("%s\t%.6f\n", nm_classifications_label(found, 0),
               nm_classifications_probabilities(found, 0)[nm_classifications_best(found, 0)]);
        nm_classifications_free(found);
    }
    free(line);
    nm_classifier_close(classifier);
    if (status != NM_OK)
        fprintf(stderr, "classify: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
