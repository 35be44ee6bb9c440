# Helpers of the scripts with several MPI processes, in addition to hostile_helper.sh. The test is skipped without
# MPI: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich.
# shellcheck shell=bash
# MPI libraries do not free all of their memory. Leaks of training are found by the tests with one process.
export DETECT_LEAKS=0
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

[ -n "${MPIEXEC:-}" ] || { echo "skipped: MPI is not installed (libopenmpi-dev)"; exit 77; }
# Open MPI: as root, more processes than cores, not bound to cores, without networks: TCP prints a message where there is only
# the loopback interface, and the others add 1.7 s to every run of version 4.1. PRRTE is the launcher of version 5. MPICH does not
# read these variables.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_mapping_policy=
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=^tcp,ofi,openib,usnic
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none

# ranks N OPTIONS...: sets $got; the output is in out and err.
ranks() {
    local n=$1
    shift
    got=0
    cases=$((cases + 1))
    timeout 120 "$MPIEXEC" -n "$n" "$NORMA" train recipe.ini --run.quiet "$@" </dev/null >out 2>err || got=$?
    ! grep -qE 'Sanitizer|runtime error' err || fail "sanitizer: $n ranks $*: $(head -c 1500 err)"
}
# pair OPTIONS... : ARGUMENTS...: two ranks, the second one with its own arguments. A script selects them, because mpiexec of
# Open MPI 5.0.7 crashes if it has several programs to start.
pair() {
    local first=()
    while [ "$1" != : ]; do
        first+=("$1")
        shift
    done
    shift
    {
        printf '#!/bin/bash\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec'
        printf ' %q' "$NORMA" "$@"
        printf '\nexec'
        printf ' %q' "$NORMA" train recipe.ini --run.quiet "${first[@]}"
    } >pair.sh
    chmod +x pair.sh
    got=0
    cases=$((cases + 1))
    timeout 120 "$MPIEXEC" -n 2 ./pair.sh </dev/null >out 2>err || got=$?
}
equal() { # FOLDER FOLDER: the same models, last and best
    local file
    for file in last best; do
        cases=$((cases + 1))
        [ "$(weights "$1/$file.safetensors")" = "$(weights "$2/$file.safetensors")" ] || fail "$file of $1 and $2 differ"
    done
}
# The log without times, memory and the number of ranks.
plain() { sed -E 's/"(seconds|tokens_per_second|load|other_cores|started|command|ranks|exchange_seconds|exchange_bytes|step_mib)":("[^"]*"|[^,}]*),?//g; s/,\}/}/' "$1/log.jsonl"; }
# ends CODE TEXT: the last run has ended with the code, and Norma has printed one line with the text.
ends() {
    [ "$got" = "$1" ] || fail "exit code $got instead of $1 ('$2'): $(cat err)"
    [ "$(grep -cF -- "$2" err)" = 1 ] || fail "not one line with '$2': $(cat err)"
}
# check_divided ARGUMENTS...: one process, 2 and 3 ranks print the same.
check_divided() {
    local n
    "$NORMA" "$@" >one.txt 2>one.err || fail "norma $*: $(cat one.err)"
    for n in 2 3; do
        timeout 120 "$MPIEXEC" -n "$n" "$NORMA" "$@" </dev/null >out 2>err || fail "norma $*, $n ranks: $(cat err)"
        cases=$((cases + 2))
        cmp one.txt out || fail "norma $*: $n ranks and one process differ: $(diff one.txt out | head -n 5)"
        cmp one.err err || fail "norma $*: the messages of $n ranks and one process differ: $(diff one.err err | head -n 5)"
    done
}
