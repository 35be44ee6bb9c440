#!/usr/bin/env python3
"""sbatch, squeue, scontrol and scancel for tests without Slurm: the options, output, states and signals
that are documented for Slurm 22.05 and that norma compare depends on. Run under one of these names.
FAKE_SLURM is the folder of the state: a file "down" there makes all commands fail as without slurmctld. A
node has two CPUs for each job; a process for each job array starts its tasks."""
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import sys
import time

MIN_JOB_AGE, KILL_WAIT = 30, 10
if not os.environ.get("FAKE_SLURM"):
    sys.exit("FAKE_SLURM is not set")
STATE = pathlib.Path(os.environ["FAKE_SLURM"])
TASKS = STATE / "tasks"


def put(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(str(text))
    new.rename(path)


def get(path):
    try:
        return path.read_text().removesuffix("\n")
    except FileNotFoundError:
        return ""


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def numbers(task):
    return tuple(map(int, task.name.split("_")))


def tasks(name):
    """Folders of the tasks that ID or ID_K means."""
    return sorted(TASKS.glob(name if "_" in name else f"{name}_*"), key=numbers)


def has_ended(task):
    return get(task / "state") not in ("PENDING", "RUNNING", "COMPLETING")


# ---- the controller of one array ----


def start(task):
    job, index = numbers(task)
    pid = os.fork()
    if pid:
        put(task / "state", "RUNNING")
        put(task / "pid", pid)
        return pid
    os.setpgid(0, 0)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(get(task / "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), stream)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
    os.environ |= {"SLURM_JOB_ID": f"{job + index}", "SLURM_ARRAY_JOB_ID": f"{job}",
                   "SLURM_ARRAY_TASK_ID": f"{index}"}
    if cpus := get(task / "cpus"):
        os.environ["SLURM_CPUS_PER_TASK"] = cpus
    os.execv("/bin/sh", ["/bin/sh", str(STATE / "scripts" / str(job))])


def kill(number, group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def end(task, pid, why):
    """SIGTERM to the processes of a task, SIGKILL after KillWait."""
    with open(get(task / "output"), "a") as out:
        out.write(f"slurmstepd: error: *** JOB {numbers(task)[0]} ON node CANCELLED AT "
                  f"{time.strftime('%Y-%m-%dT%H:%M:%S')}{why} ***\n")
    kill(signal.SIGTERM, pid)
    put(task / "killed", time.time())


def reap(task, code):
    (task / "killed").unlink(missing_ok=True)
    if (task / "requeue").exists():
        (task / "requeue").unlink()
        put(task / "state", "PENDING")
        put(task / "begin", time.time() + 1)
        return
    put(task / "ended", time.time())
    put(task / "state", "TIMEOUT" if (task / "timeout").exists() else
        "CANCELLED" if (task / "cancel").exists() else "FAILED" if code else "COMPLETED")


def watch(task, pid):
    killed, seconds = get(task / "killed"), float(get(task / "seconds"))
    if killed:
        if time.time() > float(killed) + KILL_WAIT:
            kill(signal.SIGKILL, pid)
    elif (task / "cancel").exists():
        end(task, pid, "")
    elif (task / "requeue").exists():
        end(task, pid, " DUE TO JOB REQUEUE")
    elif seconds and time.time() > float(get(task / "started")) + seconds:
        put(task / "timeout", "")
        end(task, pid, " DUE TO TIME LIMIT")


def control(limit, array):
    running = {}
    while running or not all(map(has_ended, array)):
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            kill(signal.SIGKILL, ended[0])
            reap(running.pop(ended[0]), ended[1])
        for pid, task in running.items():
            watch(task, pid)
        for task in array:
            if get(task / "state") != "PENDING":
                continue
            if (task / "cancel").exists():
                put(task / "ended", time.time())
                put(task / "state", "CANCELLED")
            elif len(running) < limit and not get(task / "held") and time.time() > float(
                    get(task / "begin") or 0):
                put(task / "started", time.time())
                running[start(task)] = task
        time.sleep(0.05)


# ---- the commands ----


def sbatch(words):
    options = {"name": "", "seconds": 0, "cpus": "", "held": ""}
    output, limit, indexes, script = "slurm-%A_%a.out", 2, [], ""
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-t", "--time", "-p", "--partition", "-c", "--cpus-per-task", "--mem") and not equals:
            value = words.pop(0)
        if word in ("--requeue", "--parsable", "--exclusive", "--open-mode=append"):
            pass
        elif name == "--job-name":
            options["name"] = value
        elif name == "--output":
            output = value
        elif found := re.fullmatch(r"--array=(\d+)-(\d+)(?:%(\d+))?", word):
            indexes = range(int(found[1]), int(found[2]) + 1)
            limit = min(limit, int(found[3] or limit))
        elif name in ("-t", "--time"):
            parts = [int(part) for part in value.split(":")]
            for part in parts if len(parts) > 1 else [*parts, 0]:
                options["seconds"] = options["seconds"] * 60 + part
        elif name in ("-p", "--partition"):
            if value != "all":
                fail(f"sbatch: error: invalid partition specified: {value}\n"
                     "sbatch: error: Batch job submission failed: Invalid partition name specified")
        elif name in ("-c", "--cpus-per-task"):
            options["cpus"] = value
        elif word in ("-H", "--hold"):
            options["held"] = 1
        elif name != "--mem":
            script = word
            break
    if script.startswith("-"):
        fail(f"sbatch: unrecognized option '{script}'\nTry \"sbatch --help\" for more information")
    if not indexes or not os.access(script, os.R_OK):
        fail(f"sbatch: error: Unable to open file {script}")
    for name in ("scripts", "tasks"):
        (STATE / name).mkdir(exist_ok=True)
    with open(STATE / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = int(get(STATE / "next") or 0) + 1
        put(STATE / "next", job + len(indexes))
    put(STATE / "scripts" / str(job), pathlib.Path(script).read_text())
    array = [TASKS / f"{job}_{index}" for index in indexes]
    for index, task in zip(indexes, array):
        task.mkdir()
        for name, value in options.items():
            put(task / name, value)
        letters = {"a": str(index), "A": str(job), "%": "%"}
        put(task / "output", re.sub("%([%aA])", lambda found: letters[found[1]], output))
        put(task / "state", "PENDING")
    print(job, flush=True)
    if os.fork():
        return
    os.setsid()
    os.closerange(0, 256)
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY):
        os.open("/dev/null", flags)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    control(limit, array)


def squeue(words):
    line = next(word.partition("=")[2] for word in words if word.startswith("--format="))
    for task in sorted(TASKS.glob("*"), key=str):
        status = get(task / "state")
        if has_ended(task):
            continue
        reason = ("None" if status != "PENDING" else "JobHeldUser" if get(task / "held") else
                  "BeginTime" if get(task / "begin") else "Resources")
        job, index = numbers(task)
        fields = {"j": get(task / "name"), "F": job, "K": index, "T": status, "r": reason}
        print(re.sub("%([jFKTr])", lambda found: str(fields[found[1]]), line))


def scancel(words):
    names = [word.partition("=")[2] for word in words if word.startswith("--name=")]
    chosen = [task for task in TASKS.glob("*") if get(task / "name") == names[0]] if names else [
        task for word in words if not word.startswith("-") for task in tasks(word)]
    for task in chosen:
        if not has_ended(task):
            put(task / "cancel", "")


def scontrol(words):
    what, *rest = (word for word in words if not word.startswith("-"))
    name = next(word for word in rest if word[0].isdigit())
    young = [task for task in tasks(name)
             if time.time() < float(get(task / "ended") or "inf") + MIN_JOB_AGE]
    if not young:
        fail("slurm_load_jobs error: Invalid job id specified")
    for task in young:
        job, index = numbers(task)
        if what == "show":
            print(f"JobId={job + index} ArrayJobId={job} ArrayTaskId={index} JobName={get(task / 'name')} "
                  f"JobState={get(task / 'state')} Reason=None")
        elif what == "release":
            put(task / "held", "")
        elif what != "requeue":
            fail(f"invalid keyword: {what}")
        elif get(task / "state") == "RUNNING":
            put(task / "requeue", "")


if (STATE / "down").exists():
    fail("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
commands = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "scontrol": scontrol}
commands[pathlib.Path(sys.argv[0]).name](sys.argv[1:])
