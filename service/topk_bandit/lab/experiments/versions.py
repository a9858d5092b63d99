"""What the numbers were made with."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import topk_bandit

__all__ = ["code_digest", "versions"]


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers depend on."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("topk-bandit", "numpy", "scipy", "numba")},
    }


@cache
def code_digest() -> str:
    """Return what tells this code from any other, of the same version too."""
    digest = hashlib.sha256()
    files = [(folder, path) for folder in topk_bandit.__path__ for path in Path(folder).rglob("*.py")]
    for folder, path in sorted(files):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
