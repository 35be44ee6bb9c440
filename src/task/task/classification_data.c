/* Reading of tables. Every file is read once: words are numbered in order of occurrence, and those of
 * training texts are counted; then the dictionary is built from the counts, and the numbers are replaced by
 * its ids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text_input.h"
#include "base/utf8_cut.h"
#include "task/classification.h"
#include "task/held_out.h"
#include "task/model_texts.h"
#include "base/words.h"

void nm_labeled_set_clear(nm_labeled_set *set)
{
    set->ids.n = set->labels.n = set->n = 0;
    set->cut = 0;
}

void nm_labeled_set_release(nm_labeled_set *set)
{
    nm_ids_release(&set->ids);
    nm_ids_release(&set->labels);
    free(set->offsets);
    *set = (nm_labeled_set){0};
}

static void end_text(nm_labeled_set *set)
{
    NM_RESERVE(set->offsets, set->n + 2, set->capacity);
    if (!set->n)
        set->offsets[0] = 0;
    set->offsets[++set->n] = set->ids.n;
}

nm_corpus nm_labeled_set_corpus(const nm_labeled_set *set)
{
    return (nm_corpus){.ids = set->ids.data, .offsets = set->offsets, .n = (int64_t)set->n};
}

void nm_classification_encode(nm_classification_parts *parts, int64_t max_length, const char *text,
                              size_t bytes, nm_labeled_set *set)
{
    nm_text_coder_run(&parts->coder, NM_FORMAT_RAW, text, bytes);
    size_t begin = set->ids.n, most = (size_t)max_length - 1;
    nm_ids_append(&set->ids, parts->vocab->bos);
    nm_vocab_encode(parts->vocab, parts->coder.subwords.data, parts->coder.subwords.bytes, &set->ids);
    if (set->ids.n - begin > most) {
        set->ids.n = begin + most;
        set->cut++;
    }
    nm_ids_append(&set->ids, parts->vocab->eos);
    end_text(set);
}

typedef struct reading {
    const nm_classification_config *config;
    nm_classification_parts *parts;
    nm_counter words;      /* the sets contain indices of its items until the dictionary is built */
    int64_t n_train;       /* texts of the training file, including those that are held out */
    nm_labeled_set others; /* texts of the current file whose label no training text has */
} reading;

enum { FIRST = -1, LAST = -2 }; /* stand for <s> and </s> until the dictionary is built */

/* The settings for reading a table. */
static nm_labeled_config table_config(const nm_classification_config *config)
{
    return (nm_labeled_config){.encoding = config->encoding,
                               .format = config->format,
                               .quotes = config->quotes,
                               .header = config->header,
                               .label = config->label,
                               .text = config->text,
                               .with_label = true};
}

static void add_text(reading *at, const nm_labeled *texts, int32_t label, nm_split split)
{
    nm_text_coder *coder = &at->parts->coder;
    bool known = (size_t)label < at->parts->labels.n;
    nm_labeled_set *set = known ? &at->parts->sets[split] : &at->others;
    nm_text_coder_run(coder, NM_FORMAT_RAW, texts->text.data, texts->text.bytes);
    size_t begin = set->ids.n, most = (size_t)at->config->max_length - 1, position = 0, bytes;
    const char *word;
    bool cut = false;
    nm_ids_append(&set->ids, FIRST);
    while (nm_word_next(coder->subwords.data, coder->subwords.bytes, &position, &word, &bytes)) {
        size_t number = nm_counter_add(&at->words, word, bytes, split == NM_SPLIT_TRAIN);
        cut = set->ids.n - begin >= most;
        if (!cut)
            nm_ids_append(&set->ids, (int32_t)number);
    }
    set->cut += cut;
    nm_ids_append(&set->ids, LAST);
    end_text(set);
    nm_ids_append(&set->labels, label);
}

