"""Rules of results/claims for PowerNorm (scripts/ledger_evidence.py)."""

import math

import ledger_statistics as st
from ledger_archives import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    Archive,
    Finding,
    against,
    bleu_verdict,
    can_be_equivalent,
    common,
    cost,
    decided,
    group,
    largest,
    missing,
    needs,
    one_position,
    part_refuted,
    probes,
    require,
    score_difference,
    seconds,
    sizes,
)

SLOW = "ledger-ptb-slow"  # at half of LayerNorm's rate, which decides nothing


def ptb_archive(variant):
    archive = "ledger-ptb-rbn" if variant.startswith("rbn-") else "ledger-ptb"
    return archive if Archive.exists(archive) or variant.startswith("rbn-") else SLOW


def ptb_ratio(a, b, archive=None, causal="true", **settings):
    """Difference of the validation loss in percent of perplexity, paired over seeds; None before the runs."""
    archive = archive or ptb_archive(a)
    if missing(archive, [a, b]):
        return None
    require(
        archive, [a, b], model__attention="block-term", model__causal=causal, optim__name="adam", **settings
    )
    return st.over_seeds([100 * (pair[a].nll() - pair[b].nll()) for pair in common(archive, [a, b])])


def ptb_finding(effect, verdict, text, variant, paper):
    archive = ptb_archive(variant)
    slow = archive == SLOW
    return Finding(
        UNDECIDED if slow else verdict,
        text,
        2 * effect.n,
        archive,
        "runs at a rate chosen for LayerNorm" if slow else needs(effect, paper, 2, archive, variant),
        sizes(archive, variant) + ", validation loss" + (", peak rate 1e-3, too low for LN" if slow else ""),
    )


def pn_06():
    effect = ptb_ratio("pn-pn", "pn-ln", model__norm_position="pre", model__final_norm="")
    if not effect:
        return None
    return ptb_finding(
        effect,
        decided(effect, -1, 5, -11.1),
        f"log perplexity PN - LN, % {effect.text()} (paper -11.1)",
        "pn-pn",
        11.1,
    )


def pn_07():
    bn, pnv = (
        ptb_ratio(v, "pn-ln", model__norm_position="pre", model__final_norm="") for v in ("pn-bn", "pn-pnv")
    )
    between = ptb_ratio("pn-bn", "pn-pnv")
    if not (bn and pnv and between):
        return None
    if any(e.equivalence(margin) < 0.05 or e.high < 0 for e, margin in ((bn, 7), (pnv, 2))):
        verdict = REFUTED
    else:
        corrected = st.holm([bn.p, pnv.p, between.p])
        confirmed = min(bn.low, pnv.low, between.low) > 0 and max(corrected) < 0.05
        verdict = CONFIRMED if confirmed else UNDECIDED
    return ptb_finding(
        pnv,
        verdict,
        f"log perplexity, %: BN - LN {bn.text()} (paper +13.2), PN-V - LN {pnv.text()} "
        f"(paper +3.9), BN - PN-V {between.text()}",
        "pn-pnv",
        3.9,
    )


IWSLT = largest("ledger-iwslt40k-pn", "ledger-iwslt-pn")
FAST = "ledger-iwslt-pn-fast"  # at twice LayerNorm's rate: the instruments, no comparison of norms


def iwslt(*variants, archive=IWSLT):
    """Runs of PowerNorm's IWSLT14 protocol: pre-norm, all encoder norms replaced, LN in the decoder."""
    return one_position(archive, *variants, model__norm_position="pre", model__norm="layer")


def iwslt_finding(effect, verdict, text, paper, variants=2):
    return Finding(
        verdict,
        text,
        variants * effect.n,
        IWSLT,
        needs(effect, paper, variants, IWSLT, "ln"),
        sizes(IWSLT, "ln") + f", LayerNorm at {level():.1f} BLEU",
    )


def level():
    return st.mean([run.score() for run in Archive.open(IWSLT).variant("ln").values()])


def pn_01():
    if not iwslt("pn", "ln"):
        return None
    effect = score_difference(IWSLT, "pn", "ln")
    verdict = bleu_verdict(IWSLT, effect, 1, 0.2, 0.4)
    return iwslt_finding(effect, verdict, f"test BLEU PN - LN {effect.text()} (paper +0.4)", 0.4)


def pn_03():
    if not iwslt("bn", "ln"):
        return None
    effect = score_difference(IWSLT, "ln", "bn")
    verdict = bleu_verdict(IWSLT, effect, 1, 0.55, 1.1)
    return iwslt_finding(effect, verdict, f"test BLEU LN - BN {effect.text()} (paper +1.1)", 1.1)


