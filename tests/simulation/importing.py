"""Callers who bring rows from elsewhere, past slates of a bandit or past answers of a study, in parts.

They do as a client does whose calls fail: send the same part again, or ask how far the import is and go on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tests.simulation.feedback import NAME, RECENT, draw_patience
from tests.simulation.item_values import draw_item_values, place
from tests.simulation.ledger import SentRows, Sought

from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.store.events import PastSlate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    import numpy as np
    from tests.simulation.actions import Action
    from tests.simulation.feedback import Callers
    from tests.simulation.worker import Worker

    from topk_bandit.domain.studies import PastAnswer
    from topk_bandit.store.log import ImportProgress

__all__ = ["Importers", "PastSlates", "Receipt", "Receiver"]

MOST_ROWS = 14
MOST_FAILURES = 4
SKIPPING_SHARE = 0.3
OLDEST_MS = 1_600_000_000_000
NOBODY = "nobody"
"""An item that no bandit has."""


class Receipt(NamedTuple):
    """The receipt for rows: with which row to go on, how many are taken, and where they stand."""

    next_row: int
    accepted: int
    position: int


class Receiver(Protocol):
    """Who takes rows in."""

    rows: str
    may_skip: bool

    def draw(self, rng: np.random.Generator, count: int, *, skips: bool) -> tuple[PastSlate | PastAnswer, ...]:
        """Draw rows, as the log has those that are taken."""
        ...

    async def send(self, worker: Worker, sent: SentRows) -> Receipt:
        """Send rows."""
        ...

    def seek(self, worker: Worker, import_id: str) -> Coroutine[object, object, ImportProgress]:
        """Ask how far an import is."""
        ...


class PastSlates:
    """The bandit, which takes in slates that were shown elsewhere."""

    rows = "rows"
    may_skip = True

    def __init__(self, shop: Callers) -> None:
        self._shop = shop

    def draw(self, rng: np.random.Generator, count: int, *, skips: bool) -> tuple[PastSlate, ...]:
        """See `Receiver.draw`; where they are skipped, some rows have an item that nobody knows."""
        return tuple(self._draw_one(rng, spoiled=skips and rng.random() < 0.3) for _ in range(count))

    def _draw_one(self, rng: np.random.Generator, *, spoiled: bool) -> PastSlate:
        items, size = self._shop.items, self._shop.settings.slate_size
        slate = tuple(items[index] for index in rng.permutation(len(items))[:size].tolist())
        slate = (*slate[1:], NOBODY) if spoiled else slate
        context, reward = tuple(rng.normal(size=2).round(3).tolist()), round(float(rng.normal()), 6)
        return PastSlate(
            context=context,
            slate=slate,
            reward=reward,
            at_ms=None if rng.random() < 0.5 else OLDEST_MS + int(rng.integers(10**9)),
            propensity=None if rng.random() < 0.5 else round(float(rng.uniform(0.01, 1.0)), 3),
            item_values=place(draw_item_values(slate, reward), slate),
        )

    async def send(self, worker: Worker, sent: SentRows) -> Receipt:
        """See `Receiver.send`."""
        rows = tuple(row for row in sent.rows if isinstance(row, PastSlate))
        receipt = await worker.bandits.import_rows(
            NAME, RowsOfImport(sent.import_id, sent.first_row, sent.next_row, rows, sent.skips)
        )
        return Receipt(receipt.next_row, receipt.accepted, receipt.log_position)

    def seek(self, worker: Worker, import_id: str) -> Coroutine[object, object, ImportProgress]:
        """See `Receiver.seek`."""
        return worker.bandits.find_import(NAME, import_id)


@dataclass
class _Import:
    """An import, and where its caller believes it to be."""

    import_id: str
    rows: tuple[PastSlate | PastAnswer, ...]
    size: int
    skips: bool
    next_row: int = 0
    is_given_up: bool = False

    @property
    def has_ended(self) -> bool:
        return self.is_given_up or self.next_row >= len(self.rows)


class Importers:
    """Callers of a shop who bring rows from elsewhere.

    Attributes
    ----------
    acts
        What carries out each kind of action.
    """

    def __init__(self, shop: Callers, receiver: Receiver) -> None:
        self._shop = shop
        self._receiver = receiver
        self._imports: list[_Import] = []
        self.acts: Mapping[str, Callable[[Action, np.random.Generator], Coroutine[None, None, None]]] = {
            f"import {receiver.rows}": self._begin,
            f"go on with {receiver.rows}": self._go_on,
            f"repeat {receiver.rows}": self._repeat,
            f"import other {receiver.rows}": self._send_other,
        }

    async def _begin(self, action: Action, rng: np.random.Generator) -> None:
        skips = self._receiver.may_skip and rng.random() < SKIPPING_SHARE
        rows = self._receiver.draw(rng, int(rng.integers(3, MOST_ROWS)), skips=skips)
        one = _Import(f"{self._receiver.rows}-{action.number}", rows, int(rng.integers(2, 7)), skips)
        self._imports.append(one)
        await self._stream(action, rng, one)

    async def _go_on(self, action: Action, rng: np.random.Generator) -> None:
        unfinished = [one for one in self._imports[-RECENT:] if not one.has_ended]
        if unfinished:
            one = unfinished[int(rng.integers(len(unfinished)))]
            if rng.random() < 0.5:
                await self._seek(action, rng, one)
            await self._stream(action, rng, one)

    async def _stream(self, action: Action, rng: np.random.Generator, one: _Import) -> None:
        """Send part after part; after one that failed the same again, or what is missing, or nothing more."""
        failures = 0
        while not one.has_ended and failures < MOST_FAILURES:
            rows = one.rows[one.next_row : one.next_row + one.size]
            sent = self._enter(action, one.import_id, one.next_row, rows, skips=one.skips)
            receipt = await self._send(action, rng, sent)
            if receipt is not None:
                one.next_row = receipt.next_row
                continue
            one.is_given_up = sent.outcome == InvalidArgumentError.__name__  # an item of its rows is retired
            failures += 1
            if rng.random() < 0.5 or sent.outcome == "IMPORT_GAP":
                await self._seek(action, rng, one)
            if rng.random() < 0.3:
                return

    async def _repeat(self, action: Action, rng: np.random.Generator) -> None:
        known = self._find_recent()
        if known:
            again = known[int(rng.integers(len(known)))]
            sent = self._enter(action, again.import_id, again.first_row, again.rows, skips=again.skips)
            await self._send(action, rng, sent)

    async def _send_other(self, action: Action, rng: np.random.Generator) -> None:
        """Send rows in the place of others: another part of the same import, or other rows."""
        known = self._find_recent()
        if known:
            other = known[int(rng.integers(len(known)))]
            rows = other.rows[1:] if rng.random() < 0.5 else self._receiver.draw(rng, len(other.rows), skips=False)
            if rows:
                sent = self._enter(action, other.import_id, other.first_row, rows, skips=False)
                await self._send(action, rng, sent)

    def _find_recent(self) -> list[SentRows]:
        """Return what was sent of late."""
        return [sent for one in self._imports[-RECENT:] for sent in self._shop.ledger.imports[one.import_id]]

    def _enter(
        self,
        action: Action,
        import_id: str,
        first_row: int,
        rows: tuple[PastSlate | PastAnswer, ...],
        *,
        skips: bool,
    ) -> SentRows:
        sent = SentRows(action.number, import_id, first_row, rows, skips, self._shop.now())
        self._shop.ledger.imports[import_id].append(sent)
        return sent

    async def _send(self, action: Action, rng: np.random.Generator, sent: SentRows) -> Receipt | None:
        worker = self._shop.any_worker(rng)
        if worker is None:
            return None
        patience, deaf = draw_patience(rng)
        call = self._receiver.send(worker, sent)
        sent.response, receipt, sent.outcome = await self._shop.call(worker, call, patience, deaf=deaf)
        sent.ended_at = self._shop.now()
        if receipt is not None:
            sent.outcome, sent.accepted, sent.position = "accepted", receipt.accepted, receipt.position
        words = f"is sent rows {sent.first_row} to {sent.next_row} of {sent.import_id}: {sent.response} {sent.outcome}"
        self._shop.note(action.number, f"worker {worker.number} {words} at {sent.position}")
        return receipt

    async def _seek(self, action: Action, rng: np.random.Generator, one: _Import) -> None:
        worker = self._shop.any_worker(rng)
        if worker is None:
            return
        (patience, deaf), began_at = draw_patience(rng), self._shop.now()
        response, found, word = await self._shop.call(
            worker, self._receiver.seek(worker, one.import_id), patience, deaf=deaf
        )
        if found is not None:
            one.next_row, word = found.next_row, str(found.next_row)
            entry = Sought(action.number, one.import_id, began_at, found.next_row, found.accepted)
            self._shop.ledger.sought.append(entry)
        self._shop.note(action.number, f"worker {worker.number} is asked how far {one.import_id} is: {response} {word}")
