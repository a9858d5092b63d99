"""Which questions a device is asked through a link, and the ids that it answers them by.

Everything follows from the study, the device's name and the question's number: a device that comes back is asked the
same again, unless answers of others have come meanwhile. Nothing is recorded before there is an answer.
"""

from __future__ import annotations

import hmac
import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.studies import LinkQuestion
from topk_bandit.studies.model import LinkPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from topk_bandit.domain.studies import StudyLink
    from topk_bandit.studies.model import StudyModel

__all__ = ["answered_by", "next_link_questions", "read_question_id", "shares_missing"]

_QUESTION_ID = re.compile(r"(\d{1,3})\.(\d{1,9})\.([0-9a-f]{24})", re.ASCII)
_LEAST = 0.05
"""A list that has its answers is asked about with this part of its share: all lists may be ahead by rounding."""


def shares_missing(weights: NDArray[np.float64], answered: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return with what weights to draw a list, shape (S,).

    The next S answers of the design's shares are looked at: what each list lacks of them, with all answers that came.
    So all lists are drawn by their shares at first, and those behind more often later.

    Parameters
    ----------
    weights
        The design's shares, shape (S,).
    answered
        How many answers came about each list, shape (S,).
    """
    wanted = weights * (answered.sum() + len(weights))
    lacking: NDArray[np.float64] = np.maximum(wanted - answered, _LEAST * weights)
    return lacking


def answered_by(model: StudyModel, link: StudyLink, respondent: str) -> Mapping[int, int]:
    """Return the list of each question that a device has answered, by the question's number."""
    found: dict[int, int] = {}
    for number in range(1, link.settings.answers_each + 1):
        question = model.question_of(LinkPlace(link.link_id, respondent, number).request_id)
        if question is not None:
            found[number] = model.questions[question].list_number
    return found


def next_link_questions(
    model: StudyModel, link: StudyLink, respondent: str, *, answered: NDArray[np.int64], count: int
) -> tuple[LinkQuestion, ...]:
    """Return up to `count` questions that a device has not answered; none is about a list that it knows if one is not.

    Parameters
    ----------
    answered
        As for `shares_missing`.
    """
    known = answered_by(model, link, respondent)
    weights = shares_missing(np.array(model.chosen_design.weights), answered)
    seen, questions = set(known.values()), list[LinkQuestion]()
    left = (number for number in range(1, link.settings.answers_each + 1) if number not in known)
    for number, _ in zip(left, range(count), strict=False):
        place = LinkPlace(link.link_id, respondent, number)
        rng = np.random.default_rng(int.from_bytes(_digest(model, place, "draw")))
        drawn = _draw(weights, seen, rng)
        seen.add(drawn)
        questions.append(_question(model, place, drawn, rng))
    return tuple(questions)


def read_question_id(model: StudyModel, link: StudyLink, respondent: str, text: str) -> tuple[LinkPlace, int] | None:
    """Return which question of a device an id stands for, and its list; None for what it was never asked."""
    match = _QUESTION_ID.fullmatch(text)
    if match is None:
        return None
    place, drawn = LinkPlace(link.link_id, respondent, int(match[1])), int(match[2])
    is_ours = hmac.compare_digest(text.encode(), _question_id(model, place, drawn).encode())
    return (place, drawn) if is_ours else None


def _draw(weights: NDArray[np.float64], seen: Collection[int], rng: np.random.Generator) -> int:
    """Draw a list by weights, by the first of exponential clocks: a small change of weights seldom changes the list."""
    waits = rng.exponential(size=len(weights)) / weights
    if len(seen) < len(weights):
        waits[list(seen)] = np.inf
    return int(np.argmin(waits))


def _question(model: StudyModel, place: LinkPlace, drawn: int, rng: np.random.Generator) -> LinkQuestion:
    shown, settings = model.chosen_design.lists[drawn], model.settings
    return LinkQuestion(
        question_id=_question_id(model, place, drawn),
        number=place.number,
        query_id=settings.queries[shown.query].query_id if settings.queries else "",
        items=tuple(settings.items[item] for item in rng.permutation(shown.items).tolist()),
    )


def _question_id(model: StudyModel, place: LinkPlace, drawn: int) -> str:
    return f"{place.number}.{drawn}.{_digest(model, place, str(drawn))[:12].hex()}"


def _digest(model: StudyModel, place: LinkPlace, about: str) -> bytes:
    """Return bytes that only somebody who knows the study's incarnation can compute; no call returns that."""
    text = f"{about} {place.request_id}".encode()
    return blake2b(text, key=model.incarnation.encode()[:64], digest_size=16, person=b"link question").digest()
