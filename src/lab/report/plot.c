#include "report/plot.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/memory.h"
#include "report/norm_colors.h"

enum { WIDTH = 480, HEIGHT = 310, HEIGHT_SITES = 380, FEW_TICKS = 6 };
enum { MAX_LABEL = 60, CELL_BLACK = 0x111111, CELL_WHITE = 0xffffff };
enum { MAX_LETTERS = 56, CELL_HEIGHT = 28 };
enum { MAX_LEGEND = 24, LEGEND_COLUMNS = 3, LEGEND_ROW = 20 };

static const struct {
    const char *svg, *gnuplot;
} dashes[] = {{"", "1"}, {"8,4", "(8,4)"}, {"2,3", "(2,3)"}, {"10,3,2,3", "(10,3,2,3)"}};
enum { N_DASHES = sizeof dashes / sizeof *dashes };

const char *nm_plot_dashes(nm_run_style style)
{
    return dashes[style.variant % N_DASHES].svg;
}

/* Circle, square, triangles, diamond, pentagon with their gnuplot numbers: color is not the only
 * distinction. */
static const struct {
    const char *svg;
    int gnuplot;
} markers[] = {{"M7 5a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", 7},
               {"M7.4 1.4h7.2v7.2h-7.2z", 5},
               {"M11 .4L15.4 8.6H6.6z", 9},
               {"M11 9.6L15.4 1.4H6.6z", 11},
               {"M11 0L16 5L11 10L6 5z", 13},
               {"M11 .4L15.6 3.8L13.8 9.2H8.2L6.4 3.8z", 15}};
enum { N_MARKERS = sizeof markers / sizeof *markers };

static int marker_of(nm_run_style style)
{
    return (style.color + style.variant) % N_MARKERS;
}

const char *nm_plot_marker(nm_run_style style)
{
    return markers[marker_of(style)].svg;
}

/* Whether curve c is the first one with its entry in the legend. */
static bool starts_family(const nm_drawing *drawing, size_t c)
{
    for (size_t k = 0; k < c; k++)
        if (!strcmp(drawing->curves[k].family, drawing->curves[c].family))
            return false;
    return true;
}

/* Site names are rotated if there are many; values of a setting are short. */
static bool has_rotated_ticks(const nm_drawing *drawing)
{
    size_t letters = 0;
    for (size_t i = 0; i < drawing->n_ticks; i++)
        letters += strlen(drawing->ticks[i]) + 2;
    bool sites = !drawing->at && !drawing->n_rows;
    return letters > MAX_LETTERS || (sites && drawing->n_ticks > FEW_TICKS);
}

/* The number of entries in the legend of the figure. */
static size_t count_legend(const nm_drawing *drawing)
{
    size_t n = 0;
    for (size_t c = 0; c < drawing->n && drawing->legend; c++)
        n += starts_family(drawing, c);
    return n;
}

/* The frame of the axes in a picture of width WIDTH, from its upper left corner. */
typedef struct plot_frame {
    double width, height, left, top, right, bottom;
} plot_frame;

static plot_frame with_legend(plot_frame frame, size_t n)
{
    double height = n <= MAX_LEGEND ? LEGEND_ROW * ceil((double)n / LEGEND_COLUMNS) : 0;
    frame.height += height;
    frame.top += height;
    frame.bottom += height;
    return frame;
}

static plot_frame frame_of(const nm_drawing *drawing)
{
    double height = has_rotated_ticks(drawing) ? HEIGHT_SITES : HEIGHT, left = 0.145 * WIDTH;
    plot_frame frame = {WIDTH,        height,
                        left,         0.04 * height,
                        0.97 * WIDTH, has_rotated_ticks(drawing) ? 0.7 * height : 0.82 * height};
    double cells = CELL_HEIGHT * (double)drawing->n_rows - (frame.bottom - frame.top);
    if (cells > 0) {
        frame.height += cells;
        frame.bottom += cells;
    }
    return with_legend(frame, count_legend(drawing));
}

static void write_ticks_125(FILE *out, double low, double high)
{
    static const double steps[] = {1, 2, 5};
    const char *comma = "";
    fputs("set ytics (", out);
    for (int decade = (int)floor(log10(low)); decade <= log10(high); decade++)
        for (int k = 0; k < 3; k++) {
            double tick = steps[k] * pow(10, decade);
            if (tick >= low && tick <= high) {
                fprintf(out, "%s'%g' %.9g", comma, tick, tick);
                comma = ", ";
            }
        }
    fputs(")\n", out);
}

