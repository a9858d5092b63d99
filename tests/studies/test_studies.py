"""Studies by their use cases: questions as the design has them, what is learned, and workers that agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import brentq
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores
from tests.rpc.studies import HeldExecutor, studies_of
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until_async

from topk_bandit.domain.bandits import ItemUtility
from topk_bandit.domain.errors import InvalidArgumentError, NotFoundError, NotReadyError, TopkBanditError
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswerOutcome,
    DeclineReason,
    DesignProgress,
    DesignState,
    GivenDecline,
    GivenPastAnswer,
    GivenRanking,
    GivenRatings,
    GivenTiers,
    PreferenceModel,
    StudyItem,
    StudyName,
    StudyQuery,
    StudySettings,
    SubmittedAnswer,
)
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.studies.imports import RowsOfAnswers
from topk_bandit.studies.model import begin, fold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from tests.servers import RunningServer

    from topk_bandit.domain.studies import GivenAnswer, Question, QuestionBatch, StudyDesign
    from topk_bandit.store.study_log import StudyStore
    from topk_bandit.studies.administration import Studies
    from topk_bandit.studies.designer import Designer

SKIPPED = DeclineReason.SKIPPED
TASTE = StudyName("shop", "taste")
RNG = np.random.default_rng(12)
ITEMS = RNG.normal(size=(10, 3))
QUERIES = RNG.normal(size=(4, 2))
THETA = RNG.normal(size=(2, 3))
PLAIN = StudySettings(
    items=tuple(StudyItem(f"i{number}", tuple(row.tolist())) for number, row in enumerate(ITEMS)),
    queries=(),
    answer_kind=AnswerKind.RANKING,
    list_size=3,
    budget=40,
)
QUERIED = replace(
    PLAIN, queries=tuple(StudyQuery(f"q{number}", tuple(row.tolist())) for number, row in enumerate(QUERIES))
)


def run(scenario: Callable[[StudyStore, ThreadPoolExecutor, StoreClock], Awaitable[None]]) -> None:
    clock = StoreClock()
    with ThreadPoolExecutor(4) as executor:
        asyncio.run(scenario(MemoryStudies(clock_ms=clock.read_ms), executor, clock))


async def opened(studies: Studies, settings: StudySettings = PLAIN, name: StudyName = TASTE) -> None:
    await studies.create_study(name, settings)
    record = await studies.wait_for_design(name, seconds=PATIENCE)
    assert record.state is DesignState.READY


async def design_of(store: StudyStore, name: StudyName = TASTE) -> StudyDesign:
    part = await store.read_study(name, start=1, limit=9)
    model = reduce(fold, part.events[1:], begin(part.record.incarnation, part.events[0]))
    assert model.design is not None
    return model.design


def given(question: Question, settings: StudySettings) -> GivenAnswer:
    """Return what somebody says who likes items by the weights above."""
    rows = {item.item_id: np.array(item.features) for item in settings.items}
    queries = {query.query_id: np.array(query.features) for query in settings.queries}
    seen = queries.get(question.query_id, np.array([1.0, 0.0]))
    liked = {one: float(seen @ THETA @ rows[one]) for one in question.item_ids}
    if settings.answer_kind is AnswerKind.RATINGS:
        return GivenRatings(tuple(liked.items()))
    return GivenRanking(tuple(sorted(liked, key=lambda one: -liked[one])))


def answer_to(question: Question) -> SubmittedAnswer:
    return SubmittedAnswer(question.question_id, given(question, PLAIN))


async def answered(studies: Studies, settings: StudySettings, count: int) -> QuestionBatch:
    asked = await studies.next_questions(TASTE, count=count, request_id="")
    outcomes = await studies.submit_answers(
        TASTE, [SubmittedAnswer(one.question_id, given(one, settings)) for one in asked.questions]
    )
    assert set(outcomes) == {AnswerOutcome.ACCEPTED}
    return asked


def shown(questions: Sequence[Question]) -> Counter[tuple[str, ...]]:
    return Counter((question.query_id, *sorted(question.item_ids)) for question in questions)


@pytest.mark.parametrize("settings", [PLAIN, QUERIED], ids=["plain", "queried"])
def test_questions_follow_the_weights_of_the_design(settings: StudySettings) -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies, replace(settings, budget=2000))
        design = await design_of(store)
        keys = [
            (settings.queries[one.query].query_id if settings.queries else "", *sorted(f"i{n}" for n in one.items))
            for one in design.lists
        ]
        counts: Counter[tuple[str, ...]] = Counter()
        for number in range(20):
            asked = await studies.next_questions(TASTE, count=100, request_id=f"r{number}")
            counts += shown(asked.questions)
            if number > 3:
                expected = dict(zip(keys, np.array(design.weights) * 100 * (number + 1), strict=True))
                assert max(abs(counts[key] - expected[key]) for key in keys) <= 2.0
        assert set(counts) <= set(keys)

    run(scenario)


def test_the_first_questions_tell_of_every_direction() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies)
        asked = await studies.next_questions(TASTE, count=2, request_id="r")
        rows = {item.item_id: np.array(item.features) for item in PLAIN.items}
        seen = np.vstack([rows[one] - rows[question.item_ids[0]] for question in asked.questions
                          for one in question.item_ids[1:]])  # fmt: skip
        assert np.linalg.matrix_rank(seen) == 3

    run(scenario)


def test_a_design_of_features_alone_passes_over_items_that_others_ask_about() -> None:
    items = tuple(StudyItem(f"i{n}", tuple(row)) for n, row in enumerate(RNG.normal(size=(30, 3)).tolist()))

    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        asked = {}
        for alone in (False, True):
            name = StudyName("shop", f"alone-{alone}".lower())
            await opened(studies, replace(PLAIN, items=items, features_alone=alone), name)
            batch = await studies.next_questions(name, count=40, request_id="")
            asked[alone] = {item for question in batch.questions for item in question.item_ids}
        assert len(asked[False]) == 30
        assert len(asked[True]) < 20

    run(scenario)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("features_alone", replace(PLAIN, features_alone=True)),
        ("model", replace(PLAIN, model=PreferenceModel.PAIRWISE)),
        ("lists", replace(PLAIN, lists=np.array([0, 0, 1, 2], dtype="<i4").tobytes())),
    ],
)
def test_newer_settings_need_data_version_2(
    monkeypatch: pytest.MonkeyPatch, field: str, settings: StudySettings
) -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        with pytest.raises(NotReadyError, match=rf"^study.{field} needs data version 2") as refused:
            await studies.create_study(TASTE, settings)
        assert refused.value.reason == "DATA_VERSION"
        with pytest.raises(NotFoundError):
            await studies.get_study(TASTE)
        await opened(studies)

    monkeypatch.setattr("topk_bandit.store.memory.studies.NEWEST", 1)
    run(scenario)


def test_newer_answers_need_data_version_2(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies)
        first, second = (await studies.next_questions(TASTE, count=2, request_id="r")).questions
        given = [
            SubmittedAnswer(first.question_id, GivenTiers((first.item_ids[:1],))),
            SubmittedAnswer(second.question_id, GivenDecline(SKIPPED)),
        ]
        refusals = await studies.submit_answers(TASTE, given)
        assert [getattr(one, "reason", None) for one in refusals] == ["DATA_VERSION"] * 2
        named = SubmittedAnswer(first.question_id, GivenRanking(first.item_ids), "ann")
        [refusal] = await studies.submit_answers(TASTE, [named])
        assert getattr(refusal, "reason", None) == "DATA_VERSION"
        [whole] = await studies.submit_answers(
            TASTE, [SubmittedAnswer(first.question_id, GivenRanking(first.item_ids))]
        )
        assert whole is AnswerOutcome.ACCEPTED
        row = GivenPastAnswer("", first.item_ids, GivenDecline(SKIPPED))
        with pytest.raises(NotReadyError, match="a declined answer needs data version 2"):
            await studies.import_answers(TASTE, RowsOfAnswers("old", 0, (row,)))
        assert (await studies.get_study(TASTE))[0].imported == 0

    monkeypatch.setattr("topk_bandit.store.memory.studies.NEWEST", 1)
    run(scenario)


@pytest.mark.parametrize("kind", [AnswerKind.RANKING, AnswerKind.RATINGS])
def test_what_was_gathered_is_the_part_of_the_budget_that_tells_as_much(kind: AnswerKind) -> None:
    """By log determinants of the items' utilities: their prior covariance, and what answers tell of each of them."""
    settings = replace(PLAIN, answer_kind=kind)
    within = ITEMS - ITEMS.mean(axis=0)
    prior = within @ within.T * len(ITEMS) / np.sum(within**2) + 0.25 * (np.eye(len(ITEMS)) - 1.0 / len(ITEMS))
    # A ranking of three is a choice of three and one of two: 2/3 of 1/3 and 1/2 of 1 pair each, of 3 pairs.
    share = 1.0 if kind is AnswerKind.RATINGS else (1 / 2 + 2 / 3) / 6
    if kind is AnswerKind.RATINGS:
        prior += 1.0

    def information(lists: Iterable[Sequence[str]], weights: Iterable[float]) -> np.ndarray:
        total = np.zeros((len(ITEMS),) * 2)
        for ids, weight in zip(lists, weights, strict=True):
            places = np.eye(len(ITEMS))[[int(one[1:]) for one in ids]]
            pairs = [places[a] - places[b] for a in range(len(ids)) for b in range(a)]
            rows = places if kind is AnswerKind.RATINGS else np.array(pairs)
            total += weight * share * rows.T @ rows
        return total

    def told(total: np.ndarray) -> float:
        return float(np.linalg.slogdet(np.eye(len(ITEMS)) + prior @ total)[1])

    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies, settings)
        design = await design_of(store)
        asked = await answered(studies, settings, 25)
        now = await studies.next_questions(TASTE, count=1, request_id="")
        one_question = information([[f"i{number}" for number in one.items] for one in design.lists], design.weights)
        have = information([question.item_ids for question in asked.questions], np.ones(25))
        worth = brentq(lambda n: told(n * one_question) - told(have), 0.0, 100.0)
        assert now.gathered == pytest.approx(worth / 40, rel=1e-6)
        assert (now.asked, now.answered) == (26, 25)
        assert 0.5 < now.gathered < 0.7

    run(scenario)


