#include "text/tags.h"

#include <string.h>

#include "base/memory.h"

#define MARKS(constant, word, marks) [constant] = marks,
static const char *const scheme_names[] = {NM_TAG_SCHEMES(NM_CHOICE_NAME)};
static const char *const scheme_marks[] = {NM_TAG_SCHEMES(MARKS)};

const char *nm_tag_scheme_name(nm_tag_scheme scheme)
{
    return scheme_names[scheme];
}

bool nm_tag_scheme_parse(const char *name, nm_tag_scheme *scheme)
{
    int i = 0;
    while (i < NM_TAG_SCHEMES_COUNT && strcmp(scheme_names[i], name))
        i++;
    *scheme = i < NM_TAG_SCHEMES_COUNT ? (nm_tag_scheme)i : NM_TAGS_BIO;
    return i < NM_TAG_SCHEMES_COUNT;
}

nm_tag_scheme nm_tag_scheme_find(const char *name)
{
    nm_tag_scheme scheme;
    bool found = nm_tag_scheme_parse(name, &scheme);
    NM_ASSERT(found);
    return scheme;
}

const char *nm_tag_marks(nm_tag_scheme scheme)
{
    return scheme_marks[scheme];
}

bool nm_tag_valid(const char *tag)
{
    return nm_tag_outside(tag) || (*tag && strchr("BIMESLU", *tag) && tag[1] == '-' && tag[2]);
}

bool nm_tag_bare(const char *tag)
{
    return *tag && strchr("BIMESLU", *tag) && !tag[1];
}

char *nm_tag_read(nm_tag_scheme scheme, const char *text)
{
    if (!*text)
        return NULL;
    if (scheme == NM_TAGS_NONE)
        return nm_format("S-%s", text);
    if (scheme == NM_TAGS_IO)
        return nm_tag_outside(text) ? nm_duplicate("O") : nm_format("I-%s", text);
    return nm_tag_valid(text) || nm_tag_bare(text) ? nm_duplicate(text) : NULL;
}

char *nm_tag_written(nm_tag_scheme scheme, const char *tag)
{
    bool marked = scheme != NM_TAGS_NONE && scheme != NM_TAGS_IO;
    return nm_duplicate(marked || nm_tag_outside(tag) || !tag[1] ? tag : nm_tag_label(tag));
}

char **nm_tags_read(nm_tag_scheme scheme, const char *const *texts, int32_t n)
{
    char **tags = nm_allocate(((size_t)n + 1) * sizeof *tags);
    for (int32_t i = 0; i < n; i++) {
        tags[i] = nm_tag_read(scheme, texts[i]);
        NM_ASSERT(tags[i]);
    }
    return tags;
}

void nm_tags_free(char **tags, int32_t n)
{
    nm_free_list(tags, (size_t)n);
}

static bool has_mark(const char *tag, const char *marks)
{
    return strchr(marks, *tag) != NULL;
}

static bool same_label(const char *a, const char *b)
{
    return !strcmp(nm_tag_label(a), nm_tag_label(b));
}

/* Whether `tag` continues the span of `before`. */
static bool continues(const char *before, const char *tag)
{
    return before && has_mark(before, "BIM") && has_mark(tag, "IMEL") && same_label(before, tag);
}

int32_t nm_tag_spans(const char *const *tags, int32_t n, nm_span *spans)
{
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        if (nm_tag_outside(tags[i]))
            continue;
        if (continues(i ? tags[i - 1] : NULL, tags[i]))
            spans[found - 1].end = i + 1;
        else
            spans[found++] = (nm_span){i, i + 1, nm_tag_label(tags[i])};
    }
    return found;
}

/* Whether no span continues after the tag. NULL: start of the sentence. */
static bool is_closed(const char *tag)
{
    return !tag || nm_tag_outside(tag) || has_mark(tag, "ESLU");
}

bool nm_tag_allowed(nm_tag_scheme scheme, const char *from, const char *to)
{
    const char *marks = nm_tag_marks(scheme);
    if ((from && !nm_tag_outside(from) && !has_mark(from, marks)) ||
        (to && !nm_tag_outside(to) && !has_mark(to, marks)))
        return false;
    bool outside = !to || nm_tag_outside(to);
    switch (scheme) {
    case NM_TAGS_IO:
        return true;
    case NM_TAGS_IOB1: /* B requires a span of its label before it */
        return outside || *to == 'I' || (from && !nm_tag_outside(from) && same_label(from, to));
    case NM_TAGS_BIO:
        return outside || *to == 'B' || continues(from, to);
    default:
        return outside || has_mark(to, "BSU") ? is_closed(from) : continues(from, to);
    }
}

