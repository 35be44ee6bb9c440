/* norma verify: the files of a run against the manifests of its checkpoints, and stored updates computed
 * again (docs/proofs.md). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/training.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors.h"
#include "cli/cli.h"
#include "cli/open_comm.h"
#include "train/checkpoint.h"
#include "train/ema.h"
#include "train/manifest.h"
#include "train/run_config.h"

typedef struct verify_config { /* section [verify] */
    int64_t updates, threads;
    bool random, start;
    const char *data, *work;
} verify_config;

/* clang-format off */
static const nm_option verify_rows[] = {
    NM_OPTION(verify_config, updates, "0", 0, 1e9,
        "Number of stored checkpoints to compute again, each from the one before it; 0: all."),
    NM_OPTION(verify_config, random, "false", 0, 1,
        "Choose these checkpoints at random; otherwise the newest ones."),
    NM_OPTION(verify_config, start, "false", 0, 1,
        "Also compute the oldest stored checkpoint again, from the seed."),
    NM_OPTION(verify_config, threads, "0", 0, 4096,
        "Number of threads; 0: as in the run. Results do not depend on it."),
    NM_OPTION(verify_config, data, "", 0, 0, "Data folder, if it is not where the run has read it."),
    NM_OPTION(verify_config, work, "/tmp", 0, 0,
        "Folder for temporary copies, which all processes can read."),
    {0}};
/* clang-format on */

enum { FROM_SEED = -1 };

typedef struct interval { /* updates that are computed again */
    int64_t from, to;     /* from: a stored checkpoint, or FROM_SEED */
} interval;

typedef struct job {
    const verify_config *config;
    const char *run;
    nm_comm *comm;
    int64_t *updates; /* [n]: the stored checkpoints, oldest first */
    size_t n;
    interval *intervals; /* [n_intervals] */
    size_t n_intervals;
    char folder[4096]; /* of the recomputation */
} job;

static char *checkpoint_file(const char *run, int64_t update, const char *suffix)
{
    return nm_format("%s/checkpoints/%08lld.%s", run, (long long)update, suffix);
}

static nm_status list_updates(job *self, nm_error *err)
{
    char **paths;
    NM_TRY(nm_checkpoint_list(self->run, &paths, &self->n, err));
    self->updates = nm_allocate((self->n + 1) * sizeof *self->updates);
    for (size_t i = 0; i < self->n; i++)
        self->updates[i] = strtoll(strrchr(paths[i], '/') + 1, NULL, 10);
    nm_checkpoint_list_free(paths, self->n);
    return self->n ? NM_OK : nm_fail(err, NM_USAGE, "%s: no run with stored checkpoints", self->run);
}

static nm_status read_manifest(const job *self, int64_t update, nm_manifest *manifest, nm_error *err)
{
    bool found;
    NM_AUTO_FREE char *path = nm_manifest_path(self->run, update);
    nm_status status = nm_manifest_read(manifest, path, &found, err);
    if (status == NM_OK && !found)
        status =
            nm_fail(err, NM_UNSUPPORTED, "%s: missing; checkpoints of version 0.1 cannot be verified", path);
    return status;
}

/* The digest of the file RUN/NAME, of its first `bytes` bytes. */
static nm_status check_copy(const job *self, const char *name, int64_t bytes, const char *expected,
                            nm_error *err)
{
    char *path = nm_path_join(self->run, name), actual[NM_DIGEST_TEXT];
    nm_digest digest;
    nm_digest_init(&digest);
    nm_status status = nm_digest_add_part(&digest, path, 0, bytes, err);
    nm_digest_text(&digest, actual);
    if (status == NM_OK && strcmp(actual, expected))
        status = nm_fail(err, NM_FORMAT, "%s: not the file of the manifest of the newest checkpoint", path);
    free(path);
    return status;
}

