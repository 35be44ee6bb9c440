"""Rules of results/claims for Transformers without Tears (scripts/ledger_evidence.py)."""

import math

import ledger_statistics as st
from ledger_archives import (
    CONFIRMED,
    EQUIVALENCE_BLEU,
    REFUTED,
    UNDECIDED,
    UNIGRAM,
    Archive,
    Finding,
    against,
    can_be_equivalent,
    common,
    cost,
    decided,
    failures,
    group,
    largest,
    missing,
    needs,
    part_refuted,
    require,
    score_difference,
    seconds,
    sizes,
    unfinished,
)


TABLE2 = "iwslt15-en-vi-table2"
WARMUPS = ("100", "200", "400")
TABLE2_NOTE = ", fairseq's positions, no output bias, test BLEU"


def table2(kind):
    """Runs of a row of table 2 with all three lengths of the warm-up."""
    return {
        (w, seed): run for w in WARMUPS for seed, run in Archive.open(TABLE2).variant(f"{kind}-{w}").items()
    }


RATE_STAYS = " if the rate stays"


def runs_that_decide(failed, n, step=1):
    """Number of runs whose interval of the rate of failures excludes one half."""
    rate = failed / n
    while n < 10000 and rate != 0.5:
        low, high = st.binomial_interval(round(rate * n), n)
        if low > 0.5 or high < 0.5:
            break
        n += step
    return n


def tears_01():
    require(
        TABLE2,
        [f"{p}-xavier-{w}" for p in ("post", "pre") for w in WARMUPS],
        model__init="xavier-normal",
        optim__name="adam",
        model__norm="layer",
    )
    post, pre = table2("post-xavier"), table2("pre-xavier")
    failed, pre_failed = failures(post, UNIGRAM[TABLE2]), failures(pre, UNIGRAM[TABLE2])
    p = st.fisher_p(failed, len(post), pre_failed, len(pre))
    low, high = st.binomial_interval(failed, len(post))
    per_length = [
        st.binomial_interval(failures(Archive.open(TABLE2).variant(f"post-xavier-{w}"), UNIGRAM[TABLE2]), 3)[
            1
        ]
        for w in WARMUPS
    ]
    verdict = UNDECIDED
    if p < 0.05 and low > 0.5:
        verdict = CONFIRMED
    elif max(per_length) < 0.5:
        verdict = REFUTED
    n = runs_that_decide(failed, len(post), step=3)
    return Finding(
        verdict,
        f"post-norm fails in {failed} of {len(post)} runs ({low:.0%} to {high:.0%}), pre-norm in "
        f"{pre_failed} of {len(pre)}, p {p:.3f}",
        len(post) + len(pre),
        TABLE2,
        cost(math.ceil(n / 3), 6, seconds(post)) + RATE_STAYS,
        sizes(TABLE2, "post-xavier-100") + TABLE2_NOTE,
    )


def tears_02():
    require(
        TABLE2,
        [f"{p}-small-{w}" for p in ("post", "pre") for w in WARMUPS],
        model__init="small",
        optim__name="adam",
    )
    kinds = {kind: table2(kind) for kind in ("post-small", "pre-small", "pre-xavier", "post-xavier")}
    small, xavier = (failures(kinds[k], UNIGRAM[TABLE2]) for k in ("post-small", "post-xavier"))
    p = st.fisher_p(xavier, 9, small, 9)

    def difference(a, b):
        archive = Archive.open(TABLE2)
        return st.contrast(
            [
                group(sign / 3, archive.variant(f"{kind}-{w}"))
                for sign, kind in ((1, a), (-1, b))
                for w in WARMUPS
            ]
        )

    level, pre = difference("post-small", "pre-small"), difference("pre-small", "pre-xavier")
    equal = [st.holm([e.equivalence(0.3) for e in (level, pre)])[i] < 0.05 for i in range(2)]
    # The runs have fairseq's positions, no output bias and BLEU below 4: another protocol refutes nothing.
    verdict = CONFIRMED if p < 0.05 and all(equal) else UNDECIDED
    return Finding(
        verdict,
        f"failures with SmallInit {small} of 9, Xavier {xavier} of 9 (p {p:.3f}); BLEU post - pre "
        f"{level.text()}, pre-norm SmallInit - Xavier {pre.text()}; margin 0.3",
        36,
        TABLE2,
        "longer training: all BLEU are below 4, and the claim is about converged models",
        sizes(TABLE2, "post-small-100") + TABLE2_NOTE,
    )


