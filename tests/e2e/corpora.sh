# Small corpora, made by awk, and recipes. Sourced by common.sh and by scripts/check_install.sh.
# shellcheck shell=bash

# Parallel text, PREFIX.de and PREFIX.en, a word-by-word translation in the same order.
make_pairs() { # PREFIX COUNT SEED
    awk -v n="$2" -v seed="$3" -v name="$1" 'BEGIN {
        srand(seed)
        split("haus baum hund katze rot blau grün läuft springt singt", de)
        split("house tree dog cat red blue green runs jumps sings", en)
        for (i = 0; i < n; i++) {
            a = b = ""
            for (j = 0; j < 2 + i % 5; j++) { k = 1 + int(rand() * 10); a = a de[k] " "; b = b en[k] " " }
            print a "." > (name ".de"); print b "." > (name ".en")
        }
    }'
}

# train.de, train.en, valid.de, valid.en: translation word by word in reverse order, of one to three words.
make_reversed_pairs() { # TRAIN VALID SEED: numbers of pairs
    awk -v n="$1" -v valid="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        split("haus baum hund katze rot blau", from); split("house tree dog cat red blue", to)
        for (i = 0; i < n + valid; i++) {
            a = b = ""
            for (j = 0; j < 1 + i % 3; j++) {
                k = 1 + int(rand() * 6)
                a = a from[k] " "; b = to[k] " " b
            }
            name = i < n ? "train" : "valid"
            print a "." >(name ".de"); print b "." >(name ".en")
        }
    }'
}

# Sentences of a small grammar: article, noun, verb.
make_sentences() { # FILE COUNT SEED
    awk -v n="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        split("the a every", det); split("dog cat house tree river", noun); split("runs sings sleeps falls", verb)
        for (i = 0; i < n; i++) {
            line = ""
            for (j = 0; j < 1 + i % 3; j++)
                line = line (j ? " and " : "") det[1 + int(rand() * 3)] " " noun[1 + int(rand() * 5)] " " verb[1 + int(rand() * 4)]
            print line
        }
    }' >"$1"
}

# train.txt, valid.txt, test.txt of make_sentences.
make_sentence_splits() {
    make_sentences train.txt 120 1
    make_sentences valid.txt 40 2
    make_sentences test.txt 90 3
}

# A data folder of a language model from these files.
prepare_sentences() { # OUTPUT
    "$NORMA" prepare --format text --tokenizer none --bpe-merges 12 --threads 1 --train train.txt --valid valid.txt \
        --test test.txt --output "$1" 2>err || fail "prepare: $(cat err)"
}

# A data folder of translation with training, validation and test pairs.
prepare_pairs() { # OUTPUT
    make_pairs train 300 1
    make_pairs valid 20 2
    make_pairs test 20 3
    "$NORMA" prepare --train train --valid valid --test test --source-lang de --target-lang en --bpe-merges 30 \
        --output "$1" 2>err || fail "prepare: $(cat err)"
}

# Writes a recipe; settings of a section are in a row.
write_recipe() { # FILE SECTION.KEY=VALUE...
    local file=$1 section='' setting
    shift
    for setting in "$@"; do
        [ "${setting%%.*}" = "$section" ] || { section=${setting%%.*}; echo "[$section]"; }
        setting=${setting#*.}
        echo "${setting%%=*} = ${setting#*=}"
    done >"$file"
}
