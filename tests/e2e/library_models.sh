# Small trained models for the examples of the library, in the current folder; $NORMA is the program. Sourced by
# e2e_library.sh and scripts/check_install.sh, after corpora.sh.
# shellcheck shell=bash

# run-translate: a run folder; train.de and train.en: its text.
make_translation_run() {
    make_pairs train 120 1
    make_pairs valid 8 2
    "$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
        --tokenizer moses --bpe-merges 40
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
    "$NORMA" train translate.ini --run.folder run-translate --run.quiet
} 2>/dev/null
