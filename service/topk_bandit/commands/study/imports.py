"""What `topk-bandit study import` does: the rows of a file into a study of a running service."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Console

from topk_bandit.client import AnswerKind, ClientError, InvalidArgument, PastAnswer
from topk_bandit.client.imports import ROWS_PER_CALL
from topk_bandit.commands.connection import connect
from topk_bandit.commands.imports.cells import Cells, columns_named, is_missing
from topk_bandit.commands.imports.files import digest_of, read_rows
from topk_bandit.commands.imports.places import explain
from topk_bandit.commands.names import study_named
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from topk_bandit.client import Client
    from topk_bandit.client.study_values import GivenAnswer
    from topk_bandit.commands.imports.files import FileRow

__all__ = ["run"]

_MOST_ITEMS = 12
"""So many items an answer is about at most; the service counts them."""


def run(given: argparse.Namespace) -> int:
    """Import a file; return the exit status."""
    name, import_id = study_named(given.study), given.import_id or digest_of(given.file, given.columns)
    try:
        with connect(given, name.tenant) as client:
            kind = client.get_study(name.study).answer_kind
            columns = _AnswerColumns(named=columns_named(given.columns), kind=kind)
            return _Import(client, name.study, import_id, columns, given).run()
    except ClientError as error:
        print(f"topk-bandit: {error}", file=sys.stderr)  # noqa: T201 - what a person at a terminal reads
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerColumns(Cells):
    """Where a row has what of an answer."""

    kind: AnswerKind

    def passed_over(self, values: Mapping[str, Any]) -> list[str]:
        """Return the columns of a row that mean nothing."""
        places = range(1, _MOST_ITEMS + 1)
        known = {"query", "items", *(f"item_{place}" for place in places)}
        if self.kind is AnswerKind.RATINGS:
            known |= {"item", "rating", "ratings", *(f"rating_{place}" for place in places)}
        elif self.kind is not AnswerKind.RANKING:
            known.add("chosen")
        return self.others(values, known)

    def read(self, values: Mapping[str, Any]) -> PastAnswer:
        """Return the answer in a row, or raise `InvalidArgumentError` naming the column."""
        query = self.get(values, "query")
        items = [self.text("items", item) for item in self.parts(values, "items", "item", _MOST_ITEMS)]
        answer, shown = self._answer(values, items)
        return PastAnswer(answer, shown, "" if is_missing(query) else self.text("query", query))

    def _answer(self, values: Mapping[str, Any], items: list[str]) -> tuple[GivenAnswer, list[str]]:
        if self.kind is AnswerKind.RATINGS:
            return self._ratings(values, items), []
        if not items:
            raise self.error("items", "is missing")
        if self.kind is AnswerKind.RANKING:
            return items, []
        chosen = self.get(values, "chosen")
        return items[0] if is_missing(chosen) else self.text("chosen", chosen), items

    def _ratings(self, values: Mapping[str, Any], items: list[str]) -> dict[str, float]:
        whole, single = self.get(values, "ratings"), self.get(values, "item")
        if isinstance(whole, dict):
            return {item: self.number("ratings", rating) for item, rating in whole.items()}
        if not items and not is_missing(single):
            return {self.text("item", single): self.number("rating", self.get(values, "rating"))}
        ratings = [self.number("ratings", rating) for rating in self.parts(values, "ratings", "rating", _MOST_ITEMS)]
        if len(ratings) != len(items) or not items:
            raise self.error("ratings", f"expected one for each item, got {len(ratings)} for {len(items)} items")
        if len(set(items)) < len(items):
            raise self.error("items", "names an item a second time")
        return dict(zip(items, ratings, strict=True))


class _Import:
    """One file on its way into one study."""

    def __init__(
        self, client: Client, study: str, import_id: str, columns: _AnswerColumns, given: argparse.Namespace
    ) -> None:
        self._client, self._study, self._import_id = client, study, import_id
        self._columns, self._path = columns, given.file
        self._console = Console()

    def run(self) -> int:
        """Import what is not imported yet, and tell what became of it."""
        self._look_through()
        before = self._client.get_answer_import(self._study, self._import_id)
        rows, taken = islice(read_rows(self._path), before, None), 0
        while part := list(islice(rows, ROWS_PER_CALL)):
            self._send(part, before + taken)
            taken += len(part)
        besides = f"; {before} were imported before" if before else ""
        self._say(f"{taken} answers imported{besides}: import {self._import_id}")
        return 0

    def _look_through(self) -> None:
        """Raise what is wrong with the form of any row."""
        for number, row in enumerate(read_rows(self._path)):
            self._answer(row)
            if not number and (others := self._columns.passed_over(_values(row))):
                self._say(f"columns that mean nothing to the study: {', '.join(others)}")

    def _answer(self, row: FileRow) -> PastAnswer:
        try:
            return self._columns.read(_values(row))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{row.place}, {error.field}", error.problem) from None

    def _send(self, part: Sequence[FileRow], first: int) -> None:
        answers = [self._answer(row) for row in part]
        try:
            self._client.import_answers(self._study, answers, import_id=self._import_id, first_row=first)
        except InvalidArgument as error:
            begun = self._client.get_answer_import(self._study, self._import_id)
            places = [row.place for row in part]
            raise explain(error, places, begun=begun, import_id=self._import_id) from None

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _values(row: FileRow) -> Mapping[str, Any]:
    if isinstance(row.values, InvalidArgumentError):
        raise row.values
    return row.values
