/* Factorial comparisons: "norm=layer,power; site=pre,post; lr=0.001,0.002" is four variants, the cells of two
 * factors, each with its own best learning rate. Effects are paired over seeds:
 *
 *     main effect of a level      mean of the cells with it - mean of the cells with the first level
 *     interaction of two levels   mean over the other factors of (y_ab - y_a1) - (y_1b - y_11)
 *
 * with a t test over seeds and test segments (base/seed_test.h) and Holm's correction over all effects. */
#pragma once

#include "experiment/run_result.h"
#include "experiment/text_table.h"
#include "experiment/variants.h"
#include "norma/compare.h"

typedef struct nm_factorial {
    nm_grid factors; /* without lr; the last one varies fastest over the cells */
    char *norms;     /* the cells as a list of variants, "layer/pre=layer:model.norm_position=pre,..." */
    char *rates;     /* the axis of the grid that is tuned, "schedule.lr=0.001,0.002"; NULL: none */
    size_t n_cells;
    nm_factor_effect *effects; /* [n_effects]; texts owned */
    size_t n_effects;
} nm_factorial;

/* Factors are options or one of norm, site, residual, init, optimizer, lr. NM_USAGE: malformed, a factor with
 * one level (except lr) or a level twice, more than 1,000 cells. */
nm_status nm_factorial_parse(nm_factorial *factorial, const char *text, nm_error *err);
/* runs [n_cells][n_seeds]: the scored runs of the cells, NULL for a missing one. Only seeds that all cells
 * have count. margin: of the equivalence tests and of the number of seeds; 0: none. */
void nm_factorial_compute(nm_factorial *factorial, const nm_run_result *const *runs, size_t n_seeds,
                          double margin);
void nm_factorial_print(const nm_factorial *factorial, nm_table_format format, double margin, FILE *out);
json_t *nm_factorial_json(const nm_factorial *factorial);
void nm_factorial_release(nm_factorial *factorial);
