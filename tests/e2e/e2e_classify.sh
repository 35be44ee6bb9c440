#!/usr/bin/env bash
# Classification: tables in both formats, training, output of labels and probabilities, evaluation, comparison.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# Reviews whose label depends on one word; as TSV, and the same with a header as CSV, quoted, some over two lines.
perl -e '
    srand 7;
    my %word = (good => [qw(great fine lovely)], bad => [qw(awful boring weak)], "so, so" => [qw(average usual plain)]);
    my @filler = qw(the a film plot was quite really and its cast);
    for my $split (["train", 300], ["test", 60]) {
        open(my $tsv, ">", "$split->[0].tsv"); open(my $csv, ">", "$split->[0].csv"); open(my $lines, ">", "$split->[0].txt");
        print $csv "id,stars,review\r\n";
        for my $i (1 .. $split->[1]) {
            my $class = (sort keys %word)[int(rand 3)];
            my @w = map { $filler[int(rand @filler)] } 1 .. 2 + int(rand 6);
            splice @w, int(rand @w), 0, $word{$class}[int(rand 3)];
            my $text = join(" ", @w) . ".";
            print $tsv "$class\t$text\n"; print $lines "$text\n";
            $text =~ s/ /\n/ if $i % 3 == 0;
            $text =~ s/film/"film"/g;
            (my $quoted = $text) =~ s/"/""/g;
            print $csv "$i,\"$class\",\"$quoted\"\r\n";
        }
    }'

write_recipe reviews.ini run.task=classification data.train=train.tsv data.test=test.tsv data.batch=16 \
    model.preset=tiny train.max_tokens=512 train.epochs=6 train.log_every=5 train.label_smoothing=0 \
    train.best_by=score optim.name=adamw optim.beta2=0.999 schedule.name=constant schedule.lr=0.01 \
    schedule.warmup=0 device.threads=1
printf '[profile.small]\ntrain.epochs = 1\n' >>reviews.ini

# ---- training ----
"$NORMA" train reviews.ini 2>err || fail "train: $(cat err)"
has err "accuracy"
has err "macro-F1"
has err " tokens; best at update"
lacks err "target tokens"
grep -q "ppl" err && fail "a perplexity of classes was printed"
# The loss in the log is a mean over texts: that of an untrained model is about ln(classes).
"$NORMA" train reviews.ini --run.folder untrained --train.epochs 1 --schedule.lr 0 --train.log_every 1 2>err || fail "train: $(cat err)"
perl -ne 'if (/"type":"train"/ && /"loss":([0-9.]+)/) { exit !($1 > 0.3 && $1 < 3) }' untrained/log.jsonl ||
    fail "loss of an untrained model: $(head -n 2 untrained/log.jsonl)"
# With label smoothing the loss is not the negative log likelihood, which is printed, too.
lacks err '  nll '
"$NORMA" train reviews.ini --run.folder smoothed --train.epochs 1 --train.label_smoothing 0.2 2>err || fail "train: $(cat err)"
nll=$(perl -ne 'printf "%.4f", $1 if /"type":"valid".*"nll":([0-9.]+)/' smoothed/log.jsonl)
has err "  nll $nll  accuracy "
[ "$(grep -c '"accuracy"' runs/reviews/log.jsonl)" = 6 ] || fail "the log has not 6 scores"

# ---- columns of a table ----
{ echo 'Class Index,Title,Description'; sed 's/"/""/g; s/^\([^\t]*\)\t\([^ ]*\) \(.*\)/"\1","\2","\3"/' train.tsv; } >kaggle.csv
refuses 4 'kaggle.csv: no other row has the label of the first one, "Class Index"; is it a header? Set data.header' \
    train reviews.ini --run.folder none --data.train kaggle.csv --data.test=
"$NORMA" train reviews.ini --run.folder kaggle --train.epochs 1 --data.train kaggle.csv --data.test= --data.header yes 2>err ||
    fail "a table with a header: $(cat err)"
has err 'kaggle.csv: the label is column 1 (Class Index), the text is column 2 (Title); the table has 3 columns'
"$NORMA" train reviews.ini --run.folder kaggle2 --train.epochs 1 --data.train kaggle.csv --data.test= --data.label 'Class Index' \
    --data.text Title 2>err || fail "columns by name: $(cat err)"
