#!/bin/bash
# comm.shard_optimizer: bitwise the model and the log of one process, with Adam and SGD, clipping, weight decay of matrices, fixed
# parameters, balanced shards and instruments; checkpoints contain the whole state, so that every number of ranks continues them, with or without sharding.
# Skipped without MPI: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich.
set -uo pipefail
# shellcheck source=tests/e2e/ranks_helper.sh
. "${SOURCE:?}/tests/e2e/ranks_helper.sh"

make_data
sed -i 's/^norm = .*/norm = power\ndropout = 0.2/; s/^updates = .*/updates = 9\nshards = 4\nlog_every = 3/; s/^max_tokens = .*/max_tokens = 48/; s/^validate_every = .*/validate_every = 3/
    s/^save_every = .*/save_every = 3/' recipe.ini

state() { # FOLDER: checksum of the optimizer state of the newest checkpoint
    perl -e '
        local $/; open(my $in, "<:raw", $ARGV[0]) or die "$ARGV[0]: $!"; my $all = <$in>;
        my $length = unpack("Q<", $all); my $header = substr($all, 8, $length);
        for my $name ("optimizer.m", "optimizer.v") {
            my ($first, $end) = $header =~ /"\Q$name\E":\{[^}]*"data_offsets":\[(\d+), ?(\d+)\]/ or die "no $name";
            print substr($all, 8 + $length + $first, $end - $first);
        }' "$1/checkpoints/00000009.state.safetensors" | cksum
}
as_one() { # NAME OPTIONS...: 2 and 3 ranks with sharding equal one process
    local name=$1 n
    shift
    "$NORMA" train recipe.ini "$@" --run.quiet --run.folder "$name" 2>err || fail "$name: $(cat err)"
    for n in 2 3; do
        ranks $n "$@" --comm.shard_optimizer --run.folder "$name-$n"
        [ "$got" = 0 ] || fail "$name, $n ranks: exit code $got: $(cat err)"
        equal "$name" "$name-$n"
        [ "$(state "$name")" = "$(state "$name-$n")" ] || fail "$name: the optimizer state of $n ranks differs"
        [ "$(plain "$name")" = "$(plain "$name-$n")" ] || fail "$name, $n ranks: the log differs: $(diff <(plain "$name") <(plain "$name-$n") | head -n 4)"
    done
}
adam=(--train.max_grad_norm 0.05 --probe.every 2 --optim.weight_decay 0.1 --optim.decayed_parameters matrices --model.freeze 'enc.*' --train.balance_shards)
as_one adam "${adam[@]}"
grep -q '"type":"probe"' adam/log.jsonl || fail "no instruments: $(head -c 2000 adam/log.jsonl)"
"$NORMA" train recipe.ini "${adam[@]}" --optim.decayed_parameters all --run.quiet --run.folder decayed 2>err || fail "decayed: $(cat err)"
[ "$(weights adam/last.safetensors)" != "$(weights decayed/last.safetensors)" ] || fail "the weight decay of vectors changes nothing"
as_one sgd --optim.name sgd --device.backend ref --norm.statistics update

# Stopped with 3 ranks, continued by 2 ranks without sharding, by one process, and by 4 ranks with sharding.
ranks 3 "${adam[@]}" --train.updates 2 --comm.shard_optimizer --run.folder stopped
ranks 2 --train.updates 4 --run.folder stopped --resume
has err 'resumed at update 2'
"$NORMA" train recipe.ini --train.updates 6 --run.quiet --run.folder stopped --resume 2>err || fail "resume: $(cat err)"
has err 'resumed at update 4'
ranks 4 --train.updates 9 --comm.shard_optimizer --run.folder stopped --resume
has err 'resumed at update 6'
[ "$(weights adam/last.safetensors)" = "$(weights stopped/last.safetensors)" ] || fail "after resumes with and without sharding the weights differ"
[ "$(state adam)" = "$(state stopped)" ] || fail "after resumes with and without sharding the optimizer state differs"
# Another optimizer: the state starts from zero on every rank.
for n in 1 3; do
    cp -r stopped "changed$n"
