"""The features of items as rules ask for them: kept by the fold and in snapshots, or found in the store."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bandits.harness import LIMITS, NAME, SETTINGS, rebuilt, request, running_worker
from tests.contracts.harness import run

from topk_bandit.bandits.catalogue import MOST_KEPT, Catalogue
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.saved_snapshots import with_item_features
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.learning.id_index import NO_IDS
from topk_bandit.learning.item_table import ItemTable
from topk_bandit.store.events import BanditCreated, Imported, ItemsChanged, LoggedEvent, PastSlate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.log import Store

SCHEMA = (
    Feature("category", Categorical(("soup", "salad"))),
    Feature("price", Numeric()),
    Feature("hot", Boolean()),
    Feature("tags", LabelSet(("new", "vegan"))),
    Feature("picture", Vector(2)),
)
WITH_FEATURES = replace(SETTINGS, item_schema=SCHEMA)
SOUP = {"category": "soup", "price": 4.0, "hot": True, "tags": ("new", "vegan"), "picture": (0.5, 1.0)}
ITEMS = (
    Item("soup", features=Features.of(SOUP)),
    Item("salad", features=Features.of({"category": "salad", "price": 7.25, "tags": ()})),
    Item("nothing"),
)


def changed(model: Model, *items: Item, retired: tuple[str, ...] = ()) -> Model:
    return fold(model, LoggedEvent(model.version + 1, 1, ItemsChanged(items, retired)))


def begun(settings: object = WITH_FEATURES) -> Model:
    created = LoggedEvent(1, 1, BanditCreated(settings))  # type: ignore[arg-type]
    return changed(begin("birth", created, limits=LIMITS), *ITEMS)


def features_of(model: Model) -> Mapping[str, Features]:
    assert model.items.features is not None
    return model.items.features


def test_the_fold_keeps_what_rules_ask_for() -> None:
    model = begun()
    assert set(features_of(model)) == {"soup", "salad"}
    assert dict(features_of(model)["soup"].values) == {key: one for key, one in SOUP.items() if key != "picture"}
    assert dict(features_of(model)["salad"].values) == {"category": "salad", "price": 7.25, "tags": ()}
    assert 4 * 64 < model.items.memory_bytes - begun(SETTINGS).items.memory_bytes < 4096


def test_a_change_replaces_and_a_retired_item_has_none() -> None:
    model = changed(begun(), Item("soup", available=False, features=Features.of({"price": 9.0})), retired=("salad",))
    assert features_of(model) == {"soup": Features.of({"price": 9.0})}
    assert features_of(changed(model, Item("soup"))) == {}
    assert features_of(begun()).keys() == {"soup", "salad"}


def test_features_that_are_not_of_the_schema_are_left_out() -> None:
    """As where a bandit was deleted and created anew while its items were changed."""
    odd = Item("odd", features=Features.of({"price": "dear", "colour": "red", "hot": False}))
    assert features_of(changed(begun(), odd))["odd"] == Features.of({"hot": False})
    assert "odd" not in features_of(changed(begun(SETTINGS), odd))


def test_a_snapshot_has_them_from_the_second_data_version_on() -> None:
    model = replace(begun(), since_checkpoint=0)
    assert features_of(decode_model(encode_model(model, 2), limits=LIMITS)) == features_of(model)
    assert decode_model(encode_model(model, 1), limits=LIMITS).items.features is None
    without = replace(begun(SETTINGS), since_checkpoint=0)
    assert features_of(decode_model(encode_model(without, 1), limits=LIMITS)) == {}


def test_where_a_snapshot_has_none_the_store_has_them(stores: Stores) -> None:
    async def play(store: Store) -> None:
        async with running_worker(store) as worker:
            await worker.bandits.create_bandit(NAME, WITH_FEATURES)
            await worker.bandits.upsert_items(NAME, ITEMS)
            live = await worker.models.follow(NAME)
            old = replace(live, items=replace(live.items, catalogue=None))
            assert features_of(await with_item_features(old, store, NAME)) == features_of(live)
            assert await with_item_features(live, store, NAME) is live

    run(stores, play)


def test_items_know_how_many_learned_slates_have_shown_them(stores: Stores) -> None:
    """Each slate counts once, when its reward is learned; rows that are joined or left out change nothing."""

    async def play(store: Store) -> None:
        async with running_worker(store) as worker:
            await worker.bandits.create_bandit(NAME, SETTINGS)
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(5)])
            counts: Counter[str] = Counter()
            for number in range(40):
                given = await worker.recommender.recommend(NAME, request(f"r{number}"))
                if number % 2:
                    await worker.recommender.reward(NAME, given.recommendation_id, float(number % 3))
                    counts.update(given.slate)
            model = await worker.models.follow(NAME)
            assert dict(zip(model.items.ids, model.items.learned_counts.tolist(), strict=True)) == counts
            checkpoint = decode_model(encode_model(replace(model, since_checkpoint=0), 2), limits=LIMITS)
            assert checkpoint.items.learned_counts.tolist() == model.items.learned_counts.tolist()
            replayed = await rebuilt(store)
            assert replayed.items.learned_counts.tolist() == model.items.learned_counts.tolist()
            past = PastSlate((1.0, 0.5), ("i0", "i1", "i2"), 1.0)
            imported = fold(model, LoggedEvent(model.version + 1, 1, Imported("import", 2, (past, past))))
            assert (imported.items.learned_counts - model.items.learned_counts).tolist() == [2, 2, 2, 0, 0]
            await worker.bandits.reset_bandit(NAME, request_id="anew")
            assert not (await worker.models.follow(NAME)).items.learned_counts.any()

    run(stores, play)


def test_what_is_worked_out_is_kept_and_worked_out_once() -> None:
    catalogue, works, found = Catalogue(ItemTable(NO_IDS)), list[int](), list[object]()
    gate = threading.Barrier(4)

    def work() -> object:
        works.append(1)
        return object()

    def ask() -> None:
        gate.wait()
        found.append(catalogue.keep("rules", work))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(works), len(set(map(id, found)))) == (1, 1)
    assert catalogue.has("rules")
    for number in range(MOST_KEPT):
        catalogue.keep(number, work)
    assert not catalogue.has("rules")
