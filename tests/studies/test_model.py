"""The fold of a study's log: a value after every event, however the log is read, and cheap to take further."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from functools import reduce
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import (
    AnswerKind,
    ChoiceAnswer,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignRestarted,
    LoggedStudyEvent,
    QuestionAnswered,
    QuestionList,
    QuestionsAsked,
    StudyCreated,
    StudyDesign,
    StudyEvent,
    StudyItem,
    StudySettings,
)
from topk_bandit.studies.model import StudyModel, begin, fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.studies.growing import GrowingMap

SETTINGS = StudySettings(
    items=tuple(StudyItem(f"i{number}", (float(number), 1.0)) for number in range(4)),
    queries=(),
    answer_kind=AnswerKind.CHOICE,
    list_size=2,
    budget=100_000,
)
LISTS = tuple(QuestionList(0, pair) for pair in ((0, 1), (1, 2), (2, 3)))
DESIGN = StudyDesign(LISTS, weights=(0.5, 0.3, 0.2), log_det=1.0, gap=0.1, target_gap=0.1, steps=7)
OPENING: tuple[StudyEvent, ...] = (
    StudyCreated(SETTINGS),
    DesignFailed(1, "", "reference"),
    DesignRestarted(2),
    DesignCancelled(2),
    DesignRestarted(3),
    DesignChosen(3, DESIGN),
)


def log_of(events: Sequence[StudyEvent]) -> list[LoggedStudyEvent]:
    return [LoggedStudyEvent(position, 1000 + position, event) for position, event in enumerate(events, 1)]


def replay(log: Sequence[LoggedStudyEvent]) -> StudyModel:
    return reduce(fold, log[1:], begin("incarnation", log[0]))


def asking_and_answering(sizes: Sequence[int]) -> list[StudyEvent]:
    """Return requests for so many questions, each followed by answers to all but its first question, the last first."""
    events, asked = list[StudyEvent](), 0
    for number, size in enumerate(sizes):
        events.append(QuestionsAsked(f"r{number}", tuple((asked + place) % 3 for place in range(size))))
        events += [QuestionAnswered(asked + place, ChoiceAnswer(place % 2)) for place in range(size, 1, -1)]
        asked += size
    return events


@given(st.lists(st.integers(1, 6), max_size=12), st.sets(st.integers(1, 60)))
def test_a_replay_gives_equal_values_wherever_it_pauses(sizes: list[int], pauses: set[int]) -> None:
    log = log_of([*OPENING, *asking_and_answering(sizes)])
    whole = replay(log)
    cuts = sorted({1, *(min(pause, len(log)) for pause in pauses), len(log)})
    model, kept = begin("incarnation", log[0]), []
    for first, last in pairwise(cuts):
        kept.append((first, model))
        model = reduce(fold, log[first:last], model)
    assert model == whole
    for version, older in kept:  # what later events were folded into is as it was
        assert older.version == version
        assert older == replay(log[:version])
        assert (older == whole) == (version == len(log))


def test_what_is_folded_can_be_read() -> None:
    model = replay(log_of([*OPENING, *asking_and_answering([3, 2])]))
    assert (model.version, model.design, len(model.questions)) == (len(OPENING) + 5, DESIGN, 5)
    assert dict(model.answers) == {3: ChoiceAnswer(1), 2: ChoiceAnswer(0), 5: ChoiceAnswer(0)}
    assert list(model.answers) == [3, 2, 5]
    assert [model.knows_request(one) for one in ("r0", "r1", "r2", "")] == [True, True, False, False]
    shown = [model.question(number) for number in range(1, 6)]
    assert [one.item_ids for one in shown] == [("i0", "i1"), ("i1", "i2"), ("i2", "i3"), ("i0", "i1"), ("i1", "i2")]
    assert [model.numbers[one.question_id] for one in shown] == [1, 2, 3, 4, 5]


def test_two_continuations_of_one_value_do_not_meet() -> None:
    stem = replay(log_of([*OPENING, QuestionsAsked("r", (0, 1))]))
    at = stem.version + 1
    one, other = (fold(stem, LoggedStudyEvent(at, 9, QuestionAnswered(n, ChoiceAnswer(0)))) for n in (1, 2))
    assert (list(stem.answers), list(one.answers), list(other.answers)) == ([], [1], [2])


def test_a_model_can_not_be_changed() -> None:
    model = replay(log_of(OPENING))
    with pytest.raises(FrozenInstanceError):
        model.design = None  # type: ignore[misc]


ANSWERED = [*OPENING, QuestionsAsked("r", (0,)), QuestionAnswered(1, ChoiceAnswer(0))]


@pytest.mark.parametrize(
    "events",
    [
        [*OPENING, StudyCreated(SETTINGS)],
        [*ANSWERED, QuestionsAsked("r", (1,))],
        [*ANSWERED, QuestionAnswered(1, ChoiceAnswer(0))],
        [*ANSWERED, QuestionAnswered(2, ChoiceAnswer(0))],
        [DesignChosen(1, DESIGN)],
        [StudyCreated(SETTINGS), QuestionsAsked("r", (0,))],
        [*OPENING, QuestionsAsked("r", (0, 3))],
    ],
    ids=["created-twice", "request-twice", "answer-twice", "no-such-question", "no-creation", "no-design", "no-list"],
)
def test_an_event_that_can_not_follow_is_refused(events: Sequence[StudyEvent]) -> None:
    with pytest.raises(CorruptDataError):
        replay(log_of(events))


def test_events_follow_without_gaps() -> None:
    model = replay(log_of(OPENING))
    for position in (model.version, model.version + 2):
        with pytest.raises(CorruptDataError, match="can't follow"):
            fold(model, replace(model.last, position=position))


def entries_copied(count: int) -> int:
    """Return how many entries are copied while so many questions are asked and answered one by one."""
    steps = [(QuestionsAsked(f"r{n}", (0,)), QuestionAnswered(n + 1, ChoiceAnswer(0))) for n in range(count)]
    log = log_of([*OPENING, *chain.from_iterable(steps)])
    model, total = begin("incarnation", log[0]), 0
    for logged in log[1:]:
        after = fold(model, logged)
        total += sum(
            len(block)
            for name in ("questions", "numbers", "answers")
            for block in _new_blocks(getattr(model, name), getattr(after, name))
        )
        model = after
    return total


def _new_blocks(before: GrowingMap[object, object], after: GrowingMap[object, object]) -> list[dict[object, object]]:
    return [block for block in after.blocks if all(block is not known for known in before.blocks)]


def test_folding_ten_thousand_events_copies_little_more_than_in_proportion() -> None:
    quarter, whole = entries_copied(1_250), entries_copied(5_000)
    assert whole <= 4 * 1.3 * quarter  # lists copied at every event would take 16 times as much
    assert whole <= 3 * 5_000 * 14
