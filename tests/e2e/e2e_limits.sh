#!/bin/bash
# Limits of the system: address space (ulimit -v) and threads that cannot be started. Training needs the address space that
# the dry run measures; fewer threads than requested change no result.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_data
"$NORMA" train recipe.ini --run.folder base >out 2>err || { cat err >&2; exit 1; }
base=$(weights base/last.safetensors)
"$NORMA" translate base test.xx --threads 1 >expected 2>err || { cat err >&2; exit 1; }

limited() { # KIB COMMAND...: like try, with limited address space
    local limit=$1
    shift
    got=0
    cases=$((cases + 1))
    (ulimit -v "$limit"; exec "$NORMA" "$@") </dev/null >out 2>err || got=$?
}

# A shared library that limits the number of simultaneous threads to $THREADS, and the number of started threads to
# $STARTS (0: no limit).
cat >shim.c <<'X2'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_int running, started;
typedef struct { void *(*run)(void *); void *argument; } job;

static void *run(void *argument)
{
    job work = *(job *)argument;
    free(argument);
    void *result = work.run(work.argument);
    running--;
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    int starts = atoi(getenv("STARTS"));
    if (++running > atoi(getenv("THREADS")) || (starts && ++started > starts)) {
        running--;
        return EAGAIN;
    }
    job *work = malloc(sizeof *work);
    *work = (job){start, argument};
    return create(thread, attributes, run, work);
}
X2
sanitized=0
grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt" && sanitized=1
# Sanitizers reserve terabytes of address space, and replace pthread_create themselves.
if [ "$sanitized" = 0 ]; then
    limited 300000 train recipe.ini --run.folder small
    [ "$got" = 0 ] || fail "train in 300 MB of address space: exit code $got: $(tail -n 1 err)"
    [ "$(weights small/last.safetensors)" = "$base" ] || fail "another model with limited address space"
    limited 300000 translate base test.xx --threads 1
    [ "$got" = 0 ] || fail "translate in 300 MB of address space: exit code $got: $(tail -n 1 err)"
    same out expected
    # The smallest address space, in steps of 10,000 KiB, in which the system can load the program; MPI's libraries are large.
    smallest=10000
    until (ulimit -v $smallest; exec "$NORMA" --version) >/dev/null 2>&1; do
        smallest=$((smallest + 10000))
    done
    for limit in $((smallest + 10000)) $((smallest + 30000)) $((smallest + 50000)); do
        rm -rf tight
        limited $limit train recipe.ini --run.folder tight
        [ "$got" = 0 ] || [ "$got" = 6 ] || fail "train in $limit KiB: exit code $got: $(tail -n 1 err)"
        limited $limit translate base test.xx --threads 1
        [ "$got" = 0 ] || [ "$got" = 6 ] || fail "translate in $limit KiB: exit code $got: $(tail -n 1 err)"
    done
    limited 300000 train recipe.ini --run.folder large --model.width 2048 --model.heads 2 --model.ff 8192
    check_failure 6 'out of memory' 'a model larger than the address space'

    "${CC:-cc}" -shared -fPIC -o shim.so shim.c -ldl || fail "the shim does not compile"
    export STARTS=0
    for threads in 0 1 2 5; do
        rm -rf few
        THREADS=$threads LD_PRELOAD=$work/shim.so try train recipe.ini --run.folder few --device.threads 8
        [ "$got" = 0 ] || fail "train with $threads threads to start: exit code $got: $(tail -n 1 err)"
        has err 'warning: the system cannot start as many threads as requested'
        has err ", $((threads / 2 + 1)) thread"
        [ "$(weights few/last.safetensors)" = "$base" ] || fail "another model with $threads threads to start"
        THREADS=$threads LD_PRELOAD=$work/shim.so try translate base test.xx --threads 8
        [ "$got" = 0 ] || fail "translate with $threads threads to start: exit code $got: $(tail -n 1 err)"
        same out expected
        THREADS=$threads LD_PRELOAD=$work/shim.so try rescore base test.xx test.yy --threads 8
        [ "$got" = 0 ] || fail "rescore with $threads threads to start: exit code $got: $(tail -n 1 err)"
        has err 'warning: the system cannot start as many threads as requested'
        for command in "perplexity base --split test" "inspect base --measure condition --batches 1"; do
            # shellcheck disable=SC2086
            THREADS=$threads LD_PRELOAD=$work/shim.so try $command --threads 8
            [ "$got" = 0 ] || fail "$command with $threads threads to start: exit code $got: $(tail -n 1 err)"
            has err 'warning: the system cannot start as many threads as requested'
            "$NORMA" $command --threads 1 >one 2>err || fail "$command: $(cat err)"
            same out one
        done
        THREADS=$threads LD_PRELOAD=$work/shim.so try prepare "${prepare_arguments[@]}" --threads 8 --output few/data
        [ "$got" = 0 ] || fail "prepare with $threads threads to start: exit code $got: $(tail -n 1 err)"
        same few/data/dict.source.txt data/dict.source.txt
        THREADS=$threads LD_PRELOAD=$work/shim.so OMP_NUM_THREADS=8 try score bleu expected --reference test.yy
        [ "$got" = 0 ] || fail "score with $threads threads to start: exit code $got: $(tail -n 1 err)"
    done
    # 7 threads start and end when the number of threads is determined; after that, the limit is reached.
    rm -rf few
    STARTS=7 THREADS=8 LD_PRELOAD=$work/shim.so try train recipe.ini --run.folder few --device.threads 8 --run.quiet
    [ "$got" = 6 ] || fail "train whose threads cannot be started any more: exit code $got"
    has err 'norma: the system cannot start a thread that it could start earlier'
