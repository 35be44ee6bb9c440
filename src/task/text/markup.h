/* Sentences in the files of evaluation campaigns: WMT's .sgm and IWSLT's .xml (one sentence per <seg>), and
 * IWSLT's training text train.tags.* (lines of text between lines of metadata). */
#pragma once

#include "base/file.h"
#include "base/buffer.h"

typedef enum nm_markup_kind {
    NM_MARKUP_NONE,     /* every line is a sentence */
    NM_MARKUP_SEGMENTS, /* <seg id="1">A sentence.</seg> */
    /* lines of metadata (<url>, <talkid>, ...) are skipped, the tags of <title> and <description> removed */
    NM_MARKUP_TAGS
} nm_markup_kind;

/* The kind by file name, optionally with the suffix of a compressed file: SEGMENTS for "*.sgm", "*.sgml" and
 * "*.xml"; TAGS for "train.tags.*"; NONE for others. */
nm_markup_kind nm_markup_kind_of(const char *path);

typedef struct nm_markup {
    nm_markup_kind kind;
    /* decode &amp; &lt; &gt; &quot; &apos; &#39; &#x27; ... in segments; set after nm_markup_init */
    bool decode_entities;
    nm_lines lines;
    nm_buffer text;       /* of the segment */
    size_t at;            /* position in the current line after the last segment */
    bool in_line;         /* the current line may contain further segments */
    const char *sentence; /* the current sentence, not NUL-terminated, valid until the next call */
    size_t bytes;         /* its length */
    int64_t line;         /* number of its first line, from 1 */
} nm_markup;

void nm_markup_init(nm_markup *markup, nm_markup_kind kind, FILE *stream, const char *path);
/* Reads the next sentence; *more is false at the end of the file. Whitespace around a segment is removed,
 * newlines within it become spaces. NM_FORMAT for a segment without end tag and for a file without segments;
 * NM_IO. */
nm_status nm_markup_next(nm_markup *markup, bool *more, nm_error *err);
void nm_markup_release(nm_markup *markup);
