/* The answer of a study: paired tests of the finalists on fresh seeds, a bound of what could be better, and
 * words for both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "experiment/study_procedure.h"
#include "base/summary.h"

static NM_FIELDS(nm_study_answer, NM_STUDY_ANSWER)
static NM_FIELDS(nm_studied_variant, NM_STUDIED_VARIANT)

typedef struct finals {                      /* of the finalists */
    size_t n;                                /* finalists */
    size_t seeds;                            /* with a result of every finalist */
    nm_trial **runs[NM_STUDY_MAX_FINALISTS]; /* [seeds] of each */
    double means[NM_STUDY_MAX_FINALISTS];
    nm_seed_difference pairs[NM_STUDY_MAX_FINALISTS][NM_STUDY_MAX_FINALISTS]; /* of i minus j */
    double p[NM_STUDY_MAX_FINALISTS][NM_STUDY_MAX_FINALISTS];                 /* with Holm's correction */
    double equivalence[NM_STUDY_MAX_FINALISTS][NM_STUDY_MAX_FINALISTS];
    double deviations[NM_STUDY_MAX_FINALISTS][NM_STUDY_MAX_FINALISTS]; /* of paired differences */
    size_t best;
} finals;

static const nm_trial *run_of_seed(nm_trial *const *runs, size_t n, int64_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (runs[i]->row.seed == seed && nm_trial_is_finished(runs[i]))
            return runs[i];
    return NULL;
}

/* Keeps the seeds that every finalist has: a deadline may have ended the last ones. */
static void read_finals(const nm_study_procedure *s, finals *f)
{
    size_t n[NM_STUDY_MAX_FINALISTS] = {0};
    f->n = s->n_finalists;
    for (size_t i = 0; i < f->n; i++)
        f->runs[i] = nm_study_trials(s, "confirm", s->finalists[i], &n[i]);
    for (size_t r = 0; f->n && r < n[0]; r++) {
        int64_t seed = f->runs[0][r]->row.seed;
        const nm_trial *found[NM_STUDY_MAX_FINALISTS];
        bool whole = true;
        for (size_t i = 0; i < f->n; i++) {
            found[i] = run_of_seed(f->runs[i], n[i], seed);
            whole = whole && found[i];
        }
        for (size_t i = 0; i < f->n && whole; i++)
            f->runs[i][f->seeds] = (nm_trial *)found[i]; /* not before its own place: seeds ascend */
        f->seeds += whole;
    }
    for (size_t i = 0; i < f->n; i++) {
        double sum = 0;
        for (size_t r = 0; r < f->seeds; r++)
            sum += f->runs[i][r]->row.value;
        f->means[i] = f->seeds ? sum / (double)f->seeds : NAN;
        if (f->seeds && f->means[i] > f->means[f->best])
            f->best = i;
    }
}

/* Paired over seeds; segments of the test set are a random effect too. */
static nm_seed_difference paired(nm_trial *const *a, nm_trial *const *b, size_t n, double *deviation)
{
    NM_AUTO_FREE double *scores = nm_allocate((n + 1) * sizeof *scores);
    double **resamples = nm_allocate((n + 1) * sizeof *resamples);
    size_t n_draws = n ? a[0]->n_draws : 0;
    for (size_t r = 0; r < n; r++) {
        scores[r] = a[r]->row.value - b[r]->row.value;
        n_draws = a[r]->n_draws == n_draws && b[r]->n_draws == n_draws ? n_draws : 0;
    }
    for (size_t r = 0; r < n; r++) {
        resamples[r] = nm_allocate((n_draws + 1) * sizeof **resamples);
        for (size_t k = 0; k < n_draws; k++)
            resamples[r][k] = a[r]->draws[k] - b[r]->draws[k];
    }
    const nm_seed_scores group = {n, n_draws, scores, (const double *const *)resamples};
    nm_seed_difference d = nm_seed_mean_test(&group, 0.05);
    *deviation = nm_summary_of(scores, n).deviation;
    nm_free_list(resamples, n);
    return d;
}

