#!/usr/bin/env bash
# norma compare --slurm with sbatch, squeue, scontrol and scancel of tests/slurm/fake_slurm.py: one array, only missing runs are
# submitted again; killed and interrupted callers, requeued and canceled tasks, failed runs, time limits, slurmctld not running.
# tests/slurm/real_slurm.sh runs the same checks with Slurm.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"
make_fake_slurm

# shellcheck source=tests/slurm/compare_slurm.sh
. "$SOURCE/tests/slurm/compare_slurm.sh"

# A time limit of a second; a run that is killed together with the shell of its task leaves no exit code.
try compare recipe.ini --tid-batches 2 --norms layer --folder limit --slurm "--time=0:01" --train.updates 100000
[ "$got" = 9 ] || fail "time limit: exit code $got: $(cat err)"
has err 'has ended without a result: TIMEOUT: slurmstepd: error: *** JOB'
has err 'DUE TO TIME LIMIT ***; log: '

# A run that SIGTERM ends before it handles the signal, as at its start.
mkdir early
cat >early/sbatch <<END
#!/bin/sh
for script; do :; done
sed -i 's/^"\$@"/timeout --preserve-status 0.01 sleep 9/' "\$script"
exec "$(command -v sbatch)" "\$@"
END
chmod +x early/sbatch
PATH=$PWD/early:$PATH try compare recipe.ini --tid-batches 2 --norms layer --folder early-runs --slurm "--mem=10"
[ "$got" = 9 ] || fail "SIGTERM at the start: exit code $got: $(cat err)"
has err 'has ended without a result: FAILED'

# slurmctld stops and starts again; a held task.
touch slurm/down
refuses 3 'squeue failed: slurm_load_jobs error: Unable to contact slurm controller' "${short[@]}" --folder down --slurm "--mem=10"
rm slurm/down
start down
touch slurm/down
sleep 1
rm slurm/down
finish
[ "$got" = 0 ] || fail "slurmctld stopped for a time: exit code $got: $(cat err)"
submitted down 2
got=0
PATH=/nothing "$NORMA" "${short[@]}" --folder none --slurm "--mem=10" >out 2>err || got=$?
check_failure 3 'cannot start squeue: No such file or directory' 'compare without Slurm'

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "$cases cases"
