#!/bin/bash
# Hostile models, checkpoints and data folders: errors of norma train, --resume and norma translate.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_data
head -n 50 train.xx >short.xx
head -n 50 train.yy >short.yy
"$NORMA" train recipe.ini --run.folder base >out 2>err || { cat err >&2; exit 1; }

# ---- model files: translate reads them

model=base/last.safetensors
refuses_model() { # CODE TEXT: of m.safetensors
    input=test.xx refuses "$1" "$2" translate m.safetensors --threads 1
    [ ! -s out ] || fail "output from a bad model: $2"
}
size=$(stat -c %s $model)
header=$(perl -e 'local $/; open(my $f, "<:raw", $ARGV[0]); print unpack("Q<", <$f>)' $model)

# Cut at each of the first 64 bytes, then at about fifty positions of the header and the data, and at the last byte.
for ((at = 0; at < size; at += at < 64 ? 1 : (size - 64) / 48)); do
    head -c "$at" $model >m.safetensors
    refuses_model 4 'm.safetensors: malformed safetensors file'
done
head -c $((header + 8)) $model >m.safetensors
refuses_model 4 'm.safetensors: malformed safetensors file'
head -c $((size - 1)) $model >m.safetensors
refuses_model 4 'm.safetensors: malformed safetensors file'
{ cat $model; printf x; } >m.safetensors
refuses_model 4 'bytes after the last tensor'

# Wrong header lengths.
for length in '\0\0\0\0\0\0\0\0' '\1\0\0\0\0\0\0\0' '\2\0\0\0\0\0\0\0' '\377\377\377\377\377\377\377\377' \
    '\0\0\0\0\0\0\0\200' '\377\377\377\377\377\377\377\177' '\0\0\0\0\1\0\0\0' '\377\377\377\377\0\0\0\0' '\0\340\365\5\0\0\0\0'; do
    cp $model m.safetensors
    poke m.safetensors 0 "$length"
    refuses_model 4 'm.safetensors: malformed safetensors file'
done

# A changed byte in the header's structure. (Inside strings a change may be harmless.)
for at in 8 9 10 $((header + 7)); do
    cp $model m.safetensors
    [ "$at" = $((header + 7)) ] && at=$((8 + $(head -c $((header + 8)) $model | tail -c +9 | sed 's/ *$//' | wc -c) - 1))
    poke m.safetensors "$at" '\377'
    refuses_model 4 'm.safetensors: malformed safetensors file'
done
for ((at = 8; at < header; at += header / 40)); do
    cp $model m.safetensors
    poke m.safetensors "$at" '\0'
    refuses_model 4 'm.safetensors: malformed safetensors file'
done

forged() { # CODE TEXT PERL
    cp $model m.safetensors
    forge m.safetensors "$3"
    refuses_model "$1" "$2"
}
forged 4 'malformed' '$_ = ""'
forged 4 'malformed' '$_ = "[]"'
forged 4 'malformed' '$_ = "[" x 100000'
forged 4 'malformed' '$_ = "{\"a\":" x 5000'
forged 4 'malformed' '$_ = "null"'
forged 4 'bytes after the last tensor' '$_ = "{}"'
forged 4 'not a Norma model: task or configuration is missing; norma convert reads models of other toolkits' \
    '$_ = "{}"; $data = ""'