def test_a_prior_of_a_study_without_queries_is_its_utilities() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies)
        await answered(studies, PLAIN, 30)
        prior = await studies.prior("shop", "taste", context_dim=7)
        learned = await studies.get_preferences(TASTE, after=0, queries=9, items=999)
        utilities = {one.item_id: one.utility for one in learned.queries[0].items}
        assert (prior.study, prior.answers) == ("taste", 30)
        assert prior.utilities == tuple(ItemUtility(item.item_id, utilities[item.item_id]) for item in PLAIN.items)
        assert sum(utilities.values()) == pytest.approx(0.0, abs=1e-9)

    run(scenario)


@pytest.mark.parametrize("kind", [AnswerKind.RANKING, AnswerKind.RATINGS])
def test_a_prior_of_a_study_with_queries_has_its_utilities_in_every_context(kind: AnswerKind) -> None:
    settings = replace(QUERIED, answer_kind=kind)

    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies, settings)
        await answered(studies, settings, 40)
        prior = await studies.prior("shop", "taste", context_dim=2)
        learned = await studies.get_preferences(TASTE, after=0, queries=9, items=999)
        slopes = np.array([one.slopes for one in prior.utilities])
        own = np.array([one.constant for one in prior.utilities])
        for query, of_query in zip(QUERIES, learned.queries, strict=True):
            by_id = {one.item_id: one.utility for one in of_query.items}
            utilities = np.array([by_id[item.item_id] for item in settings.items])
            assert own + slopes @ query == pytest.approx(utilities - utilities.mean(), abs=1e-9)
        # And in a context that nobody was asked about they are the ones of the weights that people had.
        context = np.array([0.3, -0.8])
        assert np.corrcoef(slopes @ context, ITEMS @ (context @ THETA))[0, 1] > 0.7

    run(scenario)


