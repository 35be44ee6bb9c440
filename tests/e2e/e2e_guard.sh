#!/bin/bash
# No command overwrites the files of runs, models and data; locks that are not those of Norma; configurations of runs as recipes.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_data
sed -i 's/^updates = .*/updates = 4/; s/^validate_every = .*/validate_every = 2/' recipe.ini
"$NORMA" train recipe.ini --run.quiet --run.folder run --train.seed 1 2>err || fail "train: $(cat err)"
"$NORMA" train recipe.ini --run.quiet --run.folder other --train.seed 9 2>err || fail "train: $(cat err)"
cp run/best.safetensors model.safetensors
printf 'a b\tb a\n' >pairs.txt
: >text.xx

# ---- outputs
sums() { find run data model.safetensors -type f ! -name .lock -exec cksum {} + | sort; }
sums >before
guarded() { # ARGUMENTS...: the command refuses each file of runs, models and data as its output
    local file what
    while read -r file what; do
        refuses 2 "$file is $what, which would be overwritten: choose another file" "$@" --output "$file"
    done <<'END'
run/best.safetensors the model of a run
run/last.safetensors the model of a run
run/config.ini the configuration of a run
run/log.jsonl the log of a run
run/checkpoints/00000004.safetensors the model of a run
run/checkpoints/00000004.state.safetensors the training state of a run
model.safetensors a model
data/data.ini a file of a data folder
data/checksums.xxh128 a file of a data folder
data/train.source.ids a file of a data folder
data/dict.source.txt a file of a data folder
END
}
writes() {
    try "$@"
    [ "$got" = 0 ] || fail "exit code $got: norma $*: $(cat err)"
}
ls data >names
for name in data.ini checksums.xxh128 train.source.ids dict.source.txt; do
    [ -e "data/$name" ] || fail "no file data/$name: $(cat names)"
done
guarded translate run test.xx
guarded generate run
guarded rescore run test.xx test.yy
guarded classify run test.xx
guarded tag run test.xx
for filter in tokenize detokenize normalize 'subword --like data'; do
    # shellcheck disable=SC2086
    guarded $filter test.xx
done
guarded shortlist data
guarded report run
ln -s run/log.jsonl link.txt
refuses 2 'link.txt is the log of a run' translate run test.xx -o link.txt
refuses 2 'bench: run/config.ini is the configuration of a run' bench --json run/config.ini
for folder in run data; do
    refuses 2 "compare: $folder is " compare recipe.ini --norms layer --compare.folder $folder
    refuses 2 "translate: $folder is " translate run test.xx -o $folder
done
for name in units.txt sentencepiece.model dict.txt; do # files that this data folder does not have, but that are read
    refuses 2 'would become a file of a data folder' tokenize train.xx --output data/$name
    [ ! -e data/$name ] || fail "data/$name was written"
done
refuses 2 'choose another data folder (--output)' prepare --train train --valid valid --source-lang xx --target-lang yy --output run
sums >after
same before after
# Files of the user, also in these folders, are written again.
for _ in 1 2; do
    writes translate run test.xx -o run/test.yy
    writes tokenize test.xx -o text.xx
    writes export run -o exported.safetensors
    accepts '' average mean.safetensors run
done
"$NORMA" translate run test.xx 2>err | cmp - run/test.yy || fail "other translations"

# ---- the mean of one run
refuses 5 'other/last.safetensors: train.seed is 9, but 1 in run/last.safetensors: only models of one run' \
    average no.safetensors run/last.safetensors other/last.safetensors
accepts 'average of 2 models' average mean.safetensors run/best.safetensors run/last.safetensors

# ---- locks
chatty=1
ln -s /nowhere other/.lock
refuses 3 'other/.lock: is a symbolic link, not a lock of Norma: remove it' train --run.folder other --resume --train.updates 6
rm other/.lock
exec 9>other/.lock
flock 9
refuses 3 'other: another program has locked other/.lock; wait for it to finish' train --run.folder other --resume --train.updates 6
exec 9>&-
rm other/.lock

# ---- the configuration of a run is a recipe
"$NORMA" train recipe.ini --run.quiet --run.folder timed --comm.timeout 5 2>err || fail "train: $(cat err)"
has timed/config.ini 'timeout = 5'
accepts 'the section [comm] of the recipe is not used' train timed/config.ini --run.folder again
[ "$(weights timed/last.safetensors)" = "$(weights again/last.safetensors)" ] || fail "the recipe has other weights"
has again/config.ini 'timeout = 15'
accepts 'done: 6 updates' train ./timed/config.ini --run.folder timed --resume --train.updates 6
lacks err '[comm]'
writes compare timed/config.ini --norms layer --seeds 1 --folder compared --tid-batches 0

# ---- a program that starts norma takes it along
perl -e '$ENV{NORMA_PARENT} = $$; unless (fork) { exec @ARGV } sleep 600' "$NORMA" train recipe.ini --run.quiet --run.folder orphan \
    --train.updates 10000000 --train.save_every 1 2>err &
process=$!
for ((i = 0; i < 600; i++)); do
    [ -e orphan/last.safetensors ] && break
    sleep 0.05
done
child=$(cat orphan/.lock)
kill -9 $process
wait $process 2>/dev/null
for ((i = 0; i < 600; i++)); do
    [ -e "/proc/$child" ] || break
    sleep 0.05
done
cases=$((cases + 1))
[ ! -e "/proc/$child" ] || { fail "the training continues without its parent"; kill -9 "$child"; }
has err 'checkpoint written'

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "runs, models and data are not overwritten ($cases cases)"