def tears_03():
    archive, variants = "ledger-tears-depth", ["post-6", "pre-6", "post-4", "pre-4"]
    if missing(archive, variants):
        return None
    require(
        archive,
        variants,
        model__init="small",
        model__positions="tears",
        model__output_bias="true",
        optim__name="adam",
        schedule__name="no-warmup",
    )
    runs = Archive.open(archive)
    post, pre = runs.variant("post-6"), runs.variant("pre-6")
    failed, pre_failed = failures(post, UNIGRAM[archive]), failures(pre, UNIGRAM[archive])
    p = st.fisher_p(failed, len(post), pre_failed, len(pre))
    low, high = st.binomial_interval(failed, len(post))
    bleu = [
        pair["pre-4"].log("valid")[-1]["bleu"] - pair["post-4"].log("valid")[-1]["bleu"]
        for pair in common(archive, ["pre-4", "post-4"])
    ]
    gain = st.over_seeds(bleu)
    level = st.mean([run.log("valid")[-1]["bleu"] for run in runs.variant("pre-4").values()])
    verdict = UNDECIDED
    if p < 0.05 and low > 0.5 and gain.low > 0:
        verdict = CONFIRMED
    elif st.binomial_interval(failed, len(post), 0.025)[1] < 0.5 or (
        level >= EQUIVALENCE_BLEU and part_refuted(gain.beyond(5, -1), 1)
    ):
        verdict = REFUTED
    return Finding(
        verdict,
        f"without warm-up post-norm fails with 6 layers in {failed} of {len(post)} runs ({low:.0%} to "
        f"{high:.0%}), pre-norm in {pre_failed} of {len(pre)}; 4 layers: pre - post {gain.text()} BLEU",
        sum(len(runs.variant(v)) for v in variants),
        archive,
        f"6 layers, post-norm: {cost(runs_that_decide(failed, len(post)), 1, seconds(post))}{RATE_STAYS}",
        sizes(archive, "post-6") + ", constant rate",
    )


LATE = range(3, 6)


def learned_g(run):
    """g at the last probe: {(stack, sublayer): [g by layer]}, and that of the last norm."""
    last = run.log("probe")[-1]["update"]
    kinds, output = {}, None
    for line in run.log("probe"):
        if line["instrument"] != "scale" or line["update"] != last:
            continue
        if line.get("sublayer") == "final" and line.get("stack") == "dec":
            output = line["g"]
        elif "layer" in line:
            kinds.setdefault((line["stack"], line["sublayer"]), []).append((line["layer"], line["g"]))
    return {kind: [g for _, g in sorted(values)] for kind, values in kinds.items()}, output


MOVED = 0.05  # the margin of tears-12: the order of values that differ by less is noise


def have_moved(runs):
    """Mean distance of the learned g from sqrt(d), its initial value, relative to it."""
    values = []
    for run in runs.values():
        start = math.sqrt(float(run.config()["model.width"]))
        values += [abs(g / start - 1) for kind in learned_g(run)[0].values() for g in kind]
    return st.mean(values)


def longer_or(moved, text):
    """What would decide: first of all, that g moves, by the sum of a rate that falls with the root of the
    updates."""
    if moved > MOVED:
        return text
    times = (MOVED / moved) ** 2
    return f"runs of about {times:.0f} times the updates, in which g moves by {100 * MOVED:.0f} %"


