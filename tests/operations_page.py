"""The commands that docs/operations.md shows, and whether what a command prints has the shape of what is shown."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["COMMANDS", "Shown", "check_shown", "fits", "shapes"]

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"


class Shown(NamedTuple):
    """A command of the page, without `topk-bandit`; what is set before it, and what it prints."""

    words: str
    variables: dict[str, str]
    lines: tuple[str, ...]


def shown() -> Iterator[Shown]:
    """Yield the commands of the page, in their order."""
    for block in re.findall(r"(?:^ {4,}.*\n|^\n(?= {4}))+", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        lines = [line.strip() for line in block.rstrip().splitlines()]
        starts = [place for place, line in enumerate(lines) if re.match(r"\$ (\w+=\S+ )*topk-bandit ", line)]
        for start, end in pairwise([*starts, len(lines)]):
            before, _, words = lines[start].removeprefix("$ ").partition("topk-bandit ")
            variables = dict(one.split("=") for one in before.split())
            yield Shown(words, variables, tuple(line for line in lines[start + 1 : end] if line))


COMMANDS = list(shown())


def shape(line: str) -> tuple[str, ...]:
    """Return a line without what differs from run to run: numbers, times, ids, digests and paths."""
    if line.startswith("{"):
        return ("an event", *re.findall(r'"(\w+)":', line))
    cells = re.split(r"\s{2,}", line)
    if len(cells) == 1 or cells[0] in {"ok", "wrong"}:
        return (re.sub(r"\b[0-9a-f]{8}\.\S+|\b[0-9a-f]{8,}\b|\d[\d.,:]*", "#", " ".join(cells)),)
    return tuple("#" if re.search(r"\d|^-$|^/", cell) else cell for cell in cells)


def is_like(shown: tuple[str, ...], told: tuple[str, ...]) -> bool:
    """Whether a line may be shown so; of an event the page has the first fields."""
    return shown == (told[: len(shown)] if told[0] == "an event" else told)


def shapes(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the shapes of lines, once where rows of a table have the same one after the other."""
    found: list[tuple[str, ...]] = []
    for line in lines:
        if line.strip() and (not found or shape(line.strip()) != found[-1]):
            found.append(shape(line.strip()))
    return found


def fits(shown: Sequence[tuple[str, ...]], told: Sequence[tuple[str, ...]]) -> bool:
    """Whether lines are shown, all or, where the page has three dots, some of them."""
    if not shown:
        return not told
    if shown[0] == ("...",):
        return any(fits(shown[1:], told[place:]) for place in range(len(told) + 1))
    return bool(told) and is_like(shown[0], told[0]) and fits(shown[1:], told[1:])


def check_shown(words: str, *told: str) -> None:
    """Fail unless the page shows a command that begins with these words so as it was seen to print."""
    pages = [one.lines for one in COMMANDS if one.words.startswith(words)]
    assert any(fits(shapes(lines), shapes(told)) for lines in pages), "\n".join(
        [words, *map(str, pages), "prints", *told]
    )
