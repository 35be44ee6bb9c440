/* The table of --device.profile: training time by kernel. */
#pragma once

#include <stdio.h>

#include "norma/train.h"

/* Prints the table; nothing for a profile without updates. */
void nm_profile_print(const nm_training_profile *profile, FILE *out);
