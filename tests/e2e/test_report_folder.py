#!/usr/bin/env python3
"""norma report on the folder of a comparison: two variants with three seeds each, and a stopped run."""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

NORMA = os.environ["NORMA"]
WORDS = {"good": "fine great lovely warm clever".split(), "bad": "dull cold weak noisy poor".split()}
RECIPE = """[run]
task = classification
[data]
train = train.tsv
valid = valid.tsv
test = valid.tsv
[model]
preset = tiny
[train]
updates = 30
max_tokens = 256
log_every = 5
[device]
threads = 1
"""


def table(path, begin, end):
    rows = []
    for i in range(begin, end):
        label = "good" if i * 7 % 3 else "bad"
        words = [WORDS[label][(i * k + k) % 5] if (i + k) % 3 else f"word{i * k % 37}"
                 for k in range(1, 3 + i % 9)]
        rows.append(f"{label}\t{' '.join(words)}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


class ReportOfAFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        table(cls.folder / "train.tsv", 0, 300)
        table(cls.folder / "valid.tsv", 300, 380)
        (cls.folder / "r.ini").write_text(RECIPE, encoding="utf-8")
        cls.norma("compare", "r.ini", "--norms", "layer,batch", "--seeds", "3", "--compare.folder", "c",
                  "--jobs", "1")
        cls.norma("train", "r.ini", "--model.norm", "rms", "--run.folder", "c/rms-1")
        for name in ("test.json", "last.safetensors"):
            (cls.folder / "c" / "rms-1" / name).unlink(missing_ok=True)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def norma(cls, *arguments):
        done = subprocess.run([NORMA, *arguments], cwd=cls.folder, text=True, capture_output=True)
        if done.returncode:
            raise AssertionError(f"{arguments}: {done.stderr}")
        return done.stdout + done.stderr

    def page(self, *folders):
        said = self.norma("report", *folders, "-o", "page.html", "--no-samples")
        text = (self.folder / "page.html").read_text(encoding="utf-8")
        answer = re.search(r'<section id="answer">.*?<p>(.*?)</p>', text, re.S)
        return said, html.unescape(re.sub("<[^>]*>", "", answer[1])), text

    def change_logs(self, change, *runs):
        for run in runs:
            path = self.folder / "c" / run / "log.jsonl"
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)), encoding="utf-8")

    def test_folder_of_a_comparison(self):
        self.change_logs(lambda lines: [line for line in lines if line["update"] <= 20
                                        and line["type"] != "valid"], "rms-1")
        said, answer, page = self.page("c")
        self.assertIn("page.html: 7 runs", said)
        # Means over the seeds with intervals.
        for name in ("layer", "batch"):
            values = [json.loads((self.folder / f"c/{name}-{seed}/test.json").read_text())["value"]
                      for seed in (1, 2, 3)]
            found = re.search(rf"{name} .*?([\d.]+) \(([\d.]+) to ([\d.]+)\)", answer)
            mean, low, high = map(float, found.groups())
            self.assertAlmostEqual(mean, sum(values) / 3, delta=0.006)
            self.assertTrue(low < min(mean, *values) and mean < high, found[0])
        self.assertIn("Intervals are 95 %.", answer)
        self.assertNotIn("one seed", answer)
        # The stopped run is marked and not ranked.
        self.assertRegex(answer, r"1 of 7 runs has not ended and is not ranked: rms(-1)? at update 20 of 30")

    def test_effects_of_factors(self):
        told = json.loads(subprocess.run(
            [NORMA, "compare", "r.ini", "--factorial", "norm=layer,rms; site=pre,post", "--seeds", "2",
             "--margin", "2", "--compare.folder", "f", "--jobs", "1", "--format", "json"], cwd=self.folder,
            text=True, capture_output=True, check=True).stdout)["effects"]
        self.assertEqual(len(told), 3)
        data = re.search('id="data">(.*?)</script>', self.page("f")[2])[1]
        figure = json.loads(data)["figures"]["effects"]
        shown = {}
        for curve in figure["curves"]:
            for i, x in enumerate(curve["x"]):
                tick = figure["ticks"][int(x)]
                shown[curve["name"], tick] = [curve[end][i] for end in ("y", "low", "high")]
        self.assertEqual([e["level"] + " x " + e["second_level"] for e in told if e["second_level"]],
                         ["rms x post"])
        for e in told:
            tick = e["contrast"] if not e["second_level"] else "rms x post"
            for a, b in zip(shown.pop((e["term"], tick)), (e["effect"], e["low"], e["high"])):
                self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))
        self.assertFalse(shown)
        self.assertEqual(figure["line"], 0)
        # The effects belong to one whole comparison.
        self.assertNotIn('"effects":{"style"', self.page("f", "c")[2])
        self.assertNotIn('"effects":{"style"', self.page("c")[2])

    def test_one_seed(self):
        _, answer, _ = self.page("c/layer-1", "c/batch-1")
        self.assertIn("Every variant has one seed", answer)
        _, answer, _ = self.page("c/layer-1", "c/layer-2", "c/batch-1")
        self.assertIn("1 of 2 variants has one seed", answer)

    def test_other_load(self):
        def change(started, seconds, lines):
            for line in lines:
                if line["type"] == "train":
                    line["other_cores"] = 0.0
                if line["type"] == "start":
                    line["started"] = f"2026-01-01T00:00:{started:02}Z"
            lines[-1]["seconds"] = seconds
            return lines

        # Start times are whole seconds: 5.9 s from 10.05 end at 15.95, the next run starts at 15.98.
        for started, problem in ((14, True), (15, False), (16, False)):
            self.change_logs(lambda lines: change(10, 5.9, lines), "layer-1")
            self.change_logs(lambda lines: change(started, 5.9, lines), "batch-1")
            self.assertEqual(problem, "The speed is not ranked" in self.page("c/layer-1", "c/batch-1")[2])
        self.change_logs(lambda lines: [{**line, "other_cores": 1.5} if line["type"] == "train" else line
                                        for line in lines], "batch-1")
        self.assertIn("The speed is not ranked: other programs used more than half a core during a run",
                      self.page("c/layer-1", "c/batch-1")[2])


if __name__ == "__main__":
    unittest.main()
