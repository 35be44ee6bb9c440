#include "base/json.h"
#include "cli/inspect_print.h"

#include <math.h>
#include <string.h>

static void print_tid_line(const nm_tid_site *site, FILE *out)
{
    fprintf(out, "%c %-20s %8.2f %8.2f %10.2f\n", site->averaged ? '*' : ' ', site->name, 100 * site->mean,
            100 * site->variance, 100 * site->square);
}

static void print_tid(const nm_tid *tid, FILE *out)
{
    const nm_tid_site average = nm_tid_average(tid), *last = nm_tid_last(tid);
    if (!tid->n)
        return;
    fprintf(out, "TID, %% (%lld training batches)\n  %-20s %8s %8s %10s\n", (long long)tid->batches, "site",
            "mean", "variance", "quadratic");
    for (size_t i = 0; i < tid->n; i++)
        print_tid_line(&tid->sites[i], out);
    print_tid_line(&average, out);
    fprintf(out, "  last layer: %s; the average is over the sites with *\n", last->name);
}

static void print_spectrum(const nm_inspection *inspection, FILE *out)
{
    static const double quantiles[] = {0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1};
    const double *s = inspection->singular;
    int printed = -1; /* a short list has fewer distinct positions */
    if (!inspection->n_singular)
        return;
    fprintf(out, "singular values of %s, the largest (%.4g) is 1\n ", inspection->table, s[0]);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++) {
        int at = (int)lround(quantiles[i] * (inspection->n_singular - 1));
        if (at > printed)
            fprintf(out, " %d: %.3f", at + 1, s[at] / s[0]);
        printed = at;
    }
    fputc('\n', out);
}

static void print_conditioning(const nm_conditioning *c, FILE *out)
{
    if (!c->n)
        return;
    fprintf(out, "condition of the inputs of layers\n  %-20s %8s %8s %8s %8s\n", "layer", "C_50", "C_80",
            "C_max", "tokens");
    for (size_t i = 0; i < c->n; i++)
        fprintf(out, "  %s.%-*d %8.3g %8.3g %8.3g %8lld\n", c->layers[i].stack,
                (int)(19 - strlen(c->layers[i].stack)), c->layers[i].layer, c->layers[i].c50,
                c->layers[i].c80, c->layers[i].c_max, (long long)c->layers[i].rows);
}

static void print_bounds(const nm_gradient_bounds *b, FILE *out)
{
    if (b->n_lemma)
        fprintf(out,
                "Lemma 2 (%lld batches): |dL/dh|^2 relative to its bound, at most 1\n  %-20s %8s %9s %9s %9s "
                "%9s\n",
                (long long)b->batches, "site", "largest", "equality", "g/psi<=1", "|dh|/|dy|", "backward");
    for (size_t i = 0; i < b->n_lemma; i++)
        fprintf(out, "  %-20s %8.4f %9.1e %8.1f%% %9.3f %9.1e\n", b->lemma[i].name, b->lemma[i].ratio,
                b->lemma[i].equality, 100 * b->lemma[i].below_one, b->lemma[i].shrink, b->lemma[i].backward);
    if (b->n_theorem)
        fprintf(
            out,
            "Theorem 4 (%lld batches): |nu| relative to its bound, at most 1\n  %-20s %8s %9s %9s %9s %9s\n",
            (long long)b->batches, "site", "largest", "|nu|", "|Lambda|", "Gamma>=", "assumed");
    for (size_t i = 0; i < b->n_theorem; i++)
        fprintf(out, "  %-20s %8.4f %9.3g %9.3g %9.3g %8.1f%%\n", b->theorem[i].name, b->theorem[i].ratio,
                b->theorem[i].nu, b->theorem[i].lambda, b->theorem[i].gamma_least,
                100 * b->theorem[i].assumption);
    if (b->n_groups)
        fprintf(out, "gradient norm by layer\n ");
    for (size_t i = 0; i < b->n_groups; i++)
        fprintf(out, " %s %.3g%s", b->groups[i].name, b->groups[i].norm, i + 1 < b->n_groups ? "," : "\n");
}

static void print_confidence(const nm_confidence *c, FILE *out)
{
    if (!c->measured)
        return;
    fprintf(out,
            "confidence (%lld targets): %.3f, accuracy %.3f, expected calibration error %.3f, entropy "
            "%.3f nats\n  mean target probability %.3f",
            (long long)c->targets, c->confidence, c->accuracy, c->calibration_error, c->entropy,
            c->target_probability);
    if (c->epsilon > 0)
        fprintf(out, "; with label smoothing %.2f the optimum is %.3f; perplexity %.3f, smoothed %.3f\n",
                c->epsilon, c->smoothed_target, exp(c->nll), exp(c->smoothed_nll));
    else
        fprintf(out, "; no label smoothing; perplexity %.3f\n", exp(c->nll));
    if (c->masked)
        fprintf(out, "  %lld further targets are masked (data.mask_words)\n", (long long)c->masked);
}

