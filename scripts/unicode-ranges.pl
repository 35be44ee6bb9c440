#!/usr/bin/env perl
# Writes src/task/text/unicode_ranges.c from the Unicode data that comes with Perl:
#     perl scripts/unicode-ranges.pl > src/task/text/unicode_ranges.c
use strict;
use warnings;
use Unicode::UCD;

sub ranges {
    my ($name, $inside) = @_;
    my (@rows, $first);
    for my $point (0 .. 0x110000) {
        my $in = $point < 0x110000 && !($point >= 0xD800 && $point < 0xE000) && $inside->(chr $point);
        $first = $point if $in && !defined $first;
        if (!$in && defined $first) {
            push @rows, sprintf('{0x%04X, 0x%04X}', $first, $point - 1);
            undef $first;
        }
    }
    print "const nm_unicode_range nm_unicode_other_${name}[] = {\n";
    while (my @line = splice @rows, 0, 5) {
        print '    ', join(', ', @line), ",\n";
    }
    print "};\nconst size_t nm_unicode_n_other_${name} =\n";
    print "    sizeof nm_unicode_other_${name} / sizeof nm_unicode_other_${name}[0];\n";
}

my $version = Unicode::UCD::UnicodeVersion();
print "/* Alphabetic code points outside the categories L and Nl, lower case ones outside Ll: Unicode $version.\n";
print " * Written by scripts/unicode-ranges.pl; do not edit. */\n";
print "#include \"text/unicode_ranges.h\"\n\n/* clang-format off */\n";
ranges('alphabetic', sub { $_[0] =~ /\p{Alphabetic}/ && $_[0] !~ /[\p{L}\p{Nl}]/ });
print "\n";
ranges('lowercase', sub { $_[0] =~ /\p{Lowercase}/ && $_[0] !~ /\p{Ll}/ });