static nm_status check_stored_best(const job *self, const nm_safetensors *best, int64_t update, nm_error *err)
{
    NM_AUTO_FREE char *state_path = checkpoint_file(self->run, update, "state.safetensors"),
                      *model_path = checkpoint_file(self->run, update, "safetensors");
    nm_manifest manifest;
    nm_safetensors *state, *model = NULL;
    NM_TRY(read_manifest(self, update, &manifest, err));
    NM_TRY(nm_safetensors_open(&state, state_path, err));
    const nm_safetensor *average = nm_safetensors_find(state, "ema");
    nm_status status = average && average->count
                           ? nm_safetensors_open(&model, model_path, err)
                           : check_copy(self, "best.safetensors", INT64_MAX, manifest.model, err);
    if (model)
        status = nm_ema_check_model(best, model, average, err);
    nm_safetensors_close(model);
    nm_safetensors_close(state);
    return status;
}

/* best.safetensors is the model of its update, whose checkpoint may have been removed. */
static nm_status check_best(const job *self, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(self->run, "best.safetensors");
    nm_safetensors *file;
    bool found;
    nm_status status = nm_file_find(path, &found, err);
    if (status == NM_OK && !found)
        printf("best.safetensors: missing\n");
    if (status == NM_OK && found && (status = nm_safetensors_open(&file, path, err)) == NM_OK) {
        const char *text = nm_safetensors_metadata(file, "update");
        const int64_t update = text ? strtoll(text, NULL, 10) : -1;
        size_t i = 0;
        while (i < self->n && self->updates[i] != update)
            i++;
        if (i == self->n)
            printf("best.safetensors: not checked, because the checkpoint of update %s is not stored\n",
                   text ? text : "?");
        else
            status = check_stored_best(self, file, update, err);
        nm_safetensors_close(file);
    }
    return status;
}

static nm_status check_files(const job *self, nm_error *err)
{
    nm_manifest manifest = {0};
    char build[NM_BUILD_TEXT];
    for (size_t i = 0; i < self->n; i++) {
        NM_TRY(read_manifest(self, self->updates[i], &manifest, err));
        NM_TRY(nm_manifest_check(&manifest, self->run, self->updates[i], err));
    }
    NM_TRY(check_copy(self, "config.ini", INT64_MAX, manifest.config, err));
    NM_TRY(check_copy(self, "log.jsonl", manifest.log_bytes, manifest.log, err));
    NM_TRY(check_copy(self, "last.safetensors", INT64_MAX, manifest.model, err));
    NM_TRY(check_best(self, err));
    printf("%zu checkpoint%s, config.ini and log.jsonl: the files of the manifests\n", self->n,
           self->n == 1 ? "" : "s");
    nm_build_id(build);
    if (strcmp(build, manifest.build))
        printf("norma %s, build %.12s, has written the newest checkpoint; this is build %.12s\n",
               manifest.version, manifest.build, build);
    return NM_OK;
}

static void swap(interval *a, interval *b)
{
    const interval old = *a;
    *a = *b;
    *b = old;
}

static void choose(job *self)
{
    self->intervals = nm_allocate((self->n + 1) * sizeof *self->intervals);
    size_t n = 0;
    for (size_t i = self->n; i-- > 1;) /* newest first */
        self->intervals[n++] = (interval){self->updates[i - 1], self->updates[i]};
    for (size_t i = 0; self->config->random && i + 1 < n; i++) {
        uint64_t bits = 0;
        if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
            break;
        swap(&self->intervals[i], &self->intervals[i + bits % (n - i)]);
    }
    if (self->config->updates && n > (size_t)self->config->updates)
        n = (size_t)self->config->updates;
    if (self->config->start && self->updates[0] > 0)
        self->intervals[n++] = (interval){FROM_SEED, self->updates[0]};
    self->n_intervals = n;
}

static nm_status read_config(const job *self, int64_t update, char **text, nm_error *err)
{
    NM_AUTO_FREE char *path = checkpoint_file(self->run, update, "state.safetensors");
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    NM_TRY(nm_safetensors_open_metadata(&file, path, err));
    const char *stored = nm_safetensors_metadata(file, "configuration");
    *text = nm_duplicate(stored ? stored : "");
    return NM_OK;
}

