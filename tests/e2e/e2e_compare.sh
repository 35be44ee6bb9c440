#!/usr/bin/env bash
# norma compare: seeds and variants are a queue whose state is in the run folders. After kills at random times the
# table is that of an uninterrupted comparison; runs are scored again only if their model, settings or data changed;
# the numbers are those of the runs; the best grid point is selected by validation loss; errors in options are
# reported before training.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_sentence_splits
prepare_sentences data
write_recipe recipe.ini run.task=lm data.folder=data model.preset=tiny model.width=16 model.ff=32 \
    model.heads=2 model.layers=1 model.context=32 train.updates=12 train.log_every=3 train.validate_every=4 \
    train.save_every=2 train.max_tokens=128 schedule.name=constant schedule.lr=0.01 device.threads=1
compare() { # OPTIONS...
    "$NORMA" compare recipe.ini --tid-batches 2 "$@"
}
# The numbers of variants and runs in the JSON agree, and the selected grid point is the best one.
check_json() {
    perl -MJSON::PP -e '
        local $/; open(my $in, "<", $ARGV[0]) or die; my $o = decode_json(<$in>);
        my $bad = 0;
        my $near = sub { my ($got, $want, $what) = @_;
            unless (abs($got - $want) <= 1e-6 * (1 + abs($want))) { print "$what: $got, wanted $want\n"; $bad = 1 } };
        for my $v (@{$o->{variants}}) {
            my @runs = grep { $_->{norm} eq $v->{norm} && defined $_->{$o->{score}} } @{$o->{runs}};
            for (["score", $o->{score}], ["valid_loss", "valid_loss"]) {
                my ($name, $key) = @$_;
                my ($sum, $squares) = (0, 0);
                $sum += $_->{$key} for @runs;
                $near->($v->{"${name}_mean"}, $sum / @runs, "$v->{norm} mean $name");
                $squares += ($_->{$key} - $sum / @runs) ** 2 for @runs;
                $near->($v->{"${name}_deviation"}, sqrt($squares / (@runs - 1)), "$v->{norm} $name") if @runs > 1;
            }
            $near->($v->{n}, scalar @runs, "$v->{norm} n");
        }
        my @p = sort { $a->{p} <=> $b->{p} } grep { defined $_->{p} } @{$o->{variants}};
        my $least = 0;
        for my $k (0 .. $#p) {
            my $holm = (@p - $k) * $p[$k]{p};
            $holm = 1 if $holm > 1;
            $least = $holm if $holm > $least;
            $near->($p[$k]{p_holm}, $least, "$p[$k]{norm} p_holm");
        }
        if (my @points = @{$o->{grid} || []}) {
            my ($best) = sort { $a->{valid_loss_mean} <=> $b->{valid_loss_mean} } @points;
            my @picked = grep { $_->{selected} } @points;
            if (@picked != 1 || $picked[0] != $best) { print "picked $picked[0]{norm}, the best is $best->{norm}\n"; $bad = 1 }
        }
        exit $bad' "$1" >trouble || fail "$1: $(cat trouble)"
    cases=$((cases + 1))
}

# ---- settings of one norm for all variants ----

# Only the variants with this norm get them. model.init = rbn is not a norm.
compare --norms layer,rbn --norm.rbn.lambda 3 --norm.state worker --model.init rbn --grid norm.rbn.nu=0,1 --score-grid --folder common \
    >out 2>err || fail "a setting of one norm: $(cat err)"
[ "$(ls -d common/*-1 | wc -l)" = 3 ] || fail "not the runs of three points: $(ls common)"
grep -q '^lambda = 3 ; command line' 'common/rbn:norm.rbn.nu=1-1/config.ini' || fail 'a run of rbn without its setting'
! grep -q 'lambda = 3' common/layer-1/config.ini || fail 'the run of LayerNorm has a setting of another norm'
grep -q '^state = worker ; command line' 'common/rbn:norm.rbn.nu=1-1/config.ini' || fail 'a run of rbn without norm.state'
has common/layer-1/config.ini 'state = update ; default'

# ---- errors before training ----

