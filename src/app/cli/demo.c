/* norma demo: compares variants on the text of a user with one command. Each kind of text is a row of the
 * table below. The demo runs prepare, compare and generate as processes, so that an interrupted demo
 * continues where it stopped. */
#include "cli/demo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/subprocess.h"
#include "cli/cli.h"

typedef struct demo_config { /* section [demo] */
    const char *folder, *norms;
    int64_t seconds, updates;
} demo_config;

#define ROW(field, initial, min, max, help) NM_OPTION(demo_config, field, initial, min, max, help)
/* clang-format off */
static const nm_option demo_options[] = {
    ROW(folder, "", 0, 0, "Folder for all files; empty: demo-translation, demo-lm or demo-tag."),
    ROW(norms, "", 0, 0, "Variants, as for norma compare; empty: a selection for the kind of text."),
    ROW(seconds, "120", 1, 1e9, "Maximum training time of each variant in seconds."),
    ROW(updates, "0", 0, 1e12, "Maximum number of updates of each variant; 0: that of the recipe."),
    {0}};
/* clang-format on */

typedef struct demo_kind {
    const char *name, *recipe, *norms;
    int n_files;
    const char *suffixes[2]; /* [n_files], of the files of a split */
    demo_unit unit;
    const char *prepare; /* arguments of norma prepare, {} is the folder; NULL: no preparation */
    const char *data;    /* arguments of norma compare, {} is the folder */
    const char *usage;   /* expected files, and sources of such files */
} demo_kind;

static const demo_kind kinds[] = {
    {.name = "translation",
     .recipe = demo_recipe,
     .norms = "layer,scale+fix,batch,power,rbn",
     .n_files = 2,
     .suffixes = {"source", "target"},
     .unit = DEMO_LINES,
     .prepare = "--train {}/train --valid {}/valid --test {}/test --source-lang source --target-lang target "
                "--ratio 1.5 --bpe-merges 4000 --output {}/data",
     .data = "--data.folder {}/data",
     .usage =
         "norma demo translation SOURCE TARGET\n"
         "  two parallel texts, one sentence per line, ten thousand lines or more. In Norma's source tree, "
         "make\n"
         "  demo builds such a pair from the help pages of LibreOffice (Debian packages libreoffice-help-de\n"
         "  and libreoffice-help-en-us).\n"},
    {.name = "lm",
     .recipe = demo_lm_recipe,
     .norms = "layer,scale,batch,power",
     .n_files = 1,
     .suffixes = {"txt"},
     .unit = DEMO_LINES,
     .prepare = "--format text --train {}/train.txt --valid {}/valid.txt --test {}/test.txt --source-lang en "
                "--escape false --bpe-merges 3000 --output {}/data",
     .data = "--data.folder {}/data",
     .usage =
         "norma demo lm TEXT\n"
         "  a text in UTF-8, one sentence or paragraph per line, a megabyte or more. On Debian and Ubuntu:\n"
         "    sudo apt-get install bible-kjv bible-kjv-text\n"
         "    bible -f Gen1:1-Rev22:21 | cut -d' ' -f2- >bible.txt\n"
         "    norma demo lm bible.txt\n"},
    {.name = "tag",
     .recipe = demo_tag_recipe,
     .norms = "layer,batch,power,rbn",
     .n_files = 1,
     .suffixes = {"txt"},
     .unit = DEMO_PARAGRAPHS,
     .data = "--data.train {}/train.txt --data.valid {}/valid.txt --data.test {}/test.txt",
     .usage = "norma demo tag COLUMNS\n"
              "  tagged sentences in CoNLL columns: one token per line, its tag in the last column (B-PER, "
              "I-PER,\n"
              "  O), an empty line after each sentence. Corpora of this format come with the CoNLL shared "
              "tasks of\n"
              "  2002 and 2003, and annotation tools write it.\n"}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

typedef struct demo {
    const demo_kind *kind;
    const demo_config *config;
    char **files;
    char *folder, *recipe, *runs; /* paths; runs: folder of the comparison */
} demo;

enum { MAX_ARGUMENTS = 40 };

typedef struct arguments {
    char *list[MAX_ARGUMENTS + 1];
    size_t n;
} arguments;

static void add(arguments *a, const char *text)
{
    NM_ASSERT(a->n < MAX_ARGUMENTS);
    a->list[a->n++] = nm_duplicate(text);
}

/* Adds space-separated words, with {} replaced by the folder. */
static void add_words(arguments *a, const char *words, const char *folder)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        char *word = nm_format("%.*s", (int)length, words), *braces = strstr(word, "{}");
        char *whole = braces ? nm_format("%.*s%s%s", (int)(braces - word), word, folder, braces + 2)
                             : nm_duplicate(word);
        add(a, whole);
        free(whole);
        free(word);
        words += length + strspn(words + length, " ");
    }
}

