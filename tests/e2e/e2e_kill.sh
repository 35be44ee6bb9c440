#!/bin/bash
# A run that is killed (SIGKILL) at random times and while it writes checkpoints, and resumed each time, ends with
# weights bitwise identical to those of an uninterrupted run, and never loses more than the updates since the last
# complete checkpoint.
# SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGPIPE end it with a checkpoint and exit code 9, unless the parent process ignores them;
# a second SIGINT or SIGTERM ends it at once.
# A second process in the run folder is rejected.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_data

kills_of_test=20 patience=30
grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt" && kills_of_test=6 patience=10 # every start takes seconds
wanted_kills=${KILLS:-$kills_of_test} # make soak: 500
run_kills=$((wanted_kills < 20 ? wanted_kills : 20)) # of one run; more kills are those of several runs
# Running statistics, dropout, accumulation, a schedule with state, and early stopping, which ends the run.
sed -i 's/^norm = .*/norm = power\ndropout = 0.2/; s/^width = .*/width = 32/; s/^ff = .*/ff = 256/; s/^updates = .*/shards = 2/; s/^validate_every = .*/validate_every = 10/
    s/^validate_examples = .*/score = false\nlog_every = 10/ # the schedule uses the loss: the BLEU of this model is always 0
    s/^\[schedule\]/[schedule]\nname = val-decay\npatience = 1/' recipe.ini
sed -i "s/^shards = .*/&\npatience = $patience/" recipe.ini
limit=2000
train() { # FOLDER OPTIONS...
    "$NORMA" train recipe.ini --train.updates $limit --run.quiet --run.folder "$@"
}
# The same in the background, as process $process. Without job control bash ignores SIGINT in background processes.
start() {
    perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- \
        "$NORMA" train recipe.ini --train.updates $limit --run.quiet --run.folder "$@" 2>err >out &
    process=$!
}

# Update of the newest complete checkpoint; 0: none.
newest() {
    local best=0 file
    for file in "$1"/checkpoints/*[0-9].safetensors; do
        [ -e "$file" ] && file=${file##*/} && file=${file%.safetensors} && [ $((10#$file)) -gt $best ] && best=$((10#$file))
    done
    echo "$best"
}

train whole 2>err || { cat err >&2; exit 1; }
wanted=$(weights whole/last.safetensors)
# The schedule decays at validations without improvement; decays must be among what the kills interrupt.
decays=$(grep -o '"lr":[0-9.e-]*' whole/log.jsonl | sort -u | wc -l)
[ "$decays" -ge 3 ] || fail "only $decays learning rates in the run that is killed"
# Early stopping counts validations since the best one; that count, too, must be among what the kills interrupt.
validated() { sed -n "/\"type\":\"valid\".*$1/s/.*\"update\":\([0-9]*\).*/\1/p" whole/log.jsonl | tail -n 1; }
updates=$(validated '') best=$(validated '"best":true')
[ "$updates" -lt $limit ] || fail "no early stopping in $limit updates"
[ "$best" -lt $((updates - 9 * patience)) ] || fail "early stopping at update $updates, but the best one is $best"
[ "$(train again 2>err; weights again/last.safetensors)" = "$wanted" ] || fail "two runs differ without any kill"

# The path to which the file of an update is written: a model gets its name after its manifest.
written() { # PATH UPDATE
    case $1 in
    *.state.safetensors) echo "$1" ;;
    *) printf '%s.%08x.new' "$1" "$2" ;;
    esac
}

# Kills the stopped process while it writes a file of a later update $1. The bytes read until then become the temporary file of
# that checkpoint.
kill_in_write() {
    local path temporary
    path=killed/checkpoints/$(printf %08d "$1").$2
    temporary=$(written "$path" "$1")
    continue_to_write "$process" "$temporary"
    kill -9 "$process" 2>/dev/null
    rm "$temporary"
    cp part "$path.0123abcd.new"
    exec 3>&-
}

