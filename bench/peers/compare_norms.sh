#!/usr/bin/env bash
# Measures norms of PyTorch and of norma alternately, with two threads: medians over the rounds, and their ratio.
#     bench/peers/compare_norms.sh [ROUNDS]
# PYTHON: an interpreter with torch; BENCH: the program norma-bench. PyTorch has no PowerNorm; with POWERNORM=FILE, the authors'
# fairseq/modules/norms/mask_powernorm.py, it is compared with that.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-5} bench=${BENCH:-$here/../../build/norma-bench} python=${PYTHON:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for ((round = 1; round <= rounds; round++)); do
    OMP_NUM_THREADS=2 "$python" "$here/torch_norms.py" ${POWERNORM:+"$POWERNORM"} | sed 's/^/torch /' >>"$scratch/lines"
    "$bench" --threads 2 --parts norms --json - | jq -r '.norms[] |
        "norma \(.norm) \(.shape[0]) \(.shape[1]) \(.forward.microseconds) \(.backward.microseconds) \(.forward.of_copy) \(.backward.of_copy)"' \
        >>"$scratch/lines"
done
awk '
    function median(list,    v, n, i, j, t) {
        n = split(list, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    {
        key = $2 " [" $3 ", " $4 "]"
        if (!(key in seen)) { seen[key] = 1; order[++n] = key }
        for (i = 5; i <= NF; i++) all[$1, key, i] = all[$1, key, i] " " $i
    }
    END {
        print "norm and shape            forward, us: torch  norma  ratio  of copy   backward: torch  norma  ratio  of copy"
        for (k = 1; k <= n; k++) {
            key = order[k]
            line = sprintf("%-26s", key)
            for (i = 5; i <= 6; i++) {
                ours = median(all["norma", key, i])
                theirs = median(all["torch", key, i])
                line = line sprintf("%18s %6.0f %6s %7.0f%%", theirs ? sprintf("%.0f", theirs) : "-", ours,
                                    theirs ? sprintf("%.1f", theirs / ours) : "-", 100 * median(all["norma", key, i + 2]))
            }
            print line
        }
    }' "$scratch/lines"
