"""Tables as lines of text: aligned, never cut, so that they can be read and searched alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["facts", "flatten", "number", "table"]

_NOTHING = "-"


def number(value: float | None) -> str:
    """Return a number of a model to four places; what is not known is a dash."""
    return _NOTHING if value is None else f"{round(value, 4) + 0.0:+.4f}"  # a zero has no minus


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a table: columns of texts begin together, columns of numbers end together."""
    cells = [[_NOTHING if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    right = [bool(cells) and all(_is_number(row[column]) for row in cells) for column in range(len(titles))]
    for row in ([*titles], *cells):
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        yield "  ".join(padded).rstrip()


def facts(named_values: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yield one name and its value a line."""
    pairs = list(named_values)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        yield f"{name:{width}}  {value}".rstrip()


def flatten(values: Mapping[str, object], *, within: str = "") -> Iterator[tuple[str, object]]:
    """Yield one value at a time: parts of a value by its name, a dot and theirs, plain lists in a line."""
    for key, value in values.items():
        name = within + key
        if isinstance(value, Mapping):
            yield from flatten(value, within=f"{name}.")
        elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
            yield from flatten({str(number): one for number, one in enumerate(value, 1)}, within=f"{name}.")
        elif isinstance(value, list | tuple):
            yield name, ", ".join(map(str, value)) or _NOTHING
        else:
            yield name, _NOTHING if value in (None, "") else value


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return text == _NOTHING
    return True
