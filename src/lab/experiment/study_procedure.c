#include "experiment/study_procedure.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "experiment/run_plan.h"

enum { FIRST_SELECT_SEED = 2, FIRST_FRESH_SEED = 1001, MIN_FRESH = 6, MAX_SELECT_SEEDS = 1000 };
static const double reserve = 0.95; /* of the remaining budget that may be planned: estimates are not exact */

nm_status nm_study_procedure_open(nm_study_procedure *s, nm_error *err)
{
    s->states = nm_allocate((s->config.n + 1) * sizeof *s->states);
    s->variants = nm_allocate((s->config.n + 1) * sizeof *s->variants);
    s->texts = json_array();
    if (!s->config.folder)
        return NM_OK;
    return nm_run_journal_open(&s->journal, s->config.folder, s->config.key, err);
}

void nm_study_procedure_release(nm_study_procedure *s)
{
    nm_free_list(s->runs, s->n_runs);
    NM_FREE(s->states, s->variants, s->paragraph);
    json_decref(s->texts);
    nm_run_journal_close(&s->journal);
    *s = (nm_study_procedure){0};
}

static const char *keep(nm_study_procedure *s, char *text)
{
    json_t *o = json_string(text);
    free(text);
    json_array_append_new(s->texts, o);
    return json_string_value(o);
}

static double seconds_of(const nm_study_procedure *s, size_t v, double updates, bool scored)
{
    const nm_study_state *state = &s->states[v];
    return state->overhead + state->per_update * updates + (scored ? state->scoring : 0);
}

/* Of a run of a learning rate: a quarter of the schedule, the second one continued from the first. */
static double rate_seconds(const nm_study_procedure *s, size_t v, double updates)
{
    return fmin(s->plain, s->states[v].overhead) + s->states[v].per_update * updates / 4;
}

static nm_trial *add_run(nm_study_procedure *s, const char *phase, size_t v, double lr, int64_t seed,
                         int64_t updates)
{
    nm_trial *run = nm_allocate(sizeof *run);
    const char *name = s->config.variants[v];
    bool rates = !strcmp(phase, "rates");
    nm_record_clear(nm_planned_run_fields(), &run->row);
    run->variant = v;
    run->row.type = "run";
    run->row.phase = phase;
    run->row.variant = name;
    run->row.lr = lr;
    run->row.seed = seed;
    run->row.updates = updates;
    run->row.state = "planned";
    run->row.at = s->now;
    char *folder = rates                     ? nm_format("%s:schedule.lr=%g-%" PRId64, name, lr, seed)
                   : !strcmp(phase, "speed") ? nm_format("speed/%s-%" PRId64, name, seed)
                                             : nm_format("%s-%" PRId64, name, seed);
    for (char *at = rates || *phase != 's' || phase[1] != 'p' ? folder : folder + 6; *at; at++)
        *at = *at == '/' ? '_' : *at;
    run->row.folder = keep(s, folder);
    if (s->states[v].per_update > 0)
        run->row.seconds =
            rates ? rate_seconds(s, v, (double)s->updates) : seconds_of(s, v, (double)updates, *phase == 'c');
    NM_APPEND(s->runs, s->n_runs, s->runs_capacity, run);
    return run;
}

static void on_started(void *study, nm_trial *run)
{
    nm_study_procedure *s = study;
    run->row.state = "running";
    run->row.at = s->now;
    nm_run_journal_add_run(&s->journal, &run->row, NM_IGNORED);
    if (s->events.run)
        s->events.run(s->events.user, &run->row);
}

static nm_status on_finished(void *study, nm_trial *run, nm_error *err)
{
    nm_study_procedure *s = study;
    s->now = s->base + s->runner.clock(s->runner.user) - s->start;
    run->row.at = s->now;
    if (s->events.run)
        s->events.run(s->events.user, &run->row);
    return nm_run_journal_add_run(&s->journal, &run->row, err);
}

