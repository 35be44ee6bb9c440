#!/usr/bin/perl
# Generates the recipes of the tables in the papers: one short INI file per row, from the tables below.
#
#     scripts/recipes.pl FOLDER
#
# writes FOLDER/tears, FOLDER/pn and FOLDER/rbn. The settings that rows share are in recipes/common, which is not generated.
# The published results are those of Nguyen and Salazar 2019 (tears), Shen et al. 2020 (pn) and Wang et al. 2022 (rbn).
use strict;
use warnings;

die "usage: scripts/recipes.pl FOLDER\n" unless @ARGV == 1 and $ARGV[0] !~ /^-/;
my $folder = shift;

# recipe(path, include, [comment lines], [section => [key, value], ...], ...)
sub recipe {
    my ($path, $include, $comments, @sections) = @_;
    open my $out, '>', "$folder/$path.ini" or die "$folder/$path.ini: $!\n";
    print $out "# $_\n" for @$comments;
    print $out "include = ../$include.ini\n";
    for my $section (@sections) {
        my ($name, @settings) = @$section;
        print $out "\n[$name]\n";
        print $out "$_\n" for @settings;
    }
    close $out or die "$folder/$path.ini: $!\n";
}

for my $paper ('', '/tears', '/pn', '/rbn') {
    -d "$folder$paper" or mkdir "$folder$paper" or die "$folder$paper: $!\n";
}

# ---- Transformers without Tears ----

my @pairs = qw(gl-en sk-en en-vi en-he ar-en);
my %corpus = (
    'gl-en' => 'TED talks Galician-English, as data/ted-gl-en',
    'sk-en' => 'TED talks Slovak-English, as data/ted-sk-en',
    'en-vi' => 'IWSLT15 English-Vietnamese, as data/iwslt15-en-vi',
    'en-he' => 'TED talks English-Hebrew, as data/ted-en-he',
    'ar-en' => 'TED talks Arabic-English, as data/ted-ar-en',
    wmt     => 'WMT16 English-German with 32,000 subwords, as data/wmt16-en-de',
);
my @fix_scale = ('norm_position = pre', 'norm = scale', 'fixnorm = true');

sub tears {
    my ($name, $pair, $title, $number, @sections) = @_;
    recipe("tears/$name-$pair", "common/tears-$pair",
        ["Transformers without Tears, $title.", "Published result: $number.",
         "Data: $corpus{$pair} (docs/reproduce.md)."], @sections);
}

# One recipe per language pair; the numbers are in the order of @pairs.
sub tears_pairs {
    my ($name, $title, $set, $numbers, @sections) = @_;
    my @numbers = split ' ', $numbers;
    tears($name, $pairs[$_], "$title, $pairs[$_]", "$numbers[$_] BLEU on the $set set", @sections) for 0 .. $#pairs;
}

# Table 2: initialization, norm position, warm-up
for my $row (['xavier', 'xavier-normal', 'post', 'Xavier normal, post-norm', 'fails', 'fails', '5.76'],
             ['xavier', 'xavier-normal', 'pre', 'Xavier normal, pre-norm', '28.52', '28.73', '28.32'],
             ['smallinit', 'small', 'post', 'SmallInit, post-norm', '28.17', '28.20', '28.62'],
             ['smallinit', 'small', 'pre', 'SmallInit, pre-norm', '28.26', '28.44', '28.33']) {
    my ($short, $init, $position, $title, @numbers) = @$row;
    for my $i (0 .. 2) {
        my $k = (4, 8, 16)[$i];
        my $number = $numbers[$i] eq 'fails' ? 'training fails' : "$numbers[$i] BLEU on the validation set";
        tears("table2-$short-$position-${k}k", 'en-vi', "table 2, $title, warm-up ${k}k, en-vi", $number,
            ['model', "norm_position = $position", "init = $init"], ['schedule', "warmup = ${k}000"]);
    }
}

# Table 3: norms
tears_pairs('table3-1', 'table 3, row (1): post-norm, LayerNorm', 'test', '18.47 29.37 31.94 27.85 33.39',
    ['model', 'norm_position = post']);
tears_pairs('table3-2', 'table 3, row (2): pre-norm, LayerNorm', 'test', '19.09 29.45 31.92 28.13 33.79',
    ['model', 'norm_position = pre']);
