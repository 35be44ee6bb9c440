/* Configuration files: accepted options are written and read back unchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "task/tasks.h"
#include "train/train_options.h"

static nm_options *create(void)
{
    nm_options *options = nm_options_create();
    nm_train_options_add(options, &nm_task_translation);
    return options;
}

static char *written(const nm_options *options)
{
    char *text;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    NM_ASSERT(stream);
    for (const char *const *path =
             (const char *const[]){"data.folder", "model.norm", "model.width", "train.seconds",
                                   "model.preset", "optim.eps", "model.dropout", NULL};
         *path; path++) {
        char *value = nm_options_get(options, *path);
        fprintf(stream, "%s=%s\n", *path, value);
        free(value);
    }
    fclose(stream);
    return text;
}

static void read_back(const nm_options *options)
{
    char *text;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    NM_ASSERT(stream);
    nm_options_write(options, stream);
    fclose(stream);
    nm_options *again = create();
    nm_error err;
    NM_ASSERT(nm_options_read_text(again, "again", text, &err) == NM_OK);
    char *first = written(options), *second = written(again);
    NM_ASSERT(!strcmp(first, second));
    free(first);
    free(second);
    free(text);
    nm_options_free(again);
}

/* The same text as a recipe: a file with a profile, whose rules are checked. */
static void check_recipe(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file(0, "ini", data, bytes);
    nm_options *options = create();
    nm_error err;
    char *warning = NULL, *task = NULL;
    nm_status status = nm_options_peek(path, "run.task", &task, &err);
    if (status == NM_OK)
        status = nm_options_read_profile(options, path, bytes % 2 ? "small" : "", &err);
    if (status == NM_OK)
        status = nm_options_check(options, &warning, &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    free(warning);
    free(task);
    nm_options_free(options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = calloc(1, bytes + 1); /* data has no end mark */
    NM_ASSERT(text);
    if (bytes)
        memcpy(text, data, bytes);
    nm_options *options = create();
    nm_error err;
    if (nm_options_read_text(options, "input", text, &err) == NM_OK)
        read_back(options);
    else
        NM_ASSERT(!strchr(err.text, '\n'));
    nm_options_free(options);
    check_recipe(data, bytes);
    free(text);
    return 0;
}
