"""`topk-bandit log evaluate` on logs of real recommenders, whose shops' truth is known."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Archive, Shop, request, running_worker
from tests.contracts.harness import MemoryStores, run
from tests.ruled_shop import KINDS, SCHEMA, Told, check_mended, draw_item, draw_rule, slates_left

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.commands.cli import main
from topk_bandit.commands.log import models
from topk_bandit.commands.log.dumps import Dump, lines, parse_lines, read_parts
from topk_bandit.commands.log.slates import LeftOut, LoggedSlates, read_slates
from topk_bandit.commands.log.values import describe
from topk_bandit.domain.bandits import Aggregation, ConstantBeta, Exploration, Item
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.rules import Count, Exposure, Group, Pin, SlateRule
from topk_bandit.learning.evaluation.estimators import average_weighted, cascade, ips
from topk_bandit.learning.evaluation.targets import uniform
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    Expired,
    ItemsChanged,
    PastSlate,
    Recommended,
    Rewarded,
    SettingsChanged,
)
from topk_bandit.store.log import RecordStatus, Snapshot
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bandits.harness import Worker

    from topk_bandit.domain.slates import ItemValues, Recommendation, RecommendationRequest
    from topk_bandit.learning.evaluation.estimators import Estimate
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

FIRST = Exploration(ConstantBeta(1.0), 0.3, near_share=0.2, shares_fall_after=100)
SECOND = Exploration(ConstantBeta(1.0), 0.2, near_share=0.5)
ROUNDS, SIZE, SEED = 600, 2, 10
BOUGHT = replace(SETTINGS, item_capacity=7, slate_size=SIZE, exploration=FIRST)
WORTH = {"a": (1.0, 0.4), "b": (0.8, -0.5), "c": (0.6, 0.0), "d": (0.3, 0.6), "e": (0.2, 0.0), "f": (0.0, -0.3)}
WORTH |= {"late": (0.9, 0.2)}
POSITIONS, NOISE = (1.0, 0.6), 0.3
FIXED = ("c", "a")


async def dumped(store: Store) -> Dump:
    """Return what a dump of the store's log has."""
    parts = read_parts(WholeLogs(store, None), store, NAME, last=None)
    return parse_lines([line async for part in parts for line in part], Path("dumped"))


def worth(slate: tuple[str, ...], context: tuple[float, ...]) -> float:
    """Return a slate's expected reward: a sum over positions, linear in the context."""
    parts = zip(POSITIONS, (np.dot(WORTH[item_id], context) for item_id in slate), strict=True)
    return float(sum(discount * part for discount, part in parts))


@dataclass
class Additive:
    """A storefront that notes what could have been shown to whom; everything it does comes from one seed."""

    worker: Worker
    rng: np.random.Generator
    asked: list[tuple[tuple[float, ...], frozenset[str]]] = field(default_factory=list)
    rewarded: list[bool] = field(default_factory=list)

    async def serve(self, number: int) -> None:
        """Recommend with all that is known so far, and give a reward to nine of ten."""
        await self.worker.models.follow(NAME)
        slate = await self.worker.recommender.recommend(NAME, await self.ask(number))
        await self.reward(slate)

    async def ask(self, number: int) -> RecommendationRequest:
        known = await self.worker.store.list_items(NAME)
        context = (1.0, float(self.rng.choice([-1.0, 0.5, 1.5])))
        names = [one.item_id for one in known]
        some = self.rng.permutation(names)[:5].tolist() if self.rng.random() < 0.4 else None
        eligible = frozenset(one.item_id for one in known if one.available) & frozenset(some or names)
        self.asked.append((context, eligible))
        return request(f"r{number}", context=context, candidates=some)

    async def reward(self, slate: Recommendation) -> None:
        self.rewarded.append(bool(self.rng.random() < 0.9))
        if self.rewarded[-1]:
            value = worth(slate.slate, self.asked[-1][0]) + NOISE * self.rng.normal()
            await self.worker.recommender.reward(NAME, slate.recommendation_id, value)

    async def serve_behind(self, numbers: range) -> None:
        """Serve with a model that does not know yet that the settings have changed, and change them back."""
        model = await self.worker.models.follow(NAME)
        revision = (await self.worker.store.get_bandit(NAME)).revision
        changed = replace(model.settings, exploration=Exploration(ConstantBeta(1.0), 0.9, near_share=0.9))
        await self.worker.store.update_settings(NAME, changed, revision=revision)
        for number in numbers:
            asked = await self.ask(number)
            written = await self.worker.store.record_recommendation(
                NAME,
                asked,
                choose_slate(model, asked),
                incarnation=model.incarnation,
                items_position=model.items_position,
            )
            outcome = written.answer
            assert outcome.status is RecordStatus.RECORDED
            assert outcome.recommendation is not None
            await self.reward(outcome.recommendation)
        await self.worker.bandits.update_bandit(NAME, lambda _: model.settings)


