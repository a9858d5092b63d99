"""Snapshots that do not verify, and followers that have to find another way."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bandits.harness import (
    LIMITS,
    NAME,
    SETTINGS,
    Archive,
    RecordedHooks,
    Shop,
    Worker,
    assert_same,
    rebuilt,
    replayed,
    request,
    running_worker,
)
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores, insist, run, run_in_memory, whole_log
from tests.contracts.samples import recommendation
from tests.servers import running_server, valkey_binary

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.follower import SHORT_TAIL
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.saved_snapshots import SavedSnapshots
from topk_bandit.bandits.snapshots import decode_digests, decode_model, encode_model
from topk_bandit.domain.bandits import Item, Kernel
from topk_bandit.domain.errors import CorruptDataError, NewerDataError, NotFoundError
from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.policy import State
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import (
    BanditCreated,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.contracts.harness import Stores
    from tests.servers import RunningServer

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.log import Store


def checkpoint(settings: BanditSettings = SETTINGS) -> Model:
    """Return a small model at a checkpoint, with an open slate and a retired item."""
    rng = np.random.default_rng(0)
    events: list[object] = [
        BanditCreated(settings),
        ItemsChanged(tuple(Item(f"i{n}", available=n != 2) for n in range(6)), ("i5",)),
    ]
    template = replace(recommendation(), slate=("i0", "i1", "i3"))
    for number in range(9):
        asked = request(f"q{number}", context=rng.normal(size=2).tolist())
        events.append(Recommended(asked, replace(template, recommendation_id=f"r{number}")))
        if number < 8:
            shown = Shown(asked.context, template.slate, 1000 + len(events))
            events.append(Rewarded(f"r{number}", float(rng.normal()), shown))
    events[-1], events[-2] = events[-2], events[-1]
    logged = [LoggedEvent(position, 1000 + position, event) for position, event in enumerate(events, 1)]  # type: ignore[arg-type]
    model = replayed("birth", logged)[-1]
    assert (model.since_checkpoint, model.open_slates) == (0, 1)
    return model


MODEL = checkpoint()
PAYLOAD = encode_model(MODEL)


def with_header(change: Callable[[dict[str, Any]], object], payload: bytes = PAYLOAD) -> bytes:
    """Return a payload with another header."""
    with np.load(io.BytesIO(payload)) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    changed = change(header)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        header=np.frombuffer(json.dumps(header if changed is None else changed).encode(), dtype=np.uint8),
        **arrays,
    )
    return buffer.getvalue()


def test_a_model_survives_as_bytes() -> None:
    assert_same(decode_model(PAYLOAD, limits=LIMITS), MODEL)
    assert_same(decode_model(with_header(lambda _: None), limits=LIMITS), MODEL)


def test_a_model_whose_kernel_is_not_learned_survives_as_bytes() -> None:
    fixed = checkpoint(replace(SETTINGS, kernel=Kernel.WEIGHTED_CONVOLUTIONAL))
    assert fixed.state.checkpoint.shape is None
    assert_same(decode_model(encode_model(fixed), limits=LIMITS), fixed)


def test_what_another_program_adds_to_a_snapshot_does_no_harm() -> None:
    def add(header: dict[str, Any]) -> None:
        described = [header, header["digests"], header["tally"], header["judged"], header["judged"]["rewards"]]
        for one in described:
            one["surplus"] = {"of": "another program"}
        for several in (header["kernel_shape"], header["history"], header["judged"]["calibration"]):
            several.append(0.5)
        for name in ("settings", "last"):
            of_json = header if name == "settings" else header["last"]
            field = "settings" if name == "settings" else "event"
            of_json[field] = of_json[field].replace("{", '{"surplus":1,', 1)

    assert_same(decode_model(with_header(add), limits=LIMITS), MODEL)
    assert decode_digests(with_header(add)) == digests_of(MODEL)


def test_a_model_of_a_newer_program_is_not_taken_for_damaged() -> None:
    payload = with_header(lambda header: header.update(v=NEWEST + 1))
    for decode in (decode_digests, partial(decode_model, limits=LIMITS)):
        with pytest.raises(NewerDataError, match=f"data of version {NEWEST + 1}"):
            decode(payload)
        with pytest.raises(CorruptDataError):
            decode(with_header(_without("v")))


def test_a_model_tells_the_digests_that_it_had() -> None:
    assert decode_digests(PAYLOAD) == digests_of(MODEL)
    with pytest.raises(CorruptDataError):
        decode_digests(with_header(_without("digests")))


def test_the_kernel_comes_back_as_it_was_chosen() -> None:
    for shape in (Shape(), Shape(0.0, 1.0, 0.0), Shape(1.0, 0.1, 16.0)):
        kernel = MODEL.state.posterior.kernel.with_shape(shape)
        posterior = replace(MODEL.state.posterior, kernel=kernel)
        checkpoint = replace(MODEL.state, posterior=posterior).checkpoint
        state = State.restore(kernel, checkpoint, limits=LIMITS, leaving=MODEL.state.leaving)
        model = replace(MODEL, state=state)
        assert_same(decode_model(encode_model(model), limits=LIMITS), model)


def _without(name: str) -> Callable[[dict[str, object]], None]:
    def change(header: dict[str, object]) -> None:
        del header[name]

    return change


@pytest.mark.parametrize(
    "change",
    [
        _without("settings"),
        _without("kernel_shape"),
        _without("compared"),
        lambda header: header.update(pending_ids=3),
        lambda header: header.update(tally={"nonsense": 1}),
        lambda header: header.update(settings=3),
        lambda header: header.update(last=None),
        lambda header: header.update(noise_variance=-1.0),
        lambda header: header.update(kernel_shape=[0.3, 1.0, 0.0]),
        lambda _: ["a", "list"],
        lambda _: 3,
    ],
)
def test_a_header_that_makes_no_sense_is_refused(change: Callable[[dict[str, object]], object]) -> None:
    with pytest.raises(CorruptDataError):
        decode_model(with_header(change), limits=LIMITS)


@given(place=st.integers(0, len(PAYLOAD) - 1), bits=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_harmless(place: int, bits: int) -> None:
    spoiled = bytearray(PAYLOAD)
    spoiled[place] ^= bits
    try:
        model = decode_model(bytes(spoiled), limits=LIMITS)
    except CorruptDataError:
        return
    assert_same(model, MODEL)


@given(length=st.integers(0, len(PAYLOAD) - 1))
def test_a_payload_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(CorruptDataError):
        decode_model(PAYLOAD[:length], limits=LIMITS)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_model(payload, limits=LIMITS)


Traded: TypeAlias = "tuple[Model, list[LoggedEvent]]"


@pytest.fixture(scope="module")
def unsaved() -> tuple[Stores, Traded]:
    """Return a shop that has traded in memory for too short a time for a snapshot: each test takes a copy."""

    async def too_short(store: Store, stores: Stores) -> Traded:
        of_shop = await traded(store, stores, rounds=100)
        assert await store.load_snapshots(NAME) == ()
        return of_shop

    return run_in_memory(too_short)


async def traded(store: Store, stores: Stores, *, rounds: int) -> Traded:
    """Let a shop trade; return the live model, and all events as they were."""
    async with running_worker(store) as worker:
        shop, archive = Shop(worker, stores, np.random.default_rng(1)), Archive(store)
        await shop.create()
        await shop.trade(rounds, archive=archive)
        live = await worker.models.follow(NAME)
        await archive.look()
    return live, archive.events


@pytest.mark.slow
def test_a_new_worker_takes_up_a_log_that_was_trimmed(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        live, events = await traded(store, stores, rounds=700)
        assert (await store.read_log(NAME, start=1, limit=1)).first_position > 256
        async with running_worker(store) as other:
            assert_same(await other.models.follow(NAME), live)
            assert other.hooks.failed_snapshots == 0
        assert_same(replayed(live.incarnation, events)[-1], live)

    run(stores, scenario)


@pytest.mark.slow
@pytest.mark.parametrize("payload", [b"", b"nonsense", with_header(lambda header: header.pop("v"))])
def test_a_snapshot_that_can_not_be_read_is_passed_over_loudly(
    stores: Stores, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: Store) -> None:
        live, _ = await traded(store, stores, rounds=700)
        older = (await store.load_snapshots(NAME))[0]
        record = await store.get_bandit(NAME)
        bad = Snapshot(record.log_position, payload)
        assert await store.save_snapshot(NAME, bad, incarnation=record.incarnation)
        assert list(await store.load_snapshots(NAME)) == [bad, older]
        async with running_worker(store) as other:
            assert_same(await other.models.follow(NAME), live)
            assert other.hooks.failed_snapshots == 1
        assert "a snapshot is passed over" in caplog.text

    run(stores, scenario)


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "nonsense": lambda _: b"nonsense",
    "of another model": lambda payload: with_header(lambda header: header["digests"].update(log="0" * 64), payload),
    "of another position": lambda payload: payload,
}


def saved(store: Store, executor: Executor, hooks: RecordedHooks) -> SavedSnapshots:
    return SavedSnapshots(NAME, store, executor, limits=LIMITS, hooks=hooks, retention=AS_SNAPSHOTS_ALLOW)


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_log_is_trimmed_only_behind_a_snapshot_that_the_model_comes_back_from(
    unsaved: tuple[Stores, Traded], spoilt: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores, (live, events) = deepcopy(unsaved[0]), unsaved[1]

    async def scenario(store: Store) -> None:
        monkeypatch.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
        first, second, third = [one for one in replayed(live.incarnation, events) if one.since_checkpoint == 0][-3:]
        good, hooks = encode_model(first), RecordedHooks()
        bad = Snapshot(second.version, SPOILT[spoilt](good))
        assert await store.save_snapshot(NAME, bad, incarnation=live.incarnation)
        with ThreadPoolExecutor(1) as executor:
            await saved(store, executor, hooks).save_if_due(third)
        assert "the log is not trimmed behind it" in caplog.text
        assert hooks.failed_snapshots == 1
        assert [kept.position for kept in await store.load_snapshots(NAME)] == [third.version, second.version]
        assert_same(replayed(live.incarnation, await whole_log(store, NAME))[-1], live)

    run(stores, scenario)


def test_a_log_is_trimmed_behind_the_older_snapshot_where_the_newer_is_spoilt(
    unsaved: tuple[Stores, Traded], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, (live, events) = deepcopy(unsaved[0]), unsaved[1]

    async def scenario(store: Store) -> None:
        monkeypatch.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
        first, second, third = [one for one in replayed(live.incarnation, events) if one.since_checkpoint == 0][-3:]
        for snapshot in (Snapshot(first.version, encode_model(first)), Snapshot(second.version, b"nonsense")):
            assert await store.save_snapshot(NAME, snapshot, incarnation=live.incarnation)
        with ThreadPoolExecutor(1) as executor:
            await saved(store, executor, RecordedHooks()).save_if_due(third)
        kept = await store.load_snapshots(NAME)
        assert [snapshot.position for snapshot in kept] == [third.version, first.version]
        assert (await store.read_log(NAME, start=1, limit=1)).first_position == first.version + 1
        model = decode_model(kept[1].payload, limits=LIMITS)
        for logged in events[first.version :]:
            model = fold(model, logged)
        assert_same(model, live)

    run(stores, scenario)


def test_a_log_that_begins_behind_its_model_is_not_taken_for_another_one(stores: Stores) -> None:
    """It was trimmed up to the older snapshot, which is taken up where the newer one is spoilt."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            for number in range(SHORT_TAIL + 20):
                slate = await shop.recommend()
                if number < 20:
                    await worker.recommender.reward(NAME, slate.recommendation_id, 1.0)
            live = await worker.models.follow(NAME)
        models = replayed(live.incarnation, await whole_log(store, NAME))
        older = [model for model in models if model.since_checkpoint == 0][-1]
        assert older.items_position < older.version < live.version - SHORT_TAIL
        for snapshot in (Snapshot(older.version, encode_model(older)), Snapshot(live.version, b"nonsense")):
            assert await store.save_snapshot(NAME, snapshot, incarnation=live.incarnation, behind=older.version)
        assert (await store.read_log(NAME, start=1, limit=1)).first_position == older.version + 1
        async with running_worker(store) as other:
            await other.models.get_model(NAME)
            assert_same(await other.models.follow(NAME), live)
            assert other.hooks.counts["logs replaced"] == 0

    run(stores, scenario)


