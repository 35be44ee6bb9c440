#!/bin/bash
# Guided alignment: word alignments through norma prepare with its filters, held-out pairs, BPE and SentencePiece; a head that
# learns them; resume; clear messages for bad alignments.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

prepare() { # OUTPUT OPTION...
    local output=$1
    shift
    "$NORMA" prepare --source-lang de --target-lang en --output "$output" --threads 2 "$@" 2>report || fail "prepare: $(cat report)"
}

# Links of the subwords of a data folder: "SUBWORD=SUBWORD ..." for each training pair.
show_links() { # FOLDER
    perl -e 'my $folder = shift;
        sub numbers {
            my ($name, $type, @all) = @_;
            open my $file, "<:raw", "$folder/$name" or die "$name\n";
            local $/;
            return unpack "$type*", substr(<$file>, 64);
        }
        sub lines {
            my @numbers = numbers("$_[0].ids", "l<");
            my @ends = numbers("$_[0].off", "Q<");
            return map { [@numbers[$ends[$_] .. $ends[$_ + 1] - 1]] } 0 .. $#ends - 1;
        }
        my @names;
        for my $side ("source", "target") {
            open my $file, "<", "$folder/dict.$side.txt";
            push @names, [qw(<s> <pad> </s> <unk>), map { (split)[0] } <$file>];
        }
        my @source = lines("train.source");
        my @target = lines("train.target");
        my @links = lines("train.alignment");
        die "@{[scalar @links]} of @{[scalar @source]} lines\n" if @links != @source;
        for my $i (0 .. $#links) {
            my ($s, $t, @l) = ($source[$i], $target[$i], @{$links[$i]});
            print join(" ", map { $names[0][$s->[$l[2 * $_ + 1]]] . "=" . $names[1][$t->[$l[2 * $_]]] } 0 .. $#l / 2), "\n";
        }' "$1"
}

# ---- links of tokens and subwords: punctuation, escapes, several links of a word, no links, dropped and empty lines ----
cat >small.de <<'X'
Das ist „gut“, A&B !
ja

eins zwei drei vier fünf sechs
nein danke
X
cat >small.en <<'X'
this is "good", A&B !
yes

one
no thanks
X
printf '0-0 1-1 2-2 3-3 4-4\n0-0\n\n0-0 5-0\n1-0 0-1 1-0\n' >small.links
prepare tokens --train small --alignments small.links --tokenizer moses --bpe-merges 0 --joint false --ratio 5
cat >expected <<'X'
Das=this ist=is „=&quot; gut=&quot; “=&quot; ,=&quot; „=good gut=good “=good ,=good „=&quot; gut=&quot; “=&quot; ,=&quot; „=, gut=, “=, ,=, A=A &amp;=A B=A A=&amp; &amp;=&amp; B=&amp; A=B &amp;=B B=B !=!
ja=yes
danke=no nein=thanks
X
show_links tokens | sed 's/A&amp;B/A/' >links
same links expected
has report 'alignments: '
prepare pieces --train small --alignments small.links --tokenizer none --bpe-merges 1 --ratio 5
show_links pieces | sed -n 2p >links
echo 'j@@=y@@ a=y@@ j@@=e@@ a=e@@ j@@=s a=s' >expected
same links expected
prepare tokens --train small --tokenizer none --bpe-merges 0 # without alignments: those of before are removed
[ ! -e tokens/train.alignment.ids ] || fail "alignments of an earlier preparation"

# ---- links of tokens: those of the same text that was tokenized before ----
"$NORMA" tokenize small.de --language de >token.de && "$NORMA" tokenize small.en --language en >token.en || fail "norma tokenize"
printf '0-0 2-2 3-3 4-4 6-6 8-8 9-9\n0-0\n\n0-0 5-0\n1-0 0-1 1-0\n' >token.links
prepare before --train token --alignments token.links --tokenizer none --bpe-merges 3 --ratio 5
prepare linked --train small --alignments token.links --alignment-words tokens --tokenizer moses --bpe-merges 3 --ratio 5
same linked/train.source.ids before/train.source.ids
same linked/train.alignment.ids before/train.alignment.ids
show_links linked | head -n 1 >links
grep -q '„=&@@ „=q@@ „=uot; g@@=g@@ .*“=uot; A=A B=B !=!$' links || fail "links of tokens: $(cat links)"

# ---- pairs that are held out, and several sources ----
make_pairs pairs 300 1
make_pairs more 100 2
links() { awk '{ for (i = 0; i < NF; i++) printf "%s%d-%d", i ? " " : "", i, i; print "" }' "$@"; }
links pairs.de more.de >both.links
prepare held --train pairs,more --alignments both.links --valid-every 7 --tokenizer none --bpe-merges 0 --joint false
show_links held | tr ' ' '\n' | sort -u >links
printf '%s\n' .=. baum=tree blau=blue grün=green haus=house hund=dog katze=cat läuft=runs rot=red singt=sings \
    springt=jumps | LC_ALL=C sort >expected
LC_ALL=C sort -o links links
same links expected
gzip -k both.links
prepare again --train pairs,more --alignments both.links.gz --valid-every 7 --tokenizer none --bpe-merges 0 --joint false
same again/train.alignment.ids held/train.alignment.ids

# ---- messages ----
refused() { # CODE TEXT; alignments in bad.links
    refuses "$1" "$2" prepare --train small --alignments bad.links --source-lang de --target-lang en --output bad
}
printf '0-0\n0-0\n\n0-0\n0:0\n' >bad.links
refused 4 'bad.links:5: "0:0" is not a link SOURCE-TARGET'
printf '0-0\n1-0\n\n0-0\n0-0\n' >bad.links
refused 4 'bad.links:2: link 1-0: the source has 1 words and the target 1'
printf '0-0\n0-0\0\n\n0-0\n0-0\n' >bad.links
refused 4 'bad.links:2: not text'
printf '0-0\n0-0\n\n' >bad.links
refused 5 'bad.links: has 3 lines, but the training text has more pairs'
printf '0-0\n0-0\n\n0-0\n0-0\n0-0\n' >bad.links
refused 5 'bad.links: has more lines than the training text, which has 5 pairs'
printf '0-0\n0-0\n\n0-0\n2-0\n' >bad.links
refuses 4 'bad.links:5: link 2-0: the source has 2 words and the target 2' prepare --train small --alignments bad.links \
    --alignment-words tokens --source-lang de --target-lang en --output bad
refuses 2 'there are no alignments' prepare --train small --alignment-words tokens --source-lang de --target-lang en --output bad
refuses 2 'SentencePiece has no tokens' prepare --train small --alignments small.links --alignment-words tokens \
    --tokenizer sentencepiece --source-lang de --target-lang en --output bad
refuses 3 'none.links' prepare --train small --alignments none.links --source-lang de --target-lang en --output bad
refuses 2 'prepare.alignments = bad.links has no effect with prepare.format = text: plain text has no pairs' \
    prepare --format text --train small.de --alignments bad.links --output bad
refuses 2 'prepare.alignments = bad.links has no effect with prepare.train = : there is no training text' \
    prepare --valid small --alignments bad.links --source-lang de --target-lang en --output bad
[ ! -e bad ] || fail "a folder of a failed preparation"

# ---- a head that learns alignments, which the others do not have: the source in another order, links of the same position ----
make_pairs train 1500 3
make_pairs valid 40 4
links train.de >train.links
prepare data --train train --valid valid --alignments train.links --tokenizer none --bpe-merges 20
write_recipe small.ini data.folder=data data.max_length=60 model.width=32 model.ff=32 model.heads=2 \
    model.encoder_layers=1 model.decoder_layers=2 model.max_positions=64 model.norm=layer model.dropout=0 \
    model.embedding_dropout=0 train.updates=150 train.max_tokens=500 train.score=false schedule.lr=0.005 \
    schedule.warmup=20 device.threads=1
train() { # FOLDER OPTION...
    local folder=$1
    shift
    "$NORMA" train small.ini --run.folder "$folder" --run.quiet "$@" 2>err || fail "train: $(cat err)"
}
right_links() { # RUN: links of a word to the word in the same place, in percent
    "$NORMA" rescore "$1" valid.de valid.en --alignment | sed 's/.*||| //' | tr ' ' '\n' |
        awk -F - '{ n++; right += $1 == $2 } END { printf "%d\n", 100 * right / n }'
}
train plain
guided=(--model.alignment-head 2 --data.alignment-weight 3)
train guided "${guided[@]}"
before=$(right_links plain) after=$(right_links guided)
[ "$after" -ge 90 ] && [ "$before" -lt 70 ] || fail "right links: $before % without guided alignment, $after % with it"
[ "$("$NORMA" rescore guided valid.de valid.en --alignment --alignment-layer 1 --alignment-head 2 | md5sum)" = \
    "$("$NORMA" rescore guided valid.de valid.en --alignment | md5sum)" ] || fail "the trained head is not the default"
grep -q '"penalty":0.0,' plain/log.jsonl || fail "a penalty without guided alignment"
grep -q '"type":"train".*"penalty":0.0,' guided/log.jsonl && fail "no penalty with guided alignment"

# ---- the same weights after a resume, with two threads, and with activation checkpointing ----
weights() { perl -0777 -ne '$n = unpack "Q<", $_; print substr($_, 8 + $n)' "$1/last.safetensors" | md5sum; }
train threads "${guided[@]}" --device.threads 2
train checkpointed "${guided[@]}" --train.activation-checkpointing layer
train resumed "${guided[@]}" --train.updates 70
train resumed --resume --train.updates 150
for run in threads checkpointed resumed; do
    [ "$(weights guided)" = "$(weights $run)" ] || fail "other weights: $run"
done
# Other alignments are other training data, for a run that learns them; the text is the same.
sed 's/[0-9]*-\([0-9]*\)/0-\1/g' train.links >first.links
prepare other --train train --valid valid --alignments first.links --tokenizer none --bpe-merges 20
cmp -s data/train.target.ids other/train.target.ids || fail 'other alignments give other ids'
refuses 5 'the run was trained on other data' train --run.folder resumed --resume --data.folder other --train.updates 160
train plain --resume --data.folder other --train.updates 160
# In bf16, activations are stored in bf16, except those that guided alignment reads in float.
train stored "${guided[@]}" --train.updates 20 --device.precision bf16
train recomputed "${guided[@]}" --train.updates 20 --device.precision bf16 --train.activation-checkpointing layer
[ "$(weights stored)" = "$(weights recomputed)" ] || fail "other weights with checkpointing in bf16"

refuses 2 'has no word alignments' train small.ini --run.folder none --data.folder tokens --model.alignment-head 1
refuses 2 'the model has 2 heads and 2 decoder layers' train small.ini --run.folder none --model.alignment-head 3
refuses 2 'data.alignment_weight' train small.ini --run.folder none --data.alignment-weight 1
refuses 2 'model.alignment_layer' train small.ini --run.folder none --model.alignment-layer 1
exit "$failures"