LEARNED_G = largest("ledger-tears-g-long", "ledger-tears-g")


def tears_11():
    archive = LEARNED_G
    if missing(archive, ["smoothing"]):
        return None
    require(
        archive,
        ["smoothing"],
        model__init="small",
        model__norm="scale",
        model__fixnorm="true",
        optim__name="adam",
    )
    runs = Archive.open(archive).variant("smoothing")
    kinds = [("enc", "self"), ("enc", "ffn"), ("dec", "self"), ("dec", "ffn")]
    rho = {
        kind: st.over_seeds([st.spearman(range(6), learned_g(run)[0][kind]) for run in runs.values()])
        for kind in kinds
    }
    moved = have_moved(runs)
    looks = 2 if len(runs) > 3 else 1  # three seeds were seen before three more were queued
    refuted = part_refuted(*(looks * effect.beyond(0.3, -1) for effect in rho.values())) and moved > MOVED
    words = {
        ("enc", "self"): "encoder attention",
        ("enc", "ffn"): "encoder feed-forward",
        ("dec", "self"): "decoder attention",
        ("dec", "ffn"): "decoder feed-forward",
    }
    text = ", ".join(f"{words[k]} {e.text()}" for k, e in rho.items())
    return Finding(
        REFUTED if refuted else UNDECIDED,
        f"rank correlation of g with depth: {text}; g has moved by {100 * moved:.1f} %",
        len(runs),
        archive,
        longer_or(moved, "three sizes of the training set to confirm it, " + cost(6, 3, seconds(runs))),
        sizes(archive, "smoothing"),
    )


def tears_12():
    archive = LEARNED_G
    if missing(archive, ["smoothing", "plain"]):
        return None
    require(archive, ["plain"], train__label_smoothing="0", model__init="small")
    late, output = [], []
    for pair in common(archive, ["plain", "smoothing"]):
        (without, final), (smoothed, smoothed_final) = learned_g(pair["plain"]), learned_g(pair["smoothing"])
        late.append(
            st.mean(
                [
                    math.log(without["dec", s][i] / smoothed["dec", s][i])
                    for s in ("self", "cross", "ffn")
                    for i in LATE
                ]
            )
        )
        output.append(math.log(final / smoothed_final))
    a, b = st.over_seeds(late), st.over_seeds(output)
    runs = Archive.open(archive).variant("plain")
    moved = have_moved(runs)
    corrected = st.holm([a.p, b.p])
    if a.high < 0 < b.low and max(corrected) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(against(a, -1, 0.05), against(b, 1, 0.05)) and moved > MOVED:
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    return Finding(
        verdict,
        f"log ratio of g without to with smoothing: decoder layers 4 to 6 {a.text(3)}, output {b.text(3)}; "
        f"g has moved by {100 * moved:.1f} %",
        2 * len(late),
        archive,
        longer_or(moved, cost(max(a.seeds_for(a.value), b.seeds_for(b.value)), 2, seconds(runs))),
        sizes(archive, "plain"),
    )


TABLE3 = "ledger-tears-table3"
TABLE3_SETTINGS = {
    "model__init": "small",
    "model__positions": "tears",
    "model__output_bias": "true",
    "optim__name": "adam",
    "train__max_grad_norm": "1",
}


def one_pair(a, b):
    """Difference of the test BLEU of two rows of table 3 or 4 on en-vi; None before the runs."""
    if missing(TABLE3, [a, b]):
        return None
    require(TABLE3, [a, b], **TABLE3_SETTINGS)
    return score_difference(TABLE3, a, b)


def table3_finding(effect, verdict, text, paper, variant):
    return Finding(
        verdict,
        f"test BLEU {text} {effect.text()} (paper {paper:+.2f})",
        2 * effect.n,
        TABLE3,
        needs(effect, paper, 2, TABLE3, variant),
        sizes(TABLE3, variant) + f", LayerNorm pre-norm at {mean_score(TABLE3, 'pre-ln'):.1f} BLEU",
    )


