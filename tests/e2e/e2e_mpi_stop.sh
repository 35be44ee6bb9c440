#!/bin/bash
# A rank that is stopped at the start or at the end of a command ends the others with exit code 3 within comm.timeout and a little,
# without using a core. Skipped without MPI: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich.
set -uo pipefail
# shellcheck source=tests/e2e/ranks_helper.sh
. "${SOURCE:?}/tests/e2e/ranks_helper.sh"

if grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt"; then
    echo "skipped: a sanitizer must be loaded before the library that stops ranks"
    exit 77
fi
mpicc=${MPICC:-$(dirname "$MPIEXEC")/mpicc}
"$mpicc" -shared -fPIC -o stop.so "$SOURCE/tests/mpi/stop_rank.c" -ldl 2>err || fail "the library does not compile: $(cat err)"
# shellcheck disable=SC2016
printf '#!/bin/bash\nexport LD_PRELOAD=%q\nexec "$@"\n' "$PWD/stop.so" >stopping.sh
chmod +x stopping.sh
make_data
sed -i 's/^updates = .*/updates = 2\nshards = 2/' recipe.ini

# stopped PHASE RANK ARGUMENTS...: sets $got, $seconds and $used, the CPU time of all processes.
stopped() {
    local phase=$1 rank=$2 started=$SECONDS
    shift 2
    cases=$((cases + 1)) got=0
    TIMEFORMAT='%U %S'
    { time STOP_AT=$phase STOP_RANK=$rank timeout -k 1 90 "$MPIEXEC" -n 2 ./stopping.sh "$NORMA" "$@" </dev/null >out 2>err; } 2>seconds.txt || got=$?
    seconds=$((SECONDS - started))
    used=$(awk '{ print int(1000 * ($1 + $2)) }' seconds.txt)
}
stopped none 0 train recipe.ini --run.quiet --run.folder whole
[ "$got" = 0 ] || fail "a run without a stopped rank: exit code $got: $(cat err)"
usual=$used
for phase in init afterinit result end finalize; do
    for rank in 0 1; do
        stopped $phase $rank train recipe.ini --run.quiet --run.folder "$phase$rank" --comm.timeout 4
        case $phase in
        init | afterinit) text='norma: MPI has not connected the processes within 4 seconds' ;;
        result) text="norma: rank $rank has not responded for 4 seconds" ;;
        end) text="norma: the work is done, but rank $rank has not responded for 4 seconds" ;;
        finalize) text='norma: the work is done, but MPI could not be finalized within 4 seconds' ;;
        esac
        ends 3 "$text"
        [ "$seconds" -lt 30 ] || fail "$phase, rank $rank: ended after $seconds s"
        [ $((used - usual)) -lt 2500 ] || fail "$phase, rank $rank: used $used ms of CPU time instead of $usual"
        case $phase in
        end | finalize) [ -e "$phase$rank/last.safetensors" ] || fail "$phase, rank $rank: no model" ;;
        esac
    done
done
# Commands without comm.timeout have its default, 15 s.
stopped finalize 1 translate whole test.xx --output whole.yy
ends 3 'norma: the work is done, but MPI could not be finalized within 15 seconds'
cmp <("$NORMA" translate whole test.xx) whole.yy || fail "the translations are not complete"
stopped init 0 perplexity whole
ends 3 'norma: MPI has not connected the processes within 15 seconds'

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "a rank that is stopped in any phase ends the others with exit code 3 ($cases cases)"
