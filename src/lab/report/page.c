/* The page: sections, figures with descriptions, their data for tooltips and export, style and script, in one
 * file that loads nothing from a network. */
#include "report/page.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "report/html.h"
#include "report/norm_colors.h"
#include "report/plot.h"
#include "report/sections.h"

static json_t *numbers(const double *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; values && i < n; i++)
        json_array_append_new(list, nm_json_number(values[i]));
    return list;
}

static json_t *clean_string(const char *text)
{
    char *clean = nm_text_clean(text);
    json_t *string = json_string(clean);
    free(clean);
    return string;
}

static json_t *curve_json(const nm_curve *curve)
{
    json_t *o = json_object();
    json_object_set_new(o, "run", json_integer((json_int_t)curve->run));
    if (curve->runs.n) {
        json_t *runs = json_array();
        for (size_t i = 0; i < curve->runs.n; i++)
            json_array_append_new(runs, json_integer((json_int_t)curve->runs.list[i]));
        json_object_set_new(o, "runs", runs);
    }
    if (curve->name)
        json_object_set_new(o, "name", clean_string(curve->name));
    if (curve->value)
        json_object_set_new(o, "value", numbers(curve->value, curve->n));
    json_object_set_new(o, "x", numbers(curve->x, curve->n));
    json_object_set_new(o, "y", numbers(curve->y, curve->n));
    if (curve->low) {
        json_object_set_new(o, "low", numbers(curve->low, curve->n));
        json_object_set_new(o, "high", numbers(curve->high, curve->n));
    }
    return o;
}

static json_t *figure_json(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing)
{
    nm_plot_frame f = nm_plot_frame_of(drawing);
    json_t *o = json_object(), *curves = json_array(), *ticks = json_array(), *rows = json_array();
    for (size_t c = 0; c < drawing->n; c++)
        json_array_append_new(curves, curve_json(&drawing->curves[c]));
    for (size_t i = 0; i < drawing->n_ticks; i++)
        json_array_append_new(ticks, clean_string(drawing->ticks[i]));
    json_object_set_new(o, "frame",
                        json_pack("[ffffff]", f.left, f.top, f.right, f.bottom, f.width, f.height));
    json_object_set_new(o, "range",
                        json_pack("[ffff]", drawing->x_min, drawing->x_max, drawing->y_min, drawing->y_max));
    json_object_set_new(o, "log", json_boolean(figure->y_log));
    char *x = nm_drawing_x_label(drawing, figure, report), *y = nm_drawing_y_label(drawing, figure, report);
    for (size_t i = 0; i < drawing->n_rows; i++)
        json_array_append_new(rows, clean_string(drawing->rows[i]));
    json_object_set_new(o, "x", clean_string(drawing->x_unit ? drawing->x_unit : x));
    json_object_set_new(o, "y", clean_string(y));
    free(x);
    free(y);
    json_object_set_new(o, "score", clean_string(report->test_name));
    json_object_set_new(o, "ticks", ticks);
    json_object_set_new(o, "rows", rows);
    if (drawing->at)
        json_object_set_new(o, "at", numbers(drawing->at, drawing->n_ticks));
    json_object_set_new(o, "spread", json_real(drawing->spread));
    json_object_set_new(o, "legend", json_boolean(drawing->legend || drawing->n_rows));
    json_object_set_new(o, "scatter", json_boolean(figure->style == NM_FIGURE_SCATTER));
    json_object_set_new(o, "parallel", json_boolean(figure->style == NM_FIGURE_PARALLEL));
    json_object_set_new(o, "curves", curves);
    return o;
}

