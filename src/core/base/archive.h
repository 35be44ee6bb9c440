/* Files inside archives (zip, and tar with gzip, bzip2, xz or zstd), read by libarchive, which is loaded on
 * first use. */
#pragma once

#include "base/file.h"

/* Length in bytes of the archive's part of a path to a file in an archive, for example 6 for
 * "de.tgz/texts/train.de". A path is one if it does not exist itself and one of its parent paths is a regular
 * file; 0 otherwise. */
size_t nm_archive_prefix(const char *path);

typedef struct nm_archive nm_archive;

/* Opens the archive of a path with a positive nm_archive_prefix and searches the member that the rest of
 * the path names;
 * nm_archive_read then returns its data. NM_UNSUPPORTED without libarchive; NM_IO for a missing member, the
 * message names the
 * most similar one; NM_FORMAT for a file that is not an archive. A link to another member is followed;
 * NM_UNSUPPORTED for other links,
 * folders and devices. *archive is NULL after an error. */
nm_status nm_archive_open(nm_archive **archive, const char *path, nm_error *err);
/* Whether the archive of such a path can be read and has the member, which may be a link. */
bool nm_archive_contains(const char *path);
/* Opens a zip archive before its first member. NM_IO: there is no such file; NM_UNSUPPORTED, NM_FORMAT as
 * above. */
nm_status nm_archive_open_zip(nm_archive **archive, const char *file, nm_error *err);
/* Advances to the next member. *name is its path without a leading "./", valid until the next call; NULL
 * after the last
 * member. NM_FORMAT for damaged data. */
nm_status nm_archive_next(nm_archive *archive, const char **name, nm_error *err);
/* Reads at most n bytes of the current member. Returns their number, 0 at its end, -1 with errno EBADMSG for
 * damaged data. */
ssize_t nm_archive_read(nm_archive *archive, char *out, size_t n);
void nm_archive_close(nm_archive *archive);