static void test_pairs(finals *f, double delta)
{
    double p[NM_STUDY_MAX_FINALISTS * NM_STUDY_MAX_FINALISTS],
        e[NM_STUDY_MAX_FINALISTS * NM_STUDY_MAX_FINALISTS];
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        for (size_t j = 0; j < i; j++, n++) {
            f->pairs[i][j] = paired(f->runs[i], f->runs[j], f->seeds, &f->deviations[i][j]);
            f->pairs[j][i] = paired(f->runs[j], f->runs[i], f->seeds, &f->deviations[j][i]);
            p[n] = f->pairs[i][j].p;
            e[n] = nm_seed_equivalence(&f->pairs[i][j], delta);
        }
    nm_holm(p, n, p);
    nm_holm(e, n, e);
    n = 0;
    for (size_t i = 0; i < f->n; i++)
        for (size_t j = 0; j < i; j++, n++) {
            f->p[i][j] = f->p[j][i] = p[n];
            f->equivalence[i][j] = f->equivalence[j][i] = e[n];
        }
}

/* How much better than the winner a finalist can be, with probability 1 - alpha/4. */
static double bound_of_finals(const nm_study_procedure *s, const finals *f)
{
    double bound = 0;
    for (size_t i = 0; i < f->n; i++) {
        const nm_seed_difference *d = &f->pairs[i][f->best];
        if (i == f->best)
            continue;
        if (!isfinite(d->standard_error))
            return INFINITY;
        double t = nm_student_quantile(1 - s->config.alpha / 4 / (double)(f->n - 1), d->df);
        bound = fmax(bound, d->value + t * d->standard_error);
    }
    return bound;
}

/* The same for eliminated variants: delta more than the finalists, or what their first seeds say. */
static double bound_of_eliminated(const nm_study_procedure *s, size_t winner, double finals_bound)
{
    size_t n_best, n, first = (size_t)s->first_seeds;
    NM_AUTO_FREE nm_trial **best = nm_study_trials(s, "select", winner, &n_best);
    NM_AUTO_FREE double *a = nm_allocate((first + 1) * sizeof *a), *b = nm_allocate((first + 1) * sizeof *b);
    double bound = 0;
    for (size_t v = 0; v < s->config.n; v++) {
        if (!s->states[v].outcome || strcmp(s->states[v].outcome, "eliminated"))
            continue;
        NM_AUTO_FREE nm_trial **runs = nm_study_trials(s, "select", v, &n);
        size_t m = n < n_best ? n : n_best;
        m = m < first ? m : first;
        for (size_t r = 0; r < m; r++) {
            a[r] = runs[r]->row.value;
            b[r] = best[r]->row.value;
        }
        double own = nm_selection_bound(a, b, m, s->config.alpha / 4 / (double)(s->config.n - 1));
        bound = fmax(bound, fmin(own, s->config.delta + finals_bound));
    }
    return bound;
}

static double shown_score(const nm_study_procedure *s, double value)
{
    return s->config.perplexity ? exp(-value / 100) : value;
}

static nm_studied_variant describe(const nm_study_procedure *s, size_t v)
{
    const nm_study_state *state = &s->states[v];
    nm_studied_variant row;
    size_t n, m;
    nm_record_clear(nm_studied_variant_fields(), &row);
    NM_AUTO_FREE nm_trial **chosen = nm_study_trials(s, "select", v, &n),
                          **fresh = nm_study_trials(s, "confirm", v, &m);
    row.variant = s->config.variants[v];
    row.state = state->outcome ? state->outcome : "undecided";
    row.lr = state->lr;
    row.lr_at_edge = state->lr_at_edge;
    row.selected = (int64_t)n;
    row.hours = state->used / 3600;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += chosen[i]->row.value;
    row.valid_value = n ? sum / (double)n : NAN;
    if (s->runner.describe && (m || n))
        s->runner.describe(s->runner.user, (const nm_trial *const *)(m ? fresh : chosen), m ? m : n, &row);
    return row;
}

static void describe_finalist(const nm_study_procedure *s, const finals *f, size_t i, nm_studied_variant *row)
{
    const nm_seed_difference *d = &f->pairs[f->best][i];
    NM_AUTO_FREE double *scores = nm_allocate((f->seeds + 1) * sizeof *scores);
    for (size_t r = 0; r < f->seeds; r++)
        scores[r] = shown_score(s, f->runs[i][r]->row.value);
    row->confirmed = (int64_t)f->seeds;
    row->score = nm_summary_of(scores, f->seeds).mean;
    row->deviation = nm_summary_of(scores, f->seeds).deviation;
    if (i == f->best) {
        row->state = f->seeds ? "best" : "undecided";
        return;
    }
    row->difference = d->value;
    row->low = d->low;
    row->high = d->high;
    row->p = f->p[f->best][i];
    row->p_equivalence = f->equivalence[f->best][i];
    row->state = row->p < s->config.alpha               ? "worse"
                 : row->p_equivalence < s->config.alpha ? "equivalent"
                                                        : "undecided";
}

