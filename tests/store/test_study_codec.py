"""Studies as bytes: whole after a round trip, and refused when they are anything else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.study_samples import CHOSEN, DESIGN, PROGRESS, answers, study_settings

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswersImported,
    ChoiceAnswer,
    DeclinedAnswer,
    DeclineReason,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignRestarted,
    LinkCreated,
    LinkRevoked,
    LinkSettings,
    PastAnswer,
    PreferenceModel,
    QuestionAnswered,
    QuestionList,
    QuestionsAsked,
    RankingAnswer,
    RatingsAnswer,
    StudyCreated,
    StudyDesign,
    StudyItem,
    StudyQuery,
    StudySettings,
    TiersAnswer,
)
from topk_bandit.store import study_codec as codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.domain.studies import StudyEvent

EVENTS: list[StudyEvent] = [
    StudyCreated(study_settings()),
    StudyCreated(replace(study_settings(), queries=())),
    DesignRestarted(7),
    CHOSEN,
    DesignCancelled(2),
    DesignFailed(1, "study.items", "are\nalike"),
    QuestionsAsked("req-\u00e9\U0001f600", (1, 0)),
    QuestionsAsked("", ()),
    *[QuestionAnswered(number, answer) for number, answer in enumerate(answers(), 1)],
    AnswersImported("old-\u00e9", 1000, tuple(PastAnswer(QuestionList(1, (0, 2)), one) for one in answers())),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_whole_after_a_round_trip(event: StudyEvent) -> None:
    assert codec.decode_study_event(codec.encode_study_event(event)) == event


@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_an_event_is_the_bytes_that_it_was_when_recorded(number: int) -> None:
    recorded = json.loads(Path(__file__).with_name("recorded_study_events.json").read_text(encoding="utf-8"))
    assert len(recorded) == len(EVENTS)
    assert codec.decode_study_event(recorded[number].encode()) == EVENTS[number]
    assert codec.encode_study_event(EVENTS[number]) == recorded[number].encode()


numbers = st.floats(-1e6, 1e6)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


seen = st.just("") | texts


@st.composite
def settings_of_any_kind(draw: st.DrawFn) -> StudySettings:
    items, queries, list_size = draw(st.integers(1, 4)), draw(st.integers(0, 3)), draw(st.integers(1, 12))
    given = st.binary(min_size=4 * (1 + list_size), max_size=4 * (1 + list_size))
    width, across = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rows = draw(st.lists(st.tuples(*[numbers] * width), min_size=items, max_size=items))
    columns = draw(st.lists(st.tuples(*[numbers] * across), min_size=queries, max_size=queries))
    return StudySettings(
        items=tuple(StudyItem(f"{n}{draw(texts)}", row, draw(seen), draw(seen)) for n, row in enumerate(rows)),
        queries=tuple(StudyQuery(draw(texts), column) for column in columns),
        answer_kind=draw(st.sampled_from(AnswerKind)),
        list_size=list_size,
        budget=draw(st.integers(1, 10**5)),
        features_alone=draw(st.booleans()),
        model=draw(st.none() | st.sampled_from(PreferenceModel)),
        stream_rate=draw(st.none() | st.floats(1e-6, 1e3)),
        lists=draw(st.lists(given, max_size=3).map(b"".join)),
    )


places = st.integers(0, 2**53)
lists = st.builds(QuestionList, places, st.lists(places, min_size=1, max_size=4).map(tuple))
finite = st.floats(allow_nan=False, allow_infinity=False)
weighted = st.lists(st.tuples(lists, finite), max_size=4)
designs = st.builds(
    lambda pairs, **others: StudyDesign(tuple(one for one, _ in pairs), tuple(weight for _, weight in pairs), **others),
    weighted,
    log_det=finite,
    gap=finite,
    target_gap=finite,
    steps=places,
)
any_answers = st.one_of(
    st.builds(RatingsAnswer, st.lists(finite, max_size=4).map(tuple)),
    st.builds(RankingAnswer, st.lists(places, max_size=4).map(tuple)),
    st.builds(ChoiceAnswer, places),
    st.builds(TiersAnswer, st.lists(st.lists(places, max_size=3).map(tuple), max_size=3).map(tuple)),
    st.builds(DeclinedAnswer, st.sampled_from(DeclineReason)),
)
events = st.one_of(
    st.builds(StudyCreated, settings_of_any_kind()),
    st.builds(DesignRestarted, places),
    st.builds(DesignChosen, places, designs),
    st.builds(DesignCancelled, places),
    st.builds(DesignFailed, places, texts, texts),
    st.builds(QuestionsAsked, texts, st.lists(places, max_size=4).map(tuple)),
    st.builds(QuestionAnswered, places, any_answers, seen),
    st.builds(LinkCreated, texts, texts, st.builds(LinkSettings, places, places, places, texts, texts)),
    st.builds(LinkRevoked, texts),
)


@given(events)
def test_any_event_is_whole_after_a_round_trip(event: StudyEvent) -> None:
    read = codec.decode_study_event(codec.encode_study_event(event))
    assert read == event
    assert type(read) is type(event)


def test_settings_of_a_design_for_own_parts_have_the_bytes_of_the_version_before() -> None:
    """Which never knew of features_alone, models, texts, nor of given lists."""
    settings = study_settings()
    stored = codec.encode_study_event(StudyCreated(settings), 1)
    newer = {"features_alone", "model", "stream_rate", "lists", "titles", "pictures"}
    assert not newer & json.loads(stored)["settings"].keys()
    streamed = replace(settings, model=PreferenceModel.STREAM_LOGISTIC, stream_rate=0.5)
    assert b'"model":"stream_logistic","stream_rate":0.5' in codec.encode_study_event(StudyCreated(streamed), 2)
    alone = replace(settings, features_alone=True)
    assert b'"features_alone":true' in codec.encode_study_event(StudyCreated(alone), 2)
    assert codec.settings_digest(alone) != codec.settings_digest(settings)


@given(settings_of_any_kind())
def test_settings_and_shape_are_whole_after_a_round_trip(settings: StudySettings) -> None:
    event = codec.decode_study_event(codec.encode_study_event(StudyCreated(settings)))
    assert event == StudyCreated(settings)
    shape = codec.shape_of(settings)
    assert codec.decode_shape(codec.encode_shape(shape)) == shape
    assert codec.settings_digest(event.settings) == codec.settings_digest(settings)


@given(settings_of_any_kind(), settings_of_any_kind())
def test_other_settings_have_another_digest(one: StudySettings, other: StudySettings) -> None:
    assert (codec.settings_digest(one) == codec.settings_digest(other)) == (one == other)


def test_equal_answers_are_equal_bytes() -> None:
    assert codec.encode_answer(RatingsAnswer((0.0, 1.0))) == codec.encode_answer(RatingsAnswer((-0.0, 1)))
    assert len({codec.encode_answer(answer) for answer in answers()}) == 3


def test_progress_is_whole_after_a_round_trip() -> None:
    assert codec.decode_progress(codec.encode_progress(PROGRESS)) == PROGRESS


def spoiled(event: StudyEvent, **fields: Any) -> bytes:  # noqa: ANN401
    """Return an event's bytes with fields replaced, given by path with double underscores; `...` takes one out."""
    document = json.loads(codec.encode_study_event(event))
    for path, value in fields.items():
        *way, last = path.split("__")
        place = document
        for step in way:
            place = place[step]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return json.dumps(document).encode()


