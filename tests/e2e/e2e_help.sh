#!/usr/bin/env bash
# Help, manual pages, shell completion and the list of recipes: generated from the option tables, complete, and within the
# width of the terminal.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

mapfile -t commands < <("$NORMA" help --list)
[ "${#commands[@]}" -ge 15 ] || fail "commands: ${commands[*]}"

# ---- help ----
options_of() { # HELP: the options it lists
    grep -oE '^  --[a-z][a-z_.0-9-]*' "$1"
}
too_wide() { # HELP WIDTH: lines with several words that are wider
    awk -v width="$2" 'length($0) > width && NF > 2' "$1"
}
for command in "${commands[@]}"; do
    for width in 72 80 110; do
        COLUMNS=$width "$NORMA" "$command" --help all >help 2>err || fail "norma $command --help"
        [ -z "$(too_wide help $width)" ] || fail "norma $command --help at $width columns: $(too_wide help $width)"
        cases=$((cases + 1))
    done
    "$NORMA" "$command" --manual >manual 2>err || fail "norma $command --manual"
    has manual '.SH EXIT STATUS'
    [ "$(tail -n 2 manual | tr '\n' ' ')" = '.SH SEE ALSO .BR norma (1) ' ] || fail "norma $command --manual ends with $(tail -n 2 manual)"
    has manual 'exceeds the divergence threshold'
    options_of help >options
    [ "$(sort options | uniq -d | wc -l)" = 0 ] || fail "norma $command lists an option twice: $(sort options | uniq -d)"
done

# The help of an option is a phrase that begins with a capital letter and ends with a period.
for section in translate tag classify generate score compare run bench export report study inspect recipes device decode; do
    command=$section
    case $section in run | device) command=train ;; decode) command=translate ;; esac
    "$NORMA" $command --manual |
        grep -A1 "^\.B .-.-$section\." | grep -v '^\.B\|^--$' >phrases
    [ -s phrases ] || fail "no help of [$section]"
    ! grep -vE '^[A-Z].*\.$' phrases >odd || fail "help of [$section] is not a phrase: $(cat odd)"
    cases=$((cases + 1))
done