/* Moves the texts whose label no training text has to the end of their split. */
static void append_others(reading *at, nm_split split)
{
    nm_labeled_set *set = &at->parts->sets[split], *others = &at->others;
    at->parts->n_known[split] = set->n;
    for (size_t i = 0; i < others->n; i++) {
        for (uint64_t t = others->offsets[i]; t < others->offsets[i + 1]; t++)
            nm_ids_append(&set->ids, others->ids.data[t]);
        end_text(set);
        nm_ids_append(&set->labels, others->labels.data[i]);
    }
    set->cut += others->cut;
    nm_labeled_set_clear(others);
}

static bool held_out(const nm_classification_config *config, int64_t row)
{
    return !*config->valid && nm_held_out(config->valid_seed, config->valid_fraction, row);
}

static nm_status label_of(reading *at, const nm_labeled *texts, nm_split split, int32_t *label, nm_error *err)
{
    nm_counter *labels = &at->parts->labels;
    if (split != NM_SPLIT_TRAIN)
        return nm_classification_find(labels, &at->parts->others, texts, label, err);
    *label = (int32_t)nm_counter_add(labels, texts->label, strlen(texts->label), 1);
    if (labels->n > NM_CLASSES_MAX)
        return nm_fail(
            err, NM_FORMAT,
            "%s:%lld: more than %d different labels; is column %zu that of the label? Choose it with "
            "data.label",
            texts->path, (long long)nm_labeled_line(texts), NM_CLASSES_MAX, texts->label_at + 1);
    return NM_OK;
}

/* A header that is read as a text, or a column of texts that is read as the labels. */
static nm_status check_labels(const reading *at, const nm_labeled *texts, nm_error *err)
{
    enum { FEW = 100, FEWEST = 10 };
    int64_t n = texts->row + 1;
    size_t labels = at->parts->labels.n;
    const nm_count *first = at->parts->labels.items;
    bool many = 2 * (int64_t)labels > n;
    if (!texts->lines && !texts->header && texts->config.header == NM_CHOICE_AUTO && first->count == 1 &&
        n >= FEWEST && !many)
        return nm_fail(err, NM_FORMAT,
                       "%s: no other row has the label of the first one, \"%.60s\"; is it a header? Set "
                       "data.header to yes or no",
                       texts->path, first->text);
    if (n < FEW || !many)
        return NM_OK;
    return nm_fail(
        err, NM_FORMAT,
        "%s: %zu different labels of %lld texts; is column %zu that of the label? Choose it with data.label",
        texts->path, labels, (long long)n, texts->label_at + 1);
}

static nm_status end_rows(reading *at, const nm_labeled *texts, nm_split split, nm_error *err)
{
    const nm_classification_parts *parts = at->parts;
    if (split == NM_SPLIT_TRAIN)
        return check_labels(at, texts, err);
    NM_TRY(nm_classification_check_known(&parts->labels, &parts->others, parts->sets[split].n, texts, err));
    append_others(at, split);
    return NM_OK;
}

static nm_status read_rows(reading *at, nm_labeled *texts, nm_split split, nm_error *err)
{
    for (;;) {
        bool more;
        int32_t label;
        NM_TRY(nm_labeled_next(texts, &more, err));
        if (!more && texts->row < 0)
            return nm_fail(err, NM_FORMAT, "%s: contains no text", texts->path);
        if (!more)
            return end_rows(at, texts, split, err);
        NM_TRY(label_of(at, texts, split, &label, err));
        bool out = split == NM_SPLIT_TRAIN && held_out(at->config, texts->row);
        add_text(at, texts, label, out ? NM_SPLIT_VALID : split);
        if (at->words.n > INT32_MAX / 2)
            return nm_fail(err, NM_FORMAT, "%s:%lld: too many different words", texts->path,
                           (long long)nm_labeled_line(texts));
    }
}

static nm_status read_table(reading *at, const char *path, nm_split split, nm_error *err)
{
    const char *const encodings[] = {"", at->config->valid_encoding, at->config->test_encoding};
    static const char *const options[] = {NULL, "--data.valid_encoding", "--data.test_encoding"};
    nm_labeled_config table = table_config(at->config);
    if (*encodings[split])
        table.encoding = encodings[split];
    else if (options[split])
        NM_TRY(nm_text_refuse_utf8(path, table.encoding, options[split], err));
    NM_AUTO(nm_labeled_close) nm_labeled texts = {0};
    nm_status status = nm_labeled_open(&texts, path, &table, err);
    NM_THEN(status, read_rows(at, &texts, split, err));
    if (status == NM_OK && split == NM_SPLIT_TRAIN && texts.columns)
        at->parts->note = nm_duplicate(texts.columns);
    return status;
}

