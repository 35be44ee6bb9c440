#!/bin/bash
# Processes that compute different results are found: another build at the start, other gradients of a shard (train.check_shard) and
# other parameters before a checkpoint. Skipped without MPI: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich.
set -uo pipefail
# shellcheck source=tests/e2e/ranks_helper.sh
. "${SOURCE:?}/tests/e2e/ranks_helper.sh"

if grep -q 'NORMA_SANITIZE:STRING=.' "$BUILD/CMakeCache.txt"; then
    echo "skipped: a sanitizer must be loaded before the library of wrong functions"
    exit 77
fi
"${CC:-cc}" -shared -fPIC -fno-builtin -o faulty.so "$SOURCE/tests/mpi/faulty_math.c" -lm -ldl 2>err || fail "no library: $(cat err)"
# shellcheck disable=SC2016
printf '#!/bin/bash\nexport LD_PRELOAD=%q\nexec "$@"\n' "$PWD/faulty.so" >faulty.sh
chmod +x faulty.sh
make_data
sed -i 's/^updates = .*/updates = 6\nshards = 4/; s/^save_every = .*/save_every = 3/; s/^validate_every = .*/validate_every = 6/; s/^\[device\]/[device]\nbackend = ref/; s/^max_tokens = .*/max_tokens = 48/
    s/^warmup = .*/warmup = 4\nname = inv-sqrt-decay/' recipe.ini
grep -q '^backend = ref' recipe.ini || printf '[device]\nbackend = ref\n' >>recipe.ini

faulty() { # FAULT RANK RANKS ARGUMENTS...
    local fault=$1 rank=$2 n=$3
    shift 3
    got=0 cases=$((cases + 1))
    FAULT=$fault FAULT_RANK=$rank timeout 120 "$MPIEXEC" -n "$n" ./faulty.sh "$NORMA" "$@" </dev/null >out 2>err || got=$?
}
train=(train recipe.ini --run.quiet)
"$NORMA" "${train[@]}" --run.folder one 2>err || fail "train: $(cat err)"
for n in 2 3; do
    faulty none 0 $n "${train[@]}" --run.folder "right$n" --train.check_shard
    [ "$got" = 0 ] || fail "$n ranks that compute the same: exit code $got: $(cat err)"
    equal one "right$n"
done
"$NORMA" "${train[@]}" --run.folder alone --train.check_shard 2>err || fail "a second pass: $(cat err)"
equal one alone
# One rank computes other gradients. Their sum is that of all ranks, so that all have the same wrong parameters.
for rank in 0 1; do
    faulty exp $rank 2 "${train[@]}" --run.folder "wrong$rank" --train.check_shard
    ends 5 ' has another gradient on rank '
    [ ! -e "wrong$rank/last.safetensors" ] || fail "a checkpoint was written"
done
faulty exp 1 2 "${train[@]}" --run.folder unchecked
[ "$got" = 0 ] && [ "$(weights unchecked/last.safetensors)" != "$(weights one/last.safetensors)" ] ||
    fail "the fault has no effect, or is found without the option: exit code $got: $(cat err)"
# One process: a fault that does not last. Half of the calls of the checked update are those of its second pass.
calls=0
for call in 20000 24000 28000 32000 36000 40000 44000 48000; do
    got=0
    FAULT=once FAULT_CALL=$call ./faulty.sh "$NORMA" "${train[@]}" --run.folder "once$call" --train.check_shard --train.shards 1 --train.save_every 1 \
        </dev/null >out 2>err || got=$?
    [ "$got" = 0 ] || { ends 5 'has another gradient when it is computed again'; calls=$((calls + 1)); }
done
cases=$((cases + 1))
[ $calls -ge 1 ] || fail "no fault of a single call was found"
# One rank has another learning rate, and therefore other parameters.
for rank in 0 1; do
    faulty pow $rank 2 "${train[@]}" --run.folder "other$rank"
    ends 5 'the parameters of rank 1 differ from those of rank 0'
    [ ! -e "other$rank/last.safetensors" ] || fail "a checkpoint was written"
done
# Options with which the gradient of a shard depends on others.
ranks 2 --run.folder no --train.check_shard --model.norm batch --norm.statistics update
ends 2 'train.check_shard requires norm.statistics = shard'

# Another build: one bit of the build ID.
id=$(readelf -n "$NORMA" 2>/dev/null | sed -n 's/ *Build ID: //p')
perl -0777 -e 'open my $f, "<", $ARGV[0] or die; $_ = <$f>; my $id = pack "H*", $ARGV[1];
    substr($_, index($_, $id), 1) ^= "\1"; print' "$NORMA" "$id" >norma
cp "$(dirname "$NORMA")/norma-mpi.so" .
chmod +x norma
cat >builds.sh <<END
#!/bin/bash
[ "\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" = 0 ] || exec ./norma "\$@"
exec "$NORMA" "\$@"
END
chmod +x builds.sh
got=0 cases=$((cases + 1))
timeout 120 "$MPIEXEC" -n 2 ./builds.sh "${train[@]}" --run.folder builds </dev/null >out 2>err || got=$?
ends 5 'rank 1 runs another build of Norma ('

# norma verify: any number of processes; with the results of another machine it fails.
for n in 1 2 3; do
    timeout 120 "$MPIEXEC" -n $n "$NORMA" verify one --start --work "$PWD" </dev/null >out 2>err || fail "verify, $n ranks: $(cat err)"
    has out 'updates 1 to 3 from the seed: equal'
    has out 'updates 4 to 6: equal'
done
faulty exp 1 2 verify one --work "$PWD"
ends 5 'is not what the updates after checkpoint 3 give'
[ -z "$(find . -maxdepth 1 -name 'norma-verify-*')" ] || fail "temporary folders remain"

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "processes that compute different results are found ($cases cases)"
