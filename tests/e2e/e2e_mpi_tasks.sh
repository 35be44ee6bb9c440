#!/bin/bash
# Tagging and classification, of texts and of images, by several processes: bitwise the models, logs and outputs of one process. The inputs have several
# buffers, so that every rank has sentences, with unknown words, empty lines and texts longer than the models accept.
# Skipped without MPI: libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich.
set -uo pipefail
# shellcheck source=tests/e2e/ranks_helper.sh
. "${SOURCE:?}/tests/e2e/ranks_helper.sh"

perl -e '
    srand 5;
    my @names = qw(Anna Bernd Clara David Emil); my @places = qw(Rom Bonn Wien Oslo);
    sub columns {
        my ($path, $n, $extra) = @_;
        open(my $out, ">", $path);
        for my $i (1 .. $n) {
            print $out $names[rand @names], "\tB-PER\n";
            print $out "son$i\tI-PER\n" if $extra && $i % 7 == 0;
            print $out "lives\tO\nin\tO\n", $places[rand @places], "\tB-LOC\n\n";
            print $out "-DOCSTART-\tO\n\n" if $extra && $i % 400 == 0;
            print $out map({ "w$_\tO\n" } 1 .. 600), "\n" if $extra && $i % 500 == 0;
        }
    }
    columns("tag.train", 80, 0); columns("tag.valid", 20, 1); columns("tag.test", 1100, 1);
    my %word = (good => [qw(great fine)], bad => [qw(awful weak)]);
    sub texts {
        my ($path, $n, $extra) = @_;
        open(my $out, ">", "$path.tsv"); open(my $lines, ">", "$path.txt");
        for my $i (1 .. $n) {
            my $class = (qw(good bad))[rand 2];
            my $text = join(" ", "the", $word{$class}[rand 2], (qw(film plot cast))[rand 3], $extra ? "ä$i" : ());
            $text = join(" ", ($text) x 300) if $extra && $i % 900 == 1;
            print $out "$class\t$text\n";
            print $lines $i % 50 ? $text : "", "\n";
        }
    }
    texts("texts.train", 80, 0); texts("texts.valid", 20, 1); texts("texts.test", 4500, 1);'

settings=(model.preset=tiny model.norm=batch train.updates=30 train.shards=4 train.validate_every=10 train.best_by=score
    train.max_tokens=64 optim.name=adam schedule.name=constant schedule.lr=0.01 schedule.warmup=0 device.threads=1)
write_recipe tagging.ini run.task=tagging data.train=tag.train data.valid=tag.valid "${settings[@]}"
write_recipe classification.ini run.task=classification data.train=texts.train.tsv data.valid=texts.valid.tsv \
    data.max_length=400 "${settings[@]}"
for task in tagging classification; do
    cp $task.ini recipe.ini
    for statistics in shard update; do
        one=$task-$statistics
        "$NORMA" train recipe.ini --norm.statistics $statistics --run.quiet --run.folder "$one" 2>err || fail "$one: $(cat err)"
        ranks 3 --norm.statistics $statistics --run.folder "$one-3"
        [ "$got" = 0 ] || fail "$one, 3 ranks: exit code $got: $(cat err)"
        equal "$one" "$one-3"
        [ "$(plain "$one")" = "$(plain "$one-3")" ] || fail "$one: the log of 3 ranks differs: $(diff <(plain "$one") <(plain "$one-3") | head -n 4)"
    done
done

