#!/bin/bash
# Every recipe: is read without complaint, trains an update when its sizes are made small, and every row of the
# papers' tables has one. The recipes of the tables are what scripts/recipes.pl writes.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

export OMP_NUM_THREADS=1

# ---- the files are those of the tables ----

names() {
    local pair row
    for pair in gl-en sk-en en-vi en-he ar-en; do
        for row in table3-{1,2,3,4} table4-{nowarmup,invsqrt,valdecay,invsqrt-2x,valdecay-2x} \
            table7-{rms,scale,fixed-g,fixed-g-valdecay,fixed-g-valdecay-2x}; do
            echo "tears/$row-$pair"
        done
    done
    printf 'tears/%s-en-vi\n' table2-{xavier,smallinit}-{post,pre}-{4k,8k,16k} table5-{post,pre}-{4,5,6}-layers
    printf 'tears/%s-wmt\n' table6-{pre,post}-{ln,fix-scale}
    printf 'pn/%s\n' table1-{iwslt,wmt}-{ln,bn,pnv,pn} table4-{bn,brn,mabn,ln,gn,pnv,pn} \
        figure5-{ln,bn,pnv,pn}-{512,1k,2k,4k}
    printf 'rbn/%s\n' {iwslt,wmt,ptb,wt103,imdb,sogou,dbpedia,yelp,conll,resume}-{post,pre}-{ln,bn,rbn,pn-only,pn-ls,brn,mabn}
    printf 'pn/%s\n' table3-{ptb,wt103}-{ln,bn,pnv,pn} table2-{ptb,wt103}-core{1,2} table4-ptb-{bn,brn,mabn,ln,gn,pnv,pn}
}

