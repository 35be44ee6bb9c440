/* Training steps and decoding of the presets `small` and `iwslt` on a synthetic corpus with the length
 * distribution of translations. Steps run through the trainer, with batching, clipping and optimizer;
 * their operations are those of the matrix multiplications over real tokens. Decoding uses randomly
 * initialized weights and a fixed length. */
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "base/corpus.h"
#include "model/decode.h"
#include "task/tasks.h"
#include "train/trainer.h"

enum { SPECIAL = 4, EOS = 2, LONGEST = 120, SENTENCES = 4000, MOST_STEPS = 21 };
enum { DECODED_TOKENS = 25, SMALL_DECODED_TOKENS = 5 };

typedef struct model_case {
    const char *preset, *max_tokens;
    bool quick, scaling, all; /* all: with --all only */
} model_case;

static const model_case model_cases[] = {
    {"small", "2048", true, true, false},   {"small", "4096", false, false, false},
    {"iwslt", "2048", false, false, false}, {"iwslt", "4096", false, true, false},
    {"iwslt", "16384", false, false, true}, {"base", "4096", false, false, true},
    {"base", "16384", false, false, true}};

/* The emulator computes these in seconds: all layers of the presets, but narrow ones. */
static const char *const small_models[][2] = {
    {"model.width", "16"}, {"model.ff", "16"}, {"model.heads", "2"}, {"train.max_tokens", "64"}};

static double draw(uint32_t site, uint64_t index)
{
    nm_random_words w = nm_random4(7, NM_RANDOM_TEST, site, 0, index);
    return nm_random_normal(w.w[0], w.w[1]);
}

static int32_t length_of(int side, int sentence)
{
    double source = 20 * exp(0.5 * draw(0, (uint64_t)sentence));
    double length = side ? source * exp(0.15 * draw(1, (uint64_t)sentence)) : source;
    return (int32_t)fmin(fmax(round(length), 2), LONGEST);
}

static int32_t word_of(int side, int sentence, int32_t place)
{
    uint32_t word =
        nm_random4(7, NM_RANDOM_TEST, 2 + (uint32_t)side, (uint32_t)sentence, (uint64_t)place).w[0];
    return SPECIAL + (int32_t)(pow(BENCH_WORDS, nm_random_unit(word)) - 1);
}

static void write_side(const char *folder, int side)
{
    char *prefix = nm_format("%s/train.%s", folder, side ? "target" : "source");
    nm_corpus_writer writer;
    nm_error err;
    nm_status status = nm_corpus_writer_open(&writer, prefix, &err);
    for (int s = 0; status == NM_OK && s < SENTENCES; s++) {
        int32_t ids[LONGEST + 1], n = length_of(side, s);
        for (int32_t t = 0; t < n; t++)
            ids[t] = word_of(side, s, t);
        ids[n] = EOS;
        nm_corpus_writer_add(&writer, ids, n + 1);
    }
    if (status != NM_OK || nm_corpus_writer_commit(&writer, &err) != NM_OK)
        bench_fail("%s", err.text);
    free(prefix);
}

static void write_dictionary(const char *folder, const char *name)
{
    char *path = nm_path_join(folder, name);
    FILE *file = fopen(path, "w");
    for (int w = 0; file && w < BENCH_WORDS; w++)
        fprintf(file, "w%d %d\n", w, BENCH_WORDS - w);
    if (!file || fclose(file))
        bench_fail("cannot write %s", path);
    free(path);
}

static char *corpus; /* folder of the corpus while it exists */

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *walk)
{
    (void)about, (void)type, (void)walk;
    return remove(path);
}

