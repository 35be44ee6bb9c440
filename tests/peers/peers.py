#!/usr/bin/env python3
"""Norma against other programs, with the test data of their source archives.

    tests/peers/peers.py NORMA FOLDER [PEER ...]

Run it with the packages of tests/peers/requirements.txt (`make test-peers` installs them). The source
archives of sacreBLEU and seqeval are downloaded to FOLDER. One line per comparison: what was compared, and
how many results are equal. Exit code 1 if one differs. tests/peers/README.md lists the agreed differences.
"""
import bz2
import importlib.util
import json
import pathlib
import pickle
import subprocess
import sys
import tarfile

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")


class Peers:
    def __init__(self, norma, folder):
        self.norma, self.folder = norma, folder
        self.failed = False

    def run(self, *arguments):
        done = subprocess.run([self.norma, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"norma {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr}")
        return done.stdout

    def write(self, name, lines):
        path = self.folder / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    def report(self, peer, what, same, total, agreed=""):
        print(f"{peer:14} {what}: {same} of {total} equal{'; ' + agreed if agreed else ''}", flush=True)
        self.failed |= same != total

    def archive(self, package):
        """The unpacked source archive of a package."""
        version = next(line.strip() for line in REQUIREMENTS.read_text().splitlines()
                       if line.startswith(package + "=="))
        name = version.replace("==", "-")
        if not (self.folder / name).exists():
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
                            ":all:", "-d", self.folder, version], check=True)
            with tarfile.open(self.folder / f"{name}.tar.gz") as archive:
                archive.extractall(self.folder, filter="data")
        return self.folder / name


def lines_of(text):
    return text.split("\n")[:-1]


def corpus(peers, n=None):
    """Systems of WMT17 English-German by name, with the reference: test data of sacreBLEU."""
    with bz2.open(peers.archive("sacrebleu") / "test/wmt17_en_de_systems.pkl.bz2") as file:
        texts = {name: lines[0] if name == "reference" else lines for name, lines in pickle.load(file)}
    return {name: [" ".join(line.splitlines()) for line in lines[:n]] for name, lines in texts.items()}


def score_of(peers, *arguments):
    return json.loads(peers.run("score", *arguments, "--bootstrap", "0", "--json"))["score"]


def sacrebleu(peers):
    from sacrebleu.metrics import BLEU, CHRF, TER
    texts = corpus(peers, 300)
    reference = "reference"
    peers.write("reference", texts[reference])
    metrics = [("bleu", BLEU(), []), ("bleu", BLEU(tokenize="intl"), ["--tokenize", "intl"]),
               ("bleu", BLEU(tokenize="char"), ["--tokenize", "char"]),
               ("bleu", BLEU(lowercase=True), ["--lowercase"]),
               ("chrf", CHRF(), []), ("chrf", CHRF(word_order=2), ["--word-order", "2"]), ("ter", TER(), [])]
    same = total = 0
    for name in sorted(set(texts) - {reference}):
        hypothesis = peers.write("hypothesis", texts[name])
        for metric, peer, options in metrics:
            score = score_of(peers, metric, hypothesis, "--reference", peers.folder / "reference", *options)
            total += 1
            same += abs(score - peer.corpus_score(texts[name], [texts[reference]]).score) < 1e-8
    peers.report("sacrebleu", "scores of 300 lines of its WMT17 systems", same, total)
    cases = module(peers.archive("sacrebleu") / "test/test_chrf.py").test_sentence_level_chrf
    same = sum(abs(score_of(peers, "chrf", peers.write("one", [hypothesis]), "--reference",
                            peers.write("two", references[:1])) -
                   CHRF().sentence_score(hypothesis, references[:1]).score) < 1e-8
               for hypothesis, references, _ in cases)
    peers.report("sacrebleu", "sentences of its test_chrf.py", same, len(cases))


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    out = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out


def seqeval(peers):
    import random
    from seqeval.metrics import f1_score
    data = peers.archive("seqeval") / "tests/data/ground_truth.txt"
    blocks = data.read_text().strip().split("\n\n")
    sentences = [[line.split() for line in block.split("\n")] for block in blocks]
    gold = [[row[2] for row in rows] for rows in sentences]
    answers = {"its own answers": [[row[3] for row in rows] for rows in sentences]}
    for seed in range(20):  # tags exchanged at random
        draw = random.Random(seed)
        tags = sorted({tag for row in gold for tag in row})
        answers[f"seed {seed}"] = [[draw.choice(tags) if draw.random() < 0.2 else tag for tag in row]
                                   for row in gold]
    same = 0
    peers.write("gold", [" ".join(row) for row in gold])
    for predicted in answers.values():
        score = score_of(peers, "f1", peers.write("predicted", [" ".join(row) for row in predicted]),
                         "--reference", peers.folder / "gold")
        same += abs(score - 100 * f1_score(gold, predicted)) < 1e-8
    peers.report("seqeval", "F1 of its ground_truth.txt and 20 variants", same, len(answers))


