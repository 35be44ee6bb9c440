/* Files: atomic writing through temporary files, files that must not block or be overwritten, links, and
 * locks of folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/edit_distance.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/remove_tree.h"

static char folder[] = "/tmp/norma-file-XXXXXX";
static bool without_links;

/* Replaces the library's function: some file systems have no hard links. */
int link(const char *path, const char *name)
{
    if (!without_links)
        return linkat(AT_FDCWD, path, AT_FDCWD, name, 0);
    errno = EPERM;
    return -1;
}

static int enter_folder(void **state)
{
    (void)state;
    alarm(60); /* a call that blocks is a failure */
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

static void write_file(const char *path, const char *text)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    fputs(text, stream);
    assert_int_equal(fclose(stream), 0);
}

static void assert_content(const char *path, const char *expected)
{
    char *text;
    nm_error err;
    assert_int_equal(nm_file_read(path, &text, NULL, &err), NM_OK);
    assert_string_equal(text, expected);
    free(text);
}

static void test_temporary_file_replaces_no_other_file(void **unused)
{
    (void)unused;
    nm_error err;
    write_file("user", "kept");
    assert_int_equal(symlink("user", "model.new"), 0);
    assert_int_equal(nm_file_write("model", "weights", 7, &err), NM_OK);
    assert_content("model", "weights");
    assert_content("user", "kept");
    assert_content("model.new", "kept");
}

static void test_two_writers_of_one_file(void **unused)
{
    (void)unused;
    nm_error err;
    nm_file_writer first, second;
    assert_int_equal(nm_file_writer_open(&first, "both", &err), NM_OK);
    assert_int_equal(nm_file_writer_open(&second, "both", &err), NM_OK);
    assert_int_equal(nm_file_append(&first, "first", 5, &err), NM_OK);
    assert_int_equal(nm_file_append(&second, "second", 6, &err), NM_OK);
    assert_true(!*first.temporary || nm_file_is_temporary(first.temporary));
    assert_int_equal(nm_file_writer_commit(&first, &err), NM_OK);
    assert_content("both", "first");
    nm_file_writer_abort(&second);
    assert_content("both", "first");
}

