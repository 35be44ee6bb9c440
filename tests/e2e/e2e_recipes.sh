#!/bin/bash
# The recipe farm: recipes and the documented comparisons run on a small corpus that resembles real data (unseen words,
# characters, subwords and tags; empty and very long lines; a label that occurs once). Each recipe is trained for a few
# updates, validated, used, exported and inspected.
#
#     RECIPES=sample   a ninth of the recipes, three reduced profiles and three comparisons (default)
#     RECIPES=all      every recipe, its reduced profile, and every `norma compare` line of the documentation
#     JOBS=2           recipes at a time
#
# The settings of a run must be those that tests/unit/recipe_settings.ini lists for the recipe, except the sizes given here.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

export OMP_NUM_THREADS=1
recipes=${RECIPES:-sample} jobs=${JOBS:-2}
case $recipes in sample | all) ;; *) echo "RECIPES is sample or all" >&2 && exit 2 ;; esac

# ---- there is one recipe for each row of the tables, written by scripts/recipes.py ----

row_names() {
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
        figure5-{ln,bn,pnv,pn}-{512,1k,2k,4k} figure2-resnet20
    printf 'rbn/section3-resnet18\n'
    printf 'rbn/%s\n' {iwslt,wmt,ptb,wt103,imdb,sogou,dbpedia,yelp,conll,resume}-{post,pre}-{ln,bn,rbn,pn-only,pn-ls,brn,mabn}
    printf 'pn/%s\n' table3-{ptb,wt103}-{ln,bn,pnv,pn} table2-{ptb,wt103}-core{1,2} table4-ptb-{bn,brn,mabn,ln,gn,pnv,pn}
}

row_names | sort >expected.names
(cd "$SOURCE/recipes" && ls tears/*.ini pn/*.ini rbn/*.ini) | sed 's/\.ini$//' | sort >actual.names
diff expected.names actual.names || fail "the recipes differ from the rows of the tables"
mkdir generated
cp -r "$SOURCE/recipes/common" generated
"$SOURCE/scripts/recipes.py" generated
for paper in tears pn rbn; do
    diff -r "generated/$paper" "$SOURCE/recipes/$paper" || fail "recipes/$paper differs from the output of scripts/recipes.py"
done

# ---- the corpora, under the names that the recipes use ----

python3 "$SOURCE/tests/support/make_corpus.py" corpus
ln -s "$SOURCE/recipes" recipes
mkdir data runs logs
prepare() { # FOLDER ARGUMENTS...
    "$NORMA" prepare --tokenizer none --threads 1 --output "$@" 2>prepare.log || fail "prepare $1: $(cat prepare.log)"
}
prepare_pairs() { # FOLDER SPECIAL-IDS
    prepare "$1" --train corpus/train --valid corpus/valid --test corpus/test --source-lang de --target-lang en \
        --bpe-merges 300 --special-ids "$2"
}
prepare_pairs data/iwslt14-de-en fairseq
prepare_pairs data/ted-gl-en tears
prepare data/ptb --format text --train corpus/train.txt --valid corpus/valid.txt --test corpus/test.txt --bpe-merges 0
for folder in wmt14-en-de wmt16-en-de multi30k-de-en multi30k-3000 demo-de-en mine; do ln -s iwslt14-de-en data/$folder; done
for folder in ted-sk-en iwslt15-en-vi ted-en-he ted-ar-en; do ln -s ted-gl-en data/$folder; done
for folder in wikitext-103 wikitext-2 demo-lm text; do ln -s ptb data/$folder; done
for folder in imdb sogou dbpedia yelp texts; do
    mkdir data/$folder
    ln -s ../../corpus/{train,test}.tsv data/$folder
done
mkdir -p data/cifar10/{train,test} data/images # noise as CIFAR-10's records
perl -e 'srand 3; print map { chr($_ % 10) . join "", map { chr rand 256 } 1 .. 3072 } 0 .. 39' >data/cifar10/train/data_batch_1.bin
perl -e 'srand 4; print map { chr($_ % 10) . join "", map { chr rand 256 } 1 .. 3072 } 0 .. 19' >data/cifar10/test/test_batch.bin
ln -s ../cifar10/train data/images/train
ln -s ../cifar10/test data/images/test
mkdir sst2
ln -s ../corpus/{train,test}.tsv sst2
ln -s ../corpus/test.tsv sst2/valid.tsv
mkdir data/{conll2003,resume,demo-tag,entities}
ln -s ../../corpus/eng.{train,testa,testb} data/conll2003
ln -s ../../corpus/{train,dev,test}.char.bmes data/resume
for folder in demo-tag entities; do
    ln -s ../../corpus/eng.train data/$folder/train.txt
    ln -s ../../corpus/eng.testa data/$folder/valid.txt
    ln -s ../../corpus/eng.testb data/$folder/test.txt
done
ln -s ../corpus/words.100d.txt data/glove.6B.100d.txt
ln -s ../corpus/chars.50d.txt data/gigaword_chn.all.a2b.uni.ite50.vec
ln -s ../corpus/bigrams.50d.txt data/gigaword_chn.all.a2b.bi.ite50.vec

# ---- small sizes: depth, heads, norms, schedule and optimizer stay those of the recipe ----

task_of() { # RECIPE
    case $1 in
        *-ptb-* | */ptb-* | *wt103* | demo-lm | lm) echo lm ;;
        classify | rbn/imdb-* | rbn/sogou-* | rbn/dbpedia-* | rbn/yelp-*) echo classification ;;
        image | vit | pn/figure2-resnet20 | rbn/section3-resnet18) echo image ;;
        tag | demo-tag | rbn/conll-* | rbn/resume-*) echo tagging ;;
        *) echo translation ;;
    esac
}

