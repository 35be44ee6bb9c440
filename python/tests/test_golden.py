"""norma.torch against values of the authors' code (tests/golden/cases): parameters and
running statistics by name, several steps of one layer, inference, gradients. In float64 by plain PyTorch, in
float32 by the kernels and by plain PyTorch. NORMA_GOLDEN: a folder with more cases."""
import json
import os
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")

import norma  # noqa: E402
import norma.torch as nt  # noqa: E402
from conftest import SOURCE  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("NORMA_GOLDEN") or SOURCE / "tests" / "golden" / "cases")
CASES = sorted(FOLDER.glob("norm/*.json")) + sorted(FOLDER.glob("image_norm/*.json"))
NAMES = {"psi2": "running_phi", "nu": "ema_gz", "token.weight": "token_weight", "token.bias": "token_bias",
         "batch.weight": "weight", "batch.bias": "bias", "batch.alpha": "alpha"}
TYPES = {"layernorm": "layer", "rmsnorm": "rms", "group_scaling": "rms", "scalenorm": "scale",
         "fixnorm": "fix", "groupnorm": "group", "groupnorm_image": "group2d",
         "batchnorm": "batch", "powernorm": "power", "batchrenorm": "renorm"}
SCHEDULES = {"r_max_schedule": "clip(1,3, 2/35000*n+25/35)", "d_max_schedule": "clip(0,5, 5/20000*n-25/20)"}


