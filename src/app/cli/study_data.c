#include "cli/study_data.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/run_self.h"
#include "cli/study_split.h"
#include "data/prepare.h"

typedef enum text_kind { KIND_TEXT, KIND_TABLE, KIND_COLUMNS } text_kind;

/* The files of the three splits of one side. */
typedef struct side_files {
    char *paths[3];
} side_files;

static const char *const split_names[] = {"train", "valid", "test"};

static void set(study_data *data, const char *key, char *value)
{
    NM_ASSERT(data->n < STUDY_MAX_SETTINGS);
    data->keys[data->n] = key;
    data->values[data->n++] = value;
}

void study_data_release(study_data *data)
{
    for (int i = 0; i < data->n; i++)
        free(data->values[i]);
    free(data->what);
    *data = (study_data){0};
}

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Whether the last word of a line is a tag: "O", "B-PER", "M-PER" (BMES). */
static bool ends_with_tag(const char *line)
{
    const char *end = line + strlen(line), *word = end;
    while (word > line && !strchr(" \t", word[-1]))
        word--;
    return word > line &&
           (!strcmp(word, "O") || (strchr("BIESLUM", *word) && *word && word[1] == '-' && word[2]));
}

typedef struct survey { /* of the first lines of a text */
    int64_t lines, empty, tagged, tabs, labels;
    uint64_t seen[64]; /* hashes of different first or last cells */
    int64_t n_seen, repeated;
} survey;

static void survey_label(survey *s, const char *cell, size_t bytes)
{
    uint64_t hash = XXH3_64bits(cell, bytes);
    for (int64_t i = 0; i < s->n_seen; i++)
        if (s->seen[i] == hash) {
            s->repeated++;
            return;
        }
    if (s->n_seen < (int64_t)(sizeof s->seen / sizeof *s->seen))
        s->seen[s->n_seen++] = hash;
}

/* Tables have tabs, and few labels in their first column; columns have tags and empty lines. .csv is a table,
 * whose labels the reader of tables finds. */
static nm_status recognize(const char *path, text_kind *kind, nm_error *err)
{
    enum { LINES = 2000 };
    survey s = {0};
    FILE *stream;
    nm_lines lines;
    bool more = true;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    nm_lines_init(&lines, stream, path);
    nm_status status = NM_OK;
    while (s.lines < LINES && status == NM_OK && (status = nm_lines_next(&lines, &more, err)) == NM_OK &&
           more) {
        char *tab = strchr(lines.text, '\t');
        s.lines++;
        s.empty += !lines.text[strspn(lines.text, " \t\r")];
        lines.text[strcspn(lines.text, "\r")] = 0;
        s.tagged += ends_with_tag(lines.text);
        s.tabs += tab != NULL;
        if (tab)
            survey_label(&s, lines.text, (size_t)(tab - lines.text));
    }
    nm_lines_release(&lines);
    fclose(stream);
    NM_TRY(status);
    if (!s.lines)
        return nm_fail(err, NM_FORMAT, "%s: empty", path);
    int64_t full = s.lines - s.empty;
    if (10 * s.tagged >= 9 * full && s.empty)
        *kind = KIND_COLUMNS;
    else if (nm_ends_with(path, ".csv") || (10 * s.tabs >= 9 * full && 10 * s.repeated >= 8 * s.tabs))
        *kind = KIND_TABLE;
    else if (10 * s.tabs >= 9 * full)
        return nm_fail(
            err, NM_USAGE,
            "%s: a table whose first column has no repeated labels; give two files of parallel text, or a "
            "table with a label and a text in each line",
            path);
    else
        *kind = KIND_TEXT;
    return NM_OK;
}

/* The endings X of the files train.X of a folder, at most two; sorted. *n: their number, also above two. */
static nm_status find_endings(const char *folder, char *endings[2], int *n, nm_error *err)
{
    DIR *stream = opendir(folder);
    *n = 0;
    if (!stream)
        return nm_fail(err, NM_IO, "%s: cannot list the folder", folder);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (strncmp(entry->d_name, "train.", 6) || !entry->d_name[6])
            continue;
        if (*n < 2)
            endings[*n] = nm_duplicate(entry->d_name + 6);
        ++*n;
    }
    closedir(stream);
    if (*n == 2 && strcmp(endings[0], endings[1]) > 0) {
        char *first = endings[0];
        endings[0] = endings[1];
        endings[1] = first;
    }
    return NM_OK;
}

static void release_side(side_files *side)
{
    for (int i = 0; i < 3; i++)
        free(side->paths[i]);
    *side = (side_files){0};
}

