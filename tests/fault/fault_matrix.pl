#!/usr/bin/env perl
# Fault injection: every command of norma, with every kind of fault at every point.
#     fault_matrix.pl --norma PROGRAM --tools FOLDER [--sample N] [--commands REGEX] [--kinds REGEX] [--markdown FILE] [--jobs N]
# Run in a folder that holds the models and texts of make_library_runs (tests/e2e/library_models.sh).
# FOLDER: fail_syscall and libfail_allocation.so. --sample N: at most N tries per command and kind, spread evenly.
# --markdown: writes the table of calls and tries. --jobs: number of commands tried at a time, each in a separate folder.
#
# A try is one run of the program in which one call fails, or that call and all later ones ("all later"). Required:
#     - a documented exit code, no signal, no hang; no report of a sanitizer
#     - exit code 0: output and files are those of the run without a fault
#     - otherwise: one line that begins with "norma: " and names the cause; the code belongs to the cause; output files are
#       complete, as before, or absent; no temporary file remains; no other file has changed
#     - training: the same command with --resume continues, and ends with the weights of the run without a fault
# Exit code: 0 no try failed, 1 some did, 77 the system does not permit injection.
use strict;
use warnings;
no warnings 'qw';    # arguments with commas
use Cwd 'getcwd';
use Digest::MD5;
use Errno ();
use File::Copy 'copy';
use File::Find 'find';
use File::Path qw(make_path remove_tree);
use FindBin;
use Getopt::Long;
use POSIX ();
use Storable ();

my ($norma, $tools, $sample, $commands, $kinds, $markdown, $jobs, $verbose) = ('', '', 0, '.', '.', '', 1, 0);
GetOptions('norma=s' => \$norma, 'tools=s' => \$tools, 'sample=i' => \$sample, 'commands=s' => \$commands,
    'kinds=s' => \$kinds, 'markdown=s' => \$markdown, 'jobs=i' => \$jobs,
    'verbose' => \$verbose) or exit 2;
my $work = getcwd();
$ENV{OMP_NUM_THREADS} = 1;
$ENV{GOMP_SPINCOUNT} = 0;    # otherwise the program executes itself again, without fault injection
$ENV{LC_ALL} = 'C';

# name, kind of system call (none: allocations), error, whether all later calls fail, too
my @faults = (
    ['allocation',     '',       'ENOMEM', 0],
    ['allocation, all later', '', 'ENOMEM', 1],
    ['open: EMFILE',   'open',   'EMFILE', 0],
    ['open: EACCES',   'open',   'EACCES', 0],
    ['read: EIO',      'read',   'EIO',    0],
    ['write: ENOSPC',  'write',  'ENOSPC', 0],
    ['write: ENOSPC, all later', 'write', 'ENOSPC', 1],
    ['sync: EIO',      'sync',   'EIO',    0],
    ['rename: EIO',    'rename', 'EIO',    0],
    ['rename: EPERM',  'rename', 'EPERM',  0],
    ['map: ENOMEM',    'map',    'ENOMEM', 0],
    ['map: ENOMEM, all later', 'map', 'ENOMEM', 1],
    ['stat: EIO',      'stat',   'EIO',    0],
    ['remove: EIO',    'remove', 'EIO',    0],
    ['folder: EIO',    'folder', 'EIO',    0],
    ['lock: ENOLCK',   'lock',   'ENOLCK', 0],
    ['process: EAGAIN', 'process', 'EAGAIN', 1],
);