int32_t nm_tags_check(nm_tag_scheme scheme, const char *const *tags, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!nm_tag_allowed(scheme, i ? tags[i - 1] : NULL, tags[i]))
            return i;
    return n && !nm_tag_allowed(scheme, tags[n - 1], NULL) ? n - 1 : n;
}

/* Mark of token i of a span. `joins`: the previous span has the same label and ends where this one starts. */
static char mark_of(nm_tag_scheme scheme, const nm_span *span, int32_t i, bool joins)
{
    bool first = i == span->first, last = i == span->end - 1;
    switch (scheme) {
    case NM_TAGS_IO:
        return 'I';
    case NM_TAGS_IOB1:
        return first && joins ? 'B' : 'I';
    case NM_TAGS_BIO:
        return first ? 'B' : 'I';
    case NM_TAGS_BILOU:
        return first && last ? 'U' : first ? 'B' : last ? 'L' : 'I';
    default:
        return first && last ? 'S' : first ? 'B' : last ? 'E' : scheme == NM_TAGS_BIOES ? 'I' : 'M';
    }
}

void nm_tags_convert(nm_tag_scheme scheme, const char *const *from, int32_t n, char **tags)
{
    NM_AUTO_FREE nm_span *spans = nm_allocate(((size_t)n + 1) * sizeof *spans);
    int32_t found = nm_tag_spans(from, n, spans), done = 0;
    for (int32_t s = 0; s < found; s++) {
        bool joins = s && spans[s - 1].end == spans[s].first && !strcmp(spans[s - 1].label, spans[s].label);
        for (; done < spans[s].first; done++)
            tags[done] = nm_duplicate("O");
        for (; done < spans[s].end; done++)
            tags[done] = nm_format("%c%s%s", mark_of(scheme, &spans[s], done, joins),
                                   *spans[s].label ? "-" : "", spans[s].label);
    }
    for (; done < n; done++)
        tags[done] = nm_duplicate("O");
}

/* Whether a text that is no span tag looks like one in another notation: B_PER, Q-PER, B-, PER-B,
 * b-per and o. */
static bool is_other_notation(const char *text)
{
    size_t n = strlen(text);
    bool before = n > 1 && text[0] >= 'A' && text[0] <= 'Z' && strchr("-_:./|", text[1]);
    bool lower = !strcmp(text, "o") || (n > 2 && strchr("bimeslu", text[0]) && strchr("-_", text[1]));
    return before || lower || (n > 2 && strchr("-_:./|", text[n - 2]) && nm_tag_bare(text + n - 1));
}

void nm_tag_guess_add(nm_tag_guess *guess, const char *const *texts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        bool outside = nm_tag_outside(texts[i]), labeled = !outside && nm_tag_valid(texts[i]),
             bare = nm_tag_bare(texts[i]), other = !outside && !labeled && !bare;
        guess->outside += outside;
        guess->labeled += labeled;
        guess->bare += bare;
        guess->other += other;
        guess->notation += other && is_other_notation(texts[i]);
    }
    for (int scheme = 0; scheme < NM_SPAN_SCHEMES_COUNT; scheme++)
        for (int32_t i = 0; i <= n; i++)
            guess->illegal[scheme] +=
                !nm_tag_allowed((nm_tag_scheme)scheme, i ? texts[i - 1] : NULL, i < n ? texts[i] : NULL);
}

nm_tag_scheme nm_tag_guess_spans(const nm_tag_guess *guess)
{
    /* word segmentation, whose files usually have M */
    bool words = !guess->outside && !guess->labeled;
    const nm_tag_scheme by_frequency[] = {NM_TAGS_BIO, NM_TAGS_IOB1, words ? NM_TAGS_BMESO : NM_TAGS_BIOES,
                                          words ? NM_TAGS_BIOES : NM_TAGS_BMESO, NM_TAGS_BILOU};
    nm_tag_scheme best = by_frequency[0];
    for (int i = 1; i < NM_SPAN_SCHEMES_COUNT; i++)
        if (guess->illegal[by_frequency[i]] < guess->illegal[best])
            best = by_frequency[i];
    return best;
}

nm_tag_scheme nm_tag_guess_scheme(const nm_tag_guess *guess)
{
    int64_t tokens = guess->outside + guess->labeled + guess->bare + guess->other;
    bool frequent = 5 * guess->outside >= tokens;
    bool spans = guess->labeled && (guess->outside || guess->labeled >= guess->other);
    if (!guess->other || spans || guess->notation == guess->other || (frequent && guess->notation))
        return nm_tag_guess_spans(guess);
    return frequent ? NM_TAGS_IO : NM_TAGS_NONE;
}
