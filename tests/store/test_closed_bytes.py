"""What is left of closed recommendations: its bytes, what forgetting takes, and that each is found again."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from dataclasses import replace
from hashlib import sha1
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.contracts.clocks import BEGINNING_MS, StoreClock
from tests.contracts.harness import RedisStores, run
from tests.contracts.samples import NAME, SETTINGS, recommendation, request, settings
from tests.long_forms import usual_or_long
from tests.servers import redis_binary, running_server, valkey_binary

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.errors import ConflictError, NotFoundError
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.store.log import DEFAULT_RECORD_RETENTION_MS
from topk_bandit.store.redis.closed import NOTHING_CLOSED, must_turn
from topk_bandit.store.redis.keys import SLICES, KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from tests.servers import RunningServer

    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.log import Store

MOST_BYTES = 60
MANY = usual_or_long(3000, long=20_000)
AT_ONCE = 100
COMMANDS = ("evalsha", "hdel", "hget", "hmget", "hset", "unlink", "zrem")


class Shape(NamedTuple):
    """How long contexts, slates and ids are."""

    dim: int
    slate: int
    letters: int


SHAPES = {"short": Shape(5, 6, 8), "long": Shape(64, 12, 36)}


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    binary = {"valkey": valkey_binary, "redis": redis_binary}[request.param]()
    with running_server(binary, append_only=False) as server:
        yield server


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), append_only=False) as server:
        yield server


def id_of(number: int) -> str:
    return f"{Random(number).getrandbits(128):032x}"


def reward_of(number: int) -> float:
    return Random(-number - 1).random()


def given_of(number: int, shape: Shape) -> Recommendation:
    slate = tuple(f"{place:0{shape.letters}d}" for place in Random(number).sample(range(50), shape.slate))
    return replace(recommendation(id_of(number)), slate=slate, model_version=number)


async def close(store: Store, numbers: range, shape: Shape = SHAPES["short"]) -> None:
    """Record slates and their rewards, many at once."""

    async def close_one(number: int) -> None:
        random = Random(number)
        asked = request(f"q{number}", context=tuple(random.gauss(0.0, 1.0) for _ in range(shape.dim)))
        given = given_of(number, shape)
        await store.record_recommendation(NAME, asked, given, incarnation="first", items_position=0)
        await store.record_reward(NAME, id_of(number), reward_of(number), reward_id="click", final=True)

    for first in range(numbers.start, numbers.stop, AT_ONCE):
        await asyncio.gather(*map(close_one, range(first, min(first + AT_ONCE, numbers.stop))))


def bytes_of(client: redis.Redis, stores: RedisStores) -> int:
    """Return what the keys of closed and open slates take."""
    keys = KeySpace(stores.prefix).bandit(NAME)
    of_slates = (keys.recommendations, keys.deadlines, *keys.closed)
    return sum(client.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0 for key in of_slates)


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_left_of_a_closed_slate_takes_few_bytes(server: RunningServer, shape: str) -> None:
    """However long its ids, and with rewards of many digits."""
    stores = RedisStores(server.unix_url)

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        await close(store, range(MANY), SHAPES[shape])
        with server.client() as client:
            assert bytes_of(client, stores) / MANY <= MOST_BYTES
            before = client.dbsize()
        for number in range(0, MANY, 97):
            key = id_of(number)
            assert (await store.record_reward(NAME, key, reward_of(number))).answer.outcome == RewardOutcome.DUPLICATE
            with pytest.raises(ConflictError, match="another reward"):
                await store.record_reward(NAME, key, 2.0)
        with pytest.raises(NotFoundError):
            await store.record_reward(NAME, id_of(MANY), 1.0)
        with server.client() as client:
            assert client.dbsize() == before

    run(stores, scenario)


@pytest.mark.slow
def test_several_rewards_of_each_are_found_again_by_their_ids(valkey: RunningServer) -> None:
    stores, many, rewards = RedisStores(valkey.unix_url), 300, 9

    async def scenario(store: Store) -> None:
        having = settings(reward_aggregation=Aggregation.SUM)
        await store.create_bandit(NAME, having, incarnation="first", quota=1)
        for number in range(many):
            given = given_of(number, SHAPES["short"])
            await store.record_recommendation(NAME, request(), given, incarnation="first", items_position=0)
            for one in range(rewards):
                options = {"reward_id": f"reward {one}", "final": one == rewards - 1}
                await store.record_reward(NAME, id_of(number), number + one / 7.0, **options)
        for number in range(0, many, 7):
            for one in range(rewards):
                value, reward_id = number + one / 7.0, f"reward {one}"
                again = (await store.record_reward(NAME, id_of(number), value, reward_id=reward_id)).answer
                assert again.outcome == RewardOutcome.DUPLICATE
                with pytest.raises(ConflictError) as other:
                    await store.record_reward(NAME, id_of(number), value + 1.0, reward_id=reward_id)
                assert other.value.reason == "REWARD_EXISTS"
            with pytest.raises(ConflictError) as more:
                await store.record_reward(NAME, id_of(number), 1.0, reward_id="one more")
            assert more.value.reason == "REWARD_FINAL"

    run(stores, scenario)


def test_forgetting_is_no_more_work_the_more_there_is_to_forget(valkey: RunningServer) -> None:
    """And all that it took is given back."""

    def sent() -> Counter[str]:
        with valkey.client() as client:
            stats = client.info("commandstats")
            return Counter({name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in COMMANDS})

    def scenario_of(stores: RedisStores, many: int, took: list[Counter[str]], left: list[int]) -> None:
        async def scenario(store: Store) -> None:
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
            await close(store, range(many))
            await stores.pass_time(200)
            await store.expire_due(NAME, limit=1)
            await stores.pass_time(200)
            with valkey.client() as client:
                held = bytes_of(client, stores)
                before = sent()
                assert (await store.expire_due(NAME, limit=1)).count == 0
                took.append(sent() - before)
                left.append(bytes_of(client, stores))
            assert held > 40 * many
            with pytest.raises(NotFoundError):
                await store.record_reward(NAME, id_of(0), 1.0)

        run(stores, scenario)

    took: list[Counter[str]] = []
    left: list[int] = []
    for many in (50, 400):
        scenario_of(RedisStores(valkey.unix_url, record_retention_ms=150, clock=StoreClock()), many, took, left)
    assert took[0] == took[1] == Counter(evalsha=2, hmget=2, hset=2, unlink=1)
    assert max(left) < 1000


def test_a_write_never_takes_more_than_a_few_buckets(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.unix_url)

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        await close(store, range(600))
        with valkey.client() as client:
            buckets = client.hgetall(KeySpace(stores.prefix).bandit(NAME).closed[0])
        assert {int(number) for number in buckets} == set(range(len(buckets)))
        sizes = sorted(map(len, buckets.values()))
        assert sizes[-1] < 3 * 1024
        assert sum(sizes) / len(sizes) > 0.5 * 1024

    run(stores, scenario)


def look_alike() -> tuple[str, float]:
    """Return an id and a reward whose number is stored with the same bytes as the beginning of the id's SHA-1."""
    stored_double = b"\xcb"  # as MessagePack begins one
    for key in map(str, count()):
        digest = sha1(key.encode(), usedforsecurity=False).digest()
        (value,) = struct.unpack(">d", digest[1:9])
        if digest[:1] == stored_double and 1e-3 < abs(value) < 1e6:
            return key, value
    raise AssertionError


