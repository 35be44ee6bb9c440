# Helpers of the scripts with hostile inputs, in addition to common.sh: a small corpus, a recipe, damaged files.
# shellcheck shell=bash
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

hostile_end() {
    [ "$failures" = 0 ] || { echo "$failures of $cases cases failed" >&2; exit 1; }
    echo "$cases hostile inputs, each refused with one line and its exit code, or accepted"
}

# Parallel text from a toy grammar: PREFIX.xx and PREFIX.yy of N lines.
make_text() {
    perl -e '
        my ($prefix, $n, $seed) = @ARGV;
        my @x = qw(das haus ist gross klein der hund sieht einen baum und die katze läuft schnell);
        my @y = qw(the house is large small the dog sees a tree and the cat runs fast);
        open(my $sx, ">", "$prefix.xx"); open(my $sy, ">", "$prefix.yy");
        for my $i (1 .. $n) {
            my @w;
            for (1 .. 3 + $seed % 5) {
                $seed = ($seed * 1103515245 + 12345) % 2147483648;
                push @w, int($seed / 65536) % @x;
            }
            print $sx join(" ", map { $x[$_] } @w), "\n"; print $sy join(" ", map { $y[$_] } @w), "\n";
        }' "$1" "$2" "$3"
}

prepare_arguments=(--train train --valid valid --test test --source-lang xx --target-lang yy
    --tokenizer none --bpe-merges 20 --threads 1)

# train.xx ... test.yy, data/, recipe.ini
make_data() {
    make_text train 60 1
    make_text valid 6 2
    make_text test 6 3
    "$NORMA" prepare "${prepare_arguments[@]}" --output data 2>err || { cat err >&2; exit 1; }
    write_recipe recipe.ini data.folder=data model.preset=tiny model.width=16 model.ff=32 model.heads=2 \
        model.encoder_layers=1 model.decoder_layers=1 model.norm=batch train.updates=4 train.max_tokens=128 \
        train.validate_every=2 train.validate_examples=2 train.save_every=1 train.keep_last=2 \
        schedule.warmup=4 decode.beam=2 device.threads=1
}

# continue_to_write PROCESS FILE: continues a stopped process and returns when it writes the file, which is a FIFO: it is written
# directly and is full after 64 KiB, so the process waits. The file `part` has the bytes read until then, descriptor 3 is the FIFO.
continue_to_write() {
    mkfifo "$2"
    exec 3<>"$2"
    kill -CONT "$1"
    timeout 60 head -c 5000 <&3 >part || fail "$2 was not written"
}

# Waits for the end of $process, which is killed after half a minute. Sets $got to its exit code.
await_end() {
    local i
    cases=$((cases + 1))
    for ((i = 0; i < 600; i++)); do
        kill -0 "$process" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$process" 2>/dev/null
    got=0
    wait "$process" || got=$?
}

# Copies a folder; an existing target is removed.
fresh() {
    rm -rf "$2"
    cp -r "$1" "$2"
}

# forge FILE PERL: changes a safetensors file: $_ is its header (JSON text), $data the rest; the header length is updated.
# The checksums are removed, as in files of other toolkits.
forge() {
    perl -e '
        my ($path, $code) = @ARGV;
        local $/;
        open(my $in, "<:raw", $path); my $all = <$in>; close($in);
        my $length = unpack("Q<", $all);
        our $data = substr($all, 8 + $length);
        $_ = substr($all, 8, $length);
        s/,?"xxh3":"[0-9a-f ]*"//;
        my $before = $_ . $data;
        eval $code; die $@ if $@;
        die "nothing changed\n" if $before eq $_ . $data;
        unlink $path; # the other names of a hard link stay unchanged
        open(my $out, ">:raw", $path); print $out pack("Q<", length($_)), $_, $data; close($out);
    ' "$1" "$2" || fail "$1 cannot be forged: $2"
}

# poke FILE OFFSET BYTES: overwrites bytes (printf syntax) in the middle.
poke() {
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Checksum of all tensors of a model, by name, without the metadata.
weights() {
    perl -e '
        local $/; open(my $in, "<:raw", $ARGV[0]) or die "$ARGV[0]: $!"; my $all = <$in>;
        my $length = unpack("Q<", $all); my $header = substr($all, 8, $length);
        $header =~ s/"__metadata__":\{(?:[^"{}]|"(?:\\.|[^"\\])*")*\},?//;
        print $header =~ s/ +$//r, "\n", substr($all, 8 + $length);' "$1" | cksum
}
