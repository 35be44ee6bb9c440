#!/bin/bash
# Training by several processes over MPI: bitwise the model of one process for 2 and 3 ranks, after a stop and a resume with
# another number of ranks; failures of one rank end all, with one message of Norma and its exit code.
# Skipped without MPI: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich.
set -uo pipefail
# shellcheck source=tests/e2e/ranks_helper.sh
. "${SOURCE:?}/tests/e2e/ranks_helper.sh"

make_data
sed -i 's/^norm = .*/norm = power\ndropout = 0.2/; s/^updates = .*/updates = 12\nshards = 4/; s/^max_tokens = .*/max_tokens = 48/; s/^validate_every = .*/validate_every = 4\npatience = 20/
    s/^save_every = .*/save_every = 3/; s/^\[schedule\]/[schedule]\nname = val-decay\npatience = 1/' recipe.ini

"$NORMA" train recipe.ini --run.quiet --run.folder one 2>err || fail "one process: $(cat err)"
for n in 2 3; do
    ranks $n --run.folder "ranks$n"
    [ "$got" = 0 ] || fail "$n ranks: exit code $got: $(cat err)"
    equal one "ranks$n"
    [ "$(plain one)" = "$(plain "ranks$n")" ] || fail "$n ranks: the log differs: $(diff <(plain one) <(plain "ranks$n") | head -n 4)"
    [ "$(grep -c '^done: 12 updates' err)" = 1 ] || fail "$n ranks: not one report: $(cat err)"
    has err "; $n processes"
done
# Ranks on nodes of different sizes have different numbers of threads.
if [ "$(nproc)" -ge 2 ]; then
    cat >mixed.sh <<'END'
#!/bin/bash
cores=0,1
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || cores=0
exec taskset -c $cores "$NORMA" train recipe.ini --device.threads 0 --run.folder mixed
END
    chmod +x mixed.sh
    got=0 cases=$((cases + 1))
    NORMA=$NORMA timeout 120 "$MPIEXEC" -n 2 ./mixed.sh </dev/null >out 2>err || got=$?
    [ "$got" = 0 ] || fail "ranks with different numbers of threads: $(cat err)"
    has err '2 threads'
    equal one mixed
fi
# A fresh run sends the parameters at its start, but no optimizer state, which is zero.
ranks 2 --train.log_every 1 --train.updates 3 --run.folder start
mapfile -t sent < <(sed -n 's/.*"exchange_bytes":\([0-9]*\).*/\1/p' start/log.jsonl)
at_start=$((sent[0] - sent[1])) size=$(stat -c %s start/last.safetensors)
[ "$at_start" -gt $((size / 2)) ] && [ "$at_start" -lt $((size * 3 / 2)) ] ||
    fail "$at_start bytes were sent at the start of a run whose model file has $size bytes (updates: ${sent[*]})"
# A norm with mean and variance, and a penalty.
"$NORMA" train recipe.ini --model.norm rbn --run.quiet --run.folder rbn1 2>err || fail "rbn: $(cat err)"
ranks 2 --model.norm rbn --run.folder rbn2
equal rbn1 rbn2

# Translation: the lines are divided, and written in their order by rank 0.
for _ in 1 2 3 4 5; do cat test.xx valid.xx; done >lines.xx
printf '\n' >>lines.xx
"$NORMA" translate one lines.xx --buffer 7 --output one.yy 2>err || fail "translate: $(cat err)"
[ -s one.yy ] || fail "no translations"
for n in 2 3; do
    got=0
    cases=$((cases + 1))
    timeout 120 "$MPIEXEC" -n "$n" "$NORMA" translate one lines.xx --buffer 7 --nbest 2 </dev/null >"out$n" 2>err || got=$?
    [ "$got" = 0 ] || fail "translate, $n ranks: $(cat err)"
    timeout 120 "$MPIEXEC" -n "$n" "$NORMA" translate one lines.xx --output "ranks$n.yy" </dev/null >out 2>err || fail "translate --output, $n ranks: $(cat err)"
    cmp one.yy "ranks$n.yy" || fail "translate: $n ranks and one process differ"