static bool is_scored(const nm_planned_run *row)
{
    return *row->phase == 'c' || (!strcmp(row->phase, "speed") && row->seed != NM_PLAIN_SEED);
}

/* Trains the runs from number `first` on that have no result. Runs that the queue has as planned only become
 * its lines first, so that a page shows what is ahead. */
static nm_status train(nm_study_procedure *s, size_t first, nm_error *err)
{
    size_t n = 0;
    NM_AUTO_FREE nm_trial **waiting = nm_allocate((s->n_runs - first + 1) * sizeof *waiting);
    nm_status status = NM_OK;
    double latest = s->now;
    for (size_t i = first; i < s->n_runs && status == NM_OK; i++) {
        nm_trial *run = s->runs[i];
        double estimate = run->row.seconds;
        if (!nm_run_journal_find(&s->journal, &run->row)) {
            waiting[n++] = run;
            continue;
        }
        run->row.seconds = estimate;
        latest = fmax(latest, run->row.at);
        if (is_scored(&run->row) && !strcmp(run->row.state, "finished") && s->runner.load)
            status = s->runner.load(s->runner.user, run, err);
    }
    s->now = latest;
    for (size_t i = 0; i < n && status == NM_OK; i++)
        status = nm_run_journal_add_run(&s->journal, &waiting[i]->row, err);
    s->base = s->now;
    s->start = s->runner.clock(s->runner.user);
    if (n && status == NM_OK)
        status = s->runner.train(s->runner.user, waiting, n, s->config.budget - s->now, on_started,
                                 on_finished, s, err);
    for (size_t i = first; i < s->n_runs; i++)
        if (isfinite(s->runs[i]->row.took))
            s->states[s->runs[i]->variant].used += s->runs[i]->row.took;
    return status;
}

static nm_status fail_variant(nm_study_procedure *s, size_t v, const nm_trial *run, nm_error *err)
{
    s->states[v].failed = true;
    s->states[v].outcome = !strcmp(run->row.state, "dropped") ? "dropped" : "failed";
    return nm_study_decide(s, run->row.phase, s->config.variants[v], err, "%s is out: seed %lld %s%s%s",
                           s->config.variants[v], (long long)run->row.seed, run->row.state,
                           run->row.note && *run->row.note ? ": " : "", run->row.note ? run->row.note : "");
}

static size_t n_alive(const nm_study_procedure *s)
{
    size_t n = 0;
    for (size_t v = 0; v < s->config.n; v++)
        n += !s->states[v].outcome;
    return n;
}

/* The overhead of runs that have only a validation loss, which hardly depends on the norm. */
static nm_status measure_plain(nm_study_procedure *s, nm_error *err)
{
    size_t first = s->n_runs, v = 0;
    while (s->states[v].outcome)
        v++;
    const nm_trial *run = add_run(s, "speed", v, NAN, NM_PLAIN_SEED, s->config.speed_updates);
    NM_TRY(train(s, first, err));
    s->plain =
        strcmp(run->row.state, "finished") ? INFINITY : fmax(0, run->row.took - run->row.train_seconds);
    return NM_OK;
}

static nm_status measure_speed(nm_study_procedure *s, nm_error *err)
{
    size_t first = s->n_runs;
    for (size_t v = 0; v < s->config.n; v++)
        add_run(s, "speed", v, NAN, 1, s->config.speed_updates);
    NM_TRY(train(s, first, err));
    const nm_trial *failed = NULL;
    for (size_t v = 0; v < s->config.n; v++) {
        const nm_trial *run = s->runs[first + v];
        if (!strcmp(run->row.state, "dropped"))
            return nm_fail(err, NM_USAGE,
                           "the budget of %.0f seconds ended before the speed of all variants was measured; "
                           "give a larger one (--budget) or fewer variants (--norms)",
                           s->config.budget);
        if (strcmp(run->row.state, "finished")) {
            failed = run;
            NM_TRY(fail_variant(s, v, run, err));
            continue;
        }
        nm_study_state *state = &s->states[v];
        state->per_update = run->row.train_seconds / (double)s->config.speed_updates;
        state->scoring = isfinite(run->row.score_seconds) ? run->row.score_seconds : 0;
        state->overhead = fmax(0, run->row.took - state->scoring - run->row.train_seconds);
    }
    if (!n_alive(s))
        return nm_fail(err, NM_USAGE, "no variant can be trained; %s: %s", failed->row.variant,
                       failed->row.note ? failed->row.note : failed->row.state);
    return measure_plain(s, err);
}

