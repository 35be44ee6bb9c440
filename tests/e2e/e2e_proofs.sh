#!/bin/bash
# Manifests of checkpoints: a resumed run believes only files that belong together. A changed bit of every kind of file is found.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"
chatty=1

make_data
sed -i 's/^updates = .*/updates = 12/; s/^validate_every = .*/validate_every = 6/; s/^keep_last = .*/keep_last = 3/; s/^save_every = .*/save_every = 3/' recipe.ini
sed -i 's/^\[schedule\]/[schedule]\nlr = 0.03/' recipe.ini
"$NORMA" train recipe.ini --run.quiet --run.folder whole --train.updates 15 --train.seed 7 2>err || fail "train: $(cat err)"
"$NORMA" train recipe.ini --run.quiet --run.folder run --train.seed 7 2>err || fail "train: $(cat err)"
"$NORMA" train recipe.ini --run.quiet --run.folder other --train.seed 9 2>err || fail "train: $(cat err)"
fresh() { rm -rf copy && cp -r run copy; }
pair() { echo "copy/checkpoints/$1"; }
resume=(train --run.folder copy --resume --train.updates 15)
# resumes TEXT: the run is continued, with the weights of an uninterrupted run; the text is in its messages.
resumes() {
    try "${resume[@]}"
    [ "$got" = 0 ] || fail "'$1': exit code $got: $(cat err)"
    has err "$1"
    [ "$(weights copy/last.safetensors)" = "$(weights whole/last.safetensors)" ] || fail "'$1': other weights: $(cat err)"
    has copy/config.ini 'lr = 0.03'
}
flip() { # FILE: changes one bit in its middle
    perl -e 'open my $f, "+<", $ARGV[0] or die; seek $f, ($at = int((-s $f) / 2)), 0; read $f, $byte, 1; seek $f, $at, 0;
        print $f chr(ord($byte) ^ 1)' "$1"
}

fresh
resumes 'resumed at update 12'
# in-toto statements, each with the digest of its files and of the one before.
cases=$((cases + 1))
for file in run/checkpoints/*.intoto.json; do
    jq -e '._type == "https://in-toto.io/Statement/v1" and (.subject | length) == 2' "$file" >/dev/null 2>&1 ||
        perl -MJSON::PP -0777 -e '$s = decode_json(<>); exit($s->{_type} ne "https://in-toto.io/Statement/v1" or @{$s->{subject}} != 2)' "$file" ||
        fail "$file: $(cat "$file")"
    number=${file##*/} number=${number%.intoto.json}
    for name in "$number.safetensors" "$number.state.safetensors"; do
        has "$file" "$(sha256sum "run/checkpoints/$name" | cut -d' ' -f1)"
    done
done
has run/checkpoints/00000012.intoto.json "$(sha256sum run/checkpoints/00000009.intoto.json | cut -d' ' -f1)"
has run/checkpoints/00000012.intoto.json "$(sha256sum run/config.ini | cut -d' ' -f1)"
# The last line of the log, the hash of the parameters, is written after the checkpoint.
has run/checkpoints/00000012.intoto.json "$(head -n -1 run/log.jsonl | sha256sum | cut -d' ' -f1)"

# ---- config.ini
for damage in 'truncate -s "$(grep -b "^\[schedule\]" copy/config.ini | cut -d: -f1)" copy/config.ini' \
    'sed -i s/^lr\ =.*/lr\ =\ 0.0005/ copy/config.ini' 'sed -i /^lr\ =/d copy/config.ini' 'echo >>copy/config.ini'; do
    fresh
    eval "$damage"
    cp copy/config.ini damaged.ini
    refuses 4 'copy/config.ini: not the configuration of checkpoint 12 (' "${resume[@]}"
    same damaged.ini copy/config.ini
    rm copy/config.ini
    resumes 'copy/config.ini was missing and is restored from checkpoint 12'
