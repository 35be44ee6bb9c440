#!/usr/bin/env python3
"""Fault injection: every command of norma, with every kind of fault at every point.

    fault_matrix.py --norma PROGRAM --tools FOLDER [--sample N] [--commands REGEX] [--kinds REGEX]
                    [--markdown FILE] [--jobs N] [--verbose]

Run in a folder that holds the models and texts of make_library_runs (tests/e2e/library_models.sh).
FOLDER: fail_syscall and libfail_allocation.so. --sample N: at most N tries per command and kind, spread
evenly. --markdown: writes the table of calls and tries. --jobs: number of commands tried at a time, each in a
separate folder.

A try is one run of the program in which one call fails, or that call and all later ones ("all later").
Required:
    - a documented exit code, no signal, no hang; no report of a sanitizer
    - exit code 0: output and files are those of the run without a fault
    - otherwise: one line that begins with "norma: " and names the cause; the code belongs to the cause;
      output files are complete, as before, or absent; no temporary file remains; no other file has changed
    - training: the same command with --resume continues, and ends with the weights of the run without a fault
Exit code: 0 no try failed, 1 some did, 77 the system does not permit injection."""

import argparse
import concurrent.futures
import dataclasses
import errno
import hashlib
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys

from fault_commands import COMMANDS
from fault_inputs import make_inputs

TIMEOUT = 60  # seconds of a try
HANGS = -1


@dataclasses.dataclass
class Fault:
    name: str
    kind: str  # of system calls; none: allocations
    error: str
    later: bool = False  # all later calls fail, too


FAULTS = [
    Fault("allocation", "", "ENOMEM"),
    Fault("allocation, all later", "", "ENOMEM", True),
    Fault("open: EMFILE", "open", "EMFILE"),
    Fault("open: EACCES", "open", "EACCES"),
    Fault("read: EIO", "read", "EIO"),
    Fault("write: ENOSPC", "write", "ENOSPC"),
    Fault("write: ENOSPC, all later", "write", "ENOSPC", True),
    Fault("sync: EIO", "sync", "EIO"),
    Fault("rename: EIO", "rename", "EIO"),
    Fault("rename: EPERM", "rename", "EPERM"),
    Fault("map: ENOMEM", "map", "ENOMEM"),
    Fault("map: ENOMEM, all later", "map", "ENOMEM", True),
    Fault("stat: EIO", "stat", "EIO"),
    Fault("remove: EIO", "remove", "EIO"),
    Fault("folder: EIO", "folder", "EIO"),
    Fault("lock: ENOLCK", "lock", "ENOLCK"),
    Fault("process: EAGAIN", "process", "EAGAIN", True),
]


# ---- files ----


def slurp(path):
    """The bytes of a file, none if it cannot be read."""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


UNSTABLE = re.compile(r"\.state\.safetensors$|\.intoto\.json$|(compare|runs)/[^/]*\.txt$")  # times, digests
METADATA = re.compile(rb'"__metadata__":\{(?:[^"{}]|"(?:\\.|[^"\\])*")*\},?')
JSON_TIMES = re.compile(
    rb'"(?:seconds|[a-z]*seconds|tokens_per_second|load|other_cores|started|command|date|host|step_mib|'
    rb'peak_mib)":\s*("[^"]*"|[^,}]*)'
)
TEXT_TIMES = re.compile(rb"\d+(?:\.\d+)? (?:s|tokens/s|MiB|min)\b")
OUTPUT_TIMES = re.compile(rb"\b\d+(?:\.\d+)? ?(?:s|ms|tokens/s|seconds)\b")
SETTINGS_TIMES = re.compile(rb"^(seconds|started|command) = .*$", re.M)


def plain(path, text):
    """A file without the parts that differ between equal runs: times, load, process ids."""
    if UNSTABLE.search(path):
        return b""
    if path.endswith(".safetensors") and len(text) > 8:
        # The tensors; the metadata contains settings of a resumed run.
        (length,) = struct.unpack_from("<Q", text)
        if 8 + length > len(text):
            return text  # damaged
        return METADATA.sub(b"", text[8 : 8 + length], count=1).rstrip(b" ") + text[8 + length :]
    if re.search(r"\.jsonl?$|\.html$|^out$", path):
        text = TEXT_TIMES.sub(b"", JSON_TIMES.sub(b"", text))
    if path == "stdout":
        text = OUTPUT_TIMES.sub(b"", text)
    return SETTINGS_TIMES.sub(b"", text) if path.endswith(".ini") else text


# TensorBoard's events, locks, and the queue, which is a record: the results are elsewhere.
NO_RESULT = re.compile(r"^events/|(^|/)\.lock$|^compare/queue\.jsonl$")


def snapshot():
    """{path: digest} of everything below try/."""
    files = {str(p.relative_to("try")): p for p in pathlib.Path("try").rglob("*") if p.is_file()}
    return {
        name: hashlib.md5(plain(name, slurp(path))).hexdigest()
        for name, path in files.items()
        if not NO_RESULT.search(name)
    }