static void remove_corpus(void)
{
    if (corpus)
        nftw(corpus, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(corpus);
    corpus = NULL;
}

static void write_corpus(void)
{
    const char *where = getenv("TMPDIR");
    char *folder = nm_format("%s/norma-bench-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(folder))
        bench_fail("cannot create %s", folder);
    corpus = folder;
    atexit(remove_corpus); /* a failing measurement exits */
    char *about = nm_path_join(folder, "data.ini");
    FILE *file = fopen(about, "w");
    if (!file || fputs("[prepare]\n", file) < 0 || fclose(file))
        bench_fail("cannot write %s", about);
    free(about);
    write_dictionary(folder, "dict.source.txt");
    write_dictionary(folder, "dict.target.txt");
    write_side(folder, 0);
    write_side(folder, 1);
}

typedef struct model_run {
    nm_options *options;
    nm_trainer *trainer;
    char *preset, *max_tokens; /* effective values: --set may override those of the case */
} model_run;

static void set(nm_options *options, const char *key, const char *value)
{
    nm_error err;
    if (nm_options_set(options, key, value, NM_ORIGIN_COMMAND, &err) != NM_OK)
        bench_fail("%s", err.text);
}

static nm_options *options_of(const bench *on, const model_case *c, const char *data, int32_t n_threads)
{
    nm_options *options = nm_options_create();
    nm_train_options_add(options, &nm_task_translation);
    char threads[16];
    snprintf(threads, sizeof threads, "%d", (int)n_threads);
    set(options, "data.folder", data);
    set(options, "model.preset", c->preset);
    set(options, "train.max_tokens", c->max_tokens);
    for (size_t i = 0; on->options->small && i < sizeof small_models / sizeof *small_models; i++)
        set(options, small_models[i][0], small_models[i][1]);
    set(options, "device.threads", threads);
    set(options, "device.isa", on->options->isa);
    set(options, "device.backend", on->options->backend);
    if (!strcmp(on->options->backend, "cuda")) {
        set(options, "device.ordinal", on->options->ordinal);
        set(options, "device.gemm", on->options->gemm);
        set(options, "device.cache", on->options->cache);
    }
    set(options, "device.precision", on->options->precision);
    set(options, "device.profile", "true");
    for (int i = 0; i < on->options->n_settings; i++)
        set(options, on->options->settings[2 * i], on->options->settings[2 * i + 1]);
    return options;
}

/* Kernel times of one update. */
static json_t *kernel_list(const nm_profile *profile)
{
    json_t *list = json_array();
    double updates = (double)profile->updates;
    for (int i = 0; i < profile->n_kernels; i++) {
        const nm_kernel_time *k = &profile->kernels[i];
        json_t *one =
            json_pack("{ss sf sf sf}", "kernel", k->kernel, "calls", (double)k->calls / updates,
                      "milliseconds", 1e3 * k->seconds / updates, "share", k->seconds / profile->seconds);
        if (k->flops > 0 || k->bytes > 0) {
            double amount = k->flops > 0 ? k->flops : k->bytes;
            json_object_set_new(one, "rate", json_real(1e-9 * amount / k->seconds));
            json_object_set_new(one, "unit", json_string(k->flops > 0 ? "GFLOP/s" : "GB/s"));
        }
        json_array_append_new(list, one);
    }
    return list;
}

static double calls_of(const nm_profile *profile)
{
    double sum = 0;
    for (int i = 0; i < profile->n_kernels; i++)
        sum += (double)profile->kernels[i].calls;
    return sum / (double)profile->updates;
}

static double flops_of(const nm_profile *profile)
{
    double sum = 0;
    for (int i = 0; i < profile->n_kernels; i++)
        sum += profile->kernels[i].flops;
    return sum;
}

typedef struct step_rate {
    double seconds, tokens_per_second;
    double waits; /* of the host for a device, per update */
    int n;
} step_rate;

/* Medians of single updates; the first one allocates memory and is not counted. */
static step_rate time_steps(const bench *on, const model_run *m)
{
    const nm_backend *backend = nm_trainer_model(m->trainer)->backend;
    double times[MOST_STEPS], rates[MOST_STEPS], begin = bench_now(), budget = on->options->quick ? 2 : 8;
    int64_t tokens = 0, waits = 0;
    int n = -1;
    for (; n < MOST_STEPS && (n < 5 || bench_now() - begin < budget); n++) {
        nm_training_progress progress;
        nm_error err;
        double start = bench_now();
        if (nm_trainer_update(m->trainer, &progress, &err) != NM_OK)
            bench_fail("%s", err.text);
        if (n < 0) {
            waits = nm_backend_waits(backend);
        } else {
            times[n] = bench_now() - start;
            rates[n] = (double)(progress.tokens - tokens) / times[n];
        }
        tokens = progress.tokens;
    }
    return (step_rate){bench_median(times, n), bench_median(rates, n),
                       (double)(nm_backend_waits(backend) - waits) / n, n};
}

static json_t *measure_step(const bench *on, const model_run *m)
{
    double ceiling = bench_gemm_ceiling(on, on->options->quick).ceiling;
    const step_rate rate = time_steps(on, m);
    const nm_profile profile = nm_trainer_profile(m->trainer);
    double gflops = 1e-9 * flops_of(&profile) / profile.seconds;
    return json_pack("{ss ss sf sf sf sf sf si sf sf sf so}", "preset", m->preset, "max_tokens",
                     m->max_tokens, "milliseconds", 1e3 * rate.seconds, "tokens_per_second",
                     rate.tokens_per_second, "gflops", gflops, "ceiling", ceiling, "of_ceiling",
                     gflops / ceiling, "steps", rate.n, "mib",
                     (double)(nm_trainer_peak_bytes(m->trainer) >> 20), "calls", calls_of(&profile), "waits",
                     rate.waits, "kernels", kernel_list(&profile));
}

typedef struct decoding {
    nm_decoder *decoder;
    nm_id_list *sources;
    size_t n;
    bool one_by_one;
    int64_t tokens; /* of the last run */
} decoding;

static void run_decoding(void *context)
{
    decoding *d = context;
    nm_translation *out = nm_allocate(d->n * sizeof *out);
    size_t group = d->one_by_one ? 1 : d->n;
    d->tokens = 0;
    for (size_t i = 0; i < d->n; i += group) {
        nm_error err;
        if (nm_decode(d->decoder, d->sources + i, group, out + i, &err) != NM_OK)
            bench_fail("%s", err.text);
    }
    for (size_t i = 0; i < d->n; i++) {
        d->tokens += out[i].list[0].n;
        nm_translation_release(&out[i]);
    }
    free(out);
}

static nm_id_list *make_sources(size_t n)
{
    nm_id_list *sources = nm_allocate(n * sizeof *sources);
    for (size_t s = 0; s < n; s++) {
        int32_t words = length_of(0, (int)s), *ids = nm_allocate(((size_t)words + 1) * sizeof *ids);
        for (int32_t t = 0; t < words; t++)
            ids[t] = word_of(0, (int)s, t);
        ids[words] = EOS;
        sources[s] = (nm_id_list){ids, words + 1};
    }
    return sources;
}

static json_t *measure_decoding(const bench *on, const model_run *m, int beam, size_t n, bool one_by_one)
{
    nm_model *model = nm_trainer_model(m->trainer);
    nm_decode_options how = *(const nm_decode_options *)nm_options_find(model->options, "decode");
    how.beam = beam;
    how.max_length_a = 0;
    how.max_length_b = how.min_length = on->options->small ? SMALL_DECODED_TOKENS : DECODED_TOKENS;
    const nm_special_tokens words = {.first = EOS, .eos = EOS, .pad = 1};
    decoding d = {.sources = make_sources(n), .n = n, .one_by_one = one_by_one};
    nm_error err;
    if (nm_decoder_create(&d.decoder, &model, 1, &how, &words, &err) != NM_OK)
        bench_fail("%s", err.text);
    double seconds = bench_time(on, run_decoding, &d, on->options->small ? 1 : 5, on->options->quick ? 0 : 2);
    nm_decoder_free(d.decoder);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)d.sources[i].ids);
    free(d.sources);
    return json_pack("{ss si si sI sf sf}", "preset", m->preset, "beam", beam, "batch",
                     one_by_one ? 1 : (int)n, "tokens", (json_int_t)d.tokens, "seconds", seconds,
                     "tokens_per_second", (double)d.tokens / seconds);
}

