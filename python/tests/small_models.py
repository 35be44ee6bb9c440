"""A small data folder and model of translation, and the program."""
import random
import subprocess

from norma._runs import program_path

SENTENCES = {"haus": "house", "baum": "tree", "hund": "dog", "katze": "cat", "rot": "red", "blau": "blue",
             "grün": "green", "läuft": "runs", "springt": "jumps", "singt": "sings"}
RECIPE = """[data]
folder = {folder}/data
max_length = 60
[model]
width = 16
ff = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
max_positions = 64
norm = power
[train]
updates = 12
max_tokens = 200
log_every = 4
validate_every = 6
score = false
[decode]
beam = 3
max_length_b = 8
[device]
threads = 1
"""


def norma_program(*words, **options):
    return subprocess.run([program_path(), *map(str, words)], capture_output=True, check=True,
                          encoding="utf-8", **options)


def write_pairs(folder, name, n, seed):
    rng = random.Random(seed)
    words = [rng.choices(sorted(SENTENCES), k=2 + i % 4) for i in range(n)]
    (folder / f"{name}.de").write_text("".join(" ".join(line) + " .\n" for line in words), encoding="utf-8")
    (folder / f"{name}.en").write_text("".join(" ".join(map(SENTENCES.get, line)) + " .\n" for line in words),
                                       encoding="utf-8")
