/* The answer at the top of the page: what the runs show, in a few sentences. Runs that have not ended are
 * listed and not ranked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report/report.h"

typedef struct variant { /* the ended runs of a variant, its seeds */
    nm_run_set runs;
    nm_mean_score score;
    double p; /* of its test against the reference, corrected; NaN: unknown */
} variant;

typedef struct answer {
    const nm_report *report;
    variant *list; /* best first */
    size_t n;
    bool tested, rises;
    nm_score_bar bar;
    const char *score;
} answer;

static void remove_unfinished(const nm_report *report, nm_run_set *set)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->n; i++)
        if (!nm_report_run_is_unfinished(&report->runs[set->list[i]]))
            set->list[kept++] = set->list[i];
    set->n = kept;
}

/* The best variant first. */
static void insert(answer *a, variant v)
{
    size_t at = a->n++;
    while (at && (a->rises ? a->list[at - 1].score.mean < v.score.mean
                           : a->list[at - 1].score.mean > v.score.mean)) {
        a->list[at] = a->list[at - 1];
        at--;
    }
    a->list[at] = v;
}

static answer answer_of(const nm_report *report)
{
    answer a = {.report = report, .list = nm_allocate((report->n + 1) * sizeof *a.list)};
    NM_AUTO_FREE nm_run_set *sets = nm_allocate((report->n + 1) * sizeof *sets);
    for (size_t r = 0; r < report->n; r++) {
        sets[r] = nm_report_seeds(report, r);
        remove_unfinished(report, &sets[r]);
    }
    a.tested = nm_report_is_tested(report, sets, report->n);
    a.rises = a.tested ? report->test_rises : report->score_rises;
    a.score = a.tested ? report->test_name : report->score_name;
    a.bar = nm_report_bars(report, sets, report->n, a.tested);
    for (size_t r = 0; r < report->n; r++) {
        variant v = {.runs = sets[r],
                     .score = nm_report_mean_score(report, &sets[r], a.tested, a.bar),
                     .p = sets[r].n ? report->results[sets[r].list[0]].p_holm : NAN};
        if (v.score.n)
            insert(&a, v);
        else
            free(sets[r].list);
    }
    return a;
}

static void write_name(const answer *a, const variant *v, FILE *out)
{
    const char *name = a->report->runs[v->runs.list[0]].name;
    fprintf(out, "%.*s", (int)(v->runs.n > 1 ? strlen(name) - strlen(nm_name_seed(name)) : strlen(name)),
            name);
}

static void write_score(const answer *a, const variant *v, FILE *out)
{
    char text[3][NM_NUMBER_BYTES];
    fputs(nm_number_show(text[0], v->score.mean), out);
    if (a->bar != NM_BAR_NONE && v->score.low < v->score.high)
        fprintf(out, " (%s to %s)", nm_number_show(text[1], v->score.low),
                nm_number_show(text[2], v->score.high));
}

/* Whether the tests against the reference show that the best variant differs. The reference is the variant
 * without a p. */
static void write_tests(const answer *a, FILE *out)
{
    const variant *best = &a->list[0], *reference = NULL, *nearest = NULL;
    char text[NM_NUMBER_BYTES];
    for (size_t i = 0; i < a->n; i++) {
        if (isnan(a->list[i].p))
            reference = reference ? reference : &a->list[i];
        else if (!nearest)
            nearest = &a->list[i];
    }
    if (!a->tested || !nearest || !reference) {
        fputs(" The difference was not tested; norma compare tests it.", out);
        return;
    }
    const variant *tested = reference == best ? nearest : best, *other = reference == best ? best : reference;
    fputs(tested->p < 0.05 ? " The difference between " : " No difference between ", out);
    write_name(a, tested, out);
    fputs(" and ", out);
    write_name(a, other, out);
    fprintf(out, " %s (p %s%s, Holm).", tested->p < 0.05 ? "is significant" : "is shown",
            tested->p < 0.0005 ? "" : "= ", tested->p < 0.0005 ? "< 0.001" : nm_number_show(text, tested->p));
}

