/* Safetensors: written tensors are read back unchanged, and malformed files are rejected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "near.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/norma-safetensors-%ld", (long)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void write_example(void)
{
    static const float weight[6] = {1, -2, 3, -4, 5.5f, 6};
    static const double state[3] = {1e-300, -0.0, 3};
    static const int64_t counter[1] = {INT64_C(9007199254740993)};
    static const uint8_t flags[3] = {1, 0, 1};
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add(writer, "flags", NM_TENSOR_U8, 1, (int64_t[]){3}, flags);
    nm_safetensors_add(writer, "enc.weight", NM_TENSOR_F32, 2, (int64_t[]){2, 3}, weight);
    nm_safetensors_add(writer, "none", NM_TENSOR_F32, 2, (int64_t[]){0, 3}, NULL);
    nm_safetensors_add(writer, "counter", NM_TENSOR_I64, 0, NULL, counter);
    nm_safetensors_add(writer, "state", NM_TENSOR_F64, 1, (int64_t[]){3}, state);
    nm_safetensors_add_metadata(writer, "made by", "a \"test\" of \xc3\xa9\n");
    nm_error err;
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
}

static void round_trip(void **unused)
{
    (void)unused;
    write_example();
    nm_safetensors *file;
    nm_error err;
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    assert_int_equal(nm_safetensors_count(file), 5);
    assert_string_equal(nm_safetensors_metadata(file, "made by"), "a \"test\" of \xc3\xa9\n");
    assert_null(nm_safetensors_metadata(file, "other"));
    const nm_safetensor *weight = nm_safetensors_find(file, "enc.weight");
    assert_non_null(weight);
    assert_int_equal(weight->rank, 2);
    assert_int_equal(weight->shape[1], 3);
    assert_near(((const float *)weight->data)[4], 5.5, 0);
    const nm_safetensor *counter = nm_safetensors_find(file, "counter");
    assert_int_equal(counter->rank, 0);
    assert_true(*(const int64_t *)counter->data == INT64_C(9007199254740993));
    assert_near(((const double *)nm_safetensors_find(file, "state")->data)[0], 1e-300, 0);
    assert_int_equal(nm_safetensors_find(file, "none")->bytes, 0);
    assert_null(nm_safetensors_find(file, "absent"));
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *each = nm_safetensors_at(file, i);
        assert_int_equal((uintptr_t)each->data % nm_tensor_type_bytes(each->type), 0);
    }
    nm_safetensors_close(file);
}

static void wanted_tensors(void **unused)
{
    (void)unused;
    write_example();
    nm_safetensors *file;
    const nm_safetensor *found = NULL;
    nm_error err;
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    assert_int_equal(nm_safetensors_expect(file, "state", NM_TENSOR_F64, 3, &found, &err), NM_OK);
    assert_string_equal(found->name, "state");
    assert_int_equal(nm_safetensors_expect(file, "state", NM_TENSOR_F64, 4, &found, &err), NM_MISMATCH);
    assert_int_equal(nm_safetensors_expect(file, "state", NM_TENSOR_F32, 3, &found, &err), NM_MISMATCH);
    assert_int_equal(nm_safetensors_expect(file, "nothing", NM_TENSOR_F32, 3, &found, &err), NM_MISMATCH);
    assert_non_null(strstr(err.text, path));
    nm_safetensors_close(file);
}

static void rejects(const char *content, size_t bytes, const char *expected)
{
    nm_safetensors *file;
    nm_error err = {0};
    assert_int_equal(nm_file_write(path, content, bytes, &err), NM_OK);
    nm_status status = nm_safetensors_open(&file, path, &err);
    if (status != NM_FORMAT)
        print_error("accepted a file that is to be rejected: %s\n", expected ? expected : "truncated");
    assert_int_equal(status, NM_FORMAT);
    assert_null(file);
    assert_non_null(strstr(err.text, path));
    if (expected && !strstr(err.text, expected)) {
        print_error("expected '%s' in '%s'\n", expected, err.text);
        fail();
    }
}

static void truncated_anywhere(void **unused)
{
    (void)unused;
    write_example();
    char *content;
    size_t bytes;
    nm_error err;
    assert_int_equal(nm_file_read(path, &content, &bytes, &err), NM_OK);
    for (size_t length = 0; length < bytes; length++)
        rejects(content, length, NULL);
    content[bytes] = 0; /* the terminator after the text: one byte too many */
    rejects(content, bytes + 1, "bytes after the last tensor");
    free(content);
}

static bool is_example(const nm_safetensors *file)
{
    static const float weight[6] = {1, -2, 3, -4, 5.5f, 6};
    const nm_safetensor *tensor = nm_safetensors_find(file, "enc.weight"),
                        *last = nm_safetensors_find(file, "flags");
    const char *text = nm_safetensors_metadata(file, "made by");
    return nm_safetensors_count(file) == 5 && tensor && tensor->rank == 2 && tensor->shape[0] == 2 &&
           tensor->bytes == sizeof weight && !memcmp(tensor->data, weight, sizeof weight) && last &&
           last->bytes == 3 && !memcmp(last->data, "\1\0\1", 3) && text &&
           !strcmp(text, "a \"test\" of \xc3\xa9\n");
}

