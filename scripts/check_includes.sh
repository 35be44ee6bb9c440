#!/usr/bin/env bash
# Checks that includes have one direction: a folder of src/HOUSE/ includes private headers only of itself and of preceding
# folders in the list below, metric only of base and text, report only of these and metric; public headers include
# only public headers.
#     scripts/check_includes.sh [SOURCE]
# Prints one line per violation. Exit code: 0 none, 1 some.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

mapfile -t files < <(find src include/norma -name '*.[ch]' -o -name '*.inc' | LC_ALL=C sort)
awk '
    BEGIN {
        n = split("base comm text metric data backend tape norm nn model train decode probe task convert baseline experiment report api cli", order)
        for (i = 1; i <= n; i++) rank[order[i]] = i
    }
    function complain(why) {
        printf "%s:%d: %s includes %s: %s\n", FILENAME, FNR, folder, header, why
        bad++
    }
    FNR == 1 { split(FILENAME, path, "/"); folder = path[1] == "src" ? path[3] : "include/norma" }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        header = $0
        sub(/^[^"]*"/, "", header)
        sub(/".*/, "", header)
        split(header, part, "/")
        from = header ~ /\// ? part[1] : folder
        if (from == "norma" || from == folder) next
        if (folder == "include/norma") complain("public headers include public headers only")
        else if (!(folder in rank)) complain("the folder is not in the list")
        else if (!(from in rank)) complain("there is no such folder")
        else if ((folder == "metric" || folder == "report") && from != "base" && from != "text" && from != "metric")
            complain(folder " may include base, text and metric only")
        else if (rank[from] > rank[folder]) complain("it is a preceding folder")
    }
    END { exit bad > 0 }' "${files[@]}"
