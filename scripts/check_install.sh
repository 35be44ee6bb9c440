#!/usr/bin/env bash
# Installs a build into an empty folder, builds the examples against it through pkg-config and CMake, with the shared
# and the static library, and runs them.
#     scripts/check_install.sh BUILD
# Ends with a line "N passed, N failed". Exit code: 0 all passed, 1 some failed.
set -uo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
compiler=${CC:-cc}
touch "$work/passed"
started=0

run_check() { # name, command ...
    local name=$1 log
    log=$(mktemp "$work/log.XXXXXX") || exit 1
    shift
    if "$@" >"$log" 2>&1; then
        echo "passed: $name" | tee -a "$work/passed"
    else
        cat "$log" >&2
        echo "FAILED: $name"
    fi
}

check() { # name, command ...
    started=$((started + 1))
    run_check "$@"
}

# The same in the background, as many at a time as there are cores: checks that are independent of each other.
check_beside() { # name, command ...
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    started=$((started + 1))
    run_check "$@" &
}

# Small trained models for the examples that need one, in $work.
make_models() (
    export NORMA=$work/moved/bin/norma
    # shellcheck source=tests/e2e/corpora.sh
    . "$source/tests/e2e/corpora.sh"
    # shellcheck source=tests/e2e/library_models.sh
    . "$source/tests/e2e/library_models.sh"
    cd "$work" && make_library_runs
)

run_example() { # program, its source
    local name model text out
    name=$(basename "${2%.cpp}" .c)
    case $name in
        translate) model=run-translate text=train.de ;;
        language_model) model=run-lm text=lm.txt ;;
        tag) model=run-tag text=names.txt ;;
        classify) model=run-classify text=reviews.txt ;;
        train)
            (cd "$work" && "$1" classify.ini "$(mktemp -d)/run" train.updates 2)
            return ;;
        compare)
            (cd "$work" && NORMA=$work/moved/bin/norma "$1" classify.ini norms layer,power data.test reviews.tsv \
                tid_batches 1 train.updates 2 folder "$(mktemp -d)/compared")
            return ;;
        prepare)
            (cd "$work" && "$1" train train source_lang de target_lang en output "$(mktemp -d)/data")
            return ;;
        score)
            (cd "$work" && "$1" chrf train.de train.en)
            return ;;
        *)
            (cd "$work" && "$1")
            return ;;
    esac
    out=$(mktemp "$work/out.XXXXXX") || return 1
    "$1" "$work/$model" <"$work/$text" >"$out" && grep -q . "$out"
}

with_pkg_config() { # example, "shared" or "static", program to write
    local flags
    if [ "$2" = shared ]; then
        flags=$(pkg-config --cflags --libs norma) || return 1
    else
        flags=$(pkg-config --static --cflags --libs norma) || return 1
        flags=${flags/-lnorma/-l:libnorma.a}
    fi
    # shellcheck disable=SC2086 # flags are words
    "$compiler" -std=gnu17 -Wall "$1" -o "$3" $flags -Wl,-rpath,"$libdir" -lm && run_example "$3" "$1"
}

with_cmake() { # example, target of the package [, language of the project]
    local folder example=$1 language=${3:-C}
    folder=$(mktemp -d "$work/cmake.XXXXXX") || return 1
    cat >"$folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(example LANGUAGES $language)
find_package(Norma ${version%.*} REQUIRED)
add_executable(example "$example")
target_link_libraries(example PRIVATE $2 m)
END
    cmake -S "$folder" -B "$folder/build" -DCMAKE_C_COMPILER="$compiler" \
        -DCMAKE_PREFIX_PATH="$work/moved" && cmake --build "$folder/build" && run_example "$folder/build/example" "$1"
}

# A project in C++ only.
with_cxx() { # target of the package
    local folder
    folder=$(mktemp -d "$work/cxx.XXXXXX") || return 1
    cat >"$folder/translate.cpp" <<END
#include <cstdio>
#include <norma/norm.h>
#include <norma/translator.h>
int main(int argc, char **argv)
{
    nm_translator *translator = nullptr;
    nm_error err{};
    nm_status status = nm_translator_open(&translator, argv[argc - 1], nullptr, &err);
    std::printf("%s %d\n", nm_version(), (int)nm_translator_max_tokens(translator));
    nm_translator_close(translator);
    return status;
}
END
    with_cmake "$folder/translate.cpp" "$1" CXX
}

# Programs with the shared library need no other package for their build.
without_packages() {
    PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH=/nowhere with_cmake "$source/examples/norm_layer.c" Norma::shared
}

keeps_to_itself() { # no installed file refers to libraries in the build folder
    ! readelf -d "$work"/moved/lib*/*.so "$work"/moved/lib*/*/*.so "$work"/moved/bin/* 2>/dev/null |
        grep -E 'R(UN)?PATH' | grep -F "$build"
}

check "install" env DESTDIR="$work/stage" cmake --install "$build" --prefix /usr/local
# An installed tree may be moved.
mv "$work/stage/usr/local" "$work/moved"
pc=$(find "$work/moved" -name norma.pc | head -n 1)
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir norma)
version=$(pkg-config --modversion norma)
check "norma.pc" test -n "$version"
check "no path of the build folder" keeps_to_itself
if [ -x "$work/moved/bin/norma" ]; then
    check "the program runs" "$work/moved/bin/norma" --version
    if [ -x "$work/moved/bin/norma-bench" ]; then
        check "the benchmark runs" "$work/moved/bin/norma" bench --quick --parts norms --match scale
    fi
    # shellcheck disable=SC2016 # $1 is the inner shell's
    check "an installed recipe by name" bash -c 'cd / && grep -q "^${1%/bin/norma}/share/norma/recipes/" <("$1" recipes --paths) &&
        grep -q "data/multi30k-de-en" <("$1" train multi30k-de-en --run.folder "$2" 2>&1)' bash "$work/moved/bin/norma" "$work/run"
    # shellcheck disable=SC2016
    check "shell completion" bash -c '. "$1" && test -s "$2"' bash \
        "$work/moved/share/bash-completion/completions/norma" "$work/moved/share/zsh/site-functions/_norma"
    check "manual pages" test -s "$work/moved/share/man/man1/norma.1"
fi
check "models for the examples" make_models
if [ -e "$build/norma-mpi.so" ]; then
    check "the module for MPI" bash -c 'cd "$1" && moved/bin/norma train classify.ini --comm.backend mpi --train.updates 1 \
        --run.folder mpi-run' bash "$work"
fi
for example in "$source"/examples/*.c; do
    [ -e "$example" ] || continue
    name=$(basename "$example" .c)
    check_beside "$name, pkg-config, shared" with_pkg_config "$example" shared "$work/$name-shared"
    check_beside "$name, pkg-config, static" with_pkg_config "$example" static "$work/$name-static"
    check_beside "$name, CMake, shared" with_cmake "$example" Norma::shared
    check_beside "$name, CMake, static" with_cmake "$example" Norma::norma
done
check_beside "C++, CMake, shared" with_cxx Norma::shared
check_beside "C++, CMake, static" with_cxx Norma::norma
check_beside "CMake, shared, without the packages of the static library" without_packages
wait
passed=$(wc -l <"$work/passed")
failed=$((started - passed)) # also a check that did not end
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
