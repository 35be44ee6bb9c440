/* norma compare: trains variants of one recipe, several at a time, each in a process of its own so that an interruption
 * or a divergence of one leaves the others alone, and prints one table. Finished runs are taken as they are; unfinished
 * ones go on where they stopped. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/compare_table.h"
#include "task/tasks.h"
#include "train/trainer.h"

typedef struct compare_config { /* section [compare] */
    const char *norms, *folder, *format;
    int64_t seeds, jobs, tid_batches, samples;
} compare_config;

#define ROW(field, initial, min, max, help) NM_OPTION(compare_config, field, initial, min, max, help)
static const nm_option compare_options[] = {
    ROW(norms, "layer,scale+fix,batch,power,rbn", 0, 0,
        "variants, by comma; NORM+fix adds FixNorm; NORM:key=value sets more"),
    ROW(seeds, "1", 1, 1000, "runs of each variant, with seeds 1, 2, ..."),
    ROW(jobs, "2", 1, 1024, "runs at a time; each gets its share of the cores"),
    ROW(folder, "", 0, 0, "where the runs live; empty: runs/NAME-compare of the recipe"),
    ROW(tid_batches, "50", 0, 1e9, "training batches TID is measured on; 0: an epoch"),
    ROW(samples, "3", 0, 1000, "examples of the test set shown below the table, by the best run"),
    NM_CHOICE(compare_config, format, "text", "text|markdown|json", "of the table"),
    {0}};

typedef struct job {
    char *variant, *folder, *log_path;
    int64_t seed;
    pid_t process; /* 0: not started; -1: done */
    int code;
} job;

typedef struct queue {
    const nm_cli *cli;
    const compare_config *config;
    const char *recipe;
    job *jobs;
    size_t n, capacity;
} queue;

typedef struct run_choice { /* section [run], handed on to the runs */
    const char *task;
    bool small;
} run_choice;

static const nm_option run_options[] = {
    NM_OPTION(run_choice, task, "translation", 0, 0, "kind of work, where the recipe does not say it"),
    NM_OPTION(run_choice, small, "false", 0, 1, "the recipe's form for a small machine"),
    {0}};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* ---- the queue ---- */

static void fill_queue(queue *q, const char *folder)
{
    char *copy = nm_duplicate(q->config->norms), *rest = copy;
    for (char *variant; (variant = strsep(&rest, ",")) != NULL;)
        for (int64_t seed = 1; *variant && seed <= q->config->seeds; seed++) {
            NM_GROW(q->jobs, q->n, q->capacity);
            char *run = nm_format("%s/%s-%lld", folder, variant, (long long)seed);
            q->jobs[q->n++] = (job){.variant = nm_duplicate(variant),
                                    .folder = run,
                                    .log_path = nm_format("%s.txt", run),
                                    .seed = seed};
        }
    free(copy);
}

typedef struct words { /* an argument list */
    char **list;
    size_t n, capacity;
} words;

static void add_word(words *w, char *word)
{
    NM_GROW(w->list, w->n, w->capacity);
    w->list[w->n++] = word;
}

static void add_setting(words *w, const char *key, const char *value)
{
    add_word(w, nm_format("--%s", key));
    add_word(w, nm_duplicate(value));
}

/* "scale+fix:norm.scale.trainable=false" */
static void add_variant(words *w, const char *variant)
{
    char *copy = nm_duplicate(variant), *rest = copy, *name = strsep(&rest, ":"), *plus = strchr(name, '+');
    if (plus) {
        *plus = 0;
        add_setting(w, "model.fixnorm", strcmp(plus + 1, "fix") ? plus + 1 : "true");
    }
    add_setting(w, "model.norm", name);
    for (char *setting; (setting = strsep(&rest, ":")) != NULL;) {
        char *equals = strchr(setting, '=');
        if (equals)
            *equals = 0;
        add_setting(w, setting, equals ? equals + 1 : "true");
    }
    free(copy);
}

