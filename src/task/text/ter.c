/* Shifts are chosen greedily: of all phrases of the hypothesis that match the reference at another position,
 * the one whose shift reduces the edit distance most is moved, until no shift reduces it. The edit distance
 * is restricted to a band around the diagonal. Limits and the order among equal shifts are those of
 * sacreBLEU's reimplementation of Tercom. */
#include "text/ter.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "text/ngram.h"
#include "text/segment.h"
#include "text/tokenize_13a.h"

enum { MAX_SHIFT_LENGTH = 10, MAX_SHIFT_DISTANCE = 50, BAND = 25, MAX_CANDIDATES = 1000 };
static const int64_t unreachable = (int64_t)1e16;

typedef enum operation {
    UNDEFINED,
    KEEP,
    SUBSTITUTE,
    DELETE,
    INSERT
} operation; /* hypothesis to reference */

typedef struct cell {
    int64_t cost;
    operation last;
} cell;

typedef struct sequence {
    int32_t *ids;
    size_t n, capacity;
} sequence;

typedef struct shift { /* moves the words start .. start + length - 1 before the word target */
    int64_t gain;
    size_t start, length, target;
} shift;

struct nm_ter {
    nm_ter_config config;
    nm_segment_words words;
    nm_buffer text, scratch, tokens;
    sequence hypothesis, reference, moved;
    cell *table; /* [n_hypothesis + 1, n_reference + 1]: edit distance of the hypothesis */
    size_t table_capacity;
    cell *rows; /* [2, n_reference + 1]: edit distance after a shift */
    size_t row_capacity;
    /* [n_reference]: number of hypothesis words up to the one aligned with the reference word */
    size_t *aligned;
    bool *hypothesis_wrong, *reference_wrong; /* [n_hypothesis], [n_reference]: words without a match */
    size_t aligned_capacity, hypothesis_capacity, reference_capacity;
};

nm_ter *nm_ter_create(const nm_ter_config *config)
{
    nm_ter *ter = nm_allocate(sizeof *ter);
    ter->config = *config;
    return ter;
}

void nm_ter_free(nm_ter *ter)
{
    if (!ter)
        return;
    nm_segment_words_release(&ter->words);
    nm_buffer_release(&ter->text);
    nm_buffer_release(&ter->scratch);
    nm_buffer_release(&ter->tokens);
    NM_FREE(ter->hypothesis.ids, ter->reference.ids, ter->moved.ids, ter->table, ter->rows, ter->aligned,
            ter->hypothesis_wrong, ter->reference_wrong, ter);
}

typedef struct range {
    int32_t first, last;
} range;

