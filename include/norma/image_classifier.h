/* Classification of image files with a trained model (norma train image).
 *
 * A result depends on its image only; it is bitwise independent of the other images and of the number of
 * threads. A classifier may be used by any number of threads; their calls run one after another. */
#ifndef NORMA_IMAGE_CLASSIFIER_H
#define NORMA_IMAGE_CLASSIFIER_H

#include "norma/classifier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_image_classifier nm_image_classifier;

/* Opens a model file or a run folder, of which the best model is used, or else the last one. options:
 * alternating names and values that end with NULL, or NULL: options of [device], see norma/translator.h. err
 * may be NULL.
 * NM_USAGE: unknown option or value, NULL
 * NM_IO: the file cannot be read
 * NM_FORMAT: it is malformed
 * NM_UNSUPPORTED: a model of another task
 * NM_MEMORY */
NM_API nm_status nm_image_classifier_open(nm_image_classifier **classifier, const char *path,
                                          const char *const *options, nm_error *err);
/* Results remain valid. NULL is accepted. */
NM_API void nm_image_classifier_close(nm_image_classifier *classifier);

/* As nm_translator_option and nm_translator_warning; valid until nm_image_classifier_close. */
NM_API const char *nm_image_classifier_option(const nm_image_classifier *classifier, const char *name);
NM_API const char *nm_image_classifier_warning(const nm_image_classifier *classifier);

/* As nm_classifier_stop and nm_classifier_set_proceed: calls end with NM_INTERRUPTED. */
NM_API void nm_image_classifier_stop(nm_image_classifier *classifier);
NM_API void nm_image_classifier_set_proceed(nm_image_classifier *classifier, bool (*proceed)(void *user),
                                            void *user);

/* Number of classes, and the name of each; NULL for a class that does not exist. Valid until
 * nm_image_classifier_close. */
NM_API size_t nm_image_classifier_n_classes(const nm_image_classifier *classifier);
NM_API const char *nm_image_classifier_class(const nm_image_classifier *classifier, size_t index);

/* Classifies n JPEG or PNG files. *results is set on success only; free it with nm_classifications_free, and
 * read it with the functions of norma/classifier.h. A message names the file.
 * NM_USAGE: NULL
 * NM_IO: a file cannot be read
 * NM_FORMAT: it is damaged, or neither JPEG nor PNG
 * NM_UNSUPPORTED: the library for the format was not present at build time
 * NM_DIVERGED: the model's logits are not finite
 * NM_INTERRUPTED
 * NM_MEMORY */
NM_API nm_status nm_image_classifier_run(nm_image_classifier *classifier, const char *const *paths, size_t n,
                                         nm_classifications **results, nm_error *err);

#ifdef __cplusplus
}
#endif
#endif