# One run whose sessions are killed up to run_kills times. Each session is killed after it has written a newer checkpoint than
# the previous one, so the run finishes. The process is stopped (SIGSTOP) while the update is chosen, so that this update is a
# later one on machines of any speed. The updates are spread evenly over the rest of the run.
kills=0 stopping_kills=0
kill_run() {
    local before=0 run_end=$((kills + run_kills)) first=$kills stopping_before=$stopping_kills now next expected resumed
    rm -rf killed
    while [ "$kills" -lt "$run_end" ]; do
        start killed --resume
        disown # no messages of the shell about kills
        while kill -0 $process 2>/dev/null && [ "$(newest killed)" -le "$before" ]; do sleep 0.001; done
        kill -STOP $process 2>/dev/null
        now=$(newest killed) expected=
        next=$((now + (updates - now) / (run_end - kills + 1)))
        [ $next -ge $((now + 8)) ] || next=$((now + 8))
        if [ $next -ge "$updates" ]; then # the last updates
            kill -9 $process 2>/dev/null
            break
        fi
        case $((kills % 3)) in
        0) kill -CONT $process && sleep "0.00$((RANDOM % 10))" && kill -9 $process 2>/dev/null ;;
        1) expected=$((next - 1)) && kill_in_write $next safetensors ;;
        2) expected=$((next - 1)) && kill_in_write $next state.safetensors ;;
        esac
        while kill -0 $process 2>/dev/null; do sleep 0.001; done
        kills=$((kills + 1)) cases=$((cases + 1))
        grep -qE 'Sanitizer|runtime error|^norma: .*is damaged' err && fail "before kill $kills: $(cat err)"
        resumed=$(sed -n 's/^norma: resumed at update \([0-9]*\),.*/\1/p' err)
        [ "${resumed:-0}" = "$before" ] || fail "continued at update ${resumed:-0}, the newest checkpoint was $before"
        [ "${expected:-$(newest killed)}" = "$(newest killed)" ] ||
            fail "killed while it wrote update $next, but the newest checkpoint is $(newest killed)"
        before=$(newest killed)
        [ "$before" -le "$best" ] || stopping_kills=$((stopping_kills + 1))
    done
    [ $((kills - first)) -ge 3 ] || fail "only $((kills - first)) kills before the run was over"
    [ "$stopping_kills" -gt "$stopping_before" ] || fail "no kill between the best validation and the early stopping"
    train killed --resume 2>err || fail "the last part failed: $(cat err)"
    ls killed/*.new killed/checkpoints/*.new >/dev/null 2>&1 && fail "unfinished files stay: $(ls killed killed/checkpoints)"
    [ "$(weights killed/last.safetensors)" = "$wanted" ] || fail "$kills kills changed the weights"
    [ "$(weights killed/best.safetensors)" = "$(weights whole/best.safetensors)" ] || fail "$kills kills changed the best weights"
    [ "$(plain killed)" = "$(plain whole)" ] || fail "the log differs: $(diff <(plain killed) <(plain whole) | head -n 4)"
}
# The log is that of an uninterrupted run, except for the times.
plain() { sed -E 's/"(seconds|tokens_per_second|load|other_cores|started|command)":("[^"]*"|[^,}]*)//g' "$1/log.jsonl"; }
while [ "$kills" -lt "$wanted_kills" ] && [ "$failures" = 0 ]; do
    kill_run
    [ "$wanted_kills" = "$run_kills" ] ||
        echo "$kills kills, $stopping_kills of them after the best validation: the same weights, best weights and log"
done

# Waits until the process has written a checkpoint of update 3 or later.
await_checkpoint() { # FOLDER
    while kill -0 $process 2>/dev/null && [ "$(newest "$1")" -lt 3 ]; do sleep 0.002; done
}
# Starts a run in the folder `stopped` and stops it (SIGSTOP) after a checkpoint. On a busy machine the whole run may be over
# before the checkpoint is noticed: then it is started again.
start_and_stop() {
    local attempt
    for attempt in 1 2 3 4 5 6 7 8; do
        rm -rf stopped
        start stopped
        await_checkpoint stopped
        kill -STOP $process 2>/dev/null
        [ "$(newest stopped)" -ge $((updates - 20)) ] || return 0
        kill -9 $process 2>/dev/null
        wait $process 2>/dev/null
    done
    fail "$attempt runs were over before a checkpoint was noticed"
}
resumes_exactly() { # FOLDER WHAT
    train "$1" --resume 2>err || fail "cannot continue after $2: $(cat err)"
    [ "$(weights "$1"/last.safetensors)" = "$wanted" ] || fail "$2 changed the weights"
}

# Signals that end a run with a checkpoint.
for signal in INT TERM HUP USR1; do
    start_and_stop
    kill -$signal $process
    kill -CONT $process
    got=0 cases=$((cases + 1))
    wait $process || got=$?
    [ "$got" = 9 ] || fail "exit code $got after SIG$signal: $(cat err)"
    grep -q '^norma: stopped after update [0-9]*; checkpoint written' err || fail "no message about the stop: $(cat err)"
    grep -q '^to continue: norma train --run.folder stopped --resume' err || fail "no message on how to continue: $(cat err)"
    at=$(sed -n 's/^norma: stopped after update \([0-9]*\);.*/\1/p' err)
    [ "$(newest stopped)" = "${at:-none}" ] || fail "stopped at $at, but the newest checkpoint is $(newest stopped)"
    resumes_exactly stopped SIG$signal
