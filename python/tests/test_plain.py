"""The norms in plain PyTorch: against the kernels, in every type, transform and number of processes."""
import copy
import math
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")

import norma  # noqa: E402
import norma.torch as nt  # noqa: E402
from conftest import SOURCE  # noqa: E402
from norma.torch import plain  # noqa: E402
from torch import nn  # noqa: E402

TYPES = sorted(norma.norm_types())
BATCH_TYPES = [name for name in TYPES if norma.norm_types()[name].uses_batch]
EXACT = [name for name in TYPES if not norma.norm_types()[name].approximate_gradient]
# Options other than the defaults, of which every page must know the meaning; short warm-ups, so that all
# phases occur.
VARIANTS = [(name, {}) for name in TYPES] + [
    ("layer", {"unbiased": True}),
    ("group", {"unbiased": True}),
    ("group", {"groups": 2}),
    ("group2d", {"groups": 4}),
    ("rms", {"epsilon_inside": True, "groups": 3}),
    ("rms", {"gain": False}),
    ("scale", {"trainable": False}),
    ("prms", {"fraction": 0.5, "offset": True}),
    ("ada", {"variant": "paper"}),
    ("ada", {"c": 2.0, "k": 0.3}),
    ("unit", {"k": 0.5}),
    ("dyt", {"alpha_init": 0.7}),
    ("derf", {"shift_init": 0.2}),
    ("batch", {"preset": "pn"}),
    ("batch", {"preset": "rbn"}),
    ("batch", {"preset": "framework"}),
    ("batch", {"preset": "paper", "decay": 0.5}),
    ("batch", {"scaling": "group"}),
    ("pnv", {"preset": "rbn"}),
    ("pnv", {"scaling": "layer"}),
    ("power", {"warmup": 3}),
    ("power", {"preset": "paper"}),
    ("power", {"warmup": 1, "clip": 0.05, "decay_backward": 0.5}),
    ("power", {"warmup": 2, "backward_divisor": "running", "scaling": "layer"}),
    ("rbn", {"penalty": "diff2"}),
    ("rbn", {"penalty": "reldiff", "reference": "before"}),
    ("rbn", {"lambda": 2.0, "nu": 1.0, "clamp": False}),
    ("mabn", {"window": 2, "warmup": 1, "r_hold": 1}),
    ("mabn", {"window": 3, "warmup": 0, "r_hold": 2, "center_weights": True}),
    ("mabn", {"window": 2, "warmup": 4, "scaling": "group", "r_limit": 1.01, "r_hold": 0}),
    ("renorm", {"ramp_start": 1, "r_ramp_end": 4, "d_ramp_end": 3}),
    ("renorm", {"eps_mode": "added", "epsilon": 1e-3, "ramp_start": 0, "r_ramp_end": 0, "d_ramp_end": 0}),
    ("repbn", {"preset": "llama"}),
    ("progressive", {"preset": "llama", "lambda_steps": 2, "interval": 2}),
    ("progressive", {"warmup": 2, "lambda_steps": 3, "lambda_init": 0.9}),
    ("un", {"window_forward": 2, "window_backward": 2, "warmup": 1, "r_hold": 0}),
    ("un", {"window_forward": 1, "warmup": 0}),
    ("un", {"window_forward": 3, "window_backward": 2, "warmup": 2, "r_hold": 2, "outlier_filtration": True}),
    ("un", {"window_forward": 2, "warmup": 3, "r_limit": 1.02, "r_hold": 0}),
]
# by default, Partial RMSNorm divides by a single one of 12 features, which may be near 0
SMOOTH = {"prms": {"fraction": 0.5}}
needs_func = pytest.mark.skipif(not hasattr(torch, "func"), reason="PyTorch before 2.0")
needs_custom_operators = pytest.mark.skipif(not hasattr(torch, "compile") or torch.__version__ < (2, 15),
                                            reason="PyTorch before 2.15")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def of_kernel(norm):
    """The same module without and with kernels."""
    other = copy.deepcopy(norm)
    norm.kernel = False
    return other