@dataclass(frozen=True)
class Traded:
    dump: Dump
    trimmed: Dump
    shop: Additive

    def truths(self) -> tuple[float, float, int]:
        """Return the values of uniform slates and, on the requests that could show it, of the fixed one; how many."""
        used = [one for one, rewarded in zip(self.shop.asked, self.shop.rewarded, strict=True) if rewarded]
        means = [
            float(np.mean([np.dot(WORTH[item_id], context) for item_id in eligible])) for context, eligible in used
        ]
        fixed = [worth(FIXED, context) for context, eligible in used if eligible.issuperset(FIXED)]
        return sum(POSITIONS) * float(np.mean(means)), float(np.mean(fixed)), len(fixed)


@lru_cache(maxsize=1)
def traded() -> Traded:
    found = []

    async def scenario(store: Store) -> None:
        # What exploration draws depends on the incarnation and the request's id.
        await store.create_bandit(NAME, BOUGHT, incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in "abcdef"])
            shop, archive = Additive(worker, np.random.default_rng(SEED)), Archive(store)
            for number in range(ROUNDS):
                if number == 100:
                    await worker.bandits.upsert_items(NAME, [Item("b", available=False), Item("late")])
                if number == 200:
                    await worker.bandits.update_bandit(NAME, lambda now: replace(now, exploration=SECOND))
                    await shop.serve_behind(range(ROUNDS, ROUNDS + 40))
                if number == 250:
                    await worker.bandits.upsert_items(NAME, [Item("b"), Item("c", available=False)])
                if number == 300:
                    await worker.bandits.retire_items(NAME, ["e"])
                    await worker.bandits.upsert_items(NAME, [Item("c")])
                await shop.serve(number)
                await archive.look()
            trimmed = await dumped(store)
            found.append(Traded(replace(trimmed, snapshot=None, events=tuple(archive.events)), trimmed, shop))

    run(MemoryStores(), scenario)
    return found[0]


def changed(dump: Dump, position: int, event: Event) -> Dump:
    events = [replace(one, event=event) if one.position == position else one for one in dump.events]
    return replace(dump, events=tuple(events))


def recommended(dump: Dump) -> list[tuple[int, Recommended]]:
    return [(one.position, one.event) for one in dump.events if isinstance(one.event, Recommended)]


def behind(dump: Dump) -> list[int]:
    """Return the positions of slates whose model did not know the newest settings."""
    since = [one.position for one in dump.events if isinstance(one.event, SettingsChanged)]
    versions = [(position, event.recommendation.model_version) for position, event in recommended(dump)]
    return [position for position, version in versions if any(version < at < position for at in since)]


@pytest.mark.slow
def test_what_could_be_shown_and_what_it_earned_is_read_from_the_log() -> None:
    slates, shop = read_slates(traded().dump), traded().shop
    log, used = slates.log, np.flatnonzero(shop.rewarded)
    assert slates.left_out == LeftOut(0, len(shop.asked) - len(used), 0)
    assert [frozenset(np.array(slates.asked.item_ids)[row].tolist()) for row in log.policy.eligible] == [
        shop.asked[place][1] for place in used
    ]
    assert log.contexts.tolist() == [list(shop.asked[place][0]) for place in used]
    rewards = {
        one.event.recommendation_id: one.event.value for one in traded().dump.events if isinstance(one.event, Rewarded)
    }
    recommendations = [event.recommendation for _, event in recommended(traded().dump)]
    rewarded = [one for one in recommendations if one.recommendation_id in rewards]
    assert log.rewards.tolist() == [rewards[one.recommendation_id] for one in rewarded]
    np.testing.assert_allclose(log.policy.propensities(log.slates), [one.propensity for one in rewarded], rtol=1e-12)
    by_position = np.take_along_axis(log.policy.position_probabilities(), log.slates[:, :, None].astype(int), axis=2)
    np.testing.assert_allclose(by_position[:, :, 0], [one.position_propensities for one in rewarded], rtol=1e-12)
    # Slates of all kinds were met, of models that were behind too.
    where = log.policy.places(log.slates)
    assert min(where[0].sum(), where[1].sum(), (~where[0] & ~where[1]).sum()) >= 40
    assert len(behind(traded().dump)) == 40


@pytest.mark.slow
def test_outcomes_that_add_up_to_the_rewards_make_a_cascade() -> None:
    def with_values(parts: Callable[[float], ItemValues]) -> LoggedSlates:
        events = [
            replace(one, event=replace(one.event, item_values=parts(one.event.value)))
            if isinstance(one.event, Rewarded)
            else one
            for one in traded().dump.events
        ]
        return read_slates(replace(traded().dump, events=tuple(events)))

    both = with_values(lambda value: (0.3 * value, 0.7 * value))
    assert both.outcomes is not None
    np.testing.assert_allclose(both.outcomes, np.outer(both.log.rewards, (0.3, 0.7)))
    one = with_values(lambda value: (None, value))
    assert one.outcomes is not None
    np.testing.assert_allclose(one.outcomes, np.outer(one.log.rewards, (0.0, 1.0)))
    assert with_values(lambda value: (value, 1.0)).outcomes is None
    assert read_slates(traded().dump).outcomes is None
    rows = [line for line in describe(both, []) if line.startswith("  cascade")]
    found = cascade(both.log, uniform(both.log), both.outcomes)
    assert len(rows) == 1
    assert f"{found.value:#.4g}" in rows[0]
    assert not [line for line in describe(read_slates(traded().dump), []) if "cascade" in line]


