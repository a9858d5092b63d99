"""What a store promises about what visitors saw: it counts each recorded slate once, and forgets it in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import run, whole_log
from tests.contracts.samples import ITEMS, NAME, recommendation, request, settings

from topk_bandit.domain.errors import NotFoundError
from topk_bandit.domain.rules import Frequency, Group, SlateRule
from topk_bandit.store import visits as visits_module
from topk_bandit.store.events import Recommended
from topk_bandit.store.log import RecordOutcome, RecordStatus
from topk_bandit.store.visits import SeenSlate, Visits, visitor_of

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.domain.slates import RecommendationRequest
    from topk_bandit.store.log import Store

SECONDS = 60
OFTEN = SlateRule(Frequency(Group(), 2, SECONDS))
RULED = replace(settings(), rules=(OFTEN,))
SECRET = "visitor-with-a-name@example.com"


def asked(number: int, key: str = SECRET) -> RecommendationRequest:
    return replace(request(f"req-{number}"), frequency_key=key)


async def opened(store: Store) -> None:
    await store.create_bandit(NAME, RULED, incarnation="first", quota=1)
    await store.change_items(NAME, upserted=ITEMS, retired=())


async def look(store: Store, key: str = SECRET) -> Visits:
    return await store.find_visits(NAME, visitor_of("first", RULED, asked(0, key)))


async def show(store: Store, number: int, seen: Visits | None, key: str = SECRET) -> RecordOutcome:
    now = await store.get_bandit(NAME)
    written = await store.record_recommendation(
        NAME,
        asked(number, key),
        recommendation(f"rec-{number}"),
        incarnation=now.incarnation,
        items_position=now.items_position,
        rules=RULED.rules,
        visits=seen,
    )
    return written.answer


class FrequencyContract:
    """What a store promises about what visitors saw."""

    def test_a_visitors_slates_are_counted_once_by_all_connections(self, stores: Stores) -> None:
        async def scenario(one: Store, other: Store) -> None:
            await opened(one)
            nothing = await look(one)
            assert (nothing.slates, nothing.n_visitors) == ((), 0)
            first = await show(one, 1, nothing)
            assert first.status is RecordStatus.RECORDED
            seen = await look(other)
            at_ms = seen.slates[0].at_ms
            assert seen.slates == (SeenSlate(at_ms, at_ms + 1000 * SECONDS, recommendation().slate),)
            assert seen.n_visitors == 1
            # Repeated, it is the same slate, whatever was seen since, and counts no more.
            again = [await show(store, 1, visits) for store in (one, other) for visits in (nothing, seen, None)]
            assert {one.status for one in again} == {RecordStatus.REPEATED}
            assert (await look(one)).slates == seen.slates
            assert (await look(one, "another")).slates == ()

        run(stores, scenario, connections=2)

    def test_a_slate_is_stale_that_was_chosen_without_what_its_visitor_saw(self, stores: Stores) -> None:
        async def scenario(one: Store, other: Store) -> None:
            await opened(one)
            before = await look(one), await look(other)
            assert (await show(one, 1, before[0])).status is RecordStatus.RECORDED
            for store, seen in ((other, before[1]), (one, before[0]), (one, None)):
                assert (await show(store, 2, seen)).status is RecordStatus.STALE
            assert (await show(other, 2, await look(other))).status is RecordStatus.RECORDED
            assert len((await look(one)).slates) == 2
            # Another visitor's slate is no reason, and one of nobody counts for nobody.
            assert (await show(one, 3, await look(one, "b"), "b")).status is RecordStatus.RECORDED
            assert (await show(one, 4, None, "")).status is RecordStatus.RECORDED
            assert len((await look(one)).slates) == 2

        run(stores, scenario, connections=2)

    def test_what_a_visitor_saw_is_forgotten_after_the_rules_time(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await show(store, 1, await look(store))
            if stores.clock is None:
                return
            await stores.pass_time(1000 * SECONDS - 1)
            await show(store, 2, await look(store))
            await stores.pass_time(1)
            assert (await look(store)).n_visitors == 1
            await show(store, 3, await look(store))
            assert len((await look(store)).slates) == 2
            await stores.pass_time(1000 * SECONDS)
            gone = await look(store)
            assert (gone.slates, gone.n_visitors) == ((), 0)
            assert (await show(store, 4, gone)).status is RecordStatus.RECORDED

        run(stores, scenario)

    def test_no_more_visitors_and_no_more_slates_of_one_are_kept_than_there_may_be(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(visits_module, "MOST_SLATES", 3)
        monkeypatch.setattr(visits_module, "MOST_VISITORS", 2)

        async def scenario(store: Store) -> None:
            await opened(store)
            for number in range(5):
                assert (await show(store, number, await look(store))).status is RecordStatus.RECORDED
            assert len((await look(store)).slates) == 3
            await show(store, 5, await look(store, "b"), "b")
            full = await look(store, "c")
            assert (full.n_visitors, full.is_counted) == (2, False)
            assert (await show(store, 6, full, "c")).status is RecordStatus.RECORDED
            assert (await look(store, "c")).slates == ()
            assert (await look(store)).is_counted

        run(stores, scenario)

    def test_the_log_has_what_was_reached_and_not_the_visitor(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            now, seen = await store.get_bandit(NAME), await look(store)
            request = replace(asked(1), reached=(("apple",),))
            await store.record_recommendation(
                NAME,
                request,
                recommendation(),
                incarnation=now.incarnation,
                items_position=now.items_position,
                rules=RULED.rules,
                visits=seen,
            )
            [event] = [one.event for one in await whole_log(store, NAME) if isinstance(one.event, Recommended)]
            assert (event.request.reached, event.request.frequency_key) == ((("apple",),), "")
            assert SECRET not in repr(event)
            with pytest.raises(NotFoundError):
                await store.find_visits(replace(NAME, bandit="absent"), seen.visitor)

        run(stores, scenario)
