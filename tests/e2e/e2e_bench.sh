#!/bin/bash
# norma bench and norma-bench: selected parts as tables and as valid JSON; wrong arguments give one line of error. Results are not checked.
set -euo pipefail
bench=$BUILD/norma-bench
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export TMPDIR=$folder

fail() {
    echo "e2e_bench: $*" >&2
    exit 1
}

# Exit code 2 and one line with this text.
refuses() {
    local text=$1 got=0
    shift
    "$bench" "$@" >out 2>err || got=$?
    [ "$got" = 2 ] || fail "exit code $got instead of 2: $*"
    [ "$(wc -l <err)" = 1 ] || fail "not one line: $(cat err)"
    grep -qF -- "$text" err || fail "'$text' is not in: $(cat err)"
}

has() { grep -qF -- "$1" "$2" || fail "'$1' is not in $2: $(cat "$2")"; }

# norma bench executes norma-bench in the same folder; its exit code is that of norma bench. Here norma-bench is a script that
# prints its arguments.
runs_bench() { # CODE ARGUMENTS...: the output is in out and err
    local code=$1 got=0
    shift
    ./alone bench "$@" >out 2>err || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: bench $*: $(cat err)"
}
cp "$NORMA" alone
runs_bench 7 --quick # there is no norma-bench in the folder of this copy
[ ! -s out ] && has 'norma: cannot start ' err
has '/norma-bench: No such file or directory (norma-bench is built with cmake -D NORMA_BENCH=ON)' err
runs_bench 2 models
has 'bench: unexpected argument models; usage' err
printf '#!/bin/sh\necho "$@"\nexit 5\n' >norma-bench
runs_bench 3
has 'norma-bench: Permission denied' err
chmod +x norma-bench
runs_bench 5
has '--parts ceilings,kernels,norms,step,decode --match  --isa auto --threads 0 --precision float' out
! grep -q -- '--quick\|--profile\|--json' out || fail "options that were not given: $(cat out)"
runs_bench 5 --parts kernels --match dot --isa avx2 --threads 2 --precision bf16 --json all.json --quick --profile
has '--parts kernels --match dot --isa avx2 --threads 2 --precision bf16 --json all.json --quick --profile' out
runs_bench 5 --scaling
has '--parts scaling ' out

[ -x "$bench" ] || { echo "the rest is skipped: built without the benchmarks"; exit 0; }
"$NORMA" bench --quick --threads 1 --parts kernels --match dot >table
has "dot" table

"$bench" --help >help
grep -q -- --quick help
refuses "unknown option --fast" --fast
refuses "--threads requires a value" --threads
refuses "--threads two" --threads two
refuses "unknown part gpu" --parts gpu
refuses "SECTION.KEY=VALUE" --set model.norm
refuses "available: auto, base" --isa none
refuses "expected float, bf16" --precision half
refuses "model.nrom" --parts step --set model.nrom=layer
[ -z "$(ls -d norma-bench-* 2>/dev/null)" ] || fail "a corpus was not removed"

"$bench" --quick --threads 1 --parts kernels,norms --match dot --json all.json >table
has '"kernel": "dot"' all.json
has '"times_ref"' all.json
has '"norms": []' all.json
has "x ref" table

# The emulator of devices, with few rows because it is slow.
"$bench" --quick --threads 1 --backend emulated --rows 2 --parts norms --match layer --json all.json >table
[ "$(tr -d ' \n' <all.json | grep -o '"shape":\[2,512\]' | wc -l)" = 1 ] || fail "not one norm of 2 rows: $(cat all.json)"

# Training steps with 1, 2 and 3 threads.
"$bench" --quick --threads 3 --scaling --json all.json --set model.preset=tiny --set model.width=16 --set model.ff=32 \
    --set train.max_tokens=150 >table
[ "$(grep -c '"speedup"' all.json)" = 3 ] || fail "not 1, 2 and 3 threads: $(cat all.json)"
has 'tiny, 150 tokens' table
has 'of the highest throughput' table

# A missing CBLAS is reported, not printed as a rate of 0.
"$bench" --quick --threads 1 --parts ceilings --json all.json >table
! grep -qE ' 0\.0( |$)' table || fail "a rate of 0: $(cat table)"
grep -q '"cblas"' all.json || has "No CBLAS" table

"$bench" --quick --threads 1 --parts step,decode --profile --json all.json --set model.preset=tiny --set model.width=16 \
    --set model.ff=32 --set train.max_tokens=150 >table
[ "$(grep -c '"preset": "tiny"' all.json)" = 5 ] || fail "not one step and four decodings: $(cat all.json)"
has '"of_ceiling"' all.json
has linear_grad_weight table
grep -qE '^tiny +150 ' table || fail "no step of 150 tokens: $(cat table)"
# Eight translations of 25 words and the EOS token.
has '"tokens": 208' all.json
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; d = json.load(open("all.json")); sys.exit(d["threads"] != 1 or not d["quick"] or
        not 0 < sum(k["share"] for k in d["step"][0]["kernels"]) <= 1 or
        d["step"][0]["calls"] < 50 or d["step"][0]["waits"] != 0)' || fail "the JSON is wrong"
fi
[ -z "$(ls -d norma-bench-* 2>/dev/null)" ] || fail "a corpus was not removed"

# Norma's side of make bench-peers trains without validation data.
if command -v python3 >/dev/null; then
    # shellcheck source=tests/e2e/corpora.sh
    . "$SOURCE/tests/e2e/corpora.sh"
    prepare_pairs data
    write_recipe peers.ini data.folder=training model.preset=tiny train.updates=3 train.max_tokens=100 train.log_every=1
    PYTHONPATH=$SOURCE/bench/peers PYTHONDONTWRITEBYTECODE=1 python3 - 2>err <<'X' || fail "bench_peers: $(cat err)"
import bench_peers
bench_peers.without_validation("data", ".", "training")
assert bench_peers.norma_speed(".", "peers.ini", [])["value"] > 0
X
fi
