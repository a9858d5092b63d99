"""Packages that come with an extra, because only figures and experiments need them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from topk_bandit.domain.errors import ConfigurationError

__all__ = ["import_extra", "missing"]


def missing(module: str, purpose: str, *, extra: str = "experiments") -> str:
    """Return what to tell of a module that is not installed, and how to install it; nothing if it is there."""
    return "" if _is_there(module) else _problem(module.partition(".")[0], purpose, extra)


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
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ConfigurationError(_problem(package, purpose, extra)) from None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def _problem(package: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs {package}: pip install 'topk-bandit[{extra}]'"
