/* The split of a text into training, validation and test data. */
#pragma once

#include "norma/status.h"

/* Units that are not divided between splits: lines, or paragraphs, which end at an empty line. */
typedef enum study_unit { STUDY_LINES, STUDY_PARAGRAPHS } study_unit;

/* Splits a file into FOLDER/train.SUFFIX, valid.SUFFIX and test.SUFFIX: of every 20 blocks of consecutive
 * units, one is validation and one is test data. *units: in: expected number of units, 0: any; out: number of
 * units.
 * NM_IO  a file cannot be read or written
 * NM_FORMAT  another number of units, fewer than 100, or text that is not UTF-8 */
nm_status study_split(const char *path, study_unit unit, const char *folder, const char *suffix,
                      int64_t *units, nm_error *err);
