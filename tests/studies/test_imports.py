"""Answers from elsewhere: checked row by row, learned like the study's own, and known when questions are chosen."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores
from tests.rpc.studies import HeldExecutor, studies_of
from tests.servers import running_server, valkey_binary
from tests.studies.test_studies import ITEMS, PLAIN, QUERIED, TASTE, given, opened
from tests.waiting import PATIENCE

from topk_bandit.domain.errors import ConflictError, CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswersImported,
    ChoiceAnswer,
    GivenChoice,
    GivenPastAnswer,
    GivenRanking,
    GivenRatings,
    LoggedStudyEvent,
    PastAnswer,
    QuestionList,
    RankingAnswer,
    RatingsAnswer,
    StudyCreated,
    SubmittedAnswer,
)
from topk_bandit.preferences.designs.optimal import SubsetDesign
from topk_bandit.preferences.questions import count_answers
from topk_bandit.store.log import RecordStatus
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.studies.imports import RowsOfAnswers, read_import
from topk_bandit.studies.model import begin, fold
from topk_bandit.studies.pool import build_pool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from topk_bandit.domain.studies import GivenAnswer, Preferences, Question, StudySettings
    from topk_bandit.store.study_log import StudyStore

CHOICES = replace(PLAIN, answer_kind=AnswerKind.CHOICE)
PAIRS = replace(PLAIN, answer_kind=AnswerKind.PAIR, list_size=2)
RATINGS = replace(PLAIN, answer_kind=AnswerKind.RATINGS)


def ranking(*items: str, query: str = "", shown: Sequence[str] = ()) -> GivenPastAnswer:
    return GivenPastAnswer(query, tuple(shown), GivenRanking(items))


def past(query: int, items: Sequence[int], answer: RankingAnswer | RatingsAnswer | ChoiceAnswer) -> PastAnswer:
    return PastAnswer(QuestionList(query, tuple(items)), answer)


def rated(**ratings: float) -> GivenRatings:
    return GivenRatings(tuple(ratings.items()))


@pytest.mark.parametrize(
    ("settings", "row", "expected"),
    [
        (PLAIN, ranking("i4", "i0", "i9"), past(0, (0, 4, 9), RankingAnswer((1, 0, 2)))),
        (PLAIN, ranking("i4", "i0", shown=("i4", "i0")), past(0, (0, 4), RankingAnswer((1, 0)))),
        (QUERIED, ranking("i1", "i2", query="q3"), past(3, (1, 2), RankingAnswer((0, 1)))),
        (CHOICES, GivenPastAnswer("", ("i7", "i2", "i3"), GivenChoice("i7")), past(0, (2, 3, 7), ChoiceAnswer(2))),
        (PAIRS, GivenPastAnswer("", ("i7", "i2"), GivenChoice("i2")), past(0, (2, 7), ChoiceAnswer(0))),
        (RATINGS, GivenPastAnswer("", (), rated(i5=2.0, i1=-1.0)), past(0, (1, 5), RatingsAnswer((-1.0, 2.0)))),
        (RATINGS, GivenPastAnswer("", (), rated(i5=2.0)), past(0, (5,), RatingsAnswer((2.0,)))),
    ],
)
def test_a_row_is_kept_in_the_order_of_the_studys_items(
    settings: StudySettings, row: GivenPastAnswer, expected: PastAnswer
) -> None:
    part, event = read_import(settings, RowsOfAnswers("old", 7, (row,)))
    assert event == AnswersImported("old", 7, (expected,))
    assert (part.import_id, part.first_row, part.next_row, part.accepted) == ("old", 7, 8, 1)


def test_what_says_the_same_is_the_same_and_nothing_else_is() -> None:
    rows = [ranking("i4", "i0"), ranking("i4", "i0", shown=("i0", "i4")), ranking("i0", "i4"), ranking("i4", "i1")]
    parts = [read_import(PLAIN, RowsOfAnswers("old", 0, (row,)))[0].fingerprint for row in rows]
    assert parts[0] == parts[1]
    assert len(set(parts)) == 3


@pytest.mark.parametrize(
    ("settings", "row", "field"),
    [
        (PLAIN, ranking("i1", "i10"), "ranking.item_ids[1]"),
        (PLAIN, ranking("i1", "i2", "i1"), "ranking.item_ids[2]"),
        (PLAIN, ranking("i1"), "ranking.item_ids"),
        (PLAIN, ranking(*(f"i{n % 10}" for n in range(13))), "ranking.item_ids"),
        (PLAIN, ranking("i1", "i2", shown=("i1", "i2", "i3")), "ranking"),
        (PLAIN, ranking("i1", "i2", shown=("i1", "x")), "item_ids[1]"),
        (PLAIN, ranking("i1", "i2", query="q0"), "query_id"),
        (QUERIED, ranking("i1", "i2"), "query_id"),
        (QUERIED, ranking("i1", "i2", query="q4"), "query_id"),
        (PLAIN, GivenPastAnswer("", ("i1", "i2"), GivenChoice("i1")), "ranking"),
        (PLAIN, GivenPastAnswer("", ("i1", "i2"), None), "ranking"),
        (CHOICES, GivenPastAnswer("", (), GivenChoice("i1")), "item_ids"),
        (CHOICES, GivenPastAnswer("", ("i1", "i2"), GivenChoice("i3")), "chosen_item_id"),
        (PAIRS, GivenPastAnswer("", ("i1", "i2", "i3"), GivenChoice("i3")), "item_ids"),
        (RATINGS, GivenPastAnswer("", (), GivenRatings(())), "ratings.ratings"),
        (RATINGS, GivenPastAnswer("", (), rated(i1=float("nan"))), "ratings.ratings[0].value"),
        (RATINGS, GivenPastAnswer("", (), rated(i1=1.0, x=1.0)), "ratings.ratings[1]"),
    ],
)
def test_a_bad_row_is_named_with_its_field(settings: StudySettings, row: GivenPastAnswer, field: str) -> None:
    good = read_good(settings)
    with pytest.raises(InvalidArgumentError) as caught:
        read_import(settings, RowsOfAnswers("old", 0, (good, row)))
    assert caught.value.field == f"rows[1].{field}"


def read_good(settings: StudySettings) -> GivenPastAnswer:
    query = "q0" if settings.queries else ""
    answers: dict[AnswerKind, GivenAnswer] = {
        AnswerKind.RANKING: GivenRanking(("i1", "i0")),
        AnswerKind.RATINGS: rated(i1=1.0, i0=0.0),
    }
    return GivenPastAnswer(query, ("i0", "i1"), answers.get(settings.answer_kind, GivenChoice("i0")))


def test_imported_answers_are_folded_wherever_a_reader_pauses() -> None:
    events = [
        StudyCreated(PLAIN),
        AnswersImported("old", 0, (past(0, (0, 1), RankingAnswer((1, 0))),)),
        AnswersImported("old", 1, (past(0, (2, 9), RankingAnswer((0, 1))), past(0, (0, 1), RankingAnswer((0, 1))))),
    ]
    log = [LoggedStudyEvent(position, position, event) for position, event in enumerate(events, 1)]
    models = [reduce(fold, log[1:end], begin("one", log[0])) for end in (1, 2, 3)]
    assert [len(model.imported) for model in models] == [0, 1, 3]
    assert fold(models[1], log[2]) == models[2]
    assert list(models[2].imported.values()) == [*events[1].answers, *events[2].answers]  # type: ignore[union-attr]
    assert models[2].answer_count == 3
    for shown in (QuestionList(0, (0, 10)), QuestionList(1, (0, 1)), QuestionList(0, (-1, 0))):
        bad = AnswersImported("old", 3, (PastAnswer(shown, RankingAnswer((0, 1))),))
        with pytest.raises(CorruptDataError):
            fold(models[2], LoggedStudyEvent(4, 4, bad))


@pytest.mark.parametrize("settings", [PLAIN, QUERIED, RATINGS])
def test_counts_and_information_are_those_of_each_answer_by_itself(settings: StudySettings) -> None:
    rng, pool = np.random.default_rng(3), build_pool(settings)
    n_items = pool.n_items
    subsets = np.array([[0, 1, 2], [4, 5, 6]])
    design = SubsetDesign(subsets, np.array([0.5, 0.5]), 0.0, 0.0, 1)
    lists = [[2, 0, 1], [0, 1, 2], [6, 5, 4]]
    for size in (2, 3, 5, 2, 3):
        query = int(rng.integers(pool.n_queries))
        rows = (query * n_items + rng.choice(n_items, size, replace=False)).tolist()
        lists += [rows] * int(rng.integers(1, 4)) if sorted(rows) not in subsets.tolist() else []
    counts, besides = count_answers(pool, design, lists)
    assert counts.tolist() == [2, 1]
    expected = np.zeros_like(besides)
    for rows in lists[3:]:
        x = pool.directions[rows]
        if settings.answer_kind is AnswerKind.RATINGS:
            expected += x.T @ x
        else:
            pairs = [x[a] - x[b] for a in range(len(x)) for b in range(a)]
            expected += sum(np.outer(pair, pair) for pair in pairs)
    np.testing.assert_allclose(besides, expected, rtol=1e-9, atol=1e-9)


def run(scenario: Callable[[StudyStore, ThreadPoolExecutor], Awaitable[None]], *, in_valkey: bool = False) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(4) as executor:
            if not in_valkey:
                await scenario(MemoryStudies(clock_ms=lambda: 1000), executor)
                return
            with running_server(valkey_binary()) as server:
                async with RedisStores(server.unix_url, clock=StoreClock()).connect() as store:
                    await scenario(store.studies(), executor)

    asyncio.run(main())


def elsewhere(question: Question, answer: GivenAnswer) -> GivenPastAnswer:
    return GivenPastAnswer(question.query_id, question.item_ids, answer)


@pytest.mark.parametrize("in_valkey", [False, True], ids=["memory", "valkey"])
@pytest.mark.parametrize("settings", [PLAIN, QUERIED, RATINGS], ids=["rankings", "queries", "ratings"])
def test_the_same_answers_from_elsewhere_tell_the_same_as_the_studys_own(
    settings: StudySettings, *, in_valkey: bool
) -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor) -> None:
        studies, designer = studies_of(store, executor)
        designer.start()
        other = replace(TASTE, study="other")
        for name in (TASTE, other):
            await opened(studies, settings, name)
        asked = await studies.next_questions(TASTE, count=20, request_id="")
        answers = [(one, given(one, settings)) for one in asked.questions]
        await studies.submit_answers(TASTE, [SubmittedAnswer(one.question_id, answer) for one, answer in answers])
        sent = RowsOfAnswers("old", 0, tuple(elsewhere(one, answer) for one, answer in answers))
        outcome = await studies.import_answers(other, sent)
        assert (outcome.status, outcome.next_row, outcome.accepted) == (RecordStatus.RECORDED, 20, 20)
        assert (await studies.import_answers(other, sent)).status is RecordStatus.REPEATED
        own, taken = [await studies.get_preferences(name, after=0, queries=9, items=999) for name in (TASTE, other)]
        assert (own.answered, taken.answered) == (20, 20)
        assert flat(taken) == pytest.approx(flat(own), rel=1e-9, abs=1e-9)
        assert taken.gathered == pytest.approx(own.gathered, rel=1e-9)
        further = [await studies.next_questions(name, count=10, request_id="") for name in (TASTE, other)]
        assert [lists(batch.questions) for batch in further[:1]] == [lists(batch.questions) for batch in further[1:]]
        assert [(batch.asked, batch.answered) for batch in further] == [(30, 20), (10, 0)]
        # Whoever reads the log later has the same to the bit.
        later, _ = studies_of(store, executor, owner="later")
        assert await later.get_preferences(other, after=0, queries=9, items=999) == taken
        await designer.stop()

    run(scenario, in_valkey=in_valkey)


def flat(preferences: Preferences) -> list[float]:
    by_id = [sorted(query.items, key=lambda item: item.item_id) for query in preferences.queries]
    return [number for items in by_id for item in items for number in (item.utility, item.standard_deviation)]


def lists(questions: Sequence[Question]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.query_id, one.item_ids) for one in questions]


def test_answers_may_come_before_the_design_and_of_other_sizes() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor) -> None:
        held = HeldExecutor(1)
        studies, designer = studies_of(store, executor, designs=held)
        await studies.create_study(TASTE, PLAIN)
        order = [f"i{n}" for n in np.argsort(-ITEMS[:, 0])]
        rows = tuple(
            ranking(*order[start : start + size]) for start in range(3) for size in (2, 3, 4) for _ in range(5)
        )
        await studies.import_answers(TASTE, RowsOfAnswers("old", 0, rows))
        early = await studies.get_preferences(TASTE, after=0, queries=1, items=10)
        assert (early.answered, early.gathered) == (45, 0.0)
        ranks = {item.item_id: item.rank for item in early.queries[0].items}
        assert [ranks[one] for one in order[:6]] == sorted(ranks[one] for one in order[:6])
        held.let_go()
        await studies.wait_for_design(TASTE, seconds=PATIENCE)
        late = await studies.get_preferences(TASTE, after=0, queries=1, items=10)
        assert late.queries == early.queries
        assert 0.0 < late.gathered < 1.0
        prior = await studies.prior("shop", "taste", context_dim=1)
        assert prior.answers == 45
        await designer.stop()
        held.shutdown()

    run(scenario)


def test_a_refused_call_changes_nothing() -> None:
    async def scenario(store: StudyStore, executor: ThreadPoolExecutor) -> None:
        studies, designer = studies_of(store, executor)
        await opened(studies)
        await designer.stop()
        good = ranking("i1", "i0")
        await studies.import_answers(TASTE, RowsOfAnswers("old", 0, (good,)))
        before = await store.read_study(TASTE, start=1, limit=99)
        for sent, error in (
            (RowsOfAnswers("old", 1, (good, ranking("i1", "x"))), InvalidArgumentError),
            (RowsOfAnswers("old", 0, (good, good)), ConflictError),
            (RowsOfAnswers("old", 2, (good,)), NotReadyError),
        ):
            with pytest.raises(error):
                await studies.import_answers(TASTE, sent)
        assert await store.read_study(TASTE, start=1, limit=99) == before
        assert (await studies.find_import(TASTE, "old")).next_row == 1

    run(scenario)