typedef struct design { /* numbers per variant */
    size_t rates, first, fresh;
} design;

/* Seconds of a part in which each of the alive variants (of the two slowest ones: confirm) has n runs. */
static double part_seconds(const nm_study_procedure *s, const char *phase, size_t n, double updates)
{
    size_t k = 0;
    bool only_two = *phase == 'c', rates = *phase == 'r';
    NM_AUTO_FREE double *list = nm_allocate((s->config.n * (n + 1) + 1) * sizeof *list);
    double slow[2] = {0, 0};
    for (size_t v = 0; v < s->config.n; v++) {
        if (s->states[v].outcome)
            continue;
        double one = rates ? rate_seconds(s, v, updates) : seconds_of(s, v, updates, only_two);
        for (size_t i = 0; i < n && !only_two; i++)
            list[k++] = one;
        if (one > slow[0])
            slow[1] = slow[0], slow[0] = one;
        else
            slow[1] = fmax(slow[1], one);
    }
    for (size_t i = 0; i < n && only_two; i++) {
        list[k++] = slow[0];
        if (slow[1] > 0)
            list[k++] = slow[1];
    }
    return nm_plan_makespan(list, k, s->config.jobs);
}

static double rates_seconds(const nm_study_procedure *s, const design *d, double updates)
{
    double first = part_seconds(s, "rates", d->rates, updates);
    return d->rates > 1 ? first + part_seconds(s, "rates", (d->rates + 1) / 2, updates) : 0;
}

static bool fits(const nm_study_procedure *s, const design *d, double updates)
{
    double left = s->config.budget - s->now,
           chosen = rates_seconds(s, d, updates) + part_seconds(s, "select", d->first, updates),
           confirmed = part_seconds(s, "confirm", d->fresh, updates);
    return chosen + confirmed <= reserve * left && chosen <= reserve * (left - s->config.budget / 3) &&
           confirmed <= reserve * s->config.budget / 3;
}

static int64_t longest(const nm_study_procedure *s, const design *d)
{
    int64_t low = 0, high = s->config.max_updates / 4;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (fits(s, d, 4 * (double)middle))
            low = middle;
        else
            high = middle - 1;
    }
    return 4 * low;
}

static nm_status add_part(nm_study_procedure *s, const char *phase, size_t runs, int64_t updates,
                          double seconds, nm_error *err)
{
    nm_plan_part *part = &s->parts[s->n_parts++];
    *part = (nm_plan_part){"part", phase, (int64_t)runs, updates, seconds};
    s->planned += seconds;
    return nm_run_journal_add(&s->journal, nm_plan_part_fields(), part, err);
}

/* Of the selection if no variant is eliminated: the first seeds, then one more of each variant while there is
 * time until the last third of the budget. */
static double selection_seconds(const nm_study_procedure *s, const design *d, double before)
{
    double updates = (double)s->updates, first = part_seconds(s, "select", d->first, updates),
           more = part_seconds(s, "select", 1, updates), left = s->config.budget * 2 / 3 - before - first;
    return n_alive(s) > 1 && left > 0 ? first + floor(left / more) * more : first;
}

