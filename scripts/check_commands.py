#!/usr/bin/env python3
"""Compares the options in documents and recipes with those of the program.

    NORMA=build/norma scripts/check_commands.py FILE...

Checked are the options of every `norma COMMAND ...`, in text and in code blocks, and names in backquotes such
as `schedule.warmup`. Prints what the program does not know. Exit code: 0 nothing, 1 something.
"""
import os
import re
import subprocess
import sys

# Names in the other sections can also be files: train.de, model.safetensors.
SECTIONS = "norm|optim|schedule|probe|decode|device|comm|compare"


def norma(*arguments):
    command = [os.environ["NORMA"], *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def help_options(*arguments):
    """The options that --help all lists, with underscores."""
    names = re.findall(r"^  --([a-z][\w.-]*)", norma(*arguments, "--help", "all"), re.M)
    return {name.replace("-", "_") for name in names}


def is_known(options, name):
    """The section may be omitted where the command has one option of that name; --no-NAME is --NAME false."""
    name = name.replace("-", "_")
    inner = re.sub(r"^\w+\.", "", name)
    return (name in options or name in ("help", "manual") or inner in options
            or any(option.partition(".")[2] == inner for option in options)
            or name.startswith("no_") and is_known(options, name[3:]))


known = {command: help_options(command) for command in norma("help", "--list").split()}
for task in "translation", "lm", "classification", "tagging", "image":
    for command in "train", "compare", "baseline":
        known[command] |= help_options(command, "--run.task", task)
everywhere = set().union(*known.values())
unknown = 0
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"\\\n\s*", " ", file.read())
    for command, arguments in re.findall(r"\bnorma ([a-z]+)\b([^\n`|;<>]*)", text):
        for option in re.findall(r"\s--([a-z][\w.-]*)", re.sub(r'"[^"]*"', "", arguments)):
            if command in known and not is_known(known[command], option):
                print(f"{path}: norma {command} has no option --{option}")
                unknown += 1
    for option in re.findall(rf"`(?:--)?((?:{SECTIONS})\.[a-z][\w.-]*\w)(?=[`= ])", text):
        if option.replace("-", "_") not in everywhere and not option.endswith(".ini"):  # decode.ini is a file
            print(f"{path}: no command has the option {option}")
            unknown += 1
sys.exit(unknown > 0)
