/* Classification of texts with a trained model. examples/classify.c is a complete program.
 *
 * A classifier may be used by any number of threads at the same time: they share the weights, and each call
 * has its own workspace, which is kept for later calls. A result depends on its text only; it is bitwise
 * independent of the other texts, of the number of threads and of concurrent calls. */
#ifndef NORMA_CLASSIFIER_H
#define NORMA_CLASSIFIER_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_classifier nm_classifier;
typedef struct nm_classifications nm_classifications; /* of the texts of one call */

/* Opens a model file or a run folder, of which the best model is used, or else the last one. options:
 * alternating names and values that end with NULL, or NULL: options of [device], see norma/translator.h. err
 * may be NULL.
 *
 * NM_USAGE: unknown option or value, or NULL
 * NM_IO: the file cannot be read
 * NM_FORMAT: it is malformed
 * NM_UNSUPPORTED: a model of another task
 * NM_MEMORY */
NM_API nm_status nm_classifier_open(nm_classifier **classifier, const char *path, const char *const *options,
                                    nm_error *err);
/* No call may be in progress. Results remain valid. NULL is accepted. */
NM_API void nm_classifier_close(nm_classifier *classifier);

/* As nm_translator_option and nm_translator_warning; valid until nm_classifier_close. */
NM_API const char *nm_classifier_option(const nm_classifier *classifier, const char *name);
NM_API const char *nm_classifier_warning(const nm_classifier *classifier);

/* As nm_translator_stop and nm_translator_set_proceed (norma/translator.h). */
NM_API void nm_classifier_stop(nm_classifier *classifier);
NM_API void nm_classifier_set_proceed(nm_classifier *classifier, bool (*proceed)(void *user), void *user);

/* Number of classes, and the name of each; NULL for a class that does not exist. Valid until
 * nm_classifier_close. */
NM_API size_t nm_classifier_n_classes(const nm_classifier *classifier);
NM_API const char *nm_classifier_class(const nm_classifier *classifier, size_t index);

/* Classifies n texts, UTF-8; line breaks count as spaces. *results is set on success only; free it with
 * nm_classifications_free.
 *
 * NM_FORMAT: not UTF-8; the message has the index of the text (from 0)
 * NM_USAGE: an argument is NULL
 * NM_DIVERGED: the model's logits are not finite
 * NM_INTERRUPTED
 * NM_MEMORY */
NM_API nm_status nm_classifier_run(nm_classifier *classifier, const char *const *texts, size_t n,
                                   nm_classifications **results, nm_error *err);
/* NULL is accepted. */
NM_API void nm_classifications_free(nm_classifications *results);

/* The accessors below return 0 or NULL for a text that does not exist. What they return is valid until
 * nm_classifications_free. */

/* Number of texts of the call. */
NM_API size_t nm_classifications_n(const nm_classifications *results);
/* The most probable class (the first one of equally probable classes) and its name. */
NM_API size_t nm_classifications_best(const nm_classifications *results, size_t text);
NM_API const char *nm_classifications_label(const nm_classifications *results, size_t text);
/* Probabilities of all classes [number of classes]. */
NM_API const double *nm_classifications_probabilities(const nm_classifications *results, size_t text);
/* Whether the text has more than data.max_length tokens and was truncated. */
NM_API bool nm_classifications_truncated(const nm_classifications *results, size_t text);

#ifdef __cplusplus
}
#endif
#endif
