"""Keys that a config.json lacks: norma convert against the defaults of transformers' configuration classes.

    defaults.py NORMA FOLDER

Compares src/lab/convert/huggingface_defaults.c with the classes. Then reads each model of huggingface/, and
two that Norma writes in FOLDER, three times: as it is, without the keys that have the default, and with every
key that Norma reads and the file lacks. The results must be equal. Exit code 1: a difference.
"""
import inspect
import json
import pathlib
import re
import shutil
import subprocess
import sys

from transformers import CONFIG_MAPPING

HERE = pathlib.Path(__file__).resolve().parent
CONVERT = HERE.parent.parent / "src/lab/convert"
TYPES = ["gpt2", "marian", "m2m_100", "llama", "mistral", "qwen2", "qwen3", "olmo2", "gemma3_text"]
READER = "".join(path.read_text(encoding="utf-8") for path in CONVERT.glob("huggingface_re*.c"))
READ = set(re.findall(r'"([a-z][a-z_0-9]+)"', READER)) - {"is_encoder_decoder"}
failures = 0


def check(name, problems):
    global failures
    failures += bool(problems)
    print(f"{'FAILED' if problems else 'ok    '} {name} {problems or ''}", flush=True)


def class_defaults(kind):
    parameters = inspect.signature(CONFIG_MAPPING[kind].__init__).parameters.items()
    return {key: p.default for key, p in parameters if p.default not in (None, inspect.Parameter.empty)}


def table():
    """{type: {key: value}} of huggingface_defaults.c."""
    text = (CONVERT / "huggingface_defaults.c").read_text(encoding="utf-8")
    lists = dict(re.findall(r'#define (\w+) "([^"]+)"', text))
    rows = re.findall(r'\{("[^"]+"|[A-Z0-9]+), "(\w+)", (NULL|"\w+"), (\d+)\}', text)
    found = {kind: {} for kind in TYPES}
    for types, key, word, number in rows:
        for kind in lists.get(types, types).strip('"').split():
            found[kind][key] = int(number) if word == "NULL" else word.strip('"')
    return found


def norma(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def succeeds(*arguments):
    code, text = norma(*arguments)
    if code:
        sys.exit(f"norma {arguments[0]}: {text}")


def written_models(folder):
    """A GPT-2 and an M2M100 of random weights."""
    (folder / "t.aa").write_text("a b c\nb c\nc a\n", encoding="utf-8")
    shutil.copy(folder / "t.aa", folder / "t.bb")
    lm, pairs = folder / "lm", folder / "pairs"
    text, common = folder / "t.aa", ["--bpe-merges", "0", "--tokenizer", "none", "--output"]
    succeeds("prepare", "--format", "text", "--train", text, "--valid", text, *common, lm)
    succeeds("prepare", "--train", folder / "t", "--valid", folder / "t", "--source-lang", "aa",
             "--target-lang", "bb", *common, pairs)
    recipes = HERE.parent.parent / "recipes"
    for name, data, options in (("demo-lm", lm, ["--model.activation", "gelu-tanh"]), ("demo", pairs, [])):
        run, out = folder / f"run-{name}", folder / f"hf-{name}"
        succeeds("train", recipes / f"{name}.ini", "--data.folder", data, "--model.preset", "tiny",
                 "--train.updates", "1", "--train.score", "false", "--run.folder", run, *options)
        succeeds("convert", run, "--to", "huggingface", "-o", out)
        yield out


def convert(source, config, folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code, text = norma("convert", folder, "--from", "huggingface", "-o", folder / "model")
    return (folder / "model").read_bytes() if code == 0 else text


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for kind, rows in table().items():
        known = class_defaults(kind)
        check(f"table of {kind}, {len(rows)} keys", [
            f"{key} = {value}, transformers: {known.get(key)}" for key, value in rows.items()
            if value != known.get(key)])
    sources = [p.parent for p in sorted(HERE.glob("huggingface/*/config.json"))]
    for source in [*sources, *written_models(folder)]:
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        known = {key: value for key, value in class_defaults(config["model_type"]).items() if key in READ}
        less = {key: value for key, value in config.items() if key not in known or known[key] != value}
        more = {**{key: value for key, value in known.items() if key not in config}, **config}
        copy = folder / "copy"
        plain, short, long = (convert(source, each, copy) for each in (config, less, more))
        check(f"{source.name} ({config['model_type']}), without {len(config) - len(less)} keys, "
              f"with {len(more) - len(config)} more",
              [str(x)[:300] for x in (plain, short, long) if x != plain or isinstance(x, str)])
    sys.exit(failures > 0)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
    main(pathlib.Path(sys.argv[2]))