# Prints the arguments that make a recipe small, one on each line.
small_sizes() { # RECIPE PROFILE
    local sizes=(--train.updates 3 --train.validate-every 3 --device.threads 1)
    case $(task_of "$1") in
        translation)
            sizes+=(--model.width 32 --model.ff 32 --train.max-tokens 480 --train.score true --train.validate-examples 6
                --decode.max-length-a 0 --decode.max-length-b 12)
            case $1 in pn/figure5* | pn/table1-wmt* | rbn/wmt* | tears/*wmt) sizes+=(--train.shards 2) ;; esac
            ;;
        lm)
            sizes+=(--model.width 8 --model.ff 8 --model.context 4 --train.max-tokens 64)
            case $1 in *ptb* | *wt103*) sizes+=(--model.core-width 3) ;; esac
            case $1 in *wt103*) sizes+=('--model.cutoffs=20,60,120') ;; esac
            ;;
        image)
            sizes+=(--data.size 8 --data.batch 8)
            case $1 in
                vit) sizes+=(--model.width 16 --model.ff 16 --model.heads 2) ;;
                rbn/*) sizes+=('--model.widths=4,4,4,4' '--model.blocks=1,1,1,1') ;;
                *) sizes+=('--model.widths=4,4' '--model.blocks=1,1') ;;
            esac
            ;;
        classification) sizes+=(--model.width 16 --model.ff 16 --train.max-tokens 1024) ;;
        tagging)
            case $1+$2 in
                */conll*+) sizes+=(--model.width 56 --model.ff 16) ;;
                *) sizes+=(--model.width 32 --model.ff 16) ;;
            esac
            ;;
    esac
    printf '%s\n' "${sizes[@]}"
}

# ---- one recipe ----

run_norma() { # EXPECTED-TEXT ARGUMENTS...: success, and this text on stdout or stderr
    local expected=$1 code=0
    shift
    "$NORMA" "$@" >"$log.out" 2>"$log.err" </dev/null || code=$?
    [ $code = 0 ] || { echo "exit code $code: norma $*: $(tail -n 3 "$log.err")" >&2 && return 1; }
    [ -z "$expected" ] || grep -qF -- "$expected" "$log.out" "$log.err" || { echo "no '$expected': norma $*: $(tail -n 3 "$log.err")" >&2 && return 1; }
}

# Losses of all updates and validations are finite, and so are gradient norms.
check_log() { # RUN
    perl -ne '
        for my $key (qw(loss nll batch_loss batch_nll grad_norm penalty)) {
            die "$key of line $.: $1\n" if /"$key": ?([^,}]*)/ and $1 !~ /^-?[0-9]/;
        }
        $valid++ if /"type": ?"valid"/ and /"loss": ?[0-9]/;
        END { die "no validation\n" unless $valid; }' "$1/log.jsonl"
}

# Hash of the tensors of a model file without its metadata.
weights_hash() {
    perl -MDigest::MD5 -e 'binmode STDIN; read STDIN, my $n, 8; read STDIN, my $h, unpack "Q<", $n;
        print Digest::MD5->new->addfile(*STDIN)->hexdigest, "\n"' <"$1"
}

# Running statistics advance once per update, also when gradients are accumulated; in figure 5 of PowerNorm once per
# micro-batch, of which there are two.
check_counters() { # RUN RECIPE
    local steps=3
    case $2 in pn/figure5*) steps=6 ;; esac
    perl -e 'my $steps = shift; binmode STDIN; local $/; my $file = <STDIN>; my $n = unpack "Q<", $file;
        my $header = substr $file, 8, $n;
        while ($header =~ /"([^"]*\.iters)":\{"dtype":"I64","shape":\[\],"data_offsets":\[(\d+),/g) {
            my $count = unpack "q<", substr $file, 8 + $n + $2, 8;
            die "$1 is $count instead of $steps\n" if $count != $steps;
        }' $steps <"$1/last.safetensors"
}

