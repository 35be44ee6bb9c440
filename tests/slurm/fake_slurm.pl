#!/usr/bin/env perl
# sbatch, squeue, scontrol and scancel for tests without Slurm: the options, output, states and signals that are documented for
# Slurm 22.05 and that norma compare depends on. Run under one of these names. FAKE_SLURM is the folder of the state: a file
# "down" there makes all commands fail as without slurmctld. A node has two CPUs for each job; a process for each job array
# starts its tasks.
use strict;
use warnings;
use Fcntl ':flock';
use POSIX qw(:sys_wait_h setsid strftime);
use Time::HiRes qw(time sleep);

my $state = $ENV{FAKE_SLURM} or die "FAKE_SLURM is not set\n";
my $min_job_age = 2;
my $kill_wait   = 10;
my ($command)   = $0 =~ m{([^/]*)$};

sub put {
    my ($path, $text) = @_;
    open(my $out, '>', "$path.new") or die "$path: $!\n";
    print $out $text;
    close $out;
    rename("$path.new", $path);
}

sub get {
    my ($path) = @_;
    open(my $in, '<', $path) or return '';
    local $/;
    my $text = <$in>;
    chomp $text;
    return $text;
}

if (-e "$state/down") {
    print STDERR "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n";
    exit 1;
}

# Folders of the tasks that ID or ID_K means.
sub tasks {
    my ($id) = @_;
    return sort { ($a =~ /_(\d+)$/)[0] <=> ($b =~ /_(\d+)$/)[0] } $id =~ /_/ ? glob("$state/tasks/$id") : glob("$state/tasks/${id}_*");
}

sub has_ended { return get("$_[0]/state") !~ /^(PENDING|RUNNING|COMPLETING)$/ }

# ---- the controller of one array ----

sub write_output {
    my ($task, $text) = @_;
    open(my $out, '>>', get("$task/output")) or return;
    print $out $text;
    close $out;
}

sub start {
    my ($task) = @_;
    my ($job, $index) = $task =~ m{/(\d+)_(\d+)$};
    my $pid = fork();
    if ($pid) {
        put("$task/state", 'RUNNING');
        put("$task/pid",   $pid);
        return $pid;
    }
    setpgrp(0, 0);
    open(STDIN,  '<',  '/dev/null');
    open(STDOUT, '>>', get("$task/output")) or exit 1;
    open(STDERR, '>&', \*STDOUT);
    $ENV{SLURM_JOB_ID}        = $job + $index;
    $ENV{SLURM_ARRAY_JOB_ID}  = $job;
    $ENV{SLURM_ARRAY_TASK_ID} = $index;
    my $cpus = get("$task/cpus");
    $ENV{SLURM_CPUS_PER_TASK} = $cpus if $cpus;
    exec('/bin/sh', "$state/scripts/$job") or exit 127;
}

# SIGTERM to the processes of a task, SIGKILL after KillWait.
sub end {
    my ($task, $pid, $why) = @_;
    write_output($task, sprintf("slurmstepd: error: *** JOB %s ON node CANCELLED AT %s%s ***\n", $task =~ m{/(\d+)_}, strftime('%Y-%m-%dT%H:%M:%S', localtime), $why));
    kill('TERM', -$pid);
    put("$task/killed", time());
}

sub control {
    my ($limit, @tasks) = @_;
    my %running;
    while (%running || grep { !has_ended($_) } @tasks) {
        while ((my $pid = waitpid(-1, WNOHANG)) > 0) {
            my $code = $?;
            my $task = delete $running{$pid} or next;
            kill('KILL', -$pid);
            unlink("$task/killed");
            if (-e "$task/requeue") {
                unlink("$task/requeue");
                put("$task/state", 'PENDING');
                put("$task/begin", time() + 1);
                next;
            }
            put("$task/ended", time());
            put("$task/state", -e "$task/timeout" ? 'TIMEOUT' : -e "$task/cancel" ? 'CANCELLED' : $code ? 'FAILED' : 'COMPLETED');
        }
        for my $pid (keys %running) {
            my $task = $running{$pid};
            my ($killed, $seconds) = (get("$task/killed"), get("$task/seconds"));
            if ($killed) {
                kill('KILL', -$pid) if time() > $killed + $kill_wait;
            } elsif (-e "$task/cancel") {
                end($task, $pid, '');
            } elsif (-e "$task/requeue") {
                end($task, $pid, ' DUE TO JOB REQUEUE');
            } elsif ($seconds && time() > get("$task/started") + $seconds) {
                put("$task/timeout", '');
                end($task, $pid, ' DUE TO TIME LIMIT');
            }
        }
        for my $task (grep { get("$_/state") eq 'PENDING' } @tasks) {
            if (-e "$task/cancel") {
                put("$task/ended", time());
                put("$task/state", 'CANCELLED');
            } elsif (keys %running < $limit && !get("$task/held") && time() > (get("$task/begin") || 0)) {
                put("$task/started", time());
                $running{start($task)} = $task;
            }
        }
        sleep(0.05);
    }
}

# ---- the commands ----

