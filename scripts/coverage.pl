#!/usr/bin/env perl
# Merges the counts of gcov over all objects of a build, because kernels are compiled once per CPU level, and prints the
# lines of src/ that were run, by folder. Writes coverage.txt to the build folder: the other lines, by file.
#     perl scripts/coverage.pl [--minimum FOLDER=PERCENT]... BUILD
# Exit code: 0 if every folder reaches its minimum, 1 if one does not, 2 wrong use.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Find;
use Getopt::Long;
use JSON::PP;

my %minimum;
GetOptions('minimum=s' => \%minimum) && @ARGV == 1 && -d $ARGV[0] or die "usage: coverage.pl [--minimum FOLDER=PERCENT]... BUILD\n";
my $build = abs_path($ARGV[0]);
my $gcov  = $ENV{GCOV} // 'gcov';
my @objects;
find(sub { push @objects, $File::Find::name if /\.gcno$/ && $File::Find::name !~ m{/(tests|examples)/} }, $build);

# counts{file}{line}: calls of the line, the largest number over the objects
my %counts;
chdir $build or die "$build: $!\n";
for my $object (@objects) {
    open my $json, '-|', "$gcov --json-format --stdout '$object' 2>/dev/null" or die "$gcov: $!\n";
    local $/;
    my $text = <$json>;
    close $json;
    next unless $text;
    my $report = decode_json($text);
    for my $file (@{$report->{files}}) {
        my ($path) = $file->{file} =~ m{(?:^|/)(src/.+)$} or next;
        for my $line (@{$file->{lines}}) {
            my $at = \$counts{$path}{$line->{line_number}};
            $$at = $line->{count} if !defined $$at || $line->{count} > $$at;
        }
    }
}
die "$build: no counts; was it built with --coverage?\n" unless %counts;

my (%lines, %run);
open my $list, '>', "$build/coverage.txt" or die "$build/coverage.txt: $!\n";
for my $path (sort keys %counts) {
    my ($folder) = $path =~ m{^(src/[^/]+/[^/]+)/};
    my @missed = sort { $a <=> $b } grep { !$counts{$path}{$_} } keys %{$counts{$path}};
    my $n = keys %{$counts{$path}};
    for my $group ('src', $folder) {
        $lines{$group} += $n;
        $run{$group}   += $n - @missed;
    }
    printf $list "%s: %d of %d: %s\n", $path, scalar @missed, $n, join ' ', @missed if @missed;
}
close $list or die "$build/coverage.txt: $!\n";

my $below = 0;
printf "%-20s %7s %7s %7s\n", 'folder', 'lines', 'missed', '%';
for my $group (sort keys %lines) {
    my $percent = 100 * $run{$group} / $lines{$group};
    my $low     = defined $minimum{$group} && $percent < $minimum{$group};
    $below |= $low;
    printf "%-20s %7d %7d %7.2f%s\n", $group, $lines{$group}, $lines{$group} - $run{$group}, $percent,
        $low ? "  below $minimum{$group}" : '';
}
exit($below ? 1 : 0);
