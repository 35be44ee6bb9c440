#include "report/svg.h"

#include <stdlib.h>
#include <string.h>

#include "text/buffer.h"

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static const char *after_line(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

static void append_text(nm_buffer *out, const char *text)
{
    nm_buffer_append(out, text, strlen(text));
}

/* Prefixes the ids of symbols, such as gpDot, with the name of the figure: ids must be unique on the page. */
static void append_line(nm_buffer *out, const char *line, const char *end, const char *name)
{
    while (line < end) {
        if (starts(line, "#gp") || starts(line, "'gp")) {
            nm_buffer_append(out, line, 1);
            append_text(out, name);
            nm_buffer_append_byte(out, '-');
            line++;
        }
        nm_buffer_append_byte(out, *line++);
    }
}

/* Writes the start of a curve with the indices of its runs, "3" or "3 4 5". The labels of a heat map follow
 * its curves in the same order. What follows the curves is the legend. */
static void append_curve_start(nm_buffer *out, const char *line, const nm_drawing *drawing)
{
    size_t number = strtoul(line + strlen("<g id=\"gnuplot_plot_"), NULL, 10) - 1;
    if (drawing->n_rows && number >= drawing->n)
        number -= drawing->n;
    const nm_curve *curve = number < drawing->n ? &drawing->curves[number] : NULL;
    append_text(out, curve ? "<g class=\"curve\" data-run=\"" : "<g>\n");
    for (size_t i = 0; curve && i < (curve->runs.n ? curve->runs.n : 1); i++) {
        char *run = nm_format("%s%zu", i ? " " : "", curve->runs.n ? curve->runs.list[i] : curve->run);
        append_text(out, run);
        free(run);
    }
    append_text(out, curve ? "\">\n" : "");
}

/* Skips the symbols if no point uses them. The filters that follow are for text boxes, which SVG figures do
 * not have. */
static const char *skip_symbols(const char *svg, const char *at)
{
    const char *end = strstr(at, "</defs>");
    return end && !strstr(svg, "' transform='translate(") ? after_line(end) : at;
}

static const char *skip_filter(const char *at)
{
    const char *end = strstr(at, "</filter>");
    return end ? after_line(end) : at;
}

char *nm_svg_trim(const char *svg, const nm_drawing *drawing, const char *name)
{
    nm_buffer out = {0};
    for (const char *at = svg; *at;) {
        const char *next = after_line(at), *text = at + strspn(at, " \t");
        if (starts(text, "<?xml") || starts(text, "<title>") || starts(text, "<desc>") || *text == '\n') {
            at = next;
        } else if (starts(text, "<defs>") && skip_symbols(svg, at) != at) {
            at = skip_symbols(svg, at);
        } else if (starts(text, "<filter ") && skip_filter(at) != at) {
            at = skip_filter(at);
        } else if (starts(text, "<g id=\"gnuplot_plot_")) {
            append_curve_start(&out, text, drawing);
            at = next;
        } else if (starts(text, "<g fill=") && starts(next, "</g>\n")) {
            at = next + strlen("</g>\n");
        } else {
            append_line(&out, at, next, name);
            at = next;
        }
    }
    return out.data ? out.data : nm_duplicate("");
}
