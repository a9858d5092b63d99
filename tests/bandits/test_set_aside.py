"""Slates of a hot bandit that are set aside: which they are, and that the model alone does not know of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Archive, Shop, assert_same, replayed, request, running_worker
from tests.bandits.test_corrections import begun, recommended, rewarded, then
from tests.bandits.test_operators import trim
from tests.contracts.archives import Sender, archived
from tests.contracts.harness import run

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.model import ASIDE_AS_ONE, EVENTS_BETWEEN_CHECKPOINTS
from topk_bandit.bandits.slate_rates import SlateRate, is_set_aside
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.errors import ConflictError
from topk_bandit.learning.digests import digest_state
from topk_bandit.store.events import (
    Activated,
    EventSkipped,
    Expired,
    Lapsed,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    SettingsChanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event, LoggedEvent
    from topk_bandit.store.log import Store

MOST = SETTINGS.learned_per_second


@pytest.mark.parametrize("share", [0.02, 0.25, 0.9])
def test_a_hash_of_the_request_learns_from_the_share_that_is_asked_for(share: float) -> None:
    ids = [f"request {n}" for n in range(20_000)]
    aside = [is_set_aside("birth", one, rate=MOST / share, most=MOST) for one in ids]
    assert aside == [is_set_aside("birth", one, rate=MOST / share, most=MOST) for one in ids]
    deviation = np.sqrt(share * (1 - share) / len(ids))
    assert abs(1 - np.mean(aside) - share) < 4 * deviation
    others = [is_set_aside("another birth", one, rate=MOST / share, most=MOST) for one in ids]
    both = np.mean(np.logical_and(aside, others))
    assert abs(both - (1 - share) ** 2) < 4 * np.sqrt(0.25 / len(ids))
    # Who is set aside at some rate is at each higher one: a rate that changes a little changes little.
    busier = [is_set_aside("birth", one, rate=1.1 * MOST / share, most=MOST) for one in ids]
    assert all(more >= less for more, less in zip(busier, aside, strict=True))
    assert np.mean(busier) < np.mean(aside) + 0.12


def test_of_no_more_slates_than_the_cap_none_is_set_aside() -> None:
    assert not any(is_set_aside("birth", f"r{n}", rate=float(MOST), most=MOST) for n in range(500))


@dataclass
class Traffic:
    """Slates as they come by chance, of which one worker records a part, and whose model may lag behind the log."""

    rng: np.random.Generator
    rate: SlateRate
    own_share: float = 0.25
    lag_events: int = 0
    now: float = 100.0
    slates: int = 0

    def come(self, per_second: float, seconds: float) -> Iterator[bool]:
        """Have slates come, each with its reward; yield whether this worker learns from each of its own."""
        end = self.now + seconds
        for at in np.sort(self.now + seconds * self.rng.random(self.rng.poisson(seconds * per_second))):
            self.slates, self.now = self.slates + 1, float(at)
            if self.rng.random() < self.own_share:
                aside = is_set_aside("birth", f"r{self.slates}", rate=self.rate.per_second, most=MOST)
                folded = max(self.slates - self.lag_events // 2, 0)
                self.rate.observe(self.now, position=2 * self.slates, version=2 * folded, slates=folded)
                yield not aside
        self.now = end


@pytest.mark.parametrize(
    ("per_second", "own_share", "lag_events"),
    [(250.0, 1.0, 3000), (310.0, 0.2, 0), (1200.0, 1.0, 0), (1200.0, 0.2, 3000)],
)
def test_as_many_are_learned_from_as_the_cap_says(per_second: float, own_share: float, lag_events: int) -> None:
    traffic = Traffic(np.random.default_rng(5), SlateRate(), own_share, lag_events)
    list(traffic.come(per_second, 30.0))
    seconds, shares = 60, []
    for _ in range(seconds):
        learned = list(traffic.come(per_second, 1.0))
        shares.append(np.mean(learned))
        assert traffic.rate.per_second == pytest.approx(per_second, rel=0.1)
    expected = min(MOST / per_second, 1.0)
    assert np.mean(shares) == pytest.approx(expected, rel=0.05)
    # No second is learned from as a whole, nor left out as one.
    deviation = np.sqrt(expected * (1 - expected) / (own_share * per_second))
    assert np.abs(np.array(shares) - expected).max() < 5 * deviation + 0.05


def test_a_rate_is_known_after_a_second_and_follows_a_change() -> None:
    traffic = Traffic(np.random.default_rng(6), SlateRate())
    assert all(traffic.come(2000.0, 0.9))
    assert traffic.rate.per_second == 0.0
    list(traffic.come(2000.0, 1.0))
    assert traffic.rate.per_second == pytest.approx(2000.0, rel=0.15)
    list(traffic.come(20.0, 60.0))
    assert traffic.rate.per_second == pytest.approx(20.0, rel=0.5)
    assert all(traffic.come(20.0, 10.0))


def test_calls_that_run_at_a_time_are_counted_once() -> None:
    rng, rate = np.random.default_rng(4), SlateRate()
    for at in range(0, 8000, 32):
        # Of 32 slates at a time, whose replies come in any order, 400 come in a second.
        for n, place in enumerate(rng.permutation(32)):
            rate.observe((at + n) / 400.0, position=2 * (at + int(place)), version=2 * at, slates=at)
    assert rate.per_second == pytest.approx(400.0, rel=0.05)


def test_a_model_that_folds_nothing_yet_does_not_leave_the_rate_unknown() -> None:
    rate = SlateRate()
    for n in range(3000):
        rate.observe(n / 1000.0, position=n, version=0, slates=0)
    assert rate.per_second == pytest.approx(1000.0, rel=0.05)


def test_a_log_that_is_another_one_is_measured_by_what_it_grows_by() -> None:
    rate = SlateRate()
    for n in range(4000):
        rate.observe(n / 100.0, position=2 * n, version=2 * n, slates=n)
    for n in range(1, 4000):
        rate.observe(40.0 + n / 200.0, position=2 * n, version=2 * n, slates=n)
    assert rate.per_second == pytest.approx(200.0, rel=0.2)


def aside(event: Event) -> Event:
    return replace(event, aside=True)  # type: ignore[call-arg]


def mixed() -> list[Event]:
    """Return a life in which two of three slates are set aside, with all that can become of them."""
    life: list[Event] = []
    for n in range(90):
        mark = aside if n % 3 else lambda event: event
        life.append(mark(recommended(n)))
        if n % 5 == 4:
            life.append(mark(Expired(f"r{n}", None, None)))
        elif n % 7 == 6:
            life.append(mark(Expired(f"r{n}", 0.25, rewarded(n, 0.0).shown)))
        else:
            life.append(mark(rewarded(n, float(np.sin(n)))))
        if n % 3 and n % 11 == 10 and isinstance(life[-1], Rewarded):
            life.append(RewardAmended(f"r{n}", None if n % 2 else 3.0, before=float(np.sin(n))))
    return life


def knows_of(event: Event) -> bool:
    return not (getattr(event, "aside", False) or isinstance(event, RewardAmended))


@pytest.mark.parametrize("activates", [False, True])
def test_the_model_learns_what_it_learns_without_what_is_set_aside(*, activates: bool) -> None:
    life = mixed()
    if activates:
        life = [event for one in life for event in with_activation(one)]
    settings = SettingsChanged(replace(SETTINGS, requires_activation=activates))
    whole, learned = then(begun(), settings, *life), then(begun(), settings, *filter(knows_of, life))
    assert len(life) > 2 * sum(map(knows_of, life)) > 50
    assert digest_state(whole.state) == digest_state(learned.state)
    assert whole.items.open_until_ms.tolist() == learned.items.open_until_ms.tolist()
    assert whole.tally != learned.tally


def with_activation(event: Event) -> tuple[Event, ...]:
    if not isinstance(event, Recommended):
        return (event,)
    number = int(event.recommendation.recommendation_id[1:])
    activated = Activated(f"r{number}", rewarded(number, 0.0).shown, instead=False)
    return event, (aside(activated) if event.aside else activated)


def test_all_slates_and_their_rewards_count() -> None:
    life = mixed()
    model, known = then(begun(), *life), then(begun(), *(replace_marks(event) for event in life))
    tally = model.tally
    assert (tally.recommendations, tally.set_aside) == (90, 60)
    assert (model.open_slates, model.rewarded_slates) == (known.open_slates, known.rewarded_slates)
    assert tally.expirations == known.tally.expirations
    assert tally.defaults + tally.aside_defaults == known.tally.defaults
    ends = {event.recommendation_id: event.value for event in life if isinstance(event, Rewarded | RewardAmended)}
    ends |= {event.recommendation_id: event.default_reward for event in life if isinstance(event, Expired)}
    rewards = [value for value in ends.values() if value is not None]
    assert model.counted_rewards == len(rewards)
    assert model.mean_reward == pytest.approx(np.mean(rewards), rel=1e-9)
    assert tally.amended + tally.voided == sum(isinstance(event, RewardAmended) for event in life) > 2
    assert model.totals.observations == len(rewards)


def test_a_correction_of_what_was_passed_over_is_missed() -> None:
    shown, void = aside(recommended(0)), RewardAmended("r0", None, before=2.0)
    model = then(begun(), shown, EventSkipped("a bit flipped", 1), void, replace(void, value=3.0))
    tally = model.tally
    assert (tally.aside_rewards, tally.reward_sum, tally.amended, tally.voided) == (0, 0.0, 0, 0)
    assert (model.counted_rewards, model.open_slates, tally.missed_corrections) == (0, 1, 2)


def replace_marks(event: Event) -> Event:
    if isinstance(event, RewardAmended):
        return replace(event, before=None)
    return replace(event, aside=False) if getattr(event, "aside", False) else event  # type: ignore[call-arg]


def test_a_snapshot_keeps_the_counts() -> None:
    model = then(begun(), *mixed())
    model = replace(model, state=model.state.refit(1), since_checkpoint=0, aside_since_checkpoint=0)
    assert_same(decode_model(encode_model(model), limits=LIMITS), model)


@pytest.mark.parametrize(
    "happens", [recommended, lambda n: RewardCollected(f"r{n}", "click", 1.0), lambda n: Lapsed(f"r{n}")]
)
def test_what_is_set_aside_makes_few_checkpoints(happens: Callable[[int], Event]) -> None:
    model = replace(then(begun(), recommended(0)), since_checkpoint=EVENTS_BETWEEN_CHECKPOINTS - 20)
    model = replace(model, tally=replace(model.tally, inactive=1))
    n = 0
    while model.since_checkpoint:
        n += 1
        before, model = model, then(model, aside(happens(n)))
        model = replace(model, tally=replace(model.tally, inactive=1))
    assert n == ASIDE_AS_ONE * 20
    assert before.last_correction("r0") == 0


class Clock:
    """A worker's clock, which stands still unless it is moved."""

    seconds = 0.0

    def read(self) -> float:
        return self.seconds


