#!/usr/bin/env bash
# Fuzzing: runs every target of tests/fuzz under libFuzzer with Clang's address and undefined-behavior sanitizers.
#     scripts/fuzz.sh [--build FOLDER] [--replay] [--pack] SECONDS [TARGET...]
# SECONDS is the time of each target; targets are names such as model (default: all). Seeds are the stored inputs
# (tests/fuzz/inputs), files that the program writes (tests/fuzz/seeds.sh) and the inputs that earlier runs found
# (tests/fuzz/corpus.tar.xz). New inputs that increase coverage are added to FOLDER/corpus/TARGET (default build-fuzz), so the
# next run continues; findings are in FOLDER/findings.
# --replay: only runs the existing inputs once.
# --pack: afterwards writes the archive of inputs again, with those that cover something that the others do not, and adds CPU time
# and executions to the table of docs/notes/fuzzing.md.
# JOBS targets (default: one per core) run at the same time.
# Prints executions, CPU time, coverage (edges) and findings of each target, and "N passed, N failed". Exit code: 0 no finding,
# 1 some.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
folder=build-fuzz replay=0 pack=0 archive=tests/fuzz/corpus.tar.xz jobs=${JOBS:-$(nproc)}
TIMEFORMAT='%U %S' # of the user and the system, in seconds
while [[ ${1:-} == --* ]]; do
    case $1 in
    --build) folder=$2; shift 2 ;;
    --replay) replay=1; shift ;;
    --pack) pack=1; shift ;;
    *) echo "fuzz: unknown option $1" >&2; exit 2 ;;
    esac
done
seconds=${1:-}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: scripts/fuzz.sh [--build FOLDER] [--replay] [--pack] SECONDS [TARGET...]" >&2; exit 2; }
shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=$(basename "$source" .c)
        [ "$name" = fuzz_file ] || targets+=("${name#fuzz_}")
    done
fi

