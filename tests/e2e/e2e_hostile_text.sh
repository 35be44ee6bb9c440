#!/bin/bash
# Hostile text and options: errors of norma prepare, norma score and the configuration.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

make_data

# ---- the command line

refuses 2 'the most similar one is prepare' prepear
refuses 2 'unknown command' ''
refuses 2 'unknown command' "$(printf 'two\nlines')"
refuses 2 'unknown command' "$(printf '\033[2Jtrain')"
refuses 2 'unknown command' "$(head -c 100000 /dev/zero | tr '\0' x)"
refuses 2 'most similar one is prepare.output' prepare --outptu x
refuses 2 'unknown option' prepare --=x
refuses 2 'unknown option' prepare --.=x
refuses 2 'unknown option -x' prepare -x
refuses 2 'needs a value' prepare --output
refuses 2 'needs a value' prepare --output --train x
refuses 2 'no output folder' prepare --output=
refuses 2 'unknown option' prepare "--$(head -c 100000 /dev/zero | tr '\0' y)=1"
refuses 2 'prepare: unexpected argument b; usage' prepare a b
refuses 2 'too few arguments' train
refuses 2 'train: unexpected argument other.ini; usage' train recipe.ini other.ini
refuses 2 'too few arguments' score
refuses 2 'unknown command' help prepear
refuses 2 'expected an integer' prepare "${prepare_arguments[@]}" --output o --bpe-merges 1.5
refuses 2 'expected an integer' prepare "${prepare_arguments[@]}" --output o --bpe-merges many
refuses 2 'expected an integer' prepare "${prepare_arguments[@]}" --output o --bpe-merges ''
refuses 2 'expected an integer' prepare "${prepare_arguments[@]}" --output o --bpe-merges 99999999999999999999999999999e999
refuses 2 'outside' prepare "${prepare_arguments[@]}" --output o --bpe-merges -1
refuses 2 'outside' prepare "${prepare_arguments[@]}" --output o --bpe-merges 1e300
refuses 2 'expected a number' prepare "${prepare_arguments[@]}" --output o --ratio nan
refuses 2 'expected a number' prepare "${prepare_arguments[@]}" --output o --ratio inf
refuses 2 'prepare.ratio = 0.5: expected 0 or at least 1' prepare "${prepare_arguments[@]}" --output o --ratio 0.5
refuses 2 'true or false' prepare "${prepare_arguments[@]}" --output o --lowercase=perhaps
refuses 2 'expected one of none|moses' prepare "${prepare_arguments[@]}" --output o --tokenizer mouse
refuses 2 'prepare.max_length is below prepare.min_length' prepare "${prepare_arguments[@]}" --output o --min-length 9 --max-length 3
refuses 2 'must not contain a newline' prepare "${prepare_arguments[@]}" --output "$(printf 'a\nb')"
refuses 2 'start or end with whitespace' prepare "${prepare_arguments[@]}" --output ' data'
refuses 2 'contain ; after whitespace' prepare "${prepare_arguments[@]}" --output 'a ;b'
refuses 2 'two different languages' prepare "${prepare_arguments[@]}" --output o --target-lang xx
refuses 2 'no text given' prepare --source-lang xx --target-lang yy --output o
refuses 2 'no output folder' prepare "${prepare_arguments[@]}"
refuses 2 'dictionaries are required' prepare --valid valid --source-lang xx --target-lang yy --output o

# ---- configuration files