# Options of a table that are errors in a command are not listed.
for pair in tokenize:codes=codes.bpe tokenize:format=tokenized tokenize:form=nfc detokenize:codes=codes.bpe \
    detokenize:format=tokenized detokenize:form=nfc subword:form=nfc normalize:codes=codes.bpe \
    normalize:format=tokenized normalize:undo detokenize:pretokenizer=qwen2 'detokenize:user_symbols=<x>' \
    normalize:pretokenizer=qwen2 'normalize:user_symbols=<x>'; do
    command=${pair%%:*} option=${pair#*:}
    "$NORMA" "$command" "--$option" </dev/null >out 2>err
    [ $? = 2 ] || fail "norma $command --$option is not an error"
    "$NORMA" "$command" --help all >help
    "$NORMA" "$command" --manual >manual
    lacks help "--${option%%=*} "
    ! grep -qxF ".B \\-\\-text.${option%%=*}" manual || fail "the manual of norma $command lists $option"
    has manual '.B \-\-text.like'
    has help '--like'
done
"$NORMA" subword --help >help
has help '--format NAME'

# Common options: 20 to 35, all of them in the full list; one section alone.
for task in translation lm classification tagging image; do
    "$NORMA" train --run.task $task --help >common
    "$NORMA" train --run.task $task --help all >every
    n=$(options_of common | wc -l)
    { [ "$n" -ge 20 ] && [ "$n" -le 35 ]; } || fail "norma train --help lists $n options for $task"
    [ -z "$(comm -23 <(options_of common | sort) <(options_of every | sort))" ] || fail "$task: not among all options"
    has common '--model.norm TEXT'
    has common '--schedule.lr'
    has common '--help all'
    lacks common '--norm.rbn.nu'
    has every '--norm.rbn.nu'
done
# The help of model.norm lists all types of norms.
listed=" $("$NORMA" train --help | tr -s ' \n' ' ' | sed -n 's/.* Types: \([a-z0-9 ]*\)\. (default: layer).*/\1/p') "
for type in none $(sed -n 's/^\[norm\.\(.*\)\]$/\1/p' every); do
    [[ $listed == *" $type "* ]] || fail "--model.norm does not list $type: $listed"
done
"$NORMA" train --help norm.rbn >section
has section '--norm.rbn.nu'
lacks section '--train.updates'
"$NORMA" help train norm.rbn >again
same section again
"$NORMA" train --help >help
has help 'Presets of --model.preset'
grep -qE '^ +width +[0-9]+ +[0-9]+' help || fail "no table of presets: $(cat help)"
"$NORMA" train some.ini --help >again
same help again
"$NORMA" train --run.task lm --help >help
"$NORMA" help train --run.task lm >again
same help again
printf '[run]\ntask = lm\n' >task.ini
"$NORMA" help train task.ini >again
same help again
"$NORMA" help >help
"$NORMA" help --help >again
same help again

try
[ "$got" = 2 ] || fail "exit code $got without a command"
same err help
try --manual
has out '.SH COMMANDS'
for command in "${commands[@]}"; do has out ".BR norma\\-$command (1)"; done
# An unknown task: its name, and the options of the other sections.
try train --help --run.task summarization
[ "$got" = 0 ] || fail "exit code $got: $(cat err)"
has out '(run.task = summarization: no such task; available: translation, lm, classification, tagging, image)'
has out '--schedule.lr'

# A section that the command does not have.
refuses 2 'generate: no section nosuch; --help SECTION: all, generate, sample, device' generate --help nosuch
refuses 2 'train: no section models; --help SECTION: all, ' train --help models
refuses 2 'no section nosuch' help translate nosuch
for topic in lm task.ini --resume; do accepts '--schedule.lr' train --help $topic; done

# ---- recipes ----
"$NORMA" recipes --names >names
[ "$(wc -l <names)" -ge 280 ] || fail "$(wc -l <names) recipes"
[ "$(head -n 9 names | tr '\n' ' ')" = 'classify demo demo-lm demo-tag image lm multi30k-de-en tag translate ' ] ||
    fail "first recipes: $(head -n 9 names)"
! grep -q '^common/' names || fail "parts of recipes are listed: $(grep '^common/' names)"
"$NORMA" recipes --paths >paths
[ "$(wc -l <names)" = "$(wc -l <paths)" ] || fail "not as many paths as names"
while read -r path; do [ -f "$path" ] || fail "no such recipe: $path"; done <paths
# The program of a build folder finds them wherever the folder is.
mkdir -p elsewhere/build
cp "$NORMA" elsewhere/build/norma
cp -P "$BUILD/recipes" elsewhere/build/recipes
elsewhere/build/norma recipes --names >found
same names found
refuses 2 'no recipe contains iwslt and the other words; norma recipes lists all' recipes iwslt nosuch
refuses 2 'no recipe contains multi30k-de-em; the most similar name is multi30k-de-en' recipes multi30k-de-em
"$NORMA" recipes iwslt batchnorm >found
has found 'pn/table1-iwslt-bn '
lacks found 'pn/table1-iwslt-pn '
# A program without a folder of recipes, and with folders that contain other files or cannot be read.
built=$NORMA
mkdir own
cp "$built" own/norma
NORMA=$work/own/norma
refuses 3 "no recipes found: neither share/norma/recipes nor the source tree's recipes exists" recipes
refuses 3 'multi30k-de-en: No such file, and the folder of the recipes was not found' train multi30k-de-en
ln -s recipes own/recipes
refuses 3 'cannot list the recipes: ' recipes
has err '/own/recipes: Too many levels of symbolic links'
refuses 3 '/own/recipes: Too many levels of symbolic links' train multi30k-de-en
rm own/recipes
mkdir -p own/recipes/{nmt,common}
printf '# Small model. For tests.\n[run]\ntask = lm\n' >own/recipes/nmt/small.ini
printf '[run]\ntask = lm\n' >own/recipes/without-comment.ini
printf '# No line end...' >own/recipes/one-line.ini
: >own/recipes/common/part.ini
: >own/recipes/notes.txt
: >own/recipes/.hidden.ini
ln -s nowhere own/recipes/dangling.ini
mkfifo own/recipes/pipe.ini
try recipes
printf '%-32s  %s\n' one-line 'No line end' without-comment '' nmt/small 'Small model' >wanted
same wanted out
try recipes MODEL small --paths
echo "$work/own/recipes/nmt/small.ini" >wanted
same wanted out
ln -s loop own/recipes/nmt/loop
refuses 3 'own/recipes/nmt/loop: Too many levels of symbolic links' recipes --names
# A program file that is removed, as by an upgrade, while the program starts.
exec 9<own/norma
rm own/norma
NORMA=/proc/self/fd/9
refuses 3 'cannot list the recipes: /proc/self/exe: No such file or directory' recipes
refuses 3 '/proc/self/exe: No such file or directory' compare own/recipes/nmt/small.ini --norms layer
exec 9<&-
NORMA=$built
# By name, in any folder; a file of that name takes precedence.
refuses 3 'data/multi30k-de-en' train multi30k-de-en
refuses 3 'data/multi30k-de-en' compare multi30k-de-en.ini --norms layer
refuses 3 'multi30k-de-em: No such file, and no recipe of this name; the most similar one is multi30k-de-en' train multi30k-de-em
# Its task is unknown, and so are the options of the task: the reported error is the name of the recipe.
refuses 3 'clasify: No such file, and no recipe of this name; the most similar one is classify' train clasify --data.train reviews.csv
refuses 3 'wmt99: No such file, and no recipe of this name; norma recipes lists the recipes' train wmt99
# Options without their section, or with another one; nothing is suggested that is not similar.
refuses 2 'unknown option run.norm; the most similar one is model.norm' train translate --norm power
refuses 2 'unknown option run.lr; the most similar one is schedule.lr' train translate --lr 0.1
refuses 2 'unknown option run.warmpu; the most similar one is schedule.warmup' train translate --warmpu 9
refuses 2 'unknown option translate.baem; the most similar one is decode.beam' translate model --baem 3
refuses 2 'unknown option compare.norm; the most similar one is compare.norms' compare translate --norm layer
refuses 2 'unknown option translate.thread; the most similar one is device.threads' translate model --thread 1
refuses 2 'unknown option compare.updates; the most similar one is train.updates' compare translate --updates 9
refuses 2 'unknown option run.folder; the most similar one is compare.folder' compare translate --run.folder runs
# The beginning or the end of a name, and names of other toolkits.
refuses 2 'unknown option translate.max_length; the most similar one is decode.max_length_b' translate model --max-length 30
refuses 2 'unknown option score.ref; the most similar one is score.reference' score bleu hyp --ref ref
refuses 2 'unknown option prepare.merges; the most similar one is prepare.bpe_merges' prepare --merges 100
refuses 2 'unknown option run.batch_size; the most similar one is train.max_tokens' train translate --batch-size 32
refuses 2 'unknown option run.batch_size; the most similar one is data.batch' train classify --batch-size 32
refuses 2 'unknown option train.steps; the most similar one is train.updates' train translate --train.steps 9
refuses 2 'unknown option train.clip_norm; the most similar one is train.max_grad_norm' train translate --train.clip-norm 1
refuses 2 'unknown option run.warmup_updates; the most similar one is schedule.warmup' train translate --warmup-updates 9
refuses 2 'unknown option run.arch; the most similar one is model.preset' train translate --arch transformer
refuses 2 'unknown option translate.lenpen; the most similar one is decode.alpha' translate model --lenpen 1
refuses 2 'unknown option translate.normalize; the most similar one is decode.alpha' translate model --normalize 1
refuses 2 'unknown option translate.num_beams; the most similar one is decode.beam' translate model --num-beams 4
refuses 2 'unknown option prepare.srcdict; the most similar one is prepare.dict_source' prepare --srcdict dict.txt
refuses 2 'unknown option run.output; the most similar one is run.folder' train translate --output run
refuses 2 'unknown option model.depth; the most similar one is model.layers' train lm --model.depth 3
refuses 2 'unknown option model.depth; the most similar one is model.encoder_layers' train translate --model.depth 3
refuses 2 'unknown option run.early_stopping; the most similar one is train.patience' train translate --early-stopping 10
refuses 2 'unknown option run.encoder_embed_dim; the most similar one is model.width' train translate --encoder-embed-dim 512
refuses 2 'unknown option run.optimizer; the most similar one is optim.name' train translate --optimizer adam
refuses 2 'unknown option run.gpus: Norma computes on CPUs' train translate --gpus 1
refuses 2 'unknown option run.transformer_dropout; the most similar one is model.dropout' train translate --transformer-dropout 0.1
refuses 2 'unknown option run.adam_beta2; the most similar one is optim.beta2' train translate --adam-beta2 0.9
refuses 2 'unknown option generate.max_new_tokens; the most similar one is sample.tokens' generate model --max-new-tokens 9
refuses 2 'unknown option run.max_length; the most similar one is data.max_length' train translate --max-length 50
refuses 2 'unknown option run.maxtokens; the most similar one is train.max_tokens' train translate --maxtokens 512
# Another word is another meaning, however few letters differ.
for name in scoring clip-norm-type log-level embedding-vectors eval-delay lambda-align quant-layers; do
    refuses 2 "unknown option run.${name//-/_}; --help lists the options" train translate --$name 1
done
refuses 2 'unknown option prepare.separator; --help lists the options' prepare --separator '@@'
refuses 2 'unknown option run.exponential_smoothing; the most similar one is train.ema_decay' train translate --exponential-smoothing 1e-4
refuses 2 'unknown option run.data: data is a section of options, such as data.folder' train translate --data d
refuses 2 'unknown option translate.mert_weights; --help lists the options' translate model --mert-weights tuned.ini
refuses 2 'unknown command run; norma --help lists the commands' run
printf '[run]\ntask = lm\n[data]\nfolder = of-this-file\n' >multi30k-de-en
refuses 3 'of-this-file' train multi30k-de-en
mkdir demo
"$NORMA" train demo >out 2>err && fail "trained without data"
lacks err 'is a folder'
mkdir folder
refuses 3 'folder: is a folder, not a recipe' train folder
: >folder/config.ini
refuses 3 'folder: is a run folder, not a recipe; the recipe of the run is folder/config.ini' train folder --resume
rm folder/config.ini

# ---- completion ----
refuses 2 'available: bash, zsh' completion fish
refuses 2 'completion: too few arguments; usage: norma completion bash|zsh' completion
"$NORMA" completion bash >norma.bash
bash -n norma.bash || fail "the bash script has a syntax error"
# Completions of the last word.
complete_words() {
    printf '%q ' "$@" >line
    bash -c '. ./norma.bash; eval "COMP_WORDS=($(cat line))"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _norma
        printf "%s\n" "${COMPREPLY[@]}"'
}
completes() { # EXPECTED WORD...
    local expected=$1
    shift
    cases=$((cases + 1))
    [ "$(complete_words "$@" | sort | tr '\n' ' ')" = "$expected " ] || fail "completion of $*: $(complete_words "$@" | tr '\n' ' ')"
}
completes 'train translate' "$NORMA" tr
completes '--model.norm --model.norm_position' "$NORMA" train x.ini --model.norm
completes '--model.causal' "$NORMA" train x.ini --model.caus
completes 'constant cosine cosine-ma2019' "$NORMA" train x.ini --schedule.name co
completes '--beam' "$NORMA" translate run --bea
completes 'rbn/conll-post-rbn' "$NORMA" train rbn/conll-post-rb
completes 'rbn/conll-post-rbn' "$NORMA" compare rbn/conll-post-rb
completes 'rbn/conll-post-rbn' "$NORMA" baseline rbn/conll-post-rb
completes 'data/iwslt14-de-en' "$NORMA" prepare data/iw
completes 'bleu' "$NORMA" score b
completes 'ter' "$NORMA" score t
completes 'zsh' "$NORMA" completion z
# Names are completed in both spellings, and values after both, also in the form --option=VALUE.
completes '--bpe-merges' "$NORMA" prepare --bpe-m
completes '--model.norm-position' "$NORMA" train x.ini --model.norm-p
completes 'gnmt power' "$NORMA" translate run --length-penalty ''
completes 'gnmt power' "$NORMA" translate run --length_penalty = ''
completes 'gnmt power' "$NORMA" translate run --length-penalty =
completes 'power' "$NORMA" translate run --length-penalty = p
for command in "${commands[@]}"; do # every option of the help is completed
    complete_words "$NORMA" "$command" x -- | tr - _ | sort >completed
    "$NORMA" "$command" --help all | grep -oE '^  --[a-z][a-z_.0-9-]*' | tr -d ' ' | tr - _ | sort >options
    [ -z "$(comm -13 completed options)" ] || fail "not completed for $command: $(comm -13 completed options)"
done
"$NORMA" completion zsh >_norma
head -n 1 _norma >first
has first '#compdef norma'
has _norma "'--model.norm:"

# The words that zsh completes in a command line, for which there is at least one.
cat >complete.zsh <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= ; TERM=dumb; fpath=($PWD \$fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word"
# A compadd that also prints the words that match.
zpty -w shell 'compadd() { [[ " $* " == *" -"[OAD]" "* ]] || { typeset -a matching; builtin compadd -A matching "$@"; print -rl -- "word:"${^matching} "words en""d" }; builtin compadd "$@" }'
zpty -w shell 'print -r re""ady'
zpty -r shell text '*ready*'
zpty -n -w shell "$1"$'\t'
zpty -r shell text '*word:*words end*'
zpty -d shell
print -r -- "$text" | grep -ao 'word:[^[:cntrl:]]*' | cut -d: -f2- | sort -u
ZSH
completes_zsh() { # EXPECTED LINE
    cases=$((cases + 1))
    local words
    words=$(PATH=$(dirname "$NORMA"):$PATH timeout 120 zsh -f complete.zsh "$2" | tr '\n' ' ')
    [ "$words" = "$1 " ] || fail "completion of $2 in zsh: $words"
}
# A container may lack pseudo terminals.
if zsh -fc 'zmodload zsh/zpty && zpty shell true' 2>/dev/null; then
    completes_zsh 'train translate' 'norma tra'
    completes_zsh '--model.norm --model.norm_position' 'norma train x.ini --model.norm'
    completes_zsh 'adam adam-fairseq adamw muon sgd' 'norma train x.ini --optim.name '
    completes_zsh 'rbn/conll-post-rbn' 'norma train rbn/conll-post-rb'
    completes_zsh 'data/iwslt14-de-en' 'norma prepare data/iw'
    completes_zsh '--bpe-merges' 'norma prepare --bpe-m'
    completes_zsh 'gnmt power' 'norma translate run --length-penalty '
    completes_zsh 'gnmt power' 'norma translate run --length-penalty='
    completes_zsh 'translate' 'norma help transl'
    completes_zsh '--manual' 'norma translate --man'
    completes_zsh 'help' 'norma hel'
fi

# ---- options in documents and recipes ----
mapfile -t pages < <(find "$SOURCE/README.md" "$SOURCE/CONTRIBUTING.md" "$SOURCE/docs" "$SOURCE/results" "$SOURCE/recipes" \
    -name '*.md' -o -name '*.ini')
[ ${#pages[@]} -gt 200 ] || fail "only ${#pages[@]} documents and recipes found"
NORMA=$NORMA "$SOURCE/scripts/check_commands.py" "${pages[@]}" >out || fail "options that do not exist: $(cat out)"
printf '%s\n' '`norma translate --beem 4 RUN`' 'norma train lm \' '    --no-samples' '`norm.rbn.lamda`' >wrong.md
if NORMA=$NORMA "$SOURCE/scripts/check_commands.py" wrong.md >out; then fail "wrong options are accepted"; fi
[ "$(wc -l <out)" = 3 ] || fail "wrong options: $(cat out)"
cases=$((cases + ${#pages[@]} + 3))
echo "$cases cases"
