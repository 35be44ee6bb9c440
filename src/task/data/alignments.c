#include "data/alignments.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Parses the number at position *at of the line and advances *at. False if there is none or it is not below
 * INT32_MAX. */
static bool parse_number(const char *line, size_t bytes, size_t *at, uint32_t *number)
{
    uint64_t value = 0;
    size_t begin = *at;
    for (; *at < bytes && line[*at] >= '0' && line[*at] <= '9' && value < INT32_MAX; ++*at)
        value = 10 * value + (uint64_t)(line[*at] - '0');
    *number = (uint32_t)value;
    return *at > begin && value < INT32_MAX;
}

nm_status nm_links_parse(nm_link_list *list, const char *line, size_t bytes, size_t n_source, size_t n_target,
                         const char *where, nm_error *err)
{
    for (size_t at = 0; at < bytes;) {
        nm_link link;
        size_t begin = at, length = 0;
        if (strchr(" \t\r\n", line[at])) {
            at++;
            continue;
        }
        while (begin + length < bytes && !strchr(" \t\r\n", line[begin + length]))
            length++;
        bool parsed = parse_number(line, bytes, &at, &link.source) && at < bytes && line[at++] == '-' &&
                      parse_number(line, bytes, &at, &link.target) && at == begin + length;
        if (!parsed)
            return nm_fail(err, NM_FORMAT, "%s: \"%.*s\" is not a link SOURCE-TARGET of two word numbers",
                           where, (int)(length < 40 ? length : 40), line + begin);
        if (link.source >= n_source || link.target >= n_target)
            return nm_fail(
                err, NM_FORMAT,
                "%s: link %.*s: the source has %zu words and the target %zu (prepare.alignment_words: "
                "words of the raw lines or tokens, from 0)",
                where, (int)length, line + begin, n_source, n_target);
        NM_APPEND(list->data, list->n, list->capacity, link);
    }
    return NM_OK;
}

static int by_target(const void *a, const void *b)
{
    const nm_link *x = a, *y = b;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

void nm_links_sort(nm_link_list *list)
{
    size_t n = 0;
    if (list->n)
        qsort(list->data, list->n, sizeof *list->data, by_target);
    for (size_t i = 0; i < list->n; i++)
        if (!i || by_target(&list->data[i - 1], &list->data[i]))
            list->data[n++] = list->data[i];
    list->n = n;
}

/* Whether the links of sequence i are sorted by target and refer to tokens of both sides. */
static bool links_fit(const nm_corpus *corpus, const nm_corpus sides[2], int64_t i)
{
    int64_t n = nm_corpus_length(corpus, i);
    const int32_t *numbers = corpus->ids + corpus->offsets[i];
    for (int64_t k = 0; k + 1 < n; k += 2)
        if (numbers[k] >= nm_corpus_length(&sides[1], i) ||
            numbers[k + 1] >= nm_corpus_length(&sides[0], i) || (k && numbers[k] < numbers[k - 2]))
            return false;
    return n % 2 == 0;
}

nm_status nm_alignments_open(nm_corpus *corpus, const char *folder, const nm_corpus sides[2], nm_error *err)
{
    NM_AUTO_FREE char *prefix = nm_format("%s/train.alignment", folder), *ids = nm_format("%s.ids", prefix);
    bool found;
    nm_status status = nm_file_find(ids, &found, err);
    if (status == NM_OK && !found)
        status = nm_fail(err, NM_USAGE,
                         "%s has no word alignments, which model.alignment_head needs: norma prepare "
                         "--alignments FILE adds them",
                         folder);
    NM_THEN(status, nm_corpus_open(corpus, prefix, INT32_MAX, err));
    bool fits = status == NM_OK && corpus->n == sides[0].n;
    for (int64_t i = 0; fits && i < corpus->n; i++)
        fits = links_fit(corpus, sides, i);
    if (status == NM_OK && !fits)
        status = nm_fail(err, NM_MISMATCH, "%s: not the alignments of this training text", ids);
    return status;
}