SHOWN = replace(study_settings(), items=tuple(replace(one, title="t") for one in study_settings().items))
BROKEN: dict[str, bytes] = {
    "an unknown data version": spoiled(EVENTS[0], v=0),
    "an unknown type": spoiled(EVENTS[0], type="study_sold"),
    "no settings": spoiled(EVENTS[0], settings=...),
    "features cut short": spoiled(EVENTS[0], settings__item_features__numbers="AAAAAAAA"),
    "features that are no base64": spoiled(EVENTS[0], settings__item_features__numbers="\u00e9"),
    "a negative width": spoiled(EVENTS[0], settings__item_features__width=-2),
    "an unknown kind": spoiled(EVENTS[0], settings__answer_kind="mood"),
    "a budget in words": spoiled(EVENTS[0], settings__budget="five"),
    "lists cut short": spoiled(StudyCreated(SHOWN), settings__lists="AAAAAAAA"),
    "lists that are no base64": spoiled(StudyCreated(SHOWN), settings__lists="\u00e9"),
    "a title too few": spoiled(StudyCreated(SHOWN), settings__titles=["a"]),
    "a weight too many": spoiled(CHOSEN, design__weights=[0.1] * 3),
    "a list of no items": spoiled(CHOSEN, design__lists=[[0], [1]]),
    "a list of text": spoiled(CHOSEN, design__lists=[[0, "a"], [1, 2]]),
    "a gap that is no number": spoiled(CHOSEN, design__gap=None),
    "an attempt that is a flag": spoiled(DesignCancelled(1), attempt=True),
    "an answer of no kind": spoiled(EVENTS[-2], answer={}),
    "an answer of another kind": spoiled(EVENTS[-2], answer={"shrug": 1}),
    "a rating that is a flag": spoiled(EVENTS[-4], answer={"ratings": [True]}),
    "an answer of two kinds": spoiled(EVENTS[-4], answer={"ratings": [1.5], "choice": 1}),
    "an answer of no value": spoiled(EVENTS[-4], answer={"ratings": None}),
    "a list of one item": spoiled(CHOSEN, design__lists=[[0, 1], [1]]),
    "an answer from elsewhere about nothing": spoiled(EVENTS[-1], answers=[{"list": [0], "answer": {"choice": 0}}]),
    "an answer from elsewhere that is no object": spoiled(EVENTS[-1], answers=[7]),
}


