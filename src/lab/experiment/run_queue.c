#include "experiment/run_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/utf8_cut.h"
#include "probe/probe.h"
#include "task/tune.h"
#include "train/train_options.h"

void nm_run_queue_clear(nm_run_queue *queue)
{
    for (size_t i = 0; i < queue->n; i++) {
        NM_FREE(queue->jobs[i].folder, queue->jobs[i].log_path);
        nm_settings_release(&queue->jobs[i].continued);
        nm_run_result_release(&queue->jobs[i].result);
    }
    free(queue->jobs);
    queue->jobs = NULL;
    queue->n = queue->capacity = 0;
}

void nm_run_queue_release(nm_run_queue *queue)
{
    nm_run_queue_clear(queue);
    nm_settings_release(&queue->settings);
    if (queue->lock > 0)
        close(queue->lock);
    *queue = (nm_run_queue){0};
}

enum { TAIL_BYTES = 8192 };

static void read_tail(const char *path, char tail[TAIL_BYTES])
{
    *tail = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return;
    if (fseek(file, -(long)TAIL_BYTES + 1, SEEK_END))
        rewind(file);
    tail[fread(tail, 1, TAIL_BYTES - 1, file)] = 0;
    fclose(file);
}

/* Cuts the last line off a text and returns it. */
static char *cut_last_line(char *text)
{
    char *newline = strrchr(text, '\n');
    if (newline)
        *newline = 0;
    return newline ? newline + 1 : text;
}

static void copy_line(char *line, size_t bytes, const char *text)
{
    snprintf(line, bytes, "%s", text);
    nm_utf8_trim(line);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
}

/* An empty line, or one that a launcher draws above and below its messages. */
static bool is_frame(const char *line)
{
    return strspn(line, "-=*") == strlen(line);
}

void nm_last_line(const char *path, char *line, size_t bytes)
{
    char tail[TAIL_BYTES], *last;
    read_tail(path, tail);
    do {
        last = cut_last_line(tail);
    } while (last > tail && (*last == ' ' || is_frame(last)));
    copy_line(line, bytes, last);
}

static const char message_prefix[] = "norma: ";

void nm_last_message(const char *path, char *line, size_t bytes)
{
    char tail[TAIL_BYTES], *last;
    bool found;
    read_tail(path, tail);
    do {
        last = cut_last_line(tail);
        found = !strncmp(last, message_prefix, strlen(message_prefix));
    } while (last > tail && !found);
    copy_line(line, bytes, found ? last : "");
}

static bool is_excluded(const nm_variant *variant, const char *key)
{
    for (size_t i = 0; i < variant->excluded.n; i++)
        if (!strcmp(variant->excluded.list[i].key, key))
            return true;
    return false;
}

static nm_settings run_settings(const nm_run_queue *queue, const nm_variant *variant, int64_t seed)
{
    nm_settings all = {0};
    char number[32];
    const nm_settings *const lists[] = {&queue->settings, variant ? &variant->settings : NULL};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; lists[k] && i < lists[k]->n; i++) {
            const nm_setting *setting = &lists[k]->list[i];
            if (!k && variant && is_excluded(variant, setting->key))
                continue;
            bool norm = queue->norm_option && !strcmp(setting->key, "model.norm");
            nm_settings_add(&all, norm ? queue->norm_option : setting->key, setting->value);
        }
    snprintf(number, sizeof number, "%lld", (long long)seed);
    nm_settings_add(&all, "train.seed", number);
    return all;
}

nm_status nm_run_queue_options(const nm_run_queue *queue, const nm_variant *variant, int64_t seed,
                               nm_options **out, nm_error *err)
{
    nm_options *options = *out = nm_options_create();
    if (queue->add_options)
        queue->add_options(options);
    nm_train_options_add(options, queue->task);
    nm_probe_options_add(options);
    NM_AUTO(nm_settings_release) nm_settings all = run_settings(queue, variant, seed);
    nm_status status = NM_OK;
    NM_AUTO_FREE char *message = NULL; /* not needed: the runs print it */
    int64_t size;
    for (size_t i = 0; i < all.n && status == NM_OK; i++)
        status = nm_options_set(options, all.list[i].key, all.list[i].value, NM_ORIGIN_COMMAND, err);
    NM_THEN(status, nm_options_read_profile(options, queue->recipe, queue->profile, err));
    const nm_recipe_source recipe = {.name = queue->recipe};
    NM_THEN(status, nm_recipe_apply_sizes(options, queue->task, &recipe, nm_options_find(options, "data"),
                                          &size, err));
    NM_THEN(status, nm_tune_apply(options, queue->task, &recipe, &message, err));
    if (status != NM_OK) {
        nm_options_free(options);
        *out = NULL;
    }
    return status;
}

