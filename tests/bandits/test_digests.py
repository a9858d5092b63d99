"""Workers notice when their models of one log are not the same, where they must be."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, Archive, Shop, assert_same, replayed, running_worker
from tests.contracts.harness import run

from topk_bandit.bandits.digests import Digests, digests_of, resume_arithmetic
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.snapshots import decode_digests, decode_model, encode_model
from topk_bandit.domain.bandits import Item
from topk_bandit.learning.arithmetic import describe_arithmetic
from topk_bandit.store.events import ItemsChanged, LoggedEvent

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.log import Store


ABACUS = {"posterior": "other", "arithmetic": "abacus"}


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({}, ""),
        ({"log": "other"}, "log"),
        ({"log": "other", "arithmetic": "other"}, "log"),
        ({"posterior": "other"}, "posterior"),
        ({"posterior": "other", "arithmetic": "other"}, ""),
        ({"arithmetic": "other"}, ""),
    ],
)
def test_what_must_be_equal(changed: dict[str, str], difference: str) -> None:
    digests = Digests(log="l", posterior="p", arithmetic="a")
    assert digests.difference(digests._replace(**changed)) == difference
    assert digests._replace(**changed).difference(digests) == difference


async def history(store: Store, stores: Stores) -> list[LoggedEvent]:
    async with running_worker(store) as worker:
        shop, archive = Shop(worker, stores, np.random.default_rng(5)), Archive(store)
        await shop.create()
        await shop.trade(420, archive=archive)
        await worker.models.follow(NAME)
        await archive.look()
        return archive.events


@pytest.mark.slow
def test_every_event_changes_the_log_s_digest_and_a_replay_does_not(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        events = await history(store, stores)
        models = replayed("birth", events)
        digests = [digests_of(model) for model in models]
        assert len({one.log for one in digests}) == len(models)
        assert digests_of(replayed("birth", events)[-1]) == digests[-1]
        assert digests_of(replace(models[-1], incarnation="another")).log != digests[-1].log
        # The same posterior, and another log: an item that nobody was shown.
        changed = ItemsChanged((Item("new"),), ())
        more = fold(models[-1], LoggedEvent(models[-1].version + 1, models[-1].last.at_ms, changed))
        assert digests_of(more).log != digests[-1].log
        if more.since_checkpoint:
            assert digests_of(more).posterior == digests[-1].posterior

    run(stores, scenario)


def tampered(model: Model, **changed: str) -> bytes:
    """Return a model as bytes, with other digests than it has."""
    with np.load(io.BytesIO(encode_model(model))) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    header["digests"].update(changed)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
    return buffer.getvalue()


@pytest.mark.slow
def test_a_snapshot_tells_the_digests_of_its_model(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        events = await history(store, stores)
        for model in replayed("birth", events):
            if model.since_checkpoint == 0:
                assert decode_digests(encode_model(model)) == digests_of(model)
                assert digests_of(decode_model(encode_model(model), limits=LIMITS)) == digests_of(model)

    run(stores, scenario)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "divergences"),
    [({}, 0), ({"posterior": "other"}, 1), (ABACUS, 0)],
)
def test_a_worker_that_starts_from_a_snapshot_of_other_bits_says_so_and_goes_on(
    stores: Stores,
    changed: dict[str, str],
    divergences: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("topk_bandit.bandits.saved_snapshots.encode_model", lambda model, _: tampered(model, **changed))

    async def scenario(store: Store) -> None:
        events = await history(store, stores)
        record = await store.get_bandit(NAME)
        assert record.snapshot_position > 0
        async with running_worker(store) as worker:
            model, truth = await worker.models.follow(NAME), replayed(record.incarnation, events)[-1]
            assert_same(replace(model, arithmetic=truth.arithmetic), truth)
            assert (model.arithmetic != truth.arithmetic) == ("arithmetic" in changed)
            assert worker.hooks.divergences == divergences
            assert worker.hooks.failed_snapshots == 0
        assert ("is not that of the snapshot" in caplog.text) == bool(divergences)

    run(stores, scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "divergences"), [({}, 0), ({"posterior": "other"}, 1)])
def test_a_worker_whose_checkpoint_another_kept_otherwise_says_so(
    stores: Stores, changed: dict[str, str], divergences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = iter([changed])  # the first that encodes the checkpoint differs from the other
    monkeypatch.setattr(
        "topk_bandit.bandits.saved_snapshots.encode_model", lambda model, _: tampered(model, **next(changes, {}))
    )

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, running_worker(store) as other:
            shop = Shop(worker, stores, np.random.default_rng(5))
            await shop.create()
            while not (await store.get_bandit(NAME)).snapshot_position:
                await shop.trade(1)
                for one in (worker, other):
                    await one.models.follow(NAME)
            # The store kept one of the two checkpoints of the same position, and the worker of the other compared them.
            assert worker.hooks.divergences + other.hooks.divergences == divergences

    run(stores, scenario)


@pytest.mark.slow
def test_a_worker_takes_the_digests_of_a_checkpoint_once_though_another_kept_it(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def counted(model: Model) -> Digests:
        taken.append(model.version)
        return digests_of(model)

    for module in ("saved_snapshots", "snapshots"):
        monkeypatch.setattr(f"topk_bandit.bandits.{module}.digests_of", counted)

    async def scenario(store: Store) -> None:
        taken.clear()
        async with running_worker(store) as worker, running_worker(store) as other:
            shop = Shop(worker, stores, np.random.default_rng(5))
            await shop.create()
            while not (position := (await store.get_bandit(NAME)).snapshot_position):
                await shop.trade(1)
                for one in (worker, other):
                    await one.models.follow(NAME)
        assert taken == [position, position]

    run(stores, scenario)


def test_what_another_arithmetic_had_a_part_in_is_compared_with_its_like_only(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers go on from the snapshot of an unlike one; they agree with each other, and owe it only the log."""
    monkeypatch.setattr("topk_bandit.bandits.saved_snapshots.encode_model", lambda model, _: tampered(model, **ABACUS))

    async def scenario(store: Store) -> None:
        async with running_worker(store) as unlike:
            shop = Shop(unlike, stores, np.random.default_rng(5))
            await shop.create()
            while not (await store.get_bandit(NAME)).snapshot_position:
                await shop.trade(1)
                await unlike.models.follow(NAME)
            stayed = await unlike.bandits.stats(NAME)
            async with running_worker(store) as one, running_worker(store) as other:
                mine, theirs = await one.bandits.stats(NAME), await other.bandits.stats(NAME)
            assert mine.model_version == stayed.model_version
            assert mine.arithmetic == theirs.arithmetic != stayed.arithmetic
            assert mine.arithmetic.startswith(f"{describe_arithmetic()}, after ")
            assert mine.posterior_digest == theirs.posterior_digest
            assert mine.log_digest == stayed.log_digest
            assert one.hooks.divergences == other.hooks.divergences == 0

    run(stores, scenario)


def test_an_origin_is_told_once_and_in_few_words() -> None:
    ours = describe_arithmetic()
    assert resume_arithmetic(ours, position=7) == ours
    after = resume_arithmetic("abacus", position=7)
    assert after.startswith(f"{ours}, after ")
    assert after.endswith(" to 7")
    assert resume_arithmetic(after, position=9) == after, "it goes on as it was"
    assert resume_arithmetic("abacus", position=8) != after != resume_arithmetic("slide rule", position=7)
    for position in range(8, 20):  # two unlike workers alternately
        after = resume_arithmetic(f"abacus, after {after.partition(', after ')[2]}", position=position)
    assert len(after) < len(ours) + 40


def test_stats_tell_the_digests_of_the_answering_worker(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, running_worker(store) as other:
            shop = Shop(worker, stores, np.random.default_rng(5))
            await shop.create()
            await shop.trade(80)
            mine, theirs = await worker.bandits.stats(NAME), await other.bandits.stats(NAME)
            assert mine.model_version == theirs.model_version
            digests = digests_of(await worker.models.follow(NAME))
            for stats in (mine, theirs):
                assert (stats.log_digest, stats.posterior_digest, stats.arithmetic) == digests

    run(stores, scenario)
