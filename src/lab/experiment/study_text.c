#include "experiment/study_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/file.h"
#include "base/memory.h"
#include "experiment/run_plan.h"
#include "experiment/text_table.h"

static NM_FIELDS(nm_study_answer, NM_STUDY_ANSWER)
static NM_FIELDS(nm_studied_variant, NM_STUDIED_VARIANT)

char *nm_study_plan_markdown(const nm_study_procedure *s)
{
    char *text, *budget = nm_plan_duration(s->config.budget);
    size_t bytes;
    FILE *out = nm_text_stream_open(&text, &bytes);
    fprintf(out, "%zu variant%s:", s->config.n, s->config.n == 1 ? "" : "s");
    for (size_t v = 0; v < s->config.n; v++)
        fprintf(out, "%s %s%s", v ? "," : "", s->config.variants[v], s->states[v].failed ? " (failed)" : "");
    fprintf(
        out,
        "; %lld run%s at a time; budget %s\nA complete run has %lld updates. A difference of %g %s or less "
        "does not matter (--delta).\n\n",
        (long long)s->config.jobs, s->config.jobs == 1 ? "" : "s", budget, (long long)s->updates,
        s->config.delta, s->config.unit);
    nm_plan_print(s->parts, s->n_parts, s->config.n > 1, out);
    nm_text_stream_close(out);
    free(budget);
    return text;
}

static char *number(double value, int digits)
{
    return isfinite(value) ? nm_format("%.*f", digits, value) : nm_duplicate("");
}

static char *p_cell(double p)
{
    return isfinite(p) && p < 0.0005 ? nm_duplicate("<0.001") : number(p, 3);
}

static void print_variants(const nm_study_procedure *s, FILE *out)
{
    static const char *const titles[] = {
        "norm", "result",    "seeds",   NULL,  "±",          "lead of the best",
        "95 %", "p",         "p equiv", "lr",  "TID mean %", "TID var %",
        "gap",  "grad norm", "tok/s",   "MiB", "run time"};
    enum { COLUMNS = sizeof titles / sizeof *titles };
    NM_AUTO(nm_text_table_release) nm_text_table cells = {0};
    for (int c = 0; c < COLUMNS; c++)
        nm_text_table_add(&cells, nm_duplicate(titles[c] ? titles[c] : s->config.score));
    cells.columns = cells.n;
    for (size_t i = 0; i < s->config.n; i++) {
        const nm_studied_variant *v = &s->variants[i];
        char *const row[COLUMNS] = {
            nm_duplicate(v->variant),
            nm_duplicate(i || !strcmp(s->answer.verdict, "best") ? v->state : "highest"),
            nm_format("%lld + %lld", (long long)v->selected, (long long)v->confirmed),
            number(v->score, 2),
            number(v->deviation, 2),
            number(v->difference, 2),
            isfinite(v->low) ? nm_format("%.2f to %.2f", v->low, v->high) : nm_duplicate(""),
            p_cell(v->p),
            p_cell(v->p_equivalence),
            isfinite(v->lr) ? nm_format("%g%s", v->lr, v->lr_at_edge ? " (edge)" : "") : nm_duplicate(""),
            number(100 * v->tid_mean, 1),
            number(100 * v->tid_variance, 1),
            number(v->gap, 3),
            number(v->grad_norm, 2),
            number(v->tokens_per_second, 0),
            number(v->step_mib, 0),
            nm_plan_duration(3600 * v->hours),
        };
        for (int c = 0; c < COLUMNS; c++)
            nm_text_table_add(&cells, row[c]);
    }
    nm_text_table_print(&cells, NM_TABLE_MARKDOWN, out);
}

/* Planned and real time of each part, and the number of runs that ended. */
static void print_parts(const nm_study_procedure *s, FILE *out)
{
    static const char *const titles[] = {"part", "runs", "planned", "took"};
    NM_AUTO(nm_text_table_release) nm_text_table cells = {0};
    double begun = 0;
    for (int c = 0; c < 4; c++)
        nm_text_table_add(&cells, nm_duplicate(titles[c]));
    cells.columns = cells.n;
    for (size_t k = 0; k < s->n_parts; k++) {
        int64_t ended = 0;
        double end = begun;
        for (size_t i = 0; i < s->n_runs; i++) {
            const nm_planned_run *row = &s->runs[i]->row;
            if (strcmp(row->phase, s->parts[k].phase))
                continue;
            ended += !strcmp(row->state, "finished");
            end = fmax(end, row->at);
        }
        nm_text_table_add(&cells, nm_duplicate(nm_plan_part_name(s->parts[k].phase)));
        nm_text_table_add(&cells, nm_format("%lld", (long long)ended));
        nm_text_table_add(&cells, nm_plan_duration(s->parts[k].seconds));
        nm_text_table_add(&cells, nm_plan_duration(end - begun));
        begun = end;
    }
    nm_text_table_print(&cells, NM_TABLE_MARKDOWN, out);
}