def pn_04():
    if not iwslt("pnv", "bn", "ln"):
        return None
    gain, rest = score_difference(IWSLT, "pnv", "bn"), score_difference(IWSLT, "pnv", "ln")
    verdict = bleu_verdict(IWSLT, gain, 1, 0.55, 1.1)
    if verdict.startswith(CONFIRMED) and not (can_be_equivalent(IWSLT) and rest.equivalence(0.2) < 0.05):
        verdict = UNDECIDED
    return iwslt_finding(
        gain,
        verdict,
        f"test BLEU PN-V - BN {gain.text()} (paper +1.1), PN-V - LN {rest.text()} (paper 0.0)",
        1.1,
        3,
    )


def pn_05():
    if not iwslt("pn", "pnv"):
        return None
    bleu, ppl = score_difference(IWSLT, "pn", "pnv"), ptb_ratio("pn-pn", "pn-pnv", model__norm_position="pre")
    if not ppl:
        return None
    corrected = max(st.holm([bleu.p, ppl.p]))
    margin = 0.2 if can_be_equivalent(IWSLT, "pnv") else 0
    if bleu.low > 0 and ppl.high < 0 and corrected < 0.05:
        verdict = CONFIRMED
    elif part_refuted(against(bleu, 1, margin), against(ppl, -1, 7)):
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    return iwslt_finding(
        bleu,
        verdict,
        f"test BLEU PN - PN-V {bleu.text()} (paper +0.4); log perplexity of the Penn Treebank, % "
        f"{ppl.text()} (paper -15.0)",
        0.4,
        4,
    )


def first_site(run):
    instruments = ("distance", "gradient_parts")
    return next(line["site"] for line in run.log("probe") if line["instrument"] in instruments)


def distances(run, quantity):
    """The distances of a run's first norm with batch statistics, by update."""
    lines = probes(run, "distance", first_site(run))
    return [line["update"] for line in lines], [line[quantity] for line in lines]


IMAGES = "ledger-resnet20"


def pn_08():
    if not iwslt("bn", archive=FAST) or missing(IMAGES, ["bn"]):
        return None
    text = common(FAST, ["bn"])
    image = common(IMAGES, ["bn"])
    ratios = {}
    for quantity in ("mean", "variance"):
        medians = [
            [math.log10(st.median(distances(pair["bn"], quantity)[1])) for pair in pairs]
            for pairs in (text, image)
        ]
        ratios[quantity] = st.contrast([(1, medians[0], []), (-1, medians[1], [])])
    slope = st.over_seeds(
        [st.slope([math.log(u) for u in x], y) for x, y in (distances(p["bn"], "variance") for p in text)]
    )
    low = min(ratio.low for ratio in ratios.values())
    verdict = UNDECIDED
    if low > 1 and slope.low > 0:
        verdict = CONFIRMED
    elif part_refuted(*(ratio.beyond(math.log10(3), -1) for ratio in ratios.values()), slope.beyond(0, -1)):
        verdict = REFUTED
    return Finding(
        verdict,
        f"first norm, log10 of the median distance, Transformer to ResNet20: mean {ratios['mean'].text()}, "
        f"variance {ratios['variance'].text()} (claimed above +1); variance distance per e-fold of updates "
        f"{slope.text(3)}",
        len(text) + len(image),
        FAST,
        "longer training of both: " + cost(5, 2, seconds(Archive.open(FAST).variant("bn"))),
        sizes(FAST, "bn") + ", peak rate 6e-3; ResNet20: 4,000 images, 15 epochs",
    )


