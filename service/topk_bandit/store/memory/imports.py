"""What a bandit or a study in this process knows of its imports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topk_bandit.store.archive_lines import ArchivedImport
from topk_bandit.store.log import ImportOutcome, ImportProgress, RecordStatus
from topk_bandit.store.rules.decisions import position_of
from topk_bandit.store.rules.imports import KnownImport, progress_after

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.store.log import ImportPart

__all__ = ["Imports"]


@dataclass(slots=True)
class Imports:
    """How far each import is, by its id, and its parts, by id and first row: fingerprint and outcome."""

    progress: dict[str, ImportProgress] = field(default_factory=dict)
    parts: dict[tuple[str, int], tuple[str, ImportOutcome]] = field(default_factory=dict)

    @classmethod
    def of(cls, archived: Iterable[ArchivedImport]) -> Imports:
        """Return the imports of which these are the parts."""
        imports = cls()
        for part in archived:
            before = imports.progress.get(part.import_id, ImportProgress())
            ends = max(before.next_row, part.next_row)
            imports.progress[part.import_id] = ImportProgress(ends, before.accepted + part.accepted)
            outcome = ImportOutcome(RecordStatus.RECORDED, part.next_row, part.accepted, part.position)
            imports.parts[part.import_id, part.first_row] = part.fingerprint, outcome
        return imports

    def at(self, import_id: str, first_row: int) -> KnownImport:
        """Return what is known of an import and of a part of it."""
        fingerprint, outcome = self.parts.get((import_id, first_row), ("", None))
        return KnownImport(self.progress.get(import_id, ImportProgress()), fingerprint, outcome, len(self.parts))

    def is_as_known(self, known: KnownImport | None, taken: tuple[ImportPart, ImportOutcome] | None) -> bool:
        """Return whether the import of a part that is to be taken is as it was; so it is without a part."""
        return taken is None or known == self.at(*taken[0].place)

    def take(self, taken: tuple[ImportPart, ImportOutcome] | None, *, first: int) -> None:
        """Take in a part and its outcome, if there is one; the first event of its commit is at position `first`."""
        if taken is not None:
            part, outcome = taken
            self.progress[part.import_id] = progress_after(self.at(*part.place), part)
            outcome = replace(outcome, position=position_of(outcome.position, first))
            self.parts[part.place] = part.fingerprint, outcome

    def archived(self) -> list[ArchivedImport]:
        """Return all parts, as archives have them."""
        return [
            ArchivedImport(*place, fingerprint, made.next_row, made.accepted, made.position)
            for place, (fingerprint, made) in self.parts.items()
        ]