def wrong(value: object) -> list[object]:
    """Return values of other types; a whole number will do for a float."""
    same = {int, float} if isinstance(value, float) else {type(value)} - {list, dict}
    return [other for other in [None, True, 17, 1.5, "text", [None], {"x": 1}] if type(other) not in same]


def damaged(document: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401, what JSON has
    """Yield copies of a document, each with a value of another type, less or more, and what the refusal must name."""
    for place in range(len(document)) if isinstance(document, list) else document:
        value = document[place]
        inside = damaged(value) if isinstance(value, list | dict) else ()
        for named, other in [*[("" if isinstance(place, int) else place, other) for other in wrong(value)], *inside]:
            copy = document.copy()
            copy[place] = other
            yield named, copy
    if isinstance(document, dict):
        yield from ((gone, {key: document[key] for key in document if key != gone}) for gone in document)
        yield "surplus", {**document, "surplus": 1}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_damaged_event_is_refused(event: StudyEvent) -> None:
    for named, copy in damaged(json.loads(codec.encode_study_event(event))):
        with pytest.raises(CorruptDataError) as refused:
            codec.decode_study_event(json.dumps(copy).encode(), wholly=True)
        assert named in str(refused.value) or "answer" in str(refused.value)


@pytest.mark.parametrize("what", BROKEN)
def test_what_could_not_have_been_written_is_refused(what: str) -> None:
    with pytest.raises(CorruptDataError):
        codec.decode_study_event(BROKEN[what])


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for decode in (codec.decode_study_event, codec.decode_shape, codec.decode_progress):
        with pytest.raises(CorruptDataError):
            decode(data)


def test_a_design_is_kept_to_the_last_digit() -> None:
    design = replace(DESIGN, weights=(1 / 3, 2 / 3), log_det=-1e-300, gap=5e-324)
    event = replace(CHOSEN, design=design)
    assert codec.decode_study_event(codec.encode_study_event(event)) == event