done
fresh
sed -i 's/^lr =.*/lr = 0.0005/' copy/config.ini
refuses 4 '(schedule.lr = 0.0005 instead of 0.03)' "${resume[@]}"
# The program was killed between the checkpoint and its copy of a changed configuration.
fresh
"$NORMA" train --run.quiet --run.folder copy --resume=override --schedule.lr 0.02 --train.updates 14 2>err || fail "override: $(cat err)"
has copy/config.ini 'lr = 0.02'
cp run/config.ini copy/config.ini
try train --run.folder copy --resume --train.updates 15
has err 'resumed at update 14'
has copy/config.ini 'lr = 0.02'

# ---- a refused override has no effect
fresh
cp copy/config.ini before.ini
refuses 5 '' train --run.folder copy --resume=override --train.max_tokens 1000 --train.updates 15
same before.ini copy/config.ini
resumes 'resumed at update 12'
lacks copy/log.jsonl max_tokens

# ---- files that do not belong together
for file in 00000012.safetensors 00000012.state.safetensors 00000012.intoto.json; do
    fresh
    cp "other/checkpoints/$file" "$(pair "$file")"
    resumes 'checkpoint 12 is damaged'
    has err 'resumed at update 9'
    fresh
    cp "$(pair 00000009."${file#*.}")" "$(pair "$file")"
    resumes 'checkpoint 12 is damaged'
    fresh
    flip "$(pair "$file")"
    resumes 'checkpoint 12 is damaged'
    [ -e "$(pair "$file").damaged" ] || fail "$file was not set aside"
    fresh
    rm "$(pair "$file")"
    case $file in
    00000012.safetensors) resumes 'resumed at update 9' ;;
    *) resumes 'checkpoint 12 is damaged' ;;
    esac
done
fresh
for suffix in safetensors state.safetensors intoto.json; do cp "$(pair 00000012.$suffix)" "$(pair 00000013.$suffix)"; done
resumes 'checkpoint 13 is damaged'
has err 'resumed at update 12'
fresh
for suffix in safetensors state.safetensors intoto.json; do cp "other/checkpoints/00000012.$suffix" "$(pair 00000012.$suffix)"; done
resumes 'checkpoint 12 is damaged: copy/checkpoints/00000009.intoto.json: checkpoint 12 follows another manifest'
fresh
for suffix in safetensors state.safetensors intoto.json; do
    rm copy/checkpoints/*9.$suffix copy/checkpoints/*6.$suffix
    cp "other/checkpoints/00000012.$suffix" "$(pair 00000012.$suffix)"
done
refuses 4 'copy/config.ini: not the configuration of checkpoint 12 (train.seed = 7 instead of 9)' "${resume[@]}"
# ---- log and data
fresh
flip copy/log.jsonl
resumes 'warning: copy/log.jsonl: its first '
fresh
truncate -s 100 copy/log.jsonl
resumes 'warning: copy/log.jsonl: its first '
cp -r data changed
flip changed/train.source.ids
fresh
refuses 4 'damaged' "${resume[@]}" --data.folder changed

# ---- checkpoints of version 0.1 have no manifest
old() {
    fresh
    rm copy/checkpoints/*.intoto.json
}
old
resumes 'checkpoint 12 has no manifest, as those of version 0.1'
old
truncate -s "$(grep -b '^\[schedule\]' copy/config.ini | cut -d: -f1)" copy/config.ini
refuses 4 'copy/config.ini: not the configuration of checkpoint 12 (schedule.' "${resume[@]}"
old
cp "$(pair 00000009.state.safetensors)" "$(pair 00000012.state.safetensors)"
resumes 'the training state is of update 9'
old
for suffix in safetensors state.safetensors; do cp "$(pair 00000012.$suffix)" "$(pair 00000013.$suffix)"; done
resumes 'is of update 12'

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "a resumed run believes only files that belong together ($cases cases)"
