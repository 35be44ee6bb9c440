"""norma.Norm and the table of types, with numpy arrays."""
import errno
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import norma

TYPES = sorted(norma.norm_types())
BATCH_TYPES = [name for name in TYPES if norma.norm_types()[name].uses_batch]
# For finite differences. The running values of RBN's penalty are constants for the gradient; after the update
# they depend on x. By default, Partial RMSNorm uses a single one of 12 features.
DIFFERENTIABLE = {"rbn": {"reference": "before"}, "prms": {"fraction": 0.5}}
RNG = np.random.default_rng(7)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def trained(type, width=12, **options):
    """A layer whose parameters and state differ from the initial values."""
    norm = norma.Norm(type, width, groups=3, **options)
    for values in norm.params.values():
        values += np.linspace(0.1, 0.4, values.size, dtype=values.dtype)
    for _ in range(3):
        norm.forward(random(9, width).astype(norm.dtype) + norm.dtype.type(0.3))
        norm.backward(random(9, width).astype(norm.dtype))
    norm.zero_grads()
    return norm


def test_table_of_types():
    power = norma.norm_types()["power"]
    assert (
        power.title == "PowerNorm"
        and power.uses_batch
        and power.approximate_gradient
        and not power.has_penalty
    )
    assert power.options["decay_forward"].default == "0.9"
    assert power.options["scaling"].choices == "none|layer|group"
    assert norma.norm_types()["rbn"].has_penalty
    assert not norma.norm_types()["layer"].has_state


def test_layer_norm():
    x = random(5, 4, 12)
    norm = norma.Norm("layer", 12)
    norm.params["weight"][:] = 2
    norm.params["bias"][:] = 1
    expected = 2 * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(norm.infer(x), expected, atol=2e-6)
    assert norm.infer(x[:, ::2]).shape == (5, 2, 12)  # not contiguous
    np.testing.assert_allclose(norm.infer(x[:, ::2]), expected[:, ::2], atol=2e-6)
    assert norm.infer(x[0, 0]).shape == (12,)
    assert norm.infer(x[:0]).shape == (0, 4, 12)


def test_batch_norm_of_tokens_without_padding():
    x = random(4, 6, 12)
    mask = np.zeros((4, 6), bool)
    mask[1, 3:] = mask[3, 1:] = True
    packed, padded = norma.Norm("batch", 12), norma.Norm("batch", 12)
    y, dx = packed.forward(x[~mask]), packed.backward(x[~mask] ** 2)
    assert np.array_equal(padded.forward(x, mask)[~mask], y)
    got = padded.backward(np.where(mask[..., None], 1e6, x ** 2).astype(np.float32))
    assert np.array_equal(got[~mask], dx)
    assert not got[mask].any() and not padded.forward(x, mask)[mask].any()
    real = x[~mask].astype(np.float64)
    np.testing.assert_allclose(packed.state["running_mean"], 0.05 * real.mean(0), atol=1e-6)
    np.testing.assert_allclose(packed.state["running_var"], 0.95 + 0.05 * real.var(0, ddof=1), rtol=1e-5)


