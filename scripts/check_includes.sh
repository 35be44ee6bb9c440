#!/usr/bin/env bash
# Checks that includes have one direction: the houses core, task, lab and app include private headers only of themselves
# and of the houses before them, and a folder of a house only of itself and of the folders before it in the list below.
# report includes base only; public headers include only public headers. The program includes cli, base and public headers,
# api/sections.h, and what scripts/private_includes.txt still lists; a line there that is not needed is an error.
#     scripts/check_includes.sh [SOURCE]
# Prints one line per violation. Exit code: 0 none, 1 some.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

mapfile -t files < <(find src include/norma -name '*.[ch]' -o -name '*.inc' | LC_ALL=C sort)
awk '
    BEGIN {
        n = split("core: base backend norm nn model train probe task: text data task " \
                  "lab: convert experiment report app: api cli", order, " ")
        for (i = 1; i <= n; i++)
            if (sub(/:$/, "", order[i])) house = order[i]
            else { rank[order[i]] = i; house_of[order[i]] = house }
    }
    function complain(why) {
        printf "%s:%d: %s includes %s: %s\n", FILENAME, FNR, folder, header, why
        bad++
    }
    FILENAME == "scripts/private_includes.txt" { listed[$0]; next }
    FNR == 1 { split(FILENAME, path, "/"); folder = path[1] == "src" ? path[3] : "include/norma" }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        header = $0
        sub(/^[^"]*"/, "", header)
        sub(/".*/, "", header)
        split(header, part, "/")
        from = header ~ /\// ? part[1] : folder
        if (folder in house_of && path[2] != house_of[folder]) complain("the folder belongs to src/" house_of[folder])
        if (from == "norma" || from == folder) next
        if (folder == "include/norma") complain("public headers include public headers only")
        else if (!(folder in rank)) complain("the folder is not in the list")
        else if (!(from in rank)) complain("there is no such folder")
        else if (folder == "report" && from != "base") complain("report may include base only")
        else if (rank[from] > rank[folder]) complain("a folder includes preceding folders only")
        else if (folder == "cli" && from != "base" && header != "api/sections.h") {
            name = FILENAME " " header
            sub(/^src\/app\/cli\//, "", name)
            if (name in listed) delete listed[name]
            else complain("the program uses public headers; scripts/private_includes.txt is for what cannot yet")
        }
    }
    END {
        for (name in listed) { print "scripts/private_includes.txt: not included any more: " name; bad++ }
        exit bad > 0
    }' scripts/private_includes.txt "${files[@]}"
