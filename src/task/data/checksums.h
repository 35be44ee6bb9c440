/* Checksums of the files of a data folder except token files, which contain a fingerprint (data/corpus.h):
 * dictionaries, BPE codes, SentencePiece models, tokenized lines, data.ini. NM_CHECKSUMS_NAME has a line for
 * each file: XXH3-128 as 32 hexadecimal digits, two spaces, the name. The last line is that of data.ini.
 * `xxh128sum -c` verifies it. */
#pragma once

#include "base/buffer.h"

#define NM_CHECKSUMS_NAME "checksums.xxh128"

/* Appends the line of a file to the list. */
void nm_checksums_add(nm_buffer *list, const char *name, const void *data, size_t bytes);
/* NM_FORMAT if the list is incomplete, or if a file in it is missing or has changed. A folder without a list
 * is accepted, because earlier versions did not write one. */
nm_status nm_checksums_verify(const char *folder, nm_error *err);