static int run_and_release(arguments *a)
{
    int code = demo_run((const char *const *)a->list);
    for (size_t i = 0; i < a->n; i++)
        free(a->list[i]);
    return code;
}

/* *key: identifies the texts by size and hash; heap, owned by the caller, also on failure. */
static nm_status texts_key(const demo *d, char **key, nm_error *err)
{
    *key = nm_duplicate(d->kind->name);
    for (int i = 0; i < d->kind->n_files; i++) {
        nm_file_map map;
        nm_status status = nm_file_map_open(&map, d->files[i], err);
        if (status != NM_OK)
            return status;
        uint64_t hash = XXH3_64bits(map.data ? map.data : "", map.bytes);
        char *more = nm_format("%s %zu %016" PRIx64, *key, map.bytes, hash);
        nm_file_unmap(&map);
        free(*key);
        *key = more;
    }
    return NM_OK;
}

static nm_status write_texts(const demo *d, nm_error *err)
{
    int64_t units = 0;
    for (int i = 0; i < d->kind->n_files; i++)
        NM_TRY(demo_split(d->files[i], d->kind->unit, d->folder, d->kind->suffixes[i], &units, err));
    return NM_OK;
}

static int prepare_demo(const demo *d)
{
    arguments a = {0};
    if (!d->kind->prepare)
        return NM_OK;
    add_words(&a, "norma prepare", "");
    add_words(&a, d->kind->prepare, d->folder);
    return run_and_release(&a);
}

/* Splits and prepares the texts unless that has been done. The file FOLDER/texts is written last: if it
 * exists, the data is complete. *code: exit code of norma prepare. */
static nm_status make_data(const demo *d, const char *key, int *code, nm_error *err)
{
    char *path = nm_path_join(d->folder, "texts"), *present = NULL;
    nm_status status = nm_file_read_optional(path, &present, err);
    bool known = present;
    if (status == NM_OK && !known)
        status = write_texts(d, err);
    if (status == NM_OK && known && strcmp(key, present))
        status =
            nm_fail(err, NM_USAGE,
                    "%s contains the demo of another text; choose another folder with --folder", d->folder);
    if (status == NM_OK && !known && (*code = prepare_demo(d)) == NM_OK)
        status = nm_file_write(path, key, strlen(key), err);
    free(path);
    free(present);
    return status;
}

static int compare(const demo *d)
{
    arguments a = {0};
    char number[32];
    add_words(&a, "norma compare", "");
    add(&a, d->recipe);
    add(&a, "--norms");
    add(&a, *d->config->norms ? d->config->norms : d->kind->norms);
    add_words(&a, d->kind->data, d->folder);
    add(&a, "--train.seconds");
    snprintf(number, sizeof number, "%" PRId64, d->config->seconds);
    add(&a, number);
    if (d->config->updates) {
        add_words(&a, "--train.epochs 0 --train.updates", "");
        snprintf(number, sizeof number, "%" PRId64, d->config->updates);
        add(&a, number);
    }
    add(&a, "--compare.folder");
    add(&a, d->runs);
    return run_and_release(&a);
}

/* *prompt: the first three words of the test text; heap. */
static nm_status read_prompt(const demo *d, char **prompt, nm_error *err)
{
    char *path = nm_format("%s/test.txt", d->folder), *text;
    nm_status status = nm_file_read(path, &text, NULL, err);
    free(path);
    NM_TRY(status);
    const char *at = text + strspn(text, " \t\r\n");
    size_t length = 0;
    for (int words = 0; words < 3 && at[length] && at[length] != '\n'; words++)
        length += strspn(at + length, " ") + strcspn(at + length + strspn(at + length, " "), " \n");
    *prompt = nm_format("%.*s", (int)length, at);
    free(text);
    return NM_OK;
}