/* FOLDER/train.X, valid.X (or dev.X) and test.X. Without both held-out ones only train. */
static nm_status find_splits(const char *folder, const char *ending, side_files *side, nm_error *err)
{
    for (int i = 0; i < 3; i++) {
        NM_AUTO_FREE char *path = nm_format("%s/%s.%s", folder, split_names[i], ending),
                          *other = nm_format("%s/dev.%s", folder, ending);
        side->paths[i] = nm_file_may_exist(path)              ? nm_duplicate(path)
                         : i == 1 && nm_file_may_exist(other) ? nm_duplicate(other)
                                                              : NULL;
    }
    if (!side->paths[1] == !side->paths[2])
        return NM_OK;
    return nm_fail(err, NM_USAGE,
                   "%s has %s.%s but no %s.%s; give both, or only train.%s, which is then divided", folder,
                   split_names[side->paths[1] ? 1 : 2], ending, split_names[side->paths[1] ? 2 : 1], ending,
                   ending);
}

/* Identifies the inputs by size and hash; heap. */
static nm_status key_of(char *const *inputs, int n, char **key, nm_error *err)
{
    *key = nm_duplicate("norma study");
    for (int i = 0; i < n; i++) {
        nm_file_map map;
        nm_status status = nm_file_map_open(&map, inputs[i], err);
        if (status != NM_OK)
            return status;
        nm_format_append(key, " %zu %016" PRIx64, map.bytes,
                         (uint64_t)XXH3_64bits(map.data ? map.data : "", map.bytes));
        nm_file_unmap(&map);
    }
    return NM_OK;
}

/* Whether an ending is a code of a language, as norma prepare expects it: "de". */
static bool is_language(const char *ending)
{
    size_t length = strspn(ending, "abcdefghijklmnopqrstuvwxyz");
    return !ending[length] && length >= 2 && length <= 3;
}

/* Divides the train file of a side without held-out data. */
static nm_status divide(side_files *side, text_kind kind, const char *folder, const char *ending,
                        int64_t *units, nm_error *err)
{
    NM_TRY(study_split(side->paths[0], kind == KIND_COLUMNS ? STUDY_PARAGRAPHS : STUDY_LINES, folder, ending,
                       units, err));
    release_side(side);
    for (int i = 0; i < 3; i++)
        side->paths[i] = nm_format("%s/%s.%s", folder, split_names[i], ending);
    return NM_OK;
}

static int64_t bytes_of(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : (int64_t)info.st_size;
}

/* Runs norma prepare. sides: 1 or 2. The files of two sides are PREFIX.ENDING. */
static int prepare(const side_files *sides, int n_sides, char *const *endings, const char *output)
{
    const char *arguments[24];
    char *prefixes[3];
    int n = 0;
    int64_t bytes = bytes_of(sides[0].paths[0]);
    arguments[n++] = "norma";
    arguments[n++] = "prepare";
    for (int i = 0; i < 3; i++) {
        static const char *const options[] = {"--train", "--valid", "--test"};
        size_t length = strlen(sides[0].paths[i]) - (n_sides == 2 ? strlen(endings[0]) + 1 : 0);
        prefixes[i] = nm_format("%.*s", (int)length, sides[0].paths[i]);
        arguments[n++] = options[i];
        arguments[n++] = prefixes[i];
    }
    arguments[n++] = "--source-lang";
    arguments[n++] = n_sides == 2 ? endings[0] : "en";
    if (n_sides == 2) {
        arguments[n++] = "--target-lang";
        arguments[n++] = endings[1];
        arguments[n++] = "--ratio";
        arguments[n++] = "1.5";
    } else {
        arguments[n++] = "--format";
        arguments[n++] = "text";
        arguments[n++] = "--escape";
        arguments[n++] = "false";
    }
    arguments[n++] = "--bpe-merges";
    arguments[n++] = bytes < 1000000 ? "2000" : bytes < 20000000 ? "4000" : "8000";
    arguments[n++] = "--output";
    arguments[n++] = output;
    arguments[n] = NULL;
    int code = run_self(arguments);
    for (int i = 0; i < 3; i++)
        free(prefixes[i]);
    return code;
}

/* Sets the options of a task whose files are read as they are. */
static void set_files(study_data *data, const side_files *side)
{
    static const char *const keys[] = {"data.train", "data.valid", "data.test"};
    for (int i = 0; i < 3; i++)
        set(data, keys[i], nm_duplicate(side->paths[i]));
}

