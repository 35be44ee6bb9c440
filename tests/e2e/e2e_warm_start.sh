#!/usr/bin/env bash
# Warm start: a trained model continued on other data with another dictionary, another norm and frozen parameters; what was
# loaded is in the log; a resumed run does not need the source; bad sources.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# Reviews whose label depends on one word. The second set has other fillers, one more class, and shares the words of the classes.
write_reviews() { # FILE COUNT SEED FILLERS CLASSES
    perl -e '
        my ($file, $n, $seed, $fillers, $classes) = @ARGV;
        srand $seed;
        my %word = (good => [qw(great fine lovely)], bad => [qw(awful boring weak)], plain => [qw(average usual common)]);
        my @filler = split / /, $fillers;
        my @class = (sort keys %word)[0 .. $classes - 1];
        open(my $out, ">", $file);
        for (1 .. $n) {
            my $class = $class[int(rand @class)];
            my @w = map { $filler[int(rand @filler)] } 1 .. 2 + int(rand 6);
            splice @w, int(rand @w), 0, $word{$class}[int(rand 3)];
            print $out "$class\t@w.\n";
        }' "$@"
}
write_reviews a.tsv 300 1 "the a film plot was quite" 2
write_reviews a.valid 60 2 "the a film plot was quite" 2
write_reviews b.tsv 60 3 "the a book chapter is rather unusual" 3
write_reviews b.valid 60 4 "the a book chapter is rather unusual" 3

write_recipe a.ini run.task=classification data.train=a.tsv data.valid=a.valid data.batch=16 \
    model.preset=tiny model.norm_position=pre train.epochs=8 train.best_by=score train.label_smoothing=0 \
    optim.name=adamw schedule.name=constant schedule.lr=0.01 schedule.warmup=0 device.threads=1
sed 's/= a\./= b./' a.ini >b.ini
"$NORMA" train a.ini 2>err || fail "train: $(cat err)"

# ---- another dictionary, classes and norm ----
"$NORMA" train b.ini --model.init_from runs/a --model.norm power --train.epochs 2 2>err || fail "warm start: $(cat err)"
has err "initialized from runs/a/best.safetensors: "
grep -qE 'initialized.* ([0-9]+) of ([0-9]+) entries of embed.weight; 2 of 3 entries of output.weight; 2 of 3 entries of output.bias; new: .*running_' err ||
    fail "no report of the entries: $(cat err)"
grep -q '"init_from":{"path":"runs/a/best.safetensors","fingerprint":"[0-9a-f]\{16\}"' runs/b/log.jsonl ||
    fail "no lineage: $(head -n 1 runs/b/log.jsonl)"
grep -q '"task":"classification","update":[1-9]' runs/b/log.jsonl || fail "the update of the source is not in the log"
has runs/b/config.ini "init_from = runs/a"
copied=$(sed -nE 's/.* ([0-9]+) of ([0-9]+) entries of embed.weight.*/\1 \2/p' err)
awk -v c="$copied" 'BEGIN { split(c, n); exit !(n[1] >= 12 && n[1] < n[2]) }' || fail "entries of embed.weight: $copied"

# ---- warm-ups and ramps continue those of the model ----
lacks err "the count of updates"
"$NORMA" train b.ini --tune runs/b --run.folder further --train.updates 1 2>err || fail "further training: $(cat err)"
updates=$(sed -nE 's/.*"init_from":\{[^}]*"update":([0-9]+),.*/\1/p' further/log.jsonl)
has err "norm power at enc.0.self.norm: the count of updates begins at ${updates:?}, that of the model"

# ---- running statistics of another type, which may have the same name, are not copied ----
"$NORMA" train a.ini --run.folder batch --model.norm batch --train.updates 2 2>err || fail "train: $(cat err)"
"$NORMA" train a.ini --run.folder pnv --tune batch --model.norm pnv --train.updates 1 2>err || fail "PN-V: $(cat err)"
has err "new: enc.0.self.norm.running_var, enc.0.ffn.norm.running_var"
"$NORMA" train a.ini --run.folder rbn --tune batch --model.norm rbn --train.updates 1 2>err || fail "RBN: $(cat err)"
lacks err "new:" # the same statistics

