#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that a make target needs, if they are missing.
#
#     scripts/packages.sh GROUP...                  groups: build test page python docs bench demo lint sanitize
#     scripts/packages.sh --list GROUP...           only prints the names
#     scripts/packages.sh --fetch FOLDER PACKAGE... downloads the package files without installing them
#
# Missing packages are named, then installed through apt. Without root rights the script prints the sudo command and
# asks before it runs it; with YES=1 or CI set it does not ask. Without a terminal it only prints the command. Without
# apt, it checks for the programs and libraries, and names the Debian packages of those that are missing.
# Exit codes: 0 all present, 2 wrong use, or something is missing and not installed.
set -uo pipefail

# group, packages (one is enough, the first is installed), how to detect it without dpkg: command: a program, module: a
# pkg-config module, header: a file in /usr/include or /usr/local/include, always: detected by dpkg only.
table='
build     gcc|clang                                   command:cc
build     libc6-dev|libc-dev|musl-dev                 header:stdio.h
build     cmake                                       command:cmake
build     ninja-build                                 command:ninja
build     pkg-config|pkgconf                          command:pkg-config
build     libutf8proc-dev                             module:libutf8proc
build     libjansson-dev                              module:jansson
build     libxxhash-dev                               module:libxxhash
build     nettle-dev                                  module:nettle
build     libprotobuf-c-dev                           module:libprotobuf-c
build     protobuf-c-compiler                         command:protoc-c
build     zlib1g-dev                                  module:zlib
build     liblzma-dev                                 module:liblzma
build     libzstd-dev                                 module:libzstd
build     libyaml-dev                                 module:yaml-0.1
build     libjpeg-dev|libjpeg62-turbo-dev|libjpeg-turbo8-dev module:libjpeg
build     libpng-dev                                  module:libpng
build     libmicrohttpd-dev                           module:libmicrohttpd
test      libcmocka-dev                               module:cmocka
test      libarchive13|libarchive13t64                always
test      xz-utils                                    command:xz
test      sentencepiece                               command:spm_train
test      libopenmpi-dev|libmpich-dev                 command:mpicc
test      openmpi-bin|mpich                           command:mpiexec
test      gnuplot-nox|gnuplot-qt|gnuplot-x11          command:gnuplot
test      python3                                     command:python3
test      zsh                                         command:zsh
page      chromium                                    command:chromium
python    python3-pytest                              always
python    python3-numpy                               always
python    python3-torch                               always
python    libpython3-dev                              always
docs      python3-sphinx                              command:sphinx-build
docs      python3-myst-parser                         always
bench     libopenblas-openmp-dev|libopenblas-serial-dev|libblis-openmp-dev  header:cblas.h,openblas/cblas.h,blis/cblas.h
demo      python3                                     command:python3
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
    echo "usage: scripts/packages.sh [--list] GROUP... (build test page python docs bench demo lint sanitize), or --fetch FOLDER PACKAGE..." >&2
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

found() { # the program, module or header exists
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
    elif ! command -v sudo >/dev/null; then
        say "not root and no sudo; run as root: $*"
        return 1
    elif allowed; then
        sudo "$@"
    else
        return 1
    fi
}

# Whether sudo may be used: asked once.
answer=
allowed() {
    [ -n "${YES:-}${CI:-}" ] && return 0
    if [ -z "$answer" ] && [ -t 0 ] && [ -t 2 ]; then
        read -r -p "packages: run the command above? [y/N] " answer
    fi
    case $answer in [yY]*) return 0 ;; *) return 1 ;; esac
}

# apt's lists are updated only if they lack a package or name a file that no longer exists.
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

# The first alternative of a row that this release provides, otherwise the first.
name_known() {
    local row names name
    row=$(awk -v first="$1" '{ split($2, a, "|") } a[1] == first { print $2; exit }' <<<"$table")
    names=${row//|/ }
    for name in $names; do
        apt-cache show "$name" >/dev/null 2>&1 && echo "$name" && return
    done
    echo "$1"
}

# Output is shown only on failure.
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
        say "missing (names of the Debian packages): ${missing[*]}"
        say "there is no apt on this system; install the corresponding packages and run the command again"
        return 2
    fi
    for name in "${missing[@]}"; do names+=("$(name_known "$name")"); done
    say "missing: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        say "to install: sudo apt-get update && sudo apt-get install --no-install-recommends ${names[*]}"
        allowed || return 2
    fi
    known "${missing[@]}" || update || return 2
    names=()
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
        say "there is no apt on this system to download $*"
        return 2
    fi
    say "downloading without installing: $*"
    # As root, apt would download as a user without write access to the folder.
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
