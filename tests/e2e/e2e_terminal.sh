#!/bin/bash
# Output on a terminal: the width of a help text, the line that norma train redraws, the table of the runs of norma compare, keys
# that are typed. The terminal is a pseudo terminal of the program script (Debian package bsdutils).
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

command -v script >/dev/null || { echo "skipped: script is not installed (bsdutils)"; exit 77; }
unset COLUMNS
make_data

# terminal_command ROWSxCOLUMNS ARGUMENTS...: a command for script whose standard output is the file out.
terminal_command() {
    local size=$1
    shift
    echo "stty rows ${size%x*} cols ${size#*x}; exec $(printf '%q ' "$NORMA" "$@") >out"
}
# on_terminal ROWSxCOLUMNS ARGUMENTS...: sets $got; what the terminal receives is in screen, standard output in out.
on_terminal() {
    got=0
    cases=$((cases + 1))
    script -qec "$(terminal_command "$@")" typescript </dev/null >screen || got=$?
}
# start_on_terminal ROWSxCOLUMNS ARGUMENTS...: the same in the background, as process $process; keys are written to descriptor 4.
start_on_terminal() {
    rm -f keys
    mkfifo keys
    # Without job control bash ignores SIGINT in background processes.
    perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- script -qec "$(terminal_command "$@")" typescript <keys >screen &
    process=$!
    exec 4>keys
}
finish() {
    await_end
    exec 4>&-
}
# The lines of the terminal after every redraw, without escape sequences.
lines() {
    tr '\r' '\n' <screen | sed 's/\x1b\[[0-9]*[A-Z]//g'
}
has_line() { # PATTERN: a whole line of the screen
    cases=$((cases + 1))
    grep -qxE -- "$1" <(lines) || fail "no line '$1' on the terminal: $(cat -v screen)"
}

# ---- help: as wide as the terminal ----
for columns in 72 100; do
    COLUMNS=$columns try help train all
    mv out wanted
    script -qec "stty cols $columns; exec $(printf %q "$NORMA") help train all" typescript </dev/null | tr -d '\r' >got
    same got wanted
done

# ---- norma train: one line is redrawn, and other lines begin after it ----
on_terminal 24x80 train recipe.ini --run.folder run
[ "$got" = 0 ] || fail "train: exit code $got: $(cat -v screen)"
has screen $'\r\033[K25 %  epoch 1 ('
has_line '25 %  epoch 1 \(1/[0-9]+\)  update 1  loss .*  left 0:00'
has screen 'validation at update 2 ...'$'\r\033[K''validation at update 2: loss '
has_line 'done: 4 updates, .*'
on_terminal 24x80 train recipe.ini --run.folder quiet --run.quiet
lacks screen 'epoch 1'
has_line 'done: 4 updates, .*'

# ---- Ctrl-C ----
start_on_terminal 24x80 train recipe.ini --run.folder stopped --train.updates 100000
until [ -e stopped/last.safetensors ] || ! kill -0 $process 2>/dev/null; do sleep 0.01; done
printf '\003' >&4
finish
[ "$got" = 9 ] || fail "exit code $got after Ctrl-C: $(cat -v screen)"
has_line '.*norma: stopped after update [0-9]+; checkpoint written.*' # Ctrl-C discards output that the terminal has not shown
has_line 'to continue: norma train --run.folder stopped --resume'

# ---- a line that is typed is translated before the next one is read ----
start_on_terminal 24x80 translate run
printf 'das haus ist gross\n' >&4
for ((i = 0; i < 600; i++)); do
    [ ! -s out ] || break
    sleep 0.1
done
[ "$(wc -l <out)" = 1 ] || fail "not one answer to one line: $(cat out)"
printf 'der hund\n\004' >&4
finish
[ "$got" = 0 ] || fail "translate: exit code $got: $(cat -v screen)"
[ "$(wc -l <out)" = 2 ] || fail "not two answers to two lines: $(cat out)"

# ---- norma compare: a line for each run, cut at the width of the terminal ----
compare=(compare recipe.ini --jobs 1 --seeds 2 --tid-batches 0 --samples false)
# interrupt_comparison ROWSxCOLUMNS FOLDER: Ctrl-C when the first of four runs trains and the table is on the terminal.
interrupt_comparison() {
    start_on_terminal "$1" "${compare[@]}" --norms layer,batch --folder "$2" --train.updates 100000
    until { [ -e "$2/layer-1/last.safetensors" ] && grep -q running screen; } || ! kill -0 $process 2>/dev/null; do sleep 0.01; done
    printf '\003' >&4
    finish
    [ "$got" = 9 ] || fail "exit code $got after Ctrl-C in a comparison: $(cat -v screen)"
    has_line '4 runs: 0 finished, 1 running, 3 waiting; 1 in parallel'
    has_line 'layer    1  .*'
    has_line '.*norma: interrupted; the same command continues the runs' # after the echo of Ctrl-C
    has "$2/layer-1.txt" 'to continue'
}
interrupt_comparison 24x60 stopped-table
has_line 'batch    2  waiting'
# A terminal with fewer rows than runs: only those that are running.
interrupt_comparison 5x80 few-rows
lacks screen 'layer    2'

on_terminal 24x60 "${compare[@]}" --norms layer,batch --folder table
[ "$got" = 0 ] || fail "compare: exit code $got: $(cat -v screen)"
has_line '4 runs: 4 finished, 0 running, 0 waiting; 1 in parallel'
has_line 'layer    1  BLEU [0-9.]* on the test set'
has_line 'batch    2  done: 4 updates, .*'
has screen $'\033[J\033[5A' # a table replaces the one before it
has_line 'norma: scoring 1 run on the test set'
has_line 'batch, seed 2: BLEU [0-9.]* on the test set'
[ "$(lines | awk '/^(layer|batch) / && length($0) > 59' | wc -l)" = 0 ] || fail "a line is wider than the terminal: $(cat -v screen)"
has out 'BLEU'
# A second call with one more variant, which fails. Its name is cut.
failing=none:schedule.lr=100:schedule.warmup=0:train.divergence_factor=1.01
on_terminal 24x100 "${compare[@]}" --norms layer,batch,$failing --folder table
[ "$got" = 0 ] || fail "compare with a failing variant: exit code $got: $(cat -v screen)"
has_line 'layer {31}1  finished and scored earlier'
has_line "${failing:0:32}    2  failed: update 1: loss .* exceeds the divergence.*"
has out 'failed: update 1'

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "$cases cases on a terminal"