def copy_tree(source, target):
    shutil.copytree(source, target, copy_function=shutil.copyfile, dirs_exist_ok=True)


def fresh(command):
    """The folder try/ as the command expects it."""
    shutil.rmtree("try", ignore_errors=True)
    os.mkdir("try")
    if command.copy == "out":
        pathlib.Path("try/out").write_text("the user's file\n")
    elif command.copy:
        copy_tree(f"fixture/{command.copy}", f"try/{command.copy}")


# ---- runs ----


def run(options, command, fault=None, at=0, more=()):
    """Runs the command. Returns the exit code (128 + signal), or HANGS."""
    pathlib.Path("calls").unlink(missing_ok=True)
    line = [options.norma, *command.words(), *more]
    environment = dict(os.environ)
    if fault and fault.kind:
        number = getattr(errno, fault.error)
        injector = os.path.join(options.tools, "fail_syscall")
        line = [injector, fault.kind, str(number), str(at), str(int(fault.later)), "calls", *line]
    elif fault:
        environment |= {"FAULT_AT": str(at), "FAULT_REPORT": os.path.join(os.getcwd(), "calls")}
        environment |= {"FAULT_FOLLOWING": "1"} if fault.later else {}
        environment["LD_PRELOAD"] = os.path.join(options.tools, "libfail_allocation.so")
    with open(command.stdin, "rb") as stdin, open("stdout", "wb") as out, open("stderr", "wb") as err:
        child = subprocess.Popen(
            line, stdin=stdin, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        try:
            code = child.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(child.pid, signal.SIGKILL)  # processes that it left running
        except ProcessLookupError:
            pass
        child.wait()
    if code is None:
        return HANGS
    return 128 - code if code < 0 else code


def points(options, command, fault):
    """(number of calls, those to try): all system calls; of the allocations the first and the last one of
    each call stack."""
    first, *stacks = slurp("calls").decode().split("\n")
    total = int(first or 0)
    at = list(range(1, total + 1))
    if not fault.kind:
        calls = [stack.split()[: 1 if fault.later else None] for stack in stacks]
        at = sorted({int(call) for stack in calls for call in stack})
    if fault.kind == "process":
        at = [call for call in at if call <= command.processes]
    n = max(options.sample, command.sample) if options.sample else 0
    if n and len(at) > n:
        at = [at[int((k + 0.5) * len(at) / n)] for k in range(n)]
    return total, at


# ---- checks ----


def names_cause(fault, code, message):
    """Whether code and message are those of the fault. A file that cannot be read may also be reported as
    missing by the reader of an optional file."""
    if fault.error == "ENOMEM":
        # iconv_open of glibc returns EINVAL if it has no memory for its list of encodings; libarchive does
        # not report that of zlib
        memory = code == 6 and re.search("memory", message, re.I)
        return memory or re.search("unknown encoding|gzip decompression failed", message)
    if fault.kind == "stat":
        return code in (3, 5)  # also what follows from a file that seems absent
    cause = re.escape(os.strerror(getattr(errno, fault.error)))
    named = re.search(f"{cause}|cannot|failed|no such file", message, re.I)
    return (code == 3 or code == 6 and fault.kind == "process") and named


def check_success(reference, after):
    if plain("stdout", slurp("stdout")) != reference["stdout"]:
        return "exit code 0 with another output"
    for name, digest in sorted(reference["files"].items()):
        if name not in after:
            return f"exit code 0 without {name}"
        if after[name] != digest:
            return f"exit code 0 with another {name}"
    return ""


def temporary(files):
    return [name for name in files if name.endswith(".new")]


def check_resume(options, command, reference, after):
    damaged = [name for name in after if ".damaged" in name and name not in reference["files"]]
    if damaged:
        return f"an intact file was renamed to {damaged[0]}"
    code = run(options, command, more=() if "--resume" in command.words() else ("--resume",))
    if code:
        return f"does not continue: exit code {code}: {slurp('stderr')[-300:].decode()}"
    ended = snapshot()
    for name, digest in sorted(reference["files"].items()):
        if name.endswith("safetensors") and ended.get(name) != digest:
            return f"continued with another {name}"
    if temporary(ended):
        return f"a temporary file remains after the continuation: {temporary(ended)}"
    return ""


def check_files(command, fault, before, reference, after):
    output = command.output
    if output and after.get(output) not in (before.get(output), reference["files"].get(output)):
        return f"{output} is neither complete nor as before"
    if fault.kind != "remove" and not command.resume and temporary(after):
        return f"a temporary file remains: {temporary(after)}"
    if not command.resume:
        for name in sorted(before):
            if name != output and after.get(name) != before[name]:
                return f"{name} has changed"
    return ""


def check(options, command, fault, code, before, reference):
    """What is wrong with a try, or an empty text."""
    stderr = slurp("stderr").decode(errors="replace")
    if code == HANGS:
        return "hangs"
    sanitizer = re.search(r"(ERROR: \w*Sanitizer|runtime error).*", stderr)
    if sanitizer:
        return f"sanitizer: {sanitizer[0]}"
    if code and not 2 <= code <= 9:
        return f"exit code {code}: {stderr[-300:]}"
    after = snapshot()
    if code == 0:
        return check_success(reference, after)
    last = stderr.removesuffix("\n").rpartition("\n")[2]
    if not last.startswith("norma: "):
        return f"no message: {stderr[-300:]}"
    if not names_cause(fault, code, last):
        return f"another cause, exit code {code}: {last}"
    trouble = check_files(command, fault, before, reference, after)
    if not trouble and command.resume:
        trouble = check_resume(options, command, reference, after)
    return trouble


# ---- the matrix ----


def try_fault(options, command, fault, before, reference):
    """(calls, tries, failures), or None if the fault is not available here."""
    fresh(command)
    if run(options, command, fault) == 77 or not os.path.exists("calls"):
        return None
    total, at = points(options, command, fault)
    failed = 0
    for call in at:
        fresh(command)
        code = run(options, command, fault, call)
        trouble = check(options, command, fault, code, before, reference)
        if trouble:
            failed += 1
            print(f"{command.name}: {fault.name}, call {call} of {total}: {trouble}", flush=True)
    if at and options.verbose:
        text = f"{total} calls, {len(at)} tries, {failed} failures"
        print(f"{command.name}: {fault.name}: {text}", flush=True)
    return total, len(at), failed


def try_command(options, command):
    """{name of the fault: (calls, tries, failures)}, or None if the command is left out."""
    fresh(command)
    before = snapshot()
    code = 7 if command.needs and not os.path.exists(command.needs) else run(options, command)
    if code == 7 and (command.needs or command.optional):
        reason = slurp("stderr").decode() or f"there is no {command.needs}\n"
        print(f"{command.name}: skipped: {reason}", end="", flush=True)
        return None
    if code:
        raise SystemExit(f"{command.name}: exit code {code} without a fault: {slurp('stderr').decode()}")
    reference = {"files": snapshot(), "stdout": plain("stdout", slurp("stdout"))}
    row = {}
    for fault in FAULTS:
        if re.search(options.kinds, fault.name):
            cell = try_fault(options, command, fault, before, reference)
            if cell:
                row[fault.name] = cell
    return row


def enter_job(entries, numbers):
    """A process tries its commands in a copy of the folder."""
    folder = f"job-{numbers.get()}"
    os.mkdir(folder)
    for entry in entries:
        if os.path.isdir(entry):
            copy_tree(entry, os.path.join(folder, entry))
        else:
            shutil.copyfile(entry, os.path.join(folder, entry))
    os.chdir(folder)


def try_all(options, commands):
    fork = multiprocessing.get_context("fork")
    numbers = fork.Queue()
    for number in range(options.jobs):
        numbers.put(number)
    entries = [entry for entry in os.listdir() if not entry.startswith(".")]
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, mp_context=fork, initializer=enter_job, initargs=(entries, numbers)
    ) as pool:
        tries = [pool.submit(try_command, options, command) for command in commands]
        rows = {command.name: result.result() for command, result in zip(commands, tries)}
    for number in range(options.jobs):
        shutil.rmtree(f"job-{number}", ignore_errors=True)
    return rows


