/* Streams that decompress and convert, built with fopencookie: each reads from the stream below it. */
#include "base/text_input.h"

#include <errno.h>
#include <iconv.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/archive.h"
#include "base/memory.h"
#include "base/utf8_check.h"

#ifdef NORMA_ZLIB
#include <zlib.h>
#endif
#ifdef NORMA_LZMA
#include <lzma.h>
#endif
#ifdef NORMA_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

enum { CHUNK = 1 << 16 };

/* Input of a codec: bytes [at, n) have been read from the stream below and not been decoded. */
typedef struct source {
    FILE *stream;
    unsigned char *bytes;
    size_t at, n;
    bool ended;
    int error; /* errno of the first failed read; 0: none */
} source;

/* Decodes up to n bytes to out. Returns their number, 0 at the end, -1 with errno after an error. */
typedef ssize_t (*decode_function)(void *state, source *from, char *out, size_t n);

typedef struct codec {
    const char *name, *package; /* "gzip", "zlib1g-dev"; package NULL: not supported */
    const char *magic;          /* first bytes of a file */
    void *(*open)(void);        /* returns NULL without memory. NULL: Norma was built without the library */
    decode_function decode;
    void (*close)(void *state);
} codec;

typedef struct layer { /* cookie of a stream */
    source from;
    decode_function decode;
    void (*close)(void *state);
    void *state;
} layer;

/* Reads more input unless the buffer is full. False with errno after an error. */
static bool fill(source *from)
{
    if (from->at) {
        memmove(from->bytes, from->bytes + from->at, from->n - from->at);
        from->n -= from->at;
        from->at = 0;
    }
    if (from->ended || from->n == CHUNK)
        return true;
    errno = 0;
    size_t more = fread(from->bytes + from->n, 1, CHUNK - from->n, from->stream);
    from->n += more;
    from->ended = !more;
    if (ferror(from->stream) && !from->error)
        from->error = errno ? errno : EIO;
    if (more || !from->error)
        return true;
    errno = from->error; /* possibly of an earlier call that still returned bytes */
    return false;
}

#if defined NORMA_ZLIB || defined NORMA_LZMA || defined NORMA_ZSTD
static ssize_t bad_data(void)
{
    errno = EBADMSG;
    return -1;
}

static ssize_t no_memory(void)
{
    errno = ENOMEM;
    return -1;
}
#endif

#ifdef NORMA_ZLIB
typedef struct gzip {
    z_stream stream;
    bool ended; /* at the end of a member */
} gzip;

static void *gzip_open(void)
{
    enum { GZIP = 16 };
    gzip *self = nm_allocate(sizeof *self);
    if (inflateInit2(&self->stream, MAX_WBITS + GZIP) == Z_OK)
        return self;
    free(self);
    return NULL;
}

static ssize_t gzip_decode(void *state, source *from, char *out, size_t n)
{
    gzip *self = state;
    for (;;) {
        if (!fill(from))
            return -1;
        while (self->ended && from->at < from->n && !from->bytes[from->at]) /* padding to whole blocks */
            from->at++;
        if (self->ended && from->at == from->n && !from->ended)
            continue;
        if (from->n == from->at)
            return self->ended ? 0 : bad_data();
        if (self->ended) /* another member follows */
            inflateReset(&self->stream);
        self->ended = false;
        self->stream.next_in = from->bytes + from->at;
        self->stream.avail_in = (uInt)(from->n - from->at);
        self->stream.next_out = (Bytef *)out;
        self->stream.avail_out = (uInt)n;
        int result = inflate(&self->stream, Z_NO_FLUSH);
        from->at = from->n - self->stream.avail_in;
        if (result == Z_MEM_ERROR)
            return no_memory();
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return bad_data();
        self->ended = result == Z_STREAM_END;
        if (n > self->stream.avail_out)
            return (ssize_t)(n - self->stream.avail_out);
    }
}

static void gzip_close(void *state)
{
    inflateEnd(&((gzip *)state)->stream);
    free(state);
}
#define GZIP_FUNCTIONS gzip_open, gzip_decode, gzip_close
#else
#define GZIP_FUNCTIONS NULL, NULL, NULL
#endif

