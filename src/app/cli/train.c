/* norma train: trains a model from a recipe. Progress is shown in one line that is redrawn on a terminal,
 * otherwise in plain lines. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/training.h"
#include "base/memory.h"
#include "base/subprocess.h"
#include "cli/model_command.h"
#include "cli/profile_print.h"
#include "train/run_config.h"

static volatile sig_atomic_t stop_requested;
static nm_training *volatile opened; /* for the signal handler */

/* Requests a checkpoint and the end of training. A second SIGINT or SIGTERM ends the process immediately. The
 * other signals may be sent repeatedly: SIGPIPE with every message, SIGHUP by the terminal and by the shell,
 * SIGUSR1 and SIGUSR2 by batch systems (submitit, Grid Engine), SIGXCPU at the soft limit of CPU time,
 * SIGALRM by a timer that the parent process has set. */
static void on_signal(int number)
{
    bool interrupt = number == SIGINT || number == SIGTERM;
    if (stop_requested == 2 && interrupt) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_requested = interrupt ? 2 : stop_requested ? stop_requested : 1;
    nm_training_stop(opened);
}

static void handle_signals(void)
{
    sigset_t signals;
    nm_cli_stop_signals(&signals);
    sigaddset(&signals, SIGPIPE);
    nm_cli_handle_signals(&signals, on_signal, SA_RESTART);
}

typedef struct console {
    nm_training *training; /* NULL: not opened yet */
    bool terminal, line_open, quiet;
    bool validating;             /* the open line announces a validation, whose result replaces it */
    double last, report_seconds; /* training time at the last progress line; interval between two lines */
    struct {                     /* state after the first update of this session; update 0: none yet */
        int64_t update;
        double seconds, fraction;
        bool done; /* the estimate has been printed */
    } estimate;
} console;

