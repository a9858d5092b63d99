"""How a file of answers is read: by its ending, or as rankings that others publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.client import AnswerKind
from topk_bandit.commands.imports.answers import AnswerColumns
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.imports.reading import Reading
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.tables.files import digest_of, read_rows
from topk_bandit.tables.published import Published

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from topk_bandit.client import PastAnswer
    from topk_bandit.tables.rows import FileRow

__all__ = ["AnswerFile"]


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A file of answers.

    Attributes
    ----------
    flags
        What the flags say of its columns.
    form, depth
        The format of published rankings that it has, and how many items of each are taken; see `Published`.
    """

    path: Path
    flags: Named
    form: str | None = None
    depth: int | None = None

    @classmethod
    def of(cls, path: Path, given: argparse.Namespace) -> AnswerFile:
        """Return a file as the flags of a command say that it is."""
        if given.depth is not None and given.format is None:
            raise InvalidArgumentError("--depth", "needs --format: it is about published rankings")
        return cls(path, Named.of(given.columns, given.ignored), given.format, given.depth)

    def digest(self) -> str:
        """Return what tells the file, read in this way, from others."""
        columns = [f"{name}={column}" for name, column in self.flags.columns.items()]
        how = [*columns, *self.flags.ignored, self.form or "", "" if self.depth is None else f"depth {self.depth}"]
        return digest_of(self.path, [one for one in how if one])

    def reading(self, kind: AnswerKind, *, size: int) -> Reading[PastAnswer]:
        """Return how its answers of a kind are read, each about so many items at most."""
        columns = AnswerColumns.of(self.flags, kind, size=size)
        columns.check_flags("an answer")
        return Reading(self.path.name, lambda: self._rows(kind), columns)

    def _rows(self, kind: AnswerKind) -> Iterator[FileRow]:
        if self.form is None:
            return read_rows(self.path, orders=True, ignored=self.flags.ignored)
        return Published(self.form, takes_ratings=kind is AnswerKind.RATINGS, depth=self.depth).rows(self.path)
