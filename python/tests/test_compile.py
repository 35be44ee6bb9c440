"""torch.compile keeps the norms in its graph, as custom operators, with the results of eager mode."""
import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")

import norma  # noqa: E402
import norma._torch_ops as ops  # noqa: E402
import norma.torch as nt  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

if not ops.available:
    pytest.skip("PyTorch before 2.15: the graph breaks at each norm", allow_module_level=True)

TYPES = sorted(norma.norm_types())
# without state, with state, state of the backward pass, a penalty
SOME = ["layer", "batch", "power", "mabn", "un", "rbn"]
# The backward pass and the update of the state change after these numbers of updates.
OPTIONS = {"power": {"warmup": 2}, "mabn": {"warmup": 1, "window": 2, "r_hold": 2},
           "un": {"warmup": 1, "window_forward": 2, "window_backward": 2, "r_hold": 2}}
# cuts the graph as the default backend, but runs PyTorch's kernels: same bits
BACKEND = "aot_eager_decomp_partition"


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(3)


def new(type, **options):
    return nt.Norm(type, 12, groups=3, **OPTIONS.get(type, {}), **options)


def compiled(model, **options):
    """The compiled model, an error if the graph breaks, and a copy of the model for eager mode."""
    return torch.compile(model, backend=BACKEND, fullgraph=True, **options), copy.deepcopy(model)


def bits(tensor):
    return tensor.detach().contiguous().view({4: torch.int32, 8: torch.int64}[tensor.element_size()])


def assert_equal(model, other):
    """Parameters, gradients and buffers, bitwise."""
    for (name, a), b in zip(model.named_parameters(), other.parameters()):
        assert torch.equal(bits(a), bits(b)), name
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or torch.equal(bits(a.grad), bits(b.grad)), f"gradient of {name}"
    for (name, a), b in zip(model.named_buffers(), other.buffers()):
        assert torch.equal(bits(a), bits(b)), name


def step(call, model, x, *inputs):
    """Output and gradient of x of a forward and a backward pass, with the penalty."""
    x = x.clone().requires_grad_()
    y = call(x, *inputs)
    loss = y.square().sum() + nt.penalty(model)
    loss.backward()
    return y, x.grad


@pytest.mark.parametrize("type, dtype", [(name, torch.float32) for name in TYPES]
                         + [("power", torch.float64)])
def test_training_and_evaluation(type, dtype):
    """Batches of several sizes; gradients accumulate."""
    model = nn.Sequential(nn.Linear(12, 12, dtype=dtype), new(type, dtype=dtype))
    call, eager = compiled(model)
    for n in (5, 6, 7):
        x = torch.randn(2, n, 12, dtype=dtype)
        for training in (True, True, False):
            model.train(training), eager.train(training)
            for a, b in zip(step(call, model, x), step(eager, eager, x)):
                assert torch.equal(bits(a), bits(b))
            assert_equal(model, eager)
        with torch.no_grad():
            assert torch.equal(bits(call(x)), bits(eager(x)))
    assert list(model.state_dict()) == list(eager.state_dict())


@pytest.mark.parametrize("type", SOME)
def test_padding(type):
    """A mask as argument, of a context around the call, and with nothing but padding."""
    model = new(type)
    call, eager = compiled(model)
    for n in range(5):
        x, mask = torch.randn(3, 5, 12), torch.rand(3, 5) < (2 if n == 3 else 0.4)
        with nt.padding(model, mask if n % 2 else None), nt.padding(eager, mask if n % 2 else None):
            results = [step(f, m, x, *(() if n % 2 else (mask,))) for f, m in ((call, model), (eager, eager))]
        assert_equal(model, eager)
        for a, b in zip(*results):
            assert torch.equal(bits(a), bits(b))
        if model.type.uses_batch:
            assert not results[0][0][mask].any() and not results[0][1][mask].any()


@pytest.mark.parametrize("type", SOME)
def test_loss_in_the_graph(type):
    """The context of the mask and the penalty are in the compiled function."""
    def loss(model, x, mask):
        with nt.padding(model, mask):
            y = model(x)
        return y.square().sum() + nt.penalty(model)
    model = nn.Sequential(new(type), nn.Linear(12, 12))
    call, eager = torch.compile(loss, backend=BACKEND, fullgraph=True), copy.deepcopy(model)
    for _ in range(4):
        x, mask = torch.randn(3, 5, 12), torch.rand(3, 5) < 0.4
        call(model, x, mask).backward(), loss(eager, x, mask).backward()
        assert_equal(model, eager)


class Twice(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(self.norm(x).mul_(2))


@pytest.mark.parametrize("type", TYPES)
def test_layer_that_occurs_twice(type):
    """In a graph, and in two graphs whose backward passes follow both forward passes and are repeated."""
    model = Twice(new(type))
    call, eager = compiled(model)
    for _ in range(4):
        x = torch.randn(7, 12)
        for a, b in zip(step(call, model, x), step(eager, eager, x)):
            assert torch.equal(bits(a), bits(b))
        assert_equal(model, eager)
    norm = new(type)
    call, eager = compiled(norm)
    for _ in range(3):
        x = torch.randn(2, 7, 12, requires_grad=True)
        for f, module in ((call, norm), (eager, eager)):
            loss = f(x[0]).square().sum() + module.penalty
            loss = loss + 2 * f(x[1]).square().sum() + module.penalty
            loss.backward(retain_graph=True)
            loss.backward()
        assert_equal(norm, eager)


@pytest.mark.parametrize("type", SOME)
def test_encoder(type):
    layer = nn.TransformerEncoderLayer(12, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    nt.replace_norms(model, type, groups=3, **OPTIONS.get(type, {}))
    call, eager = compiled(model)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, eager)]
    for _ in range(4):
        x = torch.randn(3, 5, 12)
        for f, m in ((call, model), (eager, eager)):
            with nt.padding(m, mask):
                step(lambda x: f(x, src_key_padding_mask=mask), m, x)
        assert_equal(model, eager)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


