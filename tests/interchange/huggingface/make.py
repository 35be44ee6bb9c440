#!/usr/bin/env python3
"""Writes the models of this folder: one folder per class of transformers, and the log probabilities of the
tokens of text.txt; and `pieces`, a model with a SentencePiece tokenizer, and the log probabilities of each
line of pieces/text.txt, then of the whole file as one text, without and with its last newline.

    make.py FOLDER
"""
import json
import os
import sys

import sentencepiece
import torch
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

SIZE = 12  # of the vocabulary
END = SIZE - 1
TEXT = [5, 2, 7, 7, 0, 9, 3, 10, 1, 4, 8, 6]
COMMON = {"vocab_size": SIZE, "bos_token_id": END, "eos_token_id": END, "pad_token_id": None,
          "initializer_range": 0.4, "hidden_size": 8, "intermediate_size": 10, "num_hidden_layers": 2,
          "num_attention_heads": 4, "max_position_embeddings": 16}
MODELS = {
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON, num_key_value_heads=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
        ),
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=6)),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(**COMMON, num_key_value_heads=2, rms_norm_eps=1e-3)),
    # Biases of some layers only; scaled rotary position embeddings, and texts that begin with another token
    # than their end.
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**COMMON, num_key_value_heads=2)),
    "llama3": (
        LlamaForCausalLM,
        LlamaConfig(
            **{**COMMON, "vocab_size": SIZE + 1, "bos_token_id": SIZE},
            num_key_value_heads=2,
            head_dim=6,
            attention_bias=True,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 50.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 12,
            },
        ),
    ),
    # Windows that are shorter than the text, in all layers, or in all but every third.
    "mistral": (MistralForCausalLM, MistralConfig(**COMMON, num_key_value_heads=2, sliding_window=4)),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **{**COMMON, "num_hidden_layers": 4},
            num_key_value_heads=2,
            head_dim=6,
            query_pre_attn_scalar=6,
            sliding_window=3,
            sliding_window_pattern=3,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 60.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 7.0},
            },
        ),
    ),
}


# Words of the training text, repeated spaces, other scripts, a tab, an empty line.
LINES = ["the cat sat on the mat", "  two   spaces", "", "", "\u65e5\u672c \U0001f642 caf\u00e9", "the\tcat",
         "", "dogs"]


def make_pieces(folder):
    os.makedirs(folder, exist_ok=True)
    text = iter(["the cat sat on the mat, and the dog ran after the cat"] * 9
                + ["two cats met three dogs at noon"] * 7)
    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=text, model_writer=file, vocab_size=300,
                                                 model_type="bpe", byte_fallback=True,
                                                 remove_extra_whitespaces=False,
                                                 user_defined_symbols=["\t", "\n\n"],
                                                 normalization_rule_name="identity", minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    config = LlamaConfig(**{**COMMON, "vocab_size": 302, "bos_token_id": 1, "eos_token_id": 2,
                            "max_position_embeddings": 128})
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(LINES) + "\n")
    with open(os.path.join(folder, "scores"), "w", encoding="ascii") as file:
        for text in [*LINES, "\n".join(LINES), "\n".join(LINES) + "\n"]:
            ids = [1, *pieces.encode(text), 2]
            with torch.no_grad():
                scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
            file.write(f"{float(sum(scores[i, ids[i + 1]] for i in range(len(ids) - 1))):.5f}\n")


def main():
    torch.manual_seed(1)
    for name, (kind, config) in MODELS.items():
        folder = os.path.join(sys.argv[1], name)
        model = kind(config).eval()
        with torch.no_grad():
            for tensor in model.parameters():  # gains other than 1, biases other than 0
                if tensor.dim() == 1:
                    tensor.add_(0.3 * torch.randn_like(tensor))
            scores = torch.log_softmax(model(torch.tensor([[config.bos_token_id, *TEXT]])).logits[0].double(),
                                       -1)
        # in several files
        model.save_pretrained(folder, max_shard_size="2KB" if name == "mistral" else "1GB")
        os.remove(os.path.join(folder, "generation_config.json"))
        with open(os.path.join(folder, "vocab.json"), "w", encoding="ascii") as file:
            json.dump({f"w{i}" if i != END else "<end>": i for i in range(config.vocab_size)}, file)
        with open(os.path.join(folder, "scores"), "w", encoding="ascii") as file:
            file.writelines(f"{float(scores[i, t]):.6f}\n" for i, t in enumerate([*TEXT, END]))
    make_pieces(os.path.join(sys.argv[1], "pieces"))
    with open(os.path.join(sys.argv[1], "text.txt"), "w", encoding="ascii") as file:
        file.write(" ".join(f"w{i}" for i in TEXT) + "\n")


if __name__ == "__main__":
    main()