#ifdef NORMA_LZMA
static void *xz_open(void)
{
    enum { MEMORY = 1 << 30 }; /* xz -9 needs 65 MiB; a file can require 4 GiB */
    lzma_stream *self = nm_allocate(sizeof *self);
    *self = (lzma_stream)LZMA_STREAM_INIT;
    if (lzma_stream_decoder(self, MEMORY, LZMA_CONCATENATED) == LZMA_OK)
        return self;
    free(self);
    return NULL;
}

static ssize_t xz_decode(void *state, source *from, char *out, size_t n)
{
    lzma_stream *self = state;
    for (;;) {
        if (!fill(from))
            return -1;
        self->next_in = from->bytes + from->at;
        self->avail_in = from->n - from->at;
        self->next_out = (uint8_t *)out;
        self->avail_out = n;
        lzma_ret result = lzma_code(self, from->ended ? LZMA_FINISH : LZMA_RUN);
        from->at = from->n - self->avail_in;
        if (result == LZMA_MEM_ERROR || result == LZMA_MEMLIMIT_ERROR)
            return no_memory();
        if (result != LZMA_OK && result != LZMA_STREAM_END)
            return bad_data();
        if (n > self->avail_out || result == LZMA_STREAM_END)
            return (ssize_t)(n - self->avail_out);
    }
}

static void xz_close(void *state)
{
    lzma_end(state);
    free(state);
}
#define XZ_FUNCTIONS xz_open, xz_decode, xz_close
#else
#define XZ_FUNCTIONS NULL, NULL, NULL
#endif

#ifdef NORMA_ZSTD
typedef struct zstd {
    ZSTD_DStream *stream;
    bool inside; /* a frame */
} zstd;

static void *zstd_open(void)
{
    zstd *self = nm_allocate(sizeof *self);
    self->stream = ZSTD_createDStream();
    if (self->stream)
        return self;
    free(self);
    return NULL;
}

static ssize_t zstd_decode(void *state, source *from, char *out, size_t n)
{
    zstd *self = state;
    for (;;) {
        if (!fill(from))
            return -1;
        ZSTD_inBuffer input = {from->bytes, from->n, from->at};
        ZSTD_outBuffer output = {out, n, 0};
        bool more_input = input.pos < input.size;
        if (!more_input && !self->inside)
            return 0;
        size_t result = ZSTD_decompressStream(self->stream, &output, &input);
        from->at = input.pos;
        if (ZSTD_isError(result))
            return ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation ? no_memory() : bad_data();
        self->inside = result != 0;
        if (output.pos)
            return (ssize_t)output.pos;
        if (!more_input && self->inside)
            return bad_data();
    }
}

static void zstd_close(void *state)
{
    ZSTD_freeDStream(((zstd *)state)->stream);
    free(state);
}
#define ZSTD_FUNCTIONS zstd_open, zstd_decode, zstd_close
#else
#define ZSTD_FUNCTIONS NULL, NULL, NULL
#endif

static const codec codecs[] = {{"gzip", "zlib1g-dev", "\37\213", GZIP_FUNCTIONS},
                               {"xz", "liblzma-dev", "\3757zXZ", XZ_FUNCTIONS},
                               {"zstd", "libzstd-dev", "\50\265\57\375", ZSTD_FUNCTIONS},
                               {"bzip2", NULL, "BZh", NULL, NULL, NULL},
                               {"zip", NULL, "PK\3\4", NULL, NULL, NULL}};

static ssize_t convert(void *state, source *from, char *out, size_t n)
{
    char *to = out;
    size_t space = n;
    while (space == n) {
        if (!fill(from))
            return -1;
        if (from->n == from->at)
            return 0;
        char *next = (char *)from->bytes + from->at;
        size_t bytes = from->n - from->at;
        size_t result = iconv(state, &next, &bytes, &to, &space);
        int error = result == (size_t)-1 ? errno : 0;
        from->at = from->n - bytes;
        /* EINVAL: an incomplete character at the end of the input; E2BIG: the output is full */
        if (space < n || error == E2BIG)
            break;
        if (error && !(error == EINVAL && !from->ended)) {
            errno = EILSEQ;
            return -1;
        }
    }
    return (ssize_t)(n - space);
}

static void close_converter(void *state)
{
    iconv_close(state);
}

static ssize_t layer_read(void *cookie, char *out, size_t n)
{
    layer *self = cookie;
    return self->decode(self->state, &self->from, out, n);
}

