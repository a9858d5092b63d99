"""Studies as lines, and back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.store.archive_lines import End, chain
from topk_bandit.store.archives import write_line
from topk_bandit.store.line_imports import Lines
from topk_bandit.studies.exports import read_study_page
from topk_bandit.studies.restores import StudyRestores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import StudyName
    from topk_bandit.store.line_imports import Receipt
    from topk_bandit.store.study_log import StudyRecord, StudyStore

__all__ = ["StudySender", "archived_study", "ended_study"]


async def archived_study(store: StudyStore, name: StudyName) -> list[str]:
    """Return a study as lines."""
    lines, place = await read_study_page(store, name, None)
    while place is not None:
        more, place = await read_study_page(store, name, place)
        lines += more
    return ended_study(lines)


def ended_study(lines: Sequence[str]) -> list[str]:
    """Return lines with the one that ends them."""
    digest, position = "", 0
    for line in lines:
        digest = chain(digest, line)
        position += line.startswith('{"position"')
    return [*lines, write_line(End(position, len(lines), digest))]


class StudySender:
    """Brings lines of studies to a store."""

    def __init__(self, store: StudyStore, *, studies: int = 9) -> None:
        self._restores = StudyRestores(store, ThreadPoolExecutor(1), quotas=Quotas({Quota.STUDIES: studies}))

    async def send(
        self, name: StudyName, lines: Sequence[str], *, first: int = 0, at_once: int = 1000, import_id: str = "one"
    ) -> Receipt[StudyRecord]:
        """Send lines in parts; return what became of the last one."""
        receipt = await self._restores.take(name, Lines(import_id, first, ()))
        for start in range(0, len(lines), at_once):
            part = tuple(lines[start : start + at_once])
            receipt = await self._restores.take(name, Lines(import_id, first + start, part))
        return receipt