/* Divides and prepares; the file FOLDER/inputs is written last. */
static nm_status make(study_data *data, side_files *sides, int n_sides, char *const *endings, text_kind kind,
                      const char *folder, int *code, nm_error *err)
{
    NM_AUTO_FREE char *key = NULL, *present = NULL, *prepared = nm_path_join(folder, "prepared");
    char *inputs[6];
    NM_AUTO_FREE char *path = nm_path_join(folder, "inputs");
    int n = 0;
    int64_t units = 0;
    bool given = sides[0].paths[1] != NULL, used_as_is = kind != KIND_TEXT;
    for (int s = 0; s < n_sides; s++)
        for (int i = 0; i < 3; i++)
            if (sides[s].paths[i])
                inputs[n++] = sides[s].paths[i];
    nm_status status = key_of(inputs, n, &key, err);
    NM_THEN(status, nm_folder_create(folder, err));
    NM_THEN(status, nm_file_read_optional(path, &present, err));
    if (status == NM_OK && present && strcmp(key, present))
        status = nm_fail(err, NM_FORMAT, "%s has the data of other files; choose another --folder", folder);
    for (int s = 0; s < n_sides && status == NM_OK && !given; s++)
        status = divide(&sides[s], kind, folder, endings[s], &units, err);
    if (status == NM_OK && !present && !used_as_is)
        *code = prepare(sides, n_sides, endings, prepared);
    if (status == NM_OK && !*code && !present)
        status = nm_file_write(path, key, strlen(key), err);
    if (status == NM_OK && used_as_is)
        set_files(data, &sides[0]);
    else if (status == NM_OK)
        set(data, "data.folder", nm_duplicate(prepared));
    return status;
}

static void say(study_data *data, text_kind kind, int n_sides, bool given)
{
    const char *held_out = given ? "with its validation and test sets"
                                 : "one twentieth each held out for validation and testing";
    data->recipe = n_sides == 2           ? "translate"
                   : kind == KIND_TABLE   ? "classify"
                   : kind == KIND_COLUMNS ? "tag"
                                          : "lm";
    data->what = nm_format("%s, %s",
                           n_sides == 2           ? "parallel text: a translation model"
                           : kind == KIND_TABLE   ? "a table of labels and texts: a classifier"
                           : kind == KIND_COLUMNS ? "columns with tags: a tagger"
                                                  : "text: a language model",
                           held_out);
}

static nm_status open_prepared(study_data *data, const char *folder, nm_error *err)
{
    bool text = nm_prepare_check_folder(folder, 1, NM_IGNORED) == NM_OK;
    if (!text)
        NM_TRY(nm_prepare_check_folder(folder, 2, err));
    data->recipe = text ? "lm" : "translate";
    data->what = nm_format("a data folder of norma prepare: a %s model", text ? "language" : "translation");
    set(data, "data.folder", nm_duplicate(folder));
    return NM_OK;
}

static nm_status open_files(study_data *data, char *const *inputs, int n, const char *folder, int *code,
                            nm_error *err)
{
    side_files sides[2] = {0};
    char *endings[2] = {NULL, NULL};
    int n_sides = n;
    text_kind kind = KIND_TEXT;
    nm_status status = NM_OK;
    if (is_folder(inputs[0])) {
        status = find_endings(inputs[0], endings, &n_sides, err);
        if (status == NM_OK && (n_sides < 1 || n_sides > 2))
            status = nm_fail(
                err, NM_USAGE,
                "%s has %d files train.X; a study needs one (text, table or columns) or two (parallel "
                "text), or a data folder of norma prepare",
                inputs[0], n_sides);
        for (int s = 0; status == NM_OK && s < n_sides; s++)
            status = find_splits(inputs[0], endings[s], &sides[s], err);
        if (status == NM_OK && n_sides == 2 && !sides[0].paths[1] != !sides[1].paths[1])
            status = nm_fail(err, NM_USAGE, "%s has valid.%s and test.%s but not those of %s", inputs[0],
                             endings[!sides[0].paths[1]], endings[!sides[0].paths[1]],
                             endings[!sides[1].paths[1]]);
    } else {
        static const char *const names[] = {"src", "trg"};
        for (int s = 0; s < n; s++) {
            const char *dot = strrchr(inputs[s], '.');
            bool ends = dot && dot[1] && !strchr(dot, '/');
            endings[s] = nm_duplicate(n == 2 && !(ends && is_language(dot + 1)) ? names[s]
                                      : ends                                    ? dot + 1
                                                                                : "txt");
            sides[s].paths[0] = nm_duplicate(inputs[s]);
        }
    }
    if (status == NM_OK && n_sides == 1)
        status = recognize(sides[0].paths[0], &kind, err);
    if (status == NM_OK) {
        say(data, kind, n_sides, sides[0].paths[1] != NULL);
        status = make(data, sides, n_sides, endings, kind, folder, code, err);
    }
    for (int s = 0; s < 2; s++) {
        free(endings[s]);
        release_side(&sides[s]);
    }
    return status;
}

nm_status study_data_open(study_data *data, char *const *inputs, int n, const char *folder, int *code,
                          nm_error *err)
{
    bool found = false;
    *data = (study_data){0};
    *code = 0;
    if (n == 1 && is_folder(inputs[0]))
        NM_TRY(nm_file_find_in(inputs[0], "data.ini", &found, err));
    if (found)
        return open_prepared(data, inputs[0], err);
    return open_files(data, inputs, n, folder, code, err);
}