class Case:
    """A golden case: the module, and the names and scales of its vectors."""

    def __init__(self, path):
        case = json.loads(path.read_text())
        self.steps, self.init, self.config = case["steps"], case["init"], case["config"]
        self.variant, self.schedule, self.factors = case["variant"], None, {}
        self.type = TYPES.get(case["method"], case["method"])
        self.padded = any(0 in step["valid"]["data"] for step in self.steps if step.get("valid"))
        self.options = getattr(self, "_" + self.type, self._by_name)()

    def _skip_counted_padding(self):
        if self.padded and "stay in the count" in self.config.get("pad_handling", ""):
            pytest.skip("the program counts padding rows")

    def _by_name(self):
        options = norma.norm_types()[self.type].options
        return {name: self.config[key] for name in options for key in ("eps" if name == "epsilon" else name,)
                if key in self.config}

    def _epsilon(self, otherwise=1e-5):
        return {"epsilon": self.config.get("eps", otherwise)}

    def _scaling(self):
        found = "group" if self.config.get("group_scaling") else "none"
        return {"scaling": "layer" if self.config.get("layer_scaling") else found}

    def _layer(self):
        return {**self._epsilon(), "unbiased": "unbiased" in self.variant}

    def _rms(self):
        if "groups" in self.config:
            return {**self._epsilon(), "epsilon_inside": True, "gain": False, "groups": self.config["groups"]}
        inside = "in_sqrt" in self.variant or "inside" in self.variant
        return {**self._epsilon(1e-8), "epsilon_inside": inside}

    def _scale(self):
        return {**self._epsilon(), "trainable": self.config.get("trainable_g", True)}

    def _fix(self):
        return self._epsilon(1e-12)

    def _group(self):
        return {**self._layer(), "groups": self.config["groups"]}

    def _group2d(self):
        if self.config["height"] * self.config["width"] > 1:
            pytest.skip("a module has no images, see plain/group2d.py")
        return {**self._epsilon(), "groups": self.config["groups"]}

    def _statistics(self):
        self._skip_counted_padding()
        return {**self._epsilon(), **self._scaling(), "decay": 1 - self.config.get("momentum_new", 0.05),
                "clamp": "clamp" in self.config.get("eps_mode", ""), "groups": self.config.get("groups", 1)}

    def _unbiased(self, otherwise=""):
        return {"unbiased_running": self.config.get("running_var", otherwise).startswith("unbiased")}

    def _batch(self):
        return {**self._statistics(), **self._unbiased()}

    def _pnv(self):
        return self._statistics()

    def _rbn(self):
        penalty = self.config.get("penalty_type", self.variant)
        if penalty not in ("diff", "diff2", "reldiff"):
            pytest.skip(f"penalty {penalty}")
        return {**self._statistics(), **self._unbiased(), "penalty": penalty,
                "lambda_": self.config.get("penalty_mean", 0), "nu": self.config.get("penalty_var", 0)}

    def _power(self):
        if self.padded and self.config.get("nu_scope") == "all_rows":
            pytest.skip("nu runs over padding rows")
        backward = self.config.get("alpha_bkw", 0.9)
        self.factors["nu"] = 1 - backward  # nu of the paper is this factor times ema_gz
        options = {**self._epsilon(), "groups": self.config.get("groups", 1), "decay_backward": backward,
                   "decay_forward": self.config.get("alpha_fwd", 0.9)}
        if "paper" in self.variant:
            return {**options, "preset": "paper"}
        return {**options, **self._scaling(), "warmup": self.config.get("warmup_iters", 0)}

    def _windows(self, **defaults):
        """Of MABN and UN"""
        limit = {"r_limit": self.config["r_clip"][1]} if "r_clip" in self.config else {}
        return {**self._epsilon(), **limit, "r_hold": self.config.get("r_forced_to_one_until", 1000),
                "warmup": self.config.get("warmup_iters", defaults["warmup"]),
                "decay": self.config.get("momentum_old", defaults["decay"])}

    def _mabn(self):
        return {**self._windows(warmup=0, decay=0.98), "window": self.config.get("buffer_size", 16)}

    def _un(self):
        self._skip_counted_padding()
        return {**self._windows(warmup=4000, decay=0.9),
                "window_forward": self.config.get("window_forward", 4),
                "window_backward": self.config.get("window_backward", 4),
                "outlier_filtration": self.config.get("outlier_filtration", False)}

    def _renorm(self):
        if "limits" in self.config:
            ramps = dict(zip(("r_max", "d_max"), self.config["limits"]), ramp_start=0, r_ramp_end=0,
                         d_ramp_end=0)
        else:
            assert all(self.config.get(key, text) == text for key, text in SCHEDULES.items())
            ramps = {}
        return {**self._epsilon(), **ramps, "decay": 1 - self.config.get("momentum_new", 0.01),
                "eps_mode": "added" if "added" in self.config.get("eps_mode", "") else "inside"}

    def _ada(self):
        return {**self._epsilon(), "variant": "official" if self.config.get("unbiased") else "paper",
                "c": self.config.get("C", 1), "k": self.config.get("k", 0.1)}

    def _prms(self):
        return {**self._epsilon(1e-8), "fraction": self.config.get("fraction", 0.0625),
                "offset": "offset" in self.init["params"]}

    def _repbn(self, epsilon="eps"):
        return {"epsilon": self.config.get(epsilon, 1e-5), "decay": 1 - self.config.get("momentum_new", 0.1),
                **self._unbiased("unbiased")}

    def _progressive(self):
        """The program counts what is left, and calls within an interval; `iters` counts calls."""
        state, total = self.init["state"], self.config.get("total_step", 1)
        interval, within = self.config.get("every", 1), state.get("num_step", 0)
        done, before = total - state["iter"], -(-within // interval)
        first = within + max(done - before, 0) * interval
        warmup = -(-first // interval) - done + state["warm"]
        self.schedule = {"interval": interval, "warmup": warmup, "total": total, "first": first}
        return {**self._repbn("batch_eps"), "token_norm": self.config.get("token_norm", "layer"),
                "token_epsilon": self.config.get("token_eps", 1e-5), "lambda_init": self.config.get("r0", 1),
                "warmup": warmup, "lambda_steps": total, "interval": interval, "shorten_lambda": False}

    def module(self, dtype):
        norm = nt.Norm(self.type, self.config["d"], dtype=dtype, **self.options)
        given = {**self.init["params"], **self.init["state"]}
        if self.schedule:
            given = {name: value for name, value in given.items() if name not in ("warm", "iter", "num_step")}
            given["iters"] = self.schedule["first"]
        values = {NAMES.get(name, name): self.tensor(value, name) for name, value in given.items()}
        missing, unexpected = norm.load_state_dict(values, strict=False)
        # counters that a program or a formula does not have
        allowed = {"num_batches_tracked", "skip_counter"} | ({"iters"} if "paper" in self.variant else set())
        assert not unexpected and set(missing) <= allowed, (missing, unexpected)
        return norm

    def tensor(self, value, name=""):
        if not isinstance(value, dict):
            return torch.tensor(value)
        found = torch.tensor(value["data"], dtype=torch.float64).reshape(value["shape"])
        return found / self.factors.get(name, 1)

    def counter(self, norm, name):
        """A counter of the program."""
        if not self.schedule or name not in ("warm", "iter", "num_step"):
            return int(getattr(norm, name))
        calls, interval = int(norm.iters), self.schedule["interval"]
        done = -(-calls // interval) - self.schedule["warmup"]
        return {"warm": max(-done, 0), "iter": max(self.schedule["total"] - max(done, 0), 0),
                "num_step": calls % interval}[name]


def close(got, expected, tolerance, what):
    expected = expected.reshape(got.shape)
    worst = ((got.double() - expected).abs() / (1 + expected.abs())).max() if got.numel() else 0
    assert worst <= tolerance, f"{what}: {float(worst):.1e}"


def run(case, norm, dtype):
    y_tolerance, tolerance = (1e-9, 1e-9) if dtype == torch.float64 else (2e-4, 2e-3)
    for i, step in enumerate(case.steps):
        x, y = case.tensor(step["x"]), case.tensor(step["y"])
        mask = None
        kept = torch.ones(len(x), dtype=torch.bool)
        if step.get("valid"):
            kept = case.tensor(step["valid"]) != 0
            mask = None if kept.all() else ~kept
        x = x.to(dtype).requires_grad_()
        norm.train(step["mode"] == "train").zero_grad()
        got = norm(x, mask)
        close(got[kept], y[kept], y_tolerance, f"step {i}: y")
        if step["mode"] == "train":
            ((got * case.tensor(step["dy"]).to(dtype)).sum() + nt.penalty(norm)).backward()
            close(x.grad[kept], case.tensor(step["dx"])[kept], tolerance, f"step {i}: dx")
            for name, value in step["dparams"].items():
                param = getattr(norm, NAMES.get(name, name))
                if param.requires_grad:
                    close(param.grad, case.tensor(value), tolerance, f"step {i}: gradient of {name}")
            if "reg_loss" in step:
                assert float(norm.penalty.detach()) == pytest.approx(step["reg_loss"], rel=y_tolerance,
                                                                     abs=y_tolerance)
        for name, value in step.get("state_after", {}).items():
            if isinstance(value, dict):
                close(getattr(norm, NAMES.get(name, name)), case.tensor(value, name), tolerance,
                      f"step {i}: {name}")
            else:
                assert case.counter(norm, name) == value, f"step {i}: {name}"


@pytest.mark.parametrize("kind", ["float64", "kernel", "plain"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path, kind):
    dtype = torch.float64 if kind == "float64" else torch.float32
    case = Case(path)
    norm = case.module(dtype)
    norm.kernel = kind == "kernel"
    run(case, norm, dtype)