sub sbatch {
    my %o = (limit => 2, seconds => 0, name => '', output => 'slurm-%A_%a.out', cpus => '', held => '');
    my (@indexes, $script);
    while (@ARGV) {
        my $word = shift @ARGV;
        my $value = sub { return $word =~ /=(.*)/s ? $1 : shift @ARGV };
        if ($word =~ /^--(requeue|parsable|exclusive|open-mode=append)$/) {
        } elsif ($word =~ /^--job-name=/) { $o{name} = $value->()
        } elsif ($word =~ /^--output=/) { $o{output} = $value->()
        } elsif ($word =~ /^--array=(\d+)-(\d+)(?:%(\d+))?$/) {
            @indexes = ($1 .. $2);
            $o{limit} = $3 if $3 && $3 < $o{limit};
        } elsif ($word =~ /^(-t|--time(=|$))/) {
            my @parts = split(/:/, $value->());
            @parts = (@parts, 0) if @parts == 1;
            $o{seconds} = $o{seconds} * 60 + $_ for @parts;
        } elsif ($word =~ /^(-p|--partition(=|$))/) {
            my $name = $value->();
            if ($name ne 'all') {
                print STDERR "sbatch: error: invalid partition specified: $name\n",
                    "sbatch: error: Batch job submission failed: Invalid partition name specified\n";
                exit 1;
            }
        } elsif ($word =~ /^(-c|--cpus-per-task(=|$))/) { $o{cpus} = $value->()
        } elsif ($word =~ /^(-H|--hold)$/) { $o{held} = 1
        } elsif ($word =~ /^--mem(=|$)/) { $value->()
        } elsif ($word =~ /^-/) {
            print STDERR "sbatch: unrecognized option '$word'\nTry \"sbatch --help\" for more information\n";
            exit 1;
        } else {
            $script = $word;
            last;
        }
    }
    if (!@indexes || !defined $script || !-r $script) {
        print STDERR 'sbatch: error: Unable to open file ', $script // '', "\n";
        exit 1;
    }
    mkdir "$state/$_" for qw(scripts tasks);
    open(my $lock, '>>', "$state/lock");
    flock($lock, LOCK_EX);
    my $job = (get("$state/next") || 0) + 1;
    put("$state/next", $job + @indexes);
    close $lock;
    put("$state/scripts/$job", get($script) . "\n");
    my @tasks;
    for my $index (@indexes) {
        my $task = "$state/tasks/${job}_$index";
        mkdir $task;
        (my $output = $o{output}) =~ s/%([%aA])/$1 eq 'a' ? $index : $1 eq 'A' ? $job : '%'/ge;
        put("$task/$_", $o{$_}) for qw(name seconds cpus held);
        put("$task/output", $output);
        put("$task/state", 'PENDING');
        push @tasks, $task;
    }
    print "$job\n";
    close STDOUT;
    my $pid = fork();
    return if $pid;
    setsid();
    POSIX::close($_) for 0 .. 255;
    open(STDIN,  '<', '/dev/null');
    open(STDOUT, '>', '/dev/null');
    open(STDERR, '>', '/dev/null');
    $SIG{INT} = $SIG{HUP} = 'DEFAULT';
    control($o{limit}, @tasks);
}

sub squeue {
    my ($format) = map { /^--format=(.*)/s ? $1 : () } @ARGV;
    for my $task (sort glob("$state/tasks/*")) {
        next if has_ended($task);
        my ($job, $index) = $task =~ m{/(\d+)_(\d+)$};
        my $status = get("$task/state");
        my %field = (j => get("$task/name"), F => $job, K => $index, T => $status,
            r => $status ne 'PENDING' ? 'None' : get("$task/held") ? 'JobHeldUser' : get("$task/begin") ? 'BeginTime' : 'Resources');
        (my $line = $format) =~ s/%([jFKTr])/$field{$1}/g;
        print "$line\n";
    }
}

sub scancel {
    my ($name) = map { /^--name=(.*)/s ? $1 : () } @ARGV;
    my @tasks = defined $name ? grep { get("$_/name") eq $name } glob("$state/tasks/*") : map { tasks($_) } grep { !/^-/ } @ARGV;
    put("$_/cancel", '') for grep { !has_ended($_) } @tasks;
}

sub scontrol {
    my ($what, @rest) = grep { !/^-/ } @ARGV;
    my ($id) = grep { /^\d/ } @rest;
    my @tasks = grep { !get("$_/ended") || time() < get("$_/ended") + $min_job_age } tasks($id);
    if (!@tasks) {
        print STDERR "slurm_load_jobs error: Invalid job id specified\n";
        exit 1;
    }
    if ($what eq 'show') {
        for my $task (@tasks) {
            my ($job, $index) = $task =~ m{/(\d+)_(\d+)$};
            printf("JobId=%d ArrayJobId=%d ArrayTaskId=%d JobName=%s JobState=%s Reason=None\n", $job + $index, $job, $index, get("$task/name"), get("$task/state"));
        }
    } elsif ($what eq 'requeue') {
        put("$_/requeue", '') for grep { get("$_/state") eq 'RUNNING' } @tasks;
    } elsif ($what eq 'release') {
        put("$_/held", '') for @tasks;
    } else {
        die "invalid keyword: $what\n";
    }
}

my %commands = (sbatch => \&sbatch, squeue => \&squeue, scancel => \&scancel, scontrol => \&scontrol);
$commands{$command} or die "$command: not one of Slurm's commands\n";
$commands{$command}->();