done

# A second SIGINT or SIGTERM ends a run that does not get to its end, here because it waits to write a checkpoint.
for signal in INT TERM; do
    start_and_stop
    next=$(($(newest stopped) + 8))
    path=$(written "stopped/checkpoints/$(printf %08d $next).safetensors" $next)
    continue_to_write "$process" "$path"
    kill -$signal $process
    while grep -qs '^ShdPnd:.*[1-9a-f]' /proc/$process/status; do sleep 0.01; done # until the first signal is handled
    kill -0 $process || fail "SIG$signal ended the run without a checkpoint: $(cat err)"
    kill -$signal $process
    await_end
    [ "$got" = $((128 + $(kill -l $signal))) ] || fail "exit code $got after a second SIG$signal: $(cat err)"
    rm "$path"
    exec 3>&-
    resumes_exactly stopped "a second SIG$signal"
done

# SIGPIPE: the reader of the messages exits.
rm -rf stopped
mkfifo messages
head -n 5 <messages >/dev/null &
reader=$!
"$NORMA" train recipe.ini --train.updates $limit --run.report_seconds 0.1 --run.folder stopped 2>messages >out &
process=$!
wait $reader
got=0 cases=$((cases + 1))
wait $process || got=$?
[ "$got" = 9 ] || fail "exit code $got when the messages have no reader"
[ "$(newest stopped)" -gt 0 ] || fail "no checkpoint when the messages have no reader"
resumes_exactly stopped SIGPIPE

# A signal that the parent ignores stays ignored.
rm -rf stopped
perl -e '$SIG{INT} = $SIG{HUP} = "IGNORE"; exec @ARGV' -- \
    "$NORMA" train recipe.ini --train.updates $limit --run.quiet --run.folder stopped 2>err >out &
process=$!
await_checkpoint stopped
kill -INT $process
kill -HUP $process
got=0 cases=$((cases + 1))
wait $process || got=$?
[ "$got" = 0 ] || fail "exit code $got after ignored signals: $(cat err)"
[ "$(weights stopped/last.safetensors)" = "$wanted" ] || fail "ignored signals changed the weights"

# One process per run folder.
start_and_stop
for option in '' --resume; do
    got=0 cases=$((cases + 1))
    # shellcheck disable=SC2086
    train stopped $option 2>second || got=$?
    [ "$got" = 3 ] || fail "a second process in the folder: exit code $got: $(cat second)"
    grep -q "process $process" second || fail "the message does not name process $process: $(cat second)"
done
kill -CONT $process
wait $process || fail "the first process failed: $(cat err)"
[ "$(weights stopped/last.safetensors)" = "$wanted" ] || fail "a second process changed the weights"
[ ! -e stopped/.lock ] || fail "the lock file remains"

echo "$kills kills (two of three in the middle of a file), $stopping_kills of them after the best validation; $decays learning rates;"
echo "early stopping at update $updates; five signals, two processes in one folder: the same weights"
