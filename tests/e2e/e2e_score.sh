#!/bin/bash
# norma score: the printed lines, the paired test, JSON, and one line with the documented exit code for bad input.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

expect_line() {
    local wanted=$1
    shift
    "$NORMA" score "$@" >out || fail "exit code $?: score $*"
    grep -qxF -- "$wanted" out || fail "'$wanted' is not a line of: $(cat out)"
}

cat >hyp <<'X'
the river runs lower than the hills
we walked to the old tower and the wall
newer walls stand at the river
he said that the tower was wide and tall today
X
cat >ref <<'X'
the river runs lower than the low hills
we walked to the oldest tower and to the wall
newer walls stand near the river
he said that the tower was very wide and tall
X
tr '[:lower:]' '[:upper:]' <hyp >upper
line='BLEU = 54.50, 90.6/71.4/50.0/35.0 (BP=0.939, ratio=0.941, hyp_len=32, ref_len=34)'

multi=(--metric-variant multi-bleu)
expect_line "$line" bleu hyp --reference ref "${multi[@]}"
expect_line "$line" bleu upper --reference ref --lowercase "${multi[@]}"
"$NORMA" score bleu --reference ref --bootstrap 0 "${multi[@]}" <hyp >out
[ "$(cat out)" = "$line" ] || fail "more than the line without a bootstrap: $(cat out)"
expect_line 'BLEU = 100.00, 100.0/100.0/100.0/100.0 (BP=1.000, ratio=1.000, hyp_len=32, ref_len=32)' \
    bleu hyp --reference ref --reference hyp "${multi[@]}"
expect_line 'BLEU = 100.00, 100.0/100.0/100.0/100.0 (BP=1.000, ratio=1.000, hyp_len=32, ref_len=32)' \
    bleu hyp --reference ref,hyp "${multi[@]}"

version=$("$NORMA" --version | tr -cd '0-9.\n' | head -n 1)
printf '%s\n' "Cost: \$5.00 & 20% off." >cost.hyp
printf '%s\n' "The cost: \$5.00 &amp; 20% off." >cost.ref
expect_line "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:norma-$version = 77.3 88.9/87.5/85.7/83.3 (BP = 0.895 ratio = 0.900 hyp_len = 9 ref_len = 10)" \
    bleu cost.hyp --reference cost.ref
"$NORMA" score bleu cost.hyp --reference cost.ref >out
"$NORMA" score bleu cost.hyp --metric-variant sacrebleu --tokenize 13a --reference cost.ref | same out -
printf 'abc\n' >abc
printf 'abd\n' >abd
expect_line "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:norma-$version = 38.9" \
    chrf abc --reference abd
"$NORMA" score bleu hyp --sentence --reference ref >out
[ "$(wc -l <out)" = 4 ] || fail "not one score for each line"

# The paired test: the same seed gives the same result; a system is not better than itself; a clearly better system
# wins every resample.
"$NORMA" score chrf ref --reference ref --against hyp >first
"$NORMA" score chrf ref --reference ref --against hyp >second
cmp first second || fail "two runs with one seed differ"
grep -q 'p = 0.0010 (paired bootstrap, one-sided, Koehn 2004)' first || fail "no clear winner: $(cat first)"
"$NORMA" score bleu hyp --reference ref --against hyp >out
grep -q 'difference: +0.00 .*p = 1.0000' out || fail "a system beats itself: $(cat out)"
"$NORMA" score bleu hyp --reference ref --against ref --centered "${multi[@]}" --json >out
grep -q '"test": "centered"' out || fail "JSON without the test: $(cat out)"
grep -q '"score": 54.49994989793' out || fail "JSON without the score: $(cat out)"

head -n 3 ref >short
printf 'a\nb\xff\n' >broken
printf 'a\nb\0\n' >zero
printf 'a\nb\n' >two
: >empty
refuses 5 'hyp has 4 lines, short has 3' score bleu hyp --reference short
refuses 5 'short has 3 lines, ref has 4' score bleu hyp --reference ref --against short
refuses 4 'broken:2: ' score bleu broken --reference two
refuses 4 'broken:2: ' score chrf two --reference two --reference broken
refuses 4 'zero:2: ' score bleu zero --reference two
refuses 4 'empty: ' score bleu empty --reference empty
printf 'B-PER\nI-PER\nO\n\nB-LOC\n\n' >column
refuses 4 'column: every line has one tag: all tags of a sentence belong on one line' score f1 column --reference column
printf 'B-PER\nI-PER\nB-LOC O\n\n' >lines
"$NORMA" score f1 lines --reference lines --bootstrap 0 >out 2>err || fail "f1 of sentences of one token: $(cat err)"
grep -q '^F1 = 100.00 (.*; 3 gold spans' out || fail "f1 of sentences of one token: $(cat out)"
refuses 3 'absent: ' score bleu hyp --reference absent
refuses 3 ': is a folder' score bleu hyp --reference .
refuses 2 'reference' score bleu hyp
refuses 2 'available: bleu, chrf' score rouge hyp --reference ref
refuses 2 'multi-bleu|sacrebleu' score bleu hyp --metric-variant other --reference ref
refuses 2 'split_compounds is an option of multi-bleu' score bleu hyp --split-compounds --reference ref
refuses 2 'standard input' score bleu --reference -
refuses 2 'score: --against compares corpus scores, not those of --sentence' score bleu hyp --reference ref --against hyp --sentence
refuses 2 'bootstrap' score bleu hyp --reference ref --against hyp --bootstrap 0
refuses 2 'score.seed = 3 has no effect with score.bootstrap = 0' score bleu hyp --reference ref --bootstrap 0 --seed 3
refuses 2 'score.seed = 3 has no effect with score.sentence = true' score bleu hyp --reference ref --sentence --seed 3
refuses 2 'score.centered = true has no effect' score bleu hyp --reference ref --centered
if [ -w /dev/full ]; then
    got=0
    "$NORMA" score bleu hyp --reference ref >/dev/full 2>err || got=$?
    [ "$got" = 3 ] || fail "full target: exit code $got"
fi