static int layer_close(void *cookie)
{
    layer *self = cookie;
    self->close(self->state);
    bool closes = self->from.stream && self->from.stream != stdin;
    int result = closes ? fclose(self->from.stream) : 0;
    NM_FREE(self->from.bytes, self);
    return result;
}

/* Replaces *stream by one that decodes it, which owns the state. */
static nm_status add_layer(FILE **stream, const char *path, decode_function decode, void (*close)(void *),
                           void *state, nm_error *err)
{
    if (!state)
        return nm_fail(err, NM_MEMORY, "%s: out of memory", path);
    layer *self = nm_allocate(sizeof *self);
    *self = (layer){{.stream = *stream, .bytes = nm_allocate(CHUNK)}, decode, close, state};
    FILE *decoded = fopencookie(self, "r", (cookie_io_functions_t){.read = layer_read, .close = layer_close});
    if (!decoded) {
        close(state);
        NM_FREE(self->from.bytes, self);
        return nm_fail(err, NM_MEMORY, "%s: out of memory", path);
    }
    setvbuf(decoded, NULL, _IOFBF, CHUNK);
    *stream = decoded;
    return NM_OK;
}

static ssize_t read_member(void *state, source *from, char *out, size_t n)
{
    (void)from;
    return nm_archive_read(state, out, n);
}

static void close_member(void *state)
{
    nm_archive_close(state);
}

static nm_status open_member(FILE **stream, const char *path, nm_error *err)
{
    nm_archive *archive;
    NM_TRY(nm_archive_open(&archive, path, err));
    FILE *member = NULL;
    NM_TRY(add_layer(&member, path, read_member, close_member, archive, err));
    *stream = member;
    return NM_OK;
}

/* The codec whose first bytes the stream has, or NULL. Stops at a byte that is not one of a codec, so that a
 * pipe or a terminal is never waited for beyond the end of its first line. */
static const codec *recognize(FILE *stream)
{
    enum { LONGEST = 5 };
    char start[LONGEST];
    size_t n = 0;
    const codec *found = NULL;
    bool possible = true;
    for (int byte; possible && !found && n < LONGEST && (byte = getc(stream)) != EOF;) {
        start[n++] = (char)byte;
        possible = false;
        for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
            bool agrees = n <= strlen(codecs[i].magic) && !memcmp(start, codecs[i].magic, n);
            possible |= agrees;
            if (agrees && n == strlen(codecs[i].magic))
                found = &codecs[i];
        }
    }
    for (; n > 0; n--) /* glibc accepts as many bytes as its buffer has */
        ungetc((unsigned char)start[n - 1], stream);
    return found;
}

static nm_status decompress(FILE **stream, const char *path, nm_error *err)
{
    const codec *type = recognize(*stream);
    if (!type)
        return NM_OK;
    if (!type->package)
        return nm_fail(err, NM_FORMAT, "%s: compressed by %s, which Norma does not read; unpack it first",
                       path, type->name);
    if (!type->open)
        return nm_fail(err, NM_UNSUPPORTED,
                       "%s: compressed by %s; unpack it first, or build Norma with the package %s", path,
                       type->name, type->package);
    return add_layer(stream, path, type->decode, type->close, type->open(), err);
}

static bool is_unconverted(const char *encoding)
{
    return !encoding || !*encoding || !strcasecmp(encoding, "utf-8") || !strcasecmp(encoding, "utf8");
}

static nm_status add_encoding(FILE **stream, const char *path, const char *encoding, nm_error *err)
{
    if (is_unconverted(encoding))
        return NM_OK;
    iconv_t converter = iconv_open("UTF-8", encoding);
    if (converter == (iconv_t)-1 && errno == ENOMEM)
        return nm_fail(err, NM_MEMORY, "%s: out of memory", path);
    if (converter == (iconv_t)-1)
        return nm_fail(err, NM_USAGE, "%s: unknown encoding \"%.40s\"; iconv --list prints the known ones",
                       path, encoding);
    return add_layer(stream, path, convert, close_converter, converter, err);
}

/* "utf-16", "utf-16le" or "utf-16be" if the stream, of which nothing has been read, begins with the byte
 * order mark of UTF-16 or with two ASCII characters of it, the first of which is not a newline; otherwise
 * NULL. */
