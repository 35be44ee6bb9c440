/* The page: sections, figures with descriptions, their data for tooltips and export, style and script, in one
 * file that loads nothing from a network. */
#include "report/page.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "report/html.h"
#include "report/norm_colors.h"
#include "report/plot.h"
#include "report/sections.h"

static json_t *clean_string(const char *text)
{
    NM_AUTO_FREE char *clean = nm_text_clean(text);
    return json_string(clean);
}

static void add_cell(void *user, size_t curve, size_t point, int color, int ink, const char *text)
{
    json_t *list = json_array_get(user, curve), *cells = json_object_get(list, "cells");
    NM_AUTO_FREE char *fill = nm_format("#%06x", (unsigned)color),
                      *stroke = nm_format("#%06x", (unsigned)ink);
    (void)point;
    if (!cells)
        json_object_set_new(list, "cells", cells = json_array());
    json_array_append_new(cells, json_pack("[sss]", fill, stroke, text));
}

static json_t *run_index(const void *runs, size_t i)
{
    return json_integer((json_int_t)((const size_t *)runs)[i]);
}

/* The values of a curve, or NULL if it has none. */
static json_t *values_of(const double *values, size_t n)
{
    return values ? nm_json_numbers(values, n) : NULL;
}

static json_t *curve_json(const nm_report *report, const nm_curve *c)
{
    const nm_run_style style = nm_curve_style(report, c);
    return json_pack("{s:I, s:s, s:s, s:b, s:o*, s:o*, s:o*, s:o, s:o, s:o*, s:o*, s:o*, s:o*}", "run",
                     (json_int_t)c->run, "color", nm_norm_color(style), "dashes", nm_plot_dashes(style),
                     "bold", (int)c->emphasized, "runs",
                     c->runs.n ? nm_json_list(c->runs.n, run_index, c->runs.list) : NULL, "name",
                     c->name ? clean_string(c->name) : NULL, "value", values_of(c->value, c->n), "x",
                     nm_json_numbers(c->x, c->n), "y", nm_json_numbers(c->y, c->n), "low",
                     values_of(c->low, c->n), "high", values_of(c->low ? c->high : NULL, c->n), "meanX",
                     values_of(c->n_means ? c->mean_x : NULL, c->n_means), "meanY",
                     values_of(c->n_means ? c->mean_y : NULL, c->n_means));
}

static json_t *clean_at(const void *texts, size_t i)
{
    return clean_string(((char *const *)texts)[i]);
}

static json_t *label_at(const void *labels, size_t i)
{
    const nm_label *label = (const nm_label *)labels + i;
    return json_pack("[ffo]", label->x, label->y, clean_string(label->text));
}

static json_t *figure_json(const nm_report *report, const nm_figure *figure, const nm_drawing *d)
{
    static const char *const styles[] = {
        [NM_FIGURE_LINES] = "lines",      [NM_FIGURE_MARKS] = "marks",     [NM_FIGURE_DEPTH] = "depth",
        [NM_FIGURE_BARS] = "bars",        [NM_FIGURE_SCATTER] = "scatter", [NM_FIGURE_CELLS] = "cells",
        [NM_FIGURE_PARALLEL] = "parallel"};
    json_t *curves = json_array();
    NM_AUTO_FREE char *x = nm_drawing_x_label(d, figure, report), *y = nm_drawing_y_label(d, figure, report);
    for (size_t c = 0; c < d->n; c++)
        json_array_append_new(curves, curve_json(report, &d->curves[c]));
    if (figure->style == NM_FIGURE_CELLS)
        nm_plot_cells(report, d, add_cell, curves);
    return json_pack(
        "{s:s, s:o*, s:b, s:o*, s:o, s:o, s:o, s:o, s:o, s:o, s:o*, s:b, s:o, s:o}", "style",
        styles[figure->style], "range", json_pack("[ffff]", d->x_min, d->x_max, d->y_min, d->y_max), "log",
        (int)figure->y_log, "line", figure->lined ? json_real(figure->line) : json_null(), "x",
        clean_string(d->x_unit ? d->x_unit : x), "y", clean_string(y), "score",
        clean_string(report->test_name), "ticks", nm_json_list(d->n_ticks, clean_at, d->ticks), "rows",
        nm_json_list(d->n_rows, clean_at, d->rows), "at",
        d->at ? nm_json_numbers(d->at, d->n_ticks) : json_null(), "spread", json_real(d->spread), "legend",
        (int)d->legend, "labels", nm_json_list(d->n_labels, label_at, d->labels), "curves", curves);
}