static nm_status set_plan(nm_study_procedure *s, const design *d, nm_error *err)
{
    size_t k = n_alive(s), two = k > 1 ? 2 : 1, halves = d->rates > 1 ? d->rates + (d->rates + 1) / 2 : 0;
    double updates = (double)s->updates;
    s->first_seeds = (int64_t)d->first;
    s->n_rates = d->rates;
    NM_TRY(add_part(s, "speed", s->config.n + 1, s->config.speed_updates, s->now, err));
    NM_TRY(add_part(s, "rates", k * halves, s->updates / 2, rates_seconds(s, d, updates), err));
    NM_TRY(add_part(s, "select", k * d->first, s->updates, selection_seconds(s, d, s->planned), err));
    /* All time that the selection leaves is used for fresh seeds; half a seed is left on average. */
    double confirmed = part_seconds(s, "confirm", d->fresh, updates),
           rest = reserve * (s->config.budget - s->planned) - part_seconds(s, "confirm", 1, updates) / 2;
    rest = k > 1 ? rest : 0;
    return add_part(s, "confirm", two * d->fresh, s->updates, fmax(confirmed, rest), err);
}

/* The first design whose runs are long enough: not much shorter than with few seeds, because few updates
 * compare how training begins. */
nm_status nm_study_procedure_plan(nm_study_procedure *s, nm_error *err)
{
    static const design designs[] = {
        {4, 5, MIN_FRESH}, {4, 4, MIN_FRESH}, {2, 3, MIN_FRESH}, {2, 3, 3}, {1, 2, 2}};
    enum { N = sizeof designs / sizeof *designs, FEW_SEEDS = 2 };
    NM_TRY(measure_speed(s, err));
    int64_t enough = 4 * longest(s, &designs[FEW_SEEDS]) / 5;
    enough = enough < NM_STUDY_LONG ? enough : NM_STUDY_LONG;
    for (size_t i = 0; i < N; i++) {
        design d = designs[i];
        int64_t least = i < FEW_SEEDS && enough > s->config.min_updates ? enough : s->config.min_updates;
        d.rates = d.rates < s->config.n_rates ? d.rates : s->config.n_rates;
        s->updates = s->config.updates ? s->config.updates : longest(s, &d);
        if ((s->config.updates || s->updates >= least) && fits(s, &d, (double)s->updates))
            return set_plan(s, &d, err);
    }
    const design *least = &designs[N - 1];
    double updates = (double)(s->config.updates ? s->config.updates : s->config.min_updates),
           needed = fmax(1.5 * (part_seconds(s, "select", least->first, updates) + s->now),
                         3 * part_seconds(s, "confirm", least->fresh, updates)) /
                    reserve;
    return nm_fail(err, NM_USAGE,
                   "a budget of %.0f seconds is too small for %zu variants with %.0f updates; give %.0fm or "
                   "more (--budget), fewer variants (--norms)%s",
                   s->config.budget, n_alive(s), updates, ceil(1.1 * needed / 60),
                   s->config.updates ? ", or fewer updates" : "");
}

static double loss_of(const nm_trial *run)
{
    return nm_trial_is_finished(run) && isfinite(run->row.loss) ? run->row.loss : INFINITY;
}

/* The runs of a variant in this part, from the lowest loss; equal ones from the lower rate. */
static void sort_by_loss(nm_trial **runs, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j && loss_of(runs[j]) < loss_of(runs[j - 1]); j--) {
            nm_trial *swapped = runs[j];
            runs[j] = runs[j - 1];
            runs[j - 1] = swapped;
        }
}

/* Selects the learning rate of each variant: all rates to a quarter of the schedule, the better half to one
 * half. Curves that are not finished are compared within a variant only: they would punish warm-up and
 * progressive norms. */
