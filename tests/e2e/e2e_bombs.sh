#!/bin/bash
# Small files that unpack to a line of 600 MB, to 600 MB of arrays or to millions of lines, and streams without an end: every
# command refuses them with a message and its exit code, or needs little memory.
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
python3 - <<'PYTHON' || fail "python3"
import tarfile, zipfile, lzma
member = tarfile.TarInfo("text")
member.size = 600000000
pad = b"a" * 1000000
compress = lzma.LZMACompressor(preset=0)
with open("long.tar.xz", "wb") as out: # a member of one line; in endless.tar it claims to have 1 TiB
    out.write(compress.compress(member.tobuf(tarfile.GNU_FORMAT)))
    for i in range(600):
        out.write(compress.compress(pad))
    out.write(compress.flush())
member.size = 1 << 40
open("endless.tar", "wb").write(member.tobuf(tarfile.GNU_FORMAT) + b"a b\n" * 128)

def array(shape):
    header = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % shape).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
with zipfile.ZipFile("zeros.npz", "w", zipfile.ZIP_DEFLATED) as out:
    with out.open("a.npy", "w") as member:
        member.write(array(150000000))
        for i in range(600):
            member.write(bytes(1000000))
with zipfile.ZipFile("claims.npz", "w") as out:
    out.writestr("a.npy", array(1 << 40) + bytes(1000))
with zipfile.ZipFile("many.npz", "w") as out:
    for i in range(17000):
        out.writestr(f"a{i}.npy", array(0))
PYTHON
refuses_bomb 4 'long.tar.xz/text:1: line of more than 536870912 bytes' tokenize long.tar.xz/text
refuses_bomb 4 'endless.tar/text:' tokenize endless.tar/text
npz=(--from marian --vocabs 'three.en,three.en' -o x)
refuses_bomb 4 'zeros.npz: a: the arrays unpack to more than 100 times the file' convert zeros.npz "${npz[@]}"
refuses_bomb 4 'claims.npz: a: the array has 1000 bytes' convert claims.npz "${npz[@]}"
refuses_bomb 4 'many.npz: more than 16384 arrays' convert many.npz "${npz[@]}"

# ---- streams without an end ----
refuses_bomb 4 '/dev/zero: has more than 134217728 bytes' train /dev/zero
refuses_bomb 4 '/dev/zero: has more than 134217728 bytes' prepare --format text --train three.en --codes /dev/zero --output x
refuses_bomb 4 '/dev/zero: has more than 134217728 bytes' prepare --format text --train three.en --dict-source /dev/zero --output x
refuses_bomb 4 'line of more than 536870912 bytes' translate run three.en --shortlist /dev/zero
[ ! -e x ] || fail "x was written"

# ---- a shortlist of 14 million lines is read; only the best translations of a token are kept ----
word=$(head -n 1 three.en | cut -d ' ' -f 1)
(yes "$word $word 0.5" || true) 2>/dev/null | head -n 14000000 | xz -0 -T1 >lines.xz
refuses_bomb 0 '' translate run three.en --shortlist lines.xz
