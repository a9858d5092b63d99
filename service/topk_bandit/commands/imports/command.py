"""What `topk-bandit import` does: the rows of a file into a bandit of a running service."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topk_bandit.client import InvalidArgument, PastObservation
from topk_bandit.client.imports import ROWS_PER_CALL
from topk_bandit.commands.connection import connect
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.imports.columns import Columns
from topk_bandit.commands.imports.decision_log import DecisionLog
from topk_bandit.commands.imports.dry_run import DryRunReader, JudgeOfObservations
from topk_bandit.commands.imports.open_bandit import Feedback
from topk_bandit.commands.imports.places import check_goes_on, explain
from topk_bandit.commands.imports.reading import Reading
from topk_bandit.commands.imports.report import ROWS_SHOWN, Ages, BadRows, SeenColumns, UnknownTexts, first_rows_table
from topk_bandit.commands.names import bandit_named
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.store.data_versions import check_item_values
from topk_bandit.tables.files import DECISION_LOG, OBP, digest_of, read_json_lines, read_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from topk_bandit.client import Bandit, Client, ImportReport
    from topk_bandit.commands.imports.reading import Found
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.tables.rows import FileRow

__all__ = ["run"]


def run(given: argparse.Namespace) -> int:
    """Import a file, or say what would be imported; return the exit status."""
    name = bandit_named(given.bandit)
    how = [*given.columns, *given.ignored, given.format or "", "days" if given.spreadsheet_dates else ""]
    import_id = given.import_id or digest_of(given.file, [one for one in how if one])
    with connect(given, name.tenant) as client:
        return _Import(client, name, given, import_id).run()


def _reading(given: argparse.Namespace, settings: Bandit) -> Reading[PastObservation]:
    """Return how a file is read for a bandit."""
    flags = Named.of(given.columns, given.ignored, spreadsheet_dates=given.spreadsheet_dates)
    open_rows = partial(read_rows, given.file, ignored=flags.ignored)
    if given.format == OBP:
        feedback, flags = Feedback.of(flags, slate_size=settings.slate_size)
        open_rows = partial(_slates_of, feedback, open_rows)
    if given.format == DECISION_LOG:
        log = DecisionLog.of(flags, schema=settings.context_schema)
        return Reading(given.file.name, lambda: log.once(read_rows(given.file, read=read_json_lines)), log)
    columns = Columns.of(
        flags,
        schema=settings.context_schema,
        slate_size=settings.slate_size,
        context_dimension=settings.context_dimension,
    )
    columns.check_flags("the bandit")
    return Reading(given.file.name, open_rows, columns)


def _slates_of(feedback: Feedback, open_rows: Callable[[], Iterator[FileRow]]) -> Iterator[FileRow]:
    return feedback.slates(open_rows())


@dataclass(slots=True)
class _Part:
    """Some rows of a file: those that can be read, where they stand, and what is wrong with others."""

    first_row: int
    next_row: int
    rows: list[PastObservation] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    errors: list[InvalidArgumentError] = field(default_factory=list)


class _Import:
    """One file on its way into one bandit."""

    def __init__(self, client: Client, name: BanditName, given: argparse.Namespace, import_id: str) -> None:
        self._client, self._bandit, self._import_id = client, name.bandit, import_id
        self._path, self._skips = given.file, given.skip_bad_rows
        self._console = Console()
        self._only_checks = given.check
        self._settings = settings = client.get_bandit(self._bandit)
        self._begun = client.get_import(self._bandit, import_id)
        self._reading = _reading(given, settings)
        self._ages, self._unknown = Ages(settings.half_life), UnknownTexts(settings.context_schema)
        self._bad = BadRows(self._say, "left out" if self._skips else "can't be taken")
        self._accepted = 0

    def run(self) -> int:
        """Import what is not imported yet, and say what became of it."""
        if self._only_checks:
            return self._check()
        found = self._reading.look_through(skips=self._skips, watch=lambda _, row: self._count(row))
        self._report(found)
        count = found.count
        begun = self._begun
        check_goes_on(taken=begun.next_row, count=count)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task("Importing", total=count, completed=begun.next_row)
            self._send_from(begun.next_row, lambda sent: progress.update(task, completed=sent))
        left_out = begun.next_row - begun.accepted
        others = f" and {left_out} left out" if left_out else ""
        before = f"; {begun.accepted} were imported{others} before" if begun.next_row else ""
        self._say(f"{self._accepted} rows imported, {self._bad.count} left out{before}: import {self._import_id}")
        return 0

    def _check(self) -> int:
        """Show what would be imported; return the status of the import, as far as that is known here."""
        items = (item.item_id for item in self._client.items(self._bandit))
        judge = JudgeOfObservations.of(self._settings, items)
        columns, first = SeenColumns(), list[PastObservation]()

        def watch(values: Mapping[str, Any], row: PastObservation) -> None:
            columns.add(values)
            self._count(row)
            if len(first) < ROWS_SHOWN:
                first.append(row)

        reading = replace(self._reading, reader=DryRunReader(self._reading.reader, judge.judge))
        found = reading.look_through(skips=self._skips, watch=watch, report=self._bad.add)
        self._console.print(columns.table(found.strangers), first_rows_table(first))
        self._report(found)
        if judge.clamped:
            outside = f"{judge.clamped} rewards are outside of the bandit's reward_range"
            self._say(f"{outside}: they are learned as its ends")
        self._say(f"{found.count - found.wrong} rows can be imported, {found.wrong} can't; nothing was sent")
        return int(found.is_refused(skips=self._skips))

    def _report(self, found: Found) -> None:
        for line in (*found.remarks("the bandit"), *self._ages.say(), *self._unknown.say()):
            self._say(line)

    def _count(self, row: PastObservation) -> None:
        check_item_values(self._begun.data_version, row.item_values)
        self._ages.add(row.time)
        self._unknown.add(row.features)

    def _send_from(self, first: int, watch: Callable[[int], object]) -> None:
        """Send the rows from one on; each part is read while the one before it is on its way."""
        on_way: list[tuple[_Part, Future[ImportReport]]] = []
        with ThreadPoolExecutor(1) as sender:
            for part in self._parts(first):
                self._take_reports(on_way, watch)
                on_way = [(part, sender.submit(self._send, part))]
            self._take_reports(on_way, watch)

    def _parts(self, first: int) -> Iterator[_Part]:
        rows = islice(self._reading.rows(), first, None)
        while several := list(islice(rows, ROWS_PER_CALL)):
            yield self._read(several, first)
            first += len(several)

    def _read(self, rows: Sequence[FileRow], first: int) -> _Part:
        part = _Part(first, first + len(rows))
        for row in rows:
            try:
                part.rows.append(self._reading.read(row))
                part.places.append(row.place)
            except InvalidArgumentError as error:
                part.errors.append(error)
        return part

    def _send(self, part: _Part) -> ImportReport:
        return self._client.import_observations(
            self._bandit,
            part.rows,
            import_id=self._import_id,
            first_row=part.first_row,
            next_row=part.next_row,
            skip_bad_rows=self._skips,
        )

    def _take_reports(
        self, on_way: Iterable[tuple[_Part, Future[ImportReport]]], watch: Callable[[int], object]
    ) -> None:
        for part, answer in on_way:
            try:
                report = answer.result()
            except InvalidArgument as error:
                begun = self._client.get_import(self._bandit, self._import_id).next_row
                raise explain(error, part.places, begun=begun, import_id=self._import_id) from None
            for wrong in part.errors:
                self._bad.add(wrong)
            for bad in report.errors:
                self._bad.add(
                    InvalidArgumentError(f"{part.places[bad.row - part.first_row]}, {bad.field}", bad.message)
                )
            self._accepted += report.accepted
            self._bad.count += report.skipped - len(report.errors)
            watch(part.next_row)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