def cell_text(cell):
    if not cell or not cell[1]:
        return ""
    return f"{cell[0]}, {cell[1]}" + (f", {cell[2]} failed" if cell[2] else "")


def write_table(path, rows):
    used = [f.name for f in FAULTS if any(row[f.name][1] for row in rows.values() if f.name in row)]
    lines = [["command", *used], ["---", *["--:"] * len(used)]]
    lines += [[name, *[cell_text(row.get(fault)) for fault in used]] for name, row in rows.items() if row]
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    pathlib.Path(path).write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--norma", required=True)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--commands", default=".")
    parser.add_argument("--kinds", default=".")
    parser.add_argument("--markdown")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    # GOMP_SPINCOUNT: otherwise the program executes itself again, without fault injection
    os.environ.update(OMP_NUM_THREADS="1", GOMP_SPINCOUNT="0", LC_ALL="C")
    make_inputs(options.norma)
    rows = try_all(options, [c for c in COMMANDS if re.search(options.commands, c.name)])
    tried = {name: row for name, row in rows.items() if row is not None}
    cells = [cell for row in tried.values() for cell in row.values()]
    if tried and not cells:
        print("the system does not permit fault injection (seccomp)")
        sys.exit(77)
    if options.markdown:
        write_table(options.markdown, tried)
    failures = sum(cell[2] for cell in cells)
    print(f"{sum(cell[1] for cell in cells) - failures} passed, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
