#!/usr/bin/env python3
"""norma study on a small table: plan, kill and continue, answer, model of the winner, errors."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

NORMA = os.environ["NORMA"]
# delta 100 ends the selection with its first seeds, so that the number of runs does not depend on the machine
OPTIONS = ["--norms", "layer,power", "--budget", "2h", "--updates", "8", "--delta", "100", "--seeds", "2",
           "--rates", "1,2", "--jobs", "2", "--tid-batches", "1", "--no-report", "--set",
           "model.width=16; model.ff=32; train.max_tokens=512"]
WORDS = {"good": "fine great lovely warm clever".split(), "bad": "dull cold weak noisy poor".split()}


def table(path, begin, end):
    lines = []
    for i in range(begin, end):
        label = "good" if i * 7 % 3 else "bad"
        words = [WORDS[label][(i * k + k) % 5] if (i + k) % 4 else f"word{i * k % 37}"
                 for k in range(1, 3 + i % 9)]
        lines.append(f"{label}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lines_of(folder):
    text = (folder / "queue.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


class Study(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        table(self.folder / "reviews.tsv", 0, 1300)

    def tearDown(self):
        self.temporary.cleanup()

    def study(self, *arguments, code=0):
        done = subprocess.run([NORMA, "study", *arguments], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def check_parts(self, text, parts, lines, counts):
        """Planned and real time of each part, recomputed from the queue."""
        table, begun = ["| part | runs | planned | took |", "|---|--:|--:|--:|"], 0
        names = ["speed on the first updates", "learning rate of each variant", "elimination, common seeds",
                 "finalists, fresh seeds"]
        for name, part in zip(names, parts, strict=True):
            end = max(line["at"] for line in lines if line.get("phase") == part["phase"] and "took" in line)
            times = [f"{s:.0f} s" if s < 100 else f"{s / 60:.1f} min" if s < 6000 else f"{s / 3600:.1f} h"
                     for s in (part["seconds"], end - begun)]
            table.append(f"| {name} | {counts[part['phase']]} | {times[0]} | {times[1]} |")
            begun = end
        self.assertTrue(text.endswith("\n".join(table) + "\n"), f"{text}\n{table}")

    def test_a_killed_study_continues_and_answers(self):
        plan = self.study("reviews.tsv", *OPTIONS, "--dry-run")
        self.assertIn("a classifier, one twentieth each held out", plan.stderr)
        self.assertIn("A complete run has 8 updates.", plan.stdout)
        self.assertIn("2 runs at a time", plan.stdout)
        self.assertIn("100 points of accuracy or less", plan.stdout)
        self.assertEqual(self.study("reviews.tsv", *OPTIONS, "--dry-run").stdout, plan.stdout)
        self.assertIn("--tid-batches", self.study("--help").stdout)
        study = self.folder / "study-reviews"
        self.assertEqual({line["phase"] for line in lines_of(study) if line["type"] == "run"}, {"speed"})
        for phase in ["rates", "select", "confirm"]:
            with subprocess.Popen([NORMA, "study", "reviews.tsv", *OPTIONS], cwd=self.folder,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                while process.poll() is None and not any(
                        line.get("phase") == phase and line.get("state") == "finished"
                        for line in lines_of(study)):
                    time.sleep(0.05)
                process.send_signal(signal.SIGKILL)
        answer = self.study("reviews.tsv", *OPTIONS)
        finished = [(line["phase"], line["variant"], line["lr"], line["seed"], line["updates"])
                    for line in lines_of(study) if line.get("state") == "finished"]
        self.assertEqual(len(finished), len(set(finished)))  # no run twice
        counts = {phase: sum(run[0] == phase for run in finished) for phase in
                  ["speed", "rates", "select", "confirm"]}
        self.assertEqual(counts, {"speed": 3, "rates": 6, "select": 10, "confirm": 4})
        written = json.loads((study / "answer.json").read_text(encoding="utf-8"))
        self.assertIn(written["best"], ["layer", "power"])
        self.assertIn(written["paragraph"], answer.stdout)
        self.check_parts(answer.stdout, written["parts"], lines_of(study), counts)
        self.assertEqual(written["seeds"], 2)
        self.assertEqual([part["phase"] for part in written["parts"]],
                         ["speed", "rates", "select", "confirm"])
        before = (study / "answer.md").read_bytes()
        self.study("reviews.tsv", *OPTIONS)  # everything is known: the same answer, bitwise
        self.assertEqual((study / "answer.md").read_bytes(), before)
        labels = subprocess.run([NORMA, "classify", study / "winner"], input="a fine warm word\n\n",
                                text=True, capture_output=True, check=True).stdout.splitlines()
        self.assertEqual(len(labels), 2)
        subprocess.run([NORMA, "train", study / "winner.ini", "--run.folder", self.folder / "again",
                        "--train.updates", "2"], cwd="/", check=True, capture_output=True)
        other = self.study("reviews.tsv", *OPTIONS, "--delta", "2", code=5)
        self.assertIn("was begun with other options", other.stderr)

    def test_translations_are_compared_by_bleu(self):
        for ending, word in ("en", "word"), ("de", "wort"):
            lines = [" ".join(f"{word}{(i * k + k) % 13}" for k in range(1, 3 + i % 5)) for i in range(400)]
            (self.folder / f"pairs.{ending}").write_text("\n".join(lines) + "\n")
        study = self.study("pairs.en", "pairs.de", *OPTIONS[:-1],
                           "model.width=16; model.ff=32; decode.beam=1")
        self.assertIn("A difference of 100 BLEU or less does not matter", study.stdout)
        self.assertIn(" are equivalent within 100.00 BLEU; ", study.stdout)

    def test_a_comparison_has_a_plan_and_a_queue(self):
        table(self.folder / "valid.tsv", 1300, 1400)
        recipe = pathlib.Path(os.environ["SOURCE"]) / "recipes" / "classify.ini"
        command = [NORMA, "compare", recipe, "--data.train", "reviews.tsv", "--data.valid", "valid.tsv",
                   "--data.test", "valid.tsv", "--norms", "layer,power", "--seeds", "2",
                   "--model.width", "16", "--model.ff", "32", "--train.epochs", "1", "--jobs", "2",
                   "--tid-batches", "1", "--folder", "compared", "--samples", "false"]
        def run(*more):
            return subprocess.run(command + list(more), cwd=self.folder, text=True, capture_output=True,
                                  check=True)
        plan = run("--dry-run").stdout
        self.assertRegex(plan, r"^2 variants, 2 seeds; 4 runs to train, \d+ updates each, 2 at a time: abou")
        self.assertIn("| speed on the first updates | 2 | 20 |", plan)
        # Points that differ in the learning rate only have the same speed, those in another option do not.
        grid = ["--grid", "schedule.lr=1e-3,2e-3,3e-3", "--grid", "model.dropout=0,0.1", "--folder", "rates"]
        self.assertIn("| speed on the first updates | 4 | 20 |", run(*grid, "--dry-run").stdout)
        compared = self.folder / "compared"
        self.assertEqual([line["phase"] for line in lines_of(compared) if line["type"] == "part"],
                         ["speed", "compare"])
        self.assertFalse((compared / "layer-1").exists())
        self.assertIn("norma: 4 runs to train, ", run().stderr)
        states = {(line["variant"], line["seed"]): line["state"] for line in lines_of(compared)
                  if line.get("phase") == "compare" and line["type"] == "run"}
        self.assertEqual(states, {(norm, seed): "finished" for norm in ("layer", "power") for seed in (1, 2)})
        again = run("--dry-run").stdout
        self.assertIn("0 runs to train", again)
        text = subprocess.run([NORMA, "watch", "compared", "--text"], cwd=self.folder, text=True,
                              capture_output=True, check=True).stdout
        self.assertIn("queue: All 6 runs have ended.", text)
        self.assertIn("layer-1", text)
        self.assertNotIn("\033", text)

    def test_columns_are_recognized(self):
        names = [["B-PER", "E-PER"], ["B-ORG", "M-ORG", "M-ORG", "M-ORG", "E-ORG"], ["S-LOC"]]
        sentences = []
        for i in range(400):
            tags = ["O"] * (1 + i % 3) + names[i % 3]
            sentences.append("".join(f"{tag.lower()}{(i * k) % 7}\t{tag}\n" for k, tag in enumerate(tags)))
        (self.folder / "names.bmes").write_text("\n".join(sentences))
        study = self.study("names.bmes", *OPTIONS[:-1], "model.width=16; model.ff=32", "--dry-run")
        self.assertIn("columns with tags: a tagger, one twentieth each held out", study.stderr)
        self.assertIn("A difference of 100 points of F1 or less does not matter", study.stdout)

    def test_wrong_data_is_an_error(self):
        (self.folder / "pairs.tsv").write_text("".join(f"text {i}\tanother {i}\n" for i in range(300)))
        self.assertIn("no repeated labels", self.study("pairs.tsv", code=2).stderr)
        (self.folder / "empty.txt").write_text("")
        self.assertIn("empty.txt: empty", self.study("empty.txt", code=4).stderr)
        self.assertIn("none.txt", self.study("none.txt", code=3).stderr)
        (self.folder / "half").mkdir()
        table(self.folder / "half" / "train.tsv", 0, 200)
        table(self.folder / "half" / "test.tsv", 200, 300)
        self.assertIn("has test.tsv but no valid.tsv", self.study("half", code=2).stderr)
        self.assertEqual(list(self.folder.glob("study-*")), [])
        self.assertIn("not a duration", self.study("reviews.tsv", "--budget", "soon", code=2).stderr)
        self.assertIn("ascending", self.study("reviews.tsv", "--rates", "2,1", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
