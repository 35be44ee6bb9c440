/* The penalty that a norm adds to the loss (Wang et al. 2022, equation 6), per target token of the batch. */
#include "probe/instrument.h"

static void look_at_norm(nm_look *look, const nm_norm_call *call, bool backward)
{
    double value;
    if (backward || !call->penalty)
        return;
    nm_backend_download(call->backend, &value, call->penalty, sizeof value);
    nm_line_number(nm_look_line(look, call->norm->site.name), "value", value / call->n_targets);
}

const nm_instrument nm_instrument_penalty = {
    .name = "penalty",
    .help = "the penalty of each norm that has one",
    .norm = look_at_norm,
};
