"""Bandits that leave as lines and come back: the same model, and slates that still await their rewards."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Shop, request, running_worker
from tests.bandits.test_operators import trim
from tests.contracts.archives import Sender, archived, ended, restore_lines
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import MemoryStores, RedisStores, dump, run, whole_log
from tests.contracts.provisional_contract import MINUTE_MS, PROVISIONAL
from tests.contracts.samples import recommendation
from tests.contracts.samples import request as plain_request

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.domain.bandits import (
    MAX_CONTEXT_DIMENSION,
    MAX_ITEM_CAPACITY,
    MAX_SLATE_SIZE,
    Aggregation,
    BanditName,
    Item,
)
from topk_bandit.domain.errors import ConflictError, InvalidArgumentError, NotFoundError, NotReadyError, QuotaError
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import PastSlate, RewardAmended
from topk_bandit.store.log import Correctable

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.log import Store
    from topk_bandit.store.recorded import Recorded

COPY = BanditName("other", "home-2")

Traded = dict[bool, list[str]]
"""Lines of a bandit, by whether its log was trimmed."""


@pytest.fixture(scope="module")
def traded() -> Traded:
    """Return a bandit that has traded a little; any store writes the same."""
    stores, lines = MemoryStores(), Traded()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(33))
            await shop.create()
            await shop.trade(70)
            lines[False] = await archived(store, NAME)
            await trim(store)
            lines[True] = await archived(store, NAME)

    run(stores, scenario)
    return lines


@pytest.fixture(params=["memory", "server"])
def each(request: pytest.FixtureRequest, embedded: EmbeddedStore) -> Stores:
    """Return stores of each kind: what a restore makes of its parts is code of their own."""
    return MemoryStores() if request.param == "memory" else RedisStores(embedded.url, clock=StoreClock())


async def open_slates(store: Store, name: BanditName) -> list[Recorded]:
    """Return what the store remembers of slates that are open, by id."""
    _, slates = await store.scan_slates(name, cursor=0)
    return sorted(slates, key=lambda slate: slate.recommendation.recommendation_id)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_bandit_comes_back_the_same(each: Stores, *, trimmed: bool) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, each, np.random.default_rng(31))
            await shop.create()
            await worker.bandits.upsert_items(NAME, [Item("gone/one")])
            await worker.bandits.retire_items(NAME, ["gone/one"])
            await shop.trade(70)
            early = await worker.recommender.recommend(NAME, request("early"))
            if trimmed:
                await trim(store)
                await shop.trade(10)
            late = await worker.recommender.recommend(NAME, request("late"))
            paid = await worker.recommender.recommend(NAME, request("paid"))
            await worker.recommender.reward(NAME, paid.recommendation_id, 2.5)
            before = digests_of(await worker.models.follow(NAME))
            seen, lines, slates = await dump(store, NAME), await archived(store, NAME), await open_slates(store, NAME)
            await store.delete_bandit(NAME)
        sender = Sender(store, limits=LIMITS)
        for name, at_once in ((NAME, 7), (COPY, 1000)):
            await sender.send(name, lines, at_once=at_once)
            again = await dump(store, name)
            assert replace(again[0], name=NAME, snapshot_position=0) == replace(seen[0], snapshot_position=0)
            assert again[1:4] == seen[1:4]
            assert again[4] == seen[4][1:]
            assert await open_slates(store, name) == slates
            async with running_worker(store) as worker:
                assert digests_of(await worker.models.follow(name)) == before
                for slate in (early, late):
                    repeated = await worker.recommender.recommend(name, request("early" if slate is early else "late"))
                    assert repeated == slate
                    receipt = await worker.recommender.reward(name, slate.recommendation_id, 1.5)
                    assert receipt.outcome is RewardOutcome.ACCEPTED
                again_paid = await worker.recommender.reward(name, paid.recommendation_id, 2.5)
                assert again_paid.outcome is RewardOutcome.DUPLICATE
                corrected = await worker.recommender.correct_reward(name, paid.recommendation_id, 3.5)
                assert corrected.outcome is RewardOutcome.ACCEPTED
                with pytest.raises(ConflictError, match="retired"):
                    await worker.bandits.upsert_items(name, [Item("gone/one")])
                await worker.bandits.upsert_items(name, [Item("new")])
                await worker.recommender.recommend(name, request())
                await worker.models.follow(name)

    run(each, scenario)


@pytest.mark.parametrize("trimmed", [False, True])
def test_slates_of_every_kind_await_what_they_awaited(each: Stores, *, trimmed: bool) -> None:
    settings = replace(SETTINGS, requires_activation=True, reward_aggregation=Aggregation.SUM)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, each, np.random.default_rng(32))
            await shop.create(settings)
            await worker.bandits.upsert_items(NAME, [Item("a / b")])
            inactive, shown, other, two = [
                (await worker.recommender.recommend(NAME, request(f"r{number}"))).recommendation_id
                for number in range(4)
            ]
            await worker.recommender.activate(NAME, shown, ())
            await worker.recommender.activate(NAME, other, ("a / b", "i1", "i2"))
            await worker.recommender.reward(NAME, two, 1.5, reward_id="first one")
            await worker.recommender.reward(NAME, two, 2.0, reward_id="second")
            await worker.recommender.correct_reward(NAME, two, 0.25, reward_id="first one")
            past = PastSlate((1.0, 0.5), ("i1", "i2", "i3"), 1.0)
            await worker.bandits.import_rows(NAME, RowsOfImport("old", 0, 3, (past, past)))
            if trimmed:
                for _ in range(2):  # two checkpoints: each import is followed by a refit
                    await worker.bandits.import_rows(NAME, RowsOfImport(f"more {_}", 0, 1, (past,)))
                await trim(store)
            await worker.bandits.import_rows(NAME, RowsOfImport("old", 3, 4, (past,)))
            before, lines = digests_of(await worker.models.follow(NAME)), await archived(store, NAME)
            assert any(line.startswith('{"slate"') for line in lines) == trimmed
            slates = await open_slates(store, NAME)
            await store.delete_bandit(NAME)
            await Sender(store, limits=LIMITS).send(NAME, lines, at_once=3)
            assert await open_slates(store, NAME) == slates
            assert digests_of(await worker.models.follow(NAME)) == before
            for one, slate in ((other, ("a / b", "i1", "i2")), (shown, ())):
                assert (await worker.recommender.activate(NAME, one, slate)).outcome == "duplicate"
            assert (await worker.recommender.activate(NAME, inactive, ())).outcome == "activated"
            again = await worker.recommender.reward(NAME, two, 1.5, reward_id="first one")
            assert again.outcome is RewardOutcome.DUPLICATE
            await worker.recommender.reward(NAME, two, 4.0, reward_id="third", final=True)
            model = await worker.models.follow(NAME)
            assert model.last.event.value == 0.25 + 2.0 + 4.0  # type: ignore[union-attr]
            known = await worker.bandits.import_rows(NAME, RowsOfImport("old", 0, 3, (past, past)))
            assert (known.next_row, known.accepted) == (3, 2)
            assert (await worker.bandits.find_import(NAME, "old")).next_row == 4

    run(each, scenario)


def test_an_import_goes_on_where_it_stands_and_serves_only_at_its_end(stores: Stores, traded: Traded) -> None:
    async def scenario(store: Store, elsewhere: Store) -> None:
        lines = traded[False]
        sender, other = Sender(store, limits=LIMITS), Sender(elsewhere, limits=LIMITS)
        assert (await sender.send(NAME, [])).next_line == 0
        half = len(lines) // 2
        assert (await sender.send(NAME, lines[:half])).next_line == half
        assert (await sender.send(NAME, lines[:half])).next_line == half
        for call in (store.get_bandit, store.list_items):
            with pytest.raises(NotFoundError):
                await call(NAME)
        assert await store.list_bandits(NAME.tenant, after="", limit=9) == ()
        assert (await other.send(NAME, [])).next_line == half
        assert (await other.send(NAME, [], import_id="two")).next_line == 0
        for first in (0, half - 1, half + 1):
            with pytest.raises(NotReadyError) as raised:
                await other.send(NAME, lines[first:-1], first=first)
            assert raised.value.numbers["next_row"] == half
        with pytest.raises(ConflictError, match="another import"):
            await other.send(NAME, lines[half:], first=half, import_id="two")
        done = await other.send(NAME, lines[half:], first=half)
        position = (await store.get_bandit(NAME)).log_position
        assert (done.next_line, done.log_position) == (len(lines), position)
        assert await sender.send(NAME, lines[half:], first=half) == done
        with pytest.raises(ConflictError, match="exists"):
            await sender.send(NAME, lines, import_id="two")
        assert await archived(store, NAME) == lines

    run(stores, scenario, connections=2)


def test_an_import_that_begins_takes_the_place_of_one_that_did_not_end(stores: Stores, traded: Traded) -> None:
    async def scenario(store: Store) -> None:
        lines = traded[False]
        sender = Sender(store, limits=LIMITS, bandits=1)
        await sender.send(NAME, lines[:-5], import_id="old")
        await sender.send(NAME, lines[:5], import_id="new")
        with pytest.raises(ConflictError, match="another import"):
            await sender.send(NAME, lines[-5:], first=len(lines) - 5, import_id="old")
        await sender.send(NAME, lines[5:], first=5, import_id="new")
        assert await archived(store, NAME) == lines
        with pytest.raises(QuotaError):
            await sender.send(BanditName(NAME.tenant, "more"), lines)
        with pytest.raises(NotFoundError):
            await store.get_bandit(BanditName(NAME.tenant, "more"))

    run(stores, scenario)


def test_an_import_that_sends_what_another_one_sent_is_still_another_one(stores: Stores, traded: Traded) -> None:
    async def scenario(store: Store) -> None:
        lines = traded[False]
        sender = Sender(store, limits=LIMITS)
        await sender.send(COPY, lines[:5], import_id="old")
        await sender.send(COPY, lines[:5], import_id="new")
        done = await sender.send(COPY, lines[5:], first=5, import_id="new")
        assert done.log_position == (await store.get_bandit(COPY)).log_position

    run(stores, scenario)


def test_an_import_whose_lines_are_all_there_is_ended_by_whoever_asks_how_far_it_is(
    stores: Stores, traded: Traded
) -> None:
    async def scenario(store: Store) -> None:
        lines = traded[False]
        with pytest.raises(QuotaError):
            await Sender(store, limits=LIMITS, bandits=0).send(COPY, lines)
        with pytest.raises(NotFoundError):
            await store.get_bandit(COPY)
        done = await Sender(store, limits=LIMITS).send(COPY, [])
        assert (done.next_line, done.log_position) == (len(lines), (await store.get_bandit(COPY)).log_position)

    run(stores, scenario)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_line_that_is_broken_is_named_and_nothing_is_made(stores: Stores, traded: Traded, *, trimmed: bool) -> None:
    async def scenario(store: Store) -> None:
        lines = traded[trimmed]
        sender, last = Sender(store, limits=LIMITS), len(lines) - 1
        event = next(place for place, line in enumerate(lines) if line.startswith('{"position"')) + 1
        broken = {
            0: [lines[1:], [lines[0].replace('"v":1', '"v":2'), *lines[1:]], ["x", *lines[1:]]],
            event: [
                [*lines[:event], lines[event][:-2], *lines[event + 1 :]],
                [*lines[:event], lines[event].replace('"type":"', '"type":"no'), *lines[event + 1 :]],
                [*lines[:event], lines[event].replace('"v":1', f'"v":{NEWEST + 1}'), *lines[event + 1 :]],
                [*lines[:event], *lines[event + 1 :]],
                [*lines[:event], lines[0], *lines[event:]],
                [*lines[:event], "{}", *lines[event:]],
                [*lines[:event], '{"retired":[]}', *lines[event:]],
            ],
            last: [[*lines[: last - 1], lines[last - 1].replace('"at_ms":4', '"at_ms":5', 1), lines[last]]],
            last - 1: [[*lines[: last - 1], lines[last]]],
            last + 1: [[*lines, lines[last]]],
        }
        if trimmed:
            kept = [line for line in lines[:-1] if not line.startswith('{"snapshot"')]
            spoilt = [line.replace("AAAA", "AAAB", 1) if "snapshot" in line else line for line in lines[:-1]]
            broken[len(kept)] = [ended(kept)]
            broken[last].append(ended(spoilt))
            assert spoilt != lines[:-1]
        for place, files in broken.items():
            for file in files:
                with pytest.raises(InvalidArgumentError) as raised:
                    await sender.send(NAME, file)
                assert raised.value.field == f"lines[{place}]", raised.value
                assert await store.find_restore(NAME) is None
                with pytest.raises(NotFoundError):
                    await store.get_bandit(NAME)
        await sender.send(NAME, lines[:-1])
        assert (await sender.send(NAME, [])).next_line == last
        await sender.send(NAME, lines[last:], first=last)
        assert (await store.get_bandit(NAME)).incarnation

    run(stores, scenario)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created_ms", 2**53),
        ("at_ms", 2**53),
        ("deadline_ms", 2**53),
        ("item_capacity", 10**9),
        ("slate_size", 0),
        ("slate_size", 31),
        ("context_dim", 10**6),
        ("incarnation", "a b\n"),
    ],
)
def test_a_file_that_no_service_wrote_is_refused(stores: Stores, traded: Traded, field: str, value: object) -> None:
    """Its digests are true, but no answer could show its times, and no worker could hold its model."""

    async def scenario(store: Store) -> None:
        lines = traded[False]
        pattern = re.compile(rf'"{field}":("[^"]*"|\d+)')
        forged = [pattern.sub(lambda _: f'"{field}":{json.dumps(value)}', line) for line in lines[:-1]]
        assert forged != lines[:-1]
        with pytest.raises(InvalidArgumentError, match=r"lines\[\d+\]"):
            await Sender(store, limits=LIMITS).send(NAME, ended(forged))
        assert await store.find_restore(NAME) is None

    run(stores, scenario)


@pytest.mark.parametrize(
    ("pattern", "instead", "field"),
    [
        (r'"value":[-0-9.e]+', '"value":1e308', "reward"),
        (r'"context":\[[^\]]*\]', '"context":[1.0]', "context"),
        (r'"context":\[[^\]]*\]', '"context":[1.0,1e9]', "context"),
        (r'"context":\[[^\]]*\]', '"context":{"age":1.0}', "features"),
        (r'"slate":\["([^"]*)","[^"]*"', r'"slate":["\1","\1"', "slate"),
        (r'"slate":\["[^"]*",', '"slate":[', "slate"),
    ],
)
def test_what_no_learner_could_take_is_refused(
    stores: Stores, traded: Traded, pattern: str, instead: str, field: str
) -> None:
    async def scenario(store: Store) -> None:
        lines = traded[False]
        event = re.compile(r'\{"position":.*"type":"(recommended|rewarded)"')
        place = max(place for place, line in enumerate(lines) if event.match(line) and re.search(pattern, line))
        forged = [*lines[:place], re.sub(pattern, instead, lines[place]), *lines[place + 1 : -1]]
        with pytest.raises(InvalidArgumentError) as raised:
            await Sender(store, limits=LIMITS).send(NAME, ended(forged))
        assert raised.value.field == f"lines[{place}].{field}"
        assert await store.find_restore(NAME) is None

    run(stores, scenario)


UNFOLDABLE = [
    ("recommended", r'"slate":\["[^"]*"', '"slate":["never"', ""),
    ("recommended", r'"slate":\["[^"]*"(.*)\}\}$', r'"slate":["never"\1,"aside":true}}', ""),
    ("recommended", r'"best_slate":\[[^\]]*\]', '"best_slate":["never"]', ""),
    ("items_changed", r'"retired":\[[^\]]*\]', '"retired":["never"]', ""),
    ("recommended", r'"passed_over":\d+', '"passed_over":2147483648', ".recommendation.passed_over"),
    ("recommended", r'"regret_bound":[-+0-9.e]+', '"regret_bound":1e308', ".recommendation.regret_bound"),
    ("settings_changed", r'"reward_wait_ms":\d+', '"reward_wait_ms":1000000000000', ".settings.reward_wait_ms"),
    ("settings_changed", r'"beta":[-+0-9.e]+', '"beta":1e300', ".settings.beta"),
    ("settings_changed", r'"uniform_share":[-+0-9.e]+', '"uniform_share":1.5', ".settings.uniform_share"),
]


@pytest.mark.parametrize("trimmed", [False, True])
def test_an_event_at_which_every_learner_would_stop_is_refused(traded: Traded, *, trimmed: bool) -> None:
    """Its place in the log matters, so the parts before it are known also to a worker that did not take them."""
    lines, tried = traded[trimmed], 0

    def last_of(kind: str) -> int:
        places = [place for place, line in enumerate(lines) if f'"type":"{kind}"' in line and '{"position"' in line]
        return places[-1] if places else -1

    async def scenario(store: Store) -> None:
        nonlocal tried
        senders = [Sender(store, limits=LIMITS) for _ in range(2)]
        for number, first in enumerate(range(0, len(lines), 9)):
            for kind, pattern, instead, field in UNFOLDABLE:
                if not first <= (place := last_of(kind)) < first + 9:
                    continue
                forged = [*lines[first:place], re.sub(pattern, instead, lines[place])]
                assert forged != lines[first : place + 1]
                for sender in senders:
                    with pytest.raises(InvalidArgumentError) as raised:
                        await sender.send(NAME, forged, first=first)
                    assert raised.value.field == f"lines[{place - first}]{field}", instead
                tried += 1
            await senders[number % 2].send(NAME, lines[first : first + 9], first=first)
        assert (await store.get_bandit(NAME)).incarnation

    run(MemoryStores(), scenario)
    # No change of the settings is left of the log that was trimmed.
    assert tried == sum(kind != "settings_changed" or not trimmed for kind, *_ in UNFOLDABLE)


def test_a_log_that_grows_while_it_is_read_comes_back_as_it_was_at_its_end(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(35))
            await shop.create()
            await shop.trade(70)
            await trim(store)
            going = asyncio.create_task(shop.trade(30))
            lines = await archived(store, NAME)
            await going
        await Sender(store, limits=LIMITS).send(COPY, lines)
        position = (await store.get_bandit(COPY)).log_position
        assert f'"position":{position},' in lines[-1]
        async with running_worker(store) as worker:
            stats, items = await worker.bandits.stats(COPY), await store.list_items(COPY)
            assert (await store.get_bandit(COPY)).pending == stats.pending
            assert len((await store.scan_slates(COPY, cursor=0))[1]) == stats.pending
            assert (len(items), sum(item.available for item in items)) == (stats.items, stats.available_items)

    run(stores, scenario)


@pytest.mark.parametrize("at_once", [2, 1000])
def test_slates_whose_rewards_are_provisional_go_on_where_they_were(stores: Stores, at_once: int) -> None:
    """One is learned with its default, one with rewards, one is final, one void, and one has not been looked at."""

    async def scenario(store: Store) -> None:
        created = replace(PROVISIONAL, reward_aggregation=Aggregation.SUM)
        await store.create_bandit(NAME, created, incarnation="first", quota=9)

        async def show(*ids: str) -> None:
            for one in ids:
                asked = plain_request(one)
                await store.record_recommendation(
                    NAME, asked, recommendation(one), incarnation="first", items_position=0
                )

        await show("default", "rewarded", "final", "void")
        await stores.pass_time(MINUTE_MS)
        await store.expire_due(NAME, limit=9)
        await show("new")
        await store.record_reward(NAME, "rewarded", 2.0, reward_id="a")
        await store.record_reward(NAME, "final", 3.0, reward_id="a", final=True)
        known = Correctable("first", 1, 99, 0)
        await store.correct_reward(NAME, "void", None, known=known)
        lines = await archived(store, NAME)
        restore = await restore_lines(store, COPY, lines, at_once=at_once)
        assert restore.complete
        await store.finish_restore(COPY, restore, quota=9)
        assert await open_slates(store, COPY) == await open_slates(store, NAME)
        await stores.pass_time(MINUTE_MS)
        for name in (NAME, COPY):
            await store.expire_due(name, limit=9)
            await store.record_reward(name, "rewarded", 1.0, reward_id="b")
            await store.record_reward(name, "default", 5.0, reward_id="a")
            for one in ("final", "void"):
                with pytest.raises(ConflictError):
                    await store.record_reward(name, one, 9.0, reward_id="b")
        mine, theirs = [[logged.event for logged in await whole_log(store, name)] for name in (COPY, NAME)]
        assert mine == theirs

    run(stores, scenario)


def test_a_reward_that_was_amended_or_voided_stays_so(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async def correct(name: BanditName, key: str, value: float | None) -> RewardOutcome:
            now = await store.get_bandit(name)
            known = Correctable(now.incarnation, now.revision, now.log_position, now.log_position + 9)
            return (await store.correct_reward(name, key, value, known=known)).outcome

        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
        for one, value in (("amended", 2.5), ("void", None)):
            shown = recommendation(one)
            await store.record_recommendation(NAME, plain_request(one), shown, incarnation="first", items_position=0)
            await store.record_reward(NAME, one, 1.0)
            await correct(NAME, one, value)
        restore = await restore_lines(store, COPY, await archived(store, NAME), at_once=1000)
        await store.finish_restore(COPY, restore, quota=9)
        events = await whole_log(store, NAME)
        amended = next(one.position for one in events if isinstance(one.event, RewardAmended))
        for name in (NAME, COPY):
            now = await store.get_bandit(name)
            before = Correctable(now.incarnation, now.revision, amended - 1, now.log_position + 9)
            assert await store.correct_reward(name, "amended", 3.5, known=before) is None, "looked at too early"
            assert await correct(name, "amended", 2.5) is RewardOutcome.DUPLICATE
            with pytest.raises(NotReadyError) as void:
                await correct(name, "void", 1.0)
            assert void.value.reason == "REWARD_VOIDED"

    run(stores, scenario)


def test_what_was_lost_stays_known(each: Stores) -> None:
    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
        await store.note_loss(NAME, incarnation="first", after=4, end=9, rewards=(5, 7))
        restore = await restore_lines(store, COPY, await archived(store, NAME), at_once=1000)
        await store.finish_restore(COPY, restore, quota=9)
        for name in (NAME, COPY):
            record = await store.get_bandit(name)
            assert (record.lost_events, record.lost_rewards) == (5, 2)

    run(each, scenario)


def test_a_bandit_as_large_as_one_may_be_comes_back(stores: Stores) -> None:
    largest = replace(
        SETTINGS,
        item_capacity=MAX_ITEM_CAPACITY,
        slate_size=MAX_SLATE_SIZE,
        context_dim=MAX_CONTEXT_DIMENSION,
        baseline_item_ids=(),
    )

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, largest, incarnation="first", quota=9)
        restore = await restore_lines(store, COPY, await archived(store, NAME), at_once=1000)
        await store.finish_restore(COPY, restore, quota=9)
        assert (await store.get_bandit(COPY)).settings == largest

    run(stores, scenario)