/* "</" or "<!--" would end or change the script element: every "<" is escaped. */
static void write_data(const nm_report *report, const nm_drawing *drawings, FILE *out)
{
    json_t *root = json_object(), *runs = json_array(), *figures = json_object();
    for (size_t i = 0; i < report->n; i++) {
        json_t *run = json_object();
        json_object_set_new(run, "name", clean_string(report->runs[i].name));
        json_object_set_new(run, "color", json_string(nm_norm_color(report->styles[i])));
        json_object_set_new(run, "dashes", json_string(nm_plot_dashes(report->styles[i])));
        json_array_append_new(runs, run);
    }
    for (size_t i = 0; nm_figures[i].name; i++)
        if (drawings[i].n)
            json_object_set_new(figures, nm_figures[i].name,
                                figure_json(report, &nm_figures[i], &drawings[i]));
    json_object_set_new(root, "runs", runs);
    json_object_set_new(root, "figures", figures);
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputs("<script type=\"application/json\" id=\"data\">", out);
    for (const char *at = text; at && *at; at++)
        if (*at == '<')
            fputs("\\u003c", out);
        else
            putc(*at, out);
    fputs("</script>\n", out);
    free(text);
    json_decref(root);
}

static void write_outside(size_t n, const char *where, double limit, FILE *out)
{
    char text[NM_NUMBER_BYTES];
    if (n)
        fprintf(out, " %zu point%s %s %s %s outside the frame.", n, n == 1 ? "" : "s", where,
                nm_number_show(text, limit), n == 1 ? "lies" : "lie");
}

static void write_description(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                              FILE *out)
{
    char *text = NULL;
    size_t bytes;
    FILE *memory = nm_text_stream_open(&text, &bytes);
    figure->describe(report, figure, drawing, memory);
    write_outside(drawing->n_above, "above", drawing->y_max, memory);
    write_outside(drawing->n_below, "below", drawing->y_min, memory);
    nm_text_stream_close(memory);
    fputs("<p class=\"description\">", out);
    nm_html_text(out, text);
    fputs("</p>", out);
    free(text);
}

static void write_figure(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                         const char *svg, FILE *out)
{
    char *title = nm_drawing_title(drawing, figure, report); /* the name of the score is from the log */
    fprintf(out, "<figure id=\"%s\"><figcaption><h3>", figure->name);
    nm_html_text(out, title);
    fputs("</h3>", out);
    free(title);
    if (figure->source)
        fprintf(out, "<span class=\"source\">as in %s</span>", figure->source);
    fputs("</figcaption>\n<div class=\"plot\">", out);
    fputs(svg, out);
    fputs("</div>\n", out);
    write_description(report, figure, drawing, out);
    fputs("<p class=\"save\"><button type=\"button\" class=\"svg\">SVG</button><button type=\"button\" "
          "class=\"csv\">CSV</button></p></figure>\n",
          out);
}

/* "Inside the network" as "inside-the-network". */
static void write_slug(const char *title, FILE *out)
{
    for (; *title; title++)
        putc(*title == ' ' ? '-' : tolower((unsigned char)*title), out);
}

static void write_figures(const nm_report *report, const nm_drawing *drawings, char **svg, FILE *out)
{
    const char *section = NULL;
    for (size_t i = 0; nm_figures[i].name; i++) {
        const nm_figure *figure = &nm_figures[i];
        if (!svg[i])
            continue;
        if (!section || strcmp(section, figure->section)) {
            fputs(section ? "</div></section>\n<section id=\"" : "<section id=\"", out);
            write_slug(figure->section, out);
            fprintf(out, "\"><h2>%s</h2>\n", figure->section);
            nm_section_legend(report, "legend printed", out);
            fputs("<div class=\"figures\">\n", out);
            section = figure->section;
        }
        write_figure(report, figure, &drawings[i], svg[i], out);
    }
    if (section)
        fputs("</div></section>\n", out);
}

/* The figures for which no run has values, and how to record them. */
static void write_missing(const nm_report *report, char **svg, FILE *out)
{
    bool any = false;
    for (size_t i = 0; nm_figures[i].name; i++) {
        if (svg[i])
            continue;
        if (!any)
            fputs("<section id=\"missing\"><details><summary>Figures for which these runs have no "
                  "values</summary>\n<ul>\n",
                  out);
        any = true;
        char *title = nm_figure_text(nm_figures[i].title, report);
        fputs("<li>", out);
        nm_html_text(out, title);
        fprintf(out, ": %s</li>\n", nm_figures[i].record);
        free(title);
    }
    if (any)
        fputs("</ul></details></section>\n", out);
}