/* "</" or "<!--" would end or change the script element: every "<" is escaped. */
static void write_json(json_t *root, FILE *out)
{
    NM_AUTO_FREE char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(7));
    for (const char *at = text; at && *at; at++)
        if (*at == '<')
            fputs("\\u003c", out);
        else
            putc(*at, out);
    json_decref(root);
}

static json_t *run_json(const void *user, size_t i)
{
    const nm_report *report = user;
    return json_pack("{s:o, s:i}", "name", clean_string(report->runs[i].name), "variant",
                     report->styles[i].color + 1000 * report->styles[i].variant);
}

static void write_data(const nm_report *report, const nm_drawing *drawings, FILE *out)
{
    json_t *figures = json_object();
    for (size_t i = 0; nm_figures[i].name; i++)
        if (drawings[i].n)
            json_object_set_new(figures, nm_figures[i].name,
                                figure_json(report, &nm_figures[i], &drawings[i]));
    json_t *root =
        json_pack("{s:o, s:o}", "runs", nm_json_list(report->n, run_json, report), "figures", figures);
    fputs("<script type=\"application/json\" id=\"data\">", out);
    write_json(root, out);
    fputs("</script>\n", out);
}

static void write_outside(size_t n, const char *where, double limit, FILE *out)
{
    char text[NM_NUMBER_BYTES];
    if (n)
        fprintf(out, " %zu point%s %s %s %s outside the frame.", n, n == 1 ? "" : "s", where,
                nm_number_show(text, limit), n == 1 ? "lies" : "lie");
}

static void write_figure(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                         FILE *out)
{
    /* the name of the score is from the log */
    NM_AUTO_FREE char *title = nm_drawing_title(drawing, figure, report);
    fprintf(out, "<figure id=\"%s\"><figcaption><h3>", figure->name);
    nm_html_text(out, title);
    fputs("</h3>", out);
    if (figure->source)
        fprintf(out, "<span class=\"source\">as in %s</span>", figure->source);
    fputs("</figcaption>\n<div class=\"plot\"></div>\n<p class=\"hint\">", out);
    nm_html_text(out, drawing->note ? drawing->note : "");
    write_outside(drawing->n_above, "above", drawing->y_max, out);
    write_outside(drawing->n_below, "below", drawing->y_min, out);
    fputs("</p>\n<div class=\"save\"><details class=\"values\"><summary>values</summary></details>", out);
    if (figure->style == NM_FIGURE_LINES && !drawing->ticks)
        fputs("<button type=\"button\" class=\"axis\" data-axis=\"x\">log x</button>"
              "<button type=\"button\" class=\"axis\" data-axis=\"y\">log y</button>",
              out);
    fputs("<button type=\"button\" class=\"csv\">CSV</button></div></figure>\n", out);
}

/* "Inside the network" as "inside-the-network". */
static void write_slug(const char *title, FILE *out)
{
    for (; *title; title++)
        putc(*title == ' ' ? '-' : tolower((unsigned char)*title), out);
}

/* The figures of the first screen: the two first of these that are drawn. */
static const char *const main_figures[] = {"score", "test-score", "valid-loss", "train-loss"};
enum { N_MAIN = sizeof main_figures / sizeof *main_figures, MOST_MAIN = 2 };

/* Whether there is more to see than the first and the last value of runs that are hardly validated. */
static bool is_drawn(const nm_drawing *drawing)
{
    bool drawn = drawing->n > 0 && drawing->ticks;
    for (size_t i = 0; i < drawing->n; i++)
        drawn = drawn || drawing->curves[i].n > 2;
    return drawn;
}