static words train_arguments(const queue *q, const job *j)
{
    words w = {0};
    char number[32];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    add_word(&w, nm_duplicate("norma"));
    add_word(&w, nm_duplicate("train"));
    add_word(&w, nm_duplicate(q->recipe));
    snprintf(number, sizeof number, "%lld",
             (long long)(cores > q->config->jobs ? cores / q->config->jobs : 1));
    add_setting(&w, "device.threads", number);
    for (size_t i = 0; i < q->cli->n_settings; i += 2)
        if (strncmp(q->cli->settings[i], "compare.", 8))
            add_setting(&w, q->cli->settings[i], q->cli->settings[i + 1]);
    add_variant(&w, j->variant);
    snprintf(number, sizeof number, "%lld", (long long)j->seed);
    add_setting(&w, "train.seed", number);
    add_setting(&w, "run.folder", j->folder);
    add_setting(&w, "run.report_seconds", "1");
    add_setting(&w, "run.resume", "true");
    add_word(&w, NULL);
    return w;
}

static nm_status start(const queue *q, job *j, nm_error *err)
{
    words w = train_arguments(q, j);
    fflush(NULL);
    j->process = fork();
    if (j->process == 0) {
        int log = open(j->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (log >= 0)
            dup2(log, STDERR_FILENO);
        setpgid(0, 0); /* a Ctrl-C comes to us, and we hand it on once */
        execv("/proc/self/exe", w.list);
        _exit(127);
    }
    for (size_t i = 0; i < w.n; i++)
        free(w.list[i]);
    free(w.list);
    return j->process < 0 ? nm_fail(err, NM_MEMORY, "cannot start a process: %s", strerror(errno)) : NM_OK;
}

static size_t count_running(const queue *q)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++)
        n += q->jobs[i].process > 0;
    return n;
}

static void collect(queue *q)
{
    int code;
    for (size_t i = 0; i < q->n; i++) {
        job *j = &q->jobs[i];
        if (j->process > 0 && waitpid(j->process, &code, WNOHANG) == j->process) {
            j->process = -1;
            j->code = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
        }
    }
}

/* The end of a run's own progress: the last line it wrote. */
static void last_line(const char *path, char *line, size_t bytes)
{
    char tail[512] = "";
    FILE *file = fopen(path, "rb");
    if (file) {
        if (fseek(file, -(long)sizeof tail + 1, SEEK_END))
            rewind(file);
        tail[fread(tail, 1, sizeof tail - 1, file)] = 0;
        fclose(file);
    }
    size_t end = strlen(tail);
    while (end && tail[end - 1] == '\n')
        tail[--end] = 0;
    const char *start = strrchr(tail, '\n');
    snprintf(line, bytes, "%s", start ? start + 1 : tail);
}

/* On a terminal one line for each running variant, redrawn in place; elsewhere now and then a line. */
static void show(const queue *q, bool terminal, int *drawn)
{
    char line[128];
    if (terminal && *drawn)
        fprintf(stderr, "\033[%dA", *drawn);
    *drawn = 0;
    for (size_t i = 0; i < q->n; i++) {
        if (q->jobs[i].process <= 0)
            continue;
        last_line(q->jobs[i].log_path, line, sizeof line);
        fprintf(stderr, "%s%-12.12s %.100s\n", terminal ? "\r\033[K" : "", q->jobs[i].variant, line);
        ++*drawn;
    }
    if (terminal)
        fputs("\033[J", stderr);
}

static void stop_all(queue *q)
{
    for (size_t i = 0; i < q->n; i++)
        if (q->jobs[i].process > 0)
            kill(q->jobs[i].process, SIGINT);
    for (size_t i = 0; i < q->n; i++)
        if (q->jobs[i].process > 0)
            waitpid(q->jobs[i].process, NULL, 0);
}

static nm_status run_queue(queue *q, nm_error *err)
{
    bool terminal = isatty(STDERR_FILENO);
    int drawn = 0;
    size_t next = 0;
    for (unsigned tick = 0; next < q->n || count_running(q); tick++) {
        while (!stopped && next < q->n && count_running(q) < (size_t)q->config->jobs)
            NM_TRY(start(q, &q->jobs[next++], err));
        usleep(200000);
        collect(q);
        if (stopped) {
            stop_all(q);
            return nm_fail(err, NM_INTERRUPTED, "stopped; the same command goes on where the runs are");
        }
        if (tick % (terminal ? 2 : 100) == 0)
            show(q, terminal, &drawn);
    }
    return NM_OK;
}

/* ---- the table ---- */

