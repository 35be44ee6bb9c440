/* The penalty of a norm in the loss (Wang et al. 2022, equation 7), per target of the batch. */
#include "probe/instrument.h"

static void measure_norm(nm_probe_record *record, const nm_norm_call *call, bool backward)
{
    if (backward || !call->penalty)
        return;
    nm_line_number(nm_probe_record_line(record, call->norm->site.name), "value",
                   nm_double_value(call->backend, call->penalty) / call->n_targets);
}

const nm_instrument nm_instrument_penalty = {
    .name = "penalty",
    .norm = measure_norm,
};