@pytest.mark.parametrize("queries", [(), QUERIED.queries], ids=["plain", "queried"])
def test_items_without_features_are_features_of_their_own(queries: tuple[StudyQuery, ...]) -> None:
    """The design, what is learned and the prior are those of a study whose items have these features."""
    bare = replace(PLAIN, items=tuple(StudyItem(f"i{number}", ()) for number in range(7)), queries=queries)
    rows = [tuple(row) for row in np.eye(7).tolist()]
    described = replace(bare, items=tuple(map(StudyItem, [one.item_id for one in bare.items], rows)))

    async def found(store: StudyStore, executor: ThreadPoolExecutor, settings: StudySettings) -> tuple[object, ...]:
        studies, _ = studies_of(store, executor)
        name = StudyName("shop", f"with-{len(settings.items[0].features)}")
        await opened(studies, settings, name)
        asked = await studies.next_questions(name, count=20, request_id="")
        rankings = [
            SubmittedAnswer(one.question_id, GivenRanking(tuple(sorted(one.item_ids)))) for one in asked.questions
        ]
        await studies.submit_answers(name, rankings)
        prior = await studies.prior(name.tenant, name.study, context_dim=2)
        learned = await studies.get_preferences(name, after=0, queries=9, items=999)
        lists = [(one.query_id, one.item_ids) for one in asked.questions]
        return await design_of(store, name), lists, learned.queries, prior.utilities

    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        assert await found(store, executor, bare) == await found(store, executor, described)

    run(scenario)


