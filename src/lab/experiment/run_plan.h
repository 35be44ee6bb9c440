/* What studies and comparisons plan with: durations of runs that are trained in parallel, and the table of
 * the parts of a plan. */
#pragma once

#include <stdio.h>

#include "base/record.h"
#include "norma/study.h"

/* Updates with which the speed of a variant is measured. */
enum { NM_SPEED_UPDATES = 20 };

const nm_field *nm_plan_part_fields(void);

/* Seconds until the last of n runs in their order has ended, with `slots` at a time. */
double nm_plan_makespan(const double *seconds, size_t n, int64_t slots);
/* "42 s", "5.3 min", "2.1 h"; heap. */
char *nm_plan_duration(double seconds);
/* "elimination, common seeds" of `select`; an unknown part as it is. */
const char *nm_plan_part_name(const char *phase);
/* The parts and their sum as a Markdown table. at_least: of `select` and `confirm`, more runs may follow. */
void nm_plan_print(const nm_plan_part *parts, size_t n, bool at_least, FILE *out);
