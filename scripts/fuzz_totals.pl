#!/usr/bin/env perl
# Adds runs of fuzz targets to the table between "<!-- totals -->" and "<!-- end -->" of a Markdown file.
#     scripts/fuzz_totals.pl FILE < RUNS
# RUNS: lines of TARGET, CPU seconds, executions, covered edges, number of inputs, separated by whitespace. CPU time and
# executions are added; edges and inputs are replaced.
use strict;
use warnings;

my ($file) = @ARGV;
open(my $in, '<', $file) or die "$file: $!\n";
my $text = do { local $/; <$in> };
close $in;
my ($before, $table, $after) = $text =~ /^(.*<!-- totals -->\n)(.*?)(<!-- end -->.*)$/s or die "$file: no table of totals\n";

my %rows;    # target: [CPU minutes, executions, edges, inputs]
for (split /\n/, $table) {
    my (undef, $target, @numbers) = split /\s*\|\s*/;
    next unless defined $target && @numbers == 4 && $numbers[0] =~ /\d/;
    $rows{$target} = [map { s/,//gr } @numbers] unless $target eq 'all';
}
while (<STDIN>) {
    my ($target, $seconds, $executions, $edges, $inputs) = split;
    my $row = $rows{$target} //= [0, 0, 0, 0];
    $rows{$target} = [$row->[0] + $seconds / 60, $row->[1] + $executions, $edges, $inputs];
}

sub with_commas { my $n = reverse $_[0]; $n =~ s/(\d{3})(?=\d)/$1,/g; return scalar reverse $n }

my @total = (0) x 4;
my $new = "| target | CPU minutes | executions | edges | inputs |\n|---|--:|--:|--:|--:|\n";
for my $target ((sort keys %rows), 'all') {
    my $row = $rows{$target} // \@total;
    my ($minutes, @counts) = @$row;
    $new .= sprintf "| %s | %.1f | %s |\n", $target, $minutes, join ' | ', map { with_commas($_) } @counts;
    $total[$_] += $row->[$_] for 0 .. 3;
}
open(my $out, '>', "$file.new") or die "$file.new: $!\n";
print $out $before, $new, $after;
close $out or die "$file.new: $!\n";
rename "$file.new", $file or die "$file: $!\n";