def test_a_prior_that_is_not_there_is_refused_by_name() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies, QUERIED)
        problems = []
        for tenant, study, context_dim in (
            ("shop", "none", 2),
            ("other", "taste", 2),
            ("shop", "taste", 2),
            ("shop", "taste", 3),
        ):
            if context_dim == 3:
                await answered(studies, QUERIED, 3)
            with pytest.raises(InvalidArgumentError) as caught:
                await studies.prior(tenant, study, context_dim=context_dim)
            assert caught.value.field == "prior_study"
            problems.append(caught.value.problem)
        assert problems == [
            "tenants/shop/studies/none not found",
            "tenants/other/studies/taste not found",
            "tenants/shop/studies/taste has no answers yet from which something is learned",
            "tenants/shop/studies/taste has queries of 2 features, and the bandit contexts of 3 numbers",
        ]

    run(scenario)


def test_workers_agree_whatever_each_of_them_has_seen() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        (one, _first), (two, _second) = (studies_of(store, executor, owner=owner) for owner in ("one", "two"))
        await opened(one, QUERIED)
        asked = await one.next_questions(TASTE, count=5, request_id="r1")
        assert await two.next_questions(TASTE, count=5, request_id="r1") == asked
        answers = [SubmittedAnswer(question.question_id, given(question, QUERIED)) for question in asked.questions]
        assert set(await two.submit_answers(TASTE, answers)) == {AnswerOutcome.ACCEPTED}
        assert set(await one.submit_answers(TASTE, answers)) == {AnswerOutcome.DUPLICATE}
        more = await asyncio.gather(
            *((one, two)[n % 2].next_questions(TASTE, count=2, request_id=f"m{n}") for n in range(6))
        )
        ids = [question.question_id for part in more for question in part.questions]
        assert len(set(ids)) == 12
        pages = [await worker.get_preferences(TASTE, after=0, queries=9, items=999) for worker in (one, two)]
        assert pages[0] == pages[1]
        fresh, _third = studies_of(store, executor, owner="three")
        assert await fresh.get_preferences(TASTE, after=0, queries=9, items=999) == pages[0]

    run(scenario)


def test_a_study_created_anew_is_not_taken_for_the_old_one() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        (one, _first), (two, _second) = (studies_of(store, executor, owner=owner) for owner in ("one", "two"))
        await opened(one)
        old = await one.next_questions(TASTE, count=2, request_id="r1")
        await two.delete_study(TASTE)
        with pytest.raises(NotFoundError):
            await one.submit_answers(TASTE, [answer_to(old.questions[0])])
        await opened(two)
        new = await two.next_questions(TASTE, count=2, request_id="r1")
        assert {q.question_id for q in new.questions}.isdisjoint(q.question_id for q in old.questions)
        batch = [answer_to(part.questions[0]) for part in (old, new)]
        results = await one.submit_answers(TASTE, batch)
        assert isinstance(results[0], NotFoundError)
        assert results[1] is AnswerOutcome.ACCEPTED

    run(scenario)


