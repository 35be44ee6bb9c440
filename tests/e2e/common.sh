# Sourced first by all scripts: a temporary folder, small corpora, and checks of the program. Every failure is
# printed and counted; a script with a failure exits with a nonzero code, regardless of its last command.
# shellcheck shell=bash
export ASAN_OPTIONS="exitcode=99:allocator_may_return_null=1:detect_leaks=${DETECT_LEAKS:-1}"
export UBSAN_OPTIONS=halt_on_error=1:exitcode=99
cases=0 failures=0
chatty='' # set: a failing command may print lines before its error message, as a run does

leave() {
    local code=$?
    set +e
    kill -9 "${process:-}" 2>/dev/null # a background process of the script
    rm -rf "$work"
    [ "$code" != 0 ] || [ "$failures" = 0 ] || code=1
    exit "$code"
}

# In memory if possible: complete files are synced, and a thousand syncs take minutes on a busy disk.
shared=/dev/shm
[ -d $shared ] && [ -w $shared ] || shared=${TMPDIR:-/tmp}
work=$(mktemp -d -p $shared) || exit 1
trap leave EXIT
cd "$work" || exit 1

fail() {
    failures=$((failures + 1))
    echo "$(basename "$0" .sh): $*" >&2
}

has() { # FILE TEXT
    cases=$((cases + 1))
    grep -qF -- "$2" "$1" || fail "'$2' is not in $1: $(head -c 1500 "$1")"
}
lacks() { # FILE TEXT
    cases=$((cases + 1))
    ! grep -qF -- "$2" "$1" || fail "'$2' is in $1: $(head -c 1500 "$1")"
}
same() { # FILE FILE; - is stdin
    local differences
    cases=$((cases + 1))
    differences=$(diff -- "$1" "$2" 2>&1) || fail "$1 and $2 differ: ${differences:0:600}"
}

# Runs the program with stdin from $input (default: empty). Sets $got to the exit code; the output is in out and err.
try() {
    got=0
    cases=$((cases + 1))
    "$NORMA" "$@" <"${input:-/dev/null}" >out 2>err || got=$?
    if grep -qE 'Sanitizer|runtime error' err; then
        fail "sanitizer: norma $*: $(grep -m 3 -E 'ERROR|runtime error|SUMMARY|#[1-4] ' err)"
    fi
}

# refuses CODE TEXT ARGUMENTS...: the program must fail with this exit code, one line with this text, and no output.
refuses() {
    local code=$1 text=$2
    shift 2
    try "$@"
    check_failure "$code" "$text" "$*"
    [ -n "$chatty" ] || [ ! -s out ] || fail "output in spite of a failure: norma $*: $(head -c 300 out)"
}

# stops LINES CODE TEXT ARGUMENTS...: the same after LINES lines of output, which are those of the input before the error.
stops() {
    local lines=$1 code=$2 text=$3
    shift 3
    try "$@"
    check_failure "$code" "$text" "$*"
    [ "$(wc -l <out)" = "$lines" ] || fail "not $lines lines before the failure: norma $*: $(head -c 300 out)"
}

# check_failure CODE TEXT COMMAND: the same checks of $got and err after another way of running the program.
check_failure() {
    local code=$1 text=$2 what=$3
    if [ "$got" != "$code" ]; then
        fail "exit code $got instead of $code: norma $what: $(head -c 600 err)"
    elif [ -z "$chatty" ] && [ "$(wc -l <err)" != 1 ]; then
        fail "not one line: norma $what: $(head -c 600 err)"
    elif [[ "$(tail -n 1 err)" != "norma: "* ]]; then
        fail "the line does not begin with 'norma: ': norma $what: $(tail -n 1 err)"
    elif ! grep -qF -- "$text" <(tail -n 1 err); then
        fail "'$text' is not in the message: norma $what: $(tail -n 1 err)"
    fi
}

# accepts TEXT ARGUMENTS...: the program must succeed and print this text.
accepts() {
    local text=$1
    shift
    try "$@"
    if [ "$got" != 0 ]; then
        fail "exit code $got instead of 0: norma $*: $(head -c 600 err)"
    elif ! grep -qF -- "$text" out err; then
        fail "'$text' was not printed: norma $*: $(head -c 600 err)"
    fi
}

# shellcheck source=tests/e2e/corpora.sh
. "${SOURCE:?}/tests/e2e/corpora.sh"

# sbatch, squeue, scontrol and scancel in PATH, from tests/slurm/fake_slurm.py, with their state in the folder slurm.
make_fake_slurm() {
    local name
    mkdir bin slurm
    for name in sbatch squeue scontrol scancel; do ln -s "$SOURCE/tests/slurm/fake_slurm.py" "bin/$name"; done
    export FAKE_SLURM=$PWD/slurm PATH=$PWD/bin:$PATH
}
