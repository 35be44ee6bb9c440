#!/bin/bash
# norma export: a model as one file. --fold: translations do not change, whether norms are folded in the file, on loading, or
# not at all. --int8: a smaller file with the translations of int8 inference. One message for each unsupported
# request.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# ---- data: translation word by word in reverse order, learned within a minute ----
make_reversed_pairs 220 20 4
"$NORMA" prepare --train train --valid valid --source-lang de --target-lang en --output data --joint \
    --tokenizer none --bpe-merges 0 2>/dev/null
write_recipe small.ini data.folder=data model.preset=tiny model.width=32 model.ff=64 model.heads=2 \
    model.norm=batch model.decoder_norm=batch model.dropout=0 train.updates=150 train.max_tokens=256 \
    train.score=false schedule.lr=0.005 schedule.warmup=20 device.threads=1
"$NORMA" train small.ini --run.folder run --run.quiet 2>/dev/null
"$NORMA" train small.ini --run.folder scaled --run.quiet --model.norm power --model.decoder_norm layer \
    --train.updates 2 2>/dev/null

# Scores are printed with six digits.
close() { # FILE FILE
    paste -d '\t' "$1" "$2" | awk -F '\t' '{
        split($1, a, " [|][|][|] "); split($2, b, " [|][|][|] ")
        d = a[3] - b[3]; if (d < 0) d = -d; limit = a[3] < 0 ? -a[3] : a[3]
        if (a[2] != b[2] || d > 1e-5 * limit + 1.1e-6) { print; bad = 1 }
    } END { exit bad || NR != 40 }' || fail "$1 and $2 differ"
}
translate() { # MODEL OUTPUT [OPTION ...]
    local model=$1 output=$2
    shift 2
    "$NORMA" translate "$model" --threads 1 --nbest 2 --beam 3 "$@" <valid.de >"$output"
}
translate run trained --no-fold
[ "$(cut -d '|' -f 4 trained | sort -u | wc -l)" -gt 8 ] || fail "the model learned nothing: $(cat trained)"

# ---- the output vocabulary belongs to the model ----
"$NORMA" train small.ini --run.folder masked --run.quiet --train.updates 2 --data.mask-words true 2>/dev/null
for format in '' --int8 --bf16 --fold; do
    # shellcheck disable=SC2086 # an empty format is no argument
    "$NORMA" export masked $format -o masked.safetensors 2>/dev/null
    grep -aq 'target.allowed' masked.safetensors || fail "export $format lost the output vocabulary"
done
"$NORMA" export masked -o masked.safetensors
"$NORMA" translate masked <valid.de >trained
"$NORMA" translate masked.safetensors <valid.de >again
cmp trained again || fail "an exported model with an output vocabulary translates differently"
translate run trained --no-fold

# ---- folded on loading ----
translate run loaded
close trained loaded

# ---- no norms ----
"$NORMA" train small.ini --run.folder plain --run.quiet --model.norm none --model.decoder_norm none --train.updates 1 2>/dev/null
"$NORMA" export plain --fold -o none.safetensors 2>err
grep -qx 'none.safetensors: the model has no norm to fold' err || fail "no norms: $(cat err)"

# ---- a plain export is the model ----
"$NORMA" export run -o plain.safetensors 2>err
[ ! -s err ] || fail "output on stderr: $(cat err)"
translate plain.safetensors again --no-fold
cmp trained again || fail "a plain export translates differently"

# ---- folded in the file ----
"$NORMA" export run --fold --output folded.safetensors 2>err
grep -qx 'folded.safetensors: 11 of 12 norms folded into linear layers' err || fail "$(cat err)"
translate folded.safetensors again --no-fold
close trained again
translate folded.safetensors other
cmp again other || fail "a folded model was folded again"
translate folded.safetensors other --threads 2 --batch-tokens 20 --no-fold
cmp again other || fail "threads and batches change a folded model"
# only the norm before the output projection, which is shared with an embedding, is not folded
grep -ao '[a-z0-9.]*norm\.running_mean' folded.safetensors >names
[ "$(cat names)" = dec.final.norm.running_mean ] || fail "norms that are not folded: $(cat names)"
"$NORMA" export folded.safetensors --fold -o folded.safetensors 2>err # over itself
grep -qx 'folded.safetensors: 0 of 1 norms folded into linear layers' err || fail "folded again: $(cat err)"
translate folded.safetensors other
cmp again other || fail "a folded model was folded once more"

# ---- norms with row scaling and per-token norms cannot be folded ----
"$NORMA" export scaled --fold -o stays.safetensors 2>err
grep -q '^stays.safetensors: 0 of 12 norms' err || fail "$(cat err)"
translate scaled trained --no-fold
translate stays.safetensors again
cmp trained again || fail "a model without foldable norms changed"

