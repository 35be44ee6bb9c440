#include "api/translations.h"

#include <stdlib.h>

#include "base/memory.h"

static void translated_release(nm_translated *one)
{
    nm_free_list(one->tokens, one->n_tokens);
    NM_FREE(one->token_scores, one->words, one->text);
}

void nm_translations_free(nm_translations *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->n; i++) {
        for (size_t k = 0; k < self->texts[i].n; k++)
            translated_release(&self->texts[i].list[k]);
        free(self->texts[i].list);
    }
    NM_FREE(self->texts, self);
}

size_t nm_translations_n(const nm_translations *self)
{
    return self ? self->n : 0;
}

size_t nm_translations_count(const nm_translations *self, size_t text)
{
    return self && text < self->n ? self->texts[text].n : 0;
}

bool nm_translations_too_long(const nm_translations *self, size_t text)
{
    return self && text < self->n && self->texts[text].too_long;
}

static const nm_translated *find(const nm_translations *self, size_t text, size_t rank)
{
    return rank < nm_translations_count(self, text) ? &self->texts[text].list[rank] : NULL;
}

const char *nm_translations_text(const nm_translations *self, size_t text, size_t rank)
{
    const nm_translated *one = find(self, text, rank);
    return one ? one->text : NULL;
}

double nm_translations_score(const nm_translations *self, size_t text, size_t rank)
{
    const nm_translated *one = find(self, text, rank);
    return one ? one->score : 0;
}

size_t nm_translations_n_tokens(const nm_translations *self, size_t text, size_t rank)
{
    const nm_translated *one = find(self, text, rank);
    return one ? one->n_tokens : 0;
}

const char *nm_translations_token(const nm_translations *self, size_t text, size_t rank, size_t token)
{
    const nm_translated *one = find(self, text, rank);
    return one && token < one->n_tokens ? one->tokens[token] : NULL;
}

const double *nm_translations_token_scores(const nm_translations *self, size_t text, size_t rank)
{
    const nm_translated *one = find(self, text, rank);
    return one ? one->token_scores : NULL;
}

size_t nm_translations_n_words(const nm_translations *self, size_t text, size_t rank)
{
    const nm_translated *one = find(self, text, rank);
    return one ? one->n_words : 0;
}

const nm_translation_word *nm_translations_words(const nm_translations *self, size_t text, size_t rank)
{
    const nm_translated *one = find(self, text, rank);
    return one ? one->words : NULL;
}
