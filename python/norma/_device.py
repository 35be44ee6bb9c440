"""The option ``device``: "cpu", "cuda" or "cuda:1", as in PyTorch."""
from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
from typing import Any, Dict, Mapping

from ._library import UsageError


def _load_libraries() -> None:
    """Loads NVRTC and cuBLASLt of the packages nvidia-cuda-nvrtc and nvidia-cublas, which are in folders that
    the system does not search. The library then finds them by name; without them it names what is missing."""
    for name in ("libnvrtc.so", "libcublasLt.so"):
        for folder in sys.path:
            pattern = os.path.join(glob.escape(folder), "nvidia", "*", "lib", name + ".1[0-9]")
            found = sorted(glob.glob(pattern))
            if found:
                try:
                    ctypes.CDLL(found[-1])
                except OSError:
                    continue  # of another platform or without its own dependencies
                break


def _cache_folder() -> str:
    """The folder that the program uses for compiled kernels."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if os.path.isabs(cache) else os.path.expanduser("~/.cache"), "norma")


def with_device(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The options with ``device`` replaced by device.backend, device.ordinal and device.cache."""
    rest = {name: value for name, value in options.items() if name != "device"}
    if "device" in options:
        device = options["device"]
        found = re.fullmatch("(cpu)|cuda(?::([0-9]{1,4}))?", str(device))
        if not found:
            raise UsageError(f"device = {device!r}: expected 'cpu', 'cuda' or 'cuda:N'")
        if "device.backend" in options:
            raise UsageError("device and device.backend: expected one of them")
        rest["device.backend"] = "cpu" if found[1] else "cuda"
        if found[2]:
            rest["device.ordinal"] = found[2]
    if rest.get("device.backend") == "cuda":
        _load_libraries()
        rest.setdefault("device.cache", _cache_folder())
    return rest