mkdir aside && mv data/test.* data/checksums.xxh128 aside
refuses 2 'a comparison needs a test set' compare recipe.ini --norms layer --folder early
mv aside/* data
refuses 2 'unknown option norm.layer.widht' compare recipe.ini --norms batch,layer:norm.layer.widht=3 --folder early
refuses 2 'norm.rbn.lambda = 3 has no effect: no variant has this norm' \
    compare recipe.ini --norms layer,batch --norm.rbn.lambda 3 --folder early
refuses 2 'norm.state = worker has no effect: no variant has a norm that uses it' \
    compare recipe.ini --norms layer,rms --norm.state worker --folder early
refuses 2 'l: norm.groups has no effect: no norm of the model uses it' \
    compare recipe.ini --norms batch,l=layer:norm.groups=2 --folder early
refuses 2 'probe.instruments = gain has no effect' compare recipe.ini --norms layer --probe.instruments gain --folder early
refuses 2 'no variant has the norm of norm.rbn.lambda' compare recipe.ini --norms layer --grid norm.rbn.lambda=0,1 --folder early
refuses 2 'expected KEY=VALUE' compare recipe.ini --norms layer --grid norm.rbn.lambda --folder early
refuses 2 'norm.rbn.lambda = x: expected a number' compare recipe.ini --norms rbn --grid norm.rbn.lambda=0,x --folder early
refuses 2 'are more than 10000 runs' compare recipe.ini --norms rbn --grid norm.rbn.lambda="$(seq -s , 0 99)" --seeds 101 --folder early
refuses 2 'train.seed has no effect: the runs of a variant have the seeds 1, 2, ..., N of --seeds N' \
    compare recipe.ini --norms layer,layer:train.seed=9 --folder early
refuses 2 'train.seed has no effect' compare recipe.ini --norms layer --train.seed 9 --folder early
refuses 2 'train.seed has no effect' compare recipe.ini --norms layer --grid train.seed=8,9 --folder early
refuses 2 'batch and layer:model.norm=batch have the same configuration' compare recipe.ini --norms batch,layer:model.norm=batch --folder early
refuses 2 'layer and final have the same configuration' compare recipe.ini --norms layer,final=layer:model.final_norm=layer --folder early
refuses 2 'layer is listed twice' compare recipe.ini --norms layer,layer --folder early
refuses 2 'enc.1 is not the name of a variant; a value that contains commas is written in braces' \
    compare recipe.ini --norms base=layer,mixed=layer:norm.at=enc.0=batch,enc.1=rms --folder early
refuses 2 'a/b and a_b have the same run folder' compare recipe.ini --norms a/b=layer,a_b=rms --folder early
# Errors in the options of one run are found before the others are trained.
refuses 2 'b: norm.rbn.lambda has no effect: no norm of the model is of the type rbn' \
    compare recipe.ini --norms layer,b=batch:norm.rbn.lambda=3 --folder early
refuses 2 'optim.momentum = 0.5 has no effect' compare recipe.ini --norms layer,m=layer:optim.momentum=0.5 --folder early
refuses 2 'layer:model.heads=3: model.width = 16 is not a multiple of model.heads = 3' \
    compare recipe.ini --norms layer --grid model.heads=2,3 --folder early
refuses 2 "at: norm.at: the model has no site 'enc.0'" compare recipe.ini --norms layer,at=layer:norm.at=enc.0=batch --folder early
refuses 2 'freeze: model.freeze: no parameter matches' compare recipe.ini --norms layer,freeze=layer:model.freeze=x --folder early
refuses 2 'int8: device.precision = int8' compare recipe.ini --norms layer,int8=layer:device.precision=int8 --folder early
refuses 2 'plan: the schedule (schedule.name = cosine' \
    compare recipe.ini --norms layer,plan=layer:schedule.name=cosine:train.updates=0:train.seconds=0 --folder early
refuses 2 'probe.instruments: unknown instrument x' compare recipe.ini --norms layer,rms:probe.instruments=x:probe.every=1 --folder early
refuses 2 'joint: norm.statistics = update requires norm.state = update' \
    compare recipe.ini --norms layer,joint=batch:norm.statistics=update:norm.state=worker:train.shards=2 --folder early
refuses 2 'layer: compare.average is 8, but a run writes fewer checkpoints' compare recipe.ini --norms layer --average 8 --folder early
[ -z "$(find early -mindepth 1 ! -name lock)" ] || fail "something was trained: $(ls early)"

# ---- the table, and a second call ----

norms=layer,batch,power
compare --norms $norms --seeds 2 --folder whole --format csv >whole.csv 2>err || fail "compare: $(cat err)"
[ "$(grep -c ', seed [12]: ppl [0-9.]* on the test set$' err)" = 6 ] || fail "not six scores: $(cat err)"
has err "power, seed 2: ppl "
for format in text markdown latex csv json; do
    compare --norms $norms --seeds 2 --folder whole --format $format >table.$format 2>err || fail "$format: $(cat err)"
    [ -s err ] && fail "$format: something was left to do: $(cat err)"
done
cmp -s whole.csv table.csv || fail "the second table differs: $(diff whole.csv table.csv)"
check_json table.json
has table.text "diff, p: to layer; p with Holm's correction over the rows"
has table.text "p: two-sided t test over seeds and test segments"
compare --norms layer,power --folder whole >one.text 2>err || fail "one seed: $(cat err)"
has one.text "one seed is not enough to compare the norms"
has one.text "p: one-sided: the fraction of resamples in which the better system is not better"
compare --norms $norms --seeds 2 --folder whole --margin 50 >margin.text 2>err || fail "--margin: $(cat err)"
has margin.text "p equiv: two one-sided tests of a difference of at least 50"
# The report reads Holm's p from test.json.
perl -MJSON::PP -e '
    local $/;
    my ($table, $run) = map { open(my $in, "<", $_) or die; decode_json(<$in>) } @ARGV;
    my ($power) = grep { $_->{norm} eq "power" } @{$table->{variants}};
    exit !(defined $run->{p_holm} && abs($run->{p_holm} - $power->{p_holm}) < 1e-8)' table.json whole/power-1/test.json ||
    fail "another p in whole/power-1/test.json: $(grep '"p' whole/power-1/test.json)"
has table.markdown "| layer |"
has table.latex '\begin{tabular}{lr'
has table.latex '% ppl: '
has table.csv 'norm,n,ppl,±,95 % from,to,diff,diff from,diff to,p (Holm),loss,loss ±,valid ppl,tok/s,MiB,TID mean %,TID var %'
[ "$(awk -F, '{ print NF }' table.csv | sort -u | wc -l)" = 1 ] || fail "lines of different length: $(cat table.csv)"
[ "$(awk -F'|' '/^\|/ { print NF }' table.markdown | sort -u | wc -l)" = 1 ] || fail "rows of different length: $(cat table.markdown)"
[ "$(awk -F' & ' '/ & / { print NF }' table.latex | sort -u | wc -l)" = 1 ] || fail "rows of different length: $(cat table.latex)"

# ---- the table again from the results alone ----

compare --norms "LN=layer,B-PN=batch:norm.batch.preset=pn" --seeds 2 --folder named --format json >named.json 2>err ||
    fail "labels: $(cat err)"
has named.json '"norm": "B-PN"'
[ -f named/B-PN-2/test.json ] || fail "the label does not name the run folder: $(ls named)"
mkdir archive && cp named/comparison.json archive
for run in named/*-[12]; do
    mkdir "archive/${run##*/}" && cp "$run"/{log.jsonl,config.ini,test.json} "archive/${run##*/}"
done
"$NORMA" compare --results archive --format json >again.json 2>err || fail "--results: $(cat err)"
cmp -s named.json again.json || fail "--results prints another table: $(diff named.json again.json)"
"$NORMA" compare --results archive --margin 50 >out 2>err || fail "--results --margin: $(cat err)"
has out "p equiv: two one-sided tests of a difference of at least 50"
rm archive/B-PN-2/test.json
"$NORMA" compare --results archive >out 2>err || fail "--results without one result: $(cat err)"
has out 'seed 2 failed: archive/B-PN-2/test.json'
# A log that cannot be read: the table is printed, and the command fails. A run without a log was not trained.
mv archive/LN-1/log.jsonl log.kept
mkdir archive/LN-1/log.jsonl
chatty=yes refuses 3 'archive/LN-1/log.jsonl: is a folder' compare --results archive
has out 'seed 1 failed: archive/LN-1/log.jsonl: is a folder'
rmdir archive/LN-1/log.jsonl
"$NORMA" compare --results archive >out 2>err || fail "--results without one log: $(cat err)"
mv log.kept archive/LN-1/log.jsonl
refuses 2 '--compare.seeds has no effect with --results' compare --results archive --seeds 3
refuses 2 '--results takes no recipe' compare recipe.ini --results archive
echo '{}' >archive/B-PN-2/test.json
refuses 4 'archive/B-PN-2/test.json: not a result' compare --results archive
sed -i 's/"origin": 1/"origin": 7/' archive/comparison.json
refuses 4 'not the description of a comparison' compare --results archive
refuses 3 'nothing/comparison.json' compare --results nothing

# ---- when runs are scored again ----

again() { # WHAT COUNT OPTIONS...: COUNT runs are scored again, and the table is the same
    local what=$1 wanted=$2
    shift 2
    compare --norms $norms --seeds 2 --folder whole --format csv "$@" >again.csv 2>err || fail "$what: $(cat err)"
    cases=$((cases + 1))
    local scored
    scored=$(grep -c ', seed [0-9]*: ppl [0-9.]* on the test set$' err)
    [ "$scored" = "$wanted" ] || fail "$what: $scored runs were scored, not $wanted: $(cat err)"
    [ "$#" -gt 0 ] || cmp -s whole.csv again.csv || fail "$what: another table: $(diff whole.csv again.csv)"
}
truncate -s 2000 whole/batch-2/test.json
again "a test.json cut off" 1
rm whole/power-1/test.json
again "a test.json removed" 1
cp whole/layer-1/test.json whole/layer-2/test.json
again "a test.json of another run" 1
echo '{"key": 3, "model": [], "draws": {}}' >whole/layer-1/test.json
again "a test.json of something else" 1
cp whole/layer-2/best.safetensors aside && cp whole/layer-1/best.safetensors whole/layer-2
again "another model" 1 --samples 0
cmp -s aside/best.safetensors whole/layer-2/best.safetensors || fail "another model: the run's own is not restored"
rm aside/best.safetensors
again "the restored model" 0
again "another way to score" 6 --data.eval-streams 2
again "the first way again" 6
mv data aside/data && cp test.txt aside/test.txt && make_sentences test.txt 90 4 && prepare_sentences data
again "another test set" 6 --samples 0
cmp -s whole.csv again.csv && fail "another test set, the same table: $(cat again.csv)"
rm -r data && mv aside/* .
again "the first test set again" 6

# Another validation set: the loss of a run that is finished cannot be compared with that of a new run.
mv data aside && make_sentences valid.txt 40 5 && prepare_sentences data
try compare recipe.ini --tid-batches 2 --norms layer,rms --folder whole
[ "$got" = 5 ] || fail "exit code $got with another validation set: $(cat err)"
[ "$(tail -n 1 err)" = 'norma: 1 of 2 runs failed: layer, seed 1' ] || fail "not the name of the failed run: $(tail -n 1 err)"
has out 'validated on other data'
rm -r data && mv aside/data . && make_sentences valid.txt 40 2

# ---- other settings than those of the runs ----

# A run keeps its configuration, so the comparison is refused, whether the recipe or the command line has changed.
compare --norms layer,batch --folder edited >out 2>err || fail "edited: $(cat err)"
cp recipe.ini kept.ini
sed -i 's/^lr = 0.01$/lr = 0.02/' recipe.ini
refuses 5 'edited/layer-1: the run has schedule.lr = 0.01 (the comparison has 0.02); choose another --folder' \
    compare recipe.ini --norms layer,batch,rms --folder edited
[ -e edited/rms-1 ] && fail "the run of another norm was started"
cp kept.ini recipe.ini
compare --norms layer --folder given --model.width 24 >out 2>err || fail "given: $(cat err)"
refuses 5 'given/layer-1: the run has model.width = 24 (the comparison has 16)' compare recipe.ini --norms layer,batch --folder given
# Options of a norm that the model does not have make no difference.
printf '[norm.rbn]\nlambda = 0.3\n' >>recipe.ini
compare --norms layer,rbn --folder edited >out 2>err || fail "an option of another norm: $(cat err)"
sed -i 's/^lambda = 0.3$/lambda = 0.4/' recipe.ini
refuses 5 'edited/rbn-1: the run has norm.rbn.lambda = 0.3 (the comparison has 0.4)' \
    compare recipe.ini --norms layer,rbn --folder edited
compare --norms layer,at=batch:norm.at=lm.0=rbn --folder at >out 2>err || fail "norm.at: $(cat err)"
sed -i 's/^lambda = 0.4$/lambda = 0.5/' recipe.ini
refuses 5 'at/at-1: the run has norm.rbn.lambda = 0.4 (the comparison has 0.5)' \
    compare recipe.ini --norms layer,at=batch:norm.at=lm.0=rbn --folder at
cp kept.ini recipe.ini
# Every run continues to a larger limit, also of the recipe; none has more updates than the comparison.
sed -i 's/^updates = 12$/updates = 16/' recipe.ini
compare --norms layer,batch,rms --folder edited --format json >out 2>err || fail "a larger limit: $(cat err)"
[ "$(grep -c '"updates": 16' out)" = 3 ] || fail "not all runs have 16 updates: $(grep updates out)"
cp kept.ini recipe.ini
refuses 5 'edited/layer-1: the run has train.updates = 16 (the comparison has 12)' compare recipe.ini --norms layer,batch --folder edited
# The same data in another place.
cp -r data elsewhere
sed -i 's/^folder = data$/folder = elsewhere/; s/^updates = 12$/updates = 20/' recipe.ini
compare --norms layer,batch --folder edited >out 2>err || fail "data in another place: $(cat err)"
lacks out 'failed'
grep -q '^folder = elsewhere' edited/layer-1/config.ini || fail "the run did not continue with the data in another place"
cp kept.ini recipe.ini

# ---- killed ----

# Without the throughput.
plain() { awk -F, -v OFS=, '{ $14 = ""; print }' "$1"; }
# The duration, from which the times of the kills are sampled.
start=$(date +%s%N)
compare --norms $norms --seeds 2 --folder timed --format csv >timed.csv 2>err || fail "timed: $(cat err)"
milliseconds=$((($(date +%s%N) - start) / 1000000))
arguments=(compare recipe.ini --tid-batches 2 --norms "$norms" --seeds 2 --folder killed --format csv)
kills=0
for _ in 1 2 3 4 5 6 7 8 9 10; do
    "$NORMA" "${arguments[@]}" >killed.csv 2>err &
    process=$!
    disown
    sleep "$(awk -v r=$RANDOM -v m=$milliseconds 'BEGIN { print r / 32768 * m / 4000 }')"
    kill -9 $process 2>/dev/null && kills=$((kills + 1))
done
cases=$((cases + kills))
compare --norms $norms --seeds 2 --folder killed --format csv >killed.csv 2>err || fail "after $kills kills: $(cat err)"
[ "$(plain whole.csv)" = "$(plain killed.csv)" ] ||
    fail "$kills kills changed the table: $(diff <(plain whole.csv) <(plain killed.csv))"

# ---- interrupted, and a run that cannot start ----

"$NORMA" compare recipe.ini --norms $norms --folder stopped --train.updates 100000 --jobs 3 >out 2>err &
process=$!
for norm in ${norms//,/ }; do # a run stopped before it began has nothing to say
    while kill -0 $process 2>/dev/null && ! grep -qs '"type":"train"' stopped/$norm-1/log.jsonl; do sleep 0.02; done
done
kill -INT $process
got=0
wait $process || got=$?
[ "$got" = 9 ] || fail "exit code $got after Ctrl-C: $(cat err)"
has err 'the same command continues the runs'
has stopped/layer-1.txt 'to continue'
rm -r stopped/power-1.txt && mkdir stopped/power-1.txt
got=0
compare --norms $norms --folder stopped --train.updates 100000 --jobs 3 >out 2>err || got=$?
[ "$got" = 3 ] || fail "exit code $got where a run cannot start: $(cat err)"
has err 'power-1.txt'
flock -n stopped/lock true || fail "a run continues after its comparison has ended"

# A run is scored while another is still training; the score remains after an interruption.
"$NORMA" compare recipe.ini --tid-batches 2 --norms layer,slow=power:train.updates=100000 --folder partial --jobs 2 >out 2>err &
process=$!
while kill -0 $process 2>/dev/null && ! { [ -f partial/layer-1/test.json ] && grep -qs '"type":"train"' partial/slow-1/log.jsonl; }; do
    sleep 0.02
done
kill -INT $process
got=0
wait $process || got=$?
[ "$got" = 9 ] || fail "exit code $got after Ctrl-C with one score: $(cat err)"
cmp -s partial/layer-1/best.safetensors whole/layer-1/best.safetensors || fail "another model than in the first comparison"
"$NORMA" compare --results partial --format json >partial.json 2>err || fail "--results with one score: $(cat err)"
perl -MJSON::PP -0777 -e '
    my ($partial, $whole) = map { open(my $in, "<", $_) or die; decode_json(<$in>)->{runs}[0] } @ARGV;
    exit !($partial->{norm} eq "layer" && $partial->{updates} == 12 && $partial->{perplexity} > 0 &&
            $partial->{perplexity} == $whole->{perplexity})' \
    partial.json table.json || fail "another score of the run: $(cat partial.json)"
compare --norms layer --folder partial >out 2>err || fail "the scored run again: $(cat err)"
[ -s err ] && fail "a scored run is trained or scored again: $(cat err)"

# A run that is stopped receives SIGINT when it continues.
"$NORMA" compare recipe.ini --norms layer --folder halted --train.updates 100000 >out 2>err &
process=$!
while kill -0 $process 2>/dev/null && ! grep -qs '"type":"train"' halted/layer-1/log.jsonl; do sleep 0.02; done
kill -STOP "$(pgrep -P $process)"
kill -INT $process
got=0
wait $process || got=$?
[ "$got" = 9 ] || fail "exit code $got after Ctrl-C with a stopped run: $(cat err)"
has halted/layer-1.txt 'to continue'

# Ctrl-Z: the runs stop and continue with the comparison.
state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat"; }
await_states() { # STATES: of the comparison and its runs
    local one
    cases=$((cases + 1))
    for one in $process "${runs[@]}"; do
        until [[ $(state "$one") =~ $1 ]]; do
            kill -0 "$one" || { fail "process $one has ended"; break; }
            sleep 0.02
        done
    done
}
perl -e '$SIG{TSTP} = "DEFAULT"; exec @ARGV' -- \
    "$NORMA" compare recipe.ini --norms layer,batch --jobs 2 --folder suspended --train.updates 100000 >out 2>err &
process=$!
for norm in layer batch; do
    while kill -0 $process 2>/dev/null && ! grep -qs '"type":"train"' suspended/$norm-1/log.jsonl; do sleep 0.02; done
done
mapfile -t runs < <(pgrep -P $process)
kill -TSTP $process
await_states T
kill -CONT $process
await_states '[RSD]'
kill -INT $process
got=0
wait $process || got=$?
[ "$got" = 9 ] || fail "exit code $got after Ctrl-Z and Ctrl-C: $(cat err)"

# A second Ctrl-C does not wait for the runs, here for one that waits to write a checkpoint.
"$NORMA" compare recipe.ini --norms layer --folder twice --model.ff 2000 --train.updates 100000 --train.save_every 1 >out 2>err &
process=$!
while kill -0 $process 2>/dev/null && ! ls twice/layer-1/checkpoints/*.state.safetensors >/dev/null 2>&1; do sleep 0.02; done
run=$(pgrep -P $process)
kill -STOP "$run"
newest=$(find twice/layer-1/checkpoints -name '????????.state.safetensors' | sort | tail -n 1)
newest=${newest##*/}
next=$((10#${newest%%.*} + 8))
continue_to_write "$run" "twice/layer-1/checkpoints/$(printf '%08d.safetensors.%08x.new' $next $next)"
kill -INT $process
while grep -qs '^ShdPnd:.*[1-9a-f]' /proc/$process/status; do sleep 0.01; done # until the first signal is handled
kill -0 $process 2>/dev/null || fail "the comparison does not wait for its run: $(cat err)"
kill -INT $process
await_end
[ "$got" = 130 ] || fail "exit code $got after a second Ctrl-C: $(cat err)"
exec 3>&-
flock -w 5 twice/lock true || fail "a run outlived a second Ctrl-C"

# The terminal is closed, or a batch system announces the end: the runs end with a checkpoint.
for signal in HUP USR1; do
    "$NORMA" compare recipe.ini --norms layer --folder $signal --train.updates 100000 >out 2>err &
    process=$!
    while kill -0 $process 2>/dev/null && ! grep -qs '"type":"train"' $signal/layer-1/log.jsonl; do sleep 0.02; done
    kill -$signal $process
    got=0
    wait $process || got=$?
    [ "$got" = 9 ] || fail "exit code $got after SIG$signal: $(cat err)"
    has $signal/layer-1.txt 'to continue'
done

# No run survives a killed comparison: it would write into the folder that the next one uses.
"$NORMA" compare recipe.ini --norms layer --folder orphan --train.updates 100000 >out 2>err &
process=$!
disown
while kill -0 $process 2>/dev/null && ! grep -qs '"type":"train"' orphan/layer-1/log.jsonl; do sleep 0.02; done
kill -9 $process
flock -w 5 orphan/lock true || fail "a run outlived the comparison"

# ---- a failed run is a line of the table ----

compare --norms layer,none:schedule.lr=100:schedule.warmup=0:train.divergence_factor=1.01:train.updates=50 --folder failing \
    >table 2>err || fail "one of two fails: $(cat err)"
has table 'failed: update'
lacks table 'norma:'
# A failure for another reason, here one that only the data show, is not a result.
try compare recipe.ini --tid-batches 2 --norms layer,b=layer:train.shards=2:train.balance_shards=true,rms --folder failing
[ "$got" = 2 ] || fail "exit code $got after a run with a usage error: $(cat err)"
[ "$(tail -n 1 err)" = 'norma: 1 of 3 runs failed: b, seed 1' ] || fail "not the names of failed runs: $(tail -n 1 err)"
has out 'failed: train.balance_shards has no effect'

# A run that was killed.
"$NORMA" compare recipe.ini --tid-batches 2 --norms layer,slow=rms:train.updates=100000 --folder shot --jobs 2 >out 2>err &
process=$!
while kill -0 $process 2>/dev/null && ! grep -qs '"type":"train"' shot/slow-1/log.jsonl; do sleep 0.02; done
kill -9 "$(pgrep -P $process -f shot/slow-1)"
got=0
wait $process || got=$?
[ "$got" = 3 ] || fail "exit code $got after a killed run: $(cat err)"
has err 'norma: 1 of 2 runs failed: slow, seed 1'
has out 'failed: terminated by signal 9'

# ---- a grid ----

compare --norms layer,rbn --grid norm.rbn.lambda=0,0.1,10 --seeds 2 --folder grid >table 2>err || fail "grid: $(cat err)"
has table 'selected by validation loss: rbn:norm.rbn.lambda='
[ "$(find grid -name test.json | wc -l)" = 4 ] || fail "not only the picked were scored: $(ls grid/*/test.json)"
compare --norms layer,rbn --grid norm.rbn.lambda=0,0.1,10 --seeds 2 --folder grid --format json >grid.json 2>err ||
    fail "grid: $(cat err)"
check_json grid.json
[ "$(grep -c '"selected"' grid.json)" = 3 ] || fail "the grid has not three points: $(cat grid.json)"

# ---- every grid point scored, and averaged checkpoints ----

points=(--norms "layer,rbn" --grid "norm.rbn.lambda=0,0.1,10" --seeds 2)
compare "${points[@]}" --folder grid --score-grid >table 2>err || fail "score-grid: $(cat err)"
has err "rbn:norm.rbn.lambda=10, seed 2: ppl "
lacks err "layer, seed 1: ppl "
has table "ppl"
compare "${points[@]}" --folder grid --score-grid --format json >grid.json 2>err || fail "score-grid: $(cat err)"
check_json grid.json
[ "$(perl -MJSON::PP -0777 -ne 'print scalar grep { defined $_->{score_mean} } @{decode_json($_)->{grid}}' grid.json)" = 3 ] ||
    fail "a grid point has no score: $(cat grid.json)"
has grid.json '"norm.rbn.lambda": "0.1"'
# The table of the grid from the results has the scores, too.
"$NORMA" compare --results grid --samples false >out 2>err || fail "--results of a grid: $(cat err)"
[ "$(grep -c '^selected by validation loss: ' out)" = 1 ] || fail "not one table of the grid: $(cat out)"
grep -q '  ppl  ' <(head -n 1 out) || fail "the table of the grid has no scores: $(cat out)"
same <(compare "${points[@]}" --folder grid --score-grid --samples false 2>err) out

compare --norms layer,batch --folder averaged --average 3 --train.keep-last 1 --format json >average.json 2>err ||
    fail "average: $(cat err)"
has averaged/layer-1/config.ini 'keep_last = 3'
mapfile -t checkpoints < <(find averaged/layer-1/checkpoints -name '*.safetensors' ! -name '*.state.*')
[ "${#checkpoints[@]}" = 3 ] || fail "not three checkpoints: ${checkpoints[*]}"
"$NORMA" average mean.safetensors "${checkpoints[@]}" 2>err || fail "average: $(cat err)"
cmp -s mean.safetensors averaged/layer-1/average.safetensors || fail "another mean of the checkpoints"
score() { perl -MJSON::PP -0777 -ne 'print decode_json($_)->{variants}[0]{score_mean}' "$1"; }
"$NORMA" perplexity mean.safetensors test.txt --json >direct.json 2>err || fail "perplexity: $(cat err)"
perl -MJSON::PP -0777 -e 'open(F, "<", $ARGV[0]); my $p = decode_json(<F>)->{perplexity};
    exit(abs($p - $ARGV[1]) > 1e-4 * $p)' direct.json "$(score average.json)" ||
    fail "the score of the averaged model is $(score average.json): $(cat direct.json)"
compare --norms layer,batch --folder averaged --average 3 --train.keep-last 1 --format json >again.json 2>err ||
    fail "average again: $(cat err)"
cmp -s average.json again.json || fail "the second table differs"
lacks err "on the test set"
compare --norms layer,batch --folder averaged --train.keep-last 3 --format json >best.json 2>err || fail "best: $(cat err)"
has err "layer, seed 1: ppl "
[ "$(score best.json)" != "$(score average.json)" ] || fail "the best checkpoint has the score of the mean"
# Whether there are enough checkpoints is not known before training without train.validate_every.
try compare recipe.ini --tid-batches 2 --norms layer --folder epochs --train.validate_every 0 --average 50
[ "$got" = 5 ] || fail "exit code $got with too few checkpoints: $(cat err)"
[ "$(tail -n 1 err)" = "norma: epochs/layer-1: $(sed -n 's/.*epochs.layer-1: //p' err | head -n 1)" ] ||
    fail "another error than that of the warning: $(cat err)"
has err 'compare.average is 50'

# ---- a recipe with FixNorm: variants without +fix are without it if another one has it ----

mkdir pairs && cd pairs && make_data
compare_pairs() { # FOLDER OPTIONS...
    "$NORMA" compare recipe.ini --tid-batches 1 --folder "$@" >table 2>err || fail "compare $*: $(cat err)"
}
sed -i 's/^norm = .*/norm = scale\nfixnorm = true/' recipe.ini
compare_pairs both --norms "layer,scale,scale+fix"
has both/layer-1/config.ini 'fixnorm = false ; command line'
has both/scale-1/config.ini 'fixnorm = false ; command line'
has both/scale+fix-1/config.ini 'fixnorm = true ; command line'
compare_pairs recipe --norms layer
has recipe/layer-1/config.ini 'fixnorm = true'
refuses 2 'scale and scale+fix have the same configuration' compare recipe.ini --norms scale,scale+fix --model.fixnorm true --folder same
cd ..

# ---- comparisons of identical variants; a second call trains nothing ----

"$SOURCE/scripts/false_positives.py" recipe.ini identical 2 2 >out 2>err
[ $? -le 1 ] || fail "false positives: $(cat err)"
has out "2 comparisons of identical variants with 2 seeds, p < 0.05: "
cmp -s identical/c0/B-1/test.json identical/pool/L-3/test.json || fail "the second variant has other runs"
cmp -s identical/c1/A-1/test.json identical/pool/L-5/test.json || fail "comparisons share runs"
"$SOURCE/scripts/false_positives.py" recipe.ini identical 2 2 >again 2>err
cmp -s out again || fail "the second call differs: $(cat again)"
lacks err "on the test set"

echo "$cases cases; $kills kills, and the same table"
