#!/usr/bin/env bash
# norma demo on generated texts: its output without a text, a language model, a tagger, an interruption and its
# continuation, and errors.
set -uo pipefail
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
bad=0
fail() {
    echo "e2e_demo: $*"
    bad=1
}
has() { # FILE TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not in $1: $(head -c 600 "$1")"
}
refuses() { # CODE MESSAGE ARGUMENT...
    local want=$1 message=$2 code=0
    shift 2
    "$NORMA" demo "$@" >out 2>err || code=$?
    [ "$code" = "$want" ] || fail "demo $* gave exit code $code instead of $want: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || fail "demo $* did not print one line: $(cat err)"
    has err "$message"
}

# ---- without a text: the expected files ----
refuses 2 "no kind given; available: translation, lm, tag"
has out "norma demo translation SOURCE TARGET"
refuses 2 "unknown kind classes" classes
refuses 2 "expects 1 file, not 0" lm
has out "apt-get install bible-kjv"
refuses 2 "expects 1 file, not 0" tag
has out "CoNLL shared tasks"
refuses 2 "expects 2 files, not 1" translation one.txt
refuses 3 "nowhere.txt" lm nowhere.txt
[ -e demo-lm ] && fail "a demo without a text has left a folder"

# ---- texts that cannot be split ----
yes 'a line' | head -n 20 >short.txt
refuses 4 "short.txt has 20 lines; the demo needs at least 100" lm short.txt
(yes 'a line' | head -n 200; printf 'broken \xff line\n') >broken.txt
refuses 4 "broken.txt:201: not UTF-8" lm broken.txt
yes 'a line' | head -n 200 >one.txt
yes 'a line' | head -n 199 >other.txt
refuses 4 "other.txt has 199 lines, the other text 200" translation one.txt other.txt
# A file that cannot be written: no other file of the text is left.
mkdir -p blocked/test.txt
refuses 3 "blocked/test.txt: is a folder" lm one.txt --folder blocked
[ "$(ls -A blocked)" = test.txt ] || fail "a text that was not split left files: $(ls -A blocked)"
rm -rf demo-*

# ---- a language model ----
awk 'BEGIN {
    srand(1)
    split("the a every", det); split("dog cat house tree river", noun); split("runs sings sleeps falls", verb)
    for (i = 0; i < 400; i++)
        print det[1 + int(rand() * 3)], noun[1 + int(rand() * 5)], verb[1 + int(rand() * 4)], "line" i
}' >text.txt
"$NORMA" demo lm text.txt --norms layer,batch --updates 3 >out 2>err || fail "demo lm: $(tail -n 3 err)"
grep -q '^layer .*ppl\|^layer' out || fail "no table: $(cat out)"
has out "Continuations of the beginning of the test text by demo-lm/runs/layer-1:"
[ "$(cat demo-lm/{train,valid,test}.txt | sort -u | wc -l)" = 400 ] || fail "the three texts are not the whole"
[ "$(wc -l <demo-lm/test.txt)" = 20 ] || fail "the test text has $(wc -l <demo-lm/test.txt) lines"
grep -q 'line190$' <(head -n 1 demo-lm/test.txt) || fail "the test text does not begin with the 20th block"
cmp -s demo-lm/recipe.ini "$SOURCE/recipes/demo-lm.ini" || fail "the recipe is not that of recipes/"

# ---- again: nothing is trained twice; another text in the same folder is refused ----
stamp=$(stat -c %Y%i demo-lm/runs/layer-1/best.safetensors demo-lm/data/data.ini)
"$NORMA" demo lm text.txt --norms layer,batch --updates 3 >again 2>err || fail "demo lm again: $(tail -n 3 err)"
[ "$stamp" = "$(stat -c %Y%i demo-lm/runs/layer-1/best.safetensors demo-lm/data/data.ini)" ] || fail "it was done again"
cmp -s <(grep '^layer\|^batch' out) <(grep '^layer\|^batch' again) || fail "another table: $(diff out again)"
refuses 2 "demo-lm contains the demo of another text" lm one.txt

# ---- interrupted and continued ----
# Without job control bash ignores SIGINT in background processes. A terminal that is closed sends SIGHUP.
for signal in HUP INT; do
    rm -rf stopped
    perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- "$NORMA" demo lm text.txt --norms layer --folder stopped --updates 100000 --seconds 600 >out 2>err &
    demo=$!
    for _ in $(seq 300); do
        [ -s stopped/runs/layer-1/log.jsonl ] && break
        sleep 0.2
    done
    kill -$signal $demo
    wait $demo
    code=$?
    [ $code = 9 ] || fail "after SIG$signal it gave exit code $code: $(tail -n 3 err)"
    has err "the same command continues"
done
"$NORMA" demo lm text.txt --norms layer --folder stopped --updates 100000 --seconds 1 >out 2>err || fail "continuation: $(tail -n 3 err)"
grep -q '^layer' out || fail "gone on, no table: $(cat out)"

# ---- a tagger ----
awk 'BEGIN {
    srand(2)
    for (i = 0; i < 200; i++) {
        print "Mr", "O"; print "Name" int(rand() * 9), "B-PER"; if (i % 2) print "Smith", "I-PER"; print "sleeps", "O"; print ""
    }
}' >columns.txt
"$NORMA" demo tag columns.txt --norms layer --updates 5 --folder 'demo tag' >out 2>err || fail "demo tag: $(tail -n 3 err)"
has err "norma report 'demo tag/runs'/*/"
has out "F1"
[ "$(grep -c '^$' 'demo tag/test.txt')" = 10 ] || fail "the test text has $(grep -c '^$' demo-tag/test.txt) sentences"
exit $bad
