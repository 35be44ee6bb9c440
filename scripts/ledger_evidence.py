"""Which archived runs bear on which claim of results/claims, and how they decide it (scripts/ledger.py).

A rule of RULES reads runs of the paper's protocol and returns a Finding. OTHERS lists comparisons of other
protocols, which are reported and never refute.
"""

import math

import ledger_statistics as st
from ledger_archives import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    UNIGRAM,
    Archive,
    Finding,
    common,
    cost,
    failures,
    group,
    missing,
    require,
    score_difference,
    seconds,
    sizes,
)

# ---- Transformers without Tears ----

TABLE2 = "iwslt15-en-vi-table2"
WARMUPS = ("100", "200", "400")
TABLE2_NOTE = ", fairseq's positions, no output bias, test BLEU"


def table2(kind):
    """Runs of a row of table 2 with all three lengths of the warm-up."""
    return {
        (w, seed): run for w in WARMUPS for seed, run in Archive.open(TABLE2).variant(f"{kind}-{w}").items()
    }


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
    rate, n = failed / len(post), len(post)
    while n < 10000 and st.binomial_interval(round(rate * n), n)[0] <= 0.5 < rate:
        n += 3
    return Finding(
        verdict,
        f"post-norm fails in {failed} of {len(post)} runs ({low:.0%} to {high:.0%}), pre-norm in "
        f"{pre_failed} of {len(pre)}, p {p:.3f}",
        len(post) + len(pre),
        TABLE2,
        cost(math.ceil(n / 3), 6, seconds(post)) + " if the rate stays",
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
    verdict = UNDECIDED
    if p < 0.05 and low > 0.5 and gain.low > 0:
        verdict = CONFIRMED
    elif high < 0.5 and gain.high < 5:
        verdict = REFUTED
    return Finding(
        verdict,
        f"without warm-up post-norm fails with 6 layers in {failed} of {len(post)} runs ({low:.0%} to "
        f"{high:.0%}), pre-norm in {pre_failed} of {len(pre)}; 4 layers: pre - post {gain.text()} BLEU",
        sum(len(runs.variant(v)) for v in variants),
        archive,
        cost(7, 4, seconds(post)),
        sizes(archive, "post-6"),
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


def tears_11():
    archive = "ledger-tears-g"
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
    refuted = any(rho[kind].high < 0.3 for kind in kinds[2:])
    words = {
        ("enc", "self"): "encoder attention",
        ("enc", "ffn"): "encoder feed-forward",
        ("dec", "self"): "decoder attention",
        ("dec", "ffn"): "decoder feed-forward",
    }
    text = ", ".join(f"{words[k]} {e.text()}" for k, e in rho.items())
    return Finding(
        REFUTED if refuted else UNDECIDED,
        f"rank correlation of g with depth: {text}",
        len(runs),
        archive,
        "confirming also needs three sizes of the training set, " + cost(6, 3, seconds(runs)),
        sizes(archive, "smoothing"),
    )


def tears_12():
    archive = "ledger-tears-g"
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
    corrected = st.holm([a.p, b.p])
    if a.high < 0 < b.low and max(corrected) < 0.05:
        verdict = CONFIRMED
    elif b.high < 0 or b.equivalence(0.05) < 0.05:
        verdict = REFUTED
    else:
        verdict = UNDECIDED
    runs = Archive.open(archive).variant("plain")
    return Finding(
        verdict,
        f"log ratio of g without to with smoothing: decoder layers 4 to 6 {a.text(3)}, output {b.text(3)}",
        2 * len(late),
        archive,
        cost(max(a.seeds_for(a.value), b.seeds_for(b.value)), 2, seconds(runs)),
        sizes(archive, "plain"),
    )


# ---- Regularized BatchNorm and the contradictions ----

POST = "ledger-iwslt-post"


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


PRE = "ledger-iwslt-pre"


def rbn_10():
    if missing(PRE, ["bn", "rbn"]):
        return None
    require(PRE, ["rbn"], norm__rbn__penalty="diff2", norm__rbn__scale="mean", model__norm_position="pre")
    values = []
    for pair in common(PRE, ["bn", "rbn"]):
        last = {v: run.json("inspection.json")[0]["tid"]["last"]["variance"] for v, run in pair.items()}
        values.append(math.log(last["rbn"] / last["bn"]))
    effect = st.over_seeds(values)
    return Finding(
        UNDECIDED,
        f"IWSLT14 pre-norm: log ratio of the last norm's variance TID, RBN / BN {effect.text()} "
        f"(paper {math.log(1.5 / 4.6):+.2f})",
        2 * len(values),
        PRE,
        "post-norm and CoNLL, IMDB and the Penn Treebank: "
        + cost(5, 8, seconds(Archive.open(PRE).variant("rbn"))),
        sizes(PRE, "rbn"),
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


def rbn_15():
    archive = "ledger-iwslt-post-scaling"
    if missing(archive, ["pn-only", "pn-ls"]):
        return None
    require(archive, ["pn-only"], norm__power__scaling="none", model__norm_position="post")
    only, scaled = (Archive.open(archive).variant(v) for v in ("pn-only", "pn-ls"))
    failed, scaled_failed = (failures(runs, UNIGRAM[archive]) for runs in (only, scaled))
    low, high = st.binomial_interval(failed, len(only))
    p = st.fisher_p(failed, len(only), scaled_failed, len(scaled))
    return Finding(
        UNDECIDED,
        f"post-norm: PN without scaling fails in {failed} of {len(only)} runs ({low:.0%} to {high:.0%}), "
        f"with scaling in {scaled_failed} of {len(scaled)}, p {p:.3f}; the pre-norm part was not run",
        len(only) + len(scaled),
        archive,
        "the pre-norm part: " + cost(20, 2, seconds(scaled)),
        sizes(archive, "pn-only"),
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


PTB = "ledger-ptb"


def ptb_ratio(a, b, **settings):
    """Difference of the validation loss in percent of perplexity, paired over seeds; None before the runs."""
    if missing(PTB, [a, b]):
        return None
    require(PTB, [a, b], model__attention="block-term", model__causal="true", optim__name="adam", **settings)
    return st.over_seeds([100 * (pair[a].nll() - pair[b].nll()) for pair in common(PTB, [a, b])])


def decided(effect, sign, margin, paper):
    """The rule of evidence for a comparison."""
    value = sign * effect.value
    if effect.p < 0.05 and value > 0:
        return CONFIRMED + (" (size confirmed)" if effect.low <= paper <= effect.high else "")
    if effect.equivalence(margin) < 0.05 or (effect.p < 0.05 and value < 0):
        return REFUTED
    return UNDECIDED


def ptb_finding(effect, verdict, text, variant, paper):
    return Finding(
        verdict,
        text,
        2 * effect.n,
        PTB,
        cost(effect.seeds_for(paper), 2, seconds(Archive.open(PTB).variant(variant))),
        sizes(PTB, variant) + ", validation loss",
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
    if bn.equivalence(7) < 0.05 or bn.high < 0:
        verdict = REFUTED
    else:
        corrected = st.holm([bn.p, pnv.p, between.p])
        confirmed = min(bn.low, pnv.low, between.low) > 0 and max(corrected) < 0.05
        verdict = CONFIRMED if confirmed else UNDECIDED
    return ptb_finding(
        bn,
        verdict,
        f"log perplexity, %: BN - LN {bn.text()} (paper +13.2), PN-V - LN {pnv.text()} "
        f"(paper +3.9), BN - PN-V {between.text()}",
        "pn-bn",
        13.2,
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


RULES = {
    "tears-01": tears_01,
    "tears-02": tears_02,
    "tears-03": tears_03,
    "tears-11": tears_11,
    "tears-12": tears_12,
    "con-01": con_01,
    "con-03": con_03,
    "pn-06": pn_06,
    "pn-07": pn_07,
    "rbn-02": rbn_02,
    "rbn-03": rbn_03,
    "rbn-04": rbn_04,
    "rbn-06": rbn_06,
    "rbn-09": rbn_09,
    "rbn-10": rbn_10,
    "rbn-13": rbn_13,
    "rbn-15": rbn_15,
}

# ---- other protocols ----

MUON = "Multi30k, 3,000 pairs, all encoder norms, linear schedule"
PTB_OLD = "2 layers, 8 epochs of 1,024 tokens, no final norm"
SOFTMAX = "softmax attention, Muon"
FAIRSEQ = "fairseq's initialization"
ADAM = "Adam, no word vectors"

# claims, words, archive, variant a, variant b (a - b)
OTHERS = (
    [
        ("pn-01", MUON, "bf16-multi30k", "PowerNorm/float", "LayerNorm/float"),
        ("pn-03", MUON, "bf16-multi30k", "BatchNorm/float", "LayerNorm/float"),
        ("pn-04", MUON, "bf16-multi30k", "PN-V/float", "BatchNorm/float"),
        ("pn-05", MUON, "bf16-multi30k", "PowerNorm/float", "PN-V/float"),
        ("pn-05", PTB_OLD, "ptb-pn-table3", "PN", "PN-V"),
        ("pn-06,con-02", PTB_OLD, "ptb-pn-table3", "PN", "LN"),
        ("pn-06,con-02", SOFTMAX, "bf16-ptb", "PowerNorm/float", "LayerNorm/float"),
        ("pn-07,con-01", PTB_OLD, "ptb-pn-table3", "BN", "LN"),
        ("pn-07", PTB_OLD, "ptb-pn-table3", "PN-V", "LN"),
        ("pn-07,con-01", SOFTMAX, "bf16-ptb", "BatchNorm/float", "LayerNorm/float"),
        ("rbn-02", PTB_OLD, "ptb-pn-table3", "RBN", "LN"),
        ("rbn-02", SOFTMAX, "bf16-ptb", "RBN/float", "LayerNorm/float"),
        ("rbn-11", MUON, "bf16-multi30k", "RBN/float", "LayerNorm/float"),
        ("rbn-11", MUON, "bf16-multi30k", "RBN/float", "BatchNorm/float"),
        ("tears-03", FAIRSEQ, "iwslt15-en-vi-table5", "pre-4", "post-4"),
        ("tears-04", FAIRSEQ, "iwslt15-en-vi-table4", "no-warmup", "inv-sqrt"),
        ("tears-05", FAIRSEQ, "iwslt15-en-vi-table3", "pre-LN", "post-LN"),
        ("tears-06", FAIRSEQ, "iwslt15-en-vi-table3", "pre-LN-fix", "pre-LN"),
        ("tears-07", FAIRSEQ, "iwslt15-en-vi-table3", "pre-scale-fix", "pre-LN-fix"),
        ("tears-08", FAIRSEQ, "iwslt15-en-vi-table3", "pre-scale-fix", "post-LN"),
        ("tears-09", FAIRSEQ, "iwslt15-en-vi-table4", "val-decay", "inv-sqrt"),
        ("tears-09", FAIRSEQ, "iwslt15-en-vi-table4", "inv-sqrt-2x", "inv-sqrt"),
        ("tears-15", FAIRSEQ, "iwslt15-en-vi-table7", "scale", "rms"),
        ("tears-15", FAIRSEQ, "iwslt15-en-vi-table7", "fixed-g", "scale"),
    ]
    + [
        (claim, f"{ADAM}, {data} {position}-norm", f"tagging-{data}-{position}", a, b)
        for data in ("conll", "resume")
        for position in ("post", "pre")
        for claim, a, b in (
            ("rbn-03", "BN", "LN"),
            ("rbn-11", "RBN", "BN"),
            ("rbn-12", "RBN", "LN"),
            ("rbn-15", "PN-LS", "PN-only"),
        )
    ]
    + [
        (claim, f"weights not selected, IMDB {position}-norm", f"classification-imdb-{position}", a, b)
        for position in ("post", "pre")
        for claim, a, b in (("rbn-11", "RBN", "BN"), ("rbn-12", "RBN", "LN"))
    ]
)
