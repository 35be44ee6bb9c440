#!/bin/bash
# norma verify: stored checkpoints are computed again; a changed bit of every kind of file is found.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"
chatty=1

make_data
sed -i 's/^updates = .*/updates = 12/; s/^validate_every = .*/validate_every = 4/; s/^keep_last = .*/keep_last = 9/; s/^save_every = .*/save_every = 3/' recipe.ini
sed -i 's/^\[schedule\]/[schedule]\nname = val-decay\npatience = 1/; s/^norm = .*/norm = power\ndropout = 0.2/' recipe.ini
# The run is made by another build: the same program with another build ID, which its manifests name.
id=$(readelf -n "$NORMA" | sed -n 's/.*Build ID: //p')
perl -0777 -e '($id) = @ARGV; $bytes = pack "H*", $id; $_ = <STDIN>; $n = s/\Q$bytes\E/~$bytes/ge; print; exit($n != 1)' \
    "$id" <"$NORMA" >other || fail "the build ID $id is not in the program"
chmod +x other
./other train recipe.ini --run.quiet --run.folder run --train.updates 7 2>err || fail "train: $(cat err)"
./other train --run.quiet --run.folder run --resume=override --train.max_grad_norm 0.5 --train.updates 12 2>err || fail "resume: $(cat err)"
where=(--work "$PWD")
lacks run/checkpoints/00000012.intoto.json "$id"

accepts 'updates 10 to 12: equal' verify run "${where[@]}"
has out 'updates 4 to 4: equal'
has out 'updates 8 to 8: equal' # after a change of the configuration
has out '6 of 7 stored checkpoints computed again: equal'
accepts '7 of 7 stored' verify run --start --threads 2 "${where[@]}"
has out 'updates 1 to 3 from the seed: equal'
accepts '2 of 7 stored' verify run --updates 2 "${where[@]}"
has out 'updates 10 to 12: equal'
accepts '2 of 7 stored' verify run --updates 2 --random "${where[@]}"
# A finished run that is resumed has nothing to do: its files stay as they are.
for change in "" "--train.log_every 7"; do
    rm -rf copy && cp -r run copy && rm copy/last.safetensors
    # shellcheck disable=SC2086
    accepts 'done: 12 updates' train --run.folder copy --resume $change
    diff -r run copy >difference
    [ "$(grep -vc '^[<>]\|^[0-9]*a[0-9]*$\|^diff .*log.jsonl' difference)" = 0 ] || fail "resumed: $(cat difference)"
    accepts '6 of 7 stored' verify copy "${where[@]}"
done
rm -rf moved && mv data moved
refuses 3 'data/' verify run "${where[@]}"
accepts '6 of 7 stored' verify run --data moved "${where[@]}"
mv moved data
refuses 2 'absent: no run with stored checkpoints' verify absent
refuses 3 'nowhere/' verify run --work nowhere

flip() { # FILE POSITION: changes one bit
    perl -e 'open my $f, "+<", $ARGV[0] or die; seek $f, ($at = int((-s $f) * $ARGV[1])), 0; read $f, $byte, 1; seek $f, $at, 0;
        print $f chr(ord($byte) ^ 1)' "$1" "$2"
}
for file in config.ini log.jsonl last.safetensors checkpoints/00000009.safetensors checkpoints/00000009.state.safetensors \
    checkpoints/00000012.safetensors checkpoints/00000012.state.safetensors checkpoints/00000006.intoto.json checkpoints/00000012.intoto.json; do
    for position in 0.03 0.5 0.97; do
        rm -rf copy
        cp -r run copy
        flip copy/$file $position
        refuses 4 "copy/" verify copy "${where[@]}"
    done
done
# The last line, which is written after the newest checkpoint, and lines after it, as of a run that was killed.
bytes=$(stat -c %s run/log.jsonl)
for back in 1 2 9 20 40 50; do
    rm -rf copy
    cp -r run copy
    flip copy/log.jsonl "$(awk "BEGIN { print ($bytes - $back + 0.5) / $bytes }")"
    refuses 5 'copy/log.jsonl: its last line is not the hash of the parameters' verify copy --updates 1 "${where[@]}"