done
"$NORMA" train recipe.ini --optim.name sgd --optim.weight_decay 0 --optim.decayed_parameters all --train.updates 11 --run.quiet --run.folder changed1 --resume=override 2>err || fail "changed: $(cat err)"
ranks 3 --optim.name sgd --optim.weight_decay 0 --optim.decayed_parameters all --train.updates 11 --comm.shard_optimizer --run.folder changed3 --resume=override
has err 'the optimizer state starts from zero'
[ "$(weights changed1/last.safetensors)" = "$(weights changed3/last.safetensors)" ] || fail "another optimizer: the weights differ"

# A divergence has the same message.
"$NORMA" train recipe.ini --schedule.lr 100 --schedule.warmup 0 --run.quiet --run.folder diverged1 2>one && fail "lr 100 did not diverge"
ranks 2 --schedule.lr 100 --schedule.warmup 0 --comm.shard_optimizer --run.folder diverged2
ends 8 "$(grep -o 'update [0-9]*: .*' one)"

# Balanced shards are other shards. Those of language models are equal.
"$NORMA" train recipe.ini --train.max_grad_norm 0.05 --optim.weight_decay 0.1 --optim.decayed_parameters matrices --model.freeze 'enc.*' \
    --run.quiet --run.folder unbalanced 2>err || fail "unbalanced: $(cat err)"
[ "$(weights adam/last.safetensors)" != "$(weights unbalanced/last.safetensors)" ] || fail "train.balance_shards did not change the shards"
# Without effect.
"$NORMA" train recipe.ini --train.balance_shards --train.shards 1 --run.folder alone 2>err && fail "one shard was balanced"
has err 'train.balance_shards = true has no effect'
"$NORMA" train recipe.ini --comm.shard_optimizer --run.folder alone 2>err && fail "one process divided its optimizer state"
has err 'comm.shard_optimizer: it requires several processes'

# Muon updates whole matrices: without sharding, as one process.
muon=(--optim.name muon --optim.weight_decay 0.1 --optim.decayed_parameters matrices)
"$NORMA" train recipe.ini "${muon[@]}" --run.quiet --run.folder muon 2>err || fail "muon: $(cat err)"
has err 'muon updates '
ranks 3 "${muon[@]}" --train.updates 5 --run.folder muon-3
ranks 2 --train.updates 9 --run.folder muon-3 --resume
has err 'resumed at update 5'
[ "$(weights muon/last.safetensors)" = "$(weights muon-3/last.safetensors)" ] || fail "Muon: the weights of 3 and 2 ranks differ"
[ "$(state muon)" = "$(state muon-3)" ] || fail "Muon: the optimizer state of 3 and 2 ranks differs"
ranks 2 --optim.name muon --comm.shard_optimizer --run.folder muon-sharded
ends 2 'optim.name = muon: it updates whole matrices, which comm.shard_optimizer divides'

# Memory: 3 ranks have a third of two copies of the parameters each.
memory() { sed -nE 's/.* ([0-9.]+) M parameters, at most ([0-9]+) MiB for a step/\1 \2/p' err; }
wide=(--model.width 384 --model.ff 1536 --train.updates 1 --train.validate_every 0)
ranks 3 "${wide[@]}" --run.folder wide
read -r millions whole < <(memory)
ranks 3 "${wide[@]}" --comm.shard_optimizer --run.folder wide-sharded
read -r _ divided < <(memory)
cases=$((cases + 1))
perl -e '($millions, $whole, $divided) = @ARGV; $saved = 2 / 3 * 2 * 4 * $millions * 1e6 / 2**20; exit !(abs($whole - $divided - $saved) < 2)' \
    "$millions" "$whole" "$divided" || fail "memory: $millions million parameters, $whole MiB, with sharding $divided MiB"

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "the optimizer state divided over 2, 3 and 4 ranks: the weights, states and logs of one process ($cases cases)"
