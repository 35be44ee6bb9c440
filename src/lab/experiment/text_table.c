#include "experiment/text_table.h"

#include <string.h>

#include "base/memory.h"

void nm_text_table_add(nm_text_table *table, char *cell)
{
    NM_APPEND(table->cells, table->n, table->capacity, cell);
}

void nm_text_table_release(nm_text_table *table)
{
    nm_free_list(table->cells, table->n);
    *table = (nm_text_table){0};
}

static const char *cell_at(const nm_text_table *table, size_t row, size_t column)
{
    return table->cells[row * table->columns + column];
}

static bool is_left_aligned(const nm_text_table *table, size_t column)
{
    return !column || !strcmp(cell_at(table, 0, column), "note");
}

/* Width on a terminal: the number of characters, not of bytes ("±" has two bytes). */
static size_t text_width(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static size_t column_width(const nm_text_table *table, size_t column)
{
    size_t width = 0, rows = table->n / table->columns;
    for (size_t r = 0; r < rows; r++) {
        size_t cell_width = text_width(cell_at(table, r, column));
        width = cell_width > width ? cell_width : width;
    }
    return width;
}

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
    static const char *const escapes[][2] = {{"\\", "\\textbackslash{}"},
                                             {"~", "\\textasciitilde{}"},
                                             {"^", "\\textasciicircum{}"},
                                             {"<", "\\textless{}"},
                                             {">", "\\textgreater{}"},
                                             {"|", "\\textbar{}"},
                                             {"±", "$\\pm$"}};
    while (*text) {
        size_t i = 0, n = sizeof escapes / sizeof *escapes;
        while (i < n && strncmp(text, escapes[i][0], strlen(escapes[i][0])))
            i++;
        if (i < n) {
            fputs(escapes[i][1], out);
            text += strlen(escapes[i][0]);
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

static void print_text(const nm_text_table *table, FILE *out)
{
    for (size_t r = 0; r < table->n / table->columns; r++) {
        for (size_t c = 0; c < table->columns; c++) {
            const char *cell = cell_at(table, r, c);
            int space = (int)(column_width(table, c) - text_width(cell));
            bool left = is_left_aligned(table, c), last = c + 1 == table->columns;
            if (last && !*cell)
                break;
            fprintf(out, "%s%*s%s%*s", c ? "  " : "", left ? 0 : space, "", cell, left && !last ? space : 0,
                    "");
        }
        putc('\n', out);
    }
}

static void print_markdown(const nm_text_table *table, FILE *out)
{
    for (size_t r = 0; r < table->n / table->columns; r++) {
        for (size_t c = 0; c < table->columns; c++) {
            fputs(c ? " " : "| ", out);
            write_markdown(cell_at(table, r, c), out);
            fputs(" |", out);
        }
        putc('\n', out);
        for (size_t c = 0; !r && c < table->columns; c++)
            fprintf(out, "%s%s|%s", c ? "" : "|",
                    is_left_aligned(table, c) ? "---" : "--:", c + 1 == table->columns ? "\n" : "");
    }
}

static void print_latex(const nm_text_table *table, FILE *out)
{
    fputs("\\begin{tabular}{", out);
    for (size_t c = 0; c < table->columns; c++)
        putc(is_left_aligned(table, c) ? 'l' : 'r', out);
    fputs("}\n\\hline\n", out);
    for (size_t r = 0; r < table->n / table->columns; r++) {
        for (size_t c = 0; c < table->columns; c++) {
            fputs(c ? " & " : "", out);
            write_latex(cell_at(table, r, c), out);
        }
        fputs(r ? " \\\\\n" : " \\\\\n\\hline\n", out);
    }
    fputs("\\hline\n\\end{tabular}\n", out);
}

static void print_csv(const nm_text_table *table, FILE *out)
{
    for (size_t i = 0; i < table->n; i++) {
        write_csv(table->cells[i], out);
        putc((i + 1) % table->columns ? ',' : '\n', out);
    }
}

void nm_text_table_print(const nm_text_table *table, nm_table_format format, FILE *out)
{
    NM_ASSERT(table->columns && table->n % table->columns == 0 && format != NM_TABLE_JSON);
    static void (*const print[])(const nm_text_table *, FILE *) = {[NM_TABLE_TEXT] = print_text,
                                                                   [NM_TABLE_MARKDOWN] = print_markdown,
                                                                   [NM_TABLE_LATEX] = print_latex,
                                                                   [NM_TABLE_CSV] = print_csv};
    print[format](table, out);
}