done
rm -rf copy
cp -r run copy
sed -i '$ s/.*/{"type":"train","update":13}/' copy/log.jsonl
accepts 'log.jsonl: not checked after the newest checkpoint' verify copy --updates 1 "${where[@]}"
best=$(find run/checkpoints -name '*[0-9].safetensors' -exec sh -c 'cmp -s run/best.safetensors "$1" && echo "$1"' _ {} \;)
rm -rf copy
cp -r run copy
flip copy/best.safetensors 0.5
if [ -n "$best" ]; then refuses 4 'copy/best.safetensors: ' verify copy "${where[@]}"; fi
# The best model of a run that averages its parameters: parameters, and running statistics after them.
"$NORMA" train recipe.ini --run.quiet --run.folder averaged --train.ema_decay 0.5 --train.updates 8 2>err || fail "train: $(cat err)"
accepts 'stored checkpoints computed again: equal' verify averaged "${where[@]}"
lacks out 'not checked'
lacks err warning
best=$(grep -ao '"update":"[0-9]*"' averaged/best.safetensors | head -n 1 | tr -dc 0-9)
cp averaged/checkpoints/*"$best".safetensors averaged/best.safetensors
refuses 4 'averaged/best.safetensors: not the average of parameters of its checkpoint' verify averaged --updates 1 "${where[@]}"
for file in train.source.ids train.target.off; do
    rm -rf changed
    cp -r data changed
    flip changed/$file 0.5
    refuses 4 'changed/' verify run --data changed "${where[@]}"
done
rm -rf changed
cp -r data changed
printf '\1' | dd of=changed/train.source.off bs=1 seek=45 conv=notrunc status=none # a byte of the header without a meaning
refuses 4 'changed/' verify run --data changed "${where[@]}"
# Without one of its manifests.
rm -rf copy
cp -r run copy
rm copy/checkpoints/00000006.intoto.json
refuses 7 'copy/checkpoints/00000006.intoto.json: missing' verify copy "${where[@]}"
cases=$((cases + 1))
[ -z "$(find . -maxdepth 1 -name 'norma-verify-*')" ] || fail "temporary folders remain: $(ls)"

# A checkpoint with right digests that the updates do not give.
if ! grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt"; then
    "${CC:-cc}" -shared -fPIC -fno-builtin -o faulty.so "$SOURCE/tests/mpi/faulty_math.c" -lm -ldl || fail "no library"
    FAULT=exp LD_PRELOAD=$PWD/faulty.so "$NORMA" train recipe.ini --run.quiet --device.backend ref --run.folder false 2>err || fail "train: $(cat err)"
    refuses 5 'is not what the updates after checkpoint ' verify false "${where[@]}"
fi

# scripts/verify_results: the first update of an archived run.
if command -v python3 >/dev/null; then
    results() { # ARGUMENTS...: sets $got
        got=0 cases=$((cases + 1))
        python3 "$SOURCE/scripts/verify_results" --norma "$NORMA" "$@" >out 2>err || got=$?
    }
    has run/log.jsonl '"type":"weights","update":1,'
    has run/log.jsonl '"type":"weights","update":12,'
    mkdir -p archive/one
    cp run/log.jsonl archive/one
    "$NORMA" train recipe.ini --run.quiet --run.folder first --train.updates 3 2>err || fail "train: $(cat err)"
    cp first/config.ini archive/one
    tar cJf a.tar.xz -C archive .
    results a.tar.xz
    [ "$got" = 0 ] || fail "verify_results: exit code $got: $(cat out err)"
    has out '1 run: equal after updates 0 and 1, with another build'
    results --data nowhere a.tar.xz
    has out '1 run: not checked: no data'
    cp first/log.jsonl archive/one
    sed -i 's/^seed = .*/seed = 99/' archive/one/config.ini
    tar cJf b.tar.xz -C archive .
    results b.tar.xz
    [ "$got" = 1 ] || fail "verify_results: exit code $got for another seed: $(cat out err)"
    has out '1 run: DIFFERENT, with the recorded build'
    sed -i '/"type":"weights"/d' archive/one/log.jsonl
    tar cJf c.tar.xz -C archive .
    results c.tar.xz
    has out '1 run: not verifiable: the archive has no hashes'
fi

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "stored checkpoints are what their updates give ($cases cases)"