static nm_status copy_checkpoint(const job *self, int64_t update, nm_error *err)
{
    static const char *const suffixes[] = {"state.safetensors", "safetensors"};
    nm_status status = NM_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && status == NM_OK; i++) {
        NM_AUTO_FREE char *from = checkpoint_file(self->run, update, suffixes[i]),
                          *to = checkpoint_file(self->folder, update, suffixes[i]);
        status = nm_file_link(from, to, err);
    }
    return status;
}

/* The beginning of the log, of which the next manifest has a digest. */
static nm_status copy_log(const job *self, int64_t update, nm_error *err)
{
    nm_manifest manifest;
    NM_AUTO_FREE char *from = nm_path_join(self->run, "log.jsonl"),
                      *to = nm_path_join(self->folder, "log.jsonl"), *text = NULL;
    size_t bytes;
    NM_TRY(read_manifest(self, update, &manifest, err));
    NM_TRY(nm_file_read(from, &text, &bytes, err));
    if ((int64_t)bytes >= manifest.log_bytes)
        NM_TRY(nm_file_write(to, text, (size_t)manifest.log_bytes, err));
    return NM_OK;
}

/* A folder with the run as it was at the checkpoint, and the configuration with which it was continued; of
 * rank 0. */
static nm_status make_folder(job *self, const interval *part, nm_error *err)
{
    snprintf(self->folder, sizeof self->folder, "%s/norma-verify-XXXXXX", self->config->work);
    if (!mkdtemp(self->folder))
        return nm_fail(err, NM_IO, "%s: %s", self->folder, strerror(errno));
    NM_AUTO_FREE char *checkpoints = nm_path_join(self->folder, "checkpoints"), *text = NULL;
    NM_TRY(nm_folder_create(checkpoints, err));
    NM_TRY(read_config(self, part->to, &text, err));
    NM_TRY(nm_run_config_write(text, self->folder, err));
    if (part->from != FROM_SEED)
        NM_TRY(copy_checkpoint(self, part->from, err));
    return part->from != FROM_SEED ? copy_log(self, part->from, err) : NM_OK;
}

static void remove_folder(const job *self)
{
    static const char *const files[] = {"config.ini", "log.jsonl", "best.safetensors", "last.safetensors",
                                        ".lock"};
    static const char *const suffixes[] = {"state.safetensors", "intoto.json", "safetensors"};
    size_t n;
    char **paths;
    if (nm_checkpoint_list(self->folder, &paths, &n, NM_IGNORED) == NM_OK) {
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < sizeof suffixes / sizeof *suffixes; k++) {
                NM_AUTO_FREE char *file =
                    checkpoint_file(self->folder, strtoll(strrchr(paths[i], '/') + 1, NULL, 10), suffixes[k]);
                unlink(file);
            }
        nm_checkpoint_list_free(paths, n);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        NM_AUTO_FREE char *file = nm_path_join(self->folder, files[i]);
        unlink(file);
    }
    NM_AUTO_FREE char *checkpoints = nm_path_join(self->folder, "checkpoints");
    rmdir(checkpoints);
    rmdir(self->folder);
}

static void on_message(void *user, const char *text)
{
    (void)user;
    if (!strncmp(text, "warning: ", 9) && !strstr(text, "/best.safetensors "))
        fprintf(stderr, "norma: %s\n", text);
}

