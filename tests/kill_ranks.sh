#!/bin/bash
# Failure matrix of training by several processes: random SIGKILL, SIGSTOP and SIGTERM of a random rank at a random time of
# runs in which every update is followed by a validation and a checkpoint, so that signals arrive during passes, exchanges,
# validations and the writing of checkpoints. After each: all processes have ended within 30 s, the reason is printed once,
# and the last checkpoint continues to the weights of an uninterrupted run, bitwise.
#
#     NORMA=build/norma MPIEXEC=mpiexec tests/kill_ranks.sh [NUMBER [SEED]]
#
# Not a part of the test suite: 100 signals take several minutes. Exit code: 0 nothing failed, 1 something did.
set -uo pipefail
count=${1:-100}
RANDOM=${2:-1}
NORMA=$(realpath "${NORMA:?}")
SOURCE=$(realpath "${SOURCE:-$(dirname "$0")/..}")
export SOURCE NORMA
MPIEXEC=${MPIEXEC:-mpiexec}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_mapping_policy=
# shellcheck source=tests/e2e/hostile_helper.sh
. "$SOURCE/tests/e2e/hostile_helper.sh"

limit=30 timeout=3 updates=150
make_data
sed -i "s/^norm = .*/norm = batch/; s/^updates = .*/updates = $updates\nshards = 4/; s/^max_tokens = .*/max_tokens = 48/; s/^validate_every = .*/validate_every = 1/" recipe.ini

process_of() { # FOLDER RANK
    local pid
    for pid in $(pgrep -f -- "--run.folder $1\$"); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -E "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$2\$" >/dev/null &&
            echo "$pid" && return
    done
}

for statistics in shard update; do
    "$NORMA" train recipe.ini --norm.statistics "$statistics" --run.quiet --run.folder "whole-$statistics" 2>err || { cat err >&2; exit 1; }
done
declare -A ended
slowest=0 delivered=0 unhit=0
for ((i = 1; delivered < count; i++)); do
    signals=(KILL STOP TERM)
    signal=${signals[RANDOM % 3]} ranks=$((2 + RANDOM % 3)) rank=$((RANDOM % ranks))
    statistics=shard
    ((RANDOM % 2)) && statistics=update
    folder=run$i
    "$MPIEXEC" -n "$ranks" "$NORMA" train recipe.ini --norm.statistics "$statistics" --comm.timeout "$timeout" \
        --run.quiet --run.folder "$folder" </dev/null >out 2>err &
    process=$!
    waited=0
    while [ ! -e "$folder/last.safetensors" ] && kill -0 "$process" 2>/dev/null && [ $((waited += 1)) -lt 3000 ]; do sleep 0.01; done
    sleep "0.$(printf '%03d' $((RANDOM % 500)))"
    victim=$(process_of "$folder" "$rank")
    [ -n "$victim" ] && kill -s "$signal" "$victim" 2>/dev/null
    SECONDS=0
    while kill -0 "$process" 2>/dev/null && [ "$SECONDS" -le "$limit" ]; do sleep 0.05; done
    [ "$SECONDS" -gt "$slowest" ] && slowest=$SECONDS
    if kill -0 "$process" 2>/dev/null; then
        fail "$i: SIG$signal of rank $rank of $ranks ($statistics): not ended after $limit s"
        kill -9 "$process"
    fi
    got=0
    wait "$process" 2>/dev/null || got=$?
    case $signal in
    KILL) text="signal 9|KILLED BY SIGNAL: 9|EXIT CODE: 9" ;;
    STOP) text="norma: rank $rank has not responded for $timeout seconds" ;;
    TERM) text='norma: stopped after update [0-9]+; checkpoint written' ;;
    esac
    # A run that ended before the signal does not count: another one replaces it.
    if [ -z "$victim" ] || grep -q "^done: $updates updates" err; then
        unhit=$((unhit + 1))
        [ "$unhit" -le "$((2 * count))" ] || { fail "the runs end before the signals"; break; }
        rm -r "$folder"
        continue
    fi
    delivered=$((delivered + 1))
    if { [ "$got" = 0 ] || ! grep -qE "$text" out err; }; then
        fail "$i: SIG$signal of rank $rank of $ranks ($statistics): exit code $got, no '$text': $(head -c 1000 err)"
    fi
    for pid in $(pgrep -f -- "--run.folder $folder\$"); do
        [ "$pid" = "$victim" ] && [ "$signal" = STOP ] && kill -9 "$pid" && continue
        fail "$i: process $pid has not ended"
    done
    ended[$signal]=$((${ended[$signal]:-0} + 1))
    cases=$((cases + 1))
    "$NORMA" train recipe.ini --norm.statistics "$statistics" --run.quiet --run.folder "$folder" --resume </dev/null >out 2>err ||
        fail "$i: no resume after SIG$signal of rank $rank: $(cat err)"
    [ "$(weights "whole-$statistics/last.safetensors")" = "$(weights "$folder/last.safetensors")" ] ||
        fail "$i: other weights after SIG$signal of rank $rank of $ranks ($statistics)"
    rm -r "$folder"
done
echo "SIGKILL ${ended[KILL]:-0}, SIGSTOP ${ended[STOP]:-0}, SIGTERM ${ended[TERM]:-0}; longest time until the end: $slowest s; $unhit runs ended before their signal; $failures of $cases failed"
[ "$failures" = 0 ]
