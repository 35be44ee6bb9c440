#!/usr/bin/env python3
"""Writes what follows from the structs and lists of rows in the C headers (include/norma/record.h):
python/norma/_records.py with the ctypes layouts and typed tuples, and tables of the documentation between the
comments <!-- records LIST ... --> and <!-- end of table -->.

    scripts/records.py [--check]              exit code 1 if a file differs
    scripts/records.py --layout COMPILER      compares the layouts with those of the compiler
"""
import ctypes
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PYTHON = "python/norma/_records.py"
PAGE = "docs/formats.md"
HEADERS = ["status", "option", "backend", "norm", "norm_type", "translator", "language_model", "tagger",
           "score", "prepare", "train", "compare", "study"]
LISTS = ["include/norma/train.h", "include/norma/compare.h", "include/norma/study.h",
         "src/core/train/trainer.h", "src/core/train/trainer_private.h",
         "src/core/train/schedule.h", "src/core/train/log.c"]
# C struct: Python class. Structs that others contain come first.
STRUCTS = {"nm_error": "ErrorText", "nm_option": "Option", "nm_preset": "Preset",
           "nm_backend_options": "BackendOptions", "nm_norm_plan": "NormPlan", "nm_norm_site": "NormSite",
           "nm_norm_type": "NormTypeStruct", "nm_translation_word": "WordStruct",
           "nm_tagged_span": "SpanStruct", "nm_interval": "IntervalStruct",
           "nm_perplexity_sums": "PerplexitySums", "nm_paired": "PairedStruct",
           "nm_prepare_progress": "PrepareProgress", "nm_prepare_events": "PrepareEvents",
           "nm_prepared_side": "PreparedSideStruct", "nm_prepared_split": "PreparedSplitStruct",
           "nm_prepared_drop": "PreparedDropStruct", "nm_training_progress": "TrainingProgress",
           "nm_training_validation": "TrainingValidation", "nm_training_events": "TrainingEvents",
           "nm_compared_run": "ComparedRun", "nm_compared_variant": "ComparedVariant",
           "nm_comparison_events": "ComparisonEvents", "nm_factor_effect": "FactorEffect",
           "nm_planned_run": "PlannedRun",
           "nm_plan_part": "PlanPart", "nm_study_decision": "StudyDecision", "nm_study_answer": "StudyAnswer",
           "nm_studied_variant": "StudiedVariant", "nm_study_events": "StudyEvents"}
# Events whose functions Python defines; pointers to functions in other structs are plain pointers.
EVENTS = {"nm_prepare_events": "prepare", "nm_training_events": "training",
          "nm_comparison_events": "comparison", "nm_study_events": "study"}
TUPLES = {"nm_training_progress": ("Progress",
                                   "After an update. Losses are means per target token, or per example for "
                                   "classification and tagging."),
          "nm_training_validation": ("Validation", "After a validation.")}
KINDS = {"text": "const char *", "int": "int64_t", "code": "int32_t", "real": "double", "flag": "bool",
         "hash": "uint64_t"}
CTYPES = {"int64_t": "c_int64", "int32_t": "c_int32", "uint64_t": "c_uint64", "size_t": "c_size_t",
          "double": "c_double", "bool": "c_bool", "unsigned": "c_uint", "char": "c_char", "void": "None"}
HINTS = {"text": "Optional[str]", "int": "int", "code": "int", "real": "float", "flag": "bool", "hash": "int"}


def read(path):
    return (SOURCE / path).read_text(encoding="utf-8")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


class Lists:
    """The lists of rows (kind, name, help, key) by name."""

    def __init__(self):
        self.bodies, self.records = {}, {}
        for path in LISTS:
            text = without_comments(read(path)).replace("\\\n", " ")
            for name, body in re.findall(r"^ *#define (\w+)\(F\) (.*)$", text, flags=re.M):
                self.bodies[name] = body
            self.records.update(re.findall(r"NM_RECORD\((\w+), (\w+)\)", text))

    def rows(self, name):
        rows = []
        text = r'"(?:[^"\\]|\\.)*"'
        for nested, kind, member, strings in re.findall(
            rf'(\w+)\(F\)|F\((\w+(?:\([^)]*\))?), (\w+),\s+({text}(?:[ ,]+{text})*)\)', self.bodies[name]
        ):
            if nested:
                rows += self.rows(nested)
                continue
            parts = re.split(r'(?<="),\s+', re.sub(r'"\s+"', "", strings))
            help, key = (part.strip()[1:-1].replace('\\"', '"') for part in (parts + [f'"{member}"'])[:2])
            rows.append((kind, member, help, key))
        if len(rows) != len(re.findall(r"\bF\(", self.bodies[name])) + sum(
                len(self.rows(nested)) for nested in re.findall(r"(\w+)\(F\)", self.bodies[name])):
            sys.exit(f"records.py: {name} has a row of another form")
        return rows


