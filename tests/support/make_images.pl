#!/usr/bin/env perl
# Writes images of three classes to the current folder: noise, on the left with more red, green or blue.
#     make_images.pl TRAIN VALID        numbers of images
# records/: CIFAR-10's binary records (data_batch_1.bin, test_batch.bin, batches.meta.txt)
# png/train/CLASS, png/valid/CLASS: the same images as PNG files, written without a library
use strict;
use warnings;
use Compress::Zlib;

my %numbers = (train => shift // 48, valid => shift // 24);
my @classes = qw(red green blue);
srand 5;

sub spew { open(my $out, '>:raw', $_[0]) or die "$_[0]: $!\n"; print $out $_[1]; close $out or die "$_[0]: $!\n" }
sub chunk { my ($type, $data) = @_; return pack('N', length $data) . $type . $data . pack('N', crc32($type . $data)) }

sub png {    # 32 x 32 RGB
    my ($rows) = @_;
    return "\x89PNG\r\n\x1a\n" . chunk('IHDR', pack('NNCCCCC', 32, 32, 8, 2, 0, 0, 0))
        . chunk('IDAT', compress(join '', map { "\0$_" } @$rows)) . chunk('IEND', '');
}

-d or mkdir or die "$_: $!\n" for qw(records png png/train png/valid), map { my $class = $_; map { "png/$_/$class" } qw(train valid) } @classes;
for my $split (qw(train valid)) {
    my $records = '';
    for my $i (0 .. $numbers{$split} - 1) {
        my ($class, @rows, @planes) = $i % @classes;
        for my $y (0 .. 31) {
            my $row = '';
            for my $x (0 .. 31) {
                for my $c (0 .. 2) {
                    my $value = chr(($c == $class && $x < 20 ? 120 : 0) + int rand 100);
                    $row .= $value;
                    $planes[$c] .= $value;
                }
            }
            push @rows, $row;
        }
        $records .= chr($class) . join '', @planes;
        spew("png/$split/$classes[$class]/$i.png", png(\@rows));
    }
    spew($split eq 'train' ? 'records/data_batch_1.bin' : 'records/test_batch.bin', $records);
}
spew('records/batches.meta.txt', join("\n", @classes) . "\n");
