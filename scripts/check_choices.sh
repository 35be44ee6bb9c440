#!/usr/bin/env bash
# Checks that no enum is tied to its words by position: a row of an option table takes the X list of its field's enum
# (norma/choice.h). Words in quotes, the list of a different enum, and a member without a column that is used do not compile,
# and no row is written without the macros.
#     scripts/check_choices.sh SOURCE CC [FLAG...]
# Prints one line per violation. Exit code: 0 none, 1 some.
set -uo pipefail
source=$1
shift
compiler=("$@")
cd "$source" || exit 1
bad=0

compiles() { # ROW: whether this row of an option table compiles
    printf '%s\n' '#include "nn/transformer.h"' \
        'typedef struct config { nm_rope rope; int number; const char *text; } config;' \
        "const nm_option rows[] = {$1, {0}};" |
        "${compiler[@]}" -std=c17 -D_GNU_SOURCE -x c -Wall -Wextra -Werror -Iinclude -Isrc/core -fsyntax-only - 2>/dev/null
}
expect() { # yes|no WHAT ROW
    local answer=no
    compiles "$3" && answer=yes
    [ $answer = "$1" ] || { echo "$2: compiles: $answer, expected $1"; bad=1; }
}
expect yes "the list of the enum" 'NM_CHOICE(config, rope, "none", NM_ROPES, "")'
expect no "words instead of a list" 'NM_CHOICE(config, rope, "none", "none|half|interleaved", "")'
expect no "the list of a different enum" 'NM_CHOICE(config, rope, "none", NM_HEAD_NORMS, "")'
expect no "a field that is not an enum" 'NM_CHOICE(config, number, "none", NM_ROPES, "")'
expect yes "words of a text" 'NM_WORD(config, text, "a", "a|b", "")'
expect no "words of an enum" 'NM_WORD(config, rope, "none", "none|half|interleaved", "")'

columns() { # MEMBER: whether an activation with these columns compiles
    printf '%s\n' '#include "nn/transformer.h"' "#define MORE(C) NM_ACTIVATIONS(C) C($1)" \
        'const char *const names[][2] = {MORE(NM_ACTIVATION_HF)};' 'const int codes[] = {MORE(NM_ACTIVATION_CT2)};' |
        "${compiler[@]}" -std=c17 -D_GNU_SOURCE -x c -Werror -Iinclude -Isrc/core -fsyntax-only - 2>/dev/null
}
columns '4, "relu2", NM_MAP_RELU, NULL, NULL, -1' || { echo "an activation without a name in other formats does not compile"; bad=1; }
! columns '4, "relu2", NM_MAP_RELU' || { echo "an activation without the columns of other formats compiles"; bad=1; }

rows=$(grep -rnE '[{,] *NM_ENUM\b' src --include='*.[ch]' | grep -v '^src/core/base/option' || true)
[ -z "$rows" ] || { echo "a row without NM_CHOICE: $rows"; bad=1; }
exit $bad
