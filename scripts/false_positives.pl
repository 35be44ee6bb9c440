#!/usr/bin/perl
# The false-positive rate of norma compare, with trained models: comparisons of two identical variants whose runs differ only
# in the seed.
#
#     scripts/false_positives.pl RECIPE FOLDER [COMPARISONS [SEEDS [OPTION ...]]]
#
# Trains 2 x COMPARISONS x SEEDS models (200 and 2) with seeds 1, 2, ... in FOLDER/pool and scores them on the test set of the
# recipe; the options are for norma compare. Comparison i of two variants has separate models. Prints how many comparisons
# have p < 0.05 in the test over seeds and test segments, and how many in the paired bootstrap over segments for the first seed of
# each variant. An interrupted call continues. NORMA is the program, default build/norma.
#
# Exit code: 0, or 1 if the number of the first test is outside the 95 % interval of the binomial distribution for 5 %, 2 for an
# error.
use strict;
use warnings;
use utf8;
use Cwd qw(abs_path);
use JSON::PP;

sub fail { print STDERR "false_positives: @_\n"; exit 2 }

my ($recipe, $folder, $comparisons, $seeds, @options) = @ARGV;
fail "RECIPE FOLDER [COMPARISONS [SEEDS [OPTION ...]]]" unless defined $folder;
$comparisons //= 200;
$seeds //= 2;
fail "not a number" if grep { !/^[1-9]\d*$/ } $comparisons, $seeds;
my $norma = $ENV{NORMA} // 'build/norma';

sub write_file { open my $out, '>', $_[0] or fail "$_[0]: $!"; print $out $_[1]; close $out or fail "$_[0]: $!" }
sub read_file { open my $in, '<', $_[0] or fail "$_[0]: $!"; local $/; return <$in> }
sub folder { -d $_[0] or mkdir $_[0] or fail "$_[0]: $!" }

# ---- training ----

folder($folder);
my $runs = 2 * $comparisons * $seeds;
open my $output, '-|', $norma, 'compare', $recipe, '--norms', 'L=layer', '--seeds', $runs, '--folder', "$folder/pool",
    '--tid_batches', 1, '--format', 'json', @options
    or fail "$norma: $!";
{ local $/; <$output> }
close $output or fail "$norma compare failed";
my $settings = decode_json(read_file("$folder/pool/comparison.json"));

# ---- comparisons ----

# p of a comparison of variants A and B; the n models of A are those of the pool from `first` on, those of B follow after `seeds`.
sub p_value {
    my ($name, $first, $n) = @_;
    my $to = "$folder/$name";
    folder($to);
    for my $v (0, 1) {
        for my $s (1 .. $n) {
            my $link = sprintf '%s/%s-%d', $to, (qw(A B))[$v], $s;
            symlink abs_path(sprintf '%s/pool/L-%d', $folder, $first + $v * $seeds + $s - 1), $link or fail "$link: $!"
                unless -e $link;
        }
    }
    my @variants = map { my %v = %{$settings->{variants}[0]}; @v{qw(name origin)} = ((qw(A B))[$_], $_); \%v } 0, 1;
    write_file("$to/comparison.json", encode_json({%$settings, seeds => $n, variants => \@variants}));
    open my $table, '-|', $norma, 'compare', '--results', $to, '--format', 'json' or fail "$norma: $!";
    my $json = do { local $/; <$table> };
    close $table or fail "$norma compare --results $to failed";
    my $p = decode_json($json)->{variants}[1]{p};
    fail "$to: no p" unless defined $p;
    return $p;
}

# Smallest k with P(X <= k) >= q for a binomial X of n trials at 5 %.
sub binomial_quantile {
    my ($n, $q) = @_;
    my $term = 0.95**$n;
    my ($k, $sum) = (0, $term);
    while ($sum < $q) {
        $term *= ($n - $k) / ($k + 1) * 0.05 / 0.95;
        $sum += $term;
        $k++;
    }
    return $k;
}

my ($found, $found_by_segments) = (0, 0);
for my $c (0 .. $comparisons - 1) {
    my $first = 1 + 2 * $seeds * $c;
    $found++ if $seeds > 1 && p_value("c$c", $first, $seeds) < 0.05;
    $found_by_segments++ if p_value("s$c", $first, 1) < 0.05;
}
my ($low, $high) = map { binomial_quantile($comparisons, $_) } 0.025, 0.975;
printf "%d comparisons of identical variants with %d seeds, p < 0.05: %d (%.1f %%) over seeds and segments; 95 %% of the"
    . " binomial distribution: %d to %d; %d (%.1f %%) with one seed over segments\n", $comparisons, $seeds, $found,
    100 * $found / $comparisons, $low, $high, $found_by_segments, 100 * $found_by_segments / $comparisons;
exit($found < $low || $found > $high ? 1 : 0);