/* Every changed bit is refused, unless it has no meaning: the contents are then those of the intact file. */
static void damaged_anywhere(void **unused)
{
    (void)unused;
    write_example();
    char *content;
    size_t bytes, accepted = 0;
    nm_error err;
    assert_int_equal(nm_file_read(path, &content, &bytes, &err), NM_OK);
    /* the lowest and the highest bit of each byte */
    for (size_t bit = 0; bit < 8 * bytes; bit += bit % 8 == 7 ? 1 : 7) {
        nm_safetensors *file;
        content[bit / 8] = (char)(content[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(nm_file_write(path, content, bytes, &err), NM_OK);
        nm_status status = nm_safetensors_open(&file, path, &err);
        if (status == NM_OK) {
            accepted++;
            assert_true(is_example(file));
        } else {
            assert_int_equal(status, NM_FORMAT);
            assert_non_null(strstr(err.text, path));
        }
        nm_safetensors_close(file);
        content[bit / 8] = (char)(content[bit / 8] ^ 1 << bit % 8);
    }
    assert_true(accepted < 80); /* padding, name of the checksums */
    free(content);
}

static void replace_text(char *content, size_t bytes, const char *from, const char *to)
{
    char *found = memmem(content, bytes, from, strlen(from));
    assert_non_null(found);
    memcpy(found, to, strlen(to));
}

static void checksums(void **unused)
{
    (void)unused;
    static const float weight[6] = {1, -2, 3, -4, 5.5f, 6};
    write_example();
    char *content;
    size_t bytes;
    nm_error err;
    nm_safetensors *file;
    assert_int_equal(nm_file_read(path, &content, &bytes, &err), NM_OK);
    assert_non_null(memmem(content, bytes, "\"xxh3\":\"", 8));
    char *data = memmem(content, bytes, weight, sizeof weight);
    data[5] ^= 1;
    rejects(content, bytes, "damaged file: tensor 'enc.weight' does not match its checksum");
    /* Files of other toolkits have no checksums. */
    replace_text(content, bytes, "\"xxh3\"", "\"none\"");
    assert_int_equal(nm_file_write(path, content, bytes, &err), NM_OK);
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    nm_safetensors_close(file);
    replace_text(content, bytes, "\"none\"", "\"xxh3\"");
    /* The metadata alone is read without the data. */
    assert_int_equal(nm_file_write(path, content, bytes, &err), NM_OK);
    assert_int_equal(nm_safetensors_open_metadata(&file, path, &err), NM_OK);
    nm_safetensors_close(file);
    data[5] ^= 1;
    replace_text(content, bytes, "\"a \\\"test", "\"b \\\"test");
    rejects(content, bytes, "damaged file: the header does not match its checksum");
    assert_int_equal(nm_safetensors_open_metadata(&file, path, &err), NM_FORMAT);
    replace_text(content, bytes, "\"xxh3\":\"", "\"xxh3\":\"\",\"\":\"");
    rejects(content, bytes, "the number of checksums is not that of the tensors");
    free(content);
    /* They are not part of the metadata that is copied to another file. */
    write_example();
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    assert_null(nm_safetensors_metadata(file, "xxh3"));
    nm_safetensors_close(file);
}

/* A file of this header text and `data` bytes of zeros. */
static void rejects_header(const char *header, size_t data, const char *expected)
{
    size_t length = strlen(header);
    char *content = nm_allocate(8 + length + data);
    content[0] = (char)length;
    content[1] = (char)(length >> 8);
    memcpy(content + 8, header, length);
    rejects(content, 8 + length + data, expected);
    free(content);
}

static void forged_headers(void **unused)
{
    (void)unused;
    rejects("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, "header length");
    rejects("\x03\0\0\0\0\0\0\0{}", 10, "header length");
    rejects("text, not a model\n", 18, "not a safetensors file");
    rejects_header("[]", 0, "not a JSON object");
    rejects_header("", 0, "header");
    rejects_header("{} x", 0, "header");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "duplicate");
    rejects_header("{\"a\":7}", 0, "expected exactly dtype");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
                   "expected exactly dtype");
    rejects_header("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype");
    rejects_header("{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "invalid shape");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "invalid shape");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "invalid shape");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
                   "invalid shape");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
                   "invalid shape");
    rejects_header("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
                   "invalid shape");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4, "outside the file");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
                   "outside the file");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "outside the file");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "disagree");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "gap");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                   "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "overlaps");
    rejects_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "after the last");
    rejects_header("{\"__metadata__\":[]}", 0, "__metadata__");
    rejects_header("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__");
}

static void deep_nesting(void **unused)
{
    (void)unused;
    char header[20001];
    memset(header, '[', 20000);
    header[20000] = 0;
    rejects_header(header, 0, "header");
}

static void failures_of_the_system(void **unused)
{
    (void)unused;
    nm_safetensors *file;
    nm_error err;
    assert_int_equal(nm_safetensors_open(&file, "/nonexistent/x", &err), NM_IO);
    assert_int_equal(nm_safetensors_open(&file, "/tmp", &err), NM_IO);
    assert_int_equal(nm_safetensors_finish(nm_safetensors_begin(), "/nonexistent/x", &err), NM_IO);
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add_metadata(writer, "text", "\xff");
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_USAGE);
    writer = nm_safetensors_begin();
    nm_safetensors_add(writer, "\xff", NM_TENSOR_U8, 1, (int64_t[]){0}, NULL);
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_USAGE);
    nm_safetensors_abandon(nm_safetensors_begin());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),         cmocka_unit_test(wanted_tensors),
        cmocka_unit_test(truncated_anywhere), cmocka_unit_test(damaged_anywhere),
        cmocka_unit_test(checksums),          cmocka_unit_test(forged_headers),
        cmocka_unit_test(deep_nesting),       cmocka_unit_test(failures_of_the_system),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
