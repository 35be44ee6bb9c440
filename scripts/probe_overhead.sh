#!/usr/bin/env bash
# Overhead of the live instruments, measured within one run: it logs every 4 updates and probes every 9, so that a probe is
# inside an interval between two log lines. The time per token of each interval with a probe is compared with the mean
# of its neighbors without one, and the median is printed.
#
#     scripts/probe_overhead.sh PROGRAM RECIPE.ini [--section.key value ...]
#
# UPDATES: length of the run (default 600). Needs an otherwise idle machine. Exit codes: those of norma train.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: scripts/probe_overhead.sh PROGRAM RECIPE.ini [--section.key value ...]" >&2
    exit 2
fi
program=$1 recipe=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" train "$recipe" "$@" --run.folder "$work/run" --run.quiet --train.updates "${UPDATES:-600}" --train.log_every 4 \
    --train.validate_every 1000000000 --train.save_every 0 --probe.every 9 --probe.checkpoints false >&2
awk -v every=9 -v step=4 '
    function number(key,    at) {
        at = index($0, "\"" key "\":")
        return substr($0, at + length(key) + 3) + 0
    }
    function looks(i) { return int((step * i - 1) / every) > int(step * (i - 1) / every) }
    function edge(i) { return i > 0 && step * i % every == 0 } # logging a line costs time on both sides of it
    function plain(i) { return i > 2 && (i in cost) && !looks(i) && !edge(i) && !edge(i - 1) }
    /^\{"type":"train"/ {
        i = number("update") / step
        cost[i] = (number("seconds") - seconds) / (number("tokens") - tokens)
        seconds = number("seconds"); tokens = number("tokens")
    }
    END {
        for (k = 3; k <= i; k++)
            if (looks(k) && !edge(k) && !edge(k - 1) && plain(k - 1) && plain(k + 1))
                printf "%.9g\n", 2 * cost[k] / (cost[k - 1] + cost[k + 1])
    }' "$work/run/log.jsonl" | sort -g | awk -v step=4 '
    { ratio[NR] = $1 }
    function share(x) { return step * (ratio[int(1 + x * (NR - 1) + 0.5)] - 1) }
    END {
        if (NR < 3) { print "too few updates for a comparison" >"/dev/stderr"; exit 2 }
        printf "a measurement takes %.2f of an update (median of %d; the middle half from %.2f to %.2f)\n",
            share(0.5), NR, share(0.25), share(0.75)
        printf "at every 100 updates: %.2f %% of the time\n", share(0.5)
    }'
