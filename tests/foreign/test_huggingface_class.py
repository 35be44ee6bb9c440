"""The line about transformers at the start of a run, and what norma convert makes of the run's model."""
import json
import re
import subprocess

import pytest

from test_matrix import DEVICE, RECIPES, SOURCE, norma, of_columns, of_table, succeeds, top  # noqa: F401

SMALL = ["--model.width", "16", "--model.heads", "2", "--model.ff", "24", "--model.layers", "2"]
PAIRS = ["--model.preset", "tiny"]
# Recipe (none: a language model of defaults), data, options; the class, or a part of the reason why there is
# none.
RUNS = {
    "demo": ("demo", "pairs", PAIRS, "M2M100ForConditionalGeneration"),
    "translate": ("translate", "pairs", PAIRS, "BlenderbotForConditionalGeneration"),
    "post": ("demo", "pairs", [*PAIRS, "--model.norm_position", "post"], "MarianMTModel"),
    "fixed": ("demo", "pairs", [*PAIRS, "--model.output_bias", "true"], "BlenderbotForConditionalGeneration"),
    "two-tables": ("demo", "pairs", [*PAIRS, "--model.output_bias", "true", "--model.share_embeddings",
                                     "decoder"], "BlenderbotForConditionalGeneration"),
    "frozen": ("demo", "pairs", [*PAIRS, "--model.output_bias", "true", "--model.freeze", "output.bias"],
               "M2M100ForConditionalGeneration"),
    "batch": ("demo", "pairs", [*PAIRS, "--model.norm", "batch"], "enc.0.self.norm is batch"),
    "demo-lm": ("demo-lm", "text", PAIRS, "GPT2LMHeadModel"),
    "lm": ("lm", "text", PAIRS, "GPT2LMHeadModel"),
    "power": ("lm", "text", [*PAIRS, "--model.norm", "power"], "is power"),
    **{name: ("", "text", ["--model.preset", name, *SMALL], kind) for name, kind in [
        ("gpt2", "GPT2LMHeadModel"), ("llama", "LlamaForCausalLM"), ("olmo2", "Olmo2ForCausalLM"),
        ("qwen3", "Qwen3ForCausalLM"), ("gemma3", "Gemma3ForCausalLM")]},
    "qwen3-bias": ("", "text", ["--model.preset", "qwen3", *SMALL, "--model.bias", "true"],
                   "the class has biases of attention only"),
    "qwen3-frozen": ("", "text", ["--model.preset", "qwen3", *SMALL, "--model.bias", "true",
                                  "--model.freeze", "*.ffn.*.bias"], "Qwen3ForCausalLM"),
    "classify": ("classify", "labels", PAIRS, "a model of the task classification"),
    "tag": ("tag", "tags", PAIRS, "a model of the task tagging"),
    "demo-tag": ("demo-tag", "tags", PAIRS, "a model of the task tagging"),
    "image": ("image", "images", [], "a model of the task image"),
    "vit": ("vit", "images", [], "a model of the task image"),
}


def data_of(kind, top, tmp_path):  # noqa: F811
    if kind == "labels":
        return of_table(top / "labels.tsv", top)
    if kind == "tags":
        return of_columns(top / "tags.txt", top)
    if kind == "images":
        subprocess.run([str(SOURCE / "tests/support/make_images.py"), "48", "24"], cwd=tmp_path,
                       check=True)
        return ["--data.train", tmp_path / "png" / "train"]
    return ["--data.folder", top / kind]


@pytest.mark.parametrize("name", RUNS)
def test_class_of_a_run(top, tmp_path, name):  # noqa: F811
    recipe, kind, options, expected = RUNS[name]
    path = RECIPES / f"{recipe}.ini" if recipe else tmp_path / "lm.ini"
    (tmp_path / "lm.ini").write_text("[run]\ntask = lm\n")
    code, _, err = norma("train", path, *data_of(kind, top, tmp_path), *options,
                         "--train.updates", "3", "--train.score", "false", "--run.folder", tmp_path / "r",
                         *DEVICE)
    assert code == 0, err
    lines = re.findall(r"(?:class of the model in transformers|huggingface will refuse the model): (.*)", err)
    assert len(lines) == 1, err
    assert ("of transformers 5" in lines[0]) == (name == "two-tables")
    code, _, err = norma("convert", tmp_path / "r", "--to", "huggingface", "-o", tmp_path / "h")
    if code == 0:
        written = json.loads((tmp_path / "h" / "config.json").read_text())["architectures"][0]
        assert lines[0].split()[0] == written == expected
    else:
        assert code == 7 and err.strip().endswith(lines[0]) and expected in err


def test_a_resumed_run_is_silent(top, tmp_path):  # noqa: F811
    run = ["--run.folder", tmp_path / "r", *DEVICE]
    succeeds("train", RECIPES / "demo-lm.ini", "--data.folder", top / "text", *PAIRS, "--train.updates", "1",
             *run)
    assert "in transformers" not in norma("train", "--resume", "--train.updates", "2", *run)[2]


def test_keys_of_config_json(top, tmp_path):  # noqa: F811
    """Keys that a config.json lacks have the values of transformers (tests/interchange/defaults.py compares
    all), and quantized models are refused."""
    succeeds("train", RECIPES / "demo-lm.ini", "--data.folder", top / "text", *PAIRS, "--train.updates", "1",
             "--model.activation", "gelu-tanh", "--run.folder", tmp_path / "r", *DEVICE)
    succeeds("convert", tmp_path / "r", "--to", "huggingface", "-o", tmp_path / "h")
    config = json.loads((tmp_path / "h" / "config.json").read_text())

    def read(changed, code):
        (tmp_path / "h" / "config.json").write_text(json.dumps(changed))
        found, _, err = norma("convert", tmp_path / "h", "--from", "huggingface", "-o", tmp_path / "m")
        assert found == code, err
        return err if code else (tmp_path / "m").read_bytes()

    assert config["activation_function"] == "gelu_new"
    whole = read(config, 0)
    assert read({k: v for k, v in config.items() if k != "activation_function"}, 0) == whole
    assert "[1024 x" in read({k: v for k, v in config.items() if k != "n_positions"}, 5)
    assert read({**config, "quantization_config": None}, 0) == whole
    assert "quantization_config" in read({**config, "quantization_config": {"quant_method": "gptq"}}, 7)
