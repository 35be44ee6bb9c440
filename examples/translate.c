/* Translates lines of standard input with a model of Norma.
 *
 *     cc translate.c -lnorma -o translate && ./translate runs/de-en <text.de >text.en
 *
 * Several lines are translated in one call, which is faster than one call per line. */
#include <stdio.h>
#include <stdlib.h>

#include "norma/translator.h"

enum { BATCH = 256 };

int main(int argc, char **argv)
{
    const char *const options[] = {"beam", "4", NULL};
    char *lines[BATCH] = {0};
    size_t sizes[BATCH] = {0}, n = BATCH;
    nm_translator *translator = NULL;
    nm_translations *translations;
    nm_error err = {NM_OK, ""};
    nm_status status = nm_translator_open(&translator, argc > 1 ? argv[1] : NULL, options, &err);
    while (status == NM_OK && n == BATCH) {
        for (n = 0; n < BATCH && getline(&lines[n], &sizes[n], stdin) >= 0;)
            n++;
        status = nm_translator_run(translator, (const char *const *)lines, n, &translations, &err);
        if (status != NM_OK)
            break;
        for (size_t i = 0; i < n; i++)
            puts(nm_translations_count(translations, i) ? nm_translations_text(translations, i, 0) : "");
        nm_translations_free(translations);
    }
    for (size_t i = 0; i < BATCH; i++)
        free(lines[i]);
    nm_translator_close(translator);
    if (status != NM_OK)
        fprintf(stderr, "translate: %s\n", err.text);
    return (int)status; /* a status is also an exit code */
}