static nm_status check_train(const nm_classification_config *config, nm_error *err)
{
    return *config->train ? NM_OK
                          : nm_fail(err, NM_USAGE,
                                    "data.train is not set: give a file of labels and texts, tab-separated "
                                    "or CSV");
}

nm_status nm_classification_measure(const void *config, int64_t *n_texts, nm_error *err)
{
    const nm_classification_config *c = config;
    nm_labeled_config table = table_config(c);
    NM_AUTO(nm_labeled_close) nm_labeled texts = {0};
    NM_TRY(check_train(c, err));
    NM_TRY(nm_file_check_rereadable(c->train, err));
    nm_status status = nm_labeled_open(&texts, c->train, &table, err);
    *n_texts = 0;
    for (bool more = true; status == NM_OK && more; *n_texts += more)
        status = nm_labeled_next(&texts, &more, err);
    return status;
}

static int compare_names(const void *left, const void *right)
{
    const char *a = ((const nm_count *)left)->text, *b = ((const nm_count *)right)->text;
    size_t m = strspn(a, "0123456789"), n = strspn(b, "0123456789");
    if (m && n && !a[m] && !b[n] && m != n) /* numbers in ascending order: 9 before 10 */
        return m < n ? -1 : 1;
    return strcmp(a, b);
}

/* Sorts the classes by name and renumbers the labels of the sets. */
static void sort_classes(nm_classification_parts *parts)
{
    nm_counter sorted = {0};
    size_t n = parts->labels.n;
    NM_AUTO_FREE nm_count *items = nm_allocate((n + 1) * sizeof *items);
    NM_AUTO_FREE int32_t *class_of = nm_allocate((n + 1) * sizeof *class_of);
    memcpy(items, parts->labels.items, n * sizeof *items);
    qsort(items, n, sizeof *items, compare_names);
    for (size_t i = 0; i < n; i++) {
        class_of[nm_counter_find(&parts->labels, items[i].text, items[i].bytes)] = (int32_t)i;
        nm_counter_add(&sorted, items[i].text, items[i].bytes, items[i].count);
    }
    for (int split = 0; split < NM_CLASS_SPLITS; split++)
        for (size_t i = 0; i < parts->sets[split].labels.n && i < parts->n_known[split]; i++)
            parts->sets[split].labels.data[i] = class_of[parts->sets[split].labels.data[i]];
    nm_counter_release(&parts->labels);
    parts->labels = sorted;
}

int32_t nm_classification_classes(const nm_classification_parts *parts)
{
    return (int32_t)parts->labels.n;
}

const char *nm_classification_name(const nm_classification_parts *parts, int32_t label)
{
    NM_ASSERT(label >= 0 && (size_t)label < parts->labels.n);
    return parts->labels.items[label].text;
}

int32_t nm_classification_labels(const nm_classification_parts *parts)
{
    return (int32_t)(parts->labels.n + parts->others.n);
}

nm_status nm_classification_find(const nm_counter *classes, nm_counter *others, const nm_labeled *at,
                                 int32_t *label, nm_error *err)
{
    size_t number = nm_counter_find(classes, at->label, strlen(at->label));
    if (number == SIZE_MAX)
        number = classes->n + nm_counter_add(others, at->label, strlen(at->label), 1);
    *label = (int32_t)number;
    return others->n <= NM_CLASSES_MAX
               ? NM_OK
               : nm_fail(err, NM_FORMAT,
                         "%s:%lld: more than %d labels that do not occur in the training data; is column "
                         "%zu that of the label? Choose it with data.label",
                         at->path, (long long)nm_labeled_line(at), NM_CLASSES_MAX, at->label_at + 1);
}

