#!/usr/bin/env python3
"""Compares the settings of a run with those listed for its recipe, except the ones of the command line:

    check_settings.py LIST RECIPE PROFILE CONFIG

    LIST     tests/unit/recipe_settings.ini, which describes its format
    RECIPE   such as pn/table3-ptb-pn; PROFILE: its profile, or an empty string
    CONFIG   config.ini of the run"""
import fnmatch
import re
import sys


def resolved(key, values):
    """The name of an option: a norm that is not set is that of the option it defaults to."""
    if "." in key:
        return key
    path = f"model.{key}"
    if values.get(path, "set") != "" or key == "norm":
        return path
    return resolved(key.replace("_final", "", 1) if "_final" in key else "norm", values)


def equal(actual, expected):
    number = r"-?[0-9.]+(e-?[0-9]+)?"
    if re.fullmatch(number, actual) and re.fullmatch(number, expected):
        return float(actual) == float(expected)
    return actual == expected


def main():
    if len(sys.argv) != 5:
        sys.exit("usage: check_settings.py LIST RECIPE PROFILE CONFIG")
    listed, recipe, profile, config = sys.argv[1:]
    values, origins, applies, checked, wrong = {}, {}, False, 0, 0
    with open(config, encoding="utf-8") as file:
        for line in file:
            if found := re.match(r"\[(.*)\]$", line):
                section = found[1]
            elif found := re.match(r"(\S+) = (.*?) ; (.*)$", line):
                values[f"{section}.{found[1]}"], origins[f"{section}.{found[1]}"] = found[2], found[3]
    with open(listed, encoding="utf-8") as file:
        for line in file:
            if found := re.match(r"\[(.*?)(?: : (\w+))?\]$", line):
                applies = (found[2] or "") == profile and any(
                    fnmatch.fnmatchcase(recipe, pattern) for pattern in found[1].split())
            elif applies and (found := re.match(r"(\S+) = ?(.*)$", line)):
                key, expected = resolved(found[1], values), found[2]
                if origins.get(key) == "command line":
                    continue
                actual = values.get(key, "unknown")
                checked += 1
                if not equal(actual, expected):
                    print(f"{key} is {actual} instead of {expected}", file=sys.stderr)
                    wrong += 1
    if not checked:
        sys.exit(f"no settings of {recipe} are listed")
    sys.exit(wrong > 0)


main()
