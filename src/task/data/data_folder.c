/* Data folders that were prepared before. */

#include "base/file.h"
#include "base/subprocess.h"
#include "data/prepare_private.h"

nm_status nm_prepare_open_split(nm_corpus *corpus, const char *folder, int split, int sides, int side,
                                int32_t vocab_size, nm_error *err)
{
    NM_AUTO_FREE char *prefix =
        nm_format("%s/%s.%s", folder, nm_prepare_split_names[split], nm_prepare_side_name(sides, side));
    NM_AUTO_FREE char *ids = nm_format("%s.ids", prefix);
    bool found;
    nm_status status = nm_file_find(ids, &found, err);
    if (status == NM_OK && (split == PREPARE_TRAIN || found))
        status = nm_corpus_open(corpus, prefix, vocab_size, err);
    return status;
}

/* The arguments of norma prepare for a folder with this number of sides. */
static const char *format_arguments(int sides)
{
    return sides == 1 ? " --format text" : "";
}

static nm_status no_data_folder(const char *folder, const char *settings, int sides, nm_error *err)
{
    NM_AUTO_FREE char *output = nm_shell_word(folder);
    return nm_fail(err, NM_IO,
                   "%s: No such file: data.folder is not a data folder; norma prepare%s --output "
                   "%s writes one, see norma prepare --help; a folder that has moved is named with "
                   "--data.folder (norma inspect, perplexity: --data)",
                   settings, format_arguments(sides), output);
}

static nm_status check_sides(const char *folder, int sides, nm_error *err)
{
    bool text, parallel;
    NM_TRY(nm_file_find_in(folder, "dict.txt", &text, err));
    NM_TRY(nm_file_find_in(folder, "dict.source.txt", &parallel, err));
    if (sides == 1 && parallel && !text)
        return nm_fail(err, NM_MISMATCH,
                       "%s: the data folder holds parallel text, which is for translation; language models "
                       "need plain text (norma prepare --format text)",
                       folder);
    if (sides == 2 && text && !parallel)
        return nm_fail(err, NM_MISMATCH,
                       "%s: the data folder holds plain text, which is for language models; translation "
                       "needs parallel text (norma prepare --format parallel)",
                       folder);
    return NM_OK;
}

nm_status nm_prepare_check_folder(const char *folder, int sides, nm_error *err)
{
    if (!*folder)
        return nm_fail(err, NM_USAGE, "data.folder is not set: give a folder written by norma prepare%s",
                       format_arguments(sides));
    NM_AUTO_FREE char *settings = nm_path_join(folder, "data.ini");
    bool found;
    NM_TRY(nm_file_find(settings, &found, err));
    if (!found)
        NM_TRY(no_data_folder(folder, settings, sides, err));
    return check_sides(folder, sides, err);
}

nm_status nm_prepare_measure(const char *folder, int sides, int64_t *n_sequences, int64_t *n_tokens,
                             nm_error *err)
{
    nm_corpus corpus = {0};
    NM_TRY(nm_prepare_open_split(&corpus, folder, PREPARE_TRAIN, sides, sides - 1, INT32_MAX, err));
    *n_sequences = corpus.n;
    *n_tokens = (int64_t)corpus.offsets[corpus.n];
    nm_corpus_close(&corpus);
    return NM_OK;
}