char *nm_study_answer_markdown(const nm_study_procedure *s)
{
    NM_AUTO_FREE char *used = nm_plan_duration(s->answer.used), *planned = nm_plan_duration(s->planned),
                      *budget = nm_plan_duration(s->config.budget);
    char *text;
    size_t bytes;
    FILE *out = nm_text_stream_open(&text, &bytes);
    fprintf(out, "%s\n\n", s->answer.paragraph);
    print_variants(s, out);
    fprintf(
        out,
        "\n- seeds: of the selection (validation data) + fresh ones (test data); %s, lead, 95 %% and p: "
        "fresh "
        "seeds only, paired t tests over seeds and test segments\n"
        "- p, p equiv: with Holm's correction over all pairs of finalists; p equiv: two one-sided tests of a "
        "difference of at least %g %s\n"
        "- gap: validation loss with running statistics minus that with batch statistics; TID: last encoder "
        "layer\n"
        "- cost: %s of the budget of %s; the plan said %s\n",
        s->config.score, s->config.delta, s->config.unit, used, budget, planned);
    if (s->answer.model)
        fprintf(out, "- the trained winner: %s; its recipe: winner.ini in the same folder\n",
                s->answer.model);
    putc('\n', out);
    print_parts(s, out);
    nm_text_stream_close(out);
    return text;
}

static nm_status write_text(const nm_study_procedure *s, const char *name, const char *text, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(s->config.folder, name);
    return nm_file_write(path, text, strlen(text), err);
}

static nm_status write_json(const nm_study_procedure *s, nm_error *err)
{
    json_auto_t *o = nm_record_json(nm_study_answer_fields(), &s->answer);
    nm_json_add(o, "{s:o, s:o}", "variants",
                nm_record_array(nm_studied_variant_fields(), s->variants, sizeof *s->variants, s->config.n),
                "parts", nm_record_array(nm_plan_part_fields(), s->parts, sizeof *s->parts, s->n_parts));
    NM_AUTO_FREE char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    return write_text(s, "answer.json", text, err);
}

/* The run of the best variant with the lowest validation loss. */
static const nm_trial *best_run(const nm_study_procedure *s)
{
    size_t v = 0, n;
    while (v < s->config.n && strcmp(s->config.variants[v], s->answer.best))
        v++;
    NM_AUTO_FREE nm_trial **runs = nm_study_trials(s, s->answer.seeds ? "confirm" : "select", v, &n);
    const nm_trial *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (!best || runs[i]->row.loss < best->row.loss)
            best = runs[i];
    return best;
}

/* "key = PATH ; comment" with the absolute path of a file that exists, so that the recipe works in any
 * folder; other lines are returned as they are. Heap. */
static char *with_absolute_path(const char *line)
{
    static const char *const keys[] = {"folder", "train",   "valid",          "test",     "codes",
                                       "tune",   "vectors", "bigram_vectors", "init_from"};
    size_t key = strcspn(line, " ="), begin = key + strspn(line + key, " ="), end = begin;
    while (line[end] && strncmp(line + end, " ;", 2))
        end++;
    bool is_path = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        is_path = is_path || (strlen(keys[i]) == key && !strncmp(line, keys[i], key));
    NM_AUTO_FREE char *value = nm_format("%.*s", (int)(end - begin), line + begin),
                      *path = is_path && *value && *value != '/' ? realpath(value, NULL) : NULL;
    return path ? nm_format("%.*s%s%s", (int)begin, line, path, line + end) : nm_duplicate(line);
}

/* The configuration of the run without its folder, as a recipe. */
static nm_status write_recipe(const nm_study_procedure *s, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *recipe =
        nm_format("# The best variant of a study: %s.\n# Usage: norma train winner.ini --run.folder FOLDER\n",
                  s->answer.best);
    NM_AUTO_FREE char *from = nm_path_join(folder, "config.ini"), *text = NULL;
    char *line, *rest;
    NM_TRY(nm_file_read(from, &text, NULL, err));
    for (rest = text; (line = strsep(&rest, "\n")) != NULL;)
        if (strncmp(line, "folder = ", 9) || !strstr(recipe, "[run]") || strstr(recipe, "[data]"))
            if (strncmp(line, "resume", 6) && (rest || *line)) {
                NM_AUTO_FREE char *whole = with_absolute_path(line);
                nm_format_append(&recipe, "%s\n", whole);
            }
    return write_text(s, "winner.ini", recipe, err);
}

static nm_status link_model(const nm_study_procedure *s, const char *name, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(s->config.folder, "winner");
    nm_status status = NM_OK;
    if ((unlink(path) && errno != ENOENT) || symlink(name, path))
        status = nm_fail(err, NM_IO, "%s: %s", path, strerror(errno));
    return status;
}

nm_status nm_study_write_files(nm_study_procedure *s, nm_error *err)
{
    const nm_trial *run = s->answer.best ? best_run(s) : NULL;
    if (run) {
        NM_AUTO_FREE char *folder = nm_path_join(s->config.folder, run->row.folder);
        nm_status status = write_recipe(s, folder, err);
        NM_THEN(status, link_model(s, run->row.folder, err));
        json_t *kept = json_string(folder);
        json_array_append_new(s->texts, kept);
        s->answer.model = json_string_value(kept);
        NM_TRY(status);
    }
    NM_TRY(write_json(s, err));
    NM_AUTO_FREE char *text = nm_study_answer_markdown(s);
    return write_text(s, "answer.md", text, err);
}
