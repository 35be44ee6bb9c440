/* N-gram language model with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999, section 3;
 * Kneser and Ney 1995).
 *
 *     P_k(w | h) = max(0, c(h w) - D_k(c(h w))) / c(h) + g(h) P_{k-1}(w | h')
 *     g(h)       = (D_k(1) N_1(h) + D_k(2) N_2(h) + D_k(3+) N_3+(h)) / c(h)
 *     P_0(w)     = 1 / V
 *
 * h' is h without its first token. c(h w) is, in the highest order and for n-grams at the start of a line,
 * the number of occurrences; in lower orders it is the number of different tokens before the n-gram. c(h) is
 * the sum of c(h w) over w, and N_r(h) the number of w with c(h w) = r. The discounts of an order follow from
 * the numbers n_r of its n-grams with count r:
 *
 *     Y     = n_1 / (n_1 + 2 n_2)
 *     D(1)  = 1 - 2 Y n_2 / n_1
 *     D(2)  = 2 - 3 Y n_3 / n_2
 *     D(3+) = 3 - 4 Y n_4 / n_3
 *
 * If a discount is undefined, negative or greater than its count, as in very small texts, those of the order
 * are 0.5, 1 and 1.5. Each line is a sequence: the context of a token consists of the start of its line and
 * the tokens before it in the line. */
#pragma once

#include "norma/status.h"

typedef struct nm_kneser_ney nm_kneser_ney;

/* A model of order 0, P_0, for a training text of n tokens, which is copied. eos ends a line; vocab_size is
 * V. */
nm_kneser_ney *nm_kneser_ney_create(const int32_t *ids, int64_t n, int32_t eos, int32_t vocab_size);
/* Increases the order by one. NM_MEMORY if there are too many n-grams for the tables; the model can then only
 * be freed. */
nm_status nm_kneser_ney_extend(nm_kneser_ney *model, nm_error *err);
void nm_kneser_ney_free(nm_kneser_ney *model);
int nm_kneser_ney_order(const nm_kneser_ney *model);
/* Sets nll[i] = -ln P(ids[i] | context in its line), for a text that begins at the start of a line. */
void nm_kneser_ney_score(const nm_kneser_ney *model, const int32_t *ids, int64_t n, double *nll);