static int state_rank(const nm_studied_variant *v)
{
    static const char *const order[] = {"best",    "equivalent", "undecided", "worse",
                                        "dropped", "eliminated", "failed"};
    int i = 0;
    while (i < 6 && strcmp(order[i], v->state))
        i++;
    return i;
}

static void sort_variants(nm_studied_variant *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j; j--) {
            nm_studied_variant a = list[j - 1], b = list[j];
            bool fresh = isfinite(a.difference) && isfinite(b.difference);
            int rank_a = state_rank(&a), rank_b = state_rank(&b);
            bool ordered = rank_a != rank_b ? rank_a < rank_b
                           : fresh          ? a.difference <= b.difference
                                            : !(b.valid_value > a.valid_value);
            if (ordered)
                break;
            list[j - 1] = b;
            list[j] = a;
        }
}

/* Fresh seeds with which the undecided pairs would be decided at this variance. */
static int64_t seeds_to_decide(const nm_study_procedure *s, const finals *f)
{
    int64_t most = 0;
    double pairs = (double)(f->n * (f->n - 1)) / 2;
    for (size_t i = 0; i < f->n; i++) {
        if (i == f->best || f->p[f->best][i] < s->config.alpha ||
            f->equivalence[f->best][i] < s->config.alpha || !isfinite(f->deviations[i][f->best]))
            continue;
        int64_t n = nm_seeds_needed(f->deviations[i][f->best], s->config.delta, s->config.alpha / pairs, 0.8);
        n = n > (int64_t)f->seeds ? n : (int64_t)f->seeds + 1;
        most = n > most ? n : most;
    }
    return most;
}

static size_t count_state(const nm_studied_variant *list, size_t n, const char *state)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !strcmp(list[i].state, state);
    return count;
}

/* "a", "a and b", "a, b and c": the names of `first` (NULL: none) and of the variants in a state. Returns
 * their number. */
static size_t list_names(char **text, const nm_study_procedure *s, const char *first, const char *state)
{
    const nm_studied_variant *list = s->variants;
    size_t count = count_state(list, s->config.n, state) + (first != NULL), seen = first != NULL;
    nm_format_append(text, "%s", first ? first : "");
    for (size_t i = 0; i < s->config.n; i++)
        if (!strcmp(list[i].state, state)) {
            nm_format_append(text, "%s%s", !seen ? "" : seen + 1 == count ? " and " : ", ", list[i].variant);
            seen++;
        }
    return count;
}

/* "a is worse than b. ", "a and b are worse than c. "; nothing without such variants. */
static void say_of(char **text, const nm_study_procedure *s, const char *state, const char *one,
                   const char *several, const char *rest)
{
    if (!count_state(s->variants, s->config.n, state))
        return;
    size_t n = list_names(text, s, NULL, state);
    nm_format_append(text, " %s %s. ", n == 1 ? one : several, rest);
}

static const nm_studied_variant *first_in_state(const nm_study_procedure *s, const char *state)
{
    for (size_t i = 0; i < s->config.n; i++)
        if (!strcmp(s->variants[i].state, state))
            return &s->variants[i];
    return NULL;
}

/* "0.31 BLEU (95 % interval -0.10 to 0.72, p 0.120)" */
static void add_difference(char **text, const nm_study_procedure *s, const nm_studied_variant *v)
{
    nm_format_append(text, "%.2f %s", v->difference, s->config.unit);
    if (isfinite(v->low))
        nm_format_append(text, " (95 %% interval %.2f to %.2f, p %s%.3f)", v->low, v->high,
                         v->p < 0.0005 ? "<" : "", v->p < 0.0005 ? 0.001 : v->p);
    else
        nm_format_append(text, " (one seed has no interval)");
}

static size_t failed_fresh_runs(const nm_study_procedure *s, const nm_trial **example)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        if (*s->runs[i]->row.phase == 'c' && !strcmp(s->runs[i]->row.state, "failed")) {
            *example = s->runs[i];
            n++;
        }
    return n;
}

static void say_unconfirmed(char **text, const nm_study_procedure *s, const char *best)
{
    const nm_trial *failed = NULL;
    nm_format_append(
        text, s->config.n > 1 ? "%s has the best validation score, but " : "%s was trained, but ", best);
    if (failed_fresh_runs(s, &failed))
        nm_format_append(text,
                         "this is not confirmed: no fresh seed has a result of every finalist (%s, seed "
                         "%lld: %s). ",
                         failed->row.variant, (long long)failed->row.seed,
                         failed->row.note ? failed->row.note : "failed");
    else
        nm_format_append(text, "the budget had no time to confirm it with fresh seeds. ");
}

