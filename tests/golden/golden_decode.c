/* Golden cases of family "decode": beam search on a model case with one parameter changed. In the source
 * programs the length limit of a sentence depends on its batch, in Norma it does not: every sentence is
 * decoded separately with its limit in the source program. */
#include "golden_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/decode.h"

typedef struct sentence {
    int32_t *ids, n, limit;
    nm_translation out;
} sentence;

typedef struct search {
    golden_model made;
    sentence *sentences;
    size_t n;
    int32_t beam;
} search;

static json_t *load_model_case(golden_case *test)
{
    const char *name = json_string_value(json_object_get(test->root, "model_case"));
    const char *slash = strrchr(test->path, '/');
    int folder = slash ? (int)(slash - test->path) : 1;
    for (int i = 0; name && !strchr(name, '/') && i < 2; i++) {
        char *path =
            nm_format("%.*s/%s%s.json", folder, slash ? test->path : ".", i ? "" : "../model/", name);
        json_error_t cause;
        json_t *root = json_load_file(path, 0, &cause);
        free(path);
        if (root)
            return root;
    }
    golden_skip(test, "the model case '%.60s' was not found in ../model or in the folder of this file",
                name ? name : "");
    return NULL;
}

static golden_result replace_bias(golden_case *test, const golden_model *made)
{
    golden_tensor bias;
    const nm_tensor *ours = nm_seq2seq_of(made->model)->output_bias;
    const json_t *value = json_object_get(test->root, "out_bias_replacement");
    if (!value)
        return GOLDEN_PASSED;
    GOLDEN_TRY(golden_read(test, value, "out_bias_replacement", &bias));
    bool fits = ours && bias.count == (size_t)ours->cols;
    if (fits) {
        void *reals = golden_reals(test, bias.data, bias.count);
        nm_backend_upload(test->backend, ours->data, reals,
                          bias.count * nm_dtype_bytes(test->backend->dtype));
        free(reals);
    }
    golden_release(&bias);
    return fits ? GOLDEN_PASSED : golden_fail(test, "out_bias_replacement fits no bias of the model");
}

/* "embedding_row_N_multiplied_by": factor */
static golden_result scale_rows(golden_case *test, const golden_model *made)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)test->root, name, value)
    {
        int row, end = 0;
        if (sscanf(name, "embedding_row_%d_multiplied_by%n", &row, &end) != 1 || !end || name[end])
            continue;
        const nm_tensor *table = nm_seq2seq_of(made->model)->target_table;
        if (row < 0 || row >= table->rows || !json_is_number(value))
            return golden_fail(test, "%s: no such row, or no number", name);
        size_t offset = (size_t)row * (size_t)table->cols * nm_dtype_bytes(test->backend->dtype);
        nm_mat one = nm_mat_of((char *)table->data + offset, 1, table->cols);
        NM_CALL(test->backend, scale, .alpha = json_number_value(value), .x = one, .y = one);
    }
    return GOLDEN_PASSED;
}

static golden_result set_allowed(golden_case *test, const golden_model *made)
{
    golden_tensor mask;
    nm_error err = {0};
    const json_t *value = json_object_get(test->root, "logit_mask_1_allowed");
    if (!value)
        return GOLDEN_PASSED;
    GOLDEN_TRY(golden_read(test, value, "logit_mask_1_allowed", &mask));
    golden_result result = GOLDEN_PASSED;
    uint8_t *allowed = nm_allocate(mask.count);
    for (size_t i = 0; i < mask.count; i++)
        allowed[i] = mask.data[i] != 0;
    if (mask.count != (size_t)made->model->target_size)
        result = golden_fail(test, "logit_mask_1_allowed has %zu numbers", mask.count);
    else if (nm_model_allow(made->model, allowed, &err) != NM_OK)
        result = golden_fail(test, "%s", err.text);
    free(allowed);
    golden_release(&mask);
    return result;
}

static golden_result read_limits(golden_case *test, search *s, int32_t columns)
{
    int32_t longest = 0;
    if (!s->made.tears) { /* a * padded length + b */
        double limit = golden_number(test, "max_len_a", 0) * columns + golden_number(test, "max_len_b", 200);
        for (size_t i = 0; i < s->n; i++)
            s->sentences[i].limit = (int32_t)limit;
        return GOLDEN_PASSED;
    }
    int more;
    if (sscanf(golden_text(test, "max_len", ""), "source length + %d", &more) != 1)
        return golden_skip(test, "max_len '%.60s' is not understood", golden_text(test, "max_len", ""));
    for (size_t i = 0; i < s->n; i++)
        longest = s->sentences[i].n > longest ? s->sentences[i].n : longest;
    for (size_t i = 0; i < s->n; i++) /* one token more, unless the batch ended */
        s->sentences[i].limit = (s->sentences[i].n < longest ? s->sentences[i].n + 1 : longest) + more;
    return GOLDEN_PASSED;
}

