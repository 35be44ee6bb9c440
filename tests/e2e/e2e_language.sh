#!/usr/bin/env bash
# scripts/check_language.sh: long sentences, phrases with a standard term, spelling and line width.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

check() { # FILE: findings in found
    cases=$((cases + 1))
    bash "$SOURCE/scripts/check_language.sh" "$PWD/$1" >found && got=0 || got=$?
}
accepted() { # FILE
    check "$1"
    { [ "$got" = 0 ] && [ ! -s found ]; } || fail "$1 is not accepted: $(cat found)"
}
words() { # N: N words in lines of ten
    seq -f 'word%g' "$1" | paste -sd ' ' | fold -sw 80 | sed 's/ $//'
}

# --- sentences -----------------------------------------------------------------------------------------------------------
{ echo '# Title' && echo && words 40 | sed '$s/$/./'; } >short.md
accepted short.md
{ echo 'One.' && words 41 | sed '$s/$/./' && echo && echo 'Two.'; } >long.md
check long.md
[ "$got" = 1 ] || fail "exit code $got"
has found 'long.md:1: 41 words: word1 word2'
has found 'at most 40 in a sentence'
[ "$(wc -l <found)" = 1 ] || fail "$(wc -l <found) findings: $(cat found)"
words 41 >end.md # without a period, at the end of the file
check end.md
has found 'end.md:1: 41 words'
# The next sentence begins after a period, a colon, or a period in parentheses.
for end in '.' ':' '?' '.)' '."'; do
    { words 25 | sed "\$s/\$/$end/" && words 25; } >two.md
    accepted two.md
done
{ words 25 | sed '$s/$/;/' && words 25; } >two.md
check two.md
has found 'two.md:1: 50 words'
# A list item, a table, a heading and code are not parts of the sentence before them.
{ words 25 && sed 's/^/- /' <(words 5) <(words 5) && words 25 | sed '1s/^/- /'; } >list.md
accepted list.md
{ words 25 && echo '## Title' && words 25 && echo '| a | b |' && words 25 && echo '```' && words 90 && echo '```' && words 25; } >parts.md
accepted parts.md
{ words 2 | sed 's/$/:/' && echo && words 60 | sed 's/^/    /'; } >indented.md
accepted indented.md
# Code in backquotes is one word, and the target of a link does not count.
printf '%s `norma %s` [one](two.md) %s.\n' "$(words 20)" "$(words 30 | paste -sd ' ')" "$(words 17)" | fold -sw 95 | sed 's/ $//' >code.md
accepted code.md

# --- phrases, spelling, width --------------------------------------------------------------------------------------------
echo 'A whole number.' >phrase.md # language: exempt
check phrase.md
has found 'phrase.md:1: whole number -> ' # language: exempt
echo '/* The colour of a curve. */' >spelling.h # language: exempt
check spelling.h
has found 'American spelling'
words 20 | paste -sd ' ' >wide.md
check wide.md
has found 'at most 100 in prose'
echo "$cases cases"