check_recipe() { # RECIPE [PROFILE]
    local run task log profile=${2:-} arguments=()
    task=$(task_of "$1")
    run=runs/${1//\//_}${profile:+-$profile}
    log=logs/${run#runs/}
    mapfile -t arguments < <(small_sizes "$1" "$profile")
    [ -z "$profile" ] || arguments+=(--profile "$profile")
    run_norma "done: 3 updates" train "recipes/$1.ini" "${arguments[@]}" --run.folder "$run" || return 1
    check_log "$run" || return 1
    check_counters "$run" "$1" || return 1
    case $1 in
        */*) python3 "$SOURCE/tests/support/check_settings.py" "$SOURCE/tests/unit/recipe_settings.ini" "$1" "$profile" "$run/config.ini" || return 1 ;;
    esac
    grep -q "^task = $task ;" "$run/config.ini" || { echo "task is not $task" >&2 && return 1; }
    case $1 in
        tears/*wmt) ;;
        tears/*) grep -qE '"masked_targets": ?[1-9]' "$run/log.jsonl" || { echo "no masked targets" >&2 && return 1; } ;;
    esac
    if [ -n "$profile" ]; then # the same model as without the profile, smaller
        rm -r "$run"
        return
    fi
    case $task in
        translation)
            run_norma "" translate "$run" corpus/test.de --input-format tokenized || return 1
            [ "$(wc -l <"$log.out")" = "$(wc -l <corpus/test.de)" ] || { echo "lines are missing" >&2 && return 1; }
            run_norma "test: perplexity" perplexity "$run" || return 1
            [ "$(wc -l <"$log.out")" = 3 ] || { echo "perplexity: splits are missing" >&2 && return 1; }
            ;;
        lm) run_norma "perplexity" perplexity "$run" corpus/test.txt || return 1 ;;
        image) run_norma "accuracy" classify "$run" data/cifar10/test --evaluate || return 1 ;;
        classification) run_norma "accuracy" classify "$run" corpus/test.tsv --evaluate || return 1 ;;
        tagging)
            case $1 in
                */resume*) run_norma "F1" tag "$run" corpus/test.char.bmes --evaluate || return 1 ;;
                *) run_norma "F1" tag "$run" corpus/eng.testb --evaluate || return 1 ;;
            esac
            ;;
    esac
    run_norma "" export "$run" --output "$run.safetensors" || return 1
    [ -s "$run.safetensors" ] || { echo "no exported model" >&2 && return 1; }
    run_norma '"run"' inspect "$run" --json --batches 1 --gradient-batches 1 || return 1
    rm -r "$run" "$run.safetensors"
}

# Runs checks in parallel; each failure is one line in failed.
check_in_background() { # NAME COMMAND...
    local name=$1
    shift
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    { "$@" 2>"logs/${name//\//_}.failure" || echo "$name: $(tr '\n' ' ' <"logs/${name//\//_}.failure")" >>failed; } &
}

: >failed
names() {
    (cd "$SOURCE/recipes" && find . -name '*.ini' ! -path './common/*' ! -path './data/*') | sed 's/^\.\///; s/\.ini$//' | LC_ALL=C sort
}
n_recipes=0
while read -r name; do
    recipe=$SOURCE/recipes/$name.ini
    grep -q '^# ' <(head -n 1 "$recipe") || fail "$recipe does not begin with a description"
    grep -q '^# Data: ' "$recipe" || fail "$recipe does not name its data"
    n_recipes=$((n_recipes + 1))
    # In the sample: one profile each of language models, tagging and classification.
    case $recipes+$(task_of "$name")+$name in
        all+translation+* | all+*+classify | all+*+tag | all+*+lm | all+*+image | all+*+demo*) ;;
        all+* | sample+*+pn/table3-wt103-pn | sample+*+rbn/resume-post-pn-ls | sample+*+rbn/imdb-pre-rbn)
            check_in_background "$name --profile small" check_recipe "$name" small
            ;;
    esac
    case $recipes+$name in
        all+* | sample+pn/table1-wmt-pn | sample+pn/figure5-pn-512 | sample+translate | sample+lm) ;;
        *) [ $((n_recipes % 9)) = 4 ] || continue ;;
    esac
    check_in_background "$name" check_recipe "$name"
done < <(names)
[ $n_recipes = 294 ] || fail "$n_recipes recipes instead of 294"

# Without its data, a recipe fails with one line that names the missing file.
for name in tears/table3-1-gl-en rbn/conll-pre-bn pn/table3-wt103-pn rbn/imdb-post-rbn; do
    code=0
    (mkdir empty && cd empty && "$NORMA" train "$SOURCE/recipes/$name.ini" --run.folder run >../out 2>../err) || code=$?
    rm -r empty
    if [ $code != 3 ] || [ "$(wc -l <err)" != 1 ] || ! grep -q 'data/.*: No such file' err; then
        fail "$name without data: exit code $code: $(cat err)"
    fi