static void close_line(console *t)
{
    if (t->line_open)
        fputc('\n', stderr);
    t->line_open = t->validating = false;
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

/* Prints an estimate of the training time, once, measured without the first update, which allocates
 * memory. */
static void print_estimate(console *t, const nm_training_progress *p)
{
    enum { MIN_UPDATES = 5 };
    if (!t->estimate.update) {
        t->estimate.update = p->update;
        t->estimate.seconds = p->seconds;
        t->estimate.fraction = p->fraction;
    }
    int64_t measured = p->update - t->estimate.update;
    double seconds = p->seconds - t->estimate.seconds, fraction = p->fraction - t->estimate.fraction;
    if (t->estimate.done || measured < MIN_UPDATES || seconds < fmin(2, t->report_seconds) ||
        !isfinite(fraction))
        return;
    char left[32];
    show_duration(left, sizeof left, seconds * (1 - p->fraction) / fraction);
    close_line(t);
    fprintf(stderr,
            "norma: training takes about %s more on this machine, without validations (measured over %lld "
            "updates, %.0f ms each)%s\n",
            left, (long long)measured, 1e3 * seconds / (double)measured,
            strcmp(nm_training_option(t->training, "train.patience"), "0")
                ? "; early stopping may end it sooner"
                : "");
    t->estimate.done = true;
}

static bool has_images(const nm_training *training)
{
    return !strcmp(nm_training_option(training, "run.task"), "image");
}

static void on_progress(void *user, const nm_training_progress *p)
{
    console *t = user;
    if (!t->quiet)
        print_estimate(t, p);
    if (t->quiet || p->seconds - t->last < (t->terminal ? 0.2 : t->report_seconds))
        return;
    t->last = p->seconds;
    char left[32], perplexity[32] = "", percent[16] = "";
    show_duration(left, sizeof left, p->seconds_left);
    if (isfinite(p->perplexity))
        snprintf(perplexity, sizeof perplexity, "  ppl %.2f", p->perplexity);
    if (isfinite(p->fraction))
        snprintf(percent, sizeof percent, "%.0f %%  ", floor(100 * p->fraction));
    fprintf(stderr,
            "%s%sepoch %lld (%lld/%lld)  update %lld  loss %.3f%s  %.0f %s/s  lr %.2e  |g| %.2f  left %s%s",
            t->terminal ? "\r\033[K" : "", percent, (long long)p->epoch + 1, (long long)p->batch,
            (long long)p->batches, (long long)p->update, p->loss, perplexity, p->tokens_per_second,
            has_images(t->training) ? "images" : "tok", p->learning_rate, p->grad_norm, left,
            t->terminal ? "" : "\n");
    t->line_open = t->terminal;
}

/* Long validations would look like a program that hangs. */
static void on_validating(void *user, int64_t update, double last_seconds)
{
    console *t = user;
    if (t->quiet || !t->terminal)
        return;
    close_line(t);
    fprintf(stderr, "validation at update %lld", (long long)update);
    if (last_seconds >= 1) {
        char last[32];
        show_duration(last, sizeof last, last_seconds);
        fprintf(stderr, " (the last one took %s)", last);
    }
    fputs(" ...", stderr);
    t->line_open = t->validating = true;
}

/* Whether the score is the perplexity of the validation loss, which is printed already. */
static bool is_perplexity_again(const nm_training_validation *v)
{
    return !strcmp(v->score_title, "ppl") && fabs(v->score - v->perplexity) <= 1e-6 * v->perplexity;
}

static void on_validated(void *user, const nm_training_validation *v)
{
    console *t = user;
    if (t->validating)
        fputs("\r\033[K", stderr);
    else
        close_line(t);
    t->line_open = t->validating = false;
    fprintf(stderr, "validation at update %lld: loss %.4f", (long long)v->update, v->loss);
    if (isfinite(v->perplexity))
        fprintf(stderr, "  ppl %.3f", v->perplexity);
    else if (v->noncausal)
        fprintf(stderr, "  non-causal, not a perplexity: %.3f", exp(v->nll));
    else if (isfinite(v->nll) && v->nll != v->loss) /* label smoothing raises the loss of confident classes */
        fprintf(stderr, "  nll %.4f", v->nll);
    if (isfinite(v->batch_nll)) {
        fprintf(stderr, "  (with batch statistics: loss %.4f", v->batch_loss);
        if (isfinite(v->perplexity))
            fprintf(stderr, "  ppl %.3f", exp(v->batch_nll));
        fputc(')', stderr);
    }
    if (v->masked)
        fprintf(stderr, "  (%lld masked target tokens not counted)", (long long)v->masked);
    if (v->score_title && !is_perplexity_again(v))
        fprintf(stderr, "  %s %.2f", v->score_title, v->score);
    fprintf(stderr, "%s  [%.1f s]\n", v->best ? "  best so far" : "", v->seconds);
    if (v->samples && !t->quiet)
        fputs(v->samples, stderr);
}

static void on_message(void *user, const char *text)
{
    close_line(user);
    fprintf(stderr, "norma: %s\n", text);
}

static bool is_dry_run(const nm_training *training)
{
    return !strcmp(nm_training_option(training, "run.dry_run"), "true");
}

static void print_header(const nm_training *training, int32_t ranks)
{
    fprintf(stderr, "norma " NORMA_VERSION ": %s", nm_training_device(training));
    if (ranks > 1)
        fprintf(stderr, "; %d processes", ranks);
    fputc('\n', stderr);
    if (nm_training_warning(training))
        fprintf(stderr, "norma: warning: %s\n", nm_training_warning(training));
    bool dry = is_dry_run(training);
    fprintf(stderr, "%s %s: %.2f M parameters, at most %zu MiB for a step\n", dry ? "dry run" : "run",
            nm_training_folder(training), (double)nm_training_parameters(training) / 1e6,
            nm_training_bytes(training) >> 20);
}

/* "done: 60 updates, 4821 target tokens; best at update 40: loss 2.3112, BLEU 23.10
 * (runs/a/best.safetensors)" */
static void print_done(const nm_training *training)
{
    const nm_training_summary run = nm_training_summarize(training);
    const char *folder = nm_training_folder(training);
    bool two_sides = !strcmp(nm_training_option(training, "run.task"), "translation");
    fprintf(stderr, "done: %lld update%s, %lld %s; ", (long long)run.updates, run.updates == 1 ? "" : "s",
            (long long)run.tokens,
            has_images(training) ? "images"
            : two_sides          ? "target tokens"
                                 : "tokens");
    if (!run.best_update) {
        fprintf(stderr, "no validation (%s/last.safetensors)\n", folder);
        return;
    }
    fprintf(stderr, "best at update %lld: loss %.4f", (long long)run.best_update, run.best_loss);
    if (run.score_title)
        fprintf(stderr, ", %s %.2f", run.score_title, run.best_score);
    fprintf(stderr, " (%s/best.safetensors)\n", folder);
}

static void train_options(nm_options *options)
{
    nm_run_options_add(options);
    nm_comm_options_add(options);
}

static nm_status train(console *t, const nm_cli *cli, const char *recipe, const nm_training_ranks *ranks,
                       nm_error *err)
{
    const nm_training_events events = {.user = t,
                                       .progress = on_progress,
                                       .validating = on_validating,
                                       .validated = on_validated,
                                       .message = on_message,
                                       .command = cli->command_line};
    NM_AUTO_FREE const char **settings = nm_cli_settings(cli, "");
    nm_training *training;
    handle_signals();
    NM_TRY(nm_training_open_ranks(&training, recipe, NULL, settings, NM_TRAINING_NEW, &events, ranks, err));
    t->training = opened = training;
    if (stop_requested)
        nm_training_stop(training);
    t->quiet = !strcmp(nm_training_option(training, "run.quiet"), "true");
    t->report_seconds = atof(nm_training_option(training, "run.report_seconds"));
    if (!ranks->comm->rank)
        print_header(training, ranks->comm->size);
    return nm_training_run(training, err);
}

/* Prints the command that continues an interrupted run. */
static void print_continuation(const nm_training *training)
{
    fputs("to continue: norma train --run.folder ", stderr);
    nm_shell_write_word(nm_training_folder(training), stderr);
    fputs(" --resume\n", stderr);
}

/* Prints the outcome of the run; called on one of the ranks. */
static void report(console *t, nm_status status, const nm_error *err)
{
    close_line(t);
    if (status == NM_OK && is_dry_run(t->training)) {
        fputs("nothing was trained or written\n", stderr);
    } else if (status == NM_OK) {
        print_done(t->training);
    } else if (status == NM_INTERRUPTED && t->training) {
        fprintf(stderr, "norma: %s\n", err->text);
        print_continuation(t->training);
    } else {
        nm_cli_fail(err);
    }
    const nm_training_profile profile = nm_training_get_profile(t->training);
    nm_profile_print(&profile, stderr);
}

static int train_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    const nm_comm_config config = *(const nm_comm_config *)nm_options_find(cli->options, "comm");
    nm_training_ranks ranks = {.config = &config};
    if (nm_cli_open_comm(&ranks.comm, &config, &err) != NM_OK)
        return nm_cli_fail_to_join(&err);
    console t = {.terminal = isatty(STDERR_FILENO), .last = -1e9};
    bool reports;
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    NM_THEN(status, train(&t, cli, argv[0], &ranks, &err));
    status = nm_comm_finish(ranks.comm, status, &reports, &err);
    if (reports)
        report(&t, status, &err);
    opened = NULL;
    nm_training_close(t.training);
    nm_comm_free(ranks.comm);
    return (int)status;
}

