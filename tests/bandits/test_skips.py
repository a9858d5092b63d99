"""Events that an operator has passed over: the learner goes on, and knows the items and settings that the store has."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import redis
from tests.bandits.harness import (
    LIMITS,
    NAME,
    SETTINGS,
    Archive,
    Shop,
    assert_same,
    replayed,
    request,
    running_worker,
    settles,
    worker_status,
)
from tests.contracts.harness import MemoryStores, home_of, run, whole_log
from tests.contracts.samples import recommendation
from tests.long_forms import usual_or_long
from tests.waiting import until_async

from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import CorruptDataError, NotReadyError
from topk_bandit.domain.features import Features
from topk_bandit.domain.quotas import Quotas
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.store.events import (
    BanditCreated,
    EventSkipped,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    Rewarded,
    SettingsChanged,
)
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.bandits.harness import Worker
    from tests.contracts.harness import RedisStores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

NOW_MS = 1_764_000_000_000
SKIPPED = EventSkipped("a bit flipped", NOW_MS)


def operators_of(worker: Worker, executor: ThreadPoolExecutor) -> Operators:
    quotas = TenantQuotas(worker.store, Quotas())
    return Operators(
        worker.store,
        worker.models,
        executor,
        logs=WholeLogs(worker.store, None),
        quotas=quotas,
        clock_ms=lambda: NOW_MS,
        worker=worker_status,
    )


def known_items(model: Model) -> dict[str, bool]:
    known = [item_id for item_id in model.items.ids if item_id is not None and model.items.knows(item_id)]
    return {item_id: item_id in model.items.available for item_id in known}


def passed_over(models: Sequence[Model], log: Sequence[LoggedEvent], position: int) -> Model:
    """Return the model of a log of which one event, and then those that can't follow without it, are passed over."""
    model, last = models[position - 2], models[-1]
    for logged in log[position - 1 :]:
        skipped = LoggedEvent(logged.position, model.last.at_ms, SKIPPED)
        try:
            model = fold(model, skipped if logged.position == position else logged)
        except CorruptDataError:
            model = fold(model, skipped)
    present = known_items(last)
    items = tuple(Item(item_id, available=shown) for item_id, shown in present.items())
    before = known_items(models[position - 2])
    anew: list[Event] = [SettingsChanged(last.settings), ItemsChanged(items, tuple(sorted(before.keys() - present)))]
    for event in anew:
        model = fold(model, LoggedEvent(model.version + 1, last.last.at_ms, event))
    return model


def check_passed_over(models: Sequence[Model], log: Sequence[LoggedEvent], position: int) -> None:
    model, last, is_change = passed_over(models, log, position), models[-1], position in changes_in(log)
    assert position in model.skipped
    assert known_items(model) == known_items(last)
    no_prior = {"prior_study": "", "prior_digest": ""}
    assert replace(model.settings, **no_prior) == replace(last.settings, **no_prior)
    assert 0 <= model.open_slates <= last.open_slates + 1
    assert is_change or len(model.skipped) == 1, "without one slate or reward all others can be folded"
    lost = last.state.observations - model.state.observations
    assert is_change or 0 <= lost <= 1
    checkpoint = replace(model, state=model.state.refit(model.last.at_ms), since_checkpoint=0)
    assert_same(decode_model(encode_model(checkpoint), limits=LIMITS), checkpoint)


def changes_in(log: Sequence[LoggedEvent]) -> list[int]:
    return [logged.position for logged in log[1:] if isinstance(logged.event, ItemsChanged | SettingsChanged)]


@pytest.mark.slow
@pytest.mark.long_form
def test_whatever_event_is_passed_over_the_learner_goes_on_and_knows_items_and_settings() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop, archive = Shop(worker, stores, np.random.default_rng(3)), Archive(store)
            await shop.create()
            await shop.trade(260, archive=archive)
            log = archive.events
        models, changes = replayed("first", log), changes_in(log)
        others = np.setdiff1d(np.arange(2, len(log) + 1), changes)
        assert len(changes) > 20
        few = slice(None, None, usual_or_long(3, long=1))
        for position in [*changes, *np.random.default_rng(4).choice(others, size=30, replace=False).tolist()][few]:
            check_passed_over(models, log, position)

    run(stores, scenario)


def spoil(stores: RedisStores, position: int, *, gone: bool) -> None:
    """Spoil one event of the log in the server, or remove it."""
    key = KeySpace(stores.prefix).bandit(NAME).log
    with redis.Redis.from_url(stores.url) as client:
        written = client.xrange(key)
        client.delete(key)
        for entry_id, fields in written:
            at = int(entry_id.partition(b"-")[0])
            event = fields[b"event"].replace(b'"', b"'") if at == position else fields[b"event"]
            if not (gone and at == position):
                client.xadd(key, {**fields, b"event": event}, id=entry_id)


KINDS = {"recommended": Recommended, "rewarded": Rewarded, "items": ItemsChanged, "settings": SettingsChanged}