void inspect_print(const nm_inspection *inspection, FILE *out)
{
    print_tid(&inspection->tid, out);
    print_spectrum(inspection, out);
    print_conditioning(&inspection->conditioning, out);
    print_bounds(&inspection->bounds, out);
    print_confidence(&inspection->confidence, out);
}

void inspect_print_advice(const nm_advice *advice, int n, FILE *out)
{
    fputs("remedies\n", out);
    for (int i = 0; i < n; i++)
        fprintf(out, "  %-12s %-11s %s%s%s\n", advice[i].remedy, nm_verdict_text(advice[i].verdict),
                advice[i].why, advice[i].verdict == NM_VERDICT_INDICATED ? "; try " : "",
                advice[i].verdict == NM_VERDICT_INDICATED ? advice[i].setting : "");
}

#define SPECTRUM(F)                                                                                          \
    F(text, matrix, "Name of the embedding matrix")                                                          \
    F(real, largest, "Largest singular value")                                                               \
    F(json, values, "All singular values, divided by the largest")
NM_RECORD(spectrum_line, SPECTRUM)
static NM_FIELDS(spectrum_line, SPECTRUM)

static json_t *json_spectrum(const nm_inspection *inspection)
{
    json_t *values = json_array();
    for (int32_t i = 0; i < inspection->n_singular; i++)
        json_array_append_new(values, nm_json_number(inspection->singular[i] / inspection->singular[0]));
    const spectrum_line line = {
        .matrix = inspection->table, .largest = inspection->singular[0], .values = values};
    return nm_record_json(spectrum_line_fields(), &line);
}

#define INSPECTION(F)                                                                                        \
    F(json, tid, "Training-inference discrepancy", "tid?")                                                   \
    F(json, spectrum, "Singular values of the embeddings", "spectrum?")                                      \
    F(json, condition, "Condition numbers of the input of each layer", "condition?")                         \
    F(json, lemma2, "Lemma 2 at each site with batch statistics", "lemma2?")                                 \
    F(json, theorem4, "Theorem 4 at each site with PowerNorm", "theorem4?")                                  \
    F(json, gradient, "Gradient norm of each group of parameters", "gradient?")                              \
    F(json, confidence, "Confidence and calibration", "confidence?")
NM_RECORD(inspection_line, INSPECTION)
static NM_FIELDS(inspection_line, INSPECTION)

#define LIST_OF(fields, list, n) ((n) ? nm_record_array(fields, list, sizeof *(list), n) : NULL)

json_t *inspect_json(const nm_inspection *inspection)
{
    const nm_gradient_bounds *b = &inspection->bounds;
    const nm_conditioning *c = &inspection->conditioning;
    const inspection_line line = {.tid = inspection->tid.n ? nm_tid_json(&inspection->tid) : NULL,
                                  .spectrum = inspection->n_singular ? json_spectrum(inspection) : NULL,
                                  .condition = LIST_OF(nm_layer_condition_fields(), c->layers, c->n),
                                  .lemma2 = LIST_OF(nm_lemma_site_fields(), b->lemma, b->n_lemma),
                                  .theorem4 = LIST_OF(nm_theorem_site_fields(), b->theorem, b->n_theorem),
                                  .gradient = LIST_OF(nm_group_gradient_fields(), b->groups, b->n_groups),
                                  .confidence =
                                      inspection->confidence.measured
                                          ? nm_record_json(nm_confidence_fields(), &inspection->confidence)
                                          : NULL};
    return nm_record_json(inspection_line_fields(), &line);
}

#define ADVICE(F)                                                                                            \
    F(text, remedy, "Remedy")                                                                                \
    F(text, setting, "Setting that enables it")                                                              \
    F(text, verdict, "`indicated`, `enabled`, `not needed` or `unknown`")                                    \
    F(text, why, "Values on which the verdict is based")
NM_RECORD(advice_line, ADVICE)
static NM_FIELDS(advice_line, ADVICE)

static json_t *advice_at(const void *list, size_t i)
{
    const nm_advice *advice = (const nm_advice *)list + i;
    const advice_line line = {advice->remedy, advice->setting, nm_verdict_text(advice->verdict), advice->why};
    return nm_record_json(advice_line_fields(), &line);
}

json_t *inspect_json_advice(const nm_advice *advice, int n)
{
    return nm_json_list((size_t)n, advice_at, advice);
}