def test_without_any_snapshot_a_whole_log_is_folded_from_its_beginning(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        live, _ = await traded(store, stores, rounds=100)
        assert await store.load_snapshots(NAME) == ()
        await store.save_snapshot(NAME, Snapshot(50, b"nonsense"), incarnation=live.incarnation)
        async with running_worker(store) as other:
            assert_same(await other.models.follow(NAME), live)

    run(stores, scenario)


def test_a_trimmed_log_without_a_snapshot_that_fits_is_no_bandit_that_knows_nothing(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        live, _ = await traded(store, stores, rounds=100)
        for position, behind in ((50, 0), (60, 50)):
            bad = Snapshot(position, b"nonsense")
            assert await store.save_snapshot(NAME, bad, incarnation=live.incarnation, behind=behind)
        async with running_worker(store) as other:
            with pytest.raises(CorruptDataError, match="begins at 51 and no snapshot fits"):
                await other.models.follow(NAME)

    run(stores, scenario)


def test_a_bandit_that_is_deleted_and_made_anew_is_another_one(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, running_worker(store) as follower:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(60)
            first = await follower.models.follow(NAME)
            await worker.bandits.delete_bandit(NAME)
            shop.open.clear()
            with pytest.raises(NotFoundError):
                await follower.models.follow(NAME)
            assert follower.models.peek_model(NAME) is None
            assert set(follower.hooks.forgotten_bandits) == {str(NAME)}
            with pytest.raises(NotFoundError):
                await follower.recommender.recommend(NAME, request())
            await shop.create(replace(SETTINGS, slate_size=2))
            second = await follower.recommender.recommend(NAME, request("again"))
            assert (len(second.slate), second.observations) == (2, 0)
            assert (await follower.models.get_model(NAME)).incarnation != first.incarnation
            await shop.trade(30)
            assert_same(await follower.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


def test_a_bandit_made_anew_between_two_looks_is_noticed(stores: Stores) -> None:
    """The new log is longer than the old one was, so that only its events and its incarnation distinguish them."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker, running_worker(store, look_seconds=600.0) as follower:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(20)
            await follower.models.follow(NAME)
            await worker.bandits.delete_bandit(NAME)
            await shop.create()
            shop.open.clear()
            await shop.trade(40)
            assert_same(await follower.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


@asynccontextmanager
async def connected(server: RunningServer) -> AsyncIterator[tuple[Store, Stores]]:
    stores = RedisStores(server.url, clock=StoreClock())
    async with stores.connect() as store:
        yield store, stores


async def follow_patiently(worker: Worker) -> Model:
    """Follow the log to its end, as soon as the store answers."""
    return await insist(lambda: worker.models.follow(NAME))


class Rewinder:
    """Takes a server back to an earlier moment, as a failover to a replica that lags does."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        self._server = server
        self._data = server.folder / "appendonlydir"
        self._copy = folder / "copy"

    def remember(self) -> None:
        self._server.kill()
        shutil.copytree(self._data, self._copy)
        self._server.start()

    def rewind(self) -> None:
        self._server.kill()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self._server.start()


@pytest.mark.slow
@pytest.mark.parametrize("before", [40, 700], ids=["a whole log", "a trimmed log"])
@pytest.mark.parametrize("after", [0, 120], ids=["shorter", "with other events"])
def test_a_log_that_lost_its_end_is_noticed_and_followed_anew(tmp_path: Path, before: int, after: int) -> None:
    async def scenario(server: RunningServer) -> None:
        async with connected(server) as (store, stores), running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(before)
            kept = await worker.models.follow(NAME)
            rewinder = Rewinder(server, tmp_path)
            rewinder.remember()
            await follow_patiently(worker)
            open_then, rounds_then = list(shop.open), shop.rounds
            await shop.trade(60)
            lost = await worker.models.follow(NAME)
            assert lost.version > kept.version
            rewinder.rewind()
            assert worker.hooks.counts["logs replaced"] == 0
            if after == 0:
                assert_same(await follow_patiently(worker), kept)
                assert worker.hooks.counts["logs replaced"] > 0
                return
            async with connected(server) as (_, other_stores):
                other_stores.prefix = stores.prefix  # type: ignore[attr-defined]
                other_stores.clock = stores.clock
                async with other_stores.connect() as elsewhere, running_worker(elsewhere) as other:
                    rng = np.random.default_rng(99)
                    elsewhere_shop = Shop(other, stores, rng, open=open_then, rounds=rounds_then)
                    await elsewhere_shop.trade(after)
                    truth = await other.models.follow(NAME)
                    assert truth.version > lost.version
                    assert_same(await follow_patiently(worker), truth)

    # With everysec the server may hold writes back while the disk is busy, and lose what it acknowledged when killed.
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        asyncio.run(scenario(server))
