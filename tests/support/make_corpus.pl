#!/usr/bin/perl
# Generates small corpora that resemble real ones, identical on every machine:
#
#     make_corpus.pl FOLDER
#
#     FOLDER/{train,valid,test}.{de,en}       parallel text, tokenized: two languages with their own words, endings and word order
#     FOLDER/{train,valid,test}.txt           plain text with empty lines, N for numbers and <unk>
#     FOLDER/{train,test}.tsv                 label, tab, text
#     FOLDER/eng.{train,testa,testb}          columns of CoNLL-2003: token, part of speech, chunk, tag (IOB1)
#     FOLDER/{train,dev,test}.char.bmes       a character and its tag (BMES) a line
#     FOLDER/{words.100d,chars.50d,bigrams.50d}.txt   word vectors
#
# Word frequencies follow Zipf's law. Validation and test differ from training: they contain words, characters, subwords
# of the other language and entity types that training lacks. There are empty lines, lines of one token, of usual
# length and very long ones; one label occurs once in training.
use strict;
use warnings;
use utf8;

die "usage: make_corpus.pl FOLDER\n" unless @ARGV == 1 and $ARGV[0] !~ /^-/;
my $folder = shift;
-d $folder or mkdir $folder or die "$folder: $!\n";

# ---- random numbers: a linear congruential generator, independent of the version of Perl ----

my $state = 20201;

sub uniform {    # 0 .. 1
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return ($state >> 8) / 8388608;
}

sub integer { return int(uniform() * $_[0]) }
sub chance  { return uniform() < $_[0] }

sub zipf {       # 0 .. n - 1, the first ones most often
    my ($n) = @_;
    return int(exp(uniform() * log($n + 1)) - 1e-9) - 1;
}

sub open_file {
    open my $out, '>:encoding(UTF-8)', "$folder/$_[0]" or die "$folder/$_[0]: $!\n";
    return $out;
}

# ---- vocabularies: concept i is the i-th word of each language ----