static nm_status train(const job *self, const interval *part, nm_error *err)
{
    static const nm_comm_config processes = {.backend = NM_COMM_AUTO, .timeout = 15};
    const nm_training_ranks ranks = {.comm = self->comm, .config = &processes, .last_update = part->to};
    const nm_training_events events = {.message = on_message, .command = "norma verify"};
    const char *settings[7] = {NULL};
    NM_AUTO_FREE char *recipe = nm_path_join(self->folder, "config.ini"),
                      *threads = nm_format("%lld", (long long)self->config->threads);
    int n = 0;
    nm_training *training;
    nm_manifest manifest;
    nm_status status = read_manifest(self, part->to, &manifest, err);
    if (status == NM_OK && !strcmp(manifest.level, "base")) {
        settings[n++] = "device.isa";
        settings[n++] = "base";
    }
    if (*self->config->data) {
        settings[n++] = "data.folder";
        settings[n++] = self->config->data;
    }
    if (self->config->threads) {
        settings[n++] = "device.threads";
        settings[n++] = threads;
    }
    NM_THEN(status,
            nm_training_open_ranks(&training, recipe, self->folder, settings,
                                   part->from == FROM_SEED ? NM_TRAINING_NEW : NM_TRAINING_RESUME_OVERRIDING,
                                   &events, &ranks, err));
    if (status == NM_OK) {
        status = nm_training_run(training, err);
        nm_training_close(training);
    }
    return status;
}

/* Times, and the length of the log, which contains times; "state": these and all other values, in checkpoints
 * of version 0.1. */
static bool is_measured(const char *tensor)
{
    return !strcmp(tensor, "state") || !strcmp(tensor, "state.seconds") || !strcmp(tensor, "state.log_bytes");
}

/* *difference: the name of the first tensor that differs, heap; NULL: none. */
static nm_status compare_tensors(const char *stored, const char *computed, char **difference, nm_error *err)
{
    nm_safetensors *a, *b;
    *difference = NULL;
    NM_TRY(nm_safetensors_open(&a, stored, err));
    nm_status status = nm_safetensors_open(&b, computed, err);
    for (size_t i = 0; status == NM_OK && !*difference && i < nm_safetensors_count(a); i++) {
        const nm_safetensor *first = nm_safetensors_at(a, i), *second = nm_safetensors_find(b, first->name);
        if (!is_measured(first->name) &&
            (!second || second->bytes != first->bytes ||
             (first->bytes && memcmp(first->data, second->data, first->bytes) != 0)))
            *difference = nm_duplicate(first->name);
    }
    if (status == NM_OK)
        nm_safetensors_close(b);
    nm_safetensors_close(a);
    return status;
}

static nm_status compare(const job *self, const interval *part, nm_error *err)
{
    static const char *const suffixes[] = {"safetensors", "state.safetensors"};
    nm_status status = NM_OK;
    for (size_t i = 0; i < 2 && status == NM_OK; i++) {
        NM_AUTO_FREE char *stored = checkpoint_file(self->run, part->to, suffixes[i]),
                          *computed = checkpoint_file(self->folder, part->to, suffixes[i]),
                          *difference = NULL;
        status = compare_tensors(stored, computed, &difference, err);
        if (difference)
            status = nm_fail(err, NM_MISMATCH,
                             "%s: the tensor %s is not what the updates after checkpoint %lld give", stored,
                             difference, (long long)(part->from == FROM_SEED ? 0 : part->from));
    }
    return status;
}

/* The line after those of resumptions with other options. */
static const char *skip_resumptions(const char *line)
{
    static const char type[] = "{\"type\":\"resume\"";
    const char *end;
    while (!strncmp(line, type, sizeof type - 1) && (end = strchr(line, '\n')))
        line = end + 1;
    return line;
}

/* A run that has ended has one line in its log after the newest checkpoint: the hash of its parameters, which
 * the recomputation has written, too; before it, a resumption that had nothing to do. Other lines are those
 * of a run that was killed. */
