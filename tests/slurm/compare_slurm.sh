# norma compare --slurm, with sbatch, squeue, scontrol and scancel in PATH: those of Slurm (real_slurm.sh) or of
# fake_slurm.py (e2e_slurm.sh). To be sourced after hostile_helper.sh.
# shellcheck shell=bash disable=SC2154
make_sentence_splits
prepare_sentences data
write_recipe recipe.ini run.task=lm data.folder=data model.preset=tiny model.width=16 model.ff=32 \
    model.heads=2 model.layers=1 model.context=32 train.updates=100 train.log_every=50 \
    train.validate_every=50 train.save_every=50 train.keep_last=1 train.max_tokens=128 \
    schedule.name=constant schedule.lr=0.01
# Four short runs; two longer ones, to be interrupted.
short=(compare recipe.ini --tid-batches 2 --norms "layer,power:train.max_grad_norm=0.9" --seeds 2 --format csv)
long=(compare recipe.ini --tid-batches 2 --norms "layer,power" --format csv --train.updates 6000 --train.validate-every 2000 --train.save-every 300)
by_slurm() { # FOLDER OPTIONS...: a comparison whose tasks have one CPU; sets $got
    local folder=$1
    shift
    local -n which=$kind
    try "${which[@]}" --folder "$folder" --slurm "--cpus-per-task=1 --mem=10" "$@"
}
# Without the throughput.
plain() { awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "tok/s") speed = i } { $speed = ""; print }' "$1"; }
equal() { # WHAT: the last comparison has succeeded, with the table of the local one
    [ "$got" = 0 ] || fail "$1: exit code $got: $(cat err)"
    [ "$(plain $kind.csv)" = "$(plain out)" ] || fail "$1: another table: $(diff <(plain $kind.csv) <(plain out))"
}
submitted() { # FOLDER N...: the arrays of the folder have N... tasks
    local folder=$1 n number=0
    shift
    for n in "$@"; do
        number=$((number + 1))
        cases=$((cases + 1))
        [ "$(wc -l <"$folder/slurm/$number.runs")" = "$n" ] || fail "array $number of $folder: not $n tasks: $(cat "$folder/slurm/$number.runs")"
    done
    [ ! -e "$folder/slurm/$((number + 1)).runs" ] || fail "$folder: more than $number arrays: $(cat "$folder/slurm/$((number + 1)).runs")"
}
queued() { squeue --me --noheader --array --format="%F_%K %T %j" | grep -- "$1"; }
await() { # WHAT COMMAND...: until it succeeds, a minute at most
    local what=$1 waited=0
    shift
    while ! "$@" >/dev/null 2>&1; do
        if [ $((waited += 1)) -gt 1200 ]; then
            fail "$what did not happen"
            return
        fi
        sleep 0.05
    done
}
start() { # FOLDER OPTIONS...: a comparison in the background, until its first run trains
    local folder=$1
    shift
    "$NORMA" "${long[@]}" --folder "$folder" --slurm "--cpus-per-task=1" "$@" >out 2>err &
    process=$!
    await "training in $folder" grep -qs '"type":"train"' "$folder/layer-1/log.jsonl"
}
task_of() { # FOLDER RUN: the id of the task in Slurm's queue
    local index
    index=$(($(grep -n " $2\$" "$1/slurm/1.runs" | cut -d: -f1) - 1))
    queued "_$index [A-Z]* norma-" | head -n 1 | cut -d' ' -f1
}
finish() {
    got=0
    wait $process || got=$?
    process=
}

"$NORMA" "${short[@]}" --folder local --device.threads 1 >short.csv 2>err || fail "local: $(cat err)"
"$NORMA" "${long[@]}" --folder long --device.threads 1 >long.csv 2>err || fail "local: $(cat err)"

# ---- one array; finished runs are not submitted again ----

kind=short
by_slurm whole
equal "by Slurm"
submitted whole 4
has err "Slurm job "
has whole/layer-1/log.jsonl "--device.threads=1"
by_slurm whole
equal "again"
submitted whole 4
rm -r whole/layer-2 && rm whole/layer-2.exit
by_slurm whole
equal "after a run was removed"
submitted whole 4 1
has whole/slurm/2.runs ' layer-2'

# ---- a killed and an interrupted caller; a requeued task ----

kind=long
start killed --jobs 1
scontrol requeue "$(task_of killed layer-1)"
disown
kill -9 $process
by_slurm killed --schedule.lr 0.02
[ "$got" = 2 ] || fail "other settings: exit code $got: $(cat err)"
has err "is being trained with other settings, by Slurm task"
by_slurm killed
equal "after the caller was killed and a task requeued"
submitted killed 2
has err "runs are in Slurm's queue already"
has killed/layer-1.txt "to continue"
has killed/layer-1.txt "resumed at update"

start stopped
kill -INT $process
finish
[ "$got" = 9 ] || fail "exit code $got after Ctrl-C: $(cat err)"
has err "the runs continue in Slurm's queue"
by_slurm stopped
equal "after Ctrl-C"
submitted stopped 2

# ---- canceled tasks, one of which has begun ----

start canceled --jobs 1
first=$(task_of canceled layer-1)
scancel "$first" "$(task_of canceled power-1)"
finish
[ "$got" = 9 ] || fail "canceled: exit code $got: $(cat err)"
has err "no run finished; the first one failed: Slurm task $first has ended without a result"
grep -q "Slurm task $first has ended without a result.*CANCELLED.*; log: .*canceled/slurm/1-0.txt" err || fail "the canceled task: $(cat err)"
by_slurm canceled
equal "after a cancellation"
submitted canceled 2 2

# ---- failures ----

try compare recipe.ini --tid-batches 2 --folder failing --slurm "--cpus-per-task=1" \
    --norms layer,none:schedule.lr=100:schedule.warmup=0:train.divergence_factor=1.01:train.updates=50
[ "$got" = 0 ] || fail "one of two fails: $(cat err)"
has out 'failed: update'
grep -q 'failed: update.*; log: failing/none.*-1.txt' out || fail "no log of the failed run: $(cat out)"
try "${short[@]}" --folder early --slurm "--partition=none"
[ "$got" = 3 ] || fail "no partition: exit code $got: $(cat err)"
has err 'sbatch failed: sbatch: error: invalid partition specified: none'
refuses 2 'compare.slurm: --array of sbatch is set by norma compare' compare recipe.ini --folder early --slurm "--mem=10 --array=1-4"
refuses 2 'compare.slurm: -o of sbatch is set by norma compare' compare recipe.ini --folder early --slurm "-ofile"
refuses 2 'expected options of sbatch' compare recipe.ini --folder early --slurm "2:00:00"
if [ -e early/layer-1 ] || [ -n "$(ls early/slurm)" ]; then fail "something was submitted: $(ls early early/slurm)"; fi
