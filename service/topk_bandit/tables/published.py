"""Rankings as others publish them: Nectar's of answers by language models, and TREC's judgements and runs.

Nectar (https://huggingface.co/datasets/berkeley-nest/Nectar): a row has a prompt and ``answers``, each with its
``model`` and ``rank``. The items are the models.

TREC (https://trec.nist.gov): a line of judgements (qrels) is ``query iteration document relevance``, and a line of a
run ``query Q0 document rank score tag``. The items are the documents. Documents of a run are in the order of their
scores, and those of equal score by their names backwards, as `trec_eval` has them: the rank is not read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_label, read_number
from topk_bandit.tables.files import read_rows
from topk_bandit.tables.rows import FileRow, check_end, require_value, says_nothing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["PUBLISHED", "Published"]

NECTAR, TREC_JUDGEMENTS, TREC_RUN = "nectar", "trec-qrels", "trec-run"
PUBLISHED = (NECTAR, TREC_JUDGEMENTS, TREC_RUN)
"""The formats."""

_FIELDS = {
    TREC_JUDGEMENTS: ("query", "iteration", "document", "relevance"),
    TREC_RUN: ("query", "Q0", "document", "rank", "score", "tag"),
}


@dataclass(frozen=True, slots=True)
class Published:
    """How a file of published rankings is read.

    Attributes
    ----------
    form
        One of `PUBLISHED`.
    takes_ratings
        Whether the answers are ratings: judgements are one each then, and the other formats have none.
    depth
        So many items of each list are taken, the best ones; None for all.
    """

    form: str
    takes_ratings: bool
    depth: int | None = None

    def rows(self, path: Path) -> Iterator[FileRow]:
        """Return the answers of a file as rows.

        Raises
        ------
        InvalidArgumentError
            The file has no ratings where those are wanted, a line of TREC has another form, or the lines of a list do
            not stand together.
        ConfigurationError
            The file can't be read.
        """
        if self.takes_ratings and self.form != TREC_JUDGEMENTS:
            raise InvalidArgumentError("--format", f"a file of {self.form} has orders and no ratings")
        if self.form == NECTAR:
            return map(self._row_of_models, read_rows(path))
        lines = read_rows(path, read=partial(_read_trec, names=_FIELDS[self.form]))
        return lines if self.takes_ratings else self._rankings(lines)

    def _row_of_models(self, row: FileRow) -> FileRow:
        """Return the order of the models in a row of Nectar."""
        if isinstance(row.values, InvalidArgumentError):
            return row
        try:
            ranked = [
                (
                    require_value(f"answers[{number}].rank", one.get("rank"), read_number),
                    require_value(f"answers[{number}].model", one.get("model"), read_label),
                )
                for number, one in enumerate(_answers_of(row.values))
            ]
        except InvalidArgumentError as error:
            return replace(row, values=error)
        own = {"column 'items'": "answers, model"}
        return self._ranking(replace(row, named_at="", own=own), sorted(ranked, key=lambda one: one[0]), {})

    def _rankings(self, lines: Iterable[FileRow]) -> Iterator[FileRow]:
        """Return the order of the documents of each query, for each tag."""
        seen = set[tuple[str, str]]()
        for name, group in groupby(lines, key=_list_of):
            several = list(group)
            if name is None:
                yield from several
                continue
            first = several[0]
            if name in seen:
                which = " of ".join(part for part in name if part)
                problem = f"{which!r:.60} was there before: lines of one list stand together"
                yield replace(first, values=InvalidArgumentError("query", problem))
                continue
            seen.add(name)
            scored = [
                (-line.values["rating"], line.values["item"]) for line in several if isinstance(line.values, dict)
            ]
            scored.sort(key=lambda one: one[1], reverse=True)
            beside = {"query": name[0]} | ({"respondent": name[1]} if name[1] else {})
            yield self._ranking(first, sorted(scored, key=lambda one: one[0]), beside)

    def _ranking(self, row: FileRow, ranked: Sequence[tuple[float, str]], beside: Mapping[str, str]) -> FileRow:
        """Return a row with items in their order; each comes with a number that is smaller for a better one."""
        counts = Counter(item for _, item in ranked)
        if twice := next((item for item, count in counts.items() if count > 1), None):
            return replace(
                row, values=InvalidArgumentError("column 'items'", f"names the item {twice!r:.60} a second time")
            )
        taken = ranked[: self.depth]
        items, places = [item for _, item in taken], [place for place, _ in taken]
        values: dict[str, Any] = {**beside, "items": items}
        if len(set(places)) < len(places):
            values["places"] = places
        return replace(row, values=values, is_silent=says_nothing(values))


def _answers_of(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = values.get("answers")
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        raise InvalidArgumentError("column 'answers'", "expected a list of objects with a model and a rank")
    return found


def _read_trec(path: Path, names: Sequence[str]) -> Iterator[FileRow]:
    """Return the lines of a file of TREC as ratings: the relevance or the score."""
    number = 0
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _trec_line(f"{path.name}, line {number}", line.split(), names)
    if number:
        check_end(path, number)


def _trec_line(place: str, parts: Sequence[str], names: Sequence[str]) -> FileRow:
    own = {"column 'items'": "document", "column 'item'": "document", "column 'rating'": "relevance"}
    try:
        return FileRow(place, _rating_of(parts, names), own=own)
    except InvalidArgumentError as error:
        return FileRow(place, error)


def _rating_of(parts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    if len(parts) != len(names):
        raise InvalidArgumentError("row", f"expected {' '.join(names)}; got {len(parts)} fields")
    named = dict(zip(names, parts, strict=True))
    what = "score" if "score" in named else "relevance"
    found = {
        "query": require_value("query", named["query"], read_label),
        "item": require_value("document", named["document"], read_label),
        "rating": require_value(what, named[what], read_number),
    }
    return found | ({"respondent": require_value("tag", named["tag"], read_label)} if "tag" in named else {})


def _list_of(row: FileRow) -> tuple[str, str] | None:
    """Return the query and the tag of a line; None for one that can't be read."""
    if isinstance(row.values, InvalidArgumentError):
        return None
    return row.values["query"], row.values.get("respondent", "")
