/* The procedure of norma study with a simulated runner: its error probabilities, racing included, the budget,
 * and the answer after a kill at every point. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "experiment/study_procedure.h"
#include "base/summary.h"
#include "support/remove_tree.h"

enum { MAX_VARIANTS = 8 };
static const char *const names[MAX_VARIANTS] = {"layer", "rms", "scale+fix", "batch",
                                                "power", "rbn", "dyt",       "none"};

/* A world: a run has the value mean + seed effect + noise; the seed effect is common to the variants. */
typedef struct world {
    double means[MAX_VARIANTS], noise[MAX_VARIANTS], common, speed; /* speed: seconds per update */
    double heavy; /* degrees of freedom of the noise; 0: normal */
    uint64_t number;
    double clock, budget_end;
    int64_t kill_after; /* finished runs; < 0: never */
    int64_t n_trained;
    const double *residuals; /* [n_residuals]: the noise is drawn from them; NULL: normal */
    size_t n_residuals;
    bool diverges;      /* the second variant diverges with seed 3 */
    int64_t fails;      /* all variants but the first fail from this seed on; 0: none */
    bool all_fail;      /* the first one too */
    double scoring;     /* seconds of a test score; 0: two */
    int64_t checkpoint; /* runs of learning rates with more updates continue from this update */
} world;

