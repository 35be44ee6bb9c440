/* Files inside archives (tar, tar.gz, zip and others), read by libarchive, which is loaded when it is used. */
#ifndef NM_ARCHIVE_H
#define NM_ARCHIVE_H

#include "base/file.h"

/* Bytes of the name of the archive if the path leads through one, such as 6 for "de.tgz/texts/train.de": no file has the whole
 * path, but a regular file has its beginning. Otherwise 0. */
size_t nm_archive_prefix(const char *path);

typedef struct nm_archive nm_archive;

/* Opens the archive and searches its member. NM_UNSUPPORTED without libarchive; NM_IO for a missing member, with the nearest
 * one; NM_FORMAT for a file that is no archive. */
nm_status nm_archive_open(nm_archive **archive, const char *path, nm_error *err);
/* Opens the archive before its first member. NM_IO: there is no such file; NM_UNSUPPORTED, NM_FORMAT. */
nm_status nm_archive_open_all(nm_archive **archive, const char *file, nm_error *err);
/* The name of the next member, valid until the next call; NULL after the last one. NM_FORMAT. */
nm_status nm_archive_next(nm_archive *archive, const char **name, nm_error *err);
/* The next bytes of the member, at most n; 0 at its end, -1 with errno EBADMSG for damaged data. */
ssize_t nm_archive_read(nm_archive *archive, char *out, size_t n);
void nm_archive_close(nm_archive *archive);

#endif
