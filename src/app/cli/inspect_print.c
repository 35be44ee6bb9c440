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

static json_t *json_spectrum(const nm_inspection *inspection)
{
    json_t *values = json_array();
    for (int32_t i = 0; i < inspection->n_singular; i++)
        json_array_append_new(values, nm_json_number(inspection->singular[i] / inspection->singular[0]));
    return json_pack("{s:s, s:o, s:o}", "matrix", inspection->table, "largest",
                     nm_json_number(inspection->singular[0]), "values", values);
}

static json_t *json_conditioning(const nm_conditioning *c)
{
    json_t *layers = json_array();
    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(
            layers, json_pack("{s:s, s:i, s:o, s:o, s:o, s:I}", "stack", c->layers[i].stack, "layer",
                              c->layers[i].layer, "c50", nm_json_number(c->layers[i].c50), "c80",
                              nm_json_number(c->layers[i].c80), "cmax", nm_json_number(c->layers[i].c_max),
                              "tokens", (json_int_t)c->layers[i].rows));
    return layers;
}

static json_t *json_lemma(const nm_gradient_bounds *b)
{
    json_t *sites = json_array();
    for (size_t i = 0; i < b->n_lemma; i++) {
        const nm_lemma_site *s = &b->lemma[i];
        json_array_append_new(sites,
                              json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "site", s->name, "ratio",
                                        nm_json_number(s->ratio), "equality", nm_json_number(s->equality),
                                        "below_one", nm_json_number(s->below_one), "shrink",
                                        nm_json_number(s->shrink), "backward", nm_json_number(s->backward)));
    }
    return sites;
}

static json_t *json_theorem(const nm_gradient_bounds *b)
{
    json_t *sites = json_array();
    for (size_t i = 0; i < b->n_theorem; i++) {
        const nm_theorem_site *s = &b->theorem[i];
        json_array_append_new(sites, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "site", s->name, "ratio",
                                               nm_json_number(s->ratio), "nu", nm_json_number(s->nu),
                                               "lambda", nm_json_number(s->lambda), "gamma_least",
                                               nm_json_number(s->gamma_least), "assumption",
                                               nm_json_number(s->assumption)));
    }
    return sites;
}

static json_t *json_groups(const nm_gradient_bounds *b)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < b->n_groups; i++)
        json_array_append_new(groups, json_pack("{s:s, s:o}", "site", b->groups[i].name, "norm",
                                                nm_json_number(b->groups[i].norm)));
    return groups;
}

static json_t *json_confidence(const nm_confidence *c)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"confidence", c->confidence},
                   {"accuracy", c->accuracy},
                   {"target_probability", c->target_probability},
                   {"entropy", c->entropy},
                   {"nll", c->nll},
                   {"smoothed_nll", c->smoothed_nll},
                   {"calibration_error", c->calibration_error},
                   {"label_smoothing", c->epsilon},
                   {"smoothed_target", c->smoothed_target}};
    json_t *object = json_object();
    json_object_set_new(object, "targets", json_integer(c->targets));
    json_object_set_new(object, "masked_targets", json_integer(c->masked));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(object, numbers[i].key, nm_json_number(numbers[i].value));
    return object;
}

json_t *inspect_json(const nm_inspection *inspection)
{
    json_t *object = json_object();
    if (inspection->tid.n)
        json_object_set_new(object, "tid", nm_tid_json(&inspection->tid));
    if (inspection->n_singular)
        json_object_set_new(object, "spectrum", json_spectrum(inspection));
    if (inspection->conditioning.n)
        json_object_set_new(object, "condition", json_conditioning(&inspection->conditioning));
    if (inspection->bounds.n_lemma)
        json_object_set_new(object, "lemma2", json_lemma(&inspection->bounds));
    if (inspection->bounds.n_theorem)
        json_object_set_new(object, "theorem4", json_theorem(&inspection->bounds));
    if (inspection->bounds.n_groups)
        json_object_set_new(object, "gradient", json_groups(&inspection->bounds));
    if (inspection->confidence.measured)
        json_object_set_new(object, "confidence", json_confidence(&inspection->confidence));
    return object;
}

json_t *inspect_json_advice(const nm_advice *advice, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "remedy", advice[i].remedy, "setting",
                                              advice[i].setting, "verdict",
                                              nm_verdict_text(advice[i].verdict), "why", advice[i].why));
    return list;
}
