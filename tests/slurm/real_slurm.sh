#!/usr/bin/env bash
# The checks of e2e_slurm.sh with Debian's Slurm on this machine (slurm-wlm, munge), which is started for the test. As root:
#     NORMA=build/norma SOURCE=. bash tests/slurm/real_slurm.sh
set -uo pipefail
NORMA=$(realpath "${NORMA:-build/norma}") SOURCE=$(realpath "${SOURCE:-.}")
export NORMA SOURCE
for program in slurmctld slurmd munged sbatch; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed (slurm-wlm, munge)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: slurmctld and slurmd are started as root"; exit 77; }
# shellcheck source=tests/e2e/hostile_helper.sh
. "$SOURCE/tests/e2e/hostile_helper.sh"
chmod 755 "$work"
# shellcheck source=tests/slurm/start_slurm.sh
. "$SOURCE/tests/slurm/start_slurm.sh" "$work/slurm" 2>munged.txt
trap 'stop_slurm; leave' EXIT
sinfo --version

# shellcheck source=tests/slurm/compare_slurm.sh
. "$SOURCE/tests/slurm/compare_slurm.sh"

# Runs of two processes: srun starts those of Open MPI by PMIx.
if [ "$(srun --mpi=list 2>&1 | grep -c pmix)" != 0 ] && command -v ompi_info >/dev/null; then
    kind=short
    short+=(--train.shards 2)
    "$NORMA" "${short[@]}" --folder shards --device.threads 1 >short.csv 2>err || fail "local: $(cat err)"
    try "${short[@]}" --folder processes --slurm "--ntasks=2 --cpus-per-task=1 --mem=100" --launch "srun --mpi=pmix"
    equal "two processes per run"
    has processes/layer-1/log.jsonl '"ranks":2'
else
    echo "without Open MPI or PMIx: no runs of several processes"
fi

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "$cases cases"
