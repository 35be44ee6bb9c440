#!/usr/bin/env python3
"""Generates the recipes of the tables in the papers: one short INI file per row, from the tables below.

    scripts/recipes.py FOLDER

writes FOLDER/tears, FOLDER/pn and FOLDER/rbn. The settings that rows share are in recipes/common, which is
not generated. The published results are those of Nguyen and Salazar 2019 (tears), Shen et al. 2020 (pn) and
Wang et al. 2022 (rbn).
"""
import pathlib
import sys

if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit("usage: scripts/recipes.py FOLDER")
FOLDER = pathlib.Path(sys.argv[1])
PAGE = "(docs/reproduce.md)"


def recipe(path, include, comments, *sections):
    """A section is its name and its lines."""
    lines = [f"# {comment}" for comment in comments] + [f"include = ../common/{include}.ini"]
    for name, *settings in sections:
        lines += ["", f"[{name}]", *settings]
    (FOLDER / f"{path}.ini").write_text("\n".join(lines) + "\n", encoding="utf-8")


for paper in "tears", "pn", "rbn":
    (FOLDER / paper).mkdir(parents=True, exist_ok=True)

# ---- Transformers without Tears ----

PAIRS = "gl-en", "sk-en", "en-vi", "en-he", "ar-en"
CORPUS = {
    "gl-en": "TED talks Galician-English, as data/ted-gl-en",
    "sk-en": "TED talks Slovak-English, as data/ted-sk-en",
    "en-vi": "IWSLT15 English-Vietnamese, as data/iwslt15-en-vi",
    "en-he": "TED talks English-Hebrew, as data/ted-en-he",
    "ar-en": "TED talks Arabic-English, as data/ted-ar-en",
    "wmt": "WMT16 English-German with 32,000 subwords, as data/wmt16-en-de",
}
FIX = "fixnorm = true"
FIX_SCALE = "model", "norm_position = pre", "norm = scale", FIX


def tears(name, pair, title, number, *sections):
    recipe(f"tears/{name}-{pair}", f"tears-{pair}",
           [f"Transformers without Tears, {title}.", f"Published result: {number}.",
            f"Data: {CORPUS[pair]} {PAGE}."], *sections)


def tears_pairs(name, title, which, numbers, *sections):
    """One recipe per language pair; the numbers are in the order of PAIRS."""
    for pair, number in zip(PAIRS, numbers.split()):
        tears(name, pair, f"{title}, {pair}", f"{number} BLEU on the {which} set", *sections)


def validation(number):
    return "training fails" if number == "fails" else f"{number} BLEU on the validation set"


# Table 2: initialization, norm position, warm-up
for short, init, position, title, numbers in (
        ("xavier", "xavier-normal", "post", "Xavier normal, post-norm", "fails fails 5.76"),
        ("xavier", "xavier-normal", "pre", "Xavier normal, pre-norm", "28.52 28.73 28.32"),
        ("smallinit", "small", "post", "SmallInit, post-norm", "28.17 28.20 28.62"),
        ("smallinit", "small", "pre", "SmallInit, pre-norm", "28.26 28.44 28.33")):
    for k, number in zip((4, 8, 16), numbers.split()):
        tears(f"table2-{short}-{position}-{k}k", "en-vi", f"table 2, {title}, warm-up {k}k, en-vi",
              validation(number), ("model", f"norm_position = {position}", f"init = {init}"),
              ("schedule", f"warmup = {k}000"))

# Table 3: norms
tears_pairs("table3-1", "table 3, row (1): post-norm, LayerNorm", "test", "18.47 29.37 31.94 27.85 33.39",
            ("model", "norm_position = post"))
tears_pairs("table3-2", "table 3, row (2): pre-norm, LayerNorm", "test", "19.09 29.45 31.92 28.13 33.79",
            ("model", "norm_position = pre"))
tears_pairs("table3-3", "table 3, row (3): pre-norm, FixNorm, LayerNorm", "test",
            "19.38 29.50 32.45 28.39 34.35", ("model", "norm_position = pre", FIX))
tears_pairs("table3-4", "table 3, row (4): pre-norm, FixNorm, ScaleNorm", "test",
            "20.91 30.25 32.79 28.44 34.15", FIX_SCALE)