ini() { # ini TEXT: printf syntax
    printf "$1" >bad.ini
}
ini '[prepare]\noutptu = x\n'
refuses 2 'bad.ini:2: unknown option prepare.outptu; the most similar one is prepare.output' prepare bad.ini
ini '\n\n[prepare]\nbpe_merges = 2x\n'
refuses 2 'bad.ini:4: prepare.bpe_merges = 2x' prepare bad.ini
ini '[prepare]\nthreads = 5000\n'
refuses 2 'bad.ini:2: prepare.threads = 5000: outside 0 .. 1024' prepare bad.ini
ini '[prepare]\nwhat is this\n'
refuses 4 'bad.ini:2: expected [section] or name = value' prepare bad.ini
ini '[prepare\noutput = x\n'
refuses 4 'bad.ini:1: expected' prepare bad.ini
ini '[]\noutput = x\n'
refuses 2 'bad.ini:2: unknown option' prepare bad.ini
ini '= x\n'
refuses 2 'bad.ini:1: unknown option' prepare bad.ini
ini 'include = absent.ini\n'
refuses 3 'bad.ini:1: absent.ini: No such file' prepare bad.ini
ini 'include = bad.ini\n'
refuses 2 'included files are nested more than' prepare bad.ini
ini 'include = \n'
refuses 3 'bad.ini:1: ' prepare bad.ini
ini 'include = .\n'
refuses 3 'is a folder' prepare bad.ini
ini '[prepare]\noutput = a\\0b\n'
printf '[prepare]\noutput = a\0b\n' >bad.ini
refuses 4 'bad.ini:2: contains a zero byte' prepare bad.ini
printf '\xef\xbb\xbf[prepare]\nbpe_merges = 5\n' >bad.ini
accepts 'written in' prepare bad.ini "${prepare_arguments[@]}" --output o
printf '[prepare]\r\nmin_length = 2\r\n' >bad.ini
accepts 'written in' prepare bad.ini "${prepare_arguments[@]}" --output o
{ printf '[prepare]\ncodes = '; head -c 300000 /dev/zero | tr '\0' z; } >bad.ini
refuses 3 'File name too long' prepare bad.ini "${prepare_arguments[@]}" --output o --bpe-merges 0
head -c 4096 "$NORMA" >bad.ini
refuses 4 'bad.ini' prepare bad.ini
refuses 3 'absent.ini: No such file' prepare absent.ini
refuses 3 '.: is a folder' prepare .
refuses 3 'absent.ini: No such file' train absent.ini
: >bad.ini
refuses 2 'no output folder' prepare bad.ini

# ---- text

text() { # text SIDE TEXT: writes t.SIDE, printf syntax
    printf "$2" >"t.$1"
}
refuses_text() {
    local code=$1 text=$2
    shift 2
    refuses "$code" "$text" prepare --train t --source-lang xx --target-lang yy --tokenizer none --bpe-merges 5 --output o "$@"
}
accepts_text() {
    local text=$1
    shift
    accepts "$text" prepare --train t --source-lang xx --target-lang yy --tokenizer none --bpe-merges 5 --output o "$@"
}
text xx 'a b\nc d\n'
text yy 'a b\nc d\n'
accepts_text 'train: 2 pairs read, 2 kept'
rm t.xx
refuses_text 3 't.xx: No such file'
mkdir t.xx
refuses_text 3 't.xx: is a folder'
rmdir t.xx
: >t.xx
refuses_text 5 't.xx has 0 lines but t.yy has 2'
: >t.yy
refuses_text 5 't: the filters left no pair of lines for training (0 read)'
text xx '\n\n\n'
text yy '\n\n\n'
refuses_text 5 't: the filters left no pair of lines for training (3 read: 3 empty)'
text xx '   \n \n'
text yy 'a\nb\n'
refuses_text 5 't: the filters left no pair of lines for training (2 read: 2 empty)'
text xx 'a b\n\n   \nc'
text yy 'a b\nx\ny\nc d'
accepts_text 'train: 4 pairs read, 1 kept, 3 dropped: 2 empty, 1 length ratio' --ratio 1.5
text xx 'a b\nc d\ne\n'
text yy 'a b\nc d\n'
refuses_text 5 't.xx has 3 lines but t.yy has 2'
text yy 'a b\nc d\ne\nf\n'
refuses_text 5 't.xx has 3 lines but t.yy has 4'
text yy 'a b\nc \xff\ne\n'
refuses_text 4 't.yy:2: not UTF-8: byte 0xff at position 3'
accepts_text '1 invalid' --on-invalid skip
for bytes in '\x80' '\xc0\xaf' '\xe2\x82' '\xed\xa0\x80' '\xf4\x90\x80\x80' '\xf8\x88\x80\x80\x80' '\xfe' 'a\xc3'; do
    text yy "a b\nc d\n$bytes\n"
    refuses_text 4 't.yy:3: not UTF-8'
