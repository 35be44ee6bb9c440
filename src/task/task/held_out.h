/* Choice of the training examples that are held out for validation. */
#pragma once

#include <stdbool.h>

#include "base/random.h"

/* Whether an example, by its index in the training file, is held out. Depends on the arguments only, so that
 * other options do not change the held-out examples. */
static inline bool nm_held_out(int64_t seed, double fraction, int64_t index)
{
    return nm_random_unit(nm_random4((uint64_t)seed, NM_RANDOM_SHUFFLE, 2, 0, (uint64_t)index).w[0]) <
           fraction;
}