# Table 4: learning rates
NO_WARMUP = "schedule", "name = no-warmup", "lr = 3e-4", "warmup = 0"
VAL_DECAY = "schedule", "name = val-decay"
TWICE = "scale = 2"
for name, title, numbers, *schedule in (
        ("nowarmup", "NoWarmup", "18.00 28.92 28.91 30.33 35.40", NO_WARMUP),
        ("invsqrt", "InvSqrtDecay", "22.18 29.08 28.84 30.30 35.33"),
        ("valdecay", "ValDecay", "21.45 29.46 28.67 30.69 35.46", VAL_DECAY),
        ("invsqrt-2x", "InvSqrtDecay at twice the rate", "21.92 29.03 28.76 30.50 35.33",
         ("schedule", TWICE)),
        ("valdecay-2x", "ValDecay at twice the rate", "21.63 29.49 28.46 30.13 34.95",
         (*VAL_DECAY, TWICE))):
    tears_pairs(f"table4-{name}", f"table 4, {title}: pre-norm, FixNorm, ScaleNorm", "validation", numbers,
                FIX_SCALE, *schedule)

# Table 5: depth without warm-up
for position, numbers in ("post", "18.31 fails fails"), ("pre", "28.33 28.13 28.32"):
    for layers, number in zip((4, 5, 6), numbers.split()):
        tears(f"table5-{position}-{layers}-layers", "en-vi",
              f"table 5, {position}-norm, {layers} layers, no warm-up, en-vi", validation(number),
              ("model", f"norm_position = {position}", f"encoder_layers = {layers}",
               f"decoder_layers = {layers}"), NO_WARMUP)

# Table 6: WMT
for name, title, number, *settings in (
        ("pre-ln", "pre-norm, LayerNorm", "26.83", "norm_position = pre"),
        ("pre-fix-scale", "pre-norm, FixNorm, ScaleNorm", "27.07", *FIX_SCALE[1:]),
        ("post-ln", "post-norm, LayerNorm", "27.58", "norm_position = post"),
        ("post-fix-scale", "post-norm, FixNorm, ScaleNorm", "27.57",
         "norm_position = post", *FIX_SCALE[2:])):
    tears(f"table6-{name}", "wmt", f"table 6, {title}", f"{number} BLEU on newstest2014",
          ("model", *settings))

# Table 7: learned and fixed g
FIXED_G = "norm.scale", "trainable = false"
for name, title, numbers, *sections in (
        ("rms", "RMSNorm + FixNorm", "20.92 30.36 32.54 28.29 33.67",
         ("model", "norm_position = pre", "norm = rms", FIX)),
        ("scale", "ScaleNorm + FixNorm", "20.91 30.25 32.79 28.44 34.15", FIX_SCALE),
        ("fixed-g", "ScaleNorm with fixed g; g is learned only before the output",
         "21.18 30.36 32.66 28.19 34.11", FIX_SCALE, FIXED_G),
        ("fixed-g-valdecay", "fixed g, ValDecay", "20.36 30.45 32.83 27.97 33.98",
         FIX_SCALE, FIXED_G, VAL_DECAY),
        ("fixed-g-valdecay-2x", "fixed g, ValDecay at twice the rate", "21.15 30.57 31.81 25.00 28.92",
         FIX_SCALE, FIXED_G, (*VAL_DECAY, TWICE))):
    tears_pairs(f"table7-{name}", f"table 7, {title}", "test", numbers, *sections)

# ---- PowerNorm ----

