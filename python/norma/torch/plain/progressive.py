"""Progressive re-parameterized BatchNorm, PRepBN (Guo et al. 2024, section 3.2): training begins with a
per-token norm T and ends with RepBN.

Call n (from 0); W is the length of the warm-up, S that of the transition, both in steps of `interval` calls:

    s      = ceil(n / interval)
    y      = T(x)                                             s < W; the running statistics do not change
    lambda = lambda_init max(0, 1 - (s - W)/S)                afterwards
    y      = lambda T(x) + (1 - lambda) RepBN(x)

    T      = LayerNorm with token_weight and token_bias, or RMSNorm with token_weight, epsilon inside the root

Inference: RepBN alone, whatever lambda is.
"""
import torch
from torch import Tensor

from . import repbn
from ._call import Call, Page, Result, warmup
from .layer import standardized


def token(x: Tensor, call: Call) -> Tensor:
    """T(x)"""
    params, epsilon = call.params, float(call.options["token_epsilon"])
    if call.options["token_norm"] == "layer":
        return torch.addcmul(params["token_bias"], params["token_weight"], standardized(x, epsilon))
    return params["token_weight"] * (x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt())


def train(x: Tensor, call: Call) -> Result:
    options, n = call.options, call.state["iters"]
    step = torch.div(n + options["interval"] - 1, options["interval"], rounding_mode="floor")
    past = step - warmup(options)
    begun = past >= 0
    left = (1 - past.to(x.dtype) / options["lambda_steps"]).clamp(min=0)
    share = torch.where(begun, options["lambda_init"] * left, torch.ones_like(left))
    batch = repbn.train(x, call)
    state = {name: torch.where(begun, value, call.state[name]) for name, value in batch.state.items()}
    return Result(share * token(x, call) + (1 - share) * batch.y, {**state, "iters": n + 1})


page = Page("progressive", train=train, infer=repbn.infer)
