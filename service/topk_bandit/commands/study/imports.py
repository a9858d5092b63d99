"""What `topk-bandit study import` does: the rows of a file into a study of a running service."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Console

from topk_bandit.client import InvalidArgument, PastAnswer
from topk_bandit.client.imports import ROWS_PER_CALL
from topk_bandit.commands.connection import connect
from topk_bandit.commands.imports.dry_run import DryRunReader, JudgeOfAnswers
from topk_bandit.commands.imports.places import check_goes_on, explain
from topk_bandit.commands.imports.report import ROWS_SHOWN, BadRows, SeenColumns, first_answers_table
from topk_bandit.commands.names import study_named
from topk_bandit.commands.study.answer_files import AnswerFile
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import MAX_LIST_SIZE
from topk_bandit.store.study_log import MOST_IMPORTED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from topk_bandit.client import Client, Study
    from topk_bandit.commands.imports.reading import Found, Reading
    from topk_bandit.tables.rows import FileRow

__all__ = ["run"]


def run(given: argparse.Namespace) -> int:
    """Import a file; return the exit status."""
    name = study_named(given.study)
    file = AnswerFile.of(given.file, given)
    import_id = given.import_id or file.digest()
    with connect(given, name.tenant) as client:
        study = client.get_study(name.study)
        reading = file.reading(study.answer_kind, size=MAX_LIST_SIZE)
        importing = _Import(client, study, import_id, reading)
        return importing.check() if given.check else importing.run()


class _Import:
    """One file on its way into one study."""

    def __init__(self, client: Client, study: Study, import_id: str, reading: Reading[PastAnswer]) -> None:
        self._client, self._study, self._import_id = client, study.name, import_id
        self._imported, self._judge = study.imported_count, JudgeOfAnswers.of(study)
        self._reading = reading
        self._console = Console()

    def check(self) -> int:
        """Show what would be imported; return 1 if a row can't be."""
        columns, first = SeenColumns(), list[PastAnswer]()

        def watch(values: Mapping[str, Any], answer: PastAnswer) -> None:
            columns.add(values)
            if len(first) < ROWS_SHOWN:
                first.append(answer)

        reading = replace(self._reading, reader=DryRunReader(self._reading.reader, self._judge.judge))
        bad = BadRows(self._say, "can't be taken")
        found = reading.look_through(skips=False, watch=watch, report=bad.add)
        self._count_before(found)
        self._console.print(columns.table(found.strangers), first_answers_table(first))
        self._report(found)
        self._say(f"{found.count - found.wrong} answers can be imported, {found.wrong} can't; nothing was sent")
        return 1 if found.wrong else 0

    def run(self) -> int:
        """Import what is not imported yet, and say what became of it."""
        found = self._reading.look_through(skips=False)
        self._report(found)
        before = self._count_before(found)
        rows, taken = islice(self._reading.rows(), before, None), 0
        while part := list(islice(rows, ROWS_PER_CALL)):
            self._send(part, before + taken)
            taken += len(part)
        besides = f"; {before} were imported before" if before else ""
        self._say(f"{taken} answers imported{besides}: import {self._import_id}")
        return 0

    def _count_before(self, found: Found) -> int:
        """Return how many rows are imported.

        Raises
        ------
        InvalidArgumentError
            It is another file that the import took, or the study does not take so many answers.
        """
        before = self._client.get_answer_import(self._study, self._import_id)
        check_goes_on(taken=before, count=found.count)
        fit = before + max(0, MOST_IMPORTED - self._imported)
        if found.count > fit:
            first = next(islice(self._reading.rows(), fit, None))
            problem = f"a study takes {MOST_IMPORTED} answers from elsewhere, and this one has {self._imported}"
            raise InvalidArgumentError(first.place, f"is the first answer too many: {problem}; nothing was sent")
        return before

    def _send(self, part: Sequence[FileRow], first: int) -> None:
        answers = [self._reading.read(row) for row in part]
        try:
            self._client.import_answers(self._study, answers, import_id=self._import_id, first_row=first)
        except InvalidArgument as error:
            begun = self._client.get_answer_import(self._study, self._import_id)
            places = [row.place for row in part]
            raise explain(error, places, begun=begun, import_id=self._import_id) from None

    def _report(self, found: Found) -> None:
        for line in found.remarks("the study"):
            self._say(line)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
