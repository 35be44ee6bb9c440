"""norma convert against the other toolkits: CTranslate2, transformers, sentencepiece and torch from PyPI, and
pymarian, which is left out where it has no wheel.

    check.py NORMA FOLDER

Trains small models in FOLDER, converts them, and compares translations and log probabilities. Exit code 1: a
difference.
"""

import importlib.util
import json
import math
import os
import random
import subprocess
import sys

import ctranslate2
import sentencepiece
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, Gemma3ForCausalLM,
                          Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MarianConfig, MarianMTModel, MistralConfig, MistralForCausalLM, Olmo2Config,
                          Olmo2ForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

TOLERANCE = 2e-5  # of a log probability in float
failures = 0


def norma(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"norma {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def check(name, passed, text):
    global failures
    failures += not passed
    print(f"{'ok    ' if passed else 'FAILED'} {name}: {text}", flush=True)


def write_corpus():
    """Word-by-word translation in reverse order; the validation set has words that the training set lacks."""
    random.seed(1)
    german = "haus baum hund katze rot blau gross klein alt neu".split()
    english = "house tree dog cat red blue big small old new".split()
    sides = {"train": 1500, "valid": 40}
    for split, n in sides.items():
        with open(f"{split}.de", "w") as source, open(f"{split}.en", "w") as target:
            for i in range(n):
                words = [random.randrange(len(german)) for _ in range(random.randint(1, 8))]
                extra = " unbekannt" if split == "valid" and i % 7 == 0 else ""
                source.write(" ".join(german[w] for w in words) + extra + " .\n")
                target.write(" ".join(english[w] for w in reversed(words)) + " .\n")
    norma("prepare", "--train", "train", "--valid", "valid", "--source-lang", "de", "--target-lang", "en",
          "--output",
          "data", "--joint", "--tokenizer", "none", "--bpe-merges", "20")


def train(name, *options):
    with open("recipe.ini", "w") as recipe:
        recipe.write("[run]\ntask = translation\n")
    norma("train", "recipe.ini", "--run.folder", name, "--data.folder", "data", "--model.preset", "tiny",
          "--model.width",
          "64", "--model.ff", "128", "--model.dropout", "0", "--train.updates", "200", "--train.max_tokens",
          "800",
          "--train.score", "false", "--schedule.lr", "3e-3", "--schedule.warmup", "40", *options)


def translations(model, beam, lines):
    with open("lines.txt", "w") as file:
        file.write("\n".join(lines) + "\n")
    out = norma("translate", model, "lines.txt", "--input_format", "subword", "--output_format", "subword",
                "--json",
                "--decode.beam", str(beam), "--decode.alpha", "1", "--decode.max_length_a", "0",
                "--decode.max_length_b",
                "60")
    return [json.loads(line)["translations"][0] for line in out.splitlines()]


def check_ctranslate2(model, lines):
    norma("convert", model, "--to", "ctranslate2", "-o", f"{model}-ct2")
    translator = ctranslate2.Translator(f"{model}-ct2")
    sources = [line.split() for line in lines]
    for beam in (1, 4):
        ours = translations(model, beam, lines)
        theirs = translator.translate_batch(sources, beam_size=beam, length_penalty=1, max_decoding_length=60)
        same = sum(o["text"] == " ".join(t.hypotheses[0]) for o, t in zip(ours, theirs))
        check(f"CTranslate2, {model}, beam {beam}", same == len(lines),
              f"{same} of {len(lines)} lines are the same")
    words = [[token for token in o["tokens"] if token != "</s>"] for o in ours]
    scored = translator.score_batch(sources, words)
    largest = max(abs(a - b) for s, o in zip(scored, ours) for a, b in zip(s.log_probs, o["token_scores"]))
    check(f"CTranslate2, {model}, scores", largest < TOLERANCE, f"largest difference {largest:.1e}")
    if model in ("rms", "scale"):
        norma("convert", f"{model}-ct2", "--from", "ctranslate2", "-o", f"{model}-back.safetensors")
        back = translations(f"{model}-back.safetensors", 4, lines)
        largest = max(abs(a - b) for x, y in zip(ours, back) for a,
                      b in zip(x["token_scores"], y["token_scores"]))
        check(f"back from CTranslate2, {model}", [o["text"] for o in ours] == [b["text"] for b in back]
              and largest < TOLERANCE,
              f"the same lines, largest difference {largest:.1e}")


def check_lm(name, *settings):
    """Log probabilities of a language model in CTranslate2, and of the model that is read from its folder."""
    run, folder = f"lm-{name}", f"lm-{name}-ct2"
    norma("train", "lm.ini", "--run.folder", run, "--run.quiet", *settings)
    norma("convert", run, "--to", "ctranslate2", "-o", folder)
    norma("convert", folder, "--from", "ctranslate2", "-o", f"{run}-back.safetensors")
    tokens = [line.split() for line in norma("subword", "valid.en", "--like", "lm-data").splitlines()]
    scored = ctranslate2.Generator(folder).score_batch([["</s>", *line, "</s>"] for line in tokens])
    for model in (run, f"{run}-back.safetensors"):
        out = norma("perplexity", model, "valid.en", "--tokens", "--each-line")
        lines = [json.loads(line)["log_probs"] for line in out.splitlines()]
        largest = max(abs(a - b) for ours, theirs in zip(lines, scored) for a,
                      b in zip(ours, theirs.log_probs))
        check(f"CTranslate2, {model}", [len(ours) for ours in lines]
              == [len(theirs.log_probs) for theirs in scored]
              and largest < TOLERANCE,
              f"largest difference of the log probabilities of {len(lines)} lines {largest:.1e}")


def check_lm_transformers(name, *settings, recipe="lm.ini"):
    """Log probabilities of a language model in transformers, and of the model that is read from its
    folder."""
    run, folder = f"lm-{name}", f"lm-{name}-hf"
    norma("train", recipe, "--run.folder", run, "--run.quiet", "--data.folder", "lm-data", "--train.updates",
          "60", *settings)
    norma("convert", run, "--to", "huggingface", "-o", folder)
    norma("convert", folder, "--from", "huggingface", "-o", f"{run}-back.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    end = tokenizer.eos_token_id
    theirs = []
    for line in norma("subword", "valid.en", "--like", "lm-data").splitlines():
        ids = [model.config.bos_token_id, *tokenizer(line).input_ids, end]
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([ids[:-1]])).logits[0], -1)
        theirs.append([float(scores[i, t]) for i, t in enumerate(ids[1:])])
    for source in (run, f"{run}-back.safetensors"):
        out = norma("perplexity", source, "valid.en", "--tokens", "--each-line")
        ours = [json.loads(line)["log_probs"] for line in out.splitlines()]
        largest = max(abs(a - b) for x, y in zip(ours, theirs) for a, b in zip(x, y))
        check(f"transformers, {source}, {type(model).__name__}",
              [len(x) for x in ours] == [len(y) for y in theirs]
              and largest < TOLERANCE,
              f"largest difference of the log probabilities of {len(theirs)} lines {largest:.1e}")