static void write_verdict(const nm_study_procedure *s, size_t seeds, char **text)
{
    const char *best = s->variants[0].variant, *verdict = s->answer.verdict;
    const nm_studied_variant *worse = first_in_state(s, "worse"), *equal = first_in_state(s, "equivalent"),
                             *open = first_in_state(s, "undecided");
    if (!strcmp(verdict, "unconfirmed")) {
        say_unconfirmed(text, s, best);
        return;
    }
    if (s->config.n == 1) {
        nm_format_append(text, "%s is the only variant of this study: nothing was compared. ", best);
    } else if (s->n_finalists == 1) {
        nm_format_append(text, "%s is the only variant that finished its training. ", best);
    } else if (!strcmp(verdict, "best")) {
        nm_format_append(text, "%s is the best normalization for this data: it beats %s by ", best,
                         worse->variant);
        add_difference(text, s, worse);
        if (worse->p_equivalence < s->config.alpha)
            nm_format_append(text, ", which is less than the %.2f that matter (--delta)", s->config.delta);
        nm_format_append(text, ". ");
    } else if (!strcmp(verdict, "equivalent")) {
        nm_format_append(text, "No difference that matters: ");
        list_names(text, s, best, "equivalent");
        nm_format_append(text, " are equivalent within %.2f %s; %s has the highest score, by ",
                         s->config.delta, s->config.unit, best);
        add_difference(text, s, equal);
        nm_format_append(text, ". ");
        equal = NULL;
    } else {
        nm_format_append(text, "Not decided: %s has the highest score, but its lead over ", best);
        size_t n = list_names(text, s, NULL, "undecided");
        nm_format_append(text, " can be chance; ");
        if (n > 1)
            nm_format_append(text, "over %s it is ", open->variant);
        else
            nm_format_append(text, "it is ");
        add_difference(text, s, open);
        nm_format_append(text, ". ");
    }
    char *than = nm_format("worse than %s", best),
         *like = nm_format("equivalent to %s within %.2f %s", best, s->config.delta, s->config.unit);
    if (equal)
        say_of(text, s, "equivalent", "is", "are", like);
    if (strcmp(verdict, "best") || count_state(s->variants, s->config.n, "worse") > 1)
        say_of(text, s, "worse", "is", "are", than);
    NM_FREE(than, like);
    nm_format_append(text, "%s was trained with %zu fresh seed%s. ",
                     s->n_finalists == 1 ? "It" : "Each finalist", seeds, seeds == 1 ? "" : "s");
    if (open && seeds == 1)
        nm_format_append(text, "One seed cannot be tested. ");
    else if (open && seeds < 6)
        nm_format_append(text,
                         "With %zu paired seeds, a sign-flip test cannot reach p 0.05 (it needs 6); the t "
                         "tests assume normal differences. ",
                         seeds);
}

/* Hours of training that this many further fresh seeds of each finalist would take. */
static double hours_of_seeds(const nm_study_procedure *s, int64_t seeds)
{
    double seconds = 0;
    for (size_t f = 0; f < s->n_finalists; f++) {
        size_t n;
        double sum = 0;
        NM_AUTO_FREE nm_trial **runs = nm_study_trials(s, "confirm", s->finalists[f], &n);
        for (size_t i = 0; i < n; i++)
            sum += runs[i]->row.took;
        seconds += n ? sum / (double)n : 0;
    }
    return (double)seeds * seconds / (double)s->config.jobs / 3600;
}

static void write_bound(const nm_study_procedure *s, char **text)
{
    const char *best = s->variants[0].variant;
    if (s->n_finalists == 1 || !isfinite(s->answer.within))
        return;
    if (s->answer.within < 0.005)
        nm_format_append(text, "With 95 %% confidence, %s is the best variant of this study. ", best);
    else
        nm_format_append(
            text, "With 95 %% confidence, no variant of this study is more than %.2f %s better than %s. ",
            s->answer.within, s->config.unit, best);
}