check_divided tag tagging-shard tag.test --evaluate
has err '2 of '
has err 'sentences have more than'
has err 'precision'
check_divided tag tagging-shard tag.test --json
check_divided tag tagging-shard tag.test --evaluate --json
check_divided tag tagging-update tag.valid --scheme iob1
check_divided classify classification-shard texts.test.txt --probabilities
[ "$(wc -l <out)" = 4501 ] || fail "not a line for every text: $(wc -l <out)"
has err '5 of 4500 texts have more than'
check_divided classify classification-shard texts.test.tsv --evaluate
check_divided classify classification-update texts.test.tsv --evaluate --json
# The lines that precede an error are written by all processes.
{ cat tag.test && printf 'b\xff O\n'; } >tag.bad
{ cat texts.test.txt && printf 'b\xff\n'; } >texts.bad.txt
stopped() { # COMMAND MODEL FILE BEFORE
    "$NORMA" "$1" "$2" "$4" >want 2>err
    timeout 120 "$MPIEXEC" -n 3 "$NORMA" "$1" "$2" "$3" </dev/null >out 2>err && fail "$1: an invalid line was accepted"
    cmp want out || fail "$1: not the preceding lines"
    has err "$3:"
}
stopped tag tagging-shard tag.bad tag.test
stopped classify classification-shard texts.bad.txt texts.test.txt
check_divided classify classification-shard texts.bad.txt --on-invalid skip
has err 'and have no label (line '
timeout 120 "$MPIEXEC" -n 2 "$NORMA" tag tagging-shard <tag.test >out 2>err && fail "2 ranks tagged standard input"
has err 'an input file is required with several processes'

# ---- images: files and labeled folders are divided, and models are trained ----
python3 "$SOURCE/tests/support/make_images.py" 48 40
write_recipe images.ini run.task=image data.train=records data.valid=records data.size=8 data.batch=6 data.crop=1 \
    model.preset=tiny model.norm=batch train.epochs=3 train.shards=4 train.log_every=2 optim.name=sgd schedule.name=constant \
    schedule.lr=0.1 schedule.warmup=0 device.threads=1
cp images.ini recipe.ini
"$NORMA" train recipe.ini --run.quiet --run.folder images 2>err || fail "images: $(cat err)"
ranks 3 --run.folder images-3
[ "$got" = 0 ] || fail "images, 3 ranks: exit code $got: $(cat err)"
equal images images-3
# The forward pass of model.init = admin runs on one rank.
admin=(--model.preset tiny-vit --model.norm layer --model.norm_position post --model.residual admin --model.init admin)
"$NORMA" train recipe.ini --run.quiet --run.folder admin "${admin[@]}" 2>err || fail "admin: $(cat err)"
ranks 3 --run.folder admin-3 "${admin[@]}"
[ "$got" = 0 ] || fail "admin, 3 ranks: exit code $got: $(cat err)"
equal admin admin-3
mapfile -t pictures < <(find png/valid -name '*.png' | sort)
[ ${#pictures[@]} = 40 ] || fail "${#pictures[@]} images"
compare_images() { # ARGUMENTS...: 2 and 3 ranks print what one process prints
    "$NORMA" classify "$@" >want 2>want.err || fail "classify $*: $(cat want.err)"
    for n in 2 3; do
        cases=$((cases + 1))
        timeout 120 "$MPIEXEC" -n $n "$NORMA" classify "$@" </dev/null >out 2>err || fail "classify, $n ranks: $(cat err)"
        cmp want out || fail "classify $1 by $n ranks: another output"
    done
}
compare_images images "${pictures[@]}" --probabilities
[ "$(wc -l <out)" = 41 ] || fail "not a line for every image: $(wc -l <out)"
compare_images images "${pictures[@]}" --json --probabilities
compare_images images "${pictures[@]:0:3}" # fewer files than processes have
compare_images images records --evaluate
compare_images images png/valid --evaluate --json
# A damaged file ends the command after the lines of the files before it.
echo damaged >png/valid/red/damaged.png
for at in 3 20 39; do
    files=("${pictures[@]:0:$at}" png/valid/red/damaged.png "${pictures[@]:$at}")
    "$NORMA" classify images "${files[@]}" >want 2>err && fail "a damaged image was accepted"
    timeout 120 "$MPIEXEC" -n 3 "$NORMA" classify images "${files[@]}" </dev/null >out 2>err && fail "3 ranks accepted a damaged image"
    cmp want out || fail "3 ranks, damaged image $at: not the preceding lines"
    [ "$(wc -l <out)" = $at ] || fail "$(wc -l <out) lines before the damaged image $at"
    has err 'damaged.png: neither a JPEG nor a PNG image'
done

[ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
echo "tagging and classification by 2 and 3 ranks: the models and outputs of one process ($cases cases)"