static nm_status measure_all(const queue *q, compare_table *table, nm_error *err)
{
    for (size_t i = 0; i < q->n; i++) {
        const job *j = &q->jobs[i];
        compare_row *row = compare_table_add(table, j->variant, j->seed);
        row->exit_code = j->code;
        if (j->code == NM_OK)
            NM_TRY(compare_measure(row, j->folder, q->config->tid_batches, err));
        else
            last_line(j->log_path, row->trouble, sizeof row->trouble);
    }
    return NM_OK;
}

/* A run that fails is a row of the table; when all fail there is nothing to compare. */
static nm_status check_finished(const compare_table *table, nm_error *err)
{
    for (size_t i = 0; i < table->n; i++)
        if (table->rows[i].exit_code == NM_OK)
            return NM_OK;
    int code = table->rows[0].exit_code;
    return nm_fail(err, code >= NM_USAGE && code <= NM_INTERRUPTED ? (nm_status)code : NM_IO,
                   "no run came to its end; the first one said: %s", table->rows[0].trouble);
}

static char *compare_folder(const queue *q)
{
    const compare_config *config = q->config;
    const run_choice *run = nm_options_find(q->cli->options, "run");
    const char *recipe = q->recipe;
    if (*config->folder)
        return nm_duplicate(config->folder);
    const char *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe;
    return nm_format("runs/%.*s%s-compare", (int)strcspn(name, "."), name, run->small ? "-small" : "");
}

static nm_status check_variants(const queue *q, nm_error *err)
{
    for (size_t i = 0; i < q->n; i++) {
        char *name = nm_format("%.*s", (int)strcspn(q->jobs[i].variant, "+:"), q->jobs[i].variant);
        bool known = nm_norm_type_find(name) != NULL;
        free(name);
        if (!known)
            return nm_fail(err, NM_USAGE, "compare.norms: unknown norm in %.100s", q->jobs[i].variant);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(q->jobs[i].folder, q->jobs[k].folder))
                return nm_fail(err, NM_USAGE, "compare.norms: %.100s is listed twice", q->jobs[i].variant);
    }
    return q->n ? NM_OK : nm_fail(err, NM_USAGE, "compare.norms is empty");
}

static nm_status compare(queue *q, nm_error *err)
{
    char *folder = compare_folder(q);
    nm_status status = nm_folder_create(folder, err);
    fill_queue(q, folder);
    free(folder);
    NM_TRY(status);
    NM_TRY(check_variants(q, err));
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    NM_TRY(run_queue(q, err));
    fprintf(stderr, "norma: scoring %zu runs on the test set\n", q->n);
    compare_table table = {0};
    status = measure_all(q, &table, err);
    if (status == NM_OK)
        compare_table_print(&table, q->config->format, q->config->samples, stdout);
    for (size_t i = 0; i < q->n && status == NM_OK; i++)
        if (table.rows[i].exit_code == NM_OK)
            status = compare_save(&table.rows[i], q->jobs[i].folder, err);
    if (status == NM_OK)
        status = check_finished(&table, err);
    compare_table_release(&table);
    return status == NM_OK ? nm_file_close(stdout, "stdout", err) : status;
}

static void compare_options_add(nm_options *options)
{
    nm_options_add(options, "compare", compare_options, NULL, sizeof(compare_config));
    nm_options_add(options, "run", run_options, NULL, sizeof(run_choice));
}

static int compare_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    if (nm_cli_want(cli, argc, 1, 1, &err) != NM_OK)
        return nm_cli_fail(&err);
    queue q = {.cli = cli, .config = nm_options_find(cli->options, "compare"), .recipe = argv[0]};
    nm_status status = compare(&q, &err);
    for (size_t i = 0; i < q.n; i++) {
        free(q.jobs[i].variant);
        free(q.jobs[i].folder);
        free(q.jobs[i].log_path);
    }
    free(q.jobs);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_compare = {
    .name = "compare",
    .summary = "train variants of a recipe and print one table",
    .usage = "RECIPE.ini [--small] [--norms a,b,c] [--seeds N] [--format text|markdown|json] [--section.key "
             "value ...]",
    .details = "Each variant and seed is a run of its own folder; finished ones are not trained again, "
               "unfinished ones go on. "
               "The table gives the task's score (BLEU, F1, accuracy, perplexity) on the test set with its "
               "95 % bootstrap interval, the paired test "
               "against the first "
               "variant, validation loss, tokens per second of the run and TID of the last encoder layer.",
    .section = "compare,run",
    .options = compare_options_add,
    .trains = true,
    .run = compare_run,
};