write_reviews c.tsv 60 5 "the a book chapter is rather unusual" 2
write_reviews c.valid 60 6 "the a book chapter is rather unusual" 2
sed 's/= a\./= c./' a.ini >c.ini
# ---- bigrams are hashed ids of words: their embeddings are copied only with the same dictionary; document frequencies never ----
ngrams=(--model.ngram_dim 4 --model.ngram_buckets 50 --model.ngram_weights idf --train.updates 1)
"$NORMA" train a.ini --run.folder ngrams_a "${ngrams[@]}" 2>err || fail "n-grams: $(cat err)"
"$NORMA" train c.ini --run.folder ngrams_c --model.init_from ngrams_a "${ngrams[@]}" 2>err || fail "n-grams: $(cat err)"
has err "entries of ngrams.words; "
has err "new: ngrams.words_idf, ngrams.bigrams, ngrams.bigrams_idf"
"$NORMA" train a.ini --run.folder ngrams_same --model.init_from ngrams_a "${ngrams[@]}" 2>err || fail "n-grams: $(cat err)"
has err "new: ngrams.words_idf, ngrams.bigrams_idf"

# ---- rows are copied by word: the vectors of words of both dictionaries, after an update with a learning rate of 0 ----
cat >words.pl <<'X'
# Prints every word of the dictionary of a model file with the checksum of its embedding.
use Digest::MD5 qw(md5_hex);
open(my $in, "<:raw", $ARGV[0]); local $/; my $file = <$in>;
my $n = unpack("Q<", $file);
my $header = substr($file, 8, $n);
my ($dict) = $header =~ /"dict.txt":"((?:[^"\\]|\\.)*)"/ or die;
my ($rows, $width, $begin) = $header =~ /"embed.weight":\{"dtype":"F32","shape":\[(\d+),(\d+)\],"data_offsets":\[(\d+),/ or die;
my @words = ("<s>", "<pad>", "</s>", "<unk>", map { (split / /)[0] } split /\\n/, $dict);
print "$words[$_] ", md5_hex(substr($file, 8 + $n + $begin + 4 * $width * $_, 4 * $width)), "\n" for 0 .. $rows - 1;
X
"$NORMA" train b.ini --run.folder still --model.init_from runs/a --schedule.lr 0 --train.updates 1 2>err || fail "$(cat err)"
perl words.pl runs/a/best.safetensors >words.a
perl words.pl still/last.safetensors >words.b
cut -d ' ' -f 1 words.a | sort >names.a
cut -d ' ' -f 1 words.b | sort >names.b
shared=$(comm -12 names.a names.b | wc -l)
[ "$shared" -ge 12 ] && [ "$(grep -cxFf words.a words.b)" = "$shared" ] || fail "not $shared equal embeddings: $(paste words.a words.b)"
cmp -s <(head -n 12 words.a | cut -d ' ' -f 1) <(head -n 12 words.b | cut -d ' ' -f 1) && fail "the dictionaries have the same order"

# ---- the same data and model: the first validation is that of the source ----
"$NORMA" train a.ini --run.folder again --model.init_from runs/a/best.safetensors --schedule.lr 0 --train.updates 1 2>err || fail "$(cat err)"
best=$(sed -n 's/^done.*best at.*loss \([0-9.]*\),.*/\1/p' err)
expected=$(perl -ne 'print sprintf("%.4f", $1) if /"loss": *([0-9.e-]+).*"best": *true/ and $l = $1' runs/a/log.jsonl | tail -c 6)
[ "$best" = "$expected" ] || fail "loss $best after a warm start without updates, $expected in the source"

# ---- frozen parameters ----
cat >tensors.pl <<'X'
# Prints the name and the checksum of the data of every tensor of a safetensors file.
use Digest::MD5 qw(md5_hex);
open(my $in, "<:raw", $ARGV[0]); local $/; my $file = <$in>;
my $n = unpack("Q<", $file);
my $header = substr($file, 8, $n);
while ($header =~ /"([^"]+)":\{"dtype":"F32","shape":\[[^]]*\],"data_offsets":\[(\d+),(\d+)\]/g) {
    print "$1 ", md5_hex(substr($file, 8 + $n + $2, $3 - $2)), "\n";
}
X
perl tensors.pl runs/a/best.safetensors | sort >source
[ "$(wc -l <source)" -gt 10 ] || fail "the header of the model was not read: $(cat source)"
"$NORMA" train a.ini --run.folder frozen --model.init_from runs/a --model.freeze 'embed,enc.0.self,enc.*.ffn.*.weight' \
    --train.epochs 1 2>err || fail "freeze: $(cat err)"
perl tensors.pl frozen/last.safetensors | sort >trained
grep -E '^(embed|enc\.0\.self|enc\.[0-9]*\.ffn\..*weight)' source >kept
[ "$(wc -l <kept)" -ge 6 ] || fail "too few frozen tensors: $(cat kept)"
[ "$(grep -cxFf kept trained)" = "$(wc -l <kept)" ] || fail "frozen tensors changed: $(diff source trained)"
grep -qxFf source <(grep -E '^output' trained) && fail "output.weight was not trained"