/* By default, gnuplot places logarithmic ticks at powers of ten, of which a short axis contains one or
 * none. */
static void write_log_ticks(FILE *out, double low, double high)
{
    double decades = log10(high / low);
    if (decades > 3)
        fprintf(out, "set ytics %g\n", decades > 12 ? 1e4 : decades > 6 ? 100.0 : 10.0);
    else if (decades > 0.8)
        write_ticks_125(out, low, high);
    else {
        static const double factors[] = {1, 2, 5};
        double power = pow(10, floor(log10((high - low) / 6))), step = 10 * power;
        for (int k = 2; k >= 0; k--)
            step = (high - low) / (factors[k] * power) <= 6 ? factors[k] * power : step;
        const char *comma = "";
        fputs("set ytics (", out);
        double first = ceil(low / step);
        for (int k = 0; (first + k) * step <= high; k++, comma = ", ")
            fprintf(out, "%s'%.4g' %.9g", comma, (first + k) * step, (first + k) * step);
        fputs(")\n", out);
    }
}

/* Site names, at most 24 characters; characters that do not occur in site names are replaced. */
static void write_site_ticks(FILE *out, const nm_drawing *drawing)
{
    fprintf(out, "set xtics %s (", has_rotated_ticks(drawing) ? "rotate by 55 right" : "norotate");
    for (size_t i = 0; i < drawing->n_ticks; i++) {
        fprintf(out, "%s'", i ? ", " : "");
        for (const char *at = drawing->ticks[i]; *at && at < drawing->ticks[i] + 24; at++)
            putc(isalnum((unsigned char)*at) || strchr("._+- ", *at) ? *at : '_', out);
        fprintf(out, "' %.9g", drawing->at ? drawing->at[i] : (double)i);
    }
    fprintf(out, ") font ',%d'\n", drawing->n_ticks > 24 ? 10 : 12);
}

/* Whether point i is of another kind of sublayer than the point before it. */
static bool starts_kind(const nm_drawing *drawing, const nm_curve *curve, size_t i)
{
    return i &&
           !nm_tick_same_kind(drawing->ticks[(size_t)curve->x[i - 1]], drawing->ticks[(size_t)curve->x[i]]);
}

static void write_data(FILE *out, const nm_figure *figure, const nm_drawing *drawing)
{
    for (size_t c = 0; c < drawing->n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        double shift = (((double)c + 0.5) / (double)drawing->n - 0.5) * drawing->spread;
        fprintf(out, "$d%zu << EOD\n", c);
        for (size_t i = 0; i < curve->n; i++) {
            if (figure->style == NM_FIGURE_DEPTH && starts_kind(drawing, curve, i))
                putc('\n', out); /* an empty line interrupts the curve */
            double x = drawing->at ? drawing->at[(size_t)curve->x[i]] : curve->x[i];
            fprintf(out, "%.7g %.7g", x + shift, curve->y[i]);
            if (curve->low)
                fprintf(out, " %.7g %.7g", curve->low[i], curve->high[i]);
            putc('\n', out);
        }
        fputs("EOD\n", out);
    }
}

/* Names come from the file system and from logs: quotes, control characters and non-ASCII bytes are
 * replaced. */
static void write_text(FILE *out, const char *text, size_t most)
{
    putc('\'', out);
    for (size_t n = 0; n < most && text[n]; n++)
        putc((unsigned char)text[n] < ' ' || text[n] == '\'' || (unsigned char)text[n] >= 127 ? '_' : text[n],
             out);
    putc('\'', out);
}

static void write_title(FILE *out, const char *name)
{
    fputs(" title ", out);
    write_text(out, name, 40);
}

