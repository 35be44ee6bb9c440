/* Text files as streams of UTF-8: gzip, xz and zstd files are decompressed while they are read (each if Norma
 * was built with its library), and other encodings are converted (iconv). A path may name a file in an
 * archive: "de-en.tgz/de-en/train.de". */
#pragma once

#include "base/file.h"
#include "norma/choice.h"

/* Suffixes of the names of compressed files, "" first, NULL-terminated. */
extern const char *const nm_compressed_suffixes[];
/* Whether the path ends in `ending`, optionally followed by the suffix of a compressed file. Case is
 * ignored. */
bool nm_text_ends_in(const char *path, const char *ending);

/* Opens a file for reading; "-" is standard input. Compression is recognized by the first bytes, not by the
 * name; the call waits for the first byte of a pipe or a terminal. encoding: a name of iconv such as "latin1"
 * or "utf-16"; NULL, "" and "utf-8": the bytes are not converted (the reader checks them). The caller closes
 * the stream with fclose unless it is stdin. NM_IO; NM_USAGE for an unknown encoding; NM_UNSUPPORTED for a
 * compression whose library Norma was built without, the message names the package; NM_FORMAT for bzip2 and
 * zip files; the errors of nm_archive_open.
 *
 * Reading the stream fails with errno EBADMSG for damaged or truncated compressed data, and with EILSEQ for
 * bytes that are not valid in the encoding; nm_input_error_text describes both. */
nm_status nm_text_open(FILE **stream, const char *path, const char *encoding, nm_error *err);
/* NM_FORMAT if the stream, of which nothing has been read, is UTF-16 that is not converted; NM_IO. path,
 * encoding: those of nm_text_open. Waits for at most the first line of a pipe or a terminal. */
nm_status nm_text_refuse_utf16(FILE *stream, const char *path, const char *encoding, nm_error *err);
/* If the encoding is another one, checks that the beginning of a file is not UTF-8 with characters beyond
 * ASCII; a pipe is not read. NM_USAGE names the option, which sets the encoding of the file. */
nm_status nm_text_refuse_utf8(const char *path, const char *encoding, const char *option, nm_error *err);

/* nm_text_open, and NM_FORMAT for UTF-16 that is not converted. Waits for at most the first line of a pipe or
 * a terminal. */
nm_status nm_text_open_checked(FILE **stream, const char *path, const char *encoding, nm_error *err);

/* The row of an option `encoding` of commands that read text. */
#define NM_TEXT_ENCODING_OPTION(type)                                                                        \
    NM_OPTION(type, encoding, "utf-8", 0, 0,                                                                 \
              "Encoding of the input, a name of iconv such as latin1; the output is UTF-8.")

/* The option on_invalid: treatment of input that is not UTF-8. */
#define NM_ON_INVALID_CHOICES(C) C(NM_INVALID_IS_ERROR, "error") C(NM_INVALID_IS_SKIPPED, "skip")
NM_CHOICES(nm_on_invalid, NM_ON_INVALID_CHOICES);

/* The path for messages: "standard input" for "-". */
const char *nm_input_name(const char *path);