static bool is_main(const nm_drawing *drawings, size_t figure)
{
    int before = 0;
    for (int m = 0; m < N_MAIN && before < MOST_MAIN; m++) {
        size_t i = 0;
        while (strcmp(nm_figures[i].name, main_figures[m]))
            i++;
        if (i == figure)
            return is_drawn(&drawings[i]);
        before += is_drawn(&drawings[i]);
    }
    return false;
}

static void write_answer(const nm_report *report, const nm_report_config *config, const nm_drawing *drawings,
                         FILE *out)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes;
    FILE *memory = nm_text_stream_open(&text, &bytes);
    if (!config->answer || !config->answer(config->user, memory))
        nm_report_answer(report, memory);
    nm_text_stream_close(memory);
    fputs("<section id=\"answer\"><h2>Answer</h2>\n<p>", out);
    nm_html_text(out, text);
    fputs("</p>\n", out);
    fputs("<div class=\"figures\">\n", out);
    for (size_t i = 0; nm_figures[i].name; i++)
        if (is_main(drawings, i))
            write_figure(report, &nm_figures[i], &drawings[i], out);
    fputs("</div></section>\n", out);
}

static void write_figures(const nm_report *report, const nm_drawing *drawings, FILE *out)
{
    const char *section = NULL;
    for (size_t i = 0; nm_figures[i].name; i++) {
        const nm_figure *figure = &nm_figures[i];
        if (!drawings[i].n || is_main(drawings, i))
            continue;
        if (!section || strcmp(section, figure->section)) {
            fputs(section ? "</div></section>\n<section id=\"" : "<section id=\"", out);
            write_slug(figure->section, out);
            fprintf(out, "\"><h2>%s</h2>\n<div class=\"figures\">\n", figure->section);
            section = figure->section;
        }
        write_figure(report, figure, &drawings[i], out);
    }
    if (section)
        fputs("</div></section>\n", out);
}

/* The figures for which no run has values, and how to record them. */
static void write_missing(const nm_report *report, const nm_drawing *drawings, FILE *out)
{
    nm_section_open("missing", "Figures for which these runs have no values", false, out);
    fputs("<ul>\n", out);
    for (size_t i = 0; nm_figures[i].name; i++) {
        if (drawings[i].n)
            continue;
        NM_AUTO_FREE char *title = nm_figure_text(nm_figures[i].title, report);
        fputs("<li>", out);
        nm_html_text(out, title);
        fprintf(out, ": %s</li>\n", nm_figures[i].record);
    }
    fputs("</ul></details></section>\n", out);
}

static void write_head(const nm_report *report, const nm_report_config *config, FILE *out)
{
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
            "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:%s\">\n<title>Norma: ",
            config->live ? "; connect-src 'self'" : "");
    for (size_t i = 0; i < report->n && i < 6; i++) {
        fputs(i ? ", " : "", out);
        nm_html_text(out, report->runs[i].name);
    }
    fprintf(out, "%s</title>\n<style>\n%s%s</style></head>\n<body%s>\n", report->n > 6 ? ", ..." : "",
            nm_uplot_css, nm_page_css, config->live ? " data-live" : "");
    fputs("<header><h1>Norma</h1><span id=\"state\"></span><span id=\"tools\"><label>smoothing <select "
          "id=\"smooth\" title=\"half-life of an exponential mean, in updates\"><option value=\"0\">none"
          "</option><option>30</option><option>100</option><option>300</option><option>1000</option>"
          "<option>3000</option><option>10000</option></select></label><label><input type=\"checkbox\" "
          "id=\"half\"> last half</label><label><input type=\"checkbox\" id=\"seeds\"> mean of seeds</label>"
          "<button type=\"button\" id=\"theme\" title=\"switch between the light and the dark theme\">theme"
          "</button></span></header>\n",
          out);
}

/* Links to the sections of the body. Text from files is escaped, so it cannot contain the start of a
 * section. */