done
text yy 'a b\nc \0d\ne\n'
refuses_text 4 't.yy:2: not text: byte 0x00 at position 3'
text yy 'a b\r\nc d\r\ne\r\n'
accepts_text '3 kept'
grep -q "$(printf '\r')" o/dict.target.txt && fail "carriage returns in the dictionary"
text yy '\xef\xbb\xbfa b\nc d\ne\n'
accepts_text '3 kept'
text yy '<s> </s>\n<pad> <unk>\n@@\n'
accepts_text '3 kept'
text yy 'a\x01\x02 b\nc\x7f d\ne\n'
accepts_text '3 kept'
head -c 10000000 /dev/zero | tr '\0' 'x' >long
{ cat long; printf '\nc d\ne\n'; } >t.yy
accepts_text '1 too long'
perl -e 'print "wort " x 2000000, "\nc d\ne\n"' >t.yy
accepts_text '1 too long'
text yy 'a b\nc d\ne\n'
{ cat long; printf '\n'; } >v.xx
{ cat long; printf '\n'; } >v.yy
accepts_text 'valid: 1 pairs read, 1 kept' --valid v
head -c 5000000 /dev/zero >t.yy
refuses_text 5 't.xx has 3 lines but t.yy has 1'
head -c 300000 "$NORMA" >t.yy
refuses_text 4 't.yy:1: not text: byte 0x00'
printf '\x1f\x8b\x08\x00abc\n' >t.yy
refuses_text 4 't.yy:1: reading failed: the compressed data is damaged or truncated'
rm t.yy
: >t.yy.gz
refuses_text 5 't.yy.gz has 0'
rm t.yy.gz
ln -s t.yy t.yy
refuses_text 3 't.yy: '
rm t.yy
text yy 'a b\nc d\ne\n'
refuses_text 3 'absent.xx: No such file' --valid absent
text xx 'a "b" & <c> [d] \xe2\x80\x9ce\xe2\x80\x9d ... 1,000.5 a@-@b\nc|d\n\xf0\x9f\x98\x80 \xcc\x81\n'
accepts_text '3 kept' --tokenizer moses --ratio 0 --lowercase

# ---- given codes and dictionaries

text xx 'a b\nc d\n'
text yy 'a b\nc d\n'
codes() {
    printf "$1" >codes
    refuses_text 4 "$2" --bpe-merges 0 --codes codes
}
codes '' 'codes: empty'
codes '#version: 0.3\na b\n' 'codes:1: unknown version'
codes '#version: 0.2\na\n' 'codes:2: expected two symbols'
codes '#version: 0.2\na b c d\n' 'codes:2: expected two symbols'
codes '#version: 0.2\na b\n\nc d\n' 'codes:3: '
codes '#version: 0.2\na \xff\n' 'codes:2: not UTF-8'
codes '#version: 0.2\na \0b\n' 'codes:2: contains a zero byte'
codes 'a b 3\nc d x\n' 'codes:2: the third field is not a count'
codes 'a b 99999999999999999999\n' 'codes:1: the third field is not a count'
codes 'a b 3\nc d\n' 'codes:2: expected "left right count"'
perl -e 'print "#version: 0.2\n", "a" x 70000, " b\n"' >codes
refuses_text 4 'codes:2: ' --bpe-merges 0 --codes codes
refuses_text 4 'long:1: ' --bpe-merges 0 --codes long
refuses_text 3 'absent: No such file' --bpe-merges 0 --codes absent
refuses_text 3 'is a folder' --bpe-merges 0 --codes .
dict() {
    printf "$1" >dict
    refuses_text 4 "$2" --dict-source dict
}
dict 'a\n' 'dict:1: expected "symbol count"'
dict 'a 1\nb x\n' 'dict:2: expected'
dict 'a 1\nb -5\n' 'dict:2: expected'
dict 'a 1\n b\n' 'dict:2: expected'
dict 'a 1\n\nb 2\n' 'dict:2: expected'
dict 'a 1\nb 99999999999999999999\n' 'dict:2: expected'
dict 'a 1\nb 2\na 3\n' 'dict:3: duplicate symbol "a"'
dict 'a 1\n<unk> 5\n' 'dict:2: <unk> is a special symbol, which a dictionary does not list'
dict 'a 1\n\xff 2\n' 'dict:2: not UTF-8'
dict 'a 1\nb\0 2\n' 'dict:2: contains a zero byte'
dict 'a 1\nb\033[2J\n' 'dict:2: expected'
perl -e 'print "a" x 70000, " 1\n"' >dict
refuses_text 4 'dict:1: symbol of 70000 bytes' --dict-source dict
refuses_text 3 'absent: No such file' --dict-source absent

# ---- score

printf 'a b\nc d\n' >two
printf 'a b\nc d\ne\n' >three
: >empty
refuses 5 'two has 2 lines, three has 3' score bleu two --reference three
refuses 4 'empty: ' score bleu empty --reference empty
printf 'a\n\xfe\n' >broken
refuses 4 'broken:2: not UTF-8' score chrf broken --reference two
printf '\0\nb\n' >broken
refuses 4 'broken:1: ' score bleu two --reference broken
input=two refuses 5 'has 2 lines' score bleu --reference three
refuses 5 'standard input has 0 lines, two has 2' score bleu --reference two
refuses 3 'absent: No such file' score bleu two --reference absent
refuses 3 'is a folder' score bleu . --reference two
refuses 2 'available: bleu, chrf' score rouge two --reference two
refuses 2 'no --reference' score bleu two
refuses 2 'outside' score chrf two --char-order 99 --reference two
refuses 2 'outside' score bleu two --bootstrap -5 --reference two
{ cat long; printf '\n'; } >one
accepts 'BLEU' score bleu one --reference one --bootstrap 0
printf '\n\n' >blank
accepts '= 0.0 0.0/0.0/0.0/0.0 (BP = 0.000' score bleu blank --reference two --bootstrap 10
accepts 'chrF' score chrf two --reference blank --bootstrap 10