def check_transformers(model, lines):
    norma("convert", model, "--to", "huggingface", "-o", f"{model}-hf")
    tokenizer = AutoTokenizer.from_pretrained(f"{model}-hf")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(f"{model}-hf")
    same = 0
    for line, ours in zip(lines, translations(model, 1, lines)):
        ids = theirs.generate(input_ids=tokenizer(line, return_tensors="pt").input_ids, max_length=62)[0]
        same += tokenizer.decode(ids, skip_special_tokens=True) == ours["text"]
    check(f"transformers, {model}, {type(theirs).__name__}", same == len(lines),
          f"{same} of {len(lines)} greedy translations are the same")
    norma("convert", f"{model}-hf", "--from", "huggingface", "-o", f"{model}-back.safetensors")
    check(f"back from transformers, {model}",
          translations(model, 4, lines) == translations(f"{model}-back.safetensors", 4, lines),
          "the same n-best scores")


def check_translations(run, lines, greedy=True):
    """Log probabilities of Norma's own translations in transformers; greedy: also the greedy translations,
    which a model that was trained for a short time ends at the maximum length."""
    norma("convert", run, "--to", "huggingface", "-o", f"{run}-hf")
    tokenizer, model = (
        AutoTokenizer.from_pretrained(f"{run}-hf"),
        AutoModelForSeq2SeqLM.from_pretrained(f"{run}-hf").eval(),
    )
    same, largest, vocab, start = 0, 0, tokenizer.get_vocab(), model.config.decoder_start_token_id
    for line, ours in zip(lines, translations(run, 1, lines)):
        source = tokenizer(line, return_tensors="pt").input_ids
        ids = [vocab[token] for token in ours["tokens"]]
        with torch.no_grad():
            logits = model(input_ids=source, decoder_input_ids=torch.tensor([[start, *ids[:-1]]])).logits
        scores = torch.log_softmax(logits, -1)[0]
        largest = max([largest] + [abs(float(scores[i, t]) - s) for i,
                                   (t, s) in enumerate(zip(ids, ours["token_scores"]))])
        same += not greedy or tokenizer.decode(model.generate(input_ids=source, max_length=62)[0],
                                               skip_special_tokens=True) == ours["text"]
    check(
        f"transformers, {run}, {type(model).__name__}",
        same == len(lines) and largest < TOLERANCE,
        f"{same} of {len(lines)} greedy translations are the same, largest difference of the log "
        f"probabilities {largest:.1e}",
    )


