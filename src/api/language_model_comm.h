/* Perplexity computed by several processes, for the program; not part of the public interface. */
#ifndef NM_LANGUAGE_MODEL_COMM_H
#define NM_LANGUAGE_MODEL_COMM_H

#include "comm/comm.h"
#include "norma/language_model.h"

/* The processes of comm divide the text of nm_language_model_perplexity; all of them must call it for the same files. comm must
 * outlive the model. */
void nm_language_model_set_comm(nm_language_model *model, nm_comm *comm);

#endif