char **nm_run_queue_arguments(const nm_run_queue *queue, const nm_run_job *job)
{
    NM_AUTO(nm_settings_release) nm_settings all = run_settings(queue, job->variant, job->result.seed);
    char number[32];
    for (size_t i = 0; i < job->continued.n; i++)
        nm_settings_add(&all, job->continued.list[i].key, job->continued.list[i].value);
    snprintf(number, sizeof number, "%lld", (long long)queue->share.threads);
    if (queue->share.threads)
        nm_settings_add(&all, "device.threads", number);
    nm_settings_add(&all, "run.folder", job->folder);
    nm_settings_add(&all, "run.report_seconds", "1");
    nm_settings_add(&all, "run.resume", "yes");
    char **list = NULL, *launch = nm_duplicate(queue->launch ? queue->launch : ""), *rest = launch, *word;
    size_t n = 0, capacity = 0;
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        NM_APPEND(list, n, capacity, nm_duplicate(word));
    }
    free(launch);
    NM_RESERVE(list, n + all.n + 4, capacity);
    list[n++] = nm_duplicate(queue->program);
    list[n++] = nm_duplicate("train");
    list[n++] = nm_duplicate(queue->recipe);
    for (size_t i = 0; i < all.n; i++)
        list[n++] = nm_format("--%s=%s", all.list[i].key, all.list[i].value);
    list[n] = NULL;
    return list;
}

void nm_run_arguments_free(char **list)
{
    for (size_t i = 0; list[i]; i++)
        free(list[i]);
    free(list);
}

/* Does not return. The kernel kills the run if its parent dies for any reason; otherwise the run could write
 * to a folder that the next comparison uses. The run has its own process group, because the parent forwards
 * Ctrl-C. */
static void exec_run(char **arguments, int log, int lock, pid_t parent, const sigset_t *mask)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDERR_FILENO);
    if (lock > 0)
        fcntl(lock, F_SETFD, 0); /* clears FD_CLOEXEC: only the runs inherit the lock */
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent)
        execvp(arguments[0], arguments);
    dprintf(STDERR_FILENO, "norma: cannot start %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

static nm_status start(const nm_run_queue *queue, nm_run_job *job, nm_error *err)
{
    int log = open(job->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0)
        return nm_fail(err, nm_file_error_status(errno), "%s: %s", job->log_path, strerror(errno));
    char **arguments = nm_run_queue_arguments(queue, job);
    sigset_t all, before;
    sigfillset(&all);
    pid_t parent = getpid();
    /* The child has the signal handlers of the parent until exec_run resets them: signals are blocked until
     * then. */
    sigprocmask(SIG_SETMASK, &all, &before);
    job->process = fork();
    if (job->process == 0)
        exec_run(arguments, log, queue->lock, parent, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(log);
    nm_run_arguments_free(arguments);
    if (job->process < 0)
        return nm_fail(err, NM_MEMORY, "cannot start a process: %s", strerror(errno));
    job->state = NM_RUN_RUNNING;
    job->begun = nm_clock();
    if (queue->on_started)
        queue->on_started(queue->user, job);
    return NM_OK;
}

void nm_run_job_finish(nm_run_job *job, int exit_code)
{
    nm_run_result *result = &job->result;
    job->state = NM_RUN_FINISHED;
    result->exit_code = exit_code;
    job->last_line[0] = 0;
    /* A launcher prints further messages after it. */
    if (exit_code >= NM_USAGE && exit_code <= NM_INTERRUPTED)
        nm_last_message(job->log_path, job->last_line, sizeof job->last_line);
    if (!job->last_line[0])
        nm_last_line(job->log_path, job->last_line, sizeof job->last_line);
    const char *message = job->last_line;
    message += strncmp(message, message_prefix, strlen(message_prefix)) ? 0 : strlen(message_prefix);
    if (exit_code > 128)
        snprintf(result->failure, sizeof result->failure, "terminated by signal %d", exit_code - 128);
    else if (exit_code)
        snprintf(result->failure, sizeof result->failure, "%s", message);
}

static size_t count(const nm_run_queue *queue, nm_run_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < queue->n; i++)
        n += queue->jobs[i].state == state;
    return n;
}

static void reap(nm_run_queue *queue)
{
    int wait_status;
    for (size_t i = 0; i < queue->n; i++) {
        nm_run_job *job = &queue->jobs[i];
        if (job->state != NM_RUN_RUNNING || waitpid(job->process, &wait_status, WNOHANG) != job->process)
            continue;
        nm_run_job_finish(job,
                          WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status));
        job->seconds = nm_clock() - job->begun;
        if (queue->on_finished)
            queue->on_finished(queue->user, job);
    }
}

