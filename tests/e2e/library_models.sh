# Small trained models for the examples of the library, in the current folder; $NORMA is the program. Sourced by
# e2e_library.sh and scripts/check_install.sh, after corpora.sh.
# shellcheck shell=bash

# run-translate, run-lm, run-tag, run-classify: run folders. train.de, lm.txt, names.txt, reviews.txt: text for each.
make_library_runs() {
    make_pairs train 120 1
    make_pairs valid 8 2
    "$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
        --tokenizer moses --bpe-merges 40 || return 1
    cat >translate.ini <<'END'
[data]
folder = data
max_length = 60
[model]
width = 16
ff = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
max_positions = 64
[train]
updates = 12
max_tokens = 200
score = false
[device]
threads = 1
END
    "$NORMA" train translate.ini --run.folder run-translate --run.quiet || return 1

    make_sentences lm.txt 200 1
    "$NORMA" prepare --format text --tokenizer moses --bpe-merges 20 --train lm.txt --output lm-data || return 1
    cat >lm.ini <<'END'
[run]
task = lm
[data]
folder = lm-data
[model]
preset = tiny
width = 16
ff = 32
heads = 2
context = 16
[train]
updates = 12
max_tokens = 256
score = false
[device]
threads = 1
END
    "$NORMA" train lm.ini --run.folder run-lm --run.quiet || return 1

    # Names are recognizable by themselves.
    awk 'BEGIN {
        srand(1); p = split("Anna Bernd Clara David Emil", given); l = split("Rom Bonn Wien Oslo", place)
        for (i = 0; i < 120; i++) {
            a = given[1 + int(rand() * p)]; b = rand() < 0.5 ? "Ek" : ""; c = place[1 + int(rand() * l)]
            print a " B-PER" (b ? "\n" b " I-PER" : "") "\nlives O\nin O\n" c " B-LOC\n. O\n" >"tags.txt"
            print a (b ? " " b : "") " lives in " c " ." >"names.txt"
        }
    }'
    cat >tag.ini <<'END'
[run]
task = tagging
[data]
train = tags.txt
valid = tags.txt
[model]
preset = tiny
[train]
epochs = 14
[optim]
name = sgd
[schedule]
name = linear
lr = 0.02
[device]
threads = 1
END
    "$NORMA" train tag.ini --run.folder run-tag --run.quiet || return 1

    awk 'BEGIN {
        srand(2); split("great fine awful boring", word); split("the film plot was quite and its cast", filler)
        for (i = 0; i < 120; i++) {
            k = 1 + int(rand() * 4); line = word[k]
            for (j = 0; j < 2 + i % 6; j++) line = line " " filler[1 + int(rand() * 8)]
            print (k < 3 ? "good" : "bad") "\t" line >"reviews.tsv"; print line >"reviews.txt"
        }
    }'
    cat >classify.ini <<'END'
[run]
task = classification
[data]
train = reviews.tsv
batch = 16
[model]
preset = tiny
[train]
max_tokens = 512
epochs = 3
label_smoothing = 0
[optim]
name = adamw
[schedule]
name = constant
lr = 0.01
warmup = 0
[device]
threads = 1
END
    "$NORMA" train classify.ini --run.folder run-classify --run.quiet
} 2>/dev/null
