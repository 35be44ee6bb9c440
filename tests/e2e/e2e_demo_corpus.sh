#!/usr/bin/env bash
# The scripts that build the corpus of the demo, on a few generated pages: pairs by structure, code and hidden
# alternatives are left out, a sentence is in one split only, and every run writes the same files.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

expect() { # what, expected, got
    [ "$2" = "$3" ] || fail "$1: expected [$2], got [$3]"
}

page() { # file; the body comes on stdin
    mkdir -p "$(dirname "$1")"
    { echo '<html><body>' && cat && echo '<footer><p>Kein Text</p></footer></body></html>'; } >"$1"
}

# Pairs -------------------------------------------------------------------------------------------------------
page "$work/help/de/text/a.html" <<'END'
<h1 id="h1" dir="auto">Eine &Uuml;ber&amp;schrift hier</h1>
<p id="p1">Das Haus ist rot. Der Hund l&#228;uft &lt;schnell&gt;.</p>
<p id="p2">Mit <span class="switchinline"><span class="MAC"><span class="k">Befehl</span></span><span id="d"><span class="k">Strg</span></span></span>+F suchen.</p>
<p id="p3" class="bascode">Print x</p>
<p id="p4">Siehe <span class="CALC">Calc</span><span class="WRITER">Writer</span> dazu.</p>
<p id="p5">Eins, z. B. Zwei.
   Drei ist mehr.</p>
END
page "$work/help/en-US/text/a.html" <<'END'
<h1 id="h1" dir="auto">One heading here</h1>
<p id="p1">The house is red. The dog runs <b>fast</b>.</p>
<p id="p2">Search with <span class="switchinline"><span class="MAC"><span class="k">Command</span></span><span id="d"><span class="k">Ctrl</span></span></span>+F.</p>
<p id="p3" class="bascode">Print x</p>
<p id="p4">See <span class="CALC">Calc</span><span class="WRITER">Writer</span> for it.</p>
<p id="p5">One, for example two, and three is more.</p>
END
echo '<p id="x">Nur hier.</p>' | page "$work/help/de/text/b.html"
echo '<p id="y">Only here.</p>' | page "$work/help/en-US/text/b.html"
echo '<p id="x">Ohne Gegenseite.</p>' | page "$work/help/de/text/c.html"
printf '<p id="x">Kaputt \xff\xfe.</p>' | page "$work/help/de/text/d.html"
printf '<p id="x">Broken.</p>' | page "$work/help/en-US/text/d.html"

pairs=$(python3 "$SOURCE/scripts/help_pairs.py" "$work/help/de" "$work/help/en-US" 2>"$work/said")
expect "pairs" "Eine &Uuml;ber&schrift hier	One heading here
Das Haus ist rot.	The house is red.
Der Hund läuft <schnell>.	The dog runs fast.
Mit Strg+F suchen.	Search with Ctrl+F.
Eins, z. B. Zwei. Drei ist mehr.	One, for example two, and three is more." "$pairs"
expect "pages" "read 4 pages, left out 3 whose two sides differ in structure" "$(cat "$work/said")"

# Parts -------------------------------------------------------------------------------------------------------
# 600 sentences, each repeated in capitals with another number; some that the filters remove; and one target sentence
# with many sources.
awk 'BEGIN {
    split("rot blau weit still warm klein neu alt schnell frei", w)
    split("Haus Hund Tal Meer Brot Kind Rad Dorf Blatt Licht", n)
    split("heute morgen oft nie wieder gern", t)
    for (i = 1; i <= 10; i++) for (j = 1; j <= 10; j++) for (k = 1; k <= 6; k++) {
        s = "Das " n[i] " ist " t[k] " " w[j]
        printf "%s mit 1 Ding.\tThe target %s %s %s with 1 thing.\n", s, n[i], t[k], w[j]
        printf "%s MIT 27 Ding!\tA second target, never to be seen.\n", toupper(s)
    }
    for (i = 1; i <= 10; i++) for (j = 1; j <= 10; j++)
        printf "Alle sagen %s und %s zugleich.\tEverybody says the same.\n", n[i], w[j]
    print "Zu kurz\tToo short here now"
    print "x = y + 1; und noch etwas\tx = y + 1; and something"
    print "Gleich auf beiden Seiten\tGleich auf beiden Seiten"
    print "Eine Seite allein"
    print "Drei\tSpalten sind eine\tzu viel hier"
    print "Ein kurzer Satz hier.\tThis one runs on and on and on and on and on."
}' >"$work/pairs.tsv"
printf 'Kein \xff gutes Zeichen\tNo good character\n' >>"$work/pairs.tsv"

