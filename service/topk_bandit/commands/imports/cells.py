"""The values of a row by the names that they have for a person; errors name the column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Cells", "columns_named", "is_missing"]

_SEPARATOR = "|"


def columns_named(told: Sequence[str]) -> dict[str, str]:
    """Return the columns that texts such as ``reward=margin`` name."""
    pairs = [text.partition("=") for text in told]
    for name, _, column in pairs:
        if not (name and column):
            raise InvalidArgumentError("--column", "expected NAME=COLUMN, such as reward=margin")
    return {name: column for name, _, column in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Where a row has what.

    Attributes
    ----------
    named
        The column that has each name, where that is not the name itself.
    """

    named: Mapping[str, str]

    def others(self, values: Mapping[str, Any], known: Collection[str]) -> list[str]:
        """Return the columns of a row that have none of the known names."""
        columns = {self.named.get(name, name) for name in known}
        return [name for name in values if name not in columns]

    def get(self, values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401, whatever a file has
        """Return what a row has under a name; None without it."""
        return values.get(self.named.get(name, name))

    def error(self, name: str, problem: str) -> InvalidArgumentError:
        """Return the error about the column of a name."""
        return InvalidArgumentError(f"column {self.named.get(name, name)!r}", problem)

    def parts(self, values: Mapping[str, Any], name: str, part: str, size: int) -> list[Any]:
        """Return a list in one column, or in several that are numbered."""
        whole = self.get(values, name)
        if is_missing(whole):
            parts = [self.get(values, f"{part}_{place}") for place in range(1, size + 1)]
            return [one for one in parts if not is_missing(one)]
        return self.split(name, whole)

    def split(self, name: str, value: object) -> list[Any]:
        """Return the parts of a list in one column."""
        if isinstance(value, str):
            return [part.strip() for part in value.split(_SEPARATOR) if part.strip()]
        if not isinstance(value, list):
            raise self.error(name, f"expected a list, got {value!r:.60}")
        return value

    def number(self, name: str, value: Any) -> float:  # noqa: ANN401, whatever a file has
        """Return a finite number."""
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.error(name, f"expected a finite number, got {value!r:.60}")
        return number

    def text(self, name: str, value: Any) -> str:  # noqa: ANN401, whatever a file has
        """Return a text; a number stands for its digits, and bytes, as some write texts to Parquet, for their text."""
        if isinstance(value, bytes):
            value = value.decode(errors="surrogateescape")
        if isinstance(value, list | dict) or (not (text := str(value)).isascii() and not _is_unicode(text)):
            raise self.error(name, f"expected a text, got {value!r:.60}")
        return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_missing(value: object) -> bool:
    """Return whether a row has nothing there."""
    return value is None or value == ""
