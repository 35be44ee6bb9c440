"""norma watch over raw HTTP: page, updates, hostile requests, slow and many clients, a restart, Ctrl-C."""

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import time

import pytest

NORMA = os.environ["NORMA"]


def train_line(update, loss):
    record = {"type": "train", "update": update, "loss": loss, "seconds": update / 10}
    return json.dumps(record) + "\n"


def make_run(folder, norm, updates=30):
    folder.mkdir(parents=True)
    (folder / "config.ini").write_text(f"[run]\ntask = lm\n[model]\nnorm = {norm}\n[train]\nupdates = 100\n")
    lines = '{"type":"start","update":0}\n{"type":"weights","update":1,"xxh3":"0"}\n'
    lines += "".join(train_line(u, 5 - u / 50) for u in range(1, updates + 1))
    (folder / "log.jsonl").write_text(lines)


class Server:
    def __init__(self, *arguments, port=0):
        self.process = subprocess.Popen([NORMA, "watch", *arguments, "--port", str(port)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line + self.process.stderr.read()
        self.port = int(line.rsplit(":", 1)[1].strip("/\n"))

    def open(self, text, host=None):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        host = f"127.0.0.1:{self.port}" if host is None else host
        client.sendall(f"{text} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return client

    def ask(self, text, host=None):
        with self.open(text, host) as client:
            data = b""
            while piece := client.recv(1 << 16):
                data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode(), body.decode()

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@pytest.fixture
def comparison(tmp_path):
    folder = tmp_path / "lm-compare"
    make_run(folder / "layer-1", "layer")
    make_run(folder / "batch-1", "batch")
    return folder


@pytest.fixture
def server(comparison):
    server = Server(str(comparison))
    yield server
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait()


def wait_for(client, text, seconds=10):
    data, end = b"", time.monotonic() + seconds
    client.settimeout(seconds)
    while text.encode() not in data:
        assert time.monotonic() < end, data
        piece = client.recv(4096)
        assert piece, data
        data += piece
    return data


def test_page_and_figure(server):
    code, head, body = server.ask("GET /")
    assert code == 200 and "data-live" in body and "uPlot" in body
    assert "No run has ended: batch at update 30 of 100" in body
    assert "no-store" in head and "X-Frame-Options: DENY" in head and "connect-src 'self'" in body
    code, _, body = server.ask("GET /figure?name=train-loss&from=10&to=20&points=800")
    curve = json.loads(body)["curves"][0]
    assert code == 200 and (curve["x"][0], curve["x"][-1]) == (9, 21)
    assert server.ask("GET /figure?name=none")[0] == 404
    assert server.ask("GET /figure?name=train-loss&from=nan&to=inf&points=-1")[0] == 200


@pytest.mark.parametrize("url", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/layer-1/log.jsonl",
                                 "//etc/passwd", "/update/../log.jsonl", "/" + "a" * 5000])
def test_no_other_path(server, url):
    code, _, body = server.ask("GET " + url)
    assert code == 404 and body == "no such page\n"


def test_only_get_and_own_host(server):
    for method in "POST", "PUT", "DELETE", "OPTIONS":
        code, head, _ = server.ask(method + " /")
        assert code == 405 and "Allow: GET" in head
    for host in "evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "":
        assert server.ask("GET /", host)[0] == 403, host
    for host in "localhost", "localhost:8000", "127.0.0.1:9", "[::1]:7070":
        assert server.ask("GET /update", host)[0] == 200, host


def test_growing_log(server, comparison):
    with server.open("GET /events") as events:
        wait_for(events, "event: change")
        with (comparison / "layer-1/log.jsonl").open("a") as log:
            log.write(train_line(77, 1.25))
        wait_for(events, "event: change")
        assert "layer at update 77 of 100" in server.ask("GET /update")[2]
        make_run(comparison / "rms-1", "rms")
        wait_for(events, "event: change")
        assert "No run has ended: batch" in server.ask("GET /update")[2]
        # A log that is written anew is read anew.
        (comparison / "layer-1/log.jsonl").write_text(train_line(3, 9))
        wait_for(events, "event: change")
        assert "2 of 3 runs" in server.ask("GET /update")[2]


def test_queue(server, comparison):
    run = {"type": "run", "phase": "select", "variant": "<b>rms", "lr": 0.1, "seed": 2, "updates": 100}
    states = [{**run, "state": "running", "seconds": 60},
              {**run, "variant": "layer", "state": "planned", "seconds": 30},
              {**run, "state": "finished", "took": 55, "value": 31.5}]
    lines = '{"type":"queue"}\n' + "".join(json.dumps(line) + "\n" for line in states) + '{"type":"run","pha'
    (comparison / "queue.jsonl").write_text(lines)
    time.sleep(1)
    body = server.ask("GET /update")[2]
    assert "1 of 2 runs have ended; computing time left: 30 s." in body
    assert "&lt;b&gt;rms" in body and "<td>31.5</td>" in body
    with (comparison / "queue.jsonl").open("a") as queue:  # of a comparison that did not measure the speed
        queue.write("\n" + json.dumps({**states[1], "seconds": None}) + "\n")
    time.sleep(1)
    assert "1 of 2 runs have ended.<" in server.ask("GET /update")[2]


def test_study(server, comparison):
    """The runs of a study are not ranked before its end; then its own answer is shown."""
    run = {"type": "run", "phase": "rates", "variant": "rms", "lr": 0.1, "seed": 1, "updates": 100}
    lines = [{"type": "queue"},
             {"type": "part", "phase": "select", "runs": 15, "updates": 9, "seconds": 90},
             {**run, "state": "finished"}, {**run, "phase": "select", "state": "running", "seconds": 60},
             {"type": "decision", "phase": "select", "variant": "<b>rbn",
              "text": "<b>rbn is eliminated after 5 seeds: 1.00 BLEU below rms on validation data", "at": 77}]
    queue = comparison / "queue.jsonl"
    queue.write_text("".join(json.dumps(line) + "\n" for line in lines))
    time.sleep(1)
    body = server.ask("GET /update")[2]
    assert "The study has not ended: it is selecting variants. 1 run has ended; " in body
    assert "the study takes at most 90 s more. Out so far" in body
    assert "Out so far: &lt;b&gt;rbn is eliminated after 5 seeds" in body and "<td>77 s</td>" in body
    assert "<td>0 of 15</td>" in body and "No run has ended" not in body
    with queue.open("a") as log:
        log.write('{"type":"decision","phase":"answer","variant":"rms","text":"rms is the best.","at":99}\n')
    time.sleep(1)
    assert "<p>rms is the best.</p>" in server.ask("GET /update")[2]
    text = subprocess.run([NORMA, "watch", comparison, "--text"], capture_output=True, text=True, timeout=20)
    assert text.returncode == 0 and text.stdout.startswith("rms is the best.\n\ntrain/loss\n")
    assert "select      0 of   15 runs, planned 90 s" in text.stdout and "\033" not in text.stdout


def test_curves_need_two_updates(comparison):
    """One validation of each run, at the same update, is no curve: those of the training loss are drawn."""
    for loss, run in enumerate(("layer-1", "batch-1")):
        with (comparison / run / "log.jsonl").open("a") as log:
            log.write(json.dumps({"type": "valid", "update": 30, "loss": 4.5 + loss, "seconds": 3}) + "\n")
    def first_curve():
        screen = subprocess.run([NORMA, "watch", comparison, "--text"], capture_output=True, text=True,
                                timeout=20).stdout
        return [line for line in screen.split("\n") if line in ("train/loss", "valid/loss")], screen
    assert first_curve()[0] == ["train/loss"]
    with (comparison / "layer-1/log.jsonl").open("a") as log:
        log.write(json.dumps({"type": "valid", "update": 40, "loss": 4.25, "seconds": 4}) + "\n")
    names, screen = first_curve()
    assert names == ["valid/loss"]
    assert "update 30 to 40\n" in screen


def test_text_in_a_terminal(comparison):
    """Braille curves, again after a change and a new size; q ends with code 0, Ctrl-C with 9."""
    for key, code in (b"q", 0), (b"\x03", 9):
        pid, terminal = pty.fork()
        if not pid:
            os.execv(NORMA, [NORMA, "watch", str(comparison), "--text"])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        def wait(text):
            data = b""
            while text not in data:
                assert select.select([terminal], [], [], 20)[0], data
                data += os.read(terminal, 65536)
            return data
        wait(b"layer ")
        with (comparison / "layer-1/log.jsonl").open("a") as log:
            log.write(train_line(83, 1.5))
        screen = wait(b"83/100")
        assert "\u2800" < max(screen.decode(errors="ignore")) <= "\u28ff"
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        os.kill(pid, signal.SIGWINCH)
        wait(b"\033[H")
        os.write(terminal, key)
        wait(b"\033[?1049l")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        os.close(terminal)


def test_slow_and_many_clients(server, comparison):
    slow = [server.open("GET /update") for _ in range(5)]  # do not read
    half = socket.create_connection(("127.0.0.1", server.port))
    half.sendall(b"GET / HTTP/1.1\r\nHost:")  # never completes its request
    assert server.ask("GET /update")[0] == 200
    many = [server.open("GET /events") for _ in range(50)]
    for client in many:
        wait_for(client, "event: change")
    assert server.ask("GET /update")[0] == 200
    more = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for client in slow + many + more + [half]:
        client.close()
    time.sleep(1)
    assert server.ask("GET /update")[0] == 200
    assert server.stop() == 9


def test_restart_and_exit_code(server, comparison):
    with server.open("GET /events") as events:
        wait_for(events, "retry: 1000")
        assert server.stop() == 9
    again = Server(str(comparison), port=server.port)
    try:
        with again.open("GET /events") as events:
            wait_for(events, "event: change")
        busy = subprocess.run([NORMA, "watch", comparison, "--port", str(again.port)],
                              capture_output=True, text=True, timeout=20)
        assert busy.returncode == 3 and "choose another --port" in busy.stderr
    finally:
        assert again.stop(signal.SIGTERM) == 9


def test_wrong_arguments(tmp_path):
    folder = str(tmp_path)
    for arguments in (), (folder, "--bind", "here"), (folder, "--port", "70000"):
        assert subprocess.run([NORMA, "watch", *arguments], capture_output=True, timeout=20).returncode == 2