static nm_status compare_end_of_log(const job *self, const interval *part, nm_error *err)
{
    nm_manifest manifest;
    NM_AUTO_FREE char *stored = nm_path_join(self->run, "log.jsonl"),
                      *computed = nm_path_join(self->folder, "log.jsonl"), *all = NULL, *again = NULL;
    size_t n_all, n_again;
    nm_status status = read_manifest(self, part->to, &manifest, err);
    NM_THEN(status, nm_file_read(stored, &all, &n_all, err));
    NM_THEN(status, nm_file_read(computed, &again, &n_again, err));
    if (status == NM_OK && (int64_t)n_all > manifest.log_bytes) {
        const char *end = skip_resumptions(all + manifest.log_bytes), *line = again;
        for (const char *next = again; (next = strstr(next, "{\"type\":\"weights\"")); next++)
            line = next;
        if (strcmp(end, line) && (strstr(end, "\"weights\"") || strstr(end, "\"xxh3\"")))
            status = nm_fail(err, NM_MISMATCH, "%s: its last line is not the hash of the parameters", stored);
        else if (strcmp(end, line))
            printf("log.jsonl: not checked after the newest checkpoint\n");
    }
    return status;
}

static nm_status recompute(job *self, const interval *part, nm_error *err)
{
    const bool root = !self->comm->rank;
    nm_status status = root ? make_folder(self, part, err) : NM_OK;
    NM_THEN(status, nm_comm_broadcast(self->comm, self->folder, sizeof self->folder, err));
    NM_THEN(status, train(self, part, err));
    if (status == NM_OK && root)
        status = compare(self, part, err);
    if (status == NM_OK && root && part->to == self->updates[self->n - 1])
        status = compare_end_of_log(self, part, err);
    if (root)
        remove_folder(self);
    if (status == NM_OK && root && part->from == FROM_SEED)
        printf("updates 1 to %lld from the seed: equal\n", (long long)part->to);
    else if (status == NM_OK && root)
        printf("updates %lld to %lld: equal\n", (long long)part->from + 1, (long long)part->to);
    return status;
}

static nm_status verify(job *self, nm_error *err)
{
    NM_TRY(list_updates(self, err));
    if (!self->comm->rank)
        NM_TRY(check_files(self, err));
    choose(self);
    int64_t n = (int64_t)self->n_intervals;
    NM_TRY(nm_comm_broadcast(self->comm, &n, sizeof n, err));
    self->n_intervals = (size_t)n;
    NM_TRY(nm_comm_broadcast(self->comm, self->intervals, self->n_intervals * sizeof *self->intervals, err));
    for (size_t i = 0; i < self->n_intervals; i++)
        NM_TRY(recompute(self, &self->intervals[i], err));
    if (!self->comm->rank)
        printf("%s: %zu of %zu stored checkpoints computed again: equal. Such checks can show that a run is "
               "false; they do "
               "not prove that it is honest.\n",
               self->run, self->n_intervals, self->n);
    return NM_OK;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    job self = {.config = nm_options_find(cli->options, "verify")};
    bool prints;
    if (nm_cli_join_ranks(&self.comm, cli->command, &err) != NM_OK)
        return nm_cli_fail_to_join(&err);
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    self.run = argc ? argv[0] : "";
    NM_THEN(status, verify(&self, &err));
    status = nm_comm_finish(self.comm, status, &prints, &err);
    if (status != NM_OK && prints)
        nm_cli_fail(&err);
    NM_FREE(self.updates, self.intervals);
    nm_comm_free(self.comm);
    return (int)status;
}

const nm_command nm_command_verify = {
    .name = "verify",
    .summary = "check that a run is what its files say: digests, and updates computed again",
    .usage = "RUN [--updates 3] [--random] [--start] [--threads N] [--data FOLDER] [--work FOLDER]",
    .details =
        "Compares the files of RUN with the manifests of its checkpoints. Then computes stored checkpoints "
        "again, "
        "each from the one before it, and compares every parameter and the training state bitwise. The "
        "result "
        "does not depend on the number of threads or processes (mpirun -n 4 norma verify RUN), nor on the "
        "CPU, "
        "except the level base, which is used if the run has used it.\n\n"
        "Exit code 0: all equal; 4: a file is not that of its manifest; 5: other results; 7: a checkpoint "
        "without manifest. Runs whose schedule depends on the time (train.seconds) give other results.",
    .section = "verify",
    .rows = verify_rows,
    .config_bytes = sizeof(verify_config),
    .ranks = true,
    .run = run,
};
