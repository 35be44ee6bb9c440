/* The position embeddings of a language model as a table, which other programs store. */
#ifndef NM_LM_POSITIONS_H
#define NM_LM_POSITIONS_H

#include "model/lm.h"

/* [context, width], learned or sinusoidal; zero for a model without positions. Heap. */
double *nm_lm_position_values(const nm_model *model);

#endif
