/* The list of checksums of a data folder: files that are changed, missing or not named, and lists that are
 * damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/checksums.h"

static char folder[] = "/tmp/norma-checksums-XXXXXX";
static const char *const names[] = {"dict.txt", "data.ini"};
static const char *const contents[] = {"a 1\nb 2\n", ""};

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) && !chdir(folder) ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        unlink(names[i]);
    unlink(NM_CHECKSUMS_NAME);
    return chdir("/") || rmdir(folder);
}

static void write_file(const char *name, const char *text)
{
    nm_error err;
    assert_int_equal(nm_file_write(name, text, strlen(text), &err), NM_OK);
}

static void write_folder(void)
{
    nm_buffer list = {0};
    for (int i = 0; i < 2; i++) {
        write_file(names[i], contents[i]);
        nm_checksums_add(&list, names[i], contents[i], strlen(contents[i]));
    }
    write_file(NM_CHECKSUMS_NAME, list.data);
    nm_buffer_release(&list);
}

static void rejects(const char *expected)
{
    nm_error err;
    assert_int_equal(nm_checksums_verify(".", &err), NM_FORMAT);
    if (!strstr(err.text, expected))
        fail_msg("%s", err.text);
}

/* The digits are those of xxh128sum. */
static void test_format(void **state)
{
    (void)state;
    nm_buffer list = {0};
    nm_checksums_add(&list, "empty", NULL, 0);
    nm_checksums_add(&list, "abc", "abc", 3);
    assert_string_equal(list.data, "99aa06d3014798d86001c324468d497f  empty\n"
                                   "06b05ab6733a618578af5f94892f3950  abc\n");
    nm_buffer_release(&list);
}

static void test_changed_files(void **state)
{
    (void)state;
    nm_error err;
    write_folder();
    assert_int_equal(nm_checksums_verify(".", &err), NM_OK);
    write_file("dict.txt", "a 1\nb 3\n");
    rejects("./dict.txt: damaged or changed");
    unlink("dict.txt");
    rejects("./dict.txt: missing");
    write_folder();
    write_file("data.ini", "x");
    rejects("./data.ini: damaged or changed");
}

static void test_damaged_lists(void **state)
{
    (void)state;
    nm_error err;
    char *list;
    size_t bytes;
    write_folder();
    assert_int_equal(nm_file_read(NM_CHECKSUMS_NAME, &list, &bytes, &err), NM_OK);
    for (size_t i = 0; i < bytes; i++) { /* each bit of each byte */
        for (int bit = 0; bit < 8; bit++) {
            list[i] = (char)(list[i] ^ 1 << bit);
            assert_int_equal(nm_file_write(NM_CHECKSUMS_NAME, list, bytes, &err), NM_OK);
            if (i + 1 < bytes)
                assert_int_equal(nm_checksums_verify(".", &err), NM_FORMAT);
            list[i] = (char)(list[i] ^ 1 << bit);
        }
        assert_int_equal(nm_file_write(NM_CHECKSUMS_NAME, list, i, &err), NM_OK);
        assert_int_equal(nm_checksums_verify(".", &err), i + 1 < bytes ? NM_FORMAT : NM_OK);
    }
    free(list);
    write_file(NM_CHECKSUMS_NAME, "99aa06d3014798d86001c324468d497f  ../data.ini\n");
    rejects("is not a checksum and a name");
}

static void test_folder_of_an_earlier_version(void **state)
{
    (void)state;
    nm_error err;
    write_folder();
    unlink(NM_CHECKSUMS_NAME);
    write_file("dict.txt", "changed");
    assert_int_equal(nm_checksums_verify(".", &err), NM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_changed_files),
        cmocka_unit_test(test_damaged_lists),
        cmocka_unit_test(test_folder_of_an_earlier_version),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
