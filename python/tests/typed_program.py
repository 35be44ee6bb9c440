"""A program of a user, which make test-python-latest checks with mypy --strict. It is not run."""
from pathlib import Path
from typing import Iterator, List, Optional

from torch import Tensor, nn

import norma
import norma.torch
from norma.options import TrainOptions


class Encoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = norma.torch.PowerNorm(width, groups=4, warmup=10)
        self.second: nn.Module = norma.torch.Norm("rbn", width)

    def forward(self, x: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
        y: Tensor = self.first(x, padding_mask)
        self.first.reset_parameters()
        return y + norma.torch.penalty(self)


def lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def show(progress: norma.Progress) -> None:
    loss: float = progress.loss
    print(progress.update, loss)


def translate(run: norma.Run, path: Path) -> List[str]:
    with norma.Translator([run, path], beam=4) as translator:
        one: str = translator.translate("a")
        many: List[str] = translator.translate(lines(path))
        source: Optional[int] = translator.run(many)[0][0].words[0].source
        print(source)
        return [one, *many, *translator.stream(lines(path))]


def main() -> None:
    names: List[str] = norma.torch.replace_norms(Encoder(8), "layer")
    settings: TrainOptions = {"train.updates": 3, "model.norm_position": "post", "data.folder": Path("data")}
    run = norma.train("lm", Path("run"), settings, callbacks=norma.Callbacks(progress=show))
    interval = norma.score("bleu", translate(run, Path("text")), names).interval()
    found = norma.compare("lm", "runs", ["layer"], {"margin": 0.5, "grid": ["train.seed=1,2"]})
    print(found.table, norma.study("text", "study", budget="1h", seeds=3).winner.best["loss"])
    print(interval.low if interval else None, norma.Norm("power", 8, groups=2).params["weight"].shape)
