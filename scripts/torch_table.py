#!/usr/bin/env python3
"""The largest errors of norma.torch by norm and way of computing, as the table of python/tests/accuracy.md.

    PYTHONPATH=python NORMA_LIBRARY=build/python/libnorma.so scripts/torch_table.py --write | --check

Reference: the module in float64, which the column float64 compares with the reference kernels of the library.
Errors are relative to the largest value. Three training steps, then inference, 33 tokens of 12 features, y
and dx; vmap, export and ONNX: y of inference. Two processes: 33 and 14 tokens, y, dx and the gradients of the
parameters. Forward mode: the derivative along x of inference. The second derivative is that of inference for
the norms whose backward pass is not the gradient. --check: no figure is larger than four times that of the
page. Needs PyTorch 2.15 and onnxruntime; about two minutes.
"""
import copy
import io
import pathlib
import re
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import norma
import norma.torch as nt

PAGE = pathlib.Path(__file__).resolve().parents[1] / "python" / "tests" / "accuracy.md"
MARKS = "<!-- scripts/torch_table.py -->\n", "<!-- end of the table -->\n"
NAMES = [name for name in norma.norm_types() if name != "none"]
# by default, Partial RMSNorm divides by a single one of 12 features, which may be near 0
SMOOTH = {"prms": {"fraction": 0.5}}
WIDTH, TOKENS = 12, (33, 14)


def made(name, **more):
    norm = nt.Norm(name, WIDTH, groups=3, **SMOOTH.get(name, {}), **more)
    with torch.no_grad():
        for param in norm.parameters():
            param.add_(torch.linspace(0.1, 0.4, param.numel(), dtype=param.dtype).reshape(param.shape))
    return norm


def random(*shape, seed=1, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def error(a, b):
    a, b = a.detach().double(), b.detach().double()
    if not torch.isfinite(a).all():
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3))


def of_steps(norm, dtype=torch.float32, call=None):
    """The largest error of y and dx."""
    worst, call, exact = 0.0, norm if call is None else call, copy.deepcopy(norm).double()
    for i in range(4):
        norm.train(i < 3), exact.train(i < 3)
        x = ((1 + i) * random(TOKENS[0], WIDTH, seed=i)).to(dtype)
        a, b = x.clone().requires_grad_(), x.double().requires_grad_()
        y, z = call(a), exact(b)
        y.float().sin().sum().backward(), z.sin().sum().backward()
        worst = max(worst, error(y, z), error(a.grad, b.grad))
    return worst


def kernel(name):
    return of_steps(made(name))


def plain(name):
    norm = made(name)
    norm.kernel = False
    return of_steps(norm)


def bf16(name):
    return of_steps(made(name), torch.bfloat16)


def fp16(name):
    return of_steps(made(name), torch.float16)


def float64(name):
    """Against the reference kernels of the library."""
    norm = made(name, dtype=torch.float64)
    layer = norma.Norm(name, WIDTH, groups=3, dtype="float64", **SMOOTH.get(name, {}))
    for key, param in norm.named_parameters():
        layer.params[key][:] = param.detach().numpy().reshape(-1)
    worst = 0.0
    for i in range(3):
        x = random(TOKENS[0], WIDTH, seed=i, dtype=torch.float64).requires_grad_()
        dy = random(TOKENS[0], WIDTH, seed=9 + i, dtype=torch.float64)
        y = norm(x)
        worst = max(worst, error(y, torch.from_numpy(layer.forward(x.detach().numpy()))))
        (y * dy).sum().backward()
        worst = max(worst, error(x.grad, torch.from_numpy(layer.backward(dy.numpy(), 0.0))))
    return worst


def compiled(name):
    """The formulas, compiled by the default backend."""
    norm = made(name)
    norm.kernel = False
    torch._dynamo.reset()
    return of_steps(norm, call=torch.compile(norm, fullgraph=True))


def trained(name):
    """A module in evaluation mode after a training step, and the same in float64."""
    norm = made(name)
    norm(random(TOKENS[0], WIDTH, seed=5)), norm.eval()
    return norm, copy.deepcopy(norm).double()


def vmap(name):
    norm, exact = trained(name)
    x = random(5, 7, WIDTH)
    return error(torch.func.vmap(norm)(x), exact(x.double()))


def forward_mode(name):
    """Against the product of the Jacobian of reverse mode in float64; None: the backward pass of AdaNorm is
    not the derivative."""
    norm, exact = trained(name)
    if name == "ada":
        return None
    x, v = random(1, WIDTH), random(1, WIDTH, seed=2)
    _, tangent = torch.func.jvp(lambda x: norm(x), (x,), (v,))
    jacobian = torch.autograd.functional.jacobian(lambda x: exact(x).reshape(-1), x.double().reshape(-1))
    return error(tangent.reshape(-1), jacobian @ v.double().reshape(-1))


def second(name):
    norm = made(name)
    norm.train(not norm.type.approximate_gradient)
    x, found = random(9, WIDTH), []
    for module in (norm, copy.deepcopy(norm).double()):
        at = x.to(next(module.parameters(), x).dtype if module is norm else torch.float64).requires_grad_()
        (first,) = torch.autograd.grad(module(at).sin().sum(), at, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), at)[0])
    return error(*found)


