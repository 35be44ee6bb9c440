/* The tokenizer ja-mecab. libmecab is loaded on first use, so that Norma does not depend on it. */
#include <dlfcn.h>
#include <stdlib.h>

#include "metric/metric_tokenizer.h"

static const char library_name[] = "libmecab.so.2", default_dictionary[] = "/var/lib/mecab/dic/ipadic-utf8";
enum { IPA_WORDS = 392126, IPA_WORDS_DEBIAN = 392127 };

/* The parts of mecab.h that are used. */
typedef struct mecab_t mecab_t;
typedef struct dictionary_info {
    const char *filename, *charset;
    unsigned int size;
} dictionary_info;

typedef struct mecab {
    void *library;
    mecab_t *tagger;
    mecab_t *(*create)(const char *arguments);
    void (*destroy)(mecab_t *);
    const char *(*parse)(mecab_t *, const char *text, size_t bytes);
    const dictionary_info *(*info)(mecab_t *);
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

/* C has no conversion from an object pointer to a function pointer. */
static bool load(mecab *self, const char *name, void *function)
{
    void *symbol = dlsym(self->library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol;
}

static nm_status start(mecab *self, const char *dictionary, nm_error *err)
{
    static const char cure[] =
        "its Debian packages are libmecab2 and mecab-ipadic-utf8; --tokenize char needs none";
    self->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!self->library || !load(self, "mecab_new2", &self->create) ||
        !load(self, "mecab_destroy", &self->destroy) || !load(self, "mecab_sparse_tostr2", &self->parse) ||
        !load(self, "mecab_dictionary_info", &self->info))
        return nm_fail(err, NM_UNSUPPORTED, "the tokenizer ja-mecab needs MeCab (%s): %s", library_name,
                       cure);
    char *arguments = nm_format("-r /dev/null -d %s -Owakati", dictionary);
    self->tagger = self->create(arguments);
    free(arguments);
    if (!self->tagger)
        return nm_fail(err, NM_UNSUPPORTED, "%s: no dictionary of MeCab; %s", dictionary, cure);
    const dictionary_info *info = self->info(self->tagger);
    if (!info || (info->size != IPA_WORDS && info->size != IPA_WORDS_DEBIAN) ||
        strcasecmp(info->charset, "UTF-8"))
        return nm_fail(err, NM_MISMATCH,
                       "%s: not the IPA dictionary of MeCab in UTF-8 (%d words), which ja-mecab requires",
                       dictionary, IPA_WORDS);
    return NM_OK;
}

static nm_status open_mecab(const nm_metric_tokenizer_config *config, void **state, nm_error *err)
{
    mecab *self = nm_allocate(sizeof *self);
    bool given = config->dictionary && *config->dictionary;
    nm_status status = start(self, given ? config->dictionary : default_dictionary, err);
    if (status == NM_OK)
        *state = self;
    else
        close_mecab(self);
    return status;
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

const nm_metric_tokenizer_type nm_metric_tokenizer_mecab = {
    .name = "ja-mecab", .open = open_mecab, .tokenize = run_mecab, .close = close_mecab};