def members(name, lists, headers):
    """(C type, name, length or None) of each member of a struct; functions as "function
    RESULT(ARGUMENTS)"."""
    if name in lists.records:
        return [(re.sub(r"^other\((\w+)\)$", r"\1", KINDS.get(kind, kind)), member, None)
                for kind, member, _, _ in lists.rows(lists.records[name])]
    found = re.search(rf"typedef struct {name} \{{(.*?)\n\}} {name};", headers, flags=re.S)
    if not found:
        sys.exit(f"records.py: no struct {name} in the headers")
    result = []
    for declaration in filter(None, (part.strip() for part in found[1].split(";"))):
        function = re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", declaration, flags=re.S)
        if function:
            result.append((f"function {function[1].strip()}({function[3]})", function[2], None))
            continue
        base = re.match(r"(?:const |struct )*\w+(?=[\s*])", declaration)[0]
        for part in declaration[len(base):].split(","):
            stars, member, length = re.match(r"\s*(\**)(?:const )?\s*(\w+)(?:\[(\w+)\])?$", part).groups()
            result.append((base + " " + stars if stars else base, member, length))
    return result


def ctype(c):
    """The ctypes expression of a C type."""
    plain = c.replace("const ", "").replace("struct ", "").strip()
    if plain == "char *":
        return "c_char_p"
    if plain.endswith("*"):
        inner = plain.rstrip("* ")
        return f"POINTER({STRUCTS[inner]})" if inner in STRUCTS and plain.count("*") == 1 else "c_void_p"
    return STRUCTS.get(plain) or CTYPES.get(plain, "c_int")  # other names are enums


def arguments(text):
    return [re.sub(r"\w+$", "", part.strip()) if not part.strip().endswith("*") else part
            for part in text.split(",")]


def member_type(struct, c, name, length):
    if c.startswith("function "):
        return f"{EVENTS[struct]}_{name}" if struct in EVENTS else "c_void_p"
    return f"{ctype(c)} * {length}" if length else ctype(c)


def python(lists, headers):
    out = [
        '"""Structs of the public headers. scripts/records.py writes this file; do not change it."""',
        "from __future__ import annotations",
        "",
        "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, "
        "c_int32,",
        "                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)",
        "from typing import NamedTuple, Optional",
    ]
    for name, kind in STRUCTS.items():
        out += ["", ""]
        found = members(name, lists, headers)
        for c, member, _ in found:
            function = re.match(r"function (.*?)\((.*)\)$", c, flags=re.S)
            if function and name in EVENTS:
                types = [ctype(function[1])] + [ctype(part) for part in arguments(function[2])]
                out.append(f"{EVENTS[name]}_{member} = CFUNCTYPE({', '.join(types)})")
        if out[-1]:
            out += ["", ""]
        out += [f"class {kind}(Structure):", f'    """{name}"""', "    _fields_ = ["]
        out += [f'        ("{member}", {member_type(name, c, member, length)}),' for c, member,
                length in found]
        out += ["    ]"]
    for name, (kind, text) in TUPLES.items():
        out += ["", "", f"class {kind}(NamedTuple):", f'    """{text}"""']
        out += [f"    {member}: {HINTS[row]}  #: {help}" for row, member, help,
                _ in lists.rows(lists.records[name])]
    return "\n".join(out) + "\n"


def table(names, lists):
    rows = []
    for name in names:
        for kind, _, help, key in lists.rows(name):
            if key and not kind.startswith("other"):
                rows.append(f"| `{key.rstrip('?')}` | {help.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def page(text, lists):
    return re.sub(r"(<!-- records ([^>]*) -->\n)(.*?)(?=<!-- end of table -->)",
                  lambda found: found[1] + "\n| key | |\n|---|---|\n" + table(found[2].split(), lists) + "\n",
                  text, flags=re.S)


def check_layout(compiler, lists, headers):
    """Sizes and offsets of all structs, by the compiler and by ctypes."""
    spec = importlib.util.spec_from_file_location("_records", SOURCE / PYTHON)
    records = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(records)
    expected, code = [], [f'#include "norma/{name}.h"' for name in HEADERS] + [
        "#include <stddef.h>",
        "#include <stdio.h>",
        "int main(void)",
        "{",
    ]
    for name, kind in STRUCTS.items():
        struct = getattr(records, kind)
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        code.append(f'    printf("{name} %zu\\n", sizeof({name}));')
        for c, member, _ in members(name, lists, headers):
            field = getattr(struct, member)
            expected.append(f"{name}.{member} {field.offset} {field.size}")
            code.append(
                f'    printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name} '
                f'*)0)->{member}));'
            )
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "layout"
        program.with_suffix(".c").write_text("\n".join(code + ["}", ""]))
        subprocess.run([compiler, "-I", str(SOURCE / "include"), "-o", str(program), f"{program}.c"],
                       check=True)
        got = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = [f"{a}, in {PYTHON} {b}" for a, b in zip(got, expected) if a != b]
    print("\n".join(wrong) or f"{len(expected)} sizes and offsets")
    return bool(wrong) or len(got) != len(expected)


def main():
    lists, headers = Lists(), "\n".join(without_comments(read(f"include/norma/{name}.h")) for name in HEADERS)
    if sys.argv[1:2] == ["--layout"]:
        return check_layout(sys.argv[2], lists, headers)
    status = 0
    for path in [PYTHON, PAGE]:
        old = read(path) if (SOURCE / path).exists() else ""
        new = python(lists, headers) if path == PYTHON else page(old, lists)
        if new != old and "--check" in sys.argv:
            print(f"{path} does not follow from the headers; run scripts/records.py", file=sys.stderr)
            status = 1
        elif new != old:
            (SOURCE / path).write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