def test_a_log_that_lost_its_end_is_folded_anew() -> None:
    """As after a failover: the store holds other events in places that were folded already."""

    async def scenario(store: MemoryStudies, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        await opened(studies)
        kept = await studies.next_questions(TASTE, count=2, request_id="kept")
        lost = await studies.next_questions(TASTE, count=3, request_id="lost")
        known = store._studies[TASTE]
        known.events.pop()
        known.state = replace(known.state, asked=2)
        del known.requests["lost"]
        other = await studies.next_questions(TASTE, count=3, request_id="other")
        assert (other.asked, len(other.questions)) == (5, 3)
        results = await studies.submit_answers(
            TASTE,
            [answer_to(part.questions[0]) for part in (kept, lost, other)],
        )
        assert [isinstance(result, TopkBanditError) for result in results] == [False, True, False]

    run(scenario)


def test_the_least_used_study_leaves_memory_and_comes_back() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, _designer = studies_of(store, executor)
        studies._cache._most_bytes = 1000
        for number in range(3):
            await opened(studies, PLAIN, StudyName("shop", f"s{number}"))
            await studies.next_questions(StudyName("shop", f"s{number}"), count=1, request_id="r")
        assert list(studies._cache._entries) == [StudyName("shop", "s2")]
        again = await studies.next_questions(StudyName("shop", "s0"), count=1, request_id="r")
        assert again.asked == 1

    run(scenario)


SLOW = replace(
    PLAIN,
    items=tuple(
        StudyItem(f"i{n}", tuple(row)) for n, row in enumerate(np.random.default_rng(0).normal(size=(2000, 64)))
    ),
    list_size=10,
)


def test_a_lease_that_lapses_is_taken_over_and_the_loser_adds_nothing() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, clock: StoreClock) -> None:
        held = HeldExecutor(1)
        studies, designer = studies_of(store, executor, owner="loser", designs=held)
        await studies.create_study(TASTE, PLAIN)
        await until_async(lambda: designer._attempts, what="the design is begun")
        [attempt] = designer._attempts.values()
        clock.now_ms += 4000  # for longer than a lease holds
        claimed = await store.claim_design(TASTE, owner="another", lease_ms=60_000)
        assert claimed is not None
        await until_async(lambda: attempt.is_abandoned, what="the loser has noticed")
        held.shutdown()
        await until_async(lambda: _is_idle(designer), what="the loser has given up")
        record = await store.get_study(TASTE)
        assert (record.state, record.log_position) == (DesignState.DESIGNING, 1)

    run(scenario)


def _is_idle(designer: Designer) -> bool:
    return not designer._tasks


def test_whoever_looks_finds_a_design_that_nobody_works_at() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, clock: StoreClock) -> None:
        dead = await store.create_study(TASTE, PLAIN, incarnation="first", quota=9)
        assert await store.claim_design(TASTE, owner="dead", lease_ms=3000) == dead
        studies, designer = studies_of(store, executor)
        designer.start()
        try:
            assert (await studies.wait_for_design(TASTE, seconds=0.1)).state is DesignState.DESIGNING
            clock.now_ms += 3000
            assert (await studies.wait_for_design(TASTE, seconds=PATIENCE)).state is DesignState.READY
        finally:
            await designer.stop()

    run(scenario)


