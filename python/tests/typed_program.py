"""A program of a user, which make test-python-latest checks with mypy --strict. It is not run."""
from pathlib import Path
from typing import Iterator, List, Optional

from torch import Tensor, nn

import norma
import norma.torch


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
    run = norma.train("lm", Path("run"), {"train.updates": 3}, callbacks=norma.Callbacks(progress=show))
    interval = norma.score("bleu", translate(run, Path("text")), names).interval()
    print(interval.low if interval else None, norma.Norm("power", 8, groups=2).params["weight"].shape)