def made(type, options, width=12, **more):
    norm = nt.Norm(type, width, **{"groups": 3, **options, **more})
    with torch.no_grad():
        for param in norm.parameters():
            param.add_(torch.linspace(0.1, 0.4, param.numel(), dtype=param.dtype).reshape(param.shape))
    return norm


def batch(rows, width, i, dtype=torch.float32):
    """Batches whose statistics differ; the fifth one is an outlier."""
    x = torch.randn(rows, width, dtype=torch.float64) * (1 + 0.3 * i) + 0.2 * i
    return (x * (20 if i == 4 else 1)).to(dtype)


def distance(a, b):
    """The largest difference, relative to the size of b."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) if a.numel() else 0.0


@pytest.mark.parametrize("type, options", VARIANTS, ids=str)
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_plain_is_the_kernel_in_double(type, options, rows):
    """Six training steps and inference in double, where the reference kernels of the library have no rounding
    to hide behind."""
    norm, kernel = made(type, options, dtype=torch.float64), norma.Norm(
        type, 12, dtype="float64", **{"groups": 3, **options}
    )
    for name, param in norm.named_parameters():
        kernel.params[name][:] = param.detach().numpy().reshape(-1)

    def close(a, b, what):
        b = torch.as_tensor(np.array(b))
        assert distance(a.reshape(b.shape), b) < 1e-10, what
    for i in range(6):
        x, dy = batch(rows, 12, i, torch.float64).requires_grad_(), torch.randn(rows, 12, dtype=torch.float64)
        kernel.zero_grads(), norm.zero_grad()
        y = norm(x)
        close(y, kernel.forward(x.detach().numpy()), f"y {i}")
        close(norm.penalty, kernel.penalty, f"penalty {i}")
        ((y * dy).sum() + 0.5 * norm.penalty).backward()
        close(x.grad, kernel.backward(dy.numpy(), 0.5), f"dx {i}")
        for name, grad in kernel.grads.items():
            close(getattr(norm, name).grad, grad, f"{name} {i}")
        for name, state in kernel.state.items():
            close(getattr(norm, name), state, f"{name} {i}")
        for name, count in kernel.counters.items():
            assert int(getattr(norm, name)) == count, f"{name} {i}"
    close(norm.eval()(x), kernel.infer(x.detach().numpy()), "inference")


@pytest.mark.parametrize("type, options", VARIANTS, ids=str)
@pytest.mark.parametrize("shape", [(12,), (1, 12), (3, 5, 12), (2, 3, 4, 12), (257, 12)], ids=str)
def test_plain_is_the_kernel(type, options, shape):
    """In float32, in training and in evaluation mode, with gradients."""
    norm = made(type, options)
    kernel = of_kernel(norm)
    for i in range(5):
        if i == 4:
            norm.eval(), kernel.eval()
        x = batch(math.prod(shape[:-1]), 12, i % 4).reshape(shape)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, z = norm(a), kernel(b)
        assert distance(y, z) < 2e-5
        if not (i == 4 and options.get("center_weights")):  # the kernel has no gradient of it
            (y.sin().sum() + nt.penalty(norm)).backward(), (z.sin().sum() + nt.penalty(kernel)).backward()
            assert (a.grad - b.grad).abs().max() < 2e-4 * max(1, float(z.detach().abs().max()),
                                                              float(b.grad.abs().max()))
        for (name, one), other in zip(norm.state_dict().items(), kernel.state_dict().values()):
            assert one.shape == other.shape and distance(one, other) < 2e-5, name


def test_every_type_has_a_page():
    assert list(plain.pages) == list(norma.norm_types()) and all(
        page.name == name for name, page in plain.pages.items()
    )
    for name, found in norma.norm_types().items():
        assert bool(plain.pages[name].train) == found.uses_batch


def test_presets_are_those_of_the_library():
    for found in norma.norm_types().values():
        assert ("preset" in found.options) == bool(found.presets)
        if found.presets:
            assert set(found.presets) == set(found.options["preset"].choices.split("|"))
    assert norma.norm_types()["power"].presets["paper"] == {"warmup": "0", "backward_divisor": "running",
                                                            "scaling": "none"}
    assert norma.norm_types()["power"].options["clip"].kind is float


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(type, dtype):
    """The result is that of float32, rounded once; running statistics stay in float32."""
    norm, exact = made(type, SMOOTH.get(type, {})), made(type, SMOOTH.get(type, {}))
    norm.to(dtype), exact.load_state_dict({name: one.float() if one.is_floating_point() else one for name,
                                           one in norm.state_dict().items()})
    exact.kernel = False
    for training in (True, True, False):
        norm.train(training), exact.train(training)
        x = batch(33, 12, 1).to(dtype)
        a, b = x.clone().requires_grad_(), x.float().requires_grad_()
        y, z = norm(a), exact(b)
        assert y.dtype == dtype and torch.equal(y, z.to(dtype))
        y.float().mul(torch.linspace(-1, 1, 12)).sum().backward(), z.to(dtype).float().mul(
            torch.linspace(-1, 1, 12)
        ).sum().backward()
        assert distance(a.grad, b.grad) < (0.01 if dtype == torch.bfloat16 else 0.002)
        for name, buffer in norm.named_buffers():
            assert buffer.dtype == (torch.int64 if not buffer.is_floating_point() else torch.float32), name
            assert distance(buffer, exact.state_dict()[name]) < 1e-6, name


def test_running_statistics_of_a_module_in_bfloat16():
    """They do not stop at the precision of bfloat16, and are not rounded by the conversion."""
    norm = nt.BatchNorm(4, decay=0.99)
    norm(torch.tensor([[1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 5.0, 7.0]]))
    before = norm.running_mean.clone()
    norm.bfloat16()
    assert torch.equal(norm.running_mean, before) and norm.weight.dtype == torch.bfloat16
    for _ in range(2000):
        norm(torch.full((2, 4), 3.0, dtype=torch.bfloat16))
    torch.testing.assert_close(norm.running_mean, torch.full((4,), 3.0), atol=1e-3, rtol=0)


@pytest.mark.parametrize("type", BATCH_TYPES)
def test_running_statistics_under_autocast_and_accumulation(type):
    """Four micro-batches under autocast: the state after them is that of the same calls in float32."""
    norm, plain_norm = made(type, {}), made(type, {})
    for i in range(4):
        x = batch(31, 12, i).to(torch.bfloat16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = norm(x)
        (y.float().square().mean() / 4).backward()
        (plain_norm(x.float()).square().mean() / 4).backward()
    assert y.dtype == torch.float32
    for (name, one), other in zip(norm.state_dict().items(), plain_norm.state_dict().values()):
        assert torch.equal(one, other), name
    for one, other in zip(norm.parameters(), plain_norm.parameters()):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("type, options", VARIANTS, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_nan_is_not_hidden(type, options, training):
    """In x, in parameters or in running statistics: no condition takes it for a small number. The formulas
    may have more, of a term whose factor is 0."""
    state = made(type, options).state_dict()
    for name in ["x", *(name for name in state if state[name].is_floating_point())]:
        found = []
        for kernel in (True, False):
            norm, x = made(type, options, groups=1).train(training), torch.linspace(-2, 3, 60).reshape(5, 12)
            norm.kernel, x = kernel, x.clone()
            place = x if name == "x" else norm.state_dict()[name]
            with torch.no_grad():
                place.view(-1)[0] = float("nan")
                found.append(norm(x).isnan())
        assert not (found[0] & ~found[1]).any(), name


# ---- padding ----

@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("kernel", [True, False])
def test_nan_at_padding_reaches_nothing(type, kernel):
    norm, packed = made(type, {}), made(type, {})
    norm.kernel = packed.kernel = kernel
    x = batch(6, 12, 1).reshape(2, 3, 12)
    mask = torch.tensor([[0, 0, 1], [0, 1, 1]], dtype=torch.bool)
    filled = torch.where(mask[..., None], torch.tensor(float("nan")), x).requires_grad_()
    kept = x[~mask].clone().requires_grad_()
    y, z = norm(filled, mask), packed(kept)
    assert not y[mask].any()
    torch.testing.assert_close(y[~mask], z, rtol=1e-5, atol=1e-6)
    (y.square() * torch.where(mask, float("nan"), 1.0)[..., None].nan_to_num(7.0)).sum().backward()
    z.square().sum().backward()
    assert not filled.grad[mask].any()
    torch.testing.assert_close(filled.grad[~mask], kept.grad, rtol=1e-4, atol=1e-5)
    for (name, one), other in zip(norm.named_parameters(), packed.parameters()):
        assert not one.requires_grad or torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-5), name
    for (name, one), other in zip(norm.state_dict().items(), packed.state_dict().values()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("type", BATCH_TYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_plain_batch_without_tokens(type, masked):
    """The state stays as it is, and gradients are 0."""
    norm = made(type, {})
    norm.kernel = False
    norm(batch(9, 12, 1)).sum().backward()
    norm.zero_grad()
    before = copy.deepcopy(norm.state_dict())
    x = torch.randn(2 if masked else 0, 12, requires_grad=True)
    y = norm(x, torch.ones(2, dtype=torch.bool) if masked else None)
    (y.sum() + nt.penalty(norm)).backward()
    assert all(param.grad is None or not param.grad.any() for param in norm.parameters()) and not x.grad.any()
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name]), name


# ---- derivatives ----

def restored(norm, function):
    """function with the state of the module as it is now in each call."""
    buffers = {name: buffer.clone() for name, buffer in norm.named_buffers()}

    def call(*args):
        for name, buffer in norm.named_buffers():
            buffer.copy_(buffers[name])
        return function(*args)
    return call


@pytest.mark.parametrize("type", EXACT)
@pytest.mark.parametrize("training", [True, False])
def test_second_derivatives(type, training):
    norm = made(type, {"rbn": {"reference": "before"}, **SMOOTH}.get(type, {}), dtype=torch.float64)
    norm(batch(9, 12, 1, torch.float64)), norm.train(training)
    x = torch.randn(2, 3, 12, dtype=torch.float64, requires_grad=True)
    params = [param for param in norm.parameters() if param.requires_grad]
    loss = restored(norm, lambda x, *_: (norm(x).sin() * torch.linspace(-1, 1, 12, dtype=torch.float64)).sum()
                    + 3 * nt.penalty(norm))
    assert torch.autograd.gradcheck(loss, (x, *params))
    assert torch.autograd.gradgradcheck(loss, (x, *params), atol=1e-4)


@pytest.mark.parametrize("type", TYPES)
def test_second_derivatives_after_a_kernel(type):
    """A backward pass with create_graph=True: its values are those of the kernel, and the state changes as
    with it."""
    norm = made(type, {})
    kernel, x = copy.deepcopy(norm), batch(9, 12, 1)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    # the second derivative calls their backward pass again
    for i in range(1 if norm.type.approximate_gradient else 3):
        (first,) = torch.autograd.grad(norm(a).sin().sum() + nt.penalty(norm), a, create_graph=True)
        (other,) = torch.autograd.grad(kernel(b).sin().sum() + nt.penalty(kernel), b)
        torch.testing.assert_close(first, other, rtol=1e-4, atol=1e-5)
        assert type == "none" or first.requires_grad
        first.square().sum().backward()
        for (name, one), value in zip(norm.state_dict().items(), kernel.state_dict().values()):
            assert distance(one, value) < 1e-4 or norm.type.approximate_gradient, name
    assert torch.isfinite(a.grad).all() and a.grad.any()


@needs_func
@pytest.mark.parametrize("type", TYPES)
def test_transforms_of_functions(type):
    """vmap, grad, jvp and jacrev in evaluation mode; in training mode, those that are defined."""
    func, norm = torch.func, made(type, {})
    norm(batch(9, 12, 1)), norm.eval()
    x, v = torch.randn(4, 5, 12), torch.randn(4, 5, 12)
    kernel = norm(x)
    torch.testing.assert_close(func.vmap(norm)(x), kernel, rtol=1e-5, atol=1e-6)
    a = x.clone().requires_grad_()
    norm(a).sin().sum().backward()
    torch.testing.assert_close(func.grad(lambda x: norm(x).sin().sum())(x), a.grad, rtol=1e-4, atol=1e-5)
    per_sample = func.vmap(func.grad(lambda x: norm(x).sin().sum()))(x)
    torch.testing.assert_close(per_sample, a.grad, rtol=1e-4, atol=1e-5)
    if type != "ada":  # its backward pass is not the derivative
        y, tangent = func.jvp(lambda x: norm(x), (x,), (v,))
        jacobian = func.jacrev(norm)(x[:1, :1])
        torch.testing.assert_close(tangent[:1, :1], torch.einsum("abcdef,def->abc", jacobian, v[:1, :1]),
                                   rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(y, kernel, rtol=1e-5, atol=1e-6)
    norm.train()
    if type not in BATCH_TYPES:
        torch.testing.assert_close(func.vmap(norm)(x), kernel, rtol=1e-5, atol=1e-6)
        return
    for call in (lambda: func.vmap(norm)(x), lambda: func.grad(lambda x: norm(x).sum())(x)):
        with pytest.raises(norma.UnsupportedError, match="no transforms of torch.func"):
            call()


@needs_func
def test_batches_of_gradients():
    norm, x = nt.LayerNorm(12), torch.randn(3, 12)
    jacobian = torch.autograd.functional.jacobian(norm, x, vectorize=True)
    torch.testing.assert_close(jacobian, torch.autograd.functional.jacobian(nn.LayerNorm(12), x))
    hessian = torch.autograd.functional.hessian(lambda x: norm(x).sin().sum(), x)
    torch.testing.assert_close(
        hessian,
        torch.autograd.functional.hessian(lambda x: nn.LayerNorm(12)(x).sin().sum(), x),
        rtol=1e-3,
        atol=1e-5,
    )


# ---- graphs ----

@needs_custom_operators
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_compiled_plain(type, dtype):
    """Without a break of the graph; gradients, running statistics and penalties are those of eager mode, also
    after a call under no_grad (a kernel of another package then computed another gradient)."""
    norm = made(type, {}).to(dtype)
    norm.kernel = False
    eager = copy.deepcopy(norm)
    torch._dynamo.reset()
    # cuts the graph as the default backend
    compiled = torch.compile(norm, backend="aot_eager_decomp_partition", fullgraph=True)
    for i in range(3):
        x = batch(6, 12, i).to(dtype)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        if i == 1:
            with torch.no_grad():
                assert distance(compiled(a), eager(b)) < 1e-5
        y, z = compiled(a), eager(b)
        tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5
        assert distance(y, z) < tolerance
        (y.sin().sum() + nt.penalty(norm)).backward(), (z.sin().sum() + nt.penalty(eager)).backward()
        assert (a.grad - b.grad).abs().max() < 2 * tolerance
    for (name, one), value in zip(norm.state_dict().items(), eager.state_dict().values()):
        assert distance(one, value) < (2e-2 if dtype == torch.bfloat16 else 1e-5), name
    norm.eval(), eager.eval()
    assert distance(compiled(x), eager(x)) < tolerance


@needs_custom_operators
@pytest.mark.parametrize("type, functions",
                         [("layer", 1), ("rms", 1), ("dyt", 1), ("batch", 2), ("power", 2)])
def test_fused(type, functions):
    """Inductor makes as many C++ functions of the forward pass, and one of the backward pass."""
    from torch._inductor.utils import run_fw_bw_and_get_code
    norm = made(type, {})
    norm.kernel = False
    torch._dynamo.reset()
    call, x = torch.compile(norm, fullgraph=True), batch(33, 12, 1).requires_grad_()
    _, codes = run_fw_bw_and_get_code(lambda: call(x))
    assert [code.count("async_compile.cpp_pybinding(") for code in codes] == [functions, 1]


@needs_custom_operators
@pytest.mark.parametrize("type", TYPES)
def test_exported(type):
    """An exported program needs no operator of Norma."""
    norm = made(type, {})
    norm(batch(9, 12, 1)), norm.eval()
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(norm, (torch.randn(4, 12),), dynamic_shapes=({0: rows},))
    assert "norma" not in str(program.graph)
    x = torch.randn(7, 12)
    torch.testing.assert_close(program.module()(x), norm(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", TYPES)
def test_onnx(type, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    norm = made(type, {})
    norm(batch(9, 12, 1)), norm.eval()
    x = torch.randn(4, 3, 12)
    torch.onnx.export(norm, (x,), tmp_path / "norm.onnx", dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "norm.onnx"), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), norm(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("type", TYPES)
def test_traced(type):
    norm = made(type, {})
    norm(batch(9, 12, 1)), norm.eval()
    x = torch.randn(4, 12)
    with torch.no_grad():
        traced = torch.jit.trace(norm, x)
    torch.testing.assert_close(traced(2 * x), norm(2 * x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", TYPES)
def test_shapes_on_the_meta_device(type):
    norm = nt.Norm(type, 12, groups=3, device="meta")
    y = norm(torch.empty(2, 5, 12, device="meta"))
    assert y.device.type == "meta" and y.shape == (2, 5, 12)


# ---- many rows, many processes ----

@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("kernel", [True, False])
def test_more_than_65536_rows(type, kernel):
    """Rows beyond the limit of a grid (a kernel of another package left them out)."""
    norm = made(type, SMOOTH.get(type, {}), width=8, groups=2)
    exact = copy.deepcopy(norm).double()
    norm.kernel = kernel
    x = torch.randn(65536 + 17, 8) + 0.3
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    y, z = norm(a), exact(b)
    assert distance(y[-20:], z[-20:]) < 1e-5 and distance(y, z) < 1e-5
    y.sin().sum().backward(), z.sin().sum().backward()
    assert distance(a.grad, b.grad) < 1e-4
    for (name, one), value in zip(norm.named_parameters(), exact.parameters()):
        assert not one.requires_grad or distance(one.grad, value.grad) < 1e-3, name


def run_processes(n, *arguments):
    """The results that ranks.py of n processes saves, see there."""
    done = subprocess.run([sys.executable, str(SOURCE / "python" / "tests" / "ranks.py"), str(n),
                           *map(str, arguments)], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


GROUP_VARIANTS = [(name, {}) for name in BATCH_TYPES] + [(name, options) for name,
                                                         options in VARIANTS if options
                                                         and name in BATCH_TYPES]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Results of two processes with unequal batches, one of them without tokens, for all types."""
    if not torch.distributed.is_available():
        pytest.skip("PyTorch without torch.distributed")
    folder = tmp_path_factory.mktemp("ranks")
    torch.manual_seed(11)
    counts = [(5, 3), (1, 9), (4, 0), (0, 6), (7, 7)]
    steps = [[(batch(rows, 12, i, torch.float64), torch.randn(rows, 12, dtype=torch.float64))
              for rows in pair] for i, pair in enumerate(counts)]
    torch.save({"variants": GROUP_VARIANTS, "steps": steps}, folder / "given.pt")
    run_processes(2, folder)
    return steps, [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("i", range(len(GROUP_VARIANTS)), ids=[str(one) for one in GROUP_VARIANTS])
def test_statistics_of_a_group_of_processes(ranks, i):
    """Equal to one process with the joined batch: y, gradients of x, sums of the gradients of parameters,
    penalty and state."""
    steps, results = ranks
    type, options = GROUP_VARIANTS[i]
    norm = made(type, options, dtype=torch.float64)
    for step, pair in enumerate(steps):
        x = torch.cat([x for x, _ in pair]).requires_grad_()
        norm.zero_grad()
        y = norm(x)
        ((y * torch.cat([dy for _, dy in pair])).sum() + 0.5 * norm.penalty).backward()
        seen = [result[i][step] for result in results]
        assert distance(torch.cat([one["y"] for one in seen]), y) < 1e-12
        assert distance(torch.cat([one["dx"] for one in seen]), x.grad) < 1e-12
        assert distance(sum(one["penalty"] for one in seen), norm.penalty) < 1e-12
        for name, param in norm.named_parameters():
            if param.requires_grad:
                assert distance(sum(one["grads"][name] for one in seen), param.grad) < 1e-12, (step, name)
        for name, buffer in norm.named_buffers():
            for one in seen:
                assert distance(one["state"][name], buffer) < 1e-12, (step, name)
