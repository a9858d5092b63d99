"""Encode a study's values as bytes, and decode them, as `topk_bandit.store.codec` does for bandits.

Features are written as base64 of little-endian float64, so that every number is decoded exactly. Bytes that no encoder
here could have written raise `CorruptDataError`; nothing is ever guessed or repaired.
"""

from __future__ import annotations

import base64
import binascii
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import (
    AnswerKind,
    ChoiceAnswer,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
    DesignRestarted,
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
)
from topk_bandit.store.documents import SCHEMA, Document, Fields, decode, pack, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.domain.studies import Answer, StudyEvent

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

_KINDS = {kind.value: kind for kind in AnswerKind}


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


def encode_shape(shape: StudyShape) -> bytes:
    """Return a shape as bytes."""
    document: Document = {name: getattr(shape, name) for name in _SHAPE}
    return pack({"v": SCHEMA, "answer_kind": shape.answer_kind.value, **document})


def decode_shape(data: bytes) -> StudyShape:
    """Return the shape in `data`, or raise `CorruptDataError`."""
    return decode(data, _shape)


def encode_progress(progress: DesignProgress) -> bytes:
    """Return progress as bytes."""
    return pack({"v": SCHEMA, **_progress_document(progress)})


def decode_progress(data: bytes) -> DesignProgress:
    """Return the progress in `data`, or raise `CorruptDataError`."""
    return decode(data, _progress)


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as bytes: equal answers have equal bytes."""
    return pack(_answer_document(answer))


def encode_study_event(event: StudyEvent) -> bytes:
    """Return an event as bytes."""
    return pack({"v": SCHEMA, **_event_document(event)})


def decode_study_event(data: bytes) -> StudyEvent:
    """Return the event in `data`, or raise `CorruptDataError`."""
    return decode(data, _event)


_SHAPE = ("list_size", "budget", "items", "item_features", "queries", "query_features")


def _shape(fields: Fields) -> StudyShape:
    kind = fields.choice("answer_kind", _KINDS)
    return StudyShape(answer_kind=kind, **{name: fields.integer(name) for name in _SHAPE})


def _progress_document(progress: DesignProgress | StudyDesign) -> Document:
    return {
        "steps": progress.steps,
        "log_det": float(progress.log_det),
        "gap": float(progress.gap),
        "target_gap": float(progress.target_gap),
    }


def _progress(fields: Fields) -> DesignProgress:
    numbers = (fields.number(name) for name in ("log_det", "gap", "target_gap"))
    return DesignProgress(fields.integer("steps"), *numbers)


def _features_document(rows: Sequence[tuple[float, ...]]) -> Document:
    width = len(rows[0]) if rows else 0
    # Adding 0.0 makes -0.0 and 0.0 one number, as they are to everybody who reads them.
    numbers = [number + 0.0 for row in rows for number in row]
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    return {"width": width, "numbers": base64.b64encode(packed).decode()}


def _features(fields: Fields, *, count: int) -> list[tuple[float, ...]]:
    width = fields.integer("width")
    try:
        packed = base64.b64decode(fields.text("numbers"), validate=True)
        numbers = struct.unpack(f"<{count * width}d", packed)
    except (binascii.Error, ValueError, struct.error) as error:
        raise CorruptDataError(f"stored features are not {count} rows of {width} numbers") from error
    return [numbers[row * width : (row + 1) * width] for row in range(count)]


def _settings_document(settings: StudySettings) -> Document:
    return {
        "items": [item.item_id for item in settings.items],
        "item_features": _features_document([item.features for item in settings.items]),
        "queries": [query.query_id for query in settings.queries],
        "query_features": _features_document([query.features for query in settings.queries]),
        "answer_kind": settings.answer_kind.value,
        "list_size": settings.list_size,
        "budget": settings.budget,
    }


def _settings(fields: Fields) -> StudySettings:
    items, queries = fields.texts("items"), fields.texts("queries")
    item_features = _features(fields.child("item_features"), count=len(items))
    query_features = _features(fields.child("query_features"), count=len(queries))
    return StudySettings(
        items=tuple(map(StudyItem, items, item_features)),
        queries=tuple(map(StudyQuery, queries, query_features)),
        answer_kind=fields.choice("answer_kind", _KINDS),
        list_size=fields.integer("list_size"),
        budget=fields.integer("budget"),
    )


def _design_document(design: StudyDesign) -> Document:
    return {
        "lists": [[one.query, *one.items] for one in design.lists],
        "weights": [float(weight) for weight in design.weights],
        **_progress_document(design),
    }


def _design(fields: Fields) -> StudyDesign:
    progress = _progress(fields)
    lists = [Fields({"list": one}).integers("list") for one in fields.sequence("lists")]
    weights = fields.numbers("weights")
    if len(weights) != len(lists) or not all(len(one) > 1 for one in lists):
        refuse("lists", len(lists))
    return StudyDesign(
        lists=tuple(QuestionList(one[0], one[1:]) for one in lists),
        weights=weights,
        log_det=progress.log_det,
        gap=progress.gap,
        target_gap=progress.target_gap,
        steps=progress.steps,
    )


def _answer_document(answer: Answer) -> Document:
    match answer:
        case RatingsAnswer(values):
            return {"ratings": [float(value) + 0.0 for value in values]}
        case RankingAnswer(places):
            return {"ranking": list(places)}
        case ChoiceAnswer(place):
            return {"choice": place}


_ANSWERS: Mapping[str, Callable[[Fields], Answer]] = {
    "ratings": lambda fields: RatingsAnswer(fields.numbers("ratings")),
    "ranking": lambda fields: RankingAnswer(fields.integers("ranking")),
    "choice": lambda fields: ChoiceAnswer(fields.integer("choice")),
}


def _answer(fields: Fields) -> Answer:
    kind = next(iter(fields.document), "")
    return _ANSWERS[kind](fields) if kind in _ANSWERS else refuse("answer", kind)


def _event_document(event: StudyEvent) -> Document:
    document: Document
    match event:
        case StudyCreated(settings):
            document = {"type": "study_created", "settings": _settings_document(settings)}
        case DesignRestarted(attempt):
            document = {"type": "design_restarted", "attempt": attempt}
        case DesignChosen(attempt, design):
            document = {"type": "design_chosen", "attempt": attempt, "design": _design_document(design)}
        case DesignCancelled(attempt):
            document = {"type": "design_cancelled", "attempt": attempt}
        case DesignFailed(attempt, field, problem):
            document = {"type": "design_failed", "attempt": attempt, "field": field, "problem": problem}
        case QuestionsAsked(request_id, lists):
            document = {"type": "questions_asked", "request_id": request_id, "lists": list(lists)}
        case QuestionAnswered(question, answer):
            document = {"type": "answered", "question": question, "answer": _answer_document(answer)}
    return document


_EVENTS: Mapping[str, Callable[[Fields], StudyEvent]] = {
    "study_created": lambda fields: StudyCreated(_settings(fields.child("settings"))),
    "design_restarted": lambda fields: DesignRestarted(fields.integer("attempt")),
    "design_chosen": lambda fields: DesignChosen(fields.integer("attempt"), _design(fields.child("design"))),
    "design_cancelled": lambda fields: DesignCancelled(fields.integer("attempt")),
    "design_failed": lambda fields: DesignFailed(
        fields.integer("attempt"), fields.text("field"), fields.text("problem")
    ),
    "questions_asked": lambda fields: QuestionsAsked(fields.text("request_id"), fields.integers("lists")),
    "answered": lambda fields: QuestionAnswered(fields.integer("question"), _answer(fields.child("answer"))),
}


def _event(fields: Fields) -> StudyEvent:
    return fields.choice("type", _EVENTS)(fields)
