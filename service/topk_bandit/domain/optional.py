"""Packages that come with an extra, because only figures and experiments need them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from topk_bandit.domain.errors import ConfigurationError

__all__ = ["needed"]


def needed(module: str, purpose: str, *, extra: str = "experiments") -> Any:  # noqa: ANN401 - of what may not be there
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
        raise ConfigurationError(f"{purpose} needs {package}: pip install 'topk-bandit[{extra}]'") from None