static void measure_decodings(const bench *on, const model_run *m, json_t *out)
{
    bool quick = on->options->quick;
    for (int beam = 1; beam <= 4; beam += 3) {
        json_array_append_new(out, measure_decoding(on, m, beam, quick ? 8 : 32, false));
        json_array_append_new(out, measure_decoding(on, m, beam, quick ? 1 : 8, true));
    }
}

static void open_run(const bench *on, const model_case *c, int32_t threads, model_run *m)
{
    nm_error err;
    char *folder = nm_path_join(corpus, "run");
    m->options = options_of(on, c, corpus, threads);
    if (nm_trainer_open(&m->trainer, &nm_task_translation, m->options, folder, true, NULL, &err) != NM_OK)
        bench_fail("%s", err.text);
    m->preset = nm_options_get(m->options, "model.preset");
    m->max_tokens = nm_options_get(m->options, "train.max_tokens");
    free(folder);
}

static void close_run(model_run *m)
{
    nm_trainer_close(m->trainer);
    nm_options_free(m->options);
    free(m->preset);
    free(m->max_tokens);
}

static void measure_model(const bench *on, const model_case *c, bench_model_part part, json_t *out)
{
    model_run m;
    open_run(on, c, on->cpu->threads, &m);
    if (part == BENCH_STEP)
        json_array_append_new(out, measure_step(on, &m));
    else
        measure_decodings(on, &m, out);
    close_run(&m);
}

