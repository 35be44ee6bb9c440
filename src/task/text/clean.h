/* Cleaning of raw text before tokenization, as by the scripts of Moses for the WMT corpora. */
#pragma once

#include "norma/choice.h"
#include "base/buffer.h"

/* clang-format off */
#define NM_PUNCTUATIONS(C) \
    C(NM_PUNCTUATION_KEEP, "keep") C(NM_PUNCTUATION_APOSTROPHE, "apostrophe") C(NM_PUNCTUATION_MOSES, "moses")
/* clang-format on */
NM_CHOICES(nm_punctuation, NM_PUNCTUATIONS);

typedef struct nm_clean_options {
    /* keep: no change. apostrophe: U+2019 becomes ', as in fairseq's scripts for test sets. moses:
     * normalize-punctuation.perl, which normalizes quotes, dashes and spaces around punctuation depending on
     * the language. */
    nm_punctuation punctuation;
    bool non_printing; /* remove-non-printing-char.perl: characters of the Unicode category C become spaces */
    const char *language; /* code such as "de"; copied */
} nm_clean_options;

typedef struct nm_cleaner {
    nm_punctuation punctuation;
    bool non_printing;
    char language[8];
    nm_buffer text, next; /* each substitution reads text and writes next, then they are swapped */
} nm_cleaner;

void nm_cleaner_init(nm_cleaner *cleaner, const nm_clean_options *options);
void nm_cleaner_release(nm_cleaner *cleaner);
/* Whether any step is enabled. */
static inline bool nm_cleaner_is_active(const nm_cleaner *cleaner)
{
    return cleaner->punctuation != NM_PUNCTUATION_KEEP || cleaner->non_printing;
}
/* Cleans a line of valid UTF-8 without newline and zero bytes. The result is valid until the next call. */
const nm_buffer *nm_clean(nm_cleaner *cleaner, const char *line, size_t bytes);