done
wait

# ---- variants of a comparison are different models ----

check_compare() { # FOLDER ARGUMENTS of norma compare...
    local folder=$1 log=logs/${1#runs/} name arguments=() i
    shift
    name=${1#recipes/}
    case " $* " in *" --profile small "*) mapfile -t arguments < <(small_sizes "${name%.ini}" small) ;;
        *) mapfile -t arguments < <(small_sizes "${name%.ini}" "") ;; esac
    # Schedules that differ after the warm-up differ within the few updates.
    set -- "${@//schedule.warmup=400/schedule.warmup=1}"
    for ((i = 1; i < $#; i++)); do
        [ "${!i}" != --schedule.warmup ] || set -- "${@:1:i}" 1 "${@:i+2}"
    done
    # Averages need several checkpoints.
    [[ "$*" != *--compare.average* ]] || arguments+=(--train.validate-every 1)
    run_norma "" compare "$@" "${arguments[@]}" --compare.folder "$folder" --compare.jobs 1 --compare.seeds 1 \
        --compare.tid-batches 2 --compare.samples false || return 1
    find "$folder" -name last.safetensors | while read -r model; do weights_hash "$model"; done | sort >"$log.hashes"
    [ "$(wc -l <"$log.hashes")" -ge 2 ] || { echo "fewer than two models: norma compare $*" >&2 && return 1; }
    [ -z "$(uniq -d "$log.hashes")" ] || { echo "variants have identical weights: norma compare $*" >&2 && return 1; }
}

# The `norma compare` lines in the code blocks of the documentation, with the variables that their block sets, in one
# line each.
documented_comparisons() {
    local pages
    mapfile -t pages < <(find "$SOURCE/docs" "$SOURCE/results" -name '*.md' | LC_ALL=C sort)
    awk 'FNR == 1 { block = 0 } /^```/ { block = !block; line = ""; next } !block { next }
        { sub(/[ \t]#.*/, ""); line = line $0 }
        line ~ /\\$/ { sub(/\\$/, "", line); next }
        gsub(/"/, "\"", line) % 2 { line = line " "; next } # an open quotation
        line ~ /^[a-z]+=/ || line ~ /^norma compare / { print line }
        { line = "" }' "$SOURCE/README.md" "${pages[@]}"
}

# With the linear schedule, PowerNorm's warm-up is that of the schedule: half of six updates.
check_linear_warmup() {
    local warmup log=logs/linear-warmup arguments=()
    mapfile -t arguments < <(small_sizes rbn/resume-pre-pn-ls "")
    for warmup in lr 3 6; do
        run_norma "done: 6 updates" train recipes/rbn/resume-pre-pn-ls.ini "${arguments[@]}" --train.updates 6 \
            --schedule.warmup-fraction 0.5 --norm.power.warmup $warmup --run.folder runs/warmup-$warmup || return 1
        weights_hash runs/warmup-$warmup/last.safetensors >"$log-$warmup"
    done
    cmp -s "$log-lr" "$log-3" || { echo "warm-up is not 3 updates" >&2 && return 1; }
    ! cmp -s "$log-lr" "$log-6" || { echo "warm-up has no effect" >&2 && return 1; }
}

check_in_background linear-warmup check_linear_warmup
check_in_background compare-pn check_compare runs/compare-pn recipes/pn/table1-iwslt-ln.ini --norms layer,batch,pnv,power
check_in_background compare-rbn check_compare runs/compare-rbn recipes/rbn/iwslt-post-ln.ini --norms layer,batch,rbn
check_in_background compare-tears check_compare runs/compare-tears recipes/tears/table3-2-gl-en.ini --norms layer,scale+fix
n_comparisons=3
if [ "$recipes" = all ]; then
    make_fake_slurm # for --slurm
    while read -r line; do
        case $line in
            norma\ *)
                n_comparisons=$((n_comparisons + 1))
                eval "arguments=(${line#norma compare })"
                # shellcheck disable=SC2154
                check_in_background "compare-$n_comparisons" check_compare "runs/compare-$n_comparisons" "${arguments[@]}"
                ;;
            *) eval "$line" ;;
        esac
    done < <(documented_comparisons)
    [ $n_comparisons -ge 10 ] || fail "only $n_comparisons comparisons"
fi
wait
if [ -s failed ]; then fail "$(wc -l <failed) of the runs failed:
$(cat failed)"; fi
echo "e2e_recipes: $(find logs -name '*.failure' | wc -l) runs of $n_recipes recipes, $n_comparisons comparisons"
