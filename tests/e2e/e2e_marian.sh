#!/bin/bash
# norma convert --from marian: models and log probabilities of Marian itself (tests/interchange/marian), and damaged files.
set -euo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

cp "$SOURCE"/tests/interchange/marian/* .
vocabs=source.yml,target.yml
"$NORMA" convert post.npz --from marian --vocabs $vocabs -o post.safetensors 2>err || {
    grep -q 'built without YAML\|needs libarchive' err || fail "convert post.npz: $(cat err)"
    echo "skipped: $(cat err)"
    exit $((failures ? 1 : 77))
}
for model in post pre; do
    try convert $model.npz --from marian --vocabs $vocabs -o $model.safetensors
    [ "$got" = 0 ] || fail "convert $model.npz: $(cat err)"
    "$NORMA" rescore $model.safetensors source.txt target.txt --rescore.input_format tokenized --threads 1 >ours
    paste ours $model.scores | awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) { print; bad = 1 } } END { exit bad || NR != 10 }' ||
        fail "$model: not Marian's scores"
    cases=$((cases + 1))
done

# The softmax is over the tokens of Marian's vocabulary, without <s> and <pad>.
"$NORMA" translate post.safetensors source.txt --input_format tokenized --search sample --nbest 20 >samples
! grep -q '<s>\|<pad>' samples || fail "a special token in $(cat samples)"

refuses 2 '--vocabs SOURCE,TARGET' convert post.npz --from marian -o no.safetensors
refuses 2 '--vocabs has no effect' convert post.npz --from fairseq --heads 2 --vocabs $vocabs -o no.safetensors
refuses 7 'the format marian can be read but not written' convert post.safetensors --to marian -o no
refuses 3 nowhere.npz convert nowhere.npz --from marian --vocabs $vocabs -o no.safetensors
refuses 3 nowhere.yml convert post.npz --from marian --vocabs nowhere.yml,target.yml -o no.safetensors
refuses 4 'not an archive' convert source.yml --from marian --vocabs $vocabs -o no.safetensors

# ---- damaged files; a change of equal length with the checksum of the archive is as Marian would have written it ----
bytes=$(stat -c %s post.npz)
for part in 0 1 40 700 $((bytes / 2)) $((bytes - 6000)); do
    head -c "$part" post.npz >cut.npz
    try convert cut.npz --from marian --vocabs $vocabs -o no.safetensors
    case $got in 4 | 5) ;; *) fail "exit code $got for the first $part bytes: $(cat err)" ;; esac
    [ ! -e no.safetensors ] || fail "a file in spite of an error"
done
changed() { # FROM TO: of the same length, in one array of the file
    perl -e 'my ($from, $to) = @ARGV; local $/; open my $f, "<:raw", "post.npz"; my $all = <$f>; my ($out, $at) = ("", 0);
        my @t = map { my $c = $_; $c = $c & 1 ? 0xEDB88320 ^ ($c >> 1) : $c >> 1 for 1 .. 8; $c } 0 .. 255;
        while (substr($all, $at, 4) eq "PK\3\4") {
            my @h = unpack "VvvvvvVVVvv", substr($all, $at, 30);
            my $name = substr($all, $at + 30, $h[9]); my $data = substr($all, $at + 30 + $h[9] + $h[10], $h[7]);
            my $end = $at + 30 + $h[9] + $h[10] + $h[7];
            ($name, $data) = map { s/\Q$from\E/$to/r } $name, $data;
            my $c = 0xFFFFFFFF; $c = $t[($c ^ $_) & 255] ^ ($c >> 8) for unpack "C*", $data; $h[6] = $c ^ 0xFFFFFFFF;
            $out .= pack("VvvvvvVVVvv", @h) . $name . substr($all, $at + 30 + $h[9], $h[10]) . $data; $at = $end;
        }
        my $rest = substr($all, $at); # the central directory: libarchive reads the local headers where they agree
        my $crc_at = 0; my $pos = 0;
        while (substr($rest, $pos, 4) eq "PK\1\2") {
            my ($n, $e, $c) = unpack "vvv", substr($rest, $pos + 28, 6); my $offset = unpack "V", substr($rest, $pos + 42, 4);
            substr($rest, $pos + 16, 4) = substr($out, $offset + 14, 4); my $name = substr($rest, $pos + 46, $n);
            $name =~ s/\Q$from\E/$to/; substr($rest, $pos + 46, $n) = $name; $pos += 46 + $n + $e + $c;
        }
        open my $o, ">:raw", "bad.npz"; print $o $out . $rest' "$1" "$2"
}
bad() { # CODE TEXT FROM TO
    changed "$3" "$4"
    refuses "$1" "$2" convert bad.npz --from marian --vocabs $vocabs -o no.safetensors
}
changed nothing nothing
try convert bad.npz --from marian --vocabs $vocabs -o same.safetensors
same post.safetensors same.safetensors
bad 7 "transformer-decoder-autoreg is \"self-averaging\"" 'autoreg: self-attention' 'autoreg: self-averaging'
bad 7 'transformer-ffn-activation is "gelu"' 'ffn-activation: swish' 'ffn-activation: gelu '
bad 7 "transformer-no-projection is true" 'transformer-no-projection: false' 'transformer-no-projection: true '
bad 7 'transformer-postprocess is "dna"' 'transformer-postprocess: dan' 'transformer-postprocess: dna'
bad 7 "tensor 'decoder_l1_ffn_X2' does not belong to any part" decoder_l1_ffn_W2.npy decoder_l1_ffn_X2.npy
bad 5 "has no array 'encoder_Wemb' of [99 x 8]" "$(printf 'dim-vocabs:\n  - 13')" "$(printf 'dim-vocabs:\n  - 99')"
bad 5 "has no array 'encoder_l2_self_Wo' of [8 x 8]" 'enc-depth: 1' 'enc-depth: 2'
bad 5 "has no array 'encoder_l1_ffn_W1' of [8 x 32]" 'transformer-dim-ffn: 16' 'transformer-dim-ffn: 32'
bad 5 "has no array 'encoder_Wemb' of [13 x 9]" 'dim-emb: 8' 'dim-emb: 9'
bad 4 "'transformer-heads' is not an integer" 'transformer-heads: 2' 'transformer-heads: x'
bad 7 'arrays of the type >f4 are not supported' "'<f4'" "'>f4'"
bad 7 'Fortran order' "'fortran_order': False" "'fortran_order': True "
bad 4 'does not match its shape' "'shape': (8, 16)" "'shape': (8, 17)"
bad 4 'the header of the array is malformed' "'shape': (8, 16)" "'shape': (8,-16)"
bad 4 'not an array of NumPy' NUMPY DUMPY

# ---- vocabularies ----
vocab() { # CODE TEXT SED
    sed "$3" source.yml >bad.yml
    refuses "$1" "$2" convert post.npz --from marian --vocabs bad.yml,target.yml -o no.safetensors
}
vocab 4 'the vocabulary has no </s>' '1d'
vocab 5 'has the index 40, but the model has 13 tokens' 's/: 5$/: 40/'
vocab 4 'have the same index' 's/: 5$/: 4/'
vocab 4 'bad.yml:6: a key occurs twice' '6s/.*/hund: 5/'
vocab 4 'has no index' 's/: 5$/: five/'
vocab 4 'bad.yml:1: aliases are not supported' '1s/.*/a: \&a [1]\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a]/'
vocab 4 'nested too deeply' '1s/.*/a: [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]/'
vocab 4 'bad.yml:' '3s/.*/"open/'
vocab 4 'not a mapping' 's/^/- /'
echo "e2e_marian: $cases checks"