@pytest.mark.slow
def test_a_cancelled_design_lets_its_thread_go() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        (one, mine), (other, _theirs) = (studies_of(store, executor, owner=owner) for owner in ("one", "two"))
        for canceller in (one, other):  # by this worker, and by another one
            await one.create_study(TASTE, SLOW)
            await until_async(lambda: _is_under_way(mine), what="the design is under way")
            await canceller.cancel_design(TASTE)
            await until_async(lambda: _is_idle(mine), what="the attempt has ended")
        assert (await store.get_study(TASTE)).state is DesignState.CANCELLED
        # The same study again, with less time than it takes: its design is what was found by then.
        mine._most_seconds = 0.5
        await one.create_study(TASTE, SLOW)
        record = await one.wait_for_design(TASTE, seconds=PATIENCE)
        assert record.state is DesignState.READY
        assert isinstance(record.progress, DesignProgress)
        assert record.progress.gap > record.progress.target_gap
        assert (await one.next_questions(TASTE, count=2, request_id="r")).asked == 2

    run(scenario)


def _is_under_way(designer: Designer) -> bool:
    return any(attempt.progress is not None for attempt in designer._attempts.values())


def test_progress_is_told_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_bandit.studies.designer.REPORT_SECONDS", 0.01)

    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        studies, designer = studies_of(store, executor)
        await studies.create_study(TASTE, SLOW)
        seen: set[DesignProgress] = set()

        async def has_moved() -> bool:
            progress = (await store.get_study(TASTE)).progress
            seen.update([progress] if progress else [])
            return len(seen) > 1

        await until_async(has_moved, what="there is progress")
        first, *_, last = sorted(seen, key=lambda one: one.steps)
        assert first.steps < last.steps
        assert first.target_gap == last.target_gap == pytest.approx(0.64)
        await designer.stop()

    run(scenario)


class Listening(Hooks):
    """Hooks that keep what they receive of studies."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.designs: list[str] = []

    def answered(self, outcome: str) -> None:
        self.answers[outcome] += 1

    def designed(self, outcome: str, seconds: float) -> None:
        assert seconds > 0.0
        self.designs.append(outcome)


def test_telemetry_hears_of_answers_and_designs() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor, _: StoreClock) -> None:
        heard = Listening()
        studies, designer = studies_of(store, executor, hooks=heard)
        await studies.create_study(TASTE, SLOW)
        await until_async(lambda: _is_under_way(designer), what="the design is under way")
        await studies.cancel_design(TASTE)
        await until_async(lambda: _is_idle(designer), what="the attempt has ended")
        await studies.delete_study(TASTE)
        await opened(studies)
        await until_async(lambda: _is_idle(designer), what="the attempt has ended")
        assert heard.designs == ["abandoned", "ready"]
        one, two = (await studies.next_questions(TASTE, count=2, request_id="r")).questions
        good, other = given(one, PLAIN), GivenRanking(tuple(reversed(given(one, PLAIN).item_ids)))
        said = [(one.question_id, good), (one.question_id, good), (one.question_id, other), ("nil", good)]
        batch = [SubmittedAnswer(*answer) for answer in said]
        await studies.submit_answers(TASTE, [*batch, SubmittedAnswer(two.question_id, GivenRanking(()))])
        with pytest.raises(NotFoundError):
            await studies.submit_answers(StudyName("shop", "none"), batch)
        assert heard.answers == {"accepted": 1, "duplicate": 1, "conflict": 1, "not_found": 5, "invalid": 1}

    run(scenario)


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


def test_a_design_that_can_not_be_made_fails_with_a_reference(
    valkey: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    stores = RedisStores(valkey.unix_url, clock=StoreClock())

    async def scenario(executor: ThreadPoolExecutor) -> None:
        async with stores.connect() as store:
            studies, designer = studies_of(store.studies(), executor)
            await store.studies().create_study(TASTE, PLAIN, incarnation="first", quota=9)
            keys = KeySpace(stores.prefix).study(TASTE)
            with valkey.client() as client:
                client.delete(keys.log)
                client.xadd(keys.log, {"at_ms": 1, "event": "spoiled"}, id="1-0")
            designer.begin(TASTE)
            record = await studies.wait_for_design(TASTE, seconds=PATIENCE)
            assert record.state is DesignState.FAILED
            assert record.failure is not None
            assert (record.failure.field, record.failure.problem) == ("", "reference")

    with ThreadPoolExecutor(2) as executor:
        asyncio.run(scenario(executor))
    assert "reference reference" in caplog.text