/* Steps with 1, 2, 4, ... threads and with all; "enough": the smallest number of threads within 5 % of the
 * highest rate. */
static json_t *measure_scaling(const bench *on, const model_case *c)
{
    json_t *rows = json_array(), *row, *about = NULL;
    double best = 0;
    json_int_t enough = 0;
    size_t i;
    for (int32_t threads = 1, all = on->cpu->threads; threads <= all;
         threads = threads < all && 2 * threads > all ? all : 2 * threads) {
        model_run m;
        open_run(on, c, threads, &m);
        double rate = time_steps(on, &m).tokens_per_second;
        double one = threads == 1
                         ? rate
                         : json_real_value(json_object_get(json_array_get(rows, 0), "tokens_per_second"));
        json_array_append_new(rows, json_pack("{si sf sf sf}", "threads", threads, "tokens_per_second", rate,
                                              "speedup", rate / one, "efficiency", rate / one / threads));
        best = fmax(best, rate);
        if (!about)
            about = json_pack("{ss ss}", "preset", m.preset, "max_tokens", m.max_tokens);
        close_run(&m);
    }
    json_array_foreach(rows, i, row) if (!enough && json_real_value(json_object_get(
                                                        row, "tokens_per_second")) >= 0.95 * best) enough =
        json_integer_value(json_object_get(row, "threads"));
    json_object_set_new(about, "enough", json_integer(enough));
    json_object_set_new(about, "rows", rows);
    return about;
}

json_t *bench_models(const bench *on, bench_model_part part)
{
    json_t *out = json_array();
    write_corpus();
    const char *done = "";
    for (size_t i = 0; i < sizeof model_cases / sizeof *model_cases; i++) {
        const model_case *c = &model_cases[i];
        /* decoding and the small models do not depend on max_tokens */
        const bench_options *o = on->options;
        bool again = (part == BENCH_DECODING || o->small) && !strcmp(done, c->preset);
        bool long_one = o->quick && !c->quick && !(o->small && o->all);
        if (again || long_one || (c->all && !o->all) || (part == BENCH_SCALING && !c->scaling))
            continue;
        if (part == BENCH_SCALING)
            json_array_append_new(out, measure_scaling(on, c));
        else
            measure_model(on, c, part, out);
        done = c->preset;
    }
    remove_corpus();
    return out;
}
