/* Tagging of sentences with spans, such as named entities, or of tokens with classes, such as parts of
 * speech, with a trained model. examples/tag.c is a complete program.
 *
 * A tagger may be used by any number of threads at the same time: they share the weights, and each call has
 * its own workspace, which is kept for later calls. The tags of a sentence depend on the sentence only; they
 * are independent of the other sentences, of the number of threads and of concurrent calls. */
#ifndef NORMA_TAGGER_H
#define NORMA_TAGGER_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_tagger nm_tagger;
typedef struct nm_tagged nm_tagged; /* the sentences of one call */

/* Opens a model file or a run folder, of which the best model is used, or else the last one. options:
 * alternating names and values that end with NULL, or NULL: tag.scheme (auto: as in the model's training
 * file; bio, iob1, bioes, bmeso, bilou, io) and options of [device], see norma/translator.h. err may be NULL.
 *
 * NM_USAGE: unknown option or value, or NULL
 * NM_IO: the file cannot be read
 * NM_FORMAT: it is malformed
 * NM_UNSUPPORTED: a model of another task
 * NM_MISMATCH: tag.scheme has spans and the tags of the model are classes, or the reverse
 * NM_MEMORY */
NM_API nm_status nm_tagger_open(nm_tagger **tagger, const char *path, const char *const *options,
                                nm_error *err);
/* No call may be in progress. Results remain valid. NULL is accepted. */
NM_API void nm_tagger_close(nm_tagger *tagger);

/* As nm_translator_option and nm_translator_warning; valid until nm_tagger_close. */
NM_API const char *nm_tagger_option(const nm_tagger *tagger, const char *name);
NM_API const char *nm_tagger_warning(const nm_tagger *tagger);

/* As nm_translator_stop and nm_translator_set_proceed (norma/translator.h). */
NM_API void nm_tagger_stop(nm_tagger *tagger);
NM_API void nm_tagger_set_proceed(nm_tagger *tagger, bool (*proceed)(void *user), void *user);

/* Tagging scheme of the model's training file, such as "bio", or "none" for classes without spans. Models of
 * earlier versions: "bio". */
NM_API const char *nm_tagger_file_scheme(const nm_tagger *tagger);

/* Number of tags of the model in its scheme, and each of them; NULL for one that does not exist. Valid until
 * nm_tagger_close. */
NM_API size_t nm_tagger_n_tags(const nm_tagger *tagger);
NM_API const char *nm_tagger_tag(const nm_tagger *tagger, size_t index);

/* Tags n sentences of tokens, UTF-8. tokens: of all sentences, one after another; lengths [n]: their numbers.
 * *tagged is set on success only; free it with nm_tagged_free.
 *
 * NM_FORMAT: not UTF-8, empty, or with a line break; the message has the index of the token (from 0)
 * NM_FORMAT: a sentence of more than 65536 tokens
 * NM_USAGE: an argument is NULL
 * NM_DIVERGED: the model's logits are not finite
 * NM_INTERRUPTED
 * NM_MEMORY */
NM_API nm_status nm_tagger_run(nm_tagger *tagger, const char *const *tokens, const size_t *lengths, size_t n,
                               nm_tagged **tagged, nm_error *err);
/* NULL is accepted. */
NM_API void nm_tagged_free(nm_tagged *tagged);

/* A span of tokens first .. end - 1 of a sentence. */
typedef struct nm_tagged_span {
    size_t first, end;
    const char *label; /* "PER"; "" of tags that are marks alone */
} nm_tagged_span;

/* The accessors below return 0, NULL or false for a sentence, token or span that does not exist. What they
 * return is valid until nm_tagged_free. */

/* Number of sentences of the call, and of the tokens of a sentence. */
NM_API size_t nm_tagged_n(const nm_tagged *tagged);
NM_API size_t nm_tagged_length(const nm_tagged *tagged, size_t sentence);
/* The tag of a token as the training file has it, or in tag.scheme: "B-PER", "O", "B", "NN". */
NM_API const char *nm_tagged_tag(const nm_tagged *tagged, size_t sentence, size_t token);
/* Number of spans of a sentence, and each of them; no spans if the tags are classes. */
NM_API size_t nm_tagged_n_spans(const nm_tagged *tagged, size_t sentence);
NM_API bool nm_tagged_get_span(const nm_tagged *tagged, size_t sentence, size_t index, nm_tagged_span *span);
/* Whether the sentence has more tokens than the model has positions and was therefore tagged in pieces. */
NM_API bool nm_tagged_in_pieces(const nm_tagged *tagged, size_t sentence);

#ifdef __cplusplus
}
#endif
#endif