char *nm_classification_list(const nm_counter *labels)
{
    enum { NAMED = 8 };
    char *list = nm_duplicate("");
    for (size_t i = 0; i < labels->n && i < NAMED; i++) {
        NM_AUTO_FREE char *name = nm_format("%.40s", labels->items[i].text);
        nm_utf8_trim(name);
        nm_list_append(&list, name);
    }
    if (labels->n > NAMED)
        nm_format_append(&list, " and %zu more", labels->n - NAMED);
    return list;
}

nm_status nm_classification_check_known(const nm_counter *classes, const nm_counter *others, size_t n_known,
                                        const nm_labeled *at, nm_error *err)
{
    if (n_known || !others->n)
        return NM_OK;
    NM_AUTO_FREE char *found = nm_classification_list(others), *known = nm_classification_list(classes);
    return nm_fail(err, NM_MISMATCH,
                   "%s: none of its labels occurs in the training data: it has %s, and the "
                   "training data %s",
                   at->path, found, known);
}

static nm_status make_dictionary(reading *at, const char *kept_entries_of, nm_error *err)
{
    nm_classification_parts *parts = at->parts;
    nm_vocab_options options = nm_vocab_options_default();
    nm_buffer text = {0};
    options.multiple = 1;
    options.threshold = at->config->min_count;
    options.max_size = (int32_t)at->config->max_words + NM_VOCAB_N_SPECIAL;
    nm_error cause;
    nm_status status = nm_vocab_build(&at->words, &options, &parts->vocab, &cause);
    if (status != NM_OK)
        return nm_fail(err, status, "%s: %s", at->config->train, cause.text);
    NM_TRY(nm_model_text_keep(kept_entries_of, "dict.txt", true, &parts->vocab->symbols, err));
    if (parts->vocab->symbols.n > NM_VOCAB_MAX_SIZE)
        return nm_fail(err, NM_FORMAT,
                       "the dictionary of the training data and of the model has more than "
                       "%d symbols",
                       NM_VOCAB_MAX_SIZE);
    nm_buffer_clear(&text);
    nm_vocab_format(parts->vocab, &text);
    parts->texts[NM_CLASS_TEXT_DICTIONARY] = text.data;
    return NM_OK;
}

/* Replaces the indices of words by the ids of the dictionary. */
static void assign_ids(reading *at)
{
    const nm_vocab *vocab = at->parts->vocab;
    NM_AUTO_FREE int32_t *id_of = nm_allocate((at->words.n + 1) * sizeof *id_of);
    for (size_t w = 0; w < at->words.n; w++)
        id_of[w] = nm_vocab_find(vocab, at->words.items[w].text, at->words.items[w].bytes);
    for (int split = 0; split < NM_CLASS_SPLITS; split++) {
        nm_ids *ids = &at->parts->sets[split].ids;
        for (size_t i = 0; i < ids->n; i++)
            ids->data[i] = ids->data[i] == FIRST  ? vocab->bos
                           : ids->data[i] == LAST ? vocab->eos
                                                  : id_of[ids->data[i]];
    }
}

/* Adds the number of truncated training texts to the note. */
static void describe_truncation(nm_classification_parts *parts, const nm_classification_config *config)
{
    const nm_labeled_set *train = &parts->sets[NM_SPLIT_TRAIN];
    if (!train->cut)
        return;
    nm_format_append(&parts->note,
                     "%s%lld of %zu training texts have more than %lld tokens and are truncated "
                     "(data.max_length)",
                     parts->note ? "; " : "", (long long)train->cut, train->n, (long long)config->max_length);
}

/* Repeats the texts of a class with n texts so that it has about n (n_max / n)^exponent, n_max: number of the
 * most frequent class. The numbers of copies of two texts of a class differ by at most 1. */