my %onset  = (de => [qw(b d f g h k l m n r s t w z sch st tr)], en => [qw(b c d f g h j l m n p r s t th v wh)]);
my %vowel  = (de => [qw(a e i o u ä ö ü ei au)],                 en => [qw(a e i o u ea oo y)]);
my %coda   = (de => ['', qw(n r l t cht ss)],                    en => ['', qw(n r l t ck sh)]);
my %ending = (de => { noun => 'en', verb => 'te' },              en => { noun => 's', verb => 'ed' });
my %article = (de => [qw(der die das ein)], en => [qw(the the this a)]);
use constant { CONCEPTS => 60, SEEN => 42 };    # of each part of speech; those after SEEN are not in training
my %words;
for my $language (qw(de en)) {
    my %taken;
    for my $part (qw(noun verb adjective)) {
        while (@{$words{$language}{$part} // []} < CONCEPTS) {
            my $word = '';
            $word .= $onset{$language}[integer(17)] . $vowel{$language}[integer(scalar @{$vowel{$language}})] .
                $coda{$language}[integer(scalar @{$coda{$language}})] for 0 .. integer(2);
            $word = ucfirst $word if $language eq 'de' and $part eq 'noun';
            push @{$words{$language}{$part}}, $word unless $taken{lc $word}++;
        }
    }
}
# Names are the same in both languages, but training writes them differently; characters of the second list are unseen.
my @names = (['Zürich', 'Zurich'], ['München', 'Munich'], ['Łódź', 'Lodz'], ['O\'Neill', 'O\'Neill'], ['Mary-Ann', 'Mary-Ann']);
my @unseen_names = ('Søren', '東京', 'Ålesund', 'naïve', '😀');

sub concept { return zipf($_[0] ? SEEN : CONCEPTS) }

# A clause in both languages: adjectives precede German nouns and follow English ones, German verbs are at the end.
sub clause {
    my ($training) = @_;
    my (%subject, %object, %verb);
    for my $phrase (\%subject, \%object) {
        my ($noun, $plural, $article, $adjective) = (concept($training), chance(0.3), integer(4), chance(0.4));
        my $which = $adjective ? concept($training) : 0;
        for my $language (qw(de en)) {
            my $word = $words{$language}{noun}[$noun] . ($plural ? $ending{$language}{noun} : '');
            my $quality = $adjective ? $words{$language}{adjective}[$which] : '';
            $phrase->{$language} = join ' ', grep { length } $article{$language}[$article],
                $language eq 'de' ? ($quality, $word) : ($word, $quality);
        }
    }
    my ($verb, $past) = (concept($training), chance(0.5));
    $verb{$_} = $words{$_}{verb}[$verb] . ($past ? $ending{$_}{verb} : '') for qw(de en);
    return ("$subject{de} $object{de} $verb{de}", "$subject{en} $verb{en} $object{en}");
}

sub sentence {    # (German, English), tokenized
    my ($training) = @_;
    my $kind = uniform();
    return ('ja .', 'yes .') if $kind < 0.04;
    my $clauses = $kind > 0.97 ? 12 : 1 + integer(2);
    my (@de, @en);
    for (1 .. $clauses) {
        my ($de, $en) = clause($training);
        push @de, $de;
        push @en, $en;
    }
    if (chance(0.15)) {
        my $name = $names[integer(scalar @names)];
        push @de, "in $name->[0]";
        push @en, "in " . ($training ? $name->[1] : $name->[0]);    # untranslated outside training
    }
    if (!$training and chance(0.1)) {
        my $name = $unseen_names[integer(scalar @unseen_names)];
        push @de, "von $name";
        push @en, "of $name";
    }
    if (chance(0.1)) {
        my $number = integer(2000) . (chance(0.5) ? '.' . integer(100) : '');
        push @de, "mit $number";
        push @en, "with $number";
    }
    return (join(' und ', @de) . ' .', join(' , and ', @en) . ' .');
}

# ---- parallel and plain text ----

my %lines = (train => 160, valid => 24, test => 24);
for my $split (qw(train valid test)) {
    my ($de, $en, $plain) = map { open_file("$split.$_") } qw(de en txt);
    for my $i (1 .. $lines{$split}) {
        my ($german, $english) = sentence($split eq 'train');
        $german = $english = '' if $i % 37 == 12;
        $english = '' if $split eq 'train' and $i % 53 == 7;
        print $de "$german\n";
        print $en "$english\n";
        (my $text = $english) =~ s/\d+(\.\d+)?/N/g;
        $text =~ s/\b[A-Z]\S+/<unk>/g if $split eq 'train';
        print $plain "$text\n";
    }
    close $_ or die for $de, $en, $plain;
}

# ---- labeled texts ----

for my $split (qw(train test)) {
    my $out = open_file("$split.tsv");
    for my $i (1 .. ($split eq 'train' ? 60 : 20)) {
        my $label = $i == 11 && $split eq 'train' ? 3 : integer(2) + 1;
        my $text = join ' ', $words{en}{adjective}[$label], map { (sentence($split eq 'train'))[1] } 1 .. 1 + integer(3);
        $text = join ' ', ($text) x 40 if $i == 17;    # longer than any maximum length
        $text = 'yes'                  if $i == 5;
        print $out "$label\t$text\n";
    }
    close $out or die;
}

# ---- columns with entities ----

my %types = (train => ['PER', 'LOC'], dev => ['PER', 'LOC', 'MISC'], test => ['PER', 'ORG', 'LOC']);
my %sizes = (train => 60, dev => 16, test => 16);

# Entities as lists of tokens; the last ones occur only outside training.
my @entities = (['Müller'], ['Anna', 'Maria'], ['Berlin'], ['New', 'York'], ['Jean-Luc'], ['Søren'], ['東京'], ['U.N.', '2024']);

sub tagged_tokens {    # ([token, type or '', starts entity], ...)
    my ($split) = @_;
    my @tokens;
    for my $word (split ' ', (sentence($split eq 'train'))[1]) {
        if (chance(0.12)) {
            my $type = $types{$split}[integer(scalar @{$types{$split}})];
            my @entity = @{$entities[integer($split eq 'train' ? 5 : scalar @entities)]};
            push @tokens, map { [$entity[$_], $type, $_ == 0] } 0 .. $#entity;
        }
        push @tokens, [$word, '', 0];
    }
    return @tokens;
}

my %conll_names = (train => 'eng.train', dev => 'eng.testa', test => 'eng.testb');
for my $split (qw(train dev test)) {
    my ($columns, $characters) = (open_file($conll_names{$split}), open_file("$split.char.bmes"));
    print $columns "-DOCSTART- -X- O O\n\n";
    for my $i (1 .. $sizes{$split}) {
        my $before = '';
        my @tokens = $i == 9 ? ['Yes', '', 0] : tagged_tokens($split);
        for my $t (0 .. $#tokens) {
            my ($word, $type, $first) = @{$tokens[$t]};
            my $mark = !$type ? 'O' : ($first && $before eq $type ? 'B-' : 'I-') . $type;    # IOB1
            print $columns "$word NN I-NP $mark\n";
            $before = $type;
            my @characters = split //, $word;
            my $last = $type && ($t == $#tokens || !$tokens[$t + 1][1] || $tokens[$t + 1][2]);
            for my $c (0 .. $#characters) {
                my ($begins, $ends) = ($first && $c == 0, $last && $c == $#characters);
                my $tag = !$type ? 'O' : ($begins && $ends ? 'S-' : $begins ? 'B-' : $ends ? 'E-' : 'M-') . $type;
                print $characters "$characters[$c] $tag\n";
            }
        }
        print $columns "\n";
        print $characters "\n";
    }
    close $_ or die for $columns, $characters;
}

# ---- word vectors: for some of the words only ----

sub vectors {
    my ($name, $width, @items) = @_;
    my $out = open_file($name);
    for my $item (@items) {
        print $out join(' ', $item, map { sprintf '%.4f', uniform() - 0.5 } 1 .. $width), "\n";
    }
    close $out or die;
}
vectors('words.100d.txt', 100, map { lc } @{$words{en}{noun}}[0 .. 20], @{$words{en}{verb}}[0 .. 10], 'the', 'a', 'of', '.', ',');
vectors('chars.50d.txt', 50, 'a' .. 'z');
vectors('bigrams.50d.txt', 50, map { my $c = $_; map { "$c$_" } qw(a e i o u) } 'a' .. 'z');