@pytest.mark.parametrize("closed_before", [True, False])
def test_a_number_that_looks_like_an_id_is_not_taken_for_one(server: RunningServer, *, closed_before: bool) -> None:
    """Whoever posts rewards chooses it: the slate with this id could not be asked for, or its entry cut another one."""
    key, value = look_alike()

    async def scenario(store: Store) -> None:
        async def give(*given: str) -> None:
            for one in given:
                await store.record_recommendation(
                    NAME, request(), recommendation(one), incarnation="first", items_position=0
                )

        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        posted = {"chosen": value, key: 1.0, "other": 2.0}
        await give("chosen", "other", *([] if closed_before else [key]))
        await store.record_reward(NAME, "chosen", value)
        if closed_before:
            with pytest.raises(NotFoundError):
                await store.record_reward(NAME, key, 1.0)
            await give(key)
        for one in (key, "other"):
            assert (await store.record_reward(NAME, one, posted[one])).answer.outcome == RewardOutcome.ACCEPTED
        for one, number in posted.items():
            assert (await store.record_reward(NAME, one, number)).answer.outcome == RewardOutcome.DUPLICATE

    run(RedisStores(server.unix_url), scenario)


def test_a_clock_that_was_set_back_ends_no_forgetting(valkey: RunningServer) -> None:
    """A slice that ended in the next century kept the others from having their turn."""
    stores = RedisStores(valkey.unix_url, record_retention_ms=150, clock=StoreClock())
    next_century_ms = BEGINNING_MS + 100 * 366 * 86_400_000

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        await close(store, range(1))
        with valkey.client() as client:
            meta = KeySpace(stores.prefix).bandit(NAME).meta
            buckets = client.hget(meta, "closed").split()[2].decode()
            client.hset(meta, "closed", f"2 {next_century_ms} {buckets}" + " 0 1" * (SLICES - 1))
        for number in range(1, 12):
            assert [name async for name in store.find_overdue()] == ([NAME] if number == 1 else [])
            await store.expire_due(NAME, limit=1)
            await close(store, range(number, number + 1))
            await stores.pass_time(60)
            await store.expire_due(NAME, limit=1)
        for number in (0, 1, 6):
            with pytest.raises(NotFoundError):
                await store.record_reward(NAME, id_of(number), reward_of(number))
        assert (await store.record_reward(NAME, id_of(11), reward_of(11))).answer.outcome == RewardOutcome.DUPLICATE

    run(stores, scenario)


def test_no_slice_turns_in_which_nothing_was_closed(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.unix_url, record_retention_ms=150, clock=StoreClock())

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        for _ in range(5):
            await stores.pass_time(1000)
            await store.expire_due(NAME, limit=1)
            with valkey.client() as client:
                assert client.hget(KeySpace(stores.prefix).bandit(NAME).meta, "closed").decode() == NOTHING_CLOSED

    run(stores, scenario)


def test_slices_turn_by_time() -> None:
    now_ms, kept_ms = 1_790_000_000_000, DEFAULT_RECORD_RETENTION_MS
    third = kept_ms // (SLICES - 1)

    def turns(newest: int, *ages_ms: int | None) -> bool:
        times = " ".join(f"{0 if age is None else now_ms - age} 7" for age in ages_ms)
        return must_turn(f"{newest} {times}".encode(), now_ms=now_ms, retention_ms=kept_ms)

    assert not must_turn(NOTHING_CLOSED.encode(), now_ms=now_ms, retention_ms=kept_ms)
    assert not turns(1, third - 1, None, None, None)
    assert turns(1, third, None, None, None)
    assert not turns(2, kept_ms, None, None, None), "kept to the end"
    assert turns(2, kept_ms + 1, None, None, None)
    assert not turns(4, 9, 8, 7, third), "the next one is not forgotten yet"
    assert turns(2, -1, 1, None, None), "the clock was set back"
    for damaged in (None, b"garbage", b"5 9 9 9 9 9 9 9 9", b"1 9 9", 7):
        assert not must_turn(damaged, now_ms=now_ms, retention_ms=kept_ms)