def check_wide_models(subwords):
    """The recipes translate and lm, and other models that fit the classes of transformers only in a wider
    stream."""
    norma("train", "translate", "--data.folder", "data", "--run.folder", "recipe-translate", "--run.quiet",
          "--train.updates", "150",
          "--train.score", "false")
    check_translations("recipe-translate", subwords, greedy=False)
    for run, settings in {"wide-rms": ["--model.norm", "rms", "--norm.rms.epsilon_inside", "true",
                                       "--norm.rms.epsilon", "1e-3"],
                          "wide-layer": ["--model.output_bias", "true", "--norm.layer.epsilon", "1e-3",
                                         "--model.share_embeddings",
                                         "decoder", "--model.heads", "8"],
                          "wide-mixed": ["--model.encoder_norm", "scale", "--model.norm", "rms",
                                         "--model.positions", "none"]}.items():
        train(run, *settings)
        check_translations(run, subwords)
    check_lm_transformers("recipe", recipe="lm")
    check_lm_transformers("wide-scale", "--model.norm", "scale", "--model.positions", "learned",
                          "--model.output_bias", "true")


def check_marian():
    """A folder like those of OPUS-MT: two SentencePiece models, swish, <pad> as the first input, biases."""
    os.makedirs("opus", exist_ok=True)
    vocabulary = {"</s>": 0, "<unk>": 1}
    for side, language in (("source", "de"), ("target", "en")):
        sentencepiece.SentencePieceTrainer.train(input=f"train.{language}", model_prefix=f"opus/{side}",
                                                 vocab_size=40, hard_vocab_limit=False, minloglevel=2)
        os.rename(f"opus/{side}.model", f"opus/{side}.spm")
        pieces = sentencepiece.SentencePieceProcessor(f"opus/{side}.spm")
        for i in range(pieces.get_piece_size()):
            if pieces.id_to_piece(i) != "<s>":
                vocabulary.setdefault(pieces.id_to_piece(i), len(vocabulary))
    pad = vocabulary["<pad>"] = len(vocabulary)
    with open("opus/vocab.json", "w") as file:
        json.dump(vocabulary, file)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=len(vocabulary),
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            activation_function="swish",
            scale_embedding=True,
            max_position_embeddings=128,
            decoder_start_token_id=pad,
            pad_token_id=pad,
            eos_token_id=0,
            init_std=0.2,
        )
    ).eval()
    with torch.no_grad():
        model.final_logits_bias.copy_(torch.randn(1, len(vocabulary)))
    model.save_pretrained("opus")
    norma("convert", "opus", "--from", "huggingface", "-o", "opus.safetensors")
    out = norma("translate", "opus.safetensors", "valid.de", "--json", "--beam", "1", "--decode.max_length_a",
                "0",
                "--decode.max_length_b", "12")
    pieces, largest = sentencepiece.SentencePieceProcessor("opus/source.spm"), 0
    for line, result in zip(open("valid.de"), out.splitlines()):
        ours = json.loads(result)["translations"][0]
        source = [vocabulary.get(p, 1) for p in pieces.encode(line.strip(), out_type=str)] + [0]
        ids = [vocabulary[token] for token in ours["tokens"]]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source]),
                           decoder_input_ids=torch.tensor([[pad] + ids[:-1]])).logits
        theirs = torch.log_softmax(logits, -1)[0]
        largest = max([largest] + [abs(float(theirs[i, t]) - s) for i,
                                   (t, s) in enumerate(zip(ids, ours["token_scores"]))])
    check("MarianMTModel to Norma", largest < TOLERANCE, f"largest difference {largest:.1e}")