generator=()
[ -e "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
mkdir -p "$folder"
if ! { cmake -S . -B "$folder" "${generator[@]}" -DCMAKE_C_COMPILER="${FUZZ_CC:-clang}" -DNORMA_FUZZ=ON \
    -DNORMA_SANITIZE=address,undefined -DNORMA_TESTS=ON -DNORMA_BENCH=OFF -DNORMA_PYTHON=OFF -DNORMA_MPI=OFF &&
    cmake --build "$folder" -j "$jobs" --target norma_program "${targets[@]/#/fuzz_}"; } >"$folder/build.log" 2>&1; then
    tail -n 40 "$folder/build.log" >&2
    exit 1
fi

# allocator_may_return_null: files can state any size; the readers must report that memory is missing.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1:max_allocation_size_mb=3000:detect_leaks=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
corpus=$folder/corpus findings=$folder/findings
mkdir -p "$findings"
if [ ! -e "$corpus" ]; then
    mkdir -p "$corpus.new"
    [ ! -e "$archive" ] || tar -C "$corpus.new" -xJf "$archive" || exit 1
    mv "$corpus.new" "$corpus"
fi
if [ ! -e "$folder/seeds" ]; then
    # The seeds are written by the sanitized program.
    if ! ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 NORMA=$PWD/$folder/norma tests/fuzz/seeds.sh "$folder/seeds.new"; then
        echo "fuzz: the program could not write the seeds" >&2
        exit 1
    fi
    mv "$folder/seeds.new" "$folder/seeds"
fi

# Runs a target; the result is the first line of FOLDER/TARGET.result, "ok" or "finding", then the lines to print. FOLDER/TARGET.run
# is the line for fuzz_totals.py.
run_target() {
    local target=$1 inputs=("$corpus/$1") seeds log=$folder/$1.log limit=(-max_total_time="$seconds")
    local options status runs edges cpu n
    mkdir -p "$corpus/$target" "$findings/$target"
    for seeds in "tests/fuzz/inputs/$target" "$folder/seeds/$target"; do
        [ -d "$seeds" ] && inputs+=("$seeds")
    done
    [ "$replay" -eq 0 ] || limit=(-runs=0)
    options=(-timeout=30 -rss_limit_mb=4096 -malloc_limit_mb=3500 -print_final_stats=1 -verbosity=1 -max_len=65536)
    { time "$folder/tests/fuzz/fuzz_$target" "${options[@]}" "${limit[@]}" -artifact_prefix="$findings/$target/" "${inputs[@]}" \
        >"$log" 2>&1; } 2>"$folder/$target.time"
    status=$?
    cpu=$(awk '{ printf "%.1f", $1 + $2 }' "$folder/$target.time")
    n=$(find "$corpus/$target" -type f | wc -l)
    runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
    edges=$(awk '/cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) } END { print cov + 0 }' "$log")
    if [ $status -eq 0 ]; then
        printf 'ok\n%s: %s executions in %s s of CPU time, %s edges, %s inputs\n' "$target" "${runs:-0}" "$cpu" "$edges" "$n"
        echo "$target $cpu ${runs:-0} $edges $n" >"$folder/$target.run"
    else
        printf 'finding\n%s: FINDING after %s executions (%s, %s):\n' "$target" "${runs:-?}" "$log" "$findings/$target"
        grep -m 3 -E 'ERROR: |runtime error|SUMMARY|assertion|fuzz_.*failed|panic|: [a-z_]*\(' "$log" | sed 's/^/    /'
    fi >"$folder/$target.result"
}

# $folder/packed has the inputs of the archive. Replaces those of a target by the inputs, of the archive and of the last runs, that
# cover something that neither the seeds nor smaller inputs cover.
pack_target() {
    local target=$1 seeds known=$folder/known/$1 packed=$folder/packed/$1
    rm -rf "$known"
    mkdir -p "$known" "$packed"
    for seeds in "tests/fuzz/inputs/$target" "$folder/seeds/$target"; do
        [ ! -d "$seeds" ] || cp "$seeds"/* "$known"
    done
    cp -r "$known" "$known.seeds"
    "$folder/tests/fuzz/fuzz_$target" -merge=1 -timeout=30 -rss_limit_mb=4096 -max_len=65536 "$known" "$corpus/$target" "$packed" \
        >"$folder/$target.pack.log" 2>&1 || { tail -n 20 "$folder/$target.pack.log" >&2; return 1; }
    (cd "$known.seeds" && find . -type f -print0) | (cd "$known" && xargs -0 rm -f)
    rm -rf "$known.seeds"
    rm -rf "$packed"
    mv "$known" "$packed"
}

for target in "${targets[@]}"; do
    rm -f "$folder/$target.result"
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    run_target "$target" &
done
wait
passed=0 failed=0
for target in "${targets[@]}"; do
    if [ "$(head -n 1 "$folder/$target.result")" = ok ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    tail -n +2 "$folder/$target.result"
done
if [ "$pack" -eq 1 ] && [ "$failed" -eq 0 ]; then
    # Targets that were not run keep their inputs.
    rm -rf "$folder/packed"
    mkdir -p "$folder/packed"
    [ ! -e "$archive" ] || tar -C "$folder/packed" -xJf "$archive" || exit 1
    for target in "${targets[@]}"; do
        pack_target "$target" || exit 1
    done
    tar -C "$folder/packed" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - . | xz -9 >"$archive.new" &&
        mv "$archive.new" "$archive" || exit 1
    echo "$archive: $(find "$folder/packed" -type f | wc -l) inputs, $(stat -c %s "$archive") bytes"
    for target in "${targets[@]}"; do
        sed "s/[0-9]*$/$(find "$folder/packed/$target" -type f | wc -l)/" "$folder/$target.run"
    done | scripts/fuzz_totals.py docs/notes/fuzzing.md || exit 1
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