def mean_score(archive, variant):
    return st.mean([run.score() for run in Archive.open(archive).variant(variant).values()])


PAIRS = "ledger-tears-pairs"
OTHERS = ("iwslt14", "bible", "ddtp", "lohelp")


def mean_over_pairs(a, b, paper, margin, text, all_above=False):
    """A claim about a mean over language pairs: five sets of 10,000 pairs, a random sample of sets, whose
    spread contains that of the seeds and of the test items. Before the runs of the others, en-vi alone is
    shown, which decides nothing. all_above: the claim is about every set."""
    effect = one_pair(a, b)
    sets = [f"{name}-{row}" for name in OTHERS for row in ("pre-ln", a, b)]
    if not effect or missing(PAIRS, sets, 1) or unfinished(PAIRS):
        text = f"en-vi, one of five sets: {text}"
        return effect and table3_finding(effect, UNDECIDED, text, paper, a)
    require(PAIRS, sets, **TABLE3_SETTINGS)
    rows = [[mean_score(PAIRS, f"{name}-{row}") for row in (a, b)] for name in OTHERS]
    each = [effect.value] + [above - below for above, below in rows]
    mean = st.over_settings([(value, []) for value in each])
    levels = [mean_score(TABLE3, "pre-ln")] + [mean_score(PAIRS, f"{name}-pre-ln") for name in OTHERS]
    verdict = decided(mean, 1, margin if st.mean(levels) >= EQUIVALENCE_BLEU else 0, paper)
    if all_above and verdict.startswith(CONFIRMED) and min(each) <= 0:
        verdict = UNDECIDED
    listed, of_ln = (", ".join(f"{v:{form}}" for v in vs) for vs, form in ((each, "+.1f"), (levels, ".1f")))
    hours = mean.seeds_for(paper) * 2 * seconds(Archive.open(PAIRS).variant(sets[0])) / 3600
    names = f"en-vi, {', '.join(OTHERS)}"
    runs = [run for variant in sets for run in Archive.open(PAIRS).variant(variant).values()]
    pairs = [run.log("start")[0]["data_size"] for run in runs]
    return Finding(
        verdict,
        f"test BLEU {text}, mean of five sets {mean.text()} (paper {paper:+.2f}); {names}: {listed}",
        2 * effect.n + len(OTHERS) * 2,
        PAIRS,
        f"{mean.seeds_for(paper)} sets decide, {hours:.1f} core-hours for a seed of each",
        f"{sizes(TABLE3, a)}; the other sets have {min(pairs):,} to {max(pairs):,} pairs; "
        f"LayerNorm pre-norm at {of_ln} BLEU",
    )


def tears_04():
    effect = one_pair("no-warmup", "fix-scale")
    if not effect:
        return None
    equal = can_be_equivalent(TABLE3, "fix-scale") and effect.equivalence(2.1) < 0.05
    finding = table3_finding(
        effect,
        REFUTED if effect.low > 0 or equal else UNDECIDED,
        "small set only: without - with warm-up",
        -4.18,
        "fix-scale",
    )
    if not equal:
        level = f"models with {EQUIVALENCE_BLEU} BLEU or more, of which equivalence within 2.1 refutes: "
        finding.decide = level + needs(effect, 2.1, 2, TABLE3, "fix-scale") + " at the present length"
    return finding


def tears_05():
    return mean_over_pairs("pre-ln", "post-ln", 0.27, 0.14, "pre-norm - post-norm")


def tears_06():
    return mean_over_pairs("fix-ln", "pre-ln", 0.34, 0.17, "FixNorm - none")