tears_pairs('table3-3', 'table 3, row (3): pre-norm, FixNorm, LayerNorm', 'test', '19.38 29.50 32.45 28.39 34.35',
    ['model', 'norm_position = pre', 'fixnorm = true']);
tears_pairs('table3-4', 'table 3, row (4): pre-norm, FixNorm, ScaleNorm', 'test', '20.91 30.25 32.79 28.44 34.15',
    ['model', @fix_scale]);

# Table 4: learning rates
my $fix = 'pre-norm, FixNorm, ScaleNorm';
my @no_warmup = ('schedule', 'name = no-warmup', 'lr = 3e-4', 'warmup = 0');
my @val_decay = ('schedule', 'name = val-decay');
tears_pairs('table4-nowarmup', "table 4, NoWarmup: $fix", 'validation', '18.00 28.92 28.91 30.33 35.40',
    ['model', @fix_scale], [@no_warmup]);
tears_pairs('table4-invsqrt', "table 4, InvSqrtDecay: $fix", 'validation', '22.18 29.08 28.84 30.30 35.33',
    ['model', @fix_scale]);
tears_pairs('table4-valdecay', "table 4, ValDecay: $fix", 'validation', '21.45 29.46 28.67 30.69 35.46',
    ['model', @fix_scale], [@val_decay]);
tears_pairs('table4-invsqrt-2x', "table 4, InvSqrtDecay at twice the rate: $fix", 'validation',
    '21.92 29.03 28.76 30.50 35.33', ['model', @fix_scale], ['schedule', 'scale = 2']);
tears_pairs('table4-valdecay-2x', "table 4, ValDecay at twice the rate: $fix", 'validation',
    '21.63 29.49 28.46 30.13 34.95', ['model', @fix_scale], [@val_decay, 'scale = 2']);

# Table 5: depth without warm-up
for my $row (['post', '18.31', 'fails', 'fails'], ['pre', '28.33', '28.13', '28.32']) {
    my ($position, @numbers) = @$row;
    for my $i (0 .. 2) {
        my $layers = 4 + $i;
        my $number = $numbers[$i] eq 'fails' ? 'training fails' : "$numbers[$i] BLEU on the validation set";
        tears("table5-$position-$layers-layers", 'en-vi',
            "table 5, $position-norm, $layers layers, no warm-up, en-vi", $number,
            ['model', "norm_position = $position", "encoder_layers = $layers", "decoder_layers = $layers"],
            [@no_warmup]);
    }
}

# Table 6: WMT
my $newstest = 'BLEU on newstest2014';
tears('table6-pre-ln', 'wmt', 'table 6, pre-norm, LayerNorm', "26.83 $newstest", ['model', 'norm_position = pre']);
tears('table6-pre-fix-scale', 'wmt', 'table 6, pre-norm, FixNorm, ScaleNorm', "27.07 $newstest", ['model', @fix_scale]);
tears('table6-post-ln', 'wmt', 'table 6, post-norm, LayerNorm', "27.58 $newstest", ['model', 'norm_position = post']);
tears('table6-post-fix-scale', 'wmt', 'table 6, post-norm, FixNorm, ScaleNorm', "27.57 $newstest",
    ['model', 'norm_position = post', 'norm = scale', 'fixnorm = true']);

# Table 7: learned and fixed g
my @fixed_g = ('norm.scale', 'trainable = false');
tears_pairs('table7-rms', 'table 7, RMSNorm + FixNorm', 'test', '20.92 30.36 32.54 28.29 33.67',
    ['model', 'norm_position = pre', 'norm = rms', 'fixnorm = true']);
tears_pairs('table7-scale', 'table 7, ScaleNorm + FixNorm', 'test', '20.91 30.25 32.79 28.44 34.15',
    ['model', @fix_scale]);
tears_pairs('table7-fixed-g', 'table 7, ScaleNorm with fixed g; g is learned only before the output', 'test',
    '21.18 30.36 32.66 28.19 34.11', ['model', @fix_scale], [@fixed_g]);
tears_pairs('table7-fixed-g-valdecay', 'table 7, fixed g, ValDecay', 'test', '20.36 30.45 32.83 27.97 33.98',
    ['model', @fix_scale], [@fixed_g], [@val_decay]);
