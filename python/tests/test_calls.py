"""The calls in C (python/calls.c): used, with the results of those through ctypes."""
import copy
import gc
import subprocess
import sys
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")

import norma  # noqa: E402
import norma.torch as nt  # noqa: E402
from norma.torch import _kernel  # noqa: E402

TYPES = sorted(norma.norm_types())
pytestmark = pytest.mark.skipif(_kernel.calls is None, reason="built without libpython3-dev, or PyTorch "
                                                              "without torch.compiler.is_compiling")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def made(type, width=12, **options):
    norm = nt.Norm(type, width, groups=3, **options)
    with torch.no_grad():
        for param in norm.parameters():
            param.add_(torch.linspace(0.1, 0.4, param.numel()).reshape(param.shape))
    return norm


def through_ctypes(monkeypatch, run):
    with monkeypatch.context() as changed:
        changed.setattr(_kernel, "calls", None)
        return run()


def steps(norm, x, mask=None):
    """Everything that three training steps and inference give."""
    results = []
    for i in range(4):
        norm.train(i < 3).zero_grad()
        own = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        y = norm(own, mask)
        (y.sin().sum() + 0.3 * nt.penalty(norm)).backward()
        results += [y.detach(), own.grad, nt.penalty(norm), *norm.state_dict().values()]
        results += [param.grad for param in norm.parameters() if param.requires_grad]
        with torch.no_grad():
            results.append(norm(own, mask))
    return [one.detach().clone() for one in results]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", [(12,), (1, 12), (3, 5, 12), (1500, 12)], ids=str)
def test_results_are_those_of_ctypes(type, shape, monkeypatch):
    norm, x = made(type), torch.randn(shape)
    other = copy.deepcopy(norm)
    expected = through_ctypes(monkeypatch, lambda: steps(other, x))
    monkeypatch.setattr(_kernel, "run", None)  # of ctypes
    found = steps(norm, x)
    assert len(found) == len(expected)
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected))


@pytest.mark.parametrize("type", ["layer", "rbn", "power"])
def test_masks_and_strides(type, monkeypatch):
    norm = made(type)
    other = copy.deepcopy(norm)
    x, mask = torch.randn(5, 3, 12).transpose(0, 1), torch.zeros(3, 5, dtype=torch.bool)
    mask[1, 3:] = True
    for given in (None, mask):
        expected = through_ctypes(monkeypatch, lambda: steps(other, x, given))
        assert all(torch.equal(a, b) for a, b in zip(steps(norm, x, given), expected))


def test_what_does_not_fit_is_refused_or_done_by_others():
    norm = made("layer")
    with pytest.raises(norma.UsageError, match="expected"):
        norm(torch.randn(3, 13))
    assert norm(torch.randn(0, 12)).shape == (0, 12)
    assert norm(torch.randn(2, 12).to(torch.bfloat16)).dtype == torch.bfloat16
    with pytest.raises(norma.UnsupportedError):
        norm(torch.randn(2, 12, dtype=torch.float64))
    x = torch.randn(4, 12)
    expected = norm(x)
    norm.weight.data = torch.stack([norm.weight.data, norm.weight.data], 1)[:, 0]  # not contiguous
    assert torch.equal(norm(x), expected)
    norm.weight.data = norm.weight.data.clone()  # other memory
    assert torch.equal(norm(x), expected)
    norm.weight.data = torch.ones(11)
    with pytest.raises(norma.UsageError, match="weight does not have 12 elements"):
        norm(x)
    norm.weight = None
    with pytest.raises(norma.UsageError, match="weight does not have 12 elements"):
        norm(x)


def test_a_buffer_that_changed_before_the_backward_pass():
    norm = made("power")
    y = norm(torch.randn(4, 12).requires_grad_())
    norm.running_phi.data = torch.ones(3)
    with pytest.raises(RuntimeError, match="buffer changed"):
        y.sum().backward()


def test_frozen_parameters_have_no_gradient():
    norm = made("layer")
    norm.weight.requires_grad_(False)
    norm(torch.randn(4, 12)).sum().backward()
    assert norm.weight.grad is None and torch.equal(norm.bias.grad, torch.full((12,), 4.0))


def test_graphs_are_freed():
    """Also with a penalty, which the module keeps: a cycle of module, graph and call."""
    norm = made("rbn")
    norm(torch.randn(4, 12).requires_grad_())
    alive = weakref.ref(norm)
    del norm
    gc.collect()
    assert alive() is None


def test_without_the_extension(monkeypatch, tmp_path):
    monkeypatch.setattr(_kernel, "library_path", lambda: str(tmp_path / "libnorma.so"))
    assert _kernel._load() is None
    (tmp_path / "_calls.abi3.so").write_text("no library")
    assert _kernel._load() is None


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch has none")
def test_without_the_exchange_interface():
    """The memory of tensors by their attributes, as in earlier versions of PyTorch."""
    script = ("import sys, pytest, torch; torch.Tensor.__dlpack_c_exchange_api__ = None; "
              "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))")
    done = subprocess.run([sys.executable, "-c", script, __file__, "-k", "ctypes or strides or changed"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-2000:]
