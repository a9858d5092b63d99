"""Named features from the request to the posterior: exact under replay, whatever changes between showing and reward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Archive, assert_same, replayed, running_worker
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import MemoryStores, RedisStores, run
from tests.long_forms import usual_or_long

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.explanations import list_top_slates
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item, Kernel
from topk_bandit.domain.errors import ConflictError, InvalidArgumentError
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector, width_of
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.store.events import Recommended, Rewarded, SettingsChanged

if TYPE_CHECKING:
    from tests.bandits.harness import Worker

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store

SCHEMA = (
    Feature("basket", Numeric()),
    Feature("age", Numeric(0.0, 100.0)),
    Feature("country", Categorical(("DE", "FR"))),
    Feature("page", Categorical(buckets=3)),
    Feature("tags", LabelSet(("a b", "c"))),
    Feature("user", Vector(2)),
)
GROWN = (
    Feature("member", Boolean()),
    *(feature for feature in SCHEMA if feature.name != "country"),
    Feature("country", Categorical(("PL", "DE", "FR"))),
    Feature("late", Numeric(log_scale=True)),
)


def settings_with(schema: FeatureSchema | None, **changed: object) -> BanditSettings:
    width = 2 if schema is None else width_of(schema)
    return replace(SETTINGS, context_schema=schema, context_dim=width, **changed)  # type: ignore[arg-type]


def shopper(rng: np.random.Generator, *, grown: bool) -> Features:
    values = {
        "basket": float(1e3 * rng.lognormal()),
        "age": float(rng.integers(120)),
        "country": str(rng.choice(["DE", "FR", "PL", "a stra nge\n“place”"])),
        "page": f"/{rng.integers(20)}",
        "tags": tuple(str(one) for one in rng.choice(["a b", "c", "d"], rng.integers(3))),
        "user": tuple(rng.normal(size=2).tolist()),
        **({"member": bool(rng.random() < 0.5), "late": float(rng.lognormal())} if grown else {}),
    }
    return Features.of({name: value for name, value in values.items() if rng.random() < 0.85})


class History:
    def __init__(self, live: Model, events: list[LoggedEvent]) -> None:
        self.live = live
        self.events = events
        self.models = replayed(live.incarnation, events)


@pytest.fixture(scope="module")
def history(embedded: EmbeddedStore) -> History:
    """A trade in which statistics are taken, the schema grows and a prior is named while slates are open."""
    stores = RedisStores(embedded.url, clock=StoreClock())
    found: list[History] = []

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            archive = Archive(store)
            await worker.bandits.create_bandit(NAME, settings_with(SCHEMA))
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(8)])
            await _trade(worker, archive)
            live = await worker.models.follow(NAME)
            await archive.look()
            found.append(History(live, archive.events))

    run(stores, scenario)
    return found[0]


def _grow(settings: BanditSettings) -> BanditSettings:
    return replace(settings, context_schema=GROWN, context_dim=width_of(GROWN))


async def _trade(worker: Worker, archive: Archive) -> None:
    rng, waiting = np.random.default_rng(1), []
    for n in range(420):
        if n == 60:
            worker.notebook.write("tastes", {f"i{place}": float(place) for place in range(8)})
            await worker.bandits.update_bandit(NAME, lambda old: replace(old, prior_study="tastes"))
        if n == 150:
            await worker.bandits.update_bandit(NAME, _grow)
        asked = RecommendationRequest(f"r{n}", shopper(rng, grown=n >= 150), None)
        waiting.append((await worker.recommender.recommend(NAME, asked)).recommendation_id)
        if len(waiting) > 25 or (waiting and rng.random() < 0.3):
            chosen = waiting.pop(int(rng.integers(len(waiting))))
            await worker.recommender.reward(NAME, chosen, float(rng.normal()))
        if n % 20 == 0:
            await archive.look()


def test_the_history_has_everything_in_it(history: History) -> None:
    kinds = [type(logged.event) for logged in history.events]
    assert kinds.count(Rewarded) > 200
    assert kinds.count(SettingsChanged) == 2
    scales = {model.encoder.records[-1].scale for model in history.models if model.encoder is not None}
    assert len(scales) >= 4
    assert history.live.state.posterior.context_dim == width_of(GROWN) + 1
    assert history.live.state.observations > LIMITS.rows, "no row was folded"


def test_folding_the_log_again_gives_the_same_model(history: History) -> None:
    assert_same(history.models[-1], history.live)


@pytest.mark.slow
@pytest.mark.long_form
def test_a_snapshot_at_each_checkpoint_gives_the_same_model(history: History) -> None:
    checkpoints = [model for model in history.models if model.since_checkpoint == 0]
    assert len(checkpoints) > 8
    for number, checkpoint in enumerate(checkpoints):
        restored = decode_model(encode_model(checkpoint), limits=LIMITS)
        assert_same(restored, checkpoint)
        if number % usual_or_long(4, long=1):
            continue
        for logged in history.events[checkpoint.version :]:
            restored = fold(restored, logged)
        assert digests_of(restored) == digests_of(history.live)
        assert_same(restored, history.live)


def test_requests_are_logged_in_the_shop_s_own_words(history: History) -> None:
    rng = np.random.default_rng(1)
    first = next(logged.event for logged in history.events if isinstance(logged.event, Recommended))
    assert first.request.context == shopper(rng, grown=False)
    rewarded = {one.event.recommendation_id: one.event for one in history.events if isinstance(one.event, Rewarded)}
    for logged in history.events:
        if isinstance(logged.event, Recommended):
            shown = rewarded.get(logged.event.recommendation.recommendation_id)
            assert shown is None or shown.shown.context == logged.event.request.context


def test_what_was_seen_is_counted_by_feature(history: History) -> None:
    asked = [dict(one.event.request.context.values) for one in history.events if isinstance(one.event, Recommended)]
    encoder = history.live.encoder
    assert encoder is not None
    stats = {feature.name: record for feature, record in zip(encoder.schema, encoder.records, strict=True)}
    assert stats["basket"].missing == sum("basket" not in one for one in asked)
    assert stats["age"].clamped == sum(one.get("age", 0.0) > 100.0 for one in asked)
    strange = [one.get("country") not in {"DE", "FR", None} for one in asked[:150]]
    strange += [one.get("country") not in {"DE", "FR", "PL", None} for one in asked[150:]]
    assert stats["country"].unknown == sum(strange)


def with_worker(scenario: object) -> None:
    async def steps(store: Store) -> None:
        async with running_worker(store) as worker:
            await scenario(worker)  # type: ignore[operator]

    run(MemoryStores(), steps)


@pytest.mark.parametrize(
    ("schema", "context", "field"),
    [
        (SCHEMA, (1.0, 2.0), "context"),
        (None, Features.of({"age": 1.0}), "features"),
        (SCHEMA, Features.of({"height": 1.0}), 'features["height"]'),
        (SCHEMA, Features.of({"age": "old"}), 'features["age"]'),
        (SCHEMA, Features.of({"age": True}), 'features["age"]'),
        (SCHEMA, Features.of({"country": ("DE",)}), 'features["country"]'),
        (SCHEMA, Features.of({"tags": "{c,d}"}), 'features["tags"]'),
        (SCHEMA, Features.of({"user": (1.0,)}), 'features["user"]'),
        (SCHEMA, Features.of({"user": ("a", "b")}), 'features["user"]'),
    ],
)
def test_a_context_that_is_not_of_the_schema_is_refused(
    schema: FeatureSchema | None, context: object, field: str
) -> None:
    async def scenario(worker: Worker) -> None:
        await worker.bandits.create_bandit(NAME, settings_with(schema))
        await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(4)])
        asked = RecommendationRequest("r", context, None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError) as refused:
            await worker.recommender.recommend(NAME, asked)
        assert refused.value.field == field
        assert (await worker.store.get_bandit(NAME)).log_position == 2

    with_worker(scenario)


def test_a_value_in_another_form_is_read_by_the_newest_schema_and_logged_as_its_kind() -> None:
    forms = {"age": "31", "country": 49.0, "tags": ("c", "a b", "c"), "user": ("2", "1"), "basket": "NA", "late": "3.5"}
    read = {"age": 31.0, "country": "49", "tags": ("a b", "c"), "user": (2.0, 1.0), "late": 3.5}

    async def scenario(worker: Worker) -> None:
        await worker.bandits.create_bandit(NAME, settings_with(SCHEMA))
        await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(4)])
        await worker.models.follow(NAME)
        async with running_worker(worker.store) as other:  # the schema grows, and this worker does not know of it yet
            await other.bandits.update_bandit(NAME, _grow)
        first, again, typed = [
            await worker.recommender.recommend(NAME, RecommendationRequest("r", Features.of(features), None))
            for features in (forms, forms, read)
        ]
        assert first == again == typed
        archive = Archive(worker.store)
        await archive.look()
        logged = [one.event.request.context for one in archive.events if isinstance(one.event, Recommended)]
        assert logged == [Features.of(read)]

    with_worker(scenario)


def _replaced(name: str, kind: object) -> FeatureSchema:
    return tuple(Feature(one.name, kind if one.name == name else one.kind) for one in SCHEMA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (None, "bandit.context_schema"),
        (SCHEMA[1:], "bandit.context_schema"),
        (_replaced("age", Numeric(0.0, 99.0)), "bandit.context_schema.features[1]"),
        (_replaced("age", Boolean()), "bandit.context_schema.features[1]"),
        (_replaced("country", Categorical(("DE",))), "bandit.context_schema.features[2]"),
        (_replaced("country", LabelSet(("DE", "FR"))), "bandit.context_schema.features[2]"),
        (_replaced("page", Categorical(buckets=4)), "bandit.context_schema.features[3]"),
        (_replaced("user", Vector(3)), "bandit.context_schema.features[5]"),
    ],
)
def test_a_schema_that_loses_what_was_learned_is_refused(schema: FeatureSchema | None, field: str) -> None:
    async def scenario(worker: Worker) -> None:
        before = await worker.bandits.create_bandit(NAME, settings_with(SCHEMA))
        with pytest.raises(InvalidArgumentError) as refused:
            await worker.bandits.update_bandit(NAME, lambda old: replace(old, context_schema=schema))
        assert refused.value.field == field
        assert await worker.store.get_bandit(NAME) == before

    with_worker(scenario)


def test_a_repeated_request_id_is_compared_by_its_raw_features() -> None:
    async def scenario(worker: Worker) -> None:
        await worker.bandits.create_bandit(NAME, settings_with(SCHEMA))
        await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(4)])
        # Both ages are clamped to the same number, and are not the same request.
        asked = [RecommendationRequest("r", Features.of({"age": age}), None) for age in (150.0, 160.0)]
        given = await worker.recommender.recommend(NAME, asked[0])
        assert await worker.recommender.recommend(NAME, asked[0]) == given
        with pytest.raises(ConflictError, match="features"):
            await worker.recommender.recommend(NAME, asked[1])

    with_worker(scenario)


@pytest.mark.parametrize("kernel", list(Kernel))
def test_every_kernel_learns_from_features_of_which_none_is_told(kernel: Kernel) -> None:
    async def scenario(worker: Worker) -> None:
        schema = (Feature("age", Numeric(0.0, 100.0)),)
        await worker.bandits.create_bandit(NAME, settings_with(schema, kernel=kernel))
        await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(6)])
        for n in range(40):
            given = await worker.recommender.recommend(NAME, RecommendationRequest(f"r{n}", Features(), None))
            await worker.recommender.reward(NAME, given.recommendation_id, float("i0" in given.slate))
            model = await worker.models.follow(NAME)
        [best] = list_top_slates(model, Features.of({"age": 50.0}), limit=1).slates
        assert best.mean > 0.2

    with_worker(scenario)