DATA = {
    "iwslt14-de-en": f"Data: IWSLT14 German-English, as data/iwslt14-de-en {PAGE}.",
    "wmt14-en-de": f"Data: WMT14 English-German, as data/wmt14-en-de {PAGE}.",
    "wmt16-en-de": f"Data: WMT16 English-German with 32,000 subwords, as data/wmt16-en-de {PAGE}.",
}
EACH_SETTING = 'scaling = layer          ; "in each model setting" (A.1)'
NORMS = {  # title, type, settings of the type
    "ln": ("LayerNorm", "layer"),
    "bn": ("BatchNorm", "batch",
           ("norm.batch", "preset = pn           ; with the layer scaling of the released code")),
    "pnv": ("PN-V", "pnv", ("norm.pnv", "preset = pn")),
    "pn": ("PowerNorm", "power",
           ("norm.power", "; the paper selects the two decays by validation: "
            "--grid norm.power.decay_forward=0.9,0.95,0.99 and decay_backward", "preset = official")),
    "brn": ("Batch Renormalization", "renorm", ("norm.renorm", EACH_SETTING)),
    "mabn": ("Moving Average BatchNorm", "mabn", ("norm.mabn", EACH_SETTING)),
    "gn": ("GroupNorm, as many groups as heads", "group"),
}


def pn(name, common, data, title, number, norm, *sections):
    long, kind, *settings = NORMS[norm]
    recipe(f"pn/{name}", common,
           [f"PowerNorm, {title}: {long}.", f"Published result: {number}.", DATA[data]],
           ("model", f"encoder_norm = {kind}"), *settings, *sections)


for norm, iwslt, wmt in ("ln", 35.5, 29.5), ("bn", 34.4, 28.1), ("pnv", 35.5, 28.5), ("pn", 35.9, 30.1):
    pn(f"table1-iwslt-{norm}", "pn-iwslt", "iwslt14-de-en", "table 1, IWSLT14",
       f"{iwslt} BLEU on the test set", norm)
    pn(f"table1-wmt-{norm}", "pn-wmt", "wmt14-en-de", "table 1, WMT14", f"{wmt} BLEU on newstest2014", norm)
for norm, number in zip(("bn", "brn", "mabn", "ln", "gn", "pnv", "pn"),
                        (34.4, 34.7, 34.9, 35.5, 35.7, 35.5, 35.9)):
    pn(f"table4-{norm}", "pn-iwslt", "iwslt14-de-en", "table 4, IWSLT14",
       f"{number} BLEU on the test set", norm)
# Figure 5: batch statistics over 512 to 4096 tokens, updates over 4096 tokens
for norm in "ln", "bn", "pnv", "pn":
    for tokens in 512, 1024, 2048, 4096:
        size = tokens if tokens < 1024 else f"{tokens // 1024}k"
        pn(f"figure5-{norm}-{size}", "pn-iwslt", "iwslt14-de-en",
           f"figure 5, IWSLT14, batch statistics over {size} tokens",
           "only plotted in the figure, whose axis is from 34.6 to 35.8 BLEU", norm,
           ("train", f"max_tokens = {tokens}", f"shards = {4096 // tokens}"), ("norm", "state = micro-batch"))

# ---- Regularized BatchNorm ----

UNKNOWN = "the paper does not state the values for this task; its grid for lambda and nu is 0, 0.01, 0.1, 1"
ROWS = {  # title, type, settings of the type
    "ln": ("LayerNorm", "layer"),
    "bn": ("BatchNorm", "batch"),
    "rbn": ("Regularized BatchNorm", "rbn",
            ("norm.rbn", "penalty = diff2", "scale = mean", "lambda = 0.1", "nu = 0.01")),
    "pn-only": ("PowerNorm without scaling", "power", ("norm.power", "scaling = none")),
    "pn-ls": ("PowerNorm with scaling", "power", ("norm.power", "scaling = group")),
    "brn": ("Batch Renormalization", "renorm"),
    "mabn": ("Moving Average BatchNorm", "mabn"),
}
PENALTY = {"pre": ("lambda = 0.1", "nu = 0.01"), "post": ("lambda = 60", "nu = 0")}


def cases(table, *names):
    """(row, *case, number) of a table with a line for each of ROWS, with numbers in the order of names."""
    for row, line in zip(ROWS, table.strip().splitlines()):
        for case, number in zip(names, line.split()):
            yield (row, *case.split(), number)