grep -q 'the label is column' err && fail "chosen columns are described: $(cat err)"
# The model has data.header = yes; a table without a header keeps its first text.
head -n 5 train.tsv >five.tsv
"$NORMA" classify kaggle five.tsv >labels 2>err || fail "classify: $(cat err)"
[ "$(wc -l <labels)" = 5 ] && [ ! -s err ] || fail "the first row of a table without header: $(cat labels err)"
"$NORMA" classify kaggle five.tsv --evaluate >labels 2>err || fail "classify: $(cat err)"
has labels 'texts 5'
head -n 6 kaggle.csv >header.csv
"$NORMA" classify kaggle header.csv >labels 2>err || fail "classify: $(cat err)"
[ "$(wc -l <labels)" = 5 ] || fail "a header was classified: $(cat labels)"
has err 'header.csv: the first row is skipped as the header, because the model was trained with data.header = yes'
"$NORMA" classify kaggle header.csv --header no >labels 2>err || fail "classify: $(cat err)"
[ "$(wc -l <labels)" = 6 ] && [ ! -s err ] || fail "--header no: $(cat labels err)"
{ echo 'label,text,more' && sed 1d header.csv; } >named.csv
"$NORMA" classify kaggle named.csv >labels 2>err || fail "classify: $(cat err)"
[ "$(wc -l <labels)" = 5 ] && [ ! -s err ] || fail "a header with known names: $(cat labels err)"

sed 1d kaggle.csv >headless.csv
"$NORMA" train reviews.ini --run.folder kaggle3 --train.epochs 1 --data.train headless.csv --data.test= 2>err ||
    fail "a table without header: $(cat err)"
has err 'the label is column 1, the text is column 2; the table has 3 columns'

# ---- validation texts that are training texts ----
head -n 30 train.tsv >repeated.tsv
"$NORMA" train reviews.ini --run.folder repeated --train.epochs 1 --data.valid repeated.tsv 2>err || fail "train: $(cat err)"
has err 'warning: 30 of 30 texts of the validation set are also training texts: its score does not show'
tail -n 30 train.tsv >rest.tsv
head -n 270 train.tsv | sort -u >first.tsv
awk -F '\t' 'NR == FNR { seen[$2]; next } !($2 in seen)' first.tsv rest.tsv >unseen.tsv
[ -s unseen.tsv ] || fail 'no text is left'
"$NORMA" train reviews.ini --run.folder unseen --train.epochs 1 --data.train first.tsv --data.valid unseen.tsv --data.test= 2>err ||
    fail "train: $(cat err)"
lacks err 'are also training'

# ---- labels, probabilities, JSON ----
"$NORMA" classify runs/reviews test.txt >labels 2>err || fail "classify: $(cat err)"
[ "$(wc -l <labels)" = 60 ] || fail "not a label for every line: $(wc -l <labels)"
right=$(paste labels test.tsv | awk -F '\t' '$1 == $2 { n++ } END { print n }')
[ "$right" -ge 54 ] || fail "only $right of 60 texts are classified rightly"
"$NORMA" classify runs/reviews <test.txt | cmp -s - labels || fail "standard input gives other labels"
"$NORMA" classify runs/reviews test.tsv | cmp -s - labels || fail "the table gives other labels"
"$NORMA" classify runs/reviews test.csv --text review | cmp -s - labels || fail "the CSV table gives other labels"
"$NORMA" classify runs/reviews test.txt --probabilities >table || fail "probabilities"
[ "$(head -n 1 table)" = $'label\tbad\tgood\tso, so' ] || fail "the first line names no classes: $(head -n 1 table)"
awk -F '\t' 'NR > 1 && ($2 + $3 + $4 < 0.99999 || $2 + $3 + $4 > 1.00001) { exit 1 }' table || fail "probabilities that don't add to 1"
cut -f 1 table | tail -n +2 | cmp -s - labels || fail "labels differ with probabilities"
"$NORMA" classify runs/reviews test.txt --probabilities --json >json || fail "json"
[ "$(grep -c '"probabilities":{"bad":' json)" = 60 ] || fail "not 60 objects: $(head -n 2 json)"
printf 'great film\n\nawful' | "$NORMA" classify runs/reviews >three || fail "three lines"
[ "$(wc -l <three)" = 3 ] || fail "an empty line got no label: $(cat three)"
[ "$(sed -n 1p three) $(sed -n 3p three)" = "good bad" ] || fail "plain cases: $(cat three)"

