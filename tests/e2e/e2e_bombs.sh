#!/bin/bash
# Small compressed files that unpack to a line of 600 MB: every command that reads text refuses them with a message and its
# exit code, with a peak memory below the length of the line.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

if grep -q 'NORMA_SANITIZE:STRING=.' "${BUILD:?}/CMakeCache.txt"; then
    echo "not tested: a sanitizer takes memory itself"
    exit 0
fi

make_reversed_pairs 60 20 5
"$NORMA" prepare --train train --valid valid --source-lang en --target-lang de --tokenizer none --bpe-merges 0 --output data 2>/dev/null ||
    fail "prepare"
write_recipe tiny.ini run.task=translation data.folder=data model.width=16 model.ff=16 model.heads=2 model.encoder_layers=1 \
    model.decoder_layers=1 train.updates=1 train.max_tokens=256 device.threads=1
"$NORMA" train tiny.ini --run.folder run --run.quiet 2>err || fail "train: $(cat err)"
head -n 3 valid.en >three.en
head -c 600000000 /dev/zero | tr '\0' a | xz -0 -T1 >line.xz
[ "$(wc -c <line.xz)" -lt 200000 ] || fail "line.xz is not small"

# refuses_bomb CODE TEXT ARGUMENT ...: peak memory of the command below 400 MiB
refuses_bomb() {
    python3 - "$NORMA" "${@:3}" <<'PYTHON' >result 2>err || fail "python3: $(cat err)"
import resource, subprocess, sys
run = subprocess.run(sys.argv[1:], stdin=open("three.en"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(run.returncode, peak, run.stderr.decode(errors="replace").strip()[-400:].replace("\n", " "))
PYTHON
    read -r code peak text <result
    echo "$peak MiB, code $code: ${*:3}: $text"
    [ "$code" = "$1" ] || fail "code $code instead of $1: ${*:3}: $text"
    [[ "$text" == *"$2"* ]] || fail "'$2' is not in: $text"
    [ "$peak" -lt 400 ] || fail "$peak MiB: ${*:3}"
}
limit='line.xz:1: line of more than 536870912 bytes'
refuses_bomb 4 "$limit" tokenize line.xz
refuses_bomb 4 "$limit" prepare --format text --train line.xz --output x
refuses_bomb 4 "$limit" prepare --format text --train line.xz --tokenizer byte_level --documents file --output x
refuses_bomb 4 "$limit" score bleu line.xz --reference three.en
refuses_bomb 4 "$limit" translate run line.xz
refuses_bomb 4 "$limit" translate run three.en --prefix line.xz
refuses_bomb 4 "$limit" translate run three.en --constraints line.xz
refuses_bomb 4 "$limit" translate run three.en --shortlist line.xz