def outliers(runs, quantity):
    """(number above 5 medians, number) in the last fifth of the probes of the first norm, over the runs."""
    above = count = 0
    for run in runs.values():
        lines = probes(run, "gradient_parts", first_site(run))
        values = [abs(line[quantity]) for line in lines]
        limit = 5 * st.median(values)
        last = values[-(len(values) // 5) :]
        above, count = above + sum(v > limit for v in last), count + len(last)
    return above, count


# A probe at every update, as soon as these runs have ended.
TEXT_PROBES = largest("ledger-iwslt-probe", FAST)
IMAGE_PROBES = largest("ledger-resnet20-probe", "ledger-resnet20-full", IMAGES)
IMAGE_SIZES = "50,000 images, 30 epochs" if IMAGE_PROBES.endswith("-full") else "4,000 images, 15 epochs"


def pn_09():
    if not iwslt("bn", archive=TEXT_PROBES) or missing(IMAGE_PROBES, ["bn"], least=1):
        return None
    words, parts, images = [], [], []
    for quantity in ("mu", "sigma2"):
        a, n = outliers(Archive.open(TEXT_PROBES).variant("bn"), quantity)
        b, m = outliers(Archive.open(IMAGE_PROBES).variant("bn"), quantity)
        parts.append(st.binomial_interval(a, n))
        images.append(st.binomial_interval(b, m))
        words.append(f"g_{quantity}: Transformer {a} of {n} probes, ResNet20 {b} of {m}")
    confirmed = all(p[0] > 0.01 and p[0] > i[1] for p, i in zip(parts, images))
    refuted = any(p[1] < 0.01 for p in parts)
    return Finding(
        CONFIRMED if confirmed else REFUTED if refuted else UNDECIDED,
        "outliers above 5 medians in the last fifth of training, " + "; ".join(words),
        sum(len(Archive.open(a).variant("bn")) for a in (TEXT_PROBES, IMAGE_PROBES)),
        TEXT_PROBES,
        "a lower bound above 1 % needs about 4,000 probes of the Transformer if its rate stays: "
        + cost(16, 1, seconds(Archive.open(TEXT_PROBES).variant("bn"))),
        sizes(TEXT_PROBES, "bn") + f", peak rate 6e-3; ResNet20: {IMAGE_SIZES}",
    )


def pn_10():
    if not iwslt("bn", "pnv", archive=FAST):
        return None
    values = []
    for pair in common(FAST, ["bn", "pnv"]):
        sigma = st.median(distances(pair["bn"], "variance")[1])
        psi = st.median(distances(pair["pnv"], "quadratic_mean")[1])
        values.append(math.log10(sigma / psi))
    ratio = st.over_seeds(values)
    (a, n), (b, m) = (
        outliers(Archive.open(FAST).variant(v), quantity)
        for v, quantity in (("bn", "sigma2"), ("pnv", "psi2"))
    )
    verdict = UNDECIDED
    if ratio.low > 1 and b / m < a / n:
        verdict = CONFIRMED
    elif ratio.high < math.log10(3):
        verdict = REFUTED
    return Finding(
        verdict,
        f"first norm, log10 of the median distance, sigma of BN to psi of PN-V {ratio.text()} (claimed above "
        f"+1); outliers of the gradient's part in the last fifth: sigma {a} of {n} probes, psi {b} of {m}",
        2 * ratio.n,
        FAST,
        "longer training: " + cost(5, 2, seconds(Archive.open(FAST).variant("bn"))),
        sizes(FAST, "bn") + ", peak rate 6e-3",
    )


def checkpoints(run, part):
    """[(update, sites)] of Lemma 2 or Theorem 4, by update."""
    return sorted((c["update"], c[part]) for c in run.json("inspection.json"))


def pn_11():
    if not iwslt("pnv", archive=FAST):
        return None
    runs = list(Archive.open(FAST).variant("pnv").values())
    residual, below = [], {}
    for run in runs:
        curve = checkpoints(run, "lemma2")
        for update, sites in curve:
            residual += [site["equality"] for site in sites]
            if 2 * update >= curve[-1][0]:
                for site in sites:
                    below.setdefault(site["site"], []).append(100 * site["below_one"])
    fractions = {site: st.mean(values) for site, values in below.items()}
    least = min(fractions, key=fractions.get)
    per_seed = [
        st.mean(
            [
                100 * s["below_one"]
                for update, sites in checkpoints(run, "lemma2")
                for s in sites
                if s["site"] == least and 2 * update >= checkpoints(run, "lemma2")[-1][0]
            ]
        )
        for run in runs
    ]
    fraction = st.over_seeds(per_seed)
    verdict = UNDECIDED
    if max(residual) < 1e-5 and min(min(values) for values in below.values()) == 100:
        verdict = CONFIRMED
    elif max(residual) > 1e-3 or fraction.high < 99:
        verdict = REFUTED
    return Finding(
        verdict,
        f"equation 7 holds within {max(residual):.0e}; features with gamma <= psi_B in the second half "
        f"of training, %: least at {least} {fraction.text(1)}, mean {st.mean(fractions.values()):.1f}",
        len(runs),
        FAST,
        "longer training: " + cost(5, 1, seconds(Archive.open(FAST).variant("pnv"))),
        sizes(FAST, "pnv") + ", peak rate 6e-3",
    )


def pn_12():
    if not iwslt("pn", archive=FAST):
        return None
    runs = list(Archive.open(FAST).variant("pn").values())
    growth, assumed = [], []
    for run in runs:
        quarters = {1: {}, 3: {}}
        curve = checkpoints(run, "theorem4")
        for update, sites in curve:
            quarter = min(3, int(4 * (update - 1) / curve[-1][0]))
            for site in sites:
                assumed.append(site["assumption"])
                if quarter in quarters:
                    largest = quarters[quarter].get(site["site"], 0)
                    quarters[quarter][site["site"]] = max(largest, site["nu"])
        growth += [quarters[3][site] / quarters[1][site] for site in quarters[1]]
    met = st.mean(assumed)
    verdict = CONFIRMED if max(growth) <= 2 and met == 1 else UNDECIDED
    return Finding(
        verdict,
        f"largest absolute nu, last quarter of training over the second: at most {max(growth):.2f}, "
        f"median {st.median(growth):.2f}, over {len(growth)} norms and seeds; k Gamma <= 1 at "
        f"{100 * met:.1f} % of features and batches",
        len(runs),
        FAST,
        "other decays and longer training: " + cost(3, 3, seconds(Archive.open(FAST).variant("pn"))),
        sizes(FAST, "pn") + ", peak rate 6e-3, selected decay",
    )


SIZES = ("512", "1k", "2k", "4k")


def pn_13():
    archive = "ledger-iwslt-pn-sizes"
    pn, pnv = ([f"{norm}-{size}" for size in SIZES] for norm in ("pn", "pnv"))
    if missing(archive, ["ln", *pn, *pnv]):
        return None
    require(archive, pn + pnv, model__norm_position="pre", norm__state="micro-batch")
    runs = Archive.open(archive)
    layer = group(-1, runs.variant("ln"))
    mean = st.contrast([group(1 / len(SIZES), runs.variant(v)) for v in pn] + [layer])
    center = (len(SIZES) - 1) / 2
    weights = [(i - center) / sum((j - center) ** 2 for j in range(len(SIZES))) for i in range(len(SIZES))]
    slope = st.contrast([group(w, runs.variant(v)) for w, v in zip(weights, pnv)])
    worse = [score_difference(archive, v, "ln").beyond(0, -1) for v in pn]
    margin = 0.2 if can_be_equivalent(archive) else 0
    verdict = UNDECIDED
    if min(mean.low, slope.low) > 0 and max(st.holm([mean.p, slope.p])) < 0.05 <= min(st.holm(worse)):
        verdict = CONFIRMED
    elif part_refuted(against(mean, 1, margin), slope.beyond(0, -1)):
        verdict = REFUTED
    return Finding(
        verdict,
        f"test BLEU, mean over 512 to 4,096 tokens, PN - LN {mean.text()} (paper about +0.4); PN-V per "
        f"doubling {slope.text()}",
        9 * mean.n,
        archive,
        needs(mean, 0.4, 9, archive, "ln"),
        sizes(archive, "ln"),
    )


def spectrum_area(run):
    """Mean normalized singular value of the word embeddings; the largest is 1."""
    return st.mean(run.json("inspection.json")[0]["spectrum"]["values"])


def pn_14():
    if not iwslt("pn", "ln") or any(
        run.json("inspection.json") is None
        for v in ("pn", "ln")
        for run in Archive.open(IWSLT).variant(v).values()
    ):
        return None
    areas = [{v: spectrum_area(pair[v]) for v in ("pn", "ln")} for pair in common(IWSLT, ["pn", "ln"])]
    of_layer = st.mean([area["ln"] for area in areas])
    effect = st.over_seeds([area["pn"] - area["ln"] for area in areas])
    finding = iwslt_finding(
        effect,
        decided(effect, 1, of_layer / 10, of_layer / 10),
        f"mean normalized singular value PN - LN {effect.text(3)}, LN {of_layer:.3f}, margin "
        f"{of_layer / 10:.3f}",
        of_layer / 10,
    )
    if finding.verdict == UNDECIDED and effect.low > 0:
        finding.decide = "no further seeds: the sign is the claim's, and the size is within the margin"
    return finding


def pn_15():
    archive, variants = "ledger-ptb-warmup", ["none", "half", "double"]
    if missing(archive, variants) or missing("ledger-ptb", ["pn-pn"]):
        return None
    require(archive, variants, model__attention="block-term", model__causal="true", optim__name="adam")
    default = Archive.open("ledger-ptb").variant("pn-pn")
    effects = {
        v: st.over_seeds([100 * (run.nll() - default[seed].nll()) for seed, run in runs.items()])
        for v, runs in ((v, Archive.open(archive).variant(v)) for v in variants)
    }
    equal = max(st.holm([effects[v].equivalence(5) for v in ("half", "double")])) < 0.05
    none = effects["none"]
    if none.p < 0.05 and none.value > 0 and equal:
        verdict = CONFIRMED
    elif none.high < 0 or none.equivalence(5) < 0.05:
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    return Finding(
        verdict,
        "log perplexity against a warm-up of the statistics as long as the rate's, %: "
        + ", ".join(f"{v} {e.text()}" for v, e in effects.items()),
        4 * none.n,
        archive,
        needs(none, 5, 4, archive, "none"),
        sizes(archive, "none") + ", validation loss, Penn Treebank only",
    )