/* A process that ends without committing leaves no file, if the file system supports unnamed files. */
static void test_unfinished_file_has_no_name(void **unused)
{
    (void)unused;
    nm_error err;
    assert_int_equal(mkdir("unfinished", 0777), 0);
    int fd = open("unfinished", O_TMPFILE | O_WRONLY, 0666);
    if (fd < 0)
        skip();
    close(fd);
    pid_t child = fork();
    if (!child) {
        nm_file_writer writer;
        bool written = nm_file_writer_open(&writer, "unfinished/model", &err) == NM_OK &&
                       nm_file_append(&writer, "half", 4, &err) == NM_OK && !fflush(writer.stream);
        _exit(written ? 0 : 1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(rmdir("unfinished"), 0);
}

static void test_optional_files(void **unused)
{
    (void)unused;
    nm_error err;
    char *text;
    bool found = true;
    assert_int_equal(nm_file_find("nowhere", &found, &err), NM_OK);
    assert_false(found);
    assert_int_equal(nm_file_read_optional("nowhere", &text, &err), NM_OK);
    assert_null(text);
    write_file("present", "text");
    assert_int_equal(nm_file_read_optional("present", &text, &err), NM_OK);
    assert_string_equal(text, "text");
    free(text);
    assert_int_equal(symlink("loop", "loop"), 0); /* ELOOP: it is unknown whether the file exists */
    assert_int_equal(nm_file_find("loop", &found, &err), NM_IO);
    assert_int_equal(nm_file_read_optional("loop", &text, &err), NM_IO);
}

static void test_writer_keeps_permissions_and_links(void **unused)
{
    (void)unused;
    nm_error err;
    struct stat info;
    write_file("secret", "old");
    assert_int_equal(chmod("secret", 0600), 0);
    assert_int_equal(symlink("secret", "alias"), 0);
    assert_int_equal(nm_file_write("alias", "new", 3, &err), NM_OK);
    assert_content("secret", "new");
    assert_int_equal(lstat("alias", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat("secret", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void test_writer_keeps_fifo(void **unused)
{
    (void)unused;
    nm_error err;
    struct stat info;
    char text[8] = {0};
    assert_int_equal(mkfifo("pipe", 0600), 0);
    int reader = open("pipe", O_RDWR);
    assert_int_equal(nm_file_write("pipe", "line\n", 5, &err), NM_OK);
    assert_int_equal(read(reader, text, sizeof text), 5);
    assert_string_equal(text, "line\n");
    assert_int_equal(lstat("pipe", &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    close(reader);
}

static void test_writer_reports_folder_and_missing_folder(void **unused)
{
    (void)unused;
    nm_error err;
    nm_file_writer writer;
    assert_int_equal(mkdir("taken", 0700), 0);
    assert_int_equal(nm_file_writer_open(&writer, "taken", &err), NM_IO);
    assert_string_equal(err.text, "taken: is a folder");
    assert_int_equal(nm_file_writer_open(&writer, "absent/model", &err), NM_IO);
    assert_string_equal(err.text, "absent/model: No such file or directory");
    char *text = NULL;
    assert_int_equal(nm_file_read("", &text, NULL, &err), NM_IO);
    assert_string_equal(err.text, "a file without a name: No such file or directory");
}

static void test_longest_file_name(void **unused)
{
    (void)unused;
    nm_error err;
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    assert_int_equal(nm_file_write(name, "text", 4, &err), NM_OK);
    assert_content(name, "text");
}

static void test_fifo_without_writer_does_not_block(void **unused)
{
    (void)unused;
    nm_error err;
    nm_file_map map;
    char *text;
    assert_int_equal(mkfifo("silent", 0600), 0);
    assert_int_equal(nm_file_map_open(&map, "silent", &err), NM_IO);
    assert_string_equal(err.text, "silent: not a regular file");
    assert_int_equal(nm_file_read("silent", &text, NULL, &err), NM_IO);
    assert_string_equal(err.text, "silent: is a FIFO that no process writes to");
}

static void test_fifo_with_slow_writer(void **unused)
{
    (void)unused;
    assert_int_equal(mkfifo("slow", 0600), 0);
    pid_t child = fork();
    if (!child) {
        FILE *stream = fopen("slow", "wb"); /* blocks until the reader opens it */
        usleep(200000);
        fputs("[train]\n", stream);
        fflush(stream);
        usleep(200000);
        fputs("seed = 2\n", stream);
        _exit(fclose(stream));
    }
    assert_content("slow", "[train]\nseed = 2\n");
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_link_or_copy(void **unused)
{
    (void)unused;
    nm_error err;
    write_file("checkpoint", "weights");
    write_file("last", "old");
    for (int copies = 0; copies < 2; copies++) {
        struct stat a, b;
        without_links = copies;
        assert_int_equal(nm_file_link("checkpoint", "last", &err), NM_OK);
        assert_int_equal(nm_file_link("checkpoint", "last", &err), NM_OK); /* again, over itself */
        without_links = false;
        assert_content("last", "weights");
        assert_int_equal(stat("checkpoint", &a), 0);
        assert_int_equal(stat("last", &b), 0);
        assert_int_equal(a.st_ino != b.st_ino, copies);
        assert_int_equal(a.st_nlink, copies ? 1 : 2);
    }
    assert_int_equal(nm_file_link("missing", "last", &err), NM_IO);
    assert_content("last", "weights");
}

static void test_names_of_temporary_files(void **unused)
{
    (void)unused;
    assert_true(nm_file_is_temporary("best.safetensors.0a1b2c3d.new"));
    assert_false(nm_file_is_temporary("best.safetensors.new"));
    assert_false(nm_file_is_temporary("what.is.new"));
    assert_false(nm_file_is_temporary("notes.0A1B2C3D.new"));
    assert_false(nm_file_is_temporary("notes-0a1b2c3d.new"));
    assert_false(nm_file_is_temporary(".0a1b2c3d.new"));
    assert_int_equal(mkdir("left", 0700), 0);
    write_file("left/dict.txt.00000001.new", "");
    write_file("left/mine.new", "");
    nm_folder_remove_temporaries("left");
    assert_int_not_equal(access("left/dict.txt.00000001.new", F_OK), 0);
    assert_int_equal(access("left/mine.new", F_OK), 0);
    nm_folder_remove_temporaries("absent");
}

/* As by cp, while the contents are read. The program, which handles SIGBUS, maps files; this test is not the
 * program. */
static void test_contents_survive_truncation(void **unused)
{
    (void)unused;
    nm_error err;
    nm_file_map map;
    write_file("mapped", "contents");
    assert_int_equal(nm_file_map_open(&map, "mapped", &err), NM_OK);
    assert_int_equal(truncate("mapped", 0), 0);
    assert_int_equal(map.bytes, 8);
    assert_memory_equal(map.data, "contents", 8);
    nm_file_unmap(&map);
}

static void test_lock_names_the_process(void **unused)
{
    (void)unused;
    nm_error err;
    nm_folder_lock lock;
    int ready[2], done[2];
    char byte = 0;
    assert_int_equal(mkdir("run", 0700), 0);
    write_file("run/.lock", "1234567890\n"); /* left by a process that was killed */
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    if (!child) {
        alarm(60); /* the child does not inherit the parent's */
        nm_status status = nm_folder_lock_acquire(&lock, "run", &err);
        if (write(ready[1], "", 1) != 1 || read(done[0], &byte, 1) != 1)
            _exit(1);
        nm_folder_lock_release(&lock);
        _exit((int)status);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(nm_folder_lock_acquire(&lock, "run", &err), NM_IO);
    char *expected = nm_format("run: is being written by process %ld;", (long)child);
    assert_non_null(strstr(err.text, expected));
    free(expected);
    nm_folder_lock_release(&lock);
    assert_int_equal(write(done[1], "", 1), 1);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(nm_folder_lock_acquire(&lock, "run", &err), NM_OK);
    nm_folder_lock_release(&lock);
    assert_int_not_equal(access("run/.lock", F_OK), 0);
    assert_int_equal(nm_folder_lock_acquire(&lock, "absent", &err), NM_IO);
    nm_folder_lock_release(&lock);
}

static void test_edit_distance_of_long_names(void **unused)
{
    (void)unused;
    size_t bytes = 2 << 20;
    char *name = nm_allocate(bytes + 1);
    memset(name, 'x', bytes);
    for (int i = 0; i < 100; i++) /* takes minutes unless the length is bounded */
        assert_int_equal(nm_edit_distance(name, "train.updates"), NM_EDIT_DISTANCE_BYTES);
    free(name);
    assert_int_equal(nm_edit_distance("train.update", "train.updates"), 1);
    assert_int_equal(nm_edit_distance("", "seed"), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temporary_file_replaces_no_other_file),
        cmocka_unit_test(test_two_writers_of_one_file),
        cmocka_unit_test(test_unfinished_file_has_no_name),
        cmocka_unit_test(test_optional_files),
        cmocka_unit_test(test_writer_keeps_permissions_and_links),
        cmocka_unit_test(test_writer_keeps_fifo),
        cmocka_unit_test(test_writer_reports_folder_and_missing_folder),
        cmocka_unit_test(test_longest_file_name),
        cmocka_unit_test(test_fifo_without_writer_does_not_block),
        cmocka_unit_test(test_fifo_with_slow_writer),
        cmocka_unit_test(test_link_or_copy),
        cmocka_unit_test(test_names_of_temporary_files),
        cmocka_unit_test(test_contents_survive_truncation),
        cmocka_unit_test(test_lock_names_the_process),
        cmocka_unit_test(test_edit_distance_of_long_names),
    };
    return cmocka_run_group_tests_name("file", tests, enter_folder, remove_folder);
}
