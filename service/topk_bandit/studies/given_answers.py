"""Turns an answer as it is sent, by item ids, into the one that the log keeps, by places in the list shown.

It refuses whatever does not fit the question, and names the field as the wire calls it. It never guesses what was
meant: an item left out or named twice is an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError, TopkBanditError
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswerOutcome,
    ChoiceAnswer,
    DeclinedAnswer,
    GivenBestWorst,
    GivenChoice,
    GivenDecline,
    GivenRanking,
    GivenRatings,
    GivenTiers,
    RankingAnswer,
    RatingsAnswer,
    TiersAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import Answer, GivenAnswer

__all__ = ["label_of", "read_answer"]

_FIELDS = {
    AnswerKind.RATINGS: "ratings",
    AnswerKind.RANKING: "ranking",
    AnswerKind.CHOICE: "chosen_item_id",
    AnswerKind.PAIR: "chosen_item_id",
}

_TIERS_OF_CHOICE = 2


def read_answer(given: GivenAnswer | None, shown: Sequence[str], *, kind: AnswerKind) -> Answer:
    """Return an answer to the question that showed these items.

    Raises
    ------
    InvalidArgumentError
        Naming the field of the answer: it is of another kind than the study takes, names an item that was not shown,
        names an item twice or leaves one out (tiers alone may), or has a rating that is not a finite number.
    """
    match given:
        case GivenDecline(reason):
            return DeclinedAnswer(reason)
        case GivenTiers(tiers) if kind is not AnswerKind.RATINGS:
            return _simplify(_read_tiers(tiers, shown), kind)
        case GivenBestWorst(best, worst) if kind is not AnswerKind.RATINGS:
            return _simplify(_read_best_worst(best, worst, shown), kind)
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


def _read_tiers(tiers: Sequence[Sequence[str]], shown: Sequence[str]) -> list[list[int]]:
    if not tiers:
        raise InvalidArgumentError("tiers.tiers", "is required: name the best items at least")
    found: list[list[int]] = []
    left = set(range(len(shown)))
    for number, tier in enumerate(tiers):
        if not tier:
            raise InvalidArgumentError(f"tiers.tiers[{number}].item_ids", "is empty")
        found.append([])
        for index, item_id in enumerate(tier):
            path = f"tiers.tiers[{number}].item_ids[{index}]"
            place = _find_place(path, item_id, shown)
            if place not in left:
                raise InvalidArgumentError(path, "names an item a second time")
            left.remove(place)
            found[-1].append(place)
    return [*found, sorted(left)] if left else found


def _read_best_worst(best: str, worst: str, shown: Sequence[str]) -> list[list[int]]:
    first = _find_place("best_worst.best_item_id", best, shown)
    last = _find_place("best_worst.worst_item_id", worst, shown)
    if first == last:
        raise InvalidArgumentError("best_worst.worst_item_id", "is the best item, too")
    between = [place for place in range(len(shown)) if place not in {first, last}]
    return [tier for tier in ([first], between, [last]) if tier]


def _simplify(tiers: Sequence[Sequence[int]], kind: AnswerKind) -> Answer:
    """Return tiers as the answer that says the same, if there is one of the study's kind: each has one form."""
    if kind is AnswerKind.RANKING and all(len(tier) == 1 for tier in tiers):
        return RankingAnswer(tuple(tier[0] for tier in tiers))
    if kind is not AnswerKind.RANKING and len(tiers) == _TIERS_OF_CHOICE and len(tiers[0]) == 1:
        return ChoiceAnswer(tiers[0][0])
    return TiersAnswer(tuple(tuple(sorted(tier)) for tier in tiers))


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


def label_of(result: AnswerOutcome | TopkBanditError) -> str:
    """Return what telemetry calls the result of one answer."""
    known = {
        "NotFoundError": "not_found",
        "ConflictError": "conflict",
        "UnavailableError": "unavailable",
        "InvalidArgumentError": "invalid",
    }
    return result.value if isinstance(result, AnswerOutcome) else known.get(type(result).__name__, "refused")