def tears_07():
    """Its second part, a gain that falls with the size of the set, needs runs of several sizes to be
    confirmed."""
    finding = mean_over_pairs("fix-scale", "fix-ln", 0.49, 0.25, "ScaleNorm - LN, both with FixNorm")
    if finding and finding.verdict.startswith(CONFIRMED):
        finding.verdict = UNDECIDED
    return finding


def tears_08():
    text = "FixNorm, ScaleNorm, pre-norm - LN, post-norm"
    return mean_over_pairs("fix-scale", "post-ln", 1.1, 0.55, text, all_above=True)


RATES, LARGE = "ledger-tears-rates", "ledger-tears-rates-40k"


def rates(*variants, archive=RATES):
    """Runs of FixNorm and ScaleNorm with the paper's structure, or None before the runs."""
    if missing(archive, variants):
        return None
    require(archive, variants, model__init="small", model__positions="tears", model__output_bias="true")
    require(archive, variants, optim__name="adam", model__fixnorm="true", model__norm=("scale", "rms"))
    return Archive.open(archive)


def outside(effect, margin, *signs):
    """p that the effect is larger than the margin, in the direction of one of the signs."""
    return min(effect.beyond(sign * margin, sign) for sign in signs)


def rates_finding(verdict, text, effect, arms):
    level = st.mean([run.score() for run in Archive.open(RATES).variant("inv-sqrt").values()])
    return Finding(
        verdict,
        f"test BLEU, en-vi, {text}; margin 0.3",
        arms * effect.n,
        RATES,
        "equivalence within 0.3 needs longer training and "
        + cost(24, arms, seconds(Archive.open(RATES).variant("inv-sqrt"))),
        sizes(RATES, "inv-sqrt") + f", InvSqrtDecay at {level:.1f} BLEU",
    )


def tears_09():
    double = ("inv-sqrt-2x", "val-decay-2x")
    runs = rates("inv-sqrt", "val-decay", *double)
    if not runs:
        return None
    pairs = (("val-decay", "inv-sqrt"), ("inv-sqrt-2x", "inv-sqrt"), ("val-decay-2x", "val-decay"))
    kind, *doubled = (score_difference(RATES, a, b) for a, b in pairs)
    failed = sum(failures(runs.variant(v), UNIGRAM[RATES]) for v in double)
    n = sum(len(runs.variant(v)) for v in double)
    shown = [kind.equivalence(0.3), *(e.beyond(-0.3) for e in doubled)]
    verdict = UNDECIDED
    if can_be_equivalent(RATES, "inv-sqrt") and max(st.holm(shown)) < 0.05 and not failed:
        verdict = CONFIRMED
    elif (
        part_refuted(outside(kind, 0.3, -1, 1), *(outside(e, 0.3, -1) for e in doubled))
        or st.binomial_interval(failed, n)[0] > 0.1
    ):
        verdict = REFUTED
    return rates_finding(
        verdict,
        f"ValDecay - InvSqrtDecay {kind.text()}; twice the rate: InvSqrtDecay {doubled[0].text()}, ValDecay "
        f"{doubled[1].text()}, {failed} of {n} runs fail",
        kind,
        4,
    )


def interaction(archive):
    """Of g fixed instead of learned, and twice the rate instead of once, with ValDecay."""
    weights = {"fixed-g-val-decay-2x": 1, "fixed-g-val-decay": -1, "val-decay-2x": -1, "val-decay": 1}
    runs = rates(*weights, archive=archive)
    return runs and st.contrast([group(w, runs.variant(v)) for v, w in weights.items()])