static golden_result read_sources(golden_case *test, search *s)
{
    golden_tensor src;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "src"), "src", &src));
    if (src.rank != 2) {
        golden_release(&src);
        return golden_fail(test, "src is no matrix");
    }
    s->n = (size_t)src.shape[0];
    s->sentences = nm_allocate(s->n * sizeof *s->sentences);
    golden_result result = GOLDEN_PASSED;
    for (size_t i = 0; i < s->n; i++) {
        sentence *one = &s->sentences[i];
        one->ids = nm_allocate((size_t)src.shape[1] * sizeof(int32_t));
        for (size_t c = 0; c < (size_t)src.shape[1]; c++) {
            double id = src.data[i * (size_t)src.shape[1] + c];
            if (id < 0 || id >= s->made.model->source_size)
                result = golden_fail(test, "src: word %g is out of range", id);
            else if ((int32_t)id != s->made.pad)
                one->ids[one->n++] = (int32_t)id;
        }
    }
    if (result == GOLDEN_PASSED)
        result = read_limits(test, s, (int32_t)src.shape[1]);
    golden_release(&src);
    return result;
}

static nm_decode_options options_of(const golden_case *test, const search *s, int32_t limit)
{
    return (nm_decode_options){.search = s->made.tears ? NM_SEARCH_TEARS : NM_SEARCH_FAIRSEQ,
                               .length_penalty = s->made.tears ? NM_PENALTY_GNMT : NM_PENALTY_POWER,
                               .alpha = golden_number(test, s->made.tears ? "alpha" : "lenpen", 1),
                               .beam = s->beam,
                               .nbest = s->beam,
                               .max_length_b = limit,
                               .min_length = 1,
                               .repetition_penalty = 1,
                               .batch_tokens = 4096,
                               .unknown = true};
}

