#!/usr/bin/perl
# Cleans sentence pairs and divides them into train, valid and test.
#
#     split_pairs.pl OUT SOURCE_NAME TARGET_NAME < pairs.tsv
#
# writes OUT/{train,valid,test}.SOURCE_NAME and .TARGET_NAME. The part of a pair depends on its source sentence only:
# a hash of the normalized sentence (lower case, letters only, all numbers equal) gives a number below 1000, of which
# the first 20 are valid and the next 30 test. A sentence is therefore in the same part for any order or version of
# the input, together with sentences that differ in case, digits or punctuation. One pair is kept per normalized
# source. Target sentences are not shared either: a training pair is removed if its target is in valid or test, a
# validation pair if its target is in test. Needs the package perl-base only.
use strict;
use warnings;

die "usage: split_pairs.pl OUT SOURCE_NAME TARGET_NAME < pairs.tsv\n" unless @ARGV == 3;
my ($out, @side) = @ARGV;
my ($min_words, $max_words, $max_ratio, $min_letters) = (3, 40, 2, 0.6);
my ($valid_share, $test_share) = (20, 30);

sub folded {
    my ($text) = @_;
    $text = lc $text;
    $text =~ s/\p{Nd}+/0/g;
    $text =~ s/[^\p{L}0]+/ /g;
    $text =~ s/^ | $//g;
    return $text;
}

# FNV-1a over the UTF-8 bytes, folded to a number below 1000.
sub hash_of {
    my ($text) = @_;
    utf8::encode($text);
    my $hash = 2166136261;
    $hash = (($hash ^ $_) * 16777619) & 0xffffffff for unpack 'C*', $text;
    return ($hash ^ ($hash >> 16)) % 1000;
}

sub is_sentence {
    my ($text) = @_;
    return 0 if $text =~ /[_=<>{}\\]|\(\)/;    # program code
    my $n_words = () = $text =~ /\S+/g;
    my $n_letters = () = $text =~ /\p{L}/g;
    my $n_marks = () = $text =~ /\S/g;
    return $n_words >= $min_words && $n_words <= $max_words && $n_letters >= $min_letters * $n_marks;
}

# Short sentences may differ by two words at any ratio.
sub fits {
    my ($source, $target) = @_;
    return 0 unless is_sentence($source) && is_sentence($target);
    my $n_source = () = $source =~ /\S+/g;
    my $n_target = () = $target =~ /\S+/g;
    my ($few, $many) = $n_source < $n_target ? ($n_source, $n_target) : ($n_target, $n_source);
    return $many <= $max_ratio * $few || $many <= $few + 2;
}

sub part_of {
    my ($key) = @_;
    my $hash = hash_of($key);
    return $hash < $valid_share ? 'valid' : $hash < $valid_share + $test_share ? 'test' : 'train';
}

my (@pairs, %seen, %target_in);
my ($n_read, $n_unfit, $n_again) = (0, 0, 0);
while (my $line = <STDIN>) {
    $n_read++;
    chomp $line;
    my ($source, $target, $more) = utf8::decode($line) ? split /\t/, $line, 3 : ();
    if (!defined $target || defined $more || $source eq $target || !fits($source, $target)) {
        $n_unfit++;
        next;
    }
    my ($key, $target_key) = (folded($source), folded($target));
    if ($seen{$key}++) {
        $n_again++;
        next;
    }
    my $part = part_of($key);
    push @pairs, [$part, $source, $target, $target_key];
    $target_in{$part}{$target_key} = 1;
}

my %file;
for my $part (qw(train valid test)) {
    for my $name (@side) {
        open $file{$part}{$name}, '>:utf8', "$out/$part.$name"
            or die "split_pairs.pl: cannot write $out/$part.$name: $!\n";
    }
}
my %count = (train => 0, valid => 0, test => 0);
my $n_shared = 0;
for my $pair (@pairs) {
    my ($part, $source, $target, $target_key) = @$pair;
    if (($part ne 'test' && $target_in{test}{$target_key}) || ($part eq 'train' && $target_in{valid}{$target_key})) {
        $n_shared++;
        next;
    }
    print {$file{$part}{$side[0]}} "$source\n";
    print {$file{$part}{$side[1]}} "$target\n";
    $count{$part}++;
}
for my $part (qw(train valid test)) {
    for my $name (@side) {
        close $file{$part}{$name} or die "split_pairs.pl: cannot write $out/$part.$name: $!\n";
    }
}
print STDERR "read $n_read pairs; left out $n_unfit by length, ratio or content, $n_again repeated, "
    . "$n_shared with a target of another part\n";
print STDERR "train $count{train}, valid $count{valid}, test $count{test} pairs\n";
for my $part (qw(train valid test)) {
    die "split_pairs.pl: no pair is left for $part\n" unless $count{$part};
}
