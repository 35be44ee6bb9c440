#include "task/prepared_texts.h"

#include "base/file.h"
#include "data/checksums.h"
#include "train/checkpoint.h"

static const char *const sides[] = {"source", "target"};

/* "dict.source.txt"; "dict.txt" of plain text; heap */
static char *text_name(const nm_prepared_texts *self, const char *kind, int side)
{
    return self->plain ? nm_format("%s.txt", kind) : nm_format("%s.%s.txt", kind, sides[side]);
}

static char *spm_name(const nm_prepared_texts *self, int side)
{
    return self->plain ? nm_duplicate("sentencepiece.model")
                       : nm_format("sentencepiece.%s.model", sides[side]);
}

/* A data folder, or a model file if file is not NULL. */
typedef struct source {
    const char *folder;
    const nm_safetensors *file;
} source;

static nm_status read_text(const source *from, const char *name, char **text, nm_error *err)
{
    if (from->file) {
        *text = nm_duplicate(nm_safetensors_metadata(from->file, name));
        return NM_OK;
    }
    NM_AUTO_FREE char *path = nm_path_join(from->folder, name);
    return nm_model_text_read_optional(path, text, err);
}

static nm_status read_side(nm_prepared_texts *self, const source *from, int side, nm_error *err)
{
    NM_AUTO_FREE char *dictionary = text_name(self, "dict", side), *subwords = text_name(self, "units", side),
                      *spm = spm_name(self, side),
                      *path = from->file ? NULL : nm_path_join(from->folder, spm);
    NM_TRY(read_text(from, dictionary, &self->dictionaries[side], err));
    NM_TRY(read_text(from, subwords, &self->subwords[side], err));
    return from->file ? nm_model_spm_load(&self->spm[side], spm, from->file, err)
                      : nm_model_spm_read_optional(&self->spm[side], path, err);
}

static nm_status read_all(nm_prepared_texts *self, const source *from, nm_error *err)
{
    NM_TRY(read_text(from, "data.ini", &self->settings, err));
    NM_TRY(read_text(from, "codes.bpe", &self->codes, err));
    NM_TRY(read_side(self, from, 0, err));
    if (self->dictionaries[0])
        return read_side(self, from, 1, err);
    self->plain = true;
    return read_side(self, from, 0, err);
}

static nm_status read_model(nm_prepared_texts *self, const char *path, nm_error *err)
{
    NM_AUTO_FREE char *file_path = nm_model_path(path);
    nm_safetensors *file;
    NM_TRY(nm_safetensors_open(&file, file_path, err));
    nm_status status = read_all(self, &(source){.file = file}, err);
    nm_safetensors_close(file);
    return status;
}

nm_status nm_prepared_texts_read(nm_prepared_texts *texts, const char *path, nm_error *err)
{
    bool folder;
    *texts = (nm_prepared_texts){0};
    NM_TRY(nm_file_find_in(path, "data.ini", &folder, err));
    if (!folder) {
        NM_TRY(read_model(texts, path, err));
    } else {
        NM_TRY(read_all(texts, &(source){.folder = path}, err));
        NM_TRY(nm_checksums_verify(path, err));
    }
    return texts->settings
               ? NM_OK
               : nm_fail(err, NM_FORMAT,
                         "%s: has no data.ini: not a data folder of norma prepare or a model with one", path);
}

void nm_prepared_texts_release(nm_prepared_texts *texts)
{
    NM_FREE(texts->settings, texts->codes);
    for (int side = 0; side < 2; side++) {
        NM_FREE(texts->dictionaries[side], texts->subwords[side]);
        nm_model_spm_release(&texts->spm[side]);
    }
    *texts = (nm_prepared_texts){0};
}
