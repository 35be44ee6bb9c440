#!/usr/bin/env bash
# Checks the language of comments, names, help texts, messages and documents.
#   - phrases that have a standard term (scripts/language.txt)
#   - British spellings: the project uses American ones
#   - Markdown prose wider than 100 columns (tables, code and links that stand alone are exempt)
#   - sentences of more than 40 words in Markdown prose, up to a period or colon (results/, docs/notes/ and CHANGELOG.md, which
#     are records, are exempt)
#   - reflowed formulas: runs of spaces inside a line of a comment paragraph
#   - declarations and statements that the formatter has broken, because the comment after them was too long for the line
#     scripts/check_language.sh [--changed REV] [FILE...]
# Without files all tracked files are read, with --changed only lines added since REV. Prints one line per finding:
# file:line: text -> term. Exit code: 0 none, 1 some.
set -euo pipefail
cd "$(dirname "$0")/.."
base=
if [ "${1:-}" = --changed ]; then
    base=$2
    shift 2
fi
if [ $# -gt 0 ]; then
    files=("$@")
else
    # Test data and generated pages contain other languages and texts of other authors.
    mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.[ch]' '*.inc' '*.md' '*.sh' '*.py' \
        '*.ini' '*.cmake' '*CMakeLists.txt' Makefile | grep -vE '^tests/(golden/cases|fuzz/inputs)/|^scripts/language\.txt$')
fi

BASE=$base perl - scripts/language.txt "${files[@]}" <<'PERL'
use strict;
use warnings;

my $list = shift @ARGV;
my @phrases;
open my $in, '<', $list or die "$list: $!\n";
while (<$in>) {
    chomp;
    next if /^#/ or !/\S/;
    my ($pattern, $term) = split /\t/;
    die "$list:$.: expected a pattern, a tab and a term\n" unless defined $term;
    my $lower = $pattern =~ s/(?<!\\)([A-Z])/lc $1/ger; # without /i Perl looks for a pattern's letters first
    push @phrases, [qr/($pattern)/i, $term, qr/$lower/];
}
close $in;
# CANCELLED is a state of Slurm.
my $british = qr/(\b(?-i:(?!CANCELLED\b))\w*(?:labell(?:ed|ing)|behaviour|colour|licence|\bcentre|centred|analyse|neighbour|favour|catalogue|modell(?:ed|ing)|cancelled|
    judgement|initialis|normalis|optimis(?!t)|generalis|tokenis|summaris|recognis|organis|minimis|maximis|serialis|parallelis(?!m)|regularis|artefact|whilst)\w*)/xi;
my $perhaps_british = qr/[lmnr]is|our|labell|licence|centre|analyse|catalogue|modell|cancelled|judgement|artefact|whilst/i;

# Lines added since the base, by file; undef: every line counts.
my %added;
if ($ENV{BASE}) {
    my $file = '';
    my $at = 0;
    for (split /\n/, `git diff -U0 --no-color $ENV{BASE} --`) {
        if (m{^\+\+\+ b/(.*)}) { $file = $1 }
        elsif (/^\@\@ -\S+ \+(\d+)/) { $at = $1 }
        elsif (/^\+/) { $added{$file}{$at++} = 1 }
    }
}

# A declaration or statement in two lines whose second one ends with a comment.
sub is_broken {
    my ($file, $previous, $line) = @_;
    my ($code) = $line =~ m{^\s+([^/*\s].*?)\s*/\*} or return 0;
    return 0 if $previous =~ m{^\s*(?:#|/?\*)|\*/$};
    my $open = ($previous =~ tr/(//) - ($previous =~ tr/)//);
    return 1 if ($open > 0 or $previous =~ /[=<>|&+?]$/) and length("$previous $code") <= 108;
    return 0 if $code !~ /;$/ or $previous =~ m{[;{}:/\\\s]\s*$};
    return 1 if $file =~ /\.h$/ or $previous =~ /^\s+(?:(?:const|struct|unsigned) )*\w+(?: \w+)*(?: \*+)?$/;
    return $previous =~ /^[^(=]*,$/ && $line !~ /[()]/;
}

my $found = 0;
sub report {
    my ($file, $line, $text, $term) = @_;
    return if $ENV{BASE} and !$added{$file}{$line};
    printf "%s:%d: %s -> %s\n", $file, $line, $text, $term;
    $found++;
}

# Sentences of the Markdown prose of a paragraph or list item that begins at the line. Code and a link's text count, its target
# does not.
sub check_sentences {
    my ($file, $line, $text) = @_;
    $text =~ s/`[^`]*`/code/g;
    $text =~ s/!?\[([^\]]*)\]\([^)]*\)/$1/g;
    $text =~ s/\bet al\./et al/g;
    for my $sentence (split /(?<=[.!?:])["*)]*\s+/, $text) {
        my $words = () = $sentence =~ /\S+/g;
        report($file, $line, "$words words: " . substr($sentence, 0, 50), 'at most 40 in a sentence') if $words > 40;
    }
}

for my $file (@ARGV) {
    next if $file eq 'scripts/check_language.sh' or $file eq 'scripts/language.txt';
    open my $text, '<:encoding(UTF-8)', $file or die "$file: $!\n";
    my @lines = <$text>;
    my $lower = lc join '', @lines;
    my @candidates = grep { $lower =~ $_->[2] } @phrases;
    my ($code, $comment, $previous) = (0, 0, '');
    my ($paragraph, $begin) = ('', 0);
    my $prose = $file =~ /\.md$/ && $file !~ m{^(?:results/|docs/notes/|CHANGELOG\.md$)};
    for my $number (1 .. @lines) {
        chomp(my $line = $lines[$number - 1]);
        for (@candidates) {
            report($file, $number, $1, $_->[1]) if $line =~ $_->[0] and $line !~ /language: exempt/;
        }
        report($file, $number, $1, 'American spelling') if $line =~ $perhaps_british and $line =~ $british and $line !~ /language: exempt/;
        if ($file =~ /\.md$/) {
            $code = !$code if $line =~ /^\s*```/;
            report($file, $number, length($line) . ' columns', 'at most 100 in prose')
                if !$code and length($line) > 100 and $line !~ /^\s*\|/ and $line !~ /^\s*(?:[-*] )?!?\[[^\]]*\]\([^)]*\)\W*$/;
        }
        if ($prose) {
            my $is_text = !$code && $line =~ /\S/ && $line !~ /^\s*(?:#+ |\||<!--|```)/ && !($paragraph eq '' && $line =~ /^ {4}/);
            if ($paragraph ne '' and (!$is_text or $line =~ /^\s*(?:[-*]|\d+\.) /)) {
                check_sentences($file, $begin, $paragraph);
                $paragraph = '';
            }
            if ($is_text) {
                $begin = $number if $paragraph eq '';
                $paragraph .= ' ' . $line =~ s/^\s*(?:[-*] |\d+\. )?//r;
            }
        }
        if ($file =~ /\.(?:[ch]|inc)$/) {
            $comment = 1 if $line =~ m{^\s*/\*};
            report($file, $number, substr($line, 0, 60), 'one formula per line, indented')
                if $comment and $line =~ m{^\s*(?:/\*+|\*)? ?\S.*\w[,.;]? {3,}\S} and $line !~ m{^\s*(?:/\*+|\*)? {2,}} and $line !~ m{\|} and $line !~ m{;\s*/\*} and $line !~ m{^\s*(?:/\*+|\*)? ?[^\s=]+\s*[-+*]?=\s};
            report($file, $number, $line =~ s/^\s+//r, 'the comment above the line') if is_broken($file, $previous, $line);
            $comment = 0 if $line =~ m{\*/};
            $previous = $line;
        }
    }
    check_sentences($file, $begin, $paragraph) if $paragraph ne '';
}
exit($found > 0);
PERL
