#include "experiment/slurm_array.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "base/utf8_cut.h"
#include "base/buffer.h"

enum { MAX_TASKS = 1000, TICK = 100000 /* microseconds */ };
static const double first_pause = 0.5, longest_pause = 10; /* seconds between two calls of squeue */
/* On a network file system, RUN.exit may become visible after squeue has reported the end of the task. */
static const double exit_file_delay = 10; /* seconds */

typedef struct array_file { /* FOLDER/slurm/N.runs */
    long number;
    size_t n, capacity;
    struct array_task {
        nm_run_job *job; /* NULL: none of this comparison */
        bool same_key;
    } * tasks;
} array_file;

typedef struct task_state { /* the task of queue->jobs[i] */
    bool submitted, listed; /* submitted: there is a task; listed: it is in Slurm's queue */
    char id[64], log_path[1024];
    double ended; /* nm_clock() when the task was first missing in Slurm's queue; 0: it is listed */
} task_state;

typedef struct slurm {
    nm_run_queue *queue;
    const char *options;
    char *folder, *name; /* FOLDER/slurm; name of the job arrays without their number */
    array_file *arrays;
    size_t n_arrays, arrays_capacity;
    task_state *tasks; /* [queue->n] */
} slurm;

static void exec_command(char *const *arguments, int output)
{
    setpgid(0, 0); /* Ctrl-C must not interrupt a submission */
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(arguments[0], arguments);
    dprintf(STDERR_FILENO, "cannot start %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

/* Runs a program. output: text on its standard output and standard error. NM_IO with this text unless the
 * exit code is 0. */
static nm_status run_command(char *const *arguments, nm_buffer *output, nm_error *err)
{
    int ends[2], wait_status;
    char block[4096];
    ssize_t n;
    nm_buffer_clear(output);
    if (pipe2(ends, O_CLOEXEC))
        return nm_fail(err, nm_file_error_status(errno), "%s: no pipe: %s", arguments[0], strerror(errno));
    pid_t process = fork();
    if (process == 0)
        exec_command(arguments, ends[1]);
    close(ends[1]);
    while (process > 0 && ((n = read(ends[0], block, sizeof block)) > 0 || (n < 0 && errno == EINTR)))
        nm_buffer_append(output, block, n > 0 ? (size_t)n : 0);
    close(ends[0]);
    if (process < 0)
        return nm_fail(err, NM_MEMORY, "cannot start a process: %s", strerror(errno));
    while (waitpid(process, &wait_status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(wait_status) && !WEXITSTATUS(wait_status))
        return NM_OK;
    nm_buffer_join_lines(output);
    return nm_fail(err, NM_IO, "%s failed: %.700s", arguments[0], output->data);
}

/* The state of a task that has left the queue, such as CANCELLED or TIMEOUT; "" if slurmctld no longer has a
 * record of it. */
static void read_end_state(const char *id, char *state, size_t bytes)
{
    NM_AUTO(nm_buffer_release) nm_buffer output = {0};
    nm_error err;
    char *arguments[] = {"scontrol", "--oneliner", "show", "job", nm_duplicate(id), NULL};
    *state = 0;
    const char *found =
        run_command(arguments, &output, &err) == NM_OK ? strstr(output.data, "JobState=") : NULL;
    if (found)
        snprintf(state, bytes, "%.*s", (int)strcspn(found + 9, " \n"), found + 9);
    free(arguments[4]);
}

static const char *name_of(const nm_run_job *job)
{
    return strrchr(job->folder, '/') + 1;
}

static char *exit_path(const nm_run_job *job)
{
    return nm_format("%s.exit", job->folder);
}

/* The exit code in RUN.exit; -1 if there is none, or if it is from a run with other settings. A run that
 * SIGTERM ended before it could handle the signal also counts as interrupted: Slurm sends SIGTERM before a
 * requeue and at a time limit. */
static int read_exit_code(const nm_run_job *job)
{
    NM_AUTO_FREE char *text = NULL, *path = exit_path(job);
    char key[NM_RUN_KEY_BYTES];
    int code = -1;
    nm_error err;
    if (nm_file_read_optional(path, &text, &err) == NM_OK && text &&
        (sscanf(text, "%d %63s", &code, key) != 2 || strcmp(key, job->key)))
        code = -1;
    return code == 128 + SIGTERM ? NM_INTERRUPTED : code;
}

/* Opening a folder makes network file systems update their cache of its entries. */
static void refresh(const slurm *self)
{
    DIR *folder = opendir(self->folder);
    if (folder)
        closedir(folder);
    NM_AUTO_FREE char *parent = nm_path_join(self->folder, "..");
    if ((folder = opendir(parent)) != NULL)
        closedir(folder);
}

static void add_task(const slurm *self, array_file *array, const char *line)
{
    NM_GROW(array->tasks, array->n, array->capacity);
    struct array_task *task = &array->tasks[array->n++];
    *task = (struct array_task){0};
    size_t key = strcspn(line, " ");
    for (size_t i = 0; i < self->queue->n && line[key] && !task->job; i++)
        if (!strcmp(name_of(&self->queue->jobs[i]), line + key + 1))
            task->job = &self->queue->jobs[i];
    task->same_key = task->job && strlen(task->job->key) == key && !strncmp(task->job->key, line, key);
}

static nm_status find_array(slurm *self, long number, array_file **out, nm_error *err)
{
    for (size_t i = 0; i < self->n_arrays; i++)
        if (self->arrays[i].number == number) {
            *out = &self->arrays[i];
            return NM_OK;
        }
    NM_AUTO_FREE char *path = nm_format("%s/%ld.runs", self->folder, number), *text = NULL;
    char *rest, *line;
    NM_TRY(nm_file_read(path, &text, NULL, err));
    NM_GROW(self->arrays, self->n_arrays, self->arrays_capacity);
    *out = &self->arrays[self->n_arrays++];
    **out = (array_file){.number = number};
    for (rest = text; (line = strtok_r(rest, "\n", &rest)) != NULL;)
        add_task(self, *out, line);
    return NM_OK;
}

static bool is_waiting(const char *state)
{
    static const char *const started[] = {"RUNNING",   "COMPLETING", "SIGNALING",
                                          "STAGE_OUT", "STOPPED",    "SUSPENDED"};
    for (size_t i = 0; i < sizeof started / sizeof *started; i++)
        if (!strcmp(state, started[i]))
            return false;
    return true;
}

/* A line "NAME JOB INDEX STATE REASON" of squeue. */
static nm_status read_listed(slurm *self, const char *line, nm_error *err)
{
    char name[128], job_id[32], state[32];
    long index, number;
    int reason = 0;
    size_t length = strlen(self->name);
    if (sscanf(line, "%127s %31s %ld %31s %n", name, job_id, &index, state, &reason) < 4 ||
        strncmp(name, self->name, length) || (number = atol(name + length)) < 1)
        return NM_OK;
    array_file *array;
    NM_TRY(find_array(self, number, &array, err));
    const struct array_task *of = index >= 0 && (size_t)index < array->n ? &array->tasks[index] : NULL;
    if (!of || !of->job || of->job->state == NM_RUN_FINISHED)
        return NM_OK;
    if (!of->same_key)
        return nm_fail(err, NM_USAGE,
                       "%s is being trained with other settings, by Slurm task %s_%ld: cancel it (scancel "
                       "%s_%ld) or wait",
                       of->job->folder, job_id, index, job_id, index);
    task_state *task = &self->tasks[of->job - self->queue->jobs];
    *task = (task_state){.submitted = true, .listed = true};
    snprintf(task->id, sizeof task->id, "%s_%ld", job_id, index);
    snprintf(task->log_path, sizeof task->log_path, "%s/%ld-%ld.txt", self->folder, number, index);
    of->job->state = is_waiting(state) ? NM_RUN_WAITING : NM_RUN_RUNNING;
    snprintf(of->job->last_line, sizeof of->job->last_line, "%s",
             strcmp(line + reason, "None") ? line + reason : "");
    return NM_OK;
}

/* Updates the tasks and the states of the runs in Slurm's queue. NM_IO if squeue fails; then nothing has
 * changed. */
static nm_status read_queue(slurm *self, nm_error *err)
{
    static char *const arguments[] = {"squeue", "--me", "--noheader", "--array", "--format=%j %F %K %T %r",
                                      NULL};
    NM_AUTO(nm_buffer_release) nm_buffer output = {0};
    nm_status status = run_command(arguments, &output, err);
    for (size_t i = 0; i < self->queue->n && status == NM_OK; i++)
        self->tasks[i].listed = false;
    for (char *rest = output.data, *line; status == NM_OK && (line = strtok_r(rest, "\n", &rest)) != NULL;)
        status = read_listed(self, line, err);
    for (size_t i = 0; i < self->queue->n && status == NM_OK; i++)
        if (self->tasks[i].submitted && !self->tasks[i].listed && self->tasks[i].ended == 0)
            self->tasks[i].ended = nm_clock();
    return status;
}

static void write_task(const slurm *self, size_t index, const nm_run_job *job, FILE *out)
{
    char **arguments = nm_run_queue_arguments(self->queue, job);
    fprintf(out, "%zu)\n    key=%s run=", index, job->key);
    nm_shell_write_word(job->folder, out);
    fputs("\n    set --", out);
    for (size_t i = 0; arguments[i]; i++) {
        putc(' ', out);
        nm_shell_write_word(arguments[i], out);
    }
    fputs(" ;;\n", out);
    nm_run_arguments_free(arguments);
}

/* SIGTERM makes the run write a checkpoint and exit. The shell catches the signal, so that it can record the
 * exit code. */
static nm_status write_script(const slurm *self, const char *path, nm_run_job *const *jobs, size_t n,
                              nm_error *err)
{
    nm_file_writer writer;
    NM_AUTO_FREE char *folder = getcwd(NULL, 0);
    nm_status status = folder
                           ? nm_file_writer_open(&writer, path, err)
                           : nm_fail(err, nm_file_error_status(errno), "current folder: %s", strerror(errno));
    if (status == NM_OK) {
        FILE *out = writer.stream;
        fputs("#!/bin/sh\n# Runs of a comparison, one for each task of a job array; written by norma "
              "compare.\ncd ",
              out);
        nm_shell_write_word(folder, out);
        fputs(" || exit 3\ncase $SLURM_ARRAY_TASK_ID in\n", out);
        for (size_t i = 0; i < n; i++)
            write_task(self, i, jobs[i], out);
        fputs("*)\n    echo \"no run has the number $SLURM_ARRAY_TASK_ID\" >&2\n    exit 2 ;;\nesac\n", out);
        if (!self->queue->share.threads)
            fputs("set -- \"$@\" \"--device.threads=${SLURM_CPUS_PER_TASK:-1}\"\n", out);
        fputs("rm -f \"$run.exit\"\ntrap : TERM\n\"$@\" 2>>\"$run.txt\"\ncode=$?\n"
              "echo \"$code $key\" >\"$run.exit.new\" && mv -f \"$run.exit.new\" \"$run.exit\"\nexit $code\n",
              out);
        status = nm_file_writer_commit(&writer, err);
    }
    return status;
}

static nm_status write_runs(const char *path, nm_run_job *const *jobs, size_t n, nm_error *err)
{
    nm_file_writer writer;
    NM_TRY(nm_file_writer_open(&writer, path, err));
    for (size_t i = 0; i < n; i++)
        fprintf(writer.stream, "%s %s\n", jobs[i]->key, name_of(jobs[i]));
    return nm_file_writer_commit(&writer, err);
}

static void add_word(char ***words, size_t *n, size_t *capacity, char *word)
{
    NM_GROW(*words, *n, *capacity);
    (*words)[(*n)++] = word;
}

/* The sbatch command; ends with NULL, freed with nm_run_arguments_free. */
static char **sbatch_arguments(const slurm *self, long number, const char *script, size_t n)
{
    NM_AUTO_FREE char *options = nm_duplicate(self->options);
    char **words = NULL, *rest = options, *word;
    size_t count = 0, capacity = 0;
    add_word(&words, &count, &capacity, nm_duplicate("sbatch"));
    add_word(&words, &count, &capacity, nm_duplicate("--requeue"));
    while ((word = strtok_r(rest, " ", &rest)) != NULL)
        add_word(&words, &count, &capacity, nm_duplicate(word));
    char limit[32] = "";
    if ((size_t)self->queue->share.jobs < n)
        snprintf(limit, sizeof limit, "%%%lld", (long long)self->queue->share.jobs);
    add_word(&words, &count, &capacity, nm_duplicate("--parsable"));
    add_word(&words, &count, &capacity, nm_format("--job-name=%s%ld", self->name, number));
    add_word(&words, &count, &capacity, nm_format("--array=0-%zu%s", n - 1, limit));
    NM_AUTO(nm_buffer_release) nm_buffer output = {0}; /* a % in the path would be a pattern */
    for (const char *at = self->folder; *at; at++)
        nm_buffer_append(&output, *at == '%' ? "%%" : at, *at == '%' ? 2 : 1);
    add_word(&words, &count, &capacity, nm_format("--output=%s/%ld-%%a.txt", output.data, number));
    add_word(&words, &count, &capacity, nm_duplicate("--open-mode=append"));
    add_word(&words, &count, &capacity, nm_duplicate(script));
    add_word(&words, &count, &capacity, NULL);
    return words;
}

static nm_status next_number(const slurm *self, long *number, nm_error *err)
{
    bool found = true;
    for (*number = 0; found;) {
        NM_AUTO_FREE char *path = nm_format("%s/%ld.runs", self->folder, ++*number);
        NM_TRY(nm_file_find(path, &found, err));
    }
    return NM_OK;
}

static nm_status submit_array(slurm *self, nm_run_job *const *jobs, size_t n, nm_error *err)
{
    long number;
    NM_TRY(next_number(self, &number, err));
    NM_AUTO_FREE char *script = nm_format("%s/%ld.sh", self->folder, number),
                      *runs = nm_format("%s/%ld.runs", self->folder, number);
    NM_AUTO(nm_buffer_release) nm_buffer output = {0};
    nm_status status = write_script(self, script, jobs, n, err);
    NM_THEN(status, write_runs(runs, jobs, n, err));
    for (size_t i = 0; i < n && status == NM_OK; i++) { /* exit codes from an earlier array */
        NM_AUTO_FREE char *path = exit_path(jobs[i]);
        if (unlink(path) && errno != ENOENT)
            status = nm_fail(err, nm_file_error_status(errno), "%s: %s", path, strerror(errno));
    }
    if (status == NM_OK) {
        char **arguments = sbatch_arguments(self, number, script, n);
        status = run_command(arguments, &output, err);
        nm_run_arguments_free(arguments);
    }
    if (status != NM_OK) { /* nothing has been submitted */
        unlink(script);
        unlink(runs);
    }
    if (status == NM_OK) { /* "ID" or "ID;CLUSTER", after warnings */
        const char *id = output.data;
        while (*id && !(*id >= '0' && *id <= '9' && (id == output.data || id[-1] == '\n')))
            id++;
        int length = (int)strspn(id, "0123456789");
        for (size_t i = 0; i < n; i++) {
            task_state *task = &self->tasks[jobs[i] - self->queue->jobs];
            *task = (task_state){.submitted = true, .listed = true};
            snprintf(task->id, sizeof task->id, "%.*s_%zu", length, id, i);
            snprintf(task->log_path, sizeof task->log_path, "%s/%ld-%zu.txt", self->folder, number, i);
        }
        NM_AUTO_FREE char *text =
            nm_format("Slurm job %.*s (%s%ld): %zu runs", length, id, self->name, number, n);
        nm_run_queue_send_message(self->queue, text);
    }
    return status;
}

static nm_status submit_missing(slurm *self, nm_error *err)
{
    const nm_run_queue *queue = self->queue;
    NM_AUTO_FREE nm_run_job **jobs = nm_allocate((queue->n + 1) * sizeof *jobs);
    size_t n = 0, listed = 0;
    nm_status status = NM_OK;
    for (size_t i = 0; i < queue->n; i++) {
        bool missing = queue->jobs[i].state != NM_RUN_FINISHED && !self->tasks[i].listed;
        listed += self->tasks[i].listed;
        if (missing)
            jobs[n++] = &queue->jobs[i];
    }
    if (listed) {
        NM_AUTO_FREE char *text = nm_format("%zu runs are in Slurm's queue already", listed);
        nm_run_queue_send_message(queue, text);
    }
    for (size_t at = 0; at < n && status == NM_OK; at += MAX_TASKS)
        status = submit_array(self, jobs + at, n - at < MAX_TASKS ? n - at : MAX_TASKS, err);
    return status;
}

static void finish(const slurm *self, nm_run_job *job, int code)
{
    nm_run_job_finish(job, code);
    if (code)
        snprintf(job->result.failure + strlen(job->result.failure),
                 sizeof job->result.failure - strlen(job->result.failure), "; log: %.250s", job->log_path);
    nm_utf8_trim(job->result.failure);
    if (self->queue->on_finished)
        self->queue->on_finished(self->queue->user, job);
}

/* The task ended without a result of the run: it was canceled, exceeded a limit, or lost its node. */
static void finish_lost(const slurm *self, size_t i, const char *state)
{
    nm_run_job *job = &self->queue->jobs[i];
    const task_state *task = &self->tasks[i];
    char line[200];
    nm_last_line(task->log_path, line, sizeof line);
    job->state = NM_RUN_FINISHED;
    job->result.exit_code = NM_INTERRUPTED;
    snprintf(job->result.failure, sizeof job->result.failure,
             "Slurm task %s has ended without a result%s%s%s%s; log: %.180s", task->id, *state ? ": " : "",
             state, *line ? ": " : "", line, *line ? task->log_path : job->log_path);
    nm_utf8_trim(job->result.failure);
    if (self->queue->on_finished)
        self->queue->on_finished(self->queue->user, job);
}

/* Finishes the runs whose tasks have ended. Exit codes are final, except that of an interrupted run, which
 * Slurm may requeue. */
static void check_ends(const slurm *self)
{
    refresh(self);
    for (size_t i = 0; i < self->queue->n; i++) {
        nm_run_job *job = &self->queue->jobs[i];
        const task_state *task = &self->tasks[i];
        if (job->state == NM_RUN_FINISHED || !task->submitted ||
            (task->listed && job->state == NM_RUN_WAITING))
            continue;
        int code = read_exit_code(job);
        char state[64];
        if (code >= 0 && code != NM_INTERRUPTED) {
            finish(self, job, code);
        } else if (!task->listed) {
            read_end_state(task->id, state, sizeof state);
            bool known =
                code == NM_INTERRUPTED || (*state && strcmp(state, "COMPLETED") && strcmp(state, "FAILED"));
            if (known || nm_clock() - task->ended > exit_file_delay)
                finish_lost(self, i, state);
        }
    }
}

/* Finishes the runs whose training ended successfully under an earlier call; their models are scored without
 * a task. */
static void find_finished(const slurm *self)
{
    for (size_t i = 0; i < self->queue->n; i++) {
        nm_run_job *job = &self->queue->jobs[i];
        if (job->state == NM_RUN_WAITING && !self->tasks[i].listed && read_exit_code(job) == 0)
            nm_run_job_finish(job, 0);
    }
}

static bool is_finished(const nm_run_queue *queue)
{
    for (size_t i = 0; i < queue->n; i++)
        if (queue->jobs[i].state != NM_RUN_FINISHED)
            return false;
    return true;
}

/* A failure of squeue is not an error, because slurmctld may be restarting; it is shown as the state of the
 * runs. */
static nm_status update_queue(slurm *self, nm_error *err)
{
    nm_status status = read_queue(self, err);
    if (status != NM_IO)
        return status;
    for (size_t i = 0; i < self->queue->n; i++)
        if (self->queue->jobs[i].state == NM_RUN_WAITING)
            snprintf(self->queue->jobs[i].last_line, sizeof self->queue->jobs[i].last_line, "%.200s",
                     err->text);
    return NM_OK;
}

static nm_status wait_for_tasks(slurm *self, nm_error *err)
{
    nm_run_queue *queue = self->queue;
    double pause = first_pause, next_poll = 0, next_check = 0;
    while (!is_finished(queue)) {
        if (nm_stop_is_set(queue->stop))
            return nm_fail(err, NM_INTERRUPTED,
                           "interrupted; the runs continue in Slurm's queue, and the same command waits for "
                           "them (scancel --me "
                           "--name=NAME ends a job; squeue --me lists the names)");
        double now = nm_clock();
        if (now >= next_poll) {
            NM_TRY(update_queue(self, err));
            next_poll = nm_clock() + pause;
            pause = 1.3 * pause < longest_pause ? 1.3 * pause : longest_pause;
        }
        if (now >= next_check) {
            check_ends(self);
            next_check = now + first_pause;
        }
        nm_run_queue_score_finished(queue);
        if (queue->on_tick)
            queue->on_tick(queue->user, queue);
        if (!is_finished(queue))
            usleep(TICK);
    }
    return NM_OK;
}

/* NM_USAGE for options of sbatch that submit_array sets, or that would change what is submitted. */
static nm_status check_options(const char *options, nm_error *err)
{
    static const char *const used[] = {"--array", "--job-name", "--output", "--error", "--open-mode",
                                       "--chdir", "--parsable", "--wait",   "--wrap",  "--test-only",
                                       "--quiet", "-a",         "-J",       "-o",      "-e",
                                       "-D",      "-W",         "-Q"};
    if (options[strspn(options, " ")] != '-')
        return nm_fail(err, NM_USAGE,
                       "compare.slurm = %.100s: expected options of sbatch, such as --time=2:00:00 --mem=4G",
                       options);
    for (const char *at = options; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " "), name = strncmp(at, "--", 2) ? 2 : strcspn(at, "= ");
        for (size_t i = 0; i < sizeof used / sizeof *used; i++)
            if (at[0] == '-' && strlen(used[i]) == name && !strncmp(at, used[i], name))
                return nm_fail(err, NM_USAGE, "compare.slurm: %s of sbatch is set by norma compare", used[i]);
        at += length;
    }
    return NM_OK;
}

static nm_status train(slurm *self, nm_error *err)
{
    NM_TRY(read_queue(self, err));
    if (self->queue->mismatch.status != NM_OK) {
        *err = self->queue->mismatch;
        return err->status;
    }
    find_finished(self);
    NM_TRY(submit_missing(self, err));
    return wait_for_tasks(self, err);
}

nm_status nm_slurm_array_train(nm_run_queue *queue, const char *folder, const char *options, nm_error *err)
{
    NM_TRY(check_options(options, err));
    if (is_finished(queue) && queue->mismatch.status == NM_OK)
        return NM_OK;
    for (size_t i = 0; i < queue->n; i++)
        if (strchr(queue->jobs[i].folder, '\n'))
            return nm_fail(err, NM_USAGE, "%s: a run's name with a line end", queue->jobs[i].variant->name);
    slurm self = {.queue = queue, .options = options, .folder = nm_path_join(folder, "slurm")};
    nm_status status = nm_folder_create(self.folder, err);
    NM_AUTO_FREE char *real = status == NM_OK ? realpath(self.folder, NULL) : NULL;
    if (status == NM_OK && !real)
        status = nm_fail(err, nm_file_error_status(errno), "%s: %s", self.folder, strerror(errno));
    if (status == NM_OK) {
        self.name = nm_format("norma-%08x-", (unsigned)XXH3_64bits(real, strlen(real)));
        self.tasks = nm_allocate((queue->n + 1) * sizeof *self.tasks);
        status = train(&self, err);
    }
    for (size_t i = 0; i < self.n_arrays; i++)
        free(self.arrays[i].tasks);
    NM_FREE(self.arrays, self.tasks, self.name, self.folder);
    return status;
}
