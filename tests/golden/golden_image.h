/* Helpers of the golden families of images. */
#ifndef GOLDEN_IMAGE_H
#define GOLDEN_IMAGE_H

#include "golden.h"

/* Filters [out, in, row, column] to Norma's order [out, row, column, in], or back. */
void golden_turn_filters(golden_tensor *tensor, bool to_source);

#endif
