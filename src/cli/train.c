/* norma train: trains one run from a recipe. Progress is one line that is redrawn on a terminal, and plain lines elsewhere. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/open_comm.h"
#include "cli/profile_print.h"
#include "experiment/variants.h"
#include "probe/probe.h"
#include "report/events.h"
#include "task/tasks.h"
#include "train/run_config.h"
#include "train/trainer.h"

static volatile sig_atomic_t stop_requested;

/* Requests a checkpoint and an orderly end. A second SIGINT or SIGTERM ends the process at once. The other signals may
 * repeat: SIGPIPE at every message, SIGHUP from the terminal and from the shell. */
static void on_signal(int number)
{
    bool interrupt = number == SIGINT || number == SIGTERM;
    if (stop_requested == 2 && interrupt) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_requested = interrupt ? 2 : stop_requested ? stop_requested : 1;
}

/* Signals that the parent process ignores stay ignored, as nohup and background jobs of a script expect. */
static void handle_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, inherited;
        if (!sigaction(numbers[i], NULL, &inherited) && inherited.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

typedef struct console {
    const nm_run_options *run;
    const nm_task_type *task;
    const nm_options *options;
    bool terminal, line_open;
    double last;
    struct { /* after the first update of this session; update 0: not yet */
        int64_t update;
        double seconds, fraction;
        bool done; /* the duration has been printed */
    } estimate;
    nm_events *events; /* NULL: no event files, or writing them has failed */
    nm_comm *comm;
} console;

static void close_line(console *t)
{
    if (t->line_open)
        fputc('\n', stderr);
    t->line_open = false;
}

static void show_duration(char *text, size_t bytes, double seconds)
{
    if (!isfinite(seconds))
        snprintf(text, bytes, "?");
    else if (seconds < 3600)
        snprintf(text, bytes, "%d:%02d", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, bytes, "%d:%02d:%02d", (int)seconds / 3600, (int)seconds / 60 % 60, (int)seconds % 60);
}

/* Training continues if the event files cannot be written. */
static void follow_log(console *t)
{
    nm_error err;
    if (!t->events || nm_events_follow(t->events, &err) == NM_OK)
        return;
    close_line(t);
    fprintf(stderr, "norma: warning: no more events for TensorBoard: %s\n", err.text);
    nm_events_close(t->events);
    t->events = NULL;
}

/* Prints once how long training will take, measured without the first update, which allocates memory. */
static void print_estimate(console *t, const nm_progress *p)
{
    enum { MIN_UPDATES = 5 };
    const nm_train_config *train = nm_options_find(t->options, "train");
    if (!t->estimate.update) {
        t->estimate.update = p->update;
        t->estimate.seconds = p->seconds;
        t->estimate.fraction = p->fraction;
    }
    int64_t measured = p->update - t->estimate.update;
    double seconds = p->seconds - t->estimate.seconds, fraction = p->fraction - t->estimate.fraction;
    if (t->estimate.done || measured < MIN_UPDATES || seconds < fmin(2, t->run->report_seconds) ||
        !isfinite(fraction))
        return;
    char left[32];
    show_duration(left, sizeof left, seconds * (1 - p->fraction) / fraction);
    close_line(t);
    fprintf(stderr,
            "norma: training takes about %s more on this machine, without validations (measured over %lld "
            "updates, %.0f ms each)%s\n",
            left, (long long)measured, 1e3 * seconds / (double)measured,
            train->patience ? "; early stopping may end it sooner" : "");
    t->estimate.done = true;
}

static void on_progress(void *user, const nm_progress *p)
{
    console *t = user;
    follow_log(t);
    if (!t->run->quiet)
        print_estimate(t, p);
    if (t->run->quiet || p->seconds - t->last < (t->terminal ? 0.2 : t->run->report_seconds))
        return;
    t->last = p->seconds;
    char left[32], perplexity[32] = "", percent[16] = "";
    show_duration(left, sizeof left, p->seconds_left);
    if (nm_task_has_perplexity(t->task, t->options))
        snprintf(perplexity, sizeof perplexity, "  ppl %.2f", exp(p->nll));
    if (isfinite(p->fraction))
        snprintf(percent, sizeof percent, "%.0f %%  ", floor(100 * p->fraction));
    fprintf(stderr,
            "%s%sepoch %lld (%lld/%lld)  update %lld  loss %.3f%s  %.0f tok/s  lr %.2e  |g| %.2f  left %s%s",
            t->terminal ? "\r\033[K" : "", percent, (long long)p->epoch + 1, (long long)p->batch,
            (long long)p->batches, (long long)p->update, p->loss, perplexity, p->tokens_per_second, p->lr,
            p->grad_norm, left, t->terminal ? "" : "\n");
    t->line_open = t->terminal;
}

static void on_validated(void *user, const nm_validation *v)
{
    console *t = user;
    close_line(t);
    fprintf(stderr, "validation at update %lld: loss %.4f", (long long)v->update, v->loss);
    if (isfinite(v->perplexity))
        fprintf(stderr, "  ppl %.3f", v->perplexity);
    else if (nm_task_is_noncausal(t->task, t->options))
        fprintf(stderr, "  non-causal, not a perplexity: %.3f", exp(v->nll));
    if (isfinite(v->batch_nll)) {
        fprintf(stderr, "  (with batch statistics: loss %.4f", v->batch_loss);
        if (isfinite(v->perplexity))
            fprintf(stderr, "  ppl %.3f", exp(v->batch_nll));
        fputc(')', stderr);
    }
    if (v->masked)
        fprintf(stderr, "  (%lld masked target tokens not counted)", (long long)v->masked);
    if (v->score.name)
        fprintf(stderr, "  %s %.2f", v->score.title, v->score.value);
    fprintf(stderr, "%s  [%.1f s]\n", v->best ? "  best so far" : "", v->seconds);
    if (v->score.samples && !t->run->quiet)
        fputs(v->score.samples, stderr);
}

static void on_message(void *user, const char *text)
{
    close_line(user);
    fprintf(stderr, "norma: %s\n", text);
}

static char *run_folder(const nm_run_options *run, const char *recipe)
{
    if (*run->folder)
        return nm_duplicate(run->folder);
    const char *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe, *dot = strrchr(name, '.');
    return nm_format("runs/%.*s%s%s", (int)(dot ? dot - name : (long)strlen(name)), name,
                     *run->profile ? "-" : "", run->profile);
}

static void print_header(const nm_trainer *trainer, const char *folder, int32_t ranks)
{
    const nm_backend *backend = nm_trainer_backend(trainer);
    char text[256];
    nm_backend_describe(backend, text, sizeof text);
    fprintf(stderr, "norma " NORMA_VERSION ": %s", text);
    if (ranks > 1)
        fprintf(stderr, "; %d processes", ranks);
    fputc('\n', stderr);
    if (*nm_backend_warning(backend))
        fprintf(stderr, "norma: warning: %s\n", nm_backend_warning(backend));
    fprintf(stderr, "run %s: %.2f M parameters, at most %zu MiB for a step\n", folder,
            (double)nm_params_learned(&nm_trainer_model(trainer)->params) / 1e6,
            nm_trainer_peak_bytes(trainer) >> 20);
}

/* "done: 60 updates, 4821 target tokens; best at update 40: loss 2.3112, BLEU 23.10 (runs/a/best.safetensors)" */
static void print_done(const nm_train_state *state, const char *folder)
{
    fprintf(stderr, "done: %lld updates, %lld target tokens; ", (long long)state->update,
            (long long)state->tokens);
    if (!state->best_update) {
        fprintf(stderr, "no validation (%s/last.safetensors)\n", folder);
        return;
    }
    fprintf(stderr, "best at update %lld: loss %.4f", (long long)state->best_update, state->best_loss);
    if (isfinite(state->best_value))
        fprintf(stderr, ", %s %.2f", state->score_title, state->best_value);
    fprintf(stderr, " (%s/best.safetensors)\n", folder);
}

static nm_status open_events(console *t, const char *folder, nm_error *err)
{
    if (!t->run->tensorboard)
        return NM_OK;
    char *own = nm_path_join(folder, "tensorboard");
    nm_status status = nm_events_open(&t->events, folder, own, err);
    free(own);
    return status;
}

static nm_status train(console *t, nm_trainer *trainer, const char *folder, nm_error *err)
{
    if (!t->comm->rank) {
        NM_TRY(open_events(t, folder, err));
        print_header(trainer, folder, t->comm->size);
    }
    nm_status status = nm_trainer_run(trainer, err);
    follow_log(t);
    nm_events_close(t->events);
    return status;
}

static void train_options(nm_options *options)
{
    nm_run_options_add(options);
    nm_comm_options_add(options);
}

static nm_status read_recipe(nm_cli *cli, const nm_run_options *run, const char *recipe, int32_t rank,
                             nm_error *err)
{
    nm_options *own = nm_options_create_like(cli->options);
    char *message = NULL;
    nm_status status = nm_options_read_profile(own, recipe, run->profile, err);
    if (status == NM_OK)
        status = nm_norm_option_replace(cli->options, own, &message, err);
    if (message && !rank)
        fprintf(stderr, "norma: %s\n", message);
    free(message);
    nm_options_free(own);
    return status == NM_OK ? nm_options_read_profile(cli->options, recipe, run->profile, err) : status;
}

/* NM_MISMATCH if config.ini of the folder names another task: its options would be unknown ones. */
static nm_status check_task(const char *folder, const char *task, nm_error *err)
{
    char *path = nm_path_join(folder, "config.ini"), *run_task = NULL;
    nm_status status = nm_file_exists(path) ? nm_options_peek(path, "run.task", &run_task, err) : NM_OK;
    if (status == NM_OK && run_task && strcmp(run_task, task))
        status =
            nm_fail(err, NM_MISMATCH, "%s: the run has run.task = %s, the recipe %s", folder, run_task, task);
    free(run_task);
    free(path);
    return status;
}

/* Replaces the options by those of the run in the folder, if it has any. */
static nm_status use_run_config(nm_cli *cli, const char *folder, const nm_run_options **run, int32_t rank,
                                nm_error *err)
{
    nm_options *options;
    char *warning;
    NM_TRY(check_task(folder, cli->task->name, err));
    NM_TRY(nm_run_config_merge(&options, cli->options, folder, (*run)->resume, &warning, err));
    if (!options)
        return NM_OK;
    if (warning && !rank)
        fprintf(stderr, "norma: warning: %s\n", warning);
    free(warning);
    nm_options_free(cli->options);
    cli->options = options;
    *run = nm_options_find(options, "run");
    return NM_OK;
}

typedef struct session {
    console console;
    char *folder;
    nm_probe *probe;
    nm_trainer *trainer;
} session;

static nm_status check_recipe(const nm_cli *cli, const nm_run_options *run, const nm_comm_config *given,
                              nm_error *err)
{
    const nm_comm_config *comm = nm_options_find(cli->options, "comm");
    if (strcmp(run->task, cli->task->name))
        return nm_fail(
            err, NM_USAGE,
            "run.task = %.100s cannot be set there: set it in the recipe itself or on the command line",
            run->task);
    if (comm->backend != given->backend || comm->timeout != given->timeout ||
        comm->shard_optimizer != given->shard_optimizer)
        return nm_fail(err, NM_USAGE, "the options of [comm] can be set on the command line only");
    return NM_OK;
}

static nm_status run_session(session *s, nm_cli *cli, int argc, char **argv, nm_error *err)
{
    const nm_run_options *run = nm_options_find(cli->options, "run");
    const nm_comm_config comm = *(const nm_comm_config *)nm_options_find(cli->options, "comm");
    console *t = &s->console;
    NM_TRY(nm_cli_check_arguments(cli, argc, 1, 1, err));
    NM_TRY(read_recipe(cli, run, argv[0], t->comm->rank, err));
    NM_TRY(check_recipe(cli, run, &comm, err));
    s->folder = run_folder(run, argv[0]);
    if (run->resume != NM_RESUME_NO)
        NM_TRY(use_run_config(cli, s->folder, &run, t->comm->rank, err));
    t->run = run;
    t->task = cli->task;
    t->options = cli->options;
    handle_signals();
    NM_TRY(nm_probe_create(&s->probe, cli->options, err));
    const nm_train_callbacks callbacks = {.user = t,
                                          .command = cli->command_line,
                                          .progress = on_progress,
                                          .validated = on_validated,
                                          .message = on_message,
                                          .stop = &stop_requested,
                                          .hooks = nm_probe_hooks(s->probe),
                                          .comm = t->comm,
                                          .shard_optimizer = comm.shard_optimizer};
    NM_TRY(nm_trainer_open(&s->trainer, cli->task, cli->options, s->folder, run->resume != NM_RESUME_NO,
                           &callbacks, err));
    return train(t, s->trainer, s->folder, err);
}

/* What the run has come to, by one of the ranks. */
static void report(session *s, nm_status status, const char *recipe, const nm_error *err)
{
    close_line(&s->console);
    if (status == NM_OK)
        print_done(nm_trainer_state(s->trainer), s->folder);
    else if (status == NM_INTERRUPTED && s->trainer)
        fprintf(stderr, "norma: %s\nto continue: norma train %s%s%s --run.folder %s --resume\n", err->text,
                recipe, *s->console.run->profile ? " --profile " : "", s->console.run->profile, s->folder);
    else
        nm_cli_fail(err);
    if (s->trainer) {
        const nm_profile profile = nm_trainer_profile(s->trainer);
        nm_profile_print(&profile, stderr);
    }
}

static int train_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    nm_comm *comm;
    if (nm_cli_open_comm(&comm, nm_options_find(cli->options, "comm"), &err) != NM_OK)
        return nm_cli_fail(&err);
    session s = {.console = {.comm = comm, .terminal = isatty(STDERR_FILENO), .last = -1e9}};
    bool reports;
    nm_status status = run_session(&s, cli, argc, argv, &err);
    status = nm_comm_finish(comm, status, &reports, &err);
    if (reports)
        report(&s, status, argv[0], &err);
    nm_probe_free(s.probe);
    nm_trainer_close(s.trainer);
    nm_comm_free(comm);
    free(s.folder);
    return (int)status;
}

