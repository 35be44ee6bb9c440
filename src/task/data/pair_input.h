/* Sentence pairs, or sentences of plain text, from the formats of published corpora: two files of lines,
 * segments of SGML or XML, one table with both sides (TSV, CSV), or JSON lines; each may be compressed or a
 * member of an archive. */
#pragma once

#include "text/delimited.h"
#include "text/documents.h"
#include "text/markup.h"

enum { NM_PAIR_SIDES = 2 };

#define NM_PAIR_FORMATS(C)                                                                                   \
    C(NM_PAIR_AUTO, "auto")                                                                                  \
    C(NM_PAIR_LINES, "lines") C(NM_PAIR_TSV, "tsv") C(NM_PAIR_CSV, "csv") C(NM_PAIR_JSON, "json")
NM_CHOICES(nm_pair_format, NM_PAIR_FORMATS);

typedef struct nm_pair_config {
    int sides; /* 2, or 1 for plain text */
    const char *folder,
        *encoding; /* folder of relative paths, or ""; name of iconv, or two: "latin1,utf-8" */
    /* NULL, or the option that sets another encoding for these files: `encoding` is that of the
     * training text, and a file that is UTF-8 is refused */
    const char *own_encoding;
    nm_pair_format format;
    const char *languages[NM_PAIR_SIDES];
    const char *fields[NM_PAIR_SIDES]; /* columns or fields; "": the language, or "text" for plain text */
    bool decode_entities;              /* in XML and SGML */
    /* of plain text; a JSON object is a document, whose newlines are kept unless the unit is the line */
    nm_document_rule documents;
} nm_pair_config;

typedef struct nm_pair_input {
    const nm_pair_config *config;
    char *paths[NM_PAIR_SIDES]; /* the same path twice for a table or JSON lines */
    FILE *streams[NM_PAIR_SIDES];
    nm_pair_format format;          /* not NM_PAIR_AUTO */
    nm_markup lines[NM_PAIR_SIDES]; /* for JSON lines the first one only */
    nm_documents documents;         /* used instead of `lines`, unless the unit is the line */
    nm_delimited table;
    size_t columns[NM_PAIR_SIDES];  /* indexes of the columns of the table */
    char *described;                /* which columns are read, once the first row is known; NULL: no table */
    size_t n_columns;               /* number of fields of its first row, and of all others */
    nm_buffer texts[NM_PAIR_SIDES]; /* copies of the fields of a table or object */
    const char *sentences[NM_PAIR_SIDES]; /* the current pair; those of files of lines may be invalid UTF-8 */
    size_t bytes[NM_PAIR_SIDES];          /* lengths of the sentences */
    int64_t line[NM_PAIR_SIDES];          /* their lines in the files, from 1 */
    int64_t n_read[NM_PAIR_SIDES];        /* number of lines, rows or objects read, not of documents */
    bool has_returns[NM_PAIR_SIDES];      /* the first one contains a carriage return */
    bool invalid; /* the row or object that was read last is malformed; its sentences are empty */
} nm_pair_input;

/* Whether a source (see nm_pair_input_open) names a file. config: nm_pair_config. For nm_path_list_next. */
bool nm_pair_source_exists(const void *config, const char *source);
/* Whether a file of a source has markup (text/markup.h). */
bool nm_pair_source_has_markup(const nm_pair_config *config, const char *source);
/* source: PREFIX of the files PREFIX.de and PREFIX.en; a name that contains {lang} in place of the language;
 * two names separated by a colon; or a table. config must outlive the input. NM_IO, NM_USAGE, and the errors
 * of nm_text_open. The caller closes the input, also after an error. */
nm_status nm_pair_input_open(nm_pair_input *input, const char *source, const nm_pair_config *config,
                             nm_error *err);
/* Reads the next pair, which is valid until the next call; *more is false at the end. NM_MISMATCH if the
 * sides have different numbers of sentences; NM_FORMAT with file and line; NM_USAGE for a missing column;
 * NM_IO. After NM_FORMAT with input->invalid, the next call reads the pair after the malformed row or object;
 * it is not the first one of the file. */
nm_status nm_pair_input_next(nm_pair_input *input, bool *more, nm_error *err);
void nm_pair_input_close(nm_pair_input *input);
