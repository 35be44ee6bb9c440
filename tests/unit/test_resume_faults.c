/* A resumed run when the n-th allocation or the n-th open fails, for many n: either the newest checkpoint
 * is loaded or the resume fails, and in both cases no file of a checkpoint is removed, renamed or changed.
 * Each try runs in a separate process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "support/tiny_run.h"
#include "support/sanitizer.h"

static long allocations_left = -1, opens_left = -1; /* until the call that fails; negative: none fails */
static int open_error;

static bool fails(long *left)
{
    return *left >= 0 && (*left)-- == 0;
}

/* Replaces the C library's function for the library under test. */
int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (fails(&opens_left)) {
        errno = open_error;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#if REPLACES_ALLOCATOR

/* The allocator of glibc under the names that remain when the usual ones are replaced. */
void *__libc_malloc(size_t bytes);              /* NOLINT(bugprone-reserved-identifier) */
void *__libc_calloc(size_t n, size_t bytes);    /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *block, size_t size); /* NOLINT(bugprone-reserved-identifier) */

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t bytes)
{
    return fails(&allocations_left) ? no_memory() : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails(&allocations_left) ? no_memory() : __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails(&allocations_left) ? no_memory() : __libc_realloc(block, bytes);
}
#endif

enum { UPDATES = 4, OTHER_CHECKPOINT = 77, FAULT_LIMIT = 1 << 16 };

static char *run_folder;

static nm_options *run_options(void)
{
    static const char *const settings[] = {"train.updates", "4", "train.save_every", "1", NULL};
    return tiny_options(settings);
}

/* Names and contents of the checkpoints. */
static uint64_t checkpoints_hash(void)
{
    uint64_t sum = 0;
    char *folder = nm_path_join(run_folder, "checkpoints");
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = nm_path_join(folder, entry->d_name), *text;
        size_t bytes;
        nm_error err;
        assert_int_equal(nm_file_read(path, &text, &bytes, &err), NM_OK);
        sum += XXH3_64bits(entry->d_name, strlen(entry->d_name)) ^ XXH3_64bits(text, bytes);
        free(text);
        free(path);
    }
    closedir(dir);
    free(folder);
    return sum;
}

/* Exit code of a process that resumes the run, or 128 + signal. *reached: the fault happened. */
static int resume_with_fault(long *left, long n, bool *reached)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        nm_options *options = run_options();
        nm_trainer *trainer;
        nm_error err = {0};
        *left = n;
        nm_status status =
            nm_trainer_open(&trainer, &nm_task_translation, options, run_folder, true, NULL, &err);
        bool happened = *left < 0;
        *left = -1;
        if (write(fds[1], &happened, sizeof happened) != sizeof happened)
            _exit(1);
        if (status == NM_OK && nm_trainer_state(trainer)->update != UPDATES)
            _exit(OTHER_CHECKPOINT);
        _exit((int)status);
    }
    close(fds[1]);
    *reached = true; /* a process that ends early met the fault */
    if (read(fds[0], reached, sizeof *reached) < 0)
        *reached = true;
    close(fds[0]);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

/* Returns the number of tries. Beyond the first faults n grows by a fraction of itself. */
static int try_faults(long *left)
{
    uint64_t before = checkpoints_hash();
    bool reached = true;
    int tries = 0, failures = 0;
    for (long n = 0; reached && n < FAULT_LIMIT; n += 1 + n / 100, tries++) {
        int code = resume_with_fault(left, n, &reached);
        if (code == OTHER_CHECKPOINT)
            fail_msg("fault %ld: an older checkpoint was loaded", n);
        if (checkpoints_hash() != before)
            fail_msg("fault %ld (exit code %d): the checkpoints have changed", n, code);
        failures += code != NM_OK;
    }
    assert_false(reached);
    assert_true(failures > 5);
    return tries;
}

static void test_failed_open(void **state)
{
    (void)state;
    static const int errors[] = {EMFILE, EACCES, EIO};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        open_error = errors[i];
        assert_true(try_faults(&opens_left) > 10);
    }
}

static void test_failed_allocation(void **state)
{
    (void)state;
    if (!REPLACES_ALLOCATOR)
        skip();
    assert_true(try_faults(&allocations_left) > 50);
}

static int make_run(void **state)
{
    make_data(state);
    run_folder = tiny_folder();
    nm_options *options = run_options();
    nm_trainer *trainer;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, run_folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        return -1;
    nm_trainer_close(trainer);
    nm_options_free(options);
    return 0;
}

static int drop_run(void **state)
{
    tiny_data_remove(run_folder);
    return drop_data(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_open),
        cmocka_unit_test(test_failed_allocation),
    };
    return cmocka_run_group_tests(tests, make_run, drop_run);
}
