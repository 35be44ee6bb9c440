#!/usr/bin/env perl
# No two source files call each other, directly or through others: the files have an order, and each uses only those below it.
#     scripts/check_circles.pl NM OBJECTS
# NM: the program nm; OBJECTS: a file with the paths of the object files, one per line. Prints the calls of each circle.
# Exit code: 0 no circle, 1 some, 2 bad usage.
use strict;
use warnings;

my ($nm, $list) = @ARGV;
defined $list or do { print STDERR "usage: scripts/check_circles.pl NM OBJECTS\n"; exit 2 };
open(my $in, '<', $list) or do { print STDERR "$list: $!\n"; exit 2 };
chomp(my @objects = grep { /\S/ } <$in>);
@objects or do { print STDERR "$list: no objects\n"; exit 2 };

my (%file_of, %uses);    # symbol: file; file: symbols
for my $object (@objects) {
    my $file = $object =~ s/^.*\.dir\///r =~ s/\.o$//r;
    open(my $symbols, '-|', $nm, $object) or die "$nm: $!\n";
    while (<$symbols>) {
        my ($kind, $symbol) = /([A-Za-z]) (\S+)$/ or next;
        if ($kind eq 'U') { push @{$uses{$file}}, $symbol }
        elsif ($kind =~ /[TDRB]/) { $file_of{$symbol} = $file }
    }
    close $symbols or die "$nm $object failed\n";
}
my %calls;    # file: file below it: symbols
for my $file (keys %uses) {
    for my $symbol (@{$uses{$file}}) {
        my $other = $file_of{$symbol};
        push @{$calls{$file}{$other}}, $symbol if defined $other && $other ne $file;
    }
}

# Removes files that use no other remaining file, until only circles and the files above them remain; then, files that
# no other remaining file uses.
sub strip {
    my ($graph) = @_;
    for (my $removed = 1; $removed;) {
        $removed = 0;
        for my $file (keys %$graph) {
            next if grep { exists $graph->{$_} } keys %{$graph->{$file}};
            delete $graph->{$file};
            $removed = 1;
        }
    }
    return $graph;
}
my %rest = %{strip({%calls})};
my %users;
for my $file (keys %rest) {
    for (grep { exists $rest{$_} } keys %{$rest{$file}}) { $users{$_}{$file} = 1 }
}
my %circles = %{strip({%users})};
printf "%d files, %d in circles\n", scalar @objects, scalar keys %circles;
for my $file (sort keys %circles) {
    print "$file calls $_: @{$calls{$file}{$_}}\n" for sort grep { exists $circles{$_} } keys %{$calls{$file}};
}
exit(%circles ? 1 : 0);
