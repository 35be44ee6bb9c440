#include "convert/text_files.h"

#include <string.h>

#include "base/file.h"
#include "model/decode.h"
#include "task/lm_task.h"
#include "task/translation.h"

typedef struct text_file {
    const char *name;
    int text; /* index in the texts of the task */
} text_file;

/* The texts and SentencePiece models of a task, with the names of their files. */
typedef struct text_files {
    const text_file *rows; /* name NULL at the end */
    char **texts;
    const char *const *spm_names; /* [n_spms] */
    nm_model_spm *spms;
    int n_spms;
} text_files;

static text_files files_of(const nm_task *task)
{
    static const text_file of_translation[] = {{"data.ini", NM_TEXT_SETTINGS},
                                               {"codes.bpe", NM_TEXT_CODES},
                                               {"units.source.txt", NM_TEXT_SUBWORDS},
                                               {"units.target.txt", NM_TEXT_TARGET_SUBWORDS},
                                               {NULL, 0}},
                           of_lm[] = {{"data.ini", NM_LM_SETTINGS},
                                      {"codes.bpe", NM_LM_CODES},
                                      {"units.txt", NM_LM_SUBWORDS},
                                      {NULL, 0}};
    static const char *const sides[] = {"source.spm", "target.spm"}, *const one[] = {"sentencepiece.spm"};
    if (task->type == &nm_task_translation) {
        nm_translation_parts *parts = task->parts;
        return (text_files){of_translation, parts->texts, sides, parts->spm, 2};
    }
    nm_lm_parts *parts = task->parts;
    return (text_files){of_lm, parts->texts, one, &parts->spm, 1};
}

static nm_status write_file(const char *folder, const char *name, const void *data, size_t bytes,
                            nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, name);
    return nm_file_write(path, data, bytes, err);
}

static nm_status write_search_options(const nm_options *options, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes;
    FILE *out = nm_text_stream_open(&text, &bytes);
    NM_AUTO(nm_options_release) nm_options *search = nm_options_create();
    nm_decode_options_add(search);
    nm_options_write_like(options, search, out);
    nm_text_stream_close(out);
    return write_file(folder, "decode.ini", text, bytes, err);
}

static nm_status read_search_options(nm_options *options, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "decode.ini"), *text = NULL;
    NM_TRY(nm_model_text_read_optional(path, &text, err));
    return text ? nm_options_read_saved(options, path, text, err) : NM_OK;
}

nm_status nm_text_files_write(const nm_task *task, const char *folder, nm_error *err)
{
    if (task->type == &nm_task_translation)
        NM_TRY(write_search_options(task->options, folder, err));
    const text_files files = files_of(task);
    for (const text_file *row = files.rows; row->name; row++) {
        const char *text = files.texts[row->text];
        if (text)
            NM_TRY(write_file(folder, row->name, text, strlen(text), err));
    }
    for (int i = 0; i < files.n_spms; i++)
        if (files.spms[i].bytes)
            NM_TRY(write_file(folder, files.spm_names[i], files.spms[i].bytes, files.spms[i].n_bytes, err));
    return NM_OK;
}

nm_status nm_text_files_read(nm_task *task, nm_options *options, const char *folder, nm_error *err)
{
    if (task->type == &nm_task_translation)
        NM_TRY(read_search_options(options, folder, err));
    const text_files files = files_of(task);
    nm_status status = NM_OK;
    for (const text_file *row = files.rows; row->name && status == NM_OK; row++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, row->name);
        status = nm_model_text_read_optional(path, &files.texts[row->text], err);
    }
    for (int i = 0; i < files.n_spms && status == NM_OK; i++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, files.spm_names[i]);
        status = nm_model_spm_read_optional(&files.spms[i], path, err);
    }
    return status;
}