def pymarian(*arguments):
    done = subprocess.run([sys.executable, "-m", "pymarian", *arguments, "--cpu-threads", "1", "--workspace",
                           "200", "--quiet"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"pymarian {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def check_pymarian():
    """Models that Marian trains for a few updates: its own log probabilities of the validation set."""
    if not importlib.util.find_spec("pymarian"):
        print("skipped pymarian: not installed", flush=True)
        return
    variants = {"post": [], "tied": ["--tied-embeddings-all", "--dim-vocabs", "32", "32"],
                "pre": ["--transformer-preprocess", "n", "--transformer-postprocess", "da",
                        "--transformer-postprocess-top", "n",
                        "--transformer-ffn-activation", "relu"]}
    for name, options in variants.items():
        suffix = "spm" if name == "tied" else "yml"
        vocabs = ["joint.spm"] * 2 if name == "tied" else ["marian.de.yml", "marian.en.yml"]
        pymarian("train", "--model", f"marian-{name}.npz", "--train-sets", "train.de", "train.en", "--vocabs",
                 *vocabs, "--type",
                 "transformer", "--dim-emb", "32", "--transformer-heads", "4", "--enc-depth", "2",
                 "--dec-depth", "2",
                 "--transformer-dim-ffn", "64", "--after-batches", "40", "--mini-batch", "32", "--seed", "1",
                 "--learn-rate",
                 "0.01", "--overwrite", *options)
        theirs = pymarian("score", "-m", f"marian-{name}.npz", "-t", "valid.de", "valid.en", "--vocabs",
                          *vocabs, "--mini-batch",
                          "1").split()
        norma("convert", f"marian-{name}.npz", "--from", "marian", "--vocabs", ",".join(vocabs), "-o",
              f"marian-{name}.safetensors")
        ours = norma("rescore", f"marian-{name}.safetensors", "valid.de", "valid.en",
                     "--rescore.input_format",
                     "raw" if suffix == "spm" else "tokenized").split()
        largest = max(abs(float(a) - float(b)) for a, b in zip(ours, theirs))
        check(f"Marian to Norma, {name}, {suffix}", len(ours) == len(theirs) == 40 and largest < 1e-4,
              f"largest difference of {len(ours)} log probabilities {largest:.1e}")


def check_sentencepiece():
    """Models of the Python package: pieces of English that they were not learned from, and of other
    scripts."""
    documents = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
    with open("spm-train.txt", "w") as file:
        for name in sorted(os.listdir(documents)):
            if name.endswith(".md") and name != "faq.md":
                file.writelines(line for line in open(os.path.join(documents, name)) if line.strip())
    lines = [line.rstrip("\n") for line in open(os.path.join(documents, "faq.md"))]
    lines += ["", "  two  spaces ", "Grüße, größere Bäume", "e\u0301 \ufb01 \uff21\uff22\uff23 \u00a0x",
              "\u4eca\u65e5\u306f \u2603 \U0001f600",
              "\u2581 <unk> </s> <s>", "x" * 500]
    with open("spm-test.txt", "w") as file:
        file.write("".join(line + "\n" for line in lines))
    for kind, settings in {"unigram": {}, "bpe": {}, "char": {},
                           "bytes": {"model_type": "unigram", "byte_fallback": True},
                           "cased": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"}}.items():
        sentencepiece.SentencePieceTrainer.train(input="spm-train.txt", model_prefix=f"spm-{kind}",
                                                 vocab_size=800,
                                                 hard_vocab_limit=False, minloglevel=2,
                                                 **{"model_type": kind, **settings})
        norma("prepare", "--format", "text", "--train", "spm-train.txt", "--tokenizer", "sentencepiece",
              "--spm-model",
              f"spm-{kind}.model", "--output", f"spm-{kind}-data")
        ours = norma("subword", "spm-test.txt", "--like", f"spm-{kind}-data").split("\n")[:-1]
        pieces = sentencepiece.SentencePieceProcessor(f"spm-{kind}.model")
        # <unk> for a piece that is unknown
        theirs = [" ".join(map(pieces.id_to_piece, pieces.encode(line))) for line in lines]
        def score(line):
            return sum(pieces.get_score(pieces.piece_to_id(piece)) for piece in line.split())
        same = sum(a == b for a, b in zip(ours, theirs))
        # The sums of scores are rounded differently: of two segmentations with the same score, one or the
        # other is the best.
        ties = sum(a != b and abs(score(a) - score(b)) < 1e-4 for a, b in zip(ours, theirs))
        check(f"SentencePiece, {kind}", len(ours) == same + ties == len(lines) and ties <= 2,
              f"{same} of {len(lines)} lines have the same pieces, {ties} other ones with the same score")


def check_saved_lm(folder, model):
    """The nll of random tokens, of a language model with random weights that transformers saves."""
    size = model.config.vocab_size
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):  # transformers initializes biases with 0
                parameter.normal_()
    model.eval().save_pretrained(folder)
    with open(f"{folder}/vocab.json", "w") as file:
        json.dump({f"w{i}" if i < size - 1 else "<|endoftext|>": i for i in range(size)}, file)
    norma("convert", folder, "--from", "huggingface", "-o", f"{folder}.safetensors")
    ids = random.choices([i for i in range(size - 1) if i != model.config.bos_token_id], k=50)
    with open("tokens.txt", "w") as file:
        file.write(" ".join(f"w{i}" for i in ids) + "\n")
    with torch.no_grad():
        theirs = torch.log_softmax(model(torch.tensor([[model.config.bos_token_id] + ids])).logits[0], -1)
    expected = -sum(float(theirs[i, t]) for i, t in enumerate(ids + [size - 1])) / (len(ids) + 1)
    check_nll(f"{type(model).__name__} to Norma", f"{folder}.safetensors", expected)
    norma("convert", f"{folder}.safetensors", "--to", "huggingface", "-o", f"{folder}-again")
    check_folder(f"{type(model).__name__} to Norma and back", f"{folder}-again", size, expected)
    return expected


def check_folder(name, folder, size, expected):
    """The nll of tokens.txt by the model of a folder whose vocabulary has `size` tokens, those of the
    original one."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with open(f"{folder}/tokenizer.json") as file:
        vocab = json.load(file)["model"]["vocab"]
    with open("tokens.txt") as file:
        ids = [vocab[word] for word in file.read().split()]
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([[model.config.bos_token_id] + ids])).logits[0], -1)
    nll = -sum(float(scores[i, t]) for i, t in enumerate(ids + [model.config.eos_token_id])) / (len(ids) + 1)
    check(name, model.config.vocab_size == len(vocab) == size
          and math.isclose(nll, expected, abs_tol=TOLERANCE),
          f"{model.config.vocab_size} tokens, nll {nll:.6f} and {expected:.6f}")


def check_nll(name, model, expected):
    words = norma("perplexity", model, "tokens.txt").split()
    ours = float(words[words.index("nll") + 1])
    check(name, math.isclose(ours, expected, abs_tol=TOLERANCE), f"nll {ours} and {expected:.6f}")


def check_saved_lms():
    size = 300
    ends = {"vocab_size": size, "eos_token_id": size - 1, "bos_token_id": size - 1, "initializer_range": 0.2}
    sizes = {**ends, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": None}
    check_saved_lm("hf-llama", LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2,
                                                            tie_word_embeddings=True)))
    scaled = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    check_saved_lm("hf-llama3", LlamaForCausalLM(LlamaConfig(**{**sizes, "bos_token_id": 7},
                                                             attention_bias=True, rope_parameters=scaled)))
    check_saved_lm("hf-linear", LlamaForCausalLM(LlamaConfig(**sizes, mlp_bias=True, rope_parameters={
        "rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0})))
    check_saved_lm("hf-qwen2", Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=1)))
    check_saved_lm(
        "hf-mistral", MistralForCausalLM(MistralConfig(**sizes, num_key_value_heads=2, sliding_window=5))
    )
    check_saved_lm(
        "hf-gemma3",
        Gemma3ForCausalLM(
            Gemma3TextConfig(
                **sizes,
                num_key_value_heads=2,
                head_dim=10,
                query_pre_attn_scalar=10,
                sliding_window=4,
                sliding_window_pattern=2,
            )
        ),
    )
    check_saved_lm("hf-qwen3", Qwen3ForCausalLM(Qwen3Config(**sizes, num_key_value_heads=2, head_dim=10)))
    check_saved_lm("hf-olmo2", Olmo2ForCausalLM(Olmo2Config(**sizes, rms_norm_eps=1e-3)))
    check_tuned("hf-olmo2")
    expected = check_saved_lm(
        "gpt2", GPT2LMHeadModel(GPT2Config(**ends, n_positions=64, n_embd=48, n_layer=2, n_head=4))
    )
    check_tuned("gpt2")
    vocab = json.load(open("gpt2/vocab.json"))
    end = "<|endoftext|>"
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocab, unk_token=end)), eos_token=end,
                            bos_token=end,
                            unk_token=end).save_pretrained("gpt2")
    ctranslate2.converters.TransformersConverter("gpt2").convert("gpt2-ct2", force=True)
    norma("convert", "gpt2-ct2", "--from", "ctranslate2", "-o", "gpt2-ct2.safetensors")
    check_nll("GPT-2 of CTranslate2 to Norma", "gpt2-ct2.safetensors", expected)


def check_tuned(folder):
    """A model that transformers saved, trained further by Norma, in transformers."""
    words = " ".join(f"w{i}" for i in range(100, 160))
    with open("tune.txt", "w") as file:
        file.write(f"{words}\n" * 20)
    norma("prepare", "--like", f"{folder}.safetensors", "--train", "tune.txt", "--valid", "tokens.txt",
          "--output",
          f"{folder}-data")
    norma("train", "lm", "--tune", f"{folder}.safetensors", "--data.folder", f"{folder}-data", "--run.folder",
          f"{folder}-tuned",
          "--run.quiet", "--train.updates", "20", "--train.max_tokens", "256", "--schedule.lr", "1e-3")
    norma("convert", f"{folder}-tuned", "--to", "huggingface", "-o", f"{folder}-tuned-hf")
    words = norma("perplexity", f"{folder}-tuned", "tokens.txt").split()
    check_folder(f"{folder}, trained further", f"{folder}-tuned-hf", 300,
                 float(words[words.index("nll") + 1]))


def check_byte_level(rules, *settings):
    """Byte-level BPE: transformers splits text into the same tokens and restores it."""
    folder = f"bytes-{rules}"
    lines = ["The house, it's 12345!  Old  dog\t.", "don't WE'LL", "naïve café 你好 Привет 🙂",
             "½ ²³ x=y+1; @@ <unk>", "", " "]
    with open("bytes.txt", "w") as file:
        file.write("\n".join(lines) + "\n")
    norma("prepare", "--format", "text", "--train", "train.en,bytes.txt", "--valid", "valid.en", "--output",
          f"{folder}-data",
          "--tokenizer", "byte_level", "--pretokenizer", rules, "--bpe-merges", "80")
    norma("train", "lm.ini", "--data.folder", f"{folder}-data", "--run.folder", folder, "--run.quiet",
          "--train.updates", "2",
          *settings, "--model.context", "256")
    norma("convert", folder, "--to", "huggingface", "-o", f"{folder}-hf")
    tokenizer = AutoTokenizer.from_pretrained(f"{folder}-hf")
    ids = [tokenizer.encode(line, add_special_tokens=False) for line in lines]
    theirs = [" ".join(tokenizer.convert_ids_to_tokens(line)) for line in ids]
    ours = norma("subword", "bytes.txt", "--like", folder).split("\n")[:-1]
    same = sum(a == b for a, b in zip(ours, theirs))
    restored = sum(tokenizer.decode(line) == text for line, text in zip(ids, lines))
    check(f"byte-level BPE, {rules}", same == restored == len(ours) == len(lines),
          f"{same} of {len(lines)} lines have the same tokens, {restored} are restored")
    text = "\n\n".join(lines) + "\n  It ends\n\n\n here."
    for name in ("data.ini", "codes.bpe"):
        os.remove(f"{folder}-hf/{name}")
    check_document(folder, text)
    with open(f"{folder}-hf/tokenizer.json") as file:
        saved = json.load(file)
    saved["model"]["merges"] = [merge for i, merge in enumerate(saved["model"]["merges"]) if i % 4]
    saved["model"]["ignore_merges"] = True  # words in the vocabulary that these merges do not produce
    with open(f"{folder}-hf/tokenizer.json", "w") as file:
        json.dump(saved, file)
    check_document(folder, text)


def check_document(folder, text):
    """The tokens of a text of several lines and their log probabilities, with a model that is read from its
    folder."""
    tokenizer = AutoTokenizer.from_pretrained(f"{folder}-hf")
    norma("convert", f"{folder}-hf", "--from", "huggingface", "-o", f"{folder}-back.safetensors")
    with open("document.txt", "w") as file:
        file.write(text)
    end, ids = tokenizer.eos_token_id, tokenizer.encode(text, add_special_tokens=False)
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(f"{folder}-hf").eval()
        scores = torch.log_softmax(model(torch.tensor([[end, *ids]])).logits[0], -1)
    theirs = [float(scores[i, t]) for i, t in enumerate([*ids, end])]
    ours = json.loads(norma("perplexity", f"{folder}-back.safetensors", "document.txt", "--tokens"))
    largest = max(abs(a - b) for a, b in zip(ours["log_probs"], theirs))
    check(f"document, {folder}", ours["text"] == text and ours["tokens"]
          == tokenizer.convert_ids_to_tokens([*ids, end])
          and largest < TOLERANCE,
          f"{len(theirs)} tokens, largest difference of the log probabilities {largest:.1e}")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    os.makedirs(sys.argv[2], exist_ok=True)
    os.chdir(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    write_corpus()
    subwords = norma("subword", "valid.de", "--like", "data").splitlines()
    MODELS = {"layer": [], "post": ["--model.norm_position", "post"], "gelu": ["--model.activation", "gelu"],
              "scale": ["--model.norm", "scale"], "rms": ["--model.norm", "rms"],
              "rbn": ["--model.encoder_norm", "rbn"],
              "batch": ["--model.norm", "batch", "--model.decoder_norm", "batch", "--model.norm_position",
                        "post"]}
    for run, settings in MODELS.items():
        train(run, *settings)
        check_ctranslate2(run, subwords)
        if run in ("layer", "post", "gelu"):
            check_transformers(run, subwords)
    check_sentencepiece()
    check_marian()
    check_pymarian()
    check_saved_lms()
    norma("prepare", "--format", "text", "--train", "train.en", "--valid", "valid.en", "--output", "lm-data",
          "--tokenizer",
          "none", "--bpe-merges", "10", "--special-ids", "fairseq")
    with open("lm.ini", "w") as file:
        file.write(
            "[run]\ntask = lm\n[data]\nfolder = lm-data\n[model]\npreset = tiny\ncontext = "
            "64\n[train]\nupdates = 60\n"
            "max_tokens = 800\n"
        )
    for lm, settings in {"layer": [], "rms": ["--model.norm", "rms", "--model.positions", "learned"],
                         "post": ["--model.norm", "scale", "--model.norm_position", "post"]}.items():
        check_lm(lm, *settings)
    SIZES = ["--model.width", "48", "--model.ff", "80", "--model.heads", "4", "--model.context", "64"]
    for lm, settings in {"gpt2": ["--model.preset", "gpt2"],
                         "llama": ["--model.preset", "llama", "--model.key_value_heads", "2",
                                   "--model.head_width", "10"],
                         "llama-bias": ["--model.preset", "llama", "--model.bias", "true", "--model.norm",
                                        "scale",
                                        "--model.activation", "gelu", "--model.share_embeddings", "true"],
                         "qwen3": ["--model.preset", "qwen3", "--model.key_value_heads", "1"],
                         "mistral": ["--model.preset", "llama", "--model.window", "5"],
                         "gemma3": ["--model.preset", "gemma3", "--model.window", "4", "--model.global_every",
                                    "2",
                                    "--model.local_rope_base", "100", "--model.key_value_heads", "2"],
                         "olmo2": ["--model.preset", "olmo2", "--model.key_value_heads", "2"],
                         "llama3": ["--model.preset", "llama", "--model.rope_scaling", "llama3",
                                    "--model.rope_original", "32",
                                    "--model.first_input", "bos"],
                         "linear": ["--model.preset", "llama", "--model.rope_scaling", "linear",
                                    "--model.rope_factor", "3"]}.items():
        check_lm_transformers(lm, *settings, *SIZES)
    check_wide_models(subwords)
    for rules, preset in {"gpt2": "gpt2", "llama3": "llama", "qwen2": "qwen3", "smollm": "llama"}.items():
        check_byte_level(rules, "--model.preset", preset, *SIZES)
    sys.exit(failures > 0)
