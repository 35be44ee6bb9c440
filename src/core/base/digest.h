/* SHA-256 of files, for manifests that other programs verify, and the fingerprint of this build. */
#pragma once

#include <nettle/sha2.h>

#include "norma/status.h"

enum { NM_DIGEST_TEXT = 2 * SHA256_DIGEST_SIZE + 1 }; /* lowercase hexadecimal digits and a NUL */

/* The digest of the bytes that have been added. */
typedef struct nm_digest {
    struct sha256_ctx context;
} nm_digest;

void nm_digest_init(nm_digest *digest);
/* Adds the bytes first .. last - 1 of a file.
 * NM_IO  the file cannot be read, or is shorter */
nm_status nm_digest_add_part(nm_digest *digest, const char *path, int64_t first, int64_t last, nm_error *err);
/* More bytes may be added afterwards. */
void nm_digest_text(const nm_digest *digest, char text[NM_DIGEST_TEXT]);

void nm_digest_of_text(const char *bytes, char text[NM_DIGEST_TEXT]);
/* NM_IO  the file cannot be read */
nm_status nm_digest_of_file(const char *path, char text[NM_DIGEST_TEXT], nm_error *err);

enum { NM_BUILD_TEXT = 65 };
/* The build ID that the linker has computed of the program or library that contains this function: equal for
 * equal files only. "unknown" if it has none. */
void nm_build_id(char text[NM_BUILD_TEXT]);