forged 4 'not a JSON object' 's/"__metadata__":/"__metadata__":[],"x":/'
forged 4 'not a Norma model' 's/"task":"translation"/"task":"cooking"/'
forged 4 'not a Norma model' 's/"config":/"konfig":/'
forged 4 'expected exactly dtype, shape and data_offsets' 's/"dtype":"F32",//'
forged 4 'unknown dtype' 's/"dtype":"F32"/"dtype":"F31"/'
forged 4 'unknown dtype' 's/"dtype":"F32"/"dtype":32/'
forged 4 'invalid shape' 's/"shape":\[\d+/"shape":[-1/'
forged 4 'invalid shape' 's/"shape":\[\d+/"shape":[1.5/'
forged 4 'invalid shape' 's/"shape":\[\d+,\d+\]/"shape":[9223372036854775807,9223372036854775807]/'
forged 4 'invalid shape' 's/"shape":\[\d+/"shape":[1,1,1,1,1,1,1,1,1,1,1,1/'
forged 4 'malformed' 's/"shape":\[\d+/"shape":[99999999999999999999/'
forged 4 'data_offsets and shape disagree' 's/"shape":\[(\d+)/"shape":[@{[$1+1]}/'
forged 4 'data_offsets' 's/"data_offsets":\[\d+,\d+\]/"data_offsets":[0]/'
forged 4 'data_offsets' 's/"data_offsets":\[\d+/"data_offsets":[-8/'
forged 4 'data_offsets' 's/"data_offsets":\[\d+,\d+\]/"data_offsets":[64,0]/'
forged 4 'data_offsets' 's/"data_offsets":\[\d+,\d+\]/"data_offsets":[0,9223372036854775807]/'
forged 4 'malformed' 'my ($n) = /"(dec[^"]*)":\{/ or die; s/"embed.weight"/"$n"/'
forged 5 "has no tensor 'embed.weight'" 's/"embed.weight"/"embed.wait"/'
forged 5 "'embed.weight' has " 's/("embed.weight":\{[^}]*"dtype":")F32(","shape":\[)(\d+),(\d+)/$1I32$2$3,$4/'
forged 5 "has no tensor 'enc." 's/"enc\.(\d)[^"]*running_mean"/"nothing"/ or s/"enc\.[^"]*mean"/"nothing"/ or die'
forged 5 ' numbers of type ' 's/width = 16/width = 32/'
forged 5 "has no tensor '" 's/encoder_layers = 1/encoder_layers = 2/'
forged 5 "has no tensor '" 's/norm = batch/norm = power/'
forged 2 'model.width' 's/width = 16/width = 17/'
forged 2 'model.width' 's/width = 16/width = -1/'
forged 2 'model.width = 1e99' 's/width = 16/width = 1e99/'
forged 2 'm.safetensors:' 's/norm = batch/norm = magic/'
forged 2 'unknown option model.wdith' 's/width = 16/wdith = 16/'
forged 4 'expected [section]' 's/"config":"/"config":"what\\n/'
forged 4 'include = /etc/passwd is not allowed' 's/"config":"/"config":"include = \/etc\/passwd\\n/'
forged 4 'dict.source.txt' 's/"dict.source.txt":"/"dict.source.txt":"x y z\\n/'
forged 4 'duplicate symbol' 's/"dict.target.txt":"/"dict.target.txt":"q 1\\nq 1\\n/'
forged 5 'embed.weight' 's/"dict.(source|target).txt":"/"dict.$1.txt":"q 1\\nr 1\\n/g'
forged 5 'joint vocabulary' 's/"dict.target.txt":"/"dict.target.txt":"q 1\\nr 1\\n/'
forged 4 'has no dict.target.txt' 's/"dict.target.txt"/"dict.other.txt"/'
forged 4 'codes.bpe:2: ' 's/"codes.bpe":"/"codes.bpe":"#version: 0.2\\na b c d\\n/'
forged 4 'has no data.ini' 's/"data.ini"/"date.ini"/'
forged 2 'data.ini' 's/tokenizer = none/tokenizer = some/'
forged 4 'malformed' 's/"update":"/"update":"\\u0000/'
# A model of a later version may have options, norms and tasks that this version does not know.
later='s/"norma":"[^"]*"/"norma":"99.0.0"/ or die;'
forged 7 'model.width (written by a later version, norma 99.0.0; this is norma ' \
    "$later s/width = 16/wdith = 16/"
forged 7 'written by a later version' "$later s/norm = batch/norm = magic/"
forged 7 'written by a later version' "$later"' s/"task":"translation"/"task":"cooking"/'
forged 7 "has no tensor 'embed.weight' (written by a later version" "$later"' s/"embed.weight"/"embed.wait"/'
cp $model m.safetensors
forge m.safetensors "$later"
accepts '' translate m.safetensors test.xx
forged 4 'malformed' 's/"update":"/"update":"\xff/'
cp $model m.safetensors
refuses 3 'absent: No such file' translate absent
refuses 3 'data: the folder contains no best.safetensors or last.safetensors: expected a run folder' translate data
: >m.safetensors
refuses_model 4 'shorter than the header length'
refuses 4 'recipe.ini: not a safetensors file, the format of models' translate recipe.ini
refuses 4 'not a safetensors file' translate "$NORMA"
refuses 2 'too few arguments' translate
refuses 4 'malformed' translate $model,m.safetensors
refuses 2 'most similar one is' translate $model --baem 3
refuses 2 'outside' translate $model --decode.beam 0
refuses 2 'outside' translate $model --decode.beam 1e9

