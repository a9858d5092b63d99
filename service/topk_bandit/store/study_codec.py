"""Encode a study's values as bytes, and decode them, as `topk_bandit.store.codec` does for bandits.

Features are written as base64 of little-endian float64, so that every number is decoded exactly. Bytes that no encoder
here could have written raise `CorruptDataError`; nothing is ever guessed or repaired.
"""

from __future__ import annotations

import base64
import binascii
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import astuple

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import (
    BYTES_PER_NUMBER,
    AnswerKind,
    AnswersImported,
    ChoiceAnswer,
    DeclinedAnswer,
    DeclineReason,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
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
    StudyShape,
    TiersAnswer,
)
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.documents import (
    EventLayout,
    Layout,
    Stamped,
    any_of,
    decoder,
    derive,
    pack,
    plain,
    refuse,
    stamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.domain.studies import Answer, StudyEvent
    from topk_bandit.store.documents import Decoder, Document

__all__ = [
    "decode_progress",
    "decode_shape",
    "decode_study_event",
    "encode_answer",
    "encode_progress",
    "encode_shape",
    "encode_study_event",
    "settings_digest",
    "shape_of",
]


_List: TypeAlias = Annotated[tuple[int, ...], Meta(min_length=2)]
"""A list's query, and its items."""


def shape_of(settings: StudySettings) -> StudyShape:
    """Return the settings without the items and queries themselves."""
    return StudyShape(
        answer_kind=settings.answer_kind,
        list_size=settings.list_size,
        budget=settings.budget,
        items=len(settings.items),
        item_features=len(settings.items[0].features),
        queries=len(settings.queries),
        query_features=len(settings.queries[0].features) if settings.queries else 0,
    )


def settings_digest(settings: StudySettings) -> str:
    """Return a digest of settings: equal for equal ones."""
    return blake2b(pack(_settings_document(settings)), digest_size=16).hexdigest()


def encode_shape(shape: StudyShape, version: int = OLDEST) -> bytes:
    """Return a shape as bytes."""
    return stamp(shape, version=version)


def decode_shape(data: bytes) -> StudyShape:
    """Return the shape in `data`, or raise `CorruptDataError`."""
    return _decode_shape(data)


def encode_progress(progress: DesignProgress, version: int = OLDEST) -> bytes:
    """Return progress as bytes."""
    return stamp(progress, version=version)


def decode_progress(data: bytes) -> DesignProgress:
    """Return the progress in `data`, or raise `CorruptDataError`."""
    return _decode_progress(data)


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as bytes: equal answers have equal bytes."""
    return pack(_answer_document(answer))


def encode_study_event(event: StudyEvent, version: int = OLDEST) -> bytes:
    """Return an event as bytes."""
    return stamp(_event_document(event), _TAGS[type(event)], version=version)


def decode_study_event(data: bytes, *, wholly: bool = False) -> StudyEvent:
    """Return the event in `data`, or raise `CorruptDataError`; `wholly` is as for `Decoder`."""
    return _decode_event(data, wholly=wholly)


_decode_shape: Decoder[StudyShape] = decoder(derive(StudyShape, Stamped))
_decode_progress: Decoder[DesignProgress] = decoder(derive(DesignProgress, Stamped))


def _features_document(rows: Sequence[tuple[float, ...]]) -> Document:
    width = len(rows[0]) if rows else 0
    numbers = [plain(number) for row in rows for number in row]
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    return {"width": width, "numbers": base64.b64encode(packed).decode()}


class _Features(Layout):
    width: int
    numbers: str

    def rows(self, count: int) -> list[tuple[float, ...]]:
        try:
            packed = base64.b64decode(self.numbers, validate=True)
            numbers = struct.unpack(f"<{count * self.width}d", packed)
        except (binascii.Error, ValueError, struct.error) as error:
            raise CorruptDataError(f"stored features are not {count} rows of {self.width} numbers") from error
        return [numbers[row * self.width : (row + 1) * self.width] for row in range(count)]


def _settings_document(settings: StudySettings) -> Document:
    chosen: Document = {
        **({"features_alone": True} if settings.features_alone else {}),
        **({"model": settings.model} if settings.model else {}),
        **({} if settings.stream_rate is None else {"stream_rate": plain(settings.stream_rate)}),
        **({"lists": base64.b64encode(settings.lists).decode()} if settings.lists else {}),
        **_texts_document("titles", [item.title for item in settings.items]),
        **_texts_document("pictures", [item.picture_url for item in settings.items]),
    }
    return {
        "items": [item.item_id for item in settings.items],
        "item_features": _features_document([item.features for item in settings.items]),
        "queries": [query.query_id for query in settings.queries],
        "query_features": _features_document([query.features for query in settings.queries]),
        "answer_kind": settings.answer_kind,
        "list_size": settings.list_size,
        "budget": settings.budget,
        **chosen,
    }


def _list_document(one: QuestionList) -> tuple[int, ...]:
    return one.query, *one.items


def _read_list(stored: _List) -> QuestionList:
    return QuestionList(stored[0], stored[1:])


def _texts_document(name: str, texts: list[str]) -> Document:
    """Return a text for each item; nothing where no item has one."""
    return {name: texts} if any(texts) else {}


def _texts_of(name: str, stored: tuple[str, ...] | UnsetType, count: int) -> tuple[str, ...]:
    texts = ("",) * count if stored is UNSET else stored
    return texts if len(texts) == count else refuse(name, f"{len(texts)} of {count} items")


class _Settings(Layout):
    items: tuple[str, ...]
    item_features: _Features
    queries: tuple[str, ...]
    query_features: _Features
    answer_kind: AnswerKind
    list_size: int
    budget: int
    features_alone: Literal[True] | UnsetType = UNSET
    model: PreferenceModel | UnsetType = UNSET
    stream_rate: float | UnsetType = UNSET
    lists: str = ""
    titles: tuple[str, ...] | UnsetType = UNSET
    pictures: tuple[str, ...] | UnsetType = UNSET

    def read(self) -> StudySettings:
        count = len(self.items)
        texts = _texts_of("titles", self.titles, count), _texts_of("pictures", self.pictures, count)
        items = map(StudyItem, self.items, self.item_features.rows(count), *texts)
        queries = map(StudyQuery, self.queries, self.query_features.rows(len(self.queries)))
        return StudySettings(
            items=tuple(items),
            queries=tuple(queries),
            answer_kind=self.answer_kind,
            list_size=self.list_size,
            budget=self.budget,
            features_alone=self.features_alone is True,
            model=None if self.model is UNSET else self.model,
            stream_rate=None if self.stream_rate is UNSET else self.stream_rate,
            lists=self._read_lists(),
        )

    def _read_lists(self) -> bytes:
        try:
            packed = base64.b64decode(self.lists, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptDataError("stored lists are no bytes") from error
        width = BYTES_PER_NUMBER * (1 + self.list_size)
        return packed if len(packed) % width == 0 else refuse("lists", f"{len(packed)} bytes, not lists of {width}")


def _design_document(design: StudyDesign) -> Document:
    return {
        "lists": list(map(_list_document, design.lists)),
        "weights": design.weights,
        "steps": design.steps,
        "log_det": design.log_det,
        "gap": design.gap,
        "target_gap": design.target_gap,
    }


class _Design(Layout):
    lists: tuple[_List, ...]
    weights: tuple[float, ...]
    steps: int
    log_det: float
    gap: float
    target_gap: float

    def read(self) -> StudyDesign:
        if len(self.weights) != len(self.lists):
            refuse("weights", f"{len(self.weights)} of {len(self.lists)} lists")
        lists = tuple(map(_read_list, self.lists))
        return StudyDesign(lists, self.weights, self.log_det, self.gap, self.target_gap, self.steps)


def _answer_document(answer: Answer) -> Document:
    match answer:
        case RatingsAnswer(values):
            return {"ratings": [plain(value) for value in values]}
        case RankingAnswer(places):
            return {"ranking": places}
        case ChoiceAnswer(place):
            return {"choice": place}
        case TiersAnswer(tiers):
            return {"tiers": tiers}
        case DeclinedAnswer(reason):
            return {"declined": reason}


class _Answer(Layout):
    ratings: tuple[float, ...] | UnsetType = UNSET
    ranking: tuple[int, ...] | UnsetType = UNSET
    choice: int | UnsetType = UNSET
    tiers: tuple[tuple[int, ...], ...] | UnsetType = UNSET
    declined: DeclineReason | UnsetType = UNSET

    def read(self) -> Answer:
        answers: list[Answer] = [
            kind(value) for kind, value in zip(_ANSWERS, astuple(self), strict=True) if value is not UNSET
        ]
        return answers[0] if len(answers) == 1 else refuse("answer", f"{len(answers)} of a kind")


_ANSWERS: tuple[Callable[..., Answer], ...] = (
    RatingsAnswer,
    RankingAnswer,
    ChoiceAnswer,
    TiersAnswer,
    DeclinedAnswer,
)


def _past_answer_document(past: PastAnswer) -> Document:
    whole: Document = {"list": _list_document(past.shown), "answer": _answer_document(past.answer)}
    return whole | _respondent_document(past.respondent)


def _respondent_document(respondent: str) -> Document:
    return {"respondent": respondent} if respondent else {}


class _PastAnswer(Layout):
    list: _List
    answer: _Answer
    respondent: str = ""

    def read(self) -> PastAnswer:
        return PastAnswer(_read_list(self.list), self.answer.read(), self.respondent)


def _event_document(event: StudyEvent) -> object:
    match event:
        case StudyCreated(settings):
            return {"settings": _settings_document(settings)}
        case DesignChosen(attempt, design):
            return {"attempt": attempt, "design": _design_document(design)}
        case QuestionAnswered(question, answer, respondent):
            whole: Document = {"question": question, "answer": _answer_document(answer)}
            return whole | _respondent_document(respondent)
        case AnswersImported(import_id, first_row, answers):
            past = [_past_answer_document(one) for one in answers]
            return {"import_id": import_id, "first_row": first_row, "answers": past}
        case _:
            return event


_PARTS = {
    "StudySettings": _Settings,
    "LinkSettings": derive(LinkSettings),
    "StudyDesign": _Design,
    "Answer": _Answer,
    "PastAnswer": _PastAnswer,
}
_TAGS: dict[type[StudyEvent], str] = {
    StudyCreated: "study_created",
    DesignRestarted: "design_restarted",
    DesignChosen: "design_chosen",
    DesignCancelled: "design_cancelled",
    DesignFailed: "design_failed",
    QuestionsAsked: "questions_asked",
    QuestionAnswered: "answered",
    AnswersImported: "answers_imported",
    LinkCreated: "link_created",
    LinkRevoked: "link_revoked",
}


def _make_answered(question: int, answer: Answer, respondent: str | None) -> QuestionAnswered:
    return QuestionAnswered(question, answer, respondent or "")


_MAKERS: dict[type[StudyEvent], Callable[..., StudyEvent]] = {QuestionAnswered: _make_answered}
_decode_event: Decoder[StudyEvent] = decoder(
    any_of(
        derive(kind, EventLayout, tag=tag, of=_MAKERS.get(kind), parts=_PARTS, left_out=["respondent"])
        for kind, tag in _TAGS.items()
    )
)
