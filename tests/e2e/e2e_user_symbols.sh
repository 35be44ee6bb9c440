#!/bin/bash
# User-defined symbols: tags of languages and placeholders are one token in the text of norma prepare, the filters and the
# translations, with BPE, with words and with SentencePiece.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# Two directions in one model; the placeholder __NUM__ adjoins other characters, and ｟url｠ does not occur in training.
make_pairs one 150 1
make_pairs two 40 2
for name in one two; do
    { sed 's/^/<2en> /; s/ hund/ (__NUM__)hund/' $name.de && sed 's/^/<2de>/; s/ dog/ (__NUM__)dog/' $name.en; } >$name.from
    { sed 's/ dog/ (__NUM__)dog/' $name.en && sed 's/ hund/ (__NUM__)hund/' $name.de; } >$name.to
done
symbols='<2en>,<2de>,__NUM__,｟url｠'
common=(prepare --train one.from:one.to --valid two.from:two.to --source-lang de --target-lang en)
printf '%s\n' '<2de>a __NUM__, ｟url｠.' '' '<2DE> __num__' >text
accepts written "${common[@]}" --bpe-merges 60 --user-symbols "$symbols" --output bpe
accepts written "${common[@]}" --bpe-merges 0 --user-symbols "$symbols" --output words
for name in bpe words; do
    for symbol in '<2en>' '<2de>' '__NUM__' '｟url｠'; do
        [ "$(grep -cF -- "$symbol" $name/dict.source.txt)" = 1 ] || fail "$symbol is not once in the dictionary of $name"
    done
    has $name/valid.source.words '<2en> '
    has $name/valid.target.words '( __NUM__ )'
done
for part in 2de NUM url __; do
    lacks bpe/codes.bpe "$part"
done
"$NORMA" tokenize --like bpe text >got
same got - <<'X'
<2de> a __NUM__ , ｟url｠ .

&lt; 2DE &gt; _ _ num _ _
X
"$NORMA" tokenize --user-symbols "$symbols" text >tokens
same got tokens
"$NORMA" subword --like bpe text | sed -n 1p >got
same got - <<<'<2de> a __NUM__ , ｟url｠ .'
"$NORMA" subword --like bpe text | "$NORMA" subword --like bpe --undo | sed -n 1p >got
same got - <<<'<2de> a __NUM__, ｟url｠.'
accepts written prepare --like bpe --train one.from:one.to --valid two.from:two.to --output again
same bpe/train.source.ids again/train.source.ids
has again/data.ini "user_symbols = $symbols ; profile"
# With BPE-dropout, the dictionary does not have parts of symbols.
accepts written "${common[@]}" --bpe-merges 60 --user-symbols "$symbols" --subword-sampling true --output sampled
lacks sampled/dict.source.txt '_@@'

# Translations contain them as they are.
write_recipe mt.ini run.task=translation model.preset=tiny model.width=24 model.ff=32 train.updates=30 train.max_tokens=256 \
    train.score=false schedule.lr=0.005 schedule.warmup=4 device.threads=1
try train mt.ini --data.folder sampled --run.folder run --run.quiet --data.subword-dropout 0.2
[ "$got" = 0 ] || fail "train: $(cat err)"
printf '<2de> a dog\n<2en> haus __NUM__.\n' >input
printf '__NUM__ \n__NUM__ ｟url｠\n' >prefix
try translate run input --prefix prefix --output-format subword --output hypothesis
[ "$got" = 0 ] || fail "translate: $(cat err)"
cut -d ' ' -f 1 hypothesis >got
same got - <<<$'__NUM__\n__NUM__'
sed -n '2s/\(｟url｠\).*/\1/p' hypothesis >got
same got - <<<'__NUM__ ｟url｠'

# --- refusals, and SentencePiece -------------------------------------------------------------------------------------------
refuses 2 'special symbol' "${common[@]}" --user-symbols '<s>' --output no
refuses 2 'with lowercase, they must be in lower case' "${common[@]}" --user-symbols "$symbols" --lowercase --output no
refuses 2 'byte-level BPE has no user-defined symbols' "${common[@]}" --user-symbols "$symbols" --tokenizer byte_level --output no
refuses 2 'has its own' "${common[@]}" --user-symbols "$symbols" --tokenizer sentencepiece --spm-model m.model --output no
refuses 2 'cannot be combined with prepare.like' prepare --like bpe --user-symbols a --train one.from:one.to --output no
refuses 2 'nothing is tokenized' detokenize text --user-symbols a
refuses 2 'no effect with this tokenizer' tokenize text --tokenizer byte_level --user-symbols a
[ ! -e no ] || fail 'a folder in spite of a refusal'
if command -v spm_train >/dev/null; then
    accepts written "${common[@]}" --tokenizer sentencepiece --spm-vocab-size 330 --user-symbols "$symbols" --output pieces
    "$NORMA" subword --like pieces text | sed -n 1p >got
    has got '<2de>'
    has got '__NUM__ '
    has got '｟url｠ '
fi
echo "e2e_user_symbols: passed"