def test_defaults_are_rewards_and_other_ends_are_none() -> None:
    stores, found = MemoryStores(), list[Dump]()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(7))
            await shop.create()
            archive = Archive(store)
            await shop.trade(160, archive=archive)
            found.append(Dump(str(NAME), "", None, tuple(archive.events)))

    run(stores, scenario)
    slates, events = read_slates(found[0]), [one.event for one in found[0].events]
    defaults = [one for one in events if isinstance(one, Expired) and one.default_reward is not None]
    rewards = [one for one in events if isinstance(one, Rewarded)]
    assert len(defaults) > 0
    assert any(isinstance(one, Expired) and one.default_reward is None for one in events)
    assert len(slates.log) == len(rewards) + len(defaults)
    assert slates.left_out == LeftOut(0, len(recommended(found[0])) - len(slates.log), 0)
    expected = sum(one.value for one in rewards) + sum(one.default_reward or 0.0 for one in defaults)
    assert float(slates.log.rewards.sum()) == pytest.approx(expected)


def test_of_a_reward_that_changes_the_last_value_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each slate is learned with the default first; some earn, earn more, give it back, or are taken back."""
    stores, found, earned = MemoryStores(), list[Dump](), list[float | None]()
    settings = replace(
        BOUGHT, default_reward=0.0, reward_aggregation=Aggregation.SUM, provisional_after_ms=1000, reward_wait_ms=10**8
    )

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await worker.bandits.create_bandit(NAME, settings)
            await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in "abcdef"])
            slates = [await worker.recommender.recommend(NAME, request(f"r{number}")) for number in range(60)]
            await stores.pass_time(1000)
            await worker.models.expire(NAME)
            for number, slate in enumerate(slates):
                orders = [float(number + 1), 0.5, -float(number + 1)][: number % 4]
                for place, value in enumerate(orders):
                    await worker.recommender.reward(NAME, slate.recommendation_id, value, reward_id=f"{place}")
                earned.append(float(sum(orders)))
            await worker.recommender.correct_reward(NAME, slates[7].recommendation_id, None)
            earned[7] = None
            await stores.pass_time(10**8)
            await worker.models.expire(NAME)
            found.append(await dumped(store))

    run(stores, scenario)
    slates = read_slates(found[0])
    known = [one for one in earned if one is not None]
    assert slates.left_out == LeftOut(0, 1, 0)
    assert slates.log.rewards.tolist() == pytest.approx(known)
    assert evaluated(found[0], tmp_path) == 0
    printed = values(capsys.readouterr().out)
    assert printed["the slates that were shown"]["mean reward"][0] == pytest.approx(np.mean(known), rel=1e-3)


def values(text: str) -> dict[str, dict[str, list[float]]]:
    """Return value, low and high by the block's title and the row's name."""
    found: dict[str, dict[str, list[float]]] = {}
    for block in text.split("\n\n")[1:]:
        title, *rows = block.splitlines()
        numbers = [[float(one) for one in re.findall(r"-?[\d.]+(?:e[+-]\d+)?", row[22:])] for row in rows]
        found[title] = dict(zip((row[:22].strip() for row in rows), numbers, strict=True))
    return found


def evaluated(dump: Dump, folder: Path, *slates: str) -> int:
    file = folder / "log.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines(dump)), encoding="utf-8")
    return main(["log", "evaluate", str(file), *(f"--slate={slate}" for slate in slates)])


@pytest.mark.slow
def test_the_intervals_have_the_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """119 of 120 do with 12 seeds; with this one all are within 0.8 standard errors of it."""
    uniform, fixed, count = traded().truths()
    assert evaluated(traded().dump, tmp_path, ",".join(FIXED)) == 0
    out = capsys.readouterr().out
    printed, used = values(out), sum(traded().shop.rewarded)
    title = f"always {','.join(FIXED)}, on the {count} requests that could"
    assert list(printed) == ["the slates that were shown", "slates drawn uniformly", title]
    assert out.startswith(
        f"{NAME}\n{ROUNDS + 40} recommendations, {used} of them evaluated\n"
        f"{ROUNDS + 40 - used} without a reward are left out\n"
        "warning: the policy changed at event 392, and once more: what was shown is of several policies, and its "
        "mean reward is of no single one\n\n"
    )
    names = ("ips", "pseudo-inverse", "doubly robust", "balanced")
    of_uniform = (uniform, printed["slates drawn uniformly"], (*names, "snips"))
    for truth, rows, estimates in (of_uniform, (fixed, printed[title], names)):
        for name in estimates:
            _, low, high = rows[name]
            assert low <= truth <= high
    assert "  snips               none: the log has too few such slates\n" in out.split(title)[1]
    # The bandit has learned, and its own mean is not what others would have earned.
    assert printed["the slates that were shown"]["mean reward"][1] > uniform + 0.3
    assert printed[title]["as shown there"][1] > fixed
    assert np.ptp(printed[title]["balanced"]) < 0.4


def test_its_own_mean_is_that_of_the_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(traded().dump, tmp_path, "a,b", "late,c") == 0
    printed = values(capsys.readouterr().out)
    rewards = np.array([one.event.value for one in traded().dump.events if isinstance(one.event, Rewarded)])
    margin = 1.96 * rewards.std() / np.sqrt(len(rewards))
    expected = [rewards.mean(), rewards.mean() - margin, rewards.mean() + margin]
    assert printed["the slates that were shown"]["mean reward"] == pytest.approx(expected, rel=1e-3)
    assert [title.partition(",")[0] for title in list(printed)[2:]] == ["always a", "always late"]


def test_a_trimmed_log_begins_with_its_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trimmed, whole = traded().trimmed, read_slates(traded().dump)
    assert trimmed.snapshot is not None
    part = read_slates(trimmed)
    assert (part.asked.item_ids, part.left_out.before_snapshot) == (whole.asked.item_ids, 0)
    for mine, theirs in (
        (part.log.policy.eligible, whole.log.policy.eligible),
        (part.log.slates, whole.log.slates),
        (part.log.rewards, whole.log.rewards),
        (part.log.policy.near_share, whole.log.policy.near_share),
    ):
        np.testing.assert_array_equal(mine, theirs[-len(mine) :])
    assert 100 < len(part.log) < len(whole.log)
    # The settings that models before the snapshot knew are not in the file.
    position = behind(traded().dump)[15]
    model = models.replay_dump(traded().dump, limits=LIMITS, last=position)
    later = tuple(one for one in traded().dump.events if one.position > position)
    cut = replace(traded().dump, snapshot=Snapshot(position, encode_model(model)), events=later)
    assert read_slates(cut).left_out.before_snapshot == 24
    assert evaluated(cut, tmp_path) == 0
    said = "24 decided before the snapshot that the file begins with are left out\n"
    assert said in capsys.readouterr().out


def test_baseline_slates_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, replace(BOUGHT, baseline_item_ids=FIXED), incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in "abcdef"])
            for number in range(60):
                candidates = ["a", "unknown"] if number % 3 == 0 else None
                given = await worker.recommender.recommend(
                    NAME, request(f"r{number}", context=(1.0, 0.5), candidates=candidates)
                )
                await worker.recommender.reward(NAME, given.recommendation_id, worth(given.slate, (1.0, 0.5)))
            found.append(await dumped(store))

    run(MemoryStores(), scenario)
    slates = read_slates(found[0])
    assert (len(slates.log), slates.left_out) == (40, LeftOut(0, 0, 0, baseline=20))
    assert slates.log.policy.eligible.sum(axis=1).min() == 6
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines(found[0])), encoding="utf-8")
    assert main(["log", "evaluate", str(path), f"--slate={','.join(FIXED)}"]) == 0
    assert "20 baseline slates are left out" in capsys.readouterr().out
    shown = [
        replace(one, event=replace(one.event, recommendation=replace(one.event.recommendation, baseline=True)))
        if isinstance(one.event, Recommended)
        else one
        for one in found[0].events
    ]
    assert evaluated(replace(found[0], events=shown), tmp_path) == 1
    assert "own in it has a reward; its 60 baseline slates are left out" in capsys.readouterr().err


def test_propensities_are_those_that_a_reset_led_to() -> None:
    """Exploration begins anew, and each slate tells by how many rewards its shares had fallen."""
    found = []
    falling = replace(BOUGHT, exploration=replace(BOUGHT.exploration, shares_fall_after=10))

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, falling, incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in "abcdef"])
            for number in range(80):
                if number == 40:
                    await worker.bandits.reset_bandit(NAME)
                model = await worker.models.follow(NAME)
                given = await worker.recommender.recommend(NAME, request(f"r{number}", context=(1.0, 0.5)))
                assert given.observations == model.state.remembered == number % 40
                await worker.recommender.reward(NAME, given.recommendation_id, worth(given.slate, (1.0, 0.5)))
            found.append(await dumped(store))

    run(MemoryStores(), scenario)
    assert len(read_slates(found[0]).log) == 80


def test_imported_rows_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, BOUGHT, incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in "abcdef"])
            rows = (PastSlate((1.0, 0.5), FIXED, 0.5, propensity=0.5),) * 30
            await worker.bandits.import_rows(NAME, RowsOfImport("year", 0, 30, rows))
            for number in range(60):
                given = await worker.recommender.recommend(NAME, request(f"r{number}", context=(1.0, 0.5)))
                await worker.recommender.reward(NAME, given.recommendation_id, worth(given.slate, (1.0, 0.5)))
            found.append(await dumped(store))

    run(MemoryStores(), scenario)
    slates = read_slates(found[0])
    assert (len(slates.log), slates.left_out, slates.imported) == (60, LeftOut(0, 0, 0), 30)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines(found[0])), encoding="utf-8")
    assert main(["log", "evaluate", str(path), f"--slate={','.join(FIXED)}"]) == 0
    printed = capsys.readouterr().out
    assert "60 recommendations, 60 of them evaluated" in printed
    assert "30 imported rows are left out" in printed


def test_a_propensity_that_is_another_names_its_event() -> None:
    dump = traded().dump
    for position, event in recommended(dump)[::90]:
        wrong = replace(event.recommendation, propensity=event.recommendation.propensity * (1.0 + 1e-6))
        with pytest.raises(CorruptDataError, match=rf"^event {position}: the slate was logged with the propensity"):
            read_slates(changed(dump, position, replace(event, recommendation=wrong)))
    position, event = next(one for one in recommended(dump) if not one[1].recommendation.explored)
    hidden = replace(event, request=replace(event.request, candidates=("d", "e", "f")))
    with pytest.raises(CorruptDataError, match=rf"^event {position}: a slate is not of 2 items that could be shown"):
        read_slates(changed(dump, position, hidden))


def without_share(dump: Dump, *, until: int) -> Dump:
    """Return a log whose first recommendations, up to a position, were drawn by the near share alone."""
    settings = replace(BOUGHT, exploration=replace(FIRST, uniform_share=0.0, near_share=0.0))
    dump = changed(dump, 1, BanditCreated(settings))
    for position, event in recommended(dump):
        if position <= until:
            shown = replace(event.recommendation, propensity=1.0, best_slate=())
            dump = changed(dump, position, replace(event, recommendation=shown))
    return dump


def test_what_was_drawn_without_a_uniform_share_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = traded().dump
    until = next(one.position for one in dump.events if isinstance(one.event, SettingsChanged))
    some = without_share(dump, until=until)
    assert evaluated(some, tmp_path) == 0
    early = {event.recommendation.recommendation_id for position, event in recommended(dump) if position < until}
    rewarded = sum(isinstance(one.event, Rewarded) and one.event.recommendation_id in early for one in dump.events)
    assert f"{rewarded} drawn with a uniform share of 0 are left out\n" in capsys.readouterr().out
    never = replace(some, events=some.events[: until - 1])
    assert evaluated(never, tmp_path) == 1
    said = "topk-bandit: uniform_share: it is 0: what the log never shows can't be estimated from it\n"
    assert capsys.readouterr().err == said


def test_a_short_log_has_no_model_of_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = replace(traded().dump, events=traded().dump.events[:14])
    assert evaluated(few, tmp_path, "e,f") == 0
    out = capsys.readouterr().out
    assert "  doubly robust and balanced need a model of rewards: expected at least 10 requests" in out
    assert "balanced  " not in out
    assert "  snips               none: the log has too few such slates\n" in out


@pytest.mark.parametrize(
    ("slate", "problem"),
    [
        ("a,nowhere", "--slate: the log has no item 'nowhere'"),
        ("a", "--slate: expected 2 different items, got a"),
        ("a,a", "--slate: expected 2 different items, got a,a"),
        ("a,late", "--slate: no request could have shown a,late"),
    ],
)
def test_slates_that_were_never_possible_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], slate: str, problem: str
) -> None:
    added = next(
        one.position for one in traded().dump.events if one.position > 2 and isinstance(one.event, ItemsChanged)
    )
    assert evaluated(replace(traded().dump, events=traded().dump.events[:added]), tmp_path, "a,b", slate) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"topk-bandit: {problem}\n")


def test_logs_that_cannot_be_folded_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = traded().dump
    place = next(place for place, one in enumerate(dump.events) if isinstance(one.event, Rewarded))
    rewarded = dump.events[place]
    assert isinstance(rewarded.event, Rewarded)
    wild = replace(rewarded, event=replace(rewarded.event, value=-1e308))
    for events, problem in (
        ((*dump.events[:place], wild), f"event {wild.position}: no service takes the reward -1e+308"),
        (dump.events[4:], "a log begins with BanditCreated or a snapshot, not with "),
        ((), "a log begins with BanditCreated or a snapshot, not with nothing"),
        ((*dump.events[:4], *dump.events[5:]), "event 6 can't follow event 4"),
        (dump.events[:2], "log: no slate of the bandit's own in it has a reward"),
    ):
        assert evaluated(replace(dump, events=events), tmp_path) == 1
        assert problem in capsys.readouterr().err


def asked_ids(count: int) -> list[str]:
    return [one.recommendation_id for one in read_slates(traded().dump).requests[:count]]


def written_log(folder: Path, dump: Dump) -> str:
    file = folder / "log.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines(dump)), encoding="utf-8")
    return str(file)


def test_a_file_and_a_function_are_policies_like_slates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three show the same slate on the requests that could, so that they earn the same."""
    read = read_slates(traded().dump)
    could = read.log.policy.eligible[:, [read.asked.item_ids.index(one) for one in FIXED]].all(axis=1)
    ids = [one.recommendation_id for one, shows in zip(read.asked.requests, could, strict=True) if shows]
    table = tmp_path / "slates.csv"
    table.write_text(
        "recommendation_id,item_1,item_2\n" + "".join(f"{one},{FIXED[0]},{FIXED[1]}\n" for one in (*ids, "another")),
        encoding="utf-8",
    )
    objects = tmp_path / "slates.jsonl"
    objects.write_text(
        "".join(f'{{"recommendation_id": "{one}", "items": ["{FIXED[0]}", "{FIXED[1]}"]}}\n' for one in ids),
        encoding="utf-8",
    )
    module = "def choose(context, items):\n    assert context[0] == 1.0\n    return sorted(items)[:2]\n"
    (tmp_path / "ranking_of_a_test.py").write_text(module, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    flags = [f"--slate={','.join(FIXED)}", f"--slates={table}", f"--slates={objects}"]
    assert (
        main(["log", "evaluate", written_log(tmp_path, traded().dump), *flags, "--function=ranking_of_a_test:choose"])
        == 0
    )
    _, _, *blocks = values(capsys.readouterr().out).items()
    assert [title.partition(",")[0] for title, _ in blocks[1:]] == [
        "slates of slates.csv", "slates of slates.jsonl", "slates of ranking_of_a_test:choose",
    ]  # fmt: skip
    assert blocks[0][1] == blocks[1][1] == blocks[2][1]
    truth = np.mean([
        worth(tuple(sorted(items))[:2], context)
        for (context, items), rewarded in zip(traded().shop.asked, traded().shop.rewarded, strict=True)
        if rewarded
    ])  # fmt: skip
    _, low, high = blocks[3][1]["doubly robust"]
    assert low <= truth <= high


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("recommendation_id,item_1\nID,a\n", "slates.csv, line 2, items: expected 2 different items, got a"),
        ("recommendation_id,item_1,item_2\nID,a,a\n", "line 2, items: expected 2 different items, got a,a"),
        ("recommendation_id,item_1,item_2\nID,a,lat\n", "line 2, items: the log has no item 'lat': is it 'late'?"),
        ("recommendation_id,item_1,item_2\nID,a,late\n", "line 2, items: item 'late' could not be shown"),
        ("item_1,item_2\na,b\n", "'recommendation_id'; got item_1, item_2: name one so in the file\n"),
        ("recommendation_id,item_1,item_2\n,a,b\n", "slates.csv, line 2, column 'recommendation_id': is missing"),
        ("recommendation_id,item_1,item_2\nID,a,b\nID,a,b\n", "column 'recommendation_id': 'ID' is there twice"),
        ("recommendation_id,item_1,item_2\nnone,a,b\n", "slates.csv: none of its recommendations is among those"),
        ("recommendation_id,item_1,item_2,shop\nID,a,b,x\n", "slates.csv: columns that mean nothing to a slate: shop"),
        ("recommendation_id,item_1,item_2,Item_3\nID,a,b,c\n", "is it 'item_3'? Rename it\n"),
        ("recommendation_id,item_1,item_2\nID,a\n", "line 2, row: expected 3 cells, as the header has, got 2"),
    ],
)  # fmt: skip
def test_files_of_slates_that_are_wrong_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    whole = read_slates(short_log())
    both = whole.log.policy.eligible[:, [whole.asked.item_ids.index(one) for one in "ab"]].all(axis=1)
    known = whole.asked.requests[int(np.flatnonzero(both)[0])].recommendation_id
    table = tmp_path / "slates.csv"
    table.write_text(text.replace("ID", known), encoding="utf-8")
    assert main(["log", "evaluate", written_log(tmp_path, short_log()), f"--slates={table}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert problem.replace("ID", known) in captured.err


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nothing", "--function: expected MODULE:NAME, such as shop.ranking:choose, got 'nothing'"),
        ("no_such_module_of_a_test:choose", "--function: no_such_module_of_a_test:choose can't be loaded"),
        ("math:nothing", "--function: math:nothing can't be loaded"),
        ("math:pi", "--function: math:pi is no function"),
        ("math:hypot", "--function: math:hypot, "),
    ],
)
def test_functions_that_return_no_slates_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, problem: str
) -> None:
    assert main(["log", "evaluate", written_log(tmp_path, short_log()), f"--function={name}"]) == 1
    assert problem in capsys.readouterr().err


