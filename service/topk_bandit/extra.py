"""Packages that only figures and experiments need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from topk_bandit.errors import ConfigurationError

__all__ = ["INSTALL", "needed"]

INSTALL = "pip install 'topk-bandit[experiments]'"


def needed(module: str, purpose: str) -> Any:  # noqa: ANN401 - of a module that may not be there
    """Import a module of the extra.

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
        raise ConfigurationError(f"{purpose} needs {package}: {INSTALL}") from None
