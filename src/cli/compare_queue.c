/* Processes of norma compare: see compare_queue.h. */
#include "cli/compare_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/compare_progress.h"
#include "probe/probe.h"
#include "train/trainer.h"

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    if (stopped) { /* the second one means it */
        signal(number, SIG_DFL);
        raise(number);
    }
    stopped = 1;
}

bool compare_queue_stopped(void)
{
    return stopped;
}

void compare_queue_release(compare_queue *queue)
{
    for (size_t i = 0; i < queue->n; i++) {
        free(queue->jobs[i].folder);
        free(queue->jobs[i].log_path);
        compare_row_release(&queue->jobs[i].row);
    }
    free(queue->jobs);
    *queue = (compare_queue){0};
}

/* ---- options and arguments ---- */

typedef struct settings { /* "section.key", value */
    char **list;
    size_t n, capacity;
} settings;

static void add_setting(settings *all, const char *key, const char *value)
{
    const char *parts[2] = {key, value};
    for (int k = 0; k < 2; k++) {
        NM_GROW(all->list, all->n, all->capacity);
        all->list[all->n++] = nm_duplicate(parts[k]);
    }
}

static void release_settings(settings *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->list[i]);
    free(all->list);
}

/* Later ones win. */
static settings settings_of(const compare_queue *queue, const compare_variant *variant, int64_t seed)
{
    settings all = {0};
    char number[32];
    for (size_t i = 0; i < queue->cli->n_settings; i += 2)
        if (strncmp(queue->cli->settings[i], "compare.", 8))
            add_setting(&all, queue->cli->settings[i], queue->cli->settings[i + 1]);
    for (size_t i = 0; i < variant->n; i++)
        add_setting(&all, variant->settings[i].key, variant->settings[i].value);
    snprintf(number, sizeof number, "%lld", (long long)seed);
    add_setting(&all, "train.seed", number);
    return all;
}

extern const nm_command nm_command_train;

nm_status compare_options_of(const compare_queue *queue, const compare_variant *variant, int64_t seed,
                             nm_options **out, nm_error *err)
{
    nm_options *options = *out = nm_options_create();
    nm_command_train.options(options);
    nm_trainer_options_add(options, queue->cli->task);
    nm_probe_options_add(options);
    settings all = settings_of(queue, variant, seed);
    nm_status status = NM_OK;
    for (size_t i = 0; i < all.n && status == NM_OK; i += 2)
        status = nm_options_set(options, all.list[i], all.list[i + 1], NM_ORIGIN_COMMAND, err);
    release_settings(&all);
    if (status == NM_OK)
        status = nm_options_read_profile(options, queue->recipe, queue->profile, err);
    if (status != NM_OK) {
        nm_options_free(options);
        *out = NULL;
    }
    return status;
}

/* The argument list of norma train, heap, ends with NULL. */
static char **arguments_of(const compare_queue *queue, const compare_job *job)
{
    settings all = settings_of(queue, job->variant, job->row.seed);
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)queue->share.threads);
    add_setting(&all, "device.threads", number);
    add_setting(&all, "run.folder", job->folder);
    add_setting(&all, "run.report_seconds", "1");
    add_setting(&all, "run.resume", "true");
    char **list = nm_allocate((all.n + 4) * sizeof *list);
    size_t n = 0;
    list[n++] = nm_duplicate("norma");
    list[n++] = nm_duplicate("train");
    list[n++] = nm_duplicate(queue->recipe);
    for (size_t i = 0; i < all.n; i += 2)
        list[n++] = nm_format("--%s=%s", all.list[i], all.list[i + 1]);
    release_settings(&all);
    return list;
}

static void release_arguments(char **list)
{
    for (size_t i = 0; list[i]; i++)
        free(list[i]);
    free(list);
}

/* ---- processes ---- */

/* Does not come back. Dies with us however we die: nobody else would know that the folder is in use. A Ctrl-C comes to us,
 * and we hand it on once. */
static void become_run(char **list, int log, pid_t parent, const sigset_t *mask)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent)
        execv("/proc/self/exe", list);
    dprintf(STDERR_FILENO, "norma: cannot start norma train: %s\n", strerror(errno));
    _exit(127);
}

