"""A row of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.errors import InvalidArgumentError

__all__ = ["FileRow"]


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row: where it stands, and its values by column or what is wrong with it as a whole."""

    place: str
    values: Mapping[str, Any] | InvalidArgumentError
