#!/usr/bin/env python3
"""Mutation tests: deliberate bugs, generated in the functions of src/ by rules, that the tests must find.

    scripts/mutants.py [--sample 100] [--seed 1] [--match REGEX] [--only ID,ID] [--budget SECONDS]
                       [--jobs N] [--build FOLDER]

One build holds every mutant of the run: the body of a mutated function occurs once per mutant and once
without a change, and the environment variable NORMA_MUTANT selects one. A run of all tests without a mutant
notes which test executes the block of which mutant; each mutant then gets exactly the tests that execute its
block, the most specific one first, until one fails. A mutant that no test executes is "unreached". The map
stays in FOLDER/reach.json, and only tests whose programs changed run again. The programs are linked with the
leak detector.

Rules: relational, logical, bitwise and arithmetic operators, constants, negated conditions, deleted
statements. Not mutated: assertions (they hold unless a caller is wrong), sizes in declarations, strings,
tables outside functions, code that this machine does not compile. A sample is drawn uniformly from all
candidates: a hash of seed and mutant sorts them, so that most of a sample is the same after a change of other
functions. Those that do not compile, and those with the same object code as the original, are replaced by the
next candidate and counted.

--budget   seconds of tests per mutant; longer tests are left out, and a mutant that outlives the others
           survived
tests/mutants/equivalent.tsv: FILE, line, changed line, reason. Such a mutant is equivalent.

Results: FOLDER/SEED.tsv (FOLDER: build-mutants); an interrupted run continues. Exit code: 0 no mutant
survived, 1 some did. scripts/listed_mutants.py tries the listed mutants of tests/mutants/*.txt.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = re.compile(
    r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|'
    r"(?P<directive>^\s*#(?:\\\n|[^\n])*)|"
    r"(?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)[uUlLfF]*)|"
    r"(?P<name>[A-Za-z_]\w*)|"
    r"(?P<operator><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|"
    r"[-+*/%&|^<>=!~?:;,.(){}\[\]])",
    re.S | re.M)
SWAPS = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
         "&&": ["||"], "||": ["&&"], "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "+=": ["-="],
         "-=": ["+="], "*=": ["/="], "/=": ["*="], "|=": ["&="], "&=": ["|="], "<<": [">>"], ">>": ["<<"],
         "&": ["|"], "|": ["&"], "++": ["--"], "--": ["++"]}
BINARY = {"+", "-", "*", "/", "%", "&", "|", "<<", ">>"}
# Not part of the build of this run, or tests of the text of the sources.
NO_TESTS = re.compile(r"^(headers|choices|symbols|circles|unload|ledger|records|record_layout|norm_tables|"
                      r"python|device_kernels|example_.*|e2e_kill|e2e_limits|e2e_slurm|e2e_recipes|"
                      r"e2e_results|core_alone)$")
# In every changed file; weak, so that a program or a library has the functions once.
SWITCH = """#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#define NM_MUTANT_SWITCH __attribute__((weak, noinline, visibility("hidden")))
NM_MUTANT_SWITCH _Bool nm_is_mutant(int id);
NM_MUTANT_SWITCH void nm_reached(int id);
NM_MUTANT_SWITCH _Bool nm_is_mutant(int id)
{
    static int active = -2;
    if (active == -2)
        active = getenv("NORMA_MUTANT") ? atoi(getenv("NORMA_MUTANT")) : -1;
    return id == active;
}
NM_MUTANT_SWITCH void nm_reached(int id)
{
    static volatile unsigned char *map;
    static _Bool opened;
    if (!opened) {
        const char *file = getenv("NORMA_REACHED"), *count = getenv("NORMA_MUTANTS");
        int fd = file && count ? open(file, O_RDWR | O_CLOEXEC) : -1;
        if (fd >= 0)
            map = mmap(NULL, (size_t)atoi(count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        map = map == MAP_FAILED ? NULL : map;
        opened = 1;
    }
    if (map && !map[id])
        map[id] = 1;
}
"""


class Mutant:
    """A change of text[start:end] of a file to `new`, inside the function body [body[0], body[1]). What is
    inserted at `mark` runs if the changed code does."""

    def __init__(self, file, text, start, end, new, rule, body, mark):
        self.file, self.start, self.end, self.new, self.rule, self.body = file, start, end, new, rule, body
        self.mark = mark
        self.line_number = text.count("\n", 0, start) + 1
        first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        self.line = " ".join(text[first:last].split())
        self.changed = " ".join((text[first:start] + new + text[end:last]).split())
        self.key = hashlib.md5("\0".join([file, text[body[0]:body[1]], self.line, self.changed,
                                          str(start - body[0])]).encode()).hexdigest()[:12]

    def __str__(self):
        return f"{self.file}:{self.line_number} {self.rule}: {self.line} => {self.changed}"


def bodies(text):
    """Positions after the { and before the } of every function: both alone at the start of a line."""
    return [(m.end(), text.index("\n}", m.end() - 1) + 1) for m in re.finditer(r"^\{$", text, re.M)]


def candidates(file, text):
    """Every mutant of the rules in the functions of a file."""
    out = []
    for body in bodies(text):
        tokens = [m for m in TOKEN.finditer(text, body[0], body[1])
                  if m.lastgroup not in ("comment", "directive")]
        marks = block_starts(tokens, body)
        asserted = {at for i, token in enumerate(tokens) if token.group() in ("NM_ASSERT", "_Static_assert")
                    for at in range(i, closing(tokens, i + 1) + 1)}
        for i, token in enumerate(tokens):
            if i in asserted:
                continue
            word, kind = token.group(), token.lastgroup
            before = tokens[i - 1] if i else None

            def add(new, rule, start=token.start(), end=token.end(), mark=marks[i]):
                out.append(Mutant(file, text, start, end, new, rule, body, mark))

            operand_before = before is not None and (before.lastgroup in ("name", "number")
                                                     or before.group() in (")", "]"))
            if before is not None and before.group() in ("return", "case", "sizeof"):
                operand_before = False
            if kind == "operator" and word in SWAPS and (word not in BINARY or operand_before):
                for new in SWAPS[word]:
                    add(new, "operator")
            elif kind == "number":
                declared = (i > 2 and before.group() == "[" and tokens[i - 2].lastgroup == "name"
                            and (tokens[i - 3].lastgroup == "name" and tokens[i - 3].group() != "return"
                                 or tokens[i - 3].group() == "*"))
                if not declared:
                    for new in changed_numbers(word):
                        add(new, "constant")
            elif word in ("true", "false"):
                add("false" if word == "true" else "true", "constant")
            elif word in ("if", "while") and i + 1 < len(tokens):
                end = closing(tokens, i + 1)
                if end:
                    inside = text[tokens[i + 1].end():tokens[end].start()]
                    add(f"!({inside})", "negated", tokens[i + 1].end(), tokens[end].start())
            if kind == "name" and (before is None or starts_statement(text, tokens, i)):
                end = statement_end(tokens, i)
                if end:
                    gone = text[token.start():tokens[end].end()]
                    add(";" + "\n" * gone.count("\n"), "deleted", token.start(), tokens[end].end())
    return out


def changed_numbers(word):
    digits = re.match(r"0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][-+]?\d+)?", word).group()
    suffix = word[len(digits):]
    if "." in digits or "e" in digits.lower() and not digits.lower().startswith("0x"):
        return [f"({word} + 1)", f"({word} * 2)"] if float(digits) else ["1"]
    value = int(digits, 0) if not re.fullmatch(r"0\d+", digits) else int(digits, 8)
    return [f"{value + 1}{suffix}"] + ([f"{value - 1}{suffix}"] if value else [])


def closing(tokens, i):
    """The index of the parenthesis that closes tokens[i]."""
    depth = 0
    for k in range(i, len(tokens)):
        depth += (tokens[k].group() == "(") - (tokens[k].group() == ")")
        if not depth:
            return k
    return None


def starts_statement(text, tokens, i):
    """Whether a line begins at tokens[i] and the token before ends a statement, a condition or a block."""
    line = text[text.rfind("\n", 0, tokens[i].start()) + 1:tokens[i].start()]
    return not line.strip() and tokens[i - 1].group() in (";", "{", "}", ")", "else", ":")


def block_starts(tokens, body):
    """For every token the end of what precedes the last statement that begins, in a block, at the token or
    before it: what is inserted there runs if the token does. A statement without braces under a condition has
    the position of its condition, so that some that do not run count as executed."""
    out, last, blocks, depth, colon, closed_do = [], body[0], [], 0, False, False
    for i, token in enumerate(tokens):
        word, before = token.group(), tokens[i - 1].group() if i else "{"
        in_block = not depth and (not blocks or blocks[-1][0])
        starts = in_block and (before in (";", "{", "}") or before == ":" and colon)
        if starts and word in ("case", "default"):
            last = blocks[-1][1] if blocks else body[0]  # what precedes a label may be a break
        elif starts and word not in ("else", "}") and not (word == "while" and closed_do):
            last = tokens[i - 1].end() if i else body[0]
        if before == ":" and colon:
            colon = False
        if word in ("case", "default"):
            colon = True
        depth += (word in "([") - (word in ")]")
        closed_do = False
        if word == "{":
            blocks.append((in_block and opens_block(tokens, i), last, depth, before == "do"))
            depth = 0
        elif word == "}" and blocks:
            _, last, depth, closed_do = blocks.pop()
        out.append(last)
    return out


def opens_block(tokens, i):
    """Whether the brace tokens[i] begins statements, and is not that of an initializer or a type."""
    before = tokens[i - 1].group() if i else "{"
    if before != ")":
        return before in ("else", "do", ";", "{", "}", ":")
    k, depth = i - 1, 0
    while k >= 0:
        depth += (tokens[k].group() == ")") - (tokens[k].group() == "(")
        if not depth:
            break
        k -= 1
    return k > 0 and tokens[k - 1].lastgroup == "name" and tokens[k - 1].group() not in ("return", "sizeof")


def statement_end(tokens, i):
    """The index of the semicolon of an assignment, a call, break or continue; None for other statements."""
    word = tokens[i].group()
    if word in ("break", "continue"):
        return i + 1
    following = tokens[i + 1].group() if i + 1 < len(tokens) else ""
    if word in ("return", "if", "for", "while", "do", "switch", "case", "default", "goto", "else",
                "NM_ASSERT"):
        return None
    if tokens[i + 1:] and (tokens[i + 1].lastgroup == "name" or following in ("*", ":")):
        return None  # a declaration or a label
    depth = 0
    for k in range(i, len(tokens)):
        one = tokens[k].group()
        depth += (one in "([{") - (one in ")]}")
        if depth < 0:
            return None
        if one == ";" and not depth:
            return k
    return None


def source_texts():
    return {p.relative_to(ROOT).as_posix(): p.read_text() for p in sorted((ROOT / "src").rglob("*"))
            if p.suffix in (".c", ".h", ".inc")}


class Tree:
    """A copy of the sources with a separate build."""

    def __init__(self, folder, jobs):
        self.folder, self.jobs = folder, jobs
        self.source, self.build = folder / "tree", folder / "tree/build"
        self.texts, self.original = source_texts(), {}
        self.source.mkdir(parents=True, exist_ok=True)
        names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                               cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
        for name in names:
            if name and (ROOT / name).is_file():
                self.write(name, (ROOT / name).read_bytes())
        self.log = open(folder / "log", "w")
        self.command(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DNORMA_TESTS=ON",
                      "-DNORMA_WERROR=OFF", "-DNORMA_BENCH=OFF", "-DNORMA_PYTHON=OFF",
                      "-DCMAKE_EXE_LINKER_FLAGS=-fsanitize=leak"])
        made = subprocess.run(["ninja", "-C", self.build, "-t", "targets", "rule", "CUSTOM_COMMAND"],
                              check=True, capture_output=True, text=True).stdout.split()
        self.command(["ninja", "-C", self.build, *[file for file in made if re.search(r"\.[ch]$", file)]])
        commands = json.loads((self.build / "compile_commands.json").read_text())
        self.commands = {}
        for entry in commands:
            name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), self.source)
            self.commands.setdefault(name, []).append(entry)
        self.users = collections.defaultdict(set)  # name of a header -> sources that include it
        includes = {file: re.findall(r'^\s*#\s*include "(?:[^"]*/)?([^"/]+)"', text, re.M)
                    for file, text in self.texts.items()}
        for file in self.commands:
            seen, queue = set(), [file]
            while queue:
                names = {name for name in includes.get(queue.pop(), ()) if name not in seen}
                seen |= names
                queue += [f for f in includes if f.rsplit("/", 1)[1] in names]
            for name in seen:
                self.users[name].add(file)

    def write(self, name, data):
        path = self.source / name
        if path.exists() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if (ROOT / name).exists():
            shutil.copymode(ROOT / name, path)

    def command(self, arguments):
        if subprocess.run(list(map(str, arguments)), stdout=self.log, stderr=self.log).returncode:
            sys.exit(f"failed, see {self.folder / 'log'}: {shlex.join(map(str, arguments))}")

    def make(self):
        self.command(["cmake", "--build", self.build, "-j", str(self.jobs)])

    def units(self, file):
        """Sources that are compiled here and include the file; the most similar name first."""
        if file in self.commands:
            return [file]
        stem = pathlib.Path(file).stem
        return sorted((u for u in self.users.get(file.rsplit("/", 1)[1], ()) if u.startswith("src/")),
                      key=lambda u: (stem not in u, len(u), u))

    def objects(self, units):
        """A hash of the object code of some sources at one CPU level; None if one does not compile."""
        out = hashlib.md5()
        for unit in units:
            entry = self.commands[unit][-1]
            object_file = self.folder / "one.o"
            words = [w for w in shlex.split(entry["command"]) if not w.endswith("ccache")]
            words = words[:words.index("-o")] + ["-o", str(object_file)] + words[words.index("-o") + 2:]
            words += ["-g0", "-w", "-Werror=return-type", "-Werror=int-conversion", "-Werror=uninitialized",
                      "-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration"]
            if subprocess.run(words, cwd=entry["directory"], capture_output=True).returncode:
                return None
            out.update(object_file.read_bytes())
        return out.hexdigest()

    def screen(self, mutant):
        """"valid", "uncompiled", "same code" or "not built here"."""
        units = self.units(mutant.file)
        if not units:
            return "not built here"
        shown = units[:3]
        if mutant.file not in self.original:
            self.original[mutant.file] = self.objects(shown)
        text = self.texts[mutant.file]
        self.write(mutant.file, (text[:mutant.start] + mutant.new + text[mutant.end:]).encode())
        changed = self.objects(shown)
        self.write(mutant.file, text.encode())
        if changed is None:
            return "uncompiled"
        return "same code" if changed == self.original[mutant.file] and len(units) <= 3 else "valid"

    def switched(self, mutants):
        """Writes every mutant into the copies of their files and builds it all."""
        (self.folder / "switch.h").write_text(f"#pragma once\n{SWITCH}")
        by_file = collections.defaultdict(lambda: collections.defaultdict(list))
        for number, mutant in enumerate(mutants):
            by_file[mutant.file][mutant.body].append((number, mutant))
        for file, text in self.texts.items():
            before = text
            for body, group in sorted(by_file.get(file, {}).items(), reverse=True):
                clean = text[body[0]:body[1]]
                line = text.count("\n", 0, body[0]) + 1
                marks = [(m.mark - body[0], f" nm_reached({number});") for number, m in group]
                for at, mark in sorted(marks, reverse=True):
                    clean = clean[:at] + mark + clean[at:] if at else clean
                first = "".join(mark for at, mark in marks if not at)
                parts = ["\n"]
                for number, m in group:
                    changed = text[body[0]:m.start] + m.new + text[m.end:body[1]]
                    parts.append(f"if (nm_is_mutant({number})) {{\n#line {line}{changed}\n}} else ")
                parts.append(f"{{{first}\n#line {line}{clean}\n}}\n")
                text = text[:body[0]] + "".join(parts) + text[body[1]:]
            if text != before:
                text = f"#include \"{self.folder}/switch.h\"\n#line 1\n{text}"
            self.write(file, text.encode())
        self.make()


class Tests:
    def __init__(self, tree, n):
        self.tree, self.n, self.all, self.without_leaks = tree, n, {}, set()
        shown = subprocess.run(["ctest", "--test-dir", tree.build, "--show-only=json-v1"], check=True,
                               capture_output=True, text=True).stdout
        for test in json.loads(shown)["tests"]:
            properties = {p["name"]: p["value"] for p in test["properties"]}
            if not NO_TESTS.match(test["name"]):
                self.all[test["name"]] = (test["command"],
                                          properties.get("WORKING_DIRECTORY", str(tree.build)),
                                          properties.get("SKIP_RETURN_CODE"))

    def run(self, name, environment, seconds, cpu_seconds):
        """("passed" | "failed" | "timeout", CPU seconds)"""
        command, folder, skip = self.all[name]
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2",
                       "LSAN_OPTIONS": f"exitcode=98:detect_leaks={int(name not in self.without_leaks)}",
                       **environment}

        def limit():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        start = time.monotonic()
        child = subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=limit,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(child.pid, 9)
        except ProcessLookupError:
            pass
        child.wait()
        spent = time.monotonic() - start
        if code is None or code in (-24, 128 + 24):
            return "timeout", spent
        return "passed" if code == 0 or (skip is not None and code == skip) else "failed", spent

    def digest(self, name):
        """A hash of the files of a test's command."""
        out, command = hashlib.md5(), self.all[name][0]
        for word in command + [word.split("=", 1)[1] for word in command if "=" in word]:
            out.update(word.encode() + (pathlib.Path(word).read_bytes() if os.path.isfile(word) else b""))
        return out.hexdigest()

    def reach(self, jobs):
        """test -> (seconds, mutants whose blocks it executes), for tests that pass without a mutant."""
        cache_file = self.tree.folder / "reach.json"
        cache = json.loads(cache_file.read_text()) if cache_file.exists() else {}

        def one(name):
            digest = self.digest(name)
            if cache.get(name, [None])[0] == digest:
                return name, *cache[name]
            file = self.tree.folder / f"reached.{name}"
            file.write_bytes(bytes(self.n))
            reaching = {"NORMA_REACHED": str(file), "NORMA_MUTANTS": str(self.n)}
            leaks, (result, spent) = True, self.run(name, reaching, 600, 600)
            if result == "failed":  # MPI and injected faults: the leak detector finds what is not ours
                self.without_leaks.add(name)
                leaks, (result, spent) = False, self.run(name, reaching, 600, 600)
            reached = [i for i, byte in enumerate(file.read_bytes()) if byte]
            file.unlink()
            return name, digest, result, spent, reached, leaks
        out = {}
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for name, digest, result, spent, reached, leaks in pool.map(one, self.all):
                cache[name] = digest, result, spent, reached, leaks
                cache_file.write_text(json.dumps(cache))
                if not leaks:
                    self.without_leaks.add(name)
                if result == "passed":
                    out[name] = (spent, set(reached))
                else:
                    print(f"without a mutant, {name}: {result}; it is left out", flush=True)
        return out


def try_mutant(tests, reach, number, budget):
    """(result, test that found it or what was tried, seconds)"""
    # Specific first: a test that reaches few of the mutants and is quick.
    names = sorted((t for t, (_, reached) in reach.items() if number in reached),
                   key=lambda t: (reach[t][0] + 0.2) * (len(reach[t][1]) + 5))
    if not names:
        return "unreached", "", 0
    spent = planned = tried = 0
    for name in names:
        usual = reach[name][0]
        if planned and planned + usual > budget:
            continue
        planned += usual
        tried += 1
        limit = int(10 + 6 * usual)
        result, seconds = tests.run(name, {"NORMA_MUTANT": str(number)}, 3 * limit, limit)
        spent += seconds
        if result != "passed":
            return ("killed" if result == "failed" else "timeout"), name, spent
    return "survived", f"{tried} of the {len(names)} tests that reach it", spent


def sample(tree, size, seed, match):
    """Valid mutants in the order of a random permutation of all candidates, and counts of the others."""
    everything = [m for file, text in tree.texts.items() for m in candidates(file, text)]
    everything = [m for m in everything if re.search(match, str(m))]
    everything.sort(key=lambda m: hashlib.md5(f"{seed} {m.key}".encode()).digest())
    valid, others = [], collections.Counter()
    cache_file = tree.folder / "screened.json"
    cache = json.loads(cache_file.read_text()) if cache_file.exists() else {}
    for mutant in everything:
        if len(valid) == size:
            break
        result = cache.get(mutant.key) or tree.screen(mutant)
        cache[mutant.key] = result
        if result == "valid":
            valid.append(mutant)
        else:
            others[result] += 1
    cache_file.write_text(json.dumps(cache))
    print(f"{len(everything)} candidates; {sum(others.values()) + len(valid)} drawn: {len(valid)} valid, "
          + ", ".join(f"{n} {what}" for what, n in others.items()), flush=True)
    return valid


def equivalents():
    path = ROOT / "tests/mutants/equivalent.tsv"
    lines = path.read_text().split("\n") if path.exists() else []
    rows = [line.split("\t") for line in lines if line.strip()]
    return {(file, line, changed): reason for file, line, changed, reason in rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--match", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--build", default="build-mutants")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    folder = pathlib.Path(options.build).absolute()
    tree = Tree(folder, options.jobs)
    mutants = sample(tree, options.sample, options.seed, options.match)
    reasons = equivalents()
    tree.switched(mutants)
    tests = Tests(tree, len(mutants))
    reach = tests.reach(options.jobs)
    results_file = folder / f"{options.seed}.tsv"
    known = {}
    if results_file.exists():
        known = {row[0]: row for row in (line.split("\t") for line in results_file.read_text().splitlines())}
    chosen = {int(i) for i in options.only.split(",") if i}
    counts, rows = collections.Counter(), []

    def one(number):
        mutant = mutants[number]
        reason = reasons.get((mutant.file, mutant.line, mutant.changed))
        if reason:
            return number, "equivalent", reason, 0
        if not chosen and mutant.key in known and known[mutant.key][1] in ("killed", "timeout"):
            return number, known[mutant.key][1], known[mutant.key][2], 0
        return (number, *try_mutant(tests, reach, number, options.budget))
    numbers = [i for i in range(len(mutants)) if not chosen or i in chosen]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, result, by, spent in pool.map(one, numbers):
            counts[result] += 1
            rows.append("\t".join([mutants[number].key, result, by, f"{spent:.1f}", str(mutants[number])]))
            print(f"{number} {result} ({by}, {spent:.0f} s): {mutants[number]}", flush=True)
            if not chosen:
                results_file.write_text("\n".join(rows) + "\n")
    run = sum(counts.values()) - counts["equivalent"]
    found = counts["killed"] + counts["timeout"]
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    print(f"{found} of {run} found ({100 * found / max(run, 1):.1f} %), "
          f"{counts['timeout']} of them by a time limit")
    return 1 if found < run else 0


if __name__ == "__main__":
    sys.exit(main())
