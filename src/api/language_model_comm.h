/* For the program: perplexity by several processes. */
#ifndef NM_LANGUAGE_MODEL_COMM_H
#define NM_LANGUAGE_MODEL_COMM_H

#include "comm/comm.h"
#include "norma/language_model.h"

/* The processes of comm, all of which call nm_language_model_perplexity on the same files, divide the text. */
void nm_language_model_set_comm(nm_language_model *model, nm_comm *comm);

#endif
