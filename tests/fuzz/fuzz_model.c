/* Model files through the C interface: an opened model computes results for a text, or fails with a message
 * of one line. */
#include <math.h>
#include <string.h>

#include "base/safetensors.h"
#include "fuzz.h"
#include "norma/classifier.h"
#include "norma/language_model.h"
#include "norma/tagger.h"
#include "norma/translator.h"
#include "text/utf8.h"

static const char *const words[] = {"w1", "the", "film", "w3", "Anna", "in", "Rom"};
static const char *const lines[] = {"w1 w2 w3 w4", "the film was fine", ""};
enum { N_WORDS = 7, N_LINES = 3 };

static void check_text(const char *text)
{
    NM_ASSERT(text && nm_utf8_find_invalid(text, strlen(text)) == strlen(text));
}

static void translate(const char *path)
{
    static const char *const options[] = {"device.threads", "1", "beam", "2", "max_length", "8", NULL};
    nm_translator *translator;
    nm_translations *results;
    nm_error err;
    nm_status status = nm_translator_open(&translator, path, options, &err);
    if (status == NM_OK) {
        status = nm_translator_run(translator, lines, N_LINES, &results, &err);
        if (status == NM_OK) {
            for (size_t i = 0; i < nm_translations_n(results); i++)
                for (size_t k = 0; k < nm_translations_count(results, i); k++) {
                    check_text(nm_translations_text(results, i, k));
                    NM_ASSERT(isfinite(nm_translations_score(results, i, k)));
                }
            nm_translations_free(results);
        }
        nm_translator_close(translator);
    }
    if (status != NM_OK)
        fuzz_check_error(status, &err);
}

static void classify(const char *path)
{
    static const char *const options[] = {"device.threads", "1", NULL};
    nm_classifier *classifier;
    nm_classifications *results;
    nm_error err;
    nm_status status = nm_classifier_open(&classifier, path, options, &err);
    if (status == NM_OK) {
        status = nm_classifier_run(classifier, lines, N_LINES, &results, &err);
        if (status == NM_OK) {
            for (size_t i = 0; i < nm_classifications_n(results); i++) {
                const double *p = nm_classifications_probabilities(results, i);
                double sum = 0;
                for (size_t k = 0; k < nm_classifier_n_classes(classifier); k++)
                    sum += p[k];
                NM_ASSERT(fabs(sum - 1) < 1e-4);
                check_text(nm_classifications_label(results, i));
            }
            nm_classifications_free(results);
        }
        nm_classifier_close(classifier);
    }
    if (status != NM_OK)
        fuzz_check_error(status, &err);
}

static void tag(const char *path)
{
    static const char *const options[] = {"device.threads", "1", NULL};
    static const size_t lengths[] = {4, 3};
    nm_tagger *tagger;
    nm_tagged *results;
    nm_error err;
    nm_status status = nm_tagger_open(&tagger, path, options, &err);
    if (status == NM_OK) {
        status = nm_tagger_run(tagger, words, lengths, 2, &results, &err);
        if (status == NM_OK) {
            for (size_t i = 0; i < 2; i++)
                for (size_t k = 0; k < lengths[i]; k++)
                    check_text(nm_tagged_tag(results, i, k));
            nm_tagged_free(results);
        }
        nm_tagger_close(tagger);
    }
    if (status != NM_OK)
        fuzz_check_error(status, &err);
}

static void language(const char *path)
{
    static const char *const options[] = {"device.threads", "1", "tokens", "6", NULL};
    nm_language_model *model;
    nm_lm_scores *scores;
    nm_lm_texts *texts;
    nm_error err;
    nm_status status = nm_language_model_open(&model, path, options, &err);
    if (status == NM_OK) {
        status = nm_language_model_score(model, lines, N_LINES, NM_LM_LINES, &scores, &err);
        if (status == NM_OK) {
            for (size_t i = 0; i < N_LINES; i++)
                NM_ASSERT(nm_lm_scores_line(scores, i) <= 0);
            nm_lm_scores_free(scores);
            status = nm_language_model_generate(model, lines, 1, 0, &texts, &err);
        }
        if (status == NM_OK) {
            check_text(nm_lm_texts_get(texts, 0));
            nm_lm_texts_free(texts);
        }
        nm_language_model_close(model);
    }
    if (status != NM_OK)
        fuzz_check_error(status, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file(0, "safetensors", data, bytes);
    nm_safetensors *file;
    nm_error err;
    nm_status status = nm_safetensors_open(&file, path, &err);
    if (status != NM_OK) {
        fuzz_check_error(status, &err);
        return 0;
    }
    const char *task = nm_safetensors_metadata(file, "task");
    void (*run)(const char *path) = task && !strcmp(task, "lm")               ? language
                                    : task && !strcmp(task, "tagging")        ? tag
                                    : task && !strcmp(task, "classification") ? classify
                                                                              : translate;
    nm_safetensors_close(file);
    run(path);
    return 0;
}
