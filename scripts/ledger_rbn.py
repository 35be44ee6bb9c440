"""Rules of results/claims for Regularized BatchNorm, and for its contradictions with PowerNorm
(scripts/ledger_evidence.py)."""

import math
import random

import ledger_statistics as st
from ledger_archives import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    UNIGRAM,
    Archive,
    Finding,
    against,
    can_be_equivalent,
    common,
    cost,
    failures,
    group,
    missing,
    needs,
    one_position,
    part_refuted,
    require,
    score_difference,
    seconds,
    sizes,
)
from ledger_powernorm import ptb_finding, ptb_ratio

POST, PRE, VISION = "ledger-iwslt-post", "ledger-iwslt-pre", "ledger-resnet18"


def position(archive, *variants, **settings):
    """Runs of RBN's IWSLT14 protocol: the sublayer norms of the encoder vary, with RBN's initialization."""
    name = archive.split("-")[2]
    return one_position(archive, *variants, model__init="rbn", model__norm_position=name, **settings)


def rbn_01():
    if not (position(POST, "bn", "ln") and position(PRE, "bn", "ln")):
        return None
    post, pre = score_difference(POST, "bn", "ln"), score_difference(PRE, "bn", "ln")
    equal = [
        can_be_equivalent(archive) and effect.equivalence(margin) < 0.05
        for archive, effect, margin in ((POST, post, 0.75), (PRE, pre, 0.35))
    ]
    against = [post.low > 0 or equal[0], pre.low > 0 or equal[1]]
    confirmed = post.high < 0 and pre.high < 0 and max(st.holm([post.p, pre.p])) < 0.05
    verdict = UNDECIDED
    if confirmed:
        verdict = CONFIRMED
    elif any(against) and not (post.high < 0 or pre.high < 0):
        verdict = REFUTED
    return Finding(
        verdict,
        f"test BLEU BN - LN: post-norm {post.text()} (paper -1.5), pre-norm {pre.text()} (paper -0.7)",
        4 * post.n,
        POST,
        needs(post, 1.5, 4, POST, "bn"),
        sizes(POST, "bn") + ", pre-norm alike",
    )


def last_tid(run):
    """Variance TID of the last norm of the trained model."""
    return max(run.json("inspection.json"), key=lambda c: c["update"])["tid"]["last"]["variance"]


def average_tid(run, quantity):
    """TID averaged over the BatchNorm sites of the trained model."""
    return max(run.json("inspection.json"), key=lambda c: c["update"])["tid"]["average"][quantity]


def rbn_05():
    """Ratios of TID on a logarithmic scale; the networks have different seeds. The rule is about LN of each
    position; LN of an image, the other reading of the claim, is reported."""
    if missing(VISION, ["bn", "ln", "gn"]) or not position(POST, "bn"):
        return None
    require(VISION, ["bn"], model__network="resnet", model__norm="batch")
    require(VISION, ["ln"], model__norm="layer")
    require(VISION, ["gn"], model__norm="group2d")
    text, image = (Archive.open(archive).variant("bn") for archive in (POST, VISION))
    ratio = {
        quantity: st.contrast(
            [
                (1, [math.log(average_tid(run, quantity)) for run in text.values()], []),
                (-1, [math.log(average_tid(run, quantity)) for run in image.values()], []),
            ]
        )
        for quantity in ("mean", "variance")
    }
    accuracy, of_images = (
        st.over_seeds(
            [
                pair["bn"].log("valid")[-1]["accuracy"] - pair[layer].log("valid")[-1]["accuracy"]
                for pair in common(VISION, ["bn", layer])
            ]
        )
        for layer in ("ln", "gn")
    )
    effects = [*ratio.values(), accuracy]
    if min(e.low for e in effects) > 0 and max(st.holm([e.p for e in effects])) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(
        ratio["mean"].beyond(math.log(1.9), -1), ratio["variance"].beyond(math.log(2.1), -1)
    ):
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    return Finding(
        verdict,
        f"average TID, log of Transformer / ResNet18: mean {ratio['mean'].text()} (paper "
        f"{math.log(3.5):+.2f}), variance {ratio['variance'].text()} (paper {math.log(4.6):+.2f}); accuracy "
        f"of ResNet18 BN - LN of each position {accuracy.text(1)} points (paper +2), BN - LN of an image "
        f"{of_images.text(1)}",
        len(text) + 3 * accuracy.n,
        VISION,
        cost(5, 2, seconds(image)),
        f"Transformer: {sizes(POST, 'bn')}; ResNet18 of an eighth of the width, 4,000 images, 15 epochs, one "
        "rate for all norms",
    )