/* Generates continuations of the beginning of the test text with the model of the first variant. */
static nm_status generate(const demo *d, int *code, nm_error *err)
{
    const char *norms = *d->config->norms ? d->config->norms : d->kind->norms;
    char *prompt;
    NM_TRY(read_prompt(d, &prompt, err));
    char *run = nm_format("%s/%.*s-1", d->runs, (int)strcspn(norms, ","), norms);
    arguments a = {0};
    printf("\nContinuations of the beginning of the test text by %s:\n", run);
    add_words(&a, "norma generate", "");
    add(&a, run);
    add(&a, "--prompt");
    add(&a, prompt);
    add_words(&a, "--temperature 0.8 --top-p 0.9 --lines 1 --samples 3", "");
    free(prompt);
    free(run);
    *code = run_and_release(&a);
    return NM_OK;
}

static nm_status demonstrate(const demo *d, int *code, nm_error *err)
{
    char *key = NULL;
    nm_status status = texts_key(d, &key, err);
    if (status == NM_OK)
        status = nm_folder_create(d->folder, err);
    if (status == NM_OK)
        status = make_data(d, key, code, err);
    free(key);
    NM_TRY(status);
    if (*code != NM_OK)
        return NM_OK;
    bool edited; /* a recipe that the user has edited is kept */
    NM_TRY(nm_file_find(d->recipe, &edited, err));
    if (!edited)
        NM_TRY(nm_file_write(d->recipe, d->kind->recipe, strlen(d->kind->recipe), err));
    *code = compare(d);
    if (*code == NM_OK && d->kind->recipe == demo_lm_recipe)
        NM_TRY(generate(d, code, err));
    if (*code == NM_OK) {
        char *runs = nm_shell_word(d->runs);
        fprintf(stderr, "norma: for figures of the runs: norma report %s/*/\n", runs);
        free(runs);
    }
    return NM_OK;
}

static void demo_options_add(nm_options *options)
{
    nm_options_add(options, "demo", demo_options, NULL, sizeof(demo_config));
}

static const demo_kind *kind_named(const char *name)
{
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

/* The kind given by the arguments; NULL with an error if they are wrong. Without files, prints which files
 * are expected. */
static const demo_kind *parse_kind(int argc, char **argv, nm_error *err)
{
    const demo_kind *kind = argc ? kind_named(argv[0]) : NULL;
    int n = argc ? argc - 1 : 0;
    for (int i = 0; i < N_KINDS && n == 0; i++)
        if (!kind || kind == &kinds[i])
            fputs(kinds[i].usage, stdout);
    if (kind && n == kind->n_files)
        return kind;
    if (kind)
        nm_fail(err, NM_USAGE, "norma demo %s expects %d file%s, not %d", kind->name, kind->n_files,
                kind->n_files == 1 ? "" : "s", n);
    else if (!argc || !*argv[0])
        nm_fail(err, NM_USAGE, "demo: no kind given; available: translation, lm, tag");
    else
        nm_fail(err, NM_USAGE, "demo: unknown kind %.60s; available: translation, lm, tag", argv[0]);
    return NULL;
}

static int demo_start(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    int code = NM_OK;
    const demo_kind *kind = parse_kind(argc, argv, &err);
    if (!kind)
        return nm_cli_fail(&err);
    demo d = {.kind = kind, .config = nm_options_find(cli->options, "demo"), .files = argv + 1};
    d.folder = *d.config->folder ? nm_duplicate(d.config->folder) : nm_format("demo-%s", kind->name);
    d.recipe = nm_path_join(d.folder, "recipe.ini");
    d.runs = nm_path_join(d.folder, "runs");
    nm_status status = demonstrate(&d, &code, &err);
    free(d.folder);
    free(d.recipe);
    free(d.runs);
    return status == NM_OK ? code : nm_cli_fail(&err);
}

const nm_command nm_command_demo = {
    .name = "demo",
    .summary = "compare variants on your own text with one command",
    .usage = "lm TEXT | tag COLUMNS | translation SOURCE TARGET [--folder FOLDER] [--seconds N] [--norms "
             "a,b,c]",
    .details =
        "Splits the text into training, validation and test sets: of every 20 blocks of lines or sentences, "
        "one is for validation and one for testing. Prepares the text, trains several variants of a small "
        "model for --seconds each, and prints the table of norma compare. A language model then generates "
        "text. All files are in FOLDER, including the recipe, recipe.ini, for further experiments. After "
        "an interruption, the same command continues.\n\n"
        "Without a text, it prints the expected files and Debian packages that contain suitable text.",
    .section = "demo",
    .options = demo_options_add,
    .run = demo_start,
};