static void signal_runs(const nm_run_queue *queue, int number)
{
    for (size_t i = 0; i < queue->n; i++)
        if (queue->jobs[i].state == NM_RUN_RUNNING)
            kill(queue->jobs[i].process, number);
}

/* Stops the runs and this process (Ctrl-Z), until it receives SIGCONT. The runs are not stopped by the
 * terminal, because each has its own process group. */
static void suspend(nm_run_queue *queue)
{
    *queue->suspend = 0;
    signal_runs(queue, SIGSTOP);
    kill(getpid(), SIGSTOP);
    signal_runs(queue, SIGCONT);
}

/* Interrupts all runs and waits for them; each finishes its update and writes a checkpoint. A run that is
 * stopped would receive SIGINT only when it continues. */
static void stop_all(nm_run_queue *queue)
{
    int wait_status;
    signal_runs(queue, SIGINT);
    signal_runs(queue, SIGCONT);
    for (size_t i = 0; i < queue->n; i++) {
        nm_run_job *job = &queue->jobs[i];
        while (job->state == NM_RUN_RUNNING && waitpid(job->process, &wait_status, 0) < 0 && errno == EINTR)
            continue;
        if (job->state == NM_RUN_RUNNING)
            job->state = NM_RUN_WAITING;
    }
}

void nm_run_queue_send_message(const nm_run_queue *queue, const char *text)
{
    if (queue->on_message)
        queue->on_message(queue->user, text);
}

bool nm_run_queue_score_finished(const nm_run_queue *queue)
{
    return queue->score_finished && queue->score_finished(queue->scorer);
}

static nm_status start_waiting(nm_run_queue *queue, nm_error *err)
{
    size_t scoring = nm_run_queue_score_finished(queue);
    for (size_t i = 0; i < queue->n && count(queue, NM_RUN_RUNNING) + scoring < (size_t)queue->share.jobs;
         i++)
        if (queue->jobs[i].state == NM_RUN_WAITING)
            NM_TRY(start(queue, &queue->jobs[i], err));
    return NM_OK;
}

nm_status nm_run_queue_train(nm_run_queue *queue, nm_error *err)
{
    enum { TICK = 100000 }; /* microseconds */
    nm_status status = NM_OK;
    while (status == NM_OK && count(queue, NM_RUN_FINISHED) < queue->n) {
        if (nm_stop_is_set(queue->stop))
            status = nm_fail(err, NM_INTERRUPTED, "interrupted; the same command continues the runs");
        else
            status = start_waiting(queue, err);
        if (status != NM_OK)
            break;
        usleep(TICK);
        if (queue->suspend && *queue->suspend)
            suspend(queue);
        reap(queue);
        if (queue->on_tick)
            queue->on_tick(queue->user, queue);
    }
    if (status != NM_OK)
        stop_all(queue);
    return status;
}

/* The runs inherit the descriptor, so the folder is locked while any of them is alive; those of a killed
 * comparison may still be exiting. */
nm_status nm_run_queue_lock(nm_run_queue *queue, const char *folder, nm_error *err)
{
    enum { TRIES = 100, PAUSE = 100000 /* microseconds */ };
    NM_AUTO_FREE char *path = nm_path_join(folder, "lock");
    queue->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    NM_TRY(queue->lock < 0 ? nm_fail(err, nm_file_error_status(errno), "%s: %s", path, strerror(errno))
                           : NM_OK);
    for (int i = 0; i < TRIES; i++) {
        if (!flock(queue->lock, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
            return NM_OK;
        usleep(PAUSE);
    }
    return nm_fail(err, NM_USAGE, "%s: another comparison, or one of its runs, uses this folder", folder);
}
