"""Exports that somebody changed with care: fields that no service wrote, and digests that are true."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.bandits.harness import NAME, SETTINGS, running_worker
from tests.bandits.test_operators import trim
from tests.contracts.archives import archived, ended

from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.domain.bandits import Aggregation, Item
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.store.events import PastSlate
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bandits.harness import Worker

    from topk_bandit.domain.features import Context

__all__ = ["FEATURES", "forge", "plain_archive", "rich_archive"]

FEATURES = (
    Feature("age", Numeric(0.0, 100.0)),
    Feature("basket", Numeric()),
    Feature("member", Boolean()),
    Feature("kind", Categorical(("tea", "coffee"))),
    Feature("tags", LabelSet((), buckets=4)),
    Feature("look", Vector(2)),
)
ITEM_FEATURES = (Feature("price", Numeric(log_scale=True)), Feature("kind", Categorical(("tea", "coffee"))))

ODD: Sequence[Any] = (
    *(-1, 0, 1, 2, 13, 2**31, 2**53, 2**53 + 1, 2**63, 10**30, -(2**63), 253_402_300_800_000),
    *(-0.5, 0.5, 1.5, 1e6, 1e100, 1e308, -1e308, 5e-324, "", "x", " ", "a\nb", "\0", "é" * 300, "\ud800"),
    *(None, True, False, [], {}, [0.0], ["i1"], [1e300, 1e300], {"age": 1.0}, {"age": "x"}),
)


class Aged:
    """A store whose clock only moves when a test moves it, ahead of everything that reads a clock of its own."""

    def __init__(self) -> None:
        self.now_ms = 4_000_000_000_000
        self.store = MemoryStore(clock_ms=lambda: self.now_ms)


async def rich_archive(*, trimmed: bool) -> list[str]:
    """Return the lines of a bandit that has used all that a bandit can: features, several rewards, imports, priors."""
    settings = replace(
        SETTINGS,
        context_dim=sum(feature.kind.width for feature in FEATURES),
        requires_activation=True,
        reward_aggregation=Aggregation.SUM,
        context_schema=FEATURES,
        item_schema=ITEM_FEATURES,
        default_reward=0.25,
    )
    rng = np.random.default_rng(3)

    def context() -> Features:
        values = {"age": 30.0, "basket": float(rng.normal()), "member": True, "kind": "tea", "tags": ("a",)}
        return Features.of({**values, "look": (0.5, 0.25)})

    def item(number: int) -> Item:
        return Item(f"i{number}", features=Features.of({"price": 1.0 + number, "kind": "coffee"}))

    aged = Aged()
    # What is drawn depends on ids: none of them is by chance.
    await aged.store.create_bandit(NAME, settings, incarnation="rich", quota=1)
    async with running_worker(aged.store) as worker:
        await worker.bandits.upsert_items(NAME, [item(number) for number in range(8)])
        await _live(worker, aged, context)
        past = PastSlate(context(), ("i1", "i2", "i3"), 1.0, at_ms=1, propensity=0.5)
        for number in range(2):  # two checkpoints: each import is followed by a refit
            await worker.bandits.import_rows(NAME, RowsOfImport(f"old {number}", 0, 2, (past, past)))
        if trimmed:
            await trim(aged.store)
        await _live(worker, aged, context)
        return await archived(aged.store, NAME)


async def plain_archive(*, trimmed: bool) -> list[str]:
    """Return the lines of a bandit whose contexts are numbers, and whose slates have one reward each."""
    rng = np.random.default_rng(4)

    def context() -> Context:
        return tuple(rng.normal(size=2).tolist())

    aged = Aged()
    await aged.store.create_bandit(NAME, replace(SETTINGS, default_reward=0.5), incarnation="plain", quota=1)
    async with running_worker(aged.store) as worker:
        await worker.bandits.upsert_items(NAME, [Item(f"i{number}") for number in range(8)])
        worker.notebook.write("likes", {f"i{number}": 0.1 * number for number in range(8)})
        await worker.bandits.update_bandit(
            NAME, lambda known: replace(known, prior_study="likes", prior_digest="", half_life_ms=10**6)
        )
        await _live(worker, aged, context)
        past = PastSlate(context(), ("i1", "i2", "i3"), 1.0)
        for number in range(2):
            await worker.bandits.import_rows(NAME, RowsOfImport(f"old {number}", 0, 2, (past, past)))
        if trimmed:
            await trim(aged.store)
        await worker.bandits.reset_bandit(NAME, request_id="anew")
        await _live(worker, aged, context)
        return await archived(aged.store, NAME)


async def _live(worker: Worker, aged: Aged, context: Callable[[], Context]) -> None:
    """Have slates of every kind, rewards, corrections and changes of items."""
    record = await worker.store.get_bandit(NAME)
    waits, several = record.settings.requires_activation, record.settings.reward_aggregation is not Aggregation.FIRST

    numbers = count()

    async def show() -> str:
        request_id = f"{record.log_position} {next(numbers)}"
        slate = await worker.recommender.recommend(NAME, RecommendationRequest(request_id, context(), None))
        if waits:
            await worker.recommender.activate(NAME, slate.recommendation_id, ())
        return slate.recommendation_id

    for value in (1.0, -0.5):
        await worker.recommender.reward(NAME, await show(), value, reward_id="one" if several else "", final=True)
    if several:
        await worker.recommender.reward(NAME, await show(), 0.5, reward_id="click one")
    paid = await show()
    await worker.recommender.reward(NAME, paid, 1.0, reward_id="one" if several else "", final=True)
    await worker.models.follow(NAME)
    await worker.recommender.correct_reward(NAME, paid, 2.0, reward_id="one" if several else "")
    await worker.recommender.correct_reward(NAME, await show(), None)
    await worker.recommender.recommend(NAME, RecommendationRequest(f"{record.log_position} open", context(), None))
    position = record.log_position
    await worker.bandits.upsert_items(NAME, [Item(f"brief-{position}"), Item("i7", available=False)])
    await worker.bandits.retire_items(NAME, [f"brief-{position}"])
    await worker.bandits.update_bandit(NAME, lambda known: replace(known, reward_wait_ms=1))
    for _ in range(2):
        await show()
    aged.now_ms += 10
    await worker.store.expire_due(NAME, limit=9)
    await worker.bandits.update_bandit(NAME, lambda known: replace(known, reward_wait_ms=3_600_000))
    await show()


def forge(lines: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Return an archive with one or two things changed, and digests that are true of it."""
    entries = [json.loads(line) for line in lines[:-1]]
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.12:
            _move(entries, rng)
        else:
            _change(entries, rng)
    texts = [json.dumps(line, ensure_ascii=True, separators=(",", ":")) for line in entries]
    return _end(texts, entries)


