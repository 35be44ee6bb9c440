/* int8 models: which parameters are quantized and how, translations that do not depend on batches and
 * threads, int8 files and damaged int8 files. */
#include "decode_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/model_average.h"
#include "model/tagger_model.h"
#include "task/tasks.h"
#include "train/checkpoint.h"

static const nm_special_tokens special = {.first = EOS, .eos = EOS, .pad = PAD, .unk = UNK};

static double *numbers_of(const nm_model *model, const nm_tensor *tensor, size_t *n)
{
    nm_backend *b = model->backend;
    *n = (size_t)tensor->rows * (size_t)tensor->cols;
    float *narrow = nm_allocate(*n * sizeof *narrow);
    double *wide = nm_allocate(*n * sizeof *wide);
    nm_backend_download(b, narrow, tensor->data, *n * sizeof *narrow);
    for (size_t i = 0; i < *n; i++)
        wide[i] = (double)narrow[i];
    free(narrow);
    return wide;
}

/* Every element of a row is k / 127 of its largest absolute value, k = -127 .. 127. */
static bool on_grid(const double *row, int32_t n)
{
    double most = 0;
    for (int32_t i = 0; i < n; i++)
        most = fmax(most, fabs(row[i]));
    for (int32_t i = 0; i < n; i++)
        if (fabs(row[i] * 127 / most - round(row[i] * 127 / most)) > 1e-9)
            return false;
    return true;
}

static void test_parameters(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("cpu", NM_F32, 1, false);
    tiny made = tiny_create(backend, WORDS, 7, NULL);
    nm_params *params = &made.model->params;
    double **before = nm_allocate(params->n * sizeof *before);
    int changed = 0;
    size_t n;
    for (size_t i = 0; i < params->n; i++)
        before[i] = numbers_of(made.model, &params->list[i]->tensor, &n);
    to_int8(made.model);
    for (size_t i = 0; i < params->n; i++) {
        const nm_tensor *tensor = &params->list[i]->tensor;
        double *after = numbers_of(made.model, tensor, &n);
        bool same = !memcmp(before[i], after, n * sizeof *after);
        assert_int_equal(same, tensor->rows == 1);
        assert_int_equal(nm_backend_has_packed(backend, nm_tensor_mat(tensor)), tensor->rows > 1);
        for (int32_t r = 0; r < tensor->rows && !same; r++)
            assert_true(on_grid(after + (size_t)r * (size_t)tensor->cols, tensor->cols));
        changed += !same;
        free(after);
        free(before[i]);
    }
    assert_true(changed > 12);
    nm_params_from_int8(params);
    assert_false(nm_backend_has_packed(backend, nm_tensor_mat(&params->list[0]->tensor)));
    free(before);
    tiny_release(&made);
    nm_backend_free(backend);
}

/* The transitions of a CRF are not quantized. */
static void test_exact(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F32, 1, false);
    nm_options *options = nm_options_create();
    nm_model *model;
    nm_error err = {0};
    const nm_tagger_model_sizes more = {.chars = 5};
    const nm_model_sizes sizes = {.source = WORDS, .target = 4, .plan = {.warmup_updates = 1}, .more = &more};
    nm_model_options_add(options, &nm_model_tagger);
    nm_norm_options_add(options);
    set(options, "model.preset", "tiny");
    assert_int_equal(nm_model_create(&model, &nm_model_tagger, backend, options, &sizes, false, &err), NM_OK);
    assert_false(nm_param_is_int8(nm_params_find(&model->params, "crf.transitions")));
    assert_true(nm_param_is_int8(nm_params_find(&model->params, "output.weight")));
    nm_model_free(model);
    nm_options_free(options);
    nm_backend_free(backend);
}

enum { SOURCES = 9, LONGEST = 12 };