for row, position, corpus, number in cases("""
        35.5 27.3 35.5 27.3
        34.0 25.0 34.8 25.2
        35.5 26.5 35.6 26.2
        0    0    34.5 26.0
        35.6 0    35.6 27.2
        35.3 25.8 35.2 25.3
        0    0    35.0 26.8""", "post iwslt", "post wmt", "pre iwslt", "pre wmt"):
    long, kind, *settings = ROWS[row]
    title, data = ("WMT16", "wmt16-en-de") if corpus == "wmt" else ("IWSLT14", "iwslt14-de-en")
    comments = [f"Regularized BatchNorm, {title}, {position}-norm: {long}.", "Published result: "
                f"{number} BLEU{' (training fails)' if number == '0' else ''} on the test set.", DATA[data]]
    if row == "rbn":
        settings = [("norm.rbn", "penalty = diff", *PENALTY[position])]
    if row == "rbn" and corpus == "wmt":
        comments.append("Penalty: the paper does not state the values for WMT; "
                        "these are the released values for IWSLT14.")
    recipe(f"rbn/{corpus}-{position}-{row}", f"rbn-{corpus}-{position}", comments,
           ("model", f"encoder_norm = {kind}"), *settings)

# ---- language models: the PTB and WikiText-103 columns of PowerNorm and Regularized BatchNorm ----

TEXT = {
    "ptb": ("Penn Treebank", f"Data: Penn Treebank, preprocessed by Mikolov, as data/ptb {PAGE}."),
    "wt103": ("WikiText-103",
              f"Data: WikiText-103, as data/wikitext-103 {PAGE}; --profile small: data/wikitext-2."),
}


def lm(path, common, corpus, title, number, *sections):
    """number: perplexity of the validation and the test set, or of the test set."""
    number = number.replace(" ", " on the validation set, ")
    recipe(path, common,
           [title, f"Published result: perplexity {number} on the test set.",
            "The public code has target leakage, so only differences between norms are comparable "
            "(docs/causality.md).", TEXT[corpus][1]], *sections)


def pn_lm(table, corpus, norm, number):
    long, kind, *settings = NORMS[norm]
    table, title = (4, "table 4") if table == 4 else (3, "tables 2 and 3")
    lm(f"pn/table{table}-{corpus}-{norm}", f"pn-{corpus}", corpus,
       f"PowerNorm, {title}, {TEXT[corpus][0]}, core-1: {long}.", number,
       ("model", f"norm = {kind}"), *settings)


for norm, ptb, wt103 in (("ln", "58.0 53.2", "22.7 20.9"), ("bn", "71.7 60.7", "28.4 27.2"),
                         ("pnv", "59.7 55.3", "23.6 21.3"), ("pn", "51.6 47.6", "18.3 17.9")):
    pn_lm(3, "ptb", norm, ptb)
    pn_lm(3, "wt103", norm, wt103)
for cores, ptb, wt103 in ("1 core", "55.4 57.9", "23.6 20.9"), ("2 cores", "54.3 49.8", "19.7 18.9"):
    for corpus, number in ("ptb", ptb), ("wt103", wt103):
        lm(f"pn/table2-{corpus}-core{cores[0]}", f"lm-{corpus}", corpus,
           f"PowerNorm, table 2, {TEXT[corpus][0]}: Tensor-Transformer, {cores}, "
           "published in Ma et al., 2019.", number, ("model", f"cores = {cores[0]}"))
for norm, number in zip(("bn", "brn", "mabn", "ln", "gn", "pnv", "pn"),
                        "60.7 58.3 57.2 53.2 51.7 55.3 47.6".split()):
    pn_lm(4, "ptb", norm, number)

for row, position, corpus, number in cases("""
        53.2  20.9     54.5 24.6
        45.9  17.2     45.9 17.8
        44.6  17.1     43.2 17.1
        254.6 infinite 48.6 infinite
        49.8  21.0     59.8 20.9
        45.1  17.3     45.7 17.5
        47.4  33.6     48.7 infinite""", "post ptb", "post wt103", "pre ptb", "pre wt103"):
    long, kind, *settings = ROWS[row]
    if row == "rbn":
        settings = [("norm.rbn", f"; {UNKNOWN}", *settings[0][1:])]
    lm(f"rbn/{corpus}-{position}-{row}", f"rbn-{corpus}-{position}", corpus,
       f"Regularized BatchNorm, {TEXT[corpus][0]}, {position}-norm: {long}.", number,
       ("model", f"norm = {kind}"), *settings)

