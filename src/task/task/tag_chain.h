/* The tag schemes in a linear-chain CRF. */
#pragma once

#include "model/viterbi.h"
#include "text/tags.h"

/* Adds -10000 to every transition, start and end that the tag scheme forbids, as fastNLP does; paths with
 * forbidden steps are found only if there are no others. names: [T] valid tags. */
void nm_chain_forbid(nm_chain *chain, nm_tag_scheme scheme, const char *const *names);