done
"$NORMA" translate one lines.xx --nbest 2 >out1 2>err
cmp out1 out2 && cmp out1 out3 || fail "translate --nbest: 2 or 3 ranks and one process differ"
perl -e 'print $_ % 4 ? "wort\n" : "wort " x 3000 . "\n" for 1 .. 40' >long.xx
"$NORMA" translate one long.xx --buffer 7 >out1 2>err1
has err1 '(lines 4, 8, 12, 16 and 6 more)'
timeout 120 "$MPIEXEC" -n 3 "$NORMA" translate one long.xx --buffer 7 </dev/null >out3 2>err || fail "translate long lines: $(cat err)"
cmp out1 out3 && grep '^norma: .*lines have more' err | cmp - err1 || fail "long lines, 3 ranks: $(cat err)"
timeout 120 "$MPIEXEC" -n 2 "$NORMA" translate one <lines.xx >out 2>err && fail "2 ranks translated standard input"
has err 'an input file is required with several processes'
# Perplexity and measurements: the sums are those of one process.
make_sentences lm_train.txt 60 1
make_sentences lm_valid.txt 20 2
make_sentences lm_test.txt 90 3
"$NORMA" prepare --format text --tokenizer none --bpe-merges 12 --train lm_train.txt --valid lm_valid.txt --output lm_data 2>err || fail "prepare: $(cat err)"
sed 's/^folder = .*/folder = lm_data/; s/^\[data\]/[run]\ntask = lm\n[data]/; /^encoder_layers\|^beam\|^validate_examples/d; s/^decoder_layers = 1/layers = 1\ncontext = 16/; s/^\[decode\]//' recipe.ini >lm.ini
"$NORMA" train lm.ini --run.quiet --run.folder lm 2>err || fail "lm: $(cat err)"
check_divided perplexity lm lm_test.txt lm_valid.txt --batch_tokens 64 --interval --json
check_divided perplexity lm lm_test.txt --context 8 --batch_tokens 64 --json
check_divided perplexity lm lm_valid.txt --batch_tokens 100000
check_divided perplexity one --json
check_divided inspect one --checkpoints --batches 2 --gradient_batches 1 --json
check_divided inspect one rbn1 ranks2 lm --batches 2 --gradient_batches 1 --advise
timeout 120 "$MPIEXEC" -n 2 "$NORMA" inspect one missing rbn1 </dev/null >out 2>err && fail "inspect: a missing run was accepted"
[ "$(grep -c '^norma: .*missing' err)" = 1 ] || fail "inspect: not one line for a missing run: $(cat err)"
timeout 120 "$MPIEXEC" -n 2 "$NORMA" perplexity lm <lm_test.txt >out 2>err && fail "2 ranks scored standard input"
has err 'an input file is required with several processes'
timeout 120 "$MPIEXEC" -n 2 "$NORMA" perplexity lm lm_test.txt --tokens </dev/null >out 2>err && fail "2 ranks printed tokens"
[ "$(grep -c '^norma: --tokens requires a single process' err)" = 1 ] || fail "not one message: $(cat err)"
# Rank 1 works in another folder, where one of the files has other contents.
mkdir far
printf '#!/bin/bash\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || cd far\nexec "$@"\n' >far.sh
chmod +x far.sh
differs() { # PATH COPY ARGUMENTS...: PATH of rank 1 is COPY
    local file=$1 copy=$2
    shift 2
    rm -rf far/*
    cp -r one lm data lm_data ./*.xx ./*.txt far
    got=0 cases=$((cases + 2))
    timeout 120 "$MPIEXEC" -n 2 "$PWD/far.sh" "$NORMA" "$@" </dev/null >out 2>err || got=$?
    [ "$got" = 0 ] || fail "norma $*, equal files in other folders: $(cat err)"
    rm -r "far/$file"
    cp -r "$copy" "far/$file"
    got=0
    timeout 120 "$MPIEXEC" -n 2 "$PWD/far.sh" "$NORMA" "$@" </dev/null >out 2>err || got=$?
    ends 5 ': rank 1 reads a file with other contents than rank 0'
}
differs lines.xx test.xx translate one lines.xx
differs lines.xx valid.xx translate one lines.xx --prefix lines.xx
differs one/best.safetensors rbn1/best.safetensors translate one lines.xx
differs one/best.safetensors rbn1/best.safetensors translate one,one lines.xx
differs lm_test.txt lm_valid.txt perplexity lm lm_valid.txt lm_test.txt
# Commands that do not divide their work run once.
timeout 120 "$MPIEXEC" -n 3 "$NORMA" recipes </dev/null >out 2>err || fail "recipes: $(cat err)"
"$NORMA" recipes | cmp - out || fail "recipes: printed more than once"
# Help, version and errors of the command line are printed once.
for arguments in 'train --help' 'translate --help' --version 'help train' --help; do
    # shellcheck disable=SC2086
    timeout 120 "$MPIEXEC" -n 3 "$NORMA" $arguments </dev/null >out 2>err || fail "norma $arguments: $(cat err)"
    # shellcheck disable=SC2086
    "$NORMA" $arguments >one.txt
    same one.txt out
done
ranks 3 --train.nonsense red
ends 2 'unknown option train.nonsense'
ranks 3 --train.updates many
ends 2 'train.updates = many'
pair : train missing.ini
ends 3 'missing.ini'
pair : train recipe.ini --train.updates few
ends 2 'norma: rank 1: train.updates = few'

# Batch statistics of the whole update, and running statistics of each worker (the shards).
# same NAME OPTIONS...: one process and 3 ranks; stopped with 3 ranks, continued with 2.
same() {
    local name=$1
    shift
    "$NORMA" train recipe.ini "$@" --run.quiet --run.folder "$name-1" 2>err || fail "$name: $(cat err)"
    ranks 3 "$@" --train.updates 6 --run.folder "$name-3"
    [ "$got" = 0 ] || fail "$name, 3 ranks: $(cat err)"
    ranks 2 "$@" --train.updates 12 --run.folder "$name-3" --resume
    has err 'resumed at update 6'
    [ "$(weights "$name-1/last.safetensors")" = "$(weights "$name-3/last.safetensors")" ] || fail "$name: one process and 3 ranks differ"
}
different() { # FOLDER FOLDER
    cases=$((cases + 1))
    [ "$(weights "$1/last.safetensors")" != "$(weights "$2/last.safetensors")" ] || fail "$1 and $2 have the same weights"
}
same update --model.norm rbn --norm.statistics update
different update-1 rbn1
same worker --norm.state worker
different worker-1 one
ranks 2 --model.norm batch --norm.statistics update --norm.state worker --run.folder wrong
ends 2 'norm.statistics = update requires norm.state = update'
ranks 2 --norm.state worker --train.shards 2 --run.folder worker-3 --train.updates 14 --resume=override
ends 5 'a different number of workers'

# Stopped with 2 ranks after 6 updates, continued with 3 until 9 and with one process until 12.
ranks 2 --train.updates 6 --run.folder stopped
[ "$got" = 0 ] || fail "2 ranks until update 6: $(cat err)"
ranks 3 --train.updates 9 --run.folder stopped --resume
has err 'resumed at update 6'
"$NORMA" train recipe.ini --train.updates 12 --run.quiet --run.folder stopped --resume 2>err || fail "resume: $(cat err)"
has err 'resumed at update 9'
[ "$(weights one/last.safetensors)" = "$(weights stopped/last.safetensors)" ] || fail "the number of ranks changed at a resume, and the weights, too"

ranks 3 --train.shards 2 --run.folder wrong
ends 2 '3 processes need at least as many shards per update; train.shards is 2'
ranks 2 --norm.state micro-batch --run.folder wrong
ends 2 'norm.state = micro-batch'
pair --run.folder wrong : train recipe.ini --run.quiet --run.folder wrong --train.seed 9
ends 5 'rank 1 has other options than rank 0'
ranks 2 --run.folder ranks2
ends 2 'ranks2 already contains a run'
# A run that only rank 0 can read.
pair --run.folder ranks2 --resume : train recipe.ini --run.quiet --run.folder unseen --resume
ends 5 'with --resume, run folder'
# Rank 1 works in another folder, whose data have other validation sentences.
mkdir other
cp recipe.ini train.?? valid.?? test.?? other
cat test.xx >>other/valid.xx
cat test.yy >>other/valid.yy
(cd other && "$NORMA" prepare "${prepare_arguments[@]}" --output data 2>err) || fail "prepare: $(cat other/err)"
printf '#!/bin/bash\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || cd other\nexec "$@"\n' >elsewhere.sh
chmod +x elsewhere.sh
got=0 cases=$((cases + 1))
timeout 120 "$MPIEXEC" -n 2 "$PWD/elsewhere.sh" "$NORMA" train recipe.ini --run.quiet --run.folder wrong </dev/null >out 2>err || got=$?
ends 5 'rank 1 has other validation data than rank 0'
differs data other/data perplexity one
# Only rank 1 fails: its data folder is missing.
pair --run.folder wrong : train recipe.ini --run.quiet --run.folder wrong --data.folder missing
ends 3 'norma: rank 1: missing/'

# Signals to one rank of a long run.
start() { # FOLDER OPTIONS...
    "$MPIEXEC" -n 3 "$NORMA" train recipe.ini --train.updates 100000 --train.save_every 1 --train.validate_every 100000 --run.quiet --run.folder "$@" </dev/null >out 2>err &
    process=$!
    local waited=0
    while [ ! -e "$1/last.safetensors" ] && [ $((waited += 1)) -lt 6000 ]; do sleep 0.01; done
    victim=
    local pid
    for pid in $(pgrep -f -- "--run.folder $1"); do
        # grep reads all: a broken pipe would count as a failure
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -E '^(OMPI_COMM_WORLD_RANK|PMI_RANK)=1$' >/dev/null && victim=$pid
    done
    [ -n "$victim" ] || { fail "rank 1 of $1 was not found: $(cat err)"; victim=$process; }
}
finish() {
    got=0
    cases=$((cases + 1))
    wait "$process" 2>/dev/null || got=$?
}
start terminated
kill -TERM "$victim"
finish
ends 9 'norma: stopped after update '
# During a validation, whose translations have thousands of tokens: it ends early, and the resumed run repeats it.
"$MPIEXEC" -n 3 "$NORMA" train recipe.ini --train.updates 2 --train.validate_every 1 --train.validate_examples 0 --decode.max_length_b 100000 \
    --decode.beam 64 --decode.min_length 100000 --train.log_every 1 --run.quiet --run.folder validating </dev/null >out 2>err &
process=$!
for ((i = 0; i < 600; i++)); do
    grep -qs '"type":"train"' validating/log.jsonl && break
    sleep 0.05
done
sleep 0.2
pkill -TERM -f "^$NORMA train recipe.ini .*--run.folder validating"
await_end
ends 9 'norma: stopped after update 1; checkpoint written'
grep -q '"type":"valid"' validating/log.jsonl && fail "a validation that was interrupted has a result: $(cat validating/log.jsonl)"
ranks 2 --run.folder validating --resume --train.validate_examples 1 --decode.min_length 1 --decode.max_length_b 5 --resume=override
has err 'resumed at update 1'
[ "$(grep -c '"type":"valid"' validating/log.jsonl)" = 2 ] || fail "the validation was not repeated: $(cat err)"
start frozen --comm.timeout 2
kill -STOP "$victim"
finish
ends 3 'norma: rank 1 has not responded for 2 seconds'
# The system's clock is set back: rank 1 reads a time that is an hour ahead of the clock of the kernel.
if ! grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt"; then # a sanitizer is to be loaded first
    cat >clock.c <<'X2'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += clock == CLOCK_REALTIME ? 3600 : 0;
    return code;
}
X2
    "${CC:-cc}" -shared -fPIC -o clock.so clock.c || fail "the clock does not compile"
    # shellcheck disable=SC2016
    printf '#!/bin/bash\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || export LD_PRELOAD=%q\nexec "$@"\n' "$PWD/clock.so" >late.sh
    chmod +x late.sh
    got=0
    timeout 120 "$MPIEXEC" -n 2 ./late.sh "$NORMA" train recipe.ini --run.quiet --run.folder late --comm.timeout 6 --train.updates 0 \
        --train.seconds 9 --train.validate_every 100000 --train.save_every 0 </dev/null >out 2>err || got=$?
    [ "$got" = 0 ] || fail "a clock that is set back: exit code $got: $(cat err)"
fi
start killed
kill -9 "$victim"
finish
[ "$got" != 0 ] || fail "a rank was killed, but the exit code is 0"
last=$(find killed/checkpoints -name "*[0-9].safetensors" | sed "s/.*\/0*//; s/\..*//" | sort -n | tail -n 1)
ranks 2 --train.updates "$((last + 2))" --run.folder killed --resume
[ "$got" = 0 ] || fail "no resume after a kill: $(cat err)"
has err "resumed at update $last"

# Signals that the parent ignores stay ignored: UCX, which MPICH loads, installs a handler for SIGHUP.
perl -e '$SIG{HUP} = "IGNORE"; exec @ARGV' -- "$NORMA" train recipe.ini --comm.backend mpi --train.updates 300 \
    --run.quiet --run.folder ignoring </dev/null >out 2>err &
process=$!
for ((i = 0; i < 600; i++)); do
    [ -e ignoring/last.safetensors ] && break
    sleep 0.05
done
kill -HUP $process
got=0 cases=$((cases + 1))
wait $process || got=$?
[ "$got" = 0 ] || fail "exit code $got after an ignored SIGHUP: $(cat err)"

# Without the module, or with that of another version.
built=$NORMA
mkdir alone
cp "$NORMA" alone/norma
NORMA=$work/alone/norma
refuses 7 'comm.backend = mpi: this program was built without MPI' train recipe.ini --run.folder no --comm.backend mpi
echo 'const char nm_comm_mpi_module[64] = "9.9.9";' >other.c
"${CC:-cc}" -shared -fPIC -o alone/norma-mpi.so other.c || fail "the module of another version does not compile"
refuses 5 'norma-mpi.so is of version 9.9.9, but this is norma' train recipe.ini --run.folder no --comm.backend mpi
echo 'not a library' >alone/norma-mpi.so
refuses 7 'the module for MPI cannot be loaded: ' train recipe.ini --run.folder no --comm.backend mpi
has err 'alone/norma-mpi.so'
NORMA=$built

# The launcher of another MPI library does not connect the processes. The first one prints the error.
for rank in 0 1; do
    got=0 cases=$((cases + 1))
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=$rank timeout 120 "$NORMA" train recipe.ini --run.folder unconnected </dev/null >out 2>err || got=$?
    [ "$got" = 7 ] || fail "unconnected processes: exit code $got: $(cat err)"
    [ "$(grep -c 'the launcher has started 2 processes, but MPI does not connect them' err)" = $((1 - rank)) ] ||
        fail "unconnected processes, rank $rank: $(cat err)"
    [ ! -e unconnected ] || fail "unconnected processes: a run was started"
    for command in 'translate one test.xx' 'perplexity one' 'inspect one'; do
        got=0 cases=$((cases + 1))
        # shellcheck disable=SC2086
        OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=$rank timeout 120 "$NORMA" $command </dev/null >out 2>err || got=$?
        [ "$got" = 7 ] && [ ! -s out ] || fail "unconnected processes, $command: exit code $got: $(cat err)"
        [ "$(grep -c 'MPI does not connect them' err)" = $((1 - rank)) ] || fail "unconnected processes, $command, rank $rank: $(cat err)"
    done
done

# Tasks of srun without an MPI plugin do not find each other.
for task in 0 1; do
    SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task "$NORMA" train recipe.ini --run.quiet --run.folder "task$task" 2>err || fail "task $task: $(cat err)"
    [ "$(grep -c 'warning: srun has started 2 tasks without MPI' err)" = $((1 - task)) ] || fail "task $task of srun: $(cat err)"
done
SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$NORMA" train recipe.ini --run.quiet --comm.backend none --run.folder task2 2>err || fail "task 2: $(cat err)"
cases=$((cases + 3))
grep -q 'warning: srun' err && fail "a warning in spite of comm.backend = none: $(cat err)"

# A comparison whose runs are started by a launcher equals one without.
for launch in '' "$MPIEXEC -n 2"; do
    "$NORMA" compare recipe.ini --norms layer --seeds 1 --jobs 1 --launch "$launch" --device.threads 1 \
        --folder "compare${launch:+2}" --tid-batches 0 </dev/null >out 2>err || fail "compare --launch '$launch': $(cat err)"
done
has compare2/*/log.jsonl '"ranks":2'
[ "$(weights compare/*/last.safetensors)" = "$(weights compare2/*/last.safetensors)" ] || fail "the launcher changed the weights"
# The message of a run that fails is that of Norma, not the last line of the launcher, which cannot start a comparison itself.
got=0 cases=$((cases + 1))
"$NORMA" compare recipe.ini --norms layer --seeds 1 --jobs 1 --launch "$MPIEXEC -n 2" --train.shards 1 \
    --folder failing --tid-batches 0 </dev/null >out 2>err || got=$?
[ "$got" = 2 ] || fail "compare: exit code $got of a failed run"
has out 'failed: 2 processes need at least as many shards per update; train.shards is 1'
got=0 cases=$((cases + 1))
timeout 120 "$MPIEXEC" -n 2 "$NORMA" compare recipe.ini --norms layer --seeds 1 --folder nested </dev/null >out 2>err || got=$?
ends 2 'norma compare starts its runs itself'
[ ! -e nested ] || fail "a launcher has started a comparison"

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "1, 2 and 3 ranks, a resume with other numbers of ranks: the same weights; failures of one rank end all ($cases cases)"
