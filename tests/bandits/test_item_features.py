"""Features of items from the upsert to the posterior: exact under replay, and of use for items never shown."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Archive, assert_same, replayed, running_worker
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import MemoryStores, RedisStores, run

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item, Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.store.events import ItemsChanged

if TYPE_CHECKING:
    from tests.bandits.harness import Worker

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store

SCHEMA = (
    Feature("price", Numeric(log_scale=True)),
    Feature("kind", Categorical(("tea", "coffee"))),
    Feature("tags", LabelSet(("a b", "c"))),
    Feature("look", Vector(2)),
)
GROWN = (Feature("new", Boolean()), *SCHEMA)


def offer(rng: np.random.Generator) -> Features:
    values = {
        "price": float(rng.lognormal()),
        "kind": str(rng.choice(["tea", "coffee", "m ate\n“é”"])),
        "tags": tuple(sorted(str(one) for one in rng.choice(["a b", "c"], rng.integers(3), replace=False))),
        "look": tuple(rng.normal(size=2).tolist()),
    }
    return Features.of({name: value for name, value in values.items() if rng.random() < 0.85})


class History:
    def __init__(self, live: Model, events: list[LoggedEvent], listed: list[Item], sent: dict[str, Item]) -> None:
        self.live = live
        self.events = events
        self.listed = listed
        self.sent = sent
        self.models = replayed(live.incarnation, events)


@pytest.fixture(scope="module")
def history(embedded: EmbeddedStore) -> History:
    """A trade in which items come, change and go, places are taken back, the universe and the schema grow."""
    stores = RedisStores(embedded.url, clock=StoreClock())
    found: list[History] = []

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            archive = Archive(store)
            await worker.bandits.create_bandit(NAME, replace(SETTINGS, item_schema=SCHEMA))
            sent = await _trade(worker, archive)
            live = await worker.models.follow(NAME)
            await archive.look()
            found.append(History(live, archive.events, list(await store.list_items(NAME)), sent))

    run(stores, scenario)
    return found[0]


async def _trade(worker: Worker, archive: Archive) -> dict[str, Item]:
    rng, sent, waiting = np.random.default_rng(1), dict[str, Item](), list[str]()

    async def send(*item_ids: str) -> None:
        items = [Item(one, bool(rng.random() < 0.9), offer(rng)) for one in item_ids]
        sent.update({item.item_id: item for item in items})
        await worker.bandits.upsert_items(NAME, items)

    await send(*(f"i{n}" for n in range(7)))
    await worker.bandits.upsert_items(NAME, [Item("plain"), replace(sent["i0"], available=True)])
    sent |= {"plain": Item("plain"), "i0": replace(sent["i0"], available=True)}
    for n in range(240):
        if n % 12 == 6:
            gone = f"i{n // 12}"
            await worker.bandits.retire_items(NAME, [gone])
            del sent[gone]
            await send(f"i{n // 12 + 7}", "i30")
        if n == 100:
            await worker.bandits.update_bandit(NAME, lambda old: replace(old, item_schema=GROWN))
        if n == 160:
            await worker.bandits.update_bandit(NAME, lambda old: replace(old, item_capacity=old.item_capacity + 5))
        asked = RecommendationRequest(f"r{n}", tuple(rng.normal(size=SETTINGS.context_dim).tolist()), None)
        waiting.append((await worker.recommender.recommend(NAME, asked)).recommendation_id)
        if len(waiting) > 12 or rng.random() < 0.3:
            chosen = waiting.pop(int(rng.integers(len(waiting))))
            await worker.recommender.reward(NAME, chosen, float(rng.normal()))
        if n % 20 == 0:
            await archive.look()
    return sent


def test_folding_the_log_again_gives_the_same_model(history: History) -> None:
    assert_same(history.models[-1], history.live)


@pytest.mark.slow
def test_a_snapshot_at_each_checkpoint_gives_the_same_model(history: History) -> None:
    checkpoints = [model for model in history.models if model.since_checkpoint == 0]
    assert len(checkpoints) > 20
    for checkpoint, following in pairwise([*checkpoints, history.live]):
        restored = decode_model(encode_model(checkpoint), limits=LIMITS)
        assert_same(restored, checkpoint)
        for logged in history.events[checkpoint.version : following.version]:
            restored = fold(restored, logged)
        assert digests_of(restored) == digests_of(following)
        assert_same(restored, following)


def test_items_are_listed_as_they_were_sent(history: History) -> None:
    assert {item.item_id: item for item in history.listed} == history.sent


def test_the_kernel_has_a_row_for_each_place(history: History) -> None:
    for model in history.models:
        kernel, features = model.state.posterior.kernel, model.item_features
        assert kernel.content is not None
        assert features is not None
        assert kernel.content.features.shape == (kernel.n_items, 1 + 3 + 3 + 2 + (model.settings.item_schema == GROWN))
        assert np.array_equal(kernel.content.features, features.rows)
        free = model.items.find_free(kernel.n_items)
        assert not kernel.content.features[free].any()


def test_an_item_that_is_sent_without_a_feature_has_none_of_it(history: History) -> None:
    last = history.live
    assert last.item_features is not None
    place = int(last.items.find_indices(["plain"])[0])
    assert not last.item_features.rows[place].any()


def with_worker(scenario: object) -> None:
    async def steps(store: Store) -> None:
        async with running_worker(store) as worker:
            await scenario(worker)  # type: ignore[operator]

    run(MemoryStores(), steps)


@pytest.mark.parametrize(
    ("schema", "features", "field"),
    [
        (None, {"price": 1.0}, "items[1].features"),
        (SCHEMA, {"height": 1.0}, 'items[1].features["height"]'),
        (SCHEMA, {"price": "cheap"}, 'items[1].features["price"]'),
        (SCHEMA, {"kind": ("green",)}, 'items[1].features["kind"]'),
        (SCHEMA, {"look": (1.0,)}, 'items[1].features["look"]'),
    ],
)
def test_features_that_are_not_of_the_schema_are_refused(
    schema: FeatureSchema | None, features: dict[str, object], field: str
) -> None:
    async def scenario(worker: Worker) -> None:
        await worker.bandits.create_bandit(NAME, replace(SETTINGS, item_schema=schema))
        features_of_b = Features.of(features)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError) as refused:
            await worker.bandits.upsert_items(NAME, [Item("a"), Item("b", features=features_of_b)])
        assert refused.value.field == field
        assert (await worker.store.get_bandit(NAME)).log_position == 1

    with_worker(scenario)


def test_an_upsert_is_an_event_only_if_something_differs() -> None:
    cheap, dear = (Item("a", features=Features.of({"price": price})) for price in (1.0, 9.0))

    async def scenario(worker: Worker) -> None:
        await worker.bandits.create_bandit(NAME, replace(SETTINGS, item_schema=SCHEMA))
        positions = []
        for item in (cheap, cheap, dear, dear, Item("a"), Item("a")):
            await worker.bandits.upsert_items(NAME, [item])
            positions.append((await worker.store.get_bandit(NAME)).log_position)
        assert positions == [2, 2, 3, 3, 4, 4]

    with_worker(scenario)


@pytest.mark.parametrize("kernel", [kernel for kernel in Kernel if kernel is not Kernel.ADAPTIVE])
def test_only_the_adaptive_kernel_takes_a_schema_of_items(kernel: Kernel) -> None:
    async def scenario(worker: Worker) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            await worker.bandits.create_bandit(NAME, replace(SETTINGS, item_schema=SCHEMA, kernel=kernel))
        assert refused.value.field == "bandit.item_schema"

    with_worker(scenario)


def test_a_schema_of_items_may_come_later_and_never_goes() -> None:
    async def scenario(worker: Worker) -> None:
        await worker.bandits.create_bandit(NAME, SETTINGS)
        await worker.bandits.upsert_items(NAME, [Item("a"), Item("b")])
        await worker.bandits.update_bandit(NAME, lambda old: replace(old, item_schema=SCHEMA))
        await worker.bandits.upsert_items(NAME, [Item("a", features=Features.of({"price": 1.0, "kind": "tea"}))])
        for schema in (None, SCHEMA[1:]):
            with pytest.raises(InvalidArgumentError) as refused:
                await worker.bandits.update_bandit(NAME, lambda old, to=schema: replace(old, item_schema=to))  # type: ignore[misc]
            assert refused.value.field == "bandit.item_schema"
        stats = await worker.bandits.stats(NAME)
        assert [one.name for one in stats.item_features] == ["price", "kind", "tags", "look"]
        assert [one.missing_count for one in stats.item_features] == [0, 0, 1, 1]

    with_worker(scenario)


def test_features_that_take_too_much_memory_are_refused() -> None:
    async def scenario(worker: Worker) -> None:
        wide = replace(SETTINGS, item_schema=(Feature("look", Vector(64)),), item_capacity=10**6)
        with pytest.raises(InvalidArgumentError) as refused:
            await worker.bandits.create_bandit(NAME, wide)
        assert refused.value.field == "bandit.item_schema"

    with_worker(scenario)


def test_an_item_that_comes_later_and_is_like_the_best_ones_is_soon_shown() -> None:
    """Of 30 items the worth is in their features, and the one that comes last is the best of all."""
    rng = np.random.default_rng(5)
    attributes = {f"i{n:02}": rng.uniform(-1.0, 1.0, size=2) for n in range(30)}
    attributes["late"] = np.array([1.0, 1.0])

    def item(item_id: str) -> Item:
        first, second = attributes[item_id].tolist()
        return Item(item_id, features=Features.of({"first": first, "second": second}))

    async def scenario(worker: Worker) -> None:
        schema = (Feature("first", Numeric()), Feature("second", Numeric(-1.0, 1.0)))
        settings = replace(SETTINGS, item_schema=schema, item_capacity=40, context_dim=1)
        await worker.bandits.create_bandit(NAME, settings)
        await worker.bandits.upsert_items(NAME, [item(one) for one in attributes if one != "late"])
        shown_at = []
        for n in range(150):
            if n == 140:
                await worker.bandits.upsert_items(NAME, [item("late")])
            asked = RecommendationRequest(f"r{n}", (1.0,), None)
            given = await worker.recommender.recommend(NAME, asked)
            if "late" in given.slate:
                shown_at.append(n)
            worth = sum(float(attributes[one].sum()) for one in given.slate)
            await worker.recommender.reward(NAME, given.recommendation_id, worth + 0.1 * float(rng.normal()))
        assert shown_at
        assert shown_at[0] <= 142, shown_at
        assert (await worker.bandits.stats(NAME)).hyperparameters.content_share >= 1.0

    with_worker(scenario)


def test_the_log_has_features_in_the_shop_s_own_words(history: History) -> None:
    changes = [logged.event for logged in history.events if isinstance(logged.event, ItemsChanged)]
    rng = np.random.default_rng(1)
    first = tuple(Item(f"i{n}", bool(rng.random() < 0.9), offer(rng)) for n in range(7))
    assert changes[0].upserted == first