# ---- evaluation ----
"$NORMA" classify runs/reviews test.tsv --evaluate >report 2>err || fail "evaluate: $(cat err)"
wanted=$(awk -v r="$right" 'BEGIN { printf "accuracy %.2f", 100 * r / 60 }')
has report "$wanted"
has report "texts 60"
has report "precision"
[ "$(awk 'NR > 3 { n++ } END { print n }' report)" = 3 ] || fail "the matrix has not three rows: $(cat report)"
"$NORMA" classify runs/reviews test.csv --evaluate --label stars --text review >report.csv || fail "evaluate CSV"
cmp -s report report.csv || fail "the same texts as CSV give another report"
"$NORMA" classify runs/reviews test.tsv --evaluate --json --bootstrap 0 >report.json || fail "evaluate --json"
has report.json '"macro_f1"'
has report.json '"confusion"'
grep -q accuracy_low report.json && fail "an interval without draws"
if [ -w /dev/full ]; then # the report is written at the end
    got=0
    "$NORMA" classify runs/reviews test.tsv --evaluate >/dev/full 2>err || got=$?
    check_failure 3 'standard output: writing failed: No space left on device' 'classify --evaluate on a full disk'
fi

# ---- labels that no training text has count as errors ----
awk -F '\t' '{ print (NR % 6 == 1 ? "ugly" : NR == 9 ? "worse" : $1) "\t" $2 }' test.tsv >others.tsv # 11 of 60
right=$(paste <(cut -f 1 others.tsv) <(cut -f 2 others.tsv | "$NORMA" classify runs/reviews) | awk -F '\t' '$1 == $2 { n++ } END { print n }')
"$NORMA" classify runs/reviews others.tsv --evaluate >report 2>err || fail "other labels: $(cat err)"
has err "the labels of 11 of 60 texts are not among the model's classes: ugly, worse (lines 1, 7, 9, 13 and 7 more); they count as errors"
has report "$(awk -v r="$right" 'BEGIN { printf "accuracy %.2f", 100 * r / 60 }')"
grep -qE '^ugly .* 0.00    0.00    0.00$' report || fail "no row for a label that is not a class: $(cat report)"
"$NORMA" classify runs/reviews others.tsv --evaluate --json --bootstrap 0 >report.json || fail "other labels as JSON"
perl -MJSON::PP -e '
    my $o = decode_json(join "", <>);
    my ($n, $m, $sum, @gold, @found) = (scalar @{$o->{classes}}, $o->{confusion}, 0);
    for my $g (0 .. $n - 1) { for my $f (0 .. $n - 1) { $gold[$g] += $m->[$g][$f]; $found[$f] += $m->[$g][$f] } }
    $sum += 2 * $m->[$_][$_] / ($gold[$_] + $found[$_]) for 0 .. $n - 1;
    exit !($n == 5 && $o->{unknown_labels} == 11 && $gold[3] == 10 && abs($o->{macro_f1} - 20 * $sum) < 1e-9)' report.json ||
    fail "macro-F1 with labels that are not classes: $(cat report.json)"
# Validation and test of a training: the loss is that of the other texts, and the score counts them.
awk -F '\t' '$1 != "ugly" && $1 != "worse"' others.tsv >known.tsv
for name in known others; do
    "$NORMA" train reviews.ini --data.valid "$name.tsv" --data.test "$name.tsv" --train.epochs 1 --run.folder "run-$name" 2>"err-$name" || fail "train with $name.tsv: $(cat "err-$name")"
    grep '"type":"valid"' "run-$name/log.jsonl" | grep -o '"loss":[0-9.]*' >"loss-$name"
    grep -o '"accuracy":[0-9.]*' "run-$name/log.jsonl" | tail -n 1 | cut -d : -f 2 >"score-$name"
