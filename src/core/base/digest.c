#include "base/digest.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

void nm_digest_init(nm_digest *digest)
{
    sha256_init(&digest->context);
}

static void add_bytes(nm_digest *digest, const void *data, size_t bytes)
{
    sha256_update(&digest->context, bytes, data);
}

nm_status nm_digest_add_part(nm_digest *digest, const char *path, int64_t first, int64_t last, nm_error *err)
{
    enum { BLOCK = 1 << 16 };
    char block[BLOCK];
    FILE *stream;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    nm_status status = NM_OK;
    if (fseeko(stream, (off_t)first, SEEK_SET))
        status = nm_fail(err, NM_IO, "%s: %s", path, strerror(errno));
    while (status == NM_OK && first < last) {
        const size_t wanted = last - first < BLOCK ? (size_t)(last - first) : BLOCK;
        const size_t n = fread(block, 1, wanted, stream);
        add_bytes(digest, block, n);
        first += (int64_t)n;
        if (n < wanted && last < INT64_MAX)
            status = nm_fail(err, NM_IO, "%s: is too short", path);
        else if (n < wanted)
            last = first;
    }
    if (status == NM_OK && ferror(stream))
        status = nm_fail(err, NM_IO, "%s: reading failed", path);
    fclose(stream);
    return status;
}

static void format_bytes(const uint8_t *bytes, size_t n, char *text)
{
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void nm_digest_text(const nm_digest *digest, char text[NM_DIGEST_TEXT])
{
    nm_digest copy = *digest;
    uint8_t bytes[SHA256_DIGEST_SIZE];
    sha256_digest(&copy.context, sizeof bytes, bytes);
    format_bytes(bytes, sizeof bytes, text);
}

void nm_digest_of_text(const char *bytes, char text[NM_DIGEST_TEXT])
{
    nm_digest digest;
    nm_digest_init(&digest);
    add_bytes(&digest, bytes, strlen(bytes));
    nm_digest_text(&digest, text);
}

nm_status nm_digest_of_file(const char *path, char text[NM_DIGEST_TEXT], nm_error *err)
{
    nm_digest digest;
    nm_digest_init(&digest);
    NM_TRY(nm_digest_add_part(&digest, path, 0, INT64_MAX, err));
    nm_digest_text(&digest, text);
    return NM_OK;
}

/* Writes the build ID in the notes of a segment; false: there is none. */
static bool read_notes(const char *notes, size_t bytes, char *text)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        const char *name = notes + at + sizeof note, *content = name + (note.n_namesz + 3) / 4 * 4;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(name, "GNU", 4) &&
            2 * note.n_descsz < NM_BUILD_TEXT) {
            format_bytes((const uint8_t *)content, note.n_descsz, text);
            return true;
        }
        at = (size_t)(content - notes) + (note.n_descsz + 3) / 4 * 4;
    }
    return false;
}

static bool contains(const struct dl_phdr_info *object, uintptr_t address)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - object->dlpi_addr - segment->p_vaddr < segment->p_memsz)
            return true;
    }
    return false;
}

static int find_build_id(struct dl_phdr_info *object, size_t size, void *text)
{
    (void)size;
    if (!contains(object, (uintptr_t)&nm_build_id))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const char *notes = (const char *)(object->dlpi_addr + segment->p_vaddr); /* NOLINT: an address */
        if (segment->p_type == PT_NOTE && read_notes(notes, segment->p_memsz, text))
            break;
    }
    return 1;
}

void nm_build_id(char text[NM_BUILD_TEXT])
{
    snprintf(text, NM_BUILD_TEXT, "unknown");
    dl_iterate_phdr(find_build_id, text);
}
