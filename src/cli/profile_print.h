/* The table of --device.profile: where the time of training went, by kernel. */
#ifndef NM_PROFILE_PRINT_H
#define NM_PROFILE_PRINT_H

#include <stdio.h>

#include "train/trainer.h"

/* Nothing for an empty profile. */
void nm_profile_print(const nm_profile *profile, FILE *out);

#endif
