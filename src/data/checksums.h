/* Checksums of the text files of a data folder: dictionaries, BPE codes, SentencePiece models, lines for BLEU, data.ini. Token
 * files contain a fingerprint (data/corpus.h). The file NM_CHECKSUMS_NAME has a line for each file: XXH3-128 as 32
 * hexadecimal digits, two spaces, the name; the last one is that of data.ini. `xxh128sum -c` reads it. */
#ifndef NM_CHECKSUMS_H
#define NM_CHECKSUMS_H

#include "text/buffer.h"

#define NM_CHECKSUMS_NAME "checksums.xxh128"

/* Appends the line of a file to the list. */
void nm_checksums_add(nm_buffer *list, const char *name, const void *data, size_t bytes);
/* NM_FORMAT if the list is not complete, or if a file that it names is missing or has other contents. A folder without a list is accepted:
 * earlier versions wrote none. */
nm_status nm_checksums_verify(const char *folder, nm_error *err);

#endif
