/* The position embeddings of a language model as a table, for formats that store them. */
#pragma once

#include "model/lm.h"

/* Returns [context, width], learned or sinusoidal; zeros for a model without position embeddings. Heap. */
double *nm_lm_position_values(const nm_model *model);
