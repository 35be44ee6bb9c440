/* Span tags such as "B-PER", "I-PER", "O" in five schemes. A tag is a mark, "-" and the label of its span, or
 * "O".
 *
 *     iob1    I inside; B only directly after another span of the same label
 *     bio     B first, I inside
 *     bioes   B first, I inside, E last, S single token
 *     bmeso   B first, M inside, E last, S single token (also called BMES)
 *     bilou   B first, I inside, L last, U single token (also called BILUO)
 *
 * Spans are read as by conlleval, which accepts invalid sequences: B, S and U start a span; I, M, E and L
 * continue the span of the previous token if its mark is B, I or M with the same label, and start a span
 * otherwise. */
#ifndef NM_TAGS_H
#define NM_TAGS_H

#include "norma/choice.h"
#include "norma/status.h"

/* The third column: marks other than O. */
#define NM_TAG_SCHEMES(C)                                                                                    \
    C(NM_TAGS_IOB1, "iob1", "BI")                                                                            \
    C(NM_TAGS_BIO, "bio", "BI")                                                                              \
    C(NM_TAGS_BIOES, "bioes", "BIES") C(NM_TAGS_BMESO, "bmeso", "BMES") C(NM_TAGS_BILOU, "bilou", "BILU")
NM_CHOICES(nm_tag_scheme, NM_TAG_SCHEMES);

/* Name of a scheme ("bio"), and the scheme of a valid name. */
const char *nm_tag_scheme_name(nm_tag_scheme scheme);
nm_tag_scheme nm_tag_scheme_find(const char *name);
/* The marks of a scheme other than O, such as "BIES". */
const char *nm_tag_marks(nm_tag_scheme scheme);

/* Whether the tag is "O", or a mark of any scheme, a hyphen and a label. */
bool nm_tag_valid(const char *tag);
static inline bool nm_tag_outside(const char *tag)
{
    return tag[0] == 'O' && !tag[1];
}
/* The label of a valid tag other than "O". */
static inline const char *nm_tag_label(const char *tag)
{
    return tag + 2;
}

typedef struct nm_span {
    int32_t first, end; /* tokens first .. end - 1 */
    const char *label;  /* points into the tag of its first token */
} nm_span;

/* Writes the spans of n valid tags to spans[n] and returns their number. */
int32_t nm_tag_spans(const char *const *tags, int32_t n, nm_span *spans);

/* Whether the valid tag `to` may follow `from` in a sentence. from NULL: start of the sentence; to NULL: its
 * end. A tag with a mark of another scheme is never allowed. */
bool nm_tag_allowed(nm_tag_scheme scheme, const char *from, const char *to);
/* Index of the first of n valid tags that may not follow the one before it; n - 1 if the sentence may not end
 * with the last one; n if all are allowed. */
int32_t nm_tags_check(nm_tag_scheme scheme, const char *const *tags, int32_t n);

/* Mark of token i of a span. `joins`: the previous span has the same label and ends where this one starts. */
char nm_tag_mark(nm_tag_scheme scheme, const nm_span *span, int32_t i, bool joins);
/* Converts the tags of n tokens to another scheme; tags[n] are heap strings that the caller frees. */
void nm_tags_convert(nm_tag_scheme scheme, const char *const *from, int32_t n, char **tags);

/* Detects the scheme of sentences: the one in which the fewest transitions between tags are illegal, so that
 * a few wrong tags do not hide the scheme of a file. The first of bio, iob1, bioes, bmeso and bilou if
 * several have the fewest. */
typedef struct nm_tag_guess {
    /* number of illegal transitions, including those from the start and to the end of a sentence */
    int64_t illegal[NM_TAG_SCHEMES_COUNT];
} nm_tag_guess;
void nm_tag_guess_add(nm_tag_guess *guess, const char *const *tags, int32_t n);
nm_tag_scheme nm_tag_guess_scheme(const nm_tag_guess *guess);

#endif
