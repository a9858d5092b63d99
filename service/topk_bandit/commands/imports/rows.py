"""A row of a file, and whether the last one is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["FileRow", "check_end"]


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row: where it stands, and its values by column or what is wrong with it as a whole."""

    place: str
    values: Mapping[str, Any] | InvalidArgumentError


def check_end(path: Path, line: int) -> None:
    """Raise `InvalidArgumentError` for a file that stops inside its last line: nobody knows whether that is whole."""
    with path.open("rb") as file:
        file.seek(-1, 2)
        if file.read(1) not in {b"\n", b"\r"}:
            problem = "the last line has no end, so that the file may be cut: add a line break if it is whole"
            raise InvalidArgumentError(f"{path.name}, line {line}", problem)