/* For all tasks; options that a task does not have are not listed. */
static const char *const common_options[] = {"run.folder",
                                             "run.profile",
                                             "run.tune",
                                             "run.resume",
                                             "run.quiet",
                                             "run.dry_run",
                                             "data.folder",
                                             "data.train",
                                             "data.valid",
                                             "data.test",
                                             "model.preset",
                                             "model.norm",
                                             "model.norm_position",
                                             "model.width",
                                             "model.heads",
                                             "model.layers",
                                             "model.encoder_layers",
                                             "model.decoder_layers",
                                             "model.dropout",
                                             "model.context",
                                             "train.updates",
                                             "train.epochs",
                                             "train.seconds",
                                             "train.max_tokens",
                                             "train.shards",
                                             "train.seed",
                                             "train.validate_every",
                                             "train.patience",
                                             "optim.name",
                                             "optim.weight_decay",
                                             "schedule.name",
                                             "schedule.lr",
                                             "schedule.warmup",
                                             "device.threads",
                                             "probe.every",
                                             NULL};

const nm_command nm_command_train = {
    .name = "train",
    .summary = "train a model from a recipe",
    .usage = "[RECIPE] [--profile small] [--tune MODEL] [--resume] [--dry-run] [--run.folder FOLDER] "
             "[--section.key value ...]",
    .details =
        "RECIPE is an INI file with [section] and key = value lines, or the name of a recipe that comes "
        "with Norma (norma recipes). Every option of a recipe can be overridden on the command line. An "
        "interrupted run continues with --resume, where RECIPE may be omitted, as its configuration is in "
        "--run.folder. --tune MODEL trains a model further; without RECIPE by translate, lm, classify or "
        "tag, the recipe of its task. The task of the recipe (translation, lm, "
        "classification, tagging) determines the options of [data] and [model]; --run.task NAME --help "
        "shows those of another task. --dry-run prints the size of the model and the memory of a step, and "
        "does not train.\n",
    .section = "run",
    .common = common_options,
    .options = train_options,
    .saves = true,
    .trains = true,
    .ranks = true,
    .run = train_run,
};