async def get_hot(worker: Worker, clock: Clock, share: float) -> None:
    """Have a worker see a log that grows so fast that this share of the slates is learned from, or twice as many."""
    await worker.recommender.recommend(NAME, request("first"))
    await worker.recommender.recommend(NAME, request("second"))
    model = await worker.models.follow(NAME)
    clock.seconds += 2.0
    # As if nothing but slates came: where the worker has seen rewards too, about half as many are slates.
    worker.models.note_slate(NAME, model.version + round(2.0 * MOST / share))
    assert 0.4 * MOST / share < worker.models.find_slate_rate(NAME) < 1.1 * MOST / share


def test_a_hot_bandit_of_two_workers_is_replayed_to_the_bit(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        clock = Clock()
        async with running_worker(store, now=clock.read) as one, running_worker(store) as other:
            shop, archive = Shop(one, stores, np.random.default_rng(8)), Archive(store)
            await shop.create()
            await shop.trade(30, archive=archive)
            await get_hot(one, clock, 0.22)
            await shop.trade(150, archive=archive)
            stats = await one.bandits.stats(NAME)
            await one.bandits.update_bandit(NAME, lambda now: replace(now, learned_per_second=10 * MOST))
            await shop.trade(30, archive=archive)
            await archive.look()
            assert (await other.bandits.stats(NAME)).set_aside == stats.set_aside
            models = [await worker.models.follow(NAME) for worker in (one, other)]
            async with running_worker(store) as restarted:
                models.append(await restarted.models.follow(NAME))
        replay = replayed(models[0].incarnation, archive.events)[-1]
        for model in models:
            assert_same(model, replay)
        check_marks(archive, stats.set_aside)

    run(stores, scenario)


def test_the_rate_is_measured_while_two_workers_serve(stores: Stores) -> None:
    """Fifty slates come in each second, of which two are to be learned from."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as one, running_worker(store) as other:
            await Shop(one, stores, np.random.default_rng(8)).create(replace(SETTINGS, learned_per_second=2))

            async def recommend(count: int) -> None:
                for number in range(count):
                    await (one, other)[number % 2].recommender.recommend(NAME, request())
                    await stores.pass_time(20)

            await recommend(100)
            before = await one.bandits.stats(NAME)
            await recommend(50)
            stats = await one.bandits.stats(NAME)
            learned = 50 - (stats.set_aside - before.set_aside)
            assert stats.recommendations - before.recommendations == 50
            assert learned < 12, "the ids of the slates decide; of others as many as a Poisson distribution has"

    run(stores, scenario)


def check_marks(archive: Archive, set_aside: int) -> None:
    """Hold the events of each slate to be marked alike, and as many as were counted."""
    given = {
        logged.event.recommendation.recommendation_id: logged.event.aside
        for logged in archive.events
        if isinstance(logged.event, Recommended)
    }
    assert 0.35 * len(given) < set_aside == sum(given.values()) < 0.75 * len(given)
    events = [logged.event for logged in archive.events if isinstance(logged.event, Rewarded | Expired | Activated)]
    assert all(event.aside == given[event.recommendation_id] for event in events)
    assert min(Counter(event.aside for event in events).values()) > 20


def test_a_slate_that_is_set_aside_is_a_slate_like_all_others(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        clock = Clock()
        async with running_worker(store, now=clock.read) as worker:
            await Shop(worker, stores, np.random.default_rng(9)).create(replace(SETTINGS, requires_activation=True))
            await get_hot(worker, clock, 5e-4)
            take, name = worker.recommender, NAME
            before = digest_state((await worker.models.follow(name)).state)
            slates = [await take.recommend(name, request(f"r{n}")) for n in range(5)]
            ids = [slate.recommendation_id for slate in slates]
            assert await take.recommend(name, request("r0")) == slates[0]
            for one in ids[:4]:
                assert (await take.activate(name, one, ())).outcome == "activated"
            assert (await take.reward(name, ids[0], 1.0)).outcome == "accepted"
            assert (await take.reward(name, ids[0], 1.0)).outcome == "duplicate"
            with pytest.raises(ConflictError):
                await take.reward(name, ids[0], 2.0)
            await take.reward(name, ids[1], 5.0)
            assert (await take.correct_reward(name, ids[1], 3.0)).outcome == "accepted"
            assert (await take.correct_reward(name, ids[1], 3.0)).outcome == "duplicate"
            await take.reward(name, ids[2], 7.0)
            assert (await take.correct_reward(name, ids[2], None)).outcome == "accepted"
            await worker.bandits.update_bandit(name, lambda now: replace(now, learned_per_second=1_000_000))
            await take.recommend(name, request("cool"))
            stats = await worker.bandits.stats(name)
            model = await worker.models.follow(name)
            assert digest_state(model.state) == before
            assert (stats.set_aside, stats.observations, stats.pending, stats.inactive) == (5, 0, 1, 4)
            assert (stats.corrected, stats.missed_corrections, stats.mean_reward) == (2, 0, 2.0)
            late = await late_one(worker, stores)
            assert late.tally.expirations == 1
            assert digest_state(late.state) == before
        assert_same(replayed(late.incarnation, await whole(store))[-1], late)

    run(stores, scenario)


async def late_one(worker: Worker, stores: Stores) -> Model:
    """Return the model after a slate's default reward, and a reward that came too late for it."""
    change = {"reward_wait_ms": 1, "default_reward": 0.5, "requires_activation": False, "learned_per_second": 1}
    await worker.bandits.update_bandit(NAME, lambda now: replace(now, **change))
    slate = await worker.recommender.recommend(NAME, request("late"))
    await stores.pass_time(10)
    assert (await worker.recommender.reward(NAME, slate.recommendation_id, 1.0)).outcome == "late"
    return await worker.models.follow(NAME)


async def whole(store: Store) -> list[LoggedEvent]:
    archive = Archive(store)
    await archive.look()
    return archive.events


def test_several_rewards_come_to_one_that_is_counted(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        clock = Clock()
        async with running_worker(store, now=clock.read) as worker:
            await Shop(worker, stores, np.random.default_rng(9)).create(
                replace(SETTINGS, reward_aggregation=Aggregation.SUM)
            )
            await get_hot(worker, clock, 5e-4)
            slate = (await worker.recommender.recommend(NAME, request("r"))).recommendation_id
            for reward_id, value in (("click", 1.0), ("purchase", 20.0)):
                await worker.recommender.reward(NAME, slate, value, reward_id=reward_id)
            await worker.recommender.reward(NAME, slate, 0.5, reward_id="visit", final=True)
            await worker.recommender.correct_reward(NAME, slate, None, reward_id="purchase")
            stats = await worker.bandits.stats(NAME)
            events = [logged.event for logged in await whole(store)]
        assert (stats.set_aside, stats.observations, stats.mean_reward) == (1, 0, 1.5)
        assert [event.aside for event in events if isinstance(event, RewardCollected | Rewarded)] == [True] * 3

    run(stores, scenario)


def test_one_that_is_never_shown_is_marked_to_its_end(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        clock = Clock()
        async with running_worker(store, now=clock.read) as worker:
            settings = replace(SETTINGS, requires_activation=True, reward_wait_ms=1)
            await Shop(worker, stores, np.random.default_rng(9)).create(settings)
            await get_hot(worker, clock, 5e-4)
            unseen = (await worker.recommender.recommend(NAME, request("r"))).recommendation_id
            await stores.pass_time(10)
            await worker.models.expire(NAME)
            events = [logged.event for logged in await whole(store)]
        assert events.count(Lapsed(unseen, aside=True)) == 1

    run(stores, scenario)


@pytest.mark.parametrize("trimmed", [False, True])
def test_an_archive_keeps_what_was_set_aside(stores: Stores, *, trimmed: bool) -> None:
    async def scenario(store: Store) -> None:
        clock = Clock()
        async with running_worker(store, now=clock.read) as worker:
            shop = Shop(worker, stores, np.random.default_rng(31))
            await shop.create()
            await get_hot(worker, clock, 0.5)
            await shop.trade(90)
            marks = {
                logged.event.recommendation.recommendation_id: logged.event.aside
                for logged in await whole(store)
                if isinstance(logged.event, Recommended)
            }
            if trimmed:
                await trim(store)
            before, lines = await worker.models.follow(NAME), await archived(store, NAME)
            open_slates = list(shop.open)
            await store.delete_bandit(NAME)
        await Sender(store, limits=LIMITS).send(NAME, lines, at_once=7)
        async with running_worker(store) as worker:
            again = await worker.models.follow(NAME)
            assert digests_of(again) == digests_of(before)
            for one in open_slates:
                await worker.recommender.reward(NAME, one, 1.0)
            after = await worker.models.follow(NAME)
        assert 0 < sum(marks[one] for one in open_slates) < len(open_slates)
        learned = sum(not marks[one] for one in open_slates)
        assert after.state.observations == before.state.observations + learned
        assert after.counted_rewards == before.counted_rewards + len(open_slates)

    run(stores, scenario)