tears_pairs('table7-fixed-g-valdecay-2x', 'table 7, fixed g, ValDecay at twice the rate', 'test',
    '21.15 30.57 31.81 25.00 28.92', ['model', @fix_scale], [@fixed_g], [@val_decay, 'scale = 2']);

# ---- PowerNorm ----

my %data = (
    'iwslt14-de-en' => 'Data: IWSLT14 German-English, as data/iwslt14-de-en (docs/reproduce.md).',
    'wmt14-en-de'   => 'Data: WMT14 English-German, as data/wmt14-en-de (docs/reproduce.md).',
    'wmt16-en-de'   => 'Data: WMT16 English-German with 32,000 subwords, as data/wmt16-en-de (docs/reproduce.md).',
);
# name => [title, encoder norm, settings of the norm]
my %norm = (
    ln   => ['LayerNorm', 'layer'],
    bn   => ['BatchNorm', 'batch', ['norm.batch', 'preset = pn           ; with the layer scaling of the released code']],
    pnv  => ['PN-V', 'pnv', ['norm.pnv', 'preset = pn']],
    pn   => ['PowerNorm', 'power', ['norm.power',
        '; the paper selects the two decays by validation: --grid norm.power.decay_forward=0.9,0.95,0.99 and decay_backward',
        'preset = official']],
    brn  => ['Batch Renormalization', 'renorm', ['norm.renorm', 'scaling = layer          ; "in each model setting" (A.1)']],
    mabn => ['Moving Average BatchNorm', 'mabn', ['norm.mabn', 'scaling = layer          ; "in each model setting" (A.1)']],
    gn   => ['GroupNorm, as many groups as heads', 'group'],
);

sub pn {
    my ($file, $common, $data, $title, $number, $norm, @sections) = @_;
    my ($long, $type, @settings) = @{$norm{$norm}};
    recipe("pn/$file", "common/$common", ["PowerNorm, $title: $long.", "Published result: $number.", $data{$data}],
        ['model', "encoder_norm = $type"], @settings, @sections);
}

for my $row (['ln', '35.5', '29.5'], ['bn', '34.4', '28.1'], ['pnv', '35.5', '28.5'], ['pn', '35.9', '30.1']) {
    my ($norm, $iwslt, $wmt) = @$row;
    pn("table1-iwslt-$norm", 'pn-iwslt', 'iwslt14-de-en', 'table 1, IWSLT14', "$iwslt BLEU on the test set", $norm);
    pn("table1-wmt-$norm", 'pn-wmt', 'wmt14-en-de', 'table 1, WMT14', "$wmt BLEU on newstest2014", $norm);
}
for my $row (['bn', '34.4'], ['brn', '34.7'], ['mabn', '34.9'], ['ln', '35.5'], ['gn', '35.7'], ['pnv', '35.5'],
             ['pn', '35.9']) {
    my ($norm, $number) = @$row;
    pn("table4-$norm", 'pn-iwslt', 'iwslt14-de-en', 'table 4, IWSLT14', "$number BLEU on the test set", $norm);
}
# Figure 5: batch statistics over 512 to 4096 tokens, updates over 4096 tokens
for my $norm (qw(ln bn pnv pn)) {
    for my $tokens (512, 1024, 2048, 4096) {
        my $size = $tokens < 1024 ? $tokens : $tokens / 1024 . 'k';
        pn("figure5-$norm-$size", 'pn-iwslt', 'iwslt14-de-en', "figure 5, IWSLT14, batch statistics over $size tokens",
            'only plotted in the figure, whose axis is from 34.6 to 35.8 BLEU', $norm,
            ['train', "max_tokens = $tokens", 'shards = ' . 4096 / $tokens], ['norm', 'state = micro-batch']);
    }
}

# ---- Regularized BatchNorm ----