class All(torch.nn.Module):
    """All norms side by side, for one export."""

    def __init__(self, norms):
        super().__init__()
        self.norms = torch.nn.ModuleList(norms)

    def forward(self, x):
        return tuple(norm(x) for norm in self.norms)


def exports():
    """Errors of an exported program, and of ONNX run by onnxruntime."""
    import onnxruntime
    pairs, x = [trained(name) for name in NAMES], random(5, 7, WIDTH)
    model = All([norm for norm, _ in pairs]).eval()
    expected = [exact(x.double()) for _, exact in pairs]
    program = torch.export.export(model, (x,))
    assert "norma" not in str(program.graph)
    outputs = [program.module()(x)]
    with tempfile.TemporaryDirectory() as folder:
        torch.onnx.export(model, (x,), folder + "/n.onnx", dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(folder + "/n.onnx", providers=["CPUExecutionProvider"])
        outputs.append([torch.from_numpy(y) for y in session.run(None, {session.get_inputs()[0].name:
                                                                        x.numpy()})])
    return [{name: error(y, z) for name, y, z in zip(NAMES, some, expected)} for some in outputs]


def rank(index, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=index, world_size=2)
    torch.save([{name: of_processes(name, statistics, index) for name in NAMES}
                for statistics in ("process", "group")], f"{folder}/{index}.pt")
    dist.destroy_process_group()


def of_processes(name, statistics, index):
    """DistributedDataParallel in two processes with unequal numbers of tokens, in float64, against one
    process: for statistics of the process each batch by a module, otherwise the joined batch."""
    norm = made(name, dtype=torch.float64, statistics=statistics)
    parallel = norm if not any(param.requires_grad for param in norm.parameters()) else \
        torch.nn.parallel.DistributedDataParallel(norm, broadcast_buffers=False)
    alone = [made(name, dtype=torch.float64) for _ in range(2 if statistics == "process" else 1)]
    worst = 0.0
    for i in range(3):
        xs = [random(n, WIDTH, seed=10 * i + n, dtype=torch.float64) for n in TOKENS]
        mine = xs[index].clone().requires_grad_()
        norm.zero_grad(), [one.zero_grad() for one in alone]
        y = parallel(mine)
        y.sin().sum().backward()
        if statistics == "process":
            inputs = [x.clone().requires_grad_() for x in xs]
            outputs = [one(x) for one, x in zip(alone, inputs)]
            dx, z = inputs[index], outputs[index]
        else:
            joined = torch.cat(xs).requires_grad_()
            outputs, dx = [alone[0](joined)], joined
            z = outputs[0].split(TOKENS)[index]
        sum(one.sin().sum() for one in outputs).backward()
        dx = dx.grad if statistics == "process" else dx.grad.split(TOKENS)[index]
        worst = max(worst, error(y, z), error(mine.grad, dx))
        for params in zip(norm.parameters(), *(one.parameters() for one in alone)):
            if params[0].requires_grad:  # DistributedDataParallel averages over processes
                worst = max(worst, error(2 * params[0].grad, sum(one.grad for one in params[1:])))
    return worst


def processes():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank, (folder,), nprocs=2)
        both = [torch.load(f"{folder}/{index}.pt") for index in range(2)]
    return [{name: max(one[i][name] for one in both) for name in NAMES} for i in range(2)]


WAYS = {"kernel": kernel, "plain": plain, "bf16": bf16, "fp16": fp16, "float64": float64,
        "compile": compiled, "vmap": vmap, "forward mode": forward_mode, "second derivative": second}


def table():
    """Rows of the table, by norm and column; None: not defined."""
    columns = {way: {name: find(name) for name in NAMES} for way, find in WAYS.items()}
    columns["export"], columns["ONNX"] = exports()
    columns["process"], columns["group"] = processes()
    return {name: {way: columns[way][name] for way in columns} for name in NAMES}


def text(rows):
    ways, out = list(next(iter(rows.values()))), io.StringIO()
    print("| norm | " + " | ".join(ways) + " |\n|---|" + "--:|" * len(ways), file=out)
    for name, row in rows.items():
        cells = ("-" if value is None else "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")
                 for value in row.values())
        print(f"| {name} | " + " | ".join(cells) + " |", file=out)
    return out.getvalue()


def read(page):
    """The rows of the page, as ``table``."""
    lines = re.search("(.*)".join(map(re.escape, MARKS)), page, re.DOTALL)[1].strip().splitlines()
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: {way: None if cell == "-" else float(cell) for way, cell in zip(split[0][1:], cells)}
            for name, *cells in split[2:]}


def worse(rows, page):
    """Lines on figures that are not those of the page; of rounding errors, four times is the same."""
    if [(name, list(row)) for name, row in rows.items()] != [(name, list(row)) for name, row in page.items()]:
        return ["other rows or columns than on the page"]
    return [f"{name}, {way}: {value} instead of {page[name][way]}" for name, row in rows.items()
            for way, value in row.items()
            if (value is None) != (page[name][way] is None)
            or value is not None and not value <= max(4 * page[name][way], 1e-15)]


def main(words):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    rows = table()
    if words == ["--write"]:
        before, after = PAGE.read_text().split(MARKS[0])[0], PAGE.read_text().split(MARKS[1])[1]
        PAGE.write_text(before + MARKS[0] + text(rows) + MARKS[1] + after)
        return 0
    print(text(rows), end="")
    found = worse(rows, read(PAGE.read_text())) if words == ["--check"] else []
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
