# Small trained models for the examples of the library, in the current folder; $NORMA is the program. Sourced by
# e2e_library.sh and scripts/check_install.sh, after corpora.sh.
# shellcheck shell=bash

# run-translate, run-lm, run-tag, run-classify: run folders. train.de, lm.txt, names.txt, reviews.txt: text for each.
make_library_runs() {
    make_pairs train 120 1
    make_pairs valid 8 2
    "$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
        --tokenizer moses --bpe-merges 40 || return 1
    write_recipe translate.ini data.folder=data data.max_length=60 model.width=16 model.ff=32 model.heads=2 \
        model.encoder_layers=1 model.decoder_layers=1 model.max_positions=64 train.updates=12 \
        train.max_tokens=200 train.score=false device.threads=1
    "$NORMA" train translate.ini --run.folder run-translate --run.quiet || return 1

    make_sentences lm.txt 200 1
    "$NORMA" prepare --format text --tokenizer moses --bpe-merges 20 --train lm.txt --output lm-data || return 1
    write_recipe lm.ini run.task=lm data.folder=lm-data model.preset=tiny model.width=16 model.ff=32 \
        model.heads=2 model.context=16 train.updates=12 train.max_tokens=256 train.score=false \
        device.threads=1
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
    write_recipe tag.ini run.task=tagging data.train=tags.txt data.valid=tags.txt model.preset=tiny \
        train.epochs=14 optim.name=sgd schedule.name=linear schedule.lr=0.02 device.threads=1
    "$NORMA" train tag.ini --run.folder run-tag --run.quiet || return 1

    awk 'BEGIN {
        srand(2); split("great fine awful boring", word); split("the film plot was quite and its cast", filler)
        for (i = 0; i < 120; i++) {
            k = 1 + int(rand() * 4); line = word[k]
            for (j = 0; j < 2 + i % 6; j++) line = line " " filler[1 + int(rand() * 8)]
            print (k < 3 ? "good" : "bad") "\t" line >"reviews.tsv"; print line >"reviews.txt"
        }
    }'
    write_recipe classify.ini run.task=classification data.train=reviews.tsv data.batch=16 model.preset=tiny \
        train.max_tokens=512 train.epochs=3 train.label_smoothing=0 optim.name=adamw schedule.name=constant \
        schedule.lr=0.01 schedule.warmup=0 device.threads=1
    "$NORMA" train classify.ini --run.folder run-classify --run.quiet
} 2>/dev/null
