"""What `topk-bandit import` does: the rows of a file into a bandit of a running service."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topk_bandit.client import ClientError, InvalidArgument
from topk_bandit.client.imports import ROWS_PER_CALL
from topk_bandit.commands.connection import connect
from topk_bandit.commands.imports.columns import Columns
from topk_bandit.commands.imports.decision_log import DecisionLog
from topk_bandit.commands.imports.files import DECISION_LOG, digest_of, read_rows
from topk_bandit.commands.imports.places import explain
from topk_bandit.commands.names import bandit_named
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from topk_bandit.client import Bandit, Client, PastObservation
    from topk_bandit.commands.imports.files import FileRow
    from topk_bandit.domain.bandits import BanditName

__all__ = ["run"]

_ERRORS_SHOWN = 10


def run(given: argparse.Namespace) -> int:
    """Import a file; return the exit status."""
    name, how = bandit_named(given.bandit), [*given.columns, given.format] if given.format else given.columns
    import_id = given.import_id or digest_of(given.file, how)
    try:
        with connect(given, name.tenant) as client:
            return _Import(client, name, given, import_id).run()
    except ClientError as error:
        print(f"topk-bandit: {error}", file=sys.stderr)  # noqa: T201 - what a person at a terminal reads
        return 1


def _meaning(given: argparse.Namespace, settings: Bandit) -> Columns | DecisionLog:
    """Return what reads the rows of a file."""
    if given.format == DECISION_LOG:
        return DecisionLog.of(given.columns, schema=settings.context_schema)
    return Columns.of(
        given.columns,
        schema=settings.context_schema,
        slate_size=settings.slate_size,
        context_dimension=settings.context_dimension,
    )


class _Import:
    """One file on its way into one bandit."""

    def __init__(self, client: Client, name: BanditName, given: argparse.Namespace, import_id: str) -> None:
        self._client, self._bandit, self._import_id = client, name.bandit, import_id
        self._path, self._skips = given.file, given.skip_bad_rows
        self._console = Console()
        settings = client.get_bandit(self._bandit)
        self._is_decision_log = given.format == DECISION_LOG
        self._columns = _meaning(given, settings)
        self._accepted = 0
        self._skipped = 0

    def run(self) -> int:
        """Import what is not imported yet, and tell what became of it."""
        count = self._look_through()
        begun = self._client.get_import(self._bandit, self._import_id)
        rows = islice(read_rows(self._path, json_lines=self._is_decision_log), begun.next_row, None)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task("Importing", total=count, completed=min(begun.next_row, count))
            first = begun.next_row
            while part := list(islice(rows, ROWS_PER_CALL)):
                self._send(part, first)
                first += len(part)
                progress.update(task, completed=first)
        before = f"; {begun.accepted} were imported before" if begun.next_row else ""
        self._say(f"{self._accepted} rows imported, {self._skipped} left out{before}: import {self._import_id}")
        return 0

    def _look_through(self) -> int:
        """Return how many rows there are; raise what is wrong with the form of any, unless such are left out."""
        count = 0
        for row in read_rows(self._path, json_lines=self._is_decision_log):
            if not count and not isinstance(row.values, InvalidArgumentError):
                self._name_others(row.values)
            count += 1
            if not self._skips:
                self._observation(row)
        return count

    def _name_others(self, values: Mapping[str, Any]) -> None:
        if others := self._columns.passed_over(values):
            self._say(f"columns that mean nothing to the bandit: {', '.join(others)}")

    def _observation(self, row: FileRow) -> PastObservation:
        try:
            if isinstance(row.values, InvalidArgumentError):
                raise row.values
            return self._columns.read(row.values)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{row.place}, {error.field}", error.problem) from None

    def _send(self, part: Sequence[FileRow], first: int) -> None:
        rows: list[PastObservation] = []
        places: list[str] = []
        for row in part:
            try:
                rows.append(self._observation(row))
                places.append(row.place)
            except InvalidArgumentError as error:
                self._leave_out(str(error))
        try:
            report = self._client.import_observations(
                self._bandit,
                rows,
                import_id=self._import_id,
                first_row=first,
                next_row=first + len(part),
                skip_bad_rows=self._skips,
            )
        except InvalidArgument as error:
            begun = self._client.get_import(self._bandit, self._import_id).next_row
            raise explain(error, places, begun=begun, import_id=self._import_id) from None
        for bad in report.errors:
            self._leave_out(f"{places[bad.row - first]}, {bad.field}: {bad.message}")
        self._accepted += report.accepted
        self._skipped += report.skipped - len(report.errors)

    def _leave_out(self, problem: str) -> None:
        self._skipped += 1
        if self._skipped <= _ERRORS_SHOWN:
            self._say(f"left out: {problem}")
        elif self._skipped == _ERRORS_SHOWN + 1:
            self._say("left out: more, which are only counted")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
