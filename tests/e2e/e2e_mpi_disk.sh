#!/bin/bash
# A full disk while several processes train: rank 0, which writes log and checkpoints, ends all processes with one
# message and exit code 3, the last checkpoint stays complete, and the run continues from it with another number of
# ranks, bitwise identically.
# The disk is a small tmpfs in a mount namespace of this script. Skipped without MPI, or where nothing can be mounted.
set -uo pipefail
if [ -z "${NAMESPACE:-}" ]; then
    for user in '' --map-root-user; do
        # shellcheck disable=SC2086
        unshare --mount $user mount -t tmpfs tmpfs /mnt 2>/dev/null && NAMESPACE=own exec unshare --mount $user bash "$0"
    done
    echo "skipped: no tmpfs can be mounted in a mount namespace (unshare --mount)"
    exit 77
fi
# shellcheck source=tests/e2e/ranks_helper.sh
. "${SOURCE:?}/tests/e2e/ranks_helper.sh"

make_data
DISK=$PWD/disk
sed -i 's/^updates = .*/updates = 12\nshards = 4/; s/^max_tokens = .*/max_tokens = 48/; s/^validate_every = .*/validate_every = 4/' recipe.ini
mkdir "$DISK"
mount -t tmpfs -o size=4m tmpfs "$DISK" || exit 1
trap 'code=$?; umount "$DISK"; (exit "$code"); leave' EXIT

# fills BYTES FILE RANKS OPTIONS...: 4 updates, then a run to update 12 with BYTES of free space, which writing FILE exceeds;
# continued by other ranks.
fills() {
    local free=$1 file=$2 n=$3 before available files
    shift 3
    "$NORMA" train recipe.ini --run.quiet --run.folder whole "$@" 2>err || fail "one process: $(cat err)"
    ranks "$n" --run.folder "$DISK/run" --train.updates 4 "$@"
    [ "$got" = 0 ] || fail "$n ranks: exit code $got: $(cat err)"
    files=("$DISK"/run/*.safetensors "$DISK"/run/checkpoints/*)
    before=$(cksum "${files[@]}")
    available=$(df --block-size=1 --output=avail "$DISK" | tail -n 1)
    head -c "$((available - free))" /dev/zero >"$DISK/fill"
    ranks "$n" --run.folder "$DISK/run" --train.updates 12 --resume "$@"
    ends 3 "$file: writing failed: No space left on device"
    [ "$before" = "$(cksum "${files[@]}")" ] || fail "a checkpoint that could not be written changed another: $(ls -l "$DISK/run/checkpoints")"
    ls "$DISK"/run/*.new "$DISK"/run/checkpoints/*.new >/dev/null 2>&1 && fail "half files stay: $(ls "$DISK"/run "$DISK"/run/checkpoints)"
    pgrep -f -- "--run.folder $DISK/run" >pids && fail "processes have not ended: $(cat pids)"
    rm "$DISK/fill"
    ranks 2 --run.folder "$DISK/run" --train.updates 12 --resume "$@"
    [ "$got" = 0 ] || fail "no resume after a full disk: $(cat err)"
    equal whole "$DISK/run"
    rm -r whole "$DISK/run"
}
fills 0 run/.lock 3
fills 12288 checkpoints/00000005.state.safetensors 3 --model.norm rbn
fills 65536 checkpoints/00000005.state.safetensors 2 --norm.statistics update

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "a full disk ends all ranks, and the last checkpoint continues ($cases cases)"
