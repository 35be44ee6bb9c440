/* Stand-ins for MeCab and MeCab-ko in the tests of ja-mecab and ko-mecab: a word ends at each "|". The number
 * of words of the dictionary is the text of the file "size" in its folder. FAKE_VERSION is the version of the
 * library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mecab_t {
    char text[256];
    struct {
        const char *filename, *charset;
        unsigned int size;
    } info;
} mecab_t;

const char *mecab_version(void);
mecab_t *mecab_new(int n, char **arguments);
void mecab_destroy(mecab_t *tagger);
const char *mecab_sparse_tostr2(mecab_t *tagger, const char *text, size_t bytes);
const void *mecab_dictionary_info(mecab_t *tagger);

const char *mecab_version(void)
{
    return FAKE_VERSION;
}

mecab_t *mecab_new(int n, char **arguments)
{
    char path[4096] = "";
    for (int i = 1; i + 1 < n; i++)
        if (!strcmp(arguments[i], "-d"))
            snprintf(path, sizeof path, "%s/size", arguments[i + 1]);
    FILE *file = fopen(path, "r");
    mecab_t *tagger = file ? calloc(1, sizeof *tagger) : NULL;
    if (tagger && fscanf(file, "%u", &tagger->info.size) == 1)
        tagger->info.charset = "UTF-8";
    if (file)
        fclose(file);
    return tagger;
}

void mecab_destroy(mecab_t *tagger)
{
    free(tagger);
}

const char *mecab_sparse_tostr2(mecab_t *tagger, const char *text, size_t bytes)
{
    snprintf(tagger->text, sizeof tagger->text, "%.*s \n", (int)bytes, text);
    for (char *end = tagger->text; (end = strchr(end, '|'));)
        *end = ' ';
    return tagger->text;
}

const void *mecab_dictionary_info(mecab_t *tagger)
{
    return &tagger->info;
}
