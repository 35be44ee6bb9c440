#!/usr/bin/env python3
"""Breaks the device kernels, one change at a time, and runs the checks that should notice.

    scripts/device_mutants.py BUILD (--faults | --barriers) [FILE...]

BUILD is a build folder with tests/test_kernels and tests/test_bf16, FILE a name in
src/core/backend/device without .inc (default: all).

--faults    in every kernel, the value of its last store is changed by 0.1 % (integers: by 1); a kernel
            that stores by functions leaves out a tile, or the first operation of a list
--barriers  every BARRIER() and WARP_SYNC() is removed in turn; if all results are the same, the checks run
            again under the thread sanitizer

A change that no check notices is printed as "survived". Exit code: 0 all were noticed, 1 some survived.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
DEVICE = SOURCE / "src/core/backend/device"

# The checks that launch the kernels, of which most have the name of a row; "test_...": a test of test_bf16.
CHECKS = {
    "attention": "attention attention_cached guided_attention attention_grad relative_attention "
                 "relative_attention_grad",
    "attention_mma": "test_device_attention attention attention_grad",
    "block_term": "block_term block_term_grad",
    "crf": "crf",
    "elementwise": "scale add add_dropout dropout store_bf16 load_bf16 act_grad map map_grad gate gate_grad "
                   "vec random_init",
    "int8": "round_int8 pack_int8 linear_int8",
    "loss": "softmax_loss log_softmax mix log_top_k",
    "norms": "token_norm token_norm_grad seed_norm seed_norm_grad feature_moments feature_norm "
             "feature_norm_grad",
    "optimizer": "plan_update adam sgd",
    "products": "gemm linear linear_selected linear_grad_input linear_grad_weight test_device_products",
    "sequences": "embed embed_grad gather rotate pool_max",
    "sums": "dot linear_grad_weight feature_moments crf",
    "windows": "patches patches_grad window_mean window_mean_grad convolve",
}
FIRST = {
    "attention_cached": "attention_cached",
    "attention_delta": "attention_grad",
    "attention_grad_kv": "attention_grad",
    "attention_grad_q": "attention_grad",
    "attention_mma": "test_device_attention",
    "attention_mma_grad_kv": "attention_grad",
    "attention_mma_grad_q": "attention_grad",
    "gemm_mma": "linear",
    "guided_loss": "guided_attention",
}

BROKEN = "-DBROKEN(x)=_Generic((x), float: (x) * 1.001f, double: (x) * 1.001, default: (x) + 1)"

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TSAN_OPTIONS": "exitcode=66 halt_on_error=1"}

# An assignment to an element: *AT(...) = value, PTR(...)[...] = value, y[i] = value, *y = value
STORE = re.compile(r"^\s*((?:\*|PTR\(|[\w.]+\[)[^;={}]*?) ([-+*/]?=)\s+([^;]+);", re.M)


def kernels_of(text):
    """(name, begin, end) of every kernel: its braces."""
    for head in re.finditer(r"^(?:KERNEL|EACH)\((\w+),", text, re.M):
        begin = text.index("\n{", head.end())
        yield head.group(1), begin, text.index("\n}", begin)


def faults(text):
    for name, begin, end in kernels_of(text):
        stores = list(STORE.finditer(text, begin, end))
        if stores:
            left, operator, value = stores[-1].groups()
            at = stores[-1].span()
            new = f"{left} {operator} BROKEN({value});"
        else:
            loop = re.compile(r"= (begin|0);").search(text, begin, end)
            at, new = loop.span(), f"= {loop.group(1)} + {'TILE_ROWS' if loop.group(1) == 'begin' else 1};"
        yield name, name, text[: at[0]] + "\n" + new + text[at[1]:]


def barriers(text):
    owners = list(kernels_of(text))
    for found in re.finditer(r"(?:BARRIER|WARP_SYNC)\(\);", text):
        line = text.count("\n", 0, found.start()) + 1
        owner = next((name for name, begin, end in owners if begin < found.start() < end), None)
        yield owner, f"line {line}", text[: found.start()] + ";" + text[found.end():]


def run(words, folder, **options):
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, **options)


class Build:
    def __init__(self, folder, work):
        self.folder, self.work = Path(folder).resolve(), Path(work)
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        # Not those of the stub of CUDA, whose device addresses are no host addresses.
        self.compile = {Path(c["file"]).name: c for c in commands
                        if "/backend/device/" in c["file"] and "NM_EMULATOR_OFFSET" not in c["command"]}
        self.links = [self.link_command(name) for name in ("test_kernels", "test_bf16")]

    def link_command(self, name):
        link = subprocess.run(["ninja", "-t", "commands", "tests/" + name], cwd=self.folder, check=True,
                              capture_output=True, text=True).stdout.strip().splitlines()[-1]
        return shlex.split(link.replace(": && ", "").replace(" && :", ""))

    def object(self, name, copy, extra):
        """Compiles a file of the device backend, with the kernels of a copy."""
        words = shlex.split(self.compile[name]["command"])
        out = self.work / (name + ".o")
        words[words.index("-o") + 1] = str(out)
        words[1 + words.index("-c")] = str(copy / name)
        drop = {i for i, w in enumerate(words) if w in ("-MD", "-Werror")}
        drop |= {i + k for i, w in enumerate(words) if w in ("-MT", "-MF") for k in (0, 1)}
        words = ["-O0" if w == "-O2" else w for i, w in enumerate(words) if i not in drop]
        words[-1:] = [words[-1], "-iquote", str(copy.parent.parent), "-w", BROKEN, *extra]
        done = run(words, self.compile[name]["directory"])
        return (str(out), "") if done.returncode == 0 else (None, done.stderr)

    def programs(self, copy, thread_sanitizer=False):
        extra = ["-fsanitize=thread", "-O1"] if thread_sanitizer else []
        names = ["emulated_kernels.c", "emulator.c"] if thread_sanitizer else ["emulated_kernels.c"]
        objects = []
        for name in names:
            path, message = self.object(name, copy, extra)
            if not path:
                return None, message
            objects.append(path)
        for link in self.links:
            words = list(link)
            at = words.index("-o") + 1
            words[at] = str(self.work / Path(words[at]).name)
            words[at + 1:at + 1] = [*objects, "-Wl,--allow-multiple-definition", *extra[:1]]
            done = run(words, self.folder)
            if done.returncode:
                return None, done.stderr[-300:]
        return self.work, ""


def notice(folder, checks):
    """The first check that fails, and how; None: all pass."""
    for check in checks:
        words = ["test_kernels", "test_emulated", check]
        if check.startswith("test_"):
            words = ["test_bf16", check]
        try:
            done = run([folder / words[0], *words[1:]], None, env=ENVIRONMENT, timeout=900)
        except subprocess.TimeoutExpired:
            return f"{check}: does not end"
        if done.returncode:
            for line in (done.stdout + done.stderr).splitlines():
                if re.search(rf"WARNING: ThreadSan|emulator:|{check} on|depend", line):
                    return f"{check}: {line[:110]}"
            return f"{check}: fails"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--faults", action="store_true")
    kind.add_argument("--barriers", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_intermixed_args()
    survived = changed = 0
    with tempfile.TemporaryDirectory() as work:
        build = Build(options.build, work)
        device = Path(work) / "backend/device"
        shutil.copytree(DEVICE, device)
        for file in options.files or sorted(CHECKS):
            source = device / (file + ".inc")
            original = source.read_text()
            made, message = build.programs(device)
            found = notice(made, CHECKS[file].split()) if made else "does not compile: " + message[:300]
            if found:
                sys.exit(f"{file} without a change: {found}")
            for kernel, name, text in (faults if options.faults else barriers)(original):
                source.write_text(text)
                rows = CHECKS[file].split()
                first = FIRST.get(kernel, kernel)
                rows.sort(key=lambda row: row != first)
                made, message = build.programs(device)
                found = notice(made, rows) if made else "does not compile: " + message[:300]
                if not found and options.barriers:
                    made, message = build.programs(device, thread_sanitizer=True)
                    found = notice(made, rows) if made else "does not compile: " + message[:300]
                changed += 1
                survived += not found or "does not compile" in found
                print(f"{file} {name}: {found or 'survived'}", flush=True)
                source.write_text(original)
    print(f"{changed} changes, {survived} survived")
    return survived > 0


if __name__ == "__main__":
    sys.exit(main())