def instead_of(dump: Dump, ids: set[str]) -> Dump:
    """Return a log in which another slate was shown instead of some."""
    events = []
    for one in dump.events:
        if isinstance(one.event, Rewarded) and one.event.recommendation_id in ids:
            shown = replace(one.event.shown, slate=one.event.shown.slate[::-1])
            events.append(replace(one, event=Activated(one.event.recommendation_id, shown, instead=True)))
        events.append(one)
    return replace(dump, events=tuple(replace(one, position=place) for place, one in enumerate(events, 1)))


def short_log() -> Dump:
    """Return the traded log before the settings change, so that positions may move."""
    first = next(one.position for one in traded().dump.events if isinstance(one.event, SettingsChanged))
    return replace(traded().dump, events=traded().dump.events[: first - 1])


def test_what_was_shown_otherwise_is_told_and_learned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewarded = [one.event for one in short_log().events if isinstance(one.event, Rewarded)]
    some = {one.recommendation_id for one in rewarded[10:40]}
    dump = instead_of(short_log(), some)
    read = read_slates(dump)
    assert read.left_out.shown_otherwise == len(some)
    assert read.otherwise is not None
    np.testing.assert_array_equal(read.otherwise.rewards, [one.value for one in rewarded[10:40]])
    assert [[read.asked.item_ids[place] for place in one] for one in read.otherwise.slates.tolist()] == [
        list(one.shown.slate[::-1]) for one in rewarded[10:40]
    ]
    assert read.otherwise.before.tolist() == [10] * 30
    assert evaluated(dump, tmp_path) == 0
    mean = f"{np.mean([one.value for one in rewarded[10:40]]):.4g}"
    out = capsys.readouterr().out
    assert "30 instead of which another slate was shown are left out\n" in out
    assert f"30 of them have a reward, {mean} on average: the model of rewards learns from these\n" in out


