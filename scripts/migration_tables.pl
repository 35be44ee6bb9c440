#!/usr/bin/perl
# Writes the tables of names of docs/migration.md from src/core/base/foreign_names.c, between the comments
# <!-- foreign_names TABLE --> and <!-- end of table -->. With --check: exit code 1 if a table differs.
#
#     scripts/migration_tables.pl [--check]
use strict;
use warnings;
use FindBin;

my $check = @ARGV && $ARGV[0] eq '--check';
my ($source, $page) = map { "$FindBin::Bin/../$_" } 'src/core/base/foreign_names.c', 'docs/migration.md';
my $string = qr/"((?:[^"\\]|\\.)*)"/;

sub content {
    open my $file, '<', $_[0] or die "$_[0]: $!\n";
    local $/;
    return <$file>;
}

sub line_of {
    return '|' . join('|', map { $_ eq '' ? ' ' : " $_ " } @_) . "|\n";
}

my (%rows, %tables, $array);
(my $text = content($source)) =~ s/,\n {8}/, /g; # a row may have several lines
$text =~ s/"\n {8}"//g;
for (split /\n/, $text) {
    $array = $1 if /^static const nm_foreign_row (\w+)\[\]/;
    if (/^    \{\{$string, $string, $string\}, $string\},$/) {
        push @{$rows{$array}}, [map { s/\\(.)/$1/gr } $1, $2, $3, $4];
    } elsif (/^    \{$string, \{$string, $string, $string\}, (\w+), \w+\},$/) {
        $tables{$1} = line_of($2, $3, $4, 'Norma') . "|---|---|---|---|\n" . join '', map { line_of(@$_) } @{$rows{$5}};
    } elsif (/^    \{\{"/) {
        die "$source: a row in another form: $_\n";
    }
}
my $old = content($page);
my %written;
(my $new = $old) =~ s{(<!-- foreign_names ([a-z ]+) -->\n).*?(<!-- end of table -->\n)}{
    $written{$2} = 1;
    $1 . ($tables{$2} // die "$page: there is no table $2\n") . $3}gse;
for (sort keys %tables) {
    die "$page: the table $_ is missing\n" unless $written{$_};
}
exit 0 if $new eq $old;
die "docs/migration.md: the tables are not those of src/core/base/foreign_names.c; run scripts/migration_tables.pl\n" if $check;
open my $file, '>', $page or die "$page: $!\n";
print $file $new;
close $file or die "$page: $!\n";
