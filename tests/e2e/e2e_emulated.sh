#!/usr/bin/env bash
# The backend `emulated`: a training run has the losses of the backend ref within float tolerance; without the kernels of ref
# it is refused.
set -uo pipefail
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
    echo "e2e_emulated: $*"
    exit 1
}
awk 'BEGIN {
    srand(3)
    split("der ein jede", d); split("hund baum haus fluss vogel", n); split("läuft singt fällt steht", v)
    split("the a every", D); split("dog tree house river bird", N); split("runs sings falls stands", V)
    for (i = 0; i < 120; i++) {
        a = 1 + int(rand() * 3); b = 1 + int(rand() * 5); c = 1 + int(rand() * 4)
        print d[a], n[b], v[c], "satz" i > "t.de"
        print D[a], N[b], V[c], "sentence" i > "t.en"
    }
}'
"$NORMA" prepare --train t --valid-every 20 --source-lang de --target-lang en --output d 2>err >/dev/null || fail "$(cat err)"
run() { # BACKEND NORM
    "$NORMA" train demo --data.folder d --train.updates 4 --train.max_tokens 64 --train.log_every 1 --train.score false \
        --model.width 32 --model.ff 64 --model.heads 2 --model.encoder-layers 1 --model.decoder-layers 1 --model.norm "$2" --device.backend "$1" \
        --device.fallback ref --run.folder "$1-$2" >out 2>err || fail "$1 $2: $(tail -n 3 err)"
    grep -o '"loss": *[0-9.]*' "$1-$2/log.jsonl" | grep -o '[0-9.]*$' >"$1-$2.losses"
}
for norm in layer power rbn dyt; do
    run ref $norm
    run emulated $norm
    grep -q 'kernels of ref' out err || fail "the kernels of ref are not announced"
    [ "$(wc -l <ref-$norm.losses)" -ge 4 ] || fail "no losses: $(cat "ref-$norm/log.jsonl")"
    paste ref-$norm.losses emulated-$norm.losses | awk -v norm=$norm '
        { difference = $1 - $2; if (difference < 0) difference = -difference
          if (!(difference <= 1e-4 * $1)) { print norm ": " $0; bad++ } }
        END { exit bad > 0 }' || fail "losses differ"
    cmp -s ref-$norm.losses ref-layer.losses && [ $norm != layer ] && fail "$norm has the losses of layer"
done
"$NORMA" train demo --data.folder d --device.backend emulated --run.folder x >out 2>err
[ $? = 7 ] || fail "without the kernels of ref the exit code is not 7"
grep -q 'lacks [0-9]* of [0-9]* kernels' err || fail "unexpected message: $(cat err)"
echo "e2e_emulated: four norms"