# ---- outputs that cannot be written

refuses 3 'recipe.ini/o: Not a directory' prepare "${prepare_arguments[@]}" --output recipe.ini/o
refuses 3 'recipe.ini: ' prepare "${prepare_arguments[@]}" --output recipe.ini
fresh data sealed
rm sealed/train.source.ids sealed/dict.source.txt && mkdir sealed/train.source.ids sealed/dict.source.txt
refuses 3 'train.source.ids: ' prepare "${prepare_arguments[@]}" --output sealed
rmdir sealed/train.source.ids
refuses 3 'dict.source.txt: is a folder' prepare "${prepare_arguments[@]}" --output sealed
[ ! -e sealed/data.ini ] || fail "a folder that is not complete has a data.ini"
rmdir sealed/dict.source.txt
printf 'left over' >sealed/codes.bpe
accepts 'written' prepare "${prepare_arguments[@]}" --bpe-merges 0 --output sealed
[ ! -e sealed/codes.bpe ] || fail "codes of another preparation are not removed"
mkdir readonly
cp -r data readonly/data
chmod -R a-w readonly
chmod 755 .
powerless=() # root may write everywhere, so these cases run without root privileges
[ "$(id -u)" != 0 ] || powerless=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if "${powerless[@]}" "$NORMA" --version >out 2>&1; then
    for output in readonly/o readonly/data; do
        cases=$((cases + 1)) got=0
        "${powerless[@]}" "$NORMA" prepare "${prepare_arguments[@]}" --output $output >out 2>err || got=$?
        check_failure 3 "$output" "prepare into $output, which is read-only"
        grep -q 'Permission denied' err || fail "no message about permissions: $(cat err)"
    done
    cases=$((cases + 1)) got=0
    "${powerless[@]}" "$NORMA" train recipe.ini --run.folder readonly/run >out 2>err || got=$?
    check_failure 3 'readonly/run: Permission denied' 'train into a read-only folder'
else
    echo "no user without power: read-only folders are not tried"
fi
chmod -R u+w readonly
refuses 3 '/proc/norma' prepare "${prepare_arguments[@]}" --output /proc/norma

# A file-size limit simulates a full disk: the old folder does not change.
fresh data full
make_text many 3000 5
cases=$((cases + 1))
got=0
(ulimit -f 8; exec "$NORMA" prepare --train many --source-lang xx --target-lang yy --tokenizer none \
    --bpe-merges 5 --threads 1 --output full) >out 2>err || got=$?
check_failure 3 'writing failed: File too large' 'prepare under a file-size limit'
diff -r data full >differences || fail "a preparation that failed changed the folder: $(head -n 5 differences)"
ls full/*.new >/dev/null 2>&1 && fail "a failed preparation leaves files: $(ls full)"

if [ -w /dev/full ]; then
    for arguments in 'help' '--version' 'prepare --help' 'train --manual' \
        'score bleu two --reference two' 'score chrf two --reference two --json'; do
        cases=$((cases + 1))
        got=0
        # shellcheck disable=SC2086
        "$NORMA" $arguments >/dev/full 2>err </dev/null || got=$?
        check_failure 3 'standard output: writing failed: No space left on device' "$arguments to a full device"
    done
fi
cases=$((cases + 1)) got=0
"$NORMA" score bleu two --reference two >&- 2>err || got=$?
check_failure 3 'standard output: writing failed' 'score with stdout closed'
cases=$((cases + 1)) got=0
"$NORMA" score bleu --reference two 0<&- >out 2>err || got=$?
check_failure 3 'reading failed' 'score with stdin closed'
cases=$((cases + 1)) got=0
"$NORMA" prepare "${prepare_arguments[@]}" --output closed 0<&- >&- 2>&- || got=$?
[ "$got" = 3 ] || [ "$got" = 0 ] || fail "prepare with all descriptors closed: exit code $got"
diff -r -x data.ini -x checksums.xxh128 data closed >differences || fail "messages in the data: $(head -n 5 differences)"

hostile_end