static golden_result decode_one(golden_case *test, search *s, sentence *one)
{
    nm_error err = {0};
    nm_decoder *decoder;
    nm_decode_options options = options_of(test, s, one->limit);
    nm_special_tokens words = {.first = s->made.tears ? s->made.bos : s->made.eos,
                               .eos = s->made.eos,
                               .pad = s->made.pad,
                               .unk = -1};
    nm_id_list source = {one->ids, one->n};
    if (nm_decoder_create(&decoder, &s->made.model, 1, &options, &words, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_status status = nm_decode(decoder, &source, 1, &one->out, &err);
    nm_decoder_free(decoder);
    return status == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}

static golden_result close_to(golden_case *test, const char *what, double got, double want)
{
    if (!(fabs(got - want) <= test->value_tolerance * (1 + fabs(want))))
        return golden_fail(test, "%s: got %.12g, expected %.12g", what, got, want);
    return GOLDEN_PASSED;
}

static golden_result compare_hypothesis(golden_case *test, const char *what, const nm_hypothesis *h,
                                        const json_t *want)
{
    const json_t *tokens = json_object_get(want, "tokens"),
                 *scores = json_object_get(want, "positional_scores");
    char label[96];
    if (json_array_size(tokens) != (size_t)h->n || json_array_size(scores) != (size_t)h->n)
        return golden_fail(test, "%s: got %d words, expected %zu", what, h->n, json_array_size(tokens));
    for (int32_t i = 0; i < h->n; i++) {
        long long id = json_integer_value(json_array_get(tokens, (size_t)i));
        snprintf(label, sizeof label, "%s: score of word %d", what, i);
        if (id != h->ids[i])
            return golden_fail(test, "%s: word %d is %d, expected %lld", what, i, h->ids[i], id);
        GOLDEN_TRY(
            close_to(test, label, h->token_scores[i], json_number_value(json_array_get(scores, (size_t)i))));
    }
    return close_to(test, what, h->score, json_number_value(json_object_get(want, "score")));
}

static golden_result compare_fairseq(golden_case *test, const search *s)
{
    const json_t *all = json_object_get(test->root, "hypotheses_best_first");
    if (json_array_size(all) != s->n)
        return golden_fail(test, "hypotheses_best_first: not one list per sentence");
    for (size_t i = 0; i < s->n; i++) {
        const json_t *list = json_array_get(all, i);
        if (json_array_size(list) != (size_t)s->sentences[i].out.n)
            return golden_fail(test, "sentence %zu: got %d hypotheses, expected %zu", i,
                               s->sentences[i].out.n, json_array_size(list));
        for (size_t k = 0; k < json_array_size(list); k++) {
            char what[64];
            snprintf(what, sizeof what, "sentence %zu, hypothesis %zu", i, k);
            GOLDEN_TRY(compare_hypothesis(test, what, &s->sentences[i].out.list[k], json_array_get(list, k)));
        }
    }
    return GOLDEN_PASSED;
}

/* Rows of symbols are padded with eos. */
static golden_result compare_entry(golden_case *test, const char *what, const nm_hypothesis *h,
                                   const double *symbols, size_t columns, int32_t eos)
{
    if ((size_t)h->n > columns)
        return golden_fail(test, "%s: got %d words, expected %zu at most", what, h->n, columns);
    for (size_t c = 0; c < columns; c++) {
        int32_t id = c < (size_t)h->n ? h->ids[c] : eos;
        if (id != (int32_t)symbols[c])
            return golden_fail(test, "%s: word %zu is %d, expected %g", what, c, id, symbols[c]);
    }
    return GOLDEN_PASSED;
}

static golden_result compare_beam(golden_case *test, const search *s, size_t i, const golden_tensor *symbols,
                                  const golden_tensor *sums, const golden_tensor *scores)
{
    const nm_translation *out = &s->sentences[i].out;
    size_t n = (size_t)out->n, columns = symbols->rank == 2 ? (size_t)symbols->shape[1] : 0;
    if (symbols->rank != 2 || n != (size_t)symbols->shape[0] || sums->count != n || scores->count != n)
        return golden_fail(test, "sentence %zu: got %zu entries, the case has another number", i, n);
    for (size_t k = 0; k < n; k++) {
        char what[64];
        double sum = 0;
        snprintf(what, sizeof what, "sentence %zu, entry %zu", i, k);
        GOLDEN_TRY(
            compare_entry(test, what, &out->list[k], symbols->data + k * columns, columns, s->made.eos));
        for (int32_t t = 0; t < out->list[k].n; t++)
            sum += out->list[k].token_scores[t];
        GOLDEN_TRY(close_to(test, what, sum, sums->data[k]));
        GOLDEN_TRY(close_to(test, what, out->list[k].score, scores->data[k]));
    }
    return GOLDEN_PASSED;
}

static golden_result compare_tears(golden_case *test, const search *s)
{
    static const char *const keys[] = {"symbols", "log_probabilities", "scores"};
    const json_t *all = json_object_get(test->root, "sentences");
    golden_result result = GOLDEN_PASSED;
    if (json_array_size(all) != s->n)
        return golden_fail(test, "sentences: not one per source");
    for (size_t i = 0; i < s->n && result == GOLDEN_PASSED; i++) {
        golden_tensor read[3] = {0};
        for (int k = 0; k < 3 && result == GOLDEN_PASSED; k++)
            result = golden_read(test, json_object_get(json_array_get(all, i), keys[k]), keys[k], &read[k]);
        if (result == GOLDEN_PASSED)
            result = compare_beam(test, s, i, &read[0], &read[1], &read[2]);
        for (int k = 0; k < 3; k++)
            golden_release(&read[k]);
    }
    return result;
}

static golden_result run_search(golden_case *test, search *s, const json_t *model_root)
{
    GOLDEN_TRY(golden_model_build(test, model_root, &s->made));
    GOLDEN_TRY(replace_bias(test, &s->made));
    GOLDEN_TRY(scale_rows(test, &s->made));
    GOLDEN_TRY(set_allowed(test, &s->made));
    GOLDEN_TRY(read_sources(test, s));
    s->beam = (int32_t)golden_number(test, "beam", 0);
    if (s->beam < 1 || s->beam > 1000)
        return golden_fail(test, "config.beam is missing or out of range");
    for (size_t i = 0; i < s->n; i++)
        GOLDEN_TRY(decode_one(test, s, &s->sentences[i]));
    return s->made.tears ? compare_tears(test, s) : compare_fairseq(test, s);
}

static golden_result run(golden_case *test)
{
    if (strcmp(test->method, "beam_search"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    json_t *model_root = load_model_case(test);
    if (!model_root)
        return GOLDEN_SKIPPED;
    search s = {0};
    golden_result result = run_search(test, &s, model_root);
    for (size_t i = 0; i < s.n; i++) {
        free(s.sentences[i].ids);
        nm_translation_release(&s.sentences[i].out);
    }
    free(s.sentences);
    golden_model_release(&s.made);
    json_decref(model_root);
    return result;
}

const golden_family golden_decode = {.name = "decode", .run = run, .computes = true};