# copy: files and folders that a try gets as its own, as try/NAME. outputs: files that are complete or absent.
# processes: number of processes that the command starts; the fault "process" is for these only, because the OpenMP runtime
# ends the program itself when a thread cannot be started (tests/e2e/e2e_limits.sh has what Norma does before that).
# resume: the command is repeated with --resume. stdin: standard input. optional: the command is left out if it ends with exit
# code 7, because a library or program is not installed. needs: it is left out if this file does not exist. sample: number of
# tries per kind with a smaller --sample, for commands in which few calls can show a defect.
my @prepare = qw(prepare --train train --valid valid --source-lang de --target-lang en --tokenizer moses --bpe-merges 20 --threads 1);
my @all = (
    {name => 'prepare', run => [@prepare, qw(--output try/data)], outputs => ['data/data.ini']},
    {name => 'prepare text', run => [qw(prepare --format text --tokenizer none --bpe-merges 0 --train lm.txt --threads 1 --output try/data)],
        outputs => ['data/data.ini']},
    {name => 'prepare --alignments', run => [qw(prepare --train train --valid valid --source-lang de --target-lang en --alignments links --encoding latin1 --valid-encoding utf-8
        --tokenizer moses --bpe-merges 20 --subword-sampling true --drop-duplicates true --threads 1 --output try/data)], outputs => ['data/data.ini']},
    {name => 'prepare archive, table', run => [qw(prepare --train pairs.tgz/pairs/train,pairs.jsonl --valid-every 9 --source-lang de --target-lang en
        --tokenizer none --bpe-vocabulary 60 --joint false --punctuation moses --threads 1 --output try/data)], outputs => ['data/data.ini'], optional => 1, sample => 20},
    {name => 'prepare documents', run => [qw(prepare --format text --documents separated --train docs.txt --valid-every 9 --tokenizer byte_level
        --pretokenizer qwen2 --bpe-merges 20 --drop-duplicates true --threads 1 --output try/data)], outputs => ['data/data.ini']},
    {name => 'prepare sentencepiece', run => [qw(prepare --train train --valid valid --source-lang de --target-lang en --tokenizer sentencepiece
        --spm-vocab-size 320 --threads 1 --output try/data)], outputs => ['data/data.ini'], processes => 1, optional => 1},
    {name => 'prepare --codes, dictionaries', run => [qw(prepare --train train --source-lang de --target-lang en --codes data/codes.bpe
        --dict-source data/dict.source.txt --dict-target data/dict.target.txt --threads 1 --output try/data)], outputs => ['data/data.ini']},
    {name => 'prepare --like model', run => [qw(prepare --like run-translate --train few --valid valid --threads 1 --output try/data)],
        outputs => ['data/data.ini']},
    {name => 'train', run => [qw(train translate.ini --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train --resume', copy => ['run'], resume => 1,
        run => [qw(train translate.ini --run.quiet --run.folder try/run --resume)]},
    {name => 'train --resume, damaged checkpoint', copy => ['damaged'], resume => 1,
        run => [qw(train translate.ini --run.quiet --run.folder try/damaged --resume)]},
    {name => 'train lm', run => [qw(train lm.ini --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train tag', run => [qw(train tag.ini --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train classify', run => [qw(train classify.ini --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train images, records', run => [qw(train images.ini --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train images, folder', run => [qw(train images.ini --data.train png/train --data.valid png/valid --model.preset tiny-vit --model.norm layer
        --run.quiet --run.folder try/run)], resume => 1, optional => 1},
    {name => 'train --tune', run => [qw(train lm --tune run-lm --data.folder lm-data --train.updates 4 --train.max_tokens 256 --run.profile=
        --device.threads 1 --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train --model.init_from', run => [qw(train translate.ini --model.init_from run-translate --model.freeze enc --train.updates 4
        --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train, guided alignment', run => [qw(train translate.ini --data.folder aligned --model.alignment_head 1
        --model.alignment_layer 1 --train.updates 4 --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train, BPE-dropout', run => [qw(train translate.ini --data.folder aligned --data.subword_dropout 0.1 --train.epochs 2 --train.updates 0 --train.max_tokens 600
        --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train, shards, instruments', run => [qw(train translate.ini --model.norm rbn --model.decoder_norm power --train.shards 2 --norm.state worker
        --probe.every 2 --optim.name muon --schedule.name val-decay --train.validate_every 2 --train.score true --train.patience 2
        --train.updates 4 --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train sentencepiece', run => [qw(train translate.ini --data.folder pieces --data.subword_sampling 0.2 --train.updates 3
        --run.quiet --run.folder try/run)], resume => 1, needs => 'pieces'},
    {name => 'train tag, vectors', run => [qw(train tag.ini --data.vectors vectors.txt --model.word_dim 4 --model.bigram_dim 4 --train.epochs 1 --run.quiet
        --run.folder try/run)], resume => 1},
    {name => 'train classify, n-grams', run => [qw(train classify.ini --model.ngram_dim 4 --model.ngram_buckets 50 --model.ngram_weights idf
        --data.codes data/codes.bpe --train.epochs 1 --run.quiet --run.folder try/run)], resume => 1},
    {name => 'train --dry-run', run => [qw(train translate.ini --dry-run --run.folder try/run)]},
    {name => 'translate', run => [qw(translate run-translate --beam 2)], stdin => 'few.de'},
    {name => 'translate --output', run => [qw(translate run-translate few.de --output try/out)], copy => ['out'], outputs => ['out']},
    {name => 'translate --shortlist', run => [qw(translate run-translate few.de --shortlist list --output try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'translate --json', run => [qw(translate run-translate,run-batch --beam 2 --nbest 2 --json --alignment few.de --encoding latin1)]},
    {name => 'translate --prefix, --constraints', run => [qw(translate run-translate few.de --prefix few.prefix --constraints few.phrases
        --beam 4)]},
    {name => 'translate --search sample, int8', run => [qw(translate run-batch few.de --search sample --nbest 3 --precision int8)]},
    {name => 'translate pieces', run => [qw(translate run-pieces few.de --output-format subword)], needs => 'run-pieces'},
    {name => 'rescore', run => [qw(rescore run-translate few.de few.en --json --alignment --output try/out)], copy => ['out'], outputs => ['out']},
    {name => 'shortlist', run => [qw(shortlist data --threads 1 --output try/out)], copy => ['out'], outputs => ['out']},
    {name => 'tag', run => [qw(tag run-tag names.few --input-format text --output try/out)], copy => ['out'], outputs => ['out']},
    {name => 'tag --json', run => [qw(tag run-tag tags.few --json --scheme bioes --encoding latin1)]},
    {name => 'tag --evaluate', run => [qw(tag run-tag tags.few --evaluate)]},
    {name => 'classify', run => [qw(classify run-classify reviews.few --probabilities --output try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'classify csv', run => [qw(classify run-classify reviews.csv --text text --json)]},
    {name => 'classify --evaluate', run => [qw(classify run-classify reviews.tsv --evaluate --json)]},
    {name => 'classify images', run => [qw(classify run-images png/valid/red/0.png png/valid/green/1.png png/valid/blue/5.png --probabilities
        --output try/out)], copy => ['out'], outputs => ['out'], optional => 1},
    {name => 'classify images --evaluate', run => [qw(classify run-images png/valid --evaluate --json)], optional => 1},
    {name => 'perplexity', run => [qw(perplexity run-lm lm.few --json)]},
    {name => 'perplexity --tokens', run => [qw(perplexity run-bytes docs.few --tokens --documents separated)]},
    {name => 'perplexity --context', run => [qw(perplexity run-lm lm.few lm.few --context 4 --interval)]},
    {name => 'perplexity of pairs', run => [qw(perplexity run-translate --split valid --json)]},
    {name => 'generate file', run => [qw(generate run-bytes docs.few --documents separated --samples 2 --tokens 6 --stop cat --json --output try/out)],
        copy => ['out'], outputs => ['out']},
    {name => 'generate', run => [qw(generate run-lm --prompt), 'the dog', qw(--tokens 12 --temperature 0.8 --seed 3)]},
    {name => 'score bleu', run => [qw(score bleu few.de --reference few.en --json)]},
    {name => 'score chrf', run => [qw(score chrf few.de --reference few.en --against few.en)]},
    {name => 'score ter', run => [qw(score ter few.de --reference few.en)]},
    {name => 'score bleu, pieces', run => [qw(score bleu few.de --reference few.en,few.de --tokenize spm --spm-model pieces/sentencepiece.source.model --sentence)],
        needs => 'pieces'},
    {name => 'score accuracy', run => [qw(score accuracy labels.few --reference labels.few --json)]},
    {name => 'score f1', run => [qw(score f1 spans.few --reference spans.few)]},
    {name => 'inspect', run => [qw(inspect run-translate)]},
    {name => 'inspect --save', run => [qw(inspect try/run --save --batches 2)], copy => ['run'], outputs => ['run/inspection.json']},
    {name => 'inspect --checkpoints', run => [qw(inspect run-batch --checkpoints --advise --json --batches 2 --gradient-batches 2)]},
    {name => 'average', run => [qw(average try/out run-translate/last.safetensors run-translate/best.safetensors)], copy => ['out'],
        outputs => ['out']},
    {name => 'average run', run => [qw(average try/out run-batch --last 2)], copy => ['out'], outputs => ['out'], sample => 20},
    {name => 'export --fold', run => [qw(export run-batch -o try/out --fold --bf16)], copy => ['out'], outputs => ['out']},
    {name => 'export', run => [qw(export run-translate/last.safetensors -o try/out --int8)], copy => ['out'], outputs => ['out']},
    {name => 'convert --from ctranslate2', run => [qw(convert fixture/ctranslate2 --from ctranslate2 -o try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'convert --from huggingface', run => [qw(convert fixture/huggingface --from huggingface -o try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'convert --from huggingface, GPT-2', run => [qw(convert fixture/huggingface-gpt2 --from huggingface -o try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'convert --from huggingface, Llama', run => [qw(convert fixture/huggingface-llama --from huggingface -o try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'convert --from ctranslate2, lm', run => [qw(convert fixture/ctranslate2-lm --from ctranslate2 -o try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'convert --from fairseq', run => [qw(convert fixture/fairseq --from fairseq --heads 2 -o try/out)], copy => ['out'], outputs => ['out']},
    {name => 'convert --from marian', run => [qw(convert marian/post.npz --from marian --vocabs marian/source.yml,marian/target.yml -o try/out)],
        copy => ['out'], outputs => ['out'], optional => 1, sample => 20},
    {name => 'convert --to ctranslate2', run => [qw(convert run-batch --to ctranslate2 -o try/folder)]},
    {name => 'convert --to huggingface', run => [qw(convert run-translate --to huggingface -o try/folder)]},
    {name => 'convert --to huggingface, byte-level', run => [qw(convert run-bytes --to huggingface -o try/folder)]},
    {name => 'report', run => [qw(report run-translate run-lm --no-samples -o try/out)], copy => ['out'], outputs => ['out']},
    {name => 'report --tensorboard', run => [qw(report run-translate --no-samples -o try/out --tensorboard try/events)]},
    {name => 'report --png', run => [qw(report runs/layer-1 runs/rms-1 --inspected inspected.json -o try/out --png try/png --png-width 240)], outputs => ['out'],
        processes => 1},
    {name => 'baseline lm', run => [qw(baseline lm.ini --data.folder lm-split --bootstrap 20 --json)]},
    {name => 'baseline tag', run => [qw(baseline tag.ini --bootstrap 20)]},
    {name => 'baseline translate', run => [qw(baseline translate.ini --bootstrap 20)]},
    {name => 'baseline', run => [qw(baseline classify.ini --bootstrap 20)]},
    {name => 'baseline image', run => [qw(baseline images.ini --bootstrap 20)]},
    {name => 'compare --results', run => [qw(compare --results runs)]},
    {name => 'compare', run => [qw(compare classify.ini --norms layer,rms --compare.folder try/compare --train.epochs 1 --jobs 1 --data.test reviews.tsv)],
        outputs => ['compare/comparison.json'], processes => 2},
    {name => 'compare --results, json', run => [qw(compare --results runs --format json)]},
    {name => 'compare --grid', run => [qw(compare lm.ini --norms rms --grid model.heads=1,2 --score-grid --average 2 --train.save_every 1
        --compare.folder try/compare --train.updates 2 --jobs 1 --data.folder lm-split --format latex)], outputs => ['compare/comparison.json'],
        processes => 2},
    {name => 'tokenize', run => [qw(tokenize few.de --like run-translate)]},
    {name => 'subword', run => [qw(subword few.de --like run-translate)]},
    {name => 'tokenize --output', run => [qw(tokenize docs.few --tokenizer byte_level --encoding latin1 --output try/out)], copy => ['out'],
        outputs => ['out']},
    {name => 'subword --undo', run => [qw(subword --undo docs.few --like run-bytes --output try/out)], copy => ['out'], outputs => ['out']},
    {name => 'subword pieces', run => [qw(subword few.de --spm-model pieces/sentencepiece.source.model)], needs => 'pieces', sample => 20},
    {name => 'normalize pieces', run => [qw(normalize few.de --spm-model pieces/sentencepiece.source.model)], needs => 'pieces'},
    {name => 'detokenize --like', run => [qw(detokenize few.de --like data --side target --output try/out)], copy => ['out'], outputs => ['out']},
    {name => 'normalize', run => [qw(normalize few.de --form nfkc)]},
    {name => 'detokenize', run => [qw(detokenize few.de)]},
    {name => 'compressed text', run => [qw(tokenize few.de.gz)]},
    {name => 'recipes', run => ['recipes', 'lm']},
    {name => 'help', run => [qw(help train all)]},
    {name => 'manual', run => [qw(compare --manual)]},
    {name => 'completion', run => [qw(completion bash)]},
);

# ---- runs ----

sub slurp { my ($path) = @_; local $/; open(my $in, '<:raw', $path) or return undef; my $text = <$in>; return $text // '' }
sub spew { open(my $out, '>:raw', $_[0]) or die "$_[0]: $!\n"; print $out $_[1]; close $out or die "$_[0]: $!\n" }

sub copy_tree {
    my ($from, $to) = @_;
    find({no_chdir => 1, wanted => sub {
        (my $target = $File::Find::name) =~ s/^\Q$from\E/$to/;
        if (-d) { make_path($target) } else { copy($_, $target) or die "$_: $!\n" }
    }}, $from);
}

# Parts of a file that differ between equal runs: times, load, process ids.
sub plain {
    my ($path, $text) = @_;
    # contain times, and digests of files with times
    return '' if $path =~ /\.state\.safetensors$|\.intoto\.json$|(?:compare|runs)\/[^\/]*\.txt$/;
    if ($path =~ /\.safetensors$/ and length $text > 8) {    # the tensors; the metadata contains settings of a resumed run
        my $length = unpack 'Q<', $text;
        return $text if 8 + $length > length $text;    # damaged
        (my $header = substr $text, 8, $length) =~ s/"__metadata__":\{(?:[^"{}]|"(?:\\.|[^"\\])*")*\},?//;
        return ($header =~ s/ +$//r) . substr $text, 8 + $length;
    }
    if ($path =~ /\.jsonl?$|\.html$|^out$/) {
        $text =~ s/"(?:seconds|[a-z]*seconds|tokens_per_second|load|other_cores|started|command|date|host|step_mib|peak_mib)":\s*("[^"]*"|[^,}]*)//g;
        $text =~ s/\d+(?:\.\d+)? (?:s|tokens\/s|MiB|min)\b//g;
    }
    $text =~ s/\b\d+(?:\.\d+)? ?(?:s|ms|tokens\/s|seconds)\b//g if $path eq 'stdout';
    $text =~ s/^(seconds|started|command) = .*$//mg if $path =~ /\.ini$/;
    return $text;
}

# path => digest of everything below try/
sub snapshot {
    my %files;
    find({no_chdir => 1, wanted => sub {
        return unless -f;
        (my $name = $File::Find::name) =~ s/^try\///;
        return if $name =~ /^events\/|(^|\/)\.lock$|^compare\/queue\.jsonl$/; # the queue is a record, the results are elsewhere
        $files{$name} = Digest::MD5::md5_hex(plain($name, slurp($_) // ''));
    }}, 'try') if -d 'try';
    return \%files;
}

sub fresh {
    my ($command) = @_;
    remove_tree('try');
    make_path('try');
    for my $name (@{$command->{copy} // []}) {
        if ($name eq 'out') { spew('try/out', "the user's file\n") } else { copy_tree("fixture/$name", "try/$name") }
    }
}

# Runs the command; fault: [name, kind, error, following] or undef. Returns the exit code (128 + signal), -1 after a hang.
sub run {
    my ($command, $fault, $at, @more) = @_;
    unlink 'calls';
    my @line = ($norma, @{$command->{run}}, @more);
    if ($fault and $fault->[1]) {
        no strict 'refs';
        unshift @line, "$tools/fail_syscall", $fault->[1], &{"Errno::$fault->[2]"}(), $at, $fault->[3], 'calls';
    }
    my $child = fork();
    if (!$child) {
        POSIX::setpgid(0, 0);
        open(STDIN, '<', $command->{stdin} // '/dev/null') or die;
        open(STDOUT, '>', 'stdout') or die;
        open(STDERR, '>', 'stderr') or die;
        if ($fault and !$fault->[1]) {
            $ENV{FAULT_AT} = $at;
            $ENV{FAULT_FOLLOWING} = 1 if $fault->[3];
            $ENV{FAULT_REPORT} = "$work/calls";
            $ENV{LD_PRELOAD} = "$tools/libfail_allocation.so";
        }
        exec { $line[0] } @line or POSIX::_exit(127);
    }
    my $hung = 0;
    local $SIG{ALRM} = sub { $hung = 1; kill 'KILL', -$child };
    alarm 60;
    waitpid($child, 0);
    my $status = $?;
    alarm 0;
    kill 'KILL', -$child;    # processes that it left running
    return $hung ? -1 : $status & 127 ? 128 + ($status & 127) : $status >> 8;
}

# Numbers of the calls to try: all system calls; of the allocations the first and the last one of each call stack.
sub points {
    my ($command, $fault) = @_;
    my ($total, @rest) = split /\n/, slurp('calls') // '0';
    my @at = 1 .. $total;
    if (!$fault->[1]) {
        my %distinct = map { $_ => 1 } map { $fault->[3] ? (split / /)[0] : split / / } @rest;
        @at = sort { $a <=> $b } keys %distinct;
    }
    my $n = $sample && $command->{sample} && $command->{sample} > $sample ? $command->{sample} : $sample;
    @at = @at[map { int(($_ + 0.5) * @at / $n) } 0 .. $n - 1] if $n and @at > $n;
    return ($total, @at);
}

# ---- checks ----

# Codes and causes of a fault. A file that cannot be read may also be reported as missing by the reader of an optional file.
sub names_cause {
    my ($fault, $code, $message) = @_;
    # iconv_open of glibc returns EINVAL if it has no memory for its list of encodings; libarchive does not report that of zlib
    return $code == 6 && $message =~ /memory/i || $message =~ /unknown encoding|gzip decompression failed/ if $fault->[2] eq 'ENOMEM';
    return $code == 3 || $code == 5 if $fault->[1] eq 'stat';    # also what follows from a file that seems absent
    no strict 'refs';
    local $! = &{"Errno::$fault->[2]"}();
    return ($code == 3 || $code == 6 && $fault->[1] eq 'process') && ($message =~ /\Q$!\E/i || $message =~ /cannot|failed|no such file/i);
}

sub check {
    my ($command, $fault, $code, $before, $reference) = @_;
    my $stderr = slurp('stderr');
    return 'hangs' if $code == -1;
    return "sanitizer: $1" if $stderr =~ /((?:ERROR: \w*Sanitizer|runtime error).*)/;
    return "exit code $code: " . substr($stderr, -300) unless $code == 0 or ($code >= 2 and $code <= 9);
    my $after = snapshot();
    my $stdout = plain('stdout', slurp('stdout'));
    if ($code == 0) {
        return "exit code 0 with another output" if $stdout ne $reference->{stdout};
        for my $name (sort keys %{$reference->{files}}) {
            return "exit code 0 without $name" unless $after->{$name};
            return "exit code 0 with another $name" if $after->{$name} ne $reference->{files}{$name};
        }
        return '';
    }
    my ($last) = $stderr =~ /([^\n]*)\n?\z/;
    return "no message: " . substr($stderr, -300) unless $last =~ /^norma: /;
    return "another cause, exit code $code: $last" unless names_cause($fault, $code, $last);
    for my $name (@{$command->{outputs} // []}) {
        my $now = $after->{$name};
        return "$name is neither complete nor as before"
            unless ($now // '') eq ($before->{$name} // '') or $now eq ($reference->{files}{$name} // '');
    }
    if ($fault->[1] ne 'remove') {
        my @temporary = grep { /\.new$/ } keys %$after;
        return "a temporary file remains: @temporary" if @temporary and !$command->{resume};
    }
    unless ($command->{resume}) {
        for my $name (sort keys %$before) {
            next if grep { $_ eq $name } @{$command->{outputs} // []};
            return "$name has changed" if ($after->{$name} // '') ne $before->{$name};
        }
    }
    if ($command->{resume}) {
        for my $name (grep { /\.damaged/ and !$reference->{files}{$_} } keys %$after) {
            return "an intact file was renamed to $name";
        }
        my $again = run($command, undef, 0, (grep { $_ eq '--resume' } @{$command->{run}}) ? () : '--resume');
        return "does not continue: exit code $again: " . substr(slurp('stderr'), -300) if $again;
        my $ended = snapshot();
        for my $name (sort grep { /safetensors$/ } keys %{$reference->{files}}) {
            return "continued with another $name" if ($ended->{$name} // '') ne $reference->{files}{$name};
        }
        my @temporary = grep { /\.new$/ } keys %$ended;
        return "a temporary file remains after the continuation: @temporary" if @temporary;
    }
    return '';
}

# ---- the matrix ----

sub head { my ($from, $to, $n) = @_; my @lines = split /^/, slurp($from); spew($to, join '', @lines[0 .. ($n < @lines ? $n - 1 : $#lines)]) }

# Makes an input with the program. An input that needs a library or program that is not installed is left out.
sub make {
    my ($path, @arguments) = @_;
    return if -e $path;
    my $command = join ' ', map { "'$_'" } @arguments;
    my $code = system("'$norma' $command >stdout 2>stderr") >> 8;
    die "norma @arguments: exit code $code: ", slurp('stderr') unless $code == 0 or $code == 7;
}

make_path('fixture');
head('train.de', 'few.de', 8);
head('train.en', 'few.en', 8);
head('names.txt', 'names.few', 6);
head('tags.txt', 'tags.few', 30);
head('reviews.txt', 'reviews.few', 6);
head('lm.txt', 'lm.few', 6);
system('gzip -kf few.de');
my @pairs = map { my ($de, $en) = @$_; chomp($de, $en); [$de, $en] } do {
    my @de = split /^/, slurp('train.de'); my @en = split /^/, slurp('train.en'); map { [$de[$_], $en[$_]] } 0 .. $#de };
spew('links', join '', map { my $words = () = $_->[0] =~ /\S+/g; join(' ', map { "$_-$_" } 0 .. $words - 1) . "\n" } @pairs);
spew('pairs.jsonl', join '', map { "{\"de\": \"$_->[0]\", \"en\": \"$_->[1]\"}\n" } @pairs[0 .. 39]);
make_path('pairs');
copy("train.$_", "pairs/train.$_") for qw(de en);
system('tar czf pairs.tgz pairs');
spew('docs.txt', join "\n", map { "Story $_\n  Once a cat\thad " . $_ % 7 . " lives.\n" . ($_ % 2 ? "The end.\n" : '') } 1 .. 40);
head('docs.txt', 'docs.few', 7);
spew('few.prefix', join '', map { (split ' ', $_->[1])[0] . "\n" } @pairs[0 .. 7]);
spew('few.phrases', join '', map { $_ % 2 ? "tree\n" : "blue dog\tred\n" } 0 .. 7);
spew('vectors.txt', join '', map { "$_ 0.1 -0.2 0.3 0.5\n" } qw(anna lives in wien .));
spew('reviews.csv', "id,text\n" . join '', map { "$_,\"" . (split /\n/, slurp('reviews.few'))[$_] . "\"\n" } 0 .. 5);
spew('labels.few', "good\nbad\ngood\n");
spew('spans.few', "B-PER O O B-LOC O\nO O\n");
make('fixture/run', qw(train translate.ini --run.quiet --run.folder fixture/run --train.updates 6));
if (!-d 'fixture/damaged') {    # two checkpoints; the newer one, of update 6, is damaged
    make('fixture/damaged', qw(train translate.ini --run.quiet --run.folder fixture/damaged --train.updates 6 --train.validate_every 3 --train.keep_last 2));
    spew($_, substr slurp($_), 0, 100) for glob 'fixture/damaged/checkpoints/*6.safetensors';
}
make('run-batch', qw(train translate.ini --run.quiet --run.folder run-batch --model.norm batch --train.updates 6 --train.save_every 3 --train.keep_last 2));
make('run-untied', qw(train translate.ini --run.quiet --run.folder run-untied --model.share_embeddings none --train.updates 2));
system($^X, "$FindBin::Bin/../support/make_images.pl", 12, 6) and die "no images\n" unless -d 'png';
spew('images.ini', "[run]\ntask = image\n[data]\ntrain = records\nvalid = records\nsize = 8\nbatch = 6\ncrop = 1\n[model]\npreset = tiny\n"
    . "norm = batch\n[train]\nepochs = 2\nlog_every = 1\n[optim]\nname = sgd\n[schedule]\nname = constant\nlr = 0.05\nwarmup = 0\n"
    . "[device]\nthreads = 1\n");
make('run-images', qw(train images.ini --run.quiet --run.folder run-images));
make('aligned', qw(prepare --train train --valid valid --source-lang de --target-lang en --alignments links --bpe-merges 20 --joint true
    --subword-sampling true --output aligned));
make('bytes', qw(prepare --format text --documents separated --train docs.txt --tokenizer byte_level --bpe-merges 20 --output bytes));
make('run-bytes', qw(train lm.ini --run.quiet --data.folder bytes --model.preset llama --model.width 16 --model.ff 32 --model.heads 2
    --model.layers 1 --run.folder run-bytes));
make('run-gpt2', qw(train lm.ini --run.quiet --data.folder bytes --model.preset gpt2 --model.width 16 --model.ff 32 --model.heads 2 --model.layers 1
    --run.folder run-gpt2));
make('lm-split', qw(prepare --format text --train lm.txt --valid-every 5 --test lm.few --bpe-merges 10 --output lm-split));
make('pieces', qw(prepare --train train --valid valid --source-lang de --target-lang en --tokenizer sentencepiece --spm-vocab-size 320 --output pieces));
make('run-pieces', qw(train translate.ini --run.quiet --data.folder pieces --run.folder run-pieces)) if -d 'pieces';
make('list', qw(shortlist data --threads 1 --output list));
make("fixture/$_->[0]", 'convert', $_->[1], '--to', $_->[2], '-o', "fixture/$_->[0]") for
    ['ctranslate2', 'run-translate', 'ctranslate2'], ['huggingface', 'run-translate', 'huggingface'], ['huggingface-untied', 'run-untied', 'huggingface'],
    ['ctranslate2-lm', 'run-lm', 'ctranslate2'],
    ['huggingface-gpt2', 'run-gpt2', 'huggingface'], ['huggingface-llama', 'run-bytes', 'huggingface'];
if (!-d 'fixture/fairseq') {    # the names of M2M100 without their prefix
    make_path('fixture/fairseq');
    copy("data/$_", 'fixture/fairseq') for qw(dict.source.txt dict.target.txt data.ini);
    my $model = slurp('fixture/huggingface-untied/model.safetensors');
    my $length = unpack 'Q<', $model;
    my $header = substr($model, 8, $length) =~ s/model\.//gr =~ s/lm_head\.weight/decoder.output_projection.weight/r =~ s/"xxh3"/"sums"/r;
    spew('fixture/fairseq/model.safetensors', pack('Q<', length $header) . $header . substr $model, 8 + $length);
}
copy_tree("$FindBin::Bin/../interchange/marian", 'marian');
make('runs/comparison.json', qw(compare classify.ini --norms layer,rms --compare.folder runs --train.epochs 1 --jobs 1 --data.test reviews.tsv));
make('inspected.json', qw(inspect runs/layer-1 runs/rms-1 --json --batches 1 --gradient-batches 1));
spew('inspected.json', slurp('stdout')) unless -e 'inspected.json';

# All tries of a command: {available: whether the system permits injection, row: for each fault [calls, tries, failures]}.
sub try_command {
    my ($command) = @_;
    my ($available, %row) = (0);
    fresh($command);
    my $before = snapshot();
    my $code = $command->{needs} && !-e $command->{needs} ? 7 : run($command, undef, 0);
    if ($code == 7 and $command->{needs} || $command->{optional}) {
        print "$command->{name}: skipped: ", slurp('stderr') || "there is no $command->{needs}\n";
        return {available => 1, row => {}};
    }
    die "$command->{name}: exit code $code without a fault: ", slurp('stderr') if $code;
    my $reference = {files => snapshot(), stdout => plain('stdout', slurp('stdout'))};
    for my $fault (grep { $_->[0] =~ /$kinds/ } @faults) {
        fresh($command);
        $code = run($command, $fault, 0);
        next if $code == 77 or !-e 'calls';    # not available here
        $available = 1;
        my ($total, @at) = points($command, $fault);
        @at = grep { $_ <= ($command->{processes} // 0) } @at if $fault->[1] eq 'process';
        next unless @at;
        my $failed = 0;
        for my $at (@at) {
            fresh($command);
            $code = run($command, $fault, $at);
            my $trouble = check($command, $fault, $code, $before, $reference);
            next unless $trouble;
            $failed++;
            print "$command->{name}: $fault->[0], call $at of $total: $trouble\n";
        }
        print "$command->{name}: $fault->[0]: $total calls, ", scalar @at, " tries, $failed failures\n" if $verbose;
        $row{$fault->[0]} = [$total, scalar @at, $failed];
    }
    return {available => $available, row => \%row};
}

# Job `part` tries the commands that no other job has begun, in a copy of the folder.
sub run_job {
    my ($part, @chosen) = @_;
    $work = "$work/job-$part";
    chdir $work or die "$work: $!\n";
    for my $i (0 .. $#chosen) {
        mkdir "../begun-$i" or next;
        Storable::nstore(try_command($chosen[$i]), "../result-$i");
    }
}

$| = 1;
my @chosen = grep { $_->{name} =~ /$commands/ } @all;
my @entries = glob '*';
my @children = map {
    my $part = $_;
    mkdir "job-$part" or die "job-$part: $!\n";
    for my $entry (@entries) {
        if (-d $entry) { copy_tree($entry, "job-$part/$entry") } else { copy($entry, "job-$part/$entry") or die "$entry: $!\n" }
    }
    my $child = fork() // die "fork: $!\n";
    if (!$child) {
        my $done = eval { run_job($part, @chosen); 1 };
        print STDERR $@ unless $done;
        POSIX::_exit($done ? 0 : 1);
    }
    $child
} 1 .. $jobs;
my $broken = 0;
for my $child (@children) {
    waitpid($child, 0);
    $broken ||= $?;
}
exit 1 if $broken;

my ($failures, $tries, $available, %row) = (0, 0, 0);
for my $i (0 .. $#chosen) {
    my $result = Storable::retrieve("result-$i");
    $available ||= $result->{available};
    $row{$chosen[$i]{name}} = $result->{row};
    for my $cell (values %{$result->{row}}) {
        $tries += $cell->[1];
        $failures += $cell->[2];
    }
    rmdir "begun-$i";
    unlink "result-$i";
}
remove_tree("job-$_") for 1 .. $jobs;
if (!$available) {
    print "the system does not permit fault injection (seccomp)\n";
    exit 77;
}
if ($markdown) {
    my @used = grep { my $f = $_; grep { $row{$_}{$f->[0]} } keys %row } @faults;
    my $text = '| command | ' . join(' | ', map { $_->[0] } @used) . " |\n|---|" . '--:|' x @used . "\n";
    for my $command (grep { %{$row{$_->{name}} // {}} } @all) {
        $text .= "| $command->{name} | " . join(' | ', map {
            my $cell = $row{$command->{name}}{$_->[0]};
            !$cell ? '' : "$cell->[0], $cell->[1]" . ($cell->[2] ? ", $cell->[2] failed" : '') } @used) . " |\n";
    }
    spew($markdown, $text);
}
printf "%d passed, %d failed\n", $tries - $failures, $failures;
exit($failures ? 1 : 0);
