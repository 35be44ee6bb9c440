/* Tags that mark spans: "B-PER", "I-PER", "O", in four schemes. A tag is a mark, and behind "-" the label of its span.
 *
 *     iob1    I inside; B only where a span follows another one of the same label at once
 *     bio     B first, I inside
 *     bioes   B first, I inside, E last, S alone
 *     bmeso   B first, M inside, E last, S alone (also called BMES)
 *
 * Reading spans follows conlleval, which takes broken sequences too: B and S begin a span; I, M and E go on with the span
 * of the token before when that one is B, I or M of the same label, and begin one otherwise. */
#ifndef NM_TAGS_H
#define NM_TAGS_H

#include "norma/status.h"

typedef enum nm_tag_scheme {
    NM_TAGS_IOB1,
    NM_TAGS_BIO,
    NM_TAGS_BIOES,
    NM_TAGS_BMESO,
    NM_TAGS_N_SCHEMES
} nm_tag_scheme;

#define NM_TAG_SCHEMES "iob1|bio|bioes|bmeso"

/* "bio"; and the scheme of a name, which must be one. */
const char *nm_tag_scheme_name(nm_tag_scheme scheme);
nm_tag_scheme nm_tag_scheme_find(const char *name);
/* The marks besides O: "BIES". */
const char *nm_tag_marks(nm_tag_scheme scheme);

/* "O", or one of the marks of any scheme, a hyphen and a label. */
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
    const char *label;  /* within the tag of its first token */
} nm_span;

/* Spans of n valid tags into spans[n]; returns how many. */
int32_t nm_tag_spans(const char *const *tags, int32_t n, nm_span *spans);

/* Whether a valid tag may follow another one within a sentence; from NULL: the sentence begins; to NULL: it ends. A tag
 * with a mark that the scheme lacks may stand nowhere. */
bool nm_tag_allowed(nm_tag_scheme scheme, const char *from, const char *to);
/* The first of n valid tags that is illegal behind those before it; n - 1 also when the sentence may not end there; n when
 * all is well. */
int32_t nm_tags_check(nm_tag_scheme scheme, const char *const *tags, int32_t n);

/* The tag of token i of a span, whose mark depends on where it stands; `joins`: the span before ends where this one
 * begins and has the same label. */
char nm_tag_mark(nm_tag_scheme scheme, const nm_span *span, int32_t i, bool joins);
/* Tags of n tokens in another scheme, into tags[n]: heap strings, each to be freed. */
void nm_tags_convert(nm_tag_scheme scheme, const char *const *from, int32_t n, char **tags);

/* Which scheme sentences are in, from the marks that occur and from where they stand. */
typedef struct nm_tag_guess {
    bool middle, last, single, loose; /* M; E; S; I where no span goes on */
} nm_tag_guess;
void nm_tag_guess_add(nm_tag_guess *guess, const char *const *tags, int32_t n);
nm_tag_scheme nm_tag_guess_scheme(const nm_tag_guess *guess);

#endif
