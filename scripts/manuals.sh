#!/bin/sh
# Writes the manual pages of the program and of each of its commands, as the program itself gives them.
#     scripts/manuals.sh PROGRAM FOLDER
set -eu
program=$1 folder=$2
mkdir -p "$folder"
rm -f "$folder"/*.1
for command in $("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  *.*/\1/p'); do
    "$program" "$command" --manual >"$folder/norma-$command.1"
done
# Last, because the build takes it as the sign that all are there.
"$program" --manual >"$folder/norma.1"