TEXTS = ("imdb", "sst2", "sst5", "mr", "ag")  # the classification protocol on the paper's set and four others


def text_setting(name):
    """[(scores of BN and LN, variance TID of the last norm)] by seed."""
    require(name, ["BN", "LN"], model__norm_position=name.rpartition("-")[2], optim__name="adamw")
    return [
        (
            pair["BN"].score(),
            pair["LN"].score(),
            [site["variance"] for site in pair["BN"].json("test.json")["tid"] if site["averaged"]][-1],
        )
        for pair in common(name, ["BN", "LN"])
    ]


def translation_setting(archive):
    return [
        (pair["bn"].score(), pair["ln"].score(), last_tid(pair["bn"]))
        for pair in common(archive, ["bn", "ln"])
    ]


def ptb_setting(name):
    """The scores are inverse perplexities: more is better, as in the other settings."""
    bn, ln = f"rbn-{name}-bn", f"rbn-{name}-ln"
    require("ledger-ptb-rbn", [bn, ln], model__norm_position=name)
    return [
        (math.exp(-pair[bn].nll()), math.exp(-pair[ln].nll()), last_tid(pair[bn]))
        for pair in common("ledger-ptb-rbn", [bn, ln])
    ]


def correlation_over_settings(settings, draws=2000):
    """Rank correlation over settings of TID and the ratio of mean scores, and its 95 % bootstrap interval
    over settings and seeds."""

    def rho(sample):
        bn, ln, tid = ([st.mean([run[i] for run in runs]) for runs in sample] for i in range(3))
        return st.spearman(tid, [a / b if b else math.inf for a, b in zip(bn, ln)])

    choice = random.Random(1)
    values = sorted(
        rho([choice.choices(runs, k=len(runs)) for runs in choice.choices(settings, k=len(settings))])
        for _ in range(draws)
    )
    return rho(settings), values[draws // 40], values[-draws // 40 - 1]


def rbn_07():
    if not (position(POST, "bn", "ln") and position(PRE, "bn", "ln")):
        return None
    if missing("ledger-ptb-rbn", [f"rbn-{name}-{norm}" for name in ("post", "pre") for norm in ("bn", "ln")]):
        return None
    settings = [translation_setting(archive) for archive in (POST, PRE)]
    settings += [text_setting(f"classification-{data}-{name}") for data in TEXTS for name in ("post", "pre")]
    models = [ptb_setting(name) for name in ("post", "pre")]
    everywhere, without = correlation_over_settings(settings + models), correlation_over_settings(settings)
    both = (everywhere, without)
    if all(high < 0 for _, _, high in both):
        verdict = CONFIRMED
    elif all(low > 0 or max(abs(low), high) < 0.4 for _, low, high in both):
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    words = [f"{value:+.2f} ({low:+.2f} to {high:+.2f})" for value, low, high in both]
    return Finding(
        verdict,
        f"rank correlation of the last norm's variance TID with the relative gain of BN over LN, "
        f"{len(settings + models)} settings: {words[0]} (paper -0.82), without language models {words[1]} "
        f"(paper -0.68)",
        2 * sum(len(runs) for runs in settings + models),
        POST,
        "about 47 settings show a correlation of 0.4 with 80 % power (Fisher's z)",
        "post- and pre-norm: IWSLT14 and the Penn Treebank as in rbn-01 and rbn-02; IMDB, SST-2, SST-5, MR "
        "and AG news with one layer, d 128 (classification.md)",
    )


MIXED, PENALTY = "ledger-iwslt-mixed", "ledger-iwslt-pre-penalty"


def rbn_08():
    layers = (3, 4, 5)
    if missing(MIXED, [f"bn-{k}" for k in layers]) or not position(POST, "bn", "ln"):
        return None
    for k in layers:
        require(MIXED, [f"bn-{k}"], model__encoder_norm="batch", norm__at=f"enc.{k}{'-5' * (k < 5)}=layer")
    runs = {0: Archive.open(POST).variant("ln"), 6: Archive.open(POST).variant("bn")}
    runs |= {k: Archive.open(MIXED).variant(f"bn-{k}") for k in layers}
    center = st.mean(runs)
    spread = sum((k - center) ** 2 for k in runs)
    bleu = st.contrast([group((k - center) / spread, found) for k, found in runs.items()])

    def variance_of_last(run, k):
        sites = max(run.json("inspection.json"), key=lambda c: c["update"])["tid"]["sites"]
        return next(100 * site["variance"] for site in sites if site["site"] == f"enc.{k - 1}.ffn.norm")

    counts = [3, 4, 5, 6]
    tid = st.over_seeds(
        [
            st.slope(counts, [variance_of_last(runs[k][seed], k) for k in counts])
            for seed in sorted(set.intersection(*(set(runs[k]) for k in counts)))
        ]
    )
    equal = can_be_equivalent(POST) and bleu.equivalence(0.125) < 0.05
    if tid.low > 0 > bleu.high and max(st.holm([tid.p, bleu.p])) < 0.05:
        verdict = CONFIRMED
    else:
        verdict = REFUTED if bleu.low > 0 or equal else UNDECIDED
    return Finding(
        verdict,
        f"per BatchNorm layer: test BLEU {bleu.text()} (paper -0.25), variance TID of the last one, % "
        f"{tid.text()}",
        sum(len(found) for found in runs.values()),
        MIXED,
        needs(bleu, 0.25, 5, POST, "bn"),
        sizes(POST, "bn"),
    )


def rbn_14():
    weights = ("0.01", "0.1", "1")
    cells = {name: [f"{name}-{w}" for w in weights] for name in ("lambda", "nu")}
    if missing(PENALTY, cells["lambda"] + cells["nu"]) or not position(PRE, "bn"):
        return None
    require(PENALTY, cells["lambda"], norm__rbn__nu="0", norm__rbn__penalty="diff2")
    require(PENALTY, cells["nu"], norm__rbn__lambda="0", norm__rbn__penalty="diff2")
    runs = Archive.open(PENALTY)
    gain = {
        name: st.contrast(
            [group(1 / len(variants), runs.variant(v)) for v in variants]
            + [group(-1, Archive.open(PRE).variant("bn"))]
        )
        for name, variants in cells.items()
    }
    margin = 0.4 if can_be_equivalent(PRE) else 0
    verdict = UNDECIDED
    if min(e.low for e in gain.values()) > 0 and max(st.holm([e.p for e in gain.values()])) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(*(against(e, 1, margin) for e in gain.values())):
        verdict = REFUTED
    return Finding(
        verdict,
        f"test BLEU over no penalty, means over 0.01, 0.1, 1: lambda alone {gain['lambda'].text()}, nu alone "
        f"{gain['nu'].text()}",
        sum(len(runs.variant(v)) for v in cells["lambda"] + cells["nu"]),
        PENALTY,
        needs(max(gain.values(), key=lambda e: e.error), 0.8, 7, PRE, "bn"),
        sizes(PRE, "bn"),
    )


def rbn_10():
    parts = {}
    for archive in (POST, PRE):
        if not position(archive, "bn", "rbn"):
            return None
        require(archive, ["rbn"], norm__rbn__penalty="diff2", norm__rbn__scale="mean")
        parts[archive] = st.over_seeds(
            [
                math.log(last_tid(pair["rbn"]) / last_tid(pair["bn"]))
                for pair in common(archive, ["bn", "rbn"])
            ]
        )
    post, pre = parts[POST], parts[PRE]
    refuted = part_refuted(against(post, -1, math.log(1.25)), against(pre, -1, math.log(1.74)))
    return Finding(
        REFUTED if refuted else UNDECIDED,
        f"log ratio of the last norm's variance TID, RBN / BN, on IWSLT14: post-norm {post.text()} (paper "
        f"{math.log(6.7 / 10.6):+.2f}), pre-norm {pre.text()} (paper {math.log(1.5 / 4.6):+.2f})",
        4 * post.n,
        POST,
        "confirming also needs CoNLL, IMDB and the Penn Treebank: "
        + cost(5, 8, seconds(Archive.open(PRE).variant("rbn"))),
        sizes(POST, "rbn") + ", pre-norm alike",
    )


def rbn_11():
    if not (position(POST, "bn", "ln", "rbn") and position(PRE, "bn", "ln", "rbn")):
        return None
    gain = {archive: score_difference(archive, "rbn", "bn") for archive in (POST, PRE)}
    level = {archive: score_difference(archive, "rbn", "ln") for archive in (POST, PRE)}

    def reaches(archive):
        effect = level[archive]
        return effect.low > 0 or (can_be_equivalent(archive) and effect.equivalence(0.35) < 0.05)

    verdict = UNDECIDED
    if (
        all(gain[a].low > 0 and reaches(a) for a in gain)
        and max(st.holm([e.p for e in gain.values()])) < 0.05
    ):
        verdict = CONFIRMED
    elif part_refuted(
        *(against(gain[a], 1, can_be_equivalent(a) and margin) for a, margin in ((POST, 0.75), (PRE, 0.4)))
    ):
        verdict = REFUTED
    words = ", ".join(
        f"{name} RBN - BN {gain[a].text()} (paper {paper}), RBN - LN {level[a].text()}"
        for a, name, paper in ((POST, "post-norm", "+1.5"), (PRE, "pre-norm", "+0.8"))
    )
    return Finding(
        verdict,
        f"test BLEU on IWSLT14: {words}",
        6 * gain[POST].n,
        POST,
        needs(gain[POST], 1.5, 6, POST, "rbn"),
        sizes(POST, "rbn") + ", pre-norm alike",
    )


def rbn_15():
    """Either position refutes alone, so that post-norm can do so before the runs of pre-norm."""
    parts = {}
    for name in ("post", "pre"):
        archive = f"ledger-iwslt-{name}-scaling"
        if not missing(archive, ["pn-only", "pn-ls"]):
            require(archive, ["pn-only"], norm__power__scaling="none", model__norm_position=name)
            parts[name] = archive
    if "post" not in parts:
        return None
    runs = {v: Archive.open(parts["post"]).variant(v) for v in ("pn-only", "pn-ls")}
    failed, scaled = (failures(runs[v], UNIGRAM["ledger-iwslt14-4k"]) for v in ("pn-only", "pn-ls"))
    low, high = st.binomial_interval(failed, len(runs["pn-only"]))
    p = st.fisher_p(failed, len(runs["pn-only"]), scaled, len(runs["pn-ls"]))
    trains = st.binomial_interval(failed, len(runs["pn-only"]), 0.025)[1] < 0.5
    verdict = REFUTED if trains else UNDECIDED
    words = "pre-norm not run"
    if "pre" in parts:
        pre = score_difference(parts["pre"], "pn-ls", "pn-only")
        margin = 0.55 if can_be_equivalent(parts["pre"], "pn-ls") else 0
        words = f"pre-norm, test BLEU with - without scaling {pre.text()} (paper +1.1)"
        if p < 0.05 and low > 0.5 and pre.low > 0:
            verdict = CONFIRMED
        elif part_refuted(against(pre, 1, margin), 1):
            verdict = REFUTED
    return Finding(
        verdict,
        f"post-norm: PN without scaling fails in {failed} of {len(runs['pn-only'])} runs ({low:.0%} to "
        f"{high:.0%}), with scaling in {scaled} of {len(runs['pn-ls'])}, p {p:.3f}; {words}",
        sum(len(Archive.open(archive).variant(v)) for archive in parts.values() for v in runs),
        parts["post"],
        "7 seeds decide the failure rate if all or none fail, "
        + cost(4, 2, seconds(runs["pn-only"]))
        + " of pre-norm",
        sizes(parts["post"], "pn-only"),
    )


def con_03():
    pairs = post_pairs()
    if not pairs:
        return None
    training = st.over_seeds([training_difference(pair, 0.75, 1) for pair in pairs])
    gaps = [pair["bn"].nll() - pair["ln"].nll() for pair in pairs]
    removed = [pair["bn"].nll() - pair["bn"].log("valid")[-1]["batch_nll"] for pair in pairs]
    gap, share = st.over_seeds(gaps), st.over_seeds([100 * a / b for a, b in zip(removed, gaps)])
    one_sided = st.student_cdf((training.value - 0.02) / training.error, training.df)
    verdict = UNDECIDED
    if gap.low > 0 and share.low > 50 and one_sided < 0.05:
        verdict = CONFIRMED
    elif gap.low > 0 and share.high < 50 and training.low > 0:
        verdict = REFUTED
    part = (
        f"batch statistics remove {share.text(0)} % of it" if gap.low > 0 else "so there is no gap to explain"
    )
    return Finding(
        verdict,
        f"training loss BN - LN {training.text(3)} nats; validation loss BN - LN {gap.text(3)}, {part}",
        2 * len(pairs),
        POST,
        "RBN's cause is the claim; "
        + cost(
            max(gap.seeds_for(gap.value), training.seeds_for(0.02)),
            2,
            seconds(Archive.open(POST).variant("bn")),
        ),
        sizes(POST, "bn"),
    )


def post_pairs():
    """Seeds with a BatchNorm and a LayerNorm run of the post-norm protocol, or None."""
    if missing(POST, ["bn", "ln"]):
        return None
    require(
        POST,
        ["bn", "ln"],
        model__init="rbn",
        model__norm_position="post",
        optim__name="adam-fairseq",
        model__norm="layer",
        norm__batch__preset=("rbn", None),
    )
    return common(POST, ["bn", "ln"])


def training_difference(pair, first, last):
    """BN - LN of the training loss in training mode, between two fractions of the updates."""

    def loss(run):
        lines = run.log("train")
        end = lines[-1]["update"]
        return st.mean([line["nll"] for line in lines if first * end <= line["update"] <= last * end])

    return loss(pair["bn"]) - loss(pair["ln"])


CROSSING_EPOCHS = 16  # the papers' BN falls behind LN after about 7 epochs; within a factor of 2


def crossing_is_possible(pairs):
    """Whether the runs are long enough for BN to fall behind; shorter ones do not test the claims."""
    return all(pair["bn"].log("train")[-1]["epoch"] + 1 >= CROSSING_EPOCHS for pair in pairs)


def rbn_04():
    pairs = post_pairs()
    if not pairs:
        return None
    first = st.over_seeds([training_difference(pair, 0, 0.25) for pair in pairs])
    curves = [
        [a["nll"] - b["nll"] for a, b in zip(pair["bn"].log("valid"), pair["ln"].log("valid"))]
        for pair in pairs
    ]
    final = st.over_seeds([curve[-1] for curve in curves])
    early = st.over_seeds([min(curve[: len(curve) // 2]) for curve in curves])
    crossings = sum(1 for curve in curves if min(curve) < 0 < curve[-1])
    verdict = UNDECIDED
    if first.high < 0 and early.high < 0 < final.low:
        verdict = CONFIRMED
    elif crossing_is_possible(pairs) and (
        first.equivalence(0.02) < 0.05 or first.low > 0 or (crossings == 0 and final.high < 0)
    ):
        verdict = REFUTED
    return Finding(
        verdict,
        f"training loss BN - LN in the first quarter {first.text(3)} nats; validation loss at the end "
        f"{final.text(3)}; it crosses in {crossings} of {len(curves)} seeds",
        2 * len(pairs),
        POST,
        cost(
            max(first.seeds_for(0.02), final.seeds_for(final.value)),
            2,
            seconds(Archive.open(POST).variant("bn")),
        )
        + ", and 16 epochs",
        sizes(POST, "bn"),
    )


def tid_curve(run):
    """[(update, [variance TID of the BatchNorm sites in order of depth])] of the checkpoints."""
    curve = []
    for checkpoint in run.json("inspection.json"):
        values = [site["variance"] for site in checkpoint["tid"]["sites"] if site["averaged"]]
        curve.append((checkpoint["update"], values))
    return sorted(curve)


def rbn_06():
    if not post_pairs():
        return None
    runs = [run for run in Archive.open(POST).variant("bn").values() if run.json("inspection.json")]
    rho, rise, ratio = [], [], []
    for run in runs:
        curve = tid_curve(run)
        last = curve[-1][1]
        rho.append(st.spearman(range(len(last)), last))
        rise.append(100 * st.slope([math.log(u) for u, _ in curve], [v[-1] for _, v in curve]))
        ratio.append(last[-1] / st.mean(last))
    depth, time, share = st.over_seeds(rho), st.over_seeds(rise), st.over_seeds(ratio)
    corrected = st.holm([depth.p, time.p])
    if depth.low > 0 and time.low > 0 and max(corrected) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(max(depth.beyond(0.3, -1), share.beyond(1.6, -1)), time.beyond(0, -1)):
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    return Finding(
        verdict,
        f"variance TID: rank correlation with depth {depth.text()}; last norm, % per e-fold of updates "
        f"{time.text()}; last / average {share.text()}",
        len(runs),
        POST,
        cost(
            max(depth.seeds_for(max(0.3, abs(depth.value))), time.seeds_for(time.value)),
            1,
            seconds(Archive.open(POST).variant("bn")),
        ),
        sizes(POST, "bn"),
    )


def rbn_09():
    pairs = post_pairs()
    if not pairs:
        return None
    rho = []
    for pair in pairs:
        if not pair["bn"].json("inspection.json"):
            continue
        tid = {update: values[-1] for update, values in tid_curve(pair["bn"])}
        gap = {
            a["update"]: a["nll"] - b["nll"] for a, b in zip(pair["bn"].log("valid"), pair["ln"].log("valid"))
        }
        updates = sorted(set(tid) & set(gap))
        rho.append(st.spearman([tid[u] for u in updates], [gap[u] for u in updates]))
    effect = st.over_seeds(rho)
    refuted = crossing_is_possible(pairs) and effect.high < 0.3
    verdict = CONFIRMED if effect.low > 0 else REFUTED if refuted else UNDECIDED
    return Finding(
        verdict,
        f"rank correlation within a run of the last norm's variance TID with the validation gap BN - LN "
        f"{effect.text()}",
        2 * len(rho),
        POST,
        cost(effect.seeds_for(0.3), 2, seconds(Archive.open(POST).variant("bn"))),
        sizes(POST, "bn"),
    )


def rbn_13():
    if missing(PRE, ["ln", "rbn"]):
        return None
    require(PRE, ["rbn"], norm__rbn__penalty="diff2", norm__rbn__scale="mean", model__norm_position="pre")
    effects = {}
    for key in ("c50", "c80", "cmax"):
        values = []
        for pair in common(PRE, ["ln", "rbn"]):
            layer6 = {
                v: [
                    c
                    for c in run.json("inspection.json")[0]["condition"]
                    if c["stack"] == "enc" and c["layer"] == 5  # from 0: the paper's layer 6
                ][0][key]
                for v, run in pair.items()
            }
            values.append(math.log10(layer6["rbn"] / layer6["ln"]))
        effects[key] = st.over_seeds(values)
    corrected = st.holm([e.p for e in effects.values()])
    if all(e.high < 0 for e in effects.values()) and max(corrected) < 0.05:
        verdict = CONFIRMED
    elif part_refuted(*(against(effects[c], -1, 0.5) for c in ("c50", "c80"))):
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    text = ", ".join(f"C_{k[1:]} {e.text()}" for k, e in effects.items())
    size = verdict == CONFIRMED and all(e.high < -1 for e in effects.values())
    return Finding(
        verdict,
        f"log10 at layer 6, RBN - LN: {text}" + (" (size confirmed)" if size else ""),
        2 * effects["c50"].n,
        PRE,
        cost(max(e.seeds_for(0.5) for e in effects.values()), 2, seconds(Archive.open(PRE).variant("rbn"))),
        sizes(PRE, "rbn"),
    )


def rbn_03():
    parts, runs, equal, worse = [], 0, [], []
    for position in ("post", "pre"):
        archive = f"classification-imdb-{position}"
        require(archive, ["BN", "LN"], model__norm_position=position, optim__name="adamw")
        effect = score_difference(archive, "BN", "LN")
        runs += 6
        parts.append(f"IMDB {position}-norm BN - LN {effect.text()} points")
        equal.append(effect.equivalence(0.3))
        worse.append(effect.high < -0.3)
    per_run = seconds(Archive.open("classification-imdb-pre").variant("BN"))
    return Finding(
        REFUTED if any(worse) else UNDECIDED,
        "; ".join(parts),
        runs,
        "classification-imdb-post, -pre",
        "F1 of CoNLL and Resume with SGD, and accuracy: " + cost(8, 4, per_run),
        sizes("classification-imdb-pre", "BN"),
    )


OPEN, PTB_PENALTY = "ledger-ptb-rbn-open", "ledger-ptb-rbn-penalty"


def language_models(archive=None, causal="true"):
    """BN - LN on the Penn Treebank, post- and pre-norm, or None. The paper has a mask, its code none."""
    found = [
        ptb_ratio(f"rbn-{p}-bn", f"rbn-{p}-ln", archive, causal, model__norm_position=p)
        for p in ("post", "pre")
    ]
    return found if all(found) else None


def penalized():
    """RBN - LN, as language_models; the LayerNorm runs are in the group without penalties."""
    if missing(PTB_PENALTY, ["rbn-post-rbn", "rbn-pre-rbn"]) or not language_models():
        return None
    require(PTB_PENALTY, ["rbn-post-rbn", "rbn-pre-rbn"], norm__rbn__penalty="diff2", model__causal="true")
    ln = {p: Archive.open("ledger-ptb-rbn").variant(f"rbn-{p}-ln") for p in ("post", "pre")}
    rbn = {p: Archive.open(PTB_PENALTY).variant(f"rbn-{p}-rbn") for p in ("post", "pre")}
    return [st.over_seeds([100 * (run.nll() - ln[p][s].nll()) for s, run in rbn[p].items()]) for p in rbn]


def two_positions(effects):
    return f"post-norm {effects[0].text()}, pre-norm {effects[1].text()}"


def rbn_02():
    masked, unmasked, rbn = language_models(), language_models(OPEN, "false"), penalized()
    if not masked:
        return None
    verdict = UNDECIDED
    if rbn and max(e.high for e in masked + rbn) < 0 and max(st.holm([e.p for e in masked + rbn])) < 0.05:
        verdict = CONFIRMED
    elif unmasked and all(part_refuted(*(against(e, -1, 7) for e in pair)) for pair in (masked, unmasked)):
        verdict = REFUTED
    finding = ptb_finding(
        masked[0],
        verdict,
        f"log perplexity BN - LN, %: {two_positions(masked)} (paper -14.8, -17.2); without a mask "
        f"{two_positions(unmasked) if unmasked else 'not run'}; RBN - LN "
        f"{two_positions(rbn) if rbn else 'not run'}",
        "rbn-post-bn",
        14.8,
    )
    if not unmasked:
        finding.decide = "runs without a mask, as in the authors' code: ptb-rbn-open of results/queue"
    return finding


# Margins of the settings at hand: half of the paper's BN - LN, at least 0.3 F1 and 0.1 points of accuracy.
SETTINGS = {
    "conll-post": 0.3,
    "conll-pre": 0.55,
    "resume-post": 0.3,
    "resume-pre": 0.4,
    "imdb-post": 0.1,
    "imdb-pre": 0.1,
    "dbpedia-post": 0.1,
    "dbpedia-pre": 0.1,
}


def rbn_12():
    models = penalized()
    if not (models and position(POST, "rbn", "ln") and position(PRE, "rbn", "ln")):
        return None
    models = [st.Effect(-e.value, e.error, e.df, e.n) for e in models]  # more is better, as elsewhere
    found = [(score_difference(POST, "rbn", "ln"), 0.75), (score_difference(PRE, "rbn", "ln"), 0.35)]
    found += zip(models, (7.4, 8.6))
    for setting, margin in SETTINGS.items():
        archive = f"ledger-rbn-{setting}"
        if not missing(archive, ["rbn", "ln"]):
            require(archive, ["rbn"], norm__rbn__penalty="diff2", optim__name=("sgd", "adamw"))
            found.append((score_difference(archive, "rbn", "ln"), margin))
    reaches = sum(p < 0.05 for p in st.holm([e.beyond(-margin) for e, margin in found]))
    below = sum(p < 0.05 for p in st.holm([e.beyond(0, -1) for e, _ in found]))
    verdict = UNDECIDED
    if reaches >= 10 and min(e.low for e in models) > 0:
        verdict = CONFIRMED
    elif below > 3 or part_refuted(*(against(e, 1, margin) for e, margin in found[2:4])):
        verdict = REFUTED
    return Finding(
        verdict,
        f"RBN is not below LN by more than the margin in {reaches} of {len(found)} settings, significantly "
        f"below in {below}; log perplexity of the Penn Treebank LN - RBN, %: {two_positions(models)}",
        2 * sum(e.n for e, _ in found),
        PTB_PENALTY,
        "CoNLL-2003, Resume, IMDB and DBPedia with selected weights",
        f"IWSLT14 as in rbn-11; {sizes(PTB_PENALTY, 'rbn-post-rbn')}, validation loss",
    )


def con_01():
    pn = ptb_ratio("pn-bn", "pn-ln", model__norm_position="pre")
    masked, unmasked = language_models(), language_models(OPEN, "false")
    if not (pn and masked):
        return None
    refuted = ["PN's sign"] if against(pn, 1, 7) < 0.05 else []
    for i, name in enumerate(("post", "pre")):
        if unmasked and max(against(pair[i], -1, 7) for pair in (masked, unmasked)) < 0.05:
            refuted.append(f"RBN's sign {name}-norm")
    text = (
        f"log perplexity BN - LN, %: in PN's protocol {pn.text()}, in RBN's {two_positions(masked)}; without "
        f"a mask {two_positions(unmasked) if unmasked else 'not run'}"
        + (f"; refuted: {', '.join(refuted)}" if refuted else "")
    )
    finding = ptb_finding(pn, REFUTED if refuted else UNDECIDED, text, "pn-bn", 13.2)
    if not unmasked:
        finding.decide = "RBN's protocol without a mask: ptb-rbn-open of results/queue"
    return finding


def con_02():
    own = ptb_ratio("pn-pn", "pn-ln", model__norm_position="pre", model__final_norm="")
    post, pre = (ptb_ratio(f"rbn-{p}-pn", f"rbn-{p}-ln", model__norm_position=p) for p in ("post", "pre"))
    if not (own and post and pre):
        return None
    corrected = max(st.holm([own.p, pre.p]))
    both = st.Effect(
        (own.value + pre.value) / 2, math.hypot(own.error, pre.error) / 2, min(own.df, pre.df), own.n
    )
    excluded = [not both.low <= paper <= both.high for paper in (-11.1, 9.3)]
    if corrected < 0.05 and own.value * pre.value > 0:
        verdict = REFUTED
    elif (corrected < 0.05 and own.value * pre.value < 0) or sum(excluded) == 1:
        verdict = CONFIRMED
    else:
        verdict = UNDECIDED
    return ptb_finding(
        own,
        verdict,
        f"log perplexity PN - LN, %: in PN's protocol {own.text()} (paper -11.1), in RBN's {pre.text()} "
        f"pre-norm (paper +9.3), {post.text()} post-norm (paper -6.6)",
        "pn-pn",
        11.1,
    )
