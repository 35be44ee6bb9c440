#!/usr/bin/env bash
# Sees to it that the Debian or Ubuntu packages are there which a make target needs.
#
#     scripts/packages.sh GROUP...                  groups: build test page bench demo lint sanitize
#     scripts/packages.sh --list GROUP...           prints the names and does nothing else
#     scripts/packages.sh --fetch FOLDER PACKAGE... puts the package files there without installing them
#
# What is missing is named, then installed through apt (with sudo where not root). Where there is no apt, the program
# or library itself is looked for instead, and what is missing is named with its Debian package.
# Exit codes: 0 all there, 2 wrong use or something is missing and cannot be installed.
set -uo pipefail

# group, packages (one of them is enough, the first is installed), how to find it without dpkg: command: a program,
# module: a pkg-config module, header: a file below /usr/include or /usr/local/include, always: only dpkg knows.
table='
build     gcc|clang                                   command:cc
build     libc6-dev|libc-dev|musl-dev                 header:stdio.h
build     cmake                                       command:cmake
build     ninja-build                                 command:ninja
build     pkg-config|pkgconf                          command:pkg-config
build     libutf8proc-dev                             module:libutf8proc
build     libjansson-dev                              module:jansson
build     libxxhash-dev                               module:libxxhash
test      libcmocka-dev                               module:cmocka
test      gnuplot-nox|gnuplot-qt|gnuplot-x11          command:gnuplot
test      libprotobuf-c-dev                           module:libprotobuf-c
test      protobuf-c-compiler                         command:protoc-c
page      chromium                                    command:chromium
bench     libopenblas-openmp-dev|libopenblas-serial-dev|libblis-openmp-dev  header:cblas.h,openblas/cblas.h,blis/cblas.h
demo      perl-base|perl                              command:perl
lint      clang-format                                command:clang-format
lint      clang-tidy                                  command:clang-tidy
lint      cppcheck                                    command:cppcheck
lint      shellcheck                                  command:shellcheck
lint      codespell                                   command:codespell
sanitize  clang                                       command:clang
sanitize  libomp-dev                                  always
sanitize  libclang-rt-dev|libclang-rt-14-dev|libclang-common-14-dev  always
'

say() { echo "packages: $*" >&2; }

usage() {
    echo "usage: scripts/packages.sh [--list] GROUP... (build test page bench demo lint sanitize), or --fetch FOLDER PACKAGE..." >&2
    exit 2
}

rows_of() {
    local group
    for group in "$@"; do
        awk -v group="$group" '$1 == group { print $2, $3; n++ } END { exit !n }' <<<"$table" || return 1
    done
}

installed() { # one of a|b|c is installed
    local name
    for name in ${1//|/ }; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] && return 0
    done
    return 1
}

found() { # the thing itself is there, whoever put it
    local kind=${1%%:*} names=${1#*:} name
    case $kind in
    command) command -v "$names" >/dev/null ;;
    module) pkg-config --exists "$names" 2>/dev/null ;;
    header)
        for name in ${names//,/ }; do
            [ -e "/usr/include/$name" ] || [ -e "/usr/local/include/$name" ] && return 0
        done
        return 1
        ;;
    *) return 0 ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "not root and no sudo; run as root: $*"
        return 1
    fi
}

# apt's lists are fetched only when they do not know a package or name a file that is gone.
update() {
    say "apt-get update"
    as_root apt-get -qq update
}

known() {
    local name
    for name in "$@"; do
        apt-cache show "$name" >/dev/null 2>&1 || return 1
    done
}

missing_among() {
    local packages probe
    while read -r packages probe; do
        if command -v dpkg-query >/dev/null; then
            installed "$packages" || echo "${packages%%|*}"
        else
            found "$probe" || echo "${packages%%|*}"
        fi
    done
}

# The name that this release knows among the alternatives of a row, else the first.
name_known() {
    local row names name
    row=$(awk -v first="$1" '{ split($2, a, "|") } a[1] == first { print $2; exit }' <<<"$table")
    names=${row//|/ }
    for name in $names; do
        apt-cache show "$name" >/dev/null 2>&1 && echo "$name" && return
    done
    echo "$1"
}

# Quiet unless it fails: dpkg has a line or three for each package.
install_with() {
    local said
    said=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install "$@" 2>&1) || {
        printf '%s\n' "$said" | tail -n 20 >&2
        return 1
    }
}

ensure() {
    local rows missing=() names=() name
    rows=$(rows_of "$@") || usage
    mapfile -t missing < <(missing_among <<<"$rows")
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "missing, by the names of their Debian packages: ${missing[*]}"
        say "there is no apt here; install what corresponds to them and try again"
        return 2
    fi
    say "missing: ${missing[*]}; installing through apt"
    known "${missing[@]}" || update || return 2
    for name in "${missing[@]}"; do names+=("$(name_known "$name")"); done
    install_with "${names[@]}" || { update && install_with "${names[@]}"; } || {
        say "apt could not install: ${names[*]}"
        return 2
    }
}

fetch() {
    local folder=$1
    shift
    if ! command -v apt-get >/dev/null; then
        say "there is no apt here to fetch $*"
        return 2
    fi
    say "fetching without installing: $*"
    # As root, apt would hand the download to a user who may not write into the folder.
    local get=(apt-get -qq)
    [ "$(id -u)" -eq 0 ] && get+=(-o APT::Sandbox::User=root)
    known "$@" || update || return 2
    (cd "$folder" && "${get[@]}" download "$@") || { update && (cd "$folder" && "${get[@]}" download "$@"); } || {
        say "apt could not fetch: $*"
        return 2
    }
}

case ${1:-} in
"" | -h | --help) usage ;;
--list)
    shift
    rows_of "$@" | sed 's/[| ].*//' || usage
    ;;
--fetch)
    [ $# -ge 3 ] || usage
    shift
    fetch "$@"
    ;;
*) ensure "$@" ;;
esac
