#!/usr/bin/env perl
# Mutation tests: applies deliberate bugs, one at a time, to a copy of the sources, builds it incrementally and runs the tests
# that should find them.
#     scripts/mutants.pl [--check] [--jobs N] [--build FOLDER] [--timeout SECONDS] [PATTERN]
# PATTERN: a regular expression on file and text. --check: only tests that every text occurs exactly once in its file,
# and that no condition or loop loses its only statement.
# Results are kept in FOLDER/results (default build-mutants), so an interrupted run continues; a mutant is tested again
# when its file, its tests or its entry have changed. Exit code: 0 no mutant survived, 1 some did, 2 a mutant cannot be applied.
#
# tests/mutants/*.txt: entries of
#     FILE TEST [TEST ...]         tests: programs (test_x, or test_x:ARGUMENT), scripts (e2e_x), or golden
#     - text                       one or more lines; the indentation of the first one is not part of the text
#     + replacement                the same; none: the text is removed
#     = reason                     the mutant is equivalent: it is listed, but not run
use strict;
use warnings;
use Cwd 'abs_path';
use Digest::MD5 'md5_hex';
use File::Basename;
use Getopt::Long;

my ($check, $jobs, $folder, $timeout) = (0, 1, 'build-mutants', 300);
GetOptions('check' => \$check, 'jobs=i' => \$jobs, 'build=s' => \$folder, 'timeout=i' => \$timeout) or exit 2;
my $pattern = shift // '.';
my $root = abs_path(dirname(__FILE__) . '/..');
chdir $root or die;

sub slurp { local $/; open(my $in, '<', $_[0]) or die "$_[0]: $!\n"; return <$in> }
sub spew { open(my $out, '>', $_[0]) or die "$_[0]: $!\n"; print $out $_[1]; close $out or die "$_[0]: $!\n" }

my (@mutants, $now);
for my $list (sort glob 'tests/mutants/*.txt') {
    open(my $in, '<', $list) or die;
    while (<$in>) {
        chomp;
        next if /^#/ || /^\s*$/;
        if (/^- (.*)/)    { push @{$now->{from}}, $1 }
        elsif (/^\+ ?(.*)/) { push @{$now->{to}}, $1 }
        elsif (/^= (.*)/)  { $now->{equivalent} = $1 }
        else {
            my ($file, @tests) = split;
            push @mutants, $now = {file => $file, tests => \@tests, from => [], to => [], at => "$list:$."};
        }
    }
}

# The sources of a test, without which it is another test.
sub sources_of {
    my $name = $_[0] =~ s/:.*//r;
    return map { slurp($_) } grep { -e } glob("tests/{unit,kernel,grad}/$name.c tests/e2e/$name.sh");
}

my %sources;
my $broken = 0;
for my $m (@mutants) {
    my $source = $sources{$m->{file}} //= slurp($m->{file});
    s/^\s+// for $m->{from}[0];
    $m->{text} = join "\n", @{$m->{from}};
    $m->{new} = join "\n", @{$m->{to}};
    my $n = () = $source =~ /\Q$m->{text}\E/g;
    $m->{new} =~ s/^\s+//;
    $m->{key} = md5_hex(join "\0", $source, $m->{text}, $m->{new}, map { $_, sources_of($_) } @{$m->{tests}});
    if ($n != 1) {
        print "$m->{at}: the text occurs $n times in $m->{file}\n";
        $broken++;
    } elsif ($m->{new} eq '' && $m->{text} =~ /;\s*\z/ && $source =~ /(?:\)|\belse|\bdo)\s*\Q$m->{text}\E/) {
        print "$m->{at}: without its only statement, the condition or loop has the next one: replace it by ;\n";
        $broken++;
    }
}
my @equivalent = grep { $_->{equivalent} } @mutants;
printf "%d mutants, %d of them equivalent\n", scalar @mutants, scalar @equivalent;
exit($broken ? 2 : 0) if $check || $broken;

mkdir $folder;
$folder = abs_path($folder) // die "$folder: $!\n";
my %results;
if (open my $in, '<', "$folder/results") {
    while (<$in>) { my ($key, $result) = split; $results{$key} = $result }
}
my @run = grep { !$_->{equivalent} && "$_->{file} $_->{text}" =~ /$pattern/ } @mutants;
my @open = grep { !$results{$_->{key}} } @run;

# Whether the command succeeds; its output goes to a log.
sub succeeds { return system("$_[0] >> $_[1] 2>&1") == 0 }

sub work {
    my ($job) = @_;
    my $copy = "$folder/$job";
    my ($build, $log) = ("$copy/build", "$copy/log");
    mkdir $copy;
    system("git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -u -t $copy") == 0 or die "cannot copy the sources\n";
    succeeds("cmake -S $copy -B $build -G Ninja -DNORMA_TESTS=ON -DNORMA_WERROR=OFF -DNORMA_BENCH=OFF", $log) or die "cmake failed: $log\n";
    for (my $i = $job; $i < @open; $i += $jobs) {
        my $m = $open[$i];
        my ($from, $at) = ($sources{$m->{file}}, index($sources{$m->{file}}, $m->{text}));
        spew($log, '');
        spew("$copy/$m->{file}", substr($from, 0, $at) . $m->{new} . substr($from, $at + length $m->{text}));
        my @targets = map { /^e2e/ ? 'norma_program' : $_ eq 'golden' ? 'norma-golden' : s/:.*//r } @{$m->{tests}};
        my $result = 'survived';
        if (!succeeds("cmake --build $build -j 1 --target @targets", $log)) {
            $result = 'uncompiled';
        }
        for my $test ($result eq 'survived' ? @{$m->{tests}} : ()) {
            my $command = $test eq 'golden' ? "$build/norma-golden $copy/tests/golden/cases"
                : $test =~ /^e2e/ ? "NORMA=$build/norma SOURCE=$copy BUILD=$build bash $copy/tests/e2e/$test.sh"
                : "cd $copy/tests && $build/tests/" . $test =~ s/:/ /r;
            next if succeeds("(OMP_WAIT_POLICY=passive timeout $timeout sh -c '$command')", $log);
            $result = 'killed';
            last;
        }
        spew("$copy/$m->{file}", $from);
        open(my $out, '>>', "$folder/results") or die;
        print $out "$m->{key} $result $m->{at}\n";
        close $out;
        print "$m->{at}: $result: $m->{file}: ", $m->{text} =~ s/\n.*//sr, "\n";
    }
    return;
}

$| = 1;
for my $job (0 .. $jobs - 1) {
    next if fork;
    work($job);
    exit 0;
}
1 while wait != -1;

open(my $in, '<', "$folder/results");
while ($in && defined($_ = <$in>)) { my ($key, $result) = split; $results{$key} = $result }
my %count;
$count{$results{$_->{key}} // 'not run'}++ for @run;
print "$_->{at} survived: $_->{file}: $_->{text}\n" for grep { ($results{$_->{key}} // '') eq 'survived' } @run;
printf "%d run: %s\n", scalar @run, join ', ', map { "$count{$_} $_" } sort keys %count;
exit($count{survived} ? 1 : $count{uncompiled} || $count{'not run'} ? 2 : 0);
