#!/usr/bin/env bash
# The figures of norma report for grids trained by norma compare: one, two and three settings, and norm.at. Their
# values are the means over seeds in the JSON of the comparison.
set -uo pipefail
# shellcheck source=tests/e2e/hostile_helper.sh
. "${SOURCE:?}/tests/e2e/hostile_helper.sh"

if ! command -v gnuplot >/dev/null; then
    echo "skipped: there is no gnuplot (Debian package gnuplot-nox) to draw figures with"
    exit 77
fi
make_sentence_splits
prepare_sentences data
write_recipe recipe.ini run.task=lm data.folder=data model.preset=tiny model.width=16 model.ff=32 \
    model.heads=2 model.layers=1 model.context=32 train.updates=6 train.validate_every=3 \
    schedule.name=constant schedule.lr=0.01 device.threads=1
compare() { # NAME OPTIONS...
    local name=$1
    shift
    "$NORMA" compare recipe.ini --folder "$name" --tid-batches 1 --score-grid --format json "$@" >"$name.json" 2>err ||
        fail "compare $name: $(cat err)"
    "$NORMA" report "$name"/*[0-9]/ -o "$name.html" --png "$name-pictures" 2>err || fail "report $name: $(cat err)"
}

# check_figure NAME FIGURE POINTS: each point of the figure has the mean of the JSON's grid point with the same settings.
check_figure() {
    cases=$((cases + 1))
    [ -s "$1-pictures/$2.png" ] || fail "$1: there is no picture of $2"
    sed -n 's/.*<script type="application\/json" id="data">//p' "$1.html" | sed 's/<\/script>.*//' >page.json
    perl -MJSON::PP -e '
        my ($json, $name, $wanted) = @ARGV;
        my ($o, $page) = map { open(my $in, "<", $_) or die; local $/; decode_json(<$in>) } $json, "page.json";
        my $f = $page->{figures}{$name} or die "no figure $name\n";
        my (%mean, $n);
        for my $point (@{$o->{grid}}) { # the settings of these tests are in the order of the configuration
            my $s = $point->{settings};
            my @values = map { 0 + $s->{$_} } grep { $_ ne "model.norm" } sort keys %$s;
            $mean{join " ", $s->{"model.norm"}, @values} = $point->{score_mean};
        }
        for my $c (@{$f->{curves}}) {
            my ($group) = split / /, $c->{name};
            my $last = $#{$c->{x}};
            for my $i ($f->{style} eq "parallel" ? $last : 0 .. $last) {
                my @values = $f->{style} eq "parallel" ? @{$c->{value}}[0 .. $last - 1]
                    : ($f->{ticks}[$c->{x}[$i]], @{$f->{rows}} ? $f->{rows}[$c->{y}[$i]] : ());
                my $key = join " ", $group, map { 0 + $_ } @values;
                my $got = ($c->{value} // $c->{y})->[$i];
                die "$key is not in the comparison\n" unless defined $mean{$key};
                die "$key: $got, wanted $mean{$key}\n" if abs($got - $mean{$key}) > 1e-5 * abs $mean{$key};
                $n++;
            }
        }
        die "$n points, wanted $wanted\n" if $n != $wanted;
    ' "$1.json" "$2" "$3" 2>problem || fail "$1, $2: $(cat problem)"
}

# ---- one setting, a curve per norm, two seeds: PowerNorm, figure 5 ----
compare sizes --norms layer,batch --seeds 2 --grid train.max_tokens=32,64,512
check_figure sizes setting-score 6
has sizes.html "<h3>Test perplexity against train.max_tokens</h3>"
has sizes.html "Each point is the mean over 2 seeds; ranges are from the lowest to the highest seed."
lacks sizes.html '<figure id="setting-heat-map">'
lacks sizes.html '<figure id="setting-parallel">'

# The load of the machine is recorded; /proc/stat exists wherever these tests run.
grep -qE '"load":[0-9.]+,"other_cores":[0-9.]+}$' sizes/layer*64-1/log.jsonl || fail "no load: $(tail -n 1 sizes/layer*64-1/log.jsonl)"

# ---- two settings: RBN, figure 5; a norm without them has no panel ----
compare penalty --norms layer,rbn --grid norm.rbn.lambda=0,1 --grid norm.rbn.nu=0,0.5
check_figure penalty setting-heat-map 4
has penalty.html "<h3>Test perplexity by norm.rbn.lambda and norm.rbn.nu</h3>"
has penalty.html "Without layer, whose runs do not vary these settings alone."
lacks penalty.html '<figure id="setting-score">'

# ---- three settings ----
compare search --norms rbn --grid "model.dropout=0,0.1;norm.rbn.lambda=0,1;schedule.lr=0.003,0.01"
check_figure search setting-parallel 8
has search.html "<h3>Test perplexity by 3 settings</h3>"
lacks search.html '<figure id="setting-heat-map">'

# ---- the number of layers with BatchNorm: RBN, figure 3 ----
compare layers --model.layers 2 --norms 'layer,first=layer:norm.at=lm.0=batch,batch' --seeds 2
has layers.html "<h3>Loss in perplexity by the number of layers with batch statistics</h3>"
has layers.html "Test score, compared with that of the runs with 0 such layers. Bars are ranges over the seeds."
has layers/first-1/log.jsonl '"layers":2,"batch_layers":1,'
sed -n 's/.*<script type="application\/json" id="data">//p' layers.html | sed 's/<\/script>.*//' >page.json
cases=$((cases + 1))
perl -MJSON::PP -e '
    my ($o, $page) = map { open(my $in, "<", $_) or die; local $/; decode_json(<$in>) } @ARGV;
    my @variants = @{$o->{variants}}; # with 0, 1 and 2 layers
    my %wanted = ("batch-layers-score" => [map { $_->{score_mean} - $variants[0]{score_mean} } @variants],
        "batch-layers-tid-mean" => [map { 100 * $_->{tid_mean_mean} } @variants],
        "batch-layers-tid" => [map { 100 * $_->{tid_variance_mean} } @variants]);
    for my $name (sort keys %wanted) {
        my $curves = $page->{figures}{$name}{curves} or die "no figure $name\n";
        die "$name: curves\n" unless @$curves == 1 and $curves->[0]{name} eq "batch" and "@{$curves->[0]{x}}" eq "0 1 2";
        my $figure = $page->{figures}{$name};
        die "$name: ticks, spread or legend\n" unless "@{$figure->{at}}" eq "0 1 2" and $figure->{spread} == 0 and $figure->{legend};
        for my $i (0 .. 2) {
            my ($got, $wanted) = ($curves->[0]{y}[$i], $wanted{$name}[$i]);
            die "$name at $i: $got, wanted $wanted\n" if abs($got - $wanted) > 1e-4 * (0.01 + abs $wanted);
        }
    }' layers.json page.json 2>problem || fail "layers: $(cat problem)"