# ---- text classification and named entities ----
# All norms of a classifier are those of the row; the paper does not state sizes and sites. TENER has no other
# norms than those of both sublayers of every layer.

SETS = {
    "imdb": ("IMDB", "the IMDB reviews, as data/imdb"),
    "sogou": ("Sogou", "Sogou News, as data/sogou"),
    "dbpedia": ("DBPedia", "the DBPedia ontology dataset, as data/dbpedia"),
    "yelp": ("Yelp", "Yelp review polarity, as data/yelp"),
    "conll": ("CoNLL-2003", "CoNLL-2003 English, as data/conll2003, and GloVe vectors"),
    "resume": ("Resume", "the Resume set, as data/resume, and character and bigram vectors"),
}


def labels(table, score, include, names):
    for row, position, corpus, number in cases(table, *names):
        long, kind, *settings = ROWS[row]
        title, data = SETS[corpus]
        comments = [f"Regularized BatchNorm, {title}, {position}-norm: {long}.",
                    f"Published result: {number} {score} on the test set.", f"Data: {data} {PAGE}."]
        if row == "rbn":
            comments.append(f"Penalty: {UNKNOWN}.")
        files = ("data", f"train = data/{corpus}/train.tsv", f"test = data/{corpus}/test.tsv")
        recipe(f"rbn/{corpus}-{position}-{row}", include.format(corpus), comments,
               *([files] if include == "rbn-text" else []),
               ("model", f"norm_position = {position}", f"norm = {kind}"), *settings)


labels("""
        84.1 94.6 97.5 93.3 84.1 94.5 97.5 93.3
        84.0 94.3 97.5 93.3 84.0 94.3 97.5 93.3
        84.5 94.7 97.6 93.6 84.4 94.7 97.5 93.5
        84.2 90.6 97.1 89.6 84.2 94.4 97.4 93.3
        84.0 94.6 97.4 93.2 83.3 94.4 97.3 93.4
        83.6 94.5 97.5 93.3 84.3 94.5 97.4 93.4
        84.1 94.5 97.5 93.5 84.4 94.6 97.5 93.3""", "% accuracy", "rbn-text",
       [f"{position} {corpus}" for position in ("post", "pre")
        for corpus in ("imdb", "sogou", "dbpedia", "yelp")])
labels("""
        94.8 91.3 94.0 91.0
        94.5 90.9 93.2 89.9
        94.8 91.4 94.0 90.6
        94.4 67.1 5.0  11.1
        94.3 90.9 93.3 54.1
        93.6 89.9 94.1 91.1
        94.4 90.8 94.8 90.9""", "F1", "rbn-{}", ["post resume", "post conll", "pre resume", "pre conll"])

# ---- the vision networks with which both papers compare the Transformer ----

CIFAR = f"Data: CIFAR-10, as data/cifar10 {PAGE}."
recipe("pn/figure2-resnet20", "cifar10",
       ["PowerNorm, figures 2 and 3: ResNet20 with BatchNorm, the counterpart of the Transformer.",
        "Published result: distances of batch and running statistics near 0.", CIFAR],
       ("model", "preset = resnet20", "network = resnet", "shortcut = pad", "norm = batch"),
       ("probe", "every = 10", "instruments = distance,deviation,gradient_parts"))
recipe("rbn/section3-resnet18", "cifar10",
       ["Regularized BatchNorm, section 3.1 and figure 2: ResNet18 with BatchNorm, the counterpart of the "
        "Transformer.",
        "Published result: deviations of mean and variance of about 4 % at the end of training, "
        "mean TID 0.8 % and 0.9 %.", CIFAR,
        "The paper counts 21 norms; this network, the usual form for CIFAR-10, has 20."],
       ("model", "preset = resnet18", "network = resnet", "widths = 64,128,256,512", "blocks = 2,2,2,2",
        "shortcut = conv", "norm = batch"), ("optim", "weight_decay = 5e-4"),
       ("probe", "every = 10", "instruments = distance,deviation"),
       ("profile.small", "model.widths = 8,16,32,64   ; an eighth of the width"))
