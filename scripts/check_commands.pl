#!/usr/bin/env perl
# Compares the options in documents and recipes with those of the program.
#     NORMA=build/norma scripts/check_commands.pl FILE...
# Checked are the options of every `norma COMMAND ...`, in text and in code blocks, and names in backquotes such as
# `schedule.warmup` of the sections in $sections. Prints what the program does not know. Exit code: 0 nothing, 1 something.
use strict;
use warnings;

my $program = $ENV{NORMA} or die "check_commands: NORMA is not set\n";
# Names in the other sections can also be files: train.de, model.safetensors.
my $sections = join '|', qw(norm optim schedule probe decode device comm compare);
my %options; # command -> its options, with underscores

sub spelling {
    my ($name) = @_;
    return $name =~ tr/-/_/r;
}

sub read_help {
    my ($command, @arguments) = @_;
    open my $help, '-|', $program, $command, @arguments, '--help', 'all' or die "check_commands: $program: $!\n";
    while (my $line = <$help>) {
        $options{$command}{spelling($1)} = 1 if $line =~ /^  --([a-z][\w.-]*)/;
    }
    close $help or die "check_commands: norma $command --help fails\n";
}

# The section of an option may be omitted where the command has one of that name; --no-NAME is --NAME false.
sub is_known {
    my ($command, $name) = @_;
    my $known = $options{$command};
    return 1 if $known->{$name} || $name eq 'help' || $name eq 'manual';
    return is_known($command, substr $name, 3) if $name =~ /^no_/;
    my $inner = $name =~ s/^\w+\.//r;
    return $known->{$inner} || grep { /^\w+\.\Q$name\E$/ } keys %$known;
}

for my $command (split /\n/, `$program help --list`) {
    read_help($command);
}
for my $task ('translation', 'lm', 'classification', 'tagging', 'image') {
    read_help($_, '--run.task', $task) for 'train', 'compare', 'baseline';
}
my %keys = map { %$_ } values %options;

my $unknown = 0;
for my $file (@ARGV) {
    open my $in, '<', $file or die "check_commands: $file: $!\n";
    my $text = do { local $/; <$in> };
    close $in;
    $text =~ s/\\\n\s*/ /g;
    while ($text =~ /\bnorma ([a-z]+)\b([^\n`|;<>]*)/g) {
        my ($command, $arguments) = ($1, $2);
        $arguments =~ s/"[^"]*"//g;
        next if !$options{$command};
        while ($arguments =~ /\s--([a-z][\w.-]*)/g) {
            next if is_known($command, spelling($1));
            print "$file: norma $command has no option --$1\n";
            $unknown++;
        }
    }
    while ($text =~ /`(?:--)?((?:$sections)\.[a-z][\w.-]*\w)(?=[`= ])/g) {
        next if $keys{spelling($1)} || $1 =~ /\.ini$/; # decode.ini is a file
        print "$file: no command has the option $1\n";
        $unknown++;
    }
}
exit($unknown > 0);
