#!/usr/bin/perl
# The tables of results/*.md are recomputed from the logs of the runs, results/logs/NAME.tar.xz. Each follows a line
#     <!-- results: NAME [paper=RECIPES] [gap] -->
# and has one row per variant of the comparison. paper=rbn/imdb-post adds the published results, from the recipes
# rbn/imdb-post-VARIANT.ini; gap adds the negative log-likelihood of the last validation, and if norms use running statistics how
# much it is above that with batch statistics.
#     <!-- recipe: NAME -->
# begins a table of one recipe on several corpora, compared with the best baseline: one row per title, the mean over runs with
# different seeds.
#     <!-- pairs: NAME -->
# begins a table of comparisons of two variants each, which differ in something other than the norm: one row per comparison.
#
#     scripts/results_tables.pl --check [NAME]         prints the tables that differ from the logs
#     scripts/results_tables.pl --write [NAME]         writes them
#     scripts/results_tables.pl --show NAME            prints what norma compare prints, in Markdown
#     scripts/results_tables.pl --pack NAME FOLDER     archives a comparison: comparison.json, and log.jsonl, config.ini
#                                                      and test.json of every run, without texts of the corpus; of a
#                                                      folder without comparison.json, the runs of a recipe, each with
#                                                      title.txt (data | size), baseline.json (norma baseline --json)
#                                                      and test.json (norma score, perplexity or classify --json); of a
#                                                      folder of comparisons, all of them
#
# NORMA is the program, default build/norma. Exit code: 0 no difference, 1 some, 2 wrong use or an error.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));
use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use JSON::PP;

sub fail { print STDERR "results_tables: @_\n"; exit 2 }

my $usage = "--check|--write [NAME], --show NAME, or --pack NAME FOLDER";
my $mode = shift // '';
fail $usage unless $mode =~ /^--(check|write|show|pack)$/ and @ARGV <= ($mode eq '--pack' ? 2 : 1);
my ($only, $folder) = @ARGV;
fail $usage if $mode eq '--show' && !defined $only or $mode eq '--pack' && !defined $folder;
$folder = abs_path($folder) if defined $folder;
chdir "$1/.." or fail $! if $0 =~ m{^(.*)/};
my $norma = $ENV{NORMA} // 'build/norma';

sub read_file { open my $in, '<', $_[0] or fail "$_[0]: $!"; local $/; return <$in> }
sub write_file { open my $out, '>', $_[0] or fail "$_[0]: $!"; print $out $_[1]; close $out or fail "$_[0]: $!" }
sub run { system(@_) == 0 or fail "@_ failed" }

# ---- archives ----

# Folders of the machine are not part of a result.
sub without_folders { my $text = shift; $text =~ s{(?<![\w.])/(?:[\w.@+-]+/)+(?=recipes/|data/|runs/)}{}g; return $text }

# Copies the files of a run.
sub pack_run {
    my ($from, $to, @others) = @_;
    mkdir $to or fail $!;
    write_file("$to/config.ini", without_folders(read_file("$from/config.ini")));
    my $log = join '', grep { !/^\{"type":"samples"/ } map { "$_\n" } split /\n/, read_file("$from/log.jsonl");
    $log =~ s/"host":"[^"]*",//g;
    write_file("$to/log.jsonl", without_folders($log));
    (my $test = read_file("$from/test.json")) =~ s/^ "samples": .*\n//m;
    write_file("$to/test.json", without_folders($test));
    write_file("$to/$_", without_folders(read_file("$from/$_"))) for @others;
}

# Copies a comparison, or the runs of a recipe.
sub copy_runs {
    my ($folder, $to) = @_;
    mkdir $to or fail $!;
    my $compared = -e "$folder/comparison.json";
    write_file("$to/comparison.json", without_folders(read_file("$folder/comparison.json"))) if $compared;
    opendir my $dir, $folder or fail "$folder: $!";
    for my $run (sort grep { -e "$folder/$_/test.json" } readdir $dir) {
        pack_run("$folder/$run", "$to/$run", $compared ? () : ('title.txt', 'baseline.json'));
    }
}

# The names of the comparisons in a folder.
sub comparisons_in { my $folder = shift; return map { m{([^/]+)/comparison.json$} } sort glob "$folder/*/comparison.json" }

sub pack_runs {
    my ($name, $folder) = @_;
    my $temporary = tempdir(CLEANUP => 1);
    if (my @comparisons = comparisons_in($folder)) {
        mkdir "$temporary/$name" or fail $!;
        copy_runs("$folder/$_", "$temporary/$name/$_") for @comparisons;
    } else {
        copy_runs($folder, "$temporary/$name");
    }
    mkdir 'results/logs';
    run(qw(tar --create --xz --sort=name --owner=0 --group=0 --mtime=2000-01-01), '--file', "results/logs/$name.tar.xz",
        '--directory', $temporary, $name);
}

# A folder with the contents of an archive.
sub unpacked {
    my $archive = "results/logs/$_[0].tar.xz";
    -e $archive or fail "$archive: no such archive";
    my $temporary = tempdir(CLEANUP => 1);
    run('tar', '--extract', '--xz', '--file', $archive, '--directory', $temporary);
    return "$temporary/$_[0]";
}

