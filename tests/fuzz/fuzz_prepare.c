/* Text to a data folder: three bytes of options, then training and validation text of both sides, separated
 * by NUL bytes. A prepared folder can be opened, with ids of the dictionary and as many sequences as lines
 * were kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/prepare.h"
#include "fuzz.h"
#include "text/vocab.h"

enum { N_PARTS = 4 };

static void set(nm_options *options, const char *name, const char *value)
{
    nm_error err;
    char *path = nm_format("prepare.%s", name);
    NM_ASSERT(nm_options_set(options, path, value, NM_ORIGIN_COMMAND, &err) == NM_OK);
    free(path);
}

static void check_split(const char *folder, int split, int sides, const nm_prepare_report *report)
{
    for (int side = 0; side < sides; side++) {
        nm_corpus corpus = {0};
        nm_error err;
        int32_t size = (int32_t)report->dict_size[side];
        NM_ASSERT(nm_prepare_open_split(&corpus, folder, split, sides, side, size, &err) == NM_OK);
        NM_ASSERT(corpus.n == report->splits[split].kept);
        for (int64_t i = 0; i < corpus.n; i++)
            NM_ASSERT(nm_corpus_length(&corpus, i) >= 1); /* the EOS token */
        nm_corpus_close(&corpus);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[N_PARTS] = {"train.a", "train.b", "valid.a", "valid.b"},
                             *const invalid[] = {"error", "skip"}, *const units[] = {"separated", "file"},
                             *const rules[] = {"gpt2", "llama3", "qwen2", "smollm"};
    uint32_t form = fuzz_choice(&data, &bytes, 256), filter = fuzz_choice(&data, &bytes, 256),
             merges = fuzz_choice(&data, &bytes, 40);
    const char *folder = fuzz_folder();
    char *paths[N_PARTS], *output = nm_path_join(folder, "data"), *train = nm_path_join(folder, "train"),
                          *valid = nm_path_join(folder, "valid");
    nm_error err;
    for (int i = 0; i < N_PARTS; i++) {
        char *part = fuzz_part(&data, &bytes);
        paths[i] = nm_path_join(folder, names[i]);
        NM_ASSERT(nm_file_write(paths[i], part, strlen(part), &err) == NM_OK);
        free(part);
    }
    bool plain = form & 1;
    nm_options *options = nm_options_create();
    nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    set(options, "threads", "1");
    set(options, "format", plain ? "text" : "parallel");
    set(options, "train", plain ? paths[0] : train);
    if (form & 2)
        set(options, "valid", plain ? paths[2] : valid);
    if (!plain) {
        set(options, "source_lang", "a");
        set(options, "target_lang", "b");
    }
    set(options, "output", output);
    bool documents = plain && form & 64;
    set(options, "tokenizer",
        documents  ? "byte_level"
        : form & 4 ? "moses"
        : form & 8 ? "basic_english"
                   : "none");
    if (documents) {
        set(options, "documents", units[filter >> 4 & 1]);
        set(options, "pretokenizer", rules[filter >> 5 & 3]);
    }
    if (documents && !(filter & 16) && filter & 128)
        set(options, "document_separator", "ab");
    set(options, "lowercase", form & 16 ? "true" : "false");
    char text[16];
    snprintf(text, sizeof text, "%u", form & 32 ? (unsigned)merges : 0);
    set(options, "bpe_merges", text);
    if (!plain)
        set(options, "joint", form & 64 ? "true" : "false");
    set(options, "special_ids", form & 128 ? "tears" : "fairseq");
    set(options, "on_invalid", invalid[filter & 1]);
    set(options, "drop_duplicates", filter & 32 ? "true" : "false");
    if (!plain)
        set(options, "drop_copies", filter & 64 ? "true" : "false");
    set(options, "max_length", filter & 2 ? "4" : "0");
    set(options, "min_count", filter & 4 ? "2" : "0");
    set(options, "max_words", filter & 8 ? "3" : "0");
    nm_prepare_report report = {0};
    nm_status status = nm_prepare_run(options, NULL, &(nm_prepare_events){0}, &report, &err);
    if (status == NM_OK) {
        check_split(output, 0, report.sides, &report);
        if (form & 2)
            check_split(output, 1, report.sides, &report);
    } else {
        fuzz_check_error(status, &err);
    }
    nm_prepare_report_release(&report);
    nm_options_free(options);
    fuzz_remove_folder(output);
    for (int i = 0; i < N_PARTS; i++)
        free(paths[i]);
    free(output);
    free(train);
    free(valid);
    return 0;
}