def test_a_log_that_shows_none_as_drawn_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewarded = {one.event.recommendation_id for one in short_log().events if isinstance(one.event, Rewarded)}
    assert evaluated(instead_of(short_log(), rewarded), tmp_path) == 1
    said = f"no slate has a reward that was shown as drawn: {len(rewarded)} have one instead of which another was shown"
    assert said in capsys.readouterr().err


def test_a_verdict_says_more_less_or_with_which_exploration_it_could(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluated(traded().dump, tmp_path, "f,e") == 0
    out = capsys.readouterr().out
    assert re.search(r"always f,e.*by [a-z ,'-]+: earns less than the slates that were shown", out, flags=re.DOTALL)
    assert evaluated(short_log(), tmp_path, "a,b") == 0
    told = capsys.readouterr().out.split("always a,b")[1]
    assert "the log can't tell whether it earns more or less than the slates that were shown; " in told
    assert re.search(r"a uniform share of \d+% would|with a uniform share of 100% it could", told)


# Under rules

RULED = replace(
    BOUGHT,
    slate_size=3,
    item_schema=SCHEMA,
    exploration=Exploration(ConstantBeta(1.0), 0.3, near_share=0.2),
)
ALWAYS = ("i4", "i2", "i0")


def worth_of(slate: tuple[str, ...]) -> float:
    """Return a slate's expected reward: no sum over positions."""
    return sum(int(item[1:]) / (2.0 + place) for place, item in enumerate(slate)) - (slate[0] > slate[1])


@dataclass
class Ruled:
    """A shop under rules that notes which slates a judge allows for each request with a reward."""

    worker: Worker
    rng: np.random.Generator
    shelf: dict[str, Any] = field(default_factory=dict)
    own: list[Told] = field(default_factory=list)
    allowed: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    async def open(self) -> None:
        drawn = [draw_item(f"i{n}", self.rng) for n in range(6)]
        await self.worker.bandits.upsert_items(NAME, [item for item, _ in drawn])
        self.shelf = {item.item_id: like for item, like in drawn}

    def draw(self, most: int) -> list[Told]:
        kinds = [kind for kind in KINDS if kind != "new"]
        chosen = self.rng.choice(kinds, size=int(self.rng.integers(most + 1)))
        return [draw_rule(sorted(self.shelf), 3, self.rng, kind=str(kind)) for kind in chosen]

    async def serve(self, number: int) -> None:
        if number % 40 == 0:
            self.own = self.draw(1)
            rules = tuple(one.rule for one in self.own)
            await self.worker.bandits.update_bandit(NAME, lambda now: replace(now, rules=rules))
        await self.worker.models.follow(NAME)
        told = self.draw(2)
        asked = replace(request(f"r{number}"), rules=tuple(one.rule for one in told))
        left = slates_left([*self.own, *told], sorted(self.shelf), 3, self.shelf, {})
        if left is None:
            return
        given = await self.worker.recommender.recommend(NAME, asked)
        earned = worth_of(given.slate) + 0.2 * self.rng.normal()
        await self.worker.recommender.reward(NAME, given.recommendation_id, float(earned))
        self.allowed[given.recommendation_id] = left.slates


@lru_cache
def ruled() -> tuple[Ruled, Dump]:
    """Return a shop under rules, and its log from event 1 on."""
    found = []

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, RULED, incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            shop, archive = Ruled(worker, np.random.default_rng(3)), Archive(store)
            await shop.open()
            for number in range(240):
                await shop.serve(number)
                await archive.look()
            dump = await dumped(store)
            found.append((shop, replace(dump, snapshot=None, events=tuple(archive.events))))

    run(MemoryStores(), scenario)
    return found[0]


def test_slates_under_rules_are_evaluated_among_those_that_rules_allow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop, dump = ruled()
    read = read_slates(dump)
    assert read.ruled is not None
    assert min(len(read.log), len(read.ruled.log)) > 60
    assert len(read.log) + len(read.ruled.log) == len(shop.allowed)
    log, asked = read.ruled.log, read.ruled.asked
    allowed = [shop.allowed[one.recommendation_id] for one in asked.requests]
    assert [policy.allowed and policy.allowed.count for policy in log.policies] == list(map(len, allowed))
    hold(average_weighted(log.uniform().weights, log.rewards), allowed)
    hold(ips(read.log, uniform(read.log)), [shop.allowed[one.recommendation_id] for one in read.asked.requests])
    # A slate that breaks a rule is evaluated as rules complete it.
    could = asked.eligible[:, [asked.item_ids.index(item) for item in ALWAYS]].all(axis=1)
    fixed = np.tile([asked.item_ids.index(item) for item in ALWAYS], (int(could.sum()), 1))
    part, slates = log.part(could), log.part(could).complete(fixed)
    named = [tuple(asked.item_ids[item] for item in slate) for slate in slates.tolist()]
    for slate, row in zip(named, np.flatnonzero(could).tolist(), strict=True):
        check_mended(slate, ALWAYS, allowed[row])
    hold(average_weighted(part.always(slates).weights, part.rewards), [[slate] for slate in named])
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines(dump)), encoding="utf-8")
    assert main(["log", "evaluate", str(file), f"--slate={','.join(ALWAYS)}"]) == 0
    told = capsys.readouterr().out
    changed = int((slates != fixed).any(axis=1).sum())
    assert f"under rules: {len(log):,} requests, the slates that were shown" in told
    for title, rewards in (
        ("all slates that were shown", np.concatenate([read.log.rewards, log.rewards])),
        (f"without rules: {len(read.log):,} requests, the slates that were shown", read.log.rewards),
    ):
        assert f"\n{title}\n  mean reward {rewards.mean():18.4g}   " in told
    assert f"on the {len(part):,} requests that could; rules change {changed:,} of its slates" in told
    title = "under rules: slates drawn uniformly of those that rules allow"
    truth = np.mean([np.mean([worth_of(slate) for slate in of_one]) for of_one in allowed])
    rows = told.split(f"\n{title}\n")[1].splitlines()[:3]
    for name, row in zip(("ips", "snips", "doubly robust"), rows, strict=True):
        assert row.startswith(f"  {name}  ")
        _, low, high = map(float, re.findall(r"-?[\d.]+", row))
        assert low <= truth <= high