my %penalty = (pre => ['lambda = 0.1', 'nu = 0.01'], post => ['lambda = 60', 'nu = 0']);
my @rows = (    # file, title, encoder norm, numbers post IWSLT, post WMT, pre IWSLT, pre WMT; settings
    ['ln',      'LayerNorm',                       'layer',  '35.5', '27.3', '35.5', '27.3'],
    ['bn',      'BatchNorm',                       'batch',  '34.0', '25.0', '34.8', '25.2'],
    ['rbn',     'Regularized BatchNorm',           'rbn',    '35.5', '26.5', '35.6', '26.2'],
    ['pn-only', 'PowerNorm without scaling',       'power',  '0',    '0',    '34.5', '26.0', ['norm.power', 'scaling = none']],
    ['pn-ls',   'PowerNorm with scaling',          'power',  '35.6', '0',    '35.6', '27.2', ['norm.power', 'scaling = group']],
    ['brn',     'Batch Renormalization',           'renorm', '35.3', '25.8', '35.2', '25.3'],
    ['mabn',    'Moving Average BatchNorm',        'mabn',   '0',    '0',    '35.0', '26.8'],
);
for my $row (@rows) {
    my ($file, $title, $type, $post_iwslt, $post_wmt, $pre_iwslt, $pre_wmt, @settings) = @$row;
    for my $case (['iwslt', 'post', $post_iwslt], ['wmt', 'post', $post_wmt], ['iwslt', 'pre', $pre_iwslt],
                  ['wmt', 'pre', $pre_wmt]) {
        my ($set, $position, $number) = @$case;
        my @sections = $type eq 'rbn' ? (['norm.rbn', 'penalty = diff', @{$penalty{$position}}]) : @settings;
        my $result = $number eq '0' ? '0 BLEU (training fails)' : "$number BLEU";
        my @comments = ("Regularized BatchNorm, " . uc($set) . ($set eq 'wmt' ? '16' : '14') . ", $position-norm: $title.",
            "Published result: $result on the test set.",
            $data{$set eq 'wmt' ? 'wmt16-en-de' : 'iwslt14-de-en'});
        push @comments, 'Penalty: the paper does not state the values for WMT; these are the released values for IWSLT14.'
            if $type eq 'rbn' && $set eq 'wmt';
        recipe("rbn/$set-$position-$file", "common/rbn-$set-$position", \@comments,
            ['model', "encoder_norm = $type"], @sections);
    }
}

# ---- language models: the PTB and WikiText-103 columns of PowerNorm and Regularized BatchNorm ----

my %text = (
    ptb   => ['Penn Treebank', 'Data: Penn Treebank, preprocessed by Mikolov, as data/ptb (docs/reproduce.md).'],
    wt103 => ['WikiText-103', 'Data: WikiText-103, as data/wikitext-103 (docs/reproduce.md); --profile small: data/wikitext-2.'],
);
my $warning = 'The public code has target leakage, so only differences between norms are comparable (docs/causality.md).';

sub lm {
    my ($path, $common, $set, $title, $number, @sections) = @_;
    recipe($path, "common/$common", [$title, "Published result: $number.", $warning, $text{$set}[1]], @sections);
}

sub validation_test {
    my ($valid, $test) = @_;
    return "perplexity $valid on the validation set, $test on the test set";
}

my %pn_lm = ( # PTB validation and test, WikiText-103 validation and test
    ln => [58.0, 53.2, 22.7, 20.9], bn => [71.7, 60.7, 28.4, 27.2], pnv => [59.7, 55.3, 23.6, 21.3], pn => ['51.6', 47.6, 18.3, 17.9],
);
for my $norm (qw(ln bn pnv pn)) {
    my ($long, $type, @settings) = @{$norm{$norm}};
    my @numbers = map { sprintf '%.1f', $_ } @{$pn_lm{$norm}};
    lm("pn/table3-ptb-$norm", 'pn-ptb', 'ptb', "PowerNorm, tables 2 and 3, Penn Treebank, core-1: $long.",
        validation_test(@numbers[0, 1]), ['model', "norm = $type"], @settings);
    lm("pn/table3-wt103-$norm", 'pn-wt103', 'wt103', "PowerNorm, tables 2 and 3, WikiText-103, core-1: $long.",
        validation_test(@numbers[2, 3]), ['model', "norm = $type"], @settings);
}
for my $row ([1, '55.4', '57.9', '23.6', '20.9'], [2, '54.3', '49.8', '19.7', '18.9']) {
    my ($cores, @numbers) = @$row;
    for my $set (qw(ptb wt103)) {
        lm("pn/table2-$set-core$cores", "lm-$set", $set,
            "PowerNorm, table 2, $text{$set}[0]: Tensor-Transformer, $cores core" . ($cores > 1 ? 's' : '') . ', published in Ma et al., 2019.',
            validation_test($set eq 'ptb' ? @numbers[0, 1] : @numbers[2, 3]), ['model', "cores = $cores"]);
    }
}
for my $row (['bn', '60.7'], ['brn', '58.3'], ['mabn', '57.2'], ['ln', '53.2'], ['gn', '51.7'], ['pnv', '55.3'], ['pn', '47.6']) {
    my ($norm, $number) = @$row;
    my ($long, $type, @settings) = @{$norm{$norm}};
    lm("pn/table4-ptb-$norm", 'pn-ptb', 'ptb', "PowerNorm, table 4, Penn Treebank, core-1: $long.",
        "perplexity $number on the test set", ['model', "norm = $type"], @settings);
}

