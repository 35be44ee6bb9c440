#!/usr/bin/env bash
# Makes the annotated tag of a release, whose text is the section of CHANGELOG.md.
#     scripts/release.sh           checks, then tags v<version of CMakeLists.txt>
#     scripts/release.sh --notes   prints the release notes only
# Checks: nothing is uncommitted, the newest section of CHANGELOG.md has the version of CMakeLists.txt and a date, and the
# tag does not exist. Run .ci/run first; push the tag yourself: the release workflow builds wheels from it.
# Exit codes: 0 done, 1 a check failed, 2 wrong use.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
    echo "release: $*" >&2
    exit 1
}
[ $# -eq 0 ] || { [ $# -eq 1 ] && [ "$1" = --notes ]; } || {
    echo "usage: scripts/release.sh [--notes]" >&2
    exit 2
}
version=$(sed -nE 's/^project\(norma VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
heading=$(grep -m 1 -E '^## \[?[0-9]' CHANGELOG.md || true)
[[ $heading =~ ^##\ \[?([0-9.]+)\]?\ -\ ([0-9]{4}-[0-9]{2}-[0-9]{2})$ ]] ||
    fail "CHANGELOG.md has no section '## VERSION - YYYY-MM-DD'"
[ "${BASH_REMATCH[1]}" = "$version" ] ||
    fail "CHANGELOG.md begins with version ${BASH_REMATCH[1]}, CMakeLists.txt has $version"
notes=$(awk -v heading="$heading" '$0 == heading { on = 1; next } on && /^## / { exit } on' CHANGELOG.md | sed '/./,$!d')
if [ "${1:-}" = --notes ]; then
    printf '%s\n' "$notes"
    exit 0
fi
[ -z "$(git status --porcelain)" ] || fail "there are uncommitted changes"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists"
printf 'Norma %s\n\n%s\n' "$version" "$notes" | git tag -a "v$version" --cleanup=verbatim -F -
echo "tagged v$version; publish it with: git push origin v$version"
