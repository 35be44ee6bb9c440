/* Sentences in the files of evaluation campaigns: WMT's .sgm and IWSLT's .xml (one sentence per <seg>), and IWSLT's training
 * text train.tags.* (lines of text between lines of metadata). */
#ifndef NM_MARKUP_H
#define NM_MARKUP_H

#include "base/file.h"
#include "text/buffer.h"

typedef enum nm_markup_kind {
    NM_MARKUP_NONE,     /* every line is a sentence */
    NM_MARKUP_SEGMENTS, /* <seg id="1">A sentence.</seg> */
    NM_MARKUP_TAGS /* <url>, <talkid> and such lines are left out; <title> and <description> lines lose their tags */
} nm_markup_kind;

/* By the file name without the suffix of a compression: "*.sgm", "*.sgml", "*.xml"; "train.tags.*". */
nm_markup_kind nm_markup_kind_of(const char *path);

typedef struct nm_markup {
    nm_markup_kind kind;
    bool decode_entities; /* &amp; &lt; &gt; &quot; &apos; &#39; &#x27; in segments */
    nm_lines lines;
    nm_buffer text; /* of the segment */
    size_t at;      /* in the current line, after the last segment */
    bool in_line;
    const char *sentence; /* the current one, valid until the next call */
    size_t bytes;
    int64_t line; /* where it begins, from 1 */
} nm_markup;

void nm_markup_init(nm_markup *markup, nm_markup_kind kind, FILE *stream, const char *path);
/* The next sentence; segments without surrounding white space, their line ends are spaces. NM_FORMAT for a segment that does
 * not end and for a file without segments; NM_IO. */
nm_status nm_markup_next(nm_markup *markup, bool *more, nm_error *err);
void nm_markup_release(nm_markup *markup);

#endif