static const char *find_utf16(FILE *stream)
{
    enum { BYTES = 4 };
    unsigned char start[BYTES] = {0};
    int n = 0;
    /* ends with a first character of UTF-8, so that a pipe or a terminal is not waited for after its first
     * line */
    for (int byte; n < BYTES && !(n == 1 && start[0] == '\n') && !(n == 2 && start[0] && start[1]) &&
                   (byte = getc(stream)) != EOF;)
        start[n++] = (unsigned char)byte;
    for (int i = n; i > 0; i--) /* see recognize */
        ungetc(start[i - 1], stream);
    bool odd = start[0] && start[2], even = start[1] && start[3];
    if (n >= 2 && ((start[0] == 0xFF && start[1] == 0xFE) || (start[0] == 0xFE && start[1] == 0xFF)))
        return "utf-16";
    if (n < BYTES || odd == even || (odd ? start[1] || start[3] : start[0] || start[2]))
        return NULL;
    return odd ? "utf-16le" : "utf-16be";
}

const char *nm_input_name(const char *path)
{
    return strcmp(path, "-") ? path : "standard input";
}

nm_status nm_text_refuse_utf16(FILE *stream, const char *path, const char *encoding, nm_error *err)
{
    errno = 0;
    const char *found = is_unconverted(encoding) ? find_utf16(stream) : NULL;
    if (ferror(stream))
        return nm_fail(err, nm_input_error_status(errno), "%s:1: reading failed: %s", nm_input_name(path),
                       nm_input_error_text(errno));
    return found ? nm_fail(err, NM_FORMAT, "%s: is UTF-16, not UTF-8: --encoding %s is required",
                           nm_input_name(path), found)
                 : NM_OK;
}

nm_status nm_text_refuse_utf8(const char *path, const char *encoding, const char *option, nm_error *err)
{
    enum { EXAMINED = 1 << 16, LONGEST = 4 };
    struct stat found;
    FILE *stream;
    if (is_unconverted(encoding) || stat(path, &found) || !S_ISREG(found.st_mode))
        return NM_OK;
    NM_TRY(nm_text_open(&stream, path, "", err));
    NM_AUTO_FREE char *text = nm_allocate(EXAMINED);
    const size_t bytes = fread(text, 1, EXAMINED, stream), valid = nm_utf8_find_invalid(text, bytes);
    bool beyond_ascii = false;
    fclose(stream);
    for (size_t i = 0; i < valid; i++)
        beyond_ascii |= (unsigned char)text[i] >= 0x80;
    if (!beyond_ascii || valid + (bytes == EXAMINED ? LONGEST : 1) <= bytes)
        return NM_OK;
    return nm_fail(
        err, NM_USAGE,
        "%s: is UTF-8, but the encoding %s of the training text would decode it: add %s utf-8 (or %s, "
        "if it is right)",
        path, encoding, option, encoding);
}

nm_status nm_text_open(FILE **stream, const char *path, const char *encoding, nm_error *err)
{
    bool member = nm_archive_prefix(path);
    NM_TRY(member ? open_member(stream, path, err) : nm_file_open(stream, path, "rb", err));
    const char *name = nm_input_name(path);
    nm_status status = member ? NM_OK : decompress(stream, name, err);
    NM_THEN(status, add_encoding(stream, name, encoding, err));
    if (status != NM_OK && *stream != stdin) {
        fclose(*stream);
        *stream = NULL;
    }
    return status;
}

nm_status nm_text_open_checked(FILE **stream, const char *path, const char *encoding, nm_error *err)
{
    NM_TRY(nm_text_open(stream, path, encoding, err));
    nm_status status = nm_text_refuse_utf16(*stream, path, encoding, err);
    if (status != NM_OK && *stream != stdin) {
        fclose(*stream);
        *stream = NULL;
    }
    return status;
}

const char *const nm_compressed_suffixes[] = {"", ".gz", ".xz", ".zst", ".bz2", NULL};

bool nm_text_ends_in(const char *path, const char *ending)
{
    bool found = false;
    for (size_t i = 0; nm_compressed_suffixes[i] && !found; i++) {
        NM_AUTO_FREE char *whole = nm_format("%s%s", ending, nm_compressed_suffixes[i]);
        size_t length = strlen(path), n = strlen(whole);
        found = length >= n && !strcasecmp(path + length - n, whole);
    }
    return found;
}