static void write_contents(const char *body, FILE *out)
{
    static const char start[] = "<section id=\"", title_start[] = "<h2>";
    fputs("<nav class=\"contents\" aria-label=\"contents\">", out);
    for (const char *at = body; (at = strstr(at, start)) != NULL;) {
        at += strlen(start);
        const char *title = strstr(at, title_start);
        if (!title)
            break;
        title += strlen(title_start);
        fprintf(out, "<a href=\"#%.*s\">%.*s</a>", (int)strcspn(at, "\""), at, (int)strcspn(title, "<"),
                title);
    }
    fputs("</nav>\n", out);
}

static size_t count_figures(void)
{
    size_t n = 0;
    while (nm_figures[n].name)
        n++;
    return n;
}

static nm_drawing *make_drawings(const nm_report *report, const nm_view *view)
{
    size_t n = count_figures();
    nm_drawing *drawings = nm_allocate((n + 1) * sizeof *drawings);
    for (size_t i = 0; i < n; i++)
        nm_drawing_make(&drawings[i], report, &nm_figures[i], view);
    return drawings;
}

static void free_drawings(nm_drawing *drawings)
{
    for (size_t i = 0; i < count_figures(); i++)
        nm_drawing_release(&drawings[i]);
    free(drawings);
}

void nm_report_write_body(const nm_report *report, const nm_report_config *config, FILE *out)
{
    enum { MOST = 800, LEAST = 100, ALL = 16000 };
    const size_t points = report->n ? ALL / report->n : MOST;
    const nm_view view = {.points = points > MOST ? MOST : points < LEAST ? LEAST : points};
    nm_drawing *drawings = make_drawings(report, &view);
    NM_AUTO_FREE char *body = NULL;
    size_t bytes;
    FILE *memory = nm_text_stream_open(&body, &bytes);
    write_answer(report, config, drawings, memory);
    if (config->extra)
        config->extra(config->user, memory);
    nm_section_runs(report, memory);
    write_figures(report, drawings, memory);
    nm_section_training(report, memory);
    nm_section_settings(report, memory);
    if (config->samples)
        nm_section_samples(report, memory);
    write_missing(report, drawings, memory);
    nm_section_environment(report, memory);
    nm_text_stream_close(memory);
    write_contents(body, out);
    nm_section_legend(report, out);
    fputs(body, out);
    write_data(report, drawings, out);
    free_drawings(drawings);
}

void nm_report_write(const nm_report *report, const nm_report_config *config, FILE *out)
{
    write_head(report, config, out);
    fputs("<main>\n", out);
    nm_report_write_body(report, config, out);
    fputs("</main>\n<noscript>A script draws the figures; norma report --svg FOLDER writes them as "
          "files.</noscript>\n<div id=\"hint\" hidden></div>\n",
          out);
    fprintf(out, "<script>\n%s</script>\n<script>\n%s</script>\n</body></html>\n", nm_uplot_js, nm_page_js);
}

bool nm_report_write_figure(const nm_report *report, const char *name, double from, double to, size_t points,
                            FILE *out)
{
    size_t i = 0;
    while (nm_figures[i].name && strcmp(nm_figures[i].name, name))
        i++;
    if (!nm_figures[i].name)
        return false;
    const nm_view view = {from, to, points};
    nm_drawing drawing;
    nm_drawing_make(&drawing, report, &nm_figures[i], &view);
    const bool found = drawing.n > 0;
    if (found)
        write_json(figure_json(report, &nm_figures[i], &drawing), out);
    nm_drawing_release(&drawing);
    return found;
}

nm_status nm_report_page(const nm_report *report, const nm_report_config *config, const char *path,
                         nm_error *err)
{
    nm_file_writer writer = {0};
    NM_TRY(nm_file_writer_open(&writer, path, err));
    nm_report_write(report, config, writer.stream);
    return nm_file_writer_commit(&writer, err);
}

nm_status nm_report_pictures(const nm_report *report, const char *folder, double width, nm_error *err)
{
    nm_drawing *drawings = make_drawings(report, NULL);
    nm_status status = nm_plot_files(report, drawings, folder, width, err);
    free_drawings(drawings);
    return status;
}