def _end(texts: list[str], entries: list[Any]) -> list[str]:
    try:
        return ended(texts)
    except (ValueError, KeyError, TypeError):
        return [*texts, '{"end":{}}']


def _move(entries: list[Any], rng: np.random.Generator) -> None:
    """Take an event out, have it twice, or exchange it with another; positions stay in their order."""
    events = [place for place, line in enumerate(entries) if "event" in line][1:]
    if len(events) < 2:
        return
    first, second = (int(rng.choice(events)) for _ in range(2))
    match int(rng.integers(3)):
        case 0:
            del entries[first]
        case 1:
            entries.insert(first, json.loads(json.dumps(entries[first])))
        case 2:
            entries[first], entries[second] = entries[second], entries[first]
    position = min(line["position"] for line in entries if isinstance(line.get("position"), int))
    for line in entries:
        if "event" in line:
            line["position"], position = position, position + 1


def _places(node: Any, kept: list[tuple[Any, Any]]) -> None:  # noqa: ANN401 - JSON
    """Collect where a document has values: the object or list that has them, and their name or index."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        kept.append((node, key))
        if isinstance(value, dict | list):
            _places(value, kept)


def _change(entries: list[Any], rng: np.random.Generator) -> None:
    """Change one value of one line."""
    line = entries[int(rng.integers(len(entries)))] if rng.random() < 0.8 else entries[0]
    kept: list[tuple[Any, Any]] = []
    _places(line, kept)
    node, key = kept[int(rng.integers(len(kept)))]
    value = node[key]
    same = [one for one in ODD if type(one) is type(value)]
    match value:
        case list() if value and rng.random() < 0.7:
            place = int(rng.integers(len(value)))
            value.insert(place, value[place]) if rng.random() < 0.5 else value.pop(place)
        case dict() if value and rng.random() < 0.5:
            value.pop(list(value)[int(rng.integers(len(value)))])
        case str() if rng.random() < 0.4:
            texts = _texts(entries)
            node[key] = texts[int(rng.integers(len(texts)))]
        case int() if rng.random() < 0.3 and not isinstance(value, bool):
            node[key] = value + int(rng.integers(-3, 4))
        case float() if rng.random() < 0.2:
            node[key] = value * float(rng.choice([-1.0, 1e3, 1e50, 1e300]))
        case _ if same and rng.random() < 0.8:
            node[key] = same[int(rng.integers(len(same)))]
        case _:
            node[key] = ODD[int(rng.integers(len(ODD)))]


def _texts(entries: list[Any]) -> list[str]:
    kept: list[tuple[Any, Any]] = []
    _places(entries, kept)
    return [node[key] for node, key in kept if isinstance(node[key], str) and len(node[key]) < 100]
