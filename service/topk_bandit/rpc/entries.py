"""The entries of a call of many: the good ones are done together, and each has a result of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["answer_entries"]

_Entry = TypeVar("_Entry")
_Outcome = TypeVar("_Outcome")


async def answer_entries(
    field: str,
    entries: Sequence[_Entry | InvalidArgumentError],
    answer: Callable[[Sequence[_Entry]], Awaitable[Sequence[_Outcome]]],
) -> list[tuple[str, _Outcome | InvalidArgumentError]]:
    """Return the path of each entry and what became of it.

    Parameters
    ----------
    field
        The one that has the entries.
    entries
        What each asks for, or the error of a field of it.
    answer
        Returns what became of one or more good entries, in their order.
    """
    good = [entry for entry in entries if not isinstance(entry, InvalidArgumentError)]
    outcomes = iter(await answer(good) if good else ())
    return [
        (f"{field}[{place}]", entry if isinstance(entry, InvalidArgumentError) else next(outcomes))
        for place, entry in enumerate(entries)
    ]
