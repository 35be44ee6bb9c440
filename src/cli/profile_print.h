/* The table of --device.profile: training time by kernel. */
#ifndef NM_PROFILE_PRINT_H
#define NM_PROFILE_PRINT_H

#include <stdio.h>

#include "norma/train.h"

/* Prints nothing for an empty profile. */
void nm_profile_print(const nm_training_profile *profile, FILE *out);

#endif