# Runs norma compare on an unpacked comparison; returns what it prints.
sub table_of {
    my ($name, $folder, $format) = @_;
    open my $pipe, '-|', $norma, 'compare', '--results', $folder, '--format', $format or fail "$norma: $!";
    my $text = do { local $/; <$pipe> };
    close $pipe or fail "$norma compare --results failed for $name";
    return $text;
}

# ---- tables ----

# The published result of a variant, from the comment of its recipe; '' without that recipe.
sub paper_number {
    my ($recipes, $variant) = @_;
    my ($path) = grep { -e } map { "recipes/$recipes-$_.ini" } lc $variant, lc($variant =~ tr/-//dr);
    defined $path or return '';
    my ($published) = read_file($path) =~ /^# Published result: (.*)/m;
    return $1 if ($published // '') =~ /(?<![\w.])([0-9.]+)(?: BLEU| F1)? on the test set/;
    return $1 if ($published // '') =~ /^(?:perplexity )?([0-9.]+|infinite|0 BLEU)/;
    fail "$path: no line 'Published result'";
}

# The name of a score in the text.
sub score_title { my $score = shift; return $score =~ /^(?:bleu|f1|ter)$/ ? uc $score : $score }

sub number { my ($value, $digits) = @_; return defined $value ? sprintf("%.${digits}f", $value) : '' }

sub interval {
    my ($low, $high, $digits) = @_;
    return defined $low ? sprintf("%.${digits}f to %.${digits}f", $low, $high) : '';
}

sub p_value { my $p = shift; return !defined $p ? '' : $p < 0.001 ? '< 0.001' : sprintf '%.3f', $p }

# The last validation of each run of a variant: mean loss in nats with running statistics, and its mean difference to the loss
# with batch statistics ('' for norms without them).
sub losses {
    my ($folder, $variant) = @_;
    my (@running, @gaps);
    for my $path (grep { m{/\Q$variant->{norm}\E-[0-9]+/log.jsonl$} } sort glob "$folder/*/log.jsonl") {
        my ($line) = reverse grep { /"type":"valid"/ } split /\n/, read_file($path);
        my $last = decode_json(Encode::encode('UTF-8', $line));
        push @running, $last->{nll};
        push @gaps, $last->{nll} - $last->{batch_nll} if defined $last->{batch_nll};
    }
    @running == $variant->{n} or fail "$folder: " . @running . " logs of $variant->{norm}, $variant->{n} seeds";
    return (number(mean(@running), 3), @gaps ? sprintf('%+.3f', mean(@gaps)) : '');
}

sub markdown_table {
    my ($name, $paper, $gap) = @_;
    my $folder = unpacked($name);
    my $o = decode_json(Encode::encode('UTF-8', table_of($name, $folder, 'json')));
    my @variants = @{$o->{variants}};
    my $perplexity = $o->{score} =~ /perplexity/;
    my @titles = ('norm', 'seeds', score_title($o->{score}), '±', '95 %', 'difference', 'p (Holm)', 'TID mean %', 'TID variance %');
    my %losses = $gap ? map { $_->{norm} => [losses($folder, $_)] } @variants : ();
    my $gaps = grep { $_->[1] ne '' } values %losses; # some norms use running statistics
    push @titles, 'validation loss' if $gap;
    push @titles, 'above batch statistics' if $gaps;
    push @titles, 'paper' if defined $paper;
    my @lines = ('| ' . join(' | ', @titles) . ' |', '|---|' . '--:|' x (@titles - 1));
    for my $v (@variants) {
        my $between = interval($v->{difference_low}, $v->{difference_high}, 2); # empty for one seed
        my $difference = defined $v->{difference} ? sprintf('%+.2f', $v->{difference}) : '';
        $difference .= " ($between)" if $between;
        my @cells = ($v->{norm}, $v->{n}, number($v->{score_mean}, 2), number($v->{score_deviation}, 2),
            interval($v->{interval_low}, $v->{interval_high}, 1),
            $difference,
            p_value($v->{p_holm}),
            map { number(defined $_ ? 100 * $_ : undef, 1) } $v->{tid_mean_mean}, $v->{tid_variance_mean});
        push @cells, @{$losses{$v->{norm}}}[0 .. ($gaps ? 1 : 0)] if $gap;
        push @cells, paper_number($paper, $v->{norm}) if defined $paper;
        push @lines, '| ' . join(' | ', @cells) . ' |';
        $lines[-1] =~ s/ +\|/ |/g;
    }
    return join '', map { "$_\n" } @lines;
}

# "24.05 [22.30, 25.54]" of an object with a score, and of its interval.
sub score_with_interval {
    my ($object, $interval) = @_;
    my ($score) = grep { defined } @$object{qw(score bleu accuracy f1 perplexity)};
    my ($low, $high) = map { $interval->{$_} // $interval->{"accuracy_$_"} } qw(low high);
    return number($score, 2) . (defined $low ? sprintf ' [%s, %s]', number($low, 2), number($high, 2) : '');
}

# The last state of a run and its scores.
sub recipe_run {
    my $run = shift;
    my ($baseline, $test) = map { decode_json(Encode::encode('UTF-8', read_file("$run/$_.json"))) } qw(baseline test);
    my ($last) = reverse grep { /"type":"(?:train|valid)"/ } split /\n/, read_file("$run/log.jsonl");
    $last = decode_json(Encode::encode('UTF-8', $last));
    chomp(my $title = read_file("$run/title.txt"));
    my $best = $baseline->{baselines}[-1]{test}; # the last baseline is the strongest one
    return {title => $title, baseline => score_with_interval($best, $best), update => $last->{update},
        seconds => $last->{seconds}, score => score_with_interval($test, $test->{interval} // $test)};
}

sub mean { my $sum = 0; $sum += $_ for @_; return $sum / @_ }

# One row per title: a run, or the mean over the runs (seeds) and the score of each.
sub recipe_table {
    my $folder = unpacked(shift);
    my (%runs, @titles);
    my @lines = ('| data | size | baseline | recipe | updates | minutes |', '|---|--:|--:|--:|--:|--:|');
    for my $run (map { recipe_run(s{/test.json$}{}r) } sort glob "$folder/*/test.json") {
        push @titles, $run->{title} unless $runs{$run->{title}};
        push @{$runs{$run->{title}}}, $run;
    }
    for my $title (@titles) {
        my @of = @{$runs{$title}};
        my @scores = map { $_->{score} =~ s/ .*//r } @of;
        my $score = @of == 1 ? $of[0]{score} : sprintf '%.2f (%s)', mean(@scores), join ', ', @scores;
        push @lines, sprintf '| %s | %s | %s | %.0f | %.1f |', $title, $of[0]{baseline}, $score,
            mean(map { $_->{update} } @of), mean(map { $_->{seconds} / 60 } @of);
    }
    return join '', map { "$_\n" } @lines;
}

# The last validation loss of each run of a variant, by seed.
sub losses_by_seed {
    my ($comparison, $variant) = @_;
    return map { $_->{valid_nll} } sort { $a->{seed} <=> $b->{seed} } grep { $_->{norm} eq $variant } @{$comparison->{runs}};
}

# One row per comparison of two variants: scores, their difference, and the differences of the validation losses of runs with
# the same seed.
sub pairs_table {
    my $folder = unpacked(shift);
    my @lines;
    for my $name (comparisons_in($folder)) {
        my $o = decode_json(Encode::encode('UTF-8', table_of($name, "$folder/$name", 'json')));
        my ($first, $second) = @{$o->{variants}};
        my $title = score_title($o->{score});
        @lines or @lines = ("| norm | seeds | $title, $first->{norm} | ± | $title, $second->{norm} | ± | difference | p |"
            . " loss, $first->{norm} | loss, $second->{norm} | differences by seed |", '|---|' . '--:|' x 10);
        my @before = losses_by_seed($o, $first->{norm});
        my @after = losses_by_seed($o, $second->{norm});
        push @lines, '| ' . join(' | ', $name, $second->{n},
            (map { (number($_->{score_mean}, 2), number($_->{score_deviation}, 2)) } $first, $second),
            sprintf('%+.2f (%s)', $second->{difference}, interval($second->{difference_low}, $second->{difference_high}, 2))
                =~ s/ \(\)//r,
            p_value($second->{p}),
            number(mean(@before), 3), number(mean(@after), 3),
            join(', ', map { sprintf '%+.3f', $after[$_] - $before[$_] } 0 .. $#after)) . ' |';
        $lines[-1] =~ s/ +\|/ |/g;
    }
    return join '', map { "$_\n" } @lines;
}

sub update_page {
    my $page = shift;
    my $differences = 0;
    my $text = read_file($page);
    my $replace = sub {
        my ($marker, $kind, $name, $paper, $gap, $old) = @_;
        return "$marker$old" if defined $only and $only ne $name;
        my $new = $kind eq 'recipe' ? recipe_table($name) : $kind eq 'pairs' ? pairs_table($name) : markdown_table($name, $paper, $gap);
        if ($new ne $old) {
            print "$page: $name differs from its logs; it should be\n$new" if $mode eq '--check';
            $differences++;
        }
        return "$marker$new" . ($old eq '' ? "\n" : '');
    };
    $text =~ s/^(<!-- (results|recipe|pairs): (\S+)(?: paper=(\S+))?( gap)? -->\n\n)((?:\|.*\n)*)/$replace->($1, $2, $3, $4, $5, $6)/gme;
    write_file($page, $text) if $mode eq '--write' and $differences;
    return $differences;
}

require Encode;
if ($mode eq '--pack') {
    pack_runs($only, $folder);
} elsif ($mode eq '--show') {
    print table_of($only, unpacked($only), 'markdown');
} else {
    my $differences = 0;
    $differences += update_page($_) for sort glob 'results/*.md';
    exit($mode eq '--check' && $differences ? 1 : 0);
}