static void translate(const char *name, int32_t threads, const char *batch_tokens, bool fixnorm,
                      nm_translation *out)
{
    static const char *const plain[] = {"model.norm", "layer", NULL};
    static const char *const fix[] = {"model.norm", "scale", "model.fixnorm", "true", NULL};
    nm_backend *backend = backend_of(name, NM_F32, threads, false);
    tiny made = tiny_create(backend, WORDS, 7, fixnorm ? fix : plain);
    int32_t ids[SOURCES][LONGEST];
    nm_id_list sources[SOURCES];
    for (int32_t s = 0; s < SOURCES; s++) {
        int32_t n = 1 + s * 7 % 11;
        for (int32_t i = 0; i < n; i++)
            ids[s][i] = FIRST_WORD + (s * 5 + i * i) % (WORDS - FIRST_WORD);
        ids[s][n] = EOS;
        sources[s] = (nm_id_list){ids[s], n + 1};
    }
    nm_decoder *decoder;
    nm_error err = {0};
    set(made.options, "decode.batch_tokens", batch_tokens);
    to_int8(made.model);
    if (nm_decoder_create(&decoder, &made.model, 1, nm_options_find(made.options, "decode"), &special,
                          &err) != NM_OK ||
        nm_decode(decoder, sources, SOURCES, out, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_decoder_free(decoder);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void check_same(nm_translation *a, nm_translation *b)
{
    for (int s = 0; s < SOURCES; s++) {
        assert_int_equal(a[s].list[0].n, b[s].list[0].n);
        assert_memory_equal(a[s].list[0].ids, b[s].list[0].ids, (size_t)a[s].list[0].n * sizeof(int32_t));
        assert_true(a[s].list[0].score == b[s].list[0].score);
        nm_translation_release(&b[s]);
    }
}

static void test_translations(void **state)
{
    (void)state;
    static const char *const batches[] = {"1", "17", "4096"};
    for (int fixnorm = 0; fixnorm < 2; fixnorm++) {
        nm_translation first[SOURCES], other[SOURCES];
        translate("cpu", 1, "4096", fixnorm, first);
        for (int i = 0; i < 3; i++) {
            translate("cpu", i + 1, batches[i], fixnorm, other);
            check_same(first, other);
        }
        for (int s = 0; s < SOURCES; s++)
            nm_translation_release(&first[s]);
    }
}

static void write_int8(const nm_model *model, const char *path)
{
    nm_error err = {0};
    nm_safetensors *like = NULL;
    if (nm_safetensors_finish(nm_safetensors_begin(), path, &err) != NM_OK ||
        nm_safetensors_open(&like, path, &err) != NM_OK ||
        nm_checkpoint_rewrite(path, model, &nm_task_translation, NM_WEIGHTS_INT8, like, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_safetensors_close(like);
}

/* Copies the file with one tensor changed: the number of scales, a scale, or its type. */
static void forge(const char *from, const char *to, const char *name, int64_t fewer, float first)
{
    nm_safetensors *file;
    nm_error err = {0};
    float scales[64] = {first};
    assert_int_equal(nm_safetensors_open(&file, from, &err), NM_OK);
    nm_safetensors_writer *writer = nm_safetensors_begin();
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *t = nm_safetensors_at(file, i);
        const int64_t rows = t->shape[0] - fewer;
        if (strcmp(t->name, name))
            nm_safetensors_add(writer, t->name, t->type, t->rank, t->shape, t->data);
        else if (rows > 0)
            nm_safetensors_add(writer, name, NM_TENSOR_F32, 1, &rows, scales);
    }
    assert_int_equal(nm_safetensors_finish(writer, to, &err), NM_OK);
    nm_safetensors_close(file);
}

static void refuses(nm_model *model, const char *path, nm_status want, const char *text)
{
    nm_safetensors *file;
    nm_error err = {0};
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    assert_int_equal(nm_model_file_load(file, model, &err), want);
    if (!strstr(err.text, text) || !strstr(err.text, path))
        fail_msg("'%s' is not in: %s", text, err.text);
    nm_safetensors_close(file);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/norma-int8-XXXXXX", forged[] = "/tmp/norma-int8-XXXXXX";
    int one = mkstemp(path), two = mkstemp(forged);
    nm_backend *backend = backend_of("ref", NM_F32, 1, false);
    tiny made = tiny_create(backend, WORDS, 7, NULL), read = tiny_create(backend, WORDS, 8, NULL);
    nm_safetensors *file;
    nm_error err = {0};
    size_t n;
    assert_true(one >= 0 && two >= 0 && close(one) == 0 && close(two) == 0);
    write_int8(made.model, path);
    to_int8(made.model);
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    assert_int_equal(nm_model_file_load(file, read.model, &err), NM_OK);
    nm_safetensors_close(file);
    for (size_t i = 0; i < made.model->params.n; i++) {
        double *want = numbers_of(made.model, &made.model->params.list[i]->tensor, &n);
        double *got = numbers_of(read.model, &read.model->params.list[i]->tensor, &n);
        assert_memory_equal(got, want, n * sizeof *got);
        free(want);
        free(got);
    }
    const char *const weight = "dec.0.ffn.in.weight";
    char scale[64];
    snprintf(scale, sizeof scale, "%s.scale", weight);
    forge(path, forged, scale, 0, NAN);
    refuses(read.model, forged, NM_FORMAT, "nan in row 0 is not a valid int8 scale");
    forge(path, forged, scale, 0, -1);
    refuses(read.model, forged, NM_FORMAT, "-1 in row 0 is not a valid int8 scale");
    forge(path, forged, scale, 0, INFINITY);
    refuses(read.model, forged, NM_FORMAT, "inf in row 0 is not a valid int8 scale");
    forge(path, forged, scale, 1, 1);
    refuses(read.model, forged, NM_MISMATCH, "dec.0.ffn.in.weight.scale' has 23 numbers");
    forge(path, forged, scale, 1000, 1);
    refuses(read.model, forged, NM_MISMATCH, "has no tensor 'dec.0.ffn.in.weight.scale'");
    forge(path, forged, weight, 0, 1);
    refuses(read.model, forged, NM_MISMATCH, "dec.0.ffn.in.weight' has 24 numbers of type F32");
    const char *const both[] = {path, path};
    assert_int_equal(nm_model_average(both, 2, forged, &err), NM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "int8 model cannot be averaged"));
    /* not finite: no file is written */
    float bad = NAN;
    nm_backend_upload(backend, read.model->params.list[0]->tensor.data, &bad, sizeof bad);
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    assert_int_equal(nm_checkpoint_rewrite("/tmp/norma-int8-none", read.model, &nm_task_translation,
                                           NM_WEIGHTS_INT8, file, &err),
                     NM_DIVERGED);
    assert_int_not_equal(access("/tmp/norma-int8-none", F_OK), 0);
    nm_safetensors_close(file);
    unlink(path);
    unlink(forged);
    tiny_release(&made);
    tiny_release(&read);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters), cmocka_unit_test(test_exact),
                                       cmocka_unit_test(test_translations), cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