fi

# The system's clock is set back by an hour at each reading: durations do not depend on it. A sanitizer is to be loaded first.
if [ "$sanitized" = 0 ]; then
    cat >clock.c <<'X2'
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long back;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec -= 3600 * (++back + atol(getenv("HOURS")));
    return code;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    (void)zone;
    out->tv_sec = time(NULL);
    out->tv_usec = 0;
    return 0;
}
X2
    "${CC:-cc}" -shared -fPIC -o clock.so clock.c || fail "the clock does not compile"
    rm -rf back
    export HOURS=0
    LD_PRELOAD=$work/clock.so try train recipe.ini --run.folder back --train.updates 2
    [ "$got" = 0 ] || fail "train with a clock that goes backwards: exit code $got: $(tail -n 1 err)"
    # the second session is before the first one
    HOURS=100 LD_PRELOAD=$work/clock.so try train --run.folder back --resume=override --train.updates 4 --train.seconds 500
    [ "$got" = 0 ] || fail "resume with a clock that goes backwards: exit code $got: $(tail -n 1 err)"
    [ "$(weights back/last.safetensors)" = "$base" ] || fail "another model with a clock that goes backwards"
    grep -o '"seconds":[^,}]*' back/log.jsonl | sed 's/.*://' | sort -gc || fail "seconds: $(grep -o '"seconds":[^,}]*' back/log.jsonl)"
    grep -q '"seconds":-' back/log.jsonl && fail "negative seconds"
    grep -o '"started":"[^"]*' back/log.jsonl | sort -c 2>/dev/null && fail "the clock did not go backwards"
    touch -d '2100-01-01' back/log.jsonl
    LD_PRELOAD=$work/clock.so try report back -o back.html --no-samples --tensorboard events
    [ "$got" = 0 ] || fail "report with a clock that goes backwards: exit code $got: $(tail -n 1 err)"
    LD_PRELOAD=$work/clock.so try compare recipe.ini --norms layer --folder compared --samples false
    [ "$got" = 0 ] || fail "compare with a clock that goes backwards: exit code $got: $(tail -n 1 err)"
fi
hostile_end
