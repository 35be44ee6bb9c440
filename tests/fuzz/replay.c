/* Runs a fuzz target on stored inputs, files and folders, without libFuzzer. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fuzz.h"

static int n_inputs;

static void run_file(const char *path)
{
    char *text;
    size_t bytes;
    nm_error err;
    if (nm_file_read(path, &text, &bytes, &err) != NM_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    uint8_t *exact = nm_allocate(bytes); /* without NUL: a sanitizer reports reads past the end */
    memcpy(exact, text, bytes);
    free(text);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
    n_inputs++;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir)
            run_file(argv[i]);
        for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
            if (entry->d_name[0] != '.') {
                char *path = nm_path_join(argv[i], entry->d_name);
                run_file(path);
                free(path);
            }
        if (dir)
            closedir(dir);
    }
    printf("%d inputs\n", n_inputs);
    return n_inputs ? 0 : 1;
}
