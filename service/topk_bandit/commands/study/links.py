"""What `topk-bandit study link` does: links by which people answer a study's questions are made, listed and ended."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import connect
from topk_bandit.commands.names import study_named
from topk_bandit.commands.printing import print_lines
from topk_bandit.commands.tables import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from topk_bandit.client import Client, StudyLink
    from topk_bandit.domain.studies import StudyName

__all__ = ["now_utc", "run"]

_COLUMNS = ("link", "state", "answers", "of", "people", "newest", "ends", "title")


def now_utc() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def run(given: argparse.Namespace) -> int:
    """Make, list or end links; return the exit status."""
    name = study_named(given.study)
    work = {"create": _create, "list": _list, "revoke": _revoke}[given.word]
    with connect(given, name.tenant) as client:
        print_lines(work(given, client, name), sys.stdout)
    return 0


def _create(given: argparse.Namespace, client: Client, name: StudyName) -> Iterator[str]:
    link = client.create_study_link(
        name.study,
        most_answers=given.most_answers,
        answers_each=given.answers_each,
        expire_time=now_utc() + timedelta(days=given.days),
        title=given.title,
        thanks=given.thanks,
        accent_color=given.accent_color,
        background_color=given.background_color,
        text_color=given.text_color,
    )
    yield f"{given.page.rstrip('/')}/ask#{name}/{link.token}"
    yield f"link {link.id}: up to {link.most_answers} answers, until {link.expire_time:%Y-%m-%d %H:%M} UTC"
    yield "Whoever has the first line can answer. It is printed this once; the service answers it with --answer-links."


def _list(_given: argparse.Namespace, client: Client, name: StudyName) -> Iterator[str]:
    yield from table(_COLUMNS, map(_row, client.list_study_links(name.study)))


def _row(link: StudyLink) -> tuple[object, ...]:
    newest = None if link.last_answer_time is None else f"{link.last_answer_time:%Y-%m-%d %H:%M:%S}"
    counts = link.answered_count, link.most_answers, link.respondent_count
    return link.id, link.state.replace("_", " "), *counts, newest, f"{link.expire_time:%Y-%m-%d %H:%M}", link.title


def _revoke(given: argparse.Namespace, client: Client, name: StudyName) -> Iterator[str]:
    link = client.revoke_study_link(name.study, given.link)
    yield f"link {link.id} is revoked; {link.answered_count} answers came through it"