split_into() { # folder, input
    mkdir -p "$work/$1"
    python3 "$SOURCE/scripts/split_pairs.py" "$work/$1" de en <"$2" 2>"$work/said" || fail "split into $1: $(cat "$work/said")"
}
split_into one "$work/pairs.tsv"
split_into two "$work/pairs.tsv"
LC_ALL=C sort -r "$work/pairs.tsv" >"$work/backwards.tsv"
split_into backwards "$work/backwards.tsv"

diff -r "$work/one" "$work/two" >&2 || fail "two runs differ"
for part in train valid test; do
    [ -s "$work/one/$part.de" ] || fail "$part is empty"
    expect "lines of $part" "$(wc -l <"$work/one/$part.de")" "$(wc -l <"$work/one/$part.en")"
done
total=$(cat "$work"/one/{train,valid,test}.de | wc -l)
if [ "$total" -lt 600 ] || [ "$total" -gt 700 ]; then
    fail "$total pairs of 700 different sources are left"
fi
expect "second targets" 0 "$(cat "$work"/one/*.en | grep -c 'never to be seen')"
expect "unwanted lines" 0 "$(cat "$work"/one/* | grep -cE 'Zu kurz|x = y|Gleich auf|allein|Spalten|on and on|gutes')"

# No repeated source, ignoring case and numbers; no target in two splits.
fold() { tr '[:upper:]' '[:lower:]' | sed 's/[0-9][0-9]*/0/g; s/[^a-z0]/ /g'; }
expect "repeated sources" "" "$(cat "$work"/one/*.de | fold | sort | uniq -d)"
for part in train valid test; do fold <"$work/one/$part.en" | sort -u; done >"$work/targets"
expect "targets in two parts" "" "$(sort "$work/targets" | uniq -d)"

# The split of a sentence does not depend on the sentences around it.
for part in train valid test; do
    for other in train valid test; do
        [ "$part" = "$other" ] && continue
        both=$(cat <(fold <"$work/one/$part.de") <(fold <"$work/backwards/$other.de") | sort | uniq -d)
        expect "sources that moved from $part to $other" "" "$both"
    done
done

# The whole --------------------------------------------------------------------------------------------------
mkdir -p "$work/many/de/text" "$work/many/en-US/text"
awk -F '\t' 'NF == 2 { gsub(/[<>&]/, ""); printf "<p id=\"p%d\">%s</p>\n", NR, $1 }' "$work/pairs.tsv" |
    grep -av 'gutes' | page "$work/many/de/text/a.html"
awk -F '\t' 'NF == 2 { gsub(/[<>&]/, ""); printf "<p id=\"p%d\">%s</p>\n", NR, $2 }' "$work/pairs.tsv" |
    grep -av 'No good' | page "$work/many/en-US/text/a.html"
"$SOURCE/scripts/demo_corpus.sh" "$work/corpus" "$work/many" 2>"$work/said" || fail "demo_corpus.sh: $(cat "$work/said")"
first=$(sed -n 's/.*checksum //p' "$work/said")
[ ${#first} -eq 16 ] || fail "no checksum was printed"
expect "work folders left" 0 "$(find "$work/corpus" -name 'work.*' | wc -l)"
expect "train.src" "$(cat "$work/corpus/train.de")" "$(cat "$work/corpus/train.src")"
"$SOURCE/scripts/demo_corpus.sh" "$work/corpus" "$work/many" 2>"$work/said"
grep -q 'is complete' "$work/said" || fail "a complete corpus was built again"
echo 'Etwas anderes.' >>"$work/corpus/test.de"
"$SOURCE/scripts/demo_corpus.sh" "$work/corpus" "$work/many" 2>"$work/said" || fail "building again"
expect "checksum after a damage" "$first" "$(sed -n 's/.*checksum //p' "$work/said")"

"$SOURCE/scripts/demo_corpus.sh" "$work/other" "$work/nothing" 2>/dev/null
expect "exit code without pages" 2 $?
"$SOURCE/scripts/demo_corpus.sh" 2>/dev/null
expect "exit code of wrong use" 2 $?

echo "demo corpus: $failures failures"
