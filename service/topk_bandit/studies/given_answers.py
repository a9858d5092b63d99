"""Turns an answer as it is sent, by item ids, into the one that the log keeps, by places in the list shown.

It refuses whatever does not fit the question, and names the field as the wire calls it. It never guesses what was
meant: an item left out or named twice is an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import (
    AnswerKind,
    ChoiceAnswer,
    GivenChoice,
    GivenRanking,
    GivenRatings,
    RankingAnswer,
    RatingsAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import Answer, GivenAnswer

__all__ = ["read_answer"]

_FIELDS = {
    AnswerKind.RATINGS: "ratings",
    AnswerKind.RANKING: "ranking",
    AnswerKind.CHOICE: "chosen_item_id",
    AnswerKind.PAIR: "chosen_item_id",
}


def read_answer(given: GivenAnswer | None, shown: Sequence[str], *, kind: AnswerKind) -> Answer:
    """Return an answer to the question that showed these items.

    Raises
    ------
    InvalidArgumentError
        Naming the field of the answer: it is of another kind than the study takes, names an item that was not shown,
        names an item twice or leaves one out (so there are no ties and no empty answers), or has a rating that is not a
        finite number.
    """
    match given:
        case GivenRatings(ratings) if kind is AnswerKind.RATINGS:
            return _read_ratings(ratings, shown)
        case GivenRanking(item_ids) if kind is AnswerKind.RANKING:
            places = _find_places([(f"ranking.item_ids[{n}]", one) for n, one in enumerate(item_ids)], "ranking", shown)
            return RankingAnswer(tuple(places))
        case GivenChoice(item_id) if kind in {AnswerKind.CHOICE, AnswerKind.PAIR}:
            return ChoiceAnswer(_find_place("chosen_item_id", item_id, shown))
        case _:
            raise InvalidArgumentError(_FIELDS[kind], "is required: it is what this study asks for")


def _read_ratings(ratings: Sequence[tuple[str, float]], shown: Sequence[str]) -> RatingsAnswer:
    named = [(f"ratings.ratings[{number}].item_id", item_id) for number, (item_id, _) in enumerate(ratings)]
    places = _find_places(named, "ratings", shown)
    for number, (_, value) in enumerate(ratings):
        if not math.isfinite(value):
            raise InvalidArgumentError(f"ratings.ratings[{number}].value", f"must be a finite number, not {value!r}")
    by_place = dict(zip(places, (value for _, value in ratings), strict=True))
    return RatingsAnswer(tuple(by_place[place] for place in range(len(shown))))


def _find_places(named: Sequence[tuple[str, str]], whole: str, shown: Sequence[str]) -> list[int]:
    places: list[int] = []
    for path, item_id in named:
        place = _find_place(path, item_id, shown)
        if place in places:
            raise InvalidArgumentError(path, "names an item a second time")
        places.append(place)
    if len(places) < len(shown):
        problem = f"names {len(places)} items, and has to name each of the {len(shown)} shown once"
        raise InvalidArgumentError(whole, problem)
    return places


def _find_place(path: str, item_id: str, shown: Sequence[str]) -> int:
    try:
        return shown.index(item_id)
    except ValueError:
        raise InvalidArgumentError(path, f"names an item that this question did not show: {item_id!r}") from None
