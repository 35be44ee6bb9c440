/* Output of norma inspect as text tables or JSON. The caller releases JSON values; advice: [n]. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "probe/advice.h"

void inspect_print(const nm_inspection *inspection, FILE *out);
void inspect_print_advice(const nm_advice *advice, int n, FILE *out);
json_t *inspect_json(const nm_inspection *inspection);
json_t *inspect_json_advice(const nm_advice *advice, int n);