static nm_status start(const compare_queue *queue, compare_job *job, nm_error *err)
{
    int log = open(job->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0)
        return nm_fail(err, NM_IO, "%s: %s", job->log_path, strerror(errno));
    char **list = arguments_of(queue, job);
    sigset_t all, before;
    sigfillset(&all);
    fflush(NULL);
    pid_t parent = getpid();
    sigprocmask(SIG_SETMASK, &all, &before); /* a signal for the run must not come to a copy of our handler */
    job->process = fork();
    if (job->process == 0)
        become_run(list, log, parent, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(log);
    release_arguments(list);
    if (job->process < 0)
        return nm_fail(err, NM_MEMORY, "cannot start a process: %s", strerror(errno));
    job->state = COMPARE_RUNNING;
    return NM_OK;
}

static void end_job(compare_job *job, int code)
{
    static const char prefix[] = "norma: ";
    compare_row *row = &job->row;
    job->state = COMPARE_ENDED;
    compare_last_line(job->log_path, job->said, sizeof job->said);
    row->exit_code = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
    const char *said = job->said + (strncmp(job->said, prefix, strlen(prefix)) ? 0 : strlen(prefix));
    if (WIFSIGNALED(code))
        snprintf(row->trouble, sizeof row->trouble, "ended by signal %d", WTERMSIG(code));
    else if (row->exit_code)
        snprintf(row->trouble, sizeof row->trouble, "%s", said);
}

static size_t count(const compare_queue *queue, compare_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < queue->n; i++)
        n += queue->jobs[i].state == state;
    return n;
}

static void collect(compare_queue *queue, bool terminal)
{
    int code;
    for (size_t i = 0; i < queue->n; i++) {
        compare_job *job = &queue->jobs[i];
        if (job->state != COMPARE_RUNNING || waitpid(job->process, &code, WNOHANG) != job->process)
            continue;
        end_job(job, code);
        if (!terminal)
            fprintf(stderr, "%s, seed %lld: %s\n", job->variant->name, (long long)job->row.seed,
                    job->row.exit_code ? job->row.trouble : job->said);
    }
}

/* Each finishes its update and writes a checkpoint. */
static void stop_all(compare_queue *queue)
{
    int code;
    for (size_t i = 0; i < queue->n; i++)
        if (queue->jobs[i].state == COMPARE_RUNNING)
            kill(queue->jobs[i].process, SIGINT);
    for (size_t i = 0; i < queue->n; i++) {
        compare_job *job = &queue->jobs[i];
        while (job->state == COMPARE_RUNNING && waitpid(job->process, &code, 0) < 0 && errno == EINTR)
            continue;
        if (job->state == COMPARE_RUNNING)
            job->state = COMPARE_WAITING;
    }
}

static nm_status start_waiting(compare_queue *queue, nm_error *err)
{
    for (size_t i = 0; i < queue->n && count(queue, COMPARE_RUNNING) < (size_t)queue->share.at_once; i++)
        if (queue->jobs[i].state == COMPARE_WAITING)
            NM_TRY(start(queue, &queue->jobs[i], err));
    return NM_OK;
}

static nm_status step(compare_queue *queue, compare_progress *progress, nm_error *err)
{
    enum { TICK = 100000 }; /* microseconds */
    if (stopped)
        return nm_fail(err, NM_INTERRUPTED, "stopped; the same command goes on where the runs are");
    NM_TRY(start_waiting(queue, err));
    usleep(TICK);
    collect(queue, progress->terminal);
    compare_progress_show(progress, queue);
    return NM_OK;
}

nm_status compare_queue_run(compare_queue *queue, nm_error *err)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    compare_progress progress = compare_progress_begin();
    nm_status status = NM_OK;
    while (status == NM_OK && count(queue, COMPARE_ENDED) < queue->n)
        status = step(queue, &progress, err);
    if (status != NM_OK)
        stop_all(queue);
    return status;
}

/* ---- the folder ---- */

/* The descriptor is left open and handed to the runs: as long as one of them lives, the folder is held. */
nm_status compare_folder_lock(const char *folder, nm_error *err)
{
    enum { TRIES = 100, PAUSE = 100000 }; /* ten seconds: runs of a killed comparison die, but not at once */
    char *path = nm_path_join(folder, "lock");
    int lock = open(path, O_RDWR | O_CREAT, 0666);
    nm_status status = lock < 0 ? nm_fail(err, NM_IO, "%s: %s", path, strerror(errno)) : NM_OK;
    free(path);
    NM_TRY(status);
    for (int i = 0; i < TRIES; i++) {
        if (!flock(lock, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
            return NM_OK;
        usleep(PAUSE);
    }
    close(lock);
    return nm_fail(err, NM_USAGE, "%s: another comparison, or a run it started, is at work there", folder);
}
