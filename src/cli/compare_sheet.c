/* Tables in four forms: see compare_sheet.h. CSV is that of RFC 4180, but with lines that end in a line feed. */
#include "cli/compare_sheet.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void compare_sheet_add(compare_sheet *sheet, char *cell)
{
    NM_GROW(sheet->cells, sheet->n, sheet->capacity);
    sheet->cells[sheet->n++] = cell;
}

void compare_sheet_release(compare_sheet *sheet)
{
    for (size_t i = 0; i < sheet->n; i++)
        free(sheet->cells[i]);
    free(sheet->cells);
    *sheet = (compare_sheet){0};
}

static const char *cell_at(const compare_sheet *sheet, size_t row, size_t column)
{
    return sheet->cells[row * sheet->columns + column];
}

static bool is_words(const compare_sheet *sheet, size_t column)
{
    return !column || !strcmp(cell_at(sheet, 0, column), "note");
}

/* Characters, not bytes: the sign of a deviation has two of those. */
static size_t text_width(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static size_t column_width(const compare_sheet *sheet, size_t column)
{
    size_t width = 0, rows = sheet->n / sheet->columns;
    for (size_t r = 0; r < rows; r++) {
        size_t own = text_width(cell_at(sheet, r, column));
        width = own > width ? own : width;
    }
    return width;
}

/* ---- what each form must not take for its own ---- */

static void write_markdown(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '|')
            putc('\\', out);
        putc(*text, out);
    }
}

static void write_latex(const char *text, FILE *out)
{
    static const char *const words[][2] = {{"\\", "\\textbackslash{}"},
                                           {"~", "\\textasciitilde{}"},
                                           {"^", "\\textasciicircum{}"},
                                           {"<", "\\textless{}"},
                                           {">", "\\textgreater{}"},
                                           {"|", "\\textbar{}"},
                                           {"±", "$\\pm$"}};
    while (*text) {
        size_t i = 0, n = sizeof words / sizeof *words;
        while (i < n && strncmp(text, words[i][0], strlen(words[i][0])))
            i++;
        if (i < n) {
            fputs(words[i][1], out);
            text += strlen(words[i][0]);
            continue;
        }
        if (strchr("&%$#_{}", *text))
            putc('\\', out);
        putc(*text++, out);
    }
}

static void write_csv(const char *text, FILE *out)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        putc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    if (quoted)
        putc('"', out);
}

/* ---- the forms ---- */

static void print_text(const compare_sheet *sheet, FILE *out)
{
    for (size_t r = 0; r < sheet->n / sheet->columns; r++) {
        for (size_t c = 0; c < sheet->columns; c++) {
            const char *cell = cell_at(sheet, r, c);
            int space = (int)(column_width(sheet, c) - text_width(cell));
            bool words = is_words(sheet, c), last = c + 1 == sheet->columns;
            if (last && !*cell)
                break;
            fprintf(out, "%s%*s%s%*s", c ? "  " : "", words ? 0 : space, "", cell, words && !last ? space : 0,
                    "");
        }
        putc('\n', out);
    }
}

static void print_markdown(const compare_sheet *sheet, FILE *out)
{
    for (size_t r = 0; r < sheet->n / sheet->columns; r++) {
        for (size_t c = 0; c < sheet->columns; c++) {
            fputs(c ? " " : "| ", out);
            write_markdown(cell_at(sheet, r, c), out);
            fputs(" |", out);
        }
        putc('\n', out);
        for (size_t c = 0; !r && c < sheet->columns; c++)
            fprintf(out, "%s%s|%s", c ? "" : "|",
                    is_words(sheet, c) ? "---" : "--:", c + 1 == sheet->columns ? "\n" : "");
    }
}

static void print_latex(const compare_sheet *sheet, FILE *out)
{
    fputs("\\begin{tabular}{", out);
    for (size_t c = 0; c < sheet->columns; c++)
        putc(is_words(sheet, c) ? 'l' : 'r', out);
    fputs("}\n\\hline\n", out);
    for (size_t r = 0; r < sheet->n / sheet->columns; r++) {
        for (size_t c = 0; c < sheet->columns; c++) {
            fputs(c ? " & " : "", out);
            write_latex(cell_at(sheet, r, c), out);
        }
        fputs(r ? " \\\\\n" : " \\\\\n\\hline\n", out);
    }
    fputs("\\hline\n\\end{tabular}\n", out);
}

static void print_csv(const compare_sheet *sheet, FILE *out)
{
    for (size_t i = 0; i < sheet->n; i++) {
        write_csv(sheet->cells[i], out);
        putc((i + 1) % sheet->columns ? ',' : '\n', out);
    }
}

void compare_sheet_print(const compare_sheet *sheet, const char *format, FILE *out)
{
    NM_ASSERT(sheet->columns && sheet->n % sheet->columns == 0);
    if (!strcmp(format, "markdown"))
        print_markdown(sheet, out);
    else if (!strcmp(format, "latex"))
        print_latex(sheet, out);
    else if (!strcmp(format, "csv"))
        print_csv(sheet, out);
    else
        print_text(sheet, out);
}