static double normal(uint64_t number, uint64_t a, uint64_t b, uint32_t c)
{
    nm_random_words r = nm_random4(number, NM_RANDOM_TEST, (uint32_t)a, (uint32_t)b, c);
    double u = ((double)r.w[0] + 0.5) / 4294967296.0, v = ((double)r.w[1] + 0.5) / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static double noise_of(const world *w, size_t v, int64_t seed)
{
    double z = normal(w->number, v + 1, (uint64_t)seed, 0);
    if (w->residuals) {
        nm_random_words r = nm_random4(w->number, NM_RANDOM_TEST, (uint32_t)v + 1, (uint32_t)seed, 1000);
        return w->residuals[nm_random_below(r.w[0], (uint32_t)w->n_residuals)];
    }
    if (w->heavy > 0) { /* Student's t with variance 1 */
        double chi = 0;
        for (int i = 0; i < (int)w->heavy; i++) {
            double one = normal(w->number, v + 1, (uint64_t)seed, (uint32_t)(1 + i));
            chi += one * one;
        }
        z *= sqrt((w->heavy - 2) / chi);
    }
    return z * w->noise[v];
}

static double fake_clock(void *user)
{
    return ((world *)user)->clock;
}

/* One run after the other; durations are whole seconds, so that sums are exact. */
static nm_status fake_train(void *user, nm_trial *const *runs, size_t n, double seconds,
                            void (*started)(void *, nm_trial *),
                            nm_status (*finished)(void *, nm_trial *, nm_error *), void *study, nm_error *err)
{
    world *w = user;
    double end = w->clock + seconds;
    for (size_t i = 0; i < n; i++) {
        nm_planned_run *row = &runs[i]->row;
        bool scored = *row->phase == 'c' || !strcmp(row->phase, "speed");
        started(study, runs[i]);
        bool continued = *row->phase == 'r' && row->updates > w->checkpoint;
        row->train_seconds = ceil(w->speed * (double)(row->updates - (continued ? w->checkpoint : 0)));
        row->score_seconds = !scored ? 0 : w->scoring > 0 ? w->scoring : 2;
        row->took = row->train_seconds + 1 + row->score_seconds;
        if (w->clock + row->took > end) {
            row->state = "dropped";
            row->took = NAN;
            w->clock = fmax(w->clock, end);
        } else if (w->kill_after == w->n_trained) {
            return nm_fail(err, NM_INTERRUPTED, "killed");
        } else {
            w->n_trained++;
            w->clock += row->took;
            bool fails = w->fails && row->seed >= w->fails && (runs[i]->variant || w->all_fail);
            fails = fails || (w->diverges && runs[i]->variant == 1 && row->seed == 3);
            row->state = fails ? "failed" : "finished";
            row->note = fails ? "the loss is not finite" : NULL;
            double rate = isfinite(row->lr) ? fabs(log(row->lr / 0.002)) : 0;
            row->value = w->means[runs[i]->variant] +
                         w->common * normal(w->number, 0, (uint64_t)row->seed, 0) +
                         noise_of(w, runs[i]->variant, row->seed) - rate;
            row->loss = -row->value;
        }
        NM_TRY(finished(study, runs[i], err));
    }
    return NM_OK;
}

static nm_study_procedure study_of(world *w, size_t n, double budget, double delta, const char *folder)
{
    return (nm_study_procedure){.config = {.variants = names,
                                           .n = n,
                                           .n_rates = 4,
                                           .lr = {0.0005, 0.001, 0.002, 0.004},
                                           .budget = budget,
                                           .delta = delta,
                                           .alpha = 0.05,
                                           .jobs = 1,
                                           .speed_updates = 20,
                                           .min_updates = 40,
                                           .max_updates = 400,
                                           .folder = folder,
                                           .key = "test",
                                           .score = "BLEU",
                                           .unit = "BLEU"},
                                .runner = {.user = w, .clock = fake_clock, .train = fake_train}};
}

/* The true mean of a variant at its selected learning rate. */
static double truth(const world *w, const nm_studied_variant *v)
{
    size_t i = 0;
    while (strcmp(names[i], v->variant))
        i++;
    return w->means[i];
}

typedef struct rates { /* of studies */
    int n, false_difference, false_equivalence, far, beyond, decided, over_budget;
    double within;
} rates;

static void add_study(rates *r, world *w, size_t n, double budget, double delta)
{
    nm_error err;
    nm_study_procedure s = study_of(w, n, budget, delta, NULL);
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
    assert_int_equal(nm_study_procedure_plan(&s, &err), NM_OK);
    assert_int_equal(nm_study_procedure_run(&s, &err), NM_OK);
    double best = -INFINITY, chosen = truth(w, &s.variants[0]);
    bool wrong = false, unlike = false;
    for (size_t i = 0; i < n; i++) {
        const nm_studied_variant *v = &s.variants[i];
        double d = chosen - truth(w, v);
        best = fmax(best, truth(w, v));
        wrong = wrong || (!strcmp(v->state, "worse") && d <= 0);
        unlike = unlike || (!strcmp(v->state, "equivalent") && fabs(d) >= delta);
    }
    r->n++;
    r->false_difference += wrong;
    r->false_equivalence += unlike;
    r->far += best - chosen > delta;
    r->beyond += best - chosen > s.answer.within;
    r->within += s.answer.within;
    r->decided += strcmp(s.answer.verdict, "undecided") != 0;
    r->over_budget += w->clock > budget;
    nm_study_procedure_release(&s);
}

/* The largest k for which P(Binomial(n, 0.05) > k) is above 1e-4: a rate above it is not 5 % by chance. */
static int most_errors(int n)
{
    double p = pow(0.95, n), below = p;
    int k = 0;
    while (1 - below > 1e-4) {
        p *= (double)(n - k) / (k + 1) * 0.05 / 0.95;
        below += p;
        k++;
    }
    return k;
}

typedef struct setting {
    const char *name;
    size_t n;
    double budget, gap, noise, spread, common, heavy; /* gap: best above the second; in units of delta */
} setting;

static rates simulate(const setting *set, int n, bool null)
{
    rates r = {0};
    for (int i = 0; i < n; i++) {
        world w = {.speed = 0.02,
                   .common = set->common,
                   .heavy = set->heavy,
                   .kill_after = -1,
                   .number = (uint64_t)i * 131 + set->n};
        for (size_t v = 0; v < set->n; v++) {
            w.noise[v] = set->noise * (1 + set->spread * (double)(v % 3));
            w.means[v] = null ? 20
                              : 20 - set->gap * (double)((v + (size_t)i) % set->n > 0 ? 1 : 0) -
                                    0.2 * (double)((v + (size_t)i) % set->n);
        }
        add_study(&r, &w, set->n, set->budget, 1);
    }
    printf("%-28s %s n %5d: false difference %.3f, false equivalence %.3f, best not within delta %.3f, bound "
           "exceeded %.3f (mean %.2f), decided %.2f\n",
           set->name, null ? "equal " : "unlike", n, (double)r.false_difference / n,
           (double)r.false_equivalence / n, (double)r.far / n, (double)r.beyond / n, r.within / n,
           (double)r.decided / n);
    assert_int_equal(r.over_budget, 0);
    return r;
}

/* Numbers of variants, variances, seeds (through the budget) and tails vary. */
static const setting settings[] = {
    {"two, ample", 2, 2000, 1, 0.5, 0, 1, 0},
    {"seven, ample", 7, 20000, 1, 0.5, 0, 1, 0},
    {"seven, unequal variances", 7, 20000, 1, 0.4, 0.5, 1, 0},
    {"four, heavy tails", 4, 8000, 1, 0.5, 0, 0, 5},
    {"three, ample, noisy", 3, 20000, 1, 1.0, 0, 2, 0},
};
static const setting short_settings[] = {
    {"seven, short", 7, 500, 0.5, 1.0, 0, 1, 0},
    {"seven, very short", 7, 240, 1.5, 1.0, 0.5, 0, 0},
    {"four, short, heavy tails", 4, 300, 1, 1, 0.5, 1, 5},
};
enum {
    N_SETTINGS = sizeof settings / sizeof *settings,
    N_SHORT = sizeof short_settings / sizeof *short_settings
};

static int replications(void)
{
    const char *text = getenv("STUDY_REPLICATIONS"); /* of docs/study.md: 10000 */
    return text ? atoi(text) : 400;
}

static void test_errors_are_at_most_five_percent(void **state)
{
    (void)state;
    int n = replications(), most = most_errors(n);
    for (size_t i = 0; i < N_SETTINGS + N_SHORT; i++)
        for (int null = 0; null < 2; null++) {
            rates r = simulate(i < N_SETTINGS ? &settings[i] : &short_settings[i - N_SETTINGS], n, null);
            assert_true(r.false_difference <= most);
            assert_true(r.false_equivalence <= most);
            assert_true(r.beyond <= most);
            if (i < N_SETTINGS)
                assert_true(r.far <= most);
        }
}

/* Archived runs of a comparison: the means of its variants, and the residuals of all runs, which replace the
 * normal noise. A line of the file is COMPARISON VARIANT VALUE; scripts/study_calibration.py writes it. */
enum { MAX_RESIDUALS = 512 };
typedef struct archive {
    char name[128], variants[MAX_VARIANTS][64];
    size_t n, counts[MAX_VARIANTS], n_residuals;
    double values[MAX_VARIANTS][MAX_RESIDUALS], residuals[MAX_RESIDUALS], means[MAX_VARIANTS];
} archive;

static void calibrate(archive *a)
{
    double squares = 0;
    rates all[2] = {{0}, {0}};
    int n = replications();
    for (size_t v = 0; v < a->n; v++)
        for (size_t i = 0; i < a->counts[v]; i++)
            a->means[v] += a->values[v][i] / (double)a->counts[v];
    for (size_t v = 0; v < a->n; v++)
        for (size_t i = 0; i < a->counts[v] && a->counts[v] > 1 && a->n_residuals < MAX_RESIDUALS; i++) {
            double factor = sqrt((double)a->counts[v] / ((double)a->counts[v] - 1));
            a->residuals[a->n_residuals++] = factor * (a->values[v][i] - a->means[v]);
            squares += factor * factor * pow(a->values[v][i] - a->means[v], 2);
        }
    for (int i = 0; i < 2 * n; i++) {
        world w = {.speed = 0.02,
                   .kill_after = -1,
                   .number = (uint64_t)i,
                   .residuals = a->residuals,
                   .n_residuals = a->n_residuals};
        for (size_t v = 0; v < a->n; v++)
            w.means[v] = i % 2 ? a->means[v] : 20;
        add_study(&all[i % 2], &w, a->n, 20000, fmax(0.5, sqrt(squares / (double)a->n_residuals)));
    }
    printf("%-28s variants %zu, sd %.2f: false difference %.3f, false equivalence %.3f, best not within "
           "delta %.3f, "
           "bound exceeded %.3f\n",
           a->name, a->n, sqrt(squares / (double)a->n_residuals), (double)all[0].false_difference / n,
           (double)all[1].false_equivalence / n, (double)all[1].far / n, (double)all[1].beyond / n);
    assert_true(all[0].false_difference <= most_errors(n) && all[1].false_equivalence <= most_errors(n));
    assert_true(all[1].far <= most_errors(n) && all[1].beyond <= most_errors(n));
}

static void test_resampled_archives(void **state)
{
    (void)state;
    const char *path = getenv("STUDY_RUNS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        skip();
    archive *a = nm_allocate(sizeof *a);
    char name[128], variant[64];
    double value;
    while (fscanf(file, "%127s %63s %lf", name, variant, &value) == 3) {
        if (a->n && strcmp(name, a->name)) {
            calibrate(a);
            *a = (archive){0};
        }
        snprintf(a->name, sizeof a->name, "%s", name);
        size_t v = 0;
        while (v < a->n && strcmp(a->variants[v], variant))
            v++;
        assert_true(v < MAX_VARIANTS);
        if (v == a->n)
            snprintf(a->variants[a->n++], sizeof a->variants[0], "%s", variant);
        a->values[v][a->counts[v]++] = value;
    }
    calibrate(a);
    free(a);
    fclose(file);
}

static char *answer_text(const nm_study_procedure *s)
{
    char *text = nm_format("%s|%.17g|%.17g|%lld", s->answer.paragraph, s->answer.used, s->answer.within,
                           (long long)s->answer.more_seeds);
    for (size_t i = 0; i < s->config.n; i++)
        nm_format_append(&text, "|%s %s %.17g %.17g %.17g %.17g", s->variants[i].variant,
                         s->variants[i].state, s->variants[i].score, s->variants[i].low, s->variants[i].p,
                         s->variants[i].lr);
    return text;
}

static world killed_world(void)
{
    return (world){.means = {20, 20.5, 21.5, 21},
                   .noise = {.5, .5, .5, .5},
                   .common = 1,
                   .speed = 0.02,
                   .number = 5,
                   .kill_after = -1,
                   .diverges = true};
}

/* Runs a study until it is killed after this many further runs; NULL: it was killed. */
static char *run_until(const char *folder, int64_t runs, int64_t *trained)
{
    nm_error err;
    world w = killed_world();
    w.kill_after = runs;
    nm_study_procedure s = study_of(&w, 4, 500, 1, folder);
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
    nm_status status = nm_study_procedure_plan(&s, &err);
    if (status == NM_OK)
        status = nm_study_procedure_run(&s, &err);
    char *text = status == NM_OK ? answer_text(&s) : NULL;
    assert_true(status == NM_OK || status == NM_INTERRUPTED);
    *trained = w.n_trained;
    nm_study_procedure_release(&s);
    return text;
}

static void test_killed_studies_have_the_same_answer(void **state)
{
    (void)state;
    char folder[] = "study_XXXXXX";
    int64_t all, trained;
    assert_non_null(mkdtemp(folder));
    char *whole = run_until(folder, -1, &all), *queue = nm_path_join(folder, "queue.jsonl");
    assert_non_null(whole);
    char *lines, *continued_lines;
    nm_error err;
    assert_int_equal(nm_file_read(queue, &lines, NULL, &err), NM_OK);
    for (const char *phase = "speed\0rates\0select\0confirm\0"; *phase; phase += strlen(phase) + 1)
        assert_non_null(strstr(lines, phase));
    for (int64_t kill = 0; kill < all; kill += 3) {
        assert_int_equal(unlink(queue), 0);
        assert_null(run_until(folder, kill, &trained));
        FILE *torn = fopen(queue, "ab"); /* the line that was being written */
        fputs("{\"type\":\"run\",\"pha", torn);
        fclose(torn);
        char *text = run_until(folder, -1, &trained);
        assert_string_equal(text, whole);
        assert_int_equal(trained, all - kill); /* no run twice */
        free(text);
    }
    assert_int_equal(nm_file_read(queue, &continued_lines, NULL, &err), NM_OK);
    /* The decisions stand there once. */
    assert_null(strstr(strstr(continued_lines, "\"answer\"") + 8, "\"phase\":\"answer\""));
    assert_non_null(strstr(whole, "rms failed"));
    free(lines);
    free(continued_lines);
    free(queue);
    free(whole);
    assert_int_equal(remove_tree(folder), 0);
}

static void test_other_options_are_refused(void **state)
{
    (void)state;
    char folder[] = "study_XXXXXX";
    int64_t trained;
    nm_error err;
    world w = killed_world();
    assert_non_null(mkdtemp(folder));
    assert_null(run_until(folder, 2, &trained));
    nm_study_procedure s = study_of(&w, 4, 500, 1, folder);
    s.config.key = "other"; /* only the speed was measured: begins again */
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
    nm_study_procedure_release(&s);
    assert_null(run_until(folder, 8, &trained));
    assert_int_equal(trained, 8);
    s = study_of(&w, 4, 500, 1, folder);
    s.config.key = "other";
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_MISMATCH);
    assert_non_null(strstr(err.text, "(test; now other); choose another --folder"));
    nm_study_procedure_release(&s);
    assert_int_equal(remove_tree(folder), 0);
}

static void test_a_small_budget_is_an_error_that_names_a_sufficient_one(void **state)
{
    (void)state;
    nm_error err;
    world w = killed_world();
    w.diverges = false;
    nm_study_procedure s = study_of(&w, 4, 40, 1, NULL);
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
    assert_int_equal(nm_study_procedure_plan(&s, &err), NM_USAGE);
    const char *give = strstr(err.text, "; give ");
    assert_non_null(give);
    double enough = 60 * atof(give + 7);
    nm_study_procedure_release(&s);
    w.clock = 0;
    s = study_of(&w, 4, 10, 1, NULL);
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
    assert_int_equal(nm_study_procedure_plan(&s, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "10 seconds ended before the speed of all variants was measured"));
    nm_study_procedure_release(&s);
    w.clock = 0;
    s = study_of(&w, 4, enough, 1, NULL);
    assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
    assert_int_equal(nm_study_procedure_plan(&s, &err), NM_OK);
    assert_int_equal(s.n_parts, 4);
    nm_study_procedure_release(&s);
}

/* Few seeds where runs would be short; the recipe's length where it is reached. */
static void test_plans_prefer_long_runs(void **state)
{
    (void)state;
    static const struct {
        double budget;
        int64_t longest, seeds, rates, least, most;
    } cases[] = {{1500, 4000, 3, 2, 500, 999}, {20000, 4000, 5, 4, 1000, 4000}, {20000, 300, 5, 4, 300, 300}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_error err;
        world w = {.speed = .02, .kill_after = -1};
        nm_study_procedure s = study_of(&w, 7, cases[i].budget, 1, NULL);
        s.config.max_updates = cases[i].longest;
        assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
        assert_int_equal(nm_study_procedure_plan(&s, &err), NM_OK);
        assert_int_equal(s.first_seeds, cases[i].seeds);
        assert_int_equal(s.n_rates, cases[i].rates);
        assert_in_range(s.updates, cases[i].least, cases[i].most);
        nm_study_procedure_release(&s);
    }
}

/* The real time of each part is within a fifth of the plan, also where the selection leaves much of its time,
 * because one more seed of all variants does not fit. */
static void test_parts_take_what_the_plan_says(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        double budget, spread, scoring;
    } cases[] = {{7, 1680, 0, 2}, {7, 1680, 3, 2}, {7, 6000, 1, 2}, {6, 2000, 0, 8}, {6, 4000, 0, 14}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_error err;
        world w = {.speed = .1, .scoring = cases[i].scoring, .number = i + 1, .kill_after = -1};
        for (size_t v = 0; v < MAX_VARIANTS; v++)
            w.means[v] = 20 + cases[i].spread * (double)v, w.noise[v] = 4; /* all time is used */
        nm_study_procedure s = study_of(&w, cases[i].n, cases[i].budget, .5, NULL);
        s.config.max_updates = 4000;
        assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
        assert_int_equal(nm_study_procedure_plan(&s, &err), NM_OK);
        w.checkpoint = s.updates / 4;
        assert_int_equal(nm_study_procedure_run(&s, &err), NM_OK);
        double begun = 0;
        for (size_t k = 0; k < s.n_parts; k++) {
            double end = begun, planned = s.parts[k].seconds;
            for (size_t r = 0; r < s.n_runs; r++)
                if (!strcmp(s.runs[r]->row.phase, s.parts[k].phase))
                    end = fmax(end, s.runs[r]->row.at);
            assert_true(fabs((end - begun) / planned - 1) <= .2);
            begun = end;
        }
        nm_study_procedure_release(&s);
    }
}

