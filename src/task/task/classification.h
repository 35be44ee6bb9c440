/* Text classification: texts and labels from tables, class names, class probabilities. */
#pragma once

#include "data/labeled.h"
#include "text/classes.h"
#include "task/tasks.h"
#include "task/text_coder.h"
#include "text/vocab.h"

enum { NM_CLASS_TEXT_DICTIONARY, NM_CLASS_TEXT_LABELS, NM_CLASS_TEXT_CODES, NM_CLASS_TEXTS };
enum { NM_CLASS_SPLITS = 3, NM_CLASSES_MAX = 4096 };

#define NM_CLASSIFICATION_METRICS(C)                                                                         \
    C(NM_CLASSIFICATION_ACCURACY, "accuracy") C(NM_CLASSIFICATION_MACRO_F1, "macro_f1")
NM_CHOICES(nm_classification_metric, NM_CLASSIFICATION_METRICS);

typedef struct nm_classification_config { /* section [data] */
    const char *train, *valid, *test;
    NM_LABELED_FIELDS;
    const char *valid_encoding, *test_encoding;
    const char *tokenizer, *language, *codes;
    bool lowercase;
    int64_t min_count, max_words, max_length, batch, valid_seed;
    double valid_fraction, class_balance, word_dropout;
    nm_classification_metric score;
} nm_classification_config;

typedef struct nm_labeled_set { /* texts as token ids between <s> and </s>, and their classes */
    nm_ids ids, labels;         /* labels: [n] classes, empty for texts without labels */
    uint64_t *offsets;          /* [n + 1]; text i is ids[offsets[i]] .. ids[offsets[i + 1] - 1] */
    size_t n, capacity;
    int64_t cut; /* number of texts truncated to max_length */
} nm_labeled_set;

typedef struct nm_classification_parts {
    char *texts[NM_CLASS_TEXTS]; /* dictionary, label names (one per line), BPE codes or NULL */
    nm_vocab *vocab;
    char *note;        /* about columns, truncated texts and missing classes; NULL: none */
    nm_counter labels; /* item i is the name of class i */
    /* Labels of other splits that no training text has; item i has the number labels.n + i. */
    nm_counter others;
    nm_text_coder coder;
    /* In a set, the texts whose label no training text has follow the others; scores count them as errors. */
    nm_labeled_set sets[NM_CLASS_SPLITS];
    size_t n_known[NM_CLASS_SPLITS];    /* number of texts whose label is a class */
    nm_corpus corpora[NM_CLASS_SPLITS]; /* views of the sets; empty after open_model */
    nm_corpus known[NM_CLASS_SPLITS];   /* of their texts whose label is a class, which have a loss */
    nm_batching batching[NM_CLASS_SPLITS];
    bool macro_f1; /* the score is macro F1; false: accuracy */
} nm_classification_parts;

static inline nm_classification_parts *nm_classification_parts_of(const nm_task *task)
{
    return task->parts;
}

/* Reads the files of [data] into the sets, and builds the dictionary and the classes. */
nm_status nm_classification_read(nm_task *task, nm_error *err);
/* Number of texts of the training file, including those that are held out. */
nm_status nm_classification_measure(const void *config, int64_t *n_texts, nm_error *err);
/* Appends a text without a label to a set: the ids of its first max_length - 2 subwords between <s> and
 * </s>. */
void nm_classification_encode(nm_classification_parts *parts, int64_t max_length, const char *text,
                              size_t bytes, nm_labeled_set *set);
void nm_labeled_set_clear(nm_labeled_set *set);
void nm_labeled_set_release(nm_labeled_set *set);
/* The set as a corpus that borrows its memory. */
nm_corpus nm_labeled_set_corpus(const nm_labeled_set *set);
/* *label: number of the label at the reader's position, which is that of its class in classes, or classes->n
 * + its number in others, to which it is added. NM_FORMAT if there are more than NM_CLASSES_MAX other
 * labels. */
nm_status nm_classification_find(const nm_counter *classes, nm_counter *others, const nm_labeled *at,
                                 int32_t *label, nm_error *err);
/* NM_MISMATCH if texts have been read and no label is a class, with the file and labels of both kinds. */
nm_status nm_classification_check_known(const nm_counter *classes, const nm_counter *others, size_t n_known,
                                        const nm_labeled *at, nm_error *err);
/* "ugly, worse and 3 more"; heap. */
char *nm_classification_list(const nm_counter *labels);
/* Opens parts->coder with the codes in parts->texts; codes_name: their name in messages. */
nm_status nm_classification_open_coder(nm_classification_parts *parts, const nm_classification_config *config,
                                       const char *codes_name, nm_error *err);
int32_t nm_classification_classes(const nm_classification_parts *parts);
/* Number of classes and of labels that no training text has. */
int32_t nm_classification_labels(const nm_classification_parts *parts);
const char *nm_classification_name(const nm_classification_parts *parts, int32_t label);

/* classification_ngrams.c: computes inverse document frequencies. */
nm_status nm_classification_init_params(nm_task *task, nm_model *model, nm_error *err);

/* Writes the class probabilities of all texts, [texts, classes]. NM_DIVERGED if logits are not finite;
 * NM_MEMORY. */
nm_status nm_classification_probabilities(nm_task *task, nm_model *model, const nm_corpus *texts,
                                          double *probabilities, nm_error *err);
/* Fills the score of the first n texts of a split with these predicted classes. */
void nm_classification_count(const nm_classification_parts *parts, nm_split split, const int32_t *predicted,
                             size_t n, nm_task_score *score);
nm_status nm_classification_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                                  nm_task_score *score, nm_error *err);
