"""How often one visitor sees an item: by a judge that counts for itself, over workers and a store that is away."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.bandits.harness import NAME, SETTINGS, AwayStore, request, running_worker
from tests.commands.test_log_evaluate import changed, dumped, recommended
from tests.contracts.harness import MemoryStores, run, whole_log

from topk_bandit.bandits.batches import Asked
from topk_bandit.bandits.choices import choose_slate
from topk_bandit.commands.log.slates import LeftOut, read_slates
from topk_bandit.domain.bandits import ConstantBeta, Exploration, Item
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotReadyError, UnavailableError
from topk_bandit.domain.features import Categorical, Feature, Features, LabelSet
from topk_bandit.domain.rules import AbsenceReason, Exclude, Frequency, Group, SlateRule, check_rules, describe_rule
from topk_bandit.store.events import Recommended
from topk_bandit.store.visits import SeenSlate, Visits, find_reached, visitor_of

if TYPE_CHECKING:
    from tests.bandits.harness import Worker

    from topk_bandit.domain.slates import RecommendationRequest
    from topk_bandit.store.log import Store

N_ITEMS, SIZE = 12, 3
BRANDS, LABELS = ("north", "south", "west"), ("vegan", "halal")
SCHEMA = (Feature("brand", Categorical(BRANDS)), Feature("diet", LabelSet(LABELS)))
LIKES = [
    {"brand": BRANDS[n % 3], "diet": tuple(label for place, label in enumerate(LABELS) if n >> (place + 1) & 1)}
    for n in range(N_ITEMS)
]
IDS = [f"i{n}" for n in range(N_ITEMS)]
LIKE_OF = dict(zip(IDS, LIKES, strict=True))
EXPLORING = Exploration(ConstantBeta(1.0), uniform_share=0.3, near_share=0.2)
ONCE = SlateRule(Frequency(Group(), 1, 60))


def ruled(*rules: SlateRule, **others: Any) -> Any:  # noqa: ANN401 - settings
    return replace(SETTINGS, slate_size=SIZE, item_schema=SCHEMA, exploration=EXPLORING, rules=rules, **others)


def asked(name: str, key: str, *rules: SlateRule, **others: Any) -> RecommendationRequest:  # noqa: ANN401 - of any field
    return replace(request(name), frequency_key=key, rules=rules, **others)


async def stock(worker: Worker, settings: Any) -> None:  # noqa: ANN401 - settings
    await worker.bandits.create_bandit(NAME, settings)
    await worker.bandits.upsert_items(NAME, [Item(one, features=Features.of(LIKE_OF[one])) for one in IDS])


@dataclass
class Judge:
    """Counts what visitors saw, without any code of the service: when, until when, who, and what."""

    seen: list[tuple[int, int, str, tuple[str, ...]]] = field(default_factory=list)

    def reached(self, rule: Frequency, visitor: str, now_ms: int) -> list[str]:
        """Return the items that a visitor may not see by a rule."""
        known = [(at, slate) for at, until, who, slate in self.seen if who == visitor and now_ms < until]
        slates = [slate for at, slate in known if now_ms - at < 1000 * rule.within_seconds]

        def is_like(one: str, key: str) -> bool:
            if rule.group.item_ids:
                return one in rule.group.item_ids
            if not rule.group.feature:
                return one == key
            value = LIKE_OF[one][rule.group.feature]
            return key == value or (isinstance(value, tuple) and key in value)

        keys = [rule.group.value] if rule.group.value else [*IDS, *BRANDS, *LABELS]
        full = [key for key in keys if sum(any(is_like(one, key) for one in slate) for slate in slates) >= rule.most]
        return [one for one in IDS if any(is_like(one, key) for key in full)]


OWN = Frequency(Group("brand"), 2, 40)
OTHERS = (
    Frequency(Group(), 2, 90),
    Frequency(Group("diet", "vegan"), 3, 100),
    Frequency(Group(item_ids=("i0", "i5", "i7")), 1, 30),
    Frequency(Group("diet"), 4, 60),
)


def test_no_visitor_sees_more_than_rules_allow_by_a_judge_over_two_workers() -> None:
    """Each decision is made again from the log alone, with the same slate and propensity."""
    home, judge, rng = MemoryStores(), Judge(), np.random.default_rng(4)
    counts: Counter[str] = Counter()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as one, running_worker(store) as other:
            await stock(one, ruled(SlateRule(OWN, may_relax=True)))
            for number in range(80):
                worker, visitor = (one, other)[number % 2], "abc"[int(rng.integers(3))]
                rules = tuple(SlateRule(rule, may_relax=True) for rule in OTHERS if rng.random() < 0.4)
                await home.pass_time(int(rng.integers(12_000)))
                now_ms = home.clock.read_ms()
                model = await worker.models.follow(NAME)
                given = await worker.recommender.recommend(NAME, asked(f"r{number}", visitor, *rules))
                event = (await whole_log(store, NAME))[-1].event
                assert isinstance(event, Recommended)
                assert (event.recommendation.slate, event.request.frequency_key) == (given.slate, "")
                if event.request.reached:  # in the order of the rules, the bandit's first
                    assert len(event.request.reached) == 1 + len(rules)
                    assert {*event.request.reached[0]} <= {*BRANDS}
                for rule in (OWN, *(one.rule for one in rules)):
                    hidden = judge.reached(rule, visitor, now_ms)
                    if describe_rule(rule) in given.relaxed:
                        counts["relaxed"] += 1
                    else:
                        assert not {*hidden} & {*given.slate}
                        counts["hidden"] += bool(hidden)
                again = choose_slate(model, event.request)
                assert (again.slate, again.propensity) == (given.slate, given.propensity)
                longest = max(rule.within_seconds for rule in (OWN, *(one.rule for one in rules)))
                judge.seen.append((now_ms, now_ms + 1000 * longest, visitor, given.slate))
                if number % 3 == 0:
                    await worker.recommender.reward(NAME, given.recommendation_id, float(rng.normal()))

    run(home, scenario)
    assert min(counts["relaxed"], counts["hidden"]) > 12


def test_requests_at_once_of_one_visitor_count_for_each_other() -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as one, running_worker(store) as other:
            await stock(one, ruled(ONCE))
            await other.models.follow(NAME)
            both = [one, other, one, other]
            given = await asyncio.gather(
                *(worker.recommender.recommend(NAME, asked(f"r{n}", "v")) for n, worker in enumerate(both))
            )
            shown = [item for slate in given for item in slate.slate]
            assert sorted(shown) == sorted(IDS)
            # A repeated request is answered as before, and counts no more; a new one has nothing left.
            again = await other.recommender.recommend(NAME, asked("r0", "v"))
            assert (again.slate, again.recommendation_id) == (given[0].slate, given[0].recommendation_id)
            with pytest.raises(NotReadyError, match="show one visitor each item at most once"):
                await one.recommender.recommend(NAME, asked("r9", "v"))
            assert (await one.recommender.recommend(NAME, asked("r10", "w"))).slate

    run(MemoryStores(), scenario)


def test_a_batch_counts_each_slate_for_the_next_and_nothing_is_asked_without_a_key_or_a_rule() -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await stock(worker, ruled(ONCE))
            several = [Asked(asked(f"r{n}", "v" if n < 3 else "")) for n in range(5)]
            before = worker.hooks.store_calls.copy()
            given = await worker.recommender.recommend_all(NAME, several)
            slates = [one.slate for one in given if not isinstance(one, Exception)]
            assert len({item for slate in slates[:3] for item in slate}) == 3 * SIZE
            calls = worker.hooks.store_calls - before
            assert (calls["find_visits"], calls["record_recommendations"], calls["record_recommendation"]) == (3, 1, 3)
            await worker.bandits.update_bandit(NAME, lambda now: replace(now, rules=()))
            await worker.models.follow(NAME)
            before = worker.hooks.store_calls.copy()
            await worker.recommender.recommend(NAME, asked("free", "v"))
            assert (worker.hooks.store_calls - before)["find_visits"] == 0

    run(MemoryStores(), scenario)


class Blind(AwayStore):
    """A store of which nobody can read what visitors saw while it is away."""

    async def find_visits(self, *given: Any) -> Visits:  # noqa: ANN401 - of the store
        if self.is_away:
            raise UnavailableError("it is away", nothing_sent=False)
        return await self._store.find_visits(*given)


def test_a_store_that_is_away_gives_degraded_slates_that_name_the_rules_which_nobody_counts() -> None:
    async def scenario(store: Store) -> None:
        home, blind, away = MemoryStores(), Blind(store), AwayStore(store)
        async with running_worker(blind, home=home) as one, running_worker(away, home=home) as other:  # type: ignore[arg-type]
            await stock(one, ruled(ONCE))
            first = await one.recommender.recommend(NAME, asked("r0", "v"))
            blind.is_away = True
            given = await one.recommender.recommend(NAME, asked("r1", "v", SlateRule(Exclude(("i0",)))))
            assert (given.degraded, given.recommendation_id) == (True, "")
            assert given.relaxed == ("show one visitor each item at most once in 1 minute",)
            assert "i0" not in given.slate
            # Where it goes away between what is read and what is written, the slate keeps what was read.
            await other.models.follow(NAME)
            away.is_away = True
            kept = await other.recommender.recommend(NAME, asked("r2", "v"))
            assert (kept.degraded, kept.relaxed) == (True, ())
            assert not {*kept.slate} & {*first.slate}
            blind.is_away = False
            visitor = visitor_of((await store.get_bandit(NAME)).incarnation, ruled(ONCE), asked("", "v"))
            assert [one.item_ids for one in (await store.find_visits(NAME, visitor)).slates] == [first.slate]

    run(MemoryStores(), scenario)


def test_a_log_is_evaluated_among_the_slates_that_were_left_to_each_visitor() -> None:
    """`read_slates` holds each propensity to be that of the slates that were left: another exclusion is found."""
    dumps = []

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await stock(worker, ruled(SlateRule(Frequency(Group("brand"), 1, 60), may_relax=True)))
            for number in range(24):
                given = await worker.recommender.recommend(NAME, asked(f"r{number}", f"v{number // 2}"))
                await worker.recommender.reward(NAME, given.recommendation_id, float(number % 5))
            dumps.append(await dumped(store))

    run(MemoryStores(), scenario)
    [dump] = dumps
    read = read_slates(dump)
    ruled_ones = 0 if read.ruled is None else len(read.ruled.log)
    assert (len(read.log) + ruled_ones, read.left_out) == (24, LeftOut(0, 0, 0))
    position, event = next((at, one) for at, one in recommended(dump) if one.request.reached)
    other = replace(event, request=replace(event.request, reached=()))
    with pytest.raises(CorruptDataError, match=f"event {position}: "):
        read_slates(changed(dump, position, other))


def test_it_is_said_why_an_item_is_not_there_and_a_baseline_slate_is_completed() -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await stock(worker, ruled(SlateRule(Frequency(Group("brand", "north"), 1, 3600))))
            north = [one for one in IDS if LIKE_OF[one]["brand"] == "north"]
            pinned = SlateRule(Exclude(tuple(one for one in IDS if one not in {*north[:1], "i1", "i2"})))
            first = await worker.recommender.recommend(NAME, asked("r0", "v", pinned))
            assert sorted(first.slate) == ["i0", "i1", "i2"]
            given = await worker.recommender.recommend(NAME, asked("r1", "v", explain=tuple(north)))
            rule = "show one visitor brand north at most once in 1 hour"
            assert [(one.item_id, one.reason, one.rule) for one in given.absent] == [
                (one, AbsenceReason.FREQUENT, rule) for one in north
            ]
            few = asked("r2", "v", candidates=("i1", "i2", "i0"), baseline_item_ids=("i0", "i1", "i2"))
            with pytest.raises(NotReadyError, match="at most once in 1 hour"):
                await worker.recommender.recommend(NAME, few)

    run(MemoryStores(), scenario)


def test_what_is_kept_of_a_visitor_has_bounds() -> None:
    seen = Visits("v", now_ms=1)
    for number in range(30):
        seen = replace(seen, now_ms=number).after(("x" * 4_999, "y"), keep_ms=1000)
    assert [one.at_ms for one in seen.slates] == list(range(20, 30))
    seen = replace(seen, now_ms=1025).after(("x" * 60_000,), keep_ms=5)
    assert seen.slates == (SeenSlate(1025, 1030, ("x" * 60_000,)),)
    many = Visits("v")
    for number in range(510):
        many = replace(many, now_ms=number).after(("i",), keep_ms=1000)
    assert [one.at_ms for one in many.slates] == list(range(10, 510))
    # A slate of which the time is up goes with the next one, and so does one for which there is no space.
    assert Visits("v", (SeenSlate(0, 5, ("a",)),), 5).after(("b",), keep_ms=1).slates == (SeenSlate(5, 6, ("b",)),)
    wide = Visits("v", (SeenSlate(0, 9, ("a",)),))
    assert [len(wide.after(("x" * size,), keep_ms=9).slates) for size in (49_999, 50_000)] == [2, 1]
    assert (seen.until_ms, many.until_ms, Visits("v").until_ms) == (1030, 1509, 0)
    assert [Visits("v", n_visitors=count).is_counted for count in (999_999, 1_000_000)] == [True, False]
    assert replace(seen, n_visitors=1_000_000).is_counted


def test_a_visitor_counts_for_the_bytes_of_a_tenant() -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await stock(worker, ruled(ONCE))
            taken = []
            for name, key in (("r0", ""), ("r1", ""), ("r2", "v"), ("r3", "w")):
                await worker.recommender.recommend(NAME, asked(name, key))
                events = len(repr([*await whole_log(store, NAME)]))
                taken.append((await store.measure_bandit(NAME)).log_bytes - events)
            assert np.diff(taken).tolist() == [0, 1024, 1024]

    run(MemoryStores(), scenario)


def test_a_visitor_is_a_digest_that_differs_from_bandit_to_bandit() -> None:
    settings, one = ruled(ONCE), asked("r", "somebody")
    digests = {visitor_of(birth, settings, one) for birth in ("first", "second")}
    assert len(digests) == 2
    assert "3100ad4c31504f997d536e049b2a5d35" in digests  # blake2b, keyed with the blake2b of "first" in 32 bytes
    assert visitor_of("first", settings, replace(one, request_id="other")) in digests
    assert not visitor_of("first", ruled(), one)
    assert visitor_of("first", ruled(), replace(one, rules=(ONCE,)))
    assert not visitor_of("first", settings, replace(one, frequency_key=""))


def test_an_item_that_is_gone_counts_for_no_value() -> None:
    rules = [Frequency(Group("brand"), 1, 9), Frequency(Group(), 2, 9), Frequency(Group(item_ids=("i9", "i0")), 2, 9)]
    slates = tuple(SeenSlate(at, 99_999, ("gone", "i0")) for at in (0, 500))
    found = find_reached(rules, Visits("v", slates, 1000), lambda *_: {"i0": ["north"]})
    assert found == (("north",), ("gone", "i0"), ("i9", "i0"))
    ended = tuple(one._replace(until_ms=1_000) for one in slates)
    assert find_reached(rules, Visits("v", ended, 999), lambda *_: {})
    assert find_reached(rules, Visits("v", ended, 1_000), lambda *_: {}) == ()
    assert Visits("v") == Visits("v", (), 0, 0)
    assert find_reached(rules, Visits("v", slates, 9_500), lambda *_: {"i0": ["north"]}) == ()


@pytest.mark.parametrize(
    ("rule", "at", "problem"),
    [
        (Frequency(Group(), 0, 60), "at_most", "must be from 1 to 100, not 0"),
        (Frequency(Group(), 101, 60), "at_most", "must be from 1 to 100, not 101"),
        (Frequency(Group(), 1, 0), "within_seconds", "must be from 1 to 2592000, not 0"),
        (Frequency(Group(), 1, 2_592_001), "within_seconds", "must be from 1 to 2592000, not 2592001"),
        (Frequency(Group(shown_fewer_than=3), 1, 60), "group.shown_fewer_than", "is for count and exposure"),
        (Frequency(Group("price"), 1, 60), "group.feature", "items have none 'price'"),
        (Frequency(Group(value="x"), 1, 60), "group.feature", "must name a feature"),
    ],
)
def test_what_is_no_rule_of_frequency_is_refused(rule: Frequency, at: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        check_rules([rule], SCHEMA, SIZE)
    assert (refused.value.field, refused.value.problem) == (f"rules[0].frequency.{at}", problem)
    check_rules([Frequency(Group(), 100, 2_592_000), Frequency(Group("diet"), 1, 1)], SCHEMA, SIZE)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (90, "90 seconds"), (120, "2 minutes"), (3600, "1 hour"), (172_800, "2 days")],
)
def test_a_rule_of_frequency_in_words(seconds: int, words: str) -> None:
    assert (
        describe_rule(Frequency(Group("brand"), 3, seconds))
        == f"show one visitor each brand at most 3 times in {words}"
    )
