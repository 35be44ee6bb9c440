#include "report/report.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "norma/norm_type.h"

/* ---- formatted numbers ---- */

const char *nm_count_show(char text[NM_NUMBER_BYTES], double value)
{
    char digits[NM_NUMBER_BYTES];
    size_t at = 0;
    if (!isfinite(value) || fabs(value) >= 1e15)
        return isfinite(value) ? nm_number_show(text, value) : strcpy(text, "-");
    size_t n = (size_t)snprintf(digits, sizeof digits, "%.0f", fabs(value));
    if (value <= -0.5)
        text[at++] = '-';
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

/* "1.20e-07" as "1.20×10⁻⁷", without a place for a line break. */
static const char *format_power(char text[NM_NUMBER_BYTES], double value)
{
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    char plain[NM_NUMBER_BYTES];
    snprintf(plain, sizeof plain, "%.2e", value);
    char *e = strchr(plain, 'e');
    const char *at = e + 2 + strspn(e + 2, "0");
    size_t length =
        (size_t)snprintf(text, NM_NUMBER_BYTES, "%.*s×10%s", (int)(e - plain), plain, e[1] == '-' ? "⁻" : "");
    for (; *at && length < NM_NUMBER_BYTES; at++)
        length += (size_t)snprintf(text + length, NM_NUMBER_BYTES - length, "%s", digits[*at - '0']);
    return text;
}

const char *nm_number_show(char text[NM_NUMBER_BYTES], double value)
{
    double size = fabs(value);
    if (!isfinite(value))
        return strcpy(text, "-");
    if (size >= 1000 && size < 1e6)
        return nm_count_show(text, value);
    if (size >= 1e6 || (size < 1e-4 && size > 0))
        return format_power(text, value);
    snprintf(text, NM_NUMBER_BYTES, size < 1 ? "%.3g" : "%.4g", value);
    return text;
}

const char *nm_duration_show(char text[NM_NUMBER_BYTES], double seconds)
{
    double shown = seconds < 120 ? seconds : seconds < 7200 ? seconds / 60 : seconds / 3600;
    if (!isfinite(seconds))
        return strcpy(text, "-");
    snprintf(text, NM_NUMBER_BYTES, "%.*f %s", shown < 10 ? 1 : 0, shown,
             seconds < 120    ? "s"
             : seconds < 7200 ? "min"
                              : "h");
    return text;
}

/* ---- names and styles ---- */

static const char *last_parts(const char *folder, int parts)
{
    const char *at = folder + strlen(folder);
    while (at > folder && (at[-1] != '/' || --parts))
        at--;
    return at;
}

static bool all_differ(char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(names[i], names[k]))
                return false;
    return true;
}

static bool name_exists(const nm_report *report, size_t before, const char *name)
{
    for (size_t i = 0; i < before; i++)
        if (!strcmp(report->runs[i].name, name))
            return true;
    return false;
}

static void make_unique(nm_report *report, size_t i)
{
    char *name = report->runs[i].name;
    for (int number = 2; name_exists(report, i, report->runs[i].name); number++) {
        if (report->runs[i].name != name)
            free(report->runs[i].name);
        report->runs[i].name = nm_format("%s (%d)", name, number);
    }
    if (report->runs[i].name != name)
        free(name);
}

/* The shortest ends of the paths that distinguish the runs, at most three parts; if they do not suffice, with numbers. */
static void name_runs(nm_report *report)
{
    char **names = nm_allocate((report->n + 1) * sizeof *names);
    for (int parts = 1; parts <= 3; parts++) {
        for (size_t i = 0; i < report->n; i++) {
            char *folder = nm_duplicate(report->runs[i].folder);
            for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/';)
                folder[--length] = 0;
            free(names[i]);
            names[i] = nm_duplicate(last_parts(folder, parts));
            free(folder);
        }
        if (all_differ(names, report->n))
            break;
    }
    for (size_t i = 0; i < report->n; i++) {
        report->runs[i].name = names[i];
        make_unique(report, i);
    }
    free(names);
}

const char *nm_name_seed(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash && dash[1] && !dash[1 + strspn(dash + 1, "0123456789")] ? dash : name + strlen(name);
}

/* "rbn:norm.rbn.lambda=0.1-1", the name that norma compare gives to a run, as "rbn-1", or with settings as
 * "rbn lambda=0.1-1". */
static char *short_name(const char *name, bool settings)
{
    const char *seed = nm_name_seed(name);
    size_t head = strcspn(name, ":");
    if (head >= (size_t)(seed - name))
        return nm_duplicate(name);
    char *text = nm_format("%.*s", (int)head, name);
    for (const char *at = name + head; settings && at < seed;) {
        const char *end = at + 1 + strcspn(at + 1, ":"), *from = at + 1;
        end = end < seed ? end : seed;
        for (const char *c = from; c < end && *c != '='; c++)
            from = *c == '.' ? c + 1 : from;
        char *more = nm_format("%s %.*s", text, (int)(end - from), from);
        free(text);
        text = more;
        at = end;
    }
    char *whole = nm_format("%s%s", text, seed);
    free(text);
    return whole;
}

/* Replaces the names with short ones if these are unique. */
static bool use_short_names(nm_report *report, bool settings)
{
    char **names = nm_allocate((report->n + 1) * sizeof *names);
    for (size_t i = 0; i < report->n; i++)
        names[i] = short_name(report->runs[i].name, settings);
    bool unique = all_differ(names, report->n);
    for (size_t i = 0; i < report->n; i++)
        if (unique) {
            free(report->runs[i].name);
            report->runs[i].name = names[i];
        } else {
            free(names[i]);
        }
    free(names);
    return unique;
}