done
has err-others '11 of 60 validation texts and 11 of 60 test texts have labels that do not occur in the training data (ugly, worse); they count as errors'
lacks err-known 'do not occur'
# Both warnings about the same data.
{ head -n 30 train.tsv; printf 'ugly\tnew text\n'; } >repeated.tsv
accepts 'they count as errors in scores, and are not part of losses. 30 of 31 texts of the validation set are also training texts' \
    train reviews.ini --data.valid repeated.tsv --train.updates 1 --run.folder run-repeated
[ -s loss-known ] || fail "the log has no validation loss"
same loss-known loss-others
awk -v k="$(cat score-known)" -v o="$(cat score-others)" 'BEGIN { exit !(k > 0 && o - k * 49 / 60 < 0.01 && k * 49 / 60 - o < 0.01) }' ||
    fail "accuracy $(cat score-known) of 49 texts, $(cat score-others) of 60"
"$NORMA" baseline reviews.ini --data.test others.tsv --only majority >out 2>err || fail "baseline with other labels: $(cat err)"
has err '11 of 60 test texts have labels'
for score in accuracy macro_f1; do
    accepts '|unknown labels:11' compare reviews.ini --compare.folder "others-$score" --norms layer --seeds 1 --train.epochs 1 \
        --data.score "$score" --data.test others.tsv
done

# ---- training from the CSV table gives the same model ----
"$NORMA" train reviews.ini --data.train train.csv --data.test test.csv --data.label stars --data.text review \
    --run.folder csv 2>err || fail "train from CSV: $(cat err)"
cmp -s <(tail -c 2000 runs/reviews/last.safetensors) <(tail -c 2000 csv/last.safetensors) || fail "CSV gave other weights"

