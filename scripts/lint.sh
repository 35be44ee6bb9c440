#!/usr/bin/env bash
# Quick checks of the sources: formatting, include order, shell scripts, spelling, language;
# with --deep also clang-tidy and cppcheck (minutes; needs build/compile_commands.json).
#     scripts/lint.sh [--deep]
# Ends with a line "N passed, N failed". Exit code: 0 no check failed, 1 some did.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0

check() { # name, command ...
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "lint: $name failed" >&2
        failed=$((failed + 1))
    fi
}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.[ch]' '*.inc')
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
mapfile -t programs < <(git ls-files --cached --others --exclude-standard '*.py')
mapfile -t texts < <(git ls-files --cached --others --exclude-standard '*.[ch]' '*.md' '*.sh' '*.cmake' '*.txt' '*.ini' Makefile |
    grep -v -e '^tests/' -e '^results/') # both contain German, and the tests contain deliberate misspellings

# grep -q ends at the first match. The command before it in a pipe may then die of SIGPIPE, which pipefail reports as a failure.
no_pipe_into_quiet_grep() {
    ! grep -nE '(^|[^|])\|&? *[ef]?grep( -[^ |]+)* (-[[:alnum:]]*[qm]|--quiet|--max-count)' \
        "${scripts[@]}"
}

check clang-format clang-format --dry-run -Werror "${sources[@]}"
check "include order" scripts/check_includes.sh
check "columns and banners" scripts/check_columns.py "${sources[@]}" "${programs[@]}"
check shellcheck shellcheck --severity=warning "${scripts[@]}"
check "pipes into grep -q" no_pipe_into_quiet_grep
check codespell codespell --ignore-words scripts/spelling.txt "${texts[@]}"
check language scripts/check_language.sh
check "links and tables of the documents" scripts/check_links.py
check "size of the parts" scripts/check_size.py
check "mutants" scripts/listed_mutants.py --check
check "performance page" python3 bench/peers/performance_page.py --check
if [ "${1:-}" = --deep ]; then
    # One file at a time: version 14 misses va_start in all files but the first.
    check clang-tidy xargs -n 1 clang-tidy -p build --quiet --warnings-as-errors='*' < <(git ls-files 'src/*.c')
    check cppcheck cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,portability \
        --suppress=missingIncludeSystem -Iinclude -Isrc/core -Isrc/task -Isrc/lab -Isrc/app src
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