class Checkpointed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(12, 12), norm, nn.ReLU())

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


@pytest.mark.parametrize("type", [name for name in SOME if name != "rbn"])
def test_checkpointing(type):
    """In a graph the state is updated once. Where y does not depend on it, gradients are those without
    checkpointing."""
    model = Checkpointed(new(type))
    plain = copy.deepcopy(model.inner)
    call = torch.compile(model, backend=BACKEND, fullgraph=True)
    for _ in range(3):
        x = torch.randn(6, 12)
        model.zero_grad(), plain.zero_grad()
        step(call, model, x), step(plain, plain, x)
        if type in ("layer", "batch"):
            assert_equal(model.inner, plain)
        for name, buffer in plain.named_buffers():
            if name.rpartition(".")[2] not in ("ema_gz", "buffer_gz"):
                assert torch.equal(model.inner.state_dict()[name], buffer)


def test_checkpointing_of_a_penalty():
    """The penalty leaves the checkpointed function, so the graph breaks there."""
    model = Checkpointed(new("rbn"))
    eager = copy.deepcopy(model)
    call = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        x = torch.randn(6, 12)
        step(call, model, x), step(eager, eager, x)
        assert_equal(model, eager)


def test_default_backend():
    model = new("power")
    eager = copy.deepcopy(model)
    call = torch.compile(model, fullgraph=True)
    for _ in range(4):
        x = torch.randn(5, 12)
        for a, b in zip(step(call, model, x), step(eager, eager, x)):
            torch.testing.assert_close(a, b)
    for a, b in zip(model.state_dict().values(), eager.state_dict().values()):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("type", SOME)
def test_operators(type, masked):
    """Schema, shapes of the fake implementation, and tracing."""
    norm, x = new(type), torch.randn(3, 5, 12)
    norm(x)
    params, state = ([one.detach() for one in tensors] for tensors in (norm.parameters(), norm.buffers()))
    mask, spec = torch.rand(3, 5) < 0.4 if masked else None, ops.text_of(norm._spec)
    for training in (True, False):
        args = (x, params, state, mask, spec, training)
        torch.library.opcheck(torch.ops.norma.normalize.default, args)
        _, penalty, before, after = torch.ops.norma.normalize(*args)
        args = ([torch.randn(3, 5, 12).transpose(0, 1).contiguous().transpose(0, 1), penalty], x, params,
                before, after,
                mask, spec, training, norm._of_gradients if training else ())
        torch.library.opcheck(torch.ops.norma.normalize_backward.default, args)


@pytest.mark.parametrize("x, error, message", [
    (torch.zeros(2, 11), norma.UsageError, "expected \\[..., 12\\]"),
    (torch.zeros(2, 12, dtype=torch.int64), norma.UnsupportedError, "int64"),
    (torch.zeros(2, 12, dtype=torch.float64), norma.UnsupportedError, "the module"),
])
def test_errors(x, error, message):
    with pytest.raises(error, match=message):
        torch.compile(new("power"), backend=BACKEND)(x)


def test_errors_of_the_operators():
    norm = new("layer")
    weight, bias = (param.detach() for param in norm.parameters())
    spec = ops.text_of(norm._spec)
    with pytest.raises(norma.UsageError, match="bias does not have 12 elements"):
        torch.ops.norma.normalize(torch.zeros(2, 12), [weight, bias[:5]], [], None, spec, True)
    with pytest.raises(norma.UsageError, match="torch.float64 and torch.float32"):
        torch.ops.norma.normalize(torch.zeros(2, 12).double(), [weight, bias], [], None, spec, True)


@pytest.mark.parametrize("type", TYPES)
def test_running_vectors_of_the_backward_pass(type):
    """Those that the modules name are those that a backward pass changes."""
    norm = new(type)
    for n in (5, 6):
        y = norm(torch.randn(n, 12, requires_grad=True)).square().sum()
        before = copy.deepcopy(norm.state_dict())
        (y + norm.penalty).backward()
    changed = [i for i, name in enumerate(norm._names[1])
               if not torch.equal(before[name], norm.state_dict()[name])]
    assert changed == list(norm._of_gradients)


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict):
    model = nn.Sequential(nn.Linear(12, 12), new("power")).eval()
    rows = torch.export.Dim("rows")
    program = torch.export.export(model, (torch.randn(4, 12),), dynamic_shapes=({0: rows},), strict=strict)
    x = torch.randn(7, 12)
    torch.testing.assert_close(program.module()(x), model(x), rtol=1e-5, atol=1e-6)  # by plain PyTorch
