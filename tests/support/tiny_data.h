/* A synthetic translation corpus in a temporary folder, in the format of norma prepare: the target is the
 * reversed source, with a dictionary of `words` words. For tests of training and decoding. */
#ifndef NM_TINY_DATA_H
#define NM_TINY_DATA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/corpus.h"
#include "support/remove_tree.h"

enum { TINY_SPECIAL = 4, TINY_EOS = 2, TINY_LONGEST = 9 };

static inline void tiny_write_text(const char *folder, const char *name, const char *text)
{
    char *path = nm_format("%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fputs(text, file) < 0 || fclose(file))
        abort();
    free(path);
}

static inline void tiny_write_split(const char *folder, const char *split, int sentences, int words,
                                    uint32_t seed)
{
    char *prefix[2] = {nm_format("%s/%s.source", folder, split), nm_format("%s/%s.target", folder, split)};
    char *text_path[2] = {nm_format("%s.words", prefix[0]), nm_format("%s.words", prefix[1])};
    for (int side = 0; side < 2; side++) {
        nm_corpus_writer writer;
        nm_error err;
        FILE *text = fopen(text_path[side], "wb");
        if (!text || nm_corpus_writer_open(&writer, prefix[side], &err) != NM_OK)
            abort();
        for (int s = 0; s < sentences; s++) {
            int32_t ids[TINY_LONGEST + 1],
                n = 1 + (int32_t)(nm_random4(seed, NM_RANDOM_TEST, 0, 0, (uint64_t)s).w[0] % TINY_LONGEST);
            for (int32_t t = 0; t < n; t++) {
                uint32_t word =
                    nm_random4(seed, NM_RANDOM_TEST, 1, (uint32_t)s, (uint64_t)t).w[0] % (uint32_t)words;
                ids[side ? n - 1 - t : t] = TINY_SPECIAL + (int32_t)word;
            }
            for (int32_t t = 0; t < n; t++)
                fprintf(text, "%sw%d", t ? " " : "", ids[t] - TINY_SPECIAL);
            fputc('\n', text);
            ids[n++] = TINY_EOS;
            nm_corpus_writer_add(&writer, ids, n);
        }
        if (nm_corpus_writer_commit(&writer, &err) != NM_OK || fclose(text))
            abort();
        free(prefix[side]);
        free(text_path[side]);
    }
}

/* Returns the folder's path, heap; remove with tiny_data_remove. */
static inline char *tiny_data_create(int sentences, int words)
{
    char *folder = nm_duplicate("/tmp/norma-test-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    char *dictionary = nm_duplicate("");
    for (int w = 0; w < words; w++) {
        char *longer = nm_format("%sw%d %d\n", dictionary, w, 1000 - w);
        free(dictionary);
        dictionary = longer;
    }
    tiny_write_text(folder, "data.ini", "[prepare]\n");
    tiny_write_text(folder, "dict.source.txt", dictionary);
    tiny_write_text(folder, "dict.target.txt", dictionary);
    free(dictionary);
    tiny_write_split(folder, "train", sentences, words, 1);
    tiny_write_split(folder, "valid", sentences / 10 + 1, words, 2);
    tiny_write_split(folder, "test", sentences / 10 + 1, words, 3);
    return folder;
}

static inline void tiny_data_remove(char *folder)
{
    remove_tree(folder);
    free(folder);
}

#endif
