"""Rules of results/claims for Regularized BatchNorm, and for its contradictions with PowerNorm
(scripts/ledger_evidence.py)."""

import math

import ledger_statistics as st
from ledger_archives import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    UNIGRAM,
    Archive,
    Finding,
    can_be_equivalent,
    common,
    cost,
    failures,
    missing,
    needs,
    one_position,
    require,
    score_difference,
    seconds,
    sizes,
)
from ledger_powernorm import ptb_finding, ptb_ratio

POST, PRE = "ledger-iwslt-post", "ledger-iwslt-pre"


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
    refuted = all(
        effect.low > 0 or effect.equivalence(margin) < 0.05
        for effect, margin in ((post, math.log(1.25)), (pre, math.log(1.74)))
    )
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
    elif all(effect.high < 0 for effect in gain.values()):
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
    parts = {}
    for name in ("post", "pre"):
        archive = f"ledger-iwslt-{name}-scaling"
        if missing(archive, ["pn-only", "pn-ls"]):
            return None
        require(archive, ["pn-only"], norm__power__scaling="none", model__norm_position=name)
        parts[name] = archive
    runs = {v: Archive.open(parts["post"]).variant(v) for v in ("pn-only", "pn-ls")}
    failed, scaled = (failures(runs[v], UNIGRAM["ledger-iwslt14-4k"]) for v in ("pn-only", "pn-ls"))
    low, high = st.binomial_interval(failed, len(runs["pn-only"]))
    p = st.fisher_p(failed, len(runs["pn-only"]), scaled, len(runs["pn-ls"]))
    pre = score_difference(parts["pre"], "pn-ls", "pn-only")
    equal = can_be_equivalent(parts["pre"], "pn-ls") and pre.equivalence(0.55) < 0.05
    verdict = UNDECIDED
    if p < 0.05 and low > 0.5 and pre.low > 0:
        verdict = CONFIRMED
    elif high < 0.5 and (pre.high < 0 or equal):
        verdict = REFUTED
    return Finding(
        verdict,
        f"post-norm: PN without scaling fails in {failed} of {len(runs['pn-only'])} runs ({low:.0%} to "
        f"{high:.0%}), with scaling in {scaled} of {len(runs['pn-ls'])}, p {p:.3f}; pre-norm, test BLEU with "
        f"- without scaling {pre.text()} (paper +1.1)",
        4 * pre.n,
        parts["post"],
        needs(pre, 1.1, 4, parts["pre"], "pn-only") + "; the failure rate: 7 seeds if all fail",
        sizes(parts["post"], "pn-only") + ", pre-norm alike",
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
    elif depth.high < 0.3 and share.high < 1.6:
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
                    if c["stack"] == "enc" and c["layer"] == 6
                ][0][key]
                for v, run in pair.items()
            }
            values.append(math.log10(layer6["rbn"] / layer6["ln"]))
        effects[key] = st.over_seeds(values)
    corrected = st.holm([e.p for e in effects.values()])
    if all(e.high < 0 for e in effects.values()) and max(corrected) < 0.05:
        verdict = CONFIRMED
    elif all(e.low > 0 or e.equivalence(0.5) < 0.05 for e in (effects["c50"], effects["c80"])):
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


def rbn_02():
    post, pre = (ptb_ratio(f"rbn-{p}-bn", f"rbn-{p}-ln", model__norm_position=p) for p in ("post", "pre"))
    if not (post and pre):
        return None
    refuted = any(e.low > 0 or e.equivalence(7) < 0.05 for e in (post, pre))
    return ptb_finding(
        post,
        REFUTED if refuted else UNDECIDED,
        f"log perplexity BN - LN, %: post {post.text()} (paper -14.8), "
        f"pre {pre.text()} (paper -17.2); RBN was not run",
        "rbn-post-bn",
        14.8,
    )


def con_01():
    pn = ptb_ratio("pn-bn", "pn-ln", model__norm_position="pre")
    post, pre = (ptb_ratio(f"rbn-{p}-bn", f"rbn-{p}-ln", model__norm_position=p) for p in ("post", "pre"))
    if not (pn and post and pre):
        return None
    refuted = [
        name
        for name, e, sign in (
            ("PN's sign", pn, 1),
            ("RBN's sign post-norm", post, -1),
            ("RBN's sign pre-norm", pre, -1),
        )
        if e.equivalence(7) < 0.05 or (e.p < 0.05 and e.value * sign < 0)
    ]
    text = (
        f"log perplexity BN - LN, %: in PN's protocol {pn.text()}, in RBN's {post.text()} post-norm, "
        f"{pre.text()} pre-norm" + (f"; refuted: {', '.join(refuted)}" if refuted else "")
    )
    return ptb_finding(pn, REFUTED if refuted else UNDECIDED, text, "pn-bn", 13.2)


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
