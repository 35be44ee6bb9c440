#!/usr/bin/env python3
"""Prints python/norma/options.py: the options of functions of Python as typed dicts, from the program's help.

    NORMA_PROGRAM=build/norma scripts/python_options.py > python/norma/options.py
"""
import os
import re
import subprocess
import textwrap

PROGRAM = os.environ.get("NORMA_PROGRAM", "build/norma")
TASKS = "translation", "lm", "classification", "tagging"
REPEATED = "compare.grid", "sample.stop"  # may be lists (norma/_models.py)
KINDS = {"N": "int", "X": "float", "TEXT": "Text", "": "bool"}
# Class, function, command, and the options if not all: sections, or single ones.
CLASSES = (
    ("TrainOptions", "train", "train", None),
    ("CompareOptions", "compare", "compare", None),
    ("BaselineOptions", "baseline", "baseline", None),
    ("StudyOptions", "study", "study", None),
    ("PrepareOptions", "prepare", "prepare", None),
    ("InspectOptions", "inspect", "inspect", None),
    ("ReportOptions", "report", "report", None),
    ("TokenizeOptions", "tokenize", "tokenize", None),
    ("ScoreOptions", "score", "score",
     {"score." + name for name in (
         "metric_variant", "tokenize", "spm_model", "mecab_dictionary", "mecab_library", "lowercase",
         "split_compounds", "char_order", "word_order", "beta", "ter_normalized", "ter_no_punctuation",
         "ter_asian", "ter_case_sensitive", "tag_scheme", "bootstrap", "seed", "centered")}),
    ("TranslatorOptions", "Translator", "translate",
     {"decode", "device", "translate.input_format", "translate.output_format", "translate.shortlist",
      "translate.shortlist_best", "translate.shortlist_frequent", "translate.alignment",
      "translate.alignment_layer", "translate.alignment_head"}),
    ("LanguageModelOptions", "LanguageModel", "generate", {"sample", "device"}),
    ("TaggerOptions", "Tagger", "tag", {"tag.scheme", "device"}),
    ("ClassifierOptions", "Classifier", "classify", {"device"}),
)
OF_RECIPES = "TrainOptions", "CompareOptions", "BaselineOptions"
OF_MODELS = "TranslatorOptions", "LanguageModelOptions", "TaggerOptions", "ClassifierOptions"
ARGUMENTS = ("run.folder", "run.resume", "compare.folder", "study.folder", "report.output", "inspect.json",
             "output.json")  # of the functions


HEAD = '''\
"""The options of functions as typed dicts: type checkers find wrong names and values, editors complete
them. Options of a recipe have their section, "train.updates"; others are named as ``norma COMMAND
--help all`` shows them. scripts/python_options.py writes this file.

A dict whose keys are known only at run time: ``typing.cast(norma.options.TrainOptions, found)``.
"""
import os
from typing import Literal, Sequence, TypedDict, Union

Text = Union[str, "os.PathLike[str]"]
Texts = Union[Text, Sequence[Text]]
'''


def options_of(command, task):
    """Section, name as printed, placeholder and help of every option."""
    words = [f"--run.task={task}"] if task else []
    text = subprocess.run([PROGRAM, command, *words, "--help", "all"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    section, found = None, []
    for line in text.splitlines():
        if re.fullmatch(r"\[[\w.]+\]", line):
            section = line[1:-1]
        option = re.match(r"  --([\w.-]+)(?: (N|X|TEXT|NAME))?(?:  +(.*))?$", line)
        if section and option:
            found.append([section, option[1].replace("-", "_"), option[2] or "", option[3] or ""])
        elif found and line.startswith(" " * 30):
            found[-1][3] += " " + line.strip()
    return found


def value_type(name, kind, text):
    if kind == "NAME":
        choices = re.search(r"; one of (\S+)\)$", text)[1].split("|")
        return "Literal[" + ", ".join(f'"{one}"' for one in choices) + "]"
    return "Texts" if name in REPEATED else KINDS[kind]


def names(command, section, name, printed):
    """The names of an option in Python: that of a recipe, or that of the command line, or both."""
    if command == "train" or section == "run" or "." in printed:
        return [name]
    models = section in ("decode", "sample", "tag") or section == "device" and command != "inspect"
    return [name, printed] if models else [printed]


def members(command, chosen):
    """Types by name, over all tasks; an option of several tasks may have several types."""
    trains = command in ("train", "compare", "baseline")
    found = {}
    for task in TASKS if trains else (None,):
        for section, printed, kind, text in options_of(command, task):
            name = f"{section}.{printed.rpartition('.')[2]}"
            if name in ARGUMENTS or chosen and section not in chosen and name not in chosen:
                continue
            for one in names(command, section, name, printed):
                found.setdefault(one, {})[value_type(name, kind, text)] = None
        if "device.backend" in found:
            found.setdefault("device", {})["str"] = None
    return {name: next(iter(types)) if len(types) == 1 else f"Union[{', '.join(types)}]"
            for name, types in found.items()}


def print_dict(name, options):
    print(f'{name} = TypedDict("{name}", {{')
    for option, kind in options.items():
        print(textwrap.fill(f'"{option}": {kind},', 108, initial_indent="    ", subsequent_indent=" " * 8,
                            break_long_words=False, break_on_hyphens=False))
    print("}, total=False)\n")


def common(found, classes):
    first, *others = (found[name] for name in classes)
    return {name: kind for name, kind in first.items() if all(one.get(name) == kind for one in others)}


def main():
    print(HEAD)
    found = {name: members(command, chosen) for name, _, command, chosen in CLASSES}
    bases = {}
    for base, classes in (("_Recipe", OF_RECIPES), ("_Model", OF_MODELS)):
        shared = common(found, classes)
        print_dict(base, shared)
        bases.update((name, (base, shared)) for name in classes)
    for name, function, _, _ in CLASSES:
        base, shared = bases.get(name, ("", {}))
        own = {option: kind for option, kind in found[name].items() if option not in shared}
        if own:
            print_dict("_" + name, own)
        parents = ", ".join(([base] if base else []) + (["_" + name] if own else []))
        print(f'\nclass {name}({parents}, total=False):\n    """Options of ``norma.{function}``."""\n\n')


if __name__ == "__main__":
    main()
