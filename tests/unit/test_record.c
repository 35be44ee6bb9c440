/* Records: members and rows from one list; JSON, comparison; named values of a checkpoint whose
 * struct has changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/record.h"

#define SAMPLE(F)                                                                                            \
    F(text, name, "Name of the run")                                                                         \
    F(int, updates, "Number of updates")                                                                     \
    F(code, exit_code, "Exit code", "code?")                                                                 \
    F(real, loss, "Validation loss", "valid_loss")                                                           \
    F(real, score, "Score", "score?")                                                                        \
    F(flag, best, "Whether it is the best")                                                                  \
    F(hash, weights, "Hash of the weights", "weights?")                                                      \
    F(chars(8), title, "Name of the score", "title?")                                                        \
    F(reals(3), last, "The last losses")                                                                     \
    F(int, secret, "Never written", "")                                                                      \
    F(other(void *), user, "Not a value")
NM_RECORD(sample, SAMPLE)
static NM_FIELDS(sample, SAMPLE)

/* A later version of the program: other order, `epoch` added, `best` removed, more losses, a wider title. */
#define LATER_SAMPLE(F)                                                                                      \
    F(reals(5), last, "")                                                                                    \
    F(hash, weights, "")                                                                                     \
    F(chars(12), title, "")                                                                                  \
    F(real, score, "")                                                                                       \
    F(int, epoch, "")                                                                                        \
    F(real, loss, "")                                                                                        \
    F(code, exit_code, "")                                                                                   \
    F(int, secret, "")                                                                                       \
    F(int, updates, "")
NM_RECORD(later_sample, LATER_SAMPLE)
static NM_FIELDS(later_sample, LATER_SAMPLE)

static const sample full = {.name = "layer \"é\"",
                            .updates = 9007199254740993, /* no double has this value */
                            .exit_code = -3,
                            .loss = 0.1,
                            .score = 31.25,
                            .best = true,
                            .weights = 0x0edcba9876543210u,
                            .title = "BLEU",
                            .last = {1.5, -INFINITY, 1e-300},
                            .secret = 7};

static const sample empty = {.loss = NAN, .score = NAN};

static void assert_json(const sample *record, const char *expected)
{
    json_t *json = nm_record_json(sample_fields(), record);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9));
    assert_string_equal(text, expected);
    free(text);
    json_decref(json);
}

static void test_json_has_keys_in_the_order_of_the_rows(void **state)
{
    (void)state;
    assert_json(&full,
                "{\"name\":\"layer \\\"é\\\"\",\"updates\":9007199254740993,\"code\":-3,\"valid_loss\":0.1,"
                "\"score\":31.25,\"best\":true,\"weights\":\"0edcba9876543210\",\"title\":\"BLEU\","
                "\"last\":[1.5,null,1e-300]}");
}

static void test_unknown_values_are_null_or_left_out(void **state)
{
    (void)state;
    assert_json(&empty, "{\"name\":null,\"updates\":0,\"valid_loss\":null,\"best\":false,"
                        "\"last\":[0.0,0.0,0.0]}");
}

/* Infinity is a value that JSON does not have. */
static void test_infinity_is_null(void **state)
{
    (void)state;
    sample infinite = empty;
    infinite.score = INFINITY;
    assert_json(&infinite, "{\"name\":null,\"updates\":0,\"valid_loss\":null,\"score\":null,\"best\":false,"
                           "\"last\":[0.0,0.0,0.0]}");
}

static void test_json_is_read_back(void **state)
{
    (void)state;
    json_t *json = nm_record_json(sample_fields(), &full);
    sample found = {.secret = 7};
    assert_true(nm_record_read_json(sample_fields(), &found, json));
    assert_true(isnan(found.last[1])); /* JSON has no infinity */
    found.last[1] = full.last[1];
    assert_true(nm_record_equal(sample_fields(), &found, &full));
    json_decref(json);
    json = nm_record_json(sample_fields(), &empty);
    found = (sample){.score = 3};
    assert_true(nm_record_read_json(sample_fields(), &found, json));
    assert_true(!found.name && isnan(found.loss) && found.score == 3); /* the key "score?" is absent */
    json_decref(json);
}

static void test_json_of_another_form_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"updates", "1.5"},        {"updates", "null"}, {"valid_loss", "\"1\""}, {"best", "1"},
        {"title", "\"12345678\""}, {"title", "null"},   {"last", "[1,2]"},       {"name", "3"},
        {"weights", "5"},          {"last", "3"},       {"name", NULL},          {"valid_loss", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = nm_record_json(sample_fields(), &full);
        sample found = empty;
        if (cases[i].value)
            json_object_set_new(json, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(json, cases[i].key);
        if (nm_record_read_json(sample_fields(), &found, json))
            fail_msg("%s = %s", cases[i].key, cases[i].value ? cases[i].value : "absent");
        assert_int_equal(strnlen(found.title, sizeof found.title) < sizeof found.title, 1);
        json_decref(json);
    }
}

