/* Prints Markdown tables of the registered normalizations from their descriptors:
 *     norm_tables types      name, title, training formula, statistics, source
 *     norm_tables tensors    names and shapes of parameters and running state */
#include <stdio.h>
#include <string.h>

#include "norma/norm_type.h"

enum { WIDTH = 24, GROUPS = 2 };

static const char *statistics_of(const nm_norm_type *type)
{
    bool features = type->token_spec || type->traits & NM_USES_FEATURES;
    return type->traits & NM_USES_BATCH ? "tokens of a batch" : features ? "features of a token" : "";
}

/* A cell of a Markdown table: bars are escaped. */
static void print_cell(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\|" : "%c", *text);
    printf(" | ");
}

static void print_types(void)
{
    printf("| `model.norm` | | training | statistics over | source |\n|---|---|---|---|---|\n");
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        printf("| `%s` | ", (*type)->name);
        print_cell((*type)->title);
        print_cell((*type)->formula);
        print_cell(statistics_of(*type));
        printf("%s |\n", (*type)->source);
    }
}

static void print_vectors(const nm_norm_vector *vectors, int n)
{
    for (int i = 0; i < n; i++) {
        printf("%s`%s` ", i ? ", " : "", vectors[i].name);
        if (vectors[i].length == 1)
            printf("[1]");
        else if (vectors[i].length == WIDTH)
            printf("[d]");
        else
            printf("[%d d]", vectors[i].length / WIDTH);
    }
    printf(" | ");
}

static int print_tensors(void)
{
    nm_options *options = nm_options_create();
    const nm_norm_site site = {.name = "table", .width = WIDTH, .groups = GROUPS};
    int failed = 0;
    nm_norm_options_add(options);
    printf("| norm | learned | running | counters |\n|---|---|---|---|\n");
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        char section[64];
        nm_norm norm;
        nm_error err;
        snprintf(section, sizeof section, "norm.%s", (*type)->name);
        if (nm_norm_prepare(&norm, (*type)->name, nm_options_find(options, section), &site, &err) != NM_OK) {
            fprintf(stderr, "%s\n", err.text);
            failed = 1;
            continue;
        }
        printf("| `%s` | ", (*type)->name);
        print_vectors(norm.shape.params, norm.shape.n_params);
        print_vectors(norm.shape.state, norm.shape.n_state);
        for (int i = 0; i < norm.shape.n_counters; i++)
            printf("%s`%s`", i ? ", " : "", norm.shape.counters[i]);
        printf(" |\n");
    }
    nm_options_free(options);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "tensors"))
        return print_tensors();
    print_types();
    return 0;
}