/* A seed that all runs share is left out of the names. */
static void drop_common_seed(nm_report *report)
{
    for (size_t i = 0; i < report->n; i++) {
        const char *name = report->runs[i].name, *seed = nm_name_seed(name);
        if (report->n < 2 || seed == name || strcmp(seed, nm_name_seed(report->runs[0].name)))
            return;
    }
    for (size_t i = 0; i < report->n; i++)
        report->runs[i].name[nm_name_seed(report->runs[i].name) - report->runs[i].name] = 0;
}

static bool is_ignored_setting(const char *key)
{
    return !strncmp(key, "run.", 4) || !strcmp(key, "train.seed") || !strncmp(key, "device.", 7) ||
           !strncmp(key, "probe.", 6);
}

static bool has_settings_of(const nm_report_run *a, const nm_report_run *b)
{
    for (size_t i = 0; i < a->n_settings; i++) {
        const char *other = nm_report_run_setting(b, a->settings[i].key);
        if (!is_ignored_setting(a->settings[i].key) && (!other || strcmp(other, a->settings[i].value)))
            return false;
    }
    return true;
}

static bool same_settings(const nm_report_run *a, const nm_report_run *b)
{
    return a->n_settings && a->n_settings == b->n_settings && has_settings_of(a, b);
}

/* The norm that a recipe varies: the encoder's if it has its own setting. */
static const char *norm_of(const nm_report_run *run)
{
    const char *encoder = nm_report_run_setting(run, "model.encoder_norm"),
               *norm = nm_report_run_setting(run, "model.norm");
    return encoder && *encoder ? encoder : norm ? norm : "";
}

static int norm_index(const char *name)
{
    int n = 0;
    while (nm_norm_types[n] && strcmp(nm_norm_types[n]->name, name))
        n++;
    return n;
}

static nm_run_style style_of(const nm_report *report, size_t i)
{
    nm_run_style style = {.color = norm_index(norm_of(&report->runs[i]))};
    for (size_t k = 0; k < i; k++) {
        if (same_settings(&report->runs[i], &report->runs[k]))
            return report->styles[k];
        if (report->styles[k].color == style.color && report->styles[k].variant >= style.variant)
            style.variant = report->styles[k].variant + 1;
    }
    return style;
}

/* ---- speed ---- */

static bool overlap(const nm_report_run *a, const nm_report_run *b)
{
    return nm_report_run_start(a) < nm_report_run_end(b) && nm_report_run_start(b) < nm_report_run_end(a);
}

/* Throughput is comparable when all runs were on one host, one after the other. Runs without a start time may have
 * shared the machine. */
static bool is_speed_comparable(const nm_report *report)
{
    const char *first = nm_report_run_text(&report->runs[0], "start/host");
    for (size_t i = 0; i < report->n; i++) {
        const char *host = nm_report_run_text(&report->runs[i], "start/host");
        if (!host || !first || strcmp(host, first) || isnan(nm_report_run_start(&report->runs[i])))
            return false;
        for (size_t k = 0; k < i; k++)
            if (overlap(&report->runs[i], &report->runs[k]))
                return false;
    }
    return true;
}

/* ---- the score ---- */

static bool is_score(const char *tag)
{
    static const char *const others[] = {"loss", "nll",   "perplexity", "batch_loss",       "batch_nll",
                                         "best", "epoch", "seconds",    "batch_perplexity", "tokens"};
    if (strncmp(tag, "valid/", 6) || strchr(tag + 6, '/') || strchr(tag + 6, '.'))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(tag + 6, others[i]))
            return false;
    return true;
}

static void find_score(nm_report *report)
{
    report->score_tag = nm_duplicate("valid/perplexity");
    for (size_t i = 0; i < report->n; i++)
        for (size_t k = 0; k < report->runs[i].n_series && !report->score_rises; k++)
            if (is_score(report->runs[i].series[k].tag)) {
                free(report->score_tag);
                report->score_tag = nm_duplicate(report->runs[i].series[k].tag);
                report->score_rises = true;
            }
    report->score_name = nm_duplicate(report->score_tag + strlen("valid/"));
    for (char *at = report->score_name; *at && strlen(report->score_name) <= 4; at++)
        *at = (char)toupper((unsigned char)*at); /* abbreviations */
}

nm_status nm_report_open(nm_report *report, const char *const *folders, size_t n, const char *inspected,
                         nm_error *err)
{
    *report = (nm_report){.runs = nm_allocate((n + 1) * sizeof *report->runs),
                          .results = nm_allocate((n + 1) * sizeof *report->results),
                          .styles = nm_allocate((n + 1) * sizeof *report->styles)};
    for (size_t i = 0; i < n; i++) {
        nm_report_run *run = &report->runs[report->n++];
        NM_TRY(nm_report_run_read(run, folders[i], inspected, err));
        report->styles[i] = style_of(report, i);
        report->results[i] = (nm_report_result){.score = nm_report_run_last(run, "test/value"),
                                                .low = nm_report_run_last(run, "test/low"),
                                                .high = nm_report_run_last(run, "test/high"),
                                                .p = nm_report_run_last(run, "test/p"),
                                                .p_holm = nm_report_run_last(run, "test/p_holm")};
    }
    name_runs(report);
    if (!use_short_names(report, false))
        use_short_names(report, true);
    drop_common_seed(report);
    find_score(report);
    report->speed_comparable = is_speed_comparable(report);
    return NM_OK;
}

void nm_report_close(nm_report *report)
{
    for (size_t i = 0; i < report->n; i++)
        nm_report_run_release(&report->runs[i]);
    free(report->runs);
    free(report->results);
    free(report->styles);
    free(report->score_tag);
    free(report->score_name);
    *report = (nm_report){0};
}