# Weights that are not finite, and weights so large that the logits overflow, are errors.
# weights FLOAT COUNT: replaces the first COUNT weights (0: all), running statistics included.
weights() {
    cp $model m.safetensors
    forge m.safetensors 'my $n = '"$2"' || length($data) / 4; substr($data, 0, 4 * $n) = pack("f<", '"$1"') x $n'
}
for value in '"NaN"' 9**9**9 -9**9**9; do
    for count in 0 1; do
        weights "$value" $count
        refuses_model 8 'not finite'
        refuses 8 'not finite' average mean $model m.safetensors
        refuses 8 'not finite' inspect m.safetensors --measure spectrum
    done
done
weights 1e38 0
refuses_model 8 'not finite'
refuses 8 'not finite' inspect m.safetensors --measure confidence

# ---- average

"$NORMA" train recipe.ini --run.folder wide --model.width 32 --train.updates 1 >out 2>err || fail "$(cat err)"
"$NORMA" train recipe.ini --run.folder other --model.norm layer --train.updates 1 >out 2>err || fail "$(cat err)"
refuses 2 'too few arguments' average
refuses 2 'too few arguments' average mean
refuses 3 'absent: No such file' average mean absent
refuses 3 'data: is a folder' average mean data
refuses 4 'recipe.ini: not a safetensors file' average mean $model recipe.ini
refuses 5 "wide/last.safetensors: tensor '" average mean $model wide/last.safetensors
refuses 5 "other/last.safetensors: has no tensor '" average mean $model other/last.safetensors
refuses 5 'has tensors that' average mean other/last.safetensors $model
refuses 3 'absent/mean: No such file' average absent/mean $model
refuses 2 'average: data is a data folder' average data $model
# The first argument is the output. If it is missing, no model of a run is overwritten.
cp -r "$(dirname $model)" copied
for first in copied/checkpoints/*[0-9].safetensors copied/best.safetensors copied/last.safetensors; do
    [ -e "$first" ] || continue
    cp -L "$first" before
    refuses 2 "$first is the model of a run, which would be overwritten" average "$first" $model
    cmp -s "$first" before || fail "$first was overwritten"
    refuses 2 "export: $first is the model of a run, which would be overwritten" export $model -o "$first"
    cmp -s "$first" before || fail "norma export overwrote $first"
    refuses 2 "convert: $first is the model of a run" convert data --from huggingface -o "$first"
done
for file in copied/checkpoints/*.state.safetensors copied/config.ini copied/log.jsonl; do
    cp "$file" before
    refuses 2 "export: $file is the " export $model -o "$file"
    refuses 2 "output, and $file is the " average "$file" $model
    cmp -s "$file" before || fail "$file was overwritten"
done
ln -s copied/best.safetensors link.safetensors
refuses 2 'link.safetensors is the model of a run' export $model -o link.safetensors
# A conversion would overwrite the codes and settings of a data folder.
find data copied -type f -exec cksum {} + >before
for to in huggingface ctranslate2; do
    refuses 2 'convert: data is a data folder' convert $model --to $to -o data
    refuses 2 'convert: copied is the folder of a run' convert $model --to $to -o copied
done
find data copied -type f -exec cksum {} + >after
same before after
refuses 4 'not a model of Norma' average mean copied/checkpoints/*.state.safetensors
states=(copied/checkpoints/*.state.safetensors)
refuses 4 "${states[0]}: a training state, not a model of Norma; the models of a run are its best.safetensors and" \
    translate "${states[0]}" test.xx
refuses 4 "${states[0]}: a training state, not a model of Norma" export "${states[0]}" -o mean
accepts 'average of 1 model' average copied/mean.safetensors $model
accepts 'average of 1 model' average copied/mean.safetensors $model
for bytes in 0 1 8 100 $((header + 8)) $((size - 4)); do
    head -c "$bytes" $model >m.safetensors
    refuses 4 'm.safetensors: malformed' average mean $model m.safetensors
done
# Models of another task or of other data do not have a mean, even if their shapes agree.
cp $model m.safetensors
forge m.safetensors 's/"task":"translation"/"task":"translatoin"/ or die'
refuses 5 "'task' differs" average mean $model m.safetensors
cp $model m.safetensors
forge m.safetensors 's/("dict.source.txt":"[^"]*?)the /$1teh / or die'
refuses 5 'have no common mean' average mean $model m.safetensors
cp $model m.safetensors
forge m.safetensors 's/("codes.bpe":"[^"]*?)t h/$1t i/ or die'
refuses 5 'have no common mean' average mean $model m.safetensors
# Tensors of the same shapes, but another function; dropout rates are those of training.
cp $model m.safetensors
forge m.safetensors 's/heads = 2/heads = 4/ or die'
refuses 5 'm.safetensors: model.heads differs from that of' average mean $model m.safetensors
forge m.safetensors 's/heads = 4/heads = 2/; s/norm_position = pre/norm_position = post/ or die'
refuses 5 'm.safetensors: model.norm_position differs' average mean $model m.safetensors
cp $model m.safetensors
forge m.safetensors 's/\\ndropout = [0-9.]+/\\ndropout = 0.25/ or die' # \n of the JSON text
accepts 'average of 2 models' average averaged $model m.safetensors
[ ! -e mean ] && ! ls mean.*.new >/dev/null 2>&1 || fail "an average that failed leaves a file"
cp $model mean
cases=$((cases + 1)) got=0
(ulimit -f 4; exec "$NORMA" average mean $model $model) >out 2>err || got=$?
check_failure 3 'mean: writing failed: File too large' 'average under a file-size limit'
cmp mean $model || fail "an average that failed changed the former file"

# ---- text to translate

say() { # CODE TEXT STDIN: printf syntax; CODE 0: accepted
    printf "$3" >said
    if [ "$1" = 0 ]; then
        input=said try translate $model --threads 1 --beam 1
        [ "$got" = 0 ] || fail "exit code $got for harmless text $3: $(cat err)"
        [ "$(wc -l <out)" = "$2" ] || fail "$(wc -l <out) lines instead of $2 for $3"
    else
        input=said refuses "$1" "$2" translate $model --threads 1 --beam 1
    fi
}
say 0 0 ''
say 0 1 '\n'
say 0 3 '\n   \ndas haus'
say 0 1 'das haus\r\n'
say 0 1 '\xef\xbb\xbfdas haus\n'
say 0 1 '<s> </s> <pad> <unk> @@ haus@@\n'
say 0 1 '\xf0\x9f\x98\x80 \xcc\x81 never seen\n'
printf 'das\n\xff\n' >said
input=said stops 1 4 'standard input:2: not UTF-8' translate $model --threads 1 --beam 1
say 4 'standard input:1: not text: byte 0x00' 'a\0b\n'
perl -e 'print "das " x 5000, "\ndas haus\n"' >said
input=said try translate $model --threads 1 --beam 1
{ [ "$got" = 0 ] && [ "$(wc -l <out)" = 2 ] && grep -q '1 of 2 lines have more than' err; } ||
    fail "a sentence of 5000 tokens: exit code $got: $(cat err)"
head -c 10000000 /dev/zero | tr '\0' 'q' >said
input=said try translate $model --threads 1 --beam 1
{ [ "$got" = 0 ] && grep -q '1 of 1 lines have more than' err; } || fail "a line of 10 MB: exit code $got: $(cat err)"
refuses 3 'absent: No such file' translate $model absent
refuses 3 'is a folder' translate $model .
refuses 3 'recipe.ini/out: Not a directory' translate $model test.xx --output recipe.ini/out
if [ -w /dev/full ]; then
    refuses 3 '/dev/full: writing failed: No space left' translate $model test.xx --output /dev/full --threads 1
fi

# ---- data folders: train opens them. Without checksums, as of an earlier version: they would come first (e2e_damage)

rm data/checksums.xxh128

refuses_data() { # CODE TEXT: of bad/
    refuses "$1" "$2" train recipe.ini --data.folder bad --run.folder never
}
for file in data.ini dict.source.txt dict.target.txt train.source.ids train.source.off train.target.ids train.target.off; do
    fresh data bad
    rm bad/$file
    refuses_data 3 "bad/$file: No such file"
    mkdir bad/$file
    refuses_data 3 "bad/$file: "
done
for file in train.source.ids train.source.off train.target.ids valid.source.off; do
    full=$(stat -c %s data/$file)
    for bytes in 0 1 8 63 64 65 $((full - 4)) $((full - 1)); do
        fresh data bad
        truncate -s "$bytes" bad/$file
        refuses_data 4 "bad/$file: "
    done
    fresh data bad
    truncate -s +8 bad/$file
    refuses_data 4 "bad/$file: has $((full + 8)) bytes"
done
poked() { # CODE TEXT FILE OFFSET BYTES
    fresh data bad
    poke "bad/$3" "$4" "$5"
    refuses_data "$1" "$2"
}
poked 4 'not a token file' train.source.ids 0 'X'
poked 4 'not a token file' train.source.ids 0 'NORMAoff'
poked 4 'version 2, expected 1' train.source.ids 8 '\2'
poked 4 'bad/train.source.ids: version 1' train.source.ids 12 '\3'
poked 4 'bad/train.source.ids: has ' train.source.ids 16 '\377\377\377\377\377\377\377\377'
poked 4 'bad/train.source.ids: has ' train.source.ids 24 '\377\377\377\377\377\377\377\377'
poked 4 'bad/train.source.ids: has ' train.source.ids 24 '\0\0\0\0\0\0\0\100'
poked 4 'bad/train.source.off: has ' train.source.off 16 '\377\377\377\377\377\377\377\177'
poked 5 'are from different corpora' train.source.ids 16 '\1'
poked 5 'are from different corpora' train.source.ids 32 '\1\2\3\4'
poked 4 'bad/train.source.off: sequence 0 has an invalid offset' train.source.off 64 '\377\377\377\377\377\377\377\377'
poked 4 'bad/train.source.off: ' train.source.off 64 '\1'
poked 4 'bad/train.source.off: sequence 1 has an invalid offset' train.source.off 80 '\0'
poked 4 'bad/train.source.off: sequence ' train.source.off 80 '\377\377\377\377\377\377\377\177'
poked 5 'bad/train.source.ids: token 0 has id -1' train.source.ids 64 '\377\377\377\377'
poked 5 'bad/train.source.ids: token 1 has id 1000' train.source.ids 68 '\350\3\0\0'
fresh data bad
cp data/test.target.ids bad/train.target.ids
refuses_data 5 'are from different corpora'
cp data/test.target.off bad/train.target.off
refuses_data 5 'bad: train has 60 source and 6 target sequences'
fresh data bad
head -n 5 data/dict.source.txt >bad/dict.source.txt
refuses_data 5 'bad/train.source.ids: token '
fresh data bad
head -n 5 data/dict.target.txt >bad/dict.target.txt
refuses_data 5 'bad/train.target.ids: token '
written() { # CODE TEXT FILE CONTENTS
    fresh data bad
    printf "$4" >"bad/$3"
    refuses_data "$1" "$2"
}
written 4 'dict.source.txt:1: expected' dict.source.txt 'x\n'
written 4 'dict.source.txt' dict.source.txt 'x\0 1\n'
written 4 'bad/dict.source.txt:1: not UTF-8: byte 0xfe' dict.source.txt '\xfe 1\n'
written 4 'dict.target.txt:2: duplicate symbol "a"' dict.target.txt 'a 1\na 1\n'
written 5 'train.source.ids: token' dict.source.txt ''
written 4 'data.ini:1: expected' data.ini 'garbage\n'
written 2 'data.ini:2: unknown option prepare.ordre' data.ini '[prepare]\nordre = tears\n'
written 4 'bad/data.ini:2: not UTF-8: byte 0xff' data.ini '[prepare]\ntrain = \xff\n'
written 4 'bad/data.ini:2: not text: contains a zero byte' data.ini '[prepare]\n\0\n'
written 4 'is not allowed here' data.ini 'include = /etc/passwd\n'
written 4 'codes.bpe:1: expected' codes.bpe 'one two three four\n'
written 4 'bad/codes.bpe:1: not UTF-8: byte 0xff' codes.bpe '\xff\n'
written 4 'codes.bpe: empty' codes.bpe ''

# ---- recipes

recipe() { # CODE TEXT OPTIONS...
    local code=$1 text=$2
    shift 2
    refuses "$code" "$text" train recipe.ini --run.folder never "$@"
}
recipe 2 'model.width = 16 is not a multiple of model.heads = 3' --model.heads 3
recipe 2 'magic' --model.norm magic
recipe 2 'magic' --model.encoder_norm magic
recipe 2 'magic' --model.decoder_final_norm magic
recipe 2 'model.preset = huge' --model.preset huge
recipe 2 'expected one of' --schedule.name never
recipe 2 'expected one of' --optim.name adamantium
recipe 2 'outside' --train.label_smoothing 1
recipe 2 'outside' --model.dropout 1.5
recipe 2 'expected an integer' --train.updates 1.5
recipe 2 'data.folder is not set' --data.folder ''
recipe 3 'absent/data.ini: No such file: data.folder is not a data folder; norma prepare' --data.folder absent
recipe 3 "a folder that has moved is named with --data.folder" --data.folder absent
recipe 3 "--output 'not here' writes one" --data.folder 'not here'
"$NORMA" prepare --format text --tokenizer none --bpe-merges 0 --train train.xx --output plain-data 2>err || fail "prepare: $(cat err)"
recipe 5 'plain-data: the data folder holds plain text, which is for language models' --data.folder plain-data
refuses 5 'data: the data folder holds parallel text, which is for translation' train lm --run.folder never --data.folder data
refuses 5 'data: the data folder holds parallel text' baseline lm --data.folder data
chatty=1 recipe 2 'no sequence has 1 to' --train.max_tokens 1
rm -rf never
recipe 2 'data.max_length = 256 is more than model.max_positions = 8' --model.max_positions 8
recipe 2 'expected one of cpu|ref' --device.backend gpu
recipe 6 'MiB' --model.width 65536 --model.ff 1048576 --model.encoder_layers 1000 --model.heads 2
recipe 6 'MiB' --train.max_tokens 16777216 --device.memory_mib 100
recipe 3 'recipe.ini' --run.folder recipe.ini/run
recipe 3 'recipe.ini' --run.folder recipe.ini
recipe 2 'base already contains a run' --run.folder base
recipe 4 'the options: not UTF-8' --data.folder data --run.folder "$(printf 'never\xff')"
printf '[model]\nwidht = 3\n' >bad.ini
refuses 2 'bad.ini:2: unknown option model.widht; the most similar one is model.width' train bad.ini
rm -rf never
chatty=1
recipe 8 'update 1: loss ' --schedule.lr 100 --schedule.warmup 0 --train.updates 50 --model.norm none --train.divergence_factor 1.01
rm -rf never
# Sentences that do not fit are counted, not fatal.
accepts 'empty or longer than data.max_length' train recipe.ini --run.folder long --data.max_length 12
chatty=''

# ---- comparing

compare() { # CODE TEXT OPTIONS...
    local code=$1 text=$2
    shift 2
    refuses "$code" "$text" compare recipe.ini "$@"
}
compare 2 "norms: magic: unknown norm 'magic'; available: none, layer, " --norms magic
compare 2 'layer is listed twice' --norms layer,layer
compare 2 'norms is empty' --norms=
compare 2 'outside 1 .. ' --norms layer --seeds 0
compare 3 'recipe.ini: not a folder' --norms layer --folder recipe.ini
chatty=1
compare 2 'not a multiple of model.heads = 3' --norms layer --model.heads 3
compare 3 'absent/data.ini: No such file' --norms layer --data.folder absent
chatty=''

# ---- resuming

resume() { # CODE TEXT OPTIONS...: of run/
    local code=$1 text=$2
    shift 2
    chatty=1 refuses "$code" "$text" train recipe.ini --run.folder run --resume "$@"
}
resumes() { # TEXT: continues in run/ and ends as it should
    accepts "$1" train recipe.ini --run.folder run --resume
    grep -q '^done: 4 updates' err || fail "the resumed run did not finish: $(tail -n 1 err)"
    ls run/*.new run/checkpoints/*.new >/dev/null 2>&1 && fail "unfinished files are not removed: $(ls run run/checkpoints)"
    [ -s run/checkpoints/00000004.safetensors ] || fail "the last checkpoint is not there: $(ls run/checkpoints)"
}
fresh base run
resumes 'resumed at update 4'
for suffix in safetensors state.safetensors; do
    for bytes in 0 7 100 -1; do
        fresh base run
        truncate -s "$bytes" run/checkpoints/00000004.$suffix
        resumes 'resumed at update 3'
    done
    fresh base run
    rm run/checkpoints/00000004.$suffix
    resumes 'resumed at update 3'
    fresh base run
    truncate -s 100 run/checkpoints/0000000[34].$suffix
    resume 4 'run/checkpoints: no checkpoint can be used'
done
fresh base run
printf half >run/checkpoints/00000005.safetensors.0123abcd.new
printf half >run/checkpoints/00000005.state.safetensors.0123abcd.new
printf half >run/last.safetensors.0123abcd.new
printf half >run/config.ini.0123abcd.new
resumes 'resumed at update 4'
# With one checkpoint to keep, a damaged newer one must not replace the next good one.
fresh base run
truncate -s 100 run/checkpoints/00000004.safetensors
cp run/checkpoints/00000004.safetensors run/checkpoints/00000009.safetensors
accepts 'resumed at update 3' train recipe.ini --run.folder run --resume --train.keep_last 1
[ "$(ls -I '*.damaged' run/checkpoints)" = "$(printf '%s\n' 00000004.{intoto.json,safetensors,state.safetensors})" ] ||
    fail "not the newest checkpoint is kept: $(ls run/checkpoints)"
fresh base run
rm -r run/checkpoints
resumes 'done: 4 updates'
forge_state() { # PERL: of run/, without a manifest, which would find any change
    fresh base run
    rm run/checkpoints/00000003* run/checkpoints/00000004.intoto.json
    forge run/checkpoints/00000004.state.safetensors "$1"
}
state_forged() { # CODE TEXT PERL
    forge_state "$3"
    resume "$1" "$2"
}
state_forged 5 "has no tensor 'optimizer.m'" 's/optimizer.m/optimizer.x/'
state_forged 4 'run/checkpoints: no checkpoint can be used' 's/"state.update"/"stage.update"/'
has err 'run/checkpoints/00000004.state.safetensors: no training state'
state_forged 5 'trained on other data' 's/"data":"./"data":"x/'
# No value of any byte of the state may crash the program.
perl -e 'local $/; $_ = <>; $_ = substr($_, 8, unpack("Q<", $_)); print "$1\n" while /"(state\.[a-z_.]+)":\{/g' \
    base/checkpoints/00000004.state.safetensors >members
[ "$(wc -l <members)" -gt 20 ] || fail "the training state has only $(wc -l <members) values"
while read -r member; do
    forge_state '
        my ($at, $end) = /"'"$member"'":\{[^}]*"data_offsets":\[(\d+),(\d+)/ or die;
        substr($data, $at, $end - $at) = "\xff" x ($end - $at);'
    try train recipe.ini --run.folder run --resume
    case $got in 0 | 4 | 5 | 8) ;; *) fail "$member forged: exit code $got: $(tail -n 2 err)" ;; esac
done <members
# With its manifest, a checkpoint with another state is damaged.
fresh base run
rm run/checkpoints/00000003*
forge run/checkpoints/00000004.state.safetensors 's/"data":"./"data":"x/'
resume 4 'run/checkpoints: no checkpoint can be used'
has err 'checkpoint 4 is damaged: run/checkpoints/00000004.state.safetensors: not the file of its manifest'
fresh base run
resume 2 'model.width = 32: the run in run uses 16; omit the option' --model.width 32
resume 5 "tensor '" --model.width 32 --run.resume=override
resume 5 "has no tensor '" --model.norm power --run.resume=override
"$NORMA" prepare "${prepare_arguments[@]}" --train short --output data2 2>err || fail "$(cat err)"
resume 5 'trained on other data' --data.folder data2
fresh base run
rm run/log.jsonl
mkdir run/log.jsonl
resume 3 'run/log.jsonl: is a folder'

# ---- a full disk while a checkpoint is written: the former one stays complete

fresh base run
before=$(cksum run/best.safetensors run/last.safetensors run/checkpoints/*)
cases=$((cases + 1)) got=0 chatty=1
(ulimit -f 12; exec "$NORMA" train recipe.ini --run.folder run --resume --train.updates 9) >out 2>err || got=$?
check_failure 3 'writing failed: File too large' 'train under a file-size limit'
[ "$before" = "$(cksum run/best.safetensors run/last.safetensors run/checkpoints/*)" ] ||
    fail "a checkpoint that could not be written changed another: $(ls -l run/checkpoints)"
ls run/*.new run/checkpoints/*.new >/dev/null 2>&1 && fail "half files stay: $(ls run run/checkpoints)"
accepts 'resumed at update 4' train recipe.ini --run.folder run --resume --train.updates 4

hostile_end