def subword_nmt(peers):
    import io
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe
    texts = corpus(peers)
    text = [line for name in sorted(texts)[:2] for line in texts[name][:1500] if line]
    words = [" ".join(line.split()) for line in text]
    codes = peers.folder / "codes"
    with codes.open("w", encoding="utf-8") as file:
        learn_bpe(io.StringIO("\n".join(words[:2000]) + "\n"), file, 1000)
    with codes.open(encoding="utf-8") as file:
        bpe = BPE(file)
    path = peers.write("text", words)
    ours = lines_of(peers.run("subword", path, "--tokenizer", "none", "--codes", codes))
    same = sum(a == bpe.process_line(b) for a, b in zip(ours, words))
    peers.report("subword-nmt", "segmented lines of 1,000 merges learned by it", same, len(words))
    data = peers.folder / "bpe-data"
    peers.run("prepare", "--format", "text", "--train", peers.write("train", words[:2000]), "--tokenizer",
              "none", "--bpe-merges", "1000", "--output", data)
    own = [line for line in lines_of((data / "codes.bpe").read_text("utf-8")) if not line.startswith("#")]
    theirs = [line for line in lines_of(codes.read_text("utf-8")) if not line.startswith("#")]
    same = sum(a == b for a, b in zip(own, theirs))
    peers.report("subword-nmt", "merges that both learn", same, len(theirs))


def score(model, pieces):
    return sum(model.get_score(model.piece_to_id(piece)) for piece in pieces)


def sentencepiece(peers):
    import sentencepiece as spm
    texts = corpus(peers)
    lines = [line for name in sorted(texts)[:2] for line in texts[name][:1500]]
    path = peers.write("text", lines)
    for kind in ("unigram", "bpe"):
        prefix = peers.folder / kind
        spm.SentencePieceTrainer.train(input=str(path), model_prefix=str(prefix), vocab_size=1500,
                                       model_type=kind, num_threads=1, minloglevel=2)
        model = spm.SentencePieceProcessor(model_file=f"{prefix}.model")
        ours = lines_of(peers.run("subword", path, "--spm-model", f"{prefix}.model"))
        # An unknown piece is <unk>, as norma writes it.
        known = [[model.id_to_piece(i) for i in ids] for ids in model.encode(lines)]
        same = sum(a == " ".join(b) for a, b in zip(ours, known))
        ties = sum(a != " ".join(b) and kind == "unigram" and abs(score(model, a.split(" ")) -
                                                                  score(model, b)) < 1e-4
                   for a, b in zip(ours, known))
        peers.report("sentencepiece", f"lines by its {kind} model", same + ties, len(lines),
                     f"{ties} of them have two segmentations of the same probability")


def tokenizers(peers):
    from tokenizers import ByteLevelBPETokenizer
    texts = corpus(peers)
    lines = [line for name in sorted(texts)[:2] for line in texts[name][:1500]]
    path = peers.write("text", lines)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(path)], vocab_size=1500, show_progress=False)
    tokenizer.save_model(str(peers.folder))
    ours = lines_of(peers.run("subword", path, "--tokenizer", "byte_level", "--codes",
                              peers.folder / "merges.txt"))
    same = sum(a == " ".join(tokenizer.encode(b).tokens) for a, b in zip(ours, lines))
    peers.report("tokenizers", "lines by its byte-level BPE", same, len(lines))


PEERS = {"sacrebleu": sacrebleu, "seqeval": seqeval, "subword-nmt": subword_nmt,
         "sentencepiece": sentencepiece, "tokenizers": tokenizers}


def main():
    folder = pathlib.Path(sys.argv[2]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    peers = Peers(str(pathlib.Path(sys.argv[1]).absolute()), folder)
    for name in sys.argv[3:] or PEERS:
        PEERS[name](peers)
    return int(peers.failed)


if __name__ == "__main__":
    sys.exit(main())