static nm_status select_rates(nm_study_procedure *s, nm_error *err)
{
    size_t begin = (s->config.n_rates - s->n_rates) / 2, k = s->config.n, n = s->n_rates;
    NM_AUTO_FREE nm_trial **runs = nm_allocate((k * n + 1) * sizeof(nm_trial *));
    nm_status status = NM_OK;
    for (size_t v = 0; v < k; v++)
        s->states[v].lr = s->config.lr[begin + n / 2 - (n > 1 && n % 2 == 0)];
    for (int64_t quarter = 1; quarter <= 2 && s->n_rates > 1 && status == NM_OK; quarter++) {
        size_t first = s->n_runs, kept = quarter == 1 ? n : (n + 1) / 2;
        for (size_t v = 0; v < k; v++)
            for (size_t i = 0; i < kept && !s->states[v].outcome; i++) {
                nm_trial *earlier = runs[v * n + i];
                runs[v * n + i] = add_run(s, "rates", v, earlier ? earlier->row.lr : s->config.lr[begin + i],
                                          1, quarter * s->updates / 4);
            }
        status = train(s, first, err);
        for (size_t v = 0; v < k && status == NM_OK; v++) {
            if (s->states[v].outcome)
                continue;
            sort_by_loss(&runs[v * n], kept);
            const nm_trial *best = runs[v * n];
            s->states[v].lr = best->row.lr;
            s->states[v].lr_at_edge =
                best->row.lr == s->config.lr[begin] || best->row.lr == s->config.lr[begin + n - 1];
            if (isinf(loss_of(best)))
                status = fail_variant(s, v, best, err);
            else if (quarter == 2)
                status = nm_study_decide(s, "rates", s->config.variants[v], err, "%s: learning rate %g",
                                         s->config.variants[v], best->row.lr);
        }
    }
    return status;
}

/* Trains one more seed of each remaining variant. */
static nm_status add_seeds(nm_study_procedure *s, int64_t from, int64_t to, const bool *remains,
                           nm_error *err)
{
    size_t first = s->n_runs;
    for (int64_t seed = from; seed < to; seed++)
        for (size_t v = 0; v < s->config.n; v++)
            if (remains[v])
                add_run(s, "select", v, s->states[v].lr, FIRST_SELECT_SEED + seed, s->updates);
    NM_TRY(train(s, first, err));
    for (size_t i = first; i < s->n_runs; i++)
        if (!nm_trial_is_finished(s->runs[i]) && !s->states[s->runs[i]->variant].outcome)
            NM_TRY(fail_variant(s, s->runs[i]->variant, s->runs[i], err));
    return NM_OK;
}

/* Rows [n][MAX_SELECT_SEEDS + 1] of the values of the selection. */
static void read_values(const nm_study_procedure *s, double **values)
{
    for (size_t v = 0; v < s->config.n; v++) {
        size_t n;
        NM_AUTO_FREE nm_trial **runs = nm_study_trials(s, "select", v, &n);
        for (size_t i = 0; i < n && i <= MAX_SELECT_SEEDS; i++)
            values[v][i] = runs[i]->row.value;
    }
}

static double mean_of(const double *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    return sum / (double)n;
}

/* Whether one more seed of the remaining variants ends before the last third of the budget. */
static bool has_time(const nm_study_procedure *s)
{
    return s->now + part_seconds(s, "select", 1, (double)s->updates) <= s->config.budget * 2 / 3;
}

static nm_status eliminate(nm_study_procedure *s, const nm_selection *rule, double **values, int64_t r,
                           bool *remains, nm_error *err)
{
    NM_AUTO_FREE bool *before = nm_allocate(s->config.n + 1);
    NM_AUTO_FREE size_t *by = nm_allocate((s->config.n + 1) * sizeof *by);
    memcpy(before, remains, s->config.n);
    nm_selection_eliminate(rule, (const double *const *)values, (size_t)r, remains, by);
    nm_status status = NM_OK;
    for (size_t v = 0; v < s->config.n && status == NM_OK; v++) {
        if (!before[v] || remains[v])
            continue;
        s->states[v].outcome = "eliminated";
        status = nm_study_decide(s, "select", s->config.variants[v], err,
                                 "%s is eliminated after %lld seeds: %.2f %s below %s on validation data",
                                 s->config.variants[v], (long long)r,
                                 mean_of(values[by[v]], r) - mean_of(values[v], r), s->config.unit,
                                 s->config.variants[by[v]]);
    }
    return status;
}

static void update_alive(const nm_study_procedure *s, bool *remains)
{
    for (size_t v = 0; v < s->config.n; v++)
        remains[v] = !s->states[v].outcome;
}