static void balance_classes(nm_labeled_set *set, size_t classes, double exponent)
{
    nm_labeled_set more = {0};
    size_t *n = nm_allocate(classes * sizeof *n), *seen = nm_allocate(classes * sizeof *seen), most = 0;
    for (size_t i = 0; i < set->n; i++)
        n[set->labels.data[i]]++;
    for (size_t k = 0; k < classes; k++)
        most = n[k] > most ? n[k] : most;
    for (size_t i = 0; i < set->n; i++) {
        int32_t label = set->labels.data[i];
        double each = pow((double)most / (double)n[label], exponent), j = (double)seen[label]++;
        for (double copies = floor((j + 1) * each) - floor(j * each); copies > 0; copies--) {
            for (uint64_t t = set->offsets[i]; t < set->offsets[i + 1]; t++)
                nm_ids_append(&more.ids, set->ids.data[t]);
            end_text(&more);
            nm_ids_append(&more.labels, label);
        }
    }
    more.cut = set->cut;
    NM_FREE(n, seen);
    nm_labeled_set_release(set);
    *set = more;
}

/* Classes of the training file without texts in a split: the rare ones, if texts are held out. */
static void describe_missing_classes(nm_classification_parts *parts, nm_split split)
{
    enum { NAMED = 3 };
    const nm_labeled_set *set = &parts->sets[split];
    size_t classes = parts->labels.n, n = 0;
    NM_AUTO_FREE bool *found = nm_allocate((size_t)nm_classification_labels(parts) * sizeof *found);
    NM_AUTO_FREE char *names = NULL;
    for (size_t i = 0; i < set->n; i++)
        found[set->labels.data[i]] = true;
    for (size_t k = 0; k < classes; k++)
        if (!found[k] && ++n <= NAMED)
            nm_format_append(&names, "%s\"%.40s\"", n > 1 ? ", " : "", parts->labels.items[k].text);
    if (set->n && n)
        nm_format_append(&parts->note, "%s%zu of %zu classes have no %s text: %s%s", parts->note ? "; " : "",
                         n, classes, split == NM_SPLIT_TRAIN ? "training" : "validation", names,
                         n > NAMED ? ", ..." : "");
}

static nm_status read_all(reading *at, const char *kept_entries_of, nm_error *err)
{
    nm_classification_parts *parts = at->parts;
    const nm_classification_config *config = at->config;
    NM_TRY(read_table(at, config->train, NM_SPLIT_TRAIN, err));
    at->n_train = (int64_t)(parts->sets[NM_SPLIT_TRAIN].n + parts->sets[NM_SPLIT_VALID].n);
    parts->n_known[NM_SPLIT_TRAIN] = parts->sets[NM_SPLIT_TRAIN].n;
    parts->n_known[NM_SPLIT_VALID] = parts->sets[NM_SPLIT_VALID].n;
    if (parts->labels.n < 2)
        return nm_fail(err, NM_FORMAT, "%s: every text has the label \"%.60s\": there is nothing to learn",
                       config->train, parts->labels.items[0].text);
    if (*config->valid)
        NM_TRY(read_table(at, config->valid, NM_SPLIT_VALID, err));
    if (*config->test)
        NM_TRY(read_table(at, config->test, NM_SPLIT_TEST, err));
    if (!parts->sets[NM_SPLIT_TRAIN].n)
        return nm_fail(err, NM_USAGE, "%s: data.valid_fraction leaves no text for training: lower it",
                       config->train);
    sort_classes(parts);
    parts->texts[NM_CLASS_TEXT_LABELS] = nm_model_text_of_names(&parts->labels);
    NM_TRY(make_dictionary(at, kept_entries_of, err));
    assign_ids(at);
    describe_truncation(parts, config);
    describe_missing_classes(parts, NM_SPLIT_TRAIN);
    describe_missing_classes(parts, NM_SPLIT_VALID);
    if (config->class_balance > 0)
        balance_classes(&parts->sets[NM_SPLIT_TRAIN], parts->labels.n, config->class_balance);
    return NM_OK;
}

nm_status nm_classification_read(nm_task *task, nm_error *err)
{
    reading at = {.config = task->config, .parts = task->parts};
    NM_TRY(check_train(at.config, err));
    nm_status status = read_all(&at, task->kept_entries_of, err);
    nm_counter_release(&at.words);
    nm_labeled_set_release(&at.others);
    task->size = at.n_train;
    return status;
}
