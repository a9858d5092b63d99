"""What becomes of the parts of an import, of past slates or of answers that were given elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topk_bandit.store.log import ImportOutcome, ImportProgress, RecordStatus
from topk_bandit.store.refusals import import_gap, import_reused

if TYPE_CHECKING:
    from topk_bandit.store.log import ImportPart

__all__ = ["KnownImport", "progress_after", "recall_part"]


@dataclass(frozen=True, slots=True)
class KnownImport:
    """How far an import is, and what became of one of its parts.

    Attributes
    ----------
    fingerprint, outcome
        Of the part that begins where it was asked for; empty and None for one that is not recorded.
    n_parts
        How many parts of imports a bandit has; a study does not count them.
    """

    progress: ImportProgress = field(default_factory=ImportProgress)
    fingerprint: str = ""
    outcome: ImportOutcome | None = None
    n_parts: int = 0


def recall_part(known: KnownImport, part: ImportPart) -> ImportOutcome | None:
    """Return what became of a part that was recorded before, None for one that comes next.

    Raises
    ------
    ConflictError
        IMPORT_REUSED: the rows were recorded with another fingerprint, or in other parts.
    NotReadyError
        IMPORT_GAP: rows before them are missing.
    """
    if known.outcome is not None and known.fingerprint == part.fingerprint:
        return replace(known.outcome, status=RecordStatus.REPEATED)
    if known.outcome is not None or part.first_row < known.progress.next_row:
        raise import_reused(str(part.first_row))
    if part.first_row > known.progress.next_row:
        raise import_gap(str(known.progress.next_row))
    return None


def progress_after(known: KnownImport, part: ImportPart) -> ImportProgress:
    """Return how far an import is after a part of it."""
    return ImportProgress(part.next_row, known.progress.accepted + part.accepted)
