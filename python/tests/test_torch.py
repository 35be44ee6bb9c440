"""norma.torch: modules in PyTorch models."""
import copy
import gc
import pickle
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")

import norma  # noqa: E402
import norma._library  # noqa: E402
import norma.torch as nt  # noqa: E402
from plain_power_norm import PlainPowerNorm  # noqa: E402
from torch import nn  # noqa: E402

TYPES = sorted(norma.norm_types())
BATCH_TYPES = [name for name in TYPES if norma.norm_types()[name].uses_batch]
# For finite differences. The running values of RBN's penalty are constants for the gradient; after the update
# they depend on x. By default, Partial RMSNorm uses a single one of 12 features.
DIFFERENTIABLE = {"rbn": {"reference": "before"}, "prms": {"fraction": 0.5}}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def trained(type, width=12, **options):
    """A module whose parameters and buffers differ from the initial values."""
    norm = nt.Norm(type, width, groups=3, **options)
    with torch.no_grad():
        for param in norm.parameters():
            param.add_(torch.linspace(0.1, 0.4, param.numel(), dtype=param.dtype).reshape(param.shape))
    dtype = next(iter(norm.parameters()), torch.zeros(0)).dtype
    for _ in range(3):
        x = (torch.randn(9, width) + 0.3).to(dtype).requires_grad_()
        norm(x).square().sum().backward()
    norm.zero_grad()
    return norm


def encoder(layers=2, width=32, heads=4):
    layer = nn.TransformerEncoderLayer(width, heads, 64, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width))