static void write_curve(FILE *out, const nm_report *report, const nm_figure *figure,
                        const nm_drawing *drawing, size_t c, bool titled)
{
    const nm_curve *curve = &drawing->curves[c];
    nm_run_style run_style = nm_curve_style(report, curve);
    bool line = figure->style == NM_FIGURE_LINES || figure->style == NM_FIGURE_DEPTH ||
                figure->style == NM_FIGURE_PARALLEL;
    bool dots = figure->style != NM_FIGURE_LINES || curve->n <= 20;
    const char *style = figure->style == NM_FIGURE_BARS ? "yerrorbars"
                        : curve->low                    ? "yerrorlines"
                        : !line                         ? "points"
                        : dots                          ? "linespoints"
                                                        : "lines";
    bool faint = figure->style == NM_FIGURE_PARALLEL && !curve->emphasized;
    fprintf(out, "%s$d%zu with %s lc rgb '#%s%s' lw %g", c ? ", " : "plot ", c, style, faint ? "90" : "",
            nm_norm_color(run_style) + 1,
            curve->emphasized ? 3.5
            : drawing->n > 12 ? 1.2
                              : 2.0);
    if (line)
        fprintf(out, " dt %s", dashes[run_style.variant % N_DASHES].gnuplot);
    if (dots)
        fprintf(out, " pt %d ps %g", markers[marker_of(run_style)].gnuplot,
                figure->style == NM_FIGURE_LINES ? 0.55
                : drawing->n > 12                ? 0.5
                                                 : 0.8);
    if (titled)
        write_title(out, nm_curve_name(report, curve));
    else
        fputs(" notitle", out);
}

/* Nunez, Anderton and Renslow 2018, cividis: from dark blue to yellow, with the same order for readers with
 * color vision deficiency and in grayscale. */
static const uint8_t cividis[][3] = {
    {0x00, 0x22, 0x4e}, {0x12, 0x35, 0x70}, {0x3b, 0x49, 0x6c}, {0x57, 0x5d, 0x6d}, {0x70, 0x71, 0x73},
    {0x8a, 0x86, 0x78}, {0xa5, 0x9c, 0x74}, {0xc3, 0xb3, 0x69}, {0xe1, 0xcc, 0x55}, {0xfe, 0xe8, 0x38}};
enum { N_CIVIDIS = sizeof cividis / sizeof *cividis };

/* Linear interpolation of the color map; t from 0 to 1. */
static void color_of(double t, int rgb[3])
{
    int i = (int)fmin(t * (N_CIVIDIS - 1), N_CIVIDIS - 2);
    double part = t * (N_CIVIDIS - 1) - i;
    for (int c = 0; c < 3; c++)
        rgb[c] = (int)lround((1 - part) * cividis[i][c] + part * cividis[i + 1][c]);
}

/* Whether black text has more contrast on this color than white text: relative luminance of WCAG 2. */
static bool is_light(const int rgb[3])
{
    static const double weights[] = {0.2126, 0.7152, 0.0722};
    double luminance = 0;
    for (int c = 0; c < 3; c++)
        luminance += weights[c] * pow(rgb[c] / 255.0, 2.2);
    return luminance > 0.179;
}

/* Enough decimals to distinguish the values of the cells. */
static int decimals_of(double range)
{
    return range >= 100 ? 0 : range >= 5 ? 1 : range >= 0.2 || range == 0 ? 2 : 3;
}

void nm_plot_cells(const nm_report *report, const nm_drawing *drawing, nm_plot_cell cell, void *user)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t c = 0; c < drawing->n; c++)
        for (size_t i = 0; i < drawing->curves[c].n; i++) {
            low = fmin(low, drawing->curves[c].value[i]);
            high = fmax(high, drawing->curves[c].value[i]);
        }
    for (size_t c = 0; c < drawing->n; c++)
        for (size_t i = 0; i < drawing->curves[c].n; i++) {
            char text[NM_NUMBER_BYTES];
            double value = drawing->curves[c].value[i], t = high > low ? (value - low) / (high - low) : 0.5;
            int rgb[3];
            color_of(report->test_rises ? t : 1 - t, rgb);
            snprintf(text, sizeof text, "%.*f", decimals_of(high - low), value);
            cell(user, c, i, rgb[0] << 16 | rgb[1] << 8 | rgb[2], is_light(rgb) ? CELL_BLACK : CELL_WHITE,
                 text);
        }
}

typedef struct cell_writer {
    FILE *out;
    const nm_drawing *drawing;
} cell_writer;