# The parameters of norms, and everything else.
for norm in layer batch rbn pnv power repbn; do
    for frozen in '*norm*' 'embed,output,enc.*.qkv,enc.*.out,enc.*.in'; do
        rm -rf part-frozen
        "$NORMA" train a.ini --run.folder part-frozen --model.norm "$norm" --model.freeze "$frozen" --run.quiet --train.epochs 1 2>err ||
            fail "$norm, freeze $frozen: $(cat err)"
        perl tensors.pl part-frozen/last.safetensors | sort >first
        "$NORMA" train a.ini --run.folder part-frozen --model.norm "$norm" --model.freeze "$frozen" --run.quiet --train.epochs 2 \
            --resume 2>err || fail "$norm, freeze $frozen, resumed: $(cat err)"
        perl tensors.pl part-frozen/last.safetensors | sort >second
        comm -12 first second | grep -v running_ | cut -d' ' -f1 >unchanged
        if [ "$frozen" = '*norm*' ]; then
            [ "$(grep -c norm unchanged)" -ge 4 ] && ! grep -qv norm unchanged
        else
            [ "$(grep -cv norm unchanged)" -ge 10 ] && ! grep -q norm unchanged
        fi || fail "$norm, freeze $frozen: unchanged: $(cat unchanged)"
    done
done
# The gradients of fixed parameters and their moments need no memory.
memory() { # OPTION ...: of a step, in MiB
    "$NORMA" train a.ini --dry-run --run.folder dry --model.width 512 --model.ff 2048 "$@" 2>&1 | sed -n 's/.* \([0-9]*\) MiB.*/\1/p' | head -n 1
}
whole=$(memory) part=$(memory --model.freeze 'embed,enc.*.qkv,enc.*.out,enc.*.in')
[ "$((whole - part))" -gt 30 ] || fail "a step needs $part MiB with frozen weights, $whole MiB without"

# ---- a resumed run does not load the source again ----
"$NORMA" train a.ini --run.folder whole --model.init_from runs/a --train.epochs 2 2>err || fail "$(cat err)"
"$NORMA" train a.ini --run.folder part --model.init_from runs/a --train.epochs 1 2>err || fail "$(cat err)"
mv runs/a runs/moved
"$NORMA" train a.ini --run.folder part --train.epochs 2 --resume 2>err || fail "resume without the source: $(cat err)"
lacks err "initialized from"
[ "$(perl tensors.pl part/last.safetensors)" = "$(perl tensors.pl whole/last.safetensors)" ] || fail "the resumed run differs"
[ "$(grep -c init_from part/log.jsonl)" = 1 ] || fail "the lineage is not in the log of a resumed run exactly once"

# ---- a comparison does not use runs with another initial model ----
comparison=(compare a.ini --norms layer --folder compared --data.test "$work/a.valid" --train.epochs 1 --model.init_from initial.safetensors)
cp runs/moved/best.safetensors initial.safetensors
accepts layer "${comparison[@]}"
accepts layer "${comparison[@]}"
lacks err 'epoch'
cp frozen/best.safetensors initial.safetensors
refuses 5 'began with another initial model' "${comparison[@]}"

# ---- refused ----
chatty=1
printf "in O\nRome B-LOC\n\nit O\n\n" >tags
refuses 3 "none.safetensors" train b.ini --run.folder c --model.init_from none.safetensors
[ ! -e c ] || fail "a failed start left a folder: $(find c)"
mkdir -p c/kept
refuses 3 "none.safetensors" train b.ini --run.folder c --model.init_from none.safetensors
[ "$(find c -mindepth 1)" = c/kept ] || fail "a failed start changed a folder: $(find c)"
rm -r c
refuses 2 "no parameter matches 'decoder'" train b.ini --run.folder c --model.freeze embed,decoder
refuses 2 "no parameter to train" train b.ini --run.folder c --model.freeze '*'
head -c 3000 runs/moved/best.safetensors >cut.safetensors
refuses 4 "cut.safetensors" train b.ini --run.folder c --model.init_from cut.safetensors
"$NORMA" export runs/moved --int8 --output small.safetensors >out 2>err || fail "export: $(cat err)"
refuses 7 "int8" train b.ini --run.folder c --model.init_from small.safetensors
refuses 5 "has no tensor with a name and shape" train "$SOURCE/recipes/tag.ini" --run.folder c --model.init_from runs/moved \
    --data.train "$work/tags" --data.valid "$work/tags" --model.width 12 --model.heads 1
exit "$failures"