static void write_head(const nm_report *report, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'; "
          "script-src 'unsafe-inline'; img-src data:\">\n<title>Norma: ",
          out);
    for (size_t i = 0; i < report->n && i < 6; i++) {
        fputs(i ? ", " : "", out);
        nm_html_text(out, report->runs[i].name);
    }
    fprintf(out, "%s</title>\n<style>\n%s</style></head>\n<body>\n", report->n > 6 ? ", ..." : "",
            nm_page_css);
    fprintf(out,
            "<header><h1>Norma <small>%zu run%s</small></h1><button type=\"button\" id=\"theme\" "
            "title=\"switch between the light and the dark theme\">theme</button></header>\n<main>\n",
            report->n, report->n == 1 ? "" : "s");
}

/* Links to the sections of the body. Text from files is escaped, so it cannot contain the start of a
 * section. */
static void write_contents(const char *body, FILE *out)
{
    static const char start[] = "<section id=\"", middle[] = "\"><h2>";
    fputs("<nav class=\"contents\" aria-label=\"contents\">", out);
    for (const char *at = body; (at = strstr(at, start)) != NULL;) {
        at += strlen(start);
        size_t id = strcspn(at, "\"");
        if (strncmp(at + id, middle, strlen(middle)))
            continue;
        const char *title = at + id + strlen(middle);
        fprintf(out, "<a href=\"#%.*s\">%.*s</a>", (int)id, at, (int)strcspn(title, "<"), title);
    }
    fputs("</nav>\n", out);
}

static void write_page(const nm_report *report, const nm_report_config *config, const nm_drawing *drawings,
                       char **svg, FILE *out)
{
    char *body = NULL;
    size_t bytes;
    FILE *memory = nm_text_stream_open(&body, &bytes);
    nm_section_runs(report, memory);
    nm_section_training(report, memory);
    nm_section_legend(report, "legend", memory);
    write_figures(report, drawings, svg, memory);
    write_missing(report, svg, memory);
    if (config->samples)
        nm_section_samples(report, memory);
    nm_section_settings(report, memory);
    nm_section_environment(report, memory);
    nm_text_stream_close(memory);
    write_head(report, out);
    write_contents(body, out);
    fputs(body, out);
    free(body);
    fputs("</main>\n<div id=\"hint\" hidden></div>\n", out);
    write_data(report, drawings, out);
    fprintf(out, "<script>\n%s</script>\n</body></html>\n", nm_page_js);
}

static size_t count_figures(void)
{
    size_t n = 0;
    while (nm_figures[n].name)
        n++;
    return n;
}

static nm_drawing *make_drawings(const nm_report *report)
{
    size_t n = count_figures();
    nm_drawing *drawings = nm_allocate((n + 1) * sizeof *drawings);
    for (size_t i = 0; i < n; i++)
        nm_drawing_make(&drawings[i], report, &nm_figures[i]);
    return drawings;
}

static void free_drawings(nm_drawing *drawings)
{
    for (size_t i = 0; i < count_figures(); i++)
        nm_drawing_release(&drawings[i]);
    free(drawings);
}

nm_status nm_report_page(const nm_report *report, const nm_report_config *config, const char *path,
                         nm_error *err)
{
    nm_drawing *drawings = make_drawings(report);
    char **svg = nm_allocate((count_figures() + 1) * sizeof *svg);
    nm_file_writer writer = {0};
    nm_status status = nm_plot_svg(report, drawings, path, svg, err);
    if (status == NM_OK)
        status = nm_file_writer_open(&writer, path, err);
    if (status == NM_OK) {
        write_page(report, config, drawings, svg, writer.stream);
        status = nm_file_writer_commit(&writer, err);
    }
    for (size_t i = 0; i < count_figures(); i++)
        free(svg[i]);
    free(svg);
    free_drawings(drawings);
    return status;
}

nm_status nm_report_png(const nm_report *report, const char *folder, double width, nm_error *err)
{
    nm_drawing *drawings = make_drawings(report);
    nm_status status = nm_plot_png(report, drawings, folder, width, err);
    free_drawings(drawings);
    return status;
}