static void write_cell(void *user, size_t c, size_t i, int color, int ink, const char *text)
{
    const cell_writer *to = user;
    const nm_curve *curve = &to->drawing->curves[c];
    double x = curve->x[i], y = curve->y[i];
    if (!i)
        fprintf(to->out, "$d%zu << EOD\n", c);
    fprintf(to->out, "%g %g %g %g %g %g %d %s %d\n", x, y, x - 0.48, x + 0.48, y - 0.47, y + 0.47, color,
            text, ink);
    if (i + 1 == curve->n)
        fputs("EOD\n", to->out);
}

static void write_cells(FILE *out, const nm_report *report, const nm_drawing *drawing)
{
    cell_writer to = {out, drawing};
    nm_plot_cells(report, drawing, write_cell, &to);
    fputs("plot ", out);
    for (size_t c = 0; c < drawing->n; c++)
        fprintf(out,
                "$d%zu using 1:2:3:4:5:6:7 with boxxyerror fs solid 1.0 noborder lc rgb variable notitle, ",
                c);
    for (size_t c = 0; c < drawing->n; c++)
        fprintf(out, "%s$d%zu using 1:2:(stringcolumn(8)):9 with labels font ',%d' tc rgb variable notitle",
                c ? ", " : "", c, drawing->n_ticks > 8 ? 10 : 13);
}

static void write_rows(FILE *out, const nm_drawing *drawing)
{
    fputs("unset border\nunset grid\nset ytics (", out);
    for (size_t i = 0; i < drawing->n_rows; i++) {
        fputs(i ? ", " : "", out);
        write_text(out, drawing->rows[i], MAX_LABEL);
        fprintf(out, " %zu", i);
    }
    fputs(") scale 0\nset xtics scale 0\n", out);
}

/* Lists the names of the groups, for a figure whose curves are not runs. */
static void write_group_legend(FILE *out, const nm_report *report, const nm_drawing *drawing)
{
    size_t n = count_legend(drawing);
    for (size_t c = 0; c < drawing->n && n <= MAX_LEGEND && n; c++) {
        const nm_curve *curve = &drawing->curves[c];
        nm_run_style style = nm_curve_style(report, curve);
        if (!starts_family(drawing, c))
            continue;
        fprintf(out, ", keyentry with linespoints lc rgb '%s' lw 2 dt %s pt %d ps 0.8", nm_norm_color(style),
                dashes[style.variant % N_DASHES].gnuplot, markers[marker_of(style)].gnuplot);
        write_title(out, curve->family);
    }
}

static void write_frame(FILE *out, plot_frame frame)
{
    fprintf(out, "set lmargin at screen %.9g\nset rmargin at screen %.9g\n", frame.left / frame.width,
            frame.right / frame.width);
    fprintf(out, "set tmargin at screen %.9g\nset bmargin at screen %.9g\n", 1 - frame.top / frame.height,
            1 - frame.bottom / frame.height);
}

static void write_scales(FILE *out, const nm_figure *figure, const nm_drawing *drawing)
{
    bool thousands = !drawing->ticks && !figure->x_seconds && drawing->x_max >= 10000;
    fprintf(out, "unset logscale\nset xtics norotate autofreq scale 0.5 font ',13'\nset ytics autofreq scale "
                 "0.5\nset format '%%g'\n");
    if (figure->y_log) {
        fputs("set logscale y\n", out);
        write_log_ticks(out, drawing->y_min, drawing->y_max);
    }
    if (drawing->ticks)
        write_site_ticks(out, drawing);
    else if (thousands)
        fputs("set format x '%.0s%c'\n", out);
    fprintf(out, "set xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", drawing->x_min, drawing->x_max,
            drawing->y_min, drawing->y_max);
}

static void write_axis_titles(FILE *out, const nm_report *report, const nm_figure *figure,
                              const nm_drawing *drawing)
{
    NM_AUTO_FREE char *x_label = nm_drawing_x_label(drawing, figure, report),
                      *y_label = nm_drawing_y_label(drawing, figure, report);
    NM_AUTO_FREE char *with_unit =
        nm_format("%s%s%s", x_label, drawing->x_unit ? ", " : "", drawing->x_unit ? drawing->x_unit : "");
    fputs("set xlabel ", out);
    write_text(out, with_unit, MAX_LABEL);
    fputs("\nset ylabel ", out);
    write_text(out, y_label, MAX_LABEL);
    fputc('\n', out);
}

