#!/usr/bin/perl
# Parallel text from the help pages of LibreOffice: one page exists per language under the same name, and its
# headings and paragraphs have the same ids in the same order.
#
#     help_pairs.pl HELP/de HELP/en-US > pairs.tsv
#
# Prints one "source<TAB>target" line per sentence where both sides have the same number of sentences, and per
# paragraph otherwise. Needs the package perl-base only.
use strict;
use warnings;
use utf8;

die "usage: help_pairs.pl SOURCE_PAGES TARGET_PAGES > pairs.tsv\n" unless @ARGV == 2;
my ($source_root, $target_root) = @ARGV;
my %character = (amp => '&', lt => '<', gt => '>', quot => '"', apos => "'", nbsp => ' ');

# Pages below a folder, as names relative to it, in byte order.
sub pages_below {
    my ($root, $folder) = @_;
    my $path = length $folder ? "$root/$folder" : $root;
    opendir my $handle, $path or die "help_pairs.pl: cannot read folder $path: $!\n";
    my @names = sort grep { !/^\./ } readdir $handle;
    closedir $handle;
    my @pages;
    for my $name (@names) {
        my $below = length $folder ? "$folder/$name" : $name;
        if (-d "$root/$below") {
            push @pages, pages_below($root, $below);
        } elsif ($name =~ /\.html$/) {
            push @pages, $below;
        }
    }
    return @pages;
}

# The whole page as characters; empty if it cannot be read or is not UTF-8.
sub read_page {
    my ($path) = @_;
    open my $handle, '<:raw', $path or return undef;
    local $/;
    my $text = <$handle>;
    close $handle;
    return undef unless defined $text && utf8::decode($text);
    return $text;
}

sub plain_text {
    my ($html) = @_;
    # Keys and menus have variants for two systems; the macOS variant is hidden on the page.
    $html =~ s{<span[^>]*class="MAC"[^>]*>((?:[^<]++|<(?!/?span\b)|(<span\b[^>]*>(?:[^<]++|<(?!/?span\b)|(?2))*</span>))*)</span>}{}g;
    $html =~ s/<br[^>]*>/ /g;
    $html =~ s/<[^>]*>//g;
    $html =~ s/&#(\d{1,6});/chr $1/ge;
    $html =~ s/&([a-z]+);/exists $character{$1} ? $character{$1} : "&$1;"/ge;
    $html =~ s/[\s\x{a0}\x{200b}\x{feff}]+/ /g;
    $html =~ s/^ | $//g;
    return $html;
}

# Headings and paragraphs in the order of the page, as [id, text]. The text is empty if it is program code or
# one of several alternatives (Writer, Calc, ...), which is not a sentence.
sub blocks_of {
    my ($html) = @_;
    $html =~ s/<footer\b.*//s;
    my @blocks;
    while ($html =~ m{<(p|h[1-6])\b([^>]*)>(.*?)</\1>}gs) {
        my ($attributes, $inside) = ($2, $3);
        my $id = $attributes =~ /\bid="([^"]*)"/ ? $1 : '';
        my $unfit = $attributes =~ /class="[^"]*code/
            || $inside =~ /class="(?:WRITER|CALC|IMPRESS|DRAW|CHART|MATH|BASE|BASIC|UNIX|WIN)"/;
        push @blocks, [$id, $unfit ? '' : plain_text($inside)];
    }
    return @blocks;
}

sub sentences_of {
    my ($text) = @_;
    $text =~ s/(?<!\bz)(?<!\bB)(?<!\b[A-Z])(?<!\bca)(?<!\bNr)(?<!\bbzw)(?<!\busw)(?<!\betc)(?<!\bsog)(?<!\be\.g)(?<!\bi\.e)([.!?]["”“)]?) (?=["„“(]?\p{Lu})/$1\n/g;
    return split /\n/, $text;
}

sub print_pair {
    my ($source, $target) = @_;
    return unless length $source && length $target;
    my @source = sentences_of($source);
    my @target = sentences_of($target);
    if (@source == @target) {
        print "$source[$_]\t$target[$_]\n" for 0 .. $#source;
    } else {
        print "$source\t$target\n";
    }
}

binmode STDOUT, ':utf8';
my ($n_pages, $n_alone) = (0, 0);
for my $page (pages_below($source_root, '')) {
    my ($source, $target) = (read_page("$source_root/$page"), read_page("$target_root/$page"));
    my @source = defined $source ? blocks_of($source) : ();
    my @target = defined $target ? blocks_of($target) : ();
    $n_pages++;
    if (!@source || join(' ', map { $_->[0] } @source) ne join(' ', map { $_->[0] } @target)) {
        $n_alone++;
        next;
    }
    print_pair($source[$_][1], $target[$_][1]) for 0 .. $#source;
}
close STDOUT or die "help_pairs.pl: cannot write: $!\n";
print STDERR "read $n_pages pages, left out $n_alone whose two sides differ in structure\n";
