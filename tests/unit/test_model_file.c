/* Model files for inference: parameters that stay in the mapped file, and matrices in bf16. */
#include "decode_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bf16.h"
#include "train/model_average.h"
#include "task/tasks.h"
#include "train/checkpoint.h"

/* An exported model keeps the texts of the task that are stored as bytes, in every format; parameters of the
 * old file are not copied. */
static void test_bytes_are_kept(void **state)
{
    (void)state;
    static const nm_weight_format formats[] = {NM_WEIGHTS_FLOAT, NM_WEIGHTS_INT8, NM_WEIGHTS_BF16};
    char path[] = "/tmp/norma-bytes-XXXXXX", old[] = "/tmp/norma-bytes-XXXXXX";
    const uint8_t allowed[] = {1, 0, 1, 1, 0};
    const float value = 2;
    const int64_t n = sizeof allowed, one = 1;
    nm_error err = {0};
    int first = mkstemp(path), second = mkstemp(old);
    assert_true(first >= 0 && second >= 0 && close(first) == 0 && close(second) == 0);
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add(writer, "target.allowed", NM_TENSOR_U8, 1, &n, allowed);
    nm_safetensors_add(writer, "removed", NM_TENSOR_F32, 1, &one, &value);
    assert_int_equal(nm_safetensors_finish(writer, old, &err), NM_OK);
    nm_safetensors *like, *made;
    nm_backend *backend = backend_of("cpu", NM_F32, 1, false);
    tiny model = tiny_create(backend, WORDS, 7, NULL);
    assert_int_equal(nm_safetensors_open_metadata(&like, old, &err), NM_OK);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        assert_int_equal(
            nm_checkpoint_rewrite(path, model.model, &nm_task_translation, formats[f], like, &err), NM_OK);
        assert_int_equal(nm_safetensors_open(&made, path, &err), NM_OK);
        const nm_safetensor *kept = nm_safetensors_find(made, "target.allowed");
        assert_non_null(kept);
        assert_int_equal(kept->bytes, sizeof allowed);
        assert_memory_equal(kept->data, allowed, sizeof allowed);
        assert_null(nm_safetensors_find(made, "removed"));
        nm_safetensors_close(made);
    }
    nm_safetensors_close(like);
    tiny_release(&model);
    nm_backend_free(backend);
    unlink(path);
    unlink(old);
}

