/* Functions of language models for the program; not part of the public interface. */
#pragma once

#include "train/comm.h"
#include "norma/language_model.h"
#include "text/documents.h"

/* The processes of comm divide the text of nm_language_model_perplexity; all of them must call it for the
 * same files. comm must outlive the model. */
void nm_language_model_set_comm(nm_language_model *model, nm_comm *comm);
/* What a document is in the text to score: as in training, or as set by perplexity.documents. */
nm_document_rule nm_language_model_document_rule(const nm_language_model *model);
/* The error of nm_language_model_generate for a prompt with unknown tokens. where: begins the message. */
nm_status nm_language_model_check_prompt(nm_language_model *model, const char *prompt, const char *where,
                                         nm_error *err);
