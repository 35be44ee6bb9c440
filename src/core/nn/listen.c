/* What instruments receive from the tape besides the calls of norms (normalize.c). */
#include "nn/tape.h"

void nm_tape_report_residual(nm_tape *tape, const char *site, const nm_tensor *stream,
                             const nm_tensor *branch, const nm_tensor *out, nm_tensor *omega)
{
    if (!tape->listen_residual || tape->recomputed || nm_tape_exhausted(tape))
        return;
    const nm_residual_call call = {tape->backend,      site, nm_tensor_mat(stream), nm_tensor_mat(branch),
                                   nm_tensor_mat(out), omega};
    tape->listen_residual(tape->listener, &call);
}
