"""Image classification: results are those of the program."""
import json
import random
import struct
import threading
import zlib

import pytest

import norma
from small_models import norma_program

CLASSES = ("blue", "green", "red")
RECIPE = """[run]
task = image
[data]
train = {folder}/train
valid = {folder}/valid
size = 16
batch = 6
crop = 1
[model]
preset = tiny
norm = batch
[train]
epochs = 4
[optim]
name = sgd
[schedule]
name = constant
lr = 0.1
warmup = 0
[device]
threads = 1
"""


def png(width, height, pixel):
    """A PNG file; pixel(x, y): red, green, blue."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in pixel(x, y)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Folders train/ and valid/ of images in which one color is brighter, of several sizes, and run/."""
    folder = tmp_path_factory.mktemp("images")
    rng = random.Random(1)
    for split, n in (("train", 30), ("valid", 12)):
        for i in range(n):
            bright = {"red": 0, "green": 1, "blue": 2}[CLASSES[i % 3]]

            def pixel(x, y):
                return [rng.randrange(100) + (120 if c == bright and x < 20 else 0) for c in range(3)]

            path = folder / split / CLASSES[i % 3] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(24 + i % 4 * 5, 20 + i % 3 * 7, pixel))
    norma.train(RECIPE.format(folder=folder), folder / "run")
    return folder


def files(folder):
    return sorted((folder / "valid").glob("*/*.png"))


def test_labels_are_those_of_the_program(images):
    paths = files(images)
    program = norma_program("classify", images / "run", *paths, "--probabilities", "--json").stdout
    expected = [json.loads(line) for line in program.splitlines()]
    classifier = norma.ImageClassifier(images / "run")
    assert classifier.labels == list(CLASSES)
    found = classifier.classify(paths)
    assert [one.label for one in found] == [one["label"] for one in expected]
    assert [one.probabilities for one in found] == [one["probabilities"] for one in expected]
    assert all(abs(sum(one.probabilities.values()) - 1) < 1e-9 for one in found)
    right = sum(one.label == path.parent.name for one, path in zip(found, paths))
    assert right > len(paths) / 2  # of classes that differ clearly
    assert classifier.classify([]) == []
    assert classifier.classify([str(paths[3])]) == [found[3]]  # independent of the other images


def test_model_is_loaded_by_its_task(images):
    model = norma.load(images / "run")
    assert isinstance(model, norma.ImageClassifier)
    with pytest.raises(norma.UnsupportedError):
        norma.Classifier(images / "run")


def test_threads_share_a_classifier(images):
    classifier, paths = norma.ImageClassifier(images / "run"), files(images)
    expected, found = classifier.classify(paths), [None] * 3
    threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, classifier.classify(paths)))
               for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 3


def test_files_that_are_no_images(images, tmp_path):
    classifier, path = norma.ImageClassifier(images / "run"), files(images)[0]
    damaged = tmp_path / "dämaged.png"
    damaged.write_bytes(path.read_bytes()[:200])
    with pytest.raises(norma.FormatError, match="dämaged.png"):
        classifier.classify([path, damaged])
    (tmp_path / "text.jpg").write_text("text")
    with pytest.raises(norma.FormatError, match="neither a JPEG nor a PNG image"):
        classifier.classify([tmp_path / "text.jpg"])
    with pytest.raises(norma.FileError, match="absent.png"):
        classifier.classify([tmp_path / "absent.png"])
