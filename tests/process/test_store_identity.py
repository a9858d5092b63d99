"""Which store a worker serves from, and what happens when it is another one."""

from __future__ import annotations

import asyncio

from topk_bandit.process.store_identity import PROBLEM, StoreIdentity


class Ledger:
    """Notes what is done."""

    def __init__(self, *, is_known: bool = False) -> None:
        self.refused: list[str] = []
        self.replaced: list[bool] = []
        self.counts = self.older = 0
        self._is_known = is_known

    async def is_known(self) -> bool:
        return self._is_known

    def count_lost(self) -> tuple[int, int]:
        self.counts += 1
        return 5, 2

    def store_replaced(self, *, is_replaced: bool) -> None:
        self.replaced.append(is_replaced)

    def note_older(self) -> None:
        self.older += 1

    def identity(self, known_id: str = "") -> StoreIdentity:
        return StoreIdentity(
            known_id,
            refuse_all=self.refused.append,
            is_known=self.is_known,
            count_lost=self.count_lost,
            note_older=self.note_older,
            hooks=self,
        )


def look(identity: StoreIdentity, *ids: str) -> None:
    async def main() -> None:
        for one in ids:
            await identity.look(one)

    asyncio.run(main())


def test_the_first_store_is_the_one_that_is_known() -> None:
    ledger = Ledger()
    identity = ledger.identity()
    look(identity, "", "a", "a")
    assert (identity.known_id, ledger.refused, ledger.counts) == ("a", [], 0)


def test_another_one_is_refused_and_counted_once_until_the_first_is_back() -> None:
    ledger = Ledger()
    identity = ledger.identity("a")
    look(identity, "b", "b", "c", "")
    assert (ledger.refused, ledger.replaced, ledger.counts) == ([PROBLEM], [True], 1)
    look(identity, "a")
    assert (ledger.refused, ledger.replaced, ledger.counts) == ([PROBLEM, ""], [True, False], 1)
    assert identity.known_id == "a"


def test_a_store_with_what_is_known_has_only_lost_its_id() -> None:
    ledger = Ledger(is_known=True)
    identity = ledger.identity("a")
    look(identity, "b", "b")
    assert (identity.known_id, ledger.refused, ledger.counts) == ("b", [], 0)


def test_an_older_copy_is_noted_and_another_store_is_none() -> None:
    ledger = Ledger()
    identity = ledger.identity("a")

    async def main() -> None:
        await identity.look("a", is_older=True)
        await identity.look("b", is_older=True)

    asyncio.run(main())
    assert (ledger.older, ledger.counts) == (1, 1)