static bool is_in(int32_t code, const range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

static const range asian_characters[] = {{0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0x31c0, 0x31ef},
                                         {0x2e80, 0x2eff}, {0x3300, 0x33ff}, {0xf900, 0xfaff},
                                         {0xfe30, 0xfe4f}, {0x3200, 0x3f22}};
static const range asian_punctuation[] = {{0x3001, 0x3002}, {0x3008, 0x3011}, {0x3014, 0x301f},
                                          {0xff61, 0xff65}, {0x30fb, 0x30fb}, {0xff0e, 0xff0e},
                                          {0xff0c, 0xff0c}, {0xff1f, 0xff1f}, {0xff1a, 0xff1b},
                                          {0xff01, 0xff02}, {0xff08, 0xff09}};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Splits off CJK characters and their punctuation, or removes the punctuation. */
static void split_asian(const char *text, bool removes, nm_buffer *out)
{
    nm_buffer_clear(out);
    for (size_t bytes; *text; text += bytes) {
        int32_t code = nm_code_point(text, &bytes);
        bool mark = is_in(code, asian_punctuation, COUNT(asian_punctuation)),
             separate = !removes && (mark || is_in(code, asian_characters, COUNT(asian_characters)));
        if (removes && mark)
            continue;
        if (separate)
            nm_buffer_append_byte(out, ' ');
        nm_buffer_append(out, text, bytes);
        if (separate)
            nm_buffer_append_byte(out, ' ');
    }
}

static void swap(nm_buffer *a, nm_buffer *b)
{
    nm_buffer c = *a;
    *a = *b;
    *b = c;
}

static void split_words(nm_ter *ter, const char *line, sequence *out)
{
    nm_buffer *text = &ter->text, *other = &ter->tokens;
    nm_buffer_clear(text);
    if (ter->config.case_sensitive)
        nm_buffer_append(text, line, strlen(line));
    else
        nm_lower_unicode(line, text);
    if (ter->config.normalized) {
        nm_buffer_clear(other);
        nm_tokenize_tercom(text->data, &ter->scratch, other);
        swap(text, other);
        if (ter->config.asian) {
            split_asian(text->data, false, other);
            swap(text, other);
        }
    }
    if (ter->config.no_punctuation) {
        nm_buffer_clear(other);
        for (const char *at = text->data; *at; at++)
            if (!strchr(".,?:;!\"()", *at))
                nm_buffer_append_byte(other, *at);
        swap(text, other);
        if (ter->config.asian) {
            split_asian(text->data, true, other);
            swap(text, other);
        }
    }
    out->n = 0;
    for (const char *at = text->data; *at;) {
        size_t space = 0;
        const char *word = at;
        while (*at && !(space = nm_space_length(at)))
            at++;
        if (at > word) {
            NM_APPEND(out->ids, out->n, out->capacity,
                      nm_segment_words_id(&ter->words, word, (size_t)(at - word)));
        }
        at += space;
    }
}

static void relax(cell *to, int64_t cost, operation last)
{
    if (to->cost > cost)
        *to = (cell){cost, last};
}

/* Computes row i >= 1 of the table for n_hypothesis words from the row above. Of equal costs, keep or
 * substitute precedes delete, which precedes insert. */
static void fill_row(const nm_ter *ter, const int32_t *hypothesis, size_t n_hypothesis, size_t i,
                     const cell *above, cell *row)
{
    const sequence *reference = &ter->reference;
    double ratio = n_hypothesis ? (double)reference->n / (double)n_hypothesis : 1;
    int64_t band = BAND < ratio / 2 ? (int64_t)ceil(ratio / 2 + BAND) : BAND;
    int64_t diagonal = (int64_t)floor((double)i * ratio), n = (int64_t)reference->n + 1;
    int64_t first = diagonal > band ? diagonal - band : 0, end = diagonal + band < n ? diagonal + band : n;
    if (i == n_hypothesis)
        end = n;
    for (int64_t j = 0; j < n; j++)
        row[j] = (cell){unreachable, UNDEFINED};
    for (int64_t j = first; j < end; j++) {
        if (j == 0) {
            row[0] = (cell){above[0].cost + 1, DELETE};
            continue;
        }
        bool same = hypothesis[i - 1] == reference->ids[j - 1];
        relax(&row[j], above[j - 1].cost + !same, same ? KEEP : SUBSTITUTE);
        relax(&row[j], above[j].cost + 1, DELETE);
        relax(&row[j], row[j - 1].cost + 1, INSERT);
    }
}

/* Fills the table for the hypothesis. Returns the edit distance. */
static int64_t fill_table(nm_ter *ter)
{
    size_t n = ter->hypothesis.n, width = ter->reference.n + 1;
    NM_RESERVE(ter->table, (n + 1) * width, ter->table_capacity);
    for (size_t j = 0; j < width; j++)
        ter->table[j] = (cell){(int64_t)j, INSERT};
    for (size_t i = 1; i <= n; i++)
        fill_row(ter, ter->hypothesis.ids, n, i, ter->table + (i - 1) * width, ter->table + i * width);
    return ter->table[n * width + width - 1].cost;
}

/* Edit distance of ter->moved, whose first `same` words are those of the hypothesis. */
static int64_t moved_distance(nm_ter *ter, size_t same)
{
    size_t n = ter->moved.n, width = ter->reference.n + 1;
    NM_RESERVE(ter->rows, 2 * width, ter->row_capacity);
    const cell *above = ter->table + same * width;
    for (size_t i = same + 1; i <= n; i++) {
        cell *row = ter->rows + (i % 2) * width;
        fill_row(ter, ter->moved.ids, n, i, above, row);
        above = row;
    }
    return above[width - 1].cost;
}

/* Sets alignment and errors from the best path through the table. */
static void align(nm_ter *ter)
{
    size_t i = ter->hypothesis.n, j = ter->reference.n, width = j + 1;
    NM_RESERVE(ter->aligned, j + 1, ter->aligned_capacity);
    NM_RESERVE(ter->reference_wrong, j + 1, ter->reference_capacity);
    NM_RESERVE(ter->hypothesis_wrong, i + 1, ter->hypothesis_capacity);
    while (i || j) {
        operation last = ter->table[i * width + j].last;
        NM_ASSERT(last != UNDEFINED);
        if (last != INSERT)
            ter->hypothesis_wrong[i - 1] = last != KEEP;
        if (last != DELETE) {
            ter->aligned[j - 1] = i;
            ter->reference_wrong[j - 1] = last != KEEP;
        }
        i -= last != INSERT;
        j -= last != DELETE;
    }
}

static void append_words(sequence *out, const sequence *from, size_t first, size_t end)
{
    for (size_t i = first; i < end && i < from->n; i++) {
        NM_APPEND(out->ids, out->n, out->capacity, from->ids[i]);
    }
}

/* Sets ter->moved to the hypothesis after the shift. */
static void move(nm_ter *ter, const shift *by)
{
    const sequence *from = &ter->hypothesis;
    size_t start = by->start, end = by->start + by->length, target = by->target;
    ter->moved.n = 0;
    if (target < start) {
        append_words(&ter->moved, from, 0, target);
        append_words(&ter->moved, from, start, end);
        append_words(&ter->moved, from, target, start);
        append_words(&ter->moved, from, end, from->n);
        return;
    }
    /* As in sacreBLEU, a target up to the end of the phrase is moved by the length of the phrase. */
    size_t stop = target > end ? target : target + by->length;
    append_words(&ter->moved, from, 0, start);
    append_words(&ter->moved, from, end, stop);
    append_words(&ter->moved, from, start, end);
    append_words(&ter->moved, from, stop, from->n);
}

/* Order of shifts: greater gain, then longer phrase, then earlier phrase, then earlier target. */
static bool is_better(const shift *a, const shift *b)
{
    if (a->gain != b->gain)
        return a->gain > b->gain;
    if (a->length != b->length)
        return a->length > b->length;
    return a->start != b->start ? a->start < b->start : a->target < b->target;
}

static bool any_wrong(const bool *wrong, size_t start, size_t length)
{
    for (size_t i = start; i < start + length; i++)
        if (wrong[i])
            return true;
    return false;
}

typedef struct search {
    int64_t distance; /* before the shift */
    int candidates;   /* number of shifts tried for this segment */
    bool found;
    shift best;
} search;

/* Tries to move the phrase at start_h to all positions around that of the reference phrase at start_r. */
static void try_phrase(nm_ter *ter, search *self, size_t start_h, size_t start_r, size_t length)
{
    size_t before = SIZE_MAX;
    for (size_t k = 0; k <= length; k++) {
        size_t target = start_r + k ? ter->aligned[start_r + k - 1] : 0;
        if (target == before)
            continue;
        before = target;
        shift candidate = {.start = start_h, .length = length, .target = target};
        move(ter, &candidate);
        size_t same = 0;
        while (same < ter->moved.n && ter->moved.ids[same] == ter->hypothesis.ids[same])
            same++;
        candidate.gain = self->distance - moved_distance(ter, same);
        self->candidates++;
        if (!self->found || is_better(&candidate, &self->best))
            self->best = candidate;
        self->found = true;
    }
}

/* Whether the phrase contains an error in the hypothesis and in the reference, and is aligned with a position
 * outside it. */
static bool is_candidate(const nm_ter *ter, size_t start_h, size_t start_r, size_t length)
{
    size_t aligned = ter->aligned[start_r]; /* word of the hypothesis, from 1; 0: before the first word */
    return any_wrong(ter->hypothesis_wrong, start_h, length) &&
           any_wrong(ter->reference_wrong, start_r, length) &&
           !(aligned >= start_h + 1 && aligned < start_h + length + 1);
}

static void find_shift(nm_ter *ter, search *self)
{
    const sequence *h = &ter->hypothesis, *r = &ter->reference;
    for (size_t start_h = 0; start_h < h->n; start_h++)
        for (size_t start_r = 0; start_r < r->n; start_r++) {
            size_t distance = start_h > start_r ? start_h - start_r : start_r - start_h;
            if (distance > MAX_SHIFT_DISTANCE)
                continue;
            for (size_t length = 1;
                 length <= MAX_SHIFT_LENGTH && start_h + length <= h->n && start_r + length <= r->n &&
                 h->ids[start_h + length - 1] == r->ids[start_r + length - 1];
                 length++) {
                if (!is_candidate(ter, start_h, start_r, length))
                    continue;
                try_phrase(ter, self, start_h, start_r, length);
                if (self->candidates >= MAX_CANDIDATES)
                    return;
            }
        }
}

static int64_t count_edits(nm_ter *ter)
{
    if (!ter->reference.n)
        return (int64_t)ter->hypothesis.n;
    search self = {.candidates = 0};
    int64_t shifts = 0;
    for (;; shifts++) {
        self.distance = fill_table(ter);
        align(ter);
        self.found = false;
        find_shift(ter, &self);
        if (self.candidates >= MAX_CANDIDATES || !self.found || self.best.gain <= 0)
            return shifts + self.distance;
        move(ter, &self.best);
        sequence last = ter->hypothesis;
        ter->hypothesis = ter->moved;
        ter->moved = last;
    }
}

void nm_ter_count(nm_ter *ter, const char *hypothesis, const char *const *references, int n_references,
                  int64_t *counts)
{
    NM_ASSERT(n_references > 0);
    int64_t best = INT64_MAX, lengths = 0;
    nm_segment_words_clear(&ter->words);
    for (int i = 0; i < n_references; i++) {
        split_words(ter, hypothesis, &ter->hypothesis); /* again, because shifts change it */
        split_words(ter, references[i], &ter->reference);
        int64_t edits = count_edits(ter);
        best = edits < best ? edits : best;
        lengths += (int64_t)ter->reference.n;
    }
    counts[0] = best * n_references;
    counts[1] = lengths;
}

double nm_ter_of_counts(const int64_t *counts, const void *context)
{
    (void)context;
    if (counts[1] > 0)
        return 100 * ((double)counts[0] / (double)counts[1]);
    return counts[0] > 0 ? 100 : 0;
}

char *nm_ter_signature(const nm_ter_config *config, int n_references)
{
    return nm_format("nrefs:%d|case:%s|tok:tercom|norm:%s|punct:%s|asian:%s|version:norma-%s", n_references,
                     config->case_sensitive ? "mixed" : "lc", config->normalized ? "yes" : "no",
                     config->no_punctuation ? "no" : "yes", config->asian ? "yes" : "no", NORMA_VERSION);
}

char *nm_ter_line(const nm_ter_config *config, double score, int n_references)
{
    NM_AUTO_FREE char *signature = nm_ter_signature(config, n_references);
    return nm_format("TER|%s = %.1f", signature, score);
}
