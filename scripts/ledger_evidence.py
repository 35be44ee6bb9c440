"""Which archived runs bear on which claim of results/claims, and how they decide it (scripts/ledger.py).

A rule reads runs of the paper's protocol and returns a Finding, or None before the runs. It is named after
its claim; each paper has a file (ledger_powernorm.py, ledger_tears.py, ledger_rbn.py). OTHERS lists
comparisons of other protocols, which are reported and never refute.
"""

import re

import ledger_powernorm
import ledger_rbn
import ledger_tears

RULES = {
    name.replace("_", "-"): rule
    for module in (ledger_powernorm, ledger_tears, ledger_rbn)
    for name, rule in vars(module).items()
    if re.fullmatch(r"(pn|tears|rbn|con)_\d\d", name)
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