/* Parallel coordinates have an axis for each tick, and neither border nor grid. */
static void write_parallel_axes(FILE *out, const nm_drawing *drawing)
{
    fputs("unset border\nunset grid\nunset ytics\n", out);
    for (size_t i = 0; i < drawing->n_ticks; i++)
        fprintf(
            out,
            "set arrow from first %zu, first 0 to first %zu, first 1 nohead back lc rgb '#80868f' lw 1.2\n",
            i, i);
}

static void write_labels(FILE *out, const nm_drawing *drawing, bool parallel)
{
    for (size_t i = 0; i < drawing->n_labels; i++) {
        const nm_label *label = &drawing->labels[i];
        fputs("set label ", out);
        write_text(out, label->text, MAX_LABEL);
        fprintf(out, " at first %.9g, first %.9g %s front font ',%d' textcolor rgb '#50565e'%s\n", label->x,
                label->y, parallel ? "left offset char 0.6,0" : "center", parallel ? 11 : 13,
                parallel ? " boxed" : "");
    }
}

static void write_axes(FILE *out, const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                       plot_frame frame)
{
    bool parallel = figure->style == NM_FIGURE_PARALLEL;
    write_frame(out, frame);
    write_scales(out, figure, drawing);
    write_axis_titles(out, report, figure, drawing);
    fputs("unset arrow\nunset label\nset border 3\nset grid ytics\n", out);
    if (figure->style == NM_FIGURE_CELLS)
        write_rows(out, drawing);
    if (parallel)
        write_parallel_axes(out, drawing);
    write_labels(out, drawing, parallel);
    if (figure->lined)
        fprintf(out,
                "set arrow from graph 0, first %g to graph 1, first %g nohead lc rgb '#80868f' dt (4,4)\n",
                figure->line, figure->line);
}

/* width: of a PNG in pixels; 0: SVG. */
static void write_figure(FILE *out, const nm_report *report, const nm_figure *figure,
                         const nm_drawing *drawing, double width)
{
    double scale = width / WIDTH;
    bool named = figure->style != NM_FIGURE_CELLS && !drawing->legend;
    bool legend = named && drawing->n <= MAX_LEGEND;
    plot_frame frame = frame_of(drawing);
    if (legend) /* above the frame, where it hides nothing */
        frame = with_legend(frame, drawing->n);
    if (width > 0)
        fprintf(
            out,
            "set terminal pngcairo size %.0f,%.0f fontscale %.3g linewidth %.3g pointscale %.3g noenhanced "
            "font 'sans,12'\n",
            scale * frame.width, scale * frame.height, 0.72 * scale, 0.94 * scale, 0.81 * scale);
    else
        fprintf(out,
                "set terminal svg size %.0f,%.0f background rgb '#ffffff' dynamic noenhanced font "
                "'sans-serif,13'\n",
                frame.width, frame.height);
    fprintf(out, "set output '%s.%s'\n", figure->name, width > 0 ? "png" : "svg");
    write_axes(out, report, figure, drawing, frame);
    if (figure->style == NM_FIGURE_CELLS) {
        write_cells(out, report, drawing);
    } else {
        write_data(out, figure, drawing);
        for (size_t c = 0; c < drawing->n; c++)
            write_curve(out, report, figure, drawing, c, legend);
        write_group_legend(out, report, drawing);
    }
    fputs("\nunset output\n", out);
}

static const char head[] =
    "set encoding utf8\n"
    "set border 3 lw 0.8 lc rgb '#80868f'\n"
    "set tics nomirror out scale 0.5 textcolor rgb '#50565e'\n"
    "set xlabel textcolor rgb '#50565e'\nset ylabel textcolor rgb '#50565e' offset 0.5,0\n"
    "set grid ytics lc rgb '#c3c8cf' lw 0.6 lt 1 dt solid\n"
    "set errorbars 0\n"
    "set style textbox opaque fillcolor rgb '#ffffff' noborder margins 0.3,0.3\n"
    "set key at graph 0, screen 0.99 left top horizontal Left reverse maxcols 3 samplen 2 "
    "textcolor rgb '#50565e'\n";