/* A difference of single runs may be one of their seeds. */
static void write_single_seeds(const answer *a, FILE *out)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++)
        n += a->list[i].runs.n == 1;
    if (!n)
        return;
    if (n == a->n)
        fputs(" Every variant has one seed", out);
    else
        fprintf(out, " %zu of %zu variants %s one seed", n, a->n, n == 1 ? "has" : "have");
    fputs(", so how much another seed changes is not known (norma compare --seeds 3).", out);
}

static void write_ranking(const answer *a, FILE *out)
{
    const char *where = a->tested ? "test" : "validation";
    write_name(a, &a->list[0], out);
    if (a->n == 1) {
        fprintf(out, " has a %s %s of ", where, a->score);
        write_score(a, &a->list[0], out);
        putc('.', out);
        return;
    }
    fprintf(out, " has the %s %s %s, ", a->rises ? "highest" : "lowest", where, a->score);
    write_score(a, &a->list[0], out);
    fputs("; next is ", out);
    write_name(a, &a->list[1], out);
    fputs(" with ", out);
    write_score(a, &a->list[1], out);
    fputs(a->bar == NM_BAR_INTERVAL ? ". Intervals are 95 %."
          : a->bar == NM_BAR_RANGE  ? ". Ranges are over the seeds."
                                    : ".",
          out);
    write_tests(a, out);
    write_single_seeds(a, out);
}

static void write_unfinished(const nm_report *report, FILE *out)
{
    enum { MOST = 6 };
    size_t n = 0;
    char text[NM_NUMBER_BYTES];
    for (size_t i = 0; i < report->n; i++)
        n += nm_report_run_is_unfinished(&report->runs[i]);
    if (!n)
        return;
    if (n == report->n)
        fprintf(out, "%s: ", n == 1 ? "The run has not ended" : "No run has ended");
    else
        fprintf(out, " %zu of %zu runs %s not ended and %s not ranked: ", n, report->n,
                n == 1 ? "has" : "have", n == 1 ? "is" : "are");
    for (size_t i = 0, listed = 0; i < report->n && listed <= MOST; i++) {
        const nm_report_run *run = &report->runs[i];
        double planned = nm_report_run_planned(run), left = nm_report_run_left(run);
        if (!nm_report_run_is_unfinished(run))
            continue;
        if (listed == MOST) {
            fputs(", ...", out);
            break;
        }
        fprintf(out, "%s%s at update ", listed++ ? ", " : "", run->name);
        fputs(nm_count_show(text, nm_report_run_updates(run)), out);
        if (planned >= nm_report_run_updates(run)) /* not if the run continues with another number */
            fprintf(out, " of %s", nm_count_show(text, planned));
        if (left > 0)
            fprintf(out, " (%s left)", nm_duration_show(text, left));
        if (isfinite(nm_report_valid_score(report, i)))
            fprintf(out, " with %s %s", report->score_name,
                    nm_number_show(text, nm_report_valid_score(report, i)));
    }
    putc('.', out);
}

static bool has_ended(const nm_report *report)
{
    size_t i = 0;
    while (i < report->n && nm_report_run_is_unfinished(&report->runs[i]))
        i++;
    return i < report->n;
}

void nm_report_answer(const nm_report *report, FILE *out)
{
    answer a = answer_of(report);
    if (report->n > 1 && report->data_problem)
        fprintf(out, "The runs are not ranked: %s.%s", report->data_problem, has_ended(report) ? "" : " ");
    else if (a.n)
        write_ranking(&a, out);
    else if (!report->n)
        fputs("No run has written a log.", out);
    else if (has_ended(report))
        fputs("No run that has ended has a score.", out);
    write_unfinished(report, out);
    for (size_t i = 0; i < a.n; i++)
        free(a.list[i].runs.list);
    free(a.list);
}