/* Durations of the complete runs replace the estimates of the first updates. The output of untrained models
 * may be longer or shorter: scoring scales with what validation scores take. */
static void update_speed(nm_study_procedure *s)
{
    for (size_t v = 0; v < s->config.n; v++) {
        size_t n;
        NM_AUTO_FREE nm_trial **runs = nm_study_trials(s, "select", v, &n);
        double sum = 0, training = 0;
        for (size_t i = 0; i < n; i++) {
            sum += runs[i]->row.took;
            training += runs[i]->row.train_seconds;
        }
        if (n && isfinite(sum)) {
            s->states[v].per_update = training / ((double)n * (double)s->updates);
            double overhead = fmax(0, (sum - training) / (double)n),
                   before = s->states[v].overhead - s->plain, after = overhead - s->plain;
            if (fmin(before, after) > 0.2 * s->states[v].scoring)
                s->states[v].scoring *= after / before;
            s->states[v].overhead = overhead;
        }
    }
}

/* Kim-Nelson with the budget as a second end. */
static nm_status race(nm_study_procedure *s, double **values, bool *remains, int64_t *seeds, nm_error *err)
{
    int64_t r = s->first_seeds;
    update_alive(s, remains);
    const nm_selection rule = {s->config.n, (size_t)s->first_seeds, s->config.alpha / 2, s->config.delta};
    NM_TRY(add_seeds(s, 0, r, remains, err));
    for (;;) {
        update_alive(s, remains);
        update_speed(s);
        read_values(s, values);
        *seeds = r;
        NM_TRY(eliminate(s, &rule, values, r, remains, err));
        s->selection_done = n_alive(s) <= 1;
        if (s->selection_done || r >= MAX_SELECT_SEEDS || !has_time(s))
            return NM_OK;
        NM_TRY(add_seeds(s, r, r + 1, remains, err));
        r++;
    }
}

/* Sorts the variants by their mean value of the selection: those that remain first, then the eliminated and
 * the failed ones. */
static void rank(const nm_study_procedure *s, double **values, int64_t seeds, size_t *order)
{
    size_t n = s->config.n;
    NM_AUTO_FREE double *keys = nm_allocate((n + 1) * sizeof *keys);
    for (size_t v = 0; v < n; v++) {
        size_t done;
        free(nm_study_trials(s, "select", v, &done));
        keys[v] = done ? mean_of(values[v], (int64_t)done < seeds ? (int64_t)done : seeds) : -INFINITY;
        keys[v] = s->states[v].failed ? -INFINITY : keys[v];
        order[v] = v;
    }
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j; j--) {
            size_t a = order[j - 1], b = order[j];
            bool alive_a = !s->states[a].outcome, alive_b = !s->states[b].outcome;
            if (alive_a > alive_b || (alive_a == alive_b && keys[a] >= keys[b]))
                break;
            order[j - 1] = b;
            order[j] = a;
        }
}

/* Seeds of `n` finalists that the rest of the budget has time for. */
static int64_t affordable(const nm_study_procedure *s, const size_t *finalists, size_t n)
{
    double list[NM_STUDY_MAX_FINALISTS], sum = 0, most = 0, left = reserve * (s->config.budget - s->now),
                                         slots = (double)s->config.jobs;
    for (size_t i = 0; i < n; i++) {
        list[i] = seconds_of(s, finalists[i], (double)s->updates, true);
        sum += list[i];
        most = fmax(most, list[i]);
    }
    /* A list schedule ends at most (1 - 1/slots) of the longest run later than without gaps. */
    double usable = left - most * (1 - 1 / slots);
    return usable > 0 && n ? (int64_t)(usable * slots / sum) : 0;
}

/* Their number: all that remain, up to four, if each has six fresh seeds; at least two, so that the
 * difference from the second best is known. */