static void write_model(const nm_model *model, nm_weight_format format, const char *path)
{
    nm_error err = {0};
    nm_safetensors *like = NULL;
    if (nm_safetensors_finish(nm_safetensors_begin(), path, &err) != NM_OK ||
        nm_safetensors_open(&like, path, &err) != NM_OK ||
        nm_checkpoint_rewrite(path, model, &nm_task_translation, format, like, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_safetensors_close(like);
}

static nm_safetensors *open_file(const char *path)
{
    nm_error err = {0};
    nm_safetensors *file;
    if (nm_safetensors_open(&file, path, &err) != NM_OK)
        fail_msg("%s", err.text);
    return file;
}

static size_t elements(const nm_tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->cols;
}

static void test_mapped(void **state)
{
    (void)state;
    char path[] = "/tmp/norma-map-XXXXXX";
    nm_error err = {0};
    nm_backend *backend = backend_of("cpu", NM_F32, 2, false);
    tiny made = tiny_create(backend, WORDS, 7, NULL), read = tiny_create(backend, WORDS, 8, NULL);
    int opened = mkstemp(path);
    assert_true(opened >= 0 && close(opened) == 0);
    for (size_t i = 0; i < made.model->params.n_norms; i++)
        *(float *)made.model->params.norms[i]->params[0] = 1.5F + (float)i;
    write_model(made.model, NM_WEIGHTS_FLOAT, path);
    nm_safetensors *file = open_file(path);
    const nm_params *want = &made.model->params, *got = &read.model->params;
    assert_int_equal(nm_model_file_map(file, read.model, &err), NM_OK);
    for (size_t i = 0; i < got->n; i++) {
        const nm_tensor *tensor = &got->list[i]->tensor;
        assert_ptr_equal(tensor->data, nm_safetensors_find(file, tensor->name)->data);
        assert_memory_equal(tensor->data, want->list[i]->tensor.data, elements(tensor) * sizeof(float));
    }
    assert_true(got->n_norms > 0);
    for (size_t i = 0; i < got->n_norms; i++)
        for (int p = 0; p < got->norms[i]->shape.n_params; p++)
            assert_memory_equal(got->norms[i]->params[p], want->norms[i]->params[p],
                                (size_t)got->norms[i]->shape.params[p].length * sizeof(float));
    /* written parameters change in memory only; they may be loaded again */
    memset(got->list[0]->tensor.data, 0, elements(&got->list[0]->tensor) * sizeof(float));
    nm_safetensors *again = open_file(path);
    assert_int_equal(nm_model_file_load(again, read.model, &err), NM_OK);
    for (size_t i = 0; i < got->n; i++)
        assert_memory_equal(got->list[i]->tensor.data, want->list[i]->tensor.data,
                            elements(&got->list[i]->tensor) * sizeof(float));
    nm_safetensors_close(again);
    tiny_release(&made);
    tiny_release(&read);
    nm_safetensors_close(file);
    nm_backend_free(backend);
    unlink(path);
}

/* In double and in fenced memory parameters are copied. */
static void test_not_mapped(void **state)
{
    (void)state;
    char path[] = "/tmp/norma-map-XXXXXX";
    nm_error err = {0};
    nm_backend *plain = backend_of("ref", NM_F32, 1, false), *fenced = backend_of("ref", NM_F32, 1, true);
    tiny made = tiny_create(plain, WORDS, 7, NULL), read = tiny_create(fenced, WORDS, 8, NULL);
    int opened = mkstemp(path);
    assert_true(opened >= 0 && close(opened) == 0);
    write_model(made.model, NM_WEIGHTS_FLOAT, path);
    nm_safetensors *file = open_file(path);
    assert_int_equal(nm_model_file_map(file, read.model, &err), NM_OK);
    nm_safetensors_close(file);
    for (size_t i = 0; i < read.model->params.n; i++) {
        const nm_tensor *tensor = &read.model->params.list[i]->tensor;
        float *values = nm_allocate(elements(tensor) * sizeof(float));
        nm_backend_download(fenced, values, tensor->data, elements(tensor) * sizeof(float));
        assert_memory_equal(values, made.model->params.list[i]->tensor.data,
                            elements(tensor) * sizeof(float));
        free(values);
    }
    tiny_release(&made);
    tiny_release(&read);
    nm_backend_free(plain);
    nm_backend_free(fenced);
    unlink(path);
}

static void test_bf16(void **state)
{
    (void)state;
    char path[] = "/tmp/norma-bf16-XXXXXX", mean[] = "/tmp/norma-bf16-XXXXXX";
    nm_error err = {0};
    nm_backend *backend = backend_of("cpu", NM_F32, 1, false);
    tiny made = tiny_create(backend, WORDS, 7, NULL), read = tiny_create(backend, WORDS, 8, NULL);
    int one = mkstemp(path), two = mkstemp(mean);
    assert_true(one >= 0 && two >= 0 && close(one) == 0 && close(two) == 0);
    write_model(made.model, NM_WEIGHTS_BF16, path);
    nm_safetensors *file = open_file(path);
    assert_int_equal(nm_model_file_map(file, read.model, &err), NM_OK);
    assert_int_equal(nm_model_file_check_finite(file, &err), NM_OK);
    int rounded = 0;
    for (size_t i = 0; i < read.model->params.n; i++) {
        const nm_param *param = made.model->params.list[i];
        const float *before = param->tensor.data, *after = read.model->params.list[i]->tensor.data;
        bool matrix = nm_param_is_int8(param);
        assert_int_equal(nm_safetensors_find(file, param->tensor.name)->type,
                         matrix ? NM_TENSOR_BF16 : NM_TENSOR_F32);
        for (size_t k = 0; k < elements(&param->tensor); k++) {
            assert_true(after[k] == (matrix ? nm_bf16_round(before[k]) : before[k]));
            rounded += after[k] != before[k];
        }
    }
    assert_true(rounded > 100);
    const char *const both[] = {path, path};
    assert_int_equal(nm_model_average(both, 2, mean, &err), NM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "a bf16 model cannot be averaged"));
    /* a value that is infinite in bf16 is not written; one that is infinite in a file is found */
    ((float *)made.model->params.list[0]->tensor.data)[0] = 3.4e38F;
    assert_int_equal(
        nm_checkpoint_rewrite(mean, made.model, &nm_task_translation, NM_WEIGHTS_BF16, file, &err),
        NM_DIVERGED);
    nm_safetensors_close(file);
    const uint16_t infinite[2] = {0, 0xff80};
    const int64_t shape[1] = {2};
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add(writer, "x", NM_TENSOR_BF16, 1, shape, infinite);
    assert_int_equal(nm_safetensors_finish(writer, mean, &err), NM_OK);
    file = open_file(mean);
    assert_int_equal(nm_model_file_check_finite(file, &err), NM_DIVERGED);
    nm_safetensors_close(file);
    tiny_release(&made);
    tiny_release(&read);
    nm_backend_free(backend);
    unlink(path);
    unlink(mean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_are_kept), cmocka_unit_test(test_mapped),
                                       cmocka_unit_test(test_not_mapped), cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