names | sort >wanted
(cd "$SOURCE/recipes" && ls tears/*.ini pn/*.ini rbn/*.ini) | sed 's/\.ini$//' | sort >present
diff wanted present || fail "recipes and the rows of the tables differ"
cp -r "$SOURCE/recipes/common" .
perl "$SOURCE/scripts/recipes.pl" made
for paper in tears pn rbn; do
    diff -r "made/$paper" "$SOURCE/recipes/$paper" || fail "recipes/$paper is not what scripts/recipes.pl writes"
done

# ---- they are read, they build a model and train ----

for side in de en; do
    for part in train valid test; do
        printf '%s a b c\n' x y z u v w >"$part.$side"
    done
done
for order in fairseq tears; do
    "$NORMA" prepare --train train --valid valid --test test --source-lang de --target-lang en --bpe-merges 0 \
        --tokenizer none --special-ids $order --output data-$order --threads 1 2>prepare.log || fail "$(cat prepare.log)"
done

"$NORMA" prepare --format text --train train.en --valid valid.en --test test.en --bpe-merges 0 --tokenizer none \
    --output data-text --threads 1 2>prepare.log || fail "$(cat prepare.log)"
# Labeled texts for the recipes of classification.
printf '%s\tx y z\n' good bad good bad good bad good bad good bad >labeled.tsv
is_text() { # RECIPE
    grep -q '^include = .*common/rbn-text.ini' "$1"
}

# Tagged sentences for the recipes of tagging.
printf '%s\n' 'x S-A' 'y O' '' 'z B-A' 'u E-A' '' >tagged.txt
is_tagged() { # RECIPE
    grep -qE '^task = tagging|^include = .*common/rbn-(conll|resume).ini' "$1"
}

# A missing data folder is the first thing found wrong: the recipe itself is read.
wants_data() {
    local code=0
    "$NORMA" train "$1" --run.folder run >out 2>err || code=$?
    [ $code = 3 ] || fail "exit code $code instead of 3: train $1: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || fail "not one line: train $1: $(cat err)"
    grep -q 'data/.*: No such file' err || fail "the missing folder is not named: train $1: $(cat err)"
}

# One update of a language model: its norms, placement and schedule; in its small form where the second argument says so.
trains_lm() {
    local settings=()
    [ -z "${2:-}" ] || settings=(--profile small)
    case $1 in *ptb* | *wt103*) settings+=(--model.core-width 3) ;; esac
    case $1${2:+small} in *wt103*small) ;; *wt103*) settings+=(--model.cutoffs 5,6) ;; esac
    rm -rf run
    "$NORMA" train "$1" "${settings[@]}" --run.folder run --data.folder data-text --model.width 8 --model.ff 8 --model.layers 1 \
        --model.context 4 --train.max-tokens 8 --train.updates 1 \
        --device.threads 1 >out 2>err || fail "exit code $?: train $1: $(cat err)"
    grep -q '^done: 1 updates' err || fail "no update: train $1: $(cat err)"
}

# One update of its norms and schedule on a small model (16 heads: the most a recipe has).
trains() {
    local order=fairseq
    case $1 in *-ptb-* | */ptb-* | *wt103* | */demo-lm.ini) trains_lm "$@" && return ;; esac
    case $1 in */tears/*) order=tears ;; esac
    rm -rf run
    "$NORMA" train "$1" --run.folder run --data.folder data-$order --data.max-length 32 --model.width 32 \
        --model.ff 32 --model.encoder-layers 1 --model.decoder-layers 1 --model.max-positions 64 \
        --train.max-tokens 32 --train.accumulate 2 --train.updates 1 --train.score false --device.threads 1 \
        >out 2>err || fail "exit code $?: train $1: $(cat err)"
    grep -q '^done: 1 updates' err || fail "no update: train $1: $(cat err)"
}

# The same of a recipe of classification, in its small form where the second argument says so.
trains_text() {
    local profile=()
    [ -z "${2:-}" ] || profile=(--profile small)
    rm -rf run
    "$NORMA" train "$1" "${profile[@]}" --run.folder run --data.train labeled.tsv --data.test labeled.tsv --model.width 16 \
        --model.ff 16 --data.max-length 16 --train.max-tokens 64 --train.updates 1 --device.threads 1 >out 2>err ||
        fail "exit code $?: train $1: $(cat err)"
    grep -q '^done: 1 updates' err || fail "no update: train $1: $(cat err)"
}

# The same of a recipe of tagging; word vectors are left out.
trains_tags() {
    local profile=()
    [ -z "${2:-}" ] || profile=(--profile small)
    rm -rf run
    "$NORMA" train "$1" "${profile[@]}" --run.folder run --data.train tagged.txt --data.valid tagged.txt --data.test tagged.txt \
        --data.vectors '' --data.bigram-vectors '' --model.width 56 --model.ff 16 --train.updates 1 --device.threads 1 \
        >out 2>err || fail "exit code $?: train $1: $(cat err)"
    grep -q '^done: 1 updates' err || fail "no update: train $1: $(cat err)"
}

# An update of any recipe; small or nothing
updates() {
    if is_text "$1"; then
        trains_text "$1" "${2:-}"
    elif is_tagged "$1"; then
        trains_tags "$1" "${2:-}"
    else
        trains "$@"
    fi
}

count=0
for recipe in "$SOURCE"/recipes/*.ini "$SOURCE"/recipes/{tears,pn,rbn}/*.ini; do
    head -n 1 "$recipe" | grep -q '^# ' || fail "$recipe does not begin with what it is"
    grep -q '^# Data: ' "$recipe" || fail "$recipe does not name its data"
    wants_data "$recipe"
    updates "$recipe"
    count=$((count + 1))
done
[ $count -ge 284 ] || fail "only $count recipes"

# ---- settings that must reach the run (a row is more than a file that is read) ----

# setting RECIPE SECTION KEY VALUE [small]: as in the config.ini of a run
setting() {
    updates "$SOURCE/recipes/$1.ini" "${5:-}"
    sed -n "/^\[$2\]/,/^$/p" run/config.ini | grep -qx "$3 = $4 ; .*" || fail "$1: [$2] $3 is not $4"
}
setting tears/table2-xavier-post-16k-en-vi model init xavier-normal
setting tears/table3-4-gl-en model dropout 0.4
setting tears/table3-4-gl-en train validate_every 100
setting tears/table7-fixed-g-valdecay-2x-ar-en schedule scale 2
setting tears/table7-fixed-g-ar-en norm.scale trainable false
setting tears/table5-post-5-layers-en-vi schedule lr 0.0003
setting pn/table1-iwslt-bn norm.batch scaling layer
setting pn/table1-wmt-pn norm.power scaling group
setting rbn/iwslt-post-rbn norm.rbn lambda 60
setting rbn/iwslt-pre-rbn schedule lr 0.0015
setting rbn/iwslt-pre-pn-only norm.power scaling none
setting rbn/wmt-pre-ln norm.layer unbiased true
setting pn/table3-ptb-pn norm.power scaling group
setting pn/table3-wt103-bn model adaptive true
setting pn/table3-wt103-bn model adaptive false small
setting pn/table2-ptb-core2 model cores 2
setting pn/table3-ptb-ln train label_smoothing 0.1
setting pn/table3-ptb-ln schedule lr 0.001 small
setting rbn/wt103-pre-rbn norm.rbn lambda 0.1
setting rbn/ptb-post-ln model norm_position post
setting rbn/imdb-post-rbn norm.rbn scale mean
setting rbn/yelp-pre-mabn model norm_position pre
setting rbn/yelp-pre-mabn train epochs 10
setting rbn/yelp-pre-mabn train epochs 3 small
setting rbn/conll-post-rbn norm.rbn scale mean
setting rbn/conll-pre-ln model norm_position pre
setting rbn/conll-pre-ln model heads 14
setting rbn/conll-pre-ln model heads 4 small
setting rbn/resume-post-pn-only norm.power scaling none
setting rbn/resume-post-bn train clip_value 5
setting rbn/resume-post-bn data scheme bmeso
setting rbn/resume-post-bn train epochs 20 small
echo "e2e_recipes: $count recipes"