def train(model, updates, rate=0.02):
    """Loss of each update: the encoder learns to reverse random sequences."""
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(20, 32, generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(updates):
        x = table[torch.randint(20, (8, 6), generator=generator)]
        loss = (model(x) - x.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses, x


def test_encoder_with_power_norm_follows_a_rederivation():
    """20 updates, of which 8 warm-up: losses, weights, gradients and outputs agree to 1e-5."""
    ours = encoder()
    plain = copy.deepcopy(ours)
    names = nt.replace_norms(ours, "power", groups=4, warmup=8)
    assert names == ["layers.0.norm1", "layers.0.norm2", "layers.1.norm1", "layers.1.norm2", "norm"]
    for name in names:
        parent, _, key = name.rpartition(".")
        setattr(plain.get_submodule(parent), key, PlainPowerNorm(32, 4, 8))
    losses, x = train(ours, 20)
    expected, _ = train(plain, 20)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses[-1] < losses[0]
    for (name, param), other in zip(ours.named_parameters(), plain.parameters()):
        torch.testing.assert_close(param, other, atol=1e-5, rtol=1e-5, msg=name)
    for name in names:
        norm, other = ours.get_submodule(name), plain.get_submodule(name)
        torch.testing.assert_close(norm.running_phi.flatten(), other.phi, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(norm.ema_gz.flatten(), other.e, atol=1e-5, rtol=1e-5)
        assert int(norm.iters) == other.t == 20
    ours.eval(), plain.eval()
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name, type, options", [
    ("batchnorm_torch_b7_d8", "batch", {"preset": "framework"}),
    ("pn_official_g2_w3_packed_t5b3_d8", "power", {"groups": 2, "warmup": 3}),
    ("mabn_renorm_b7_d8", "mabn", None),
    ("rbn_diff2_mean_only_t5b3_d6", "rbn", None),
])
def test_golden_case(golden, name, type, options):
    """Values computed by the authors' code."""
    case = golden("norm/" + name)
    config = case["config"]
    if type == "rbn":
        options = {"penalty": "diff2", "lambda": config["penalty_mean"], "nu": config["penalty_var"]}
    if type == "mabn":
        options = {"window": config["buffer_size"], "warmup": config["warmup_iters"],
                   "r_hold": config["r_forced_to_one_until"], "r_limit": config["r_clip"][1]}
    norm = nt.Norm(type, config["d"], dtype=torch.float64, **options)

    def tensor(value):
        return torch.tensor(value["data"], dtype=torch.float64).reshape(value["shape"])

    def close(a, b):
        torch.testing.assert_close(a.double(), b.double().reshape(a.shape), rtol=1e-9, atol=1e-9)
    state = {key: tensor(value) if isinstance(value, dict) else torch.tensor(value)
             for part in ("params", "state") for key, value in case["init"][part].items()}
    norm.load_state_dict(state)
    for step in case["steps"]:
        x = tensor(step["x"])
        real = torch.ones(len(x), dtype=torch.bool)
        if step.get("valid"):
            real = tensor(step["valid"]) != 0
        norm.train(step["mode"] == "train").zero_grad()
        x.requires_grad_()
        y = norm(x, ~real)
        close(y[real], tensor(step["y"])[real])
        if not norm.training:
            continue
        loss = (y * tensor(step["dy"])).sum() + nt.penalty(norm)
        loss.backward()
        close(x.grad[real], tensor(step["dx"])[real])
        for key, value in step["dparams"].items():
            close(getattr(norm, key).grad, tensor(value))
        for key, value in step["state_after"].items():
            close(getattr(norm, key), tensor(value) if isinstance(value, dict) else torch.tensor(value))
        if "reg_loss" in step:
            expected = step["reg_loss"]
            close(nt.penalty(norm).detach(), tensor(expected) if isinstance(expected, dict) else
                  torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("training", [True, False])
def test_gradcheck(type, training):
    norm = trained(type, dtype=torch.float64, **DIFFERENTIABLE.get(type, {})).train(training)
    if norm.type.approximate_gradient and (training or not norm.type.uses_batch):
        pytest.skip("the backward pass is not the derivative by definition")
    buffers = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    x = torch.randn(2, 3, 12, dtype=torch.float64, requires_grad=True)
    factor = torch.randn(2, 3, 12, dtype=torch.float64)

    def loss(x, *params):
        for name, buffer in norm.named_buffers():
            buffer.copy_(buffers[name])
        return (norm(x) * factor).sum() + 3 * nt.penalty(norm)
    assert torch.autograd.gradcheck(loss, (x, *(p for p in norm.parameters() if p.requires_grad)))


@pytest.mark.parametrize("type", BATCH_TYPES)
def test_padding(type):
    """Padding has no influence: results are those of the packed tokens, bitwise."""
    packed, padded = trained(type), None
    padded = copy.deepcopy(packed)
    x = torch.randn(3, 5, 12)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 2:] = mask[2, 4:] = True
    real = x[~mask].clone().requires_grad_()
    filled = torch.where(mask[..., None], torch.tensor(float("nan")), x).requires_grad_()
    y = packed(real)
    with nt.padding(padded, mask):
        z = padded(filled)
    assert torch.equal(z[~mask], y) and not z[mask].any()
    (y.square().sum() + nt.penalty(packed)).backward()
    (z.square().sum() + nt.penalty(padded)).backward()
    assert torch.equal(filled.grad[~mask], real.grad) and not filled.grad[mask].any()
    for a, b in zip(packed.state_dict().values(), padded.state_dict().values()):
        assert torch.equal(a, b)
    assert padded._padding_mask is None
    assert not padded(x, torch.ones(3, 5, dtype=torch.bool)).any()  # only padding
    for a, b in zip(packed.state_dict().values(), padded.state_dict().values()):
        assert torch.equal(a, b)


@pytest.mark.skipif(torch.__version__ < (2, 1), reason="PyTorch before 2.1")
@pytest.mark.parametrize("length", [5, 3])  # 3: as many tokens as sentences
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_padding_masks_of_pytorch_layers(length, batch_first, added):
    """An encoder and a decoder in a model that makes their masks, also masks that are added to scores."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            options = dict(dropout=0.0, batch_first=batch_first)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **options), 2,
                                                 enable_nested_tensor=False)
            self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 2)

        def forward(self, x, padding):
            if added:
                padding = torch.zeros(padding.shape).masked_fill(padding, float("-inf"))
            x = x if batch_first else x.transpose(0, 1)
            memory = self.encoder(x, src_key_padding_mask=padding)
            return self.decoder(x, memory, tgt_key_padding_mask=padding, memory_key_padding_mask=padding)
    padding = torch.arange(length) >= torch.tensor([length, 2, 1])[:, None]
    model = Net()
    nt.replace_norms(model, "batch")
    other, x = copy.deepcopy(model), torch.randn(3, length, 8)
    model(x, padding), other(x.masked_fill(padding[..., None], 9.0), padding)
    for (key, one), value in zip(model.named_buffers(), other.buffers()):
        torch.testing.assert_close(one, value, rtol=1e-5, atol=1e-6, msg=key)


def test_layer_norm_is_that_of_pytorch():
    ours, theirs = nt.LayerNorm(24), nn.LayerNorm(24)
    theirs.weight.data.uniform_(), theirs.bias.data.uniform_()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(4, 7, 24)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    (ours(a).sin().sum()).backward(), (theirs(b).sin().sum()).backward()
    torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, atol=1e-5, rtol=1e-5)


def test_batch_norm_is_that_of_pytorch():
    ours, theirs = nt.BatchNorm(24, preset="framework"), nn.BatchNorm1d(24)
    for _ in range(3):
        x = torch.randn(50, 24) * 3 + 1
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        (ours(a).sin().sum()).backward(), (theirs(b).sin().sum()).backward()
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value, state[key], atol=1e-5, rtol=1e-5)
    nn.BatchNorm1d(24).load_state_dict(ours.state_dict())  # both ways, strictly
    ours.load_state_dict(state)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-5, rtol=1e-5)


def test_state_dict_of_published_modules():
    shapes = {key: tuple(value.shape) for key, value in nt.PowerNorm(8, groups=2).state_dict().items()}
    assert shapes == {"weight": (8,), "bias": (8,), "running_phi": (1, 8, 1, 1), "ema_gz": (1, 8, 1, 1),
                      "iters": (1,)}
    flat = {key: value.flatten() for key, value in trained("power").state_dict().items()}
    norm = nt.PowerNorm(12, groups=3)
    norm.load_state_dict(flat)
    assert torch.equal(norm.running_phi.flatten(), flat["running_phi"]) and int(norm.iters) == 3
    assert nt.ScaleNorm(8).scale.shape == () and nt.MovingAverageBatchNorm(8, window=4).buffer_x2.shape == (
        4,
        8,
    )
    with pytest.raises(RuntimeError, match="size mismatch"):
        norm.load_state_dict({**flat, "running_phi": torch.ones(13)})
    nt.ScaleNorm(8).load_state_dict({"g": torch.ones(1)})  # of lucidrains/x-transformers
    x = torch.randn(3, 8)
    weight = torch.rand(8)  # torch.nn.RMSNorm, and LayerNorm without bias: not in Debian's PyTorch
    rms, layer = nt.RMSNorm(8), nt.LayerNorm(8)
    for module in (rms, layer):
        module.load_state_dict({"weight": weight})
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-8).sqrt() * weight
    torch.testing.assert_close(rms(x), expected, atol=1e-5, rtol=1e-5)
    expected = nn.functional.layer_norm(x, (8,), weight)
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(RuntimeError, match="Missing key"):
        nt.LayerNorm(8).load_state_dict({"bias": torch.ones(8)})


@pytest.mark.parametrize("type", ["power", "pnv", "batch", "mabn", "renorm"])
def test_constant_of_row_scaling(type):
    """GroupScaling1D of PowerNorm's code has the constant 1e-5, whatever the epsilon of the norm is."""
    x = torch.randn(7, 12, dtype=torch.float64) * 1e-2  # the constants matter
    rows = x.reshape(7, 3, 4)
    scaled = (rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt()).reshape(7, 12)
    with_scaling = nt.Norm(type, 12, groups=3, scaling="group", epsilon=0.3).double()
    without = nt.Norm(type, 12, groups=3, scaling="none", epsilon=0.3).double()
    assert torch.allclose(with_scaling(x), without(scaled), rtol=1e-10, atol=1e-12)
    assert torch.allclose(with_scaling.eval()(x), without.eval()(scaled), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("type", TYPES)
def test_copies(type):
    norm = trained(type)
    x = torch.randn(5, 12)
    expected = norm.eval()(x)
    for other in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert torch.equal(other(x), expected)
        assert other.type == norm.type
        other.train()(x)
    assert torch.equal(norm(x), expected)  # the copies have their own state
    named = nt._classes.by_type[type](12, groups=3)
    assert isinstance(pickle.loads(pickle.dumps(named)),
                      nt.Norm) and repr(named).startswith(nt._classes.by_type[type].__name__)


@pytest.mark.parametrize("type", ["layer", "batch", "rbn", "power"])
def test_layer_that_occurs_twice(type):
    """Two forward passes before the backward passes, in place operations on the output, and a repeated
    backward pass."""
    norm = trained(type)
    twice = copy.deepcopy(norm)
    x = torch.randn(7, 12)
    y = twice(twice(x).mul_(2))
    one = norm(x)
    assert torch.equal(y, norm(one * 2))
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    if not norm.type.approximate_gradient:
        def run(norm, x):
            return norm(norm(x).relu_()).square().sum()
        shared, separate = copy.deepcopy(norm), nn.ModuleList([copy.deepcopy(norm), copy.deepcopy(norm)])
        loss = run(shared, a)
        loss.backward(retain_graph=True)
        first = a.grad.clone()
        loss.backward()
        assert torch.equal(a.grad, 2 * first)
        middle = separate[0](b).relu_()
        separate[1].load_state_dict(separate[0].state_dict())
        separate[1](middle).square().sum().backward()
        assert torch.equal(first, b.grad)


def test_graphs_in_reference_cycles(monkeypatch):
    """The garbage collector frees them, with their passes, at any time; the passes of a layer remain
    valid."""
    freed, lib = [], norma._library.library()
    monkeypatch.setattr(lib, "nm_norm_pass_free", freed.append)
    norm, x = nt.Norm("layer", 12), torch.randn(3, 12)

    class Cycle:
        def __init__(self):
            self.itself, self.y = self, norm(x)  # noqa: F821
    gc.collect()
    limits = gc.get_threshold()
    try:
        gc.set_threshold(1, 1, 1)
        for i in range(200):
            Cycle(), norm(x)
            if i % 10 == 0:
                gc.collect()
    finally:
        gc.set_threshold(*limits)
    gc.collect()
    (layer,) = norm._layers.values()
    handles = {one.handle for one in layer.passes}
    assert len(layer.passes) == len(handles) > 0 and not handles & set(freed)
    assert len(layer.pass_handles) < 100  # passes are used again
    del norm, layer
    gc.collect()
    assert handles <= set(freed)


@pytest.mark.parametrize("type", TYPES)
def test_functional_call(type):
    """Gradients are those of the given parameters; the module's parameters and state stay unchanged."""
    functional_call = pytest.importorskip("torch.func").functional_call
    norm = trained(type)
    given = {name: (2 * p.detach() + 0.3).requires_grad_(p.requires_grad) for name,
             p in norm.named_parameters()}
    given.update((name, buffer.clone()) for name, buffer in norm.named_buffers())
    other, before = copy.deepcopy(norm), copy.deepcopy(norm.state_dict())
    other.load_state_dict(given)
    a, b = (
        torch.randn(1, 12).expand(7, 12).clone() + torch.linspace(0, 1, 7)[:, None]
    ).requires_grad_(), None
    b = a.detach().clone().requires_grad_()
    functional_call(norm, given, (a,)).sin().sum().backward()
    other(b).sin().sum().backward()
    assert torch.equal(a.grad, b.grad)
    for name, param in other.named_parameters():
        assert not param.requires_grad or torch.equal(given[name].grad, param.grad)
    for name, buffer in other.named_buffers():
        assert torch.equal(given[name], buffer)
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_batch_without_tokens(type, masked):
    """Parameters get the gradient 0, which DistributedDataParallel needs; the state stays unchanged."""
    norm = trained(type)
    before = copy.deepcopy(norm.state_dict())
    norm(torch.randn(5, 12))  # a pass with values, which is used again
    norm.load_state_dict(before)
    x = torch.randn(2 if masked else 0, 12, requires_grad=True)
    y = norm(x, torch.ones(2, dtype=torch.bool) if masked else None)
    (y.sum() + nt.penalty(norm)).backward()
    if not masked or norm.type.uses_batch:
        assert all(not p.requires_grad or not p.grad.any() for p in norm.parameters()) and not x.grad.any()
        assert float(nt.penalty(norm).detach()) == 0
        for name, value in norm.state_dict().items():
            assert torch.equal(value, before[name])


def test_autocast():
    model = nn.Sequential(nn.Linear(12, 12), nt.PowerNorm(12, groups=3), nn.Linear(12, 12),
                          nt.RegularizedBatchNorm(12))
    plain, x = copy.deepcopy(model), torch.randn(7, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = model[0](x)
        y = model[1](h)
        model[3](model[2](y)).sum().backward()
    assert h.dtype == torch.bfloat16 and torch.equal(y, plain[1](h.float()))
    assert model[0].weight.grad.any() and model[0].weight.dtype == torch.float32
    assert model[1](h).dtype == torch.bfloat16  # outside autocast the type of x


def test_parametrized_weight():
    parametrize = pytest.importorskip("torch.nn.utils.parametrize")
    norm, x = nt.LayerNorm(12), torch.randn(7, 12)

    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight
    parametrize.register_parametrization(norm, "weight", Doubled())
    y = norm(x)
    torch.testing.assert_close(y, 2 * nt.LayerNorm(12)(x))
    y.sin().sum().backward()
    assert norm.parametrizations.weight.original.grad.any()


def test_evaluation_leaves_the_state():
    norm = trained("power")
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    norm.eval()
    x = torch.randn(4, 12, requires_grad=True)
    norm(x).sum().backward()
    one = norm(x[:1])
    assert torch.equal(one, norm(x)[:1])
    for key, value in norm.state_dict().items():
        assert torch.equal(value, before[key])


def test_penalty():
    model = nn.Sequential(nn.Linear(12, 12), nt.RegularizedBatchNorm(12, **{"lambda": 3.0}),
                          nn.Linear(12, 12),
                          nt.RegularizedBatchNorm(12, nu=2.0))
    x = torch.randn(9, 12)
    model(x)
    total, parts = nt.penalty(model).detach(), [float(model[i].penalty.detach()) for i in (1, 3)]
    assert float(total) == pytest.approx(sum(parts)) and min(parts) > 0
    grads = []
    for factor in (0.0, 1.0, 2.0):
        fresh = copy.deepcopy(model)
        loss = fresh(x).square().sum()
        (loss + factor * nt.penalty(fresh) if factor else loss).backward()
        grads.append(fresh[0].weight.grad)
    torch.testing.assert_close(grads[2] - grads[1], grads[1] - grads[0], atol=1e-4, rtol=1e-3)
    assert (grads[1] - grads[0]).abs().max() > 1e-3
    assert float(nt.penalty(model.eval()).detach()) > 0  # of the last forward pass in training mode
    model(x)
    assert float(nt.penalty(model)) == 0 and float(nt.penalty(nn.Linear(2, 2))) == 0


@pytest.mark.parametrize("type", TYPES)
def test_replacement_in_an_encoder(type):
    """Training and evaluation mode; the fused kernels of PyTorch, which compute LayerNorm, are not used."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2, 16, dropout=0.0, batch_first=True), 2)
    model.layers[0].norm1.weight.data.uniform_(1, 2)
    kept = model.layers[0].norm1.weight.clone()
    names = nt.replace_norms(model, type, groups=3)
    assert len(names) == 4 and all(isinstance(model.get_submodule(name), nt.Norm) for name in names)
    if hasattr(model.layers[0].norm1, "weight"):
        assert torch.equal(model.layers[0].norm1.weight, kept)
    x = torch.randn(3, 5, 12)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    with nt.padding(model, mask):
        model(x, src_key_padding_mask=mask).sum().backward()
        model.eval()
        with torch.no_grad():
            fused = model(x, src_key_padding_mask=mask)
        y = model(x, src_key_padding_mask=mask)
    torch.testing.assert_close(fused[~mask], y[~mask], atol=1e-5, rtol=1e-5)


def test_replacement_of_some_layers():
    shared = nn.LayerNorm(8)
    model = nn.ModuleDict({"a": nn.Sequential(shared, nn.Linear(8, 8), shared), "b": nn.LayerNorm(8)}).eval()
    assert nt.replace_norms(model, "batch", where=lambda name, _: name.startswith("a.")) == ["a.0", "a.2"]
    assert model["a"][0] is model["a"][2] and isinstance(model["b"], nn.LayerNorm)
    assert not model["a"][0].training
    assert nt.replace_norms(model, "rms", kinds=[nt.Norm]) == ["a.0", "a.2"]
    rms = nn.Sequential(nt.RMSNorm(8))
    rms[0].scale.data.uniform_(1, 2)
    kept = rms[0].scale.clone()
    nt.replace_norms(rms, "layer", kinds=[nt.Norm])
    assert torch.equal(rms[0].weight, kept)
    if hasattr(nn, "RMSNorm"):  # PyTorch 2.4
        rms, x = nn.Sequential(nn.RMSNorm(8, eps=1e-6)), torch.randn(3, 8)
        rms[0].weight.data.uniform_(1, 2)
        expected = rms(x)
        nt.replace_norms(rms, "rms", epsilon=1e-6, epsilon_inside=True)
        torch.testing.assert_close(rms(x), expected)
    with pytest.raises(norma.UsageError, match="no layer of the classes"):
        nt.replace_norms(nn.Linear(2, 2), "power")
    with pytest.raises(norma.UsageError, match="shape"):
        nt.replace_norms(nn.Sequential(nn.LayerNorm((2, 3))), "power")


def parameters(norm):
    """Names, and whether they are learned."""
    return {name: param.requires_grad for name, param in norm.named_parameters()}


def replaced(old, type, **options):
    model = nn.Sequential(old)
    nt.replace_norms(model, type, **options)
    return model[0]


def test_replacement_keeps_epsilon():
    x = 0.1 * torch.randn(3, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for old in (nn.LayerNorm(8, eps=0.1), nn.LayerNorm(8)):
            torch.testing.assert_close(replaced(old, "layer")(x), old(x))
        if hasattr(nn, "RMSNorm"):  # PyTorch 2.4
            for old in (nn.RMSNorm(8, eps=0.1), nn.RMSNorm(8)):
                torch.testing.assert_close(replaced(old, "rms")(x), old(x))
            own = replaced(nn.RMSNorm(8, eps=0.1), "rms", epsilon=0.25)
            assert repr(own) == "Norm('rms', 8, epsilon=0.25)"
        own = replaced(nn.LayerNorm(8, eps=0.1), "layer", epsilon=0.25)
        assert repr(own) == "Norm('layer', 8, epsilon=0.25)"
        replaced(nn.LayerNorm(8), "batch"), replaced(nn.LayerNorm(8, eps=0.1), "batch", epsilon=0.25)
        replaced(nt.LayerNorm(8, epsilon=0.1), "batch")
    for type in ("batch", "dyt"):
        with pytest.warns(UserWarning, match=f"eps = 0.1 of 0 is not kept.*'{type}'") as caught:
            model = nn.Sequential(nn.LayerNorm(8, eps=0.1))
            nt.replace_norms(model, type)
        assert caught[0].filename == __file__


def test_replacement_of_a_class_of_transformers():
    """It calls epsilon variance_epsilon."""
    class LlamaRMSNorm(nn.Module):
        def __init__(self, hidden_size, eps=1e-6):
            super().__init__()
            self.weight, self.variance_epsilon = nn.Parameter(torch.full((hidden_size,), 2.0)), eps

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
    x, old = 0.1 * torch.randn(3, 8), LlamaRMSNorm(8, eps=0.1)
    with pytest.warns(UserWarning, match="eps = 0.1 of 0 and 1 more is not kept.*'power'"):
        nt.replace_norms(nn.Sequential(old, LlamaRMSNorm(8, eps=0.1)), "power")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nt.replace_norms(nn.Sequential(LlamaRMSNorm(8)), "power")
        for options in ({}, {"epsilon": 0.1, "epsilon_inside": True}):
            model = nn.Sequential(old)
            assert nt.replace_norms(model, "rms", **options) == ["0"]
            torch.testing.assert_close(model(x), old(x))
            assert list(model.state_dict()) == ["0.weight"]
            nn.Sequential(LlamaRMSNorm(8)).load_state_dict(model.state_dict())


def test_replacement_keeps_frozen_and_missing_parameters():
    x = torch.randn(3, 8)
    frozen, half = nn.LayerNorm(8).requires_grad_(False), nn.LayerNorm(8)
    half.bias.requires_grad_(False)
    assert parameters(replaced(frozen, "layer")) == {"weight": False, "bias": False}
    assert parameters(replaced(half, "batch")) == {"weight": True, "bias": False}
    assert not any(parameters(replaced(frozen, "dyt")).values())
    for options, learned in (({"elementwise_affine": False}, []), ({"bias": False}, ["weight"])):
        try:
            old = nn.LayerNorm(8, **options)
        except TypeError:  # bias: PyTorch 2.1
            continue
        for type in ("layer", "dyt"):
            new = replaced(old, type)
            assert {name for name, one in parameters(new).items() if one} == {
                *learned,
                *(["alpha"] if type == "dyt" else []),
            }
        torch.testing.assert_close(replaced(old, "layer")(x), old(x))
    fixed = nt.Norm("scale", 8, trainable=False)
    assert parameters(fixed) == {"scale": False}
    assert parameters(replaced(fixed, "layer")) == {"weight": True, "bias": True}
    assert parameters(replaced(fixed, "scale")) == {"scale": True}


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}])
@pytest.mark.parametrize("type", ["layer", "power", "rms", "progressive"])
def test_replacement_has_the_keys_of_the_old_layer(type, options, tmp_path):
    """Constants for a weight or bias that the old layer lacks are in no checkpoint: it loads both ways."""
    try:
        old = nn.Sequential(nn.LayerNorm(8, **options))
    except TypeError:  # bias: PyTorch 2.1
        pytest.skip("no such option in this version of PyTorch")
    if old[0].weight is not None:
        old[0].weight.data.uniform_(1, 2)
    new, x = copy.deepcopy(old), torch.randn(3, 8)
    nt.replace_norms(new, type)
    keys = set(new.state_dict())
    of_layer = {"0.weight", "0.bias"} - ({"0.bias"} if type == "rms" else set())
    assert keys & {"0.weight", "0.bias", "0.scale"} == set(old.state_dict()) & of_layer
    if type == "layer":
        new.load_state_dict(old.state_dict()), old.load_state_dict(new.state_dict())
        torch.testing.assert_close(new(x), old(x))
    copied = pickle.loads(pickle.dumps(new))
    assert set(copied.state_dict()) == keys
    nt.replace_norms(copied, type)  # of Norma's layer, now without the constants of the first
    assert set(copied.state_dict()) == keys
    if options.get("bias") is False and type == "layer":
        new.requires_grad_(True)[0].bias.data.fill_(2.0)
        assert "0.bias" in new.requires_grad_(False).state_dict()  # its value was changed
    if hasattr(torch, "get_default_device") and type == "layer":
        with torch.device("meta"):
            empty = nn.Sequential(nn.LayerNorm(8, **options))
            nt.replace_norms(empty, type)
        if old.state_dict():
            empty.load_state_dict(old.state_dict(), assign=True)
            torch.testing.assert_close(empty(x), old(x))


class LayerNorm2d(nn.LayerNorm):
    """Of channels of images, as EomtLayerNorm2d of transformers."""
    def forward(self, x):
        x = nn.functional.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias)
        return x.permute(0, 3, 1, 2)


class OfChannels(nn.Module):
    """As VitDetLayerNorm, which is not a class of PyTorch, either."""
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = x - x.mean(1, keepdim=True)
        x = x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt()
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class OfHeads(nn.LayerNorm):
    """As ChameleonLayerNorm: the gains differ by head."""
    def __init__(self):
        super().__init__((4, 8))
        self.normalized_shape = (8,)

    def forward(self, x):
        return nn.functional.layer_norm(x, (8,)) * self.weight + self.bias


class OnAnotherDevice(OfChannels):
    def forward(self, x):
        raise ValueError("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)")


class InputScaled(OfChannels):
    def forward(self, x):
        return nn.functional.layer_norm(x * (1 + self.weight) * torch.linspace(1, 2, x.shape[-1]),
                                        x.shape[-1:])


class Weightless(nn.Module):
    def forward(self, x):
        return x


def test_layers_that_are_no_token_norms():
    named = {kind: type(kind.__name__ + "LayerNorm", (kind,), {}) for kind in (
        OfChannels, OnAnotherDevice, InputScaled, Weightless)}
    for old in (LayerNorm2d(8), named[OfChannels](8), OfHeads(), named[Weightless]()):
        model = nn.Sequential(old, nn.LayerNorm(8))
        assert nt.replace_norms(model, "power") == ["1"] and model[0] is old
    assert nt.replace_norms(nn.Sequential(named[OnAnotherDevice](8)), "power") == ["0"]
    model = nn.Sequential(named[InputScaled](8))
    model[0].weight.data.zero_()
    with pytest.warns(UserWarning, match="0, InputScaledLayerNorm: its formula is neither"):
        nt.replace_norms(model, "power")
    assert model[0].weight.tolist() == [1.0] * 8
    with pytest.raises(norma.UsageError, match="0: WeightlessLayerNorm has no weight"):
        nt.replace_norms(nn.Sequential(named[Weightless]()), "power", kinds=named[Weightless])


def test_tid_golden(golden):
    case = golden("analysis/tid_d6_8batches")
    batches = [torch.tensor(b["data"], dtype=torch.float64).reshape(b["shape"]) for b in case["batches"]]
    (site,) = nt.tid(nn.Sequential(nn.LayerNorm(6, dtype=torch.float64)), batches)
    assert site.site == "0"
    assert site.mean == pytest.approx(case["mean_tid"], rel=1e-9)
    assert site.variance == pytest.approx(case["var_tid"], rel=1e-9)


def test_tid_of_a_model():
    model = nn.Sequential(nn.Linear(6, 12), nt.PowerNorm(12, groups=3), nn.Dropout(0.5), nn.LayerNorm(12))
    before = copy.deepcopy(model.state_dict())
    batches = [(torch.randn(7, 6),) for _ in range(5)]
    a, b = nt.tid(model, batches), nt.tid(model, batches, forward=lambda model, batch: model(batch[0]))
    assert a == b and [site.site for site in a] == ["1", "3"]
    assert all(0 < value < 2 for site in a for value in site[1:])
    assert model.training and all(torch.equal(model.state_dict()[key], value) for key,
                                  value in before.items())
    padded = [{"input": torch.cat([x, torch.full((2, 6), 1e3)])} for (x,) in batches]
    c = nt.tid(model, padded, padding_mask=lambda batch: torch.arange(9) >= 7)
    for site, other in zip(a, c):
        assert site[1:] == pytest.approx(other[1:], rel=1e-5)
    with pytest.raises(norma.UsageError, match="no norm of the model was called"):
        nt.tid(model, [])
    for loader in ((batch for batch in batches), iter(batches), (batch for batch in [])):
        with pytest.raises(norma.UsageError, match="loader is traversed twice"):
            nt.tid(model, loader)

    class Once:
        def __init__(self):
            self.left = list(batches)

        def __iter__(self):
            while self.left:
                yield self.left.pop()
    with pytest.raises(norma.UsageError, match="loader is traversed twice"):
        nt.tid(model, Once())
    assert model.training and all(torch.equal(model.state_dict()[key], value) for key,
                                  value in before.items())


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("type", BATCH_TYPES)
def test_variance_of_one_token(type, kernel):
    """torch.nn.BatchNorm1d raises "Expected more than 1 value per channel when training"."""
    norm, mask = nt.Norm(type, 6), torch.ones(2, 3, dtype=torch.bool)
    norm.kernel, mask[1, 1] = kernel, False
    for arguments in [(torch.randn(1, 6),), (torch.randn(2, 3, 6), mask)]:
        for training in (True, False):
            norm.train(training)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                norm(*arguments)
            assert [type in str(one.message) for one in caught] == [True] * (
                training and hasattr(norm, "running_mean"))


def test_errors():
    norm = nt.PowerNorm(12, groups=3)
    for x, error, message in ((torch.zeros(2, 11), norma.UsageError, "expected \\[..., 12\\]"),
                              (torch.zeros(2, 12, dtype=torch.int64), norma.UnsupportedError, "int64"),
                              (torch.zeros(2, 12).to_sparse(), norma.UnsupportedError, "sparse"),
                              (torch.zeros(2, 12, dtype=torch.float64), norma.UnsupportedError,
                               "the module")):
        with pytest.raises(error, match=message):
            norm(x)
    with pytest.raises(norma.UsageError,
                       match="padding_mask is torch.bool \\[3\\], expected torch.bool \\[2\\]"):
        norm(torch.zeros(2, 12), torch.zeros(3, dtype=torch.bool))
    for call in (lambda: norm([[0.0] * 12]), lambda: norm(torch.zeros(2, 12).numpy()), lambda: norm(None)):
        with pytest.raises(TypeError, match="norm 'power': x is a .*, expected a torch.Tensor"):
            call()
    for call in (lambda: norm(torch.zeros(2, 12), [False, True]),
                 lambda: nt.padding(norm, [False, True]).__enter__()):
        with pytest.raises(TypeError, match="padding_mask is a builtins.list, expected a torch.Tensor"):
            call()
    for arguments, options, message in [((), {"normalized_shape": 8}, "normalized_shape is called width"),
                                        ((), {"num_features": 8}, "num_features is called width"),
                                        ((8, 1e-6), {}, "need their names")]:
        with pytest.raises(norma.UsageError, match=message):
            nt.LayerNorm(*arguments, **options)
    with pytest.raises(norma.UsageError, match="dtype"):
        nt.Norm("layer", 8, dtype=torch.int32)
    with pytest.raises(norma.UsageError, match="statistics = 'all': expected 'process' or 'group'"):
        nt.Norm("batch", 8, statistics="all")
    with pytest.raises(AttributeError, match="no attribute 'PowerNrom'"):
        nt.PowerNrom
    norm.weight = nn.Parameter(torch.ones(11))
    for kernel in (True, False):
        norm.kernel = kernel
        with pytest.raises(norma.UsageError, match="weight does not have 12 elements"):
            norm(torch.zeros(2, 12))


def test_words_that_people_type():
    for given in (nt.PowerNorm, "PN"):
        model = nn.Sequential(nn.LayerNorm(8), nn.LayerNorm(8))
        assert nt.replace_norms(model, given, kinds=nn.LayerNorm) == ["0", "1"]
        assert model[0].type.name == "power"
    assert nt.LayerNorm([8]).width == nt.LayerNorm(torch.Size([8])).width == 8
    model = nn.Sequential(nn.LayerNorm(8))
    for call, message in ((lambda: nt.replace_norms(model, "power", where="encoder"), "expected a function"),
                          (lambda: nt.replace_norms(nn.LayerNorm(8), "power"), "is a LayerNorm itself"),
                          (lambda: nt.LayerNorm((2, 4)), "width = \\(2, 4\\)"),
                          (lambda: nt.LayerNorm(8, bias=False), "freeze them with requires_grad_"),
                          (lambda: nt.LayerNorm(8)(torch.zeros(2, 8, 5)), "x.movedim\\(1, -1\\)")):
        with pytest.raises(norma.UsageError, match=message):
            call()


def test_names_that_people_type():
    for name in ("PowerNorm", "power", "powernorm", "power_norm", "Power-Norm"):
        assert nt.Norm(name, 12, num_groups=3).type.name == "power"
    assert (
        nt.RBN is nt.RegularizedBatchNorm
        and nt.MABN is nt.MovingAverageBatchNorm
        and nt.BatchNorm1d is nt.BatchNorm
    )
    assert (
        nt.Norm("group", 12, heads=3)._options["groups"] == 3
        and nt.Norm("LayerNorm", 12, eps=0.25)._options["epsilon"] == 0.25
    )
    assert nt.RBN(12, lambda_=2.0)._options["lambda"] == 2.0 and norma.Norm("RMSNorm", 12).type.name == "rms"
    for call, message in ((lambda: nt.Norm("pwer", 12),
                           "unknown norm 'pwer'; did you mean 'power'\\?; available: none, layer"),
                          (lambda: nt.PowerNorm(12, momentum=0.1),
                           "'power' has no option 'momentum'; use decay = 1 - momentum"),
                          (lambda: nt.PowerNorm(12, warmpu=3),
                           "has no option 'warmpu'; did you mean 'warmup'\\?; options: preset"),
                          (lambda: nt.LayerNorm(12, eps=0.1, epsilon=0.2), "both mean 'epsilon'"),
                          (lambda: norma.Norm("power", 12, num_group=3),
                           "has no option 'num_group'; did you mean")):
        with pytest.raises(norma.UsageError, match=message):
            call()


def test_checkpoints_of_rms_norms():
    """`weight` of PyTorch and transformers, `scale` of the authors, both ways."""
    weight = torch.linspace(1, 2, 8)
    norm = nt.RMSNorm(8)
    norm.load_state_dict({"weight": weight.clone()})
    assert torch.equal(norm.scale, weight)
    model = nn.Sequential(nt.PartialRMSNorm(8))
    model.load_state_dict({"0.weight": weight.clone()})
    model.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        norm.load_state_dict({"gain": weight})
    if hasattr(nn, "RMSNorm"):  # PyTorch 2.4
        one = replaced(nn.RMSNorm(8), "rms")
        assert isinstance(one, nn.RMSNorm) and list(one.state_dict()) == ["weight"]
        nn.RMSNorm(8).load_state_dict(one.state_dict()), one.load_state_dict(nn.RMSNorm(8).state_dict())
        one.load_state_dict({"scale": weight.clone()})
        assert torch.equal(one.weight, weight)
        assert torch.equal(pickle.loads(pickle.dumps(one))(weight), copy.deepcopy(one)(weight))


def test_gain_that_is_weight_plus_one():
    """Gemma: the new norm has the formula, the old checkpoint and the initial values."""
    class GemmaRMSNorm(nn.Module):
        def __init__(self, dim, eps=1e-6):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.linspace(-0.5, 0.5, dim)), eps

        def forward(self, x):
            x = x.float()
            return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)) * (
                1.0 + self.weight.float()
            )
    old, x = GemmaRMSNorm(8), torch.randn(3, 8)
    new = replaced(copy.deepcopy(old), "rms")
    torch.testing.assert_close(new(x), old(x))
    assert torch.equal(new.weight, old.weight) and list(new.state_dict()) == ["weight"]
    new(x).sum().backward(), old(x).sum().backward()
    torch.testing.assert_close(new.weight.grad, old.weight.grad)
    new.reset_parameters()
    assert not new.weight.any()
    power = replaced(copy.deepcopy(old), "power")
    torch.testing.assert_close(power(x), nt.PowerNorm(8)(x) * (1 + old.weight))


@pytest.mark.parametrize("type", TYPES)
def test_meta_device_and_reset(type):
    if not hasattr(torch, "get_default_device"):
        pytest.skip("PyTorch without a default device for factory functions")
    norm, fresh = trained(type), nt.Norm(type, 12, groups=3)
    with torch.device("meta"):
        empty = nt.Norm(type, 12, groups=3)
    assert all(tensor.device.type == "meta" for tensor in empty.state_dict().values())
    empty.to_empty(device="cpu").reset_parameters()
    before = [id(param) for param in norm.parameters()]
    norm.reset_parameters()
    assert before == [id(param) for param in norm.parameters()]
    for one in (empty, norm):
        for name, tensor in fresh.state_dict().items():
            assert torch.equal(one.state_dict()[name], tensor), name
        assert torch.equal(one(torch.ones(2, 12).cumsum(1)),
                           copy.deepcopy(fresh)(torch.ones(2, 12).cumsum(1)))


def test_parameters_may_be_replaced():
    norm = nt.LayerNorm(4)
    norm.weight = nn.Parameter(torch.full((4,), 2.0))
    norm.bias.data = torch.arange(8.0)[::2]
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    torch.testing.assert_close(norm(x), 2 * nn.functional.layer_norm(x, (4,)) + torch.arange(8.0)[::2])
    double = norm.double()
    assert double(x.double()).dtype == torch.float64
    assert norm(x[:0].double()).shape == (0, 4)


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint
    norm, x = trained("batch"), torch.randn(6, 12)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    copy.deepcopy(norm)(a).square().sum().backward()
    checkpoint(norm, b, use_reentrant=False).square().sum().backward()
    assert torch.equal(a.grad, b.grad)


def test_penalty_and_checkpointing():
    """Reentrant checkpointing computes the first forward pass without gradients: a warning."""
    from torch.utils.checkpoint import checkpoint
    model, x = nn.Sequential(nn.Linear(12, 12), trained("rbn")), torch.randn(6, 12)
    grads = []
    warned = hasattr(torch._C, "_current_graph_task_id")  # not in PyTorch 1.13
    for reentrant in (None, False, True) if warned else (None, False):
        one, a = copy.deepcopy(model), x.clone().requires_grad_()
        y = one(a) if reentrant is None else checkpoint(one, a, use_reentrant=reentrant)
        loss = y.square().sum() + 10 * nt.penalty(one)
        if reentrant:
            with pytest.warns(UserWarning,
                              match="norm 'rbn': the penalty has no gradient.*use_reentrant=False"):
                loss.backward()
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loss.backward()
            grads.append(a.grad)
    assert torch.equal(*grads)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="PyTorch before 2.0")
def test_compile_without_fullgraph():
    """Versions without custom operators break the graph at each norm."""
    model = nn.Sequential(nn.Linear(12, 12), nt.PowerNorm(12, groups=3, warmup=2), nn.ReLU())
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(4):
        x = torch.randn(5, 12)
        a, b = compiled(x), eager(x)
        torch.testing.assert_close(a, b)
        a.sum().backward(), b.sum().backward()
    torch.testing.assert_close(model[0].weight.grad, eager[0].weight.grad)
    assert int(model[1].iters) == 4
    for key, value in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], value)


def test_one_openmp_runtime():
    """In this process, and in one that uses the library before it imports PyTorch."""
    program = """import sys, norma, norma._library
norma.norm_types()
assert "torch" not in sys.modules
import torch, norma.torch
torch.set_num_threads(2)
x = torch.randn(4000, 512)
norma.torch.LayerNorm(512)(x)
torch.nn.Linear(512, 512)(x)
print(len(norma._library.loaded_openmp()))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
    assert len(norma._library.loaded_openmp()) == 1
