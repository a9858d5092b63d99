"""What is measured beside: packages of the dependency group `peers`, which need not be installed."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["CVXPY", "GPYTORCH", "SELENIUM", "VOWPAL_WABBIT", "absent"]

CVXPY = ("cvxpy",)
GPYTORCH = ("gpytorch", "torch")
SELENIUM = ("selenium",)
"""Of the dependency group `dev`."""
VOWPAL_WABBIT = ("vowpalwabbit",)


def absent(packages: tuple[str, ...]) -> list[str]:
    """Return those of `packages` that are not installed."""
    return [package for package in packages if find_spec(package) is None]
