#include "train/comm_options.h"

/* clang-format off */
static const nm_option comm_options[] = {
    NM_CHOICE(nm_comm_config, backend, "auto", NM_COMM_BACKENDS,
              "Communication between the processes of a run: MPI if an MPI launcher such as mpirun or srun "
                  "has started several processes (auto), none, or MPI."),
    NM_OPTION(nm_comm_config, timeout, "15", 1, 1e6,
        "Seconds without a heartbeat of a process after which the run ends with an error."),
    NM_OPTION(nm_comm_config, shard_optimizer, "false", 0, 1,
        "Divide the optimizer state over the processes (ZeRO stage 1), which needs less memory; "
        "results are bitwise identical."),
    {0}};
/* clang-format on */

void nm_comm_options_add(nm_options *options)
{
    nm_options_add(options, "comm", comm_options, NULL, sizeof(nm_comm_config));
}
