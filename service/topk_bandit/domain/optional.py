"""Packages that come with an extra, because most installations do without them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from topk_bandit.domain.errors import ConfigurationError

__all__ = ["import_extra", "missing"]


def missing(module: str, purpose: str, *, extra: str = "experiments") -> str:
    """Return what to tell of a module that is not installed, and how to install it; nothing if it is there."""
    return "" if _is_there(module) else _problem(module, purpose, extra)


def import_extra(module: str, purpose: str, *, extra: str = "experiments") -> Any:  # noqa: ANN401 - of what may not be there
    """Import a module of an extra.

    Raises
    ------
    ConfigurationError
        It is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(_problem(module, purpose, extra)) from None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def _problem(module: str, purpose: str, extra: str) -> str:
    package = module.partition(".")[0]
    if package == "topk_bandit":  # a part of it that is a package of its own
        package = f"topk-bandit-{extra}"
    return f"{purpose} needs {package}: pip install 'topk-bandit[{extra}]'"