static nm_status choose_finalists(nm_study_procedure *s, double **values, int64_t seeds, nm_error *err)
{
    size_t *order = nm_allocate((s->config.n + 1) * sizeof *order), n = n_alive(s), usable = 0;
    rank(s, values, seeds, order);
    for (size_t v = 0; v < s->config.n; v++)
        usable += !s->states[v].failed;
    n = n < 2 ? 2 : n;
    n = n < usable ? n : usable;
    n = n < NM_STUDY_MAX_FINALISTS ? n : NM_STUDY_MAX_FINALISTS;
    while (n > 2 && affordable(s, order, n) < MIN_FRESH)
        n--;
    s->n_finalists = n;
    memcpy(s->finalists, order, n * sizeof *order);
    double deviation = 0, pairs = (double)(n * (n - 1)) / 2;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            size_t most = 0, other = 0;
            NM_FREE(nm_study_trials(s, "select", order[i], &most),
                    nm_study_trials(s, "select", order[j], &other));
            most = most < other ? most : other;
            NM_AUTO_FREE double *d = nm_allocate((most + 1) * sizeof *d);
            for (size_t r = 0; r < most; r++)
                d[r] = values[order[i]][r] - values[order[j]][r];
            deviation = fmax(
                deviation, nm_seed_mean_test(&(nm_seed_scores){.n = most, .scores = d}, 0.05).standard_error *
                               sqrt((double)most));
        }
    int64_t needed = n > 1 && isfinite(deviation)
                         ? nm_seeds_needed(deviation, s->config.delta, s->config.alpha / pairs, 0.8)
                         : 2,
            most = affordable(s, order, n);
    needed = needed < MIN_FRESH ? MIN_FRESH : needed;
    needed = s->config.fresh ? s->config.fresh : needed;
    s->fresh = needed < most ? needed : most;
    /* A variant that remains and is no finalist: a bound from the first seeds, whose number is fixed. */
    s->unseen_within = 0;
    for (size_t i = n; i < s->config.n; i++) {
        size_t v = order[i];
        if (s->states[v].outcome)
            continue;
        s->states[v].outcome = "dropped";
        for (size_t f = 0; f < n; f++)
            s->unseen_within =
                fmax(s->unseen_within, nm_selection_bound(values[v], values[order[f]], (size_t)s->first_seeds,
                                                          s->config.alpha / 4 / (double)(s->config.n - 1)));
    }
    for (size_t f = 0; f < n; f++)
        s->states[order[f]].outcome = NULL;
    free(order);
    return nm_study_decide(s, "confirm", NULL, err,
                           "%zu finalist%s with %lld fresh seeds each: standard deviation of the paired "
                           "differences %.2f %s, %lld seeds needed for a difference of %.2f, time for %lld",
                           n, n == 1 ? "" : "s", (long long)s->fresh, deviation, s->config.unit,
                           (long long)needed, s->config.delta, (long long)most);
}

static nm_status confirm(nm_study_procedure *s, nm_error *err)
{
    size_t first = s->n_runs;
    for (int64_t seed = 0; seed < s->fresh; seed++) /* interleaved: a deadline leaves complete seeds */
        for (size_t f = 0; f < s->n_finalists; f++)
            add_run(s, "confirm", s->finalists[f], s->states[s->finalists[f]].lr, FIRST_FRESH_SEED + seed,
                    s->updates);
    return train(s, first, err);
}

nm_status nm_study_procedure_run(nm_study_procedure *s, nm_error *err)
{
    NM_TRY(select_rates(s, err));
    double **values = nm_allocate((s->config.n + 1) * sizeof *values);
    NM_AUTO_FREE bool *remains = nm_allocate(s->config.n + 1);
    int64_t seeds = 0;
    for (size_t v = 0; v < s->config.n; v++)
        values[v] = nm_allocate((MAX_SELECT_SEEDS + 2) * sizeof *values[v]);
    nm_status status = race(s, values, remains, &seeds, err);
    NM_THEN(status, choose_finalists(s, values, seeds, err));
    nm_free_list(values, s->config.n);
    NM_TRY(status);
    NM_TRY(confirm(s, err));
    return nm_study_answer_compute(s, err);
}