/* Every member decides. */
static void test_equality(void **state)
{
    (void)state;
    char name[] = "layer \"é\"", other = 0;
    sample same = full;
    same.name = name; /* another address */
    same.user = &other;
    memcpy(same.title, "BLEU\0xyz", 8); /* after the end of the text */
    assert_true(nm_record_equal(sample_fields(), &same, &full));
    for (const nm_field *field = sample_fields(); field->name; field++) {
        if (field->kind == NM_FIELD_OTHER)
            continue;
        sample changed = full;
        if (field->kind == NM_FIELD_TEXT)
            changed.name = NULL;
        else
            ((char *)&changed)[field->offset] ^= 1;
        if (nm_record_equal(sample_fields(), &changed, &full))
            fail_msg("%s", field->name);
    }
}

static char *path_of(const char *name)
{
    return nm_format("record-%ld-%s", (long)getpid(), name);
}

static nm_safetensors *saved(const nm_field *fields, const void *record)
{
    char *path = path_of("state");
    nm_error err;
    nm_safetensors *file;
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_record_save(writer, "state", fields, record);
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    unlink(path);
    free(path);
    return file;
}

static void test_a_checkpoint_has_every_value(void **state)
{
    (void)state;
    nm_error err;
    sample before = full, found = {.name = full.name};
    before.loss = NAN;
    nm_safetensors *file = saved(sample_fields(), &before);
    assert_int_equal(nm_safetensors_count(file), 9);
    assert_int_equal(nm_record_load(file, "state", sample_fields(), &found, &err), NM_OK);
    assert_true(nm_record_equal(sample_fields(), &found, &before)); /* also NaN and infinity */
    nm_safetensors_close(file);
}

/* Members that were added keep their values, removed ones are ignored, and the order does not matter. */
static void test_a_checkpoint_of_another_version(void **state)
{
    (void)state;
    nm_error err;
    later_sample later = {.epoch = 5, .last = {9, 9, 9, 9, 9}};
    nm_safetensors *file = saved(sample_fields(), &full);
    assert_int_equal(nm_record_load(file, "state", later_sample_fields(), &later, &err), NM_OK);
    nm_safetensors_close(file);
    assert_true(later.updates == full.updates && later.exit_code == -3 && later.loss == 0.1);
    assert_true(later.score == 31.25 && later.weights == full.weights && later.secret == 7);
    assert_string_equal(later.title, "BLEU");
    assert_true(later.epoch == 5 && later.last[0] == 1.5 && later.last[2] == 1e-300 && later.last[3] == 9);
    sample back = {.best = true}; /* five losses do not fit into three */
    file = saved(later_sample_fields(), &later);
    assert_int_equal(nm_record_load(file, "state", sample_fields(), &back, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "invalid value of state.title"));
    nm_safetensors_close(file);
}

static void test_a_copy_has_the_members_of_both(void **state)
{
    (void)state;
    later_sample later = {.epoch = 5};
    nm_record_copy(later_sample_fields(), &later, sample_fields(), &full);
    assert_true(later.epoch == 5 && later.updates == full.updates && later.secret == 7);
    assert_string_equal(later.title, ""); /* of another size */
}

/* A file in which one value has another type, or is none of its type. */
static void test_invalid_values_are_refused(void **state)
{
    (void)state;
    static const int64_t none = 0, one = 1, three = 3, eight = 8;
    static const unsigned char two = 2;
    static const struct {
        const char *name;
        nm_tensor_type type;
        const int64_t *length;
        const void *data;
    } cases[] = {
        {"state.updates", NM_TENSOR_F64, NULL, &one}, {"state.updates", NM_TENSOR_I64, &three, full.last},
        {"state.loss", NM_TENSOR_I64, NULL, &one},    {"state.loss", NM_TENSOR_F64, &none, NULL},
        {"state.best", NM_TENSOR_BOOL, NULL, &two},   {"state.title", NM_TENSOR_U8, &eight, "12345678"},
        {"state.title", NM_TENSOR_U8, &three, "123"}, {"state.last", NM_TENSOR_I64, &three, full.last}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = path_of("invalid");
        nm_error err;
        nm_safetensors *file;
        nm_safetensors_writer *writer = nm_safetensors_begin();
        nm_safetensors_add(writer, cases[i].name, cases[i].type, cases[i].length != NULL, cases[i].length,
                           cases[i].data);
        assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
        assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
        sample found = empty;
        if (nm_record_load(file, "state", sample_fields(), &found, &err) != NM_FORMAT)
            fail_msg("case %zu", i);
        assert_non_null(strstr(err.text, cases[i].name));
        nm_safetensors_close(file);
        unlink(path);
        free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json_has_keys_in_the_order_of_the_rows),
                                       cmocka_unit_test(test_unknown_values_are_null_or_left_out),
                                       cmocka_unit_test(test_infinity_is_null),
                                       cmocka_unit_test(test_json_is_read_back),
                                       cmocka_unit_test(test_json_of_another_form_is_refused),
                                       cmocka_unit_test(test_equality),
                                       cmocka_unit_test(test_a_checkpoint_has_every_value),
                                       cmocka_unit_test(test_a_checkpoint_of_another_version),
                                       cmocka_unit_test(test_a_copy_has_the_members_of_both),
                                       cmocka_unit_test(test_invalid_values_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