/* For all tasks; those that a task does not have are left out. */
static const char *const common_options[] = {"run.folder",           "run.profile",
                                             "run.resume",           "run.quiet",
                                             "data.folder",          "data.train",
                                             "data.valid",           "data.test",
                                             "model.preset",         "model.norm",
                                             "model.norm_position",  "model.width",
                                             "model.heads",          "model.layers",
                                             "model.encoder_layers", "model.decoder_layers",
                                             "model.dropout",        "model.context",
                                             "train.updates",        "train.epochs",
                                             "train.seconds",        "train.max_tokens",
                                             "train.shards",         "train.seed",
                                             "train.validate_every", "train.patience",
                                             "optim.name",           "optim.weight_decay",
                                             "schedule.name",        "schedule.lr",
                                             "schedule.warmup",      "device.threads",
                                             "probe.every",          NULL};

const nm_command nm_command_train = {
    .name = "train",
    .summary = "train a model from a recipe",
    .usage = "RECIPE [--profile small] [--resume] [--run.folder FOLDER] [--section.key value ...]",
    .details =
        "RECIPE is an INI file with [section] and key = value lines, or the name of a recipe that comes "
        "with Norma (norma recipes). Every option of a recipe can be overridden on the command line. An "
        "interrupted run continues with --resume. The task of the recipe (translation, lm, "
        "classification, tagging) determines the options of [data] and [model]; --run.task NAME --help "
        "shows those of another task.\n",
    .section = "run",
    .common = common_options,
    .options = train_options,
    .trains = true,
    .ranks = true,
    .run = train_run,
};
