#!/usr/bin/perl
# Copies the published results from the comments of the recipes to docs/reproduce.md. A table after a line
#     <!-- recipes: tears/ROW-COLUMN -->
# has one cell per recipe: ROW is the first `code` of a row, COLUMN the `code` of a column. Rows and columns without code
# are not changed; a cell without a recipe is empty.
#
#     scripts/paper_numbers.pl --write|--check
#
# --write fills the cells, --check prints those that differ. Exit code: 0 no difference, 1 some, 2 wrong arguments.
use strict;
use warnings;

my $mode = shift // '';
die "usage: scripts/paper_numbers.pl --write|--check\n" unless $mode =~ /^--(write|check)$/ and !@ARGV;
chdir "$1/.." or die "$!\n" if $0 =~ m{^(.*)/};
my $page = 'docs/reproduce.md';

# The number in the comment of a recipe, as a table shows it; undef without that recipe.
sub number_of {
    open my $in, '<', "recipes/$_[0].ini" or return;
    while (<$in>) {
        next unless /^# Published result: (.*)/;
        local $_ = $1;
        return 'fails' if /^training fails/;
        return "$1 / $2" if /^perplexity (\S+) on the validation set, (\S+) on the test set/;
        return $1 if /^(?:perplexity )?([0-9.]+|infinite)\b/;
        die "recipes/$_[0].ini: no number in '$_'\n";
    }
    die "recipes/$_[0].ini: no line 'Published result'\n";
}

sub code_of { $_[0] =~ /`([^`]+)`/ ? $1 : undef }

open my $in, '<', $page or die "$page: $!\n";
my ($pattern, @columns, @out);
my ($cells, $differences, $number) = (0, 0, 0);
while (my $line = <$in>) {
    $number++;
    if ($line =~ /^<!-- recipes: (\S+) -->$/) {
        $pattern = $1;
        @columns = ();
    } elsif ($pattern and $line =~ /^\|/) {
        chomp $line;
        my (undef, @row) = split /\|/, $line, -1;
        pop @row;
        my $row = code_of($row[0]);
        if (!@columns) {
            @columns = map { code_of($_) } @row;
        } elsif (defined $row) {
            for my $i (1 .. $#row) {
                next unless defined $columns[$i];
                (my $recipe = $pattern) =~ s/ROW/$row/;
                $recipe =~ s/COLUMN/$columns[$i]/;
                my $cell = sprintf ' %s ', number_of($recipe) // '';
                $cell = ' ' if $cell !~ /\S/;
                $cells++;
                if ($cell ne $row[$i]) {
                    print "$page:$number: $recipe:$row[$i]should be$cell\n" if $mode eq '--check';
                    $differences++;
                }
                $row[$i] = $cell;
            }
        }
        $line = '|' . join('|', @row) . "|\n";
    } elsif ($line =~ /\S/ and @columns) {
        ($pattern, @columns) = ();
    }
    push @out, $line;
}
close $in;
die "$page: no table of numbers\n" unless $cells;
if ($mode eq '--write' and $differences) {
    open my $to, '>', $page or die "$page: $!\n";
    print $to @out;
    close $to or die "$page: $!\n";
}
exit($mode eq '--check' && $differences > 0);
