#!/usr/bin/env bash
# The tables of docs/migration.md: every name of another toolkit, given to the commands that could have it, is answered by an option
# of its row, and by no option that no row with this name has; and the page is that of the table in the program.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

"$SOURCE/scripts/migration_tables.py" --check 2>err || fail "$(cat err)"
cat >names.pl <<'PERL'
use strict;
use warnings;
my (%options, %unavailable, $table);
sub names { return map { s/^-+//r =~ s/-/_/gr =~ s/[^\w.].*//sr } $_[0] =~ /`([^`]+)`/g }
while (<>) {
    $table = $1 if /^<!-- foreign_names (.*) -->/;
    undef $table if /^<!-- end of table -->/;
    next unless $table && /^\| / && !/ Norma \|$/;
    my (undef, @cells) = split /(?<!\\)\|/;
    my $norma = $cells[3];
    for my $name (grep { /^\w/ } map { names($_) } @cells[0 .. 2]) {
        push @{$options{$name}}, $table eq 'unavailable' ? () : names($norma);
        $unavailable{$name} = 1 if $table eq 'unavailable';
    }
}
printf "%s %s %s\n", $_, $unavailable{$_} ? 1 : 0, join ',', @{$options{$_}} for sort keys %options;
PERL
perl names.pl "$SOURCE/docs/migration.md" >names
[ "$(wc -l <names)" -ge 150 ] || fail "only $(wc -l <names) names"
commands=("train translate" "train lm" "translate model" "generate model" prepare)
while read -r name unavailable options; do
    found=
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086
        "$NORMA" $command "--$name" 1 >out 2>err
        suggested=$(sed -n 's/.*; the most similar one is \([a-z_.0-9]*\)$/\1/p' err)
        if [ "$unavailable" = 1 ]; then
            ! grep -q "unknown option [a-z]*\.$name: " err || found=1
            [ -z "$suggested" ] || fail "$command --$name: suggests $suggested, but the page says that there is no such option"
        elif ! grep -q 'unknown option' err; then
            case ",$options," in *",$name,"* | *".$name,"*) found=1 ;; esac
        elif [ -z "$suggested" ]; then
            section=$(sed -n 's/.* is a section of options, such as \([a-z_.0-9]*\)$/\1/p' err)
            [ -z "$section" ] || case ",$options," in *",$section,"*) found=1 ;; esac
        else
            case ",$options," in
                *",$suggested,"* | *",${suggested##*.},"*) found=1 ;;
                *) [[ ${suggested##*.} = "$name"?(s) ]] || fail "$command --$name: suggests $suggested, the page has $options" ;;
            esac
        fi
        cases=$((cases + 1))
    done
    [ -n "$found" ] || fail "--$name: no command suggests one of $options"
done <names
echo "$cases cases"