class Silent:
    """A store that announces no changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has by that name
        return getattr(self._store, name)

    async def changes(self) -> AsyncIterator[BanditName | None]:
        await asyncio.Event().wait()
        yield None


@asynccontextmanager
async def another_worker(store: Store) -> AsyncIterator[tuple[Worker, Operators]]:
    """Run a worker that looks at a log when it is asked to, and never by itself."""
    with ThreadPoolExecutor(1) as executor:
        async with running_worker(cast("Store", Silent(store)), home=home_of(store), look_seconds=600.0) as worker:
            yield worker, operators_of(worker, executor)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_goes_on_after_its_operator_had_a_damaged_event_passed_over(
    stores: RedisStores, kind: str, *, gone: bool
) -> None:
    """A worker that could fold the event when it was whole begins anew, so that all have the same model."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as first, another_worker(store) as (second, operators):
            shop = Shop(first, stores, np.random.default_rng(1))
            await shop.create()
            for _ in range(12):
                shown = await shop.recommend()
                await first.recommender.reward(NAME, shown.recommendation_id, float(shop.rng.normal()))
            await first.bandits.upsert_items(NAME, [Item("new"), Item("i1", available=False)])
            await first.bandits.retire_items(NAME, ["i2"])
            await first.bandits.update_bandit(NAME, lambda settings: replace(settings, item_capacity=20))
            await shop.recommend()
            log = await whole_log(store, NAME)
            # Not the last one: a worker that knows it would take it for lost.
            bad = max(logged.position for logged in log[:-1] if isinstance(logged.event, KINDS[kind]))
            assert (await first.models.follow(NAME)).version == len(log)
            spoil(stores, bad, gone=gone)
            with pytest.raises(CorruptDataError):
                await second.models.follow(NAME)
            receipt = await operators.skip_event(NAME, bad, reason="a bit flipped")
            assert receipt.problem == ""
            assert receipt.model_version == receipt.log_position == (await store.get_bandit(NAME)).log_position
            assert (await whole_log(store, NAME))[bad - 1].event == SKIPPED
            again = await operators.skip_event(NAME, bad, reason="again")
            assert again == receipt, "what was passed over stays so"
            one, other = await first.models.follow(NAME), await second.models.follow(NAME)
            assert_same(one, other)
            assert one.skipped == {bad}
            assert known_items(one) == {item.item_id: item.available for item in await store.list_items(NAME)}
            assert one.settings == (await store.get_bandit(NAME)).settings
            assert first.hooks.counts["logs replaced"] == 1
            assert first.hooks.counts["lost events"] == second.hooks.counts["lost events"] == 0
            fresh = await first.recommender.recommend(NAME, request())
            await first.recommender.reward(NAME, fresh.recommendation_id, 1.0)
            after = await second.models.follow(NAME)
            assert_same(after, await first.models.follow(NAME))
            assert after.state.observations == one.state.observations + 1

    run(stores, scenario)


def test_a_learner_that_does_not_stand_there_passes_over_nothing(stores: RedisStores) -> None:
    async def scenario(store: Store) -> None:
        async with another_worker(store) as (worker, operators):
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            for _ in range(3):
                await shop.recommend()
            before = await whole_log(store, NAME)
            for position in (1, 3, len(before), len(before) + 1):
                with pytest.raises(NotReadyError, match="follows the log to its end") as raised:
                    await operators.skip_event(NAME, position, reason="why not")
                assert raised.value.reason == "LEARNER_NOT_STUCK"
            spoil(stores, 4, gone=False)
            async with another_worker(store) as (_, others):
                with pytest.raises(NotReadyError, match=r"stands before event 4 and can.t go on: event 4 does not"):
                    await others.skip_event(NAME, 5, reason="the one after")
                assert (await others.skip_event(NAME, 4, reason="this one")).problem == ""

    run(stores, scenario)


def test_a_learner_takes_up_a_snapshot_that_another_worker_made_beyond_what_it_can_not_read(
    stores: RedisStores,
) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as first, another_worker(store) as (second, _):
            shop = Shop(first, stores, np.random.default_rng(1))
            await shop.create()
            await shop.recommend()
            await second.models.follow(NAME)
            await shop.recommend()
            shown = await shop.recommend()
            await first.models.follow(NAME)
            spoil(stores, 4, gone=True)
            with pytest.raises(CorruptDataError):
                await second.models.follow(NAME)
            for _ in range(160):
                await first.recommender.reward(NAME, shown.recommendation_id, 1.0)
                shown = await shop.recommend()
            await until_saved(first, store)
            assert_same(await second.models.follow(NAME), await first.models.follow(NAME))

    async def until_saved(worker: Worker, store: Store) -> None:
        async def is_saved() -> bool:
            return bool((await store.get_bandit(NAME)).snapshot_position) and await settles(worker)

        await until_async(is_saved, what="a snapshot is saved")

    run(stores, scenario)


def test_a_slate_that_was_passed_over_is_not_missed_among_those_that_are_inactive() -> None:
    events = [BanditCreated(SETTINGS), ItemsChanged((Item("tea"),), ()), SKIPPED, Lapsed("gone")]
    log = [LoggedEvent(position, NOW_MS, event) for position, event in enumerate(events, start=1)]
    assert replayed("first", log, limits=LIMITS)[-1].tally.inactive == 0


def test_a_context_of_features_is_no_context_of_a_bandit_without_a_schema() -> None:
    asked = RecommendationRequest("one", Features.of({"age": 30.0}), None)
    slate = recommendation("rec-1")
    events = [BanditCreated(SETTINGS), ItemsChanged(tuple(map(Item, slate.slate)), ()), Recommended(asked, slate)]
    log = [LoggedEvent(position, NOW_MS, event) for position, event in enumerate(events, start=1)]
    with pytest.raises(CorruptDataError, match="event 3 can't be folded: the log has features without a schema"):
        replayed("first", log)
