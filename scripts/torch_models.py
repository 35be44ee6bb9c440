#!/usr/bin/env python3
"""What replace_norms does to models of transformers, as the table of docs/torch.md.

    PYTHONPATH=python NORMA_LIBRARY=build/python/libnorma.so scripts/torch_models.py --write | --check

The models are the small ones of python/tests/test_transformers.py, from their configuration. --check: the
errors are at most four times those of the page, and the rest is equal.
"""
import collections
import copy
import pathlib
import re
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import torch  # noqa: E402
from transformers import Trainer, TrainingArguments  # noqa: E402

import norma.torch as nt  # noqa: E402
from norma.torch import _models  # noqa: E402
from test_transformers import NAMES, RMS_MODELS, loss_of, model_of, replaced  # noqa: E402

PAGE = ROOT / "docs" / "torch.md"
MARKS = ("<!-- scripts/torch_models.py -->\n", "<!-- end of the models -->\n")
HEAD = "model", "norms", "same norm", "masked", "decay", "files", "loss, 20 updates"


def difference(a, b):
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))


def same_norm(model, inputs, name):
    """The largest relative difference of the loss and its gradients with the same formula."""
    new = copy.deepcopy(model)
    replaced(new, "rms" if name in RMS_MODELS else "layer")
    a, b = loss_of(new, inputs), loss_of(model, inputs)
    a.backward(), b.backward()
    return max([difference(a.detach(), b.detach()), *(
        difference(one.grad, other.grad) for one, other in zip(new.parameters(), model.parameters())
        if other.grad is not None)])


def groups(model, folder):
    """Names of the parameters in each group of the Trainer's optimizer, and its weight decay."""
    trainer = Trainer(model, TrainingArguments(folder, weight_decay=0.1, report_to=[], use_cpu=True))
    names = {id(param): name for name, param in model.named_parameters()}
    return [(group["weight_decay"], sorted(names[id(param)] for param in group["params"]))
            for group in trainer.create_optimizer().param_groups]


def masked(model, inputs):
    """Number of norms of the call that use the padding mask."""
    used = set()
    for norm in _models.norms_of(model):
        find = norm._mask_for

        def seen(x, mask, norm=norm, find=find):
            found = find(x, mask)
            if found is not None:
                used.add(norm)
            return found
        norm._mask_for = seen
    loss_of(model, inputs)
    for norm in _models.norms_of(model):
        del norm._mask_for
    return len(used)


def row(name, folder):
    model, inputs, _ = model_of(name)
    classes = collections.Counter(type(module).__name__ for module in model.modules()
                                  if nt._replace.is_chosen(module, None))
    error, before = same_norm(model, inputs, name), groups(model, folder)
    new, _, _ = model_of(name)
    count = len(replaced(new, "rbn"))
    after = groups(new, folder)
    known = {key for _, names in before for key in names}
    added = [(decay, key) for decay, names in after for key in names if key not in known]
    equal = [(decay, [key for key in names if key in known]) for decay, names in after] == before
    decay = ("equal" if equal else "differs") + (f", {len(added)} new" if added else "")
    if any(decay for decay, _ in added):
        decay += " decayed"
    new.train()
    with_mask = masked(new, inputs) if "attention_mask" in inputs else None
    optimizer, losses = torch.optim.Adam(new.parameters(), lr=3e-3), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_of(new, inputs)
        (loss + 1e-3 * nt.penalty(new)).backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    new.eval().save_pretrained(folder)
    loaded = nt.from_pretrained(type(new), folder).state_dict()
    kept = all(torch.equal(one, loaded[key]) for key, one in new.state_dict().items())
    return [name.replace("Text", ""), ", ".join(f"{n} {kind}" for kind, n in sorted(classes.items())),
            f"{error:.0e}".replace("e-0", "e-"), "-" if with_mask is None else f"{with_mask} of {count}",
            decay, "equal" if kept else "differ", f"{losses[0]:.2f}, {losses[-1]:.2f}"]


def text(rows):
    return "".join(f"| {' | '.join(one)} |\n" for one in (HEAD, ["---"] * len(HEAD), *rows))


def worse(rows, page):
    """Lines on cells that are not those of the page. Losses depend on the version of PyTorch."""
    if [len(one) for one in rows] != [len(one) for one in page]:
        return ["other rows than on the page"]
    return [f"{new[0]}, {HEAD[i]}: {new[i]} instead of {old[i]}" for new, old in zip(rows, page)
            for i in range(len(HEAD) - 1)
            if (float(new[i]) > 4 * float(old[i]) if i == 2 else new[i] != old[i])]


def main(words):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(name, folder))
    page = PAGE.read_text()
    if words == ["--write"]:
        PAGE.write_text(page.split(MARKS[0])[0] + MARKS[0] + text(rows) + MARKS[1] + page.split(MARKS[1])[1])
        return 0
    print(text(rows), end="")
    lines = re.search("(.*)".join(MARKS), page, re.DOTALL)[1].strip().splitlines()[2:]
    found = worse(rows, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines])
    if words == ["--check"]:
        print(*found, sep="\n", file=sys.stderr)
    return 1 if words == ["--check"] and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