my %rbn_lm = ( # post PTB, post WikiText-103, pre PTB, pre WikiText-103
    ln => [53.2, 20.9, 54.5, 24.6], bn => [45.9, 17.2, 45.9, 17.8], rbn => [44.6, 17.1, 43.2, 17.1],
    'pn-only' => [254.6, 'infinite', 48.6, 'infinite'], 'pn-ls' => ['49.8', '21.0', 59.8, 20.9],
    brn => [45.1, 17.3, 45.7, 17.5], mabn => [47.4, 33.6, 48.7, 'infinite'],
);
for my $row (@rows) {
    my ($file, $title, $type) = @$row;
    my @settings = @$row[7 .. $#$row];
    my @numbers = @{$rbn_lm{$file}};
    for my $case (['ptb', 'post'], ['wt103', 'post'], ['ptb', 'pre'], ['wt103', 'pre']) {
        my ($set, $position) = @$case;
        my $number = shift @numbers;
        my @sections = $type eq 'rbn' ? (['norm.rbn', '; the paper does not state the values for this task; its grid for lambda and nu is 0, 0.01, 0.1, 1',
            'penalty = diff2', 'scale = mean', 'lambda = 0.1', 'nu = 0.01']) : @settings;
        lm("rbn/$set-$position-$file", "rbn-$set-$position", $set,
            "Regularized BatchNorm, $text{$set}[0], $position-norm: $title.", "perplexity $number on the test set",
            ['model', "norm = $type"], @sections);
    }
}

# Text classification: all norms of the model are those of the row. The paper does not state sizes and sites.
my %texts = (
    imdb    => ['IMDB', 'the IMDB reviews, as data/imdb'],
    sogou   => ['Sogou', 'Sogou News, as data/sogou'],
    dbpedia => ['DBPedia', 'the DBPedia ontology dataset, as data/dbpedia'],
    yelp    => ['Yelp', 'Yelp review polarity, as data/yelp'],
);
my @text_rows = (    # as @rows; numbers post IMDB, Sogou, DBPedia, Yelp, then pre
    ['ln',      'layer',  '84.1 94.6 97.5 93.3', '84.1 94.5 97.5 93.3'],
    ['bn',      'batch',  '84.0 94.3 97.5 93.3', '84.0 94.3 97.5 93.3'],
    ['rbn',     'rbn',    '84.5 94.7 97.6 93.6', '84.4 94.7 97.5 93.5'],
    ['pn-only', 'power',  '84.2 90.6 97.1 89.6', '84.2 94.4 97.4 93.3', ['norm.power', 'scaling = none']],
    ['pn-ls',   'power',  '84.0 94.6 97.4 93.2', '83.3 94.4 97.3 93.4', ['norm.power', 'scaling = group']],
    ['brn',     'renorm', '83.6 94.5 97.5 93.3', '84.3 94.5 97.4 93.4'],
    ['mabn',    'mabn',   '84.1 94.5 97.5 93.5', '84.4 94.6 97.5 93.3'],
);
my %title = map { $_->[0] => $_->[1] } @rows;
for my $row (@text_rows) {
    my ($file, $type, $post, $pre, @settings) = @$row;
    for my $case (['post', $post], ['pre', $pre]) {
        my ($position, $numbers) = @$case;
        my @numbers = split ' ', $numbers;
        my @sections = $type eq 'rbn' ? (['norm.rbn', 'penalty = diff2', 'scale = mean', 'lambda = 0.1', 'nu = 0.01']) : @settings;
        for my $set (qw(imdb sogou dbpedia yelp)) {
            my ($name, $data) = @{$texts{$set}};
            my @comments = ("Regularized BatchNorm, $name, $position-norm: $title{$file}.",
                "Published result: " . shift(@numbers) . " % accuracy on the test set.",
                "Data: $data (docs/reproduce.md).");
            push @comments, 'Penalty: the paper does not state the values for this task; its grid for lambda and nu is 0, 0.01, 0.1, 1.'
                if $type eq 'rbn';
            recipe("rbn/$set-$position-$file", 'common/rbn-text', \@comments,
                ['data', "train = data/$set/train.tsv", "test = data/$set/test.tsv"],
                ['model', "norm_position = $position", "norm = $type"], @sections);
        }
    }
}

# Named entities: the norms of both sublayers of every layer are those of the row; TENER has no other norms.
my %entities = (
    conll  => ['CoNLL-2003', 'CoNLL-2003 English, as data/conll2003, and GloVe vectors'],
    resume => ['Resume', 'the Resume set, as data/resume, and character and bigram vectors'],
);
my %entity_numbers = (    # post Resume, CoNLL, then pre
    'ln'      => [94.8, 91.3, '94.0', '91.0'],
    'bn'      => [94.5, 90.9, 93.2, 89.9],
    'rbn'     => [94.8, 91.4, '94.0', 90.6],
    'pn-only' => [94.4, 67.1, '5.0', 11.1],
    'pn-ls'   => [94.3, 90.9, 93.3, 54.1],
    'brn'     => [93.6, 89.9, 94.1, 91.1],
    'mabn'    => [94.4, 90.8, 94.8, 90.9],
);
for my $row (@text_rows) {
    my ($file, $type, $post, $pre, @settings) = @$row;
    my @numbers = @{$entity_numbers{$file}};
    my @sections = $type eq 'rbn' ? (['norm.rbn', 'penalty = diff2', 'scale = mean', 'lambda = 0.1', 'nu = 0.01']) : @settings;
    for my $position (qw(post pre)) {
        for my $set (qw(resume conll)) {
            my ($name, $data) = @{$entities{$set}};
            my @comments = ("Regularized BatchNorm, $name, $position-norm: $title{$file}.",
                "Published result: " . shift(@numbers) . " F1 on the test set.", "Data: $data (docs/reproduce.md).");
            push @comments, 'Penalty: the paper does not state the values for this task; its grid for lambda and nu is 0, 0.01, 0.1, 1.'
                if $type eq 'rbn';
            recipe("rbn/$set-$position-$file", "common/rbn-$set", \@comments,
                ['model', "norm_position = $position", "norm = $type"], @sections);
        }
    }
}

# The vision networks with which both papers compare the Transformer
my $cifar = 'Data: CIFAR-10, as data/cifar10 (docs/reproduce.md).';
recipe('pn/figure2-resnet20', 'common/cifar10',
    ['PowerNorm, figures 2 and 3: ResNet20 with BatchNorm, the counterpart of the Transformer.',
     'Published result: distances of batch and running statistics near 0.', $cifar],
    ['model', 'preset = resnet20', 'network = resnet', 'shortcut = pad', 'norm = batch'],
    ['probe', 'every = 10', 'instruments = distance,deviation,gradient_parts']);
recipe('rbn/section3-resnet18', 'common/cifar10',
    ['Regularized BatchNorm, section 3.1 and figure 2: ResNet18 with BatchNorm, the counterpart of the Transformer.',
     'Published result: deviations of mean and variance of about 4 % at the end of training, mean TID 0.8 % and 0.9 %.',
     $cifar, 'The paper counts 21 norms; this network, the usual form for CIFAR-10, has 20.'],
    ['model', 'preset = resnet18', 'network = resnet', 'widths = 64,128,256,512', 'blocks = 2,2,2,2',
     'shortcut = conv', 'norm = batch'],
    ['optim', 'weight_decay = 5e-4'],
    ['probe', 'every = 10', 'instruments = distance,deviation'],
    ['profile.small', 'model.widths = 8,16,32,64   ; an eighth of the width']);
