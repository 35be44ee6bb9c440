"""The ledger's pooling method on simulated runs, its distributions, and results/README.md against the
archives."""

import json
import math
import os
import random
import subprocess
import sys
import unittest
import unittest.mock

SOURCE = os.environ.get("SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
sys.dont_write_bytecode = True
import ledger  # noqa: E402
import ledger_archives as archives  # noqa: E402
import ledger_evidence as evidence  # noqa: E402
import ledger_powernorm as powernorm  # noqa: E402
import ledger_rbn as rbn  # noqa: E402
import ledger_statistics as st  # noqa: E402
import ledger_tears as tears  # noqa: E402
import padding_census  # noqa: E402
import run_queue  # noqa: E402

TRIALS, ITEMS, DRAWS = 600, 40, 60
NOMINAL = 0.05
# Interval of a binomial rate of 5 % over TRIALS, once in 1000 outside.
LOW, HIGH = (NOMINAL + z * math.sqrt(NOMINAL * (1 - NOMINAL) / TRIALS) for z in (-3.29, 3.29))


class Simulation:
    """Models of several seeds on one test set: an item's difficulty, plus effects of item x variant,
    the seed, and seed x item."""

    def __init__(self, generator, seed_sd, variant_item_sd):
        self.g, self.seed_sd, self.variant_item_sd = generator, seed_sd, variant_item_sd
        self.difficulty = [generator.gauss(0, 1) for _ in range(ITEMS)]
        self.resamples = [[generator.randrange(ITEMS) for _ in range(ITEMS)] for _ in range(DRAWS)]

    def runs(self, effect, n):
        variant = [self.g.gauss(0, self.variant_item_sd) for _ in range(ITEMS)]
        scores, draws = [], []
        for _ in range(n):
            seed = effect + self.g.gauss(0, self.seed_sd)
            items = [self.difficulty[i] + variant[i] + seed + self.g.gauss(0, 1) for i in range(ITEMS)]
            scores.append(st.mean(items))
            draws.append([sum(items[i] for i in resample) / ITEMS for resample in self.resamples])
        return scores, draws


def difference(simulation, effect, n):
    a, b = simulation.runs(effect, n), simulation.runs(0, n)
    return st.contrast([(1, *a), (-1, *b)])


class Pooling(unittest.TestCase):
    def rate(self, trial):
        """Share of trials whose 95 % interval does not contain the true effect: false positives where that is
        0."""
        generator = random.Random(20261128)
        return sum(1 for _ in range(TRIALS) if trial(generator)) / TRIALS

    def missed(self, seed_sd, variant_item_sd, n, effect):
        def trial(generator):
            e = difference(Simulation(generator, seed_sd, variant_item_sd), effect, n)
            return not e.low <= effect <= e.high

        return self.rate(trial)

    def test_false_positives_over_seeds_and_items(self):
        for seed_sd, variant_item_sd in ((0.5, 0.7), (0.05, 1.0), (0.5, 0.0)):
            with self.subTest(seed_sd=seed_sd, variant_item_sd=variant_item_sd):
                rate = self.missed(seed_sd, variant_item_sd, 4, 0.0)
                self.assertTrue(LOW <= rate <= HIGH, rate)

    def test_coverage(self):
        rate = self.missed(0.5, 0.7, 4, 1.0)
        self.assertTrue(LOW <= rate <= HIGH, rate)

    def test_items_alone_find_false_differences(self):
        """The reason for the model: an interval over items only, with one seed's noise in it, is wrong far
        too often."""

        def trial(generator):
            simulation = Simulation(generator, 0.5, 0.0)
            (a,), (da,) = simulation.runs(0, 1)
            (b,), (db,) = simulation.runs(0, 1)
            return abs(a - b) > 1.96 * math.sqrt(st.variance([x - y for x, y in zip(da, db)]))

        self.assertGreater(self.rate(trial), 0.3)

    def test_settings_that_vary(self):
        """Five datasets whose effects differ, with mean 0: fixed settings would not cover the mean of all
        datasets."""

        def trial(generator):
            found = []
            for _ in range(5):
                e = difference(Simulation(generator, 0.3, 0.3), generator.gauss(0, 0.8), 3)
                found.append((e.value, []))
            e = st.over_settings(found)
            return not e.low <= 0 <= e.high

        rate = self.rate(trial)
        self.assertTrue(LOW <= rate <= HIGH, rate)


class Statistics(unittest.TestCase):
    def test_distributions(self):
        self.assertAlmostEqual(st.student_quantile(0.975, 4), 2.7764451, 6)
        self.assertAlmostEqual(st.student_cdf(-1.5, 1), 0.5 - math.atan(1.5) / math.pi, 12)
        low, high = st.binomial_interval(0, 6)
        self.assertEqual(low, 0)
        self.assertAlmostEqual(high, 1 - 0.025 ** (1 / 6), 9)
        self.assertAlmostEqual(st.fisher_p(3, 3, 0, 3), 0.1, 12)
        self.assertEqual(st.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
        self.assertAlmostEqual(st.spearman([1, 2, 3, 4], [1, 3, 2, 4]), 0.8, 12)

    def test_equivalence_and_power(self):
        effect = st.over_seeds([-0.1, 0.0, 0.1, 0.05, -0.05])
        self.assertLess(effect.equivalence(0.3), 0.01)
        self.assertGreater(effect.equivalence(0.05), 0.05)
        # A paired t test of a difference of one standard deviation needs 10 pairs.
        values = [0.5, -0.5, 1.5, -1.5, 0.0, 1.0, -1.0]
        self.assertEqual(st.over_seeds(values).seeds_for(math.sqrt(st.variance(values))), 10)

    def test_rule_of_evidence(self):
        for values, expected in (
            ([-9, -11, -10, -12], "confirmed (size confirmed)"),
            ([9, 11, 10, 12], "refuted"),
            ([0.1, -0.1, 0.2, -0.2], "refuted"),
            ([-20, 20, -5, 6], "undecided"),
            ([-1.0, -1.1, -0.9, -1.0], "undecided"),  # the claimed sign, but within the margin
        ):
            self.assertEqual(archives.decided(st.over_seeds(values), -1, 5, -11.1), expected)


    def test_bleu(self):
        """5, 3, 2 and 1 matching n-grams of 6, 5, 4 and 3; the reference is a word longer."""
        row = run_queue.bleu_counts("a b c d x e", "a b c d e f g")
        self.assertEqual(row, [6, 7, 5, 6, 3, 5, 2, 4, 1, 3])
        expected = 100 * math.exp(1 - 7 / 6) * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
        self.assertAlmostEqual(run_queue.bleu([row]), expected, 10)
        self.assertEqual(run_queue.bleu([run_queue.bleu_counts("a b", "a b")]), 0.0)


SETTINGS = """[model]
norm = scale ; every protocol at once
fixnorm = true
init = {init}
positions = tears
output_bias = true
norm_position = {position}
attention = block-term
causal = {causal}
width = 64
layers = 3
[norm]
state = micro-batch
scale.trainable = false
rbn.penalty = diff2
[optim]
name = {optim}
[train]
updates = 800
max_tokens = 2048
label_smoothing = 0.1
max_grad_norm = 1
"""
NOISE = -0.02, 0.03, 0.0, -0.01


def synthetic(name, center, **settings):
    """An archive of four runs per variant; center: {variant: score or, below 0, minus the loss}."""
    archive = archives.Archive.__new__(archives.Archive)
    archive.name, archive.runs_by_folder = name, {}
    values = {"init": "small", "optim": "adam", "position": "pre", "causal": "true"} | settings
    for at, (variant, value) in enumerate(center.items()):
        for seed, noise in enumerate(NOISE, 1):
            score = abs(value) + noise * (1 + at % 3)
            log = [{"type": "start", "data_size": 9148}, {"type": "valid", "nll": score if value < 0 else 4}]
            archive.runs_by_folder[f"{variant}-{seed}"] = {
                "config.ini": SETTINGS.format(**values),
                "log.jsonl": "\n".join(json.dumps(line, separators=(",", ":")) for line in log),
                "test.json": json.dumps({"value": score, "draws": []}),
                "finished.json": '{"core_seconds": 100}',
            }
    return archive


class Rules(unittest.TestCase):
    """Rules whose runs are still to come, on synthetic ones."""

    def verdict(self, rule, *found):
        opened = {archive.name: archive for archive in found}
        with (
            unittest.mock.patch.dict(archives.Archive.opened, opened, clear=True),
            unittest.mock.patch.object(archives.Archive, "exists", lambda name: name in opened),
        ):
            finding = rule()
            return finding and finding.verdict

    def test_statistics_over_fewer_tokens(self):
        def found(level, gains, rise):
            pn = {f"pn-{size}": level + gain for size, gain in zip(powernorm.SIZES, gains)}
            pnv = {f"pnv-{size}": level - 0.5 + rise * i for i, size in enumerate(powernorm.SIZES)}
            center = {"ln": level} | pn | pnv
            return self.verdict(powernorm.pn_13, synthetic("ledger-iwslt-pn-sizes", center))

        self.assertEqual(found(12, [0.4] * 4, 0.2), "confirmed")
        self.assertEqual(found(12, [1, 1, 1, -0.5], 0.2), "undecided")  # 4,096 tokens are below LN
        self.assertEqual(found(12, [0.0] * 4, 0.2), "refuted")
        self.assertEqual(found(3, [0.0] * 4, 0.2), "undecided")  # no equivalence below 10 BLEU
        self.assertEqual(found(3, [-0.4] * 4, 0.2), "refuted")
        self.assertEqual(found(12, [0.4] * 4, -0.2), "refuted")

    def rates(self, level, **gains):
        names = "inv-sqrt", "val-decay", "inv-sqrt-2x", "val-decay-2x", "rms", "fixed-g"
        center = dict.fromkeys(names, level)
        for variant, gain in gains.items():
            center[variant.replace("_", "-")] = level + gain if gain != "fails" else -7
        return synthetic("ledger-tears-rates", center)

    def test_schedules(self):
        for level, gains, expected in (
            (12, {}, "confirmed"),
            (12, {"inv_sqrt_2x": 1}, "confirmed"),  # a gain costs no BLEU
            (12, {"val_decay_2x": -1}, "refuted"),
            (12, {"val_decay": 1, "val_decay_2x": 1}, "refuted"),
            (3, {"inv_sqrt_2x": 1}, "undecided"),
            (3, {"val_decay_2x": "fails"}, "refuted"),
        ):
            with self.subTest(level=level, gains=gains):
                self.assertEqual(self.verdict(tears.tears_09, self.rates(level, **gains)), expected)

    def test_fixed_g(self):
        names = "val-decay", "val-decay-2x", "fixed-g-val-decay", "fixed-g-val-decay-2x"
        for gains, last, expected in (
            ({}, 10, "confirmed"),
            ({"rms": -1}, 10, "confirmed"),
            ({"rms": 1}, 10, "refuted"),
            ({"fixed_g": -1}, 10, "refuted"),
            ({}, 12, "refuted"),  # no loss at twice the rate
        ):
            with self.subTest(gains=gains, last=last):
                large = synthetic("ledger-tears-rates-40k", dict(zip(names, (12, 12, 12, last))))
                self.assertEqual(self.verdict(tears.tears_15, self.rates(12, **gains), large), expected)
        self.assertIsNone(self.verdict(tears.tears_15, self.rates(12)))

    def pairs(self, level, *gains):
        """Table 3 on en-vi and four other sets, of which the gains of one row over the other are given."""
        sets = ("", *(f"{name}-" for name in tears.OTHERS))
        found = {}
        for at, name in enumerate(sets):
            gain = gains[at % len(gains)] + 0.1 * at
            found |= {name + row: level for row in ("post-ln", "pre-ln", "fix-ln")}
            found[name + "fix-scale"] = level + gain
        en_vi = {row: found.pop(row) for row in ("post-ln", "pre-ln", "fix-ln", "fix-scale")}
        return (
            synthetic("ledger-tears-table3", en_vi),
            synthetic("ledger-tears-pairs", found),
        )

    def test_language_pairs(self):
        unfinished = unittest.mock.patch.object(tears, "unfinished", return_value=None)
        for level, gains, expected in (
            (3, [1], "confirmed"),
            (3, [1, 1, 1, 1, -1], "undecided"),  # the spread over sets
            (3, [9, 9, 9, 9, -0.5], "undecided"),  # the claim is about every set
            (3, [-1], "refuted"),
            (12, [-0.2], "refuted"),  # equivalent
            (3, [-0.2], "undecided"),
        ):
            with self.subTest(level=level, gains=gains), unfinished:
                found = self.pairs(level, *gains)
                self.assertEqual(self.verdict(tears.tears_08, *found).split(" (")[0], expected)
        found = self.pairs(3, 1)
        with unfinished:
            self.assertEqual(self.verdict(tears.tears_07, *found), "undecided")  # the trend is missing
            self.assertEqual(self.verdict(tears.tears_08, found[0]), "undecided")  # one pair of five
        with unittest.mock.patch.object(tears, "unfinished", return_value=(3, 4)):
            self.assertEqual(self.verdict(tears.tears_08, *found), "undecided")

    def language(self, penalized, unmasked=None):
        """RBN's language models: losses of RBN, and of BN without a mask. LN has 5.7, BN with a mask 6.2."""

        def losses(bn):
            norms = {"ln": 5.7, "bn": bn}
            return {f"rbn-{p}-{norm}": -loss for p in ("post", "pre") for norm, loss in norms.items()}

        found = [synthetic("ledger-ptb-rbn", losses(6.2))]
        if penalized:
            rows = {f"rbn-{p}-rbn": -penalized for p in ("post", "pre")}
            found.append(synthetic("ledger-ptb-rbn-penalty", rows))
        if unmasked:
            found.append(synthetic("ledger-ptb-rbn-open", losses(unmasked), causal="false"))
        return found

    def test_penalized_norm_in_all_settings(self):
        translation = [
            synthetic(f"ledger-iwslt-{p}", {"rbn": 4, "ln": 3}, init="rbn", optim="adam-fairseq", position=p)
            for p in ("post", "pre")
        ]
        others = [
            synthetic(f"ledger-rbn-{name}", {"rbn": 90, "ln": 90}, optim="sgd") for name in rbn.SETTINGS
        ]

        def found(loss, *settings):
            with unittest.mock.patch.object(rbn, "require"), unittest.mock.patch.object(powernorm, "require"):
                return self.verdict(rbn.rbn_12, *self.language(loss), *translation, *settings)

        self.assertEqual(found(5.4, *others), "confirmed")
        self.assertEqual(found(5.4), "undecided")
        self.assertEqual(found(5.9, *others), "refuted")
        self.assertIsNone(found(None, *others))

    def test_language_models_need_both_masks(self):
        own = synthetic("ledger-ptb", {"pn-bn": -6.5, "pn-ln": -5.7})
        for unmasked, expected in ((None, "undecided"), (5.2, "undecided"), (6.2, "refuted")):
            found = [own, *self.language(5.4, unmasked)]
            with unittest.mock.patch.object(powernorm, "require"), self.subTest(unmasked=unmasked):
                self.assertEqual(self.verdict(rbn.rbn_02, *found), expected)
                self.assertEqual(self.verdict(rbn.con_01, *found), expected)


class Page(unittest.TestCase):
    def test_page_follows_from_the_archives(self):
        command = [sys.executable, os.path.join(SOURCE, "scripts/ledger.py"), "--check"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)

    def test_twice_the_same_bytes(self):
        first = ledger.page()
        archives.Archive.opened.clear()
        self.assertEqual(first, ledger.page())

    def test_verdict_of_another_protocol_is_refused(self):
        with self.assertRaises(SystemExit):
            archives.require(tears.TABLE2, ["post-xavier-100"], model__init="small")

    def test_list_and_queue(self):
        rows, _ = run_queue.read_table(os.path.join(SOURCE, "results/claims"))
        self.assertEqual(len({row["id"] for row in rows}), 48)
        self.assertEqual(run_queue.read_queue()[1], [])
        known = {row["id"] for row in rows}
        self.assertLessEqual(set(evidence.RULES), known)
        self.assertLessEqual({c for claims, *_ in evidence.OTHERS for c in claims.split(",")}, known)


class WarmUp(unittest.TestCase):
    def test_archived_runs_reach_their_rate(self):
        for file in sorted(os.listdir(archives.LOGS)):
            name = file.partition(".")[0]
            for folder, files in archives.Archive(name).runs_by_folder.items():
                if "config.ini" in files and name != "ledger-" + run_queue.TIMED:
                    run = archives.Run(files)
                    ends = run_queue.warmup_ends(run.config(), run.log("train")[-1]["update"])
                    self.assertTrue(ends, f"{name}/{folder}")

    def test_queue_refuses_rows_that_do_not(self):
        row = {"arguments": "pn/figure2-resnet20 --run.profile small --schedule.lr 0.1"}
        settings = run_queue.row_settings(row)
        self.assertEqual((settings["train.epochs"], settings["schedule.lr"]), ("15", "0.1"))
        self.assertTrue(run_queue.warmup_ends(settings, 0))
        for option in ("--schedule.warmup_fraction 0", "--schedule.warmup_fraction 0 --schedule.warmup 480"):
            changed = run_queue.row_settings({"arguments": f"{row['arguments']} {option}"})
            self.assertFalse(run_queue.warmup_ends(changed, 480))


class Census(unittest.TestCase):
    def test_padding(self):
        self.assertEqual(padding_census.padding([4, 1, 1, 4, 4], 2, "length"), [0, 0, 0])
        self.assertEqual(padding_census.padding([1, 4], 2, "shuffled"), [1 - 5 / 8])


if __name__ == "__main__":
    unittest.main()
