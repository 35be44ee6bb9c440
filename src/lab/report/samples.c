/* Sample outputs: the outputs of all runs for the same inputs. Words that differ from the reference (those
 * outside a longest common subsequence) are marked. */
#include <stdlib.h>
#include <string.h>

#include "report/html.h"
#include "report/sections.h"

enum { MAX_WORDS = 400, MAX_EXAMPLES = 20, MAX_LINES = 8 };

/* The samples of a task are blocks of lines "label: text" separated by empty lines. The lines labeled
 * "output", "found" or "predicted" are from the model, the others from the data. */
typedef struct example {
    char *labels[MAX_LINES], *texts[MAX_LINES];
    int n;
} example;

typedef struct examples { /* of a run */
    char *text;
    example list[MAX_EXAMPLES];
    int n;
} examples;

static void add_sample_line(examples *e, char *line, bool *open)
{
    line += strspn(line, " \t");
    char *colon = strchr(line, ':');
    if (!*line || !colon) {
        *open = false;
        return;
    }
    if (!*open) {
        if (e->n == MAX_EXAMPLES)
            return;
        e->list[e->n++] = (example){.n = 0};
        *open = true;
    }
    example *last = &e->list[e->n - 1];
    if (last->n == MAX_LINES)
        return;
    *colon = 0;
    last->labels[last->n] = line;
    last->texts[last->n++] = colon + 1 + strspn(colon + 1, " ");
}

static void read_examples(examples *e, const nm_report_run *run)
{
    const char *text = nm_report_run_text(run, "samples/text");
    bool open = false;
    *e = (examples){.text = text ? nm_text_clean(text) : nm_duplicate("")};
    char *rest = e->text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        add_sample_line(e, line, &open);
}

static bool is_output(const char *label)
{
    return !strcmp(label, "output") || !strcmp(label, "found") || !strcmp(label, "predicted");
}

/* The output of the model, or the first line of the data, which identifies the example in other runs. */
static const char *first_text(const example *one, bool output)
{
    for (int i = 0; i < one->n; i++)
        if (is_output(one->labels[i]) == output)
            return one->texts[i];
    return NULL;
}

static const char *reference_text(const example *one)
{
    for (int i = 0; i < one->n; i++)
        if (!strcmp(one->labels[i], "reference") || !strcmp(one->labels[i], "gold") ||
            !strcmp(one->labels[i], "wanted"))
            return one->texts[i];
    return NULL;
}

typedef struct words {
    const char *at[MAX_WORDS];
    size_t length[MAX_WORDS];
    int n;
} words;

static void split(words *w, const char *text)
{
    w->n = 0;
    while (w->n < MAX_WORDS) {
        text += strspn(text, " \t");
        size_t length = strcspn(text, " \t");
        if (!length)
            break;
        w->at[w->n] = text;
        w->length[w->n++] = length;
        text += length;
    }
}

static bool same_word(const words *a, int i, const words *b, int k)
{
    return a->length[i] == b->length[k] && !memcmp(a->at[i], b->at[k], a->length[i]);
}

/* lengths[i * (b->n + 1) + k]: length of the longest common subsequence of a from word i and b from word k.
 * Heap. */
static uint16_t *common_lengths(const words *a, const words *b)
{
    size_t row = (size_t)b->n + 1;
    uint16_t *lengths = nm_allocate(((size_t)a->n + 1) * row * sizeof *lengths);
    for (int i = a->n - 1; i >= 0; i--)
        for (int k = b->n - 1; k >= 0; k--) {
            size_t at = (size_t)i * row + (size_t)k;
            uint16_t down = lengths[at + row], right = lengths[at + 1];
            lengths[at] = same_word(a, i, b, k) ? (uint16_t)(lengths[at + row + 1] + 1)
                          : down > right        ? down
                                                : right;
        }
    return lengths;
}

static void write_marked(FILE *out, const char *output, const char *reference)
{
    words *a = nm_allocate(2 * sizeof *a), *b = a + 1;
    split(a, output);
    split(b, reference ? reference : output);
    NM_AUTO_FREE uint16_t *lengths = common_lengths(a, b);
    size_t row = (size_t)b->n + 1;
    for (int i = 0, k = 0; i < a->n; i++) {
        while (k < b->n && !same_word(a, i, b, k) &&
               lengths[(size_t)i * row + (size_t)k + 1] == lengths[(size_t)i * row + (size_t)k])
            k++;
        bool common = k < b->n && same_word(a, i, b, k);
        fputs(i ? " " : "", out);
        fputs(common ? "" : "<mark>", out);
        nm_html_bytes(out, a->at[i], a->length[i]);
        fputs(common ? "" : "</mark>", out);
        k += common;
    }
    free(a);
}

static void write_line(FILE *out, const char *label, const char *kind)
{
    fprintf(out, "<tr class=\"%s\"><th scope=\"row\">", kind);
    nm_html_text(out, label);
    fputs("</th><td>", out);
}

static void write_example(const nm_report *report, const examples *all, size_t first, int number, FILE *out)
{
    const example *one = &all[first].list[number];
    fputs("<table class=\"sample\"><tbody>\n", out);
    for (int i = 0; i < one->n; i++) {
        if (is_output(one->labels[i]))
            continue;
        write_line(out, one->labels[i], "given");
        nm_html_text(out, one->texts[i]);
        fputs("</td></tr>\n", out);
    }
    for (size_t r = 0; r < report->n; r++) {
        const example *other = number < all[r].n ? &all[r].list[number] : NULL;
        const char *output = other ? first_text(other, true) : NULL,
                   *given = other ? first_text(other, false) : NULL;
        const char *known = first_text(one, false);
        if (!output || !given || !known || strcmp(given, known))
            continue; /* the run was validated on other data */
        write_line(out, report->runs[r].name, "made");
        write_marked(out, output, reference_text(other));
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table>\n", out);
}

void nm_section_samples(const nm_report *report, FILE *out)
{
    NM_AUTO_FREE examples *all = nm_allocate((report->n + 1) * sizeof *all);
    size_t first = report->n;
    for (size_t r = report->n; r-- > 0;) {
        read_examples(&all[r], &report->runs[r]);
        first = all[r].n ? r : first;
    }
    if (first < report->n) {
        nm_section_open("samples", "Samples", false, out);
        fputs("<p class=\"hint\">From the last validation. Marked: "
              "words that differ from the reference.</p>\n",
              out);
        for (int i = 0; i < all[first].n; i++)
            write_example(report, all, first, i, out);
        fputs("</details></section>\n", out);
    }
    for (size_t r = 0; r < report->n; r++)
        free(all[r].text);
}
