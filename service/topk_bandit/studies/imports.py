"""Take in answers that were given elsewhere: each row is checked before anything is written.

A study's settings never change, so a row is judged by them alone, whatever was asked and answered. Each statement is
kept in one form, so that rows that say the same are recognised again. Nothing here checks ids: `rpc` has done so.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError, errors_below
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswersImported,
    GivenRanking,
    GivenRatings,
    GivenTiers,
    PastAnswer,
    QuestionList,
)
from topk_bandit.store.data_versions import FIRST
from topk_bandit.store.log import ImportPart
from topk_bandit.store.study_codec import encode_study_event
from topk_bandit.studies.given_answers import read_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.studies import GivenPastAnswer, StudySettings

__all__ = ["MOST_SHOWN", "RowsOfAnswers", "read_import"]

MOST_SHOWN = 12
"""So many items at most an answer from elsewhere is about, as one to a question of the study's own."""


@dataclass(frozen=True, slots=True)
class RowsOfAnswers:
    """Answers that are sent together, in order; the first one is row `first_row` where they come from."""

    import_id: str
    first_row: int
    rows: tuple[GivenPastAnswer, ...]


def read_import(settings: StudySettings, sent: RowsOfAnswers) -> tuple[ImportPart, AnswersImported]:
    """Return answers as the log keeps them, and what distinguishes their part of the import from others.

    Raises
    ------
    InvalidArgumentError
        On ``rows[n]...``: that one can't be taken.
    """
    items = {item.item_id: index for index, item in enumerate(settings.items)}
    queries = {query.query_id: index for index, query in enumerate(settings.queries)}
    answers = []
    for place, row in enumerate(sent.rows):
        with errors_below(f"rows[{place}]"):
            answers.append(_read_row(settings.answer_kind, row, items, queries))
    event = AnswersImported(sent.import_id, sent.first_row, tuple(answers))
    fingerprint = blake2b(encode_study_event(event, FIRST), digest_size=16).hexdigest()
    next_row = sent.first_row + len(answers)
    return ImportPart(sent.import_id, sent.first_row, next_row, fingerprint, accepted=len(answers)), event


def _read_row(
    kind: AnswerKind, row: GivenPastAnswer, items: Mapping[str, int], queries: Mapping[str, int]
) -> PastAnswer:
    path, shown = _find_shown(row)
    _check_count(path, len(shown), kind)
    for place, item_id in enumerate(shown):
        if item_id not in items:
            raise InvalidArgumentError(f"{path}[{place}]", f"is no item of the study: {item_id[:128]!r}")
        if item_id in shown[:place]:
            raise InvalidArgumentError(f"{path}[{place}]", "names an item a second time")
    in_order = sorted(shown, key=items.__getitem__)
    listed = QuestionList(_query(row.query_id, queries), tuple(items[item_id] for item_id in in_order))
    return PastAnswer(listed, read_answer(row.answer, in_order, kind=kind), row.respondent)


def _find_shown(row: GivenPastAnswer) -> tuple[str, Sequence[str]]:
    """Return which items were shown, and the field that says so."""
    match row.answer:
        case GivenRanking(item_ids) if not row.item_ids:
            return "ranking.item_ids", item_ids
        case GivenRatings(ratings) if not row.item_ids:
            return "ratings.ratings", [item_id for item_id, _ in ratings]
        case GivenTiers(tiers) if not row.item_ids:
            return "tiers.tiers", [item_id for tier in tiers for item_id in tier]
        case _:
            return "item_ids", row.item_ids


def _check_count(path: str, count: int, kind: AnswerKind) -> None:
    fewest = 1 if kind is AnswerKind.RATINGS else 2
    most = 2 if kind is AnswerKind.PAIR else MOST_SHOWN
    if not fewest <= count <= most:
        expected = "2" if fewest == most else f"{fewest} to {most}"
        raise InvalidArgumentError(path, f"expected {expected} items that were shown, got {count}")


def _query(query_id: str, queries: Mapping[str, int]) -> int:
    if not queries and not query_id:
        return 0
    if query_id not in queries:
        problem = f"is no query of the study: {query_id[:128]!r}" if queries else "the study has no queries"
        raise InvalidArgumentError("query_id", problem)
    return queries[query_id]