/* Each kind of answer as a user reads it. */
static void test_answers(void **state)
{
    (void)state;
    static const struct {
        size_t n, variants;
        double budget, means[4], noise;
        int64_t fresh, fails;
        bool all_fail;
        const char *text;
    } cases[] = {
        {1,
         1,
         500,
         {20},
         .5,
         0,
         0,
         false,
         "layer is the only variant of this study: nothing was compared. It was trained with 6 fresh seeds."},
        {2,
         2,
         2000,
         {20, 23},
         .5,
         0,
         0,
         false,
         "rms is the best normalization for this data: it beats layer by 2.29 BLEU (95 % interval 1.77 to "
         "2.80, "
         "p <0.001). Each finalist was trained with 7 fresh seeds. With 95 % confidence, rms is the best "},
        {3,
         4,
         8000,
         {20, 23, 20, 20},
         .5,
         0,
         0,
         false,
         " scale+fix and layer were eliminated in the selection (not the best by 1.00 BLEU or more). With "
         "95 "},
        {4,
         3,
         8000,
         {20, 20, 20},
         .1,
         0,
         0,
         false,
         "by 0.11 BLEU (95 % interval 0.02 to 0.20, p 0.025), which is less than the 1.00 that matter "
         "(--delta). Each finalist was trained with 6 fresh seeds. layer was eliminated in the selection "
         "(not "},
        {5,
         3,
         1000,
         {20, 20, 20},
         1,
         0,
         0,
         false,
         "No difference that matters: layer and scale+fix are equivalent within 1.00 BLEU; layer has the "
         "highest "
         "score, by 0.35 BLEU (95 % interval -0.36 to 1.05, p 0.308). Each finalist was trained with 15 "
         "fresh "},
        {6,
         2,
         2000,
         {20, 20},
         1,
         1,
         0,
         false,
         "Not decided: rms has the highest score, but its lead over layer can be chance; it is 1.38 BLEU "
         "(one "
         "seed has no interval). Each finalist was trained with 1 fresh seed. One seed cannot be tested."},
        {7,
         2,
         2000,
         {20, 20},
         1,
         3,
         0,
         false,
         "With 3 paired seeds, a sign-flip test cannot reach p 0.05 (it needs 6); the t tests assume normal "
         "differences. With 95 % confidence, no variant of this study is more than 7.52 BLEU better than "
         "layer. "
         "What would decide it: 46 fresh seeds of each finalist find or exclude a difference of 1.00 BLEU, "
         "in "
         "most cases; the further ones take 16 min."},
        {8,
         2,
         2000,
         {20, 20},
         .5,
         0,
         1001,
         false,
         "rms has the best validation score, but this is not confirmed: no fresh seed has a result of every "
         "finalist (rms, seed 1007: the loss is not finite)."},
        {9,
         2,
         2000,
         {20, 20},
         .5,
         0,
         1004,
         false,
         "3 runs with fresh seeds failed or diverged (rms, seed 1006); their seeds are left out for all "
         "finalists, which favors the variant that failed. With 95 % confidence"},
        {10,
         3,
         2000,
         {20, 20, 20},
         .5,
         0,
         2,
         false,
         "layer is the only variant that finished its training. It was trained with 6 fresh seeds. rms and "
         "scale+fix are out because a run failed or diverged."},
        {11,
         3,
         2000,
         {20, 20, 20},
         .5,
         0,
         2,
         true,
         "No variant finished its training; the decisions in queue.jsonl say why."},
        {12,
         2,
         130,
         {20, 20},
         .5,
         0,
         0,
         false,
         "The best learning rate of layer, 0.002, is at the edge of those that were tried: another one may "
         "be "
         "better (--rates). The runs had"},
        {13,
         4,
         400,
         {20, 20, 20, 20},
         2,
         0,
         0,
         false,
         "Not decided: rms has the highest score, but its lead over scale+fix and layer can be chance; over "
         "scale+fix it is 0.66 BLEU (95 % interval -2.57 to 3.89, p 1.000). Each finalist was trained with 7 "
         "fresh seeds. batch was dropped for lack of budget. With 95 % confidence, no variant of this study "
         "is more than 9.43 BLEU better than rms. What would decide it: 175 fresh seeds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_error err;
        world w = {.common = 1, .speed = .02, .kill_after = -1, .number = cases[i].n};
        for (size_t v = 0; v < cases[i].variants; v++) {
            w.means[v] = cases[i].means[v];
            w.noise[v] = cases[i].noise;
        }
        w.fails = cases[i].fails;
        w.all_fail = cases[i].all_fail;
        nm_study_procedure s = study_of(&w, cases[i].variants, cases[i].budget, 1, NULL);
        s.config.fresh = cases[i].fresh;
        assert_int_equal(nm_study_procedure_open(&s, &err), NM_OK);
        assert_int_equal(nm_study_procedure_plan(&s, &err), NM_OK);
        assert_int_equal(nm_study_procedure_run(&s, &err), NM_OK);
        if (!strstr(s.answer.paragraph, cases[i].text))
            fail_msg("case %zu, %s: %s", cases[i].n, s.answer.verdict, s.answer.paragraph);
        nm_study_procedure_release(&s);
    }
}

/* Kim and Nelson's boundary, computed manually: k 3, n 5, alpha 0.025: eta = ((0.05 / 2)^(-1/2) - 1) / 2 =
 * 2.66228, h^2 = 21.29822. */
static void test_elimination_follows_the_boundary(void **state)
{
    (void)state;
    const double a[] = {1, 2, 3, 4, 5}, b[] = {2, 2, 5, 4, 7}, c[] = {1.5, 2.5, 3.5, 4.5, 5.5};
    const double *values[] = {a, b, c};
    size_t by[3];
    /* a - b: mean -1, S^2 = 1: W = delta/10 (h^2/delta^2 - 5); a - c: S 0, W 0, so a loses to c anyway */
    const nm_selection rule = {3, 5, 0.025, 2};
    bool remains[] = {true, true, true};
    /* c - b: mean -0.5, S^2 = 1: W = 0.2 (21.29822/4 - 5) = 0.06491: c loses to b, and a to both */
    assert_int_equal(nm_selection_eliminate(&rule, values, 5, remains, by), 1);
    assert_true(remains[1] && by[0] == 1 && by[2] == 1);
    const nm_selection wide = {3, 5, 0.025, 1}; /* W = 0.1 (21.29822 - 5) = 1.63 */
    bool all[] = {true, true, true};
    assert_int_equal(nm_selection_eliminate(&wide, values, 5, all, by), 2);
    assert_true(!all[0] && all[1] && all[2] && by[0] == 2);
    /* t(4, 0.975) = 2.776445: bound of b - a: 1 + 1/sqrt(5) t */
    assert_true(fabs(nm_selection_bound(b, a, 5, 0.025) - (1 + 2.7764451052 / sqrt(5))) < 1e-9);
    assert_true(isinf(nm_selection_bound(b, a, 1, 0.025)));
    /* R: power.t.test(delta = 0.5, sd = 1, type = "paired", power = 0.8): 33.37 pairs */
    assert_true(llabs(nm_seeds_needed(1, 0.5, 0.05, 0.8) - 34) <= 1);
    assert_int_equal(nm_seeds_needed(0, 1, 0.05, 0.8), 2);
    assert_int_equal(nm_seeds_needed(1, 1e-9, 0.05, 0.8), 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elimination_follows_the_boundary),
        cmocka_unit_test(test_killed_studies_have_the_same_answer),
        cmocka_unit_test(test_other_options_are_refused),
        cmocka_unit_test(test_a_small_budget_is_an_error_that_names_a_sufficient_one),
        cmocka_unit_test(test_plans_prefer_long_runs),
        cmocka_unit_test(test_parts_take_what_the_plan_says),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_errors_are_at_most_five_percent),
        cmocka_unit_test(test_resampled_archives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
