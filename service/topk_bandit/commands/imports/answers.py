"""What the columns of a row mean: an answer of a study. Errors name the column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.client import AnswerKind, BestWorst, Declined, DeclineReason, PastAnswer, Tiers
from topk_bandit.commands.imports.cells import Cells
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import MAX_STUDY_MAGNITUDE
from topk_bandit.domain.values import list_hint, read_bounded, read_label
from topk_bandit.rpc import fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from topk_bandit.client.study_values import GivenAnswer
    from topk_bandit.commands.imports.cells import Named

__all__ = ["AnswerColumns", "read_study_number"]

_CHOSEN = frozenset({"best", "choice", "chose", "chosen", "liked", "pick", "picked", "prefer", "preference"})
_CHOSEN |= {"preferred", "selected", "selection", "win", "winner", "winning", "won"}
_ORDERED = frozenset({"loser", "lost", "order", "position", "rank", "ranking", "rating", "ratings", "rejected"})
_ORDERED |= {"score", "scores", "worst"}
"""Words in the names of columns that say which item people preferred: that one, or the order."""

_SAID = frozenset({"answer", "label", "outcome", "response", "result", "vote"})
"""Whole names that may say it; beside other words, as in `response_id`, they say something else."""

_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")

_FEWEST = 2
"""An answer compares at least so many items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerColumns(Cells):
    """Where a row has what of an answer.

    Attributes
    ----------
    kind
        What people say about a list.
    size
        So many items an answer is about at most.
    """

    kind: AnswerKind
    size: int

    @classmethod
    def of(cls, flags: Named, kind: AnswerKind, *, size: int) -> AnswerColumns:
        """Return where rows with answers of a kind have what."""
        numbers = range(1, size + 1)
        items = frozenset({"items", "item_1"})
        known = items | {"question", "query", *(f"item_{number}" for number in numbers)}
        if kind is AnswerKind.RATINGS:
            items |= {"item", "ratings"}
            known |= items | {"rating", *(f"rating_{number}" for number in numbers)}
        else:
            known |= {"best_item", "worst_item", "places", *(f"place_{number}" for number in numbers)}
            known |= set() if kind is AnswerKind.RANKING else {"chosen"}
        known |= {"declined", "respondent"}
        return cls(flags=flags, known=known, required=(items,), kind=kind, size=size)

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns of a file that mean nothing; see `Cells.check_columns`.

        Raises
        ------
        InvalidArgumentError
            Besides: one of them seems to say which item was chosen, or how many people said so. Without it the first
            of each row would be, once.
        """
        strangers = Cells.check_columns(self, columns)
        self.check_no_counts(strangers, what="people answered so", each="answer")
        said = {"chosen", "best_item", "places", "place_1"} & self.known
        is_said = any(self.has_column(dict.fromkeys(columns), name) for name in said)
        if self.kind is AnswerKind.RATINGS or is_said:
            return strangers
        says = next((name for name in strangers if _words_of(name)), None)
        if says is not None:
            is_chosen = "chosen" in self.known and not _words_of(says) & _ORDERED
            remedy = f"--column chosen={says}" if is_chosen else "write the items best first"
            problem = f"seems to say which item was preferred, but means nothing: {remedy}"
            raise InvalidArgumentError(f"column {says!r}", f"{problem}, or pass it over: --ignore {says}")
        return strangers

    def read_row(self, values: Mapping[str, Any]) -> PastAnswer:
        """Return the answer in a row, or raise `InvalidArgumentError` naming the column."""
        named = self.take(values)
        query = self.convert("query", named.get("query"), read_label) or ""
        respondent = self.convert("respondent", named.get("respondent"), _read_respondent) or ""
        declined = self.convert("declined", named.get("declined"), _read_reason)
        if self.kind is AnswerKind.RATINGS and declined is None:
            return PastAnswer(self._ratings(named), query=query, respondent=respondent)
        items = [self.text("item", named["item"])] if "item" in named else self._items(named)
        if not items:
            raise self.error("items", "is missing")
        fewest = 1 if self.kind is AnswerKind.RATINGS else _FEWEST
        if len(items) < fewest:
            raise self.error("items", f"expected at least {fewest} items, got {len(items)}{list_hint(items)}")
        self._check_different(items)
        if declined is not None:
            return PastAnswer(Declined(declined), items, query, respondent)
        return PastAnswer(*self._answer(values, named, items), query, respondent)

    def _items(self, named: Mapping[str, Any]) -> list[str]:
        items = self.parts(named, "items", "item", self.size)
        return list(map(self.text, self.names_of_parts(named, "items", "item", self.size), items))

    def _answer(
        self, values: Mapping[str, Any], named: Mapping[str, Any], items: list[str]
    ) -> tuple[GivenAnswer, Sequence[str]]:
        ends = [name for name in ("best_item", "worst_item") if name in named]
        has_places = "places" in named or bool(self.numbered(named, "place", self.size))
        if len([form for form in (ends, has_places, "chosen" in named) if form]) > 1:
            raise self.error(ends[0] if ends else "places", "is there beside another answer: say it in one way")
        if not (ends or has_places or "chosen" in named):
            self._check_nothing_missing(values)
        if has_places:
            return self._tiers(named, items), items
        if ends:
            return self._best_worst(named, items), items
        if self.kind is AnswerKind.RANKING:
            return items, ()
        chosen = self.convert("chosen", named.get("chosen"), read_label)
        if chosen is not None and chosen not in items:
            raise self.error("chosen", f"{chosen!r:.60} is none of the row's items: write the id of one of them")
        return chosen or items[0], items

    def _check_nothing_missing(self, values: Mapping[str, Any]) -> None:
        """Raise for a row that has nothing where it would have its answer: the order of its items is none."""
        for name in ("chosen", "best_item", "worst_item", "places", "place_1"):
            if name in self.known and self.has_column(values, name):
                raise self.error(name, "is missing: a row that nobody answered has a reason in 'declined'")

    def _tiers(self, named: Mapping[str, Any], items: list[str]) -> Tiers:
        """Return items by their places: those of one place are tied, and those without are below all."""
        by_number = self.numbered(named, "place", self.size)
        if "places" in named:
            whole = self.parts(named, "places", "place", self.size)
            by_number = {
                number: place for number, place in enumerate(whole, start=1) if place is not None and place != ""
            }
            if not by_number:
                raise self.error("places", "is missing: it has no place")
        if beyond := [number for number in by_number if number > len(items)]:
            raise self.error(f"place_{beyond[0]}", f"is there, but item_{beyond[0]} is missing")
        tiers: dict[float, list[str]] = {}
        for number, place in by_number.items():
            name = "places" if "places" in named else f"place_{number}"
            tiers.setdefault(self.number(name, place), []).append(items[number - 1])
        return Tiers([tiers[place] for place in sorted(tiers)])

    def _best_worst(self, named: Mapping[str, Any], items: list[str]) -> GivenAnswer:
        """Return the best and the worst item, or the best ones above all others, or all others above the worst."""
        found = {}
        for name in ("best_item", "worst_item"):
            if name in named:
                found[name] = self.text(name, named[name])
                if found[name] not in items:
                    problem = f"{found[name]!r:.60} is none of the row's items: write the id of one of them"
                    raise self.error(name, problem)
        best, worst = found.get("best_item"), found.get("worst_item")
        if best is not None and worst is not None:
            if best == worst:
                raise self.error("worst_item", f"{worst!r:.60} is the best item, too")
            return BestWorst(best, worst)
        return Tiers([[best]] if best is not None else [[item for item in items if item != worst]])

    def _rating(self, name: str, value: Any) -> float:  # noqa: ANN401, whatever a file has
        return self.require(name, value, read_study_number)

    def _ratings(self, named: Mapping[str, Any]) -> dict[str, float]:
        self._check_form(named)
        whole = named.get("ratings")
        if isinstance(whole, dict):
            if not whole:
                raise self.error("ratings", "is missing")
            return {self.text("ratings", item): self._rating("ratings", rating) for item, rating in whole.items()}
        if "item" in named:
            return {self.text("item", named["item"]): self._rating("rating", named.get("rating"))}
        several = self.numbered(named, "item", self.size)
        return self._lists(named) if "items" in named else self._several(named, several)

    def _check_form(self, named: Mapping[str, Any]) -> None:
        """Refuse a row that says its items or ratings in two ways, or in ways that do not belong together."""
        forms = {form for form in ("item", "items", "rating", "ratings") if form in named}
        forms |= {f"{part}_1" for part in ("item", "rating") if self.numbered(named, part, self.size)}
        if isinstance(named.get("ratings"), dict):
            allowed = [{"ratings"}]
        else:
            lists = [{items, ratings} for items in ("items", "item_1") for ratings in ("ratings", "rating_1")]
            allowed = [{"item", "rating"}, *lists]
        if not any(forms <= one for one in allowed):
            raise self.error(
                max(forms), f"is there beside {', '.join(sorted(forms - {max(forms)}))}: say it in one way"
            )

    def _lists(self, named: Mapping[str, Any]) -> dict[str, float]:
        items, parts = self._items(named), self.parts(named, "ratings", "rating", self.size)
        ratings = list(map(self._rating, self.names_of_parts(named, "ratings", "rating", self.size), parts))
        if len(ratings) != len(items) or not items:
            problem = f"expected one for each item, got {len(ratings)} for {len(items)} items{list_hint(items)}"
            raise self.error("ratings", problem)
        self._check_different(items)
        return dict(zip(items, ratings, strict=True))

    def _several(self, named: Mapping[str, Any], items: Mapping[int, Any]) -> dict[str, float]:
        """Return the ratings of items by their numbers: neither slips to another where there is a gap."""
        whole = self.parts(named, "ratings", "rating", self.size) if "ratings" in named else None
        ratings = self.numbered(named, "rating", self.size) if whole is None else dict(enumerate(whole, start=1))
        if not items:
            raise self.error("items", "is missing")
        for number in sorted(items.keys() ^ ratings.keys()):
            absent, there = ("rating", "item") if number in items else ("item", "rating")
            raise self.error(f"{absent}_{number}", f"is missing, but {there}_{number} is there")
        texts = {number: self.text(f"item_{number}", item) for number, item in items.items()}
        self._check_different(list(texts.values()))
        return {item: self._rating(f"rating_{number}", ratings[number]) for number, item in texts.items()}

    def _check_different(self, items: list[str]) -> None:
        if len(set(items)) < len(items):
            twice = next(item for item in items if items.count(item) > 1)
            raise self.error("items", f"names the item {twice!r:.60} a second time")


def _words_of(column: str) -> frozenset[str]:
    """Return the words in the name of a column that say which item people preferred."""
    words = frozenset(word.lower() for word in _WORD.findall(column))
    return words & (_CHOSEN | _ORDERED) or (words & _SAID if len(words) == 1 else frozenset())


def _read_respondent(value: Any) -> str | None:  # noqa: ANN401, whatever a file has
    name = read_label(value)
    try:
        return name and fields.respondent("respondent", name)
    except InvalidArgumentError as error:
        raise ValueError(error.problem) from None


def _read_reason(value: Any) -> DeclineReason | None:  # noqa: ANN401, whatever a file has
    """Return why an answer was declined; None if it was not."""
    text = read_label(value)
    if text is not None and text not in set(DeclineReason):
        raise ValueError(f"expected {' or '.join(DeclineReason)}, got {text!r:.60}")
    return None if text is None else DeclineReason(text)


def read_study_number(value: Any) -> float | None:  # noqa: ANN401, whatever a file has
    """Return a feature or a rating that a study takes; None if it is missing.

    Raises
    ------
    ValueError
        It is none; the problem follows the name of the column.
    """
    return read_bounded(value, MAX_STUDY_MAGNITUDE, remedy=": write it in a larger unit")
