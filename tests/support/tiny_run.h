/* Small translation runs on the corpus of tiny_data.h: setup and teardown of a test group, options, logs.
 * Include after cmocka.h. */
#ifndef NM_TINY_RUN_H
#define NM_TINY_RUN_H

#include "base/file.h"
#include "probe/probe.h"
#include "support/tiny_data.h"
#include "task/tasks.h"
#include "train/trainer.h"

/* Folder of the corpus; setup and teardown of the test group. */
static char *data;

static inline int make_data(void **state)
{
    (void)state;
    data = tiny_data_create(200, 10);
    return 0;
}

static inline int drop_data(void **state)
{
    (void)state;
    tiny_data_remove(data);
    return 0;
}

static inline void tiny_set(nm_options *options, const char *path, const char *value)
{
    nm_error err;
    if (nm_options_set(options, path, value, NM_ORIGIN_COMMAND, &err) != NM_OK)
        fail_msg("%s", err.text);
}

/* settings: pairs of "section.key", value; NULL at the end. Free with nm_options_free. */
static inline nm_options *tiny_options(const char *const *settings)
{
    static const char *const common[] = {"model.preset",
                                         "tiny",
                                         "model.width",
                                         "16",
                                         "model.ff",
                                         "32",
                                         "model.heads",
                                         "2",
                                         "model.dropout",
                                         "0.1",
                                         "train.max_tokens",
                                         "120",
                                         "train.log_every",
                                         "5",
                                         "schedule.warmup",
                                         "4",
                                         "schedule.lr",
                                         "0.003",
                                         "train.validate_every",
                                         "8",
                                         "train.score",
                                         "0",
                                         "model.max_positions",
                                         "32",
                                         "data.max_length",
                                         "20",
                                         "device.threads",
                                         "1",
                                         "device.memory_mib",
                                         "512",
                                         "norm.prms.fraction", /* by default, one of 16 features */
                                         "0.5",
                                         NULL};
    nm_options *options = nm_options_create();
    nm_train_options_add(options, &nm_task_translation);
    nm_probe_options_add(options);
    tiny_set(options, "data.folder", data);
    nm_error err;
    for (int i = 0; common[i]; i += 2) /* as from a recipe: options without effect are accepted */
        assert_int_equal(nm_options_set(options, common[i], common[i + 1], NM_ORIGIN_FILE, &err), NM_OK);
    for (int i = 0; settings && settings[i]; i += 2)
        tiny_set(options, settings[i], settings[i + 1]);
    return options;
}

/* The log of a run without times, memory and host; heap. */
static inline char *tiny_log(const char *folder)
{
    static const char *const measured[] = {"\"tokens_per_second\"", "\"seconds\"", "\"step_mib\"",
                                           "\"host\""};
    char *path = nm_format("%s/log.jsonl", folder), *text, *out = nm_duplicate("");
    nm_error err;
    assert_int_equal(nm_file_read(path, &text, NULL, &err), NM_OK);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
            char *cut = strstr(line, measured[i]);
            if (cut)
                *cut = 0;
        }
        char *longer = nm_format("%s%s\n", out, line);
        free(out);
        out = longer;
    }
    free(text);
    free(path);
    return out;
}

static inline char *tiny_folder(void)
{
    char *folder = nm_duplicate("/tmp/norma-run-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    return folder;
}

#endif