static nm_status write_script(const nm_report *report, const nm_drawing *drawings, const char *path,
                              double width, nm_error *err)
{
    FILE *out;
    NM_TRY(nm_file_open(&out, path, "wb", err));
    fputs(head, out);
    for (size_t i = 0; nm_figures[i].name; i++)
        if (drawings[i].n)
            write_figure(out, report, &nm_figures[i], &drawings[i], width);
    return nm_file_close(out, path, err);
}

static nm_status gnuplot_error(const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "messages"), *text = NULL;
    nm_file_read(path, &text, NULL, NULL);
    nm_fail(err, NM_UNSUPPORTED, "gnuplot failed: %.300s", text ? text : "without a message");
    return NM_UNSUPPORTED;
}

static nm_status start_gnuplot(const char *folder, pid_t *process, nm_error *err)
{
    static char *arguments[] = {"gnuplot", "-d", "script", NULL};
    int failed = nm_subprocess_start(arguments, folder, "messages", process);
    if (failed == ENOENT)
        return nm_fail(
            err, NM_UNSUPPORTED,
            "gnuplot, which draws the figures, is not installed; its Debian package is gnuplot-nox");
    return failed ? nm_fail(err, nm_file_error_status(failed), "cannot start gnuplot: %s", strerror(failed))
                  : NM_OK;
}

static nm_status run_gnuplot(const char *folder, nm_error *err)
{
    pid_t process;
    int code;
    NM_TRY(start_gnuplot(folder, &process, err));
    while (waitpid(process, &code, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(code) && WEXITSTATUS(code) == 0 ? NM_OK : gnuplot_error(folder, err);
}

static char *picture_path(const char *folder, const char *name, const char *end)
{
    return nm_format("%s/%s.%s", folder, name, end);
}

static void remove_scratch(const char *folder)
{
    static const char *const ends[] = {"svg", "png"};
    for (size_t i = 0; nm_figures[i].name; i++)
        for (int k = 0; k < 2; k++) {
            NM_AUTO_FREE char *path = picture_path(folder, nm_figures[i].name, ends[k]);
            unlink(path);
        }
    for (int k = 0; k < 2; k++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, k ? "script" : "messages");
        unlink(path);
    }
    rmdir(folder);
}

static nm_status move_pictures(const nm_drawing *drawings, const char *from, const char *to, const char *end,
                               nm_error *err)
{
    nm_status status = NM_OK;
    for (size_t i = 0; nm_figures[i].name && status == NM_OK; i++) {
        if (!drawings[i].n)
            continue;
        NM_AUTO_FREE char *made = picture_path(from, nm_figures[i].name, end),
                          *path = picture_path(to, nm_figures[i].name, end);
        if (rename(made, path))
            status = nm_fail(err, nm_file_error_status(errno), "%s: %s", path, strerror(errno));
    }
    return status;
}

static bool any_curves(const nm_drawing *drawings)
{
    for (size_t i = 0; nm_figures[i].name; i++)
        if (drawings[i].n)
            return true;
    return false;
}

/* Draws into a new folder next to `path`, which the caller removes with remove_scratch, also on failure.
 * *folder (heap) is NULL if no folder was created. */
static nm_status draw(const nm_report *report, const nm_drawing *drawings, const char *path, double width,
                      char **folder, nm_error *err)
{
    *folder = NULL;
    if (!any_curves(drawings))
        return NM_OK;
    char *name = nm_format("%s.XXXXXX", path);
    if (!mkdtemp(name)) {
        free(name);
        return nm_fail(err, nm_file_error_status(errno),
                       "%s: cannot create a temporary folder next to it: %s", path, strerror(errno));
    }
    *folder = name;
    NM_AUTO_FREE char *script = nm_path_join(name, "script");
    nm_status status = write_script(report, drawings, script, width, err);
    return status == NM_OK ? run_gnuplot(name, err) : status;
}

nm_status nm_plot_files(const nm_report *report, const nm_drawing *drawings, const char *folder, double width,
                        nm_error *err)
{
    NM_TRY(nm_folder_create(folder, err));
    NM_AUTO_FREE char *made = NULL, *path = nm_path_join(folder, "plots");
    nm_status status = draw(report, drawings, path, width, &made, err);
    if (status == NM_OK && made)
        status = move_pictures(drawings, made, folder, width > 0 ? "png" : "svg", err);
    if (made)
        remove_scratch(made);
    return status;
}