# ---- macro-F1 as the score: validations, the best checkpoint, comparisons and baselines ----
awk -F '\t' '$1 != "bad" || ++n <= 9' train.tsv >rare.tsv
macro=(--data.train rare.tsv --data.score macro_f1)
"$NORMA" train reviews.ini "${macro[@]}" --run.folder macro 2>err || fail "macro-F1: $(cat err)"
grep -qE 'best at update [0-9]+: loss [0-9.]+, macro-F1 [0-9.]+ ' err || fail "macro-F1 is not the score: $(tail -n 1 err)"
has err '  accuracy '
[ "$(grep -c '"signature":"macro_f1|classes:3|' macro/log.jsonl)" = 6 ] || fail "the log has not 6 scores: $(head -c 600 macro/log.jsonl)"
# The first one of the highest scores.
perl -ne 'if (/"type":"valid","update":(\d+).*"macro_f1":([0-9.]+)/) { ($best, $at) = ($2, $1) if !defined $best || $2 > $best }
    END { print "best at update $at" }' macro/log.jsonl >best
has err "$(cat best):"
"$NORMA" compare reviews.ini "${macro[@]}" --norms layer,batch --train.epochs 2 --folder macro-compare --format json >macro.json 2>err ||
    fail "compare by macro-F1: $(cat err)"
for norm in layer batch; do
    "$NORMA" classify macro-compare/$norm-1 test.tsv --evaluate --json --bootstrap 0 >report.json || fail "evaluate --json"
    perl -MJSON::PP -0777 -e '($table, $report) = map { open my $in, "<", $_; decode_json(readline $in) } @ARGV[0, 1];
        ($one) = grep { $_->{norm} eq $ARGV[2] } @{$table->{runs}};
        exit !(abs($one->{macro_f1} - $report->{macro_f1}) < 1e-3 && $one->{low} < $one->{macro_f1} && $one->{macro_f1} < $one->{high})' \
        macro.json report.json $norm || fail "the score of $norm is another one: $(cat macro.json report.json)"
done
accepts 'macro-F1' baseline reviews.ini "${macro[@]}"
lacks out 'accuracy '

# ---- a joint dictionary of subwords ----
cut -f 2 train.tsv >words.en && cp words.en words.de
"$NORMA" prepare --train words --source-lang en --target-lang de --tokenizer none --bpe-merges 40 --output codes 2>err ||
    fail "prepare: $(cat err)"
"$NORMA" train reviews.ini --data.codes codes/codes.bpe --run.folder bpe --train.epochs 1 2>err || fail "BPE: $(cat err)"
rm -r codes
"$NORMA" classify bpe test.txt >labels.bpe 2>err || fail "BPE: $(cat err)"
[ "$(wc -l <labels.bpe)" = 60 ] || fail "BPE: not a label for every line"

# ---- comparison ----
"$NORMA" compare reviews.ini --norms layer,batch,rbn --train.epochs 2 --format json >compare.json 2>err || fail "compare: $(cat err)"
[ "$(grep -c '"accuracy":' compare.json)" = 3 ] || fail "not three accuracies: $(cat compare.json)"
grep -q '"tid_variance": null' compare.json && fail "no TID: $(cat compare.json)"
"$NORMA" compare reviews.ini --norms layer,batch,rbn --train.epochs 2 >table.txt 2>err || fail "compare again: $(cat err)"
grep -qE '^Test set, (layer|batch|rbn), seed 1:$' table.txt || fail "the run of the last lines is not named: $(cat table.txt)"
has table.txt "accuracy"
grep -q "ppl" table.txt && fail "a perplexity in the table: $(cat table.txt)"
"$NORMA" compare reviews.ini --norms layer --data.test= --compare.folder untested >table.txt 2>err && fail "compare: no test data is fine"
has err "data.test"
[ -e untested/layer-1 ] && fail "compare: trained though there is nothing to score"

# ---- reduced profile ----
"$NORMA" train reviews.ini --profile small 2>err || fail "train --profile small: $(cat err)"
[ "$(grep -c '"accuracy"' runs/reviews-small/log.jsonl)" = 1 ] || fail "the reduced profile does not train one epoch"
"$NORMA" compare reviews.ini --profile small --norms layer --data.batch 64 >table.small 2>err || fail "compare --profile small: $(cat err)"
[ "$(grep -c '"accuracy"' runs/reviews-small-compare/layer-1/log.jsonl)" = 1 ] || fail "compare: the reduced profile does not train one epoch"

# ---- settings by the size of the training data ----
texts=$(wc -l <train.tsv)
{ # of two sections that apply the later one wins; profiles and the command line take precedence
    cat reviews.ini
    printf '[size.%d]\ntrain.epochs = 2\nmodel.dropout = 0.2\n' $((texts + 1))
    printf '[size.%d]\nmodel.dropout = 0.3\ntrain.log_every = 7\n' "$texts"
    printf '[size.%d]\nmodel.dropout = 0.4\n' $((texts - 1))
} >sized.ini
"$NORMA" train sized.ini --train.log-every 6 2>err || fail "train with sections of sizes: $(cat err)"
has err "norma: $texts texts for training: the recipe sets model.dropout = 0.3, train.epochs = 2"
for line in 'epochs = 2 ; size' 'dropout = 0.3 ; size' 'log_every = 6 ; command line'; do has runs/sized/config.ini "$line"; done
"$NORMA" train sized.ini --train.log-every 6 --resume 2>err || fail "resume with sections of sizes: $(cat err)"
# The printed command that continues a run does not contain its data; the recipe without that data.
"$NORMA" train sized.ini --data.train sized.tsv 2>err && fail "trained without data"
cp train.tsv sized.tsv
"$NORMA" train sized.ini --data.train sized.tsv --run.folder moved 2>err || fail "train with other data: $(cat err)"
sed 's/^train = .*/train = absent.tsv/' sized.ini >without.ini
"$NORMA" train without.ini --run.folder moved --resume 2>err || fail "resume without the data of the recipe: $(cat err)"
has err "norma: $texts texts for training: the recipe sets model.dropout = 0.3, train.epochs = 2"
lacks err 'the recipe has changed'
mv sized.tsv elsewhere.tsv
"$NORMA" train sized.ini --run.folder moved --resume 2>err && fail "resumed without the data of the run"
has err 'sized.tsv: No such file'
mv elsewhere.tsv sized.tsv
"$NORMA" train sized.ini --profile small 2>err || fail "train with a size and a profile: $(cat err)"
has runs/sized-small/config.ini 'epochs = 1 ; profile'
"$NORMA" compare sized.ini --norms layer --seeds 1 >table.sized 2>err || fail "compare with sections of sizes: $(cat err)"
has runs/sized-compare/layer-1/config.ini 'dropout = 0.3 ; size'
sed "s/size.$texts/size.many/" sized.ini >many.ini
refuses 4 '[size.many]: expected [size.N] with a positive number N' train many.ini

# ---- n-grams weighted by inverse document frequencies ----
"$NORMA" train reviews.ini --run.folder idf --train.epochs 1 --model.ngram-dim 4 --model.ngram-weights idf 2>err ||
    fail "train with weighted n-grams: $(cat err)"
tensor() { # NAME FILE: its floats, one on each line
    perl -e 'my $name = shift; binmode STDIN; local $/; my $file = <STDIN>; my $n = unpack "Q<", $file;
        my ($from, $to) = substr($file, 8, $n) =~ /"\Q$name\E":\{"dtype":"F32","shape":\[[\d,]*\],"data_offsets":\[(\d+),(\d+)/
            or die "no tensor $name\n";
        printf "%.5f\n", $_ for unpack "f<*", substr $file, 8 + $n + $from, $to - $from;' "$1" <"$2"
}
tensor ngrams.words_idf idf/best.safetensors | sort -n >weights || fail "no weights"
# 0: a word that is in no training text (<unk>); 1: <s>, in all texts; the largest: words in one text
perl -e 'my ($texts, @w) = (shift, map { $_ + 0 } <STDIN>); my $once = sprintf "%.5f", 1 + log((1 + $texts) / 2);
    exit !($w[0] == 0 && (grep { $_ == 1 } @w) >= 2 && $w[-1] <= $once && !grep { $_ > 0 && $_ < 1 } @w)' \
    "$texts" <weights || fail "inverse document frequencies: $(uniq -c weights | head -n 3) ... $(tail -n 1 weights)"
"$NORMA" classify idf test.tsv --evaluate >out 2>err || fail "classify with weighted n-grams: $(cat err)"
has out "accuracy"
refuses 2 "classify.bootstrap = 50 has no effect with classify.evaluate = false" classify idf test.tsv --bootstrap 50
refuses 2 "classify.probabilities = true has no effect" classify idf test.tsv --evaluate --probabilities
refuses 2 "data.label = 2 has no effect with data.format = lines" classify idf test.tsv --format lines --label 2
cp test.tsv table # read as lines, because of its name
refuses 2 "data.header has no effect: the name of table does not end in" classify idf table --header yes
refuses 2 "the vector of a text has no part for n-grams" train reviews.ini --run.folder none --model.ngram-weights idf

# ---- a logistic regression belonged to the model in earlier versions ----
refuses 2 'unknown option model.logistic_buckets: classifiers contain no logistic regression any more' train reviews.ini \
    --run.folder none --model.logistic-buckets 2000
{ cat reviews.ini && printf '[model]\nlogistic_buckets = 2000\n'; } >old.ini
refuses 7 'model.logistic_buckets = 2000: classifiers contain no logistic regression any more' train old.ini --run.folder none
sed -i 's/= 2000/= 0/' old.ini
accepts 'done: 1 update,' train old.ini --run.folder old --train.updates 1

awk 'BEGIN { for (i = 0; i < 40; i++) print (i % 2 ? "good\tfine" : "bad\tdull") (i < 7 ? " a b c d" : "") }' >lengths.tsv
"$NORMA" train reviews.ini --run.folder cut --train.updates 1 --data.train lengths.tsv --data.test= --data.valid= --data.valid_fraction 0 \
    --data.max_length 6 2>err || fail "train with long texts: $(cat err)"
has err 'norma: 7 of 40 training texts have more than 6 tokens and are truncated (data.max_length)'

{ cat lengths.tsv && printf 'rare\tonly once\n'; } >rare.tsv
"$NORMA" train reviews.ini --run.folder rare --train.updates 1 --data.train rare.tsv --data.valid lengths.tsv --data.test= 2>err ||
    fail "train with a rare class: $(cat err)"
has err 'norma: 1 of 3 classes have no validation text: "rare"'
lacks err 'no training text'

# ---- help ----
"$NORMA" classify --help >help || fail "help"
has help "--evaluate"
"$NORMA" train --help all --run.task classification >help || fail "help of the task"
has help "--data.valid_fraction"
