#!/usr/bin/env python3
"""Prints the largest errors of norma.torch by norm and way of computing, as a Markdown table; reference:
float64.

    PYTHONPATH=python NORMA_LIBRARY=build/python/libnorma.so scripts/torch_table.py

Errors are relative to the largest value. Per norm: three training steps, then inference, 33 tokens of 12
features, y and dx.
"""
import copy
import sys
import tempfile

import torch

import norma
import norma.torch as nt

SMOOTH = {"prms": {"fraction": 0.5}}


def made(name):
    torch.manual_seed(3)
    norm = nt.Norm(name, 12, groups=3, **SMOOTH.get(name, {}))
    with torch.no_grad():
        for param in norm.parameters():
            param.add_(torch.linspace(0.1, 0.4, param.numel()).reshape(param.shape))
    return norm


def error(a, b):
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3))


def of_steps(norm, exact, dtype, call=None):
    """The largest error of y and dx."""
    worst, call = 0.0, norm if call is None else call
    for i in range(4):
        norm.train(i < 3), exact.train(i < 3)
        x = (torch.randn(33, 12) * (1 + i)).to(dtype)
        a, b = x.clone().requires_grad_(), x.double().requires_grad_()
        y, z = call(a), exact(b)
        y.float().sin().sum().backward() if dtype != torch.float64 else y.sin().sum().backward()
        z.sin().sum().backward()
        worst = max(worst, error(y, z), error(a.grad, b.grad))
    return worst


def column(name, way):
    norm = made(name)
    exact = copy.deepcopy(norm).double()
    x = torch.randn(5, 7, 12)
    if way in ("kernel", "plain", "bf16", "fp16"):
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(way, torch.float32)
        norm.kernel = way == "kernel"
        return of_steps(norm, exact, dtype)
    if way == "float64":  # against the reference kernels of the library
        layer = norma.Norm(name, 12, groups=3, dtype="float64", **SMOOTH.get(name, {}))
        for key, param in exact.named_parameters():
            layer.params[key][:] = param.detach().numpy().reshape(-1)
        worst = 0.0
        for _ in range(3):
            a, dy = torch.randn(33, 12).double().requires_grad_(), torch.randn(33, 12).double()
            y = exact(a)
            worst = max(worst, error(y, torch.from_numpy(layer.forward(a.detach().numpy()))))
            (y * dy).sum().backward()
            worst = max(worst, error(a.grad, torch.from_numpy(layer.backward(dy.numpy(), 0.0))))
        return worst
    if way == "compile":
        torch._dynamo.reset()
        norm.kernel = False
        return of_steps(
            norm,
            exact,
            torch.float32,
            torch.compile(norm, backend="aot_eager_decomp_partition", fullgraph=True),
        )
    if way == "double backward":
        a, b = torch.randn(9, 12).requires_grad_(), None
        b = a.detach().double().requires_grad_()
        norm.eval() if norm.type.approximate_gradient else None
        exact.train(norm.training)
        found = []
        for module, at in ((norm, a), (exact, b)):
            (first,) = torch.autograd.grad(module(at).sin().sum(), at, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), at)
            found.append(second)
        return error(*found)
    norm.eval(), exact.eval()
    if way == "vmap":
        return error(torch.func.vmap(norm)(x), exact(x.double()))
    import onnxruntime
    with tempfile.TemporaryDirectory() as folder:
        torch.onnx.export(norm, (x,), folder + "/n.onnx", dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(folder + "/n.onnx", providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return error(torch.from_numpy(y), exact(x.double()))


def main():
    ways = ["kernel", "plain", "bf16", "fp16", "float64", "compile", "vmap", "double backward", "onnx"]
    print("| norm | " + " | ".join(ways) + " |")
    print("|---|" + "--:|" * len(ways))
    for name in norma.norm_types():
        cells = []
        for way in ways:
            try:
                cells.append(f"{column(name, way):.0e}")
            except Exception as problem:
                cells.append(type(problem).__name__)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
