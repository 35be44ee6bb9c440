#!/usr/bin/perl
# Compares the settings of a run with those listed for its recipe, except the ones of the command line:
#
#     check_settings.pl LIST RECIPE PROFILE CONFIG
#
#     LIST     tests/unit/recipe_settings.ini, which describes its format
#     RECIPE   such as pn/table3-ptb-pn; PROFILE: its profile, or an empty string
#     CONFIG   config.ini of the run
use strict;
use warnings;

die "usage: check_settings.pl LIST RECIPE PROFILE CONFIG\n" unless @ARGV == 4;
my ($list, $recipe, $profile, $config) = @ARGV;

my (%value, %given, $section);
open my $in, '<', $config or die "$config: $!\n";
while (<$in>) {
    if (/^\[(.*)\]$/) { $section = $1; }
    elsif (/^(\S+) = (.*?) ; (.*)$/) { ($value{"$section.$1"}, $given{"$section.$1"}) = ($2, $3 eq 'command line'); }
}

# A norm that is not set is that of the option it defaults to. Returns the name of the option.
sub resolved {
    my ($key) = @_;
    return $key if $key =~ /\./;
    my $path = "model.$key";
    return $path if !exists $value{$path} or $value{$path} ne '' or $key eq 'norm';
    return resolved($key =~ s/_final// ? $key : 'norm');
}

sub matches {
    my ($pattern) = @_;
    $pattern =~ s/\*/.*/g;
    $pattern =~ s/\?/./g;
    $pattern =~ s/\[!/[^/g;
    return $recipe =~ /^$pattern$/;
}

sub equal {
    my ($actual, $expected) = @_;
    my $number = qr/^-?[0-9.]+(e-?[0-9]+)?$/;
    return $actual =~ $number && $expected =~ $number ? $actual == $expected : $actual eq $expected;
}

my ($applies, $checked, $wrong) = (0, 0, 0);
open $in, '<', $list or die "$list: $!\n";
while (<$in>) {
    chomp;
    if (/^\[(.*?)(?: : (\w+))?\]$/) {
        my ($patterns, $of_profile) = ($1, $2 // '');
        $applies = $of_profile eq $profile && grep { matches($_) } split ' ', $patterns;
    } elsif ($applies && /^(\S+) = ?(.*)$/) {
        my ($key, $expected) = (resolved($1), $2);
        next if $given{$key};
        my $actual = $value{$key} // 'unknown';
        $checked++;
        next if equal($actual, $expected);
        print STDERR "$key is $actual instead of $expected\n";
        $wrong++;
    }
}
die "no settings of $recipe are listed\n" unless $checked;
exit($wrong > 0);