@pytest.mark.parametrize("type", TYPES)
def test_gradient_by_finite_differences(type):
    """In training, except where the gradient is approximate, and at inference. That of AdaNorm, whose
    inference is its training, is approximate in both."""
    for training in (True, False):
        norm = trained(type, dtype="float64", **DIFFERENTIABLE.get(type, {}))
        if norm.type.approximate_gradient and (training or not norm.type.uses_batch):
            continue
        state = {name: values.copy() for name, values in norm.state.items()}
        counters = norm.counters
        x, dy = RNG.standard_normal((7, 12)), RNG.standard_normal((7, 12))

        def run(x):
            for name, values in state.items():
                norm.state[name][:] = values
            for name, value in counters.items():
                norm.set_counter(name, value)
            y = norm.forward(x) if training else norm.infer(x)
            return (y * dy).sum() + (2 * norm.penalty if training else 0)
        run(x)
        norm.zero_grads()
        dx = norm.backward(dy, penalty_grad=2)
        direction = RNG.standard_normal(x.shape)
        slope = (run(x + 1e-6 * direction) - run(x - 1e-6 * direction)) / 2e-6
        assert slope == pytest.approx((dx * direction).sum(), rel=1e-5, abs=1e-6), training
        for name, grad in norm.grads.items():
            values = norm.params[name]
            direction = RNG.standard_normal(values.shape)
            kept = values.copy()
            values[:] = kept + 1e-6 * direction
            above = run(x)
            values[:] = kept - 1e-6 * direction
            slope = (above - run(x)) / 2e-6
            values[:] = kept
            assert slope == pytest.approx((grad * direction).sum(), rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("type", TYPES)
def test_threads_do_not_change_results(type):
    x, dy = random(700, 12), random(700, 12)
    results = []
    for threads in (1, 2, 3):
        norm = norma.Norm(type, 12, groups=3, threads=threads)
        results.append([norm.forward(x), norm.backward(dy), norm.infer(x), *norm.state.values()])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("type", TYPES)
def test_save_and_load(type, tmp_path):
    norm, x = trained(type), random(5, 12)
    norm.save(tmp_path / "norm.safetensors")
    copy = norma.Norm(type, 12, groups=3)
    copy.load(tmp_path / "norm.safetensors")
    assert np.array_equal(norm.infer(x), copy.infer(x)) and norm.counters == copy.counters
    with pytest.raises(norma.MismatchError, match="layer of 12 features, not 24"):
        norma.Norm(type, 24, groups=3).load(tmp_path / "norm.safetensors")


def test_vectors_outlive_the_layer():
    weight = trained("power").params["weight"]
    for _ in range(20):
        norma.Norm("power", 12, groups=3)
    np.testing.assert_allclose(weight, 1 + np.linspace(0.1, 0.4, 12), rtol=1e-6)


def test_context_manager():
    x = random(5, 12)
    with norma.Norm("power", 12, groups=3) as norm:
        norm.forward(x)
        layer, weight = weakref.ref(norm._layer), norm.params["weight"]
    assert (weight == 1).all() and layer() is not None  # the array keeps the memory
    del weight
    assert layer() is None and "closed" in repr(norm)
    for use in (lambda: norm.forward(x), lambda: norm.backward(x), lambda: norm.params, lambda: norm.penalty,
                norm.__enter__):
        with pytest.raises(norma.UsageError, match="this Norm is closed"):
            use()
    norm.close()


def test_calls_from_several_threads():
    x = random(300, 12)
    norms = [trained("layer") for _ in range(4)]
    expected = [norm.infer(x) for norm in norms]
    wrong = []

    def work(i):
        for _ in range(50):
            if not np.array_equal(norms[i].infer(x), expected[i]):
                wrong.append(i)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("threads", [1, 2])
def test_fork_during_the_call_of_another_thread(threads):
    """The locks of that thread are not held in the child process."""
    program = f"""import os, signal, threading, warnings
import numpy as np
import norma
warnings.simplefilter("ignore")
busy, other = (norma.Norm("layer", 512, threads={threads}) for _ in range(2))
x = np.ones((2000, 512), np.float32)
other.infer(x[:4])
def work():
    while True:
        busy.infer(x)
threading.Thread(target=work, daemon=True).start()
for _ in range(10):
    child = os.fork()
    if not child:
        signal.alarm(10)
        other.infer(x[:4]), busy.infer(x[:4]), norma.Norm("rms", 8, threads=3).infer(x[:4, :8].copy())
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        os._exit(1)
os._exit(0)"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_numbers_of_numpy():
    norm = norma.Norm("layer", np.int32(12), groups=np.int64(3), threads=np.int8(1), epsilon=np.float64(0.25))
    x = random(3, 12)
    assert norm.width == 12 and np.array_equal(norm.infer(x), norma.Norm("layer", 12, epsilon=0.25).infer(x))
    assert norma.Norm("rms", 12, epsilon_inside=np.True_).infer(x).any()


def test_errors():
    for arguments, options, message in (
            (("powr", 8), {}, "unknown norm 'powr'; did you mean 'power'\\?; available: none, layer"),
            (("power", 0), {}, "width = 0"),
            (("power", 8), {"groups": 3}, "does not divide|groups"),
            (("power", 8), {"decay": 0.5}, "decay"),
            (("power", 8), {"decay_forward": 1.5}, "decay_forward"),
            (("power", 8), {"warmup": "soon later"}, "expected one word"),
            (("layer", 8), {"epsilon": "0.1\0"}, "expected one word"),
            (("layer", 8.0), {}, "width = 8.0: expected an integer from 1"),
            (("layer", 8), {"threads": 2**40}, "threads = 1099511627776: expected an integer from 0 to 4096"),
            (("layer", 8), {"threads": -1}, "threads = -1"),
            (("layer", 8), {"threads": "2"}, "threads = '2'"),
            (("layer", 8), {"name": "a\0b"}, "name: the character NUL at position 2"),
            (("layer", 8), {"dtype": "float16"}, "expected float32 or float64")):
        with pytest.raises(norma.UsageError, match=message):
            norma.Norm(*arguments, **options)
    norm = norma.Norm("batch", 8)
    with pytest.raises(norma.UsageError, match="float64, the layer computes in float32"):
        norm.forward(np.zeros((2, 8)))
    with pytest.raises(norma.UsageError, match=r"shape \(2, 7\), expected"):
        norm.forward(random(2, 7))
    with pytest.raises(norma.UsageError, match="without a preceding forward pass"):
        norm.backward(random(2, 8))
    with pytest.raises(norma.UsageError, match="padding_mask"):
        norm.forward(random(2, 8), np.zeros(3, bool))
    norm.forward(random(2, 8))
    with pytest.raises(norma.UsageError, match="dy: shape"):
        norm.backward(random(3, 8))
    for call in (norm.save, norm.load):
        with pytest.raises(norma.UsageError, match="path: the character NUL at position 15"):
            call("é.safetensors\0.norm")
    with pytest.raises(norma.UsageError,
                       match="counter 'iters' = 9223372036854775808: expected an integer from 0"):
        norma.Norm("power", 8).set_counter("iters", 2**63)
    with pytest.raises(TypeError, match="Norm cannot be copied or pickled"):
        pickle.dumps(norm)
    with pytest.raises(norma.FileError, match="no-such-file"):
        norm.load("/no-such-folder/no-such-file")
    with pytest.raises(FileNotFoundError) as missing:
        norm.load("/no-such-folder/no-such-file")
    assert isinstance(missing.value, norma.FileError) and missing.value.errno == errno.ENOENT
    assert (
        missing.value.filename == "/no-such-folder/no-such-file"
        and str(missing.value) == missing.value.args[0]
    )
    with pytest.raises(norma.FileError, match=": is a folder") as folder:
        norm.load("/")
    assert not isinstance(folder.value, FileNotFoundError) and folder.value.errno is None
    masked = np.ma.masked_equal(random(2, 8), 0)
    for call in (lambda: norm.forward(masked), lambda: norm.infer(masked), lambda: norm.backward(masked),
                 lambda: norm.forward(random(2, 8), np.ma.masked_equal(np.zeros(2, bool), True))):
        with pytest.raises(norma.UsageError, match="(x|dy|padding_mask) is a masked array"):
            norm.forward(random(2, 8))
            call()
    with pytest.raises(OSError):
        norm.save("/no-such-folder/file")
    with pytest.raises(norma.UnsupportedError, match="center_weights"):
        centered = norma.Norm("mabn", 8, center_weights=True)
        centered.infer(random(2, 8))
        centered.backward(random(2, 8))
    assert issubclass(norma.UsageError, ValueError)


GOLDEN = {
    "layernorm_b7_d8": ("layer", {}),
    "rmsnorm_b7_d8": ("rms", {}),
    "scalenorm_b7_d8": ("scale", {}),
    "groupnorm_g2_b7_d8": ("group", {"groups": 2}),
    "batchnorm_torch_b7_d8": ("batch", {"preset": "framework"}),
    "dyt_b7_d8": ("dyt", {}),
    "derf_b7_d8": ("derf", {}),
    "unit_k15_b6_d10": ("unit", {"k": 1.5}),
    "prms_p4th_offset_b6_d10": ("prms", {"fraction": 0.25, "offset": True}),
    "ada_official_c2_b5_d3": ("ada", {"c": 2}),
    "seed_b7_d8": ("seed", {}),
    "repbn_b7_d8": ("repbn", {}),
    "un_warm6_b7_d5": ("un", {"warmup": 6}),
    "pn_noscale_w2_t7b1_d8": ("power", {"scaling": "none", "warmup": 2}),
    "pn_official_g2_w3_packed_t5b3_d8": ("power", {"groups": 2, "warmup": 3}),
}


def tensor(value):
    return np.array(value["data"], np.float64).reshape(value["shape"])


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_case(golden, name):
    """Values computed by the authors' code."""
    case = golden("norm/" + name)
    type, options = GOLDEN[name]
    norm = norma.Norm(type, case["config"]["d"], dtype="float64", **options)
    for vectors, values in ((norm.params, case["init"]["params"]), (norm.state, case["init"]["state"])):
        for key, value in values.items():
            if isinstance(value, dict) and key in vectors:
                vectors[key][:] = tensor(value).ravel()
    for step in case["steps"]:
        x = tensor(step["x"])
        if step["mode"] == "eval":
            np.testing.assert_allclose(norm.infer(x), tensor(step["y"]), rtol=1e-9, atol=1e-9)
            continue
        norm.zero_grads()
        np.testing.assert_allclose(norm.forward(x), tensor(step["y"]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(norm.backward(tensor(step["dy"])), tensor(step["dx"]), rtol=1e-9,
                                   atol=1e-9)
        for key, value in step["dparams"].items():
            np.testing.assert_allclose(norm.grads[key], tensor(value).ravel(), rtol=1e-9, atol=1e-9)
        for key, value in step.get("state_after", {}).items():
            if isinstance(value, dict):
                np.testing.assert_allclose(norm.state[key], tensor(value).ravel(), rtol=1e-9, atol=1e-9)
            else:
                assert norm.counters[key] == value