def test_slates_of_promised_exposures_are_evaluated_but_for_those_that_paid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether a slate pays is no draw, so the others have the propensities that they would have without a promise."""
    found = []

    async def scenario(store: Store) -> None:
        settings = replace(RULED, rules=(SlateRule(Exposure(Group(item_ids=("i0", "i1")), 0.8)),))
        await store.create_bandit(NAME, settings, incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            shop = Ruled(worker, np.random.default_rng(5))
            await shop.open()
            for number in range(60):
                await worker.models.follow(NAME)
                given = await worker.recommender.recommend(NAME, request(f"r{number}"))
                await worker.recommender.reward(NAME, given.recommendation_id, worth_of(given.slate))
            found.append(await dumped(store))

    run(MemoryStores(), scenario)
    paid = [one for _, one in recommended(found[0]) if one.recommendation.paid]
    assert 5 < len(paid) < 55
    assert all({"i0", "i1"} & {*one.recommendation.slate} for one in paid)
    read = read_slates(found[0])
    assert (read.left_out, len(read.log), read.ruled) == (LeftOut(0, 0, 0, paid=len(paid)), 60 - len(paid), None)
    assert evaluated(found[0], tmp_path) == 0
    out = capsys.readouterr().out
    assert f"60 recommendations, {60 - len(paid)} of them evaluated\n" in out
    assert f"{len(paid)} slates that paid for promised exposures are left out: " in out
    # One that paid, and does not say so, has no propensity that a policy has: it is found.
    position, event = next((at, one) for at, one in recommended(found[0]) if one.recommendation.paid)
    silent = replace(event, recommendation=replace(event.recommendation, paid=()))
    with pytest.raises(CorruptDataError, match=f"event {position}: "):
        read_slates(changed(found[0], position, silent))


def hold(told: Estimate, slates: Sequence[Sequence[tuple[str, ...]]]) -> None:
    """Hold an interval to have what slates drawn uniformly of these earn."""
    truth = float(np.mean([np.mean([worth_of(slate) for slate in of_one]) for of_one in slates]))
    assert told.low <= truth <= told.high


def test_a_slate_that_breaks_a_rule_or_has_another_propensity_is_named() -> None:
    found = []

    async def scenario(store: Store) -> None:
        rules = (SlateRule(Pin(("a",), 0)),)
        await store.create_bandit(NAME, replace(BOUGHT, rules=rules), incarnation="evaluated", quota=1)
        async with running_worker(store) as worker:
            await worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in "abcdef"])
            given = await worker.recommender.recommend(NAME, request("r"))
            await worker.recommender.reward(NAME, given.recommendation_id, 1.0)
            new = (SlateRule(Count(Group(shown_fewer_than=9), least=1)),)
            await worker.recommender.recommend(NAME, replace(request("new"), rules=new))
            found.append(await dumped(store))

    run(MemoryStores(), scenario)
    read = read_slates(found[0])
    assert (len(read.log), read.ruled is not None and len(read.ruled.log)) == (0, 1)
    assert read.left_out == LeftOut(0, 0, 0, about_new=1)
    position, event = recommended(found[0])[0]
    other = replace(event.recommendation, propensity=0.5)
    with pytest.raises(CorruptDataError, match=f"event {position}: the slate was logged with the propensity 0.5"):
        read_slates(changed(found[0], position, replace(event, recommendation=other)))
    slate = ("b", "a")
    broken = replace(event.recommendation, slate=slate, best_slate=slate)
    with pytest.raises(CorruptDataError, match=f"event {position}: a slate breaks a rule"):
        read_slates(changed(found[0], position, replace(event, recommendation=broken)))
