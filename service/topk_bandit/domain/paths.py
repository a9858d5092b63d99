"""Paths of fields, as errors name them."""

from __future__ import annotations

__all__ = ["entry_of"]


def entry_of(field: str, key: str) -> str:
    """Return the path of a map's entry."""
    return f'{field}["{key}"]'