def tears_15():
    large = interaction(LARGE)
    if not (large and rates("inv-sqrt", "rms", "fixed-g")):
        return None
    require(RATES, ["fixed-g"], norm__scale__trainable="false")
    rms, fixed = score_difference(RATES, "inv-sqrt", "rms"), score_difference(RATES, "fixed-g", "inv-sqrt")
    margin = 1.6 if can_be_equivalent(LARGE, "val-decay") else 0
    verdict = UNDECIDED
    shown = [rms.beyond(-0.3), fixed.equivalence(0.3), large.beyond(0, -1)]
    if can_be_equivalent(RATES, "inv-sqrt") and max(st.holm(shown)) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(outside(rms, 0.3, -1), outside(fixed, 0.3, -1, 1), against(large, -1, margin)):
        verdict = REFUTED
    return rates_finding(
        verdict,
        f"ScaleNorm - RMSNorm {rms.text()}, fixed - learned g {fixed.text()}; de-en, 40,644 pairs: fixed g x "
        f"twice the rate {large.text()} (paper -0.9 to -5.2)",
        fixed,
        3,
    )


def gradient_norms(run):
    """Median of the gradient norm before clipping, and the rate of spikes above 3 running medians (of 51
    updates), in the last half of training."""
    norms = [line["grad_norm"] for line in run.log("train")]
    half = range(len(norms) // 2, len(norms))
    spikes = [i for i in half if norms[i] > 3 * st.median(norms[i - 25 : i + 26])]
    return st.median([norms[i] for i in half]), len(spikes) / len(half)


def tears_10():
    archive, variants = "ledger-tears-gradients", ["post-ln", "pre-ln", "fix-scale"]
    if missing(archive, variants):
        return None
    require(archive, variants, train__log_every="1", model__init="small")
    found = [{v: gradient_norms(runs[v]) for v in variants} for runs in common(archive, variants)]
    position = st.over_seeds([math.log(f["post-ln"][0] / f["pre-ln"][0]) for f in found])
    kind = st.over_seeds([math.log(f["pre-ln"][0] / f["fix-scale"][0]) for f in found])
    spikes = st.over_seeds([100 * (f["post-ln"][1] - f["pre-ln"][1]) for f in found])
    margin = math.log(1.1)
    if min(position.low, spikes.low) > 0 > kind.high and max(st.holm([position.p, spikes.p, kind.p])) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(against(position, 1, margin), against(spikes, 1, 0.5), against(kind, -1, margin)):
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    rates = ", ".join(f"{v} {100 * st.mean([f[v][1] for f in found]):.1f}" for v in variants)
    return Finding(
        verdict,
        f"log ratio of median gradient norms: post-norm to pre-norm {position.text()}, LN to FixNorm and "
        f"ScaleNorm {kind.text()}; spikes, % of updates: {rates}, post - pre {spikes.text()}",
        3 * len(found),
        archive,
        "spikes, if their difference stays: " + needs(spikes, spikes.value, 3, archive, "post-ln"),
        sizes(archive, "post-ln"),
    )


def tears_14():
    """Updates of equal batches are paired: each seed has the mean log ratio of their speeds."""
    archive = "ledger-tears-speed"
    if missing(archive, ["scale", "ln"]):
        return None
    require(archive, ["scale"], model__norm="scale", model__fixnorm="false", model__width="512")
    require(archive, ["ln"], model__norm="layer", model__fixnorm="false", model__width="512")

    def speeds(run):
        return [line["tokens_per_second"] for line in run.log("train")[2:]]  # two updates warm the caches

    pairs = common(archive, ["scale", "ln"])
    gain = st.over_seeds(
        [
            100 * st.median([math.log(a / b) for a, b in zip(speeds(pair["scale"]), speeds(pair["ln"]))])
            for pair in pairs
        ]
    )
    if gain.high < 100 * math.log(1.025):
        verdict = REFUTED
    else:
        verdict = CONFIRMED if gain.low > 0 else UNDECIDED
    return Finding(
        verdict,
        f"tokens/s of training, log of ScaleNorm / LN, % {gain.text(1)} (paper +4.9)",
        2 * len(pairs),
        archive,
        cost(gain.seeds_for(100 * math.log(1.05)), 2, seconds(Archive.open(archive).variant("ln"))),
        sizes(archive, "ln") + ", the rate still in its warm-up, one thread, float32, this program",
    )