# ---- norms of single sites ----
"$NORMA" train small.ini --run.folder sites --run.quiet --model.norm layer --model.decoder_norm layer \
    --norm.at enc.0=batch,enc.final=rbn,dec.1.ffn=batch --train.updates 60 2>/dev/null
"$NORMA" export sites --fold -o sites.safetensors 2>err
grep -q '^sites.safetensors: 4 of 12 norms' err || fail "$(cat err)"
grep -aqF 'at = enc.0=none,enc.final=none,dec.1.ffn=none\n' sites.safetensors || fail "norm.at of the folded model"
translate sites trained --no-fold
translate sites.safetensors again --no-fold
close trained again
refuses 2 "no site 'enc.2'" train small.ini --run.folder never --run.quiet --norm.at enc.2=batch

# ---- int8 ----
translate run whole --precision int8
cmp -s loaded whole && fail "int8 changed nothing: not even a score"
cut -d '|' -f 4 loaded >words.float
cut -d '|' -f 4 whole >words.int8
awk 'NR == FNR { line[NR] = $0; next } FNR % 2 { n++; same += line[FNR] == $0 } END { exit same < n * 0.8 }' \
    words.float words.int8 || fail "int8 translates differently: $(diff words.float words.int8)"
translate run other --precision int8 --threads 2 --batch-tokens 20
cmp whole other || fail "threads and batches change a model in int8"
"$NORMA" export run --int8 -o whole.safetensors 2>err
[ ! -s err ] || fail "output on stderr: $(cat err)"
size() { stat -c %s "$1"; }
[ "$(size whole.safetensors)" -lt "$(($(size plain.safetensors) * 7 / 10))" ] || fail "int8 is no smaller"
translate run kept --precision int8 --no-fold
translate whole.safetensors other --precision int8 --no-fold
cmp kept other || fail "a file in int8 is not the model in int8"
"$NORMA" export whole.safetensors --int8 -o again.safetensors
cmp whole.safetensors again.safetensors || fail "a file in int8 changed when it was exported again"
"$NORMA" export run --fold --int8 -o both.safetensors 2>/dev/null
translate both.safetensors other --precision int8
cmp whole other || fail "a folded int8 file differs from folding and int8 on loading"

# ---- bf16 ----
"$NORMA" export run --bf16 -o half.safetensors 2>err
[ ! -s err ] || fail "output on stderr: $(cat err)"
[ "$(size half.safetensors)" -lt "$(($(size plain.safetensors) * 8 / 10))" ] || fail "bf16 is no smaller"
translate half.safetensors halved --precision bf16
cut -d '|' -f 4 halved >words.bf16
awk 'NR == FNR { line[NR] = $0; next } FNR % 2 { n++; same += line[FNR] == $0 } END { exit same < n * 0.8 }' \
    words.float words.bf16 || fail "bf16 translates differently: $(diff words.float words.bf16)"
"$NORMA" export half.safetensors --bf16 -o again.safetensors
cmp half.safetensors again.safetensors || fail "a file in bf16 changed when it was exported again"

other_command() { # CODE TEXT COMMAND ...
    local code=$1 text=$2 got=0
    shift 2
    "$NORMA" "$@" >out.bad 2>err || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $*: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || fail "not one line: $(cat err)"
    grep -qF -- "$text" err || fail "'$text' is not in: $(cat err)"
}
other_command 2 'training computes in float' train small.ini --run.folder never --run.quiet --device.precision int8
other_command 2 'inspect computes in float' inspect run --precision int8
other_command 7 'int8 model cannot be averaged' average mean.safetensors whole.safetensors whole.safetensors
other_command 2 'int4' translate run --precision int4
other_command 7 'a bf16 model cannot be averaged' average mean.safetensors half.safetensors half.safetensors
other_command 2 'exclude each other' export run --int8 --bf16 -o x.safetensors
head -c 6000 whole.safetensors >cut.safetensors
refuses 4 'cut.safetensors' export cut.safetensors -o x.safetensors

# ---- bad input ----
refuses 2 'usage: norma export' export
refuses 2 'no output file' export run
refuses 2 'unknown option' export run -o x.safetensors --folded
refuses 3 'nowhere' export nowhere -o x.safetensors
refuses 3 'nowhere/x.safetensors' export run -o nowhere/x.safetensors
head -c 3000 plain.safetensors >cut.safetensors
refuses 4 'cut.safetensors' export cut.safetensors --fold -o x.safetensors
[ ! -e x.safetensors ] || fail "a file in spite of an error"
echo "e2e_export: passed"