static void write_rest(const nm_study_procedure *s, char **text)
{
    const nm_trial *failed = NULL;
    size_t n_failed = s->answer.seeds ? failed_fresh_runs(s, &failed) : 0;
    NM_AUTO_FREE char *margin = nm_format("eliminated in the selection (not the best by %.2f %s or more)",
                                          s->config.delta, s->config.unit);
    say_of(text, s, "eliminated", "was", "were", margin);
    say_of(text, s, "dropped", "was", "were", "dropped for lack of budget");
    say_of(text, s, "failed", "is", "are", "out because a run failed or diverged");
    if (n_failed)
        nm_format_append(text,
                         "%zu run%s with fresh seeds failed or diverged (%s, seed %lld); %s left out for all "
                         "finalists, which favors the variant that failed. ",
                         n_failed, n_failed == 1 ? "" : "s", failed->row.variant, (long long)failed->row.seed,
                         n_failed == 1 ? "its seed is" : "their seeds are");
    write_bound(s, text);
    if (s->answer.more_seeds > 1000) {
        nm_format_append(text,
                         "Seeds alone will not decide it: more than 1,000 of each finalist are needed. ");
    } else if (s->answer.more_seeds) {
        double hours = hours_of_seeds(s, s->answer.more_seeds - s->answer.seeds);
        nm_format_append(text,
                         "What would decide it: %lld fresh seeds of each finalist find or exclude a "
                         "difference of %.2f %s, in most cases; the further ones take %.*f %s. ",
                         (long long)s->answer.more_seeds, s->config.delta, s->config.unit, hours < 1 ? 0 : 1,
                         hours < 1 ? ceil(60 * hours) : hours, hours < 1 ? "min" : "h");
    }
    if (s->variants[0].lr_at_edge)
        nm_format_append(text,
                         "The best learning rate of %s, %g, is at the edge of those that were tried: another "
                         "one may be better (--rates). ",
                         s->variants[0].variant, s->variants[0].lr);
    if (s->updates < NM_STUDY_LONG && s->updates < s->config.max_updates / 4 * 4)
        nm_format_append(text,
                         "The runs had only %lld updates each: longer training can change the order "
                         "(--budget). ",
                         (long long)s->updates);
}

static const char *verdict_of(const nm_study_procedure *s, const finals *f)
{
    bool worse = true, close = true;
    for (size_t i = 0; i < f->n; i++) {
        if (i == f->best)
            continue;
        bool is_worse = f->p[f->best][i] < s->config.alpha;
        worse = worse && is_worse;
        close = close && (is_worse || f->equivalence[f->best][i] < s->config.alpha);
    }
    return !f->seeds ? "unconfirmed" : worse ? "best" : close ? "equivalent" : "undecided";
}

nm_status nm_study_answer_compute(nm_study_procedure *s, nm_error *err)
{
    finals f = {0};
    read_finals(s, &f);
    test_pairs(&f, s->config.delta);
    for (size_t v = 0; v < s->config.n; v++) {
        s->variants[v] = describe(s, v);
        for (size_t i = 0; i < f.n; i++)
            if (s->finalists[i] == v)
                describe_finalist(s, &f, i, &s->variants[v]);
    }
    if (!f.seeds && f.n) /* the order of the selection */
        s->variants[s->finalists[0]].state = "best";
    sort_variants(s->variants, s->config.n);
    nm_record_clear(nm_study_answer_fields(), &s->answer);
    nm_study_answer *answer = &s->answer;
    answer->verdict = verdict_of(s, &f);
    answer->score = s->config.score;
    answer->delta = s->config.delta;
    answer->seeds = (int64_t)f.seeds;
    answer->updates = s->updates;
    answer->budget = s->config.budget;
    answer->used = s->now;
    answer->planned = s->planned;
    if (f.n) {
        answer->best = s->variants[0].variant;
        double bound = f.seeds ? bound_of_finals(s, &f) : INFINITY;
        answer->within =
            fmax(fmax(bound, s->unseen_within), bound_of_eliminated(s, s->finalists[f.best], bound));
        answer->more_seeds = f.seeds ? seeds_to_decide(s, &f) : 0;
    }
    char *text = nm_duplicate("");
    if (f.n) {
        write_verdict(s, f.seeds, &text);
        write_rest(s, &text);
        text[strlen(text) - 1] = 0;
    } else {
        nm_format_append(&text, "No variant finished its training; the decisions in queue.jsonl say why.");
    }
    for (size_t i = 0; i < f.n; i++)
        free(f.runs[i]);
    free(s->paragraph);
    answer->paragraph = s->paragraph = text;
    return nm_study_decide(s, "answer", answer->best, err, "%s", text);
}
