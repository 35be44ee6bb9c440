#!/bin/bash
# Fingerprints of the weights of full-size presets after 50 updates of 8 shards, for 1, 2, 3, 4 and 8 processes, and after
# a stop on 4 processes and a resume on 1 and on 3. All must be identical.
#
#     NORMA=build/norma MPIEXEC=mpiexec tests/mpi/fingerprints.sh DATA TABLE
#
# DATA: a data folder of `norma prepare` with short sentences. TABLE: receives one line per run:
#     preset norm statistics launcher processes fingerprint CPU-seconds
# Runs that are in the table are not repeated, so that an interrupted matrix continues. Variables choose a part:
#     PRESETS NORMS STATISTICS RANKS (4-1: stopped on 4, resumed on 1) UPDATES MAX_TOKENS (of a shard)
# Exit code: 0 all fingerprints of a model are identical, 1 otherwise or if a run failed.
set -uo pipefail
export LC_ALL=C
data=$(realpath "${1:?DATA}")
table=$(realpath "${2:?TABLE}")
NORMA=$(realpath "${NORMA:?}")
MPIEXEC=${MPIEXEC:-mpiexec}
launcher=$(grep -qi 'open' <("$MPIEXEC" --version 2>&1) && echo openmpi || echo mpich)
PRESETS=${PRESETS:-tiny iwslt} NORMS=${NORMS:-layer batch pnv power rbn mabn renorm repbn progressive un} STATISTICS=${STATISTICS:-shard update}
RANKS=${RANKS:-1 2 3 4 8 4-1 4-3} UPDATES=${UPDATES:-50} MAX_TOKENS=${MAX_TOKENS:-32}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_mapping_policy=
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
touch "$table"

# Warm-ups and ramps of the norms end within the updates, so that both of their phases are compared.
write_recipe() { # PRESET NORM STATISTICS
    cat >"$folder/recipe.ini" <<X
[data]
folder = $data
[model]
preset = $1
norm = $2
[norm]
statistics = $3
[norm.renorm]
shorten_ramp = false
ramp_start = 5
r_ramp_end = 30
d_ramp_end = 25
[train]
shards = 8
max_tokens = $MAX_TOKENS
validate_every = 0
[schedule]
warmup = 10
[device]
threads = 1
X
}

train() { # PROCESSES UPDATES OPTIONS...
    local n=$1 updates=$2 launch=()
    shift 2
    if [ "$n" != 1 ]; then
        launch=("$MPIEXEC" -n "$n")
        set -- --comm.timeout 120 "$@"
    fi
    "${launch[@]}" "$NORMA" train "$folder/recipe.ini" --run.quiet --run.folder "$folder/run" --train.updates "$updates" "$@" \
        </dev/null >"$folder/out" 2>"$folder/err" && return
    echo "$n processes: $(grep -m 3 norma: "$folder/err")" >&2
    return 1
}

# All tensors of a model, by name, without the metadata.
fingerprint() {
    perl -e '
        local $/; open(my $in, "<:raw", $ARGV[0]) or die "$ARGV[0]: $!"; my $all = <$in>;
        my $length = unpack("Q<", $all); my $header = substr($all, 8, $length);
        $header =~ s/"__metadata__":\{(?:[^"{}]|"(?:\\.|[^"\\])*")*\},?//;
        print $header =~ s/ +$//r, "\n", substr($all, 8 + $length);' "$1" | sha256sum | cut -c 1-16
}

cpu_seconds() { # of the children that have ended since `times >before`
    times >"$folder/after"
    perl -e 'for (@ARGV) { open(my $in, "<", $_); my (undef, $line) = <$in>; my $s = 0; $s += 60 * $1 + $2 while $line =~ /(\d+)m([\d.]+)s/g; push @s, $s }
        printf "%.1f", $s[1] - $s[0]' "$folder/before" "$folder/after" >"$folder/seconds"
}

failed=0
run_case() { # PRESET NORM STATISTICS RANKS
    local key="$1 $2 $3 $launcher $4"
    grep -q "^$key " "$table" && return
    write_recipe "$1" "$2" "$3"
    rm -rf "$folder/run"
    times >"$folder/before"
    if [[ $4 == *-* ]]; then
        train "${4%-*}" $((UPDATES / 2)) && train "${4#*-}" "$UPDATES" --resume
    else
        train "$4" "$UPDATES"
    fi || { echo "failed: $key" >&2; failed=1; return; }
    cpu_seconds
    echo "$key $(fingerprint "$folder/run/last.safetensors") $(cat "$folder/seconds")" | tee -a "$table"
}

for ranks in $RANKS; do
    for preset in $PRESETS; do
        for norm in $NORMS; do
            for statistics in $STATISTICS; do
                run_case "$preset" "$norm" "$statistics" "$ranks"
            done
        done
    done
done
perl -lane '$of{"@F[0, 1, 2]"}{$F[5]}++; $n{"@F[0, 1, 2]"}++;
    END { for (sort keys %of) { $different += keys %{$of{$_}} > 1; print "$_: ", %{$of{$_}} > 1 ? "DIFFERENT" : "identical", ", $n{$_} runs" }
          exit !!$different }' "$table" || failed=1
exit "$failed"
