/* Tags of tokens. A span tag is "O", or a mark, "-" and the label of its span, such as "B-PER"; a mark alone,
 * such as the "B" of word segmentation, is a span tag whose label is empty. Seven schemes:
 *
 *     iob1    I inside; B only directly after another span of the same label
 *     bio     B first, I inside
 *     bioes   B first, I inside, E last, S single token
 *     bmeso   B first, M inside, E last, S single token (also called BMES)
 *     bilou   B first, I inside, L last, U single token (also called BILUO)
 *     io      files have the label of each token and no mark; a span is a run of equal labels. Inside the
 *             program such a tag has the mark I
 *     none    files have a class of each token, such as its part of speech: there are no spans. Inside the
 *             program such a tag has the mark S, so that each token is a span of its class
 *
 * Spans are read as by seqeval, which accepts invalid sequences (and as by conlleval for iob1 and bio): B,
 * S and U start a span; I, M, E and L continue the span of the previous token if its mark is B, I or M with
 * the same label, and start a span otherwise. */
#pragma once

#include "norma/choice.h"
#include "norma/status.h"

/* The third column: marks other than O. Conversions between the schemes of the first list lose nothing; those
 * of the second one are possible for a model with spans. */
#define NM_SPAN_SCHEMES(C)                                                                                   \
    C(NM_TAGS_IOB1, "iob1", "BI")                                                                            \
    C(NM_TAGS_BIO, "bio", "BI")                                                                              \
    C(NM_TAGS_BIOES, "bioes", "BIES") C(NM_TAGS_BMESO, "bmeso", "BMES") C(NM_TAGS_BILOU, "bilou", "BILU")
#define NM_MODEL_TAG_SCHEMES(C) NM_SPAN_SCHEMES(C) C(NM_TAGS_IO, "io", "I")
#define NM_TAG_SCHEMES(C)       NM_MODEL_TAG_SCHEMES(C) C(NM_TAGS_NONE, "none", "S")
NM_CHOICES(nm_tag_scheme, NM_TAG_SCHEMES);
typedef nm_tag_scheme NM_MODEL_TAG_SCHEMES_ENUM;
enum { NM_SPAN_SCHEMES_COUNT = 0 NM_SPAN_SCHEMES(NM_CHOICE_ONE) };

/* Name of a scheme ("bio"), and the scheme of a name: false if there is none; and of a valid name. */
const char *nm_tag_scheme_name(nm_tag_scheme scheme);
bool nm_tag_scheme_parse(const char *name, nm_tag_scheme *scheme);
nm_tag_scheme nm_tag_scheme_find(const char *name);
/* The marks of a scheme other than O, such as "BIES". */
const char *nm_tag_marks(nm_tag_scheme scheme);

/* Whether the tag is "O", or a mark of any scheme, a hyphen and a label. */
bool nm_tag_valid(const char *tag);
/* Whether the tag is a mark of any scheme alone. */
bool nm_tag_bare(const char *tag);
/* A tag of a file of this scheme as a span tag, and a span tag as files of the scheme have it; heap. The
 * first is NULL for a text that is no tag of the scheme. */
char *nm_tag_read(nm_tag_scheme scheme, const char *text);
char *nm_tag_written(nm_tag_scheme scheme, const char *tag);
/* nm_tag_read of n texts that are tags; the caller frees them with nm_tags_free. */
char **nm_tags_read(nm_tag_scheme scheme, const char *const *texts, int32_t n);
void nm_tags_free(char **tags, int32_t n);
static inline bool nm_tag_outside(const char *tag)
{
    return tag[0] == 'O' && !tag[1];
}
/* The label of a span tag other than "O". */
static inline const char *nm_tag_label(const char *tag)
{
    return tag[1] ? tag + 2 : tag + 1;
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

/* Converts the tags of n tokens to another scheme; tags[n] are heap strings that the caller frees. */
void nm_tags_convert(nm_tag_scheme scheme, const char *const *from, int32_t n, char **tags);

/* Detects the scheme of sentences. Of span tags it is the one in which the fewest transitions are illegal, so
 * that a few wrong tags do not hide the scheme of a file: the first of bio, iob1, bioes, bmeso and bilou if
 * several have the fewest, bmeso before bioes if all are marks alone. A file without a single MARK-LABEL,
 * in which other texts than marks occur, has the scheme io if at least a fifth of its tokens is O, and
 * otherwise none; but not if those texts look like span tags of another notation (B_PER, PER-B, Q-PER):
 * then the scheme is that of span tags, and reading the file fails. So it is in a file in which other texts
 * are rare mistakes. */
typedef struct nm_tag_guess {
    /* number of illegal transitions, including those from the start and to the end of a sentence */
    int64_t illegal[NM_SPAN_SCHEMES_COUNT];
    int64_t outside, labeled, bare, other, notation; /* tokens; notation: those of other that look like one */
} nm_tag_guess;
/* The texts are those of the file; none is empty. */
void nm_tag_guess_add(nm_tag_guess *guess, const char *const *texts, int32_t n);
nm_tag_scheme nm_tag_guess_scheme(const nm_tag_guess *guess);
/* The scheme if the tags are known to be span tags. */
nm_tag_scheme nm_tag_guess_spans(const nm_tag_guess *guess);
