#!/bin/bash
# norma prepare --drop-copies and --drop-duplicates: the same data as from a text without these lines, for any number of threads.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

same_data() { # FOLDER FOLDER: all files but the options
    cases=$((cases + 1))
    diff -r -x data.ini -x checksums.xxh128 "$1" "$2" >differences || fail "$1 and $2 differ: $(cat differences)"
}
pairs=(--source-lang de --target-lang en --bpe-merges 200)

# More lines than a block has; about half of the pairs repeat an earlier one, some in other blocks only.
for i in 1 2 3; do
    seq $((i * 1500)) $((i * 1500 + 7000)) | awk '{ printf "das Haus, Nummer %d und w%d\n", $1, $1 % 37 }'
done >all.de
sed 's/das Haus, Nummer/the house, number/; s/und/and/' all.de >all.en
awk 'NR % 1000 == 7' all.de >copy
cp copy copies.de
cp copy copies.en
for side in de en; do cat copies.$side all.$side copies.$side >text.$side; done

# --- pairs: what awk keeps ------------------------------------------------------------------------------------------------
paste all.de all.en | awk '!seen[$0]++' >once
cut -f 1 once >once.de
cut -f 2 once >once.en
accepts written prepare --train once --valid copies "${pairs[@]}" --output wanted
grep '^  ' err >counts # of words and tokens
kept=$(wc -l <once)
dropped=$(($(wc -l <all.de) - kept)) copies=$((2 * $(wc -l <copies.de)))
for threads in 1 2 3; do
    accepts "$kept kept, $((dropped + copies)) dropped: $copies copy, $dropped duplicate" prepare --train text --valid copies \
        "${pairs[@]}" --drop-copies --drop-duplicates --threads $threads --output got$threads
    lacks err 'training pairs were dropped'
    same_data wanted got$threads
    grep '^  ' err >got.counts
    same got.counts counts
done
has err 'valid: 21 pairs read, 21 kept, 0 dropped'
has got1/data.ini 'drop_copies = true ; command line'
has got1/data.ini 'drop_duplicates = true ; command line'
accepts "$kept kept" prepare got1/data.ini --output again
same_data got1 again
paste -d '\t' all.de all.en >all.tsv
accepts "$kept kept, $dropped dropped: $dropped duplicate" prepare --train all.tsv --like wanted --drop-duplicates --output like
cmp -s like/train.target.ids wanted/train.target.ids || fail 'a table with --like has other ids'

# --- held-out pairs and alignments are those of the text without duplicates ----------------------------------------------
awk '{ print $1 % 5 "-" $1 % 4 }' <(seq "$(wc -l <all.de)") >all.links
paste all.de all.en all.links | awk -F '\t' '!seen[$1, $2]++ { print $3 }' >once.links
accepts written prepare --train once --alignments once.links --valid-every 7 "${pairs[@]}" --output wanted
accepts "$dropped duplicate" prepare --train all --alignments all.links --valid-every 7 --drop-duplicates "${pairs[@]}" --output got
same_data wanted got

# --- pairs are compared as the model reads them -------------------------------------------------------------------------
printf '%s\n' 'Das Haus' 'das  haus ' 'das Haus' 'Haus' 'OK' "l'eau" 'Ein Haus' >odd.de
printf '%s\n' 'The house' 'the house' 'the house!' 'haus' 'OK ' "l'eau" 'The house' >odd.en
odd() { # TEXT OPTION...
    local text=$1
    shift
    accepts "$text" prepare --train odd --source-lang de --target-lang en --bpe-merges 0 --output odd "$@"
}
odd '7 kept, 0 dropped' --drop-duplicates
odd '6 kept, 1 dropped: 1 duplicate' --drop-duplicates --lowercase
odd '5 kept, 2 dropped: 2 copy' --drop-copies
odd '4 kept, 3 dropped: 3 copy' --drop-copies --lowercase
has err 'training pairs were dropped, most of them as "copy"; the option --prepare.drop_copies changes this filter'
has err '  line 4: Haus | haus'
# The Moses tokenizer splits this word differently in French and in English: the same text, though not the same tokens.
accepts '5 kept, 2 dropped: 2 copy' prepare --train odd.de:odd.en --source-lang fr --target-lang en --bpe-merges 0 --output odd --drop-copies

# --- plain text: lines that are not empty, or documents --------------------------------------------------------------
printf '%s\n' one '' two '' one 'two ' three >plain
accepts '7 lines read, 5 kept, 2 dropped: 2 duplicate' prepare --format text --train plain --drop-duplicates --bpe-merges 0 --output plain.d
printf '%s\n' one two '' one '' one two '' one >documents
accepts '4 documents read, 2 kept, 2 dropped: 2 duplicate' prepare --format text --train documents --documents separated \
    --tokenizer byte_level --bpe-merges 0 --drop-duplicates --output plain.d

refuses 2 'plain text has no pairs' prepare --format text --train plain --drop-copies --output no
refuses 2 'there is no training text' prepare --test odd --drop-copies --source-lang de --target-lang en --output no
refuses 2 'there is no training text' prepare --format text --test plain --drop-duplicates --output no
exit "$failures"
